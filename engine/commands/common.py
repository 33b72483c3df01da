"""What the commands share: an engine that is closed in the end, progress on stderr, tables."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.table import Table

from engine.config import EngineConfig
from engine.engine import Engine
from engine.events import BackendState, BackendStatus, Event, Notice, SetupStep, Subscription

STDERR = Console(stderr=True, highlight=False)


class Progress:
    """Set-up steps as lines on stderr, one each; a bar while something has a known length."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()
        self._terminal = sys.stderr.isatty()

    def show(self, event: Event) -> None:
        if isinstance(event, SetupStep):
            if self._terminal and event.total and event.state == "running":
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


@contextmanager
def running_engine(config: EngineConfig) -> Iterator[tuple[Engine, Subscription]]:
    """A started engine and a subscription; closed whatever happens."""
    engine = Engine(config)
    subscription = engine.subscribe(1_000_000)
    engine.start()
    try:
        yield engine, subscription
    finally:
        engine.close()


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], note: str = "") -> None:
    """A table on stdout; columns of numbers are right-aligned. A file or a pipe gets every column whole."""
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for i, column in enumerate(columns):
        numbers = all(isinstance(row[i], int | float | None) for row in rows)
        table.add_column(column, justify="right" if numbers else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(cell_text(c) for c in row))
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 400)
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
