"""Experiments by a button: the offload map and the sweeps in a child process, simulated or measured."""

import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QObject, Qt, QUrl
from PySide6.QtGui import QDesktopServices, QGuiApplication

from app.experiment_run import NICENESS, ExperimentRun, Outcome, Progress, command_of
from app.measuring import Loan
from app.series.experiments import EXPERIMENTS, MEASURED, QUICK, Experiment
from app.widgets.experiment_form import HINT, ExperimentForm
from app.widgets.labels import set_tone
from engine.events import Notice
from engine.paths import data_dir

if TYPE_CHECKING:
    from app.main_window import MainWindow

FREEING = "Unloading the window's model first…"
TAKEN = "Stopped: a model was loaded while it measured. What is done is kept: start it again to go on."
RUNNING = "The chart appears here when the experiment has ended."
WAITS = "Waits while a burst runs, so as not to disturb it."


class ExperimentsDialog(ExperimentForm):
    """Closing it leaves a run alone: the window says when it has ended."""

    def __init__(
        self,
        window: "MainWindow",
        command: Callable[[list[str]], list[str]] = command_of,
    ) -> None:
        super().__init__(window.themes, window, str(window.session.value("emulate") or ""))
        self._say, self._command = window.toast.show_notice, command
        self._loan = Loan(window.session, window.bridge, self._lost)
        self._waiting, self._taken = False, False  # for the model to go; a model was loaded meanwhile
        self.outcome: Outcome | None = None
        self._words = ""
        self.runner = ExperimentRun(self)
        self.runner.progress.connect(self._progress)
        self.runner.reported.connect(self._reported)
        self.runner.ended.connect(self._ended)
        self.chart.moved.connect(self._look)
        self.start_button.clicked.connect(self.start)
        self.stop_button.clicked.connect(self.stop)
        self.copy_button.clicked.connect(self._copy)
        self.report_button.clicked.connect(self._open_report)
        for box in (self.experiment, self.profile, self.depth):
            box.currentIndexChanged.connect(self._look)
        window.installEventFilter(self)
        self._look()

    # what it does

    def chosen(self) -> Experiment:
        return next(e for e in EXPERIMENTS if e.title == self.experiment.currentText())

    def arguments(self) -> list[str]:
        """Of the command. The same choice has the same folder: what was stopped goes on there."""
        one, profile, depth = self.chosen(), self.profile.currentText(), self.depth.currentText()
        words = "measured" if self.measured else profile
        folder = data_dir() / "experiments" / f"{one.key}-{words}-{depth}"
        quick = ["--quick"] if depth == QUICK else []
        where = self._loan.options() if self.measured else ["--profile", profile]
        return [*one.arguments, *quick, *where, "--out", str(folder)]

    @property
    def measured(self) -> bool:
        return self.profile.currentText() == MEASURED

    @property
    def busy(self) -> bool:
        return self._waiting or self.runner.running

    def start(self) -> None:
        if self.busy:
            return
        refusal = self._loan.refusal() if self.measured else ""
        if refusal:
            self.state.setText(refusal)
            set_tone(self.state, "error")
            return
        self.outcome = None
        self.headline.hide()
        self.chart.set_hint(RUNNING)
        self.chart.show_charts(())
        self.bar.setRange(0, 0)
        set_tone(self.state, "muted")
        self._waiting, self._taken = self.measured, False
        if self.measured:
            self.state.setText(FREEING)
            self._loan.begin(lambda: self._launch(niceness=0))
        else:
            self._launch()
        self._look()

    def _launch(self, niceness: int = NICENESS) -> None:
        self._waiting = False
        words = "Starting: looking for the best slot counts…"
        if niceness == 0:
            words = "Starting: loading the model, measuring its steps where they are not known yet…"
        self.state.setText(WAITS if self.runner.held else words)
        self.runner.start(self._command(self.arguments()), niceness)
        self._look()

    def stop(self) -> None:
        if self._waiting:
            self._waiting = False
            self._loan.end()
            self._ended("Stopped before it began.")
        self.runner.stop()

    def _lost(self) -> None:
        """The user loaded a model: nothing true can be measured beside it."""
        if self._waiting:
            self._waiting = False
            self._ended(TAKEN)
        self._taken = True
        self.runner.stop()

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
        self._loan.end()
        problem = TAKEN if self._taken and problem.startswith("Stopped") else problem
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

    def _look(self) -> None:
        self.show_state(self.busy, self.outcome is not None)

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
        dialog = ExperimentsDialog(window)
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
