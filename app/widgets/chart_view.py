"""Charts of a report, one at a time: its SVG files, in the colours of the window."""

import re
from pathlib import Path

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QPainter, QPaintEvent, QPen
from PySide6.QtSvg import QSvgRenderer
from PySide6.QtWidgets import QWidget

from app.chart_colours import in_theme
from app.chart_png import renderer_of
from app.theme import ThemeHolder, font

_TITLE = re.compile(r"<title>([^<]*)</title>")


class ChartView(QWidget):
    """Left and Right go through the charts. Without one it says `hint`."""

    moved = Signal()

    def __init__(self, themes: ThemeHolder, hint: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._themes, self._hint = themes, hint
        self._charts: list[tuple[str, str]] = []  # title and SVG, in the colours of the file
        self._renderer: QSvgRenderer | None = None  # of the chart that is shown
        self.index = 0
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMinimumHeight(240)
        themes.changed.connect(self._draw)
        self._tell()

    @property
    def count(self) -> int:
        return len(self._charts)

    def sizeHint(self) -> QSize:
        return QSize(920, 518)

    def set_hint(self, hint: str) -> None:
        self._hint = hint
        self._tell()

    def show_charts(self, paths: tuple[Path, ...]) -> None:
        """Files that cannot be read are left out."""
        self._charts = []
        for path in paths:
            try:
                text = path.read_text("utf-8")
            except OSError:
                continue
            if renderer_of(text) is not None:
                found = _TITLE.search(text)
                self._charts.append((found[1] if found else path.stem, text))
        self.index = 0
        self._tell()

    def step(self, by: int) -> None:
        if 0 <= self.index + by < self.count:
            self.index += by
            self._tell()

    def _tell(self) -> None:
        words = self._charts[self.index][0] if self._charts else self._hint
        place = f"Chart {self.index + 1} of {self.count}: " if self._charts else ""
        self.setAccessibleName(f"{place}{words}")
        self.moved.emit()
        self._draw()

    def _draw(self) -> None:
        self._renderer = None
        if self._charts:
            self._renderer = renderer_of(in_theme(self._charts[self.index][1], self._themes.current))
        self.update()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        steps = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}
        if event.key() in steps:
            self.step(steps[event.key()])
        else:
            super().keyPressEvent(event)

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter, theme = QPainter(self), self._themes.current
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        area = QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5)
        renderer = self._renderer
        if renderer is None:
            painter.setPen(QPen(theme.line, 1))
            painter.setBrush(theme.panel)
            painter.drawRoundedRect(area, 8, 8)
            painter.setFont(font("body"))
            painter.setPen(theme.muted)
            flags = Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap
            painter.drawText(area.adjusted(48, 16, -48, -16), flags, self._hint)
            return
        size = renderer.defaultSize()
        scale = min(area.width() / size.width(), area.height() / size.height())
        width, height = size.width() * scale, size.height() * scale
        place = QRectF((self.width() - width) / 2, (self.height() - height) / 2, width, height)
        renderer.render(painter, place)
        painter.setPen(QPen(theme.line, 1))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRect(place)
