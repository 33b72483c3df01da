"""The form of the experiments dialog: what is chosen, how far it is, the chart, the buttons. No behaviour."""

from PySide6.QtWidgets import QDialog, QHBoxLayout, QProgressBar, QWidget

from app.series.choices import Choice
from app.series.experiments import DEPTHS, EXPERIMENTS, QUICK, profile_choices
from app.theme import ThemeHolder, stylesheet
from app.widgets.chart_view import ChartView
from app.widgets.controls import Button, LabelledCombo
from app.widgets.labels import make_label, titled_column

ABOUT = (
    "Simulated on a profile, in a process of low priority; or measured on this machine, which takes longer: "
    "the window's model is unloaded meanwhile, and comes back."
)
HINT = "Choose an experiment and press Start. Its chart appears here, with a report beside it."


class Bar(QProgressBar):
    """A plain bar of 8 px; the words stand beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.setTextVisible(False)
        self.setFixedHeight(8)
        self.setAccessibleName("Progress of the experiment")

    def restyle(self, themes: ThemeHolder) -> None:
        theme = themes.current
        self.setStyleSheet(
            f"QProgressBar {{ background: {theme.track.name()}; border: none; border-radius: 2px; }}"
            f"QProgressBar::chunk {{ background: {theme.muted.name()}; border-radius: 2px; }}"
        )


class ExperimentForm(QDialog):
    """What stands where; the dialog that inherits it gives every button its meaning."""

    def __init__(self, themes: ThemeHolder, parent: QWidget, profile: str) -> None:
        super().__init__(parent)
        self._themes = themes
        self.setWindowTitle("Experiments")
        column = titled_column(self, "Experiments", ABOUT)
        column.addLayout(self._choices(profile))
        column.addLayout(self._state_row())
        self.headline = make_label("", "body", bold=True)
        self.headline.setWordWrap(True)
        self.headline.hide()
        column.addWidget(self.headline)
        self.chart = ChartView(themes, HINT)
        column.addWidget(self.chart, 1)
        column.addLayout(self._buttons())
        themes.changed.connect(self._restyle)
        self._restyle()
        self.resize(984, 720)

    def _choices(self, profile: str) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setSpacing(8)
        self.experiment = LabelledCombo(self._themes, "Experiment", 296)
        self.experiment.set_choices([Choice(e.title, e.title, e.about) for e in EXPERIMENTS])
        self.profile = LabelledCombo(self._themes, "Profile", 272)
        profiles = profile_choices()
        self.profile.set_choices(profiles, profile or profiles[0].value)
        self.depth = LabelledCombo(self._themes, "Depth", 128)
        self.depth.set_choices(list(DEPTHS), QUICK)
        self.start_button = Button(
            self._themes, "Start", kind="primary", icon_name="play", name="Start the experiment"
        )
        self.start_button.setDefault(True)
        self.stop_button = Button(
            self._themes, "Stop", kind="danger", icon_name="stop", name="Stop the experiment"
        )
        for box in (self.experiment, self.profile, self.depth):
            row.addWidget(box)
        row.addStretch(1)
        row.addWidget(self.stop_button)
        row.addWidget(self.start_button)
        return row

    def _state_row(self) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setSpacing(12)
        self.bar = Bar()
        self.bar.setFixedWidth(296)
        self.state = make_label("", tone="muted")
        row.addWidget(self.bar)
        row.addWidget(self.state, 1)
        return row

    def _buttons(self) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setSpacing(8)
        self.back_button = Button(self._themes, "Previous chart", kind="ghost")
        self.next_button = Button(self._themes, "Next chart", kind="ghost")
        self.place = make_label("", tone="muted")
        self.copy_button = Button(self._themes, "Copy the command", icon_name="copy")
        self.report_button = Button(self._themes, "Open the report", icon_name="export")
        self.close_button = Button(self._themes, "Close")
        self.back_button.clicked.connect(lambda: self.chart.step(-1))
        self.next_button.clicked.connect(lambda: self.chart.step(1))
        self.close_button.clicked.connect(self.reject)
        for part in (self.back_button, self.place, self.next_button):
            row.addWidget(part)
        row.addStretch(1)
        for button in (self.copy_button, self.report_button, self.close_button):
            button.setAutoDefault(False)
            row.addWidget(button)
        return row

    def show_state(self, running: bool, reported: bool) -> None:
        """Which parts can be used now."""
        for box in (self.experiment, self.profile, self.depth):
            box.setEnabled(not running)
        self.start_button.setEnabled(not running)
        self.stop_button.setEnabled(running)
        self.report_button.setEnabled(reported)
        self.back_button.setEnabled(self.chart.index > 0)
        self.next_button.setEnabled(self.chart.index + 1 < self.chart.count)
        self.place.setText(f"{self.chart.index + 1} of {self.chart.count}" if self.chart.count else "")
        if not running and not reported and not self.state.text():
            self.bar.setRange(0, 1)
            self.bar.reset()

    def _restyle(self) -> None:
        self.setStyleSheet(stylesheet(self._themes.current))
        self.bar.restyle(self._themes)
