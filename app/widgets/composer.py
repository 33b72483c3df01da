"""Where one writes: the text, Send or Stop in its corner, and the sampling line below."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPlainTextEdit, QVBoxLayout, QWidget

from app.theme import ThemeHolder, font
from app.widgets.controls import Button
from app.widgets.labels import make_label
from app.widgets.meter import ContextMeter
from app.widgets.sampling_line import SamplingLine

LINES_MOST, LINE = 6, 24
HINT = "Shift+Enter: new line"


class Editor(QPlainTextEdit):
    """Enter sends, Shift+Enter starts a new line. Grows to six lines, then scrolls."""

    entered = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setFont(font("body"))
        self.setAccessibleName("Prompt")
        self.setTabChangesFocus(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.document().setDocumentMargin(0)
        self.document().documentLayout().documentSizeChanged.connect(self._fit)
        self._fit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        if enter and not event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            self.entered.emit()
            return
        super().keyPressEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        lines = max(2, min(LINES_MOST, round(self.document().size().height())))
        self.setFixedHeight(lines * self.fontMetrics().lineSpacing() + 4)


class Composer(QWidget):
    """Emits `send(text)` and `stop`. The text stays until the sender says `clear`."""

    send = Signal(str)
    stop = Signal()
    edit_cancelled = Signal()

    def __init__(self, themes: ThemeHolder, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._streaming, self._ready, self._editing = False, False, False
        self.editor = Editor()
        self.editor.entered.connect(self._send)
        self.editor.textChanged.connect(self._update)
        self.button = Button(themes, "Send", kind="primary", icon_name="send", tip="Send (Enter)")
        self.button.clicked.connect(self._pressed)
        self.meter = ContextMeter(themes, HINT)
        self.problem = make_label("", tone="error")
        self.problem.setWordWrap(True)
        self.problem.hide()
        self.sampling_line = SamplingLine(themes)
        frame = QFrame()
        frame.setObjectName("composer")
        inner = QVBoxLayout(frame)
        inner.setContentsMargins(12, 7, 8, 7)
        inner.setSpacing(2)
        inner.addWidget(self.editor)
        row = QHBoxLayout()
        row.addWidget(self.meter, 1)
        row.addWidget(self.button)
        inner.addLayout(row)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(8)
        column.addWidget(self.problem)
        column.addWidget(frame)
        column.addWidget(self.sampling_line)
        self._update()

    def set_ready(self, ready: bool) -> None:
        self._ready = ready
        self._update()

    def set_streaming(self, streaming: bool) -> None:
        self._streaming = streaming
        self._update()

    def clear(self) -> None:
        self.editor.clear()
        self.say("")

    def edit(self, text: str, number: int) -> None:
        """Write prompt `number` anew; 0 ends that."""
        was, self._editing = self._editing, number > 0
        self.meter.set_hint(f"Editing prompt {number}, Esc ends it" if number else HINT)
        tip = "Sending replaces it and all that follows. Esc: leave it as it was."
        self.meter.setToolTip(tip if number else "")
        self.editor.setAccessibleDescription(tip if number else "")
        if number:
            self.editor.setPlainText(text)
            self.editor.selectAll()
            self.editor.setFocus()
        elif was:
            self.clear()

    def say(self, problem: str) -> None:
        """A sentence above the text, in the colour of errors; "" takes it away."""
        self.problem.setText(problem)
        self.problem.setVisible(bool(problem))

    def _update(self) -> None:
        text = "Stop" if self._streaming else "Send"
        if self.button.text() != text:
            self.button.setText(text)
            self.button.setAccessibleName(text)
            self.button.setToolTip("Stop this answer (Esc)" if self._streaming else "Send (Enter)")
            self.button.set_icon("stop" if self._streaming else "send")
            self.button.set_kind("danger" if self._streaming else "primary")
        self.button.setEnabled(self._streaming or self._ready)
        ask = "Ask something. The router picks the backend."
        self.editor.setPlaceholderText(ask if self._ready else "Write now, send when ready.")

    def _pressed(self) -> None:
        if self._streaming:
            self.stop.emit()
        else:
            self._send()

    def _send(self) -> None:
        text = self.editor.toPlainText().strip()
        if text and self._ready and not self._streaming:
            self.send.emit(text)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape and self._streaming:
            self.stop.emit()
            return
        if event.key() == Qt.Key.Key_Escape and self._editing:
            self.edit_cancelled.emit()
            return
        super().keyPressEvent(event)
