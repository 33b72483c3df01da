"""A request on a backend, before and after its admission, and what a backend tells of either."""

from dataclasses import dataclass

from engine.kv.manager import KvManager, KvSequence
from engine.request import FinishReason, Request
from engine.step_report import RequestLoad


@dataclass(slots=True)
class WaitingRequest:
    """Not admitted: owns no slot and no block."""

    request: Request
    order: int
    chain: list[bytes]
    estimate: int  # tokens that the router believed cached
    prefill_remaining: int = 0
    match: int = 0  # tokens restorable when the index had `match_at` removals
    match_at: int = -1
    told: RequestLoad | None = None  # what was published last: most steps change nothing of it

    def load(self, kv: KvManager) -> RequestLoad:
        """As published, with the prefix that the cache still holds of the estimated one."""
        # Without a removal no estimate can have gone stale; a stale one may have become true again.
        if self.match_at != kv.index.removals or self.match < self.estimate:
            self.match, self.match_at = kv.match_tokens(self.chain), kv.index.removals
        now = self.match if self.match < self.estimate else self.estimate
        if self.told is None or self.told.cached_tokens != now:
            prompt = self.request.prompt_tokens
            self.told = RequestLoad(
                self.request.id,
                -1,
                prompt,
                now,
                prompt - self.estimate,  # priced as estimated when it was routed
                0,
                self.request.sampling.max_new_tokens,
                stale_estimate=now < self.estimate,
            )
        return self.told


@dataclass(slots=True)
class ActiveRequest:
    """Admitted: owns a slot and a block table until it ends."""

    request: Request
    order: int
    slot: int
    sequence: KvSequence
    tokens: list[int]  # prompt, then generated
    computed: int  # leading tokens whose keys and values are in the cache
    cached: int  # of these, restored instead of computed
    prompt_tokens: int  # the request's, which every step asks for

    @property
    def generated(self) -> int:
        return len(self.tokens) - self.prompt_tokens

    @property
    def prefill_remaining(self) -> int:
        return max(0, self.prompt_tokens - self.computed)

    def load(self) -> RequestLoad:
        """As published."""
        generated = self.generated
        return RequestLoad(
            self.request.id,
            self.slot,
            self.prompt_tokens,
            self.cached,
            self.prefill_remaining,
            generated,
            self.request.sampling.max_new_tokens - generated,
        )

    def finish_reason(self, eos_ids: frozenset[int]) -> FinishReason | None:
        """Why its newest token is its last; None when it goes on."""
        sampling, reply_tokens = self.request.sampling, self.request.reply_tokens
        if reply_tokens is not None:
            # A workload's reply has its length whatever the model says.
            if self.generated >= reply_tokens:
                return FinishReason.STOP
        elif self.tokens[-1] in eos_ids and not sampling.ignore_eos:
            return FinishReason.STOP
        if self.generated >= sampling.max_new_tokens:
            return FinishReason.CONTEXT if self.request.context_cut else FinishReason.LENGTH
        return None
