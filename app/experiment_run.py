"""An experiment for the window: `offramp map` or `offramp sweep` in a child process of low priority."""

import json
import logging
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, QProcess, QProcessEnvironment, QTimer, Signal

log = logging.getLogger(__name__)
KILL_MS, PATIENCE_MS, NICENESS = 500, 5_000, 10


@dataclass(frozen=True, slots=True)
class Progress:
    what: str
    done: int
    total: int
    left_s: float | None

    def words(self) -> str:
        """ "simulated runs: 12 of 270, about 40 s left"."""
        words = f"{self.what}: {self.done:,} of {self.total:,}"
        if self.left_s is None or self.done >= self.total:
            return words
        left = f"{self.left_s:.0f} s" if self.left_s < 90 else f"{self.left_s / 60:.0f} min"
        return f"{words}, about {left} left"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished report: paths of the page and of every chart (SVG), and its words."""

    headline: str
    mark: str
    report: Path
    charts: tuple[Path, ...]


def command_of(arguments: list[str]) -> list[str]:
    return [sys.executable, "-W", "ignore", "-m", "app", *arguments, "--progress", "json"]


class ExperimentRun(QObject):
    """At most one at a time. `ended` carries what went wrong, "" if nothing did, and comes last."""

    progress = Signal(object)  # Progress
    reported = Signal(object)  # Outcome; also of what was complete when it was stopped
    ended = Signal(str)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._process: QProcess | None = None
        self._rest, self._stopping, self.held = b"", False, False
        self._patience = QTimer(self)
        self._patience.setSingleShot(True)
        self._patience.setInterval(PATIENCE_MS)
        self._patience.timeout.connect(self._kill)

    @property
    def running(self) -> bool:
        return self._process is not None

    def start(self, command: list[str], niceness: int = NICENESS) -> None:
        """`niceness` 0 for one that measures: it is what this machine is for then."""
        if self._process is not None:
            return
        self._rest, self._stopping = b"", False
        process = self._process = QProcess(self)
        environment = QProcessEnvironment.systemEnvironment()
        root = str(Path(__file__).resolve().parents[1])
        environment.insert(
            "PYTHONPATH", os.pathsep.join([root, *filter(None, [environment.value("PYTHONPATH")])])
        )
        environment.insert("QT_QPA_PLATFORM", "offscreen")  # it paints pictures, but opens nothing
        process.setProcessEnvironment(environment)
        if sys.platform != "win32":
            # A shell starts what runs in the background deaf to Ctrl+C, and children inherit that.
            process.setUnixProcessParameters(QProcess.UnixProcessFlag.ResetSignalHandlers)
        process.started.connect(lambda: self._began(niceness))
        process.readyReadStandardOutput.connect(self._read)
        process.finished.connect(self._finished)
        process.errorOccurred.connect(self._broke)
        process.start(command[0], command[1:])

    def hold(self, held: bool) -> None:
        """Stand still while somebody else measures, and go on afterwards. Nothing on Windows."""
        self.held = held
        if self._process is not None and sys.platform != "win32":
            self._signal(signal.SIGSTOP if held else signal.SIGCONT)

    def _signal(self, number: int) -> None:
        pid = self._process.processId() if self._process is not None else 0
        if pid:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                log.info("the experiment has ended already")

    def stop(self) -> None:
        """Ask it to end as Ctrl+C does: what is done is kept. Ended by force if it does not listen."""
        if self._process is None or self._stopping:
            return
        self._stopping = True
        if sys.platform != "win32" and self._process.processId():
            self._signal(signal.SIGINT)
            self._signal(signal.SIGCONT)  # one that stands still would not hear it
            self._patience.start()
        else:
            self._kill()

    def close(self) -> None:
        """End it now; no signal comes any more."""
        process, self._process = self._process, None
        self._patience.stop()
        if process is not None and process.state() is not QProcess.ProcessState.NotRunning:
            process.kill()
            process.waitForFinished(KILL_MS)

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()

    def _began(self, niceness: int) -> None:
        """The window and its backends go first."""
        if self._process is not None and hasattr(os, "setpriority"):
            try:
                pid, own = self._process.processId(), os.getpriority(os.PRIO_PROCESS, 0)
                os.setpriority(os.PRIO_PROCESS, pid, min(19, own + niceness))
            except OSError as error:  # it has ended already
                log.info("no lower priority: %s", error)
        if self.held:
            self.hold(True)

    def _read(self) -> None:
        if self._process is None:
            return
        self._rest += bytes(self._process.readAllStandardOutput().data())
        *whole, self._rest = self._rest.split(b"\n")
        for text in whole:
            try:
                data = json.loads(text)
            except ValueError:
                continue  # a library's greeting
            if isinstance(data, dict):
                self._take(data)

    def _take(self, data: dict[str, Any]) -> None:
        if data.get("type") == "progress":
            self.progress.emit(Progress(data["what"], data["done"], data["total"], data["left_s"]))
        elif data.get("type") == "report":
            charts = tuple(Path(chart) for chart in data["charts"])
            self.reported.emit(Outcome(data["headline"], data["mark"], Path(data["report"]), charts))

    def _finished(self, code: int, _status: object) -> None:
        process = self._process
        if process is None:
            return
        self._read()
        said = bytes(process.readAllStandardError().data()).decode(errors="replace").strip()
        problem = ""
        if self._stopping:
            problem = "Stopped. What is done is kept: start it again to go on."
        elif code:
            last = said.splitlines()[-1] if said else ""
            if last.startswith("offramp: "):  # a sentence meant for people
                problem = last.removeprefix("offramp: ")
            else:
                log.warning("the experiment ended with code %d: %s", code, said[-2000:])
                problem = f"The experiment ended with code {code}: see the log."
        self._end(problem)

    def _broke(self, error: object) -> None:
        if error is QProcess.ProcessError.FailedToStart:
            self._end("The experiment could not be started: see the log.")

    def _end(self, problem: str) -> None:
        process, self._process = self._process, None
        self._patience.stop()
        if process is not None:
            process.deleteLater()
            self.ended.emit(problem)
