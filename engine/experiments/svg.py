"""Charts are SVG written by hand: plain attributes only, so that every viewer and Qt draw them alike."""

import math
from collections.abc import Sequence
from html import escape

FONTS = "Inter, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"

# Light theme; the two backend colours belong to backends alone.
PANEL, TEXT, MUTED, FAINT = "#FFFFFF", "#16191D", "#5B6472", "#8E97A5"
LINE, STRONG, GRID, TRACK = "#D9DEE7", "#B9C1CE", "#E9ECF1", "#E6EAF0"
CPU, CPU_LINE, CPU_INK, CPU_TINT = "#E69F00", "#B87C00", "#8A5B00", "#F5D999"
GPU, GPU_LINE, GPU_INK, GPU_TINT = "#56B4E9", "#2583BD", "#156699", "#BBE1F6"
EMULATED, GOOD, BAD, WARNING = "#9C3D74", "#00734F", "#B84A00", "#7A6400"
NARROW = 0.56  # mean width of a character over its size, a little too wide rather than too narrow


class Svg:
    """A drawing of fixed size. Coordinates are pixels from the top left."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height = width, height
        self._title = title
        self._parts: list[str] = []

    def rect(
        self, x: float, y: float, w: float, h: float, fill: str, stroke: str = "none", **more: object
    ) -> None:
        self._add("rect", x=x, y=y, width=max(0.0, w), height=max(0.0, h), fill=fill, stroke=stroke, **more)

    def line(
        self, x1: float, y1: float, x2: float, y2: float, stroke: str = LINE, width: float = 1, dash: str = ""
    ) -> None:
        self._add(
            "line", x1=x1, y1=y1, x2=x2, y2=y2, stroke=stroke, stroke_width=width, stroke_dasharray=dash
        )

    def path(
        self, points: Sequence[tuple[float, float]], stroke: str, width: float = 2, dash: str = ""
    ) -> None:
        """An open line through points."""
        d = "M" + " L".join(f"{number(x)} {number(y)}" for x, y in points)
        self._add(
            "path",
            d=d,
            fill="none",
            stroke=stroke,
            stroke_width=width,
            stroke_dasharray=dash,
            stroke_linejoin="round",
        )

    def mark(
        self, x: float, y: float, size: float, shape: str, fill: str, stroke: str, dash: str = ""
    ) -> None:
        """A circle ("o") or a square ("s") of `size` across."""
        half = size / 2
        if shape == "s":
            self.rect(x - half, y - half, size, size, fill, stroke, stroke_width=1.5, rx=1)
        else:
            edge = {"stroke_width": 1.5, "stroke_dasharray": dash}
            self._add("circle", cx=x, cy=y, r=half, fill=fill, stroke=stroke, **edge)

    def begin(self, words: str) -> None:
        """What is drawn until `end` says `words` when the mouse rests on it."""
        self._parts.append(f"<g><title>{escape(words)}</title>")

    def end(self) -> None:
        self._parts.append("</g>")

    def text(
        self,
        x: float,
        y: float,
        words: str,
        size: float = 16,
        fill: str = TEXT,
        weight: int = 400,
        anchor: str = "start",
        turn: float = 0,
    ) -> None:
        """`y` is the base line; `anchor` is start, middle or end."""
        self._add(
            "text",
            escape(words),
            x=x,
            y=y,
            font_size=size,
            fill=fill,
            font_weight=weight if weight != 400 else "",
            text_anchor=anchor if anchor != "start" else "",
            transform=f"rotate({number(turn)} {number(x)} {number(y)})" if turn else "",
        )

    def badge(self, right: float, y: float, strong: str, words: str, size: float = 15) -> None:
        """The mark of what is simulated or emulated: a dashed frame that ends at `right`."""
        width = badge_width(strong, words, size)
        x = right - width
        frame = {"stroke_width": 1, "stroke_dasharray": "3 3", "rx": 4}
        self.rect(x, y, width, size + 13, PANEL, EMULATED, **frame)
        content = f'<tspan font-weight="600">{escape(strong)}</tspan> <tspan>{escape(words)}</tspan>'
        middle: dict[str, object] = {"font_size": size, "fill": EMULATED, "text_anchor": "middle"}
        self._add("text", content, x=x + width / 2, y=y + size + 4, **middle)

    def render(self) -> str:
        """The whole drawing as a document."""
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" font-family="{FONTS}" role="img">'
            f"<title>{escape(self._title)}</title>"
            f'<rect width="{self.width}" height="{self.height}" fill="{PANEL}"/>'
        )
        return head + "\n" + "\n".join(self._parts) + "\n</svg>\n"

    def _add(self, tag: str, content: str = "", /, **attributes: object) -> None:
        words = " ".join(
            f'{name.replace("_", "-")}="{number(value) if isinstance(value, float) else value}"'
            for name, value in attributes.items()
            if value != ""
        )
        self._parts.append(f"<{tag} {words}>{content}</{tag}>" if content else f"<{tag} {words}/>")


def decimals(values: Sequence[float]) -> int:
    """Digits behind the point that tell round values apart."""
    return next((d for d in range(6) if all(abs(round(v, d) - v) < 1e-9 for v in values)), 6)


def number(value: float) -> str:
    """Coordinates to a hundredth of a pixel."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def badge_width(strong: str, words: str, size: float = 15) -> float:
    """Of a badge's frame: wide enough for the widest of the fonts."""
    return len(strong) * size * 0.74 + len(words) * size * 0.56 + 36


def ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round values that cover low to high, about `wanted` of them."""
    if not high > low:
        high = low + 1
    raw = (high - low) / max(1, wanted)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(s * power for s in (1, 2, 2.5, 5, 10) if s * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def figure(value: float | None, digits: int | None = None, sign: bool = False) -> str:
    """A number for people: thousands with commas, a real minus, n/a where there is none."""
    if value is None or math.isnan(value):
        return "n/a"
    if digits is None:
        size = abs(value)
        digits = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 1 or size == 0 else 3
    value = round(value, digits) + 0.0
    text = f"{value:+,.{digits}f}" if sign else f"{value:,.{digits}f}"
    return text.replace("-", "\u2212")


def counted(number: int, noun: str) -> str:
    """ "1 pair", "5 pairs"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def percent(share: float | None, sign: bool = True, digits: int = 1) -> str:
    """A fraction as percent: "-9.8 %"."""
    return "n/a" if share is None else f"{figure(share * 100, digits, sign)} %"


def telling_digits(*percents: float | None) -> int:
    """Digits behind the point, 1 to 4, so that the end of an interval beside 0 does not read as 0."""
    known = [value for value in percents if value]
    return next((d for d in range(1, 4) if all(round(value, d) for value in known)), 4)


def interval_words(low: float | None, high: float | None, sign: bool = True) -> str:
    """Two fractions as percent: "-19.2 % to -0.04 %"."""
    digits = telling_digits(*(share * 100 for share in (low, high) if share is not None))
    return f"{percent(low, sign, digits)} to {percent(high, sign, digits)}"


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions near the wanted ones, at least `gap` apart where there is room, in the same order."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    placed = [min(max(wanted[i], low), high) for i in order]
    for _ in range(200):
        moved = False
        for a in range(len(placed) - 1):
            short = gap - (placed[a + 1] - placed[a])
            if short > 0.01:
                placed[a], placed[a + 1] = placed[a] - short / 2, placed[a + 1] + short / 2
                moved = True
        placed = [min(max(p, low), high) for p in placed]
        if not moved:
            break
    out = [0.0] * len(wanted)
    for place, i in zip(placed, order, strict=True):
        out[i] = place
    return out
