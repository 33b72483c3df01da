"""How much of the context a conversation fills: a bar and the figures."""

from PySide6.QtCore import QRect, QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.theme import ThemeHolder, font

NEARLY = 0.85


class ContextMeter(QWidget):
    """Without a figure it shows `hint` instead."""

    def __init__(self, themes: ThemeHolder, hint: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._themes, self.hint, self.used, self.most = themes, hint, 0, 0
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        themes.changed.connect(self.update)
        self.set_tokens(0, 0)

    def set_hint(self, hint: str) -> None:
        if hint != self.hint:
            self.hint = hint
            self.update()

    def set_tokens(self, used: int, most: int) -> None:
        if (used, most) == (self.used, self.most):
            return
        self.used, self.most = used, most
        known = f"{used:,} of {most:,} tokens of the context used" if used and most else self.hint
        self.setAccessibleName(known)
        self.setToolTip(f"{known}. {self.hint}" if used and most else "")
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(120, 32)

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter, theme = QPainter(self), self._themes.current
        painter.setFont(font("label"))
        metrics, room = painter.fontMetrics(), self.width()
        if not (self.used and self.most) or self.hint.startswith("Editing"):
            words = self.hint
            if metrics.horizontalAdvance(words) > room:
                words = words.partition(",")[0]
            painter.setPen(theme.text if words.startswith("Editing") else theme.muted)
            shown = metrics.elidedText(words, Qt.TextElideMode.ElideRight, room)
            painter.drawText(self.rect(), Qt.AlignmentFlag.AlignVCenter, shown)
            return
        share = min(1.0, self.used / self.most)
        figures = f"{self.used:,} of {self.most:,}"
        choices = (f"context {figures}", figures, f"{100 * share:.0f} %")
        words = next((w for w in choices if metrics.horizontalAdvance(w) <= room), "")
        painter.setPen(theme.warning if share >= NEARLY else theme.muted)
        painter.drawText(QRect(0, 4, room, 16), Qt.AlignmentFlag.AlignVCenter, words)
        bar = QRectF(0, 24, min(room, max(80, metrics.horizontalAdvance(choices[0]))), 4)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme.track)
        painter.drawRoundedRect(bar, 2, 2)
        painter.setBrush(theme.warning if share >= NEARLY else theme.muted)
        bar.setWidth(max(4.0, bar.width() * share))
        painter.drawRoundedRect(bar, 2, 2)
