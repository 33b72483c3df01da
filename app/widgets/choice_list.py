"""The list that a toolbar menu opens: a name, a line that explains it, headings between them."""

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QRect, QSize, Qt
from PySide6.QtGui import QFontMetrics, QPainter, QStandardItem, QStandardItemModel
from PySide6.QtWidgets import QStyle, QStyledItemDelegate, QStyleOptionViewItem

from app.series.choices import Choice
from app.theme import ThemeHolder, font
from app.widgets.icons import pixmap

ROLE = Qt.ItemDataRole.UserRole
LINE, HEADING, SIMPLE = 44, 28, 32
LEFT, WIDEST = 36, 560
FLAGS = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter


def model_of(choices: list[Choice], parent) -> QStandardItemModel:
    model = QStandardItemModel(parent)
    for choice in choices:
        item = QStandardItem(choice.title)
        item.setData(choice, ROLE)
        item.setAccessibleText(f"{choice.title}. {choice.note}".rstrip(". "))
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
        painter.restore()
