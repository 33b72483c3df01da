"""The routing chart: one line per backend, a pair of marks per arrival, the chosen one filled.

Painted into a pixmap when a request arrives, not on a timer: at 48 requests that costs about a
millisecond, and nothing at all between arrivals.
"""

from PySide6.QtCore import QEvent, QLineF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QHelpEvent, QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPixmap
from PySide6.QtWidgets import QToolTip, QWidget

from app.panels.painting import (
    CENTRE,
    LEFT,
    RIGHT,
    draw_sentence,
    draw_text,
    hair,
    half,
    tick_text,
    ticks,
    width_of,
)
from app.panels.score_plot import BADGES_UP_TO, Picture, Plotted, ghost
from app.series.arrivals import own_scores, unit
from app.series.words import figure, seconds
from app.theme import Theme, ThemeHolder, font
from app.widgets.marks import paint_badge, paint_mark

TYPED_SLOTS = 8  # a first typed prompt stands at the left of as many places
UNSCORED = "No scores: the backends are not calibrated. The axis shows where each request went."


class ScoreChart(QWidget):
    clicked = Signal(int)  # request id

    def __init__(self, themes: ThemeHolder, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.themes, self.scale = themes, 1.0
        self.picture = Picture()
        self.repaints = 0
        self._pixmap: QPixmap | None = None
        self._top = 0.0
        self._xs: list[float] = []
        self._hover = -1
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setAccessibleName("Routing chart")

    def sizeHint(self) -> QSize:
        return QSize(752, 268)

    def minimumSizeHint(self) -> QSize:
        return QSize(200, 90)

    def show_picture(self, picture: Picture) -> None:
        if picture == self.picture:
            return
        if picture.run_id != self.picture.run_id or picture.over != self.picture.over:
            self._top = 0.0
        self.picture = picture
        self._hover = -1
        self.redraw()

    def redraw(self) -> None:
        self._pixmap = None
        self.update()

    # Geometry, in logical pixels times the scale of presenter mode

    def _layout(self) -> tuple[QRectF, float, float]:
        """The plot (from zero line to top), and the x of the first and the last place."""
        s, picture = self.scale, self.picture
        label = font("label", scale=s)
        top = self._y_top()
        marks = ticks(top, 4, self._unit() != "s")
        step = marks[1] if len(marks) > 1 else 1.0
        texts = [tick_text(m, step) for m in marks[:-1]] + [self._top_text(marks[-1], step)]
        left = 16 * s + max(width_of(t, label) for t in texts) + 8 * s
        right = self.width() - 16 * s - self._right_label_width()
        bottom = self.height() - (40 if self._low() else 69 if self._badges() else 72) * s
        plot = QRectF(left, 14 * s, max(10.0, right - left), max(10.0, bottom - 14 * s))
        inset = min(20 * s, plot.width() / 6)
        last = plot.right() - (15 * s if picture.points else 0)
        return plot, plot.left() + inset, max(plot.left() + inset + 1, last)

    def _low(self) -> bool:
        """Too low for the caption: the plot needs the room."""
        return self.height() < 170 * self.scale

    def _right_label_width(self) -> float:
        if not self.picture.points or not self.picture.points[-1].scores:
            return 0.0
        bold = font("body", bold=True, scale=self.scale)
        return 8 * self.scale + max(width_of(t, bold) for t in self._pair_texts().values())

    def _pair_texts(self) -> dict[str, str]:
        last = self.picture.points[-1]
        in_s = self._unit() == "s"
        return {
            name: f"{self.picture.labels.get(name, name)} {seconds(v, 3) if in_s else figure(v)}"
            for name, v in last.scores.items()
        }

    def _unit(self) -> str:
        return unit(self.picture.points[-1].receipt) if self.picture.points else "s"

    def _top_text(self, value: float, step: float) -> str:
        return tick_text(value, step) + {"s": " s", "requests": " req", "": ""}.get(
            self._unit(), f" {self._unit()}"
        )

    def _y_top(self) -> float:
        highest = max((v for p in self.picture.points for v in p.scores.values()), default=0.0)
        self._top = max(self._top, 1.05 * highest)
        return self._top or 1.0

    def _slots(self) -> int:
        count = len(self.picture.points)
        return max(count, min(self.picture.expected, 200) if self.picture.run_id else TYPED_SLOTS, 2)

    def _badges(self) -> bool:
        room = (self.width() - 200 * self.scale) / max(1, self._slots() - 1)
        return self._slots() <= BADGES_UP_TO and room >= 26 * self.scale

    # Painting

    def paintEvent(self, event: QPaintEvent) -> None:
        dpr = self.devicePixelRatioF()
        if self._pixmap is None or self._pixmap.size() != self.size() * dpr:
            self._pixmap = QPixmap(self.size() * dpr)
            self._pixmap.setDevicePixelRatio(dpr)
            self._pixmap.fill(Qt.GlobalColor.transparent)  # the panel's round corners show through
            painter = QPainter(self._pixmap)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            self._draw(painter)
            painter.end()
            self.repaints += 1
        painter = QPainter(self)
        painter.drawPixmap(0, 0, self._pixmap)
        if 0 <= self._hover < len(self._xs):
            x = half(self._xs[self._hover])
            painter.setPen(hair(self.themes.current.muted, 1, (2, 4)))
            painter.drawLine(QLineF(x, 8, x, self.height() - 30 * self.scale))
        painter.end()

    def _draw(self, painter: QPainter) -> None:
        theme = self.themes.current
        self._xs = []
        if not self.picture.points:
            ghost(painter, QRectF(self.rect()), theme, self.scale)
            return
        plot, first, last = self._layout()
        slots = self._slots()
        self._xs = [first + (last - first) * i / (slots - 1) for i in range(len(self.picture.points))]
        self._axis(painter, plot, theme)
        if not any(p.scores for p in self.picture.points):
            rect = QRectF(plot.left(), plot.center().y() - 16, plot.width(), 48)
            draw_sentence(painter, rect, UNSCORED, theme, self.scale)
            return
        bounds = QRectF(plot.left(), 0, self.width() - plot.left(), plot.bottom())
        Plotted(painter, plot, self._xs, self._y_top(), self.picture, theme, self.scale, bounds).draw(
            self._pair_texts() if self.picture.points[-1].scores else {}
        )

    def _axis(self, painter: QPainter, plot: QRectF, theme: Theme) -> None:
        s, top = self.scale, self._y_top()
        label = font("label", scale=s)
        scored = any(p.scores for p in self.picture.points)
        most = max(1, min(4, int(plot.height() / (24 * s))))
        marks = ticks(top, most, self._unit() != "s") if scored else [0.0]
        step = marks[1] if len(marks) > 1 else 1.0
        for value in marks:
            y = half(plot.bottom() - value / top * plot.height())
            painter.setPen(hair(theme.strong if value == 0 else theme.grid))
            painter.drawLine(QLineF(plot.left(), y, plot.right(), y))
            if not scored:
                continue
            text = self._top_text(value, step) if value == marks[-1] else tick_text(value, step)
            draw_text(
                painter,
                QRectF(8 * s, y - 8 * s, plot.left() - 16 * s, 16 * s),
                RIGHT, text, label, theme.muted,
            )  # fmt: skip
        for index, (x, point) in enumerate(zip(self._xs, self.picture.points, strict=True)):
            rank = self.picture.ranks.get(point.chosen, 3)
            if self._badges():
                side = 24 * s
                rect = QRectF(x - side / 2, plot.bottom() + 8 * s, side, side)
                paint_badge(painter, rect, rank, str(point.number), "filled", theme)
                continue
            gap = self._xs[1] - self._xs[0] if len(self._xs) > 1 else 8 * s
            side = max(3.0, min(8 * s, gap - 1))
            rect = QRectF(x - side / 2, plot.bottom() + 10 * s - side / 2, side, side)
            paint_mark(painter, rect, rank, theme)
            if _numbered(index, point.number, len(self._xs)):
                box = QRectF(x - 20 * s, plot.bottom() + 18 * s, 40 * s, 16 * s)
                draw_text(painter, box, CENTRE, str(point.number), label, theme.muted)
        if self._low():
            return
        apart_text = f" ({figure(self.picture.spacing_ms)} ms apart)" if self.picture.spacing_ms else ""
        caption = f"Request, in order of arrival{apart_text}. Shape and colour: the backend it went to."
        rect = QRectF(
            plot.left() + 8 * s, self.height() - 30 * s, self.width() - plot.left() - 24 * s, 16 * s
        )
        draw_text(painter, rect, LEFT, caption, label, theme.muted, elide=True)

    # Hover, click, keys

    def nearest(self, x: float) -> int:
        """Index of the arrival nearest to an x, -1 where there is none."""
        return min(range(len(self._xs)), key=lambda i: abs(self._xs[i] - x), default=-1)

    def describe(self, index: int) -> str:
        """The arrival in words: for the tooltip."""
        point, labels = self.picture.points[index], self.picture.labels
        note = "" if own_scores(point.receipt) else " at isolated rates, not asked"
        in_s = unit(point.receipt) == "s"
        lines = [f"Request {point.number} → {labels.get(point.chosen, point.chosen)}"]
        for name, value in sorted(point.scores.items(), key=lambda item: item[1]):
            text = seconds(value, 3) if in_s else f"{figure(value)} {unit(point.receipt)}"
            lines.append(f"{labels.get(name, name)} {text}{note}")
        if not point.scores:
            lines.append("no scores")
        return "\n".join([*lines, "Click for the receipt"])

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._set_hover(self.nearest(event.position().x()))

    def leaveEvent(self, event: QEvent) -> None:
        self._set_hover(-1)

    def _set_hover(self, index: int) -> None:
        if index != self._hover:
            self._hover = index
            self.update()

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        index = self.nearest(event.position().x())
        if index >= 0 and event.button() is Qt.MouseButton.LeftButton:
            self.clicked.emit(int(self.picture.points[index].request_id))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        step = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}.get(Qt.Key(event.key()))
        if step and self._xs:
            start = self._hover if self._hover >= 0 else len(self._xs) - (1 if step < 0 else 2)
            self._set_hover(max(0, min(len(self._xs) - 1, start + step)))
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self._hover >= 0:
            self.clicked.emit(int(self.picture.points[self._hover].request_id))
        else:
            super().keyPressEvent(event)

    def event(self, event: QEvent) -> bool:
        if event.type() is QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            index = self.nearest(event.pos().x())
            if index >= 0:
                QToolTip.showText(event.globalPos(), self.describe(index), self)
            return True
        return super().event(event)


def _numbered(index: int, number: int, count: int) -> bool:
    """Every 8th arrival has its number, more sparsely where there are many; the first always."""
    every = 8 * max(1, count // 64)
    return index == 0 or number % every == 0
