"""The conversation: what was asked, the replies as they stream, and who wrote them."""

import time
from dataclasses import replace
from typing import Protocol

from PySide6.QtCore import QSize, QTimer, Signal
from PySide6.QtGui import QGuiApplication, QResizeEvent
from PySide6.QtWidgets import QStackedWidget, QVBoxLayout, QWidget

from app.chats import ChatStore
from app.series.board import Board
from app.series.conversation import Conversation, Exchange, describe
from app.theme import ThemeHolder
from app.widgets.composer import Composer
from app.widgets.conversation_list import ConversationList
from app.widgets.getting_ready import GettingReady
from app.widgets.labels import make_label
from app.widgets.panel import PADDING, Panel
from app.widgets.prompt_title import PromptTitle, ask_export, edit_system
from app.widgets.transcript import Transcript
from engine.errors import EngineError
from engine.events import SetupStep
from engine.request import RequestId, RequestState, SamplingParams

STREAM_MS = 40
KEEP_S = 0.25  # a streaming reply goes to the disk this often


class Chat(Protocol):
    """The part of the engine that this panel talks to."""

    def submit_chat(self, messages: list[dict[str, str]], sampling: SamplingParams) -> RequestId: ...
    def cancel(self, request_id: RequestId) -> None: ...


class PromptPanel(Panel):
    topics = frozenset({"setup", "model", "text", "requests", "notices"})
    receipt_requested = Signal(int)
    failed = Signal(str)  # a sentence for the user
    least = QSize(280, 320)

    def __init__(self, board: Board, themes: ThemeHolder, chat: Chat, parent: QWidget | None = None) -> None:
        super().__init__(board, themes, parent)
        self._chat, self._store = chat, ChatStore(None)
        self.talk = Conversation()
        self._live: Exchange | None = None
        self._editing: int | None = None  # index of the exchange that the composer's text replaces
        self._kept_s, self._unkept = 0.0, False
        self._timer = QTimer(self)
        self._timer.setInterval(STREAM_MS)
        self._timer.timeout.connect(self._pump)
        self.title = PromptTitle(self)
        self.system_button, self.new_button = self.title.system_button, self.title.new_button
        self.title.chosen.connect(self.act)
        self.transcript = Transcript(themes)
        self.transcript.receipt_requested.connect(self.receipt_requested)
        self.transcript.action_requested.connect(self.act)
        self.getting_ready = GettingReady(themes)
        self.failure = make_label("", "body", tone="error")
        self.failure.setWordWrap(True)
        self.failure.hide()
        self.composer = Composer(themes)
        self.composer.send.connect(self.send)
        self.composer.stop.connect(self.stop)
        self.composer.edit_cancelled.connect(self._stop_editing)
        self._pages = QStackedWidget()
        self._pages.addWidget(self.getting_ready)
        self._pages.addWidget(self.transcript)
        column = QVBoxLayout()
        column.setContentsMargins(PADDING, PADDING, PADDING, 12)
        column.setSpacing(12)
        column.addWidget(self.failure)
        column.addWidget(self._pages, 1)
        column.addWidget(self.composer)
        self.body.addLayout(column, 1)
        self.refresh(set(self.topics), 0.0)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.title.fit()

    def use_store(self, store: ChatStore) -> None:
        """Keep conversations here from now on, and go on with the last one."""
        self._store.close()
        self._store = store
        listed = self._listed()
        if listed:
            self.open_conversation(listed[0].key)

    def _listed(self) -> list:
        try:
            return self._store.listed()
        except EngineError as error:
            self.failed.emit(str(error))
            return []

    def close_store(self) -> None:
        self._finish_live()
        self._store.close()

    # what the reader does

    def act(self, name: str, index: int = -1) -> None:
        """One of the actions of the title row, of an exchange, or of the menu."""
        last = len(self.talk.exchanges) - 1
        index = last if index < 0 else index
        match name:
            case "new":
                self.new_conversation()
            case "list":
                self.show_conversations()
            case "system":
                self.edit_system()
            case "markdown" | "json":
                self.export(name)
            case _ if not 0 <= index <= last or self.talk.exchanges[index] is self._live:
                return
            case "copy":
                QGuiApplication.clipboard().setText(self.talk.exchanges[index].reply)
            case "regenerate":
                prompt = self.talk.exchanges[index].prompt
                self._drop_from(index)
                self.send(prompt)
            case "edit":
                self._editing = index
                self.composer.edit(self.talk.exchanges[index].prompt, index + 1)

    def send(self, text: str) -> None:
        """Ask the engine; on a refusal the text stays and the reason is shown above it."""
        if self._live is not None:
            return
        if self._editing is not None:
            self._drop_from(self._editing)
            self._stop_editing()
        sampling = self.composer.sampling_line.sampling
        try:
            request_id = self._chat.submit_chat(self.talk.messages(text), sampling)
        except EngineError as error:
            self.composer.say(str(error))
            if not self.composer.editor.toPlainText():
                self.composer.editor.setPlainText(text)
            return
        self.composer.clear()
        self._live = Exchange(text, request_id)
        self.talk.exchanges.append(self._live)
        self._save(lambda: self._store.begin(self.talk, self._live))
        self.transcript.add(self._live)
        self.composer.set_streaming(True)
        self._timer.start()

    def stop(self) -> None:
        if self._live is not None:
            self._chat.cancel(RequestId(self._live.request_id))

    def _stop_editing(self) -> None:
        self._editing = None
        self.composer.edit("", 0)

    def _drop_from(self, index: int) -> None:
        """Everything from here on makes room for something else."""
        self.stop()
        self._finish_live()
        gone = self.talk.exchanges[index:]
        del self.talk.exchanges[index:]
        self._save(lambda: self._store.drop(gone))
        self.transcript.show_exchanges(self.talk.exchanges)

    def new_conversation(self) -> None:
        self._show(Conversation(system=self.talk.system))
        self.composer.editor.setFocus()

    def open_conversation(self, key: int) -> None:
        try:
            talk = self._store.load(key)
        except EngineError as error:
            self.failed.emit(str(error))
            return
        if talk is not None and (key != self.talk.key or not self.talk.key):
            self._show(talk)

    def _show(self, talk: Conversation) -> None:
        self.stop()
        self._finish_live()
        self._stop_editing()
        self.talk = talk
        self.transcript.show_exchanges(talk.exchanges)
        self.composer.say("")
        self._show_meter()

    def show_conversations(self) -> ConversationList:
        popover = ConversationList(self.themes, self._store, self.talk.key, self)
        popover.chosen.connect(self.open_conversation)
        popover.renamed.connect(self.rename_conversation)
        popover.deleted.connect(self.delete_conversation)
        popover.new_requested.connect(self.new_conversation)
        popover.failed.connect(self.failed)
        popover.closed.connect(popover.deleteLater)
        popover.open_at(self.title.list_button)
        popover.list.setFocus()
        return popover

    def rename_conversation(self, key: int, title: str) -> None:
        if key == self.talk.key:
            self.talk.title = title
        self._save(lambda: self._store.rename(key, title))

    def delete_conversation(self, key: int) -> None:
        if key == self.talk.key:
            self.new_conversation()
        self._save(lambda: self._store.delete(key))

    def export(self, kind: str) -> None:
        text = self.talk.as_markdown() if kind == "markdown" else self.talk.as_json()
        ask_export(self, kind, text, self.failed.emit)

    def edit_system(self) -> None:
        edit_system(self, self.system_button, self.talk.system, self.set_system)

    @property
    def system(self) -> str:
        return self.talk.system

    def set_system(self, text: str) -> None:
        self.talk.system = text.strip()

    def _save(self, work) -> None:
        try:
            work()
        except EngineError as error:
            self.failed.emit(str(error))

    # what the engine says

    def engine_replaced(self) -> None:
        """Request ids begin anew: what streams ends here, and old replies have no receipt any more."""
        if self._live is not None:
            self._live.problem = "The engine was replaced before the end."
        self._finish_live()
        for exchange in self.talk.exchanges:
            exchange.request_id = 0
        self.getting_ready.forget()
        self.transcript.draw_again()

    def refresh(self, topics: set[str], now_s: float) -> None:
        ready, failure = self.board.ready, self.board.failure
        steps = self._steps()
        words = "Prompt" if ready else "Not ready" if failure else "Getting ready"
        self.title.show_state(
            words, ready, "" if ready or failure else self.getting_ready.summary(steps)
        )
        self.failure.setText(failure or "")
        self.failure.setVisible(bool(failure))
        self._pages.setCurrentIndex(1 if ready else 0)
        self.composer.set_ready(ready and not failure)
        if not ready:
            self.getting_ready.show_steps(steps)
        if failure:
            self._finish_live()
        if "text" in topics:
            self._take_late_text()
        self._show_meter()

    def _show_meter(self) -> None:
        most = self.board.model.context_tokens if self.board.model else 0
        self.composer.meter.set_tokens(self.talk.used_tokens(), most)

    def _steps(self) -> dict[str, SetupStep]:
        """The engine's steps, after those that come before it can say anything."""
        begun = bool(self.board.setup or self.board.failure)
        start = SetupStep("start", "Start the engine", state="done" if begun else "running")
        steps = {
            "window": SetupStep("window", "Open the window", state="done"),
            "start": start,
            **self.board.setup,
        }
        if self.board.failure:  # nothing goes on any more
            steps = {k: replace(s, state="failed") if s.state == "running" else s for k, s in steps.items()}
        return steps

    def _pump(self) -> None:
        """Every 40 ms while a reply streams: new text, a signature that knows more, the end."""
        exchange = self._live
        if exchange is None:
            self._timer.stop()
            return
        text = "".join(self.board.texts.pop(RequestId(exchange.request_id), ()))
        self.transcript.append(text)
        row = self.board.requests.get(RequestId(exchange.request_id))
        if row is None:
            return
        before = (exchange.rank, exchange.figures, exchange.note, exchange.progress)
        describe(exchange, row, self.board.backends.get(row.backend or ""))
        if row.state is RequestState.FINISHED:
            self._finish_live()
        elif before != (exchange.rank, exchange.figures, exchange.note, exchange.progress):
            self.transcript.sign()
        self._unkept = self._unkept or bool(text)
        if self._live is exchange and self._unkept and time.monotonic() - self._kept_s > KEEP_S:
            self._kept_s, self._unkept = time.monotonic(), False
            self._save(lambda: self._store.keep(exchange))

    def _finish_live(self) -> None:
        exchange, self._live = self._live, None
        self._timer.stop()
        self.composer.set_streaming(False)
        if exchange is None:
            return
        exchange.done = True
        self._save(lambda: self._store.keep(exchange))
        self.transcript.sign()
        self._show_meter()

    def _take_late_text(self) -> None:
        live = self._live.request_id if self._live else None
        for request_id in [key for key in self.board.texts if key != live]:
            text = "".join(self.board.texts.pop(request_id))
            exchange = next((e for e in self.talk.exchanges if e.request_id == request_id), None)
            if exchange is not None:
                exchange.reply += text
                self._save(lambda exchange=exchange: self._store.keep(exchange))
                self.transcript.draw_again()
