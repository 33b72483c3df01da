"""The plot of times to first token: a mark per request, the waiting ones on a dotted stem."""

import pyqtgraph as pg
from PySide6.QtCore import QEvent, QRectF
from PySide6.QtGui import QHelpEvent, QPainter, QResizeEvent
from PySide6.QtWidgets import QGraphicsItem, QToolTip

from app.panels.painting import CENTRE, LEFT, Places, draw_text, width_of
from app.panels.plot import SYMBOLS, Plot, round_top
from app.series.board import RequestRow
from app.series.percentiles import MIN_FOR_P95, MIN_FOR_P99, percentile
from app.series.rows import ttft_s
from app.series.words import figure, seconds
from app.theme import Theme, ThemeHolder, font
from app.widgets.marks import paint_badge, paint_mark
from engine.request import RequestState

BADGES_UP_TO = 16
QUANTILES = ((50, MIN_FOR_P95), (95, MIN_FOR_P95), (99, MIN_FOR_P99))  # percentile, requests it takes


class TtftPlot(Plot):
    def __init__(self, themes: ThemeHolder) -> None:
        super().__init__(themes, (48, 12, 16, 71), "s")
        # A mark near zero must not be cut in half by the axis.
        self.plotItem.vb.setFlag(QGraphicsItem.GraphicsItemFlag.ItemClipsChildrenToShape, False)
        self.rows: list[RequestRow] = []
        self.ranks: dict[str, int] = {}
        self.labels: dict[str, str] = {}
        self.now_s = 0.0
        self.slots = 1
        self._items: dict[tuple[int, bool], pg.ScatterPlotItem] = {}
        self._drawn: dict[tuple[int, bool], tuple[list, float]] = {}
        self._stems: dict[int, pg.PlotDataItem] = {}
        self._lines = [pg.InfiniteLine(angle=0) for _ in range(3)]
        for line in self._lines:
            line.hide()
            self.addItem(line)
        self.recolour()

    def recolour(self) -> None:
        theme = self.themes.current
        for line in self._lines:
            line.setPen(self.pen(theme.muted, width=1, dash=(3, 3)))
        for (rank, hollow), item in self._items.items():
            colours = theme.backend(rank)
            item.setPen(self.pen(colours.line if hollow else colours.edge, width=1.5 if hollow else 1))
            item.setBrush(pg.mkBrush(theme.panel if hollow else colours.fill))
        for rank, stem in self._stems.items():
            stem.setPen(self.pen(theme.backend(rank).line, width=1, dash=(2, 4)))

    def show_rows(
        self, rows: list[RequestRow], slots: int, ranks: dict[str, int], labels: dict[str, str], now_s: float
    ) -> None:
        self.rows, self.slots, self.ranks, self.labels, self.now_s = rows, max(2, slots), ranks, labels, now_s
        for rank in {ranks.get(r.backend or "", 3) for r in rows}:
            self._ensure(rank)
        values = [v for r in rows if (v := self.height_of(r)) is not None]
        self.top = round_top(1.05 * max(values, default=1.0))  # where a mark rests depends on it
        few = self.slots <= BADGES_UP_TO
        for (rank, hollow), item in self._items.items():
            points = [
                (i, self.height_of(r))
                for i, r in enumerate(rows)
                if self.ranks.get(r.backend or "", 3) == rank and waiting(r) == hollow
            ]
            points = [(i, self.resting(v)) for i, v in points if v is not None]
            # Giving a scatter its points makes every spot anew: only when one has moved.
            drawn = (points, self.mark_px(hollow))
            if self._drawn.get((rank, hollow)) == drawn:
                continue
            self._drawn[rank, hollow] = drawn
            item.setData(x=[p[0] for p in points], y=[p[1] for p in points], size=self.mark_px(hollow))
            if hollow:
                ends = [e for x, y in points for e in ((x, 0.0), (x, y))]
                self._stems[rank].setData(x=[e[0] for e in ends], y=[e[1] for e in ends])
        known = [v for r in rows if (v := ttft_s(r)) is not None]
        for line, (q, least) in zip(self._lines, QUANTILES, strict=True):
            level = percentile(known, q)
            line.setVisible(level is not None and len(known) >= least)
            if level is not None:
                line.setValue(level)
        pad = 0.4 if few else 0.6 + self.slots / 100
        self.set_range(-pad, self.slots - 1 + pad, 1.05 * max(values, default=1.0))

    def resizeEvent(self, event: QResizeEvent | None) -> None:
        super().resizeEvent(event)
        if self._made and self.rows:
            self.show_rows(self.rows, self.slots, self.ranks, self.labels, self.now_s)

    def _ensure(self, rank: int) -> None:
        if rank in self._stems:
            return
        self._stems[rank] = pg.PlotDataItem(connect="pairs", antialias=False)
        self.addItem(self._stems[rank])
        for hollow in (False, True):
            item = pg.ScatterPlotItem(symbol=SYMBOLS.get(rank, "d"), pxMode=True, antialias=True)
            self._items[rank, hollow] = item
            self.addItem(item)
        self.recolour()

    def mark_px(self, hollow: bool) -> float:
        few = self.slots <= BADGES_UP_TO
        large = 9.0 if self.low else 12.0
        return (large if few else 7.0 if self.slots <= 64 else 4.0) * self.factor

    def resting(self, value: float) -> float:
        """Where its mark is drawn: one near zero stands on the axis instead of lying across it."""
        least_px = self.mark_px(False) / 2 + 1.5
        return max(value, least_px * self.top / self.plot_rect().height())

    def height_of(self, row: RequestRow) -> float | None:
        return max(0.0, self.now_s - row.arrival_s) if waiting(row) else ttft_s(row)

    def paint_over(self, painter: QPainter, plot: QRectF, theme: Theme) -> None:
        s, label = self.factor, font("label", scale=self.factor)
        gap = self.x_of(1) - self.x_of(0)
        badges = self.slots <= BADGES_UP_TO and gap >= 25 * s
        for index, row in enumerate(self.rows):
            x, rank = self.x_of(index), self.ranks.get(row.backend or "", 3)
            if badges:
                state = "outline" if waiting(row) else "filled"
                rect = QRectF(x - 12 * s, plot.bottom() + 8 * s, 24 * s, 24 * s)
                paint_badge(painter, rect, rank, str(row.number), state, theme)
                continue
            side = max(3.0, min(8 * s, gap - 1))
            rect = QRectF(x - side / 2, plot.bottom() + 12 * s - side / 2, side, side)
            paint_mark(painter, rect, rank, theme, hollow=waiting(row))
            every = 8 * max(1, self.slots // 32)
            if index == 0 or row.number % every == 0:
                box = QRectF(x - 20 * s, plot.bottom() + 20 * s, 40 * s, 16 * s)
                draw_text(painter, box, CENTRE, str(row.number), label, theme.muted)
        if not self.low:
            caption = QRectF(plot.left(), self.height() - 30 * s, plot.width(), 16 * s)
            draw_text(painter, caption, LEFT, "Request", label, theme.muted)
        places = Places(QRectF(plot.left() - 16 * s, 0, plot.width() + 28 * s, plot.bottom()))
        places.block(self.unit_rect)
        self._waiting_words(painter, plot, places, theme)
        self._percentile_words(painter, plot, places, theme)
        if badges:
            self._values(painter, places, theme)

    def _values(self, painter: QPainter, places: Places, theme: Theme) -> None:
        s, label = self.factor, font("label", scale=self.factor)
        for index, row in enumerate(self.rows):
            value = ttft_s(row)
            if value is None:
                continue
            text, x, y = figure(value, 2), self.x_of(index), self.y_of(self.resting(value))
            wide = width_of(text, label) + 1
            offers = (QRectF(x - wide / 2, y - up * s, wide, 16 * s) for up in (26, 42, -10))
            place = places.take(offers)
            if place is not None:
                ink = theme.backend(self.ranks.get(row.backend or "", 3)).ink
                draw_text(painter, place, LEFT, text, label, ink, back=theme.panel)

    def _waiting_words(self, painter: QPainter, plot: QRectF, places: Places, theme: Theme) -> None:
        """`3 still waiting, 2.6 s` above the marks that still climb; below them where they are at the top."""
        found = [(i, r) for i, r in enumerate(self.rows) if waiting(r)]
        if not found:
            return
        s, label = self.factor, font("label", scale=self.factor)
        longest = max(self.now_s - r.arrival_s for _, r in found)
        text = f"{len(found)} still waiting, {seconds(longest, 1)}"
        wide = width_of(text, label) + 2
        centre = (self.x_of(found[0][0]) + self.x_of(found[-1][0])) / 2
        left = min(max(plot.left(), centre - wide / 2), plot.right() - wide)
        highest, shortest = self.y_of(self.resting(longest)), min(self.now_s - r.arrival_s for _, r in found)
        fits = highest - self.mark_px(True) / 2 >= 18 * s
        y = max(0.0, highest - 28 * s) if fits else self.y_of(self.resting(shortest)) + 12 * s
        rect = QRectF(left, min(y, plot.bottom() - 18 * s), wide, 16 * s)
        if rect.intersects(self.unit_rect):
            rect.moveLeft(self.unit_rect.right() + 4 * s)
        places.block(rect)
        ranks = {self.ranks.get(r.backend or "", 3) for _, r in found}
        ink = theme.backend(ranks.pop()).ink if len(ranks) == 1 else theme.text
        draw_text(painter, rect, LEFT, text, label, ink, back=theme.panel)

    def _percentile_words(self, painter: QPainter, plot: QRectF, places: Places, theme: Theme) -> None:
        s, label = self.factor, font("label", scale=self.factor)
        for line, (q, _) in zip(self._lines, QUANTILES, strict=True):
            if not line.isVisible():
                continue
            wide, y = width_of(f"p{q}", label) + 1, self.y_of(line.value())
            left = plot.left() + 4 * s  # the first requests waited least: room above their marks
            place = places.take(QRectF(left, y + up * s, wide, 16 * s) for up in (-18, 2))
            if place is not None:
                draw_text(painter, place, LEFT, f"p{q}", label, theme.muted, back=theme.panel)

    def event(self, event: QEvent) -> bool:
        if event.type() is QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            index = min(range(len(self.rows)), key=lambda i: abs(self.x_of(i) - event.pos().x()), default=-1)
            if index >= 0:
                QToolTip.showText(event.globalPos(), self.describe(self.rows[index]), self)
            return True
        return super().event(event)

    def describe(self, row: RequestRow) -> str:
        name = self.labels.get(row.backend or "", row.backend or "not routed")
        if waiting(row):
            return f"Request {row.number}, {name}: waits {seconds(self.now_s - row.arrival_s)}"
        return f"Request {row.number}, {name}: first token after {seconds(ttft_s(row))}"


def waiting(row: RequestRow) -> bool:
    return row.first_token_s is None and row.state is not RequestState.FINISHED
