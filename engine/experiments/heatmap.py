"""The offload map as a picture: green where the slower backend pays, grey where it makes no difference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.experiments import svg
from engine.experiments.charts import LEFT, RIGHT, WIDTH, Mark, sheet
from engine.experiments.svg import Svg, figure

PAYS = 0.02  # a gain below 2 % is no difference on a map: step times of real devices vary as much
FULL = 0.40  # the gain at which the colour is full
Cell = tuple[int, int]  # column, row


@dataclass(frozen=True, slots=True)
class Panel:
    """One surface: `gains` as fractions by (column, row), row 0 at the bottom."""

    title: str
    subtitle: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    gains: Mapping[Cell, float]
    measured: Mapping[Cell, float]
    x: str
    y: str


def heatmap(title: str, subtitle: str, panels: Sequence[Panel], mark: Mark, foot: str = "") -> str:
    """One or two surfaces side by side, with the border of where it pays."""
    height = 760
    drawing, down = sheet(title, subtitle, height, mark, foot)
    gap = 70
    width = (WIDTH - LEFT - RIGHT - gap * (len(panels) - 1)) / len(panels)
    for i, panel in enumerate(panels):
        _surface(drawing, panel, LEFT + i * (width + gap), 128 + down, width, height - 128 - 130)
    _scale(drawing, height + down - 76)
    return drawing.render()


def _surface(drawing: Svg, panel: Panel, left: float, top: float, width: float, height: float) -> None:
    drawing.text(left, top, panel.title, 18, weight=600)
    drawing.text(left, top + 22, panel.subtitle, 14, svg.MUTED)
    x0, y0 = left + 74, top + 44
    w = (left + width - x0) / len(panel.columns)
    h = (top + height - 58 - y0) / len(panel.rows)
    bottom = y0 + h * len(panel.rows)
    for (column, row), gain in panel.gains.items():
        x, y = x0 + w * column, bottom - h * (row + 1)
        fill = colour(gain)
        drawing.rect(x + 1, y + 1, w - 2, h - 2, fill, rx=2)
        dark = abs(gain) > FULL * 0.55
        ink = svg.PANEL if dark else svg.MUTED if abs(gain) < PAYS else svg.TEXT
        words = "0" if abs(gain) < 0.005 else figure(gain * 100, 0, sign=True)
        drawing.text(x + w / 2, y + h / 2 + 6, words, 17, ink, 600 if gain >= PAYS else 400, "middle")
        if (column, row) in panel.measured:
            _point(drawing, panel.measured[column, row], x + w - 17, y + 17)
    _border(drawing, panel.gains, x0, bottom, w, h)
    for i, words in enumerate(panel.columns):
        drawing.text(x0 + w * (i + 0.5), bottom + 24, words, 15, svg.MUTED, anchor="middle")
    for i, words in enumerate(panel.rows):
        drawing.text(x0 - 10, bottom - h * (i + 0.5) + 5, words, 15, svg.MUTED, anchor="end")
    drawing.text(x0 + w * len(panel.columns) / 2, bottom + 50, panel.x, 15, svg.MUTED, anchor="middle")
    drawing.text(left + 14, (y0 + bottom) / 2, panel.y, 15, svg.MUTED, anchor="middle", turn=-90)


def _point(drawing: Svg, gain: float, x: float, y: float) -> None:
    """A measured cell: the surface is simulated, this is not."""
    drawing.mark(x, y, 30, "o", colour(gain), svg.TEXT)
    ink = svg.PANEL if abs(gain) > FULL * 0.55 else svg.TEXT
    drawing.text(x, y + 4, figure(gain * 100, 0, sign=True), 12, ink, 600, "middle")


def _border(drawing: Svg, gains: Mapping[Cell, float], x0: float, bottom: float, w: float, h: float) -> None:
    """A strong line between cells where it pays and cells where it does not."""
    for (column, row), gain in gains.items():
        here = gain >= PAYS
        right, above = gains.get((column + 1, row)), gains.get((column, row + 1))
        x, y = x0 + w * column, bottom - h * (row + 1)
        if right is not None and (right >= PAYS) != here:
            drawing.line(x + w, y, x + w, y + h, svg.TEXT, 2.5)
        if above is not None and (above >= PAYS) != here:
            drawing.line(x, y, x + w, y, svg.TEXT, 2.5)


def _scale(drawing: Svg, y: float) -> None:
    steps = (-0.2, -0.1, 0.0, 0.05, 0.1, 0.2, 0.3, 0.4)
    x = float(LEFT + 74)
    for value in steps:
        drawing.rect(x, y, 44, 16, colour(value), svg.LINE)
        drawing.text(x + 22, y + 32, figure(value * 100, 0, sign=bool(value)), 13, svg.MUTED, anchor="middle")
        x += 46
    words = "% less time than the fastest backend alone; thick line: from 2 % on"
    drawing.text(x + 14, y + 13, words, 14, svg.MUTED)


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
