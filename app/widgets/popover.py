"""A small frame that opens next to a button and closes when one clicks elsewhere or presses Escape."""

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtGui import QHideEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QFrame, QVBoxLayout, QWidget

from app.theme import ThemeHolder, stylesheet
from app.widgets.controls import FocusRing

RADIUS = 8


class Popover(QFrame):
    """Emits `closed` when it goes. Its content is put into `body`."""

    closed = Signal()

    def __init__(self, themes: ThemeHolder, parent: QWidget) -> None:
        super().__init__(parent, Qt.WindowType.Popup | Qt.WindowType.FramelessWindowHint)
        self.setObjectName("popover")
        self._themes = themes
        # A popup is a window of its own, so corners outside the radius must let the window through.
        self.setAttribute(Qt.WidgetAttribute.WA_TranslucentBackground)
        self.body = QVBoxLayout(self)
        self.body.setContentsMargins(16, 16, 16, 16)
        self.body.setSpacing(8)
        self.ring = FocusRing(self, themes)

    def open_at(self, anchor: QWidget, above: bool = False) -> None:
        """Show below `anchor`, or above it, kept on its screen; in the middle where it cannot be seen."""
        self.setStyleSheet(stylesheet(self._themes.current))
        self.adjustSize()
        if not anchor.isVisible():
            area = self.parentWidget().window().frameGeometry()
            self.move(area.center() - self.rect().center())
            self.show()
            return
        corner = anchor.mapToGlobal(QPoint(0, -self.height() - 8 if above else anchor.height() + 8))
        area = anchor.screen().availableGeometry()
        x = max(area.left() + 8, min(corner.x(), area.right() - self.width() - 8))
        y = max(area.top() + 8, min(corner.y(), area.bottom() - self.height() - 8))
        self.move(x, y)
        self.show()

    def paintEvent(self, _event: QPaintEvent) -> None:
        """The style sheet paints no background where the window shines through."""
        painter, theme = QPainter(self), self._themes.current
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(theme.strong)
        painter.setBrush(theme.raised)
        painter.drawRoundedRect(self.rect().toRectF().adjusted(0.5, 0.5, -0.5, -0.5), RADIUS, RADIUS)

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.closed.emit()
