"""A piece of work in a thread, its result back in the event loop. What fails comes back as words."""

import threading
from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QObject, QTimer, Signal

from engine.errors import EngineError

POLL_MS, JOIN_S = 40, 1.0


class Background(QObject):
    """One task at a time: a new one replaces the old one, whose result is then dropped."""

    done = Signal(object)
    failed = Signal(str)

    def __init__(self, name: str, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._name = name
        self._thread: threading.Thread | None = None
        self._result: list[tuple[bool, Any]] = []
        self._timer = QTimer(self)
        self._timer.setInterval(POLL_MS)
        self._timer.timeout.connect(self._look)

    @property
    def busy(self) -> bool:
        return self._thread is not None

    def start(self, work: Callable[[], Any]) -> None:
        result = self._result = []

        def run() -> None:
            try:
                result.append((True, work()))
            except EngineError as error:
                result.append((False, str(error)))
            except OSError as error:  # a folder that went away while it was read
                result.append((False, f"{error.strerror or error}: try again."))

        self._thread = threading.Thread(target=run, name=self._name, daemon=True)
        self._thread.start()
        self._timer.start()

    def _look(self) -> None:
        if self._thread is None or self._thread.is_alive():
            return
        self._thread, result = None, self._result
        self._timer.stop()
        for good, value in result:
            (self.done if good else self.failed).emit(value)

    def close(self) -> None:
        self._timer.stop()
        if self._thread is not None:
            self._thread.join(JOIN_S)
            self._thread = None
