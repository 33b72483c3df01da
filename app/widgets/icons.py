"""Icons from `assets/icons`: 16 px, 1.5 px stroke, drawn in whatever colour the text has."""

from functools import lru_cache
from pathlib import Path

from PySide6.QtCore import QByteArray, QRectF, Qt
from PySide6.QtGui import QColor, QIcon, QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer

FOLDER = Path(__file__).resolve().parents[2] / "assets" / "icons"
SCALES = (1.0, 2.0)  # QIcon picks the nearest; 2 serves every fractional scale


@lru_cache(maxsize=64)
def _source(name: str) -> str:
    return (FOLDER / f"{name}.svg").read_text(encoding="utf-8")


def pixmap(name: str, colour: QColor, size: int = 16, dpr: float = 1.0) -> QPixmap:
    """The icon as a pixmap of `size` logical pixels."""
    return _drawn(name, colour.name(), size, dpr)


@lru_cache(maxsize=256)
def _drawn(name: str, colour: str, size: int, dpr: float) -> QPixmap:
    out = QPixmap(round(size * dpr), round(size * dpr))
    out.setDevicePixelRatio(dpr)
    out.fill(Qt.GlobalColor.transparent)
    data = _source(name).replace("currentColor", colour)
    painter = QPainter(out)
    QSvgRenderer(QByteArray(data.encode())).render(painter, QRectF(0, 0, size, size))
    painter.end()
    return out


def icon(name: str, colour: QColor, disabled: QColor | None = None, gap: int = 0) -> QIcon:
    """A `QIcon` with its disabled colour, for both pixel densities; `gap` keeps a text after it away."""
    out = QIcon()
    for dpr in SCALES:
        for mode, ink in ((QIcon.Mode.Normal, colour), (QIcon.Mode.Disabled, disabled or colour)):
            out.addPixmap(_padded(pixmap(name, ink, 16, dpr), gap, dpr), mode)
    return out


def _padded(drawn: QPixmap, gap: int, dpr: float) -> QPixmap:
    out = QPixmap(round((16 + gap) * dpr), drawn.height())
    out.setDevicePixelRatio(dpr)
    out.fill(Qt.GlobalColor.transparent)
    painter = QPainter(out)
    painter.drawPixmap(0, 0, drawn)
    painter.end()
    return out
