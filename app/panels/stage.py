"""A backend for the back row: slots and the waiting list, large. The presenter's page has one a backend."""

from PySide6.QtCore import QLineF, QRect, QRectF, QSize
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app.backend_rows import backend_rate, chips, slot_rows
from app.panels.painting import LEFT, RIGHT, draw_text, hair, half, width_of
from app.series.board import Board
from app.series.words import figure, seconds
from app.theme import Theme, ThemeHolder, font
from app.widgets.bars import draw_bar
from app.widgets.marks import paint_badge, paint_mark
from app.widgets.panel import Panel
from app.widgets.queue import Chip
from app.widgets.slots import SlotRow
from engine.events import BackendState

HEADER, PITCH, BADGE, BAR, PAD = 46, 35, 25, 10, 16
SPLIT = 0.668  # of the width: slots left of it, the waiting list right
STATES = {
    BackendState.WAITING: "not started",
    BackendState.LOADING: "loading the model",
    BackendState.CALIBRATING: "calibrating",
    BackendState.STALLED: "stalled",
    BackendState.STOPPED: "stopped",
}


class StagePanel(Panel):
    topics = frozenset({"backends", "requests", "clock"})
    least = QSize(240, 120)

    def __init__(self, board: Board, themes: ThemeHolder, name: str, parent: QWidget | None = None) -> None:
        super().__init__(board, themes, parent)
        self.name, self.scale = name, 1.6
        self._rows: list[SlotRow] = []
        self._chips: list[Chip] = []
        self._rate: float | None = None
        self._seen: object = None

    def set_scale(self, scale: float) -> None:
        self.scale = scale
        self.update()

    def refresh(self, topics: set[str], now_s: float) -> None:
        view = self.board.backends.get(self.name)
        if view is None:
            return
        self._rows, self._chips = slot_rows(self.board, view, now_s), chips(self.board, view, now_s)
        self._rate = backend_rate(view, now_s)
        rate = None if self._rate is None else round(self._rate, 1)
        seen = (self._rows, self._chips, rate, view.state, view.info)
        if seen == self._seen:
            return
        self._seen = seen
        active = sum(1 for row in self._rows if row.number)
        self.setAccessibleName(f"{view.info.label} backend, {view.state}")
        self.setAccessibleDescription(
            f"{active} of {len(self._rows)} slots active, {len(self._chips)} waiting, {figure(rate, 1)} tok/s"
        )
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        view = self.board.backends.get(self.name)
        if view is None:
            return
        painter, theme, s = QPainter(self), self.themes.current, self.scale
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        wide, split = float(self.width()), round(self.width() * SPLIT)
        self._header(painter, theme)
        painter.setPen(hair(theme.line))
        y = half(HEADER * s)
        painter.drawLine(QLineF(1, y, wide - 1, y))
        painter.drawLine(QLineF(half(split), y, half(split), self.height() - 1))
        room = self.height() - (HEADER + 12) * s
        most = max(1, int(room // (24 * s)))
        rows = self._rows[:most] if len(self._rows) <= most else self._rows[: most - 1]
        places = max(4, len(rows))
        pitch = min(PITCH * s, room / places)
        for index, row in enumerate(rows):
            centre = (HEADER + 6) * s + (index + 0.5) * pitch
            self._slot(painter, centre, split, row, view.info.rank, theme)
        if len(rows) < len(self._rows):
            rect = QRectF(PAD * s, self.height() - 24 * s, split - 2 * PAD * s, 16 * s)
            words = f"and {figure(len(self._rows) - len(rows))} more slots"
            draw_text(painter, rect, LEFT, words, font("label", scale=s), theme.muted)
        self._waiting(painter, split, pitch, view.info.rank, theme)
        painter.end()

    def _header(self, painter: QPainter, theme: Theme) -> None:
        view, s = self.board.backends[self.name], self.scale
        paint_mark(painter, QRectF(PAD * s, HEADER / 2 * s - 9 * s, 18 * s, 18 * s), view.info.rank, theme)
        lead, label = font("lead", bold=True, scale=s), font("label", scale=s)
        x, title = (PAD + 26) * s, f"{view.info.label} backend"
        wide = width_of(title, lead) + 1
        draw_text(painter, QRectF(x, 0, wide, HEADER * s), LEFT, title, lead, theme.text)
        state = STATES.get(view.state, "")
        right = self.width() - PAD * s
        if state:
            ink = theme.error if view.state in (BackendState.STOPPED, BackendState.STALLED) else theme.muted
            rect = QRectF(x + wide + 10 * s, 0, max(1.0, right - x - wide - 10 * s), HEADER * s)
            draw_text(painter, rect, RIGHT, state, label, ink, elide=True)
            return
        number = figure(self._rate, 1)
        if self._rate is not None:
            unit = width_of("tok/s", label) + 1
            rect = QRectF(right - unit, 1.5 * s, unit, HEADER * s)
            draw_text(painter, rect, LEFT, "tok/s", label, theme.muted)
            right -= unit + 5 * s
        ink = theme.text if self._rate is not None else theme.disabled
        draw_text(painter, QRectF(x + wide, 0, right - x - wide, HEADER * s), RIGHT, number, lead, ink)

    def _slot(
        self, painter: QPainter, centre: float, split: float, row: SlotRow, rank: int, theme: Theme
    ) -> None:
        s = self.scale
        size = BADGE * s
        state = "filled" if row.number else "dashed"
        paint_badge(painter, QRectF(PAD * s, centre - size / 2, size, size), rank, row.number, state, theme)
        label, bold = font("label", scale=s), font("label", bold=True, scale=s)
        words = width_of("000 of 000 in", label) + 4
        left, right = round((PAD + BADGE + 10) * s), split - PAD * s
        bar = QRect(left, round(centre - BAR * s / 2), round(right - words - 8 * s - left), round(BAR * s))
        rect = QRectF(right - words, centre - 10 * s, words, 20 * s)
        if not row.number:
            painter.setPen(hair(theme.line))
            painter.setBrush(theme.panel)
            painter.drawRoundedRect(QRectF(bar).adjusted(0.5, 0.5, -0.5, -0.5), 2, 2)
            draw_text(painter, rect, RIGHT, "free", label, theme.disabled)
            return
        if row.generated:
            draw_bar(painter, bar, theme, rank, 0.0, row.generated / max(1, row.budget))
            number, rest = f"{row.generated:,}", f" of {row.budget:,}"
        else:
            prompt = max(1, row.prompt_tokens)
            computed = row.prefilled_tokens - row.cached_tokens
            draw_bar(painter, bar, theme, rank, row.cached_tokens / prompt, computed / prompt)
            number, rest = f"{row.prefilled_tokens:,}", f" of {row.prompt_tokens:,} in"
        tail = width_of(rest, label) + 1
        draw_text(painter, rect, RIGHT, rest, label, theme.muted)
        draw_text(painter, rect.adjusted(0, 0, -tail, 0), RIGHT, number, bold, theme.text)

    def _waiting(self, painter: QPainter, split: float, pitch: float, rank: int, theme: Theme) -> None:
        s, label = self.scale, font("label", scale=self.scale)
        bold = font("label", bold=True, scale=s)
        left, right = split + 12 * s, self.width() - PAD * s
        top = (HEADER + 6) * s
        if not self._chips:
            rect = QRectF(left, top + 0.5 * pitch - 10 * s, right - left, 20 * s)
            draw_text(painter, rect, LEFT, "Nothing waits.", label, theme.muted, elide=True)
            return
        most = max(1, int((self.height() - top - 6 * s) // pitch))
        shown = self._chips if len(self._chips) <= most else self._chips[: most - 1]
        for index, chip in enumerate(shown):
            centre, size = top + (index + 0.5) * pitch, BADGE * s
            badge = QRectF(left, centre - size / 2, size, size)
            paint_badge(painter, badge, rank, chip.number, "outline", theme)
            rect = QRectF(left + size + 8 * s, centre - 10 * s, right - left - size - 8 * s, 20 * s)
            value = seconds(chip.waits_s, 2 if chip.waits_s < 100 else 0)
            draw_text(painter, rect, RIGHT, value, bold, theme.text)
            room = rect.width() - width_of(value, bold) - 8 * s
            if width_of("waits", label) <= room:
                draw_text(painter, rect, LEFT, "waits", label, theme.muted)
        hidden = len(self._chips) - len(shown)
        if hidden:
            centre = top + (len(shown) + 0.5) * pitch
            rect = QRectF(left, centre - 10 * s, right - left, 20 * s)
            words = f"and {figure(hidden)} more"
            draw_text(painter, rect, LEFT, words, label, theme.muted, elide=True)
