"""Tokens per second over time, a row of 0.1 s bins per backend. No Qt.

A token belongs to the whole gap since the one before it, not to the instant at which it came out:
counting instants would draw a comb whose teeth are the step times.
"""

import math

import numpy as np

BIN_S = 0.1
BINS = 600
RANGES_S = (4.0, 8.0, 16.0, 32.0)  # then the last 60 s


class Throughput:
    """Bins count from `origin_s`, the start of the burst or of the first prompt."""

    def __init__(self) -> None:
        self.origin_s: float | None = None
        self._bins: dict[str, np.ndarray] = {}
        self._first = 0  # index of the oldest bin kept
        self._complete_s: dict[str, float] = {}  # up to here everything of a backend is known

    def restart(self, origin_s: float) -> None:
        self.origin_s, self._first = origin_s, 0
        self._bins.clear()
        self._complete_s.clear()

    def add(self, backend: str, since_s: float, until_s: float, tokens: int = 1) -> None:
        """Spread `tokens` evenly over since_s..until_s. What lies before the origin is not ours."""
        if self.origin_s is None:
            self.restart(since_s)
        begin, end = since_s - self.origin_s, until_s - self.origin_s
        if end <= 0 or tokens <= 0:
            return
        begin = min(begin, end - 1e-9)
        rate = tokens / (end - begin)
        self._shift_to(end)
        bins = self._bins.setdefault(backend, np.zeros(BINS))
        first = max(self._first, math.floor(max(begin, 0.0) / BIN_S))
        last = math.floor(end / BIN_S)
        for index in range(first, last + 1):
            covered = min(end, (index + 1) * BIN_S) - max(begin, index * BIN_S)
            if covered > 0:
                bins[index - self._first] += rate * covered

    def step(self, backend: str, finished_s: float) -> None:
        """Everything that `backend` produced up to here has been added."""
        self._complete_s[backend] = finished_s

    def clock_s(self, now_s: float) -> float:
        return 0.0 if self.origin_s is None else max(0.0, now_s - self.origin_s)

    def window(self, now_s: float) -> tuple[float, float]:
        """The x range: grows by doubling, so that it rarely moves, then slides."""
        now = self.clock_s(now_s)
        for width in RANGES_S:
            if now <= width:
                return 0.0, width
        return max(0.0, now - BINS * BIN_S), max(now, BINS * BIN_S)

    def rates(self, backend: str, now_s: float, busy: tuple[str, ...] = ()) -> np.ndarray:
        """tok/s per complete bin from `start_s()`; ends before the step in flight of any busy backend."""
        end = now_s
        for name in busy:
            end = min(end, self._complete_s.get(name, now_s))
        count = max(0, math.floor(self.clock_s(end) / BIN_S + 1e-6) - self._first)
        bins = self._bins.get(backend)
        if bins is None:
            return np.zeros(min(count, BINS))
        return bins[: min(count, BINS)] / BIN_S

    def start_s(self) -> float:
        """Where bin 0 of `rates` begins, in seconds from the origin."""
        return self._first * BIN_S

    def _shift_to(self, end: float) -> None:
        ahead = math.floor(end / BIN_S) - (self._first + BINS - 1)
        if ahead <= 0:
            return
        for name, bins in self._bins.items():
            kept = bins[ahead:] if ahead < BINS else bins[:0]
            self._bins[name] = np.concatenate([kept, np.zeros(BINS - len(kept))])
        self._first += ahead
