"""The conversation: what was asked, the replies as they stream, and who wrote them."""

from typing import Protocol

from PySide6.QtCore import QSize, Qt, QTimer, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPlainTextEdit, QStackedWidget, QVBoxLayout, QWidget

from app.series.board import Board, RequestRow
from app.theme import ThemeHolder, font
from app.widgets.composer import Composer
from app.widgets.controls import Button
from app.widgets.getting_ready import GettingReady
from app.widgets.labels import make_label
from app.widgets.panel import PADDING, Panel
from app.widgets.popover import Popover
from app.widgets.transcript import Exchange, Transcript
from engine.errors import EngineError
from engine.events import SetupStep
from engine.request import FinishReason, RequestId, RequestState, SamplingParams

STREAM_MS = 40
PROBLEMS = {
    FinishReason.ERROR: "Its backend stopped before the end.",
    FinishReason.CONTEXT: "The context is full: start a new conversation.",
}


class Chat(Protocol):
    """The part of the engine that this panel talks to."""

    def submit_chat(self, messages: list[dict[str, str]], sampling: SamplingParams) -> RequestId: ...
    def cancel(self, request_id: RequestId) -> None: ...


class PromptPanel(Panel):
    topics = frozenset({"setup", "model", "text", "requests", "notices"})
    receipt_requested = Signal(int)
    least = QSize(280, 320)

    def __init__(self, board: Board, themes: ThemeHolder, chat: Chat, parent: QWidget | None = None) -> None:
        super().__init__(board, themes, parent)
        self._chat = chat
        self._messages: list[dict[str, str]] = []
        self._system = ""
        self._live: Exchange | None = None
        self._past: list[Exchange] = []  # may still get text that came after their end
        self._timer = QTimer(self)
        self._timer.setInterval(STREAM_MS)
        self._timer.timeout.connect(self._pump)
        self._build_title()
        self.transcript = Transcript(themes)
        self.transcript.receipt_requested.connect(self.receipt_requested)
        self.getting_ready = GettingReady(themes)
        self.failure = make_label("", "body", tone="error")
        self.failure.setWordWrap(True)
        self.failure.hide()
        self.composer = Composer(themes)
        self.composer.send.connect(self.send)
        self.composer.stop.connect(self.stop)
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

    def _build_title(self) -> None:
        row = self.add_title("Getting ready", height=47, top=0)
        row.setContentsMargins(PADDING, 0, 8, 0)
        row.setSpacing(4)
        self.phrase_label.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.system_button = Button(
            self.themes,
            "System prompt",
            kind="ghost",
            icon_name="sliders",
            tip="What the model is told first",
        )
        self.system_button.clicked.connect(self.edit_system)
        self.new_button = Button(
            self.themes,
            kind="ghost",
            icon_name="plus",
            name="New conversation",
            tip="New conversation (Ctrl+N)",
        )
        self.new_button.clicked.connect(self.new_conversation)
        row.addWidget(self.system_button)
        row.addWidget(self.new_button)
        line = QFrame()
        line.setObjectName("separator")
        line.setFixedHeight(1)
        self.body.addWidget(line)

    # what the reader does

    def send(self, text: str) -> None:
        """Ask the engine; on a refusal the text stays and the reason is shown above it."""
        head = [{"role": "system", "content": self._system}] if self._system else []
        messages = [*head, *self._messages, {"role": "user", "content": text}]
        try:
            request_id = self._chat.submit_chat(messages, self.composer.sampling_line.sampling)
        except EngineError as error:
            self.composer.say(str(error))
            return
        self.composer.clear()
        self._messages.append({"role": "user", "content": text})
        self._live = Exchange(text, request_id)
        self.transcript.add(self._live)
        self.composer.set_streaming(True)
        self._timer.start()

    def stop(self) -> None:
        if self._live is not None:
            self._chat.cancel(RequestId(self._live.request_id))

    def new_conversation(self) -> None:
        self.stop()
        self._finish_live()
        self._messages.clear()
        self._past.clear()
        self.transcript.clear_exchanges()
        self.composer.say("")
        self.composer.editor.setFocus()

    def edit_system(self) -> None:
        popover = Popover(self.themes, self)
        editor = QPlainTextEdit(self._system)
        editor.setFont(font("body"))
        editor.setAccessibleName("System prompt")
        editor.setPlaceholderText("Nothing: the model answers as it was trained.")
        editor.setFixedSize(320, 144)
        editor.textChanged.connect(lambda: self.set_system(editor.toPlainText()))
        frame = QFrame()
        frame.setObjectName("composer")
        inside = QHBoxLayout(frame)
        inside.setContentsMargins(12, 8, 4, 8)
        inside.addWidget(editor)
        popover.body.addWidget(make_label("System prompt", bold=True))
        popover.body.addWidget(frame)
        popover.body.addWidget(make_label("Counts from the next message on.", tone="muted"))
        popover.closed.connect(popover.deleteLater)
        popover.open_at(self.system_button)
        editor.setFocus()

    @property
    def system(self) -> str:
        return self._system

    def set_system(self, text: str) -> None:
        self._system = text.strip()

    def engine_replaced(self) -> None:
        """Request ids begin anew: what streams ends here, and old replies have no receipt any more."""
        if self._live is not None:
            self._live.problem = "The engine was replaced before the end."
        self._finish_live()
        for exchange in self._past:
            exchange.request_id = 0
        self._past.clear()
        self.getting_ready.forget()
        self.transcript.draw_again()

    # what the engine says

    def refresh(self, topics: set[str], now_s: float) -> None:
        ready, failure = self.board.ready, self.board.failure
        self.title_label.setText("Prompt" if ready else "Not ready" if failure else "Getting ready")
        steps = self._steps()
        self.phrase_label.set_full_text("" if ready or failure else self.getting_ready.summary(steps))
        for button in (self.system_button, self.new_button):
            button.setVisible(ready)
        self.title_row.setContentsMargins(PADDING, 0, 8 if ready else PADDING, 0)
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

    def _steps(self) -> dict[str, SetupStep]:
        """The engine's steps, after those that come before it can say anything."""
        begun = bool(self.board.setup or self.board.failure)
        start = SetupStep("start", "Start the engine", state="done" if begun else "running")
        return {
            "window": SetupStep("window", "Open the window", state="done"),
            "start": start,
            **self.board.setup,
        }

    def _pump(self) -> None:
        """Every 40 ms while a reply streams: new text, a signature that knows more, the end."""
        exchange = self._live
        if exchange is None:
            self._timer.stop()
            return
        self.transcript.append("".join(self.board.texts.pop(RequestId(exchange.request_id), ())))
        row = self.board.requests.get(RequestId(exchange.request_id))
        if row is None:
            return
        before = (exchange.rank, exchange.figures, exchange.note)
        self._describe(exchange, row)
        if row.state is RequestState.FINISHED:
            self._finish_live()
        elif before != (exchange.rank, exchange.figures, exchange.note):
            self.transcript.sign()

    def _describe(self, exchange: Exchange, row: RequestRow) -> None:
        view = self.board.backends.get(row.backend or "")
        if view is not None:
            exchange.rank, exchange.backend = view.info.rank, view.info.label
        parts = []
        if row.first_token_s is not None:
            parts.append(f"{row.first_token_s - row.arrival_s:.2f} s TTFT")
            times = row.token_times_s
            if row.state is RequestState.FINISHED and row.finished_s and row.output_tokens > 1:
                first, last = (times[0], times[-1]) if len(times) > 1 else (row.first_token_s, row.finished_s)
                count = len(times) if len(times) > 1 else row.output_tokens
                if last > first:
                    parts.append(f"{(count - 1) / (last - first):.0f} tok/s")
        elif view is not None:
            parts.append("waiting")
        if row.reason is FinishReason.ABORT:
            parts.append("stopped")
        exchange.figures = ", ".join(parts)
        if row.receipt is not None and exchange.rank:  # not the fastest: say why without being asked
            exchange.note = row.receipt.reason
        exchange.problem = (row.message or PROBLEMS.get(row.reason, "")) if row.reason in PROBLEMS else ""

    def _finish_live(self) -> None:
        exchange, self._live = self._live, None
        self._timer.stop()
        self.composer.set_streaming(False)
        if exchange is None:
            return
        exchange.done = True
        self._messages.append({"role": "assistant", "content": exchange.reply})
        self._past.append(exchange)
        self.transcript.sign()

    def _take_late_text(self) -> None:
        live = self._live.request_id if self._live else None
        for request_id in [key for key in self.board.texts if key != live]:
            text = "".join(self.board.texts.pop(request_id))
            exchange = next((e for e in self._past if e.request_id == request_id), None)
            if exchange is not None:
                exchange.reply += text
                self.transcript.draw_again()
