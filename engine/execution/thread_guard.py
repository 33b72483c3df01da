"""Fewer threads when they begin to wait for each other.

Threads that share an operation meet at its end. When another job wants one of their cores, all of them wait
a whole slice of the system's scheduler: the same operation took 0.4 ms on one thread and 8 ms on two. Seen
from outside, steps of the same kind become uneven. Nothing here measures time: it is told.
"""

from collections import deque

WINDOW = 40  # decode steps with the same number of rows that are looked at together
UNEVEN = 2.5  # 95th percentile over median; an undisturbed loop stays below 1.3


class ThreadGuard:
    """Watches step times and says when to go on with one thread less. It never goes up again: each try would
    cost a slow stretch, and a restart of the backend begins with the plan's count."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._rows = 0
        self._times: deque[float] = deque(maxlen=WINDOW)

    def lowered(self, rows: int, seconds: float) -> bool:
        """Note a step of `rows` decode rows and nothing else; True if `threads` has just become less."""
        if self.threads == 1:
            return False
        if rows != self._rows:
            self._rows = rows
            self._times.clear()
        self._times.append(seconds)
        if len(self._times) < WINDOW:
            return False
        ordered = sorted(self._times)
        if ordered[int(0.95 * WINDOW)] < UNEVEN * ordered[WINDOW // 2]:
            return False
        self.threads -= 1
        self._times.clear()
        return True
