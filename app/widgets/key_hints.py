"""Which keys work here, as small keycaps with words."""

from collections.abc import Callable

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QFontMetricsF, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QWidget

from app.theme import ThemeHolder, font

Hint = tuple[tuple[str, ...], str]  # keys, words
SPOKEN = {"←": "Left", "→": "Right", "Esc": "Escape"}


class KeyHints(QWidget):
    def __init__(self, themes: ThemeHolder, hints: tuple[Hint, ...], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._themes, self._hints, self._scale = themes, hints, 1.0
        self.setAccessibleName(
            ". ".join(f"{' or '.join(SPOKEN.get(k, k) for k in keys)}: {words}" for keys, words in hints)
        )
        self.set_scale(1.0)
        themes.changed.connect(self.update)

    def set_scale(self, scale: float) -> None:
        self._scale = scale
        self.setFixedSize(QSize(round(self._lay(lambda *_: None)) + 2, round(32 * scale)))

    def _lay(self, paint: Callable[[QRectF, str, bool], None]) -> float:
        s, metrics, x = self._scale, QFontMetricsF(font("label", scale=self._scale)), 0.0
        for keys, words in self._hints:
            for key in keys:
                wide = max(26 * s, metrics.horizontalAdvance(key) + 13 * s)
                paint(QRectF(x, 6 * s, wide, 20 * s), key, True)
                x += wide + 8 * s
            wide = metrics.horizontalAdvance(words) + 2
            paint(QRectF(x, 8 * s, wide, 16 * s), words, False)
            x += wide + 24 * s
        return x - 24 * s

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter, theme = QPainter(self), self._themes.current
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(font("label", scale=self._scale))

        def paint(rect: QRectF, text: str, key: bool) -> None:
            if key:
                painter.setPen(QPen(theme.strong, 1))
                painter.drawRoundedRect(rect.adjusted(0.5, 0.5, -0.5, -0.5), 4, 4)
            painter.setPen(theme.text if key else theme.muted)
            centre, left = Qt.AlignmentFlag.AlignCenter, Qt.AlignmentFlag.AlignVCenter
            painter.drawText(rect.adjusted(-2, 0, 2, 0) if key else rect, centre if key else left, text)

        self._lay(paint)
        painter.end()
