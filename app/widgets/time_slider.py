"""The handle of the time cursor, on the axis of a chart: drag it, or move it with the keys."""

from PySide6.QtCore import QLineF, QRectF, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSlider, QWidget

from app.series.words import seconds
from app.theme import ThemeHolder

HEIGHT, HANDLE = 20, (10, 16)
STEP_MS, PAGE_MS = 100, 1_000


class TimeSlider(QSlider):
    """Values are milliseconds; the largest one is now. `moved` comes from the user alone."""

    moved = Signal(int)
    left = Signal()  # Escape: back to now

    def __init__(self, themes: ThemeHolder, parent: QWidget | None = None) -> None:
        super().__init__(Qt.Orientation.Horizontal, parent)
        self._themes, self._told = themes, False
        self.setSingleStep(STEP_MS)
        self.setPageStep(PAGE_MS)
        self.setFixedHeight(HEIGHT)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setCursor(Qt.CursorShape.SizeHorCursor)
        self.setAccessibleName("Moment that is shown")
        self.setToolTip("Drag to look back; End or Esc for now")
        self.valueChanged.connect(self._changed)
        themes.changed.connect(self.update)

    def show_time(self, least: int, most: int, value: int | None) -> None:
        """`value` None = now. Tells nobody."""
        self._told = True
        self.setRange(least, max(least + 1, most))
        self.setValue(self.maximum() if value is None else value)
        self._told = False
        self.update()

    @property
    def live(self) -> bool:
        return self.value() == self.maximum()

    def _changed(self, value: int) -> None:
        words = "now" if self.live else f"{seconds(value / 1000)}, not live"
        self.setAccessibleDescription(f"Shows {words}. Left and Right move by 0.1 s, Page keys by 1 s.")
        if not self._told:
            self.moved.emit(value)

    def x_of(self, value: int) -> float:
        room = self.width() - HANDLE[0]
        return HANDLE[0] / 2 + room * (value - self.minimum()) / max(1, self.maximum() - self.minimum())

    def value_at(self, x: float) -> int:
        part = (x - HANDLE[0] / 2) / max(1, self.width() - HANDLE[0])
        return round(self.minimum() + min(1.0, max(0.0, part)) * (self.maximum() - self.minimum()))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() is Qt.MouseButton.LeftButton:
            self.setFocus(Qt.FocusReason.MouseFocusReason)
            self.setValue(self.value_at(event.position().x()))

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if event.buttons() & Qt.MouseButton.LeftButton:
            self.setValue(self.value_at(event.position().x()))

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        event.accept()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Escape:
            self.left.emit()
            return
        turned = {Qt.Key.Key_PageUp: -PAGE_MS, Qt.Key.Key_PageDown: PAGE_MS}.get(event.key())
        if turned is not None:  # Qt's own page keys go the other way in a horizontal slider
            self.setValue(self.value() + turned)
            return
        super().keyPressEvent(event)

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter, theme = QPainter(self), self._themes.current
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        wide, high = HANDLE
        box = QRectF(self.x_of(self.value()) - wide / 2, (HEIGHT - high) / 2, wide, high)
        painter.setPen(QPen(theme.muted if self.live else theme.text, 1))
        painter.setBrush(theme.control if self.live else theme.inverse)
        painter.drawRoundedRect(box.adjusted(0.5, 0.5, -0.5, -0.5), 3, 3)
        painter.setPen(QPen(theme.muted if self.live else theme.on_inverse, 1))
        for shift in (-1.5, 1.5):
            x = box.center().x() + shift
            painter.drawLine(QLineF(x, box.top() + 4, x, box.bottom() - 4))
