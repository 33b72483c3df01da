"""Requests that wait for a backend, as chips in order. The last place becomes "+n" when they do not fit."""

from dataclasses import dataclass

from PySide6.QtCore import QEvent, QRect, QRectF, Qt
from PySide6.QtGui import QHelpEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from app.theme import Theme, ThemeHolder, font
from app.widgets.marks import hatch_brush, paint_badge

CHIP, GAP, TALL, FLAT = 136, 8, 72, 28
PITCH = CHIP + GAP
LISTED = 24  # lines of the tooltip over "+n"
SWATCH = 10
LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter


@dataclass(frozen=True, slots=True)
class Chip:
    number: str
    waits_s: float
    prompt_tokens: int
    cached_tokens: int
    stale: bool  # the estimate no longer holds: blocks were evicted since

    def sentence(self) -> str:
        stale = ", an estimate that evictions have made stale" if self.stale else ""
        return (
            f"Request {self.number} waits {self.waits_s:.2f} s, "
            f"{self.cached_tokens:,} of {self.prompt_tokens:,} cached{stale}"
        )


def _wait(chip: Chip) -> str:
    return f"{chip.waits_s:.{2 if chip.waits_s < 100 else 0}f} s"


class QueueView(QWidget):
    """Chips at a fixed pitch; where the widget is flat, one line each without the bar."""

    def __init__(self, themes: ThemeHolder, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._themes = themes
        self._chips: list[Chip] = []
        self._rank = 0
        self.setFixedHeight(TALL)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName("Queue")
        themes.changed.connect(self.update)

    def set_chips(self, chips: list[Chip], rank: int) -> None:
        if chips == self._chips and rank == self._rank:
            return
        self._chips, self._rank = chips, rank
        self.setAccessibleDescription(
            "; ".join(c.sentence() for c in chips[:LISTED]) or "Nothing waits here."
        )
        self.update()

    def places(self) -> tuple[int, int]:
        """Chips that are shown, and how many are behind "+n"."""
        room = max(1, (self.width() + GAP) // PITCH)
        if len(self._chips) <= room:
            return len(self._chips), 0
        return room - 1, len(self._chips) - room + 1

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        theme = self._themes.current
        if not self._chips:
            self._paint_box(painter, self.rect(), theme, "Nothing waits here.")
            return
        shown, hidden = self.places()
        for index, chip in enumerate(self._chips[:shown]):
            self._paint_chip(painter, QRect(index * PITCH, 0, CHIP, self.height()), chip, theme)
        if hidden:
            place = QRect(shown * PITCH, 0, min(CHIP, self.width() - shown * PITCH), self.height())
            self._paint_box(painter, place, theme, "more wait" if self.height() == TALL else "", f"+{hidden}")

    def _paint_box(self, painter: QPainter, box: QRect, theme: Theme, words: str, lead: str = "") -> None:
        pen = QPen(theme.line if not lead else theme.strong, 1, Qt.PenStyle.CustomDashLine)
        pen.setDashPattern([3, 3])
        painter.setPen(pen)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRoundedRect(QRectF(box).adjusted(0.5, 0.5, -0.5, -0.5), 6, 6)
        centre = Qt.AlignmentFlag.AlignCenter
        if lead:
            painter.setFont(font("lead" if words else "label", bold=True))
            painter.setPen(theme.text)
            painter.drawText(box.adjusted(0, 0, 0, -24 if words else 0), centre, lead)
        painter.setFont(font("label"))
        painter.setPen(theme.muted)
        painter.drawText(box.adjusted(0, 24 if lead else 0, 0, 0), centre, words)

    def _paint_chip(self, painter: QPainter, box: QRect, chip: Chip, theme: Theme) -> None:
        painter.setPen(QPen(theme.warning if chip.stale else theme.line, 1))
        painter.setBrush(theme.window)
        painter.drawRoundedRect(QRectF(box).adjusted(0.5, 0.5, -0.5, -0.5), 6, 6)
        flat = self.height() < TALL
        inner = box.adjusted(6 if flat else 8, 0, -8, 0)
        size = 20 if flat else 24
        head = QRect(inner.left(), (box.height() - size) // 2 if flat else 8, inner.width(), size)
        badge = QRectF(head.left(), head.top(), size, size)
        paint_badge(painter, badge, self._rank, chip.number, "outline", theme)
        if flat:
            self._paint_line(painter, head.adjusted(size + 6, 0, 0, 0), chip, theme)
            return
        self._paint_wait(painter, head, chip, theme)
        bar = QRect(inner.left(), 36, inner.width(), 8)
        colours = theme.backend(self._rank)
        cached = min(1.0, chip.cached_tokens / max(1, chip.prompt_tokens))
        dpr = self.devicePixelRatioF()
        painter.setBrushOrigin(bar.topLeft())
        hatched = QRect(bar.left(), bar.top(), round(bar.width() * cached), bar.height())
        painter.fillRect(hatched, hatch_brush(self._rank, theme, dpr))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(QPen(colours.edge, 1))
        painter.drawRoundedRect(QRectF(bar).adjusted(0.5, 0.5, -0.5, -0.5), 1.5, 1.5)
        if 0 < cached < 1:
            painter.drawLine(hatched.right() + 1, bar.top(), hatched.right() + 1, bar.bottom())
        painter.setFont(font("label"))
        painter.setPen(theme.warning if chip.stale else theme.muted)
        if chip.stale:
            choices = (f"was {chip.cached_tokens:,}, now stale", "cache estimate stale", "stale")
        else:
            choices = (
                f"{chip.cached_tokens:,} of {chip.prompt_tokens:,} cached",
                f"{chip.cached_tokens:,} cached",
            )
        measure = painter.fontMetrics().horizontalAdvance
        words = next((w for w in choices if measure(w) <= inner.width()), choices[-1])
        painter.drawText(QRect(inner.left(), 48, inner.width() + 2, 16), Qt.AlignmentFlag.AlignVCenter, words)

    def _paint_line(self, painter: QPainter, area: QRect, chip: Chip, theme: Theme) -> None:
        """Without room for a bar: how long it waits, and the cached tokens behind a hatched swatch."""
        cached = f"{chip.cached_tokens:,}"
        painter.setFont(font("label"))
        painter.setPen(theme.warning if chip.stale else theme.muted)
        painter.drawText(area, RIGHT, cached)
        wide = painter.fontMetrics().horizontalAdvance(cached)
        swatch = QRect(area.right() - wide - SWATCH - 4, area.center().y() - SWATCH // 2, SWATCH, SWATCH)
        painter.setBrushOrigin(swatch.topLeft())
        painter.setBrush(hatch_brush(self._rank, theme, self.devicePixelRatioF()))
        painter.setPen(QPen(theme.backend(self._rank).edge, 1))
        painter.drawRect(QRectF(swatch).adjusted(0.5, 0.5, -0.5, -0.5))
        painter.setFont(font("label", bold=True))
        painter.setPen(theme.text)
        painter.drawText(area, LEFT, _wait(chip))

    @staticmethod
    def _paint_wait(painter: QPainter, head: QRect, chip: Chip, theme: Theme) -> None:
        value = _wait(chip)
        painter.setFont(font("label", bold=True))
        painter.setPen(theme.text)
        painter.drawText(head, RIGHT, value)
        rest = head.adjusted(0, 0, -painter.fontMetrics().horizontalAdvance(value) - 4, 0)
        painter.setFont(font("label"))
        painter.setPen(theme.muted)
        if painter.fontMetrics().horizontalAdvance("waits") + 28 <= rest.width():
            painter.drawText(rest, RIGHT, "waits")

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            index = event.pos().x() // PITCH
            shown, _hidden = self.places()
            chips = self._chips[index : index + 1] if index < shown else self._chips[shown:]
            lines = [chip.sentence() for chip in chips[:LISTED]]
            if len(chips) > LISTED:
                lines.append(f"and {len(chips) - LISTED} more")
            QToolTip.showText(event.globalPos(), "\n".join(lines), self)
            return True
        return super().event(event)
