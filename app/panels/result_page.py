"""The painted inside of a result card; the same pass draws the screen, the PNG and the SVG."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from PySide6.QtCore import QLineF, QRectF
from PySide6.QtGui import QColor, QPainter

from app.panels.painting import CENTRE, LEFT, RIGHT, draw_text, hair, half, tick_text, ticks, width_of, wrap
from app.panels.regret_part import draw_regret, regret_height
from app.series.hindsight import RegretState, regret_markdown
from app.series.outcome import (
    Metric,
    RunSummary,
    as_json,
    as_markdown,
    headline,
    metrics,
    notes,
    sentence,
)
from app.series.percentiles import percentile
from app.series.words import figure, percent
from app.theme import Theme, font
from app.widgets.marks import paint_badge, paint_mark

EDGE, BADGES_UP_TO = 32, 12
DOT = 9


@dataclass(frozen=True, slots=True)
class Shown:
    """What a card shows: a run, perhaps the one before it, and how backends look."""

    now: RunSummary
    before: RunSummary | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    ranks: Mapping[str, int] = field(default_factory=dict)
    regret: RegretState | None = None  # None = nobody computes it

    @property
    def emulation(self) -> str:
        return self.now.emulation

    @property
    def stem(self) -> str:
        return f"offramp-{self.now.preset}-{self.now.policy}"

    def phrases(self) -> tuple[str, str]:
        """What ran, and the same in fewer words."""
        against = f" beside {self.before.policy}" if self.before else ""
        short = f"{self.now.preset}, {self.now.policy}{against}"
        tokens = sum(int(r.get("output_tokens", 0)) for r in self.now.result.get("requests") or ())
        return f"{short}, {tokens:,} tokens out", short

    def spoken(self) -> str:
        return f"{headline(self.now)}. {sentence(self.now, self.before, self.labels)}"

    def markdown(self) -> str:
        text = as_markdown(self.now, self.before, self.labels)
        return "\n".join([text, *regret_markdown(self.regret)]).rstrip() + "\n"

    def json(self) -> str:
        return as_json(self.now, self.before, self.regret)

    def paint(self, painter: QPainter, theme: Theme, rect: QRectF) -> None:
        ResultPage(painter, self, theme, rect).draw()

    def runs(self) -> list[RunSummary]:
        return [r for r in (self.before, self.now) if r is not None]


class ResultPage:
    """One pass over `rect`."""

    def __init__(self, painter: QPainter, shown: Shown, theme: Theme, rect: QRectF) -> None:
        self.painter, self.shown, self.theme = painter, shown, theme
        self.left, self.right, self.y = rect.left() + EDGE, rect.right() - EDGE, rect.top() + 24
        self.bottom = rect.bottom()
        self.label, self.bold = font("label"), font("label", bold=True)

    def text(
        self, x: float, y: float, width: float, text: str, *, used=None, colour: QColor | None = None,
        flags=LEFT, high: float = 16, elide: bool = False,
    ) -> QRectF:  # fmt: skip
        rect = QRectF(x, y, max(1.0, width), high)
        return draw_text(
            self.painter, rect, flags, text, used or self.label, colour or self.theme.text, elide=elide
        )

    def draw(self) -> None:
        width = self.right - self.left
        self.text(self.left, self.y, width, headline(self.shown.now), used=font("hero", bold=True), high=40,
                  elide=True)  # fmt: skip
        self.y += 44
        body = font("body")
        words = sentence(self.shown.now, self.shown.before, self.shown.labels)
        for line in wrap(words, body, width):
            self.text(self.left, self.y, width, line, used=body, colour=self.theme.muted, high=24)
            self.y += 24
        self.y += 20
        middle = self.left + 0.525 * width
        top = self.y
        self.painter.setPen(hair(self.theme.line))
        self.painter.drawLine(QLineF(half(middle), top, half(middle), self.bottom - 16))
        self._charts(self.left, middle - 28)
        self.y = top
        self._table(middle + 28, self.right)

    # left: when the requests got their first and last token, and where they went

    def _charts(self, left: float, right: float) -> None:
        runs = len(self.shown.runs())
        room = self.bottom - self.y - 24
        row = min(88.0, max(30.0, (room - 3 * 64) / (2.6 * runs)))
        self._dots(left, right, "ttft_s", "Time to first token", "a mark per request; lines: p50, p95", row)
        self._dots(left, right, "e2e_s", "End to end", "from arrival to the last token", row)
        self._went(left, right, row)

    def _title(self, left: float, right: float, title: str, phrase: str) -> None:
        drawn = self.text(left, self.y, right - left, title, used=self.bold)
        start = drawn.right() + 12
        if width_of(phrase, self.label) <= right - start:
            self.text(start, self.y, right - start, phrase, colour=self.theme.muted)
        self.y += 24

    def _names(self, left: float) -> float:
        """Where the plots begin: right of the longest name of a policy."""
        return left + max(width_of(r.policy, self.bold) for r in self.shown.runs()) + 24

    def _dots(self, left: float, right: float, kind: str, title: str, phrase: str, row: float) -> None:
        self._title(left, right, title, phrase)
        start, end = self._names(left), right - 12
        most = max((v for r in self.shown.runs() for v in r.values(kind)), default=1.0) or 1.0
        marks = ticks(most, 5)
        step = marks[1] - marks[0] if len(marks) > 1 else most
        top = max(most * 1.02, marks[-1])
        scale = (end - start) / top
        height = row * len(self.shown.runs())
        self.painter.setPen(hair(self.theme.grid))
        for value in marks:
            x = half(start + value * scale)
            self.painter.drawLine(QLineF(x, self.y, x, self.y + height))
        for run in self.shown.runs():
            centre = self.y + row / 2
            self.text(left, centre - 8, start - left - 12, run.policy, used=self.bold)
            self._row_of_dots(run, kind, start, scale, centre, row)
            self.y += row
        self.painter.setPen(hair(self.theme.strong))
        self.painter.drawLine(QLineF(start, half(self.y), end, half(self.y)))
        for value in marks:
            text = tick_text(value, step) + (" s" if value == marks[-1] else "")
            wide = width_of(text, self.label) + 1
            x = min(start + value * scale - wide / 2, right - wide)
            self.text(x, self.y + 6, wide, text, colour=self.theme.muted, flags=CENTRE)
        self.y += 40

    def _row_of_dots(
        self, run: RunSummary, kind: str, start: float, scale: float, centre: float, row: float
    ) -> None:
        """Marks beside each other where they would overlap, and the percentiles as lines behind them."""
        for q in (50, 95):
            level = percentile(run.values(kind), q)
            if level is not None:
                x = half(start + level * scale)
                self.painter.setPen(hair(self.theme.muted, 1, (3, 3)))
                self.painter.drawLine(QLineF(x, centre - row / 2 + 4, x, centre + row / 2 - 4))
        lanes: list[float] = []
        most = max(1, int((row - 8) // (DOT + 1)))
        placed = sorted(
            (r for r in run.requests() if getattr(r, kind) is not None), key=lambda r: getattr(r, kind)
        )
        spots = []
        for request in placed:
            x = start + getattr(request, kind) * scale
            free = (i for i, last in enumerate(lanes) if x - last >= DOT + 1)
            lane = next(free, len(lanes))
            if lane == len(lanes) and len(lanes) < most:
                lanes.append(x)
            lane = min(lane, most - 1)
            lanes[lane] = x
            spots.append((x, lane, request))
        high = len(lanes) * (DOT + 1)
        for x, lane, request in spots:
            y = centre - high / 2 + lane * (DOT + 1) + DOT / 2
            rank = self.shown.ranks.get(request.backend, 3)
            paint_mark(self.painter, QRectF(x - DOT / 2, y - DOT / 2, DOT, DOT), rank, self.theme)

    def _went(self, left: float, right: float, row: float) -> None:
        self._title(left, right, "Where the requests went", "in order of arrival")
        start = self._names(left)
        for run in self.shown.runs():
            centre = self.y + min(row, 40.0) / 2
            self.text(left, centre - 8, start - left - 12, run.policy, used=self.bold)
            counts = self._counts(run, right, centre)
            requests = run.requests()
            room = counts - 16 - start
            few = len(requests) <= BADGES_UP_TO and room >= len(requests) * 30
            side, pitch = (26.0, 30.0) if few else (DOT, DOT + 2.0)
            across = max(1, int(room // pitch))
            lines = 1 if few else -(-len(requests) // across)
            for index, request in enumerate(requests):
                x = start + (index % across) * pitch
                y = centre - lines * pitch / 2 + (index // across) * pitch + (pitch - side) / 2
                rank, rect = self.shown.ranks.get(request.backend, 3), QRectF(x, y, side, side)
                cut = request.e2e_s is None
                if few:
                    state = "outline" if cut else "filled"
                    paint_badge(self.painter, rect, rank, str(request.number), state, self.theme)
                else:
                    paint_mark(self.painter, rect, rank, self.theme, cut)
            self.y += min(row, 40.0)

    def _counts(self, run: RunSummary, right: float, centre: float) -> float:
        """`7 GPU  1 CPU`, right-aligned; returns where it begins."""
        x = right - 12
        for backend, count in sorted(run.counts.items(), key=lambda p: -self.shown.ranks.get(p[0], 3)):
            name = self.shown.labels.get(backend, backend)
            wide = width_of(name, self.label) + 1
            x -= wide
            self.text(x, centre - 8, wide, name, colour=self.theme.muted)
            number = figure(count)
            wide = width_of(number, self.bold) + 1
            x -= wide + 5
            self.text(x, centre - 8, wide, number, used=self.bold)
            x -= 18
            rank = self.shown.ranks.get(backend, 3)
            paint_mark(self.painter, QRectF(x, centre - 6, 12, 12), rank, self.theme)
            x -= 16
        return x

    # right: the figures

    def _table(self, left: float, right: float) -> None:
        shown, width = metrics(self.shown.now, self.shown.before), right - left
        both = self.shown.before is not None
        ends = [left + 0.66 * width, left + 0.86 * width, right] if both else [right]
        heads = [r.policy for r in self.shown.runs()] + (["change"] if both else [])
        self.text(left, self.y, 200, "Each from one run", colour=self.theme.muted)
        starts = [left + 0.36 * width, *ends[:-1]] if both else [left + 0.5 * width]
        for start, end, head in zip(starts, ends, heads, strict=True):
            self.text(start + 8, self.y, end - start - 8, head, colour=self.theme.muted, flags=RIGHT,
                      elide=True)  # fmt: skip
        self.y += 24
        extra = notes(self.shown.now, self.shown.before)
        lines = [line for note in extra for line in wrap(note, self.label, width)]
        below = 28 + 16 * len(lines) + regret_height(self.shown.regret)
        row = min(52.0, max(22.0, (self.bottom - self.y - below) / len(shown)))
        for metric in shown:
            self._line(left, right, self.y)
            self._metric(metric, left, ends, row, both)
            self.y += row
        self._line(left, right, self.y)
        self.y += 16
        for line in lines:
            self.text(left, self.y, width, line, colour=self.theme.muted)
            self.y += 16
        if self.shown.regret is not None:
            draw_regret(self, self.shown.regret, left, right)

    def _line(self, left: float, right: float, y: float) -> None:
        self.painter.setPen(hair(self.theme.line))
        self.painter.drawLine(QLineF(left, half(y), right, half(y)))

    def _metric(self, metric: Metric, left: float, ends: Sequence[float], row: float, both: bool) -> None:
        used = font("lead") if row >= 36 else font("body")
        strong = font("lead" if row >= 36 else "body", bold=True)
        drawn = self.text(left, self.y, 200, metric.name, used=font("body"), high=row)
        self.text(drawn.right() + 8, self.y + 1, 60, metric.unit, colour=self.theme.muted, high=row)
        values = [(metric.before, used, self.theme.muted)] if both else []
        values.append((metric.now, strong, self.theme.text))
        for (value, face, ink), end in zip(values, ends, strict=False):
            ink = self.theme.disabled if value is None else ink
            words = figure(value, metric.decimals)
            self.text(end - 160, self.y, 160, words, used=face, colour=ink, flags=RIGHT, high=row)
        if both:  # two single runs carry no verdict, so no colour says good or bad
            change = percent(metric.change_percent, 1, signed=True)
            ink = self.theme.disabled if metric.change_percent is None else self.theme.muted
            self.text(ends[-1] - 90, self.y, 90, change, used=self.bold, colour=ink, flags=RIGHT, high=row)
