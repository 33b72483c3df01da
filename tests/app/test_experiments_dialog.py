"""Experiments by a button: what is started, progress, charts, stopping, failing; with a stand-in child."""

import json
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest
from fake_engine import golden_scene
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication, QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QComboBox, QPushButton
from test_window import clipped

from app.actions import entries
from app.experiment_run import ExperimentRun, Progress, command_of
from app.experiments_dialog import ExperimentsDialog, show_experiments
from app.series.experiments import EXPERIMENTS
from engine.cli import make_parser
from engine.events import BurstDone

SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 120 60" width="120" height="60">'
    '<title>{name}</title><rect width="120" height="60" fill="#00734F"/></svg>'
)
CHILD = """
import json, pathlib, signal, sys, time
folder, how, code = pathlib.Path(sys.argv[1]), sys.argv[2], 0
if how == "deaf":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
try:
    print("a greeting of some library")
    for done in range(4):
        line = {"type": "progress", "what": "runs", "done": done, "total": 4, "left_s": 8.0 - 2 * done}
        print(json.dumps(line), flush=True)
    if how == "fail":
        sys.exit("offramp: --pairs 0 makes no sense: use 1 to 1,000.")
    if how == "crash":
        raise RuntimeError("no sentence for people")
    time.sleep(60 if how in ("wait", "deaf") else 0)
except KeyboardInterrupt:
    code = 130
charts = [str(folder / "a.svg"), str(folder / "b.svg"), str(folder / "missing.svg")]
told = {"headline": "It pays", "mark": "SIMULATED: x", "summary": [], "charts": charts}
print(json.dumps({"type": "report", **told, "report": str(folder / "report.html")}), flush=True)
sys.exit(code)
"""


