"""The list of kept conversations: search, open, rename, duplicate, delete, begin a new one."""

import time
from collections.abc import Set

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QSize, Qt, Signal
from PySide6.QtGui import QFontMetrics, QKeyEvent, QPainter
from PySide6.QtWidgets import (
    QHBoxLayout,
    QLineEdit,
    QListWidget,
    QListWidgetItem,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from app.chats import ChatStore, Listed
from app.series.words import figure, plural
from app.theme import ThemeHolder, font
from app.widgets.controls import Button
from app.widgets.labels import make_label
from app.widgets.popover import Popover
from engine.errors import EngineError

Index = QModelIndex | QPersistentModelIndex
KEY, NOTE, RUNS = (Qt.ItemDataRole.UserRole + i for i in range(3))
ROW, DOT = 44, 8
DAY_S = 86_400


def when(updated_s: float, now_s: float) -> str:
    """ "14:02" today, else the date."""
    then, now = time.localtime(updated_s), time.localtime(now_s)
    if then[:3] == now[:3]:
        return time.strftime("%H:%M", then)
    return time.strftime("%d %b" if then[0] == now[0] else "%d %b %Y", then)


class TwoLines(QStyledItemDelegate):
    def __init__(self, themes: ThemeHolder, parent: QWidget) -> None:
        super().__init__(parent)
        self._themes = themes

    def sizeHint(self, _option: QStyleOptionViewItem, _index: Index) -> QSize:
        return QSize(100, ROW)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        theme, area = self._themes.current, option.rect
        if option.state & QStyle.StateFlag.State_Selected:
            painter.fillRect(area, theme.hover)
        flags, room = Qt.AlignmentFlag.AlignVCenter, area.adjusted(8, 0, -8, 0)
        if index.data(RUNS):
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(theme.text)
            painter.drawEllipse(room.right() - DOT, room.top() + 10, DOT, DOT)
            room.adjust(0, 0, -DOT - 8, 0)
        lines = ((index.data(), True, theme.text, 5), (index.data(NOTE), False, theme.muted, 22))
        for text, bold, ink, top in lines:
            used = font("label", bold=bold)
            shown = QFontMetrics(used).elidedText(text, Qt.TextElideMode.ElideRight, room.width())
            painter.setFont(used)
            painter.setPen(ink)
            painter.drawText(room.left(), room.top() + top, room.width(), 18, flags, shown)

    def createEditor(self, parent: QWidget, _option: QStyleOptionViewItem, _index: Index) -> QLineEdit:
        editor = QLineEdit(parent)
        editor.setAccessibleName("Title")
        editor.setFont(font("label"))
        return editor


class Conversations(QListWidget):
    """Enter opens, F2 renames, Delete deletes."""

    opened = Signal()
    removed = Signal()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if self.state() == QListWidget.State.EditingState:  # Return ends the renaming, no more
            return
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.opened.emit()
        elif event.key() == Qt.Key.Key_F2 and self.currentItem():
            self.editItem(self.currentItem())
        elif event.key() in (Qt.Key.Key_Delete, Qt.Key.Key_Backspace):
            self.removed.emit()
        else:
            super().keyPressEvent(event)


class ConversationList(Popover):
    chosen = Signal(int)
    deleted = Signal(int)
    duplicated = Signal(int)
    renamed = Signal(int, str)
    new_requested = Signal()
    failed = Signal(str)

    def __init__(
        self, themes: ThemeHolder, store: ChatStore, current: int, running: Set[int], parent: QWidget
    ) -> None:
        """`current` is shown, `running` have a reply that streams."""
        super().__init__(themes, parent)
        self._store, self._current, self._running, self._sure = store, current, running, 0
        self.setFixedWidth(464)
        self.search = QLineEdit()
        self.search.setPlaceholderText("Search in titles, prompts and replies")
        self.search.setAccessibleName("Search conversations")
        self.search.setFont(font("label"))
        self.search.setClearButtonEnabled(True)
        self.search.textChanged.connect(self._fill)
        self.list = Conversations()
        self.list.setAccessibleName("Conversations")
        self.list.setItemDelegate(TwoLines(themes, self.list))
        self.list.setFixedHeight(ROW * 7)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.list.setEditTriggers(QListWidget.EditTrigger.NoEditTriggers)
        self.list.itemClicked.connect(lambda _item: self._open())
        self.list.opened.connect(self._open)
        self.list.removed.connect(self._delete)
        self.list.itemChanged.connect(self._rename)
        self.list.currentItemChanged.connect(lambda *_: self._ask_again())
        self.empty = make_label("", tone="muted")
        new = Button(themes, "New", icon_name="plus", name="New conversation")
        new.clicked.connect(self._new)
        self.rename_button = Button(themes, "Rename", kind="ghost", icon_name="pencil")
        self.rename_button.clicked.connect(lambda: self.list.editItem(self.list.currentItem()))
        self.duplicate_button = Button(themes, "Duplicate", kind="ghost", icon_name="copy")
        self.duplicate_button.clicked.connect(self._duplicate)
        self.delete_button = Button(themes, "Delete", kind="ghost", icon_name="trash")
        self.delete_button.clicked.connect(self._delete)
        row = QHBoxLayout()
        row.setSpacing(0)
        row.addWidget(new)
        row.addStretch(1)
        row.addWidget(self.rename_button)
        row.addWidget(self.duplicate_button)
        row.addWidget(self.delete_button)
        for widget in (self.search, self.list, self.empty):
            self.body.addWidget(widget)
        self.body.addLayout(row)
        self._fill("")

    def _fill(self, search: str) -> None:
        try:
            listed = self._store.listed(search)
        except EngineError as error:
            self.failed.emit(str(error))
            return
        was = self.list.blockSignals(True)
        self.list.clear()
        for entry in listed:
            self.list.addItem(self._item(entry, entry.key in self._running))
            if entry.key == self._current:
                self.list.setCurrentRow(self.list.count() - 1)
        if self.list.currentRow() < 0 and listed:
            self.list.setCurrentRow(0)
        self.list.blockSignals(was)
        none = "Nothing found." if search else "Conversations are kept here as they happen."
        words = "" if listed else none
        self.empty.setText(words)
        self.empty.setVisible(bool(words))
        self._ask_again()

    def set_running(self, running: Set[int]) -> None:
        """Replies began or ended while the list is open."""
        if running != self._running:
            self._running = running
            key = self.key()
            self._fill(self.search.text())
            for row in range(self.list.count()):
                if self.list.item(row).data(KEY) == key:
                    self.list.setCurrentRow(row)

    @staticmethod
    def _item(entry: Listed, runs: bool) -> QListWidgetItem:
        item = QListWidgetItem(entry.title)
        item.setData(KEY, entry.key)
        item.setData(RUNS, runs)
        moment = "replying now" if runs else when(entry.updated_s, time.time())
        note = f"{moment}, {figure(entry.count)} {plural(entry.count, 'prompt')}"
        item.setData(NOTE, note)
        item.setData(Qt.ItemDataRole.AccessibleTextRole, f"{entry.title}, {note}")
        item.setFlags(item.flags() | Qt.ItemFlag.ItemIsEditable)
        return item

    def key(self) -> int:
        item = self.list.currentItem()
        return int(item.data(KEY)) if item is not None else 0

    def _open(self) -> None:
        if self.key():
            self.chosen.emit(self.key())
            self.close()

    def _new(self) -> None:
        self.new_requested.emit()
        self.close()

    def _duplicate(self) -> None:
        if self.key():
            self.duplicated.emit(self.key())
            self.close()

    def _rename(self, item: QListWidgetItem) -> None:
        if item.text().strip():
            self.renamed.emit(item.data(KEY), item.text().strip())
        else:
            self._fill(self.search.text())

    def _ask_again(self) -> None:
        """Deleting takes two presses: the second one knows what it does."""
        self._sure = 0
        self.delete_button.setText("Delete")
        self.delete_button.set_kind("ghost")
        for button in (self.rename_button, self.duplicate_button, self.delete_button):
            button.setEnabled(bool(self.key()))

    def _delete(self) -> None:
        key = self.key()
        if not key:
            return
        if self._sure != key:
            self._sure = key
            self.delete_button.setText("Really delete?")
            self.delete_button.set_kind("danger")
            return
        self.deleted.emit(key)
        self._fill(self.search.text())
