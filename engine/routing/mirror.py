"""One backend as the router knows it: its last published load, its prefix index, what was sent to it.

Requests that no published load has shown yet count as queued. Nothing here asks the backend.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from engine.config import BLOCK_TOKENS
from engine.kv.manager import blocks_for
from engine.kv.prefix import extend_chain, restorable_blocks
from engine.profiling.profile import Rates
from engine.profiling.step_time import StepTimeModel
from engine.receipt import Candidate
from engine.request import BackendName, Request, RequestId
from engine.routing.correction import PriceCheck
from engine.routing.forecast import Job
from engine.routing.length import Remaining
from engine.routing.policies import isolated_s
from engine.step_report import BackendLoad, RequestLoad

Left = Callable[[Request, int], Remaining]  # (request, tokens generated) -> tokens still to come
_UNKNOWN_BLOCKS = 1_000_000  # before the first load was published


@dataclass(frozen=True, slots=True)
class Pace:
    """What a batched price of a backend needs."""

    steps: StepTimeModel
    slots: int
    token_budget: int = 512


@dataclass(slots=True)
class Sent:
    """A request on its way to, or at, a backend: what the router assumed when it was sent."""

    request: Request
    chain: list[bytes]
    cached_tokens: int
    coming_tokens: int  # the same, counting what earlier requests were about to fill
    sent_s: float
    first_s: float  # when it was sent to its first backend
    stays: bool = False  # the user's own choice, or it has moved once, or its move has been asked for
    waiting: "Waiting | None" = field(default=None, compare=False)

    @property
    def prefill_tokens(self) -> int:
        return self.request.prompt_tokens - self.cached_tokens


@dataclass(slots=True)
class Waiting:
    """The job of a request that waits, the same from step to step: most of a long queue waits."""

    job: Job
    prefill_remaining: int
    cached_tokens: int
    edition: int | None  # of the length estimates


@dataclass(frozen=True, slots=True)
class Work:
    """What a backend has to do, as jobs of a forecast."""

    active: list[Job]
    queue: list[Job]
    since_s: float  # seconds since this was true


@dataclass(slots=True)
class Mirror:
    """The router's knowledge of one backend."""

    name: BackendName
    label: str
    root: bytes
    rates: Rates | None
    pace: Pace | None = None
    alive: bool = True
    published_s: float = 0.0
    in_flight: Counter[bytes] = field(default_factory=Counter)  # prompt blocks of what it has not ended
    check: PriceCheck = field(default_factory=PriceCheck)
    load: BackendLoad = field(default_factory=BackendLoad)
    sequence: int = -1
    hashes: set[bytes] = field(default_factory=set)
    sent: dict[RequestId, Sent] = field(default_factory=dict)

    @property
    def free_blocks(self) -> int:
        return self.load.free_blocks or _UNKNOWN_BLOCKS

    def match_tokens(self, chain: Sequence[bytes]) -> int:
        count = 0
        for block_hash in chain:
            if block_hash not in self.hashes:
                break
            count += 1
        return count * BLOCK_TOKENS

    def coming_tokens(self, chain: Sequence[bytes]) -> int:
        """Like `match_tokens`, counting blocks that outstanding requests will have filled by then."""
        count = 0
        for block_hash in chain:
            if block_hash not in self.hashes and not self.in_flight.get(block_hash):
                break
            count += 1
        return count * BLOCK_TOKENS

    def opening(self, request: Request) -> list[bytes]:
        """The chain of the prompt's hashes, at least up to its first block that is neither here nor coming.

        What `match_tokens` and `coming_tokens` say of it holds for the whole chain. Hashing all of it for
        every backend would be a tenth of a decision.
        """
        chain: list[bytes] = []
        whole = restorable_blocks(request.prompt_tokens)
        while len(chain) < whole:
            extend_chain(chain, self.root, request.prompt, min(whole, 2 * len(chain) + 1))
            if chain[-1] not in self.hashes and not self.in_flight.get(chain[-1]):
                break
        return chain

    def book(self, sent: Sent) -> None:
        """The request is on its way here."""
        self.sent[sent.request.id] = sent
        self.in_flight.update(sent.chain)

    def drop(self, request_id: RequestId) -> None:
        """The request is here no longer."""
        sent = self.sent.pop(request_id, None)
        if sent is not None:
            self.in_flight.subtract(sent.chain)
            if len(self.in_flight) > 4096:
                self.in_flight = +self.in_flight
        if any(r.request_id == request_id for r in self.load.requests):
            others = tuple(r for r in self.load.requests if r.request_id != request_id)
            self.load = replace(self.load, requests=others)

    def empty(self) -> None:
        """Nothing cached, nothing outstanding, nothing heard."""
        self.load, self.sequence = BackendLoad(), -1
        self.hashes.clear()
        self.sent.clear()
        self.in_flight.clear()
        self.check = PriceCheck()

    def head(self) -> Sent | None:
        """The first request that waits here, where it may move."""
        for load in self.load.requests:
            if not load.active:
                sent = self.sent.get(load.request_id)
                return None if sent is None or sent.stays else sent
        return None

    def work(
        self, now_s: float, left: Left, without: RequestId | None = None, edition: int | None = None
    ) -> Work:
        """Everything outstanding, `without` one request, with lengths as `left` estimates them.

        Under the same `edition`, `left` says the same of the same request; None promises nothing.
        """
        active: list[Job] = []
        queue: list[Job] = []
        published: set[RequestId] = set()
        for load in self.load.requests:
            request_id = load.request_id
            published.add(request_id)
            if request_id == without:
                continue
            if load.slot >= 0:
                active.append(self._published(load, left))
            else:
                queue.append(self._waiting(load, left, edition))
        # A busy backend has worked since its load was true, an idle one since something was sent to it.
        fresh = [sent.sent_s for request_id, sent in self.sent.items() if request_id not in published]
        base_s = self.published_s if published else max(self.published_s, min(fresh, default=now_s))
        since_s = max(0.0, now_s - base_s)
        for request_id, sent in self.sent.items():
            if request_id not in published and request_id != without:
                ready_s = max(0.0, sent.sent_s - now_s + since_s)
                queue.append(job_of(sent.request, sent.coming_tokens, ready_s, left, sent.first_s))
        return Work(active, queue, since_s)

    def _waiting(self, load: RequestLoad, left: Left, edition: int | None) -> Job:
        sent = self.sent.get(load.request_id)
        if sent is None:
            return self._published(load, left)
        known = sent.waiting
        if (
            known is None
            or known.prefill_remaining != load.prefill_remaining
            or known.cached_tokens != load.cached_tokens
        ):
            known = Waiting(self._published(load, left), load.prefill_remaining, load.cached_tokens, edition)
            sent.waiting = known
        elif edition is None or known.edition != edition:
            if max(1, round(left(sent.request, 0).mean)) != known.job.decode:
                known.job = self._published(load, left)  # another: the old one may be in a forecast
            known.edition = edition
        return known.job

    def _published(self, load: RequestLoad, left: Left) -> Job:
        sent = self.sent.get(load.request_id)
        prompt, prefill, generated = load.prompt_tokens, load.prefill_remaining, load.generated
        held = blocks_for(prompt + generated + load.decode_remaining)
        decode, came_s = load.decode_remaining, self.published_s
        if sent is not None:
            decode = round(left(sent.request, generated).mean)
            came_s = sent.first_s
            if load.slot < 0:
                prefill = min(prefill, max(1, prompt - sent.coming_tokens))
        return Job(
            load.request_id,
            prefill,
            decode if decode > 1 else 1,
            prompt - prefill + (generated - 1 if generated > 1 else 0),
            held - load.cached_tokens // BLOCK_TOKENS,
            0.0,
            came_s,
        )

    def candidate(self, request: Request, chain: Sequence[bytes]) -> Candidate:
        """Everything outstanding here and the incoming request, in remaining tokens."""
        cached = self.match_tokens(chain)
        active = queued = active_prefill = active_decode = queued_prefill = queued_decode = 0
        published: set[RequestId] = set()
        for load in self.load.requests:
            published.add(load.request_id)
            if load.slot >= 0:
                active += 1
                active_prefill += load.prefill_remaining
                active_decode += load.decode_remaining
            else:
                queued += 1
                queued_prefill += load.prefill_remaining
                queued_decode += load.decode_remaining
        for request_id, sent in self.sent.items():
            if request_id not in published:
                queued += 1
                queued_prefill += sent.prefill_tokens
                queued_decode += sent.request.sampling.max_new_tokens
        own_prefill, own_decode = request.prompt_tokens - cached, request.sampling.max_new_tokens
        prefill = own_prefill + active_prefill + queued_prefill
        decode = own_decode + active_decode + queued_decode
        rates = self.rates
        return Candidate(
            self.name,
            None,
            isolated_s(prefill, decode, rates.prefill, rates.decode) if rates else None,
            active,
            queued,
            cached,
            own_prefill,
            own_decode,
            active_prefill,
            active_decode,
            queued_prefill,
            queued_decode,
            rates.prefill if rates else None,
            rates.decode if rates else None,
        )


def job_of(request: Request, cached: int, ready_s: float, left: Left, came_s: float) -> Job:
    """A request that is not admitted yet."""
    cached = min(cached, restorable_blocks(request.prompt_tokens) * BLOCK_TOKENS)
    need = blocks_for(request.prompt_tokens + request.sampling.max_new_tokens)
    return Job(
        request.id,
        request.prompt_tokens - cached,
        max(1, round(left(request, 0).mean)),
        cached,
        need - cached // BLOCK_TOKENS,
        ready_s,
        came_s,
    )
