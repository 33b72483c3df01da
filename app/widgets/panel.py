"""The base of every panel: a rounded frame with a title, a muted phrase and a repaint on demand."""

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QVBoxLayout, QWidget

from app.series.board import Board
from app.theme import ThemeHolder, font

PADDING = 16


class Panel(QFrame):
    """Reads the board and repaints when the window says that one of its topics changed.

    `body` is the layout below the title row, `title_row` the row itself: panels add to both.
    """

    topics: frozenset[str] = frozenset()  # what this panel shows; empty = everything
    least = QSize(160, 120)

    def __init__(self, board: Board, themes: ThemeHolder, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("panel")
        self.board, self.themes = board, themes
        self.body = QVBoxLayout(self)
        self.body.setContentsMargins(0, 0, 0, 0)
        self.body.setSpacing(0)
        themes.changed.connect(self.theme_changed)

    def add_title(self, title: str, phrase: str = "", height: int = 24, top: int = 8) -> QHBoxLayout:
        """A row with the title (body, 600) and one muted phrase. Fills `title_label` and `phrase_label`."""
        row = QWidget(self)
        row.setFixedHeight(height + top)
        self.title_row = QHBoxLayout(row)
        self.title_row.setContentsMargins(PADDING, top, PADDING, 0)
        self._title_row_widget, self._title_height = row, height + top
        self._title_margins = (PADDING, top, PADDING, 0)
        self.title_row.setSpacing(12)
        self.title_label = QLabel(title, row)
        self.title_label.setFont(font("body", bold=True))
        self.phrase_label = ElidedLabel(phrase, row)
        self.phrase_label.setFont(font("label"))
        self.phrase_label.setProperty("tone", "muted")
        self.title_row.addWidget(self.title_label)
        self.title_row.addWidget(self.phrase_label, 1)
        self.body.addWidget(row)
        return self.title_row

    def scale_title(self, scale: float) -> None:
        """Presenter mode sets the title row larger."""
        self._title_row_widget.setFixedHeight(round(self._title_height * scale))
        self.title_row.setSpacing(round(12 * scale))
        left, top, right, bottom = self._title_margins
        self.title_row.setContentsMargins(*(round(m * scale) for m in (left, top, right, bottom)))
        self.title_label.setFont(font("body", bold=True, scale=scale))
        self.phrase_label.setFont(font("label", scale=scale))

    def minimumSizeHint(self) -> QSize:
        """Not what the content asks for: it adapts to the panel, so it must not hold the panel open."""
        return self.least

    def theme_changed(self) -> None:
        """The scheme changed: painted parts drop what they cached. The style sheet is the window's."""
        self.update()

    def refresh(self, topics: set[str], now_s: float) -> None:
        """Show the board as it is now. At most 10 times a second, only while visible and dirty."""
        raise NotImplementedError


class ElidedLabel(QLabel):
    """A label that may be too long: it elides at the right and has the whole text as tooltip."""

    def __init__(self, text: str = "", parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._full = ""
        self._shorter: tuple[str, ...] = ()
        self.setMinimumWidth(0)
        self.set_full_text(text)

    def set_full_text(self, text: str, *shorter: str) -> None:
        """`shorter` say the same in fewer words, for where the text does not fit."""
        if (text, shorter) != (self._full, self._shorter):
            self._full, self._shorter = text, shorter
            self._elide()

    def full_text(self) -> str:
        return self._full

    def minimumSizeHint(self) -> QSize:
        hint = super().minimumSizeHint()
        hint.setWidth(0)
        return hint

    def sizeHint(self) -> QSize:
        hint = super().sizeHint()
        hint.setWidth(self.fontMetrics().horizontalAdvance(self._full) + 2)
        return hint

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._elide()

    def _elide(self) -> None:
        metrics, room = self.fontMetrics(), max(0, self.width())
        fits = (t for t in (self._full, *self._shorter) if metrics.horizontalAdvance(t) <= room)
        last = self._shorter[-1] if self._shorter else self._full
        shown = next(fits, None) or metrics.elidedText(last, Qt.TextElideMode.ElideRight, room)
        if shown != self.text():
            super().setText(shown)
            self.setToolTip(self._full if shown != self._full else "")
            self.setAccessibleName(self._full)
        self.updateGeometry()
