"""What the supervisor tells when a backend's count of threads changes."""

from multiprocessing import Pipe
from typing import Any

from engine.clock import VirtualClock
from engine.config import BackendSpec
from engine.events import BackendInfo, BackendState, BackendStatus, Event, Notice
from engine.request import BackendName
from engine.step_report import StepReport
from engine.supervisor import Supervisor, Unit
from engine.transport import Plan

CPU = BackendName("cpu")


class Wire:
    """A transport that only carries."""

    sentinel: int | None = None
    pid: int | None = None
    ending = ""

    def __init__(self) -> None:
        self.pipe, self.theirs = Pipe()


def report(number: int, threads: int) -> StepReport:
    return StepReport(CPU, number, 0.0, 0.1, 1, 20, 0, threads=threads)


def test_fewer_threads_are_a_warning_and_more_are_not() -> None:
    told: list[Event] = []
    info = BackendInfo(CPU, "CPU", "cpu", 0, "cpu", "Xeon", False, 4, 64, 1, threads=4, format="bf16")
    unit = Unit(Plan(BackendSpec(CPU, "cpu", "cpu", 4), "salt", 64, ()), info, state=BackendState.READY)
    wire: Any = Wire()
    unit.transport = wire
    supervisor = Supervisor([unit], VirtualClock(), told.append)
    wake, _end = Pipe()
    for number, (threads, warned) in enumerate([(4, None), (3, "with 3 of its"), (4, ""), (0, None)]):
        told.clear()
        wire.theirs.send(report(number, threads))
        supervisor.poll(wake, 1.0)
        words = [event.message for event in told if isinstance(event, Notice)]
        seen = [event.info.threads for event in told if isinstance(event, BackendStatus)]
        assert seen == ([] if warned is None else [threads])
        assert len(words) == bool(warned) and all(str(warned) in text for text in words)
