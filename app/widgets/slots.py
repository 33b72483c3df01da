"""The rows of a backend's slots: badge, prompt bar, output bar, tokens per second. One painted widget."""

from dataclasses import dataclass

from PySide6.QtCore import QRect, QRectF, QSize, Qt
from PySide6.QtGui import QBrush, QColor, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.theme import Theme, ThemeHolder, font
from app.widgets.marks import hatch_brush, paint_badge

ROW, ROW_LEAST = 40, 24
BADGE, BAR = 24, 8
SPLIT, LEAST_SOLID = 2, 3
LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter


@dataclass(frozen=True, slots=True)
class SlotRow:
    """One slot as it is drawn. `number` "" = free; `rate` is tokens per second, None = unknown."""

    number: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    prefilled_tokens: int = 0  # cached ones included
    generated: int = 0
    budget: int = 0
    rate: float | None = None
    note: str = ""  # replaces "94 of 128 out"
    warning: str = ""  # after the number of tokens, such as "steps vary 6×"

    def sentence(self, index: int) -> str:
        """The row for screen readers."""
        if not self.number:
            return f"Slot {index + 1}: free"
        rate = "n/a" if self.rate is None else f"{self.rate:.1f}"
        return (
            f"Slot {index + 1}: request {self.number}, "
            f"{self.prefilled_tokens:,} of {self.prompt_tokens:,} in, "
            f"{self.generated:,} of {self.budget:,} out, {rate} tok/s {self.warning}".rstrip()
        )


def draw_pair(
    painter: QPainter, area: QRect, strong: str, rest: str, theme: Theme, colour: QColor | None = None
) -> None:
    """A number in 600 and its words in `label`: "94" " of 128 out"."""
    painter.setFont(font("label", bold=True))
    painter.setPen(theme.text)
    painter.drawText(area, LEFT, strong)
    room = area.adjusted(painter.fontMetrics().horizontalAdvance(strong), 0, 0, 0)
    painter.setFont(font("label"))
    painter.setPen(colour or theme.muted)
    text = painter.fontMetrics().elidedText(rest, Qt.TextElideMode.ElideRight, room.width())
    painter.drawText(room, LEFT, text)


def draw_bar(painter: QPainter, area: QRect, theme: Theme, rank: int, hatched: float, solid: float) -> None:
    """A bar of `track`, first a hatched share (not computed), then a solid one (computed)."""
    box = QRectF(area)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(theme.track)
    painter.drawRoundedRect(box, 2, 2)
    end = round(box.width() * min(1.0, hatched + solid))
    split = round(box.width() * min(1.0, hatched))
    if hatched > 0 and solid > 0:  # however little was computed, it is seen, and apart from the rest
        split = min(split, end - LEAST_SOLID - SPLIT)
        painter.fillRect(QRect(area.left() + split, area.top(), SPLIT, area.height()), theme.panel)
    if hatched > 0:
        brush = hatch_brush(rank, theme, painter.device().devicePixelRatioF())
        painter.setBrushOrigin(area.topLeft())
        _segment(painter, QRect(area.left(), area.top(), split, area.height()), brush, theme, rank)
    if solid > 0:
        start = split + SPLIT if hatched > 0 else 0
        whole = QRect(area.left() + start, area.top(), max(1, end - start), area.height())
        _segment(painter, whole, theme.backend(rank).fill, theme, rank)


def _segment(painter: QPainter, area: QRect, fill: QBrush | QColor, theme: Theme, rank: int) -> None:
    painter.setBrush(fill)
    painter.setPen(QPen(theme.backend(rank).edge, 1))
    radius = min(1.5, area.width() / 3)
    painter.drawRoundedRect(QRectF(area).adjusted(0.5, 0.5, -0.5, -0.5), radius, radius)


