"""A result as a picture in a file: what the card shows, without its buttons."""

from pathlib import Path
from typing import Protocol

from PySide6.QtCore import QRect, QRectF, QSize
from PySide6.QtGui import QImage, QPainter
from PySide6.QtSvg import QSvgGenerator

from app.panels.painting import LEFT, RIGHT, draw_text, hair
from app.panels.result_page import EDGE
from app.theme import Theme, font

HEADER = 56  # of the card, too
PICTURE = QSize(1344, 760)
SCALE = 2  # of a PNG


class Shown(Protocol):
    """What a card needs of a result: a burst's or a comparison's."""

    @property
    def emulation(self) -> str: ...
    @property
    def stem(self) -> str: ...
    def phrases(self) -> tuple[str, ...]: ...
    def spoken(self) -> str: ...
    def markdown(self) -> str: ...
    def json(self) -> str: ...
    def paint(self, painter: QPainter, theme: Theme, rect: QRectF) -> None: ...


class ResultPicture:
    """`phrase` says what ran. The saving calls return False where nothing was written, or raise `OSError`."""

    def __init__(self, shown: Shown, phrase: str, theme: Theme) -> None:
        self.shown, self.phrase, self.theme = shown, phrase, theme

    def save_png(self, path: str) -> bool:
        image = QImage(PICTURE * SCALE, QImage.Format.Format_RGB32)
        image.setDevicePixelRatio(SCALE)
        painter = QPainter(image)
        self.draw(painter)
        painter.end()
        return image.save(path, "PNG")

    def save_svg(self, path: str) -> bool:
        Path(path).touch()  # the generator says nothing where it cannot write
        generator = QSvgGenerator()
        generator.setFileName(path)
        generator.setSize(PICTURE)
        generator.setViewBox(QRect(0, 0, PICTURE.width(), PICTURE.height()))
        generator.setTitle(f"Offramp: {self.phrase}")
        painter = QPainter()
        if not painter.begin(generator):
            return False
        self.draw(painter)
        painter.end()
        return True

    def draw(self, painter: QPainter) -> None:
        """The card without its buttons; an emulated result says so in every picture."""
        theme, wide = self.theme, PICTURE.width()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.fillRect(0, 0, wide, PICTURE.height(), theme.panel)
        bold, label = font("body", bold=True), font("label")
        head = QRectF(EDGE, 0, wide - 2 * EDGE, HEADER)
        drawn = draw_text(painter, head, LEFT, "Offramp", bold, theme.text)
        rest = head.adjusted(drawn.width() + 16, 0, -300, 0)
        draw_text(painter, rest, LEFT, self.phrase, label, theme.muted, elide=True)
        if self.shown.emulation:
            text = f"EMULATED  {self.shown.emulation}"
            box = draw_text(painter, head.adjusted(0, 0, -10, 0), RIGHT, text, label, theme.emulated)
            painter.setPen(hair(theme.emulated, 1, (3, 3)))
            painter.drawRoundedRect(box.adjusted(-9.5, -3.5, 9.5, 3.5), 4, 4)
        painter.fillRect(0, HEADER, wide, 1, theme.line)
        self.shown.paint(painter, theme, QRectF(0, HEADER, wide, PICTURE.height() - HEADER))
