"""What the commands share: an engine that is closed in the end, progress on stderr, tables."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.table import Table

from engine.commands.calibrating import CalibrationBar, CalibrationSteps
from engine.config import EngineConfig
from engine.engine import Engine
from engine.events import BackendInfo, BackendState, BackendStatus, Event, Notice, SetupStep
from engine.hub import Subscription

STDERR = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


class Progress:
    """Set-up steps as lines on stderr, one each; a bar while something has a known length."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()
        self._terminal = sys.stderr.isatty()

    def show(self, event: Event) -> None:
        if isinstance(event, SetupStep) and event.state == "waiting":
            return
        if isinstance(event, SetupStep):
            calibrates = event.key.startswith("calibrate:")  # has a bar of its own
            if self._terminal and event.total and event.state == "running" and not calibrates:
                share = (event.done or 0) / event.total
                STDERR.print(f"{event.title} {share:4.0%}", end="\r")
            if (event.key, event.state) not in self._told and event.key != "probe":
                self._told.add((event.key, event.state))
                mark = {"done": "done", "failed": "failed"}.get(event.state, "...")
                STDERR.print(f"{event.title} {mark} {event.detail}".rstrip())
        elif isinstance(event, Notice) and event.level != "info":
            STDERR.print(event.message)
        elif isinstance(event, BackendStatus) and event.state is BackendState.STOPPED and event.message:
            STDERR.print(f"{event.info.label}: {event.message}")


class Watch:
    """Waits on a started engine, showing progress and keeping what is known of its backends."""

    def __init__(self, engine: Engine, events: Subscription) -> None:
        self.engine = engine
        self._events = events
        self._progress = Progress()
        self.statuses: dict[str, BackendStatus] = {}
        self._calibration = CalibrationSteps()

    def drain(self) -> list[Event]:
        """New events, already shown. Raises the error that ended the engine."""
        events = self._events.drain()
        for event in events:
            self._progress.show(event)
            if isinstance(event, BackendStatus):
                self.statuses[event.info.name] = event
            self._calibration.see(event)
        if not events and self.engine.failure is not None:
            raise self.engine.failure
        return events

    @property
    def running(self) -> list[BackendInfo]:
        """Backends that have not stopped, fastest first."""
        alive = (s.info for s in self.statuses.values() if s.state is not BackendState.STOPPED)
        return sorted(alive, key=lambda i: i.rank)

    def until(self, over: Callable[[list[Event]], bool], pause_s: float = 0.02) -> None:
        """Drain until `over`, which sees each batch of events once."""
        while not over(self.drain()):
            time.sleep(pause_s)

    def until_ready(self) -> None:
        self.until(lambda _: self.engine.ready.is_set())
        self.engine.wait_ready()

    def until_calibrated(self) -> None:
        """Until every running backend has rates, step times and interference, or can't have them."""

        with CalibrationBar(STDERR, self._calibration) as bar:

            def over(events: list[Event]) -> bool:
                bar.update(events)
                running = self.running
                alone = sum(not i.emulated for i in running) == 1
                known = all(i.priced and (i.paired or i.emulated or alone) for i in running)
                return not self._calibration.open and (known or self._calibration.failed)

            self.until(over)

    def recalibrate(self) -> None:
        """Have every running backend measured again, and wait until that is planned."""
        self.engine.recalibrate()
        self.until(lambda _: self._calibration.open)


@contextmanager
def running_engine(config: EngineConfig) -> Iterator[Watch]:
    """A started engine, watched; closed whatever happens."""
    engine = Engine(config)
    watch = Watch(engine, engine.subscribe(1_000_000))
    engine.start()
    try:
        yield watch
    finally:
        engine.close()


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], note: str = "") -> None:
    """A table on stdout; columns of numbers are right-aligned. A file or a pipe gets every column whole."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for i, column in enumerate(columns):
        numbers = all(isinstance(row[i], int | float | None) for row in rows)
        table.add_column(column, justify="right" if numbers else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(cell_text(c) for c in row))
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 400)
    if title:
        sys.stdout.write(f"{title}\n")
    with console.capture() as capture:
        console.print(table)
        if note:
            console.print(note)
    sys.stdout.write("\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n")


def cell_text(value: object) -> str:
    if value is None:
        return "n/a"
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < 100 else f"{value:,.1f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)
