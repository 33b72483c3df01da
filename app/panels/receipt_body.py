"""The painted inside of a receipt: sentence, stacked bars, terms, forecast against truth."""

from collections.abc import Sequence

from PySide6.QtCore import QLineF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPaintEvent, QPixmap
from PySide6.QtWidgets import QWidget

from app.panels.painting import (
    RIGHT,
    draw_spans,
    hair,
    half,
    width_of,
    wrap,
    wrap_spans,
)
from app.panels.receipt_bars import Facts
from app.panels.receipt_what_if import WhatIfPage
from app.series.decision import ARROW, Sentence, article, decide, receipt_sentence
from app.series.rows import PRICED, e2e_s, error_percent, predicted_s, priced_only
from app.series.terms import (
    NAMES,
    PRICE_POLICY,
    deciding,
    later_company,
    rates,
    terms,
    total_s,
    weighed,
    without_deciding,
)
from app.series.words import GROWING, NA, figure, percent, plural, seconds, spelled
from app.theme import ThemeHolder, font
from app.widgets.marks import paint_mark
from engine.receipt import Candidate

SCORES = {"total-delay": "Waiting of everybody, summed", "batched-clear": "Until clear, batching foreseen"}


class ReceiptBody(QWidget):
    def __init__(self, themes: ThemeHolder, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.themes = themes
        self.facts: Facts | None = None

    def show_facts(self, facts: Facts) -> None:
        self.facts = facts
        self._fit()
        self.update()

    def _fit(self) -> None:
        """Lay out on a canvas that nobody sees, to learn how high the page is at this width."""
        if self.facts is None or self.width() < 100:
            return
        canvas = QPixmap(1, 1)
        painter = QPainter(canvas)
        high = Page(painter, self.facts, self.themes.current, self.width()).draw()
        painter.end()
        self.setMinimumHeight(round(high))

    def resizeEvent(self, event) -> None:
        super().resizeEvent(event)
        self._fit()

    def sizeHint(self) -> QSize:
        return QSize(758, 700)

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.facts is None:
            return
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        Page(painter, self.facts, self.themes.current, self.width()).draw()
        painter.end()


class Page(WhatIfPage):
    """All parts of a receipt, in order."""

    def draw(self) -> float:
        self._hero()
        self._sentence()
        self.draw_bars()
        self._terms()
        self._rates()
        self._rule()
        self._outcome()
        self.draw_what_if()
        return self.y + 16

    def _hero(self) -> None:
        decision = decide(self.facts.receipt, self.facts.row.number, self.facts.labels)
        used, x = font("hero", bold=True), self.left
        for text, colour in ((f"Request {decision.number}", self.theme.text), (ARROW, self.theme.muted)):
            wide = width_of(text, used) + 1
            self.text(x, self.y, wide, text, used=used, colour=colour, high=40)
            x += wide + 12
        rank = self.facts.rank(decision.backend)
        paint_mark(self.painter, QRectF(x, self.y + 8, 24, 24), rank, self.theme)
        room = self.right - x - 36
        ink = self.ink(decision.backend)
        self.text(x + 36, self.y, room, decision.label, used=used, colour=ink, high=40, elide=True)
        self.y += 48

    def _sentence(self) -> None:
        sentence: Sentence = receipt_sentence(self.facts.receipt, self.facts.labels)
        lead = font("lead")
        for line in wrap_spans(sentence, lead, self.right - self.left):
            rect = QRectF(self.left, self.y, self.right - self.left, 28)
            draw_spans(self.painter, rect, line, lead, self.theme, self.facts.ranks)
            self.y += 28
        self.y += 20

    # Terms

    def _terms(self) -> None:
        shown, receipt = self.facts.candidates(), self.facts.receipt
        pair = min(200.0, (self.right - self.left - 220) / len(shown))
        columns: list[tuple[float, float]] = []  # right edges of tokens and seconds
        for index in range(len(shown)):
            end = self.right - pair * (len(shown) - 1 - index)
            columns.append((end - 0.44 * pair, end))
        self._cells("Term", [(f"{self.facts.label(c.backend)}, tokens", "seconds") for c in shown], columns,
                    colour=self.theme.muted)  # fmt: skip
        self._line(self.y)
        winner = deciding(receipt)
        for parts in zip(*(terms(c) for c in shown), strict=True):
            kind = parts[0].kind
            if kind == winner:
                band = QRectF(self.left - 8, self.y, self.right - self.left + 16, 24)
                self.painter.fillRect(band, self.theme.hover)
            name = NAMES[kind]
            if kind == "prefill" and any(c.active_prefill_tokens for c in shown):
                name = "Prefill, all"
            cells = [(figure(t.tokens), figure(t.seconds, 3) if t.tokens else "0") for t in parts]
            self._cells(name, cells, columns, bold=kind == winner,
                        note="the term that decides" if kind == winner else "")  # fmt: skip
        self._line(self.y)
        priced = receipt.policy == PRICE_POLICY
        totals = [("", figure(total_s(c), 3)) for c in shown]
        inks = [self.ink(c.backend) for c in shown]
        self._cells("Score" if priced else "Price at isolated rates", totals, columns, bold=True, inks=inks)
        if not priced:
            decimals = 3 if receipt.unit == "s" else 0
            name = SCORES.get(receipt.policy) or f"Score of {receipt.policy}"
            if receipt.unit and receipt.policy not in SCORES:
                name += f", {receipt.unit}"
            cells = [("", figure(c.score, decimals)) for c in shown]
            self._cells(name, cells, columns, bold=True, inks=inks)
        self._forecasts(shown, columns)
        self.y += 4

    def _forecasts(self, shown: Sequence[Candidate], columns: Sequence[tuple[float, float]]) -> None:
        """What each placement would mean for this request, where the policy foresaw it."""
        for name, values in (
            ("Forecast of its TTFT", [c.ttft_s for c in shown]),
            ("Forecast of its E2E", [c.e2e_s for c in shown]),
            ("Forecast until clear", [c.clear_s for c in shown]),
            ("Margin: what going there must save", [c.margin_s for c in shown]),
        ):
            if any(v is not None for v in values):
                self._cells(name, [("", figure(v, 3)) for v in values], columns)

    def _cells(
        self,
        name: str,
        cells: Sequence[tuple[str, str]],
        columns: Sequence[tuple[float, float]],
        bold: bool = False,
        note: str = "",
        colour: QColor | None = None,
        inks: Sequence[QColor] = (),
    ) -> None:
        """One row of the terms: its name at the left, two right-aligned figures for each backend."""
        used = self.bold if bold else self.label
        colour = colour or self.theme.text
        room = columns[0][0] - self.left - 70
        drawn = self.text(self.left, self.y, room, name, used=used, colour=colour, high=24, elide=True)
        if note and drawn.right() + 8 + width_of(note, self.label) < self.left + room:
            self.text(drawn.right() + 8, self.y, room, note, colour=self.theme.muted, high=24)
        for index, (pair, ends) in enumerate(zip(cells, columns, strict=True)):
            for text, end in zip(pair, ends, strict=True):
                shade = inks[index] if inks else self.theme.disabled if text in ("0", NA) else colour
                wide = width_of(text, self.bold if inks else self.label) + 1
                self.text(end - wide, self.y, wide, text, used=self.bold if inks else self.label,
                          colour=shade, high=24)  # fmt: skip
        self.y += 24

    def _line(self, y: float) -> None:
        self.painter.setPen(hair(self.theme.strong))
        self.painter.drawLine(QLineF(self.left, half(y), self.right, half(y)))

    def _rates(self) -> None:
        receipt, width = self.facts.receipt, self.right - self.left
        labels = self.facts.labels
        for words in (rates(receipt, labels), without_deciding(receipt, labels), weighed(receipt)):
            if words:
                self.text(self.left, self.y, width, words, colour=self.theme.muted, elide=True)
                self.y += 16
        self.y += 20

    def _rule(self) -> None:
        self.painter.setPen(hair(self.theme.strong))
        self.painter.drawLine(QLineF(self.left, half(self.y), self.right, half(self.y)))
        self.y += 20

    # Predicted, then actual; believed, then true

    def _outcome(self) -> None:
        middle = self.left + (self.right - self.left) / 2
        top = self.y
        self._predicted(self.left, middle - 16)
        below, self.y = self.y, top
        self._believed(middle + 16, self.right)
        self.y = max(below, self.y)

    def _predicted(self, left: float, right: float) -> None:
        row, now = self.facts.row, self.facts.now_s
        predicted, actual, error = predicted_s(row), e2e_s(row, now), error_percent(row)
        finished = row.finished_s is not None
        verdict = "still running" if not finished else "" if error is None else _late(error)
        self.text(left, self.y, right - left, "Predicted, then actual", used=self.bold)
        self.text(left, self.y, right - left, verdict, flags=RIGHT, colour=self.theme.muted)
        self.y += 24
        colours = self.theme.backend(self.facts.rank(self.facts.receipt.chosen))
        start, room = left + 80.0, right - left - 80 - 80
        most = max(predicted or 0.0, actual or 0.0) or 1.0
        for name, value in (("predicted", predicted), ("actual", actual)):
            self.text(left, self.y, 80, name, colour=self.theme.muted)
            if value is not None:
                bar = QRectF(half(start), half(self.y + 2), round(value / most * room), 11)
                forecast = name == "predicted"
                self.painter.setPen(hair(colours.line, 1, (3, 3)) if forecast else hair(colours.edge))
                self.painter.setBrush(QColor(Qt.GlobalColor.transparent) if forecast else colours.fill)
                self.painter.drawRect(bar)
            growing = name == "actual" and not finished and value is not None
            text = f"{figure(value, 2)}{GROWING} s" if growing else seconds(value)
            shade = self.theme.disabled if value is None else self.theme.muted if growing else self.theme.text
            self.text(right - 76, self.y, 76, text, flags=RIGHT, used=self.bold, colour=shade)
            self.y += 24
        if priced_only(row):
            for line in wrap(PRICED, self.label, right - left):
                self.text(left, self.y, right - left, line, colour=self.theme.muted)
                self.y += 16
            self.y += 8
        after = later_company(row, self.facts.rows)
        if after:
            note = f"{spelled(after).capitalize()} {plural(after, 'request')} arrived here after it."
            self.text(left, self.y, right - left, note, colour=self.theme.muted, elide=True)
            self.y += 24

    def _believed(self, left: float, right: float) -> None:
        row, receipt = self.facts.row, self.facts.receipt
        chosen = receipt.candidate(receipt.chosen)
        self.text(left, self.y, right - left, "Believed, then true", used=self.bold)
        self.y += 24
        if chosen is None:
            return
        written = NA if row.finished_s is None else figure(row.output_tokens)
        where = article(self.facts.label(receipt.chosen))
        for name, believed, true in (
            (f"cached on {where}", figure(chosen.cached_tokens), figure(row.cached_tokens)),
            ("tokens to write", figure(chosen.own_decode_tokens), written),
        ):
            value = f"{true} tokens" if true != NA else NA
            wide = width_of(value, self.bold) + 1
            known = self.theme.disabled if true == NA else self.theme.text
            self.text(right - wide, self.y, wide, value, used=self.bold, colour=known)
            lead = f"{believed}  {ARROW}  "
            start = right - wide - width_of(lead, self.label) - 1
            self.text(start, self.y, width_of(lead, self.label) + 1, lead, colour=self.theme.muted)
            self.text(left, self.y, start - left - 8, name, colour=self.theme.muted, elide=True)
            self.y += 24


def _late(error: float) -> str:
    """`3.2 % late`, `0.4 % early`."""
    if abs(error) < 0.05:
        return "on time"
    return f"{percent(abs(error))} {'late' if error > 0 else 'early'}"
