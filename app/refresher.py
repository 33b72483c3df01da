"""When a panel repaints: four to ten times a second, only while visible, only with something new."""

import time
from collections.abc import Callable, Iterable

from PySide6.QtWidgets import QWidget

from app.series.board import Board
from engine.request import RequestState

EVERYTHING = {"setup", "model", "backends", "requests", "routing", "text", "run", "notices"}
TURNS = 3  # in which all panels are shown once
SHORTEST_MS, LONGEST_MS = 102, 252  # of a round in which every panel may repaint once
SHARE = 0.2  # of a core: what repainting may take, as long as a round stays within its bounds
SMOOTHING = 0.3
SETTLES_S = 3.0  # after its last step a backend's rate still has to fall to zero on the screen


class Cadence:
    """How long a round takes. Where drawing is costly it is longer: the cores are there for the backends.

    `spent_s` is the processor time of the thread that draws, so that a machine that is busy with other
    things is not taken for a slow one.
    """

    def __init__(self, spent_s: Callable[[], float] = time.thread_time) -> None:
        self._spent_s = spent_s
        self._last_s, self._cost_ms = spent_s(), 0.0

    def turn_ms(self) -> int:
        """Ask when a round begins: the time between its turns."""
        now_s = self._spent_s()
        self._cost_ms += SMOOTHING * ((now_s - self._last_s) * 1000 - self._cost_ms)
        self._last_s = now_s
        return round(min(LONGEST_MS, max(SHORTEST_MS, self._cost_ms / SHARE)) / TURNS)


class Refresher:
    """Keeps for each panel the topics that changed since it was last shown."""

    def __init__(self, board: Board, panels: Iterable[QWidget]) -> None:
        self._board = board
        self._pending: dict[QWidget, set[str]] = {}
        for panel in panels:
            self.add(panel)

    def add(self, panel: QWidget) -> None:
        self._pending[panel] = set(EVERYTHING)

    def changed(self, topics: set[str]) -> None:
        for pending in self._pending.values():
            pending |= topics

    def refresh(self, now_s: float, turn: int | None = None) -> None:
        """Let every visible panel with pending topics show the board; hidden ones keep theirs.

        With `turn` only every third panel: so that no turn of the event loop paints everything.
        """
        if turn in (None, 0) and self._counting(now_s):
            self.changed({"clock"})
        for index, (panel, pending) in enumerate(self._pending.items()):
            if turn is not None and index % TURNS != turn:
                continue
            wanted = pending & panel.topics if panel.topics else set(pending)
            if wanted and panel.isVisible():
                pending.clear()
                panel.refresh(wanted, now_s)

    def _counting(self, now_s: float) -> bool:
        """A number on the screen grows by itself: something waits or runs, or has only just ended."""
        board = self._board
        if any(row.state is not RequestState.FINISHED for row in board.requests.values()):
            return True
        return any(
            view.steps and now_s - view.steps[-1].finished_s < SETTLES_S for view in board.backends.values()
        )
