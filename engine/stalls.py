"""Backends that stall: they get nothing new, and what waits there goes elsewhere while another one works."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine.backend import Cancel
from engine.events import BackendState, Notice
from engine.request import BackendName, RequestState

if TYPE_CHECKING:
    from engine.core import Core


class StallWatch:
    """Keeps the router from stalled backends. A stall ends with a step; what has begun there then goes on."""

    def __init__(self, core: "Core") -> None:
        self._core = core
        self._suspended: set[BackendName] = set()

    def look(self) -> None:
        """Act on every stall that began or ended since the last look."""
        for name, unit in self._core.supervisor.units.items():
            if unit.state is BackendState.STALLED:
                if name not in self._suspended:
                    self._suspend(name)
            elif name in self._suspended:
                self._suspended.discard(name)
                if unit.ready:
                    self._core.router.set_stalled(name, False)

    def _suspend(self, name: BackendName) -> None:
        core = self._core
        if not any(n != name for n in core.router.alive()):
            return  # the only one there is: requests wait for it
        self._suspended.add(name)
        core.router.set_stalled(name, True)
        moved = []
        for entry in list(core.ledger.entries.values()):
            waits = entry.backend == name and entry.state is not RequestState.FINISHED and not entry.started
            if waits and entry.number:
                # It may have begun there and not told: once that backend steps again, it is to drop it.
                core.supervisor.send(name, Cancel(entry.request.id))
                core.router.forget(name, entry.request.id)
                core.route(entry, core.clock.now_s(), moved_from=name)
                moved.append(entry.number)
        unit = core.supervisor.units[name]
        words = [f"The {unit.info.label} backend has stalled: {unit.message[:1].lower()}{unit.message[1:]}."]
        words += [f"{numbers_words(moved)} moved."] if moved else []
        core.publish(Notice("warning", " ".join([*words, "Others go elsewhere until it steps again."])))


def numbers_words(numbers: Sequence[int]) -> str:
    """ "Request 3", "Requests 3 to 5" or "Requests 3, 5"."""
    if len(numbers) == 1:
        return f"Request {numbers[0]}"
    if list(numbers) == list(range(numbers[0], numbers[-1] + 1)):
        return f"Requests {numbers[0]} to {numbers[-1]}"
    return f"Requests {', '.join(map(str, numbers))}"
