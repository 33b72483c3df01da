"""Receipts: everything the router knew and computed when it chose a backend."""

from dataclasses import dataclass

from engine.request import BackendName, RequestId
from engine.weights import PolicyWeights


@dataclass(frozen=True, slots=True)
class Candidate:
    """One backend as the router saw it. Token counts are remaining work, split by whose it is."""

    backend: BackendName
    score: float | None  # the policy's own score; the lowest wins; None = not eligible or unknown
    score_s: float | None  # isolated-rates price in seconds; None while not calibrated
    active: int  # requests in slots
    queued: int  # requests waiting, those still on their way included
    cached_tokens: int  # prompt tokens of the incoming request believed cached there
    own_prefill_tokens: int
    own_decode_tokens: int
    active_prefill_tokens: int
    active_decode_tokens: int
    queued_prefill_tokens: int
    queued_decode_tokens: int
    prefill_rate: float | None  # tok/s
    decode_rate: float | None  # tok/s
    # Batched forecast of this placement, seconds from the decision; None where the policy makes none.
    delay_s: float | None = None  # everybody's time to their end, summed
    ttft_s: float | None = None  # of this request
    e2e_s: float | None = None
    p90_s: float | None = None  # its end, if the reply is long
    clear_s: float | None = None  # when the backend would be clear
    margin_s: float | None = None  # what going here had to save; None where it would stay anyway

    @property
    def prefill_tokens(self) -> int:
        return self.own_prefill_tokens + self.active_prefill_tokens + self.queued_prefill_tokens

    @property
    def decode_tokens(self) -> int:
        return self.own_decode_tokens + self.active_decode_tokens + self.queued_decode_tokens


@dataclass(frozen=True, slots=True)
class Receipt:
    """The decision for one request. `reason` is one short sentence for people."""

    request_id: RequestId
    policy: str
    unit: str  # of Candidate.score: "s", "requests", "" (forced, round-robin)
    chosen: BackendName
    reason: str
    time_s: float
    candidates: tuple[Candidate, ...]
    moved_from: BackendName | None = None  # where it waited before it was re-routed
    weights: PolicyWeights | None = None  # of `total-delay`; None where another policy decided

    @property
    def predicted_s(self) -> float | None:
        """E2E as foreseen at the decision: the forecast, else the isolated price."""
        chosen = self.candidate(self.chosen)
        if chosen is None:
            return None
        return chosen.e2e_s if chosen.e2e_s is not None else chosen.score_s

    def candidate(self, backend: str) -> Candidate | None:
        return next((c for c in self.candidates if c.backend == backend), None)

    @property
    def margin(self) -> float | None:
        """Best rejected score minus the chosen one; None unless both are known."""
        chosen = self.candidate(self.chosen)
        others = [c.score for c in self.candidates if c.backend != self.chosen and c.score is not None]
        if chosen is None or chosen.score is None or not others:
            return None
        return min(others) - chosen.score
