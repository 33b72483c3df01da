"""The painted inside of a comparison's card: the verdict, every run, and the figures with intervals."""

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QLineF, QPointF, QRectF
from PySide6.QtGui import QColor, QPainter

from app.panels.painting import CENTRE, RIGHT, hair, half, ticks, width_of, wrap
from app.panels.result_page import EDGE, ResultPage
from app.series.verdict import Line, Verdict, interval
from app.series.words import figure, percent
from app.theme import Theme, font

SPOT = 8


@dataclass(frozen=True, slots=True)
class ShownVerdict:
    """A comparison as the card wants it."""

    verdict: Verdict

    @property
    def emulation(self) -> str:
        return self.verdict.emulation

    @property
    def stem(self) -> str:
        return f"offramp-{self.verdict.preset}-{self.verdict.a}-{self.verdict.b}"

    def phrases(self) -> tuple[str, ...]:
        v = self.verdict
        short = f"{v.preset}, {v.b} against {v.a}"
        return f"{short}, {v.pairs} pairs, order shuffled, caches seeded anew", f"{short}, {v.pairs} pairs"

    def spoken(self) -> str:
        return f"{self.verdict.headline}. {self.verdict.sentence}"

    def markdown(self) -> str:
        return self.verdict.as_markdown()

    def json(self) -> str:
        return self.verdict.as_json()

    def paint(self, painter: QPainter, theme: Theme, rect: QRectF) -> None:
        VerdictPage(painter, self.verdict, theme, rect).draw()


