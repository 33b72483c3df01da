"""The routing, latency and throughput panels: what they say, that they fit, and when they repaint."""

from collections.abc import Iterator
from dataclasses import replace

import bursts
import pytest
from fake_engine import CPU, GPU, golden_receipts
from PySide6.QtCore import QEvent, QLineF, QPoint, QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPixmap
from PySide6.QtWidgets import QApplication, QWidget

from app.panels import painting
from app.panels.latency import TtftPanel
from app.panels.painting import Places, crosses, ticks, wrap_spans
from app.panels.plot import round_top
from app.panels.receipt import ReceiptSheet
from app.panels.requests import RequestsPanel
from app.panels.routing import RoutingPanel
from app.panels.throughput import ThroughputPanel
from app.panels.ttft_plot import waiting
from app.series.board import Board
from app.series.decision import Span
from app.theme import ThemeHolder, font, stylesheet
from engine.events import BackendState, BackendStatus, BurstDone, RequestArrived, RequestRouted
from engine.receipt import Candidate, Receipt
from engine.request import BackendName, RequestId

SCENES = {
    "golden": (bursts.golden, 2.8),
    "long": (bursts.long_burst, 20.0),
    "single": (bursts.single, 0.45),
    "nothing": (bursts.nothing, 0.0),
}
SIZES = {
    RoutingPanel: [(752, 368), (470, 224), (300, 180), (1200, 600)],
    TtftPanel: [(376, 368), (230, 224), (160, 140)],
    ThroughputPanel: [(368, 368), (230, 224), (160, 140)],
    RequestsPanel: [(1904, 264), (1264, 208), (600, 160)],
}
ALL = set(RoutingPanel.topics | TtftPanel.topics | RequestsPanel.topics)


@pytest.fixture
def texts() -> Iterator[list[tuple[str, QRectF, QRectF]]]:
    """Every text that the painters lay out while the test runs."""
    seen: list[tuple[str, QRectF, QRectF]] = []
    painting.watch = lambda text, filled, room: seen.append((text, QRectF(filled), QRectF(room)))
    yield seen
    painting.watch = None


_kept: list[QWidget] = []


@pytest.fixture(autouse=True)
def keep_panels() -> Iterator[None]:
    """Panels outlive their test: one that only the window system knows may be collected mid-paint."""
    yield
    for panel in _kept:
        panel.hide()
        panel.deleteLater()
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    _kept.clear()


def shown(qtbot, panel, size=None, now_s=2.8):
    _kept.append(panel)
    panel.setStyleSheet(stylesheet(panel.themes.current))
    if size:
        panel.resize(*size)
    panel.show()
    panel.refresh(ALL, bursts.START_S + now_s)
    QApplication.processEvents()  # a panel that was empty lays out its plot only now
    panel.grab()
    return panel


def too_wide(seen) -> list[str]:
    return [f"{t!r}: {f.width():.1f} in {r.width():.1f}" for t, f, r in seen if f.width() > r.width() + 1.5]


@pytest.mark.parametrize("mode", ["dark", "light"])
@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize(("kind", "size"), [(k, s) for k, sizes in SIZES.items() for s in sizes])
def test_no_text_is_wider_than_its_place(qtbot, texts, kind, size, scene, mode):
    make, now_s = SCENES[scene]
    shown(qtbot, kind(make(), ThemeHolder(mode)), size, now_s)
    assert too_wide(texts) == []


@pytest.mark.parametrize("scale", [1.0, 1.6])
def test_no_text_of_a_chart_lies_on_another(qtbot, texts, scale):
    panel = RoutingPanel(bursts.golden(), ThemeHolder("dark"))
    panel.set_scale(scale)
    shown(qtbot, panel, (round(752 * scale), round(368 * scale)))
    texts.clear()
    panel.chart.redraw()
    panel.chart.grab()
    assert {t for t, _, _ in texts} >= {"The lines cross", "3.027", "CPU 3.118 s", "3 s", "0"}
    clashes = [
        (a[0], b[0])
        for i, a in enumerate(texts)
        for b in texts[i + 1 :]
        if a[1].adjusted(1, 2, -1, -2).intersects(b[1].adjusted(1, 2, -1, -2))
    ]
    assert clashes == []
    assert too_wide(texts) == []


