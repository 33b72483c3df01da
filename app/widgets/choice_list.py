"""The list that a toolbar menu opens: a name, a line that explains it, headings between them."""

from PySide6.QtCore import QLineF, QModelIndex, QPersistentModelIndex, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QFontMetrics, QPainter, QStandardItem, QStandardItemModel
from PySide6.QtWidgets import QStyle, QStyledItemDelegate, QStyleOptionViewItem

from app.series.choices import Choice
from app.series.preview import preview
from app.theme import ThemeHolder, font
from app.widgets.icons import pixmap

ROLE = Qt.ItemDataRole.UserRole
LINE, HEADING, SIMPLE = 44, 28, 32
LEFT, WIDEST = 36, 620
STRIP, TICK = 132, 10  # px: the arrivals of a preset
LONGEST = "48 requests, paced to the machine"  # so that all strips lie below each other
FLAGS = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter


def model_of(choices: list[Choice], parent) -> QStandardItemModel:
    model = QStandardItemModel(parent)
    for choice in choices:
        item = QStandardItem(choice.title)
        item.setData(choice, ROLE)
        arrivals = preview(choice.preset) if choice.preset else None
        words = ". ".join(filter(None, (choice.title, arrivals.words if arrivals else "", choice.note)))
        item.setAccessibleText(words.rstrip(". "))
        item.setToolTip(choice.note)
        if not choice.value:
            item.setFlags(Qt.ItemFlag.NoItemFlags)
        model.appendRow(item)
    return model


def width_for(choices: list[Choice]) -> int:
    """As wide as the longest line, within reason."""
    bold, plain = QFontMetrics(font("label", bold=True)), QFontMetrics(font("label"))
    widest = max(
        (max(bold.horizontalAdvance(c.title), plain.horizontalAdvance(c.note)) for c in choices), default=0
    )
    beside = STRIP + plain.horizontalAdvance(LONGEST) + 24
    widest = max([widest, *(bold.horizontalAdvance(c.title) + beside for c in choices if c.preset)])
    return min(WIDEST, widest + LEFT + 32)


class ChoiceDelegate(QStyledItemDelegate):
    def __init__(self, themes: ThemeHolder, parent) -> None:
        super().__init__(parent)
        self._themes, self.left = themes, LEFT

    def sizeHint(self, _option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> QSize:
        choice: Choice | None = index.data(ROLE)
        if choice is None:
            return QSize(100, SIMPLE)
        return QSize(100, HEADING if not choice.value else LINE if choice.note else SIMPLE)

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        theme, area = self._themes.current, option.rect
        choice: Choice = index.data(ROLE) or Choice(index.data() or "", index.data() or "")
        painter.save()
        if choice.value and option.state & QStyle.StateFlag.State_Selected:
            painter.fillRect(area, theme.hover)
        if not choice.value:
            painter.setFont(font("label"))
            painter.setPen(theme.muted)
            painter.drawText(area.adjusted(12, 4, -8, 0), FLAGS, choice.title)
            painter.restore()
            return
        if choice.done or choice.current:
            name, ink = ("current", theme.text) if choice.current else ("check", theme.success)
            icon = pixmap(name, ink, 16, painter.device().devicePixelRatioF())
            painter.drawPixmap(area.left() + 12, area.top() + (6 if choice.note else 8), icon)
        room = area.width() - self.left - 12
        top = area.top() + (5 if choice.note else (area.height() - 18) // 2)
        for text, bold, ink, y in (
            (choice.title, True, theme.text, top),
            (choice.note, False, theme.muted, top + 17),
        ):
            if text:
                used = font("label", bold=bold)
                shown = QFontMetrics(used).elidedText(text, Qt.TextElideMode.ElideRight, room)
                painter.setFont(used)
                painter.setPen(ink)
                painter.drawText(QRect(area.left() + self.left, y, room + 2, 18), FLAGS, shown)
        if choice.preset:
            self._arrivals(painter, QRect(area.left() + self.left, top, room, 18), choice)
        painter.restore()

    def _arrivals(self, painter: QPainter, line: QRect, choice: Choice) -> None:
        """When the requests come, as ticks on a line at the right of the title, and in words."""
        found, theme = preview(choice.preset), self._themes.current
        if found is None:
            return
        painter.setFont(font("label"))
        painter.setPen(theme.muted)
        start = line.right() - painter.fontMetrics().horizontalAdvance(LONGEST)
        painter.drawText(
            QRect(start, line.top(), line.right() - start + 2, line.height()), FLAGS, found.words
        )
        right = start - 12
        title = QFontMetrics(font("label", bold=True)).horizontalAdvance(choice.title)
        left = right - STRIP
        if left < line.left() + title + 12:
            return
        middle = line.center().y()
        painter.setPen(theme.strong)
        painter.drawLine(QLineF(left, middle + TICK / 2, right, middle + TICK / 2))
        for part in found.parts:
            x = round(left + part * (STRIP - 1))
            painter.fillRect(QRectF(x, middle - TICK / 2, 1, TICK), theme.text)