class Stub:
    """The child's command; remembers what it was asked."""

    def __init__(self, folder: Path, how: str = "") -> None:
        self.folder, self.how, self.asked = folder, how, []
        for name in "ab":
            (folder / f"{name}.svg").write_text(SVG.format(name=f"Chart {name}"), "utf-8")
        (folder / "child.py").write_text(CHILD, "utf-8")

    def __call__(self, arguments: list[str]) -> list[str]:
        self.asked.append(arguments)
        return [sys.executable, str(self.folder / "child.py"), str(self.folder), self.how]


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("OFFRAMP_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("OFFRAMP_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def open_dialog(rig, tmp_path):
    """The window's dialog with a stand-in behind its Start button."""

    def make(how: str = "") -> ExperimentsDialog:
        dialog = show_experiments(rig.window)
        dialog._command = Stub(tmp_path, how)
        return dialog

    yield make
    dialog = rig.window.findChild(ExperimentsDialog)
    if dialog is not None:
        dialog.runner.close()


def start(dialog: ExperimentsDialog, qtbot) -> None:
    dialog.start_button.click()
    qtbot.waitUntil(lambda: not dialog.runner.running, timeout=10_000)


def test_every_experiment_is_a_command_that_exists(open_dialog) -> None:
    dialog = open_dialog()
    parser = make_parser()
    seen = set()
    for one in EXPERIMENTS:
        dialog.experiment.setCurrentText(one.title)
        for depth in ("quick", "full"):
            dialog.depth.setCurrentText(depth)
            arguments = command_of(dialog.arguments())[5:]
            args = parser.parse_args(arguments)
            assert args.progress == "json" and args.quick is (depth == "quick")
            assert args.profile == dialog.profile.currentText()
            seen.add((args.command, getattr(args, "kind", ""), args.out))
    assert len(seen) == 2 * len(EXPERIMENTS)


def test_charts_and_headline_of_a_finished_experiment(open_dialog, qtbot, monkeypatch) -> None:
    dialog = open_dialog()
    start(dialog, qtbot)
    assert dialog.headline.text() == "It pays [SIMULATED: x]" and dialog.headline.isVisible()
    assert dialog.chart.count == 2 and dialog.place.text() == "1 of 2"
    assert dialog.chart.accessibleName() == "Chart 1 of 2: Chart a"
    dialog.chart.setFocus()
    QTest.keyClick(dialog.chart, Qt.Key.Key_Right)
    assert dialog.place.text() == "2 of 2" and not dialog.next_button.isEnabled()
    dialog.back_button.click()
    assert dialog.chart.index == 0
    image = QImage(dialog.chart.grab().toImage())
    centre = QPoint(image.width() // 2, image.height() // 2)
    themes = dialog.chart._themes
    assert image.pixelColor(centre) == themes.current.success
    themes.set_mode("light" if themes.current.name == "dark" else "dark")
    assert dialog.chart.grab().toImage().pixelColor(centre) == themes.current.success
    opened = []
    monkeypatch.setattr("app.experiments_dialog.QDesktopServices.openUrl", lambda url: opened.append(url))
    dialog.report_button.click()
    assert opened and opened[0].toLocalFile().endswith("report.html")
    assert "Finished" in dialog.state.text() and dialog.start_button.isEnabled()


def test_progress_says_what_is_left(open_dialog, qtbot) -> None:
    dialog = open_dialog("wait")
    dialog.start_button.click()
    qtbot.waitUntil(lambda: "3 of 4" in dialog.state.text(), timeout=10_000)
    assert dialog.state.text() == "runs: 3 of 4, about 2 s left"
    assert (dialog.bar.value(), dialog.bar.maximum()) == (3, 4)
    assert not dialog.start_button.isEnabled() and not dialog.experiment.isEnabled()
    child = psutil.Process(dialog.runner._process.processId())
    assert sys.platform == "win32" or child.nice() == min(19, psutil.Process().nice() + 10)
    dialog.stop_button.click()
    qtbot.waitUntil(lambda: not dialog.runner.running, timeout=10_000)
    assert "What is done is kept" in dialog.state.text()
    assert dialog.headline.text().startswith("It pays")  # of what was complete
    assert Progress("runs", 1, 9, 300.0).words() == "runs: 1 of 9, about 5 min left"
    assert Progress("runs", 0, 9, None).words() == "runs: 0 of 9"


@pytest.mark.skipif(sys.platform == "win32", reason="a process cannot be held there")
def test_an_experiment_stands_still_while_a_burst_runs(rig, open_dialog, qtbot) -> None:
    dialog = open_dialog("wait")
    dialog.start_button.click()
    qtbot.waitUntil(lambda: "3 of 4" in dialog.state.text(), timeout=10_000)
    child = psutil.Process(dialog.runner._process.processId())
    scene = golden_scene()
    rig.engine.publish(*scene)
    rig.settle()
    qtbot.waitUntil(lambda: child.status() == psutil.STATUS_STOPPED, timeout=5_000)
    assert dialog.state.text().startswith("Waits while a burst runs")
    rig.engine.publish(BurstDone("run-1", False, {}))
    rig.settle()
    qtbot.waitUntil(lambda: child.status() != psutil.STATUS_STOPPED, timeout=5_000)
    assert dialog.state.text().startswith("runs: 3 of 4")
    rig.engine.publish(*scene)
    rig.settle()
    dialog.stop_button.click()  # one that stands still can be stopped all the same
    qtbot.waitUntil(lambda: not dialog.runner.running, timeout=10_000)
    assert "What is done is kept" in dialog.state.text()


def test_a_child_that_does_not_listen_is_ended_by_force(open_dialog, qtbot) -> None:
    dialog = open_dialog("deaf")
    dialog.runner._patience.setInterval(100)
    dialog.start_button.click()
    qtbot.waitUntil(lambda: "3 of 4" in dialog.state.text(), timeout=10_000)
    dialog.stop_button.click()
    qtbot.waitUntil(lambda: not dialog.runner.running, timeout=10_000)
    assert dialog.outcome is None and "What is done is kept" in dialog.state.text()


@pytest.mark.parametrize(("how", "words"), [("fail", "--pairs 0 makes no sense"), ("crash", "see the log")])
def test_a_failure_is_one_sentence_and_everything_works_again(open_dialog, qtbot, how, words) -> None:
    dialog = open_dialog(how)
    start(dialog, qtbot)
    assert words in dialog.state.text() and "Traceback" not in dialog.state.text()
    assert dialog.state.property("tone") == "error" and dialog.outcome is None
    dialog._command.how = ""
    start(dialog, qtbot)
    assert dialog.outcome is not None and dialog.state.property("tone") == "muted"


def test_a_command_that_cannot_start(qtbot) -> None:
    runner, said = ExperimentRun(), []
    runner.ended.connect(said.append)
    runner.start(["/nowhere/at/all"])
    qtbot.waitUntil(lambda: not runner.running, timeout=5_000)
    assert said == ["The experiment could not be started: see the log."]


def test_closing_the_dialog_leaves_the_run_and_the_window_says_the_end(rig, open_dialog, qtbot) -> None:
    dialog = open_dialog()
    dialog.start_button.click()
    QTest.keyClick(dialog, Qt.Key.Key_Escape)
    assert not dialog.isVisible()
    qtbot.waitUntil(lambda: not dialog.runner.running, timeout=10_000)
    assert rig.window.toast.label.text() == "Offload map: It pays"
    assert show_experiments(rig.window) is dialog and dialog.chart.count == 2


def test_closing_the_window_ends_the_child(rig, open_dialog, qtbot) -> None:
    dialog = open_dialog("deaf")
    dialog.start_button.click()
    qtbot.waitUntil(lambda: "3 of 4" in dialog.state.text(), timeout=10_000)
    child = psutil.Process(dialog.runner._process.processId())
    rig.window.close()
    ends = time.monotonic() + 5
    while child.is_running() and child.status() != psutil.STATUS_ZOMBIE and time.monotonic() < ends:
        time.sleep(0.01)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    assert not dialog.isVisible()


def test_the_command_can_be_copied(open_dialog) -> None:
    dialog = open_dialog()
    dialog.experiment.setCurrentText("Sweep of slots")
    dialog.copy_button.click()
    words = QGuiApplication.clipboard().text()
    assert words.startswith("offramp sweep slots --quick --profile ") and "sweep" in words


def test_this_machines_calibration_is_offered_where_there_is_one(open_dialog, rig, tmp_path) -> None:
    shipped = open_dialog()
    names = [shipped.profile.itemText(i) for i in range(shipped.profile.count())]
    assert "apple-m2-published" in names and "local" not in names


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_nothing_is_clipped_and_everything_has_a_name(make_rig, qtbot, theme, tmp_path) -> None:
    rig = make_rig(theme=theme).ready()
    dialog = show_experiments(rig.window)
    dialog._command = Stub(tmp_path)
    start(dialog, qtbot)
    assert clipped(dialog) == []
    for kind in (QPushButton, QComboBox):
        assert all(part.accessibleName() for part in dialog.findChildren(kind))
    assert dialog.bar.accessibleName() and dialog.chart.accessibleName()
    rig.window.set_theme("light" if theme == "dark" else "dark")
    assert rig.themes.current.window.name() in dialog.styleSheet()


def test_the_menu_has_an_entry(rig) -> None:
    entry = next(e for e in entries() if e.name == "experiments")
    assert entry.keys
    rig.window.actions_by_name["experiments"].trigger()
    assert rig.window.findChild(ExperimentsDialog).isVisible()


def test_a_report_line_is_what_the_command_prints(tmp_path) -> None:
    """The stand-in prints what `--progress json` does; tests/experiments checks the command itself."""
    data = json.loads('{"type": "report", "headline": "h", "mark": "", "report": "r", "charts": ["c"]}')
    runner, found = ExperimentRun(), []
    runner.reported.connect(found.append)
    runner._take(data)
    assert found[0].charts == (Path("c"),)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no signals there")
def test_it_can_be_stopped_from_a_window_that_was_started_in_the_background(open_dialog, qtbot) -> None:
    """A shell's background jobs ignore SIGINT, and would hand that down."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        dialog = open_dialog("wait")
        dialog.start_button.click()
        qtbot.waitUntil(lambda: "3 of 4" in dialog.state.text(), timeout=10_000)
        dialog.stop_button.click()
        qtbot.waitUntil(lambda: not dialog.runner.running, timeout=10_000)
        assert dialog.headline.text().startswith("It pays")
    finally:
        signal.signal(signal.SIGINT, before)
