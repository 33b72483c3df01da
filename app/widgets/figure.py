"""A live number with its unit: the number `lead` 600, the unit `label` muted, on one baseline."""

from PySide6.QtCore import QSize
from PySide6.QtGui import QFontMetrics, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.theme import ThemeHolder, font


class Figure(QWidget):
    """Right-aligned and as wide as `widest`, so that nothing beside it moves."""

    def __init__(
        self, themes: ThemeHolder, name: str, unit: str, widest: str, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._themes, self._name, self._unit, self._widest, self._text = themes, name, unit, widest, "n/a"
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Preferred)
        self.setAccessibleName(f"{name}: n/a")
        themes.changed.connect(self.update)

    def set_value(self, text: str | None) -> None:
        shown = text or "n/a"
        if shown != self._text:
            self._text = shown
            self.setAccessibleName(f"{self._name}: {shown} {self._unit if text else ''}".rstrip())
            self.update()

    def sizeHint(self) -> QSize:
        wide = QFontMetrics(font("lead", bold=True)).horizontalAdvance(self._widest)
        return QSize(wide + 5 + QFontMetrics(font("label")).horizontalAdvance(self._unit), 24)

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter, theme = QPainter(self), self._themes.current
        known, right = self._text != "n/a", self.width()
        big = font("lead", bold=True)
        base = (self.height() + QFontMetrics(big).capHeight()) // 2
        if known:
            painter.setFont(font("label"))
            painter.setPen(theme.muted)
            right -= painter.fontMetrics().horizontalAdvance(self._unit)
            painter.drawText(right, base, self._unit)
            right -= 5
        painter.setFont(big)
        painter.setPen(theme.text if known else theme.disabled)
        painter.drawText(right - painter.fontMetrics().horizontalAdvance(self._text), base, self._text)
