"""The time cursor: the past is what the engine reported then, and now comes back by itself."""

import pytest
from bursts import step
from fake_engine import CPU, GPU, golden_scene, setup_events
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from test_charts import keep_panels, texts, too_wide  # noqa: F401

from app.backend_rows import chips, slot_rows
from app.panels.request_model import TIMELINE
from app.series.board import Board
from app.series.rewind import moment
from engine.events import BurstStarted, EngineFailed, Event, RequestArrived, RequestRouted, StepDone
from engine.request import RequestId
from engine.step_report import BlockState

START_S = 1_000.0


def look(rig, at_s: float) -> None:
    """At this second of the burst."""
    rig.window.time_cursor.go_to(START_S + at_s)
    rig.qtbot.waitUntil(lambda: not rig.window.time_cursor._due.isActive())


@pytest.fixture
def scene(rig):
    rig.engine.publish(*golden_scene(START_S))
    rig.settle()
    return rig


def slots(rig, name: str) -> list[tuple[str, int]]:
    return [(r.number, r.generated) for r in rig.window.backends.panels[name]._slots._rows if r.number]


def queue(rig, name: str) -> list[tuple[str, float]]:
    chips = rig.window.backends.panels[name]._queue._chips
    return [(c.number, round(c.waits_s, 2)) for c in chips]


def test_slots_queue_and_map_show_the_moment(scene) -> None:
    live, blocks = slots(scene, GPU), len(scene.board.backends[GPU].blocks)
    look(scene, 0.6)
    assert [n for n, _ in slots(scene, GPU)] == ["1", "2", "3", "4"]
    assert all(then < now for (_, then), (_, now) in zip(slots(scene, GPU), live, strict=True))
    assert queue(scene, GPU) == [("5", 0.4), ("6", 0.35), ("7", 0.3)]
    assert slots(scene, CPU) == [], "request 8 has arrived, and no report tells that it runs"
    panel = scene.window.backends.panels[GPU]
    past = panel.board.backends[GPU]
    assert 0 < len(past.blocks) < blocks and panel._map._board is panel.board
    assert past.counts()[BlockState.SHARED] == scene.board.backends[GPU].counts()[BlockState.SHARED]
    assert panel._moment.text() == "0.60 s, not live" and panel._word.text() == "emulated"
    scene.window.time_cursor.go_live()
    assert slots(scene, GPU) == live and panel.board is scene.board
    assert not panel._moment.isVisible()


def test_the_past_is_what_a_window_of_that_time_would_have_shown(rig) -> None:
    """Every moment, rebuilt from the frames, equals the board that had only seen the events up to then."""
    events = golden_scene(START_S)
    whole = Board()
    whole.apply(events)
    for at_s in (0.06, 0.21, 0.5, 1.0, 1.7, 2.5):
        until = START_S + at_s
        then = Board()
        then.apply([e for e in events if told_s(e) <= until])
        past = moment(whole, until)
        for name in (CPU, GPU):
            assert past.backends[name].blocks == then.backends[name].blocks
            assert past.backends[name].load == then.backends[name].load
            for read in (slot_rows, chips):
                found = [read(board, board.backends[name], until) for board in (past, then)]
                assert found[0] == found[1], at_s


def told_s(event: Event) -> float:
    """When the window heard of it."""
    if isinstance(event, StepDone):
        return event.report.finished_s
    if isinstance(event, RequestRouted):
        return event.receipt.time_s
    return event.arrival_s if isinstance(event, RequestArrived) else 0.0


