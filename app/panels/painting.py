"""What all painted panels share: text that reports when it does not fit, free places, scales, ghosts."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from PySide6.QtCore import QLineF, QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFont, QFontMetricsF, QPainter, QPen

from app.series.decision import Span
from app.theme import Theme, font

LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
CENTRE = Qt.AlignmentFlag.AlignCenter

# Tests set this to learn of every text: (text, the rectangle it fills, the rectangle it was given).
watch: Callable[[str, QRectF, QRectF], None] | None = None


def width_of(text: str, text_font: QFont) -> float:
    return QFontMetricsF(text_font).horizontalAdvance(text)


def draw_text(
    painter: QPainter,
    rect: QRectF,
    flags: Qt.AlignmentFlag,
    text: str,
    text_font: QFont,
    colour: QColor,
    elide: bool = False,
    back: QColor | None = None,
) -> QRectF:
    """Draw one line inside `rect` and return what it fills. `back` hides a grid line behind it."""
    metrics = QFontMetricsF(text_font)
    if elide:
        text = metrics.elidedText(text, Qt.TextElideMode.ElideRight, rect.width() + 0.5)
    wide, high = metrics.horizontalAdvance(text), metrics.height()
    left = rect.left()
    if flags & Qt.AlignmentFlag.AlignRight:
        left = rect.right() - wide
    elif flags & Qt.AlignmentFlag.AlignHCenter:
        left = rect.center().x() - wide / 2
    filled = QRectF(left, rect.center().y() - high / 2, wide, high)
    if watch is not None and text:
        watch(text, filled, rect)
    if back is not None:
        painter.fillRect(filled.adjusted(-2, 0, 2, 0), back)
    painter.setFont(text_font)
    painter.setPen(colour)
    # The rectangle is a little wider than the text, since rounding must not make Qt clip a letter.
    painter.drawText(filled.adjusted(-1, 0, 3, 0).translated(1, 0), LEFT, text)
    return filled


def wrap(text: str, text_font: QFont, width: float) -> list[str]:
    """Greedy lines of whole words."""
    return ["".join(s.text for s in line).rstrip() for line in wrap_spans((Span(text),), text_font, width)]


def wrap_spans(spans: Iterable[Span], text_font: QFont, width: float) -> list[list[Span]]:
    """Break a sentence into lines; a figure and its unit ("3.4 s") stay together."""
    bold = QFont(text_font)
    bold.setWeight(QFont.Weight.DemiBold)
    lines: list[list[Span]] = [[]]
    used = 0.0
    for span in spans:
        # A figure is never broken, and the muted afterthought goes to the next line as a whole.
        whole = span.backend or (span.muted and width_of(span.text, text_font) < width)
        pieces = [span.text] if whole else _words(span.text)
        for piece in pieces:
            advance = width_of(piece.rstrip(), bold if span.backend else text_font)
            if used and used + advance > width and piece.strip(" .,;"):
                lines.append([])
                used, piece = 0.0, piece.lstrip()
            lines[-1].append(Span(piece, span.backend, span.muted))
            used += width_of(piece, bold if span.backend else text_font)
    for line in lines:
        if line:  # the space at which a line was broken takes no room
            line[-1] = replace(line[-1], text=line[-1].text.rstrip())
    return lines


def _words(text: str) -> list[str]:
    """Words with the space after them; a number keeps the unit that follows."""
    words = [w for w in text.replace(" ", " \0").split("\0") if w]
    out: list[str] = []
    for word in words:
        unit = word.strip(" .,") in ("s", "%", "ms", "tok/s")
        if out and unit and out[-1].rstrip()[-1:].isdigit():
            out[-1] += word
        else:
            out.append(word)
    return out


def draw_spans(
    painter: QPainter,
    rect: QRectF,
    spans: Iterable[Span],
    text_font: QFont,
    theme: Theme,
    ranks: Mapping[str, int],
) -> None:
    """One line of a sentence, each backend's figures in its own ink."""
    bold = QFont(text_font)
    bold.setWeight(QFont.Weight.DemiBold)
    x = rect.left()
    for span in spans:
        used, colour = text_font, theme.muted if span.muted else theme.text
        if span.backend:
            used, colour = bold, theme.backend(ranks.get(span.backend, 3)).ink
        wide = width_of(span.text, used)
        room = QRectF(x, rect.top(), max(1.0, min(wide, rect.right() - x)), rect.height())
        draw_text(painter, room, LEFT, span.text, used, colour)
        x += wide


