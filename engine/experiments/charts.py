"""The pictures of an experiment, each a whole slide: title, unit, mark, direct labels, no legend."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from engine.experiments import svg
from engine.experiments.statistics import Verdict
from engine.experiments.svg import Svg, decimals, figure, percent, spread, ticks

WIDTH, LEFT, RIGHT = 1200, 48, 48
VERDICT_COLOURS = {
    Verdict.BETTER: svg.GOOD,
    Verdict.WORSE: svg.BAD,
    Verdict.SAME: svg.TEXT,
    Verdict.NONE: svg.MUTED,
}


@dataclass(frozen=True, slots=True)
class Mark:
    """What must stand on every picture: SIMULATED or EMULATED and of what; empty on real backends."""

    strong: str = ""
    words: str = ""

    @property
    def text(self) -> str:
        return f"{self.strong}: {self.words}" if self.strong else ""


def sheet(title: str, subtitle: str, height: int, mark: Mark, foot: str = "") -> tuple[Svg, int]:
    """An empty slide with its head and foot, and how far down its content begins later than usual."""
    free = WIDTH - LEFT - RIGHT - svg.badge_width(mark.strong, mark.words) - 40
    down = 40 if mark.strong and len(title) * 26 * 0.55 > free else 0  # the mark then has a line of its own
    drawing = Svg(WIDTH, height + down, f"{title}. {subtitle}. {mark.text}")
    drawing.text(LEFT, 52 + down, title, 26, weight=600)
    drawing.text(LEFT, 82 + down, subtitle, 16, svg.MUTED)
    if mark.strong:
        drawing.badge(WIDTH - RIGHT, 24, mark.strong, mark.words)
    if foot:
        drawing.text(LEFT, height + down - 20, foot, 13, svg.MUTED)
    return drawing, down


# --- runs ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a dot chart: every run or pair, their mean and its interval."""

    label: str
    values: tuple[float, ...]
    mean: float
    low: float | None
    high: float | None
    note: str = ""  # behind the mean
    verdict: Verdict | None = None  # None: neutral


def dots(
    title: str, subtitle: str, unit: str, rows: Sequence[Row], mark: Mark, foot: str = "", zero: str = ""
) -> str:
    """Open dots for runs, a square with a whisker for the mean; `zero` names a line at 0."""
    pitch = 74
    drawing, down = sheet(title, subtitle, 134 + pitch * len(rows) + 92, mark, foot)
    top = 134 + down
    bottom = top + pitch * len(rows)
    x0, x1 = 330.0, WIDTH - RIGHT - 190.0
    everything = [v for r in rows for v in (*r.values, r.low, r.high) if v is not None]
    low, high = min(everything), max(everything)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    margin = (high - low) * 0.06 or abs(high) * 0.02 or 1.0
    low, high = low - margin, high + margin

    def at(value: float) -> float:
        return x0 + (value - low) / (high - low) * (x1 - x0)

    marks = ticks(low, high, 6)
    for tick in marks:
        drawing.line(at(tick), top, at(tick), bottom, svg.GRID)
        drawing.text(at(tick), bottom + 26, figure(tick, decimals(marks)), 15, svg.MUTED, anchor="middle")
    drawing.line(x0, bottom, x1, bottom, svg.STRONG)
    drawing.text(x1 + 14, bottom + 26, unit, 15, svg.MUTED)
    if zero:
        drawing.line(at(0), top - 8, at(0), bottom, svg.TEXT, 1.5)
        drawing.text(at(0), top - 14, zero, 14, svg.MUTED, anchor="middle")
    for i, row in enumerate(rows):
        y = top + pitch * i + pitch / 2
        colour = svg.TEXT if row.verdict is None else VERDICT_COLOURS[row.verdict]
        drawing.text(LEFT, y + 6, row.label, 17, weight=600)
        for x, level in _stacked([at(v) for v in row.values], 11):
            drawing.mark(x, y - 8 - level * 7, 9, "o", svg.PANEL, svg.MUTED)
        if row.low is not None and row.high is not None:
            drawing.line(at(row.low), y + 12, at(row.high), y + 12, colour, 2)
            for end in (row.low, row.high):
                drawing.line(at(end), y + 7, at(end), y + 17, colour, 2)
        drawing.mark(at(row.mean), y + 12, 8, "s", colour, colour)
        drawing.text(WIDTH - RIGHT, y + 4, row.note or figure(row.mean), 20, colour, 600, "end")
        if row.verdict is not None:
            drawing.text(WIDTH - RIGHT, y + 24, row.verdict.value, 14, colour, anchor="end")
    return drawing.render()


def _stacked(places: Sequence[float], size: float) -> list[tuple[float, int]]:
    """Dots that would touch go one above the other, four at most."""
    out: list[tuple[float, int]] = []
    for x in sorted(places):
        level = next((n for n in range(4) if all(abs(x - a) >= size for a, b in out if b == n)), 3)
        out.append((x, level))
    return out


