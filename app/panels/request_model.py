"""The table's model: one row per request, and a proxy that sorts by true values and filters by words."""

from collections.abc import Mapping, Sequence

from PySide6.QtCore import (
    QAbstractTableModel,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    QSortFilterProxyModel,
    Qt,
)

from app.series.board import RequestRow
from app.series.rows import COLUMNS, Figure, state_word
from app.series.timeline import extent
from engine.request import RequestState

Index = QModelIndex | QPersistentModelIndex
TIMELINE = len(COLUMNS)  # the column after the figures
ROOT = QModelIndex()


class RequestModel(QAbstractTableModel):
    """Rows of the board, by reference. `show_rows` tells the view which of them have changed."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.rows: list[RequestRow] = []
        self.labels: Mapping[str, str] = {}
        self.ranks: Mapping[str, int] = {}
        self.now_s = self.origin_s = 0.0
        self.end_s, self.step_s = 1.0, 1.0
        self.changed_rows = 0  # announced by the last `show_rows`
        self._seen: list[tuple[object, ...]] = []

    def show_rows(
        self,
        rows: Sequence[RequestRow],
        origin_s: float,
        now_s: float,
        labels: Mapping[str, str],
        ranks: Mapping[str, int],
    ) -> None:
        self.now_s, self.origin_s, self.labels, self.ranks = now_s, origin_s, labels, ranks
        self.end_s, self.step_s = extent(rows, origin_s, now_s)
        known = len(self.rows)
        grown = len(rows) >= known and all(a is b for a, b in zip(self.rows, rows, strict=False))
        if not grown:
            self.beginResetModel()
            self.rows, self._seen = list(rows), [_state(r) for r in rows]
            self.endResetModel()
            self.changed_rows = len(rows)
            return
        self._announce_changes()
        if len(rows) > known:
            self.beginInsertRows(ROOT, known, len(rows) - 1)
            self.rows.extend(rows[known:])
            self._seen.extend(_state(r) for r in rows[known:])
            self.endInsertRows()

    def _announce_changes(self) -> None:
        """One `dataChanged` per run of neighbouring rows that changed or whose clocks still count."""
        self.changed_rows, start = 0, -1
        for index, row in enumerate(self.rows):
            state = _state(row)
            changed = state != self._seen[index] or row.state is not RequestState.FINISHED
            if changed:
                self._seen[index] = state
                self.changed_rows += 1
                start = index if start < 0 else start
            elif start >= 0:
                self._changed(start, index - 1)
                start = -1
        if start >= 0:
            self._changed(start, len(self.rows) - 1)

    def _changed(self, first: int, last: int) -> None:
        self.dataChanged.emit(self.index(first, 0), self.index(last, TIMELINE))

    def figure(self, row: int, column: int) -> Figure:
        return COLUMNS[column].figure(self.rows[row], self.now_s)

    def sort_keys(self, column: int, ascending: bool) -> list[float] | list[str]:
        """A key per row; the unknown comes last whichever way the column is sorted."""
        if column >= TIMELINE:
            return [r.arrival_s for r in self.rows]
        values = [COLUMNS[column].read(r, self.now_s) for r in self.rows]
        if COLUMNS[column].decimals is None:
            last = "\uffff" if ascending else ""
            return [last if v is None else str(v) for v in values]
        unknown = float("inf") if ascending else float("-inf")
        return [unknown if v is None else float(v) for v in values]

    def words(self, row: int) -> str:
        """What the filter looks in."""
        request = self.rows[row]
        label = self.labels.get(request.backend or "", request.backend or "")
        return f"{request.number} {state_word(request)} {label} {request.message}".lower()

    # Qt's side

    def rowCount(self, parent: Index = ROOT) -> int:
        return 0 if parent.isValid() else len(self.rows)

    def columnCount(self, parent: Index = ROOT) -> int:
        return 0 if parent.isValid() else TIMELINE + 1

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if not index.isValid():
            return None
        row, column = index.row(), index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            if column == TIMELINE:
                return None
            if COLUMNS[column].key == "backend":
                name = self.rows[row].backend
                return self.labels.get(name, name) if name else "n/a"
            return self.figure(row, column).text
        if role == Qt.ItemDataRole.AccessibleTextRole and column < TIMELINE:
            return f"{COLUMNS[column].title} {self.data(index)}"
        if role == Qt.ItemDataRole.ToolTipRole and self.rows[row].message:
            return self.rows[row].message
        return None

    def headerData(
        self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole
    ) -> object:
        if orientation is Qt.Orientation.Horizontal and role == Qt.ItemDataRole.DisplayRole:
            return "Time, s" if section == TIMELINE else COLUMNS[section].title
        return None


def _state(row: RequestRow) -> tuple[object, ...]:
    return row.state, row.backend, row.cached_tokens, row.output_tokens, row.finished_s


class RequestProxy(QSortFilterProxyModel):
    """Sorts when asked, not on every change: rows that jump about ten times a second cannot be read."""

    def __init__(self, source: RequestModel) -> None:
        super().__init__(source)
        self._source, self._words = source, ()
        self._keys: list[float] | list[str] = []
        self.setDynamicSortFilter(False)
        self.setSourceModel(source)

    def set_filter(self, text: str) -> None:
        """Rows that hold every word of `text`."""
        self._words = tuple(text.lower().split())
        self.invalidate()

    def refilter(self) -> None:
        if self._words:
            self.invalidate()

    def sort(self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> None:
        self._keys = self._source.sort_keys(column, order is Qt.SortOrder.AscendingOrder)
        super().sort(column, order)

    def shown_rows(self) -> list[int]:
        """Source rows in the order of the screen."""
        return [self.mapToSource(self.index(i, 0)).row() for i in range(self.rowCount())]

    def filterAcceptsRow(self, source_row: int, source_parent: Index) -> bool:
        if not self._words:
            return True
        text = self._source.words(source_row)
        return all(word in text for word in self._words)

    def lessThan(self, left: Index, right: Index) -> bool:
        a, b = left.row(), right.row()
        if max(a, b) >= len(self._keys):  # rows came in after the keys were made
            return a < b
        return self._keys[a] < self._keys[b]
