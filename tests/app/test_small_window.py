"""At 1280x720 everything has less room: nothing may be cut, left out or laid over something else."""

import pytest
from bursts import golden, long_burst
from fake_engine import golden_scene
from PySide6.QtCore import Qt

from app.panels.requests import ROW, RequestsPanel
from app.panels.ttft_plot import TtftPlot
from app.theme import ThemeHolder
from app.widgets.queue import FLAT, TALL, Chip, QueueView


@pytest.mark.parametrize("height", range(136, 136 + ROW, 5))
def test_the_table_shows_whole_rows_and_follows_the_newest(qtbot, height) -> None:
    board = long_burst()
    panel = RequestsPanel(board, ThemeHolder("dark"))
    qtbot.addWidget(panel)
    panel.resize(900, height)
    panel.show()
    panel.refresh(set(panel.topics), 1_020.0)
    table, last = panel.table, panel.proxy.rowCount() - 1
    for high in (height, height + 130, height - 20):  # it stays at the end when it is resized
        panel.resize(900, high)
        qtbot.wait(1)  # layouts are done by the event loop
        view = table.viewport().rect()
        assert view.height() % ROW == 0 or table.verticalScrollBar().maximum() == 0
        first = table.indexAt(view.topLeft())
        assert table.visualRect(first).top() == 0, "no sliver of a row under the header"
        assert table.visualRect(panel.proxy.index(last, 0)).bottom() <= view.bottom()


def test_who_has_scrolled_up_stays_there(qtbot) -> None:
    board = long_burst()
    panel = RequestsPanel(board, ThemeHolder("dark"))
    qtbot.addWidget(panel)
    panel.resize(900, 200)
    panel.show()
    panel.refresh(set(panel.topics), 1_020.0)
    panel.table.verticalScrollBar().setValue(3)
    panel.resize(900, 260)
    panel.refresh(set(panel.topics), 1_021.0)
    assert panel.table.verticalScrollBar().value() == 3


@pytest.mark.parametrize("height", [FLAT, TALL])
def test_a_chip_tells_the_cached_tokens_at_any_height(qtbot, height) -> None:
    view = QueueView(ThemeHolder("dark"))
    qtbot.addWidget(view)
    view.setFixedHeight(height)
    view.resize(300, height)

    def picture(cached: int, stale: bool = False):
        view.set_chips([Chip("5", 2.6, 516, cached, stale)], 0)
        return view.grab().toImage()

    shown = picture(496)
    assert picture(480) != shown and picture(496, stale=True) != shown and picture(496) == shown


@pytest.mark.parametrize("size", [(228, 130), (376, 290)])
def test_marks_near_zero_stand_on_the_axis(qtbot, size) -> None:
    board = golden()
    plot = TtftPlot(ThemeHolder("dark"))
    qtbot.addWidget(plot)
    plot.show_rows(board.run_rows(), 8, board.ranks(), board.labels(), 1_002.8)
    plot.resize(*size)  # the layout comes after the first figures
    plot.show()
    zero, half = plot.y_of(0.0), plot.mark_px(False) / 2
    drawn = [y for points, _size in plot._drawn.values() for _x, y in points]
    assert len(drawn) == 8
    for value in drawn:
        assert plot.y_of(value) + half < zero, "a mark lies across the zero line"
    true = [plot.height_of(row) for row in board.run_rows()]
    assert max(drawn) == pytest.approx(max(true)), "only those near zero are lifted"


def test_the_window_keeps_the_newest_row_in_both_sizes(rig) -> None:
    rig.window.resize(1280, 720)
    rig.engine.publish(*golden_scene())
    rig.settle()
    table = rig.window.requests.table
    for size in ((1280, 720), (1920, 1080), (1280, 720)):
        rig.window.resize(*size)
        rig.settle()
        last = rig.window.requests.proxy.index(7, 0)
        assert table.viewport().rect().contains(table.visualRect(last))
    table.setFocus()
    assert table.focusPolicy() & Qt.FocusPolicy.TabFocus
