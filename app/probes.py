"""What measures the window from inside: a heartbeat of its event loop, and paint events by panel."""

import time
from collections import Counter
from collections.abc import Mapping

from PySide6.QtCore import QEvent, QObject, QTimer
from PySide6.QtWidgets import QWidget

BEAT_MS = 10


def spread(values: list[float]) -> dict[str, float]:
    """p50, p99 and max to a tenth; zeros for nothing."""
    if not values:
        return {"p50": 0.0, "p99": 0.0, "max": 0.0}
    ordered = sorted(values)
    p50, p99 = (ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in (0.5, 0.99))
    return {"p50": round(p50, 1), "p99": round(p99, 1), "max": round(ordered[-1], 1)}


class Heartbeat(QObject):
    """Milliseconds between the beats of a 10 ms timer while it runs, in `gaps_ms`.

    `own_ms` holds, for each gap, the thread's own processor time: what other work on the machine can't touch.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.gaps_ms: list[float] = []
        self.own_ms: list[float] = []
        self.at_s: list[float] = []  # when each gap ended, since the beat last started
        self._last, self._began_s = (0.0, 0.0), 0.0
        self._timer = QTimer(self)
        self._timer.setInterval(BEAT_MS)
        self._timer.timeout.connect(self._beat)

    def start(self) -> None:
        self._last = (time.perf_counter(), time.thread_time())
        self._began_s = self._last[0]
        self._timer.start()

    def stop(self) -> None:
        """The gap that is still open counts: it may be the longest."""
        if self._timer.isActive():
            self._timer.stop()
            self._beat()

    def _beat(self) -> None:
        now = (time.perf_counter(), time.thread_time())
        self.gaps_ms.append((now[0] - self._last[0]) * 1000)
        self.own_ms.append((now[1] - self._last[1]) * 1000)
        self.at_s.append(now[0] - self._began_s)
        self._last = now

    def worst(self, most: int = 5) -> list[dict[str, float]]:
        """The longest gaps, with the thread's own time in them and when in its run each ended."""
        gaps = zip(self.gaps_ms, self.own_ms, self.at_s, strict=True)
        longest = sorted(gaps, reverse=True)[:most]
        return [
            {"gap_ms": round(gap, 1), "own_ms": round(own, 1), "at_s": round(at, 2)}
            for gap, own, at in longest
        ]


class PaintCounter(QObject):
    """Paint events per panel: of the widget that painted most often, since repaints of parts do not add up.

    Watches the widgets that are there when it begins, from `begin` to `end`.
    """

    def __init__(self, panels: Mapping[str, QWidget], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._panels = panels
        self._watched: list[QWidget] = []
        self._counts: Counter[int] = Counter()

    def begin(self) -> None:
        self._watched = [w for panel in self._panels.values() for w in (panel, *panel.findChildren(QWidget))]
        for widget in self._watched:
            widget.installEventFilter(self)

    def end(self) -> None:
        for widget in self._watched:
            widget.removeEventFilter(self)
        self._watched = []

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() is QEvent.Type.Paint:
            self._counts[id(watched)] += 1
        return False

    def most(self) -> dict[str, int]:
        """Repaints by panel so far."""
        return {
            name: max(self._counts[id(w)] for w in (panel, *panel.findChildren(QWidget)))
            for name, panel in self._panels.items()
        }
