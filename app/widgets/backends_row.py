"""The backends side by side, in the board's order: slowest left, fastest right."""

from collections.abc import Callable

from PySide6.QtCore import QRect, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QSplitter, QVBoxLayout, QWidget

from app.series.board import Board
from app.theme import ThemeHolder
from app.widgets.bars import draw_empty_bar
from app.widgets.labels import make_label
from app.widgets.marks import paint_badge
from app.widgets.panel import PADDING, Panel
from app.widgets.slots import ROW_LEAST, places

ROWS, BETWEEN = 4, 48


class BackendsGhost(QWidget):
    """What will be here: the slots of two backends beside each other, by their two shapes."""

    def __init__(self, themes: ThemeHolder, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._themes = themes
        self.setMinimumHeight(ROWS * ROW_LEAST)

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter, theme = QPainter(self), self._themes.current
        wide = (self.width() - BETWEEN) // 2
        pitch = max(ROW_LEAST, self.height() // ROWS)
        for column, rank in enumerate((1, 0)):
            painter.save()
            painter.translate(column * (wide + BETWEEN), 0)
            for row in range(ROWS):
                at = places(QRect(0, row * pitch, wide, pitch))
                paint_badge(painter, at.badge, rank, "", "dashed", theme)
                for bar in filter(None, (at.in_bar, at.out_bar)):  # no words: beside the badge, not below
                    bar.moveTop(round(at.badge.center().y() - bar.height() / 2))
                    draw_empty_bar(painter, bar, theme, strong=True)
            painter.restore()


class BackendsRow(QSplitter):
    """One panel a backend, in the board's order. Before the first backend is known: one that says so."""

    topics = frozenset({"backends", "requests", "clock"})
    restart_requested = Signal(str)
    log_requested = Signal()

    def __init__(
        self,
        board: Board,
        themes: ThemeHolder,
        make_panel: Callable[[str], Panel],
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(Qt.Orientation.Horizontal, parent)
        self._board, self._themes, self._make_panel = board, themes, make_panel
        self.setHandleWidth(8)
        self.setChildrenCollapsible(False)
        self.panels: dict[str, Panel] = {}
        self._past: tuple[Board, float, str] | None = None  # what is shown instead of now
        self._placeholder = self._build_placeholder()
        self.addWidget(self._placeholder)

    def _build_placeholder(self) -> Panel:
        panel = Panel(self._board, self._themes)
        panel.add_title("Backends", "")
        column = QVBoxLayout()
        column.setContentsMargins(PADDING, 0, PADDING, PADDING)
        column.setSpacing(16)
        words = "Each backend shows its slots, its queue and its KV map here once the engine has started."
        label = make_label(words, tone="muted")
        label.setWordWrap(True)
        column.addWidget(label)
        column.addWidget(BackendsGhost(self._themes), 1)
        panel.body.addLayout(column, 1)
        return panel

    def forget(self) -> None:
        """Another engine comes: what these panels have drawn of the old one must not stay."""
        self._past = None
        self._rebuild([])

    def look_at(self, past: Board | None, now_s: float, when: str = "") -> None:
        """Show a moment of the past, or follow the engine again."""
        self._past = None if past is None else (past, now_s, when)
        for panel in self.panels.values():
            panel.look_at(self._board if past is None else past, now_s, when)

    def refresh(self, topics: set[str], now_s: float) -> None:
        order = [view.info.name for view in self._board.ranked()]
        if order != list(self.panels):
            self._rebuild(order)
            if self._past is not None:
                self.look_at(*self._past)
        if self._past is not None:  # what happens now is not shown
            return
        for panel in self.panels.values():
            panel.refresh(topics, now_s)

    def _rebuild(self, order: list[str]) -> None:
        for name in set(self.panels) - set(order):
            self.panels.pop(name).deleteLater()
        panels = {}
        for index, name in enumerate(order):
            panel = self.panels.get(name)
            if panel is None:
                panel = self._make_panel(name)
                panel.restart_requested.connect(self.restart_requested)
                panel.log_requested.connect(self.log_requested)
            self.insertWidget(index, panel)
            panel.show()
            panels[name] = panel
        self.panels = panels
        self._placeholder.setVisible(not order)
        self.setSizes([0 if not order else 10_000] * len(order) + [0 if order else 10_000])
