"""A chart's SVG file as a PNG file, twice as large, through Qt. Works without a display."""

import os
import re
from pathlib import Path

SCALE = 2
FAMILIES = ("Inter", "Helvetica Neue", "Segoe UI", "DejaVu Sans")


def paint_png(source: Path, target: Path) -> None:
    """Render `source` (SVG) into `target` (PNG). Qt is imported here, so that commands start without it."""
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    from PySide6.QtCore import QByteArray
    from PySide6.QtGui import QFontDatabase, QGuiApplication, QImage, QPainter
    from PySide6.QtSvg import QSvgRenderer

    # Text needs an application; the first one made here stays for the whole process.
    global _application
    if QGuiApplication.instance() is None:
        _application = QGuiApplication([])
    # Qt's SVG takes a list of families for one name and falls back to whatever is there.
    families = QFontDatabase.families()
    family = next((f for f in FAMILIES if f in families), "sans-serif")
    text = re.sub(r'font-family="[^"]*"', f'font-family="{family}"', source.read_text("utf-8"))
    renderer = QSvgRenderer(QByteArray(text.encode()))
    if not renderer.isValid():
        raise ValueError(f"{source} is no SVG that Qt can read")
    image = QImage(renderer.defaultSize() * SCALE, QImage.Format.Format_RGB32)
    image.fill(0xFFFFFFFF)
    painter = QPainter(image)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    renderer.render(painter)
    painter.end()
    if not image.save(str(target), "PNG"):
        raise OSError(None, "the picture cannot be written", str(target))


_application: object | None = None
