"""Where one writes: the text, Send or Stop in its corner, and the sampling line below."""

from dataclasses import replace

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFontMetrics, QKeyEvent, QResizeEvent
from PySide6.QtWidgets import (
    QDoubleSpinBox,
    QFrame,
    QGridLayout,
    QHBoxLayout,
    QPlainTextEdit,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from app.theme import ThemeHolder, font
from app.widgets.controls import Button
from app.widgets.labels import make_label
from app.widgets.meter import ContextMeter
from app.widgets.popover import Popover
from engine.request import SamplingParams

LINES_MOST, LINE = 6, 24
# field, name, decimals, least, most, step
FIELDS = (
    ("temperature", "Temperature", 2, 0.0, 10.0, 0.1),
    ("top_p", "Top-p", 2, 0.01, 1.0, 0.05),
    ("top_k", "Top-k (0 = off)", 0, 0, 1_000, 1),
    ("min_p", "Min-p (0 = off)", 2, 0.0, 0.99, 0.05),
    ("repetition_penalty", "Repetition penalty", 2, 0.01, 10.0, 0.05),
    ("max_new_tokens", "Most new tokens", 0, 1, 32_768, 16),
    ("seed", "Seed", 0, -1, 2**31 - 1, 1),
)


HINT = "Shift+Enter: new line"
PRESETS = (  # name, what it means, values
    ("Precise", "always the likeliest token", {"temperature": 0.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0}),
    ("Balanced", "the default", {"temperature": 0.7, "top_p": 0.95, "top_k": 0, "min_p": 0.0}),
    ("Creative", "more surprising", {"temperature": 1.0, "top_p": 0.98, "top_k": 0, "min_p": 0.02}),
)


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


class SamplingLine(QWidget):
    """The sampling values as flat buttons; each opens the one popover that sets them all."""

    changed = Signal()

    def __init__(self, themes: ThemeHolder, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._themes, self.sampling = themes, SamplingParams()
        self._buttons: list[Button] = []
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(12)
        for field in ("temperature", "top_p", "max_new_tokens", "seed"):
            button = Button(themes, "-", kind="quiet", name=f"Sampling: {field.replace('_', ' ')}")
            button.clicked.connect(self.open)
            self._buttons.append(button)
            row.addWidget(button)
        row.addStretch(1)
        self.set_sampling(self.sampling)

    def set_sampling(self, sampling: SamplingParams) -> None:
        self.sampling = sampling
        self._write()
        self.changed.emit()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._write()

    def _write(self) -> None:
        """Whole words where they fit, else short ones."""
        s = self.sampling
        seed = "random" if s.seed is None else str(s.seed)
        heat, share, most = f"{s.temperature:g}", f"{s.top_p:g}", f"{s.max_new_tokens:,}"
        wide = (f"temperature {heat}", f"top-p {share}", f"max {most} tokens", f"seed {seed}")
        short = (f"temp {heat}", f"top-p {share}", f"max {most}", "" if s.seed is None else f"seed {seed}")
        measure = QFontMetrics(font("label")).horizontalAdvance
        room = self.width() - 12 * (len(wide) - 1) - 6 * len(wide)
        texts = wide if sum(map(measure, wide)) <= room else short
        for button, text in zip(self._buttons, texts, strict=True):
            button.setText(text)
            button.setVisible(bool(text))
            button.setToolTip("Set how tokens are drawn")

    def open(self) -> Popover:
        """A popover with one spin box a value; what it says counts at once."""
        popover = Popover(self._themes, self)
        popover.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        grid = QGridLayout()
        grid.setHorizontalSpacing(16)
        grid.setVerticalSpacing(8)
        boxes: dict[str, QDoubleSpinBox | QSpinBox] = {}
        popover.body.addLayout(self._preset_row(boxes))
        for row, (field, name, decimals, least, most, step) in enumerate(FIELDS):
            box = QDoubleSpinBox() if decimals else QSpinBox()
            box.setRange(least, most)
            box.setSingleStep(step)
            if decimals:
                box.setDecimals(decimals)
            if field == "seed":
                box.setSpecialValueText("random")
            value = getattr(self.sampling, field)
            box.setValue(-1 if value is None else value)
            box.setAccessibleName(name)
            box.setFont(font("label"))
            box.setFixedWidth(120)
            box.lineEdit().setTextMargins(8, 0, 0, 0)
            box.valueChanged.connect(lambda value, field=field: self._set(field, value))
            boxes[field] = box
            grid.addWidget(make_label(name, tone="muted"), row, 0)
            grid.addWidget(box, row, 1)
        popover.body.addLayout(grid)
        popover.open_at(self, above=True)
        return popover

    def _preset_row(self, boxes: "dict[str, QDoubleSpinBox | QSpinBox]") -> QHBoxLayout:
        row = QHBoxLayout()
        row.setSpacing(8)

        def use(values: dict[str, float]) -> None:
            for field, value in values.items():
                boxes[field].setValue(value)

        for name, meaning, values in PRESETS:
            button = Button(self._themes, name, name=f"Sampling preset: {name}", tip=meaning)
            button.clicked.connect(lambda _=False, values=values: use(values))
            row.addWidget(button)
        return row

    def _set(self, field: str, value: float) -> None:
        number = None if field == "seed" and value < 0 else value
        self.set_sampling(replace(self.sampling, **{field: number}))


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
        self.meter.set_hint(f"Editing prompt {number}" if number else HINT)
        tip = "Sending replaces it and all that follows. Esc: leave it as it was."
        self.meter.setToolTip(tip if number else "")
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
