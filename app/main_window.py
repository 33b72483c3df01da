"""The window: toolbar, panels, receipt sheet; it decides when a panel repaints and how everything ends."""

import time
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QEvent, QRect, QSize, QTimer, Signal
from PySide6.QtGui import QCloseEvent, QResizeEvent
from PySide6.QtWidgets import QMainWindow, QMenu, QStackedWidget, QVBoxLayout, QWidget

from app.actions import build_menu
from app.bridge import Bridge
from app.chats import open_store
from app.handlers import handlers_of
from app.layout import GUTTER, PanelLayout
from app.looking_back import LookingBack
from app.model_menu import ModelMenu
from app.panels.backends import BackendPanel
from app.panels.kv_map import KvMap
from app.panels.prompt import PromptPanel
from app.panels.receipt import ReceiptSheet
from app.panels.requests import RequestsPanel
from app.panels.result import ResultCard
from app.panels.routing import RoutingPanel
from app.panels.verdict_page import ShownVerdict
from app.refresher import TURNS, Cadence, Refresher
from app.series.board import Board
from app.series.outcome import RunSummary
from app.series.verdict import Verdict
from app.session import Session
from app.settings import Settings
from app.theme import ThemeHolder, stylesheet
from app.time_cursor import TimeCursor
from app.toolbar import HEIGHT, Toolbar
from app.tour import Tour
from app.tour_steps import tour_steps
from app.widgets.backends_row import BackendsRow
from app.widgets.controls import FocusRing
from app.widgets.panel import Panel
from app.widgets.toast import Toast
from app.window_memory import restore, save
from app.wiring import connect
from app.wishes import Wishes

SHEET = 760


