"""Where no prompt can be answered the prompt panel says why, and leads on: by mouse and by keyboard."""

import pytest
from fake_engine import CPU, GPU
from prompt_helpers import controls, walked
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QWidget
from test_charts import keep_panels, texts, too_wide  # noqa: F401

from app.series.next_steps import ALL_STOPPED
from engine.events import BackendState, BackendStatus, EngineFailed, SetupStep

FAILED = "The model file is truncated: choose the model again to download it anew."


def buttons(rig) -> list[str]:
    """Names of the buttons that lead on, as they are seen."""
    prompt = rig.window.prompt
    ways = (prompt.next_steps, prompt.getting_ready.way_out)
    return [b.accessibleName() for way in ways for b in way.buttons if b.isVisible()]


def stop(rig, *names: str) -> None:
    for name in names:
        info = rig.board.backends[name].info
        rig.engine.publish(BackendStatus(info, BackendState.STOPPED, "Its process ended."))
    rig.settle()


def press(rig, name: str) -> None:
    """By keyboard."""
    button = next(w for w in rig.window.prompt.findChildren(QWidget) if w.accessibleName() == name)
    button.setFocus()
    QTest.keyClick(button, Qt.Key.Key_Space)


def test_while_it_gets_ready_another_model_can_be_chosen(make_rig, monkeypatch) -> None:
    rig = make_rig()
    rig.start()
    rig.engine.publish(SetupStep("download", "Downloading", "", "running", 1e6, 9e6))
    rig.settle()
    assert buttons(rig) == ["Choose another model"] and rig.window.prompt.failure.text() == ""
    opened = []
    monkeypatch.setattr(rig.window.wishes, "show_models", lambda: opened.append(True))
    press(rig, "Choose another model")
    assert opened == [True]


def test_a_failed_start_leads_to_the_models_and_can_be_tried_again(make_rig, qtbot, monkeypatch) -> None:
    rig = make_rig()
    rig.start()
    rig.engine.publish(SetupStep("verify", "Checking", "", "running"), EngineFailed(FAILED))
    rig.settle()
    prompt = rig.window.prompt
    assert prompt.title_label.text() == "Not ready" and prompt.failure.text() == FAILED
    assert prompt.failure.property("tone") == "error"
    assert buttons(rig) == ["Choose a model", "Load the model again"]
    opened = []
    monkeypatch.setattr(rig.window.wishes, "show_models", lambda: opened.append(True))
    press(rig, "Choose a model")
    assert opened == [True]
    before = rig.engine
    press(rig, "Load the model again")
    qtbot.waitUntil(lambda: len(rig.engines) == 1)
    assert before.closed and rig.engine.calls == [("start",)]
    rig.settle()
    assert buttons(rig) == ["Choose another model"] and prompt.failure.text() == ""


def test_a_model_that_was_unloaded_can_be_loaded_again(rig, qtbot) -> None:
    assert buttons(rig) == []
    rig.session.unload()
    rig.settle()
    assert buttons(rig) == ["Choose a model", "Load the model again"]
    press(rig, "Load the model again")
    qtbot.waitUntil(lambda: len(rig.engines) == 1)
    assert not rig.session.unloaded


def test_where_every_backend_has_stopped_each_can_be_restarted(rig) -> None:
    prompt = rig.window.prompt
    prompt.composer.editor.setPlainText("Is anybody there?")
    stop(rig, GPU)
    assert buttons(rig) == [] and prompt.composer.button.isEnabled(), "the other one answers"
    stop(rig, CPU)
    assert buttons(rig) == ["Restart the GPU backend", "Restart the CPU backend"]
    assert prompt.failure.text() == ALL_STOPPED and not prompt.composer.button.isEnabled()
    press(rig, "Restart the CPU backend")
    assert rig.engine.calls[-1] == ("restart_backend", CPU)
    rig.engine.publish(BackendStatus(rig.board.backends[CPU].info, BackendState.LOADING))
    rig.settle()
    assert buttons(rig) == [] and prompt.failure.text() == "" and prompt.composer.button.isEnabled()


@pytest.mark.parametrize("size", [(1280, 720), (1920, 1080)])
def test_the_buttons_fit_and_the_keyboard_comes_and_goes(rig, texts, size) -> None:  # noqa: F811
    rig.window.resize(*size)
    stop(rig, CPU, GPU)
    prompt = rig.window.prompt
    texts.clear()
    prompt.grab()
    assert too_wide(texts) == []
    for button in prompt.next_steps.buttons:
        assert prompt.rect().contains(button.geometry().translated(prompt.next_steps.pos()))
    for key in (Qt.Key.Key_Tab, Qt.Key.Key_Backtab):
        start = prompt.composer.editor
        wanted = [*prompt.next_steps.buttons, *(w for w in controls(prompt) if w is not start)]
        assert set(wanted) <= walked(start, wanted, key)


def test_a_model_that_was_sent_away_leaves_no_step_behind(make_rig) -> None:
    rig = make_rig()
    rig.start()
    rig.engine.publish(SetupStep("verify", "Checking", "", "running"))
    rig.settle()
    ready = rig.window.prompt.getting_ready
    assert {"window", "start", "verify"} <= set(ready._lines)
    rig.session.unload("It comes back.")
    rig.window.prompt.refresh({"setup"}, 0.0)
    assert not ready._lines and rig.window.prompt.title_label.text() == "No model"
    assert buttons(rig) == ["Choose a model", "Load the model again"]
