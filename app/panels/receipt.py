"""The receipt: a sheet over the right of the window that explains one decision term by term."""

import json
from pathlib import Path

from PySide6.QtCore import QRect, Qt, Signal
from PySide6.QtGui import QGuiApplication, QKeySequence, QShortcut
from PySide6.QtWidgets import QFileDialog, QFrame, QHBoxLayout, QLabel, QScrollArea, QVBoxLayout, QWidget

from app.hindsight import Hindsight
from app.panels.receipt_bars import EDGE, Facts
from app.panels.receipt_body import ReceiptBody
from app.series.board import Board, RequestRow
from app.series.decision import decide
from app.series.hindsight import TYPED, what_if_lines, what_if_markdown
from app.series.terms import as_json, as_markdown
from app.series.words import figure, seconds
from app.theme import ThemeHolder, font
from app.widgets.controls import Button, EmulatedMark
from app.widgets.key_hints import KeyHints
from app.widgets.labels import make_separator
from app.widgets.panel import ElidedLabel
from engine.request import RequestState

WIDTH = 760
HEADER, FOOTER = 64, 64
WHAT_IF_KEYS = "Ctrl+J"
HINTS = ((("←", "→"), "other requests"), (("Esc",), "close"))


class ReceiptSheet(QFrame):
    """Not modal: the burst goes on beside it. Arrow keys step through the requests, Esc closes."""

    topics = frozenset({"requests", "routing", "backends", "run"})
    closed = Signal()
    request_shown = Signal(int)  # request id, so that the table can mark its row
    failed = Signal(str)  # a sentence for the user

    def __init__(self, board: Board, themes: ThemeHolder, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("sheet")
        self.board, self.themes = board, themes
        self.request_id: int | None = None
        self._now_s, self._seen = 0.0, None
        self._hindsight: Hindsight | None = None
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName("Receipt")
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addWidget(self._header())
        column.addWidget(make_separator())
        self.body = ReceiptBody(themes)
        self.scroll = QScrollArea(self)
        self.scroll.setWidgetResizable(True)
        self.scroll.setFrameShape(QFrame.Shape.NoFrame)
        self.scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.scroll.setWidget(self.body)
        column.addWidget(self.scroll, 1)
        column.addWidget(make_separator())
        column.addWidget(self._footer())
        keys = (
            (Qt.Key.Key_Escape, self.close_sheet),
            (Qt.Key.Key_Left, self.previous),
            (Qt.Key.Key_Right, self.next),
            (WHAT_IF_KEYS, self.ask_what_if),
        )
        for key, action in keys:
            shortcut = QShortcut(QKeySequence(key), self)
            shortcut.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
            shortcut.activated.connect(action)
        themes.changed.connect(self.body.update)
        self.hide()

    def _header(self) -> QWidget:
        bar = QWidget(self)
        bar.setFixedHeight(HEADER)
        row = QHBoxLayout(bar)
        row.setContentsMargins(EDGE, 0, 16, 0)
        row.setSpacing(8)
        title = QLabel("Receipt", bar)
        title.setFont(font("body", bold=True))
        self.phrase = ElidedLabel("", bar)
        self.phrase.setFont(font("label"))
        self.phrase.setProperty("tone", "muted")
        self.emulated = EmulatedMark(self.themes, bar)
        self.back = Button(self.themes, "‹", kind="ghost", name="Previous request", tip="Previous request  ←")
        self.forth = Button(self.themes, "›", kind="ghost", name="Next request", tip="Next request  →")
        self.place_label = QLabel(bar)
        self.place_label.setFont(font("label"))
        self.place_label.setProperty("tone", "muted")
        self.place_label.setAlignment(Qt.AlignmentFlag.AlignCenter)
        close = Button(
            self.themes, kind="ghost", icon_name="close", name="Close the receipt", tip="Close  Esc"
        )
        for button in (self.back, self.forth):
            button.setFixedWidth(32)
            button.setFont(font("lead"))
        row.addWidget(title)
        row.addSpacing(8)
        row.addWidget(self.phrase, 1)
        for widget in (self.emulated, self.back, self.place_label, self.forth, close):
            row.addWidget(widget)
        self.back.clicked.connect(self.previous)
        self.forth.clicked.connect(self.next)
        close.clicked.connect(self.close_sheet)
        return bar

    def _footer(self) -> QWidget:
        bar = QWidget(self)
        bar.setFixedHeight(FOOTER)
        row = QHBoxLayout(bar)
        row.setContentsMargins(EDGE, 0, EDGE, 0)
        row.setSpacing(8)
        self.copy_button = Button(self.themes, "Copy Markdown", icon_name="copy")
        self.export_button = Button(self.themes, "Export JSON", icon_name="download")
        self.what_if_button = Button(
            self.themes, "What if", icon_name="compare", name="What if it had gone elsewhere",
            tip="Simulate the burst under every policy, and this request elsewhere (Ctrl+J)",
        )  # fmt: skip
        self.what_if_button.hide()
        for button in (self.what_if_button, self.copy_button, self.export_button):
            row.addWidget(button)
        row.addStretch(1)
        row.addWidget(KeyHints(self.themes, HINTS, bar))
        self.what_if_button.clicked.connect(self.ask_what_if)
        self.copy_button.clicked.connect(self.copy_markdown)
        self.export_button.clicked.connect(self._ask_path)
        return bar

    # What is shown

    def place(self, area: QRect) -> None:
        """Lie at the right of `area`, 760 px wide or less where the window is narrower."""
        wide = min(WIDTH, area.width())
        self.setGeometry(area.right() + 1 - wide, area.top(), wide, area.height())

    def show_request(self, request_id: int) -> None:
        row = self.board.requests.get(request_id)
        if row is None or row.receipt is None:
            return
        self.request_id, self._seen = request_id, None
        self.scroll.verticalScrollBar().setValue(0)
        self.show()
        self.raise_()
        self.setFocus()
        self.refresh(set(self.topics), max(self._now_s, row.arrival_s))
        self.request_shown.emit(request_id)

    def refresh(self, topics: set[str], now_s: float) -> None:
        """Follow the request while it runs; once it has finished nothing is painted again."""
        self._now_s = now_s
        row = self.current()
        if not self.isVisible() or row is None:
            return
        company = self._company()
        running = row.state is not RequestState.FINISHED
        found = self._hindsight.what_if(row.run_id) if self._hindsight is not None else None
        seen = (row.request_id, row.state, row.receipt, len(company), now_s if running else 0.0, found)
        if seen == self._seen:
            return
        self._seen = seen
        index = next((i for i, r in enumerate(company) if r.request_id == row.request_id), 0)
        self.place_label.setText(f"{figure(index + 1)} of {figure(len(company))}")
        self.back.setEnabled(index > 0)
        self.forth.setEnabled(index + 1 < len(company))
        self.phrase.set_full_text(self._phrase(row))
        model = self.board.model
        self.emulated.setVisible(self._emulation() != "")
        self.emulated.set_detail(model.emulation if model else "", short=True)
        labels, ranks = self.board.labels(), self.board.ranks()
        whole = found is not None and found.policies() and bool(found.elsewhere(row.number))
        self.what_if_button.setEnabled(self._replayable(row) and not whole and not (found and found.running))
        self.body.show_facts(Facts(row, company, labels, ranks, now_s, found, self._start_s(row)))
        if row.receipt is not None:
            self.body.setAccessibleName(decide(row.receipt, row.number, labels).headline)
            self.body.setAccessibleDescription(self._markdown(row))

    def current(self) -> RequestRow | None:
        row = None if self.request_id is None else self.board.requests.get(self.request_id)
        return row if row is not None and row.receipt is not None else None

    def _company(self) -> list[RequestRow]:
        """Requests of the same burst (or the other typed prompts): what the arrow keys step through."""
        row = self.current()
        return [
            r
            for r in self.board.requests.values()
            if row and r.run_id == row.run_id and r.receipt is not None
        ]

    def _phrase(self, row: RequestRow) -> str:
        receipt, run = row.receipt, self.board.run
        if receipt is None:
            return ""
        if run is None or run.started.run_id != row.run_id:
            text = f"routed by {receipt.policy}"
            done = None if row.finished_s is None else seconds(row.finished_s - row.arrival_s)
            return text + (f", finished after {done}" if done else "")
        start = run.started.start_s
        text = f"routed at {seconds(receipt.time_s - start)} by {receipt.policy}"
        return text + ("" if row.finished_s is None else f", finished at {seconds(row.finished_s - start)}")

    def _emulation(self) -> str:
        model = self.board.model
        if model is not None and model.emulated:
            return model.emulation or "emulated"
        return "emulated" if any(v.info.emulated for v in self.board.backends.values()) else ""

    # What if

    def use_hindsight(self, hindsight: Hindsight) -> None:
        """Who simulates what the button asks for."""
        self._hindsight = hindsight
        self.what_if_button.show()
        hindsight.what_if_changed.connect(self._what_if_changed)

    def _what_if_changed(self, _run_id: str) -> None:
        self.refresh(set(self.topics), self._now_s)

    def ask_what_if(self) -> None:
        row = self.current()
        if row is None or self._hindsight is None or not self.what_if_button.isEnabled():
            return
        self._hindsight.ask(row, self.board)
        bar = self.scroll.verticalScrollBar()
        bar.setValue(bar.maximum())

    def _replayable(self, row: RequestRow) -> bool:
        run = self.board.run
        good = run is not None and row.run_id is not None and run.started.run_id == row.run_id
        self.what_if_button.setToolTip(
            "Simulate the burst under every policy, and this request elsewhere (Ctrl+J)" if good else TYPED
        )
        return good

    def _start_s(self, row: RequestRow) -> float:
        run = self.board.run
        return run.started.start_s if run is not None and run.started.run_id == row.run_id else row.arrival_s

    def _markdown(self, row: RequestRow) -> str:
        labels = self.board.labels()
        text = as_markdown(row, labels, self._emulation())
        if self._hindsight is None or row.run_id is None:
            return text
        found = self._hindsight.what_if(row.run_id)
        lines = what_if_lines(row, self._company(), found, labels, self._start_s(row))
        more = what_if_markdown(lines, labels)
        return f"{text}\n{more}" if more else text

    # Actions

    def previous(self) -> None:
        self._step(-1)

    def next(self) -> None:
        self._step(1)

    def _step(self, by: int) -> None:
        ids = [int(r.request_id) for r in self._company()]
        if self.request_id in ids:
            index = ids.index(self.request_id) + by
            if 0 <= index < len(ids):
                self.show_request(ids[index])

    def close_sheet(self) -> None:
        self.hide()
        self.request_id = None
        self.closed.emit()

    def copy_markdown(self) -> None:
        row = self.current()
        if row is not None:
            QGuiApplication.clipboard().setText(self._markdown(row))

    def _ask_path(self) -> None:
        row = self.current()
        if row is None:
            return
        dialog = QFileDialog(
            self, "Export the receipt", f"offramp-receipt-{row.number}.json", "JSON (*.json)"
        )
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setDefaultSuffix("json")
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(self.save_json)
        dialog.open()

    def save_json(self, path: str) -> None:
        row = self.current()
        if row is None:
            return
        data = as_json(row, self._now_s) | {"emulation": self._emulation() or None}
        try:
            Path(path).write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            self.failed.emit(f"The receipt was not saved: {error.strerror}. Choose another folder.")