class MainWindow(QMainWindow):
    """`painted` comes once, after the first paint: the moment to import and start the engine."""

    painted = Signal()

    def __init__(
        self,
        board: Board,
        themes: ThemeHolder,
        bridge: Bridge,
        settings: Settings,
        session: Session,
        clock: Callable[[], float] = time.monotonic,
        chats: Path | None = None,
    ) -> None:
        super().__init__()
        self.board, self.themes, self.bridge, self.settings = board, themes, bridge, settings
        self.session, self._chats = session, chats
        self._turn, self._true_clock = 0, clock
        self._clock, self._was_painted, self._closed = clock, False, False
        self.presenter: QWidget | None = None  # made when first entered
        self.tour: Tour | None = None
        self.setWindowTitle("Offramp")
        self.setMinimumSize(1280, 720)
        menu, self.actions_by_name = build_menu(self, handlers_of(self))
        self._build(menu)
        self.wishes = Wishes(self)
        self.looking_back = LookingBack(self)
        self.time_cursor = TimeCursor(self)
        self._listen()
        connect(self)
        restore(self)
        self._apply_theme()
        self._timer = QTimer(self)
        self._cadence = Cadence()
        self._timer.setInterval(self._cadence.turn_ms())
        self._timer.timeout.connect(self._next_turn)
        self._timer.start()

    def _build(self, menu: QMenu) -> None:
        board, themes = self.board, self.themes
        self.pages, centre = QStackedWidget(), QWidget()
        self.pages.setObjectName("window")
        centre.setObjectName("window")
        self.toolbar = Toolbar(board, themes, menu)
        self.prompt = PromptPanel(board, themes, self.bridge)
        self.backends = BackendsRow(board, themes, self._make_backend)
        self.routing = RoutingPanel(board, themes)
        self.ttft, self.throughput = self._blank("Time to first token"), self._blank("Tokens per second")
        self.requests = RequestsPanel(board, themes)
        self.requests.offer_emulated = True
        first = (self.prompt, self.backends, self.routing, self.requests)
        self._refresher = Refresher(board, first)
        charts = (self.routing, self.ttft, self.throughput)
        self.panel_layout = PanelLayout(self.prompt, self.backends, charts, self.requests)
        column = QVBoxLayout(centre)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self.toolbar)
        margins = QVBoxLayout()
        margins.setContentsMargins(GUTTER, GUTTER, GUTTER, GUTTER)
        margins.addWidget(self.panel_layout.root)
        column.addLayout(margins, 1)
        self.pages.addWidget(centre)
        self.setCentralWidget(self.pages)
        self.sheet = ReceiptSheet(board, themes, centre)
        self.sheet.hide()
        self.card = ResultCard(themes, self.pages)
        self.toast = Toast(themes, self.pages)
        self.model_menu = ModelMenu(self.toolbar.model, self.session, self)
        self._ring = FocusRing(self, themes)

    def _blank(self, title: str) -> Panel:
        panel = Panel(self.board, self.themes)
        panel.add_title(title)
        panel.body.addStretch(1)
        return panel

    def _first_paint(self) -> None:
        """pyqtgraph takes a third of a second to import, so its panels come only now."""
        if self._closed:
            return
        from app.panels.latency import TtftPanel
        from app.panels.throughput import ThroughputPanel

        self.ttft, self.throughput = (
            TtftPanel(self.board, self.themes),
            ThroughputPanel(self.board, self.themes),
        )
        splitter = self.panel_layout.splitters["charts"]
        for index, panel in enumerate((self.ttft, self.throughput), start=1):
            splitter.replaceWidget(index, panel).deleteLater()
            panel.show()
            self._refresher.add(panel)
        self.time_cursor.use_chart(self.throughput)
        self.panel_layout.fit(self._panel_area(self.centralWidget().size()))
        if self._chats is not None:
            store, problem = open_store(self._chats)
            self.prompt.use_store(store)
            if problem:
                self.wishes.fail(problem)
        self.painted.emit()

    def _make_backend(self, name: str) -> BackendPanel:
        return BackendPanel(self.board, self.themes, name, KvMap(self.board, self.themes, name))

    def _listen(self) -> None:
        self.bridge.changed.connect(self._board_changed)
        self.bridge.replaced.connect(self._engine_replaced)
        self.bridge.started.connect(self.model_menu.refresh)
        self.themes.changed.connect(self._apply_theme)

    # what is shown

    def toggle_presenter(self) -> None:
        if self.pages.currentIndex() == 1:
            self.leave_presenter()
            return
        self.time_cursor.go_live()
        if self.presenter is None:
            from app.presenter import Presenter

            self.presenter = Presenter(self.board, self.themes)
            self.presenter.run_requested.connect(self.wishes.run)
            self.presenter.repeat_requested.connect(self.wishes.repeat)
            self.presenter.compare_requested.connect(self.wishes.show_compare)
            self.presenter.left.connect(self.leave_presenter)
            self.pages.addWidget(self.presenter)
        self.presenter.preset = self.toolbar.preset.currentText()
        self.presenter.follow()
        self.pages.setCurrentIndex(1)
        self.presenter.setFocus()
        self.tick()

    def leave_presenter(self) -> None:
        self.pages.setCurrentIndex(0)
        self.focus_page()
        self.tick()

    def begin_tour(self) -> None:
        """Four steps; the first start shows them by itself."""
        self.pages.setCurrentIndex(0)
        if self.tour is None:
            self.tour = Tour(self.themes, tour_steps(self), self.pages)
            self.tour.finished.connect(self.settings.set_tour_seen)
            self.tour.finished.connect(self.focus_page)
        self.tour.begin()

    def focus_page(self) -> None:
        presenting = self.presenter is not None and self.pages.currentIndex() == 1
        (self.presenter if presenting else self.prompt.composer.editor).setFocus()

    def show_verdict(self, verdict: Verdict) -> None:
        self.card.repeat_button.hide()  # a comparison is started from its own form
        self.card.show_result(ShownVerdict(verdict))

    def show_result(self, now: RunSummary, before: RunSummary | None) -> None:
        self.card.repeat_button.show()
        self.card.show_result(self.looking_back.shown(now, before))

    def show_receipt(self, request_id: int) -> None:
        self._place_sheet()
        self.sheet.show_request(request_id)
        self.sheet.show()
        self.sheet.raise_()

    def show_last_receipt(self) -> None:
        if self.board.last_receipt is not None:
            self.show_receipt(self.board.last_receipt.request_id)

    def set_theme(self, mode: str) -> None:
        self.themes.set_mode(mode)
        self.settings.set_theme(mode)

    def reset_layout(self) -> None:
        self.panel_layout.reset()
        self.panel_layout.fit(self._panel_area(self.centralWidget().size()))

    # what changes

    def _board_changed(self, topics: set[str]) -> None:
        self._refresher.changed(topics)
        if "notices" in topics:
            self.toolbar.took_notice()
            if self.board.notices:
                self.toast.show_notice(self.board.notices[-1])
        if self.presenter is not None:
            self.presenter.changed(topics)
        if "run" in topics:
            self.toolbar.took_notice()
            if self.board.run is not None and self.board.run.done is not None:
                self.wishes.burst_done(self.board.run.done)
        if "setup" in topics and self.board.ready:
            self.wishes.show_policies()
            self.wishes.run_waiting()
            self.model_menu.refresh()

    def _engine_replaced(self) -> None:
        """The board is empty: drop what was drawn of the old engine, in this turn of the event loop."""
        self.wishes.comparer.stop()
        self.sheet.close_sheet()
        self.card.hide()
        self.backends.forget()
        self.prompt.engine_replaced()
        self.toolbar.took_notice()
        self.tick()

    def now_s(self) -> float:
        return self._clock()

    def tick(self) -> None:
        """Show everything that is new, at once."""
        now_s = self._clock()
        self.toolbar.refresh(now_s)
        if self.presenter is not None and self.pages.currentIndex() == 1:
            self.presenter.refresh(now_s, self.toolbar.clock_words(now_s))
            return
        self._refresher.refresh(now_s)
        if self.sheet.isVisible():
            self.sheet.refresh({"clock"}, now_s)

    def _next_turn(self) -> None:
        """A third of what `tick` does, a round of three at most ten times a second."""
        self._turn = (self._turn + 1) % TURNS
        if self._turn == 0:
            self._timer.setInterval(self._cadence.turn_ms())
        if self.presenter is not None and self.pages.currentIndex() == 1:
            if self._turn == 0:
                self.tick()
            return
        now_s = self._clock()
        self._refresher.refresh(now_s, self._turn)
        if self._turn == 0:
            self.toolbar.refresh(now_s)
        elif self._turn == 1 and self.sheet.isVisible():
            self.sheet.refresh({"clock"}, now_s)

    def freeze(self, now_s: float) -> None:
        """Stand still at `now_s`, for a picture: no more events, no more time."""
        self.bridge.pause()
        self._clock = lambda: now_s

    def unfreeze(self) -> None:
        """Time goes on, and the events that came meanwhile are taken."""
        self._clock = self._true_clock
        self.bridge.resume()

    def _apply_theme(self) -> None:
        self.setStyleSheet(stylesheet(self.themes.current))

    @staticmethod
    def _panel_area(size: QSize) -> QSize:
        """What the toolbar and the margins leave of a window of that size."""
        return size - QSize(2 * GUTTER, HEIGHT + 2 * GUTTER)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        # The central widget has its new size only after this event.
        self.panel_layout.fit(self._panel_area(event.size()))
        self._place_sheet()
        if self.toast.isVisible():
            self.toast.place()
        if self.card.isVisible():
            self.card.place()
        if self.tour is not None and self.tour.isVisible():
            self.tour.place()

    def _place_sheet(self) -> None:
        width = min(SHEET, self.width() - 2 * GUTTER)
        self.sheet.setGeometry(QRect(self.width() - width, HEIGHT, width, self.height() - HEIGHT))

    def event(self, event: QEvent) -> bool:
        done = super().event(event)
        if event.type() == QEvent.Type.Paint and not self._was_painted:
            self._was_painted = True
            QTimer.singleShot(0, self._first_paint)
        return done

    def closeEvent(self, event: QCloseEvent) -> None:
        if not self._closed:
            self._closed = True
            save(self)
            self._timer.stop()
            self.model_menu.close()
            self.wishes.comparer.close()
            self.looking_back.close()
            self.prompt.close_store()
            self.hide()  # the window is gone at once; the backends get up to three seconds
            self.bridge.close()
        event.accept()
