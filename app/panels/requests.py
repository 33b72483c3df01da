"""The requests table: every figure of every request, and its life as a bar."""

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QModelIndex, Qt, Signal
from PySide6.QtGui import QGuiApplication, QKeyEvent, QKeySequence, QResizeEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFileDialog,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QTableView,
    QVBoxLayout,
    QWidget,
)

from app.panels.request_cells import CellDelegate, Header
from app.panels.request_model import TIMELINE, RequestModel, RequestProxy
from app.series.board import Board, RequestRow
from app.series.rows import PRICED, delimited, priced_only, summary
from app.theme import ThemeHolder, font
from app.widgets.controls import Button
from app.widgets.panel import Panel

WIDTHS = (48, 92, 96, 76, 104, 88, 88, 84, 108, 88, 112, 88)  # of the figures' columns
NARROWEST = (40, 84, 72, 66, 98, 72, 78, 70, 98, 72, 100, 76)  # below their sum the table scrolls
TIMELINE_FROM_PX = 1680  # of the panel: a window of 1,700 less its margins
RESORT_S = 1.0
ROW = 24


class Table(QTableView):
    opened = Signal(QModelIndex)
    copied = Signal()
    resized = Signal()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.resized.emit()

    def dataChanged(self, first: QModelIndex, last: QModelIndex, roles: Sequence[int] = ()) -> None:
        """Repaint the cells that changed: for a range Qt would repaint the whole table."""
        area = self.visualRect(first).united(self.visualRect(last))
        self.viewport().update(area.intersected(self.viewport().rect()))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.matches(QKeySequence.StandardKey.Copy):
            self.copied.emit()
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.currentIndex().isValid():
            self.opened.emit(self.currentIndex())
        else:
            super().keyPressEvent(event)