def test_the_decision_is_told(qtbot, texts):
    panel = shown(qtbot, RoutingPanel(bursts.golden(), ThemeHolder("dark")), (752, 368))
    words = [t for t, _, _ in texts]
    assert "Request 8" in words and "CPU" in words
    assert panel.summary().startswith("Request 8 → CPU. Scores: ")
    assert "7 to the GPU" in panel.summary()
    assert panel.phrase_label.full_text().endswith("the lower score wins")


def test_the_chart_is_painted_on_arrival_only(qtbot):
    board = bursts.golden()
    panel = shown(qtbot, RoutingPanel(board, ThemeHolder("dark")), (752, 368))
    painted = panel.chart.repaints
    for i in range(50):
        panel.refresh({"requests", "backends"}, bursts.START_S + 3 + i / 10)
        panel.chart.grab()
    assert panel.chart.repaints == painted
    receipt = golden_receipts(bursts.START_S)[7]
    late = replace(receipt, request_id=RequestId(900), time_s=bursts.START_S + 3)
    board.apply(
        [RequestArrived(RequestId(900), 9, "run-1", 516, 128, bursts.START_S + 3), RequestRouted(late)]
    )
    panel.refresh({"routing"}, bursts.START_S + 3)
    panel.chart.grab()
    assert panel.chart.repaints == painted + 1


def test_a_thousand_requests_stay_cheap(qtbot):
    board = bursts.long_burst(1_000, now_s=60.0)
    for kind in (RoutingPanel, TtftPanel, RequestsPanel):
        panel = shown(qtbot, kind(board, ThemeHolder("dark")), SIZES[kind][0], 60.0)
        if kind is RoutingPanel:
            assert len(panel.chart.picture.points) == 200
            before = panel.chart.repaints
            panel.refresh(ALL, bursts.START_S + 60.1)
            panel.chart.grab()
            assert panel.chart.repaints == before
        elif kind is TtftPanel:
            assert len(panel.plot.rows) == 200
        else:
            assert panel.model.rowCount() == 1_000


def test_clicks_and_keys_ask_for_the_nearest_receipt(qtbot):
    panel = shown(qtbot, RoutingPanel(bursts.golden(), ThemeHolder("dark")), (752, 368))
    chart = panel.chart
    with qtbot.waitSignal(panel.receipt_requested) as asked:
        qtbot.mouseClick(chart, Qt.MouseButton.LeftButton, pos=QPoint(round(chart._xs[2]) + 9, 40))
    assert asked.args == [102]
    with qtbot.waitSignal(panel.receipt_requested) as asked:
        panel.decision_line.button.click()
    assert asked.args == [107]
    qtbot.keyClick(chart, Qt.Key.Key_Left)
    with qtbot.waitSignal(panel.receipt_requested) as asked:
        qtbot.keyClick(chart, Qt.Key.Key_Return)
    assert asked.args == [106]
    assert chart.describe(6).splitlines() == [
        "Request 7 → GPU", "GPU 3.027 s", "CPU 3.118 s", "Click for the receipt",
    ]  # fmt: skip


def unscored() -> Board:
    board = bursts.nothing()
    none = tuple(Candidate(name, None, None, 0, 0, 0, 24, 64, 0, 0, 0, 0, None, None) for name in (CPU, GPU))
    for i in range(3):
        request_id = RequestId(i + 1)
        board.apply(
            [
                RequestArrived(request_id, i + 1, None, 24, 64, bursts.START_S + i),
                RequestRouted(Receipt(request_id, "round-robin", "", CPU, "Its turn.", bursts.START_S, none)),
            ]
        )
    return board


def test_what_has_no_score_is_not_drawn_as_zero(qtbot, texts):
    panel = shown(qtbot, RoutingPanel(unscored(), ThemeHolder("light")), (752, 368))
    words = " ".join(t for t, _, _ in texts)
    assert "not calibrated" in words
    assert "0.00" not in words and " 0 s" not in words
    assert panel.phrase_label.full_text() == "no scores: the backends are not calibrated"
    shown(qtbot, TtftPanel(unscored(), ThemeHolder("light")), (376, 368))
    sheet = ReceiptSheet(unscored(), ThemeHolder("light"))
    _kept.append(sheet)
    sheet.resize(760, 1024)
    sheet.show_request(1)
    sheet.grab()
    assert too_wide(texts) == []


