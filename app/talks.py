"""The conversations of this window: the one that is shown and all that stream, each with one reply at most.

A reply goes on streaming when another conversation is shown; it is kept on disk as it comes, so that no
kill loses more than its last quarter of a second.
"""

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from PySide6.QtCore import QObject, QTimer, Signal

from app.chats import ChatStore, Listed
from app.series.board import Board
from app.series.conversation import Conversation, Exchange, describe
from app.series.running import Running
from engine.errors import EngineError
from engine.request import RequestId, RequestState, SamplingParams

STREAM_MS = 40
KEEP_S = 0.25  # a streaming reply goes to the disk this often
REMEMBERED = 64  # ended replies that late text can still reach
T = TypeVar("T")


class Chat(Protocol):
    """The part of the engine that conversations talk to."""

    def submit_chat(self, messages: list[dict[str, str]], sampling: SamplingParams) -> RequestId: ...
    def cancel(self, request_id: RequestId) -> None: ...


class Talks(QObject):
    """All signals but `failed` and `running_changed` are about the shown conversation."""

    shown = Signal()  # it is another one, or has lost exchanges
    asked = Signal()  # a prompt was added at its end
    streamed = Signal(str)  # more of the answer that streams
    turned = Signal()  # thinking began or ended
    signed = Signal()  # the last reply has learned more about its backend, or ended
    redrawn = Signal()  # an older reply has changed
    running_changed = Signal()
    failed = Signal(str)  # a sentence for the user

    def __init__(self, board: Board, chat: Chat, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._board, self._chat = board, chat
        self.store = ChatStore(None)
        self.talk = Conversation()
        self._running: dict[int, Running] = {}  # by request
        self._ended: dict[int, Running] = {}
        self._unkept = ""  # why the last reply could not be kept
        self._timer = QTimer(self)
        self._timer.setInterval(STREAM_MS)
        self._timer.timeout.connect(self.pump)

    @property
    def live(self) -> Running | None:
        """The reply that streams into the shown conversation."""
        return next((r for r in self._running.values() if r.talk is self.talk), None)

    def running_keys(self) -> set[int]:
        """Of the conversations that stream."""
        return {r.talk.key for r in self._running.values()}

    def running_elsewhere(self) -> int:
        return sum(r.talk is not self.talk for r in self._running.values())

    def listed(self) -> list[Listed]:
        return self._try(self.store.listed) or []

    def use_store(self, store: ChatStore) -> None:
        """Keep conversations here from now on, and go on with the last one."""
        self.store.close()
        self.store = store
        if listed := self.listed():
            self.open(listed[0].key)

    def close(self) -> None:
        """The window goes. What still streams is kept as it is: the next start then knows it was cut."""
        self._timer.stop()
        for running in self._running.values():
            self._keep(running.exchange)
        self._running.clear()
        self.store.close()

    # what the reader does

    def ask(self, prompt: str, sampling: SamplingParams, place: int | None = None) -> bool:
        """Ask the engine, in place of the exchanges from `place` on. Raises `EngineError` on a refusal,
        and then nothing is lost. False while a reply streams."""
        live = self.live
        if live is not None:
            if place is None:
                return False
            self._chat.cancel(RequestId(live.exchange.request_id))
            self._end(live, "Stopped.")
        talk = self.talk
        exchange = Exchange(prompt, self._chat.submit_chat(talk.messages(prompt, place), sampling))
        gone = talk.exchanges[place:] if place is not None else []
        del talk.exchanges[len(talk.exchanges) - len(gone) :]
        talk.exchanges.append(exchange)
        self._try(lambda: self.store.begin(talk, exchange, gone))
        self._running[exchange.request_id] = Running(talk, exchange)
        if gone:
            self.shown.emit()
        else:
            self.asked.emit()
        self.running_changed.emit()
        self._timer.start()
        return True

    def stop(self) -> None:
        """End the reply that is shown; others go on."""
        if (live := self.live) is not None:
            self._chat.cancel(RequestId(live.exchange.request_id))

    def new(self) -> None:
        self._show(Conversation(system=self.talk.system))

    def open(self, key: int) -> None:
        if key != self.talk.key and (talk := self._find(key)) is not None:
            self._show(talk)

    def duplicate(self, key: int) -> None:
        """A second conversation that begins with what this one holds, and is shown."""
        found = self._find(key) if key else None
        if found is not None:
            talk = found.copy()
            if self._try(lambda: self.store.add_whole(talk)):
                self._show(talk)

    def rename(self, key: int, title: str) -> None:
        for talk in self._in_memory():
            if talk.key == key:
                talk.title = title
        self._try(lambda: self.store.rename(key, title))

    def delete(self, key: int) -> None:
        """For good; what streams into it is stopped."""
        for request_id, running in list(self._running.items()):
            if running.talk.key == key:
                self._chat.cancel(RequestId(request_id))
                del self._running[request_id]
                self.running_changed.emit()
        self._ended = {i: r for i, r in self._ended.items() if r.talk.key != key}
        self._try(lambda: self.store.delete(key))
        if key == self.talk.key:
            self._show(Conversation(system=self.talk.system))

    def set_system(self, text: str) -> None:
        talk, text = self.talk, text.strip()
        if text != talk.system:
            talk.system = text
            if talk.key:
                self._try(lambda: self.store.set_system(talk.key, text))

    def _show(self, talk: Conversation) -> None:
        live = self.live
        if live is not None and not self.talk.key:  # not kept: nothing would lead back to it
            self.stop()
            self._end(live)
        self.talk = talk
        self.shown.emit()
        self.running_changed.emit()

    def _in_memory(self) -> list[Conversation]:
        return [self.talk, *(r.talk for r in (*self._running.values(), *self._ended.values()))]

    def _find(self, key: int) -> Conversation | None:
        """The one in memory, which knows more, before the one on disk."""
        known = next((talk for talk in self._in_memory() if talk.key == key), None)
        return known or self._try(lambda: self.store.load(key))

    def pump(self) -> None:
        """Every 40 ms while a reply streams: new text, a signature that knows more, the end."""
        for running in list(self._running.values()):
            self._take(running)
        if not self._running:
            self._timer.stop()

    def _take(self, running: Running) -> None:
        exchange, shown = running.exchange, running.talk is self.talk
        before = exchange.look()
        request_id = RequestId(exchange.request_id)
        pieces = self._board.texts.pop(request_id, ())
        row = self._board.requests.get(request_id)
        text, turned = running.add(pieces, row.output_tokens if row is not None else 0)
        if shown and turned:
            self.turned.emit()
        elif shown and text:
            self.streamed.emit(text)
        if row is None:
            if running.seen:  # a very long burst has pushed it off the board
                self._end(running, "Offramp lost sight of this request.")
            return
        running.seen = True
        describe(exchange, row, self._board.backends.get(row.backend or ""))
        if row.state is RequestState.FINISHED:
            self._end(running)
            return
        if shown and before != exchange.look():
            self.signed.emit()
        running.unkept = running.unkept or bool(pieces)
        if running.unkept and time.monotonic() - running.kept_s > KEEP_S:
            running.kept_s, running.unkept = time.monotonic(), False
            self._keep(exchange)

    def take_late(self) -> None:
        """Text that came after the end of its reply."""
        for request_id in [key for key in self._board.texts if key not in self._running]:
            text = "".join(self._board.texts.pop(request_id))
            if (ended := self._ended.get(request_id)) is not None and text:
                ended.exchange.reply += text
                self._keep(ended.exchange)
                if ended.talk is self.talk:
                    self.redrawn.emit()

    def end_all(self, problem: str = "") -> None:
        """The engine failed or was replaced."""
        for running in list(self._running.values()):
            self._end(running, problem)

    def forget_requests(self) -> None:
        """Request ids begin anew, and old replies have no receipt any more."""
        for exchange in self.talk.exchanges:
            exchange.request_id = 0
        self._ended.clear()  # what is opened again comes from the disk, which knows no requests
        self.redrawn.emit()

    def _end(self, running: Running, problem: str = "") -> None:
        exchange = running.exchange
        self._running.pop(exchange.request_id, None)
        self._ended[exchange.request_id] = running
        while len(self._ended) > REMEMBERED:
            del self._ended[next(iter(self._ended))]
        exchange.done, exchange.progress = True, ""
        exchange.problem = exchange.problem or problem
        self._keep(exchange)
        if running.talk is self.talk:
            self.signed.emit()
        self.running_changed.emit()

    def _keep(self, exchange: Exchange) -> None:
        """Several times a second: a disk that is full is told once."""
        try:
            self.store.keep(exchange)
            self._unkept = ""
        except EngineError as error:
            if str(error) != self._unkept:
                self._unkept = str(error)
                self.failed.emit(self._unkept)

    def _try(self, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except EngineError as error:
            self.failed.emit(str(error))
            return None
