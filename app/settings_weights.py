"""What the policy total-delay weighs, as rows of the settings. A change counts from the next request on."""

from dataclasses import replace
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QDoubleSpinBox, QVBoxLayout, QWidget

from app.settings_rows import Rows
from app.theme import ThemeHolder
from app.widgets.check_box import CheckBox
from app.widgets.labels import make_label
from engine.weights import DEFAULT_WEIGHTS, MOST_MARGIN, MOST_OTHERS, PolicyWeights

INTRODUCTION = (
    "total-delay sends a request to the slower backend when that saves everybody together enough waiting. "
    "What is set here counts for the requests that arrive from now on, and receipts and runs say it. "
    "Other policies weigh nothing of it, and the measured figures of the README are those of the defaults."
)
NUMBERS = (
    ("others", "Waiting of the others", "1: like the request's own wait; 0: only its own counts"),
    ("margin", "Margin", "what leaving the fastest must save, of the request's time"),
)
SWITCHES = (
    ("guards", "Guards", "leaving it may delay no first token, nor the end of all"),
    ("moves", "Moves", "the head of a queue may go elsewhere before it begins"),
)
PERCENT = 100


class WeightsPage(QWidget):
    """`changed` carries the new weights, once a number is complete."""

    changed = Signal(object)

    def __init__(self, themes: ThemeHolder, weights: PolicyWeights, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.weights = weights
        self.numbers: dict[str, QDoubleSpinBox] = {}
        self.switches: dict[str, CheckBox] = {}
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(12)
        words = make_label(INTRODUCTION, tone="muted")
        words.setWordWrap(True)
        column.addWidget(words)
        rows = Rows()
        for key, name, meaning in NUMBERS:
            box = self.numbers[key] = self._number(key)
            box.valueChanged.connect(lambda value, key=key: self._set(key, self._weight(key, value)))
            rows.add(key, name, meaning, box)
        for key, name, meaning in SWITCHES:
            switch = self.switches[key] = CheckBox(themes, "on")
            switch.toggled.connect(lambda on, key=key: self._set(key, on))
            rows.add(key, name, meaning, switch)
        column.addLayout(rows)
        column.addStretch(1)
        self._show()

    def _number(self, key: str) -> QDoubleSpinBox:
        box = QDoubleSpinBox()
        box.setKeyboardTracking(False)  # half a number is no weight
        box.lineEdit().setTextMargins(8, 0, 0, 0)
        if key == "margin":
            box.setRange(0, PERCENT * MOST_MARGIN)
            box.setDecimals(1)
            box.setSuffix(" %")
        else:
            box.setRange(0, MOST_OTHERS)
            box.setSingleStep(0.1)
        return box

    @staticmethod
    def _weight(key: str, shown: float) -> float:
        return shown / PERCENT if key == "margin" else shown

    def _set(self, key: str, value: Any) -> None:
        weights = replace(self.weights, **{key: value})
        if weights != self.weights:
            self.weights = weights
            self.changed.emit(weights)

    def use_defaults(self) -> None:
        if self.weights != DEFAULT_WEIGHTS:
            self.weights = DEFAULT_WEIGHTS
            self._show()
            self.changed.emit(DEFAULT_WEIGHTS)

    def _show(self) -> None:
        """Fill the fields without telling anybody; a weight finer than its field stays as it is."""
        for key, box in self.numbers.items():
            was = box.blockSignals(True)
            box.setValue(getattr(self.weights, key) * (PERCENT if key == "margin" else 1))
            box.blockSignals(was)
        for key, switch in self.switches.items():
            was = switch.blockSignals(True)
            switch.setChecked(getattr(self.weights, key))
            switch.blockSignals(was)
