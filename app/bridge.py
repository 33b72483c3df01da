"""The only holder of the running engine: drains its events on a timer and passes the user's wishes on.

Events never come one signal each: a ring that a 33 ms timer empties costs a twentieth of that.
"""

import gc
import threading
from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QObject, QTimer, Signal

from app.series.board import Board
from engine.errors import EngineError
from engine.events import EngineFailed, Notice
from engine.request import RequestId, SamplingParams

DRAIN_MS = 33
RING = 65_536
CLOSE_S = 3.0


class Bridge(QObject):
    """`changed` carries the topics that the last drain touched."""

    changed = Signal(object)

    def __init__(self, board: Board, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.board = board
        self._engine: Any = None
        self._subscription: Any = None
        self._closed = False
        self._timer = QTimer(self)
        self._timer.setInterval(DRAIN_MS)
        self._timer.timeout.connect(self.drain)

    @property
    def running(self) -> bool:
        return self._engine is not None

    def start(self, make_engine: Callable[[], Any]) -> None:
        """Build the engine and let its worker thread start; events follow. Never raises `EngineError`."""
        if self._closed:
            return
        try:
            self._engine = make_engine()
            self._subscription = self._engine.subscribe(RING)
            self._engine.start()
        except EngineError as error:
            self._tell(EngineFailed(str(error)))
            return
        self._timer.start()

    def pause(self) -> None:
        """Leave further events in the ring."""
        self._timer.stop()

    def drain(self) -> None:
        if self._subscription is None:
            return
        events = self._subscription.drain()
        if events:
            self.changed.emit(self.board.apply(events))

    def _tell(self, event: EngineFailed | Notice) -> None:
        self.changed.emit(self.board.apply([event]))

    def _try(self, call: Callable[[], object]) -> object:
        """A wish of the user: what the engine refuses becomes a notice, not a traceback."""
        if self._engine is None:
            return None
        try:
            return call()
        except EngineError as error:
            self._tell(Notice("error", str(error)))
            return None

    def policies(self) -> list[str]:
        return list(self._engine.policies()) if self._engine is not None else []

    def submit_chat(self, messages: list[dict[str, str]], sampling: SamplingParams) -> RequestId:
        """Raises `EngineError`; the prompt panel shows it where the text was written."""
        if self._engine is None:
            raise EngineError("The engine has not started yet: try again in a moment.")
        return self._engine.submit_chat(messages, sampling)

    def cancel(self, request_id: RequestId) -> None:
        self._try(lambda: self._engine.cancel(request_id))

    def cancel_all(self) -> None:
        self._try(lambda: self._engine.cancel_all())

    def run_burst(self, preset: str, policy: str | None) -> None:
        self._try(lambda: self._engine.run_burst(preset, policy))

    def set_policy(self, name: str) -> None:
        self._try(lambda: self._engine.set_policy(name))

    def restart_backend(self, name: str) -> None:
        self._try(lambda: self._engine.restart_backend(name))

    def close(self) -> None:
        """Stop the timer and the engine. Waits at most three seconds, whatever the engine does."""
        self._closed = True
        self._timer.stop()
        engine, self._engine, self._subscription = self._engine, None, None
        if engine is None:
            return
        closer = threading.Thread(target=engine.close, name="engine-close", daemon=True)
        closer.start()
        closer.join(CLOSE_S)
        gc.collect()
