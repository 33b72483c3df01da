"""The window as a whole: run, stop, themes, sizes, names, keys, closing."""

import pytest
from fake_engine import CPU, GPU, backend_infos, golden_scene, setup_events
from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtGui import QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractSpinBox,
    QComboBox,
    QLabel,
    QLineEdit,
    QPlainTextEdit,
    QPushButton,
    QTextEdit,
    QWidget,
)

from engine.events import BackendState, BackendStatus, BurstDone, EngineFailed, Notice, SetupStep

SIZES = [(1920, 1080), (1700, 1000), (1600, 1000), (1500, 900), (1440, 900), (1280, 720)]


def clipped(window: QWidget) -> list[str]:
    """Labels and buttons whose text is wider than the room they paint it in."""
    out = []
    for widget in [*window.findChildren(QLabel), *window.findChildren(QPushButton)]:
        text = widget.text()
        wraps = isinstance(widget, QLabel) and widget.wordWrap()
        if not widget.isVisible() or not text or wraps:
            continue
        if "<" in text:  # rich text knows its own width
            needed = widget.minimumSizeHint().width()
        else:
            needed = max(widget.fontMetrics().horizontalAdvance(line) for line in text.split("\n"))
        if needed > widget.width() + 1:
            out.append(f"{text!r} needs {needed}, has {widget.width()}")
    return out


def test_a_calibration_can_be_stopped_as_well(rig) -> None:
    bar, view = rig.window.toolbar, rig.board.backends[GPU]
    assert not bar.stop_button.isEnabled()
    rig.engine.publish(BackendStatus(view.info, BackendState.CALIBRATING, "step times at several loads"))
    rig.settle()
    assert bar.stop_button.isEnabled()
    bar.stop_button.click()
    assert ("cancel_all",) in rig.engine.calls
    rig.engine.publish(BackendStatus(view.info, BackendState.READY))
    rig.settle()
    assert not bar.stop_button.isEnabled()


def test_run_starts_the_chosen_burst_and_the_clock_counts(rig) -> None:
    bar = rig.window.toolbar
    assert bar.run_button.isEnabled() and not bar.stop_button.isEnabled()
    bar.run_button.click()
    assert ("run_burst", "seed-warm-8", "isolated-rates") in rig.engine.calls
    rig.settle()
    assert not bar.run_button.isEnabled() and bar.stop_button.isEnabled()
    assert "2.80 s" in bar.clock.text() and "0 of 8 finished" in bar.clock.text()
    bar.stop_button.click()
    assert ("cancel_all",) in rig.engine.calls
    rig.engine.publish(BurstDone("run-1", True, {}))
    rig.settle()
    assert bar.run_button.isEnabled() and "stopped" in bar.clock.text()


def test_a_refused_burst_becomes_a_notice_and_run_works_again(rig) -> None:
    rig.window.toolbar.asked_to_run()
    assert not rig.window.toolbar.run_button.isEnabled()
    rig.engine.publish(Notice("error", "There is no preset named 'x'."))
    rig.settle()
    assert rig.window.toast.isVisible() and "no preset" in rig.window.toast.label.text()
    assert rig.window.toolbar.run_button.isEnabled()
    rig.window.toast.close_button.click()
    assert not rig.window.toast.isVisible()


def test_policy_and_preset_are_passed_on_and_remembered(rig) -> None:
    bar = rig.window.toolbar
    bar.policy.setCurrentIndex(1)
    bar.policy.textActivated.emit("least-requests")
    bar.preset.textActivated.emit("cold-12")
    assert ("set_policy", "least-requests") in rig.engine.calls
    assert (rig.settings.choice("policy"), rig.settings.choice("preset")) == ("least-requests", "cold-12")


def test_theme_switch_changes_colours_and_is_remembered(rig) -> None:
    dark = rig.window.grab().toImage().pixelColor(2, 2)
    rig.window.actions_by_name["theme"].trigger()
    rig.settle()
    light = rig.window.grab().toImage().pixelColor(2, 2)
    assert dark.lightness() < 60 < 200 < light.lightness()
    assert rig.settings.theme() == "light"
    rig.window.actions_by_name["system_theme"].trigger()
    assert rig.settings.theme() == "system"


