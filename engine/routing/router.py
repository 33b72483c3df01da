"""The router: one decision a request, from what the backends last published. It asks nobody.

For each backend it keeps the last load, a mirror of the prefix index (hashes only), and the requests it
has sent that no published load has shown yet: those count as queued.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from engine.config import BLOCK_TOKENS
from engine.events import BackendLoad, StepReport
from engine.kv.prefix import extend_chain, restorable_blocks, root_hash
from engine.profiling.profile import Rates
from engine.receipt import Candidate, Receipt
from engine.request import BackendName, Request, RequestId
from engine.routing.policies import check_policy, choose, isolated_score, policy_names
from engine.routing.receipt import reason_of


@dataclass(slots=True)
class _Sent:
    """A request on its way to, or at, a backend: what the router assumed when it was sent."""

    prefill_tokens: int
    decode_tokens: int


@dataclass(slots=True)
class _Mirror:
    """One backend as the router knows it."""

    name: BackendName
    label: str
    root: bytes
    rates: Rates | None
    alive: bool = True
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


class Router:
    """Pure state: reports and requests come in as arguments, receipts go out."""

    def __init__(self, policy: str, backends: Sequence[tuple[BackendName, str, str]]) -> None:
        """`backends`: (name, label for people, salt of its prefix hashes)."""
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

    def observe(self, report: StepReport) -> None:
        """Take a step's load and the changes of the prefix index."""
        mirror = self._mirrors[report.backend]
        assert report.sequence == mirror.sequence + 1, "a report was lost between backend and router"
        mirror.sequence = report.sequence
        mirror.load = report.load
        mirror.hashes.difference_update(report.hashes_removed)
        mirror.hashes.update(report.hashes_added)
        for ending in report.ended:
            mirror.sent.pop(ending.request_id, None)

    def remove(self, name: BackendName) -> None:
        """The backend is gone: no candidate, nothing cached, nothing outstanding."""
        mirror = self._mirrors[name]
        mirror.alive, mirror.load, mirror.sequence = False, BackendLoad(), -1
        mirror.hashes.clear()
        mirror.sent.clear()

    def restore(self, name: BackendName) -> None:
        """The backend runs (again), empty."""
        self.remove(name)
        self._mirrors[name].alive = True

    def forget(self, name: BackendName, request_id: RequestId) -> None:
        """The request was cancelled before the backend reported it."""
        self._mirrors[name].sent.pop(request_id, None)

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
        candidates = [self._candidate(m, request) for m in mirrors]
        order = [mirrors.index(self._mirrors[n]) for n in self.fastest_first() if self._mirrors[n].alive]
        policy = f"forced-{only}" if only else self.policy
        choice = choose(policy, candidates, order, self._turn)
        self._turn += 1
        used = "least-requests" if policy == "isolated-rates" and choice.unit == "requests" else policy
        candidates = [replace(c, score=s) for c, s in zip(candidates, choice.scores, strict=True)]
        chosen = candidates[choice.chosen]
        others = [c for i, c in enumerate(candidates) if i != choice.chosen]
        labels: dict[str, str] = {m.name: m.label for m in mirrors}
        reason = reason_of(policy, used, chosen, others, labels)
        if moved_from is not None:
            gone = self._mirrors[moved_from].label
            reason = f"The {gone} stopped before it began; the {labels[chosen.backend]} takes it."
        mirrors[choice.chosen].sent[request.id] = _Sent(chosen.own_prefill_tokens, chosen.own_decode_tokens)
        return Receipt(
            request.id, used, choice.unit, chosen.backend, reason, now_s, tuple(candidates), moved_from
        )

    def _candidate(self, mirror: _Mirror, request: Request) -> Candidate:
        """Everything outstanding on a backend and the incoming request, in remaining tokens."""
        chain = extend_chain([], mirror.root, request.prompt, restorable_blocks(request.prompt_tokens))
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
                queued_decode += sent.decode_tokens
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
