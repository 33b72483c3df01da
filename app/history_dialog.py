"""Run history: what the run files of all sessions say, newest first; open one, or delete it."""

from pathlib import Path
from typing import Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHBoxLayout,
    QHeaderView,
    QLineEdit,
    QTableView,
    QVBoxLayout,
    QWidget,
)

from app.dialogs import make_dialog
from app.series.history import PastRun, delete_run, past_runs
from app.series.words import figure, plural
from app.theme import ThemeHolder, font, stylesheet
from app.widgets.controls import Button
from app.widgets.ink_delegate import InkDelegate
from app.widgets.labels import make_label
from engine.errors import EngineError

TITLES = ("Date", "Burst", "Policy", "Makespan, s", "Times are")
WIDTHS = (150, 190, 150, 104)
SIZE = (880, 340)
EMPTY = "No burst has been recorded yet. Press Run, and it will be here, in later sessions too."
Index = QModelIndex | QPersistentModelIndex
ROOT = QModelIndex()


class HistoryModel(QAbstractTableModel):
    def __init__(self, themes: ThemeHolder, parent: QWidget) -> None:
        super().__init__(parent)
        self._themes, self.every = themes, list[PastRun]()
        self.runs: list[PastRun] = []
        self._words: list[str] = []

    def show_runs(self, runs: list[PastRun]) -> None:
        self.every = runs
        self._filter()

    def set_filter(self, text: str) -> None:
        """Runs that hold every word of `text`."""
        self._words = text.lower().split()
        self._filter()

    def _filter(self) -> None:
        self.beginResetModel()
        self.runs = [r for r in self.every if all(w in r.sentence().lower() for w in self._words)]
        self.endResetModel()

    def rowCount(self, parent: Index = ROOT) -> int:
        return 0 if parent.isValid() else len(self.runs)

    def columnCount(self, parent: Index = ROOT) -> int:
        return 0 if parent.isValid() else len(TITLES)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid():
            return None
        run, column = self.runs[index.row()], index.column()
        kind = ("EMULATED" if run.emulated else "measured") + run.early()
        cells = (run.date or "n/a", run.preset or run.path.name, run.policy, figure(run.makespan_s, 2), kind)
        if role == Qt.ItemDataRole.DisplayRole:
            return run.problem if run.problem and column == len(TITLES) - 1 else cells[column]
        if role == Qt.ItemDataRole.ToolTipRole:
            return run.problem or str(run.path)
        if role == Qt.ItemDataRole.AccessibleTextRole:
            return run.sentence() if column == 0 else f"{TITLES[column]} {cells[column]}"
        if role == Qt.ItemDataRole.TextAlignmentRole and column == 3:
            return int(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        if role == Qt.ItemDataRole.ForegroundRole:
            theme = self._themes.current
            if run.problem:
                return theme.muted
            return theme.emulated if run.emulated and column == len(TITLES) - 1 else None
        return None

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> Any:
        if orientation is Qt.Orientation.Horizontal and role == Qt.ItemDataRole.DisplayRole:
            return TITLES[section]
        if role == Qt.ItemDataRole.TextAlignmentRole:
            side = Qt.AlignmentFlag.AlignRight if section == 3 else Qt.AlignmentFlag.AlignLeft
            return int(side | Qt.AlignmentFlag.AlignVCenter)
        return None


class RunTable(QTableView):
    opened = Signal()
    delete_asked = Signal()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.opened.emit()
        elif event.key() in (Qt.Key.Key_Delete, Qt.Key.Key_Backspace):
            self.delete_asked.emit()
        else:
            super().keyPressEvent(event)


class History(QWidget):
    """The inside of the dialog. `opened` carries the path of a run that can be shown."""

    opened = Signal(object)
    closed = Signal()

    def __init__(
        self, themes: ThemeHolder, folder: Path | None = None, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._folder, self._asked = folder, False
        self.filter_edit = QLineEdit()
        self.filter_edit.setPlaceholderText("Date, burst or policy")
        self.filter_edit.setAccessibleName("Filter runs")
        self.filter_edit.setFont(font("label"))
        self.filter_edit.setClearButtonEnabled(True)
        self.model = HistoryModel(themes, self)
        self.table = RunTable()
        self.words = make_label("", tone="muted")
        self.words.setWordWrap(True)
        self.words.setMinimumHeight(36)
        self.open_button = Button(themes, "Open", kind="primary", name="Open the run")
        self.delete_button = Button(themes, "Delete…", kind="ghost", icon_name="trash", name="Delete the run")
        self.close_button = Button(themes, "Close")
        self._build_table()
        self._place()
        self.open_button.clicked.connect(self._open)
        self.delete_button.clicked.connect(self._delete)
        self.close_button.clicked.connect(self.closed)
        self.filter_edit.textChanged.connect(self._filter)
        self.refresh()

    def _place(self) -> None:
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(12)
        column.addWidget(self.filter_edit)
        column.addWidget(self.table, 1)
        column.addWidget(self.words)
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addWidget(self.open_button)
        row.addWidget(self.delete_button)
        row.addStretch(1)
        row.addWidget(self.close_button)
        column.addLayout(row)

    def _build_table(self) -> None:
        table = self.table
        table.setModel(self.model)
        table.setItemDelegate(InkDelegate(table))
        table.setAccessibleName("Runs")
        table.setFont(font("label"))
        table.horizontalHeader().setFont(font("label"))
        table.verticalHeader().hide()
        table.verticalHeader().setDefaultSectionSize(26)
        table.setShowGrid(False)
        table.setWordWrap(False)
        table.setTabKeyNavigation(False)
        table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        table.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        table.setStyleSheet("QTableView::item { padding: 0 8px; } QHeaderView::section { padding: 0 11px; }")
        table.setMinimumSize(*SIZE)
        for column, wide in enumerate(WIDTHS):
            table.setColumnWidth(column, wide)
        table.horizontalHeader().setStretchLastSection(True)
        table.horizontalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Interactive)
        table.horizontalHeader().setHighlightSections(False)
        table.doubleClicked.connect(self._open)
        table.opened.connect(self._open)
        table.delete_asked.connect(self._delete)
        self.model.modelReset.connect(self._select_first)
        table.selectionModel().selectionChanged.connect(self._selected)

    def refresh(self) -> None:
        """Read the files again."""
        self.model.show_runs(past_runs(self._folder))

    def current(self) -> PastRun | None:
        index = self.table.currentIndex()
        return self.model.runs[index.row()] if index.isValid() else None

    def _filter(self, text: str) -> None:
        self.model.set_filter(text)

    def _select_first(self) -> None:
        if self.model.runs:
            self.table.selectRow(0)
        self._selected()

    def _selected(self, *_: object) -> None:
        self._ask_again()
        run = self.current()
        self.open_button.setEnabled(run is not None and not run.problem)
        self.delete_button.setEnabled(run is not None)
        count = len(self.model.every)
        if not count:
            self.words.setText(EMPTY)
        elif run is None:
            self.words.setText("No run holds these words.")
        else:
            many = f"{figure(count)} {plural(count, 'run')}"
            self.words.setText(run.problem or f"{many}, read from {run.path.parent}")

    def _ask_again(self) -> None:
        self._asked = False
        self.delete_button.setText("Delete…")
        self.delete_button.set_kind("ghost")
        self.delete_button.setAccessibleName("Delete the run")

    def _open(self) -> None:
        run = self.current()
        if run is not None and not run.problem:
            self.opened.emit(run.path)

    def _delete(self) -> None:
        """The first press asks, the second deletes."""
        run = self.current()
        if run is None:
            return
        if not self._asked:
            self._asked = True
            self.delete_button.setText("Delete for good")
            self.delete_button.set_kind("danger")
            self.delete_button.setAccessibleName("Delete the run for good")
            self.words.setText("The file of this run will be deleted. It cannot be brought back.")
            return
        row = self.table.currentIndex().row()
        try:
            delete_run(run.path)
        except EngineError as error:
            self._ask_again()
            self.words.setText(str(error))
            return
        self.refresh()
        if self.model.runs:
            self.table.selectRow(min(row, len(self.model.runs) - 1))
        self.table.setFocus()


def show_history(parent: QWidget, themes: ThemeHolder) -> History:
    """Open the dialog; it closes with Escape, and when a run is opened."""
    dialog, column = make_dialog(parent, "Run history")
    dialog.setStyleSheet(stylesheet(themes.current))
    history = History(themes, parent=dialog)
    column.addWidget(history, 1)
    history.closed.connect(dialog.reject)
    history.opened.connect(lambda _path: dialog.accept())
    dialog.open()
    history.table.setFocus()
    return history
