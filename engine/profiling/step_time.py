"""The step-time model: seconds of one step from what the step does. Torch-free and pure."""

from bisect import bisect_left
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepTimeModel:
    """T = A[n] + c K + D[P] + e C + chunk x chunks + s S + m [n > 0 and P > 0]; x (1 + chi) beside others.

    n = decode rows, K = their context lengths summed, P = prefill tokens, C = sum over chunks of
    length x (start + length / 2), S = tokens that the chunks find in the cache. D[P] is d P where no table
    is given: kernels switch with the number of tokens, so a measured one is a table as A is.
    All coefficients are seconds.
    """

    decode_s: tuple[tuple[int, float], ...]  # (rows, A), ascending, first row count is 1
    context_s: float = 0.0  # c
    prefill_s: float = 0.0  # d; with a table, the least that one of its tokens costs
    attention_s: float = 0.0  # e
    mixed_s: float = 0.0  # m
    chunk_s: float = 0.0
    interference: float = 0.0  # chi
    prefill_table_s: tuple[tuple[int, float], ...] = ()  # (tokens, D), ascending in both
    start_s: float = 0.0  # s

    def rows_s(self, rows: int) -> float:
        """A[n]: interpolated between table entries, extended along the last two unless those fall."""
        if rows <= 0:
            return 0.0
        table = self.decode_s
        if len(table) == 1:
            return table[0][1]
        i = bisect_left(table, (rows, -1.0))
        if i < len(table) and table[i][0] == rows:
            return table[i][1]
        i = min(max(i, 1), len(table) - 1)
        (n0, a0), (n1, a1) = table[i - 1], table[i]
        if rows > n1:  # kernels switch, so a table may fall; what it does beyond its end must not
            return a1 + max(0.0, a1 - a0) * (rows - n1) / (n1 - n0)
        return a0 + (a1 - a0) * (rows - n0) / (n1 - n0)

    def tokens_s(self, tokens: int) -> float:
        """D[P]: flat up to the first table entry, interpolated between, extended along the last two."""
        table = self.prefill_table_s
        if not table:
            return self.prefill_s * tokens
        if tokens <= table[0][0] or len(table) == 1:
            return table[0][1] if tokens else 0.0
        i = min(bisect_left(table, (tokens, -1.0)), len(table) - 1)
        (p0, d0), (p1, d1) = table[i - 1], table[i]
        return d0 + (d1 - d0) * (tokens - p0) / (p1 - p0)

    def chunks_s(self, tokens: int, attention: float, chunks: int) -> float:
        """The prefill part of a step: P, C and the number of chunks, as in `step_s`.

        S follows from them: C / P is the chunks' mean position, exact for one chunk or chunks of one length.
        """
        if not tokens:
            return 0.0
        starts = max(0.0, chunks * attention / tokens - tokens / 2) if self.start_s else 0.0
        return (
            self.tokens_s(tokens)
            + self.attention_s * attention
            + self.chunk_s * chunks
            + self.start_s * starts
        )

    def auto_slots(self, most: int) -> int:
        """The fewest rows within 5 % of the best throughput of decode steps, n / A[n], up to `most`."""
        throughput = {n: n / self.rows_s(n) for n in range(1, most + 1) if self.rows_s(n) > 0}
        best = max(throughput.values())
        return min(n for n, value in throughput.items() if value >= 0.95 * best)

    def step_s(
        self,
        rows: int,
        context_tokens: float,
        prefill_tokens: int,
        prefill_attention: float,
        chunks: int,
        others_busy: bool,
    ) -> float:
        """Seconds of a step with these features."""
        seconds = self.rows_s(rows) + self.context_s * context_tokens
        seconds += self.chunks_s(prefill_tokens, prefill_attention, chunks)
        if rows and prefill_tokens:
            seconds += self.mixed_s
        return seconds * (1 + self.interference) if others_busy else seconds
