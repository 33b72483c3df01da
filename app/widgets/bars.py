"""Bars of what was computed and what was not, and figures beside their words."""

from PySide6.QtCore import QRect, QRectF, Qt
from PySide6.QtGui import QBrush, QColor, QPainter, QPen

from app.theme import Size, Theme, font
from app.widgets.marks import hatch_brush

SPLIT, LEAST_SOLID = 2, 3
LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter


def draw_pair(
    painter: QPainter, area: QRect, strong: str, rest: str, theme: Theme,
    colour: QColor | None = None, size: Size = "label",
) -> None:  # fmt: skip
    """A number in 600 and its words: "94" " of 128 out"."""
    painter.setFont(font(size, bold=True))
    painter.setPen(theme.text)
    painter.drawText(area, LEFT, strong)
    room = area.adjusted(painter.fontMetrics().horizontalAdvance(strong), 0, 0, 0)
    painter.setFont(font(size))
    painter.setPen(colour or theme.muted)
    text = painter.fontMetrics().elidedText(rest, Qt.TextElideMode.ElideRight, room.width())
    painter.drawText(room, LEFT, text)


def draw_bar(painter: QPainter, area: QRect, theme: Theme, rank: int, hatched: float, solid: float) -> None:
    """A bar of `track`, first a hatched share (not computed), then a solid one (computed)."""
    box = QRectF(area)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(theme.track)
    painter.drawRoundedRect(box, 2, 2)
    end = round(box.width() * min(1.0, hatched + solid))
    split = round(box.width() * min(1.0, hatched))
    if hatched > 0 and solid > 0:  # however little was computed, it is seen, and apart from the rest
        split = min(split, end - LEAST_SOLID - SPLIT)
        painter.fillRect(QRect(area.left() + split, area.top(), SPLIT, area.height()), theme.panel)
    if hatched > 0:
        brush = hatch_brush(rank, theme, painter.device().devicePixelRatioF())
        painter.setBrushOrigin(area.topLeft())
        _segment(painter, QRect(area.left(), area.top(), split, area.height()), brush, theme, rank)
    if solid > 0:
        start = split + SPLIT if hatched > 0 else 0
        whole = QRect(area.left() + start, area.top(), max(1, end - start), area.height())
        _segment(painter, whole, theme.backend(rank).fill, theme, rank)


def _segment(painter: QPainter, area: QRect, fill: QBrush | QColor, theme: Theme, rank: int) -> None:
    painter.setBrush(fill)
    painter.setPen(QPen(theme.backend(rank).edge, 1))
    radius = min(1.5, area.width() / 3)
    painter.drawRoundedRect(QRectF(area).adjusted(0.5, 0.5, -0.5, -0.5), radius, radius)


def draw_empty_bar(painter: QPainter, area: QRect, theme: Theme, strong: bool = False) -> None:
    """Where a bar will be; `strong` where nothing else is there yet."""
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(QPen(theme.strong if strong else theme.line, 1))
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.drawRoundedRect(QRectF(area).adjusted(0.5, 0.5, -0.5, -0.5), 2, 2)
