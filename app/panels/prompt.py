"""The conversation: what was asked, the replies as they stream, and who wrote them."""

from PySide6.QtCore import QSize, Signal
from PySide6.QtGui import QGuiApplication, QResizeEvent
from PySide6.QtWidgets import QFileDialog, QStackedWidget, QVBoxLayout, QWidget

from app.chats import ChatStore
from app.series.board import Board
from app.series.conversation import Conversation
from app.series.next_steps import problem_of, steps_of
from app.talks import Chat, Talks
from app.theme import ThemeHolder
from app.widgets.composer import Composer
from app.widgets.conversation_list import ConversationList
from app.widgets.getting_ready import GettingReady
from app.widgets.labels import make_label, make_separator, set_tone
from app.widgets.next_steps import NextSteps
from app.widgets.panel import PADDING, Panel
from app.widgets.popover import Popover
from app.widgets.prompt_title import PromptTitle, ask_export, edit_system
from app.widgets.transcript import Transcript
from engine.errors import EngineError


class PromptPanel(Panel):
    topics = frozenset({"setup", "model", "text", "requests", "notices", "backends"})
    receipt_requested = Signal(int)
    step_requested = Signal(str)  # key of a `NextStep`
    failed = Signal(str)  # a sentence for the user
    least = QSize(280, 320)

    def __init__(self, board: Board, themes: ThemeHolder, chat: Chat, parent: QWidget | None = None) -> None:
        super().__init__(board, themes, parent)
        self.talks = Talks(board, chat, self)
        self._editing: int | None = None  # index of the exchange that the composer's text replaces
        self._list: ConversationList | None = None  # while it is open
        self._build()
        self._connect()
        self.refresh(set(self.topics), 0.0)

    def _build(self) -> None:
        themes = self.themes
        self.title = PromptTitle(self)
        self.system_button, self.new_button = self.title.system_button, self.title.new_button
        self.transcript = Transcript(themes)
        self.getting_ready = GettingReady(themes)
        self.failure = make_label("", "body", tone="error")
        self.failure.setWordWrap(True)
        self.failure.hide()
        self.next_steps = NextSteps(themes)
        self.composer = Composer(themes)
        self._pages = QStackedWidget()
        self._pages.addWidget(self.getting_ready)
        self._pages.addWidget(self.transcript)
        column = QVBoxLayout()
        column.setContentsMargins(PADDING, PADDING, PADDING, 12)
        column.setSpacing(12)
        column.addWidget(self.failure)
        column.addWidget(self.next_steps)
        self._below_problem = make_separator()  # what is scrolled away ends at it
        column.addWidget(self._below_problem)
        column.addWidget(self._pages, 1)
        column.addWidget(self.composer)
        self.body.addLayout(column, 1)

    def _connect(self) -> None:
        talks, transcript, composer = self.talks, self.transcript, self.composer
        talks.shown.connect(self._show)
        talks.asked.connect(lambda: transcript.add(self.talk.exchanges[-1]))
        talks.streamed.connect(transcript.append)
        talks.turned.connect(transcript.draw_last)
        talks.signed.connect(transcript.sign)
        talks.redrawn.connect(transcript.draw_again)
        talks.running_changed.connect(self._show_running)
        talks.failed.connect(self.failed)
        transcript.receipt_requested.connect(self.receipt_requested)
        transcript.action_requested.connect(self.act)
        self.title.chosen.connect(self.act)
        self.next_steps.chosen.connect(self.step_requested)
        self.getting_ready.way_out.chosen.connect(self.step_requested)
        composer.send.connect(self.send)
        composer.stop.connect(self.stop)
        composer.edit_cancelled.connect(self._stop_editing)

    @property
    def talk(self) -> Conversation:
        """The conversation that is shown."""
        return self.talks.talk

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.title.fit()

    def use_store(self, store: ChatStore) -> None:
        """Keep conversations here from now on, and go on with the last one."""
        self.talks.use_store(store)

    def close_store(self) -> None:
        self.talks.close()

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
            case "duplicate":
                self.talks.duplicate(self.talk.key)
            case "markdown" | "json":
                self.export(name)
            case _ if not 0 <= index <= last or not self.talk.exchanges[index].done:
                return
            case "copy":
                if answer := self.talk.exchanges[index].answer:
                    QGuiApplication.clipboard().setText(answer)
            case "regenerate":
                self._ask(self.talk.exchanges[index].prompt, index)
            case "edit":
                self._editing = index
                self.composer.edit(self.talk.exchanges[index].prompt, index + 1)

    def send(self, text: str) -> None:
        """Ask the engine; on a refusal the text stays and the reason is shown above it."""
        if self._ask(text, self._editing):
            self._editing = None
            self.composer.edit("", 0)
            self.composer.clear()
        elif not self.composer.editor.toPlainText():
            self.composer.editor.setPlainText(text)

    def _ask(self, prompt: str, place: int | None) -> bool:
        try:
            asked = self.talks.ask(prompt, self.composer.sampling_line.sampling, place)
        except EngineError as error:
            self.composer.say(str(error))
            return False
        if asked:
            self.composer.say("")
        return asked

    def stop(self) -> None:
        """End the reply that is shown; other conversations go on."""
        self.talks.stop()

    def _stop_editing(self) -> None:
        self._editing = None
        self.composer.edit("", 0)

    def new_conversation(self) -> None:
        self.talks.new()
        self.composer.editor.setFocus()

    def open_conversation(self, key: int) -> None:
        self.talks.open(key)

    def show_conversations(self) -> ConversationList:
        talks = self.talks
        popover = ConversationList(self.themes, talks.store, self.talk.key, talks.running_keys(), self)
        popover.chosen.connect(talks.open)
        popover.renamed.connect(talks.rename)
        popover.deleted.connect(talks.delete)
        popover.duplicated.connect(talks.duplicate)
        popover.new_requested.connect(self.new_conversation)
        popover.failed.connect(self.failed)
        popover.closed.connect(self._list_closed)
        popover.open_at(self.title.list_button)
        popover.list.setFocus()
        self._list = popover
        return popover

    def _list_closed(self) -> None:
        closed, self._list = self._list, None
        if closed is not None:
            closed.deleteLater()

    def export(self, kind: str) -> QFileDialog:
        text = self.talk.as_markdown() if kind == "markdown" else self.talk.as_json()
        return ask_export(self, kind, self.talk.title, text, self.failed.emit)

    def edit_system(self) -> Popover:
        return edit_system(self, self.system_button, self.talk.system, self.set_system)

    @property
    def system(self) -> str:
        return self.talk.system

    def set_system(self, text: str) -> None:
        self.talks.set_system(text)

    # what is shown

    def _show(self) -> None:
        """Another conversation, or another end of this one."""
        self._stop_editing()
        self.transcript.show_exchanges(self.talk.exchanges)
        self.composer.say("")
        self._show_running()

    def _show_running(self) -> None:
        self.composer.set_streaming(self.talks.live is not None)
        self.title.show_others(self.talks.running_elsewhere())
        if self._list is not None:
            self._list.set_running(self.talks.running_keys())
        self._show_meter()

    def engine_replaced(self) -> None:
        """Request ids begin anew: what streams ends here, and old replies have no receipt any more."""
        self.talks.end_all("The engine was replaced before the end.")
        self.talks.forget_requests()
        self.getting_ready.forget()

    def refresh(self, topics: set[str], now_s: float) -> None:
        ready, failure = self.board.ready, self.board.failure
        steps = steps_of(self.board)
        stopped = "No model" if self.board.asked else "Not ready"
        words = "Prompt" if ready else stopped if failure else "Getting ready"
        self.title.show_state(words, ready, "" if ready or failure else self.getting_ready.summary(steps))
        problem, ways = problem_of(self.board)
        self.failure.setText(problem)
        self.failure.setVisible(bool(problem))
        set_tone(self.failure, "muted" if self.board.asked else "error")
        self.next_steps.show_steps(ways)
        self._below_problem.setVisible(ready and bool(problem))
        self._pages.setCurrentIndex(1 if ready else 0)
        self.composer.set_ready(ready and not problem)
        if not ready:
            self.getting_ready.show_steps(steps, under_way=not failure)
        if failure:
            self.talks.end_all()
        if "text" in topics:
            self.talks.take_late()
        self._show_meter()

    def _show_meter(self) -> None:
        most = self.board.model.context_tokens if self.board.model else 0
        self.composer.meter.set_tokens(self.talk.used_tokens(), most)
