"""The router: one decision a request, from what the backends last published. It asks nobody.

For each backend it keeps the last load, a mirror of the prefix index (hashes only), and the requests it
has sent that no published load has shown yet: those count as queued.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from engine.config import BLOCK_TOKENS
from engine.events import BackendLoad, StepReport
from engine.kv.manager import blocks_for
from engine.kv.prefix import extend_chain, restorable_blocks, root_hash
from engine.profiling.profile import Rates
from engine.profiling.step_time import StepTimeModel
from engine.receipt import Candidate, Receipt
from engine.request import BackendName, FinishReason, Request, RequestId
from engine.routing.correction import PriceCheck
from engine.routing.forecast import Job, both_busy_s, forecast, on_the_wall
from engine.routing.length import LengthEstimator, Remaining
from engine.routing.policies import (
    BATCHED_POLICIES,
    Choice,
    check_policy,
    choose,
    isolated_score,
    policy_names,
)
from engine.routing.pricing import Outlook, clears_first, prices, total_delay
from engine.routing.receipt import reason_of


@dataclass(frozen=True, slots=True)
class Pace:
    """What a batched price of a backend needs."""

    steps: StepTimeModel
    slots: int
    token_budget: int = 512


@dataclass(slots=True)
class _Sent:
    """A request on its way to, or at, a backend: what the router assumed when it was sent."""

    request: Request
    chain: list[bytes]
    cached_tokens: int
    coming_tokens: int  # the same, counting what earlier requests were about to fill
    sent_s: float

    @property
    def prefill_tokens(self) -> int:
        return self.request.prompt_tokens - self.cached_tokens


@dataclass(slots=True)
class _Mirror:
    """One backend as the router knows it."""

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
    sent: dict[RequestId, _Sent] = field(default_factory=dict)

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
            if block_hash not in self.hashes and not self.in_flight[block_hash]:
                break
            count += 1
        return count * BLOCK_TOKENS

    def drop(self, request_id: RequestId) -> None:
        sent = self.sent.pop(request_id, None)
        if sent is not None:
            self.in_flight.subtract(sent.chain)
            if len(self.in_flight) > 4096:
                self.in_flight = +self.in_flight


class Router:
    """Pure state: reports and requests come in as arguments, receipts go out."""

    def __init__(
        self,
        policy: str,
        backends: Sequence[tuple[BackendName, str, str]],
        lengths: LengthEstimator | None = None,
    ) -> None:
        """`backends`: (name, label for people, salt of its prefix hashes)."""
        self.lengths = lengths or LengthEstimator()
        self._mirrors = {name: _Mirror(name, label, root_hash(salt), None) for name, label, salt in backends}
        check_policy(policy, list(self._mirrors))
        self.policy = policy
        self._turn = 0

    # --- what it is told ------------------------------------------------------------------------------

    def policies(self) -> list[str]:
        return policy_names(list(self._mirrors))

    def set_policy(self, policy: str) -> None:
        check_policy(policy, list(self._mirrors))
        self.policy = policy
        self._turn = 0

    def set_rates(self, name: BackendName, rates: Rates | None) -> None:
        self._mirrors[name].rates = rates

    def set_pace(self, name: BackendName, pace: Pace | None) -> None:
        """The step-time model that the batched policies price this backend with."""
        self._mirrors[name].pace = pace

    def observe(self, report: StepReport) -> None:
        """Take a step's load and the changes of the prefix index."""
        mirror = self._mirrors[report.backend]
        assert report.sequence == mirror.sequence + 1, "a report was lost between backend and router"
        mirror.sequence = report.sequence
        if mirror.pace is not None and (report.decode_rows or report.prefill_tokens):
            busy = report.other_busy
            if busy is None:
                busy = any(
                    r.active for m in self._mirrors.values() if m is not mirror for r in m.load.requests
                )
            mirror.check.step(report, mirror.pace.steps, busy)
        mirror.load, mirror.published_s = report.load, report.finished_s
        mirror.hashes.difference_update(report.hashes_removed)
        mirror.hashes.update(report.hashes_added)
        for ending in report.ended:
            mirror.drop(ending.request_id)

    def learn(self, request: Request, length: int, reason: FinishReason | None) -> None:
        """A request ended with `length` tokens: replies like it are estimated from it."""
        if not request.sampling.ignore_eos and length:
            self.lengths.observe(request, length, reason is not FinishReason.STOP)

    def remove(self, name: BackendName) -> None:
        """The backend is gone: no candidate, nothing cached, nothing outstanding."""
        mirror = self._mirrors[name]
        mirror.alive, mirror.load, mirror.sequence = False, BackendLoad(), -1
        mirror.hashes.clear()
        mirror.sent.clear()
        mirror.in_flight.clear()
        mirror.check = PriceCheck()

    def restore(self, name: BackendName) -> None:
        """The backend runs (again), empty."""
        self.remove(name)
        self._mirrors[name].alive = True

    def set_stalled(self, name: BackendName, stalled: bool) -> None:
        """A backend that has stalled is no candidate; what it holds and caches stays known."""
        self._mirrors[name].alive = not stalled

    def forget(self, name: BackendName, request_id: RequestId) -> None:
        """The request was cancelled before the backend reported it."""
        self._mirrors[name].drop(request_id)

    def check(self, name: BackendName) -> PriceCheck | None:
        """How the step-time model does lately; None where there is no model."""
        mirror = self._mirrors[name]
        return mirror.check if mirror.pace is not None else None

    def alive(self) -> list[BackendName]:
        return [m.name for m in self._mirrors.values() if m.alive]

    def fastest_first(self) -> list[BackendName]:
        """Alive or not, fastest calibrated first; the uncalibrated keep their order behind them."""

        def speed(name: BackendName) -> float:
            rates = self._mirrors[name].rates
            return rates.isolated_s if rates else float("inf")

        return sorted(self._mirrors, key=speed)

    # --- what it decides ------------------------------------------------------------------------------

    def choose(
        self,
        request: Request,
        now_s: float,
        moved_from: BackendName | None = None,
        only: BackendName | None = None,
    ) -> Receipt:
        """Pick a backend, book the request on it, and say why. `only` is a user's own choice."""
        mirrors = [m for m in self._mirrors.values() if m.alive]
        assert mirrors, "choose() without a backend"
        chains = [
            extend_chain([], m.root, request.prompt, restorable_blocks(request.prompt_tokens))
            for m in mirrors
        ]
        candidates = [self._candidate(m, request, c) for m, c in zip(mirrors, chains, strict=True)]
        order = [mirrors.index(self._mirrors[n]) for n in self.fastest_first() if self._mirrors[n].alive]
        policy = f"forced-{only}" if only else self.policy
        paces = [m.pace for m in mirrors if m.pace is not None]
        table = None
        if len(paces) == len(mirrors):
            # Every policy's receipt says what the forecast foresees; only the batched ones decide by it.
            outlooks = [
                self._outlook(m, p, request, c, now_s) for m, p, c in zip(mirrors, paces, chains, strict=True)
            ]
            table = prices(outlooks)
            candidates = [
                replace(
                    c, delay_s=p.delay_s, ttft_s=p.ttft_s, e2e_s=p.e2e_s, p90_s=p.p90_s, clear_s=p.clear_s
                )
                for c, p in zip(candidates, table, strict=True)
            ]
        used = policy
        if policy == "total-delay" and table is not None:
            scores: tuple[float | None, ...] = tuple(p.delay_s for p in table)
            choice = Choice(total_delay(outlooks, table, order[0]), scores, "s")
        elif policy == "batched-clear" and table is not None:
            choice = Choice(clears_first(table, order), tuple(p.clear_s for p in table), "s")
        else:
            used = "isolated-rates" if policy in BATCHED_POLICIES else policy
            choice = choose(used, candidates, order, self._turn)
            if used == "isolated-rates" and choice.unit == "requests":
                used = "least-requests"
        self._turn += 1
        candidates = [replace(c, score=s) for c, s in zip(candidates, choice.scores, strict=True)]
        chosen, mirror = candidates[choice.chosen], mirrors[choice.chosen]
        others = [c for i, c in enumerate(candidates) if i != choice.chosen]
        labels: dict[str, str] = {m.name: m.label for m in mirrors}
        reason = reason_of(policy, used, chosen, others, labels)
        if moved_from is not None:
            gone = self._mirrors[moved_from].label
            reason = f"The {gone} stopped before it began; the {labels[chosen.backend]} takes it."
        chain = chains[choice.chosen]
        coming = mirror.coming_tokens(chain)
        mirror.sent[request.id] = _Sent(request, chain, chosen.cached_tokens, coming, now_s)
        mirror.in_flight.update(chain)
        return Receipt(
            request.id, used, choice.unit, chosen.backend, reason, now_s, tuple(candidates), moved_from
        )

    def _outlook(
        self, mirror: _Mirror, pace: Pace, request: Request, chain: list[bytes], now_s: float
    ) -> Outlook:
        """One backend's outstanding requests as jobs, and the incoming one."""
        active, queue, since_s = self._jobs(mirror, now_s)
        new, p90 = self._job(request, mirror.coming_tokens(chain), since_s)
        return Outlook(
            pace.steps,
            pace.slots,
            pace.token_budget,
            active,
            queue,
            mirror.load.free_blocks or 1_000_000,
            new,
            p90,
            since_s,
            mirror.check.factor,
            mirror.check.error,
        )

    def _jobs(self, mirror: _Mirror, now_s: float, truth: bool = False) -> tuple[list[Job], list[Job], float]:
        """(active, queued, seconds since the load was true), with lengths as estimated now."""
        active, queue = [], []
        published: set[RequestId] = set()
        for load in mirror.load.requests:
            published.add(load.request_id)
            sent = mirror.sent.get(load.request_id)
            left: float = load.decode_remaining
            prefill = load.prefill_remaining
            if sent is not None:
                left = self._left(sent.request, load.generated, truth).mean
                if not load.active:
                    prefill = min(prefill, max(1, load.prompt_tokens - sent.coming_tokens))
            computed = load.prompt_tokens - prefill + max(0, load.generated - 1)
            held = blocks_for(load.prompt_tokens + load.generated + load.decode_remaining)
            job = Job(
                load.request_id,
                prefill,
                max(1, round(left)),
                computed,
                held - load.cached_tokens // BLOCK_TOKENS,
                waited_s=mirror.published_s - sent.sent_s if sent is not None else 0.0,
            )
            if load.active:
                active.append(job)
            else:
                queue.append(job)
        # A busy backend has worked since its load was true, an idle one since something was sent to it.
        fresh = [sent.sent_s for request_id, sent in mirror.sent.items() if request_id not in published]
        base_s = mirror.published_s if published else max(mirror.published_s, min(fresh, default=now_s))
        since_s = max(0.0, now_s - base_s)
        for request_id, sent in mirror.sent.items():
            if request_id not in published:
                ready_s = max(0.0, sent.sent_s - now_s + since_s)
                queue.append(self._job(sent.request, sent.coming_tokens, ready_s, truth)[0])
        return active, queue, since_s

    def foresee(self, now_s: float, truth: bool = False) -> dict[RequestId, float]:
        """Seconds from now until each outstanding request ends, where step times are known.

        With `truth`, workload requests are priced with the length they will have: what is left is the
        error of the step-time model alone.
        """
        known = [(m, m.pace) for m in self._mirrors.values() if m.alive and m.pace is not None]
        casts, since = [], []
        for mirror, pace in known:
            active, queue, since_s = self._jobs(mirror, now_s, truth)
            free = mirror.load.free_blocks or 1_000_000
            casts.append(
                forecast(pace.steps, pace.slots, pace.token_budget, active, queue, free, mirror.check.factor)
            )
            since.append(since_s)
        chis = [pace.steps.interference for _, pace in known]
        out: dict[RequestId, float] = {}
        for k, cast in enumerate(casts):
            both = max(
                (both_busy_s(cast, chis[k], o, chis[i]) for i, o in enumerate(casts) if i != k), default=0.0
            )
            for key, end_s in cast.finish_s.items():
                out[RequestId(key)] = on_the_wall(end_s, chis[k], both) - since[k]
        return out

    def _left(self, request: Request, generated: int, truth: bool = False) -> Remaining:
        """Tokens still to come. The truth is looked at for comparison only: by the oracle, or on demand."""
        if request.reply_tokens is not None and (truth or self.lengths.kind == "oracle"):
            exact = float(max(1, request.reply_tokens - generated))
            return Remaining(exact, exact)
        return self.lengths.remaining(request, generated)

    def _job(self, request: Request, cached: int, ready_s: float, truth: bool = False) -> tuple[Job, int]:
        """A request that is not admitted yet, and the tokens its reply may well need."""
        length = self._left(request, 0, truth)
        cached = min(cached, restorable_blocks(request.prompt_tokens) * BLOCK_TOKENS)
        need = blocks_for(request.prompt_tokens + request.sampling.max_new_tokens)
        job = Job(
            request.id,
            request.prompt_tokens - cached,
            max(1, round(length.mean)),
            cached,
            need - cached // BLOCK_TOKENS,
            ready_s,
            waited_s=-ready_s,
        )
        return job, max(1, round(length.p90))

    def _candidate(self, mirror: _Mirror, request: Request, chain: list[bytes]) -> Candidate:
        """Everything outstanding on a backend and the incoming request, in remaining tokens."""
        cached = mirror.match_tokens(chain)
        active = queued = active_prefill = active_decode = queued_prefill = queued_decode = 0
        published: set[RequestId] = set()
        for load in mirror.load.requests:
            published.add(load.request_id)
            if load.active:
                active += 1
                active_prefill += load.prefill_remaining
                active_decode += load.decode_remaining
            else:
                queued += 1
                queued_prefill += load.prefill_remaining
                queued_decode += load.decode_remaining
        for request_id, sent in mirror.sent.items():
            if request_id not in published:
                queued += 1
                queued_prefill += sent.prefill_tokens
                queued_decode += sent.request.sampling.max_new_tokens
        rates = mirror.rates
        candidate = Candidate(
            mirror.name,
            None,
            None,
            active,
            queued,
            cached,
            request.prompt_tokens - cached,
            request.sampling.max_new_tokens,
            active_prefill,
            active_decode,
            queued_prefill,
            queued_decode,
            rates.prefill if rates else None,
            rates.decode if rates else None,
        )
        return replace(candidate, score_s=isolated_score(candidate))
