"""The offload map as a picture: green where the slower backend pays, hatched where no difference is found."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from engine.experiments import svg
from engine.experiments.charts import LEFT, RIGHT, WIDTH, Mark, sheet
from engine.experiments.svg import Svg, figure

PAYS = 0.02  # a gain below 2 % is none on a map: step times of real devices vary as much
FULL = 0.40  # the gain at which the colour is full
HEIGHT, TOP, FOOT = 675, 118, 116  # 16:9, as a slide
_STEPS = (-0.2, -0.1, 0.0, 0.05, 0.1, 0.2, 0.3, 0.4)
_HATCH = 9.0  # pixels between the lines of "no difference"
Cell = tuple[int, int]  # column, row


@dataclass(frozen=True, slots=True)
class Shade:
    """One cell or mark: its gain as a fraction, and the whole story on hover.

    `sure` is None where there are too few runs for an interval, False where the interval holds 0.
    """

    gain: float
    sure: bool | None
    words: str

    @property
    def pays(self) -> bool:
        return bool(self.sure) and self.gain >= PAYS

    @property
    def harms(self) -> bool:
        return bool(self.sure) and self.gain <= -PAYS


@dataclass(frozen=True, slots=True)
class Panel:
    """One surface: `cells` by (column, row), row 0 at the bottom, and marks where it was measured."""

    title: str
    subtitle: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    cells: Mapping[Cell, Shade]
    x: str
    y: str
    measured: Mapping[Cell, Shade] = field(default_factory=dict)


def heatmap(
    title: str,
    subtitle: str,
    panels: Sequence[Panel],
    mark: Mark,
    foot: str = "",
    circles: str = "measured on this machine",
) -> str:
    """One or two surfaces side by side, with the border of where it pays; `circles` says what marks are."""
    drawing, down = sheet(title, subtitle, HEIGHT, mark, foot)
    gap = 56
    width = (WIDTH - LEFT - RIGHT - gap * (len(panels) - 1)) / len(panels)
    for i, panel in enumerate(panels):
        _surface(drawing, panel, LEFT + i * (width + gap), TOP + down, width, HEIGHT - TOP - FOOT)
    _legend(drawing, HEIGHT + down - 84, circles if any(p.measured for p in panels) else "")
    return drawing.render()


def _surface(drawing: Svg, panel: Panel, left: float, top: float, width: float, height: float) -> None:
    drawing.text(left, top, panel.title, 18, weight=600)
    drawing.text(left, top + 22, panel.subtitle, 14, svg.MUTED)
    x0, y0 = left + 78, top + 38
    w = (left + width - x0) / len(panel.columns)
    h = (top + height - 52 - y0) / len(panel.rows)
    bottom = y0 + h * len(panel.rows)
    for (column, row), shade in panel.cells.items():
        x, y = x0 + w * column, bottom - h * (row + 1)
        point = panel.measured.get((column, row))
        drawing.begin(f"{shade.words} {point.words}" if point else shade.words)
        if point is None:
            _cell(drawing, shade, (x, y, w, h), y + h / 2 + 6, 17)
        else:  # the mark above, the simulated figure below it
            size = min(32.0, h - 22)
            _cell(drawing, shade, (x, y, w, h), y + h - 7, 17 if h > 60 else 14)
            _point(drawing, point, x + w / 2, y + (h - 16) / 2, size)
        drawing.end()
    _border(drawing, panel.cells, x0, bottom, w, h)
    for i, words in enumerate(panel.columns):
        drawing.text(x0 + w * (i + 0.5), bottom + 22, words, 15, svg.MUTED, anchor="middle")
    for i, words in enumerate(panel.rows):
        drawing.text(x0 - 10, bottom - h * (i + 0.5) + 5, words, 15, svg.MUTED, anchor="end")
    drawing.text(x0 + w * len(panel.columns) / 2, bottom + 45, panel.x, 15, svg.MUTED, anchor="middle")
    drawing.text(left + 14, (y0 + bottom) / 2, panel.y, 15, svg.MUTED, anchor="middle", turn=-90)


def _cell(
    drawing: Svg, shade: Shade, box: tuple[float, float, float, float], base: float, size: float
) -> None:
    """`box` is x, y, width, height; `base` the line that the figure of `size` stands on."""
    x, y, w, h = box
    fill = colour(shade.gain) if shade.sure is not False else svg.PANEL
    drawing.rect(x + 1, y + 1, w - 2, h - 2, fill, svg.LINE if fill == svg.PANEL else "none", rx=2)
    words = "0" if abs(shade.gain) < 0.005 else figure(shade.gain * 100, 0, sign=True)
    if shade.sure is False:
        _hatch(drawing, x + 1, y + 1, w - 2, h - 2)
        # The figure stands on a patch of its own: lines through digits are hard to read from afar.
        half = min(w / 2 - 3, 6 + size * 0.31 * len(words))
        drawing.rect(x + w / 2 - half, base - size, 2 * half, size * 1.3, svg.PANEL)
    ink = _ink(fill, shade.gain)
    drawing.text(x + w / 2, base, words, size, ink, 600 if shade.pays or shade.harms else 400, "middle")


def _hatch(drawing: Svg, x: float, y: float, w: float, h: float) -> None:
    """Lines rising to the right, each cut at the cell's edge: every viewer draws them, unlike patterns."""
    along = _HATCH
    while along < w + h:  # the lines x + y = along, from the left or lower edge to the upper or right one
        low = (0.0, along) if along < h else (along - h, h)
        high = (along, 0.0) if along < w else (w, along - w)
        drawing.line(x + low[0], y + low[1], x + high[0], y + high[1], svg.LINE, 1.2)
        along += _HATCH


