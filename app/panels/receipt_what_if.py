"""The last part of a receipt: what this request and its burst would have been elsewhere, simulated."""

from collections.abc import Sequence

from PySide6.QtCore import QLineF, QPointF, QRectF

from app.panels.painting import RIGHT, draw_tag, hair, half, width_of, wrap
from app.panels.receipt_bars import BarPage
from app.series.hindsight import CALIBRATION, SIMULATED, WhatIfLine, what_if_lines
from app.series.words import NA, figure
from app.widgets.marks import paint_mark

ROW = 24
FIGURE = 88.0  # width of a column of figures
WHERE = 84.0
HEADS = ("TTFT, s", "E2E, s", "Burst, s")
INVITATION = (
    "Press What if to simulate the burst under every policy, and with this request on the other backend."
)


class WhatIfPage(BarPage):
    """Adds the table of what might have been below the outcome."""

    def draw_what_if(self) -> None:
        found = self.facts.what_if
        if found is None or self.facts.row.run_id is None:
            return
        self.y += 12
        self.painter.setPen(hair(self.theme.strong))
        self.painter.drawLine(QLineF(self.left, half(self.y), self.right, half(self.y)))
        self.y += 20
        drawn = self.text(self.left, self.y, 200, "What if", used=self.bold)
        at = QPointF(self.right, self.y)
        tag = draw_tag(self.painter, at, SIMULATED, self.bold, self.theme.emulated, right=True).left()
        words = found.progress() or CALIBRATION
        self.text(
            drawn.right() + 8, self.y, tag - drawn.right() - 20, words, colour=self.theme.muted, elide=True
        )
        self.y += 24
        width = self.right - self.left
        if found.problem:
            for line in wrap(found.problem, self.label, width):
                self.text(self.left, self.y, width, line, colour=self.theme.error)
                self.y += 16
            self.y += 8
        if found.cases or found.running:
            self._table(
                what_if_lines(self.facts.row, self.facts.rows, found, self.facts.labels, self.facts.start_s)
            )
        elif not found.problem:
            for line in wrap(INVITATION, self.label, width):
                self.text(self.left, self.y, width, line, colour=self.theme.muted)
                self.y += 16

    def _table(self, lines: Sequence[WhatIfLine]) -> None:
        ends = [self.right - FIGURE * i for i in (2, 1, 0)]
        where = ends[0] - FIGURE - WHERE
        for head, end in zip(HEADS, ends, strict=True):
            self.text(end - FIGURE, self.y, FIGURE, head, flags=RIGHT, colour=self.theme.muted, high=ROW)
        self.text(self.left, self.y, where - self.left, "Placed by", colour=self.theme.muted, high=ROW)
        self.text(where, self.y, WHERE, "It went to", colour=self.theme.muted, high=ROW)
        self.y += ROW
        self.painter.setPen(hair(self.theme.strong))
        self.painter.drawLine(QLineF(self.left, half(self.y), self.right, half(self.y)))
        for line in lines:
            self._row(line, where, ends)
        self.y += 8

    def _row(self, line: WhatIfLine, where: float, ends: Sequence[float]) -> None:
        used = self.bold if line.ran or not line.simulated else self.label
        room = where - self.left - 8
        drawn = self.text(self.left, self.y, room, line.name, used=used, high=ROW, elide=True)
        if line.ran and drawn.right() + 8 + width_of("ran here", self.label) < where:
            self.text(drawn.right() + 8, self.y, 80, "ran here", colour=self.theme.muted, high=ROW)
        if line.backend:
            rank = self.facts.rank(line.backend)
            paint_mark(self.painter, QRectF(where, self.y + 6, 12, 12), rank, self.theme)
            label = self.facts.label(line.backend)
            self.text(where + 18, self.y, WHERE - 18, label, high=ROW, elide=True)
        for value, end in zip((line.ttft_s, line.e2e_s, line.makespan_s), ends, strict=True):
            words = figure(value, 2)
            ink = self.theme.disabled if words == NA else self.theme.text
            self.text(end - FIGURE, self.y, FIGURE, words, flags=RIGHT, used=used, colour=ink, high=ROW)
        self.y += ROW