def test_backends_stand_slowest_left_and_titles_name_them(rig) -> None:
    panels = list(rig.window.backends.panels.values())
    assert [panel.name for panel in panels] == [CPU, GPU]
    assert panels[0].x() < panels[1].x()
    assert panels[0].geometry().width() == panels[1].geometry().width() == 752


def test_panel_edges_are_where_the_design_puts_them(rig) -> None:
    window = rig.window

    def place(widget: QWidget) -> tuple[int, int, int, int]:
        corner = widget.mapTo(window, QPoint(0, 0))
        return corner.x(), corner.y(), widget.width(), widget.height()

    assert place(window.prompt) == (8, 64, 384, 736)
    assert place(window.backends.panels[CPU]) == (400, 64, 752, 360)
    assert place(window.backends.panels[GPU]) == (1160, 64, 752, 360)
    assert place(window.routing) == (400, 432, 752, 368)
    assert place(window.ttft) == (1160, 432, 376, 368)
    assert place(window.throughput) == (1544, 432, 368, 368)
    assert place(window.requests) == (8, 808, 1904, 264)


def test_a_stopped_backend_says_so_and_can_be_restarted(rig) -> None:
    info = backend_infos()[1]
    rig.engine.publish(BackendStatus(info, BackendState.STOPPED, "Its process ended with code 134."))
    rig.settle()
    panel = rig.window.backends.panels[GPU]
    assert panel.pages.currentIndex() == 1 and panel.restart_button.isVisible()
    assert "code 134" in panel._message.text()
    panel.restart_button.click()
    assert ("restart_backend", GPU) in rig.engine.calls
    rig.engine.publish(BackendStatus(info, BackendState.LOADING))
    rig.settle()
    assert not panel.restart_button.isVisible() and panel._headline.text() == "Loading the model"
    rig.engine.publish(BackendStatus(info, BackendState.READY))
    rig.settle()
    assert panel.pages.currentIndex() == 0


def test_a_stalled_backend_keeps_its_view_and_gets_the_word(rig) -> None:
    rig.engine.publish(BackendStatus(backend_infos()[1], BackendState.STALLED))
    rig.settle()
    panel = rig.window.backends.panels[GPU]
    assert panel.pages.currentIndex() == 0 and panel._word.text() == "stalled"


def test_one_backend_takes_the_whole_width(make_rig) -> None:
    rig = make_rig()
    rig.start()
    rig.engine.publish(BackendStatus(backend_infos()[0], BackendState.READY))
    rig.settle()
    assert rig.window.backends.panels[CPU].width() == 1512


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scene", ["setup", "golden", "stopped"])
def test_no_text_is_clipped_at_any_size(make_rig, size, scene) -> None:
    rig = make_rig()
    rig.start()
    if scene == "setup":
        rig.engine.publish(
            SetupStep("download", "Download the embedded model", "SmolLM2", "running", 61e6, 98e6),
            *(BackendStatus(info, BackendState.WAITING) for info in backend_infos(False)),
        )
    else:
        rig.engine.publish(*golden_scene())
    if scene == "stopped":
        rig.engine.publish(BackendStatus(backend_infos()[1], BackendState.STOPPED, "It ended."))
    rig.window.resize(*size)
    rig.settle()
    rig.settle()
    assert (rig.window.width(), rig.window.height()) == size
    assert clipped(rig.window) == []


def test_every_control_has_an_accessible_name(rig) -> None:
    rig.engine.publish(*golden_scene())
    rig.settle()
    kinds = (QAbstractButton, QComboBox, QLineEdit, QPlainTextEdit, QTextEdit, QAbstractSpinBox)
    nameless = [
        (type(widget).__name__, widget.objectName())
        for kind in kinds
        for widget in rig.window.findChildren(kind)
        if not (widget.accessibleName() or getattr(widget, "text", str)()) and widget.isVisible()
    ]
    assert nameless == []


