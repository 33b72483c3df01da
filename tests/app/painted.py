"""Every text that is painted, with the room it had: what shows a text that is cut."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from PySide6.QtCore import QPoint, QPointF, QRect, QRectF, Qt
from PySide6.QtGui import QFontMetricsF, QPainter
from PySide6.QtWidgets import QWidget

SLACK = 1.0  # rounding of a fractional advance


@dataclass(frozen=True, slots=True)
class Cut:
    """A text that did not fit, and by how much."""

    where: str
    text: str
    words: str

    def __str__(self) -> str:
        return f"{self.where}: {self.text!r} {self.words}"


@contextmanager
def watched_text() -> Iterator[tuple[list[str], list[Cut]]]:
    """(every text that was painted, those that were cut) while the block runs."""
    seen: list[str] = []
    cuts: list[Cut] = []
    plain = QPainter.drawText

    def draw(painter: QPainter, *arguments: object) -> object:
        text, room, flags, origin = _taken_apart(arguments)
        if text.strip():
            seen.append(text)
            cut = _cut(painter, text, room, flags, origin)
            if cut is not None:
                cuts.append(cut)
        return plain(painter, *arguments)

    QPainter.drawText = draw
    try:
        yield seen, cuts
    finally:
        QPainter.drawText = plain


def _taken_apart(arguments: tuple) -> tuple[str, QRectF | None, Qt.AlignmentFlag | int, QPointF | None]:
    """(text, room, flags, origin) from (rect, flags, text), (x, y, w, h, flags, text), (point, text) or
    (x, y, text)."""
    first = arguments[0]
    if isinstance(first, QRect | QRectF):
        tail = [a for a in arguments[1:] if isinstance(a, str)]
        flags = next((a for a in arguments[1:] if not isinstance(a, str)), 0)
        return tail[0], QRectF(first), flags, None
    if isinstance(first, QPoint | QPointF):
        return arguments[1], None, 0, QPointF(first)
    if len(arguments) == 3:
        return arguments[2], None, 0, QPointF(arguments[0], arguments[1])
    return arguments[5], QRectF(*arguments[:4]), arguments[4], None


def _cut(
    painter: QPainter, text: str, room: QRectF | None, flags: object, origin: QPointF | None
) -> Cut | None:
    metrics, device = QFontMetricsF(painter.font()), painter.device()
    where = type(device).__name__
    number = flags if isinstance(flags, int) else getattr(flags, "value", 0)
    if room is not None and number & Qt.TextFlag.TextWordWrap.value:
        needed = metrics.boundingRect(room, number, text)
        if needed.height() > room.height() + SLACK or needed.width() > room.width() + SLACK:
            return Cut(where, text, f"needs {needed.height():.0f} lines of px, has {room.height():.0f}")
        return None
    wide = max(metrics.horizontalAdvance(line) for line in text.split("\n"))
    if room is not None and wide > room.width() + SLACK:
        return Cut(where, text, f"needs {wide:.1f} px, has {room.width():.1f}")
    if not isinstance(device, QWidget):
        return None  # a picture that is placed later
    if room is not None:
        box = metrics.boundingRect(room, number, text)
        left, right = box.left(), box.left() + wide
    else:
        left, right = origin.x(), origin.x() + wide
    ends = [painter.transform().map(QPointF(x, 0)).x() for x in (left, right)]
    scale = painter.device().devicePixelRatioF() if painter.deviceTransform() == painter.transform() else 1.0
    if min(ends) < -SLACK - 1 or max(ends) / scale > device.width() + SLACK + 1:
        return Cut(where, text, f"stands at {min(ends):.0f} to {max(ends):.0f} of {device.width()} px")
    return None
