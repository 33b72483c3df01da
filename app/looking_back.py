"""What the window tells of bursts that are over: what-ifs, regret, and the runs of earlier sessions."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QWidget

from app.hindsight import Hindsight
from app.history_dialog import History, show_history
from app.panels.receipt import ReceiptSheet
from app.panels.requests import RequestsPanel
from app.panels.result_page import Shown
from app.series.board import Board
from app.series.history import board_of, open_run
from app.series.outcome import RunSummary
from app.widgets.panel import PADDING
from engine.errors import EngineError

if TYPE_CHECKING:
    from app.main_window import MainWindow


class LookingBack(QObject):
    """Lives as long as the window; `close` ends what still computes."""

    def __init__(self, window: "MainWindow") -> None:
        super().__init__(window)
        self._window, self._board = window, window.board
        self.hindsight = Hindsight(window.board, parent=self)
        self.hindsight.regret_changed.connect(self._regret_changed)
        window.sheet.use_hindsight(self.hindsight)
        window.card.requests_of = self._requests_of
        window.card.history_requested.connect(self.show_history)
        window.bridge.changed.connect(self._board_changed)

    def shown(self, now: RunSummary, before: RunSummary | None = None) -> Shown:
        """A result for the card, with its regret as far as it is known."""
        self.hindsight.judge(now.result)
        board = self._board
        if not set(now.counts) <= set(board.backends):  # of another session, on other backends
            board = board_of(now)
        return Shown(now, before, board.labels(), board.ranks(), self.hindsight.regret(now.run_id))

    def show_history(self) -> History:
        """The list of all runs; the one that is opened shows its card."""
        history = show_history(self._window, self._window.themes)
        history.opened.connect(self.show_past)
        return history

    def show_past(self, path: Path) -> None:
        """The card of a run file, to be read only."""
        window = self._window
        try:
            run = open_run(path)
        except EngineError as error:
            window.wishes.fail(str(error))
            return
        window.card.repeat_button.hide()  # what runs now may be another model
        window.card.show_result(self.shown(run))

    def _requests_of(self, shown: object, parent: QWidget) -> QWidget:
        """The table of the run on the card, as it was recorded."""
        assert isinstance(shown, Shown)
        board = board_of(shown.now)
        panel = RequestsPanel(board, self._window.themes, parent)
        panel.setObjectName("plain")  # the card has a frame already
        panel.setContentsMargins(PADDING, 0, PADDING, 0)  # its edge is that of the card's title
        panel.failed.connect(self._window.wishes.fail)
        panel.receipt_requested.connect(lambda request_id: self._show_receipt(board, panel, request_id))
        ends = (r.finished_s for r in board.requests.values() if r.finished_s is not None)
        panel.refresh(set(panel.topics), max(ends, default=0.0))
        return panel

    def ask_why(self) -> None:
        """The receipt of the selected request on the card."""
        if isinstance(panel := self._window.card.requests, RequestsPanel):
            panel.ask_why()

    def _show_receipt(self, board: Board, panel: RequestsPanel, request_id: int) -> None:
        """Why a request of the run on the card went where it did, as it was recorded."""
        card, pages = self._window.card, self._window.pages
        sheet = ReceiptSheet(board, self._window.themes, pages)  # beside the card: Escape closes one alone
        sheet.use_hindsight(self.hindsight)
        sheet.failed.connect(self._window.wishes.fail)
        sheet.closed.connect(panel.table.setFocus)
        card.lay_over(sheet)
        sheet.show_request(request_id)

    def _board_changed(self, topics: set[str]) -> None:
        if "run" in topics:
            run = self._board.run
            comparing = self._window.wishes.comparer.running
            self.hindsight.set_quiet(not comparing and (run is None or run.done is not None))

    def _regret_changed(self, run_id: str) -> None:
        card = self._window.card
        if isinstance(card.shown, Shown) and card.shown.now.run_id == run_id:
            card.update_result(replace(card.shown, regret=self.hindsight.regret(run_id)))

    def close(self) -> None:
        self.hindsight.close()
