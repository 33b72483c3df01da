"""The KV cache of one backend: a cell a block, or a single bar where there is no room for cells."""

from math import ceil

from PySide6.QtCore import QEvent, QPoint, QRect, QSize, Qt
from PySide6.QtGui import QColor, QHelpEvent, QMouseEvent, QPainter, QPaintEvent, QPixmap, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from app.series.board import BackendView, Board
from app.theme import Theme, ThemeHolder, font
from app.widgets.popover import Popover
from engine.config import BLOCK_TOKENS
from engine.step_report import BlockState

SIZES = ((18, 3), (14, 2), (12, 2), (9, 2), (7, 1), (5, 1), (3, 1))  # cell, gap
MOST_CELLS = 2_800  # beyond this one cell stands for several blocks
TITLE, LEGEND_ROW, BAR_HEIGHT = 32, 24, 24
FADE_S, FADE_STEPS = 1.0, 4
EVICTED = -1  # a fifth way to draw a cell, beside the block states
LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter


def fit(blocks: int, width: int, height: int) -> tuple[int, int, int, int]:
    """Cell, gap, columns and blocks a cell: the largest cells with which the pool fits."""
    group = 1
    while True:
        cells = ceil(blocks / group)
        for cell, gap in SIZES:
            columns = max(1, (width + gap) // (cell + gap))
            if cells <= MOST_CELLS and ceil(cells / columns) * (cell + gap) - gap <= height:
                return cell, gap, columns, group
        if group >= blocks:
            return 3, 1, max(1, width // 4), group
        group *= 2


def mix(a: QColor, b: QColor, share: float) -> QColor:
    """A share of `a` in `b`, premixed: live painting uses no alpha."""
    pairs = zip(a.getRgb()[:3], b.getRgb()[:3], strict=True)
    return QColor(*(round(x * share + y * (1 - share)) for x, y in pairs))


def paint_cell(
    painter: QPainter, x: int, y: int, size: int, state: int, rank: int, theme: Theme, fresh: float = 1.0
) -> None:
    """One cell. Shapes inside cells go below 7 px. `fresh` fades a cell that was just evicted."""
    colours = theme.backend(rank)
    box = QRect(x, y, size, size)
    painter.fillRect(box, theme.panel)
    if state == BlockState.FREE:
        painter.setPen(theme.line)
        painter.drawRect(box.adjusted(0, 0, -1, -1))
    elif state == BlockState.CACHED:
        painter.fillRect(box, colours.tint)
    elif state == EVICTED:
        painter.setPen(mix(theme.muted, theme.panel, fresh))
        painter.drawRect(box.adjusted(0, 0, -1, -1))
        if size >= 7:
            painter.drawLine(x + 2, y + 2, x + size - 3, y + size - 3)
            painter.drawLine(x + 2, y + size - 3, x + size - 3, y + 2)
    else:
        painter.fillRect(box, colours.fill)
        painter.setPen(colours.edge)
        painter.drawRect(box.adjusted(0, 0, -1, -1))
        if state == BlockState.SHARED and size >= 7:
            hole = size // 3 if size >= 9 else 1
            inset = (size - hole) // 2
            painter.fillRect(QRect(x + inset, y + inset, hole, hole), theme.panel)


class KvMap(QWidget):
    """Header, cells and a legend of counts; as a bar: name, four fills, blocks in use."""

    def __init__(self, board: Board, themes: ThemeHolder, name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._board, self._themes, self._name = board, themes, name
        self._as_bar = False
        self._grid = QPixmap()
        self._shape = (9, 2, 24, 1)
        self._fading: set[int] = set()
        self._now_s = 0.0
        self._counts: tuple[str, ...] = ()
        self.setAccessibleName("KV cache")
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Expanding)
        themes.changed.connect(self._forget)

    def set_as_bar(self, as_bar: bool) -> None:
        self._as_bar = as_bar
        policy = QSizePolicy.Policy
        self.setSizePolicy(
            policy.Expanding if as_bar else policy.Fixed, policy.Fixed if as_bar else policy.Expanding
        )
        self.setMinimumHeight(BAR_HEIGHT if as_bar else 0)
        self.setMaximumHeight(BAR_HEIGHT if as_bar else 16_777_215)
        self.setCursor(Qt.CursorShape.PointingHandCursor if as_bar else Qt.CursorShape.ArrowCursor)
        self._forget()

    def sizeHint(self) -> QSize:
        return QSize(262, BAR_HEIGHT if self._as_bar else 278)

    def look_at(self, board: Board) -> None:
        """Show another board, such as the past; only the cells that differ are painted again."""
        before, self._board = self._view(), board
        now = self._view()
        if before is None or now is None or before is now:
            return
        old, new = before.blocks, now.blocks
        now.changed_blocks |= {b for b in old.keys() | new.keys() if old.get(b) is not new.get(b)}
        now.changed_blocks |= before.changed_blocks

    def refresh(self, now_s: float) -> None:
        """Repaint the cells that changed since the last call, and those that fade."""
        view, self._now_s = self._view(), now_s
        if view is None:
            return
        changed = set(view.changed_blocks) | self._fading
        view.changed_blocks.clear()
        self._fading = {b for b in changed if now_s - view.evicted.get(b, -FADE_S) < FADE_S}
        counts = tuple(self._legend(view)) + (self._caption(view),)
        if counts != self._counts:
            self._counts = counts
            self.setAccessibleDescription(", ".join(counts))
            self.update()
        if changed and not self._as_bar and not self._grid.isNull():
            self._paint_blocks(view, changed)
            self.update(0, TITLE, self.width(), self.height() - TITLE)

    def _view(self) -> BackendView | None:
        return self._board.backends.get(self._name)

    def _forget(self) -> None:
        self._grid = QPixmap()
        self.update()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._forget()

    def _grid_height(self) -> int:
        return max(24, self.height() - TITLE - 3 * LEGEND_ROW - 6)

    def _draw_grid(self, view: BackendView) -> None:
        blocks, dpr = view.info.kv_blocks, self.devicePixelRatioF()
        self._shape = cell, gap, columns, group = fit(blocks, self.width(), self._grid_height())
        rows = ceil(ceil(blocks / group) / columns)
        size = QSize(columns * (cell + gap), rows * (cell + gap))
        self._grid = QPixmap(size * dpr)
        self._grid.setDevicePixelRatio(dpr)
        self._grid.fill(self._themes.current.panel)
        self._paint_blocks(view, range(0, blocks, group))

    def _paint_blocks(self, view: BackendView, blocks: set[int] | range) -> None:
        cell, gap, columns, group = self._shape
        painter = QPainter(self._grid)
        theme, rank = self._themes.current, view.info.rank
        for index in {block // group for block in blocks}:
            members = range(index * group, min((index + 1) * group, view.info.kv_blocks))
            state = max(view.blocks[b].state if b in view.blocks else BlockState.FREE for b in members)
            age = min(self._now_s - view.evicted.get(b, -FADE_S) for b in members)
            fresh = 1.0
            if 0 <= age < FADE_S:
                state, fresh = EVICTED, 1 - int(age / FADE_S * FADE_STEPS) / FADE_STEPS
            y, x = divmod(index, columns)
            paint_cell(painter, x * (cell + gap), y * (cell + gap), cell, state, rank, theme, fresh)
        painter.end()

    def _legend(self, view: BackendView) -> list[str]:
        counts = view.counts()
        owners = {len(c.owners) for c in view.blocks.values() if c.state is BlockState.SHARED}
        by = f" by {owners.pop()}" if len(owners) == 1 else ""
        evicted = sum(1 for at in view.evicted.values() if 0 <= self._now_s - at < FADE_S)
        return [
            f"{counts[BlockState.SHARED]:,} shared{by}",
            f"{counts[BlockState.CACHED]:,} cached",
            f"{counts[BlockState.ACTIVE]:,} active",
            f"{counts[BlockState.FREE]:,} free",
            f"{evicted:,} just evicted",
        ]

    def _caption(self, view: BackendView) -> str:
        counts = view.counts()
        used = counts[BlockState.ACTIVE] + counts[BlockState.SHARED]
        mib = used * view.info.block_bytes / 2**20
        size = f"{mib:.0f} MiB" if mib >= 10 or mib == 0 else f"{mib:.1f} MiB"
        scale = f", 1 cell = {self._shape[3]} blocks" if self._shape[3] > 1 and not self._as_bar else ""
        return f"{used:,} of {view.info.kv_blocks:,} blocks, {size}{scale}"

    def paintEvent(self, _event: QPaintEvent) -> None:
        view = self._view()
        if view is None:
            return
        painter, theme = QPainter(self), self._themes.current
        if self._as_bar:
            self._paint_bar(painter, view, theme)
            return
        if self._grid.isNull():
            self._draw_grid(view)
        head = QRect(0, 8, self.width(), 16)
        caption, bold = self._caption(view), font("label", bold=True)
        painter.setFont(font("label"))
        painter.setPen(theme.muted)
        wide = painter.fontMetrics().horizontalAdvance(caption)
        painter.drawText(head, RIGHT, caption if wide < self.width() - 72 else caption.split(" blocks")[0])
        painter.setFont(bold)
        painter.setPen(theme.text)
        painter.drawText(head, LEFT, "KV cache" if wide < self.width() - 24 else "KV")
        painter.drawPixmap(QPoint(0, TITLE), self._grid)
        self._paint_legend(painter, view, theme)

    def _paint_legend(self, painter: QPainter, view: BackendView, theme: Theme) -> None:
        top = TITLE + round(self._grid.height() / self._grid.devicePixelRatio()) + 4
        states = (BlockState.SHARED, BlockState.CACHED, BlockState.ACTIVE, BlockState.FREE, EVICTED)
        painter.setFont(font("label"))
        for index, (state, words) in enumerate(zip(states, self._legend(view), strict=True)):
            row, column = divmod(index, 2)
            x, y = column * max(100, self.width() * 136 // 262), top + row * LEGEND_ROW
            paint_cell(painter, x, y + 8, 9, state, view.info.rank, theme)
            painter.setPen(theme.muted)
            shown = words.split(" by ")[0] if self.width() < 240 else words
            painter.drawText(QRect(x + 17, y, self.width() - x - 17, LEGEND_ROW), LEFT, shown)

    def _paint_bar(self, painter: QPainter, view: BackendView, theme: Theme) -> None:
        row, caption = QRect(0, 0, self.width(), BAR_HEIGHT), self._caption(view)
        painter.setFont(font("label"))
        measure = painter.fontMetrics().horizontalAdvance
        painter.setPen(theme.muted)
        painter.drawText(row, RIGHT, caption)
        right = self.width() - measure(caption) - 12
        painter.setFont(font("label", bold=True))
        painter.setPen(theme.text)
        painter.drawText(row, LEFT, "KV")
        left = 40
        if right - left < 40:
            return
        counts, colours = view.counts(), theme.backend(view.info.rank)
        order = (BlockState.SHARED, BlockState.ACTIVE, BlockState.CACHED)
        fills = dict(zip(order, (colours.edge, colours.fill, colours.tint), strict=True))
        painter.fillRect(QRect(left, 4, right - left, 16), theme.panel)
        done = 0
        for state in order:
            start = left + (right - left) * done // view.info.kv_blocks
            done += counts[state]
            end = left + (right - left) * done // view.info.kv_blocks
            painter.fillRect(QRect(start, 4, end - start, 16), fills[state])
            if state is BlockState.SHARED and end > start:  # dotted, as the cells with a hole
                for x in range(start + 4, end - 3, 8):
                    painter.fillRect(QRect(x, 11, 3, 3), theme.panel)
        painter.setPen(theme.line)
        painter.drawRect(QRect(left, 4, right - left - 1, 15))

    def describe(self, block: int) -> str:
        """The tooltip of a block: state, owners, prefix depth."""
        view = self._view()
        change = view.blocks.get(block) if view else None
        if change is None:
            return f"Block {block}, free"
        rows = (self._board.requests.get(owner) for owner in change.owners)
        owners = ", ".join(str(row.number) for row in rows if row is not None)
        words = {BlockState.SHARED: f"shared by {owners}", BlockState.ACTIVE: f"active, request {owners}"}
        text = f"Block {block}, {words.get(change.state, 'cached, no owner')}"
        if change.depth >= 0:
            first = change.depth * BLOCK_TOKENS
            text += f"\nprefix tokens {first:,} to {first + BLOCK_TOKENS - 1:,}"
        return text

    def block_at(self, x: int, y: int) -> int | None:
        """The first block of the cell under a point, None outside the cells."""
        cell, gap, columns, group = self._shape
        column, row = x // (cell + gap), (y - TITLE) // (cell + gap)
        block = (row * columns + column) * group
        view = self._view()
        inside = view is not None and y >= TITLE and 0 <= column < columns and block < view.info.kv_blocks
        return block if inside else None

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip and self._counts:
            block = None if self._as_bar else self.block_at(event.pos().x(), event.pos().y())
            text = "\n".join(self._counts) if block is None else self.describe(block)
            QToolTip.showText(event.globalPos(), text, self)
            return True
        return super().event(event)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if not self._as_bar:
            super().mousePressEvent(event)
            return
        popover = Popover(self._themes, self)
        popover.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        whole = KvMap(self._board, self._themes, self._name, popover)
        whole.setFixedSize(262, 284)
        popover.body.addWidget(whole)
        whole.refresh(self._now_s)
        popover.open_at(self)
