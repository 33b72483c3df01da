"""Small things that say something: labels with a tone, a backend's mark, the ghost of its slots."""

from PySide6.QtCore import QRectF
from PySide6.QtGui import QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QFrame, QLabel, QVBoxLayout, QWidget

from app.theme import Size, ThemeHolder, font
from app.widgets.marks import paint_badge, paint_mark


def make_label(text: str = "", size: Size = "label", bold: bool = False, tone: str = "") -> QLabel:
    label = QLabel(text)
    label.setFont(font(size, bold=bold))
    label.setProperty("tone", tone)
    return label


def titled_column(sheet: QWidget, title: str, intro: str = "") -> QVBoxLayout:
    """The column of a dialog: its edges, its title, and a muted paragraph below that."""
    column = QVBoxLayout(sheet)
    column.setContentsMargins(32, 24, 32, 24)
    column.setSpacing(12)
    column.addWidget(make_label(title, "lead", bold=True))
    if intro:
        words = make_label(intro, tone="muted")
        words.setWordWrap(True)
        column.addWidget(words)
    return column


def make_separator() -> QFrame:
    """A hairline across a column."""
    line = QFrame()
    line.setObjectName("separator")
    line.setFixedHeight(1)
    return line


def set_tone(label: QLabel, tone: str) -> None:
    if label.property("tone") != tone:
        label.setProperty("tone", tone)
        label.style().unpolish(label)
        label.style().polish(label)


class MarkLabel(QWidget):
    """A backend's mark as a widget."""

    def __init__(self, themes: ThemeHolder, size: int, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._themes, self._rank = themes, 0
        self.setFixedSize(size, size)
        themes.changed.connect(self.update)

    def set_rank(self, rank: int) -> None:
        if rank != self._rank:
            self._rank = rank
            self.update()

    def paintEvent(self, _event: QPaintEvent) -> None:
        paint_mark(QPainter(self), QRectF(self.rect()), self._rank, self._themes.current)


class SlotsGhost(QWidget):
    """What will be here: dashed badges and empty bars."""

    def __init__(self, themes: ThemeHolder, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._themes, self.rank = themes, 0
        self.setFixedSize(160, 128)

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter, theme = QPainter(self), self._themes.current
        for row in range(4):
            paint_badge(painter, QRectF(0, row * 32, 22, 22), self.rank, "", "dashed", theme)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(QPen(theme.strong, 1))
            painter.drawRoundedRect(QRectF(40.5, row * 32 + 7.5, 111, 7), 2, 2)