def test_the_axis_shrinks_only_when_the_burst_ends(qtbot):
    board = bursts.golden()
    panel = shown(qtbot, RoutingPanel(board, ThemeHolder("dark")), (752, 368))
    top = panel.chart._y_top()
    assert top == pytest.approx(1.05 * 3.444, abs=1e-3)
    panel.chart._top = 9.0
    assert panel.chart._y_top() == 9.0
    board.apply([BurstDone("run-1", False, {})])
    panel.refresh({"run"}, bursts.START_S + 12)
    assert panel.chart._y_top() == pytest.approx(top)


def test_times_to_first_token(qtbot, texts):
    panel = shown(qtbot, TtftPanel(bursts.golden(), ThemeHolder("dark")), (376, 368))
    words = [t for t, _, _ in texts]
    assert "3 still waiting, 2.6 s" in words
    assert ", the maximum" in words
    assert panel.phrase_label.full_text() == "5 of 8 requests"
    assert "p95 0.34 s, the maximum" in panel.accessibleDescription()
    assert not any(line.isVisible() for line in panel.plot._lines)


@pytest.mark.parametrize("size", SIZES[TtftPanel][:2])
def test_how_many_wait_never_covers_a_mark_that_waits(qtbot, texts, size):
    panel = shown(qtbot, TtftPanel(bursts.golden(), ThemeHolder("dark")), size)
    plot, seen = panel.plot, 0
    for tenths in range(4, 60):
        texts.clear()
        panel.refresh(ALL, bursts.START_S + tenths / 10)
        panel.grab()
        words = [filled for text, filled, _ in texts if "still waiting" in text]
        marks = [
            QRectF(
                plot.x_of(i) - half, plot.y_of(plot.resting(plot.height_of(row))) - half, 2 * half, 2 * half
            )
            for i, row in enumerate(plot.rows)
            if waiting(row) and (half := plot.mark_px(True) / 2)
        ]
        for rect in words:
            seen += 1
            assert not any(rect.intersects(mark) for mark in marks), f"at {tenths / 10} s"
    assert seen > 20


@pytest.mark.parametrize("panel", [TtftPanel, ThroughputPanel])
@pytest.mark.parametrize("scene", ["golden", "single"])
@pytest.mark.parametrize("size", [(376, 368), (230, 224)])
def test_no_word_of_a_chart_lies_over_another(qtbot, texts, panel, scene, size):
    board = SCENES[scene][0]()
    chart = shown(qtbot, panel(board, ThemeHolder("dark")), size)
    first = next(iter(board.requests.values()))
    for tenths in range(1, 60):
        if scene == "single":  # its mark passes every height below the top of the axis
            first.first_token_s = first.arrival_s + tenths / 50
        chart.refresh(ALL, bursts.START_S + tenths / 10)
        texts.clear()
        chart.plot.grab()
        words = [(text, filled.adjusted(0, 3, 0, -3)) for text, filled, _ in texts if text]
        over = [
            f"{a} over {b}" for i, (a, one) in enumerate(words) for b, two in words[:i] if one.intersects(two)
        ]
        assert not over, f"at {tenths / 10} s: {over}"


def test_marks_and_stems_are_as_wide_on_a_fine_screen(qtbot, monkeypatch):
    chart = shown(qtbot, TtftPanel(bursts.golden(), ThemeHolder("dark")), (376, 368))

    def widths() -> list[float]:
        plot = chart.plot
        pens = [item.opts["pen"] for item in (*plot._items.values(), *plot._stems.values())]
        return [pen.widthF() for pen in (*pens, *(line.pen for line in plot._lines))]

    before = widths()
    monkeypatch.setattr(type(chart.plot), "devicePixelRatioF", lambda _self: 2.0)
    QApplication.sendEvent(chart.plot, QEvent(QEvent.Type.DevicePixelRatioChange))
    assert len(before) > 3 and widths() == [2 * width for width in before]


def test_percentiles_become_lines_at_twenty(qtbot, texts):
    panel = shown(qtbot, TtftPanel(bursts.long_burst(), ThemeHolder("dark")), (376, 368), 20.0)
    assert [line.isVisible() for line in panel.plot._lines] == [True, True, False]
    words = [t for t, _, _ in texts]
    assert ", the maximum" not in words
    assert {"p50", "p95"} <= set(words)


