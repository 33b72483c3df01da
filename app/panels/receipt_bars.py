"""A receipt's page: what it is about, how it sets text, and its stacked bars of seconds."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from PySide6.QtCore import QLineF, QRectF
from PySide6.QtGui import QBrush, QColor, QPainter

from app.panels.painting import CENTRE, LEFT, draw_text, hair, half, tick_text, ticks, width_of
from app.series.board import RequestRow
from app.series.decision import margin
from app.series.hindsight import WhatIf
from app.series.terms import PRICE_POLICY, Term, terms, total_s
from app.series.words import figure, seconds
from app.theme import Theme, font
from app.widgets.marks import hatch_brush, paint_mark
from engine.receipt import Candidate, Receipt

EDGE = 32  # padding of the sheet
LEGEND = (
    ("prefill", "prefill"),
    ("active", "active decode"),
    ("queued", "queued decode"),
    ("own", "own decode"),
)


@dataclass(slots=True)
class Facts:
    """What one receipt shows: the request, its company and the words of the backends."""

    row: RequestRow
    rows: Sequence[RequestRow] = ()
    labels: dict[str, str] = field(default_factory=dict)
    ranks: dict[str, int] = field(default_factory=dict)
    now_s: float = 0.0
    what_if: WhatIf | None = None  # None = nobody can be asked
    start_s: float = 0.0  # of the burst

    @property
    def receipt(self) -> Receipt:
        if self.row.receipt is None:
            raise ValueError("a request without a receipt has nothing to show")
        return self.row.receipt

    def candidates(self) -> list[Candidate]:
        """Slowest first, as everywhere in the window."""
        return sorted(self.receipt.candidates, key=lambda c: -self.rank(c.backend))

    def label(self, backend: str) -> str:
        return self.labels.get(backend, backend)

    def rank(self, backend: str) -> int:
        return self.ranks.get(backend, 3)


class BarPage:
    """One pass from top to bottom; `y` is where the next part begins."""

    def __init__(self, painter: QPainter, facts: Facts, theme: Theme, width: float) -> None:
        self.painter, self.facts, self.theme = painter, facts, theme
        self.left, self.right, self.y = float(EDGE), width - EDGE, 16.0
        self.label, self.bold = font("label"), font("label", bold=True)

    def text(self, x: float, y: float, width: float, text: str, **how) -> QRectF:
        """One line of label text 16 px high; `how`: flags, used, colour, back, elide."""
        return draw_text(
            self.painter,
            QRectF(x, y, width, how.get("high", 16)),
            how.get("flags", LEFT),
            text,
            how.get("used", self.label),
            how.get("colour", self.theme.text),
            elide=how.get("elide", False),
            back=how.get("back"),
        )

    def ink(self, backend: str) -> QColor:
        return self.theme.backend(self.facts.rank(backend)).ink

    def draw_bars(self) -> None:
        shown = self.facts.candidates()
        totals = [total_s(c) for c in shown]
        known = [t for t in totals if t is not None]
        priced = self.facts.receipt.policy == PRICE_POLICY
        title = "Seconds each backend would need" if priced else "Seconds at isolated rates"
        drawn = self.text(self.left, self.y, 300, title, used=self.bold)
        if not known:
            note = "Not calibrated yet: the tokens are known, the seconds are not."
            self.text(self.left, self.y + 24, self.right - self.left, note, colour=self.theme.muted)
            self.y += 56
            return
        self._legend(max(shown, key=lambda c: sum(t.tokens > 0 for t in terms(c))), drawn.right() + 16)
        self.y += 20
        width, top = self.right - self.left, 1.045 * max(known)
        bars = [
            QRectF(self.left, self.y + 24 + 64 * i, (t or 0.0) / top * width, 32)
            for i, t in enumerate(totals)
        ]
        axis_y = self.y + 64 * len(bars)
        self._bar_axis(axis_y, top, width, bars)  # first, so that bars and figures cover its long dashes
        for candidate, total, bar in zip(shown, totals, bars, strict=True):
            self._bar_head(candidate, total)
            x = self.left
            for term in terms(candidate):
                wide = (term.seconds or 0.0) / top * width
                self._segment(QRectF(x, bar.top(), wide, 32), term, self.facts.rank(candidate.backend))
                x += wide
            self.y += 64
        self.y = axis_y + 48

    def _legend(self, candidate: Candidate, least_x: float) -> None:
        """What each filling means, right-aligned; with fewer words where a wide font leaves no room."""
        legend = LEGEND
        if self.right - sum(width_of(w, self.label) + 37 for _, w in legend) < least_x:
            legend = tuple((kind, words.removesuffix(" decode")) for kind, words in LEGEND)
        x = self.right
        for kind, words in reversed(legend):
            wide = width_of(words, self.label) + 1
            x -= wide
            self.text(x, self.y, wide, words, colour=self.theme.muted)
            x -= 20
            swatch = QRectF(x, self.y + 2, 12, 12)
            self._fill(swatch, kind, self.facts.rank(candidate.backend))
            x -= 16

    def _bar_head(self, candidate: Candidate, total: float | None) -> None:
        paint_mark(
            self.painter,
            QRectF(self.left, self.y + 6, 12, 12),
            self.facts.rank(candidate.backend),
            self.theme,
        )
        name = self.facts.label(candidate.backend)
        x = self.left + 20
        wide = width_of(name, self.bold) + 1
        self.text(x, self.y, wide, name, used=self.bold, high=24)
        prefill, decode = figure(candidate.prefill_tokens), figure(candidate.decode_tokens)
        what = f"{prefill} tokens to prefill, {decode} to decode"
        self.text(x + wide + 8, self.y, 400, what, colour=self.theme.muted, high=24)
        lead, unit = font("lead", bold=True), width_of("s", self.label) + 1
        self.text(self.right - unit, self.y + 1, unit, "s", colour=self.theme.muted, high=24)
        number = figure(total, 3)
        wide = width_of(number, lead) + 1
        ink = self.ink(candidate.backend)
        self.text(
            self.right - unit - 4 - wide,
            self.y,
            wide,
            number,
            used=lead,
            colour=ink,
            high=24,
            back=self.theme.raised,
        )

    def _fill(self, rect: QRectF, kind: str, rank: int) -> None:
        colours = self.theme.backend(rank)
        if kind == "prefill":
            self.painter.fillRect(rect, self.theme.muted)
            return
        brush: QBrush | QColor = colours.fill
        if kind == "active":
            brush = colours.tint
        elif kind == "queued":
            brush = hatch_brush(rank, self.theme, self.painter.device().devicePixelRatioF(), 8)
        self.painter.setPen(hair(colours.edge))
        self.painter.setBrush(brush)
        self.painter.drawRect(QRectF(half(rect.x()), half(rect.y()), rect.width() - 1, rect.height() - 1))

    def _segment(self, rect: QRectF, term: Term, rank: int) -> None:
        if rect.width() < 0.5:
            return
        self._fill(
            rect if rect.width() > 2 else QRectF(rect.x(), rect.y(), 2, rect.height()), term.kind, rank
        )
        words = {"prefill": "", "active": " active", "queued": " queued", "own": " own"}[term.kind]
        colour = {"prefill": self.theme.on_inverse, "own": self.theme.on_backend}.get(
            term.kind, self.theme.text
        )
        for text in (figure(term.tokens) + words, figure(term.tokens)):
            if width_of(text, self.bold) + 8 <= rect.width():
                back = self.theme.raised if term.kind == "queued" else None
                draw_text(self.painter, rect, CENTRE, text, self.bold, colour, back=back)
                return

    def _bar_axis(self, y: float, top: float, width: float, bars: Sequence[QRectF]) -> None:
        self.painter.setPen(hair(self.theme.strong))
        self.painter.drawLine(QLineF(self.left, half(y), self.right, half(y)))
        note = self._gap(y, top / width, bars)
        values = ticks(top, 5)
        step = values[1] if len(values) > 1 else 1.0
        for value in values:
            x = self.left + value / top * width
            text = tick_text(value, step) + (" s" if value == values[-1] else "")
            wide = width_of(text, self.label) + 1
            rect = QRectF(max(self.left, min(x - wide / 2, self.right - wide)), y + 10, wide, 16)
            self.painter.setPen(hair(self.theme.strong))
            self.painter.drawLine(QLineF(half(x), y, half(x), y + 4))
            if not rect.adjusted(-4, 0, 4, 0).intersects(note):
                draw_text(self.painter, rect, LEFT, text, self.label, self.theme.muted)

    def _gap(self, y: float, s_per_px: float, bars: Sequence[QRectF]) -> QRectF:
        """The difference of two bars, measured below the axis; returns where its figure stands."""
        gap = margin(self.facts.receipt)
        if gap is None or gap[0] <= 0 or len(bars) != 2 or self.facts.receipt.policy != PRICE_POLICY:
            return QRectF()
        low, high = sorted(bar.right() for bar in bars)
        text = seconds((high - low) * s_per_px, 3)
        wide = width_of(text, self.bold) + 1
        note = QRectF(min((low + high) / 2 - wide / 2, self.right - wide), y + 10, wide, 16)
        self.painter.setPen(hair(self.theme.text, 1, (2, 3)))
        for bar in bars:
            self.painter.drawLine(QLineF(half(bar.right()), bar.bottom(), half(bar.right()), y + 8))
        self.painter.setPen(hair(self.theme.text))
        self.painter.drawLine(QLineF(low, half(y + 8), high, half(y + 8)))
        return draw_text(self.painter, note, LEFT, text, self.bold, self.theme.text)
