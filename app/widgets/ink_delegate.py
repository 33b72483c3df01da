"""Cells of a table that keep their own ink."""

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, Qt
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QStyle, QStyledItemDelegate, QStyleOptionViewItem

MARGIN = 3  # that Qt leaves on both sides of a cell's words


class InkDelegate(QStyledItemDelegate):
    """The style sheet gives all words of a selected row one colour; here a cell with its own keeps it."""

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        ink = index.data(Qt.ItemDataRole.ForegroundRole)
        if ink is None or not option.state & QStyle.StateFlag.State_Selected:
            super().paint(painter, option, index)
            return
        cell = QStyleOptionViewItem(option)
        self.initStyleOption(cell, index)
        style = cell.widget.style()
        room = style.subElementRect(QStyle.SubElement.SE_ItemViewItemText, cell, cell.widget)
        words = cell.fontMetrics.elidedText(cell.text, Qt.TextElideMode.ElideRight, room.width() - 2 * MARGIN)
        cell.text = ""
        style.drawControl(QStyle.ControlElement.CE_ItemViewItem, cell, painter, cell.widget)
        painter.save()
        painter.setFont(cell.font)
        painter.setPen(ink)
        painter.drawText(room.adjusted(MARGIN, 0, -MARGIN, 0), int(cell.displayAlignment), words)
        painter.restore()
