"""What to compare: a baseline, a policy, how many pairs, and how long that will take."""

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QGridLayout, QHBoxLayout, QSpinBox, QWidget

from app.series.choices import Choice
from app.series.words import figure
from app.theme import ThemeHolder, font
from app.widgets.controls import Button, LabelledCombo
from app.widgets.labels import make_label
from app.widgets.popover import Popover

WIDTH, PAIRS, MOST = 216, 5, 50
BASELINE = "forced-fastest"


class CompareForm(Popover):
    start_requested = Signal(str, str, int)  # baseline, policy, pairs

    def __init__(
        self, themes: ThemeHolder, policies: list[Choice], current: str, preset: str,
        run_s: float | None, parent: QWidget,
    ) -> None:  # fmt: skip
        """`run_s` is how long the last run of this preset took; None = unknown."""
        super().__init__(themes, parent)
        self._run_s = run_s
        self.body.addWidget(make_label(f"Compare two policies on {preset}", bold=True))
        names = [c.value for c in policies]
        baseline = BASELINE if BASELINE in names else names[0]
        other = next((name for name in names if name not in (baseline, current)), baseline)
        self.a, self.b = LabelledCombo(themes, "A", WIDTH), LabelledCombo(themes, "B", WIDTH)
        self.a.set_choices(policies, baseline)
        self.b.set_choices(policies, current if current != baseline else other)
        self.pairs = QSpinBox()
        self.pairs.setRange(1, MOST)
        self.pairs.setValue(PAIRS)
        self.pairs.setAccessibleName("Pairs of runs")
        self.pairs.setFont(font("label"))
        self.pairs.setFixedWidth(80)
        self.pairs.lineEdit().setTextMargins(8, 0, 0, 0)
        grid = QGridLayout()
        grid.setHorizontalSpacing(12)
        grid.setVerticalSpacing(8)
        rows = (("Baseline", self.a), ("Against it", self.b), ("Pairs of runs", self.pairs))
        for row, (name, field) in enumerate(rows):
            grid.addWidget(make_label(name, tone="muted"), row, 0)
            grid.addWidget(field, row, 1)
        self.body.addLayout(grid)
        self.note = make_label("", tone="muted")
        self.note.setWordWrap(True)
        self.note.setMinimumHeight(50)
        self.body.addWidget(self.note)
        self.start_button = Button(
            themes, "Start", kind="primary", icon_name="compare", name="Start to compare"
        )
        self.start_button.clicked.connect(self._start)
        row = QHBoxLayout()
        row.addStretch(1)
        row.addWidget(self.start_button)
        self.body.addLayout(row)
        for signal in (self.a.currentIndexChanged, self.b.currentIndexChanged, self.pairs.valueChanged):
            signal.connect(self._look)
        self._look()

    def _look(self) -> None:
        pairs = self.pairs.value()
        same = self.a.currentText() == self.b.currentText()
        if same:
            words = "A and B are the same policy."
        else:
            words = (
                f"{figure(2 * pairs)} runs in turn, {figure(3 * pairs)} with the fastest alone at its best "
                "slots; order shuffled, caches seeded anew."
            )
            if self._run_s:
                minutes = 3 * pairs * (self._run_s + 2) / 60
                words += f" About {figure(max(1.0, minutes))} min, by the last run."
            if pairs < PAIRS:
                words += " A verdict takes five pairs."
        self.note.setText(words)
        self.start_button.setEnabled(not same)

    def _start(self) -> None:
        self.start_requested.emit(self.a.currentText(), self.b.currentText(), self.pairs.value())
        self.close()
