"""A backend's panel: header, slots, queue and KV map, or words while there is nothing live to show."""

from typing import Protocol

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QStackedWidget, QVBoxLayout, QWidget

from app.backend_rows import backend_rate, busy_share, chips, slot_rows, step_variation
from app.series.board import BackendView, Board
from app.series.words import duration, percent
from app.theme import ThemeHolder, font
from app.widgets.controls import Button
from app.widgets.device_badge import DeviceBadge
from app.widgets.figure import Figure
from app.widgets.icons import pixmap
from app.widgets.labels import MarkLabel, SlotsGhost, make_label, make_separator, set_tone
from app.widgets.panel import PADDING, ElidedLabel, Panel
from app.widgets.queue import FLAT, TALL, QueueView
from app.widgets.slots import SlotsView
from engine.events import BackendState

MAP_FROM, SMALL_MAP_FROM, STEP_FROM = 700, 560, 600  # panel widths
TALL_FROM = 336  # panel height with room for whole chips
# Least width and height of a panel, and how wide its map is then: 24 cells of 18, 14, 9 and 7 px.
MAP_WIDTHS = ((1400, 560, 501), (1000, 480, 382), (MAP_FROM, 0, 262), (0, 0, 191))
WORDS = {
    BackendState.WAITING: ("Slots, the queue, the KV map", "The backend starts once the model is on disk."),
    BackendState.LOADING: ("Loading the model", "Slots, the queue and the KV map appear when it is ready."),
    BackendState.CALIBRATING: ("Calibrating", "It measures its own speed, so that the router can price it."),
}


class Map(Protocol):
    """What this panel needs of the KV map."""

    def refresh(self, now_s: float) -> None: ...
    def look_at(self, board: Board) -> None: ...
    def set_as_bar(self, as_bar: bool) -> None: ...


