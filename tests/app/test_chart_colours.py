"""A report's charts in the window's theme: every colour is exchanged, and words can be read on all shades."""

import re

import pytest
from prompt_helpers import contrast
from PySide6.QtGui import QColor

from app.chart_colours import in_theme
from app.theme import DARK, LIGHT
from engine.experiments import heatmap, svg

GAINS = [step / 100 for step in range(-40, 41)]
PAINT = re.compile(r'(?:fill|stroke)="([^"]+)"')


def drawn_map() -> str:
    """Cells of every shade, each with its figure, and every colour by its name."""
    drawing = svg.Svg(900, 100, 'All shades fill="#FFFFFF"')
    for index, gain in enumerate(GAINS):
        shade = heatmap.Shade(gain, abs(gain) > 0.1, "")
        heatmap._cell(drawing, shade, (index * 10.0, 0.0, 10.0, 20.0), 15.0, 12.0)
    for name in vars(svg):
        value = getattr(svg, name)
        if isinstance(value, str) and value.startswith("#"):
            drawing.line(0, 0, 1, 1, value)
    return drawing.render()


def test_no_colour_of_the_paper_is_left_in_the_dark() -> None:
    paper, dark = drawn_map(), in_theme(drawn_map(), DARK)
    before, after = PAINT.findall(paper), PAINT.findall(dark)
    assert len(before) == len(after) and re.sub(PAINT, "", paper) == re.sub(PAINT, "", dark)
    same = {a for a, b in zip(before, after, strict=True) if a.lower() == b.lower() and a != "none"}
    assert same <= {svg.CPU, svg.GPU}, "the two colours that both themes share"
    assert f'fill="{DARK.panel.name()}"' in dark


def test_light_charts_stay_as_they_are() -> None:
    before = [QColor(c) for c in PAINT.findall(drawn_map()) if c != "none"]
    after = [QColor(c) for c in PAINT.findall(in_theme(drawn_map(), LIGHT)) if c != "none"]
    worst = max(
        abs(a - b)
        for old, new in zip(before, after, strict=True)
        for a, b in zip(old.getRgb()[:3], new.getRgb()[:3], strict=True)
    )
    assert worst <= 2


@pytest.mark.parametrize("gain", GAINS)
def test_figures_can_be_read_on_every_shade(gain) -> None:
    drawing = svg.Svg(10, 10, "One cell")
    heatmap._cell(drawing, heatmap.Shade(gain, abs(gain) > 0.1, ""), (0.0, 0.0, 10.0, 10.0), 8.0, 12.0)
    text = in_theme(drawing.render(), DARK)
    fill = re.search(r'<rect x="1.*?fill="([^"]+)"', text)
    ink = re.search(r'<text .*?fill="([^"]+)"', text)
    assert fill and ink and contrast(QColor(ink[1]), QColor(fill[1])) >= 3.0


def test_a_colour_without_a_role_stays() -> None:
    assert in_theme('<rect fill="#123456" stroke="none"/>', DARK) == '<rect fill="#123456" stroke="none"/>'
