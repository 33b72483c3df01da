"""Presenter mode: what it shows, its keys, and that they act nowhere else."""

import pytest
from fake_engine import CPU, GPU, backend_infos, golden_scene
from PySide6.QtCore import SIGNAL, Qt
from PySide6.QtTest import QTest
from test_charts import ALL, keep_panels, texts, too_wide  # noqa: F401

from app.presenter import HINTS
from app.widgets.compare_form import CompareForm
from engine.events import BackendState, BackendStatus, BurstDone, EngineFailed


def enter(rig):
    rig.window.actions_by_name["presenter"].trigger()
    rig.settle()
    return rig.window.presenter


def test_it_shows_the_last_decision_large(rig) -> None:
    rig.engine.publish(*golden_scene())
    rig.settle()
    page = enter(rig)
    assert rig.window.pages.currentWidget() is page
    assert page.headline.accessibleName() == (
        "Request 8 CPU. Waiting for the GPU would cost 3.4 s, the CPU needs 3.1 s."
    )
    assert list(page.stages) == [CPU, GPU] and page.mark.isVisible()
    assert page.status.full_text() == "seed-warm-8, isolated-rates, 2.80 s, 0 of 8 finished"
    assert "4 of 4 slots active, 3 waiting" in page.stages[GPU].accessibleDescription()


def test_space_starts_r_repeats_and_f5_leaves(rig) -> None:
    page = enter(rig)
    QTest.keyClick(page, Qt.Key.Key_Space)
    assert rig.engine.calls[-1] == ("run_burst", "seed-warm-8", "isolated-rates")
    rig.engine.publish(BurstDone("run-1", False, {}))
    rig.settle()
    QTest.keyClick(page, Qt.Key.Key_R)
    assert [c[0] for c in rig.engine.calls].count("run_burst") == 2
    rig.window.actions_by_name["presenter"].trigger()
    assert rig.window.pages.currentIndex() == 0
    enter(rig)
    QTest.keyClick(page, Qt.Key.Key_Escape)
    assert rig.window.pages.currentIndex() == 0


def test_c_opens_the_comparison_where_it_can_be_seen(rig) -> None:
    page = enter(rig)
    QTest.keyClick(page, Qt.Key.Key_C)
    (form,) = [f for f in rig.window.findChildren(CompareForm) if f.isVisible()]
    middle = rig.window.frameGeometry().center()
    assert (form.frameGeometry().center() - middle).manhattanLength() < 8, "its button is on the other page"
    QTest.keyClick(form, Qt.Key.Key_Escape)
    assert not form.isVisible() and rig.window.pages.currentWidget() is page
    rig.window.toolbar.comparing = "run 3 of 10"
    rig.settle()
    assert "comparing, run 3 of 10" in page.status.full_text()


def test_every_key_of_the_hints_does_what_it_says(rig) -> None:
    """The hints at the bottom promise keys: each of them is answered."""
    promised = {key for keys, _words in HINTS for key in keys}
    assert promised == {"Space", "R", "C", "Page Up", "Page Down", "F5"}
    page = enter(rig)
    told = []
    for name in ("run_requested", "repeat_requested", "compare_requested", "left"):
        signal = getattr(page, name)
        assert page.receivers(SIGNAL(f"{name}()")) > 0, f"nobody answers {name}"
        signal.connect(lambda name=name: told.append(name))
    for key in (Qt.Key.Key_Space, Qt.Key.Key_R, Qt.Key.Key_C, Qt.Key.Key_Escape):
        QTest.keyClick(page, key)
    assert told == ["run_requested", "repeat_requested", "compare_requested", "left"]


def test_single_keys_do_nothing_in_the_main_window(rig) -> None:
    for key in (Qt.Key.Key_Space, Qt.Key.Key_R, Qt.Key.Key_C, Qt.Key.Key_PageDown):
        QTest.keyClick(rig.window, key)
    assert "run_burst" not in [c[0] for c in rig.engine.calls]


def test_a_clicker_steps_through_the_decisions(rig) -> None:
    rig.engine.publish(*golden_scene())
    rig.settle()
    page = enter(rig)
    QTest.keyClick(page, Qt.Key.Key_PageUp)
    rig.settle()
    assert page.headline.accessibleName().startswith("Request 7 GPU.")
    assert len(page.routing.chart.picture.points) == 7
    for _ in range(20):
        QTest.keyClick(page, Qt.Key.Key_PageUp)
    rig.settle()
    assert page.headline.accessibleName().startswith("Request 1 GPU.")
    for _ in range(20):
        QTest.keyClick(page, Qt.Key.Key_PageDown)
    rig.settle()
    assert page.headline.accessibleName().startswith("Request 8 CPU.")


def test_without_a_burst_it_says_what_to_press(rig) -> None:
    assert enter(rig).headline.accessibleName() == "Press Space to start the burst. The burst is seed-warm-8."


def test_a_failure_and_a_stopped_backend_are_said(rig) -> None:
    page = enter(rig)
    rig.engine.publish(BackendStatus(backend_infos()[1], BackendState.STOPPED, "It ended."))
    rig.settle()
    assert "stopped" in page.stages[GPU].accessibleName()
    rig.engine.publish(EngineFailed("No backend is left: restart one."))
    rig.settle()
    assert "No backend is left" in page.headline.accessibleName()


@pytest.mark.parametrize("size", [(1280, 720), (1920, 1080)])
def test_nothing_is_wider_than_its_place(rig, texts, size) -> None:  # noqa: F811
    rig.engine.publish(*golden_scene())
    rig.settle()
    page = enter(rig)
    rig.window.resize(*size)
    rig.settle()
    rig.settle()
    page.grab()
    assert too_wide(texts) == []
    assert page.hints.geometry().right() <= page.width()


def test_the_main_panels_rest_while_presenting(rig) -> None:
    rig.engine.publish(*golden_scene())
    rig.settle()
    enter(rig)
    before = rig.window.routing.chart.repaints
    rig.themes.toggle()
    rig.settle()
    assert rig.window.routing.chart.repaints == before
