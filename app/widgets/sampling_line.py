"""How tokens are drawn: the values as one line of flat buttons, and the popover that sets them."""

from dataclasses import replace

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFontMetrics, QResizeEvent
from PySide6.QtWidgets import QDoubleSpinBox, QGridLayout, QHBoxLayout, QLineEdit, QSpinBox, QWidget

from app.series.words import plural
from app.theme import ThemeHolder, font
from app.widgets.controls import Button
from app.widgets.labels import make_label
from app.widgets.popover import Popover
from engine.request import SamplingParams

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
PRESETS = (  # name, what it means, values
    ("Precise", "Always the likeliest token", {"temperature": 0.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0}),
    ("Balanced", "The default", {"temperature": 0.7, "top_p": 0.95, "top_k": 0, "min_p": 0.0}),
    ("Creative", "More surprising", {"temperature": 1.0, "top_p": 0.98, "top_k": 0, "min_p": 0.02}),
    (
        "Thinking",
        "What Qwen3 asks for while it thinks",
        {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.0},
    ),
)
SPACING, PADDING = 12, 4  # between the buttons, and what one adds to its text
ESCAPES = {"\\n": "\n", "\\t": "\t"}


def stops_of(text: str) -> tuple[str, ...]:
    """Stop strings as they are typed: commas between them, `\\n` and `\\t` for what a line cannot hold."""
    out = []
    for part in text.split(","):
        part = part.strip()
        for written, meant in ESCAPES.items():
            part = part.replace(written, meant)
        if part:
            out.append(part)
    return tuple(dict.fromkeys(out))


def stops_text(stops: tuple[str, ...]) -> str:
    text = ", ".join(stops)
    for written, meant in ESCAPES.items():
        text = text.replace(meant, written)
    return text


class SamplingLine(QWidget):
    """The sampling values as flat buttons; each opens the one popover that sets them all."""

    changed = Signal()

    def __init__(self, themes: ThemeHolder, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._themes, self.sampling = themes, SamplingParams()
        self._buttons: list[Button] = []
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(SPACING)
        for field in ("temperature", "top_p", "max_new_tokens", "seed", "stop"):
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
        """Whole words where they fit, else short ones, at last without top-p."""
        s = self.sampling
        heat, share, most = f"{s.temperature:g}", f"{s.top_p:g}", f"max {s.max_new_tokens:,}"
        # Stop strings outlast the session, so whoever wonders why a reply ended must see that some are set.
        stops = f"{len(s.stop)} {plural(len(s.stop), 'stop')}" if s.stop else ""
        seed = "" if s.seed is None else f"seed {s.seed}"
        wide = (f"temperature {heat}", f"top-p {share}", f"{most} tokens", seed or "seed random", stops)
        short = (f"temp {heat}", f"top-p {share}", most, seed, stops)
        least = (f"temp {heat}", "", most, seed, stops)
        measure = QFontMetrics(font("label")).horizontalAdvance

        def fits(texts: tuple[str, ...]) -> bool:
            shown = [text for text in texts if text]
            needed = sum(map(measure, shown)) + (SPACING + PADDING) * len(shown) - SPACING
            return needed <= self.width()

        texts = next((t for t in (wide, short) if fits(t)), least)
        for button, text in zip(self._buttons, texts, strict=True):
            button.setText(text)
            button.setVisible(bool(text))
            button.setToolTip("Set how tokens are drawn")

    def open(self) -> "SamplingPopover":
        popover = SamplingPopover(self._themes, self)
        popover.open_at(self, above=True)
        return popover


class SamplingPopover(Popover):
    """Presets, one spin box a value, stop strings; what it says counts at once."""

    def __init__(self, themes: ThemeHolder, line: SamplingLine) -> None:
        super().__init__(themes, line)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._line = line
        self._boxes: dict[str, QDoubleSpinBox | QSpinBox] = {}
        self._presets: dict[str, Button] = {}
        row = QHBoxLayout()
        row.setSpacing(8)
        for name, meaning, values in PRESETS:
            button = Button(themes, name, name=f"Sampling preset: {name}", tip=meaning)
            button.clicked.connect(lambda _=False, values=values: self._use(values))
            self._presets[name] = button
            row.addWidget(button)
        self.body.addLayout(row)
        grid = QGridLayout()
        grid.setHorizontalSpacing(16)
        grid.setVerticalSpacing(8)
        for at, (field, name, *_) in enumerate(FIELDS):
            box = self._boxes[field] = self._make_box(at)
            grid.addWidget(make_label(name, tone="muted"), at, 0)
            grid.addWidget(box, at, 1)
        self.stops = QLineEdit(stops_text(line.sampling.stop))
        self.stops.setFont(font("label"))
        self.stops.setFixedSize(160, 32)
        self.stops.setPlaceholderText("none")
        self.stops.setAccessibleName("Stop strings")
        self.stops.setToolTip(
            "A reply ends before the first of these: commas between them, \\n for a new line"
        )
        self.stops.textChanged.connect(lambda text: self._set("stop", stops_of(text)))
        grid.addWidget(make_label("Stop strings", tone="muted"), len(FIELDS), 0)
        grid.addWidget(self.stops, len(FIELDS), 1)
        self.body.addLayout(grid)
        self._show_preset()

    def _make_box(self, at: int) -> "QDoubleSpinBox | QSpinBox":
        field, name, decimals, least, most, step = FIELDS[at]
        box = QDoubleSpinBox() if decimals else QSpinBox()
        box.setRange(least, most)
        box.setSingleStep(step)
        if decimals:
            box.setDecimals(decimals)
        if field == "seed":
            box.setSpecialValueText("random")
        value = getattr(self._line.sampling, field)
        box.setValue(-1 if value is None else value)
        box.setAccessibleName(name)
        box.setFont(font("label"))
        box.setFixedWidth(160)
        box.lineEdit().setTextMargins(8, 0, 0, 0)
        box.valueChanged.connect(
            lambda value: self._set(field, None if field == "seed" and value < 0 else value)
        )
        return box

    def _use(self, values: dict[str, float]) -> None:
        for field, value in values.items():
            self._boxes[field].setValue(value)

    def _set(self, field: str, value: object) -> None:
        self._line.set_sampling(replace(self._line.sampling, **{field: value}))
        self._show_preset()

    def _show_preset(self) -> None:
        """The preset whose values these are stands out."""
        for name, _meaning, values in PRESETS:
            used = all(abs(getattr(self._line.sampling, f) - v) < 1e-9 for f, v in values.items())
            button = self._presets[name]
            if (button.property("kind") == "primary") != used:
                button.set_kind("primary" if used else "plain")
                button.setAccessibleDescription("in use" if used else "")
