"""The rows of a backend's slots: badge, prompt bar, output bar, tokens per second. One painted widget."""

from dataclasses import dataclass

from PySide6.QtCore import QRect, QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.theme import Size, Theme, ThemeHolder, font
from app.widgets.bars import LEFT, draw_bar, draw_empty_bar, draw_pair
from app.widgets.marks import paint_badge

ROW, ROW_LEAST, ROW_MOST = 40, 24, 64
TWO_LINES_FROM, LARGE_FROM = 34, 54  # below the first a row has one line, from the second on larger figures
INDENT, GAP, RATE, PHRASE = 40, 8, 96, 124
TWO_BARS_FROM = 88  # of a line: less room is for the bar of what was written alone
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


@dataclass(frozen=True, slots=True)
class Places:
    """Where the parts of a row are. `in_text` is None where a row has one line for all words."""

    badge: QRectF
    in_text: QRect | None
    out_text: QRect
    in_bar: QRect | None
    out_bar: QRect
    rate: QRect
    size: Size = "label"  # of the words
    rate_size: Size = "lead"


def places(area: QRect) -> Places:
    """Words above their bars; in a low row before them, so that rows stand apart; larger in a high one."""
    badge_size = 32 if area.height() >= LARGE_FROM else min(24, area.height() - 3)
    badge = QRectF(0, area.center().y() - badge_size / 2, badge_size, badge_size)
    rate = QRect(area.right() - RATE + 1, area.top(), RATE, area.height())
    left, right = INDENT, area.right() + 1 - RATE
    if area.height() < TWO_LINES_FROM:
        words = QRect(left, area.top(), PHRASE, area.height())
        room, top = right - GAP - words.right() - 1, area.center().y() - 3
        if room < TWO_BARS_FROM:
            out_bar = QRect(words.right() + 1, top, max(1, room), 8)
            return Places(badge, None, words, None, out_bar, rate, rate_size="body")
        read = round((room - GAP) * 0.37)
        in_bar = QRect(words.right() + 1, top, read, 8)
        out_bar = QRect(in_bar.right() + 1 + GAP, top, room - GAP - read, 8)
        return Places(badge, None, words, in_bar, out_bar, rate, rate_size="body")
    large = area.height() >= LARGE_FROM
    line, bar = (20, 12) if large else (16, 8)
    left += 8 if large else 0
    room = right - left - 2 * GAP  # between the bars, and before the rate: a high figure fills its place
    read = round(room * 0.37)
    top = area.center().y() - (18 if large else 13)
    bar_top = top + line + (4 if large else 2)
    second = left + read + GAP
    return Places(
        badge,
        QRect(left, top, read + GAP, line),
        QRect(second, top, room - read + GAP, line),
        QRect(left, bar_top, read, bar),
        QRect(second, bar_top, room - read, bar),
        rate,
        "body" if large else "label",
    )


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
        return max(ROW_LEAST, min(ROW_MOST, self.height() // max(1, len(self._rows))))

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
            area = QRect(INDENT, (room - 1) * pitch, self.width() - INDENT, pitch)
            painter.drawText(area, LEFT, f"{len(rest)} more slots, {busy} of them active")

    def _paint_row(self, painter: QPainter, area: QRect, row: SlotRow) -> None:
        theme, at = self._themes.current, places(area)
        if not row.number:
            paint_badge(painter, at.badge, self._rank, "", "dashed", theme)
            painter.setFont(font(at.size))
            painter.setPen(theme.disabled)
            painter.drawText(at.in_text or at.out_text, LEFT, "free")
            for bar in filter(None, (at.in_bar, at.out_bar)):
                draw_empty_bar(painter, bar, theme)
            return
        paint_badge(painter, at.badge, self._rank, row.number, "filled", theme)
        prompt = max(1, row.prompt_tokens)
        read = row.prefilled_tokens >= row.prompt_tokens
        if at.in_text is not None:
            draw_pair(painter, at.in_text, *self._read_words(painter, at, row), theme, size=at.size)
        if at.in_bar is not None:
            cached, computed = row.cached_tokens, row.prefilled_tokens - row.cached_tokens
            draw_bar(painter, at.in_bar, theme, self._rank, cached / prompt, computed / prompt)
        if row.note:
            draw_pair(painter, at.out_text, "", row.note, theme, size=at.size)
        elif row.warning:
            words = (f"{row.generated:,}", f" {row.warning}")
            draw_pair(painter, at.out_text, *words, theme, theme.warning, size=at.size)
        elif row.generated:
            words = (f"{row.generated:,}", f" of {row.budget:,} out")
            draw_pair(painter, at.out_text, *words, theme, size=at.size)
        elif at.in_text is None and not read:  # one line says what goes on now
            draw_pair(painter, at.out_text, f"{row.prefilled_tokens:,}", f" of {prompt:,} in", theme)
        else:
            draw_pair(painter, at.out_text, "", f"0 of {row.budget:,} out", theme, size=at.size)
        draw_bar(painter, at.out_bar, theme, self._rank, 0.0, row.generated / max(1, row.budget))
        self._paint_rate(painter, at, row.rate, theme)

    @staticmethod
    def _read_words(painter: QPainter, at: Places, row: SlotRow) -> tuple[str, str]:
        """How much of the prompt was read: the figure that moves, and the rest; shorter where it must be."""
        prompt = max(1, row.prompt_tokens)
        painter.setFont(font(at.size, bold=True))
        room = at.in_text.width() if at.in_text is not None else 0
        cramped = painter.fontMetrics().horizontalAdvance(f"{prompt:,} of {prompt:,} in") > room
        if row.prefilled_tokens >= row.prompt_tokens:
            return "", f"{prompt:,} in" if cramped else f"{prompt:,} of {prompt:,} in"
        return f"{row.prefilled_tokens:,}", f" of {prompt:,}" if cramped else f" of {prompt:,} in"

    def _paint_rate(self, painter: QPainter, at: Places, rate: float | None, theme: Theme) -> None:
        area = at.rate
        painter.setFont(font("label"))
        painter.setPen(theme.muted)
        unit = "tok/s"
        width = painter.fontMetrics().horizontalAdvance(unit)
        known = rate is not None
        if known:
            painter.drawText(area.adjusted(0, 1, 0, 1), RIGHT, unit)
        painter.setFont(font(at.rate_size, bold=True))
        painter.setPen(theme.text if known else theme.disabled)
        text = (f"{rate:.1f}" if rate < 1000 else f"{rate:,.0f}") if known else "n/a"
        painter.drawText(area.adjusted(0, 0, -(width + 4 if known else 0), 0), RIGHT, text)
