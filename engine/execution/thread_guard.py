"""Fewer threads when they begin to wait for each other.

Threads that share an operation meet at its end. When another job wants one of their cores, all of them wait
a whole slice of the system's scheduler: the same operation took 0.4 ms on one thread and 8 ms on two. Seen
from outside, steps of the same kind become uneven. Nothing here measures time: it is told.
"""

from collections import deque

WINDOW = 40  # decode steps with the same number of rows that are looked at together
UNEVEN = 2.5  # 95th percentile over median; an undisturbed loop stays below 1.3
RETRY = 500  # steps until a thread given up is tried again; each time in vain doubles them


class ThreadGuard:
    """Watches step times and says how many threads the next steps may use, at most `most`.

    `plan` holds the threads that each kind of step takes when nothing disturbs it; a kind that it lacks
    takes all of them.
    """

    def __init__(self, most: int, plan: dict[int, int] | None = None) -> None:
        self.threads = self.most = most
        self._plan = plan or {}
        self._rows = 0
        self._times: deque[float] = deque(maxlen=WINDOW)
        self._patience, self._quiet = RETRY, 0

    def count(self, kind: int) -> int:
        """Threads for the next step of a kind."""
        return min(self._plan.get(kind, self.most), self.threads)

    def note(self, rows: int, seconds: float, shared: bool = True) -> bool:
        """Note a step of `rows` decode rows and nothing else, which several threads `shared`.

        True if `threads` has just changed.
        """
        if self.threads < self.most:
            self._quiet += 1
            if self._quiet >= self._patience:  # the other job may have ended
                self._quiet = 0
                self._patience *= 2
                self.threads += 1
                self._times.clear()
                return True
        if self.threads == 1 or not shared:
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
        self._quiet = 0
        self._times.clear()
        return True
