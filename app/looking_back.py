"""What the window tells of bursts that are over: what-ifs and regret."""

from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from app.hindsight import Hindsight
from app.panels.result_page import Shown
from app.series.outcome import RunSummary

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
        window.bridge.changed.connect(self._board_changed)

    def shown(self, now: RunSummary, before: RunSummary | None) -> Shown:
        """A result for the card, with its regret as far as it is known."""
        self.hindsight.judge(now.result)
        board = self._board
        return Shown(now, before, board.labels(), board.ranks(), self.hindsight.regret(now.run_id))

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
