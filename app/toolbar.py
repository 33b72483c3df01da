"""The row on top: which model, policy and burst; run, stop; the burst's clock; EMULATED; theme; menu."""

from PySide6.QtCore import Signal
from PySide6.QtGui import QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QMenu, QWidget

from app.series.board import Board, RunView
from app.theme import ThemeHolder, font
from app.widgets.controls import Button, EmulatedMark, LabelledCombo
from app.widgets.icons import pixmap
from engine.events import BackendState
from engine.request import RequestState

HEIGHT = 56
# (least width, model, policy, burst): widths of the combo boxes by the window's width
WIDTHS = ((1700, 320, 200, 192), (1480, 264, 200, 192), (0, 184, 160, 152))
SHORT_BELOW = 1480  # a short clock
MARK_FROM = 1800  # below this EMULATED stands without its detail
CLOCK_WIDEST = {False: "00.00 s, 000 of 000 finished", True: "00.00 s, 00 of 00"}


class Toolbar(QWidget):
    run_requested = Signal()
    stop_requested = Signal()
    policy_chosen = Signal(str)
    preset_chosen = Signal(str)
    theme_requested = Signal()
    presenter_requested = Signal()
    compare_requested = Signal()
    model_chosen = Signal(str)

    def __init__(self, board: Board, themes: ThemeHolder, menu: QMenu, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._board, self._themes = board, themes
        self._short = False
        self._asked = False  # Run was pressed and the burst has not started yet
        self.setFixedHeight(HEIGHT)
        self.model = LabelledCombo(themes, "Model", WIDTHS[0][1])
        self.policy = LabelledCombo(themes, "Policy", WIDTHS[0][2])
        self.preset = LabelledCombo(themes, "Burst", WIDTHS[0][3])
        self.run_button = Button(
            themes, "Run", kind="primary", icon_name="play", tip="Run the burst (Ctrl+R)"
        )
        self.stop_button = Button(
            themes, "Stop all", kind="danger", icon_name="stop",
            tip="Stop every request, or the calibration (Ctrl+.)",
        )  # fmt: skip
        self.compare_button = Button(
            themes, "Compare A/B", icon_name="compare", name="Compare A/B",
            tip="Compare two policies in pairs of runs (Ctrl+B)",
        )  # fmt: skip
        self.comparing = ""  # "run 3 of 10"
        self.looking_at = ""  # "3.20 s, not live"
        self.clock = QLabel()
        self.clock.setFont(font("body"))
        self.clock.setAccessibleName("Burst clock")
        self.clock.setProperty("tone", "muted")
        self.mark = EmulatedMark(themes)
        self.mark.hide()
        self.presenter_button = Button(
            themes, kind="ghost", icon_name="presenter", name="Presenter mode", tip="Presenter mode (F5)"
        )
        self.theme_button = Button(
            themes, kind="ghost", icon_name="sun", name="Light or dark", tip="Light or dark (Ctrl+T)"
        )
        self.menu_button = Button(themes, kind="ghost", icon_name="more", name="Menu")
        self.menu_button.setMenu(menu)
        self._place()
        self.model.set_note("Getting ready…")
        self.model.keep = True
        self.model.chosen.connect(self.model_chosen)
        self.compare_button.clicked.connect(self.compare_requested)
        self.presenter_button.clicked.connect(self.presenter_requested)
        self.policy.textActivated.connect(self.policy_chosen)
        self.preset.textActivated.connect(self.preset_chosen)
        self.run_button.clicked.connect(self.run_requested)
        self.stop_button.clicked.connect(self.stop_requested)
        self.theme_button.clicked.connect(self.theme_requested)
        themes.changed.connect(self._theme_changed)
        self._theme_changed()
        self.refresh(0.0)

    def _place(self) -> None:
        row = QHBoxLayout(self)
        row.setContentsMargins(16, 0, 16, 0)
        row.setSpacing(8)
        self._logo, name = QLabel(), QLabel("Offramp")
        self._logo.setFixedSize(24, 24)
        name.setFont(font("body", bold=True))
        row.addWidget(self._logo)
        row.addWidget(name)
        row.addSpacing(8)
        for combo in (self.model, self.policy, self.preset):
            row.addWidget(combo)
        row.addSpacing(8)
        row.addWidget(self.run_button)
        row.addWidget(self.compare_button)
        row.addWidget(self.stop_button)
        row.addSpacing(8)
        row.addWidget(self.clock)
        row.addStretch(1)
        row.addWidget(self.mark)
        row.addWidget(self.presenter_button)
        row.addWidget(self.theme_button)
        row.addWidget(self.menu_button)

    def asked_to_run(self) -> None:
        """Between the wish and the first request: the engine waits until it is quiet and seeds its caches."""
        self._asked = True
        self.refresh(0.0)

    def took_notice(self) -> None:
        """The engine refused, or said something: the wish is not pending any more."""
        self._asked = False

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        width = self.width()
        _, *widths = next(row for row in WIDTHS if width >= row[0])
        for combo, wide in zip((self.model, self.policy, self.preset), widths, strict=True):
            combo.setFixedWidth(wide)
        # A fixed width, so that nothing moves while the figures grow.
        self._short = width < SHORT_BELOW
        words = "" if self._short else "Compare A/B"
        if self.compare_button.text() != words:
            self.compare_button.setText(words)
            self.compare_button.setFixedWidth(32 if self._short else self.compare_button.sizeHint().width())
        self.clock.setFont(font("label" if self._short else "body"))
        self.clock.setFixedWidth(self.clock.fontMetrics().horizontalAdvance(CLOCK_WIDEST[self._short]))
        self._show_mark()

    def _show_mark(self) -> None:
        model = self._board.model
        self.mark.setVisible(model is not None and model.emulated)
        if model is not None and model.emulated:
            self.mark.set_detail(model.emulation, short=self.width() < MARK_FROM)

    def refresh(self, now_s: float) -> None:
        board, run = self._board, self._board.run
        ready = board.model is not None and (board.ready or board.failure is not None)
        self.model.set_shown(board.model.name if board.model is not None else "")
        self.model.set_note("" if ready else "n/a" if board.failure is not None else "Getting ready…")
        self._show_mark()
        going = run is not None and run.done is None
        if going:
            self._asked = False
        busy = going or any(r.state is not RequestState.FINISHED for r in board.requests.values())
        usable = board.ready and board.failure is None
        idle = usable and not going and not self._asked and not self.comparing
        self.run_button.setEnabled(idle and self.preset.count() > 0)
        self.compare_button.setEnabled(idle and self.preset.count() > 0)
        measuring = any(v.state is BackendState.CALIBRATING for v in board.backends.values())
        self.stop_button.setEnabled(usable and (busy or measuring or self._asked or bool(self.comparing)))
        text = "starting…" if self._asked else "" if run is None else self._clock_text(run, now_s)
        if self.comparing:
            text = self.comparing + (f", {text.partition(',')[0]}" if going and not self._short else "")
        if self.looking_at:
            ink = self._themes.current.warning.name()
            text = f'<span style="color:{ink}">{"" if self._short else "Showing "}{self.looking_at}</span>'
        if text != self.clock.text():
            self.clock.setText(text)

    def clock_words(self, now_s: float) -> str:
        """The burst's clock as plain words, for presenter mode, and how far a comparison is."""
        run = self._board.run
        clock = ""
        if run is not None:
            spent_s, finished = self._progress(run, now_s)
            clock = f"{spent_s:.2f} s, {finished} of {run.started.count} finished"
        return ", ".join(filter(None, (clock, f"comparing, {self.comparing}" if self.comparing else "")))

    def _progress(self, run: RunView, now_s: float) -> tuple[float, int]:
        rows = self._board.run_rows()
        finished = sum(1 for row in rows if row.state is RequestState.FINISHED)
        end_s = now_s
        if run.done is not None:
            end_s = max((r.finished_s or 0.0 for r in rows), default=run.started.start_s)
        return max(0.0, end_s - run.started.start_s), finished

    def _clock_text(self, run: RunView, now_s: float) -> str:
        spent_s, finished = self._progress(run, now_s)
        colour = self._themes.current.text.name()
        stopped = "stopped, " if run.done is not None and run.done.aborted and not self._short else ""
        return (
            f'<span style="font-weight:600;color:{colour}">{spent_s:.2f} s</span>, '
            f"{stopped}{finished} of {run.started.count}{'' if self._short else ' finished'}"
        )

    def _theme_changed(self) -> None:
        dark = self._themes.current.name == "dark"
        self.theme_button.set_icon("sun" if dark else "moon")
        self._logo.setPixmap(pixmap("logo", self._themes.current.text, 24, self.devicePixelRatioF()))
        self.update()

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(0, self.height() - 1, self.width(), 1, self._themes.current.line)