def test_drag_on_the_axis_and_in_the_plot(scene) -> None:
    chart = scene.window.throughput
    slider, cursor = chart.slider, scene.window.time_cursor
    middle = QPoint(slider.width() // 2, slider.height() // 2)
    QTest.mousePress(slider, Qt.MouseButton.LeftButton, pos=middle)
    scene.qtbot.waitUntil(lambda: not cursor._due.isActive())
    assert cursor.at_s == pytest.approx(START_S + 1.4, abs=0.05) and not slider.live
    assert chart.live_button.isVisible() and "not live" in chart.phrase_label.full_text()
    assert chart.plot.cursor == pytest.approx(cursor.at_s - START_S)
    assert (
        abs(slider.geometry().x() + slider.x_of(slider.value()) - chart.plot.x() - chart.plot.x_of(1.4)) < 3
    )
    inside = QPoint(round(chart.plot.x_of(0.5)), round(chart.plot.plot_rect().center().y()))
    QTest.mousePress(chart.plot.viewport(), Qt.MouseButton.LeftButton, pos=inside)
    scene.qtbot.waitUntil(lambda: not cursor._due.isActive())
    assert cursor.at_s == pytest.approx(START_S + 0.5, abs=0.03)
    chart.live_button.click()
    assert cursor.at_s is None and slider.live and not chart.live_button.isVisible()


def test_a_burst_longer_than_the_plot_can_be_seen_from_its_beginning(rig) -> None:
    board, chart = rig.board, rig.window.throughput
    begun = [e for e in golden_scene(START_S) if isinstance(e, BurstStarted | RequestArrived | RequestRouted)]
    rig.engine.publish(*begun)
    ids = [RequestId(100)]
    rig.engine.publish(*(step(GPU, float(i), i + 1.0, ids, admit=not i) for i in range(100)))
    rig.settle()
    rig.window.freeze(START_S + 100.0)
    rig.window.tick()
    assert board.throughput.start_s() > 30.0, "the plot has forgotten the beginning"
    QTest.keyClick(chart.slider, Qt.Key.Key_Home)
    rig.qtbot.waitUntil(lambda: not rig.window.time_cursor._due.isActive())
    assert rig.window.time_cursor.at_s == START_S and slots(rig, GPU) == []
    look(rig, 10.5)
    assert [n for n, _ in slots(rig, GPU)] == ["1"] and chart.slider.value() == 10_500
    assert chart.numbers.accessibleName() == "n/a tok/s", "no rate is made up"
    chart.grab()


def test_the_timelines_show_the_same_moment(scene) -> None:
    def timeline():
        table = scene.window.requests.table
        return (
            table.viewport().grab(table.visualRect(scene.window.requests.proxy.index(0, TIMELINE))).toImage()
        )

    now = timeline()
    look(scene, 1.0)
    then = timeline()
    assert then != now and scene.window.requests.model.cursor_s == START_S + 1.0
    look(scene, 2.0)
    assert timeline() != then
    scene.window.time_cursor.go_live()
    assert timeline() == now


def test_keys(scene) -> None:
    slider, cursor = scene.window.throughput.slider, scene.window.time_cursor

    def press(key) -> float | None:
        QTest.keyClick(slider, key)
        scene.qtbot.waitUntil(lambda: not cursor._due.isActive())
        return None if cursor.at_s is None else round(cursor.at_s - START_S, 2)

    end_s = slider.maximum() / 1000
    assert press(Qt.Key.Key_Left) == pytest.approx(end_s - 0.1, abs=0.011)
    assert press(Qt.Key.Key_PageUp) == pytest.approx(end_s - 1.1, abs=0.011)
    assert press(Qt.Key.Key_Right) == pytest.approx(end_s - 1.0, abs=0.011)
    assert press(Qt.Key.Key_Home) == 0.0
    assert press(Qt.Key.Key_PageDown) == 1.0
    assert slider.accessibleName() and "1.00 s, not live" in slider.accessibleDescription()
    assert press(Qt.Key.Key_End) is None
    assert press(Qt.Key.Key_Left) is not None and press(Qt.Key.Key_Escape) is None
    scene.window.actions_by_name["earlier"].trigger()
    scene.qtbot.waitUntil(lambda: not cursor._due.isActive())
    assert cursor.at_s is not None
    scene.window.actions_by_name["live"].trigger()
    assert cursor.at_s is None
    scene.window.actions_by_name["later"].trigger()
    assert cursor.at_s is None, "nothing is later than now"


def test_the_toolbar_says_so_and_a_new_burst_is_live(scene) -> None:
    look(scene, 1.0)
    assert "Showing 1.00 s, not live" in scene.window.toolbar.clock.text()
    scene.engine.publish(BurstStarted("run-2", "cold-12", "round-robin", 12, START_S + 2.8, ()))
    scene.settle()
    assert scene.window.time_cursor.at_s is None and "not live" not in scene.window.toolbar.clock.text()


def test_news_do_not_move_the_past(scene) -> None:
    look(scene, 0.6)
    then = slots(scene, GPU)
    later = [e for e in golden_scene(START_S + 1.0) if type(e).__name__ == "StepDone"]
    scene.engine.publish(*later)
    scene.settle()
    assert slots(scene, GPU) == then
    scene.window.time_cursor.go_live()
    assert slots(scene, GPU) != then


def test_another_engine_and_presenter_mode_are_live(scene) -> None:
    look(scene, 0.6)
    scene.window.toggle_presenter()
    assert scene.window.time_cursor.at_s is None
    scene.window.leave_presenter()
    look(scene, 0.6)
    scene.session.start()
    assert scene.window.time_cursor.at_s is None
    scene.qtbot.waitUntil(lambda: bool(scene.engines))
    scene.engine.publish(*setup_events())
    scene.settle()
    assert slots(scene, GPU) == []


def test_nothing_to_look_back_at(rig) -> None:
    rig.window.actions_by_name["earlier"].trigger()
    rig.engine.publish(EngineFailed("No."))
    rig.settle()
    assert rig.window.time_cursor.at_s is None and not rig.window.throughput.slider.isVisible()


@pytest.mark.parametrize("size", [(1280, 720), (1920, 1080)])
def test_it_fits(scene, texts, size) -> None:  # noqa: F811
    scene.window.resize(*size)
    scene.settle()
    look(scene, 1.5)
    scene.settle()
    texts.clear()
    scene.window.grab()
    assert too_wide(texts) == []
    clock = scene.window.toolbar.clock
    assert clock.sizeHint().width() <= clock.width(), "the toolbar's words are whole"
