"""How the table's cells and header are painted: figures, backend marks, the timeline and its ticks."""

from PySide6.QtCore import QLineF, QModelIndex, QPersistentModelIndex, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QHeaderView, QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from app.panels.painting import CENTRE, LEFT, draw_text, hair, half, tick_text, width_of
from app.panels.request_model import TIMELINE, RequestModel, RequestProxy
from app.series.board import RequestRow
from app.series.rows import COLUMNS
from app.series.timeline import stretches
from app.series.words import GROWING
from app.theme import Theme, ThemeHolder, font
from app.widgets.marks import paint_mark
from engine.request import RequestState

SLOT = 12  # kept free at the right of a figure for its ellipsis
INSET = 16  # of the timeline's ends
BAR = 12
Index = QModelIndex | QPersistentModelIndex


def axis_x(rect: QRectF, seconds: float, end_s: float) -> float:
    """Where a time lies in a cell or header section of the timeline."""
    left, right = rect.left() + INSET, rect.right() - INSET - SLOT
    return left + seconds / (end_s or 1.0) * (right - left)


class CellDelegate(QStyledItemDelegate):
    def __init__(self, proxy: RequestProxy, model: RequestModel, themes: ThemeHolder) -> None:
        super().__init__(proxy)
        self.proxy, self.model, self.themes = proxy, model, themes

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(80, 24)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        theme, rect = self.themes.current, QRectF(option.rect)
        source = self.proxy.mapToSource(index)
        row = self.model.rows[source.row()]
        painter.save()
        if option.state & QStyle.StateFlag.State_Selected:
            painter.fillRect(rect, theme.hover)
        if source.column() == TIMELINE:
            self._timeline(painter, rect, row, theme)
        elif COLUMNS[source.column()].key == "backend":
            self._backend(painter, rect, row, theme)
        else:
            self._figure(painter, rect, source.row(), source.column(), theme)
        painter.restore()

    def _figure(self, painter: QPainter, rect: QRectF, row: int, column: int, theme: Theme) -> None:
        cell = self.model.figure(row, column)
        request = self.model.rows[row]
        colour = theme.text if cell.known else theme.disabled
        if cell.growing or (column == 1 and request.state in (RequestState.QUEUED, RequestState.FINISHED)):
            colour = theme.muted
        if cell.text == "error":
            colour = theme.error
        used = font("label", bold=column == 0)
        if COLUMNS[column].decimals is None or column == 0:
            inner = rect.adjusted(16 if column == 0 else 8, 0, -4, 0)
            draw_text(painter, inner, LEFT, cell.text, used, colour, elide=True)
            return
        digits = cell.text.removesuffix(GROWING)
        wide = width_of(digits, used) + 1
        box = QRectF(rect.right() - SLOT - wide, rect.top(), wide, rect.height())
        draw_text(painter, box, LEFT, digits, used, colour)
        if cell.growing:
            slot = QRectF(box.right() - 1, rect.top(), SLOT + 1, rect.height())
            draw_text(painter, slot, LEFT, GROWING, used, colour)

    def _backend(self, painter: QPainter, rect: QRectF, row: RequestRow, theme: Theme) -> None:
        if row.backend is None:
            draw_text(painter, rect.adjusted(8, 0, -4, 0), LEFT, "n/a", font("label"), theme.disabled)
            return
        mark = QRectF(rect.left() + 8, rect.center().y() - 6, 12, 12)
        hollow = row.state is RequestState.QUEUED
        paint_mark(painter, mark, self.model.ranks.get(row.backend, 3), theme, hollow)
        label = self.model.labels.get(row.backend, row.backend)
        draw_text(painter, rect.adjusted(28, 0, -4, 0), LEFT, label, font("label"), theme.text, elide=True)

    def _timeline(self, painter: QPainter, rect: QRectF, row: RequestRow, theme: Theme) -> None:
        model = self.model
        painter.setPen(hair(theme.grid))
        for index in range(round(model.end_s / model.step_s) + 1):
            x = half(axis_x(rect, index * model.step_s, model.end_s))
            painter.drawLine(QLineF(x, rect.top(), x, rect.bottom() + 1))
        colours = theme.backend(model.ranks.get(row.backend or "", 3))
        top, middle = half(rect.center().y() - BAR / 2), half(rect.center().y())
        for part in stretches(row, model.now_s):
            left, right = (axis_x(rect, t - model.origin_s, model.end_s) for t in (part.start_s, part.end_s))
            bar = QRectF(half(left), top, max(0.0, half(right) - half(left)), BAR - 1)
            if part.kind == "queued":
                painter.setPen(hair(colours.line, 1, (2, 4)))
                if right - left >= 1:
                    painter.drawLine(QLineF(left, middle, right, middle))
            elif part.kind == "prefill":
                painter.fillRect(QRectF(left, top - 0.5, right - left, BAR), colours.tint)
            elif part.kind == "decode":
                painter.setPen(hair(colours.edge))
                painter.setBrush(colours.fill)
                painter.drawRect(bar)
            else:
                painter.setPen(hair(colours.line, 1, (3, 3)))
                painter.setBrush(Qt.BrushStyle.NoBrush)
                painter.drawRect(bar)
        # One line across all rows: now, or dashed the moment that is looked back at.
        moment = model.cursor_s if model.cursor_s is not None else model.now_s if model.running else None
        if moment is not None:
            painter.setPen(hair(theme.text, 1, (3, 3) if model.cursor_s is not None else None))
            x = half(axis_x(rect, moment - model.origin_s, model.end_s))
            painter.drawLine(QLineF(x, rect.top(), x, rect.bottom() + 1))


