"""The time cursor: drag it, and the backends, their queues and KV maps show that moment of the burst."""

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, Signal

from app.series.rewind import moment
from app.series.words import seconds

if TYPE_CHECKING:
    from app.main_window import MainWindow
    from app.panels.throughput import ThroughputPanel

FRAME_MS = 16  # however fast the mouse moves, no more moments than this are worked out
STEP_S = 0.1


class TimeCursor(QObject):
    """`at_s` is the moment that is shown, in engine seconds; None = now."""

    changed = Signal()

    def __init__(self, window: "MainWindow") -> None:
        super().__init__(window)
        self._window, self._board = window, window.board
        self.at_s: float | None = None
        self._run_id: str | None = None
        self._chart: ThroughputPanel | None = None
        self._due = QTimer(self)
        self._due.setSingleShot(True)
        self._due.setInterval(FRAME_MS)
        self._due.timeout.connect(self._show)
        window.bridge.changed.connect(self._board_changed)
        window.bridge.replaced.connect(self.go_live)

    def use_chart(self, chart: "ThroughputPanel") -> None:
        """The chart whose axis is dragged; it is made after the first paint."""
        self._chart = chart
        chart.moment_chosen.connect(self.go_to)

    def go_to(self, at_s: float | None) -> None:
        """Show that moment, with the next frame; None = now."""
        if at_s is None:
            self.go_live()
            return
        origin_s = self._board.throughput.origin_s
        if origin_s is not None:
            self.at_s = max(origin_s, at_s)
            if not self._due.isActive():
                self._due.start()

    def step(self, by: int) -> None:
        """So many tenths of a second earlier or later; past the last report it is now again."""
        last_s = self._board.frames.last_s()
        if last_s is None:
            return
        at_s = (last_s if self.at_s is None else self.at_s) + by * STEP_S
        self.go_to(None if at_s >= last_s else at_s)

    def go_live(self) -> None:
        self._due.stop()
        if self.at_s is not None:
            self.at_s = None
            self._show()

    def words(self) -> str:
        """ "3.20 s, not live"; "" while it is live."""
        if self.at_s is None:
            return ""
        return f"{seconds(self._board.throughput.clock_s(self.at_s))}, not live"

    def _show(self) -> None:
        now_s, window = self._window.now_s(), self._window
        if self.at_s is None:
            window.backends.look_at(None, now_s)
        else:
            window.backends.look_at(moment(self._board, self.at_s), self.at_s, self.words())
        if self._chart is not None:
            self._chart.show_moment(self.at_s, now_s)
        window.requests.show_moment(self.at_s)
        window.toolbar.looking_at = self.words()
        window.toolbar.refresh(now_s)
        self.changed.emit()

    def _board_changed(self, topics: set[str]) -> None:
        """A new burst is shown as it happens, whatever was looked at."""
        run = self._board.run
        run_id = run.started.run_id if run is not None else None
        if "run" in topics and run_id != self._run_id:
            self._run_id = run_id
            self.go_live()
