"""Experiments by a button: the offload map and the sweeps, simulated in a child process of low priority."""

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QObject, Qt, QUrl
from PySide6.QtGui import QDesktopServices, QGuiApplication
from PySide6.QtWidgets import QDialog, QHBoxLayout, QProgressBar, QVBoxLayout, QWidget

from app.experiment_run import ExperimentRun, Outcome, Progress, command_of
from app.series.choices import Choice
from app.series.experiments import DEPTHS, EXPERIMENTS, QUICK, Experiment, profile_choices
from app.theme import ThemeHolder, stylesheet
from app.widgets.chart_view import ChartView
from app.widgets.controls import Button, LabelledCombo
from app.widgets.labels import make_label, set_tone
from engine.events import Notice
from engine.paths import data_dir

if TYPE_CHECKING:
    from app.main_window import MainWindow

ABOUT = (
    "Simulated on a profile, in a process of low priority. On real backends the command line runs the same "
    "with --real, when nothing else is running."
)
RUNNING = "The chart appears here when the experiment has ended."
WAITS = "Waits while a burst runs, so as not to disturb it."
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


class ExperimentsDialog(QDialog):
    """Closing it leaves a run alone: the window says when it has ended."""

    def __init__(
        self,
        themes: ThemeHolder,
        parent: QWidget,
        say: Callable[[Notice], None],
        profile: str = "",
        command: Callable[[list[str]], list[str]] = command_of,
    ) -> None:
        super().__init__(parent)
        self._themes, self._say, self._command = themes, say, command
        self.outcome: Outcome | None = None
        self._words = ""
        self.runner = ExperimentRun(self)
        self.runner.progress.connect(self._progress)
        self.runner.reported.connect(self._reported)
        self.runner.ended.connect(self._ended)
        self.setWindowTitle("Experiments")
        column = QVBoxLayout(self)
        column.setContentsMargins(32, 24, 32, 24)
        column.setSpacing(12)
        column.addWidget(make_label("Experiments", "lead", bold=True))
        about = make_label(ABOUT, tone="muted")
        about.setWordWrap(True)
        column.addWidget(about)
        column.addLayout(self._choices(profile))
        column.addLayout(self._state_row())
        self.headline = make_label("", "body", bold=True)
        self.headline.setWordWrap(True)
        self.headline.hide()
        column.addWidget(self.headline)
        self.chart = ChartView(themes, HINT)
        self.chart.moved.connect(self._look)
        column.addWidget(self.chart, 1)
        column.addLayout(self._buttons())
        themes.changed.connect(self._restyle)
        parent.installEventFilter(self)
        self._restyle()
        self._look()
        self.resize(984, 720)

    def _choices(self, profile: str) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setSpacing(8)
        self.experiment = LabelledCombo(self._themes, "Experiment", 296)
        self.experiment.set_choices([Choice(e.title, e.title, e.about) for e in EXPERIMENTS])
        self.profile = LabelledCombo(self._themes, "Profile", 248)
        profiles = profile_choices()
        self.profile.set_choices(profiles, profile or profiles[0].value)
        self.depth = LabelledCombo(self._themes, "Depth", 128)
        self.depth.set_choices(list(DEPTHS), QUICK)
        self.start_button = Button(
            self._themes, "Start", kind="primary", icon_name="play", name="Start the experiment"
        )
        self.start_button.setDefault(True)
        self.start_button.clicked.connect(self.start)
        self.stop_button = Button(
            self._themes, "Stop", kind="danger", icon_name="stop", name="Stop the experiment"
        )
        self.stop_button.clicked.connect(self.runner.stop)
        for box in (self.experiment, self.profile, self.depth):
            box.currentIndexChanged.connect(self._look)
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
        self.copy_button.clicked.connect(self._copy)
        self.report_button.clicked.connect(self._open_report)
        self.close_button.clicked.connect(self.reject)
        for part in (self.back_button, self.place, self.next_button):
            row.addWidget(part)
        row.addStretch(1)
        for button in (self.copy_button, self.report_button, self.close_button):
            button.setAutoDefault(False)
            row.addWidget(button)
        return row

    # what it does

    def chosen(self) -> Experiment:
        return next(e for e in EXPERIMENTS if e.title == self.experiment.currentText())

    def arguments(self) -> list[str]:
        """Of the command. The same choice has the same folder: what was stopped goes on there."""
        one, profile, depth = self.chosen(), self.profile.currentText(), self.depth.currentText()
        folder = data_dir() / "experiments" / f"{one.key}-{profile}-{depth}"
        quick = ["--quick"] if depth == QUICK else []
        return [*one.arguments, *quick, "--profile", profile, "--out", str(folder)]

    def start(self) -> None:
        if self.runner.running:
            return
        self.outcome = None
        self.headline.hide()
        self.chart.set_hint(RUNNING)
        self.chart.show_charts(())
        self.bar.setRange(0, 0)
        self.state.setText(WAITS if self.runner.held else "Starting: looking for the best slot counts…")
        set_tone(self.state, "muted")
        self.runner.start(self._command(self.arguments()))
        self._look()

    def _progress(self, progress: Progress) -> None:
        self.bar.setRange(0, max(1, progress.total))
        self.bar.setValue(progress.done)
        self._words = progress.words()
        if self.runner.running:
            self.state.setText(WAITS if self.runner.held else self._words)

    def set_quiet(self, quiet: bool) -> None:
        """A burst begins or ended: an experiment stands still meanwhile."""
        if self.runner.held is not quiet:
            return
        self.runner.hold(not quiet)
        if self.runner.running:
            self.state.setText(self._words if quiet else WAITS)

    def _reported(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.headline.setText(outcome.headline + (f" [{outcome.mark}]" if outcome.mark else ""))
        self.headline.show()
        self.chart.show_charts(outcome.charts)
        self._look()

    def _ended(self, problem: str) -> None:
        stopped = problem.startswith("Stopped")
        self.state.setText(problem or "Finished: report, tables and charts are in its folder.")
        set_tone(self.state, "muted" if stopped or not problem else "error")
        if problem:
            self.chart.set_hint(HINT)
            self.bar.setRange(0, 1)
            self.bar.reset()
        if not self.isVisible() and not stopped:
            words = (
                problem or f"{self.chosen().title}: {self.outcome.headline if self.outcome else 'finished'}"
            )
            self._say(Notice("error" if problem else "info", words))
        self._look()

    def _copy(self) -> None:
        QGuiApplication.clipboard().setText(shlex.join(["offramp", *self.arguments()]))

    def _open_report(self) -> None:
        if self.outcome is not None:
            QDesktopServices.openUrl(QUrl.fromLocalFile(str(self.outcome.report)))

    # what it shows

    def _look(self) -> None:
        running = self.runner.running
        for box in (self.experiment, self.profile, self.depth):
            box.setEnabled(not running)
        self.start_button.setEnabled(not running)
        self.stop_button.setEnabled(running)
        self.report_button.setEnabled(self.outcome is not None)
        self.back_button.setEnabled(self.chart.index > 0)
        self.next_button.setEnabled(self.chart.index + 1 < self.chart.count)
        self.place.setText(f"{self.chart.index + 1} of {self.chart.count}" if self.chart.count else "")
        if not running and self.outcome is None and not self.state.text():
            self.bar.setRange(0, 1)
            self.bar.reset()

    def _restyle(self) -> None:
        self.setStyleSheet(stylesheet(self._themes.current))
        self.bar.restyle(self._themes)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """The window closes: so does this, and its process."""
        if watched is self.parent() and event.type() == QEvent.Type.Close:
            self.runner.close()
            self.hide()
        return False


def show_experiments(window: "MainWindow") -> ExperimentsDialog:
    """The one dialog of this window, made when first asked for."""
    dialog = window.findChild(ExperimentsDialog)
    if dialog is None:
        emulated = str(window.session.value("emulate") or "")
        dialog = ExperimentsDialog(window.themes, window, window.toast.show_notice, emulated)
        _give_way(window, dialog)
    dialog.show()
    dialog.raise_()
    dialog.setFocus(Qt.FocusReason.OtherFocusReason)
    return dialog


def _give_way(window: "MainWindow", dialog: ExperimentsDialog) -> None:
    """Bursts and comparisons of the window are measured: nothing of this computes beside them."""
    comparer = window.wishes.comparer

    def look(*_: object) -> None:
        run = window.board.run
        dialog.set_quiet(not comparer.running and (run is None or run.done is not None))

    window.bridge.changed.connect(look)
    window.bridge.replaced.connect(look)
    for signal in (comparer.progress, comparer.finished, comparer.failed):
        signal.connect(look)
    look()