class Header(QHeaderView):
    """Muted titles aligned with their figures, a small arrow on the sorted one, ticks over the timeline."""

    def __init__(self, model: RequestModel, themes: ThemeHolder, parent: QWidget | None = None) -> None:
        super().__init__(Qt.Orientation.Horizontal, parent)
        self._model, self.themes = model, themes
        self.setSectionsClickable(True)
        self.setSortIndicatorShown(False)  # the arrow is ours
        self.setHighlightSections(False)
        self.setMinimumSectionSize(40)
        self.setFixedHeight(24)

    def paintSection(self, painter: QPainter, rect: QRect, section: int) -> None:
        theme, box, used = self.themes.current, QRectF(rect), font("label")
        painter.save()
        painter.fillRect(box, theme.panel)
        painter.setPen(hair(theme.line))
        bottom = half(box.bottom() - 1)
        painter.drawLine(QLineF(box.left(), bottom, box.right(), bottom))
        if section == TIMELINE:
            self._ticks(painter, box, theme)
        else:
            column = COLUMNS[section]
            wide = width_of(column.title, used) + 1
            left = box.left() + (16 if section == 0 else 8)
            if column.decimals is not None and section:
                left = box.right() - SLOT - wide
            title = QRectF(max(left, box.left()), box.top(), min(wide, box.width()), box.height() - 1)
            draw_text(painter, title, LEFT, column.title, used, theme.muted, elide=wide > box.width())
            if section == self.sortIndicatorSection():
                self._arrow(painter, title.right() + 2, title.center().y(), theme)
        painter.restore()

    def _arrow(self, painter: QPainter, x: float, y: float, theme: Theme) -> None:
        up = self.sortIndicatorOrder() is Qt.SortOrder.AscendingOrder
        painter.setPen(Qt.PenStyle.NoPen)
        for row in range(4):  # four rows of pixels make a triangle that is sharp at any size
            wide = 1 + 2 * row
            line = round(y) - 2 + (row if up else 3 - row)
            painter.fillRect(QRectF(round(x) + 4 - row, line, wide, 1), theme.text)

    def _ticks(self, painter: QPainter, box: QRectF, theme: Theme) -> None:
        model, used = self._model, font("label")
        for index in range(round(model.end_s / model.step_s) + 1):
            value = index * model.step_s
            text = f"{tick_text(value, model.step_s)} s"
            wide = width_of(text, used) + 2
            x = axis_x(box, value, model.end_s)
            left = min(max(box.left(), x - wide / 2), box.right() - wide)
            draw_text(
                painter, QRectF(left, box.top(), wide, box.height() - 1), CENTRE, text, used, theme.muted
            )