class RequestsPanel(Panel):
    topics = frozenset({"requests", "routing", "run", "backends", "model", "setup"})
    receipt_requested = Signal(int)  # request id
    emulated_requested = Signal()  # the button of the empty table; shown once `offer_emulated` is set
    failed = Signal(str)  # a sentence for the user

    def __init__(self, board: Board, themes: ThemeHolder, parent: QWidget | None = None) -> None:
        super().__init__(board, themes, parent)
        self.offer_emulated = False
        self._at_bottom = True
        row = self.add_title("Requests", "one row each, as they arrive", height=32, top=8)
        self.filter_edit = QLineEdit(self)
        self.filter_edit.setPlaceholderText("Number, state or backend")
        self.filter_edit.setAccessibleName("Filter requests")
        self.filter_edit.setFont(font("label"))
        self.filter_edit.setFixedWidth(240)
        self.filter_edit.setClearButtonEnabled(True)
        self.filter_edit.hide()
        self.filter_button = Button(
            themes, "Filter", kind="ghost", icon_name="filter", name="Filter requests"
        )
        self.filter_button.setCheckable(True)
        self.why_button = Button(
            themes, "Why?", kind="ghost", name="Why it went there",
            tip="The receipt of the selected request, or of the last one (Enter in the table)",
        )  # fmt: skip
        self.copy_button = Button(themes, "Copy", kind="ghost", icon_name="copy", name="Copy requests")
        self.csv_button = Button(
            themes, "CSV", kind="ghost", icon_name="download", name="Save requests as CSV"
        )
        for widget in (
            self.filter_edit, self.why_button, self.filter_button, self.copy_button, self.csv_button
        ):  # fmt: skip
            row.addWidget(widget)
        self._build_table()
        self._build_empty()
        self.filter_button.toggled.connect(self._toggle_filter)
        self.filter_edit.textChanged.connect(self._filter)
        self.why_button.clicked.connect(self.ask_why)
        self.copy_button.clicked.connect(self.copy)
        self.csv_button.clicked.connect(self._ask_path)
        self._sorted_s = 0.0
        self.setAccessibleName("Requests")
        self._show_empty(True)

    def _build_table(self) -> None:
        self.model = RequestModel(self)
        self.proxy = RequestProxy(self.model)
        self.table = Table(self)
        self.table.setHorizontalHeader(Header(self.model, self.themes, self.table))
        self.table.setModel(self.proxy)
        self.table.setItemDelegate(CellDelegate(self.proxy, self.model, self.themes))
        self.table.verticalHeader().hide()
        self.table.verticalHeader().setMinimumSectionSize(ROW)
        self.table.verticalHeader().setDefaultSectionSize(ROW)
        self.table.setShowGrid(False)
        self.table.setWordWrap(False)
        self.table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.table.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.table.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.table.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.table.setAccessibleName("Requests table")
        self.table.setTabKeyNavigation(False)
        self.table.setSortingEnabled(True)
        self.table.horizontalHeader().setSortIndicatorShown(False)
        self.table.horizontalHeader().setStretchLastSection(True)
        self.table.sortByColumn(0, Qt.SortOrder.AscendingOrder)
        self.table.doubleClicked.connect(self._open)
        self.table.opened.connect(self._open)
        self.table.copied.connect(self.copy)
        self.table.resized.connect(self._show_whole_rows)
        self.table.verticalScrollBar().valueChanged.connect(self._scrolled)
        self.body.addWidget(self.table, 1)

    def _build_empty(self) -> None:
        self.empty = QWidget(self)
        row = QHBoxLayout(self.empty)
        row.setContentsMargins(32, 0, 32, 0)
        words = QVBoxLayout()
        words.setSpacing(4)
        self.empty_title, self.empty_text = QLabel(self.empty), QLabel(self.empty)
        self.empty_title.setFont(font("body", bold=True))
        self.empty_text.setFont(font("label"))
        self.empty_text.setProperty("tone", "muted")
        self.empty_text.setWordWrap(True)
        words.addStretch(1)
        words.addWidget(self.empty_title)
        words.addWidget(self.empty_text)
        words.addStretch(1)
        self.emulated_button = Button(
            self.themes, "Run on the emulated Apple M2", kind="primary", icon_name="play", parent=self.empty
        )
        self.emulated_button.clicked.connect(self.emulated_requested)
        row.addLayout(words, 1)
        row.addWidget(self.emulated_button)
        self.body.addWidget(self.empty, 1)

    def _show_empty(self, empty: bool) -> None:
        self.table.setHidden(empty)
        self.empty.setHidden(not empty)
        for button in (self.why_button, self.filter_button, self.copy_button, self.csv_button):
            button.setHidden(empty)
        self.filter_edit.setHidden(empty or not self.filter_button.isChecked())
        if empty:
            offer = self.offer_emulated and not self.board.ready
            self.emulated_button.setVisible(offer)
            self.empty_title.setText("No model needed to watch a burst" if offer else "Nothing has run yet")
            self.empty_text.setText(
                "Published timings, eight requests, every panel alive for ten seconds."
                if offer
                else "One row for each request will appear here. Press Run, or send a prompt."
            )

    def theme_changed(self) -> None:
        super().theme_changed()
        self.table.viewport().update()
        self.table.horizontalHeader().viewport().update()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        wide = self.width() >= TIMELINE_FROM_PX
        self.table.setColumnHidden(TIMELINE, not wide)
        room = self.contentsRect().width() - 16  # less a scroll bar
        spread = 1.0 if wide else max(1.0, room / sum(WIDTHS))
        part = (room - sum(NARROWEST)) / (sum(WIDTHS) - sum(NARROWEST))
        part = min(1.0, max(0.0, part))
        for column, (least, most) in enumerate(zip(NARROWEST, WIDTHS, strict=True)):
            self.table.setColumnWidth(column, int((least + part * (most - least)) * spread))

    def _show_whole_rows(self) -> None:
        """What is left below the last whole row goes to the panel: a table at its end shows no sliver."""
        table = self.table
        around = table.height() - table.viewport().height()  # header and scroll bar
        rest = (self.contentsRect().bottom() + 1 - table.y() - around) % ROW
        if rest != self.body.contentsMargins().bottom():
            self.body.setContentsMargins(0, 0, 0, rest)
        if self._at_bottom:
            self.table.scrollToBottom()

    def _scrolled(self, value: int) -> None:
        self._at_bottom = value == self.table.verticalScrollBar().maximum()

    def show_moment(self, moment_s: float | None) -> None:
        """Draw the time cursor over the timelines; the figures stay those of now."""
        self.model.cursor_s = moment_s
        if not self.table.isColumnHidden(TIMELINE):
            left = self.table.columnViewportPosition(TIMELINE)
            view = self.table.viewport().rect()
            self.table.viewport().update(view.adjusted(left, 0, 0, 0))

    def refresh(self, topics: set[str], now_s: float) -> None:
        rows = self.board.shown_rows()
        self._show_empty(not rows)
        self.phrase_label.set_full_text(*(self._phrases(rows) if rows else ("one row each, as they arrive",)))
        run = self.board.run if rows and rows[-1].run_id is not None else None
        origin_s = run.started.start_s if run else rows[0].arrival_s if rows else 0.0
        axis = self.model.end_s
        follow = self._at_bottom and self.table.horizontalHeader().sortIndicatorSection() == 0
        known = len(self.model.rows)
        self.model.show_rows(rows, origin_s, now_s, self.board.labels(), self.board.ranks())
        self._sort_again(now_s, len(rows) != known)
        if follow and len(rows) > known:
            self.table.scrollToBottom()
        if axis != self.model.end_s:
            self.table.horizontalHeader().viewport().update()
            self.table.viewport().update()
        self.setAccessibleDescription(f"Requests: {summary(rows)}." if rows else "Requests: none yet.")

    @staticmethod
    def _phrases(rows: list[RequestRow]) -> tuple[str, ...]:
        counts = summary(rows)
        if not any(map(priced_only, rows)):
            return (counts,)
        return (f"{counts}. {PRICED}", f"{counts}. Predicted is a price, no forecast.", counts)

    def _sort_again(self, now_s: float, came: bool) -> None:
        """Sorting follows the figures once a second, not at every one of their changes."""
        header = self.table.horizontalHeader()
        by_number = header.sortIndicatorSection() == 0
        due = abs(now_s - self._sorted_s) >= RESORT_S and self.model.running
        if due:
            self._sorted_s = now_s
        if came or (due and not by_number):
            self.proxy.sort(header.sortIndicatorSection(), header.sortIndicatorOrder())
        if due:
            self.proxy.refilter()

    # Actions

    def _open(self, index: QModelIndex) -> None:
        row = self.model.rows[self.proxy.mapToSource(index).row()]
        self.receipt_requested.emit(int(row.request_id))

    def ask_why(self) -> None:
        """The receipt of the selected request, else of the last in the table."""
        last = self.proxy.index(self.proxy.rowCount() - 1, 0)
        index = self.table.currentIndex()
        if last.isValid():
            self._open(index if index.isValid() else last)

    def _toggle_filter(self, on: bool) -> None:
        self.filter_edit.setVisible(on)
        if on:
            self.filter_edit.setFocus()
        else:
            self.filter_edit.clear()

    def _filter(self, text: str) -> None:
        self.proxy.set_filter(text)

    def chosen_rows(self) -> list[RequestRow]:
        """The selected rows, or all that are shown, in the order of the screen."""
        picked = {i.row() for i in self.table.selectionModel().selectedRows()}
        shown = self.proxy.shown_rows()
        return [self.model.rows[s] for i, s in enumerate(shown) if not picked or i in picked]

    def copy(self) -> None:
        """Tab-separated, so that it pastes into a spreadsheet as a table."""
        text = delimited(self.chosen_rows(), self.model.now_s, self.model.labels, "\t")
        QGuiApplication.clipboard().setText(text)

    def _ask_path(self) -> None:
        dialog = QFileDialog(self, "Save requests as CSV", "offramp-requests.csv", "CSV (*.csv)")
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setDefaultSuffix("csv")
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(self.save_csv)
        dialog.open()  # exec() would stop the drawing of a running burst

    def save_csv(self, path: str) -> None:
        try:
            text = delimited(
                [self.model.rows[i] for i in self.proxy.shown_rows()], self.model.now_s, self.model.labels
            )
            Path(path).write_text(text, encoding="utf-8")
        except OSError as error:
            self.failed.emit(f"The requests were not saved: {error.strerror}. Choose another folder.")
