"""Experiments that measure: the window lends the machine, and gets its model back however they end."""

import sys
from pathlib import Path

import psutil
import pytest
from fake_engine import golden_scene
from test_experiments_dialog import open_dialog, own_folders  # noqa: F401

from app.experiments_dialog import TAKEN, ExperimentsDialog
from app.measuring import BUSY, LENT, engine_options
from app.series.experiments import MEASURED
from engine.cli import make_parser, window_parser
from engine.events import BurstDone


@pytest.fixture
def measuring(open_dialog):  # noqa: F811
    """The dialog, set to measure."""

    def make(how: str = "") -> ExperimentsDialog:
        dialog = open_dialog(how)
        dialog.profile.setCurrentText(MEASURED)
        return dialog

    return make


def begin(dialog: ExperimentsDialog, qtbot) -> None:
    dialog.start_button.click()
    qtbot.waitUntil(lambda: dialog.runner.running, timeout=5_000)


def test_the_model_goes_first_and_comes_back(rig, measuring, qtbot) -> None:
    dialog, old = measuring("wait"), rig.engine
    began = []
    start = dialog.runner.start
    dialog.runner.start = lambda *a: (began.append((old.closed, rig.bridge.running)), start(*a))
    begin(dialog, qtbot)
    assert began == [(True, False)]  # the old engine had ended before the child began
    assert rig.board.failure == LENT
    qtbot.waitUntil(lambda: "3 of 4" in dialog.state.text(), timeout=10_000)
    child = psutil.Process(dialog.runner._process.processId())
    assert sys.platform == "win32" or child.nice() == psutil.Process().nice()  # nothing to give way to
    dialog.stop_button.click()
    qtbot.waitUntil(lambda: not dialog.busy and rig.bridge.running, timeout=10_000)
    assert "What is done is kept" in dialog.state.text() and rig.engines == [rig.engine]


@pytest.mark.parametrize("how", ["", "fail", "crash"])
def test_however_it_ends_the_model_comes_back(rig, measuring, qtbot, how) -> None:
    dialog = measuring(how)
    begin(dialog, qtbot)
    qtbot.waitUntil(lambda: not dialog.busy and rig.bridge.running, timeout=10_000)
    assert len(rig.engines) == 1


def test_a_window_without_a_model_has_none_afterwards(rig, measuring, qtbot) -> None:
    rig.session.unload()
    dialog = measuring()
    begin(dialog, qtbot)
    qtbot.waitUntil(lambda: not dialog.busy, timeout=10_000)
    assert not rig.bridge.running and rig.session.unloaded and rig.board.failure != LENT


def test_a_model_loaded_meanwhile_stops_it(rig, measuring, qtbot) -> None:
    dialog = measuring("wait")
    begin(dialog, qtbot)
    qtbot.waitUntil(lambda: "3 of 4" in dialog.state.text(), timeout=10_000)
    rig.session.choose_model("another-model")
    qtbot.waitUntil(lambda: not dialog.busy, timeout=10_000)
    assert dialog.state.text() == TAKEN
    assert [engine.config.model for engine in rig.engines] == ["another-model"]


def test_a_model_loaded_before_it_began_keeps_it_from_beginning(rig, measuring, qtbot) -> None:
    dialog = measuring()
    dialog.start_button.click()
    rig.session.choose_model("another-model")  # before the old engine has ended
    qtbot.waitUntil(lambda: not dialog.busy and rig.bridge.running, timeout=10_000)
    assert dialog._command.asked == [] and dialog.state.text() == TAKEN


def test_it_can_be_stopped_before_it_began(rig, measuring, qtbot) -> None:
    dialog = measuring()
    dialog.start_button.click()
    if not dialog.runner.running:
        dialog.stop_button.click()
        assert dialog.state.text() == "Stopped before it began." and dialog._command.asked == []
    qtbot.waitUntil(lambda: not dialog.busy and rig.bridge.running, timeout=10_000)


def test_replies_being_written_are_not_ended_for_it(rig, measuring, qtbot) -> None:
    dialog = measuring()
    rig.engine.publish(*golden_scene())
    rig.settle()
    dialog.start_button.click()
    assert dialog.state.text() == BUSY and dialog.state.property("tone") == "error"
    assert not dialog.busy and rig.bridge.running and rig.engines == []
    rig.engine.publish(BurstDone("run-1", False, {}))
    rig.settle()


def test_its_command_names_what_the_window_runs(rig, measuring) -> None:
    dialog = measuring()
    arguments = dialog.arguments()
    assert "--real" in arguments and "--profile" not in arguments
    rig.session.args.threads, rig.session.args.context = 1, 2048
    rig.session.args.emulate, rig.session.args.backends = "apple-m2-published", "cpu,emulated:gpu"
    args = make_parser().parse_args(dialog.arguments())
    assert args.real and (args.threads, args.context) == (1, 2048)
    assert args.emulate is None and args.backends == "auto" and Path(args.out).name == "map-measured-quick"


def test_every_option_of_the_engine_survives() -> None:
    words = ["--model", "m.gguf", "--format", "int8", "--slots", "gpu=1,cpu=4", "--kv-blocks", "99"]
    words += ["--token-budget", "256", "--scheduling", "round-robin", "--seed", "3", "--backends", "cpu,cuda"]
    args = window_parser().parse_args(words)
    assert sorted(engine_options(args)) == sorted(words)