class VerdictPage(ResultPage):
    """Policies are neutral here: only the verdict has a colour."""

    def __init__(self, painter: QPainter, verdict: Verdict, theme: Theme, rect: QRectF) -> None:
        super().__init__(painter, None, theme, rect)  # type: ignore[arg-type]
        self.verdict = verdict
        self.left, self.right = rect.left() + EDGE, rect.right() - EDGE

    def _ink(self, verdict: str) -> QColor:
        return {"better": self.theme.success, "worse": self.theme.error}.get(verdict, self.theme.muted)

    def draw(self) -> None:
        width, line = self.right - self.left, self.verdict.makespan
        ink = self._ink(line.verdict) if line else self.theme.text
        hero = font("hero", bold=True)
        colour = self.theme.text if ink == self.theme.muted else ink
        head = self.verdict.headline
        self.text(self.left, self.y, width, head, used=hero, colour=colour, high=40, elide=True)
        self.y += 44
        body = font("body")
        words = self.verdict.sentence
        if not self.verdict.finished:
            words += " It was stopped early."
        for part in wrap(words, body, width):
            self.text(self.left, self.y, width, part, used=body, colour=self.theme.muted, high=24)
            self.y += 24
        self.y += 20
        middle, top = self.left + 0.5 * width, self.y
        self.painter.setPen(hair(self.theme.line))
        self.painter.drawLine(QLineF(half(middle), top, half(middle), self.bottom - 16))
        self._runs(self.left, middle - 28)
        self._pairs(self.left, middle - 28)
        self.y = top
        self._figures(middle + 28, self.right)

    def _axis(self, start: float, end: float, low: float, high: float, unit: str, height: float) -> None:
        """Vertical grid with its values below, for a range that need not begin at 0."""
        span = high - low or 1.0
        marks = ticks(span, 5)
        step = marks[1] if len(marks) > 1 else span
        first = -(-low // step) * step
        decimals = 0 if step >= 1 else 1 if step >= 0.1 else 2
        count = int((high - first) / step + 1e-9) + 1
        for index in range(count):
            value = first + index * step
            x = half(start + (value - low) / span * (end - start))
            self.painter.setPen(hair(self.theme.grid))
            self.painter.drawLine(QLineF(x, self.y, x, self.y + height))
            text = figure(value, decimals) + (f" {unit}" if index == count - 1 else "")
            wide = width_of(text, self.label) + 1
            at = min(x - wide / 2, end + 12 - wide)
            self.text(at, self.y + height + 6, wide, text, colour=self.theme.muted, flags=CENTRE)
        self.painter.setPen(hair(self.theme.strong))
        self.painter.drawLine(QLineF(start, half(self.y + height), end, half(self.y + height)))

    def _dots_at(self, xs: Sequence[float], centre: float) -> None:
        """Open dots, beside each other where they would overlap."""
        lanes: list[float] = []
        self.painter.setPen(hair(self.theme.text))
        self.painter.setBrush(self.theme.panel)
        for x in sorted(xs):
            free = (i for i, last in enumerate(lanes) if x - last >= SPOT + 1)
            lane = next(free, len(lanes))
            if lane == len(lanes):
                lanes.append(x)
            lanes[lane] = x
            self.painter.drawEllipse(QPointF(x, centre - min(lane, 3) * (SPOT + 1)), SPOT / 2, SPOT / 2)

    def _runs(self, left: float, right: float) -> None:
        v = self.verdict
        self._title(left, right, "Makespan of each run", "a dot per run, a square at the mean")
        start = left + max(width_of(name, self.bold) for name in (v.a, v.b)) + 24
        end, row = right - 12, 64.0
        every = [*v.a_makespans, *v.b_makespans]
        low, high = min(every), max(every)
        pad = max(0.08 * (high - low), 0.01 * high, 1e-3)
        low, high = low - pad, high + pad
        self._axis(start, end, low, high, "s", 2 * row)
        for name, values in ((v.a, v.a_makespans), (v.b, v.b_makespans)):
            centre = self.y + row / 2 + 10
            self.text(left, centre - 8, start - left - 12, name, used=self.bold, elide=True)
            xs = [start + (value - low) / (high - low) * (end - start) for value in values]
            self._dots_at(xs, centre)
            mean = sum(xs) / len(xs)
            self.painter.fillRect(QRectF(mean - 3, centre + 10, 6, 6), self.theme.text)
            self.y += row
        self.y += 44

    def _pairs(self, left: float, right: float) -> None:
        v = self.verdict
        changes = [100 * (b / a - 1) for a, b in zip(v.a_makespans, v.b_makespans, strict=True) if a]
        line = v.makespan
        if not changes or line is None:
            return
        self._title(left, right, "Change within each pair", f"same burst and seed, percent of {v.a}")
        start, end = left + width_of("each pair", self.bold) + 24, right - 12
        known = [*changes, 0.0, *(x for x in (line.low, line.high) if x is not None)]
        pad = 0.08 * (max(known) - min(known)) or 1.0
        low, high = min(known) - pad, max(known) + pad
        self._axis(start, end, low, high, "%", 64)

        def at(value: float) -> float:
            return start + (value - low) / (high - low) * (end - start)

        zero = half(at(0.0))
        self.painter.setPen(hair(self.theme.text))
        self.painter.drawLine(QLineF(zero, self.y, zero, self.y + 64))
        centre = self.y + 36
        self.text(left, centre - 8, start - left - 12, "each pair", used=self.bold)
        self._dots_at([at(c) for c in changes], centre)
        ink = self._ink(line.verdict)
        if line.low is not None and line.high is not None:
            y = half(centre + 13)
            self.painter.setPen(hair(ink, 1.5))
            self.painter.drawLine(QLineF(at(line.low), y, at(line.high), y))
            for x in (at(line.low), at(line.high)):
                self.painter.drawLine(QLineF(x, y - 4, x, y + 4))
        if line.change is not None:
            self.painter.fillRect(QRectF(at(line.change) - 3, centre + 10, 6, 6), ink)
        self.y += 104

    def _figures(self, left: float, right: float) -> None:
        v, width = self.verdict, right - left
        ends = [left + 0.52 * width, left + 0.7 * width, right]
        starts = [left + 0.34 * width, ends[0], ends[1]]
        heads = (v.a, v.b, "change, 95 % interval")
        self.text(left, self.y, 0.34 * width, f"Means of {figure(v.pairs)} runs", colour=self.theme.muted)
        for start, end, head in zip(starts, ends, heads, strict=True):
            self.text(start + 6, self.y, end - start - 6, head, colour=self.theme.muted, flags=RIGHT,
                      elide=True)  # fmt: skip
        self.y += 24
        rule = wrap(v.rule, self.label, width)
        row = min(52.0, max(30.0, (self.bottom - self.y - 32 - 16 * len(rule)) / max(1, len(v.lines))))
        for line in v.lines:
            self._line(left, right, self.y)
            self._row(line, left, ends, row)
            self.y += row
        self._line(left, right, self.y)
        self.y += 14
        for words in rule:
            self.text(left, self.y, width, words, colour=self.theme.muted)
            self.y += 16

    def _row(self, line: Line, left: float, ends: Sequence[float], row: float) -> None:
        used, strong = font("body"), font("body", bold=True)
        drawn = self.text(left, self.y, 180, line.name, used=used, high=row)
        self.text(drawn.right() + 6, self.y + 1, 50, line.unit, colour=self.theme.muted, high=row)
        cells = ((line.a, used, self.theme.muted), (line.b, strong, self.theme.text))
        for (value, face, ink), end in zip(cells, ends, strict=False):
            words = figure(value, line.decimals)
            self.text(end - 110, self.y, 110, words, used=face, colour=ink, flags=RIGHT, high=row)
        ink, right = self._ink(line.verdict), ends[-1]
        change = percent(line.change, 1, signed=True)
        self.text(right - 150, self.y + row / 2 - 17, 150, change, used=self.bold, colour=ink, flags=RIGHT)
        self.text(right - 170, self.y + row / 2 + 1, 170, interval(line), colour=self.theme.muted,
                  flags=RIGHT)  # fmt: skip