# --- curves -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Curve:
    """One series. A backend's `rank` gives its mark: 0, the fastest, is the blue circle, 1 the amber square,
    whatever they are called. Policies have none: they are neutral and told by their dashes.
    """

    label: str
    points: tuple[tuple[float, float], ...]
    rank: int | None = None
    dash: str = ""
    strong: bool = False
    knee: tuple[float, float] | None = None
    knee_words: str = ""
    measured: bool = False  # points alone, no line
    wide: bool = False  # drawn broad and first, so that a line upon it leaves it to be seen
    ranges: tuple[tuple[float, float] | None, ...] = ()  # a 95 % interval for every point


@dataclass(frozen=True, slots=True)
class Axes:
    """Names and units of the axes; `logarithmic` spaces x by doublings."""

    x: str
    y: str
    x_ticks: tuple[float, ...] = ()
    logarithmic: bool = False
    percent_x: bool = False
    y_top: float | None = None
    rule: tuple[float, str] | None = None  # a vertical line and its words


def curves(title: str, subtitle: str, axes: Axes, series: Sequence[Curve], mark: Mark, foot: str = "") -> str:
    """Lines over a common x, labelled at their right ends."""
    drawing, down = sheet(title, subtitle, 640, mark, foot)
    top, x0, x1 = 130 + down, 110.0, WIDTH - RIGHT - 260.0
    bottom = top + 400.0
    xs = [x for s in series for x, _ in s.points]
    tops = [y for s in series for _, y in s.points] + [r[1] for s in series for r in s.ranges if r]
    high = axes.y_top or max(tops) * 1.06 or 1.0
    left, right = min(xs), max(xs)

    def scale(value: float) -> float:
        return math.log2(value) if axes.logarithmic else value

    wide = scale(right) - scale(left) or 1.0

    def at_x(value: float) -> float:
        return x0 + (scale(value) - scale(left)) / wide * (x1 - x0)

    def at_y(value: float) -> float:
        return bottom - max(0.0, min(value, high)) / high * (bottom - top)

    marks = ticks(0, high, 5)
    for tick in marks:
        drawing.line(x0 - 6, at_y(tick), x1, at_y(tick), svg.STRONG if tick == 0 else svg.GRID)
        drawing.text(x0 - 14, at_y(tick) + 5, figure(tick, decimals(marks)), 15, svg.MUTED, anchor="end")
    drawing.text(LEFT, top - 16, axes.y, 15, svg.MUTED)
    for tick in axes.x_ticks or ticks(left, right, 7):
        words = percent(tick, sign=False).replace(".0 %", " %") if axes.percent_x else f"{tick:,g}"
        drawing.text(at_x(tick), bottom + 28, words, 15, svg.MUTED, anchor="middle")
    drawing.text((x0 + x1) / 2, bottom + 56, axes.x, 15, svg.MUTED, anchor="middle")
    if axes.rule is not None:
        value, words = axes.rule
        drawing.line(at_x(value), top, at_x(value), bottom, svg.TEXT, 1, "2 4")
        drawing.text(at_x(value) + 8, top + 6, words, 14, svg.MUTED)
    named = [s for s in series if s.label]
    ends = spread([at_y(s.points[-1][1]) for s in named], 24, top + 4, bottom - 2)
    placed = {s.label: end for s, end in zip(named, ends, strict=True)}
    for s in sorted(series, key=lambda s: not s.wide):
        end = placed.get(s.label, 0.0)
        line, ink = _colours(s)
        places = [(at_x(x), at_y(y)) for x, y in s.points]
        shape = "s" if s.rank == 1 else "o"
        for (x, _), reach in zip(places, s.ranges, strict=False):
            if reach is not None:
                beside = x + 5 * (list(series).index(s) - (len(series) - 1) / 2)
                drawing.line(beside, at_y(reach[0]), beside, at_y(reach[1]), line, 1.5)
        if not s.measured:
            drawing.path(places, line, 7 if s.wide else 3 if s.strong else 2, s.dash)
        for x, y in places:
            size = 15 if s.wide else 9 if s.strong else 7
            drawing.mark(x, y, size, shape, svg.PANEL if s.dash else line, line)
        if s.label:
            drawing.text(x1 + 18, end + 5, s.label, 16, ink, 600 if s.strong else 400)
        if s.knee is not None:
            x, y = at_x(s.knee[0]), at_y(s.knee[1])
            drawing.mark(x, y, 18, shape, "none", svg.TEXT)
            if x < x0 + 80:  # beside the first point there is room only to the right
                drawing.text(x + 18, y + 20, s.knee_words, 15, svg.TEXT, 600)
            elif y < top + 60:
                drawing.text(x - 18, y + 1, s.knee_words, 15, svg.TEXT, 600, "end")
            else:
                drawing.text(x, y - 18, s.knee_words, 15, svg.TEXT, 600, "middle")
    return drawing.render()


def _colours(curve: Curve) -> tuple[str, str]:
    if curve.rank in (0, 1):
        return ((svg.GPU_LINE, svg.GPU_INK), (svg.CPU_LINE, svg.CPU_INK))[curve.rank]
    return (svg.TEXT, svg.TEXT) if curve.strong else (svg.MUTED, svg.MUTED)
