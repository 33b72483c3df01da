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
from app.series.rows import COLUMNS, FORECAST, PRICED, Figure, Value, priced_only, state_word
from app.series.timeline import extent
from engine.request import RequestState

Index = QModelIndex | QPersistentModelIndex
KEYS = [c.key for c in COLUMNS]
TIMELINE = len(COLUMNS)  # the column after the figures
ROOT = QModelIndex()
# Columns that a change touches. Painting a whole row costs three times as much as its counting part.
QUIET = (-1, -1)
EVERYTHING = (0, TIMELINE)
COUNTING = (KEYS.index("out"), KEYS.index("e2e"))


class RequestModel(QAbstractTableModel):
    """Rows of the board, by reference, in the order in which they are sorted.

    Sorting is done here, in one pass over a list of keys: a proxy that asks Python about every pair
    takes 280 ms for 2,000 rows where this takes 5.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.rows: list[RequestRow] = []
        self.labels: Mapping[str, str] = {}
        self.ranks: Mapping[str, int] = {}
        self.now_s = self.origin_s = 0.0
        self.cursor_s: float | None = None  # the moment that is looked back at
        self.end_s, self.step_s = 1.0, 1.0
        self.running = False  # some request has not finished
        self.changed_rows = 0  # announced by the last `show_rows`
        self._arrived: list[RequestRow] = []
        self._seen: dict[int, tuple[object, ...]] = {}

    def show_rows(
        self,
        rows: Sequence[RequestRow],
        origin_s: float,
        now_s: float,
        labels: Mapping[str, str],
        ranks: Mapping[str, int],
    ) -> None:
        """Tell the view which rows came and which changed. `rows` are in order of arrival."""
        self.now_s, self.origin_s, self.labels, self.ranks = now_s, origin_s, labels, ranks
        self.end_s, self.step_s = extent(rows, origin_s, now_s)
        was_running, self.running = self.running, any(r.state is not RequestState.FINISHED for r in rows)
        known = len(self._arrived)
        grown = len(rows) >= known and all(a is b for a, b in zip(self._arrived, rows, strict=False))
        if not grown:
            self.beginResetModel()
            self.rows, self._arrived = list(rows), list(rows)
            self._seen = {r.request_id: _state(r) for r in rows}
            self.endResetModel()
            self.changed_rows = len(rows)
            return
        self._announce_changes()
        if len(rows) > known:
            self.beginInsertRows(ROOT, known, len(rows) - 1)
            self.rows.extend(rows[known:])
            self._arrived.extend(rows[known:])
            self._seen.update((r.request_id, _state(r)) for r in rows[known:])
            self.endInsertRows()
        if (self.running or was_running) and self.rows:  # the line of now crosses every row
            self._changed(0, len(self.rows) - 1, (TIMELINE, TIMELINE))

    def _announce_changes(self) -> None:
        """One `dataChanged` per run of neighbouring rows, and of no more columns than have moved."""
        self.changed_rows, start, kind = 0, -1, QUIET
        for index, row in enumerate(self.rows):
            now = self._kind_of_change(row)
            self.changed_rows += now != QUIET
            if now != kind:
                if kind != QUIET:
                    self._changed(start, index - 1, kind)
                start, kind = index, now
        if kind != QUIET:
            self._changed(start, len(self.rows) - 1, kind)

    def _kind_of_change(self, row: RequestRow) -> tuple[int, int]:
        state, before = _state(row), self._seen[row.request_id]
        if state != before:
            self._seen[row.request_id] = state
            return COUNTING if state[1:] == before[1:] else EVERYTHING
        return QUIET if row.state is RequestState.FINISHED else COUNTING

    def _changed(self, first: int, last: int, columns: tuple[int, int]) -> None:
        self.dataChanged.emit(self.index(first, columns[0]), self.index(last, columns[1]))

    def sort(self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> None:
        """By true value; the unknown comes last whichever way the column is sorted."""
        if not 0 <= column <= TIMELINE:
            return
        keys: list[Value] = [
            r.arrival_s if column == TIMELINE else COLUMNS[column].read(r, self.now_s) for r in self._arrived
        ]
        known = [i for i, key in enumerate(keys) if key is not None]
        known.sort(key=lambda i: keys[i], reverse=order is Qt.SortOrder.DescendingOrder)
        unknown = [i for i, key in enumerate(keys) if key is None]
        rows = [self._arrived[i] for i in (*known, *unknown)]
        if all(a is b for a, b in zip(rows, self.rows, strict=True)):
            return
        self.layoutAboutToBeChanged.emit()
        kept = self.persistentIndexList()
        place = {row.request_id: index for index, row in enumerate(rows)}
        moved = [self.index(place[self.rows[i.row()].request_id], i.column()) for i in kept]
        self.rows = rows
        self.changePersistentIndexList(kept, moved)
        self.layoutChanged.emit()

    def figure(self, row: int, column: int) -> Figure:
        return COLUMNS[column].figure(self.rows[row], self.now_s)

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
        if role == Qt.ItemDataRole.ToolTipRole and section == KEYS.index("predicted"):
            return PRICED if any(map(priced_only, self.rows)) else FORECAST
        return None


def _state(row: RequestRow) -> tuple[object, ...]:
    return row.output_tokens, row.state, row.backend, row.cached_tokens, row.finished_s


class RequestProxy(QSortFilterProxyModel):
    """Filters by words; sorting is handed to the model, and only when asked: rows that jump about ten
    times a second cannot be read."""

    def __init__(self, source: RequestModel) -> None:
        super().__init__(source)
        self._source, self._words = source, ()
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
        self._source.sort(column, order)

    def shown_rows(self) -> list[int]:
        """Source rows in the order of the screen."""
        return [self.mapToSource(self.index(i, 0)).row() for i in range(self.rowCount())]

    def filterAcceptsRow(self, source_row: int, source_parent: Index) -> bool:
        if not self._words:
            return True
        text = self._source.words(source_row)
        return all(word in text for word in self._words)
