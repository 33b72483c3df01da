"""Time to first token per request."""

from PySide6.QtCore import QLineF, QRectF
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QWidget

from app.panels.chart_panel import ChartPanel, ghost_axis
from app.panels.painting import draw_sentence, ghost_height, hair, half
from app.panels.plot import Piece
from app.panels.ttft_plot import QUANTILES, TtftPlot, waiting
from app.series.arrivals import TYPED
from app.series.board import Board
from app.series.percentiles import MIN_FOR_P95, MIN_FOR_P99, percentile
from app.series.rows import ttft_s
from app.series.words import figure, seconds
from app.theme import Theme, ThemeHolder
from app.widgets.marks import mark_path

MOST = 200  # requests drawn
TYPED_SLOTS = 8
EMPTY_TTFT = "One dot per request, by backend, with p50 and p95. Send a prompt to see the first."


class TtftPanel(ChartPanel):
    """One mark per request at its time to first token; the waiting ones climb."""

    title = "Time to first token"

    def __init__(
        self, board: Board, themes: ThemeHolder, parent: QWidget | None = None, numbers: bool = True
    ) -> None:
        self.with_numbers = numbers
        super().__init__(board, themes, TtftPlot(themes), parent)

    def refresh(self, topics: set[str], now_s: float) -> None:
        rows = self.board.shown_rows()
        typed = bool(rows) and rows[-1].run_id is None
        rows = rows[-(TYPED if typed else MOST) :]
        self._show_empty(not rows)
        if not rows:
            self.phrase_label.set_full_text("")
            return
        expected = TYPED_SLOTS if typed or self.board.run is None else self.board.run.started.count
        slots = max(len(rows), min(expected, MOST))
        self.plot.show_rows(rows, slots, self.board.ranks(), self.board.labels(), now_s)
        known = [v for r in rows if (v := ttft_s(r)) is not None]
        total = len(rows) if typed else max(len(rows), expected if expected <= MOST else 0)
        share = f"{figure(len(known))} of {figure(total)}"
        self.phrase_label.set_full_text(f"{share} requests", share)
        p50, p95, p99 = (percentile(known, q) for q, _ in QUANTILES)
        pieces = [Piece("p50"), Piece(figure(p50, 2), True), Piece("s"), Piece("p95", gap=16)]
        pieces += [Piece(figure(p95, 2), True)]
        few = 0 < len(known) < MIN_FOR_P95
        pieces += [Piece("s"), *([Piece(", the maximum", gap=0, optional=True)] if few else [])]
        if len(known) >= MIN_FOR_P99:
            pieces += [Piece("p99", gap=16), Piece(figure(p99, 2), True), Piece("s")]
        self.numbers.show_pieces(tuple(pieces))
        self.setAccessibleDescription(
            f"Time to first token of {len(known)} of {total} requests: p50 {seconds(p50)}, p95 {seconds(p95)}"
            f"{', the maximum' if few else ''}; {sum(map(waiting, rows))} still waiting."
        )

    def paint_ghost(self, painter: QPainter, rect: QRectF, theme: Theme, scale: float) -> None:
        s = scale
        below = draw_sentence(painter, rect, EMPTY_TTFT, theme, s)
        zero = ghost_axis(painter, rect, "Request", theme, s)
        high = ghost_height(zero - below - 16 * s, s)
        if high < 24 * s:
            return
        step = (rect.width() - 24 * s) / 7
        for index, part in enumerate((0.08, 0.12, 0.16, 0.2, 0.98, 0.95, 0.92, 0.35)):
            x, y = rect.left() + 12 * s + step * index, zero - part * high
            painter.setPen(hair(theme.strong, 1, (2, 4)))
            if part > 0.5:
                painter.drawLine(QLineF(half(x), y, half(x), zero))
            painter.setPen(hair(theme.strong))
            painter.setBrush(theme.panel)
            box = QRectF(x - 4 * s, y - 4 * s, 8 * s, 8 * s)
            painter.drawPath(mark_path(box, 1 if index == 7 else 0, 1.0))