class Places:
    """Where text may go: keeps what has been drawn and takes the first offer that touches none of it."""

    def __init__(self, bounds: QRectF) -> None:
        self.bounds = bounds
        self._rects: list[QRectF] = []
        self._lines: list[QLineF] = []

    def block(self, rect: QRectF) -> None:
        self._rects.append(rect)

    def block_line(self, start: QPointF, end: QPointF) -> None:
        self._lines.append(QLineF(start, end))

    def free(self, rect: QRectF) -> bool:
        return (
            self.bounds.contains(rect)
            and not any(rect.intersects(r) for r in self._rects)
            and not any(crosses(rect, line) for line in self._lines)
        )

    def clear_line(self, line: QLineF) -> bool:
        return not any(crosses(r, line) for r in self._rects)

    def take(self, offers: Iterable[QRectF]) -> QRectF | None:
        for rect in offers:
            if self.free(rect):
                self.block(rect)
                return rect
        return None


def crosses(rect: QRectF, line: QLineF) -> bool:
    """Whether a segment touches a rectangle (clipping the segment side by side)."""
    near, far = 0.0, 1.0
    dx, dy = line.dx(), line.dy()
    for delta, low, high in (
        (dx, rect.left() - line.x1(), rect.right() - line.x1()),
        (dy, rect.top() - line.y1(), rect.bottom() - line.y1()),
    ):
        if delta == 0:
            if low > 0 or high < 0:
                return False
            continue
        first, last = sorted((low / delta, high / delta))
        near, far = max(near, first), min(far, last)
        if near > far:
            return False
    return True


def ticks(top: float, most: int = 4, whole: bool = False) -> list[float]:
    """Round values from 0 to at most `top`: 1, 2 or 5 times a power of ten apart."""
    if top <= 0:
        return [0.0]
    power = 10.0 ** math.floor(math.log10(top))
    steps = [m * power / 100 for m in (1, 2, 5, 10, 20, 50, 100, 200, 500)]
    step = next(s for s in steps if top / s <= most and (not whole or s >= 1))
    return [step * i for i in range(math.floor(top / step + 1e-9) + 1)]


def tick_text(value: float, step: float) -> str:
    decimals = max(0, math.ceil(-math.log10(step) - 1e-9)) if step > 0 else 0
    return f"{value:,.{decimals}f}" if value else "0"


def hair(colour: QColor, width: float = 1.0, dash: Sequence[float] | None = None) -> QPen:
    """A pen with square ends, which a dash needs to keep its length. `dash` is in pixels."""
    pen = QPen(colour, width)
    pen.setCapStyle(Qt.PenCapStyle.FlatCap)
    if dash:
        pen.setDashPattern([d / width for d in dash])
    return pen


def draw_tag(
    painter: QPainter, at: QPointF, text: str, text_font: QFont, colour: QColor, right: bool
) -> QRectF:
    """A word in a dashed box beside a line whose top is `at`, which is the box's left or `right` end."""
    wide = width_of(text, text_font) + 17
    box = QRectF(at.x() - (wide if right else 0), at.y() - 3, wide, 22)
    draw_text(painter, box, CENTRE, text, text_font, colour)
    painter.setPen(hair(colour, 1, (3, 3)))
    painter.setBrush(QColor(0, 0, 0, 0))
    painter.drawRoundedRect(box.adjusted(0.5, 0.5, -0.5, -0.5), 4, 4)
    return box


def half(value: float) -> float:
    """The middle of the nearest pixel: where a 1 px line is sharp."""
    return math.floor(value) + 0.5


def draw_sentence(painter: QPainter, rect: QRectF, text: str, theme: Theme, scale: float = 1.0) -> float:
    """Muted text over as many lines as it needs; returns the y below it."""
    used, line = font("label", scale=scale), 16 * scale
    y = rect.top()
    for words in wrap(text, used, rect.width()):
        draw_text(painter, QRectF(rect.left(), y, rect.width(), line), LEFT, words, used, theme.muted, True)
        y += line
    return y


def ghost_height(room: float, scale: float) -> float:
    """How high the ghost of a chart is where `room` is left: never lost at the bottom of a large panel."""
    return min(room, max(180 * scale, 0.75 * room))
