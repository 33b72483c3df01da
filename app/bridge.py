"""The only holder of the running engine: drains its events on a timer and passes the user's wishes on.

Events never come one signal each: a ring that a 33 ms timer empties costs a twentieth of that.
"""

import gc
import threading
import time
from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QObject, QTimer, Signal

from app.refresher import EVERYTHING
from app.series.board import Board
from engine.errors import EngineError
from engine.events import EngineFailed, Notice
from engine.request import RequestId, SamplingParams
from engine.weights import PolicyWeights

DRAIN_MS = 33
RING = 65_536
CLOSE_S = 3.0
REPLACE_MS = 20


class Bridge(QObject):
    """`changed` carries the topics that the last drain touched; `replaced` says that the board is empty
    because another engine comes; `started` that an engine exists and has been told to start; `emptied`
    that the last one has ended and none follows."""

    changed = Signal(object)
    replaced = Signal()
    started = Signal()
    emptied = Signal()

    def __init__(self, board: Board, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.board = board
        self._engine: Any = None
        self._subscription: Any = None
        self._closed = False
        self._next: Callable[[], Any] | None = None  # what to start once the old engine has ended
        self._closer: threading.Thread | None = None
        self._closing_since_s = 0.0
        self._timer = QTimer(self)
        self._timer.setInterval(DRAIN_MS)
        self._timer.timeout.connect(self.drain)
        self._replacing = QTimer(self)
        self._replacing.setInterval(REPLACE_MS)
        self._replacing.timeout.connect(self._look_for_the_end)

    @property
    def running(self) -> bool:
        return self._engine is not None

    def start(self, make_engine: Callable[[], Any]) -> None:
        """Build the engine and let its worker thread start; events follow. Never raises `EngineError`.

        Where an engine runs already, that one ends first, in the background; of several wishes that come
        meanwhile only the last counts.
        """
        if self._closed:
            return
        self._next = make_engine
        if self._engine is not None:
            self._end_engine()
        if self.board.setup or self.board.failure or self.board.backends:
            self.board.reset()
            self.replaced.emit()
            self.changed.emit(set(EVERYTHING))
        if self._closer is None:
            self._begin()
        else:
            self._replacing.start()

    def unload(self, words: str) -> None:
        """End the engine without another one; the board is empty and says `words`."""
        if self._closed:
            return
        self._next = None
        if self._engine is not None:
            self._end_engine()
            self._replacing.start()
        self.board.reset()
        self.replaced.emit()
        self.changed.emit(set(EVERYTHING))
        self._tell(EngineFailed(words, asked=True))
        if self._closer is None:
            self.emptied.emit()

    def _begin(self) -> None:
        make_engine, self._next = self._next, None
        if make_engine is None:
            return
        try:
            engine = make_engine()
            self._subscription = engine.subscribe(RING)
            engine.start()
        except EngineError as error:
            self._subscription = None
            self._tell(EngineFailed(str(error)))
            return
        self._engine = engine
        self._timer.start()
        self.started.emit()

    def _end_engine(self) -> None:
        engine, self._engine, self._subscription = self._engine, None, None
        self._timer.stop()
        if engine is not None:
            self._closing_since_s = time.monotonic()
            self._closer = threading.Thread(target=engine.close, name="engine-close", daemon=True)
            self._closer.start()

    def _look_for_the_end(self) -> None:
        """The old engine gets its three seconds; a new one must not wait for one that hangs."""
        late = time.monotonic() - self._closing_since_s > CLOSE_S
        if self._closer is not None and self._closer.is_alive() and not late:
            return
        self._replacing.stop()
        self._closer = None
        gc.collect()
        if self._next is None:
            self.emptied.emit()
        else:
            self._begin()

    def pause(self) -> None:
        """Leave further events in the ring."""
        self._timer.stop()

    def resume(self) -> None:
        if self._subscription is not None:
            self._timer.start()

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

    def for_experiments(self) -> tuple[Any, Any]:
        """The engine and a subscription of its own, for a thread that runs bursts; (None, None) without."""
        if self._engine is None:
            return None, None
        return self._engine, self._engine.subscribe(RING)

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

    def run_burst(self, preset: str, policy: str | None, build: Callable[..., Any] | None = None) -> None:
        """A preset, or with `build` a workload of that name."""
        more = {} if build is None else {"build": build}
        self._try(lambda: self._engine.run_burst(preset, policy, **more))

    def set_policy(self, name: str) -> None:
        self._try(lambda: self._engine.set_policy(name))

    def set_weights(self, weights: PolicyWeights) -> None:
        self._try(lambda: self._engine.set_weights(weights))

    def set_limits(self, slots: str, token_budget: int | None) -> None:
        self._try(lambda: self._engine.set_limits(slots, token_budget))

    def reload_reason(self, slots: str, token_budget: int | None) -> str:
        """Why the running backends cannot take these, "" where they can. Raises `EngineError`."""
        if self._engine is None:
            return "No engine runs that could take it."
        return str(self._engine.reload_reason(slots, token_budget))

    def restart_backend(self, name: str) -> None:
        self._try(lambda: self._engine.restart_backend(name))

    def close(self) -> None:
        """Stop the timers and the engine. Waits at most three seconds, whatever the engine does."""
        self._closed, self._next = True, None
        self._timer.stop()
        self._replacing.stop()
        older = self._closer
        self._end_engine()
        ends_s = time.monotonic() + CLOSE_S
        for closer in {older, self._closer} - {None}:
            closer.join(max(0.0, ends_s - time.monotonic()))
        gc.collect()
