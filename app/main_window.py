"""The window: toolbar, panels, receipt sheet; it decides when a panel repaints and how everything ends."""

import time
from collections.abc import Callable

from PySide6.QtCore import QEvent, QRect, QSize, QTimer, Signal
from PySide6.QtGui import QCloseEvent, QResizeEvent
from PySide6.QtWidgets import QMainWindow, QMenu, QVBoxLayout, QWidget

from app.actions import build_menu, show_about, show_shortcuts
from app.bridge import Bridge
from app.layout import GUTTER, PanelLayout
from app.panels.backends import BackendPanel
from app.panels.kv_map import KvMap
from app.panels.prompt import PromptPanel
from app.panels.receipt import ReceiptSheet
from app.panels.requests import RequestsPanel
from app.panels.routing import RoutingPanel
from app.refresher import Refresher
from app.series.board import Board
from app.settings import Settings
from app.theme import ThemeHolder, stylesheet
from app.toolbar import HEIGHT, Toolbar
from app.widgets.backends_row import BackendsRow
from app.widgets.controls import FocusRing
from app.widgets.panel import Panel
from app.widgets.toast import Toast
from engine.events import Notice

REFRESH_MS = 100
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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self.board, self.themes, self.bridge, self.settings = board, themes, bridge, settings
        self._clock, self._was_painted, self._closed = clock, False, False
        self._last_run: tuple[str, str] | None = None  # preset, policy
        self._first_run: tuple[str, str] | None = None  # asked for on the command line
        self.setWindowTitle("Offramp")
        self.setMinimumSize(1280, 720)
        menu, self.actions_by_name = build_menu(self, self._handlers())
        self._build(menu)
        self._connect()
        self._restore()
        self._apply_theme()
        self._timer = QTimer(self)
        self._timer.setInterval(REFRESH_MS)
        self._timer.timeout.connect(self.tick)
        self._timer.start()

    def _build(self, menu: QMenu) -> None:
        board, themes = self.board, self.themes
        centre = QWidget()
        centre.setObjectName("window")
        self.toolbar = Toolbar(board, themes, menu)
        self.prompt = PromptPanel(board, themes, self.bridge)
        self.backends = BackendsRow(board, themes, self._make_backend)
        self.routing = RoutingPanel(board, themes)
        self.ttft, self.throughput = self._blank("Time to first token"), self._blank("Tokens per second")
        self.requests = RequestsPanel(board, themes)
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
        self.setCentralWidget(centre)
        self.sheet = ReceiptSheet(board, themes, centre)
        self.sheet.hide()
        self.toast = Toast(themes, centre)
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
        from app.panels.latency import ThroughputPanel, TtftPanel

        self.ttft, self.throughput = (
            TtftPanel(self.board, self.themes),
            ThroughputPanel(self.board, self.themes),
        )
        splitter = self.panel_layout.splitters["charts"]
        for index, panel in enumerate((self.ttft, self.throughput), start=1):
            splitter.replaceWidget(index, panel).deleteLater()
            panel.show()
            self._refresher.add(panel)
        self.panel_layout.fit(self._panel_area())
        self.painted.emit()

    def _make_backend(self, name: str) -> BackendPanel:
        return BackendPanel(self.board, self.themes, name, KvMap(self.board, self.themes, name))

    def _handlers(self) -> dict[str, Callable[[], object]]:
        return {
            "run": lambda: self.run_burst(),
            "repeat": lambda: self.repeat_burst(),
            "stop": lambda: self.stop_all(),
            "focus_prompt": lambda: self.prompt.composer.editor.setFocus(),
            "new_conversation": lambda: self.prompt.new_conversation(),
            "system_prompt": lambda: self.prompt.edit_system(),
            "sampling": lambda: self.prompt.composer.sampling_line.open(),
            "receipt": lambda: self.show_last_receipt(),
            "theme": lambda: self.set_theme("light" if self.themes.current.name == "dark" else "dark"),
            "system_theme": lambda: self.set_theme("system"),
            "reset_layout": lambda: self.reset_layout(),
            "shortcuts": lambda: show_shortcuts(self),
            "about": lambda: show_about(self),
            "quit": lambda: self.close(),
        }

    def _connect(self) -> None:
        self.bridge.changed.connect(self._board_changed)
        self.themes.changed.connect(self._apply_theme)
        self.toolbar.run_requested.connect(self.run_burst)
        self.toolbar.stop_requested.connect(self.stop_all)
        self.toolbar.policy_chosen.connect(self._choose_policy)
        self.toolbar.preset_chosen.connect(lambda name: self.settings.set_choice("preset", name))
        self.toolbar.theme_requested.connect(self.actions_by_name["theme"].trigger)
        self.backends.restart_requested.connect(self.bridge.restart_backend)
        for panel in (self.prompt, self.routing, self.requests):
            panel.receipt_requested.connect(self.show_receipt)
        for part in (self.requests, self.sheet):
            part.failed.connect(lambda words: self.toast.show_notice(Notice("error", words)))

    # what the user wants

    def run_burst(self) -> None:
        """The burst and policy of the toolbar."""
        if self.toolbar.run_button.isEnabled():
            self._run(self.toolbar.preset.currentText(), self.toolbar.policy.currentText())

    def repeat_burst(self) -> None:
        if self.toolbar.run_button.isEnabled() and self._last_run is not None:
            self._run(*self._last_run)

    def _run(self, preset: str, policy: str) -> None:
        self._last_run = (preset, policy)
        self.toolbar.asked_to_run()
        self.bridge.run_burst(preset, policy or None)

    def run_when_ready(self, preset: str, policy: str) -> None:
        """The burst that the command line asks for; at once if the engine is ready already."""
        self._first_run = (preset, policy)
        self._run_first()

    def _run_first(self) -> None:
        if self.board.ready and self._first_run is not None:
            wanted, self._first_run = self._first_run, None
            self._run(*wanted)

    def stop_all(self) -> None:
        self.bridge.cancel_all()
        self.toolbar.took_notice()

    def _choose_policy(self, name: str) -> None:
        self.bridge.set_policy(name)
        self.settings.set_choice("policy", name)

    def set_choices(self, presets: list[str], policies: list[str], preset: str, policy: str) -> None:
        """Fill the combo boxes once the engine is imported."""
        self.toolbar.preset.set_items(presets, preset)
        self.toolbar.policy.set_items(policies, policy)
        self.toolbar.refresh(self._clock())

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
        self.panel_layout.fit(self._panel_area())

    # what changes

    def _board_changed(self, topics: set[str]) -> None:
        self._refresher.changed(topics)
        if "notices" in topics:
            self.toolbar.took_notice()
            if self.board.notices:
                self.toast.show_notice(self.board.notices[-1])
        if "setup" in topics and self.board.ready:
            self.toolbar.policy.set_items(self.bridge.policies())
            self._run_first()

    def tick(self) -> None:
        """Ten times a second."""
        now_s = self._clock()
        self._refresher.refresh(now_s)
        if self.sheet.isVisible():
            self.sheet.refresh({"clock"}, now_s)
        self.toolbar.refresh(now_s)

    def freeze(self, now_s: float) -> None:
        """Stand still at `now_s`, for a picture: no more events, no more time."""
        self.bridge.pause()
        self._clock = lambda: now_s

    def _apply_theme(self) -> None:
        self.setStyleSheet(stylesheet(self.themes.current))

    def _panel_area(self) -> QSize:
        size = self.centralWidget().size()
        size.setWidth(size.width() - 2 * GUTTER)
        size.setHeight(size.height() - HEIGHT - 2 * GUTTER)
        return size

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        # The central widget has its new size only after this event.
        size = event.size()
        size.setWidth(size.width() - 2 * GUTTER)
        size.setHeight(size.height() - HEIGHT - 2 * GUTTER)
        self.panel_layout.fit(size)
        self._place_sheet()
        if self.toast.isVisible():
            self.toast.place()

    def _place_sheet(self) -> None:
        width = min(SHEET, self.width() - 2 * GUTTER)
        self.sheet.setGeometry(QRect(self.width() - width, HEIGHT, width, self.height() - HEIGHT))

    def event(self, event: QEvent) -> bool:
        done = super().event(event)
        if event.type() == QEvent.Type.Paint and not self._was_painted:
            self._was_painted = True
            QTimer.singleShot(0, self._first_paint)
        return done

    # the beginning and the end

    def _restore(self) -> None:
        settings = self.settings
        geometry = settings.state("geometry")
        if geometry is None or not self.restoreGeometry(geometry):
            self.resize(1920, 1080)
        for key in self.panel_layout.all_keys():
            state = settings.state(key)
            if state is not None:
                self.panel_layout.restore(key, state)
        self.prompt.composer.sampling_line.set_sampling(settings.sampling())
        self.prompt.set_system(settings.system_prompt())

    def _save(self) -> None:
        settings = self.settings
        settings.set_state("geometry", self.saveGeometry())
        states = self.panel_layout.states()
        for key in self.panel_layout.all_keys():
            settings.set_state(key, states.get(key))
        settings.set_sampling(self.prompt.composer.sampling_line.sampling)
        settings.set_system_prompt(self.prompt.system)
        settings.save()

    def closeEvent(self, event: QCloseEvent) -> None:
        if not self._closed:
            self._closed = True
            self._save()
            self._timer.stop()
            self.hide()  # the window is gone at once; the backends get up to three seconds
            self.bridge.close()
        event.accept()
