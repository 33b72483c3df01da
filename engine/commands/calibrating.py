"""Calibration seen from the command line: how far it is, a bar with the remaining time, when it is over."""

from collections.abc import Iterable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from engine.events import Event, SetupStep

OPEN = ("waiting", "running")


class CalibrationSteps:
    """The stages of a calibration by key, from the engine's events."""

    def __init__(self) -> None:
        self._steps: dict[str, SetupStep] = {}

    def see(self, event: Event) -> None:
        if isinstance(event, SetupStep) and event.key.startswith("calibrate:"):
            self._steps[event.key] = event

    @property
    def open(self) -> bool:
        """Is there something still to measure?"""
        return any(s.state in OPEN for s in self._steps.values())

    @property
    def failed(self) -> bool:
        """Could something not be measured?"""
        return any(s.state == "failed" for s in self._steps.values())

    @property
    def points(self) -> tuple[float, float]:
        """(measured, all), over every stage that is known; a stage that ended counts as measured."""
        whole = sum(s.total or 0.0 for s in self._steps.values())
        done = sum((s.done if s.state in OPEN else s.total) or 0.0 for s in self._steps.values())
        return done, whole

    @property
    def title(self) -> str:
        """What runs now, for people."""
        running = [s for s in self._steps.values() if s.state == "running"]
        return f"{running[-1].title}: {running[-1].detail}" if running else "Calibrate"


class CalibrationBar:
    """A bar on stderr while a calibration runs; nothing where stderr is no terminal."""

    def __init__(self, console: Console, steps: CalibrationSteps) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        self._steps = steps
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("Calibrate", total=None)

    def __enter__(self) -> "CalibrationBar":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def update(self, _: Iterable[Event] = ()) -> None:
        """Show what the steps say now."""
        done, whole = self._steps.points
        self._bar.update(self._task, description=self._steps.title, completed=done, total=whole or None)
