"""What-ifs and regret for the window: a child process of low priority for each, which prints JSON lines.

Nothing of this runs beside a burst unless somebody asks for it: regret waits until the engine is quiet.
"""

import json
import logging
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, QProcess, QProcessEnvironment, Signal

from app.series.board import Board, RequestRow
from app.series.hindsight import TYPED, RegretState, WhatIf, regret_of, spec_of
from engine.errors import EngineError
from engine.recording import find_run

log = logging.getLogger(__name__)
MODULE = "engine.experiments.hindsight"
KEPT = 20  # bursts whose what-ifs are remembered
KILL_MS = 500
COMPUTING, WAITS = "computing…", "computed when the engine is quiet…"
STOPPED = "It was stopped before it had ended."


def child_command(spec: Mapping[str, Any]) -> list[str]:
    return [sys.executable, "-W", "ignore", "-m", MODULE, json.dumps(spec)]


class Child(QObject):
    """One run of the child. `line` carries each JSON object, `ended` a sentence, "" if all went well."""

    line = Signal(object)
    ended = Signal(str)

    def __init__(self, command: list[str], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._rest, self._told, self._over = b"", "", False
        self._process = QProcess(self)
        environment = QProcessEnvironment.systemEnvironment()
        root = str(Path(__file__).resolve().parents[1])
        paths = [root, *filter(None, [environment.value("PYTHONPATH")])]
        environment.insert("PYTHONPATH", ":".join(paths) if sys.platform != "win32" else ";".join(paths))
        self._process.setProcessEnvironment(environment)
        self._process.readyReadStandardOutput.connect(self._read)
        self._process.finished.connect(self._finished)
        self._process.errorOccurred.connect(self._broke)
        self._process.start(command[0], command[1:])

    def _read(self) -> None:
        self._rest += bytes(self._process.readAllStandardOutput().data())
        *whole, self._rest = self._rest.split(b"\n")
        for text in whole:
            if self._over:
                return
            try:
                data = json.loads(text)
            except ValueError:
                continue  # a library's greeting
            if isinstance(data, dict):
                self._told = str(data.get("error", "")) or self._told
                self.line.emit(data)

    def _finished(self, code: int, _status: object) -> None:
        if self._over:
            return
        self._read()
        problem = self._told
        if code and not problem:
            last = bytes(self._process.readAllStandardError().data()).decode(errors="replace").strip()
            log.warning("the simulation ended with code %d: %s", code, last[-2000:])
            problem = f"The simulation ended with code {code}: see the log."
        self._end(problem)

    def _broke(self, error: object) -> None:
        if error is QProcess.ProcessError.FailedToStart:
            self._end("The simulation could not be started: see the log.")

    def _end(self, problem: str) -> None:
        if not self._over:
            self._over = True
            self.ended.emit(problem)

    def stop(self) -> None:
        """End it now, without another signal."""
        self._over = True
        if self._process.state() is not QProcess.ProcessState.NotRunning:
            self._process.kill()
            self._process.waitForFinished(KILL_MS)


class Hindsight(QObject):
    """`what_if_changed` and `regret_changed` carry a run's id. Results are kept per run."""

    what_if_changed = Signal(str)
    regret_changed = Signal(str)

    def __init__(
        self,
        board: Board,
        command: Callable[[Mapping[str, Any]], list[str]] = child_command,
        find: Callable[[str], Path] = find_run,
        parent: QObject | None = None,
    ) -> None:
        super().__init__(parent)
        self._board, self._command, self._find = board, command, find
        self._what_ifs: OrderedDict[str, WhatIf] = OrderedDict()
        self._regrets: OrderedDict[str, RegretState] = OrderedDict()
        self._queue: OrderedDict[str, str] = OrderedDict()  # run id -> run file, for regret
        self._asking: tuple[Child, str] | None = None  # the what-if that runs, and its run
        self._judging: tuple[Child, str, str] | None = None  # the regret that runs: id and file
        self._quiet = True

    # what if

    def what_if(self, run_id: str | None) -> WhatIf:
        return self._what_ifs.get(run_id or "", WhatIf())

    def ask(self, row: RequestRow, board: Board | None = None) -> None:
        """Simulate the burst of `row` elsewhere. One at a time: a new question ends the one before.

        `board` holds the row where that is a run of the past.
        """
        board = board or self._board
        run = board.run
        if row.run_id is None or run is None or run.started.run_id != row.run_id:
            self._tell(row.run_id or "", WhatIf(problem=TYPED))
            return
        self._end_asking()
        known = self.what_if(row.run_id)
        if known.policies() and known.elsewhere(row.number):
            return
        try:
            spec = spec_of(board, row, str(self._find(row.run_id[:8])), known)
        except EngineError as error:
            self._tell(row.run_id, WhatIf(known.cases, problem=str(error)))
            return
        run_id = row.run_id
        child = Child(self._command(spec), self)
        self._asking = (child, run_id)
        self._tell(run_id, WhatIf(known.cases, running=True))
        child.line.connect(lambda line: self._tell(run_id, self.what_if(run_id).with_line(line)))
        child.ended.connect(lambda problem: self._asked(run_id, problem))

    def _asked(self, run_id: str, problem: str) -> None:
        if self._asking is not None:
            self._asking[0].deleteLater()
            self._asking = None
        found = self.what_if(run_id)
        self._tell(run_id, WhatIf(found.cases, problem=problem or found.problem))

    def _end_asking(self) -> None:
        if self._asking is not None:
            child, run_id = self._asking
            self._asking = None
            child.stop()
            child.deleteLater()
            self._tell(run_id, WhatIf(self.what_if(run_id).cases, problem=STOPPED))

    def _tell(self, run_id: str, found: WhatIf) -> None:
        self._what_ifs[run_id] = found
        while len(self._what_ifs) > KEPT:
            self._what_ifs.popitem(last=False)
        self.what_if_changed.emit(run_id)

    # regret

    def regret(self, run_id: str) -> RegretState | None:
        return self._regrets.get(run_id)

    def judge(self, result: Mapping[str, Any], run_file: str | None = None) -> None:
        """Compute the regret of a finished burst as soon as the engine is quiet. Known ones stay."""
        run_id = str(result.get("run_id") or "")
        known = self._regrets.get(run_id)
        if not run_id or run_id in self._queue or (known is not None and (known.regret or known.failed)):
            return
        file = run_file or result.get("run_file")
        if result.get("mixed"):
            self._know(run_id, RegretState("Typed prompts or changed settings came in between.", failed=True))
        elif not file:
            self._know(run_id, RegretState("The burst was not recorded.", failed=True))
        elif self._judging is None or self._judging[1] != run_id:
            self._queue[run_id] = str(file)
            self._know(run_id, RegretState(COMPUTING if self._quiet else WAITS))
            self._next()

    def set_quiet(self, quiet: bool) -> None:
        """A burst begins or ended: what is computed for nobody in particular gives way to it."""
        if quiet == self._quiet:
            return
        self._quiet = quiet
        if not quiet and self._judging is not None:
            child, run_id, file = self._judging
            self._judging = None
            child.stop()
            child.deleteLater()
            self._queue[run_id] = file
            self._know(run_id, RegretState(WAITS))
        self._next()

    def _next(self) -> None:
        if not self._quiet or self._judging is not None or not self._queue:
            return
        run_id, file = self._queue.popitem()  # the newest first: it is the one that is looked at
        child = Child(self._command({"kind": "regret", "run": file}), self)
        self._judging = (child, run_id, file)
        self._know(run_id, RegretState(COMPUTING))
        child.line.connect(lambda line: self._judged(run_id, line))
        child.ended.connect(lambda problem: self._judge_ended(run_id, problem))

    def _judged(self, run_id: str, line: Mapping[str, Any]) -> None:
        if "regret" in line:
            self._know(run_id, RegretState(regret=regret_of(line)))

    def _judge_ended(self, run_id: str, problem: str) -> None:
        if self._judging is not None:
            self._judging[0].deleteLater()
            self._judging = None
        known = self._regrets.get(run_id)
        if known is None or known.regret is None:
            self._know(run_id, RegretState(problem or STOPPED, failed=True))
        self._next()

    def _know(self, run_id: str, state: RegretState) -> None:
        self._regrets[run_id] = state
        while len(self._regrets) > KEPT:
            self._regrets.popitem(last=False)
        self.regret_changed.emit(run_id)

    def close(self) -> None:
        """End every child at once."""
        self._queue.clear()
        for running in (self._asking, self._judging):
            if running is not None:
                running[0].stop()
        self._asking = self._judging = None
