"""Backends that end and begin again: what ran there, what waited there, what the user is told."""

from typing import TYPE_CHECKING

from engine.events import BackendState, Notice
from engine.request import BackendName, FinishReason, RequestState
from engine.stalls import numbers_words

if TYPE_CHECKING:
    from engine.core import Core


def backend_died(core: "Core", name: BackendName) -> None:
    """Started requests end with `error`, waiting ones move to whoever is alive."""
    unit = core.supervisor.units[name]
    why = unit.message
    core.router.remove(name)
    core.stalls.gone(name)
    now = core.clock.now_s()
    ended, moved = [], []
    core.calibrator.drop(name)
    for entry in list(core.ledger.entries.values()):
        if entry.backend != name or entry.state is RequestState.FINISHED:
            continue
        if not entry.number or entry.started or not core.router.alive():
            core.end(entry, FinishReason.ERROR, f"The {unit.info.label} backend stopped: {why}")
            ended.append(entry.number)
        else:
            core.route(entry, now, moved_from=name)
            moved.append(entry.number)
    if not core.router.alive() and not core.loading:
        core.typed.drop_all(FinishReason.ERROR, f"No backend could start: {why}")
    words = [why]
    if any(ended):
        words.append(f"{numbers_words([n for n in ended if n])} ended with error.")
    if moved:
        words.append(f"{numbers_words(moved)} moved.")
    if core.router.alive():
        words.append("The other backend and this window carry on.")
    core.supervisor.set_state(name, BackendState.STOPPED, " ".join(words))
    core.publish(Notice("error", f"The {unit.info.label} backend stopped. {' '.join(words)}"))


def restart_backend(core: "Core", name: BackendName) -> None:
    """Start a stopped (or stalled) backend anew, empty."""
    unit = core.supervisor.units[name]
    if unit.state is BackendState.STALLED and unit.transport is not None:
        unit.transport.close(0.0)
        unit.transport, unit.message = None, "It was restarted."
        backend_died(core, name)
    if unit.state is BackendState.STOPPED:
        core.supervisor.start(name)
