"""The regret of a burst, below the figures of its result card: best placement, lower bound, what cost it."""

from typing import Protocol

from PySide6.QtCore import QLineF, QPointF, QRectF
from PySide6.QtGui import QColor, QFont, QPainter

from app.panels.painting import RIGHT, draw_tag, hair, half, width_of, wrap
from app.series.hindsight import CALIBRATION, SIMULATED, Regret, RegretState, share
from app.series.words import NA, figure
from app.theme import Theme

ROW, PART = 20.0, 17.0
COLUMN = 96.0
TOP = 12.0


class Page(Protocol):
    """What this needs of the card's page."""

    painter: QPainter
    theme: Theme
    label: QFont
    bold: QFont
    y: float

    def text(self, x: float, y: float, width: float, text: str, **how) -> QRectF: ...


def regret_height(state: RegretState | None) -> float:
    """Room that it needs at the bottom of the page, in pixels."""
    if state is None:
        return 0.0
    if state.regret is None:
        return TOP + 44
    return TOP + 24 + ROW * (len(state.regret.lines) + 1) + PART * len(state.regret.split)


def draw_regret(page: Page, state: RegretState, left: float, right: float) -> None:
    page.y += TOP
    drawn = page.text(left, page.y, 200, "Regret", used=page.bold)
    found = state.regret
    if found is None:
        x, words = drawn.right() + 12, f"n/a. {state.words}" if state.failed else state.words
        for line in wrap(words, page.label, right - x)[:2]:
            page.text(x, page.y, right - x, line, colour=page.theme.muted, elide=True)
            page.y += 16
        return
    at = QPointF(drawn.right() + 12, page.y)
    draw_tag(page.painter, at, SIMULATED, page.bold, page.theme.emulated, right=False)
    for place, head in enumerate(("makespan, s", "mean E2E, s")):
        end = right - COLUMN * (1 - place)
        page.text(end - COLUMN, page.y, COLUMN, head, flags=RIGHT, colour=page.theme.muted)
    page.y += 20
    _lines(page, found, left, right)


def _lines(page: Page, found: Regret, left: float, right: float) -> None:
    for line in found.lines:
        best = line.name.startswith("Best")
        note = found.best_words() if best else CALIBRATION if line.name.startswith("Lower") else ""
        cells = (figure(line.makespan_s, 2), figure(line.mean_e2e_s, 2))
        _row(page, left, right, line.name, cells, note, page.theme.text, ROW, bold=best)
    page.painter.setPen(hair(page.theme.line))
    page.painter.drawLine(QLineF(left, half(page.y), right, half(page.y)))
    totals = (share(found.total[0]), share(found.total[1]))
    _row(page, left, right, "Regret", totals, "against the best", page.theme.text, ROW, bold=True)
    for name, makespan, e2e in found.split:
        _row(page, left, right, name, (share(makespan), share(e2e)), "", page.theme.muted, PART, inset=12)


def _row(
    page: Page, left: float, right: float, name: str, cells: tuple[str, str], note: str, ink: QColor,
    high: float, bold: bool = False, inset: float = 0.0,
) -> None:  # fmt: skip
    used = page.bold if bold else page.label
    room = right - left - 2 * COLUMN - inset
    drawn = page.text(left + inset, page.y, room, name, used=used, colour=ink, high=high, elide=True)
    start = drawn.right() + 8
    if note and width_of(note, page.label) <= left + inset + room - start:
        page.text(start, page.y, room, note, colour=page.theme.muted, high=high)
    for place, words in enumerate(cells):
        end = right - COLUMN * (1 - place)
        shade = page.theme.disabled if words == NA else ink
        page.text(end - COLUMN, page.y, COLUMN, words, flags=RIGHT, used=used, colour=shade, high=high)
    page.y += high