class BackendPanel(Panel):
    """One backend. Its body is the live view, or words while there is nothing live to show."""

    topics = frozenset({"backends", "requests", "clock"})
    restart_requested = Signal(str)
    log_requested = Signal()
    least = QSize(400, 240)

    def __init__(
        self, board: Board, themes: ThemeHolder, name: str, kv_map: Map, parent: QWidget | None = None
    ) -> None:
        super().__init__(board, themes, parent)
        self.name, self._map = name, kv_map
        self._tall, self._wide, self._first_refresh = True, True, True
        self._when = ""  # "3.20 s, not live" while a moment of the past is shown
        self._build_header()
        self.pages = QStackedWidget()
        self.pages.addWidget(self._build_live())
        self.pages.addWidget(self._build_message())
        self.body.addWidget(self.pages, 1)
        self.refresh(set(self.topics), 0.0)

    def _build_header(self) -> None:
        self._header = QWidget()
        row = QHBoxLayout(self._header)
        row.setContentsMargins(PADDING, 0, PADDING, 0)
        row.setSpacing(8)
        self._mark = MarkLabel(self.themes, 16)
        self._title = make_label("", "lead", bold=True)
        self._device, self._step = ElidedLabel(), ElidedLabel()
        self._word = make_label("emulated", tone="emulated")
        self._moment = make_label(tone="warning")
        self._badge = DeviceBadge(self.themes)
        for label in (self._device, self._step):
            label.setFont(font("label"))
            label.setProperty("tone", "muted")
        self._rate = Figure(self.themes, "Tokens per second", "tok/s", "000.0")
        row.addWidget(self._mark)
        row.addWidget(self._title)
        row.addSpacing(4)
        row.addWidget(self._badge)
        row.addWidget(self._device)
        row.addWidget(self._word)
        row.addWidget(self._moment)
        row.addStretch(1)
        row.addWidget(self._step)
        row.addWidget(self._rate)
        self.body.addWidget(self._header)
        self.body.addWidget(make_separator())

    def _build_live(self) -> QWidget:
        page = QWidget()
        self._columns = QHBoxLayout(page)
        self._columns.setContentsMargins(PADDING, 0, PADDING, 0)
        self._columns.setSpacing(0)
        left = QVBoxLayout()
        left.setContentsMargins(0, 8, 0, 14)
        left.setSpacing(8)
        self._left = left
        self._slots_phrase, self._queue_phrase = ElidedLabel(), make_label(tone="muted")
        self._slots_phrase.setFont(font("label"))
        self._slots_phrase.setProperty("tone", "muted")
        self._slots, self._queue = SlotsView(self.themes), QueueView(self.themes)
        left.addLayout(self._row("Slots", self._slots_phrase))
        left.addWidget(self._slots, 1)
        left.addLayout(self._row("Queue", self._queue_phrase))
        left.addWidget(self._queue)
        self._columns.addLayout(left, 1)
        self._separator = QFrame()
        self._separator.setObjectName("separator")
        self._separator.setFixedWidth(1)
        self._columns.addSpacing(PADDING)
        self._columns.addWidget(self._separator)
        self._columns.addSpacing(PADDING - 1)
        self._columns.addWidget(self._map)
        return page

    @staticmethod
    def _row(title: str, phrase: QLabel) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setSpacing(8)
        head = make_label(title, bold=True)
        for label in (head, phrase):
            label.setFixedHeight(16)
        row.addWidget(head)
        row.addWidget(phrase, 1)
        return row

    def _build_message(self) -> QWidget:
        page = QWidget()
        row = QHBoxLayout(page)
        row.setContentsMargins(PADDING, 16, PADDING, 16)
        row.setSpacing(0)
        self._ghost, self._alert = SlotsGhost(self.themes), QLabel()
        self._alert.setFixedWidth(28)
        self._headline, self._message = make_label(bold=True), make_label(tone="muted")
        self._message.setWordWrap(True)
        self._message.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.restart_button = Button(self.themes, "Restart backend", icon_name="restart")
        self.restart_button.clicked.connect(lambda: self.restart_requested.emit(self.name))
        words = QVBoxLayout()
        words.setSpacing(4)
        words.addWidget(self._headline)
        words.addWidget(self._message)
        words.addSpacing(8)
        self.log_button = Button(self.themes, "Log", kind="ghost", name="Show the log")
        self.log_button.clicked.connect(self.log_requested)
        buttons = QHBoxLayout()
        buttons.setSpacing(8)
        buttons.addWidget(self.restart_button)
        buttons.addWidget(self.log_button)
        buttons.addStretch(1)
        words.addLayout(buttons)
        words.addStretch(1)
        top = Qt.AlignmentFlag.AlignTop
        row.addWidget(self._ghost, 0, top)
        row.addSpacing(8)
        row.addWidget(self._alert, 0, top)
        row.addLayout(words, 1)
        return page

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()

    def _arrange(self) -> None:
        """Whole chips and the map where there is room; else flat chips and the map as a bar."""
        tall, wide = self.height() >= TALL_FROM, self.width() >= SMALL_MAP_FROM
        self._header.setFixedHeight(47 if tall else 39)
        self._queue.setFixedHeight(TALL if tall else FLAT)
        self._left.setSpacing(8 if tall else 4)
        self._left.setContentsMargins(0, 8, 0, 14 if tall else 8)
        self._step.setVisible(self.width() >= STEP_FROM)
        if wide != self._wide or self._first_refresh:
            self._map.set_as_bar(not wide)
            self._separator.setVisible(wide)
            if wide:
                self._left.removeWidget(self._map)
                self._columns.addWidget(self._map)
            else:
                self._columns.removeWidget(self._map)
                self._left.addWidget(self._map)
            for index in (1, 3):
                self._columns.itemAt(index).spacerItem().changeSize(PADDING - index // 3 if wide else 0, 0)
            self._columns.invalidate()
        if wide:
            size = self.size()
            fits = (m for w, h, m in MAP_WIDTHS if size.width() >= w and size.height() >= h)
            self._map.setFixedWidth(next(fits))
        else:
            self._map.setMinimumWidth(0)
            self._map.setMaximumWidth(16_777_215)
        self._tall, self._wide, self._first_refresh = tall, wide, False

    def theme_changed(self) -> None:
        super().theme_changed()
        view = self.board.backends.get(self.name)
        if view is not None:
            self._show_state(view)

    def look_at(self, board: Board, now_s: float, when: str = "") -> None:
        """Show another board, such as the past, whose moment `when` names."""
        self.board, self._when = board, when
        self._map.look_at(board)
        self.refresh(set(self.topics), now_s)

    def refresh(self, topics: set[str], now_s: float) -> None:
        view = self.board.backends.get(self.name)
        if view is None:
            return
        self._show_state(view)
        if self.pages.currentIndex() == 1:
            return
        rank = view.info.rank
        rows, waiting = slot_rows(self.board, view, now_s), chips(self.board, view, now_s)
        self._slots.set_rows(rows, rank)
        self._queue.set_chips(waiting, rank)
        active = sum(1 for row in rows if row.number)
        busy = busy_share(view, now_s)
        words = f"{active} of {len(rows)} active" + (
            "" if busy is None else f", busy {percent(100 * busy, 0)}"
        )
        self._queue_phrase.setText(f"{len(waiting)} waiting, first come first" if waiting else "empty")
        self._queue_phrase.setVisible(True)
        rate = backend_rate(view, now_s)
        self._rate.set_value(None if rate is None else f"{rate:,.1f}")
        step = self._show_step(view)
        if step and self.width() < STEP_FROM:  # the header has no room for it
            self._slots_phrase.set_full_text(f"{words}, {step}", f"{words}, {step.partition(',')[0]}", words)
        else:
            self._slots_phrase.set_full_text(words)
        self._map.refresh(now_s)

    def _show_step(self, view: BackendView) -> str:
        """Time of the last step, how far prices were off, and whether steps vary; also returned."""
        varying, last = step_variation(view), view.last_step
        step = f"step {duration(last.duration_s)}" if last else ""
        price = f", {view.price.factor:.2f}× predicted" if last and view.price is not None else ""
        varies = f", steps vary {varying:.0f}×" if varying else ""
        text = step + price + varies
        self._step.set_full_text(text, step + (varies or price), varies.removeprefix(", ") or step)
        set_tone(self._step, "warning" if varying else "muted")
        return text

    def _show_state(self, view: BackendView) -> None:
        info, state = view.info, view.state
        self._mark.set_rank(info.rank)
        self._title.setText(f"{info.label} backend")
        self.setAccessibleName(f"{info.label} backend, {state}")
        # "Intel Xeon, 1 of 2 cores", the processor alone, or nothing: half a name tells nobody anything.
        self._device.set_full_text(info.device_name, info.device_name.partition(",")[0], "")
        threads = view.last_step.threads if view.last_step else 0
        self._badge.show_device(info, threads, short=self.width() < STEP_FROM)
        stopped, stalled = state is BackendState.STOPPED, state is BackendState.STALLED
        word = "stalled" if stalled else "stopped" if stopped else "emulated" if info.emulated else ""
        self._word.setText(word)
        self._word.setVisible(bool(word))
        set_tone(self._word, "error" if stalled or stopped else "emulated")
        self._moment.setText(self._when)
        self._moment.setVisible(bool(self._when))
        live = state in (BackendState.READY, BackendState.STALLED)
        self.pages.setCurrentIndex(0 if live else 1)
        self._rate.setVisible(live)
        if live:
            return
        self._step.set_full_text("")
        self._ghost.rank = info.rank
        self._ghost.setVisible(not stopped and self.width() >= 420)
        self._alert.setVisible(stopped)
        self._alert.setPixmap(pixmap("alert", self.themes.current.error, 16, self.devicePixelRatioF()))
        self.restart_button.setVisible(stopped)
        self.log_button.setVisible(stopped)
        self.restart_button.setAccessibleName(f"Restart the {info.label} backend")
        title, words = WORDS.get(state, (f"{info.label} backend stopped", "Its process ended."))
        self._headline.setText(title)
        self._message.setText(view.message or words)