def test_every_action_is_in_the_menu_and_shortcuts_differ(rig) -> None:
    menu = rig.window.toolbar.menu_button.menu()
    assert set(rig.window.actions_by_name.values()) <= set(menu.actions())
    keys = [
        a.shortcut().toString() for a in rig.window.actions_by_name.values() if not a.shortcut().isEmpty()
    ]
    assert len(keys) == len(set(keys))
    assert {"Ctrl+R", "Ctrl+Shift+R", "Ctrl+.", "Ctrl+L", "Ctrl+N", "Ctrl+T"} <= set(keys)


def test_repeat_runs_the_same_burst_again(rig) -> None:
    rig.window.toolbar.run_button.click()
    rig.settle()
    rig.engine.publish(BurstDone("run-1", False, {}))
    rig.settle()
    rig.window.toolbar.preset.setCurrentIndex(1)
    rig.window.actions_by_name["repeat"].trigger()
    bursts = [call for call in rig.engine.calls if call[0] == "run_burst"]
    assert bursts == [("run_burst", "seed-warm-8", "isolated-rates")] * 2


def test_keyboard_focus_shows_a_ring_and_the_mouse_does_not(rig) -> None:
    window = rig.window
    window.activateWindow()
    window.prompt.composer.editor.setFocus(Qt.FocusReason.MouseFocusReason)
    assert not window._ring.isVisible()
    QTest.keyClick(window.prompt.composer.editor, Qt.Key.Key_Tab)
    focused = window.focusWidget()
    assert focused is not window.prompt.composer.editor and window._ring.isVisible()
    assert window._ring.geometry().contains(QRect(focused.mapTo(window, QPoint(0, 0)), focused.size()))


PHASES = ["unstarted", "setup", "download", "ready", "prefill", "decode", "burst", "failed", "presenter",
          "receipt", "settings", "tour"]  # fmt: skip


@pytest.mark.parametrize("phase", PHASES)
def test_closing_in_any_phase_ends_everything(make_rig, phase) -> None:
    rig = make_rig()
    if phase != "unstarted":
        rig.start()
    if phase == "download":
        rig.engine.publish(SetupStep("download", "Downloading", "", "running", 61e6, 93e6))
    if phase not in ("unstarted", "setup", "download", "failed"):
        rig.engine.publish(*setup_events())
        rig.settle()
    if phase == "burst":
        rig.engine.publish(*golden_scene())
    if phase in ("prefill", "decode"):
        rig.write("Tell me a story.")
    if phase == "decode":
        rig.engine.answer(1, "Once upon", done=False)
        rig.settle()
    if phase in ("presenter", "receipt"):
        rig.engine.publish(*golden_scene())
        rig.settle()
        rig.window.actions_by_name[phase].trigger()
    if phase in ("settings", "tour"):
        rig.window.actions_by_name[phase].trigger()
    if phase == "failed":
        rig.engine.publish(EngineFailed("No model: choose another."))
    rig.settle()
    rig.window.close()
    assert rig.engine.closed == (phase != "unstarted")
    assert not rig.window._timer.isActive() and not rig.bridge._timer.isActive()


def test_a_failed_engine_is_explained_where_the_prompt_is(make_rig) -> None:
    rig = make_rig()
    rig.start()
    rig.engine.publish(EngineFailed("The model file is truncated: fetch it again."))
    rig.settle()
    assert "truncated" in rig.window.prompt.failure.text() and rig.window.prompt.failure.isVisible()
    assert not rig.window.toolbar.run_button.isEnabled()
    assert not rig.window.prompt.composer.button.isEnabled()


def test_narrow_windows_put_the_requests_beside_the_prompt(rig) -> None:
    rig.window.resize(1280, 720)
    rig.settle()
    prompt, requests = rig.window.prompt, rig.window.requests
    assert prompt.width() == 312
    assert requests.mapTo(rig.window, QPoint(0, 0)).x() == 328
    assert prompt.height() == 720 - 56 - 16
    rig.window.resize(1920, 1080)
    rig.settle()
    assert requests.mapTo(rig.window, QPoint(0, 0)).x() == 8 and prompt.width() == 384


def test_figures_do_not_move_between_two_pictures(rig) -> None:
    rig.engine.publish(*golden_scene())
    rig.settle()
    rig.settle()

    def picture() -> QImage:
        return rig.window.grab().toImage()

    assert picture() == picture()
