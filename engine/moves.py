"""Requests that wait on one backend and would be better off on another: asked back, then sent there."""

from typing import TYPE_CHECKING

from engine.backend import Withdraw
from engine.request import BackendName, RequestId, RequestState

if TYPE_CHECKING:
    from engine.core import Core


class Moves:
    """`targets` says for every request that was asked back where it is to go."""

    def __init__(self, core: "Core") -> None:
        self._core = core
        self.targets: dict[RequestId, BackendName] = {}

    def look(self) -> None:
        """Is the head of a queue better off elsewhere, now that something has ended? It may have begun."""
        if (move := self._core.router.worthwhile_move(self._core.clock.now_s())) is not None:
            request_id, source, target = move
            self.targets[request_id] = target
            self._core.supervisor.send(source, Withdraw(request_id))

    def given_up(self, request_id: RequestId, source: BackendName) -> None:
        """A backend gave up a request that waited. It may have been cancelled, or its target have died."""
        core, target = self._core, self.targets.pop(request_id, None)
        entry = core.ledger.entries.get(request_id)
        if entry is None or entry.state is RequestState.FINISHED or not entry.is_at(source):
            return  # a source that stalled meanwhile has given it up already
        now_s = core.clock.now_s()
        if target in core.router.alive():
            core.route(entry, now_s, moved_from=source, only=target)
        else:
            core.route(entry, now_s)  # as if it came now: it may well go back to where it was

    def forget(self, request_id: RequestId) -> None:
        """It has ended."""
        self.targets.pop(request_id, None)