def test_tokens_per_second(qtbot, texts):
    panel = shown(qtbot, ThroughputPanel(bursts.golden(), ThemeHolder("dark")), (368, 368))
    words = [t for t, _, _ in texts]
    assert {"tok/s", "150", "4 s", "now", "Seconds since the burst began"} <= set(words)
    assert float(panel.numbers.left[0].text) == pytest.approx(130.3, abs=0.5)
    area = panel.plot._areas[0]
    assert area.opts["stepMode"] == "center" and area.opts["antialias"] is False
    assert panel.plot._areas[0] is area  # made once
    panel.refresh(ALL, bursts.START_S + 2.9)
    assert panel.plot._areas[0] is area


def test_a_third_backend_is_drawn_too(qtbot, texts):
    board = bursts.golden()
    info = board.backends["cpu"].info
    third = replace(info, name=BackendName("cpu2"), label="CPU 2", rank=2)
    board.apply([BackendStatus(third, BackendState.READY)])
    receipt = golden_receipts(bursts.START_S)[7]
    extra = Candidate("cpu2", 5.0, 5.0, 1, 0, 0, 20, 128, 0, 60, 0, 0, 40.0, 22.0)
    for i in range(6):
        board.apply(
            [
                RequestArrived(RequestId(900 + i), 9 + i, "run-1", 516, 128, bursts.START_S + 1),
                RequestRouted(
                    Receipt(RequestId(900 + i), "isolated-rates", "s", CPU, "Lowest.", bursts.START_S + 1,
                            (*receipt.candidates, extra))
                ),
            ]
        )  # fmt: skip
    shown(qtbot, RoutingPanel(board, ThemeHolder("dark")), (752, 368))
    sheet = ReceiptSheet(board, ThemeHolder("dark"))
    _kept.append(sheet)
    sheet.resize(760, 1024)
    sheet.show_request(905)
    sheet.grab()
    assert "CPU 2 5.000 s" in [t for t, _, _ in texts]
    assert too_wide(texts) == []


def test_themes_change_in_place(qtbot):
    themes = ThemeHolder("dark")
    for kind in SIZES:
        panel = shown(qtbot, kind(bursts.golden(), themes), SIZES[kind][0])
        dark = panel.grab().toImage().pixelColor(panel.width() // 2, panel.height() // 2 + 20)
        themes.set_mode("light")
        panel.setStyleSheet(stylesheet(themes.current))
        panel.refresh(ALL, bursts.START_S + 2.8)
        light = panel.grab().toImage().pixelColor(panel.width() // 2, panel.height() // 2 + 20)
        assert kind is ThroughputPanel or light.lightness() != dark.lightness()
        themes.set_mode("dark")


def test_helpers():
    assert ticks(3.6) == [0, 1, 2, 3]
    assert ticks(0.3) == pytest.approx([0, 0.1, 0.2, 0.3])
    assert ticks(7, 4, whole=True) == [0, 2, 4, 6]
    assert round_top(2.73) == 3 and round_top(137) == 150 and round_top(0) == 1
    box = QRectF(10, 10, 10, 10)
    assert crosses(box, QLineF(0, 0, 30, 30)) and not crosses(box, QLineF(0, 0, 30, 5))
    places = Places(QRectF(0, 0, 100, 100))
    places.block_line(QPointF(0, 50), QPointF(100, 50))
    assert places.take([QRectF(0, 45, 10, 10), QRectF(0, 60, 10, 10)]) == QRectF(0, 60, 10, 10)
    assert places.take([QRectF(0, 60, 10, 10), QRectF(95, 0, 10, 10)]) is None


def test_a_figure_keeps_its_unit(qtbot):
    lines = wrap_spans((Span("It needs "), Span("3.1 s", "cpu"), Span(" or 9.5 % more.")), font("body"), 80)
    assert all(not "".join(s.text for s in line).lstrip().startswith(("s ", "%")) for line in lines)


def test_text_reports_what_it_fills(qtbot, texts):
    canvas = QPixmap(200, 40)
    painter = QPainter(canvas)
    rect, used, red = QRectF(0, 0, 20, 20), font("label"), QColor("red")
    for elide in (False, True):
        painting.draw_text(painter, rect, painting.LEFT, "much too long", used, red, elide)
    painter.end()
    assert len(too_wide(texts)) == 1
