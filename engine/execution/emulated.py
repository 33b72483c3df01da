"""A runner that waits as a profile says. Its tokens are placeholders and every screen says so."""

import threading

from engine.clock import Clock
from engine.execution.profile_runner import ProfileRunner
from engine.profiling.profile import BackendProfile
from engine.scheduling.batch import Batch

# A step that follows within this time continues the work: its clock starts where the last step ended, so
# that the loop's own fraction of a millisecond does not add up to a slower device than the profile's.
_CONTINUES_S = 0.003


class Neighbours:
    """Which emulated backends compute right now, shared between their threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._busy: set[str] = set()

    def enter(self, name: str) -> bool:
        """`name` computes from now on; returns whether another one does."""
        with self._lock:
            others = bool(self._busy - {name})
            self._busy.add(name)
            return others

    def leave(self, name: str) -> None:
        with self._lock:
            self._busy.discard(name)


class EmulatedRunner(ProfileRunner):
    """`run` returns after the step's time on the profile has passed on the wall clock."""

    def __init__(
        self, profile: BackendProfile, neighbours: Neighbours, clock: Clock, closing: threading.Event
    ) -> None:
        super().__init__(profile)
        self._neighbours = neighbours
        self._clock = clock
        self._closing = closing
        self._ended_s = float("-inf")
        self.others_busy = False

    def run(self, batch: Batch) -> list[int]:
        now = self._clock.now_s()
        begun_s = self._ended_s if now - self._ended_s < _CONTINUES_S else now
        self.others_busy = self._neighbours.enter(self.profile.name)
        self._ended_s = begun_s + self.seconds(batch, self.others_busy)
        self._closing.wait(max(0.0, self._ended_s - now))
        self._neighbours.leave(self.profile.name)
        return super().run(batch)
