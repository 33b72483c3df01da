"""`--screenshot`: the real window in a file, at a chosen moment of a burst, on machines without a display."""

import sys
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject, QTimer, Signal

from app.main_window import MainWindow

POLL_MS = 20
READY_S, BURST_S = 1_800.0, 900.0  # a model may have to be fetched and calibrated first
SETTLE_S = 0.5


def parse_size(text: str) -> tuple[int, int] | None:
    """ "1920x1080" as two numbers; None where it is not a size that a window can have."""
    width, _, height = text.lower().partition("x")
    if not (width.isdigit() and height.isdigit()):
        return None
    size = int(width), int(height)
    return size if 320 <= size[0] <= 8_192 and 240 <= size[1] <= 8_192 else None


class Photographer(QObject):
    """Waits for its moment, saves the window, says how it went: `done(exit code)`."""

    done = Signal(int)

    def __init__(
        self,
        window: MainWindow,
        path: Path,
        *,
        burst: bool,
        after_s: float | None,
        after_burst: bool,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(window)
        self._window, self._path, self._clock = window, path, clock
        self._burst, self._after_s, self._after_burst = burst, after_s, after_burst
        self._began_s = clock()
        self._since_s: float | None = None  # the moment from which `after_s` counts
        self._timer = QTimer(self)
        self._timer.setInterval(POLL_MS)
        self._timer.timeout.connect(self._look)
        self._timer.start()

    def _look(self) -> None:
        board, now_s = self._window.board, self._clock()
        if board.failure is not None:
            self._fail(board.failure)
        elif not board.ready:
            if now_s - self._began_s > READY_S:
                self._fail(f"The engine was not ready after {READY_S:.0f} s.")
        elif self._due(now_s):
            self._take()

    def _due(self, now_s: float) -> bool:
        run = self._window.board.run
        if self._since_s is None:
            self._since_s = now_s
        if not self._burst:
            return now_s - self._since_s >= (self._after_s if self._after_s is not None else SETTLE_S)
        if run is None:
            refused = next((n.message for n in self._window.board.notices if n.level == "error"), "")
            if refused:
                self._fail(refused)
            if now_s - self._since_s > BURST_S:
                self._fail(f"The burst had not begun {BURST_S:.0f} s after the engine was ready.")
            return False
        since_start_s = now_s - run.started.start_s
        if since_start_s > BURST_S:
            self._fail(f"The burst had not ended after {BURST_S:.0f} s.")
            return False
        if self._after_burst or self._after_s is None:
            return run.done is not None
        return since_start_s >= self._after_s

    def _take(self) -> None:
        self._timer.stop()
        self._window.bridge.drain()
        run = self._window.board.run
        exact = self._burst and run is not None and self._after_s is not None and not self._after_burst
        self._window.freeze(run.started.start_s + self._after_s if exact else self._clock())
        self._window.tick()
        # Layouts asked for by that refresh take one turn of the event loop.
        QTimer.singleShot(2 * POLL_MS, self._save)

    def _save(self) -> None:
        self._window.tick()
        if self._window.grab().save(str(self._path), "PNG"):
            self.done.emit(0)
        else:
            self._fail(f"{self._path} could not be written: choose a folder that exists and is writable.")

    def _fail(self, message: str) -> None:
        self._timer.stop()
        sys.stderr.write(f"offramp: {message}\n")
        self.done.emit(1)
