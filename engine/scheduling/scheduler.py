"""Continuous batching with one token budget a step: decode rows first, then chunks of prefill.

There are no phases: a request has computed tokens that catch up with its tokens. `schedule` decides one
step, the runner executes it, `update` takes its results. Nothing here knows time, threads or tensors.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from operator import attrgetter

from engine.config import BLOCK_TOKENS
from engine.kv.manager import KvManager
from engine.request import Request, RequestId
from engine.scheduling.batch import Batch, BatchRow
from engine.scheduling.policies import SchedulingPolicy
from engine.scheduling.requests import ActiveRequest, WaitingRequest
from engine.step_report import Admission, BackendLoad, Ending


@dataclass(slots=True)
class StepOutcome:
    """What a step changed, besides the cache."""

    tokens: list[tuple[RequestId, int]] = field(default_factory=list)
    ended: list[Ending] = field(default_factory=list)


_slot = attrgetter("slot")


class Scheduler:
    """Slots, queue and cache of one backend."""

    def __init__(
        self,
        kv: KvManager,
        policy: SchedulingPolicy,
        slots: int = 4,
        token_budget: int = 512,
        eos_ids: Collection[int] = (),
    ) -> None:
        assert token_budget >= slots, "every active request must be able to decode in one step"
        self.kv = kv
        self.slots = slots
        self._policy = policy
        self._budget = token_budget
        self._eos = frozenset(eos_ids)
        self._waiting: list[WaitingRequest] = []
        self._active: list[ActiveRequest] = []  # in order of admission
        self._free_slots = list(range(slots - 1, -1, -1))  # a stack, lowest slot on top
        # Prompt blocks begun by a request and not yet complete: others with the same prefix wait for them.
        self._filling: dict[bytes, RequestId] = {}
        self._arrivals = 0
        self._steps = 0
        self._admitted: list[Admission] = []
        self._adopted: dict[RequestId, int] = {}

    # --- commands -------------------------------------------------------------------------------------

    def add(self, request: Request, estimate: int = 0) -> None:
        """Queue a request. The caller has checked that it fits the context and the pool."""
        chain = self.kv.prompt_chain(request.prompt)
        remaining = request.prompt_tokens - self.kv.match_tokens(chain)
        self._waiting.append(WaitingRequest(request, self._arrivals, chain, estimate, remaining))
        self._arrivals += 1

    def withdraw(self, request_id: RequestId) -> bool:
        """Drop a request that waits; False when it has begun or is not here (any more)."""
        for i, waiting in enumerate(self._waiting):
            if waiting.request.id == request_id:
                del self._waiting[i]
                return True
        return False

    def abort(self, request_id: RequestId) -> bool:
        """Drop a request in any state; False when it is not here (any more)."""
        if self.withdraw(request_id):
            return True
        for active in self._active:
            if active.request.id == request_id:
                self._remove(active)
                return True
        return False

    def set_limits(self, slots: int, token_budget: int) -> None:
        """Admit up to `slots` requests from now on; those beyond it that are active stay until they end.

        Each of them decodes in every step meanwhile, even where that is more than `token_budget` rows.
        """
        assert 1 <= slots <= token_budget
        self.slots, self._budget = slots, token_budget
        used = {a.slot for a in self._active}
        self._free_slots = [s for s in range(slots - 1, -1, -1) if s not in used]

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._active

    # --- one step -------------------------------------------------------------------------------------

    def schedule(self, now_s: float) -> Batch:
        """Decide the next step. An empty batch means that there is nothing to do."""
        self._admit(now_s)
        budget = self._budget
        rows: list[BatchRow] = []
        for active in self._active:
            if active.generated and active.computed == len(active.tokens) - 1:
                rows.append(self._row(active, 1))
                budget -= 1
        prefills = [a for a in self._active if not a.generated]
        share = self._policy.share(budget, len(prefills))
        for i in self._policy.order_prefills(prefills, self._steps):
            active = prefills[i]
            self._adopt(active)
            if budget <= 0 or self._must_wait(active):
                continue
            length = min(budget, share, active.prefill_remaining)
            rows.append(self._row(active, length))
            budget -= length
        self._steps += 1
        return Batch(rows)

    def update(self, batch: Batch, sampled: list[int]) -> StepOutcome:
        """Take the runner's token ids, one for each sampling row of `batch` in order."""
        outcome = StepOutcome()
        ids = iter(sampled)
        by_id = {a.request.id: a for a in self._active}
        for row in batch.rows:
            active = by_id[row.request_id]
            active.computed += row.length
            self.kv.fill(active.sequence, active.tokens, active.computed)
            if not row.is_decode:
                self._settle_filling(active)
            if not row.samples:
                continue
            token = next(ids)
            active.tokens.append(token)
            outcome.tokens.append((row.request_id, token))
            reason = active.finish_reason(self._eos)
            if reason is not None:
                self._remove(active)
                outcome.ended.append(Ending(row.request_id, reason))
        return outcome

    # --- what others see ------------------------------------------------------------------------------

    def take_admissions(self) -> tuple[tuple[Admission, ...], tuple[tuple[RequestId, int], ...]]:
        """(admissions, (request, cached tokens) adopted after admission) since the last call."""
        out = tuple(self._admitted), tuple(self._adopted.items())
        self._admitted, self._adopted = [], {}
        return out

    def load(self) -> BackendLoad:
        """The published load: active requests by slot, then the queue in order of admission."""
        requests = [a.load() for a in sorted(self._active, key=_slot)]
        requests += (self._waiting[i].load(self.kv) for i in self._policy.order_waiting(self._waiting))
        return BackendLoad(tuple(requests), self.kv.available, self.kv.pool.num_blocks)

    def check_integrity(self) -> None:
        self.kv.check_integrity()
        used = sorted(a.slot for a in self._active)
        within = [s for s in used if s < self.slots]  # the rest is from before `set_limits`
        assert sorted(within + self._free_slots) == list(range(self.slots)), "a slot is lost or used twice"
        ids = {a.request.id for a in self._active}
        assert set(self._filling.values()) <= ids, "a block is being filled by nobody"

    # --- steps of the steps -----------------------------------------------------------------------------

    def _admit(self, now_s: float) -> None:
        if not self._waiting or not self._free_slots:
            return
        taken: set[int] = set()
        for i in self._policy.order_waiting(self._waiting):
            if not self._free_slots:
                break
            w = self._waiting[i]
            sequence = self.kv.admit(w.request, w.chain)
            if sequence is None:
                break  # no overtaking: a large request would wait for ever behind small ones
            cached = len(sequence.blocks) * BLOCK_TOKENS
            slot = self._free_slots.pop()
            tokens = list(w.request.prompt)
            self._active.append(
                ActiveRequest(w.request, w.order, slot, sequence, tokens, cached, cached, len(tokens))
            )
            self._admitted.append(Admission(w.request.id, slot, cached, now_s))
            taken.add(i)
        if taken:
            self._waiting = [w for i, w in enumerate(self._waiting) if i not in taken]

    def _adopt(self, active: ActiveRequest) -> None:
        computed = self.kv.adopt(active.sequence, active.computed)
        if computed > active.computed:
            active.cached += computed - active.computed
            active.computed = computed
            self._adopted[active.request.id] = active.cached

    def _must_wait(self, active: ActiveRequest) -> bool:
        """Is the block this request needs next being filled by another one?"""
        block_hash = self.kv.next_hash(active.sequence, active.computed)
        filler = self._filling.get(block_hash) if block_hash is not None else None
        return filler is not None and filler != active.request.id

    def _row(self, active: ActiveRequest, length: int) -> BatchRow:
        start, end = active.computed, active.computed + length
        self.kv.grow(active.sequence, end)
        is_decode = active.generated > 0
        if not is_decode:
            for block_hash in self.kv.prompt_hashes(active.sequence, start, end):
                self._filling.setdefault(block_hash, active.request.id)
        return BatchRow(
            active.request.id,
            active.slot,
            active.tokens[start:end],
            start,
            active.sequence.blocks,
            end == len(active.tokens),
            is_decode,
            active.request.sampling,
            active.tokens,
            active.prompt_tokens,
        )

    def _settle_filling(self, active: ActiveRequest) -> None:
        """Blocks that are complete are in the index now; nobody needs to wait for them."""
        for block_hash in active.sequence.chain[: active.sequence.filled]:
            if self._filling.get(block_hash) == active.request.id:
                del self._filling[block_hash]

    def _remove(self, active: ActiveRequest) -> None:
        self._active.remove(active)
        if active.slot < self.slots:
            self._free_slots.append(active.slot)
            self._free_slots.sort(reverse=True)
        for block_hash in [h for h, r in self._filling.items() if r == active.request.id]:
            del self._filling[block_hash]
        self.kv.release(active.sequence)
