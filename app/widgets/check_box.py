"""A check box whose frame is seen in both themes, ticked or not."""

from PySide6.QtCore import QPoint, QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QCheckBox, QWidget

from app.theme import ThemeHolder, font
from app.widgets.icons import pixmap

BOX, GAP, ROW = 18, 9, 24


class CheckBox(QCheckBox):
    def __init__(self, themes: ThemeHolder, text: str, parent: QWidget | None = None) -> None:
        super().__init__(text, parent)
        self._themes = themes
        self.setFont(font("label"))
        self.setAccessibleName(text)
        themes.changed.connect(self.update)

    def sizeHint(self) -> QSize:
        return QSize(BOX + GAP + self.fontMetrics().horizontalAdvance(self.text()) + 4, ROW)

    def hitButton(self, at: QPoint) -> bool:
        return self.rect().contains(at)  # the words count as well

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter, theme = QPainter(self), self._themes.current
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        box = QRectF(0.5, (self.height() - BOX) / 2 + 0.5, BOX - 1, BOX - 1)
        on, usable = self.isChecked(), self.isEnabled()
        fill = theme.hover if self.underMouse() and usable else theme.control
        edge = theme.focus if self.hasFocus() else theme.muted if usable else theme.line
        painter.setPen(QPen(edge, 2 if self.hasFocus() else 1))
        painter.setBrush(theme.inverse if on and usable else fill)
        painter.drawRoundedRect(box, 4, 4)
        if on:
            ink = theme.on_inverse if usable else theme.disabled
            tick = pixmap("check", ink, 16, self.devicePixelRatioF())
            painter.drawPixmap(1, (self.height() - 16) // 2, tick)
        painter.setFont(self.font())
        painter.setPen(theme.text if usable else theme.disabled)
        words = self.rect().adjusted(BOX + GAP, 0, 0, 0)
        painter.drawText(words, Qt.AlignmentFlag.AlignVCenter, self.text())
