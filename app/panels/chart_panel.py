"""What the charts beside routing share: title, a line of numbers, a plot, and a ghost while it is empty."""

from collections.abc import Callable

from PySide6.QtCore import QLineF, QRectF
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QWidget

from app.panels.painting import LEFT, draw_text, hair, half
from app.panels.plot import Numbers
from app.panels.rate_plot import RatePlot
from app.panels.ttft_plot import TtftPlot
from app.series.board import Board
from app.theme import Theme, ThemeHolder, font
from app.widgets.panel import Panel

Draw = Callable[[QPainter, QRectF, Theme, float], None]


class ChartPanel(Panel):
    """Title, a line of numbers, a plot; instead of both a ghost while there is nothing to show."""

    topics = frozenset({"requests", "backends", "run"})
    title = ""
    with_numbers = True

    def __init__(
        self, board: Board, themes: ThemeHolder, plot: TtftPlot | RatePlot, parent: QWidget | None = None
    ) -> None:
        super().__init__(board, themes, parent)
        self.add_title(self.title)
        self.setAccessibleName(self.title)
        self.numbers = Numbers(themes, self)
        self.plot = plot
        self.body.addWidget(self.numbers)
        self.body.addWidget(plot, 1)
        self.ghost = Ghost(themes, self.paint_ghost, self)
        self.body.addWidget(self.ghost, 1)
        self._show_empty(True)

    def _show_empty(self, empty: bool) -> None:
        self.plot.setHidden(empty)
        self.numbers.setHidden(empty or not self.with_numbers)
        self.ghost.setHidden(not empty)

    def set_scale(self, scale: float) -> None:
        self.scale_title(scale)
        self.numbers.set_scale(scale)
        self.plot.set_scale(scale)
        self.ghost.scale = scale

    def theme_changed(self) -> None:
        super().theme_changed()
        self.plot.recolour()
        for part in (self.numbers, self.ghost, self.plot.viewport()):
            part.update()

    def paint_ghost(self, painter: QPainter, rect: QRectF, theme: Theme, scale: float) -> None:
        raise NotImplementedError


class Ghost(QWidget):
    def __init__(self, themes: ThemeHolder, draw: Draw, parent: QWidget) -> None:
        super().__init__(parent)
        self.themes, self.scale, self._draw = themes, 1.0, draw

    def paintEvent(self, event) -> None:
        painter, s = QPainter(self), self.scale
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        rect = QRectF(self.rect()).adjusted(16 * s, 0, -16 * s, -14 * s)
        self._draw(painter, rect, self.themes.current, s)
        painter.end()


def ghost_axis(painter: QPainter, rect: QRectF, caption: str, theme: Theme, s: float) -> float:
    """Zero line and caption of an empty chart; returns the y of the line."""
    zero = rect.bottom() - 24 * s
    painter.setPen(hair(theme.strong))
    painter.drawLine(QLineF(rect.left(), half(zero), rect.right(), half(zero)))
    box = QRectF(rect.left(), zero + 6 * s, rect.width(), 16 * s)
    draw_text(painter, box, LEFT, caption, font("label", scale=s), theme.muted)
    return zero
