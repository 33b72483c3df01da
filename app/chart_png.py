"""A chart's SVG file as a PNG file, twice as large, through Qt. Works without a display."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PySide6.QtSvg import QSvgRenderer

SCALE = 2
FAMILIES = ("Inter", "Helvetica Neue", "Segoe UI", "DejaVu Sans")


def paint_png(source: Path, target: Path) -> None:
    """Render `source` (SVG) into `target` (PNG). Qt is imported here, so that commands start without it."""
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    from PySide6.QtGui import QGuiApplication, QImage, QPainter

    # Text needs an application; the first one made here stays for the whole process.
    global _application
    if QGuiApplication.instance() is None:
        _application = QGuiApplication([])
    renderer = renderer_of(source.read_text("utf-8"))
    if renderer is None:
        raise ValueError(f"{source} is no SVG that Qt can read")
    image = QImage(renderer.defaultSize() * SCALE, QImage.Format.Format_RGB32)
    image.fill(0xFFFFFFFF)
    painter = QPainter(image)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    renderer.render(painter)
    painter.end()
    if not image.save(str(target), "PNG"):
        raise OSError(None, "the picture cannot be written", str(target))


def renderer_of(text: str) -> "QSvgRenderer | None":
    """What draws a chart with a font that is there; None where the text is no SVG."""
    from PySide6.QtCore import QByteArray
    from PySide6.QtGui import QFontDatabase
    from PySide6.QtSvg import QSvgRenderer

    # Qt's SVG takes a list of families for one name and falls back to whatever is there.
    families = QFontDatabase.families()
    family = next((f for f in FAMILIES if f in families), "sans-serif")
    text = re.sub(r'font-family="[^"]*"', f'font-family="{family}"', text)
    renderer = QSvgRenderer(QByteArray(text.encode()))
    return renderer if renderer.isValid() else None


_application: object | None = None