def _point(drawing: Svg, point: Shade, x: float, y: float, size: float) -> None:
    """A measured cell: the surface is simulated, this is not. Dashed while runs are too few for a verdict."""
    fill = colour(point.gain) if point.sure is not False else svg.PANEL
    dash = "3 3" if point.sure is None else ""
    drawing.mark(x, y, size, "o", fill, svg.TEXT, dash)
    words = figure(point.gain * 100, 0, sign=True)
    drawing.text(x, y + size * 0.15, words, size * 0.42, _ink(fill, point.gain), 600, "middle")


def _ink(fill: str, gain: float) -> str:
    """White on the dark end of the scale, muted where there is nothing to see."""
    if fill == svg.PANEL or abs(gain) < PAYS:
        return svg.MUTED
    return svg.PANEL if abs(gain) > FULL * 0.6 else svg.TEXT


def _border(drawing: Svg, cells: Mapping[Cell, Shade], x0: float, bottom: float, w: float, h: float) -> None:
    """A strong line between cells where it pays and cells where it does not."""
    for (column, row), shade in cells.items():
        right, above = cells.get((column + 1, row)), cells.get((column, row + 1))
        x, y = x0 + w * column, bottom - h * (row + 1)
        if right is not None and right.pays != shade.pays:
            drawing.line(x + w, y, x + w, y + h, svg.TEXT, 2.5)
        if above is not None and above.pays != shade.pays:
            drawing.line(x, y, x + w, y, svg.TEXT, 2.5)


def _legend(drawing: Svg, y: float, circles: str) -> None:
    x = float(LEFT + 78)
    for value in _STEPS:
        drawing.rect(x, y, 44, 16, colour(value), svg.LINE)
        drawing.text(x + 22, y + 32, figure(value * 100, 0, sign=bool(value)), 13, svg.MUTED, anchor="middle")
        x += 46
    drawing.text(x + 10, y + 13, "% less time", 14, svg.MUTED)
    x += 112
    drawing.rect(x, y, 44, 16, svg.PANEL, svg.LINE)
    _hatch(drawing, x, y, 44, 16)
    drawing.text(x + 54, y + 13, "no difference: the 95 % interval holds 0", 14, svg.MUTED)
    words = "thick line: it pays from here on"
    drawing.line(x, y + 28, x + 44, y + 28, svg.TEXT, 2.5)
    drawing.text(x + 54, y + 33, words, 14, svg.MUTED)
    if circles:
        x += 345
        drawing.mark(x + 8, y + 8, 18, "o", colour(0.1), svg.TEXT)
        drawing.text(x + 26, y + 13, circles, 14, svg.MUTED)
        drawing.text(x + 26, y + 33, "(dashed: too few runs)", 14, svg.MUTED)


def colour(gain: float) -> str:
    """Green for a gain, the error colour for a loss, grey around nothing."""
    if abs(gain) < PAYS:
        return svg.GRID
    share = min(1.0, (abs(gain) - PAYS) / (FULL - PAYS)) * 0.88 + 0.12
    return _mix(svg.GRID, svg.GOOD if gain > 0 else svg.BAD, share)


def _mix(a: str, b: str, share: float) -> str:
    channels = []
    for i in (1, 3, 5):
        low, high = int(a[i : i + 2], 16), int(b[i : i + 2], 16)
        channels.append(round(low + (high - low) * share))
    return "#" + "".join(f"{c:02X}" for c in channels)
