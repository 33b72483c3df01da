"""A report's charts in the window's theme. The files are drawn for white paper; here their colours are
exchanged by role, and shades between two roles keep their place between the exchanged ones."""

import re

from PySide6.QtGui import QColor

from app.theme import Theme
from engine.experiments import svg

_PAINT = re.compile(r'\b(fill|stroke)="(#[0-9A-Fa-f]{6})"')
_ROLES = {
    svg.PANEL: "panel", svg.TEXT: "text", svg.MUTED: "muted", svg.FAINT: "disabled",
    svg.LINE: "line", svg.STRONG: "strong", svg.GRID: "grid", svg.TRACK: "track",
    svg.CPU: "cpu", svg.CPU_LINE: "cpu_line", svg.CPU_INK: "cpu_ink", svg.CPU_TINT: "cpu_tint",
    svg.GPU: "gpu", svg.GPU_LINE: "gpu_line", svg.GPU_INK: "gpu_ink", svg.GPU_TINT: "gpu_tint",
    svg.EMULATED: "emulated", svg.GOOD: "success", svg.BAD: "error", svg.WARNING: "warning",
}  # fmt: skip
_OFF = 2.0  # levels of a channel by which rounding may move a shade from the line between its two ends


def in_theme(text: str, theme: Theme) -> str:
    """The SVG `text` with the colours of `theme`; a colour that no role explains stays."""
    known = {paper.upper(): getattr(theme, role).name() for paper, role in _ROLES.items()}

    def exchange(found: re.Match[str]) -> str:
        paper = found[2].upper()
        return f'{found[1]}="{known.get(paper) or _shade(paper, theme) or found[2]}"'

    return _PAINT.sub(exchange, text)


def _shade(paper: str, theme: Theme) -> str | None:
    """The colour of a map's cell: as far from the grid's grey to a gain's or a loss's colour as on paper."""
    for end, role in ((svg.GOOD, "success"), (svg.BAD, "error")):
        start, whole = _levels(QColor(svg.GRID)), _levels(QColor(end))
        way = [b - a for a, b in zip(start, whole, strict=True)]
        gone = [c - a for a, c in zip(start, _levels(QColor(paper)), strict=True)]
        share = sum(g * w for g, w in zip(gone, way, strict=True)) / sum(w * w for w in way)
        if all(abs(g - share * w) <= _OFF for g, w in zip(gone, way, strict=True)):
            low, high = _levels(theme.grid), _levels(getattr(theme, role))
            return QColor(*(round(a + share * (b - a)) for a, b in zip(low, high, strict=True))).name()
    return None


def _levels(colour: QColor) -> tuple[int, int, int]:
    return colour.red(), colour.green(), colour.blue()
