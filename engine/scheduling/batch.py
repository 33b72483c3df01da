"""What one step does: the only thing the scheduler and the runner share."""

from dataclasses import dataclass

from engine.request import RequestId, SamplingParams


@dataclass(slots=True)
class BatchRow:
    """One request's part of a step: compute `tokens` at positions start .. start + length - 1.

    `blocks` is the request's block table and covers every position up to the end of this row.
    `samples` is true when the row reaches the last known token, so that its logits yield the next one.
    """

    request_id: RequestId
    slot: int  # 0 .. slots - 1, fixed while the request is active
    tokens: list[int]  # ids to compute, length = len(tokens)
    start: int  # tokens already in the cache
    blocks: list[int]  # block ids, position p lives in blocks[p // 16] at offset p % 16
    samples: bool
    is_decode: bool  # one token that this backend generated itself
    sampling: SamplingParams
    history: list[int]  # every token of the request, prompt first (repetition penalty)
    prompt_tokens: int

    @property
    def length(self) -> int:
        return len(self.tokens)

    @property
    def context(self) -> int:
        """Tokens that attention reads: cached plus computed now."""
        return self.start + len(self.tokens)


@dataclass(slots=True)
class Batch:
    """One step. Decode rows come first."""

    rows: list[BatchRow]

    @property
    def decode_rows(self) -> int:
        return sum(1 for r in self.rows if r.is_decode)

    @property
    def context_tokens(self) -> int:
        """K of the step-time model: context lengths of the decode rows, summed."""
        return sum(r.context for r in self.rows if r.is_decode)

    @property
    def prefill_tokens(self) -> int:
        """P of the step-time model."""
        return sum(r.length for r in self.rows if not r.is_decode)

    @property
    def prefill_chunks(self) -> int:
        return sum(1 for r in self.rows if not r.is_decode)

    @property
    def prefill_attention(self) -> float:
        """C of the step-time model: sum over chunks of length x (start + length / 2)."""
        return sum(r.length * (r.start + r.length / 2) for r in self.rows if not r.is_decode)
