"""The plot of tokens per second: steps of 0.1 s, one backend on top of the other."""

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QLineF, QRectF, Qt, Signal
from PySide6.QtGui import QMouseEvent, QPainter

from app.panels.painting import CENTRE, LEFT, RIGHT, draw_text, hair, half, width_of
from app.panels.plot import Plot
from app.series.throughput import BIN_S
from app.series.words import figure, seconds
from app.theme import Theme, ThemeHolder, font


class RatePlot(Plot):
    picked = Signal(float)  # a moment on the x axis, where the mouse was pressed or dragged

    def __init__(self, themes: ThemeHolder) -> None:
        super().__init__(themes, (40, 12, 16, 71), "tok/s")
        self.caption = ""
        self.now = 0.0
        self.cursor: float | None = None  # the moment that is shown instead of now
        self.span = (0.0, 4.0)
        self._areas: dict[int, pg.PlotDataItem] = {}
        self._seams: dict[int, pg.PlotDataItem] = {}

    def recolour(self) -> None:
        theme = self.themes.current
        for rank, area in self._areas.items():
            area.setPen(pg.mkPen(theme.backend(rank).edge, width=1))
            area.setFillBrush(pg.mkBrush(theme.backend(rank).fill))
        for seam in self._seams.values():
            seam.setPen(pg.mkPen(theme.panel, width=1))

    def show_rates(
        self, rates: dict[int, np.ndarray], start: float, window: tuple[float, float], now: float
    ) -> None:
        """`rates`: rank -> tok/s per bin. The fastest lies at the bottom, the others on it."""
        self.span, self.now = window, now
        below = np.zeros(max((len(r) for r in rates.values()), default=0))
        for rank in sorted(rates):
            area, seam = self._ensure(rank)
            rate = np.pad(rates[rank], (0, len(below) - len(rates[rank])))
            x = start + BIN_S * np.arange(len(below) + 1)
            on_top = np.repeat((rate > 0) & (below > 0), 2)
            seam.setData(x=np.repeat(x, 2)[1:-1][on_top], y=np.repeat(below, 2)[on_top], connect="pairs")
            below = below + rate
            area.setData(x=x, y=below) if len(below) else area.setData(x=[0.0, 0.0], y=[0.0])
        self.set_range(*window, 1.05 * float(below.max(initial=0.0)) or 10.0)

    def _ensure(self, rank: int) -> tuple[pg.PlotDataItem, pg.PlotDataItem]:
        if rank not in self._areas:
            self._areas[rank] = pg.PlotDataItem(stepMode="center", fillLevel=0, antialias=False)
            self._seams[rank] = pg.PlotDataItem(antialias=False)
            # The sums are drawn from the top one down, so that each covers what is not its own.
            self._areas[rank].setZValue(-rank)
            self._seams[rank].setZValue(1)
            self.addItem(self._areas[rank])
            self.addItem(self._seams[rank])
            self.recolour()
        return self._areas[rank], self._seams[rank]

    def paint_over(self, painter: QPainter, plot: QRectF, theme: Theme) -> None:
        s, label = self.factor, font("label", scale=self.factor)
        left, right = self.span
        step = 1.0 if right - left <= 4 else 2.0 if right - left <= 8 else 4.0 if right - left <= 16 else 8.0
        step = 15.0 if right - left > 32 else step
        value = np.ceil(left / step - 1e-9) * step
        while value <= right + 1e-9:
            box = QRectF(self.x_of(value) - 28 * s, plot.bottom() + 8 * s, 56 * s, 16 * s)
            box.moveRight(min(box.right(), float(self.width())))
            last = value + step > right + 1e-9
            wide = width_of(figure(value) + (" s" if last else ""), label)
            if last:
                box = QRectF(
                    min(self.x_of(value) - wide / 2, self.width() - wide - 6), box.top(), wide, box.height()
                )
            draw_text(painter, box, CENTRE, figure(value) + (" s" if last else ""), label, theme.muted)
            value += step
        if not self.low:
            caption = QRectF(plot.left(), self.height() - 30 * s, plot.width(), 16 * s)
            draw_text(painter, caption, LEFT, self.caption, label, theme.muted, elide=True)
        if self.cursor is None:
            self._line(painter, plot, self.now, "now", theme)
        else:
            self._line(painter, plot, self.cursor, seconds(self.cursor), theme)

    def _line(self, painter: QPainter, plot: QRectF, moment: float, words: str, theme: Theme) -> None:
        """Across the plot at a moment: dotted for now, whole for the one that is looked at."""
        s, label = self.factor, font("label", bold=self.cursor is not None, scale=self.factor)
        x = half(self.x_of(moment))
        if not plot.left() - 1 <= x <= plot.right() + 1:
            return
        painter.setPen(hair(theme.text, 1, (2, 4) if self.cursor is None else None))
        beside = x > self.unit_rect.right() + 2 * s
        top = plot.top() if beside else max(plot.top(), self.unit_rect.bottom())
        painter.drawLine(QLineF(x, top, x, plot.bottom()))
        wide = width_of(words, label) + 1
        fits = x + 6 * s + wide <= plot.right()
        box = QRectF(x + 6 * s if fits else x - 6 * s - wide, top, wide, 16 * s)
        ink = theme.muted if self.cursor is None else theme.text
        draw_text(painter, box, LEFT if fits else RIGHT, words, label, ink, back=theme.panel)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() is Qt.MouseButton.LeftButton:
            self._pick(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if event.buttons() & Qt.MouseButton.LeftButton:
            self._pick(event)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        event.accept()

    def _pick(self, event: QMouseEvent) -> None:
        (left, right), plot = self.span, self.plot_rect()
        part = (event.position().x() - plot.left()) / plot.width()
        self.picked.emit(left + min(1.0, max(0.0, part)) * (right - left))
        event.accept()