class SlotsView(QWidget):
    """All slots of one backend. Only a row whose figures changed is painted again."""

    def __init__(self, themes: ThemeHolder, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._themes = themes
        self._rows: list[SlotRow] = []
        self._rank = 0
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setAccessibleName("Slots")
        themes.changed.connect(self.update)

    def set_rows(self, rows: list[SlotRow], rank: int) -> None:
        if len(rows) != len(self._rows) or rank != self._rank:
            self._rows, self._rank = rows, rank
            self.updateGeometry()
            self.update()
            return
        old, self._rows = self._rows, rows
        changed = [i for i, row in enumerate(rows) if row != old[i]]
        for index in changed:
            self.update(0, index * self._pitch(), self.width(), self._pitch())
        if changed:
            text = "; ".join(row.sentence(i) for i, row in enumerate(rows))
            self.setAccessibleDescription(text)

    def minimumSizeHint(self) -> QSize:
        return QSize(200, min(len(self._rows), 4) * ROW_LEAST)

    def sizeHint(self) -> QSize:
        return QSize(424, len(self._rows) * ROW)

    def _pitch(self) -> int:
        return max(ROW_LEAST, min(ROW, self.height() // max(1, len(self._rows))))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        pitch = self._pitch()
        room = max(1, self.height() // pitch)
        hidden = len(self._rows) - room
        for index, row in enumerate(self._rows[: room - 1 if hidden > 0 else room]):
            area = QRect(0, index * pitch, self.width(), pitch)
            if area.intersects(event.rect()):
                self._paint_row(painter, area, row)
        if hidden > 0:
            rest = self._rows[room - 1 :]
            busy = sum(1 for row in rest if row.number)
            painter.setFont(font("label"))
            painter.setPen(self._themes.current.muted)
            area = QRect(40, (room - 1) * pitch, self.width() - 40, pitch)
            painter.drawText(area, LEFT, f"{len(rest)} more slots, {busy} of them active")

    def _paint_row(self, painter: QPainter, area: QRect, row: SlotRow) -> None:
        theme = self._themes.current
        free = area.width() - 40 - 8 - 96
        in_width = round(free * 0.37)
        size = min(BADGE, area.height() - 3)
        badge = QRectF(0, area.center().y() - size / 2, size, size)
        top = area.center().y() - (13 if area.height() >= 36 else 12)
        in_text = QRect(40, top, in_width + 8, 16)
        out_text = QRect(48 + in_width, top, free - in_width + 8, 16)
        bar_top = top + (18 if area.height() >= 28 else 16)
        in_bar = QRect(40, bar_top, in_width, BAR)
        out_bar = QRect(48 + in_width, bar_top, free - in_width, BAR)
        if not row.number:
            paint_badge(painter, badge, self._rank, "", "dashed", theme)
            painter.setFont(font("label"))
            painter.setPen(theme.disabled)
            painter.drawText(in_text, LEFT, "free")
            painter.setPen(QPen(theme.line, 1))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            for bar in (in_bar, out_bar):
                painter.drawRoundedRect(QRectF(bar).adjusted(0.5, 0.5, -0.5, -0.5), 2, 2)
            return
        paint_badge(painter, badge, self._rank, row.number, "filled", theme)
        prompt = max(1, row.prompt_tokens)
        whole = row.prefilled_tokens >= row.prompt_tokens
        painter.setFont(font("label", bold=True))
        cramped = painter.fontMetrics().horizontalAdvance(f"{prompt:,} of {prompt:,} in") > in_text.width()
        strong = "" if whole else f"{row.prefilled_tokens:,}"
        if whole:
            rest = f"{prompt:,} in" if cramped else f"{prompt:,} of {prompt:,} in"
        else:
            rest = f" of {prompt:,}" if cramped else f" of {prompt:,} in"
        draw_pair(painter, in_text, strong, rest, theme)
        computed = row.prefilled_tokens - row.cached_tokens
        draw_bar(painter, in_bar, theme, self._rank, row.cached_tokens / prompt, computed / prompt)
        if row.note:
            draw_pair(painter, out_text, "", row.note, theme)
        elif row.warning:
            draw_pair(painter, out_text, f"{row.generated:,}", f" {row.warning}", theme, theme.warning)
        elif row.generated:
            draw_pair(painter, out_text, f"{row.generated:,}", f" of {row.budget:,} out", theme)
        else:
            draw_pair(painter, out_text, "", f"0 of {row.budget:,} out", theme)
        draw_bar(painter, out_bar, theme, self._rank, 0.0, row.generated / max(1, row.budget))
        self._paint_rate(painter, QRect(area.right() - 95, area.top(), 96, area.height()), row.rate, theme)

    def _paint_rate(self, painter: QPainter, area: QRect, rate: float | None, theme: Theme) -> None:
        painter.setFont(font("label"))
        painter.setPen(theme.muted)
        unit = "tok/s"
        width = painter.fontMetrics().horizontalAdvance(unit)
        known = rate is not None
        if known:
            painter.drawText(area.adjusted(0, 1, 0, 1), RIGHT, unit)
        painter.setFont(font("lead", bold=True))
        painter.setPen(theme.text if known else theme.disabled)
        text = (f"{rate:.1f}" if rate < 1000 else f"{rate:,.0f}") if known else "n/a"
        painter.drawText(area.adjusted(0, 0, -(width + 4 if known else 0), 0), RIGHT, text)
