"""Backends that stall: they get nothing new, and what waits there goes elsewhere while another one works."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.backend import Cancel
from engine.events import BackendState, Notice
from engine.request import BackendName, FinishReason, RequestId, RequestState
from engine.step_report import StepReport

if TYPE_CHECKING:
    from engine.core import Core


class StallWatch:
    """Keeps the router from stalled backends. A stall ends with a step; what has begun there then goes on."""

    def __init__(self, core: "Core") -> None:
        self._core = core
        self._suspended: set[BackendName] = set()
        # Requests that went on elsewhere, by the backend that has not said yet that it let them go.
        self._left: Counter[tuple[BackendName, RequestId]] = Counter()

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

    def gone(self, backend: BackendName) -> None:
        """The backend's process has ended: it answers nothing any more."""
        for key in [k for k in self._left if k[0] == backend]:
            del self._left[key]

    def current(self, report: StepReport) -> StepReport:
        """The report without what it tells of stays that are over: a request that left may have come back."""
        name = report.backend
        if not any(backend == name for backend, _ in self._left):
            return report
        # What a command ended was over before the step, so that the step is of a later stay, if it is of any.
        ended = [
            e
            for e in report.ended
            if e.reason is not FinishReason.ABORT or not self._let_go(name, e.request_id)
        ]
        withdrawn = tuple(i for i in report.withdrawn if not self._let_go(name, i))
        away = {request_id for backend, request_id in self._left if backend == name}
        for ending in ended:
            self._let_go(name, ending.request_id)
        return replace(
            report,
            tokens=tuple(t for t in report.tokens if t[0] not in away),
            admitted=tuple(a for a in report.admitted if a.request_id not in away),
            cache_hits=tuple(h for h in report.cache_hits if h[0] not in away),
            ended=tuple(e for e in ended if e.request_id not in away),
            withdrawn=withdrawn,
        )

    def _let_go(self, backend: BackendName, request_id: RequestId) -> bool:
        """Is this end of a stay, as the backend tells it, that of one that left?"""
        key = (backend, request_id)
        if key not in self._left:
            return False
        self._left[key] -= 1
        if not self._left[key]:
            del self._left[key]
        return True

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
                self._left[name, entry.request.id] += 1
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
