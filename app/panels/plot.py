"""A pyqtgraph plot without its furniture: curves and marks are its, grid, axes and words are ours.

Measured: width 1 and antialias off keep a frame of four curves of 600 points at 5 ms; width 2 with
antialias costs 524. So pens are 1 px, items are made once, and only `setData` is called afterwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyqtgraph as pg
from PySide6.QtCore import QEvent, QLineF, QRect, QRectF, QSize
from PySide6.QtGui import QColor, QFontMetricsF, QPainter, QPaintEvent, QPen, QResizeEvent
from PySide6.QtWidgets import QWidget

from app.panels.painting import LEFT, RIGHT, draw_text, hair, half, tick_text, ticks, width_of
from app.theme import Size, Theme, ThemeHolder, font
from app.widgets.marks import paint_mark

LOW_PX = 190  # a plot lower than this goes without its caption
LOW_BOTTOM = 40
GROUP_GAP = 16.0  # a piece this far from the one before begins a number of its own
SYMBOLS = {0: "o", 1: "s", 2: "t1"}  # by rank; the rest are diamonds


class Plot(pg.PlotWidget):
    """Margins in pixels around the plot; y from 0 to a round number, with its unit on the top tick."""

    _made = False

    def __init__(self, themes: ThemeHolder, margins: tuple[int, int, int, int], unit: str) -> None:
        super().__init__(background=None)
        # `factor`, because QGraphicsView.scale is taken
        self.themes, self.factor, self.unit = themes, 1.0, unit
        self.unit_rect = QRectF()  # where the unit was drawn: no other words go there
        self.margins, self.top, self.repaints = margins, 1.0, 0
        self._range: tuple[float, float, float] | None = None
        self._rect: QRectF | None = None  # asked for hundreds of times a repaint
        self.setCacheMode(self.CacheModeFlag.CacheNone)  # the background is our grid: it moves
        self.viewport().setAutoFillBackground(False)  # the panel's round corners show through
        self.setMenuEnabled(False)
        self.setMouseEnabled(False, False)
        self.hideButtons()
        self.plotItem.hideAxis("left")
        self.plotItem.hideAxis("bottom")
        self.plotItem.vb.setDefaultPadding(0)
        self.plotItem.vb.disableAutoRange()
        self.setMinimumSize(80, 60)
        self._made = True
        self._margins_changed()

    def sizeHint(self) -> QSize:
        return QSize(360, 290)

    def minimumSizeHint(self) -> QSize:
        return QSize(80, 60)

    def recolour(self) -> None:
        """Give every curve its pen and brush anew: another theme, or another screen."""

    def pen(self, colour: QColor, width: float = 1.0, dash: tuple[int, int] | None = None) -> QPen:
        """pyqtgraph counts in a screen's own pixels: what is one wide would be a hair on a fine one."""
        return pg.mkPen(colour, width=width * self.devicePixelRatioF(), dash=dash)

    def event(self, event: QEvent) -> bool:
        if self._made and event.type() is QEvent.Type.DevicePixelRatioChange:
            self.recolour()
        return super().event(event)

    def set_scale(self, scale: float) -> None:
        self.factor = scale
        self._margins_changed()

    @property
    def low(self) -> bool:
        """Too low for a caption: the plot needs the room."""
        return self.height() < LOW_PX * self.factor

    def _edges(self) -> tuple[float, float, float, float]:
        left, top, right, bottom = self.margins
        edges = (left, top, right, LOW_BOTTOM if self.low else bottom)
        return tuple(e * self.factor for e in edges)

    def _margins_changed(self) -> None:
        self._rect = None
        self.plotItem.layout.setContentsMargins(*self._edges())

    def set_range(self, left: float, right: float, highest: float) -> None:
        """x from left to right; y from 0 to the round number at or above `highest`."""
        self.top = round_top(highest)
        if self._range != (left, right, self.top):
            self._range = (left, right, self.top)
            self.plotItem.vb.setRange(xRange=(left, right), yRange=(0, self.top), padding=0)
            # Without this the view would move its curves while it paints, and then paint once more.
            self.scene().prepareForPaint()
        self.viewport().update()

    def plot_rect(self) -> QRectF:
        """Where the curves are, in px. Not to be changed by whoever asks."""
        if self._rect is None:
            left, top, right, bottom = self._edges()
            wide, high = self.width() - left - right, self.height() - top - bottom
            self._rect = QRectF(left, top, max(1.0, wide), max(1.0, high))
        return self._rect

    def x_of(self, value: float) -> float:
        (low, high), rect = self.plotItem.vb.viewRange()[0], self.plot_rect()
        return rect.left() + (value - low) / ((high - low) or 1) * rect.width()

    def y_of(self, value: float) -> float:
        rect = self.plot_rect()
        return rect.bottom() - value / self.top * rect.height()

    def steps(self) -> list[float]:
        room = int(self.plot_rect().height() / (24 * self.factor))
        return ticks(self.top, max(1, min(4, room)))

    def resizeEvent(self, event: QResizeEvent | None) -> None:
        super().resizeEvent(event)
        if self._made:  # pyqtgraph resizes once while it is being made
            self._margins_changed()
            self.viewport().update()

    def drawBackground(self, painter: QPainter, rect: QRect | QRectF) -> None:
        """Below the curves: the grid. Scene units are pixels here."""
        theme, plot = self.themes.current, self.plot_rect()
        painter.setPen(hair(theme.grid))
        for value in reversed(self.steps()):
            if value == 0:
                painter.setPen(hair(theme.strong))
            y = half(self.y_of(value))
            painter.drawLine(QLineF(plot.left(), y, plot.right(), y))

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        self.repaints += 1
        painter = QPainter(self.viewport())
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        plot = self.plot_rect()
        self._tick_labels(painter, plot, self.themes.current)
        self.paint_over(painter, plot, self.themes.current)
        painter.end()

    def _tick_labels(self, painter: QPainter, plot: QRectF, theme: Theme) -> None:
        marks = self.steps()
        step = marks[1] if len(marks) > 1 else 1.0
        label, s = font("label", scale=self.factor), self.factor
        for value in marks:
            text, y = tick_text(value, step), half(self.y_of(value))
            box = QRectF(4 * s, y - 8 * s, plot.left() - 10 * s, 16 * s)
            if value and value == marks[-1]:  # the unit follows the number, over the line if need be
                unit = QRectF(box.right() + 3 * s, box.top(), width_of(self.unit, label) + 1, box.height())
                if width_of(text, label) + unit.width() + 4 * s <= box.width():
                    unit.moveRight(box.right())
                    box.setRight(unit.left() - 4 * s)
                self.unit_rect = unit
                draw_text(painter, unit, LEFT, self.unit, label, theme.muted, back=theme.panel)
            draw_text(painter, box, RIGHT, text, label, theme.muted)

    def paint_over(self, painter: QPainter, plot: QRectF, theme: Theme) -> None:
        """Words and badges above the curves."""


