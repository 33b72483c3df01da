"""Lend the machine to an experiment that measures: the window's model goes, and comes back afterwards."""

import argparse
from collections.abc import Callable

from PySide6.QtCore import QObject

from app.bridge import Bridge
from app.session import Session
from engine.cli import add_engine_options

LENT = "An experiment measures this machine. The model comes back when it has ended."
BUSY = "Replies are still being written: measuring starts from an idle machine. Stop them or wait."


def engine_options(args: argparse.Namespace) -> list[str]:
    """The command line of real backends like the window's: what differs from the defaults."""
    parser = argparse.ArgumentParser(add_help=False)
    add_engine_options(parser)
    words: list[str] = []
    for key, usual in vars(parser.parse_args([])).items():
        value = getattr(args, key, usual)
        if key == "emulate" or value == usual or (key == "backends" and "emulated" in str(value)):
            continue  # measured is measured
        words += [f"--{key.replace('_', '-')}", str(value)]
    return words


class Loan(QObject):
    """Between `begin` and `end` the window has no engine, unless the user loads one: then `broken` is called.

    Two engines at once would need the memory of both, and each would disturb what the other measures.
    """

    def __init__(self, session: Session, bridge: Bridge, broken: Callable[[], object]) -> None:
        super().__init__(session)
        self._session, self._bridge, self._broken = session, bridge, broken
        self._then: Callable[[], object] | None = None
        self.lent, self._was_empty = False, False
        bridge.emptied.connect(self._free)
        bridge.started.connect(self._taken)

    def options(self) -> list[str]:
        return ["--real", *engine_options(self._session.args)]

    def refusal(self) -> str:
        """Why it cannot be lent now; "" if it can."""
        return BUSY if self._bridge.board.busy() else ""

    def begin(self, then: Callable[[], object]) -> None:
        """`then` is called once the old engine has ended and its memory is free."""
        self.lent, self._then, self._was_empty = True, then, self._session.unloaded
        self._session.unload(LENT)

    def end(self) -> None:
        """The model comes back as it was; nothing where the user has loaded one already."""
        if not self.lent:
            return
        self.lent, self._then = False, None
        if self._was_empty:
            self._session.unload()
        else:
            self._session.start()

    def _free(self) -> None:
        then, self._then = self._then, None
        if self.lent and then is not None:
            then()

    def _taken(self) -> None:
        if self.lent:
            self.lent, self._then = False, None
            self._broken()
