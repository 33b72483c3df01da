"""Another engine in place of the running one: emulation, models, failures, closing in between."""

import threading

import pytest
from fake_engine import GPU, FakeEngine, backend_infos, golden_scene, setup_events
from PySide6.QtWidgets import QComboBox

from app.series.choices import OPEN_FILE, Choice, model_choices
from app.widgets.choice_list import ROLE
from engine.errors import ConfigError
from engine.events import BackendState, BackendStatus, EngineFailed, SetupStep
from engine.models.catalog import list_models
from engine.request import RequestId


def test_the_empty_window_offers_the_emulated_run_and_starts_it(make_rig, qtbot) -> None:
    rig = make_rig()
    rig.start()
    rig.engine.publish(SetupStep("download", "Downloading", "", "running", 1e6, 98e6))
    rig.settle()
    button = rig.window.requests.emulated_button
    assert button.isVisible()
    old = rig.engine
    button.click()
    qtbot.waitUntil(lambda: rig.engine is not old)
    assert old.closed and rig.engine.config.emulate == "apple-m2-published"
    rig.engine.publish(*setup_events())
    rig.settle()
    assert ("run_burst", "seed-warm-8", "isolated-rates") in rig.engine.calls


def test_a_failed_engine_can_be_replaced(make_rig, qtbot) -> None:
    rig = make_rig()
    rig.start()
    rig.engine.publish(EngineFailed("The model file is truncated: fetch it again."))
    rig.settle()
    rig.window.requests.emulated_button.click()
    qtbot.waitUntil(lambda: bool(rig.engines))
    rig.engine.publish(*setup_events())
    rig.settle()
    assert rig.board.failure is None and not rig.window.prompt.failure.isVisible()
    assert rig.window.toolbar.stop_button.isEnabled()


def test_a_reload_forgets_the_old_board_and_keeps_the_conversation(rig, qtbot) -> None:
    rig.write("Hello")
    rig.engine.answer(RequestId(1), "Good day", GPU)
    rig.settle()
    qtbot.waitUntil(lambda: rig.window.prompt.composer.button.text() == "Send")
    rig.engine.publish(*golden_scene())
    rig.settle()
    rig.window.show_last_receipt()
    rig.window.wishes.reload(slots="2")
    qtbot.waitUntil(lambda: bool(rig.engines))
    assert rig.engine.config.slots == "2"
    assert not rig.board.requests and not rig.board.backends and not rig.window.sheet.isVisible()
    assert not rig.window.backends.panels
    text = rig.window.prompt.transcript.toPlainText()
    assert "Good day" in text and "why?" not in text
    rig.engine.publish(*setup_events())
    rig.settle()
    rig.write("Again")
    assert [m["content"] for m in rig.engine.calls[-1][1]] == ["Hello", "Good day", "Again"]


def test_a_reload_while_a_reply_streams_ends_it_in_words(rig, qtbot) -> None:
    rig.write("Tell me")
    rig.engine.answer(RequestId(1), "Once upon", GPU, done=False)
    rig.settle()
    rig.window.wishes.reload()
    text = rig.window.prompt.transcript.toPlainText()
    assert "replaced before the end" in text
    qtbot.waitUntil(lambda: bool(rig.engines))


def test_of_several_reloads_the_last_counts(rig, qtbot) -> None:
    for slots in ("1", "2", "8"):
        rig.window.wishes.reload(slots=slots)
    qtbot.waitUntil(lambda: bool(rig.engines))
    qtbot.wait(60)
    assert [e.config.slots for e in rig.engines] == ["8"]


def test_a_refused_configuration_is_said_and_the_next_one_works(rig, qtbot) -> None:
    def refuse(_args):
        raise ConfigError("--slots 0 is unclear.")

    good, rig.session._make_engine = rig.session._make_engine, refuse
    rig.window.wishes.reload(slots="0")
    qtbot.waitUntil(lambda: rig.board.failure is not None)
    rig.session._make_engine = good
    rig.window.wishes.reload(slots="2")
    qtbot.waitUntil(lambda: bool(rig.engines))
    assert rig.board.failure is None


@pytest.mark.parametrize("hangs", [False, True])
def test_closing_while_one_engine_replaces_another(make_rig, qtbot, monkeypatch, hangs) -> None:
    monkeypatch.setattr("app.bridge.CLOSE_S", 0.3)
    rig, released = make_rig(), threading.Event()

    class Slow(FakeEngine):
        def close(self) -> None:
            released.wait(5 if hangs else 0.05)
            super().close()

    rig.engine = Slow()
    rig.ready()
    rig.window.wishes.reload(slots="2")
    rig.window.close()
    released.set()
    qtbot.waitUntil(lambda: not [t for t in threading.enumerate() if t.name == "engine-close"])
    assert not rig.engines and not rig.bridge._replacing.isActive()


def test_a_hanging_engine_does_not_keep_the_next_one_waiting(make_rig, qtbot, monkeypatch) -> None:
    monkeypatch.setattr("app.bridge.CLOSE_S", 0.1)
    rig, released = make_rig(), threading.Event()

    class Hanging(FakeEngine):
        def close(self) -> None:
            released.wait(5)

    rig.engine = Hanging()
    rig.ready()
    rig.window.wishes.reload(slots="2")
    qtbot.waitUntil(lambda: bool(rig.engines), timeout=2_000)
    released.set()


def choices() -> list[Choice]:
    return model_choices(list_models(), [], [("apple-m2-published", "Apple M2")], "model:qwen3-0.6b")


def test_the_model_menu_lists_sizes_licences_and_what_is_installed() -> None:
    listed = {c.value: c for c in choices()}
    first = listed["model:smollm2-135m-instruct"]
    assert "98 MB" in first.note and "Apache-2.0" in first.note and "demonstrator" in first.note
    assert OPEN_FILE in listed and "emulate:apple-m2-published" in listed
    assert [c.value for c in choices() if c.current] == ["model:qwen3-0.6b"]


def test_choosing_a_model_reloads_and_is_remembered(rig, qtbot) -> None:
    combo: QComboBox = rig.window.toolbar.model
    rig.window.model_menu._look = lambda _current: choices()
    rig.window.model_menu.refresh()
    qtbot.waitUntil(lambda: combo.count() == len(choices()))
    values = [combo.itemData(i, ROLE).value for i in range(combo.count())]
    at = values.index("model:qwen2.5-0.5b-instruct")
    combo.setCurrentIndex(at)
    combo.activated.emit(at)
    qtbot.waitUntil(lambda: bool(rig.engines))
    assert rig.engine.config.model == "qwen2.5-0.5b-instruct"
    assert rig.session.preferences.values["model"] == "qwen2.5-0.5b-instruct"


def test_a_stopped_backend_offers_the_log(rig, qtbot) -> None:
    rig.engine.publish(BackendStatus(backend_infos()[1], BackendState.STOPPED, "Code 134."))
    rig.settle()
    button = rig.window.backends.panels[GPU].log_button
    assert button.isVisible()
    button.click()
    dialog = next(d for d in rig.window.children() if getattr(d, "windowTitle", str)() == "Log")
    dialog.close()
