"""Time as an argument. Everything that reads the time reads it from a `Clock`."""

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds since an arbitrary, fixed origin."""

    def now_s(self) -> float: ...


class MonotonicClock:
    """The machine's monotonic clock: the same origin in every process of one boot."""

    def now_s(self) -> float:
        return time.monotonic_ns() / 1e9


class VirtualClock:
    """A clock that moves only when told to, for simulations and tests."""

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def now_s(self) -> float:
        return self._now_s

    def advance_to(self, time_s: float) -> None:
        """Move forward to `time_s`. Going back is a mistake of the caller."""
        assert time_s >= self._now_s, f"time would run backwards: {self._now_s} -> {time_s}"
        self._now_s = time_s
