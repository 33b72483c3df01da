"""Inside the plot of the routing chart: lines, marks, values, the crossing; and the empty chart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from PySide6.QtCore import QLineF, QPointF, QRectF, Qt
from PySide6.QtGui import QPainter, QPolygonF

from app.panels.painting import (
    LEFT,
    RIGHT,
    Places,
    draw_sentence,
    draw_text,
    ghost_height,
    hair,
    half,
    width_of,
)
from app.series.arrivals import Arrival, crossing_lines, last_crossing, steady, unit
from app.series.words import apart, figure, seconds
from app.theme import Theme, font
from app.widgets.marks import mark_path, paint_mark

BADGES_UP_TO = 16
EMPTY = (
    "For every request, the seconds each backend would need: two lines. "
    "The lower one wins, and its mark is filled. Click a mark for the receipt."
)


@dataclass(frozen=True, slots=True)
class Picture:
    """Everything the chart draws. Equal pictures are not drawn twice."""

    points: Sequence[Arrival] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    ranks: Mapping[str, int] = field(default_factory=dict)
    run_id: str | None = None
    expected: int = 0  # requests of the burst, so that marks need not move as they arrive
    spacing_ms: float | None = None
    over: bool = False  # the burst has ended: the y axis may shrink


class Plotted:
    """Lines, marks and words inside the plot, in the order in which they may cover each other."""

    def __init__(
        self,
        painter: QPainter,
        plot: QRectF,
        xs: Sequence[float],
        top: float,
        picture: Picture,
        theme: Theme,
        scale: float,
        bounds: QRectF,
    ) -> None:
        self.painter, self.plot, self.xs, self.top = painter, plot, xs, top
        self.picture, self.theme, self.scale = picture, theme, scale
        self.points = picture.points
        self.few = len(xs) <= BADGES_UP_TO
        self.places = Places(bounds)

    def y(self, score: float) -> float:
        return self.plot.bottom() - score / self.top * self.plot.height()

    def at(self, index: int, backend: str) -> QPointF | None:
        score = self.points[index].scores.get(backend)
        return None if score is None else QPointF(self.xs[index], self.y(score))

    def rank(self, backend: str) -> int:
        return self.picture.ranks.get(backend, 3)

    def draw(self, pair: Mapping[str, str]) -> None:
        names = sorted({n for p in self.points for n in p.scores}, key=self.rank, reverse=True)
        for name in names:
            self._line(name)
        if self.few:
            for name in names:
                self._hollow(name)
        if self.few and pair:
            self._drop()
        self._chosen()
        if pair:
            self._pair(pair)
        if self.few:
            for name in names:
                self._steady(name)
            self._crossing()  # before the values: the leader needs a free way down
            if self.plot.height() > 80 * self.scale:
                self._values()

    def _line(self, name: str) -> None:
        colours = self.theme.backend(self.rank(name))
        run: list[QPointF] = []
        runs = [run]
        for index in range(len(self.points)):
            point = self.at(index, name)
            if point is None:
                run = []
                runs.append(run)
            else:
                if run:
                    self.places.block_line(run[-1], point)
                run.append(point)
        self.painter.setPen(hair(colours.line, 2 * self.scale if self.few else self.scale))
        self.painter.setBrush(Qt.BrushStyle.NoBrush)
        for run in runs:
            if len(run) > 1:
                self.painter.drawPolyline(QPolygonF(run))

    def _hollow(self, name: str) -> None:
        side = 8 * self.scale
        for index, arrival in enumerate(self.points):
            point = self.at(index, name)
            if point is not None and arrival.chosen != name:
                rect = QRectF(point.x() - side / 2, point.y() - side / 2, side, side)
                paint_mark(self.painter, rect, self.rank(name), self.theme, hollow=True)
                self.places.block(rect)

    def _chosen(self) -> None:
        gap = self.xs[1] - self.xs[0] if len(self.xs) > 1 else 99.0
        side = 14 * self.scale if self.few else max(3.0, min(8 * self.scale, gap))
        ring = 1.5 * self.scale if self.few else 1.0
        for index, arrival in enumerate(self.points):
            point = self.at(index, arrival.chosen)
            if point is None:
                continue
            rect = QRectF(point.x() - side / 2, point.y() - side / 2, side, side)
            rank = self.rank(arrival.chosen)
            if gap > 4:
                self.painter.setPen(Qt.PenStyle.NoPen)
                self.painter.setBrush(self.theme.panel)
                self.painter.drawPath(mark_path(rect.adjusted(-ring, -ring, ring, ring), rank, 1.0))
            paint_mark(self.painter, rect, rank, self.theme)
            self.places.block(rect.adjusted(-ring, -ring, ring, ring))

    def _drop(self) -> None:
        """From the newest chosen mark down to its badge."""
        point = self.at(len(self.points) - 1, self.points[-1].chosen)
        if point is not None:
            self.painter.setPen(hair(self.theme.strong, 1, (2, 4)))
            x = half(point.x())
            self.painter.drawLine(QLineF(x, point.y() + 8 * self.scale, x, self.plot.bottom()))
            self.places.block_line(QPointF(x, point.y()), QPointF(x, self.plot.bottom()))

    def _pair(self, texts: Mapping[str, str]) -> None:
        """The newest scores in words beside their marks, pushed apart until they can be read."""
        s, last = self.scale, len(self.points) - 1
        order = sorted(texts, key=lambda n: -self.points[last].scores[n])
        high = 24 * s
        centres = [self.y(self.points[last].scores[n]) for n in order]
        spread = list(centres)
        for i in range(1, len(spread)):
            spread[i] = max(spread[i], spread[i - 1] + high)
        if len(spread) > 1:  # share the push: half of it goes up
            shift = sum(b - a for a, b in zip(centres, spread, strict=True)) / len(spread)
            spread = [y - shift for y in spread]
        low, most = high / 2, self.plot.bottom() - high / 2
        shift = max(0.0, low - spread[0]) or min(0.0, most - spread[-1])
        x = self.xs[last] + 24 * s
        for name, y in zip(order, spread, strict=True):
            chosen = name == self.points[last].chosen
            used = font("body", bold=chosen, scale=s)
            rect = QRectF(x, y + shift - high / 2, width_of(texts[name], used) + 1, high)
            self.places.block(rect)
            ink = self.theme.backend(self.rank(name)).ink
            draw_text(self.painter, rect, LEFT, texts[name], used, ink, back=self.theme.panel)
        if len(order) > 1:
            self._bracket(min(centres), max(centres))

    def _bracket(self, upper: float, lower: float) -> None:
        s, x = self.scale, half(self.xs[-1] + 15 * self.scale)
        self.painter.setPen(hair(self.theme.muted))
        self.painter.drawPolyline(
            QPolygonF(
                [
                    QPointF(x - 5 * s, half(upper)), QPointF(x, half(upper)),
                    QPointF(x, half(lower)), QPointF(x - 5 * s, half(lower)),
                ]
            )
        )  # fmt: skip

    def _steady(self, name: str) -> None:
        score = steady(self.points, name)
        if score is None:
            return
        label, used = self.picture.labels.get(name, name), font("label", scale=self.scale)
        amount = seconds(score, 3) if unit(self.points[-1].receipt) == "s" else figure(score)
        text = f"{label}, idle: {amount} for every request"
        x, y, s = self.xs[0] - 5 * self.scale, self.y(score), self.scale
        size = (width_of(text, used) + 1, 16 * s)
        place = self.places.take(QRectF(x, top, *size) for top in (y - 24 * s, y + 8 * s))
        if place is not None:
            ink = self.theme.backend(self.rank(name)).ink
            draw_text(self.painter, place, LEFT, text, used, ink, back=self.theme.panel)

    def _values(self) -> None:
        """The score beside each mark that the fastest backend won, where there is room for it."""
        s, used = self.scale, font("label", scale=self.scale)
        for index, arrival in enumerate(self.points[:-1]):
            point = self.at(index, arrival.chosen)
            if point is None or self.rank(arrival.chosen) != 0:
                continue
            ranked = sorted(arrival.scores.values())
            close = len(ranked) > 1 and ranked[1] - ranked[0] < 0.1
            value = arrival.scores[arrival.chosen]
            whole = unit(arrival.receipt) != "s"
            text = figure(value, 0 if whole else max(2, apart(*ranked[:2], 3)) if close else 2)
            w, h = width_of(text, used) + 1, 16 * s
            x, y = point.x(), point.y()
            offers = (
                QRectF(x + 9 * s, y + 6 * s, w, h),
                QRectF(x - w / 2, y - 30 * s, w, h),
                QRectF(x - w - 7 * s, y - 24 * s, w, h),
                QRectF(x - w / 2, y + 10 * s, w, h),
                QRectF(x - w / 2, y - 46 * s, w, h),
            )
            place = self.places.take(offers)
            if place is not None:
                ink = self.theme.backend(0).ink
                draw_text(self.painter, place, LEFT, text, used, ink, back=self.theme.panel)

    def _crossing(self) -> None:
        """A dot where the lines change order, and in a free corner the reason."""
        crossing = last_crossing(self.points)
        if crossing is None:
            return
        s, before = self.scale, self.xs[crossing.index]
        dot = QPointF(before + crossing.part * (self.xs[crossing.index + 1] - before), self.y(crossing.score))
        receipt = self.points[crossing.index + 1].receipt
        bold, plain = font("label", bold=True, scale=s), font("label", scale=s)
        lines = ["The lines cross", *crossing_lines(crossing, receipt, self.picture.labels)]
        fonts = [bold, *[plain] * (len(lines) - 1)]
        wide = max(width_of(t, f) for t, f in zip(lines, fonts, strict=True)) + 2
        high, line = 18 * s * len(lines), 18 * s
        place = self._corner(dot, wide, high)
        if place is not None:
            self.painter.setPen(hair(self.theme.text))
            end = place.top() - 4 * s if place.top() > dot.y() else place.bottom() + 4 * s
            self.painter.drawLine(QLineF(half(dot.x()), dot.y(), half(dot.x()), end))
            flags = RIGHT if place.right() < self.xs[-1] and place.left() < dot.x() - wide / 2 else LEFT
            for row, (text, used) in enumerate(zip(lines, fonts, strict=True)):
                rect = QRectF(place.left(), place.top() + row * line, wide, line)
                colour = self.theme.text if row == 0 else self.theme.muted
                draw_text(self.painter, rect, flags, text, used, colour, back=self.theme.panel)
        self.painter.setPen(Qt.PenStyle.NoPen)
        self.painter.setBrush(self.theme.text)
        self.painter.drawEllipse(dot, 3 * s, 3 * s)

    def _corner(self, dot: QPointF, wide: float, high: float) -> QRectF | None:
        """A free place below or above the dot that its vertical leader can reach."""
        s = self.scale
        lefts = [dot.x() + 48 * s - wide, dot.x() + 16 * s - wide, dot.x() - wide / 2, dot.x() - 16 * s]
        deepest = int((self.plot.bottom() - 6 * s - high - dot.y()) / s)
        tops = [dot.y() + g * s for g in range(deepest, 23, -4)]  # far from the lines first
        tops += [dot.y() - high - g * s for g in range(24, 160, 8)]
        for top in tops:
            for left in lefts:
                rect = QRectF(left, top, wide, high)
                end = rect.top() if top > dot.y() else rect.bottom()
                leader = QLineF(dot.x(), dot.y() + (8 * s if top > dot.y() else -8 * s), dot.x(), end)
                if self.places.free(rect) and self.places.clear_line(leader):
                    self.places.block(rect)
                    self.places.block_line(leader.p1(), leader.p2())
                    return rect
        return None


def ghost(painter: QPainter, rect: QRectF, theme: Theme, scale: float) -> None:
    """What will appear here and how to make it appear: dashed lines that cross, and a sentence."""
    s = scale
    inner = rect.adjusted(16 * s, 0, -16 * s, -14 * s)
    below = draw_sentence(painter, inner, EMPTY, theme, s)
    zero = inner.bottom() - 24 * s
    painter.setPen(hair(theme.strong))
    painter.drawLine(QLineF(inner.left(), half(zero), inner.right(), half(zero)))
    caption = QRectF(inner.left(), zero + 6 * s, inner.width(), 16 * s)
    draw_text(painter, caption, LEFT, "Request, in order of arrival", font("label", scale=s), theme.muted)
    room = zero - below - 16 * s
    if room < 30 * s:
        return
    high = ghost_height(room, s)
    xs = [inner.left() + 8 * s + (inner.width() - 16 * s) * i / 7 for i in range(8)]
    flat = [QPointF(x, zero - 0.72 * high) for x in xs]
    rising = [QPointF(x, zero - high * (0.12 + 0.8 * i / 7)) for i, x in enumerate(xs)]
    for rank, line in ((1, flat), (0, rising)):
        painter.setPen(hair(theme.strong, 1, (3, 3)))
        painter.drawPolyline(QPolygonF(line))
        painter.setPen(hair(theme.strong))
        painter.setBrush(theme.panel)
        for point in line:
            painter.drawPath(mark_path(QRectF(point.x() - 4 * s, point.y() - 4 * s, 8 * s, 8 * s), rank, 1.0))