def round_top(highest: float) -> float:
    """The end of the axis: the next multiple of a step of which about four make the whole."""
    if highest <= 0:
        return 1.0
    marks = ticks(highest, 4)
    step = marks[1] - marks[0] if len(marks) > 1 else highest
    whole = step * (len(marks) - 1)
    return whole if highest <= whole * (1 + 1e-9) else whole + step


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a line of numbers: a word or unit (`label`), or a figure (`lead`, 600)."""

    text: str
    figure: bool = False
    mark: int | None = None  # rank of a backend mark before it
    gap: float = 6.0  # px before it
    optional: bool = False  # left out where there is no room


class Numbers(QWidget):
    """A line of at most a few large numbers with their words, on one baseline."""

    def __init__(self, themes: ThemeHolder, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.themes, self.factor = themes, 1.0
        self.left: Sequence[Piece] = ()
        self.right: Sequence[Piece] = ()
        self.setFixedHeight(32)

    def set_scale(self, scale: float) -> None:
        self.factor = scale
        self.setFixedHeight(round(32 * scale))

    def show_pieces(self, left: Sequence[Piece], right: Sequence[Piece] = ()) -> None:
        if (left, right) != (self.left, self.right):
            self.left, self.right = left, right
            self.setAccessibleName(" ".join(p.text for p in (*left, *right)))
            self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter, theme, s = QPainter(self), self.themes.current, self.factor
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        end = self._line(painter, self.left, 16 * s - 6 * s, "lead", theme)
        size = self._width(self.right, "label")
        start = self.width() - 16 * s - size
        if start > end:  # the same figures stand in the backend headers: better none than half of them
            self._line(painter, self.right, start, "label", theme)
        painter.end()

    def _font(self, piece: Piece, size: Size):
        return font(size if piece.figure else "label", bold=piece.figure, scale=self.factor)

    def _width(self, pieces: Sequence[Piece], size: Size) -> float:
        return sum(
            (p.gap + (18 if p.mark is not None else 0)) * self.factor + width_of(p.text, self._font(p, size))
            for p in pieces
        )

    def _line(self, painter: QPainter, pieces: Sequence[Piece], x: float, size: Size, theme: Theme) -> float:
        s, baseline = self.factor, 23 * self.factor
        for index, piece in enumerate(pieces):
            room = self.width() - 8 * s - x
            if piece.optional and self._width((piece,), size) > room:
                continue
            rest = pieces[index + 1 :]
            after = next((i for i, p in enumerate(rest) if p.gap >= GROUP_GAP or p.optional), len(rest))
            if index and piece.gap >= GROUP_GAP and self._width((piece, *rest[:after]), size) > room:
                return x  # a number without its unit would be worse than none
            used = self._font(piece, size)
            metrics = QFontMetricsF(used)
            x += piece.gap * s
            if piece.mark is not None:
                paint_mark(painter, QRectF(x, baseline - 11 * s, 12 * s, 12 * s), piece.mark, theme)
                x += 18 * s
            wide = metrics.horizontalAdvance(piece.text)
            rect = QRectF(x, baseline - metrics.ascent(), max(1.0, wide), metrics.height())
            colour: QColor = theme.text if piece.figure else theme.muted
            draw_text(painter, rect, LEFT, piece.text, used, colour)
            x += wide
        return x
