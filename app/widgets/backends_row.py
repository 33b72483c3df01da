"""The backends side by side, in the board's order: slowest left, fastest right."""

from collections.abc import Callable

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QSplitter, QWidget

from app.series.board import Board
from app.theme import ThemeHolder
from app.widgets.labels import SlotsGhost, make_label
from app.widgets.panel import PADDING, Panel


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
        panel.add_title("Backends", "", height=40, top=0)
        row = QHBoxLayout()
        row.setContentsMargins(PADDING, 16, PADDING, PADDING)
        top = Qt.AlignmentFlag.AlignTop
        row.addWidget(SlotsGhost(self._themes), 0, top)
        row.addSpacing(16)
        words = "Each backend shows its slots, its queue and its KV map here once the engine has started."
        label = make_label(words, tone="muted")
        label.setWordWrap(True)
        row.addWidget(label, 1, top)
        panel.body.addLayout(row, 1)
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
