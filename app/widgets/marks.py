"""The two marks that everything draws: a backend's shape, and a request's badge inside it.

Rank 0 is a circle, 1 a square, 2 a triangle, 3 and on a diamond. Filled = running, finished or chosen;
outline = waiting or not chosen; dashed = a free slot.
"""

from collections import OrderedDict

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QBrush, QColor, QPainter, QPainterPath, QPen, QPixmap, QPolygonF, QTransform

from app.theme import Theme, font

KEPT_PIXMAPS = 512
OUTLINE = 1.5
HOLLOW = 2.0

_badges: OrderedDict[tuple[object, ...], QPixmap] = OrderedDict()
_tiles: dict[tuple[object, ...], QPixmap] = {}


def mark_path(rect: QRectF, rank: int, radius: float) -> QPainterPath:
    """The outline of a rank's shape inside `rect`; `radius` rounds the square's corners."""
    path = QPainterPath()
    if rank == 0:
        path.addEllipse(rect)
    elif rank == 1:
        # A square as wide as the circle looks larger than it: 1/16 off each side evens them out.
        inset = rect.width() / 16
        path.addRoundedRect(rect.adjusted(inset, inset, -inset, -inset), radius, radius)
    else:
        middle, left, right = rect.center(), rect.left(), rect.right()
        corners = [
            QPointF(middle.x(), rect.top()),
            QPointF(right, rect.bottom()),
            QPointF(left, rect.bottom()),
        ]
        if rank > 2:
            corners = [
                QPointF(middle.x(), rect.top()),
                QPointF(right, middle.y()),
                QPointF(middle.x(), rect.bottom()),
                QPointF(left, middle.y()),
            ]
        path.addPolygon(QPolygonF(corners))
        path.closeSubpath()
    return path


def _round_pen(colour: QColor, width: float) -> QPen:
    pen = QPen(colour, width)
    pen.setJoinStyle(Qt.PenJoinStyle.RoundJoin)
    return pen


def paint_mark(painter: QPainter, rect: QRectF, rank: int, theme: Theme, hollow: bool = False) -> None:
    """A backend's mark filling `rect`; hollow for a candidate that was not chosen."""
    colours = theme.backend(rank)
    width = min(HOLLOW, rect.width() / 5) if hollow else 1.0
    inner = rect.adjusted(width / 2, width / 2, -width / 2, -width / 2)
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(_round_pen(colours.line if hollow else colours.edge, width))
    painter.setBrush(theme.panel if hollow else colours.fill)
    painter.drawPath(mark_path(inner, rank, 1.0 if rect.width() < 14 else 2.0))
    painter.restore()


def paint_badge(painter: QPainter, rect: QRectF, rank: int, text: str, state: str, theme: Theme) -> None:
    """A request's number in its backend's shape; `state` is "filled", "outline" or "dashed"."""
    dpr = painter.device().devicePixelRatioF()
    size = round(min(rect.width(), rect.height()))
    key = (rank, text, state, size, dpr, theme.name, theme.line.rgb())
    pixmap = _badges.get(key)
    if pixmap is None:
        pixmap = _badges[key] = _draw_badge(size, dpr, rank, text, state, theme)
        if len(_badges) > KEPT_PIXMAPS:
            _badges.popitem(last=False)
    painter.drawPixmap(
        QPointF(round(rect.center().x() - size / 2), round(rect.center().y() - size / 2)), pixmap
    )


def _draw_badge(size: int, dpr: float, rank: int, text: str, state: str, theme: Theme) -> QPixmap:
    pixmap = QPixmap(round(size * dpr), round(size * dpr))
    pixmap.setDevicePixelRatio(dpr)
    pixmap.fill(Qt.GlobalColor.transparent)
    colours = theme.backend(rank)
    painter = QPainter(pixmap)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    width = 1.0 if state == "filled" else OUTLINE
    pen = _round_pen({"filled": colours.edge, "outline": colours.line}.get(state, theme.strong), width)
    if state == "dashed":
        pen.setDashPattern([3 / width, 3 / width])
        pen.setCapStyle(Qt.PenCapStyle.FlatCap)
    painter.setPen(pen)
    painter.setBrush(colours.fill if state == "filled" else Qt.BrushStyle.NoBrush)
    inset = width / 2
    bounds = QRectF(inset, inset, size - width, size - width)
    painter.drawPath(mark_path(bounds, rank, 3.0))
    if text:
        scale = size / 24
        # A triangle is narrow where its middle is, so its number is smaller and sits lower.
        shrink = (0.92 if len(text) < 3 else 0.75) * (0.85 if rank >= 2 else 1.0)
        painter.setFont(font("label", bold=True, scale=scale * shrink))
        painter.setPen(theme.on_backend if state == "filled" else colours.ink)
        painter.drawText(
            bounds.translated(0, size * (0.16 if rank == 2 else 0)), Qt.AlignmentFlag.AlignCenter, text
        )
    painter.end()
    return pixmap


def hatch_brush(rank: int, theme: Theme, dpr: float = 1.0, tile: int = 6) -> QBrush:
    """Not computed now: 1.2 px lines rising to the right, in the backend's colour on its tint.

    The brush is in logical pixels: its transform undoes `dpr`.
    """
    key = (rank, theme.name, dpr, tile)
    pixmap = _tiles.get(key)
    if pixmap is None:
        colours = theme.backend(rank)
        pixmap = QPixmap(round(tile * dpr), round(tile * dpr))
        pixmap.fill(colours.tint if tile <= 6 else theme.raised)
        painter = QPainter(pixmap)
        painter.scale(pixmap.width() / tile, pixmap.height() / tile)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(colours.fill, 1.2))
        for shift in (-tile, 0, tile):  # the corners belong to the neighbouring tiles' lines
            painter.drawLine(QPointF(shift - 1, tile + 1), QPointF(shift + tile + 1, -1))
        painter.end()
        _tiles[key] = pixmap
    brush = QBrush(pixmap)
    brush.setTransform(QTransform.fromScale(tile / pixmap.width(), tile / pixmap.height()))
    return brush
