"""Fetch a model in a child process, so that whoever waits can leave at once: a stalled network never holds
a window open. What has arrived is kept for the next time."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from engine import errors
from engine.errors import EngineError, FetchError
from engine.events import SetupStep
from engine.models.fetch import present

_LOOK_S = 0.1


def command_for(name: str) -> list[str]:
    """The child that tells its progress as JSON lines."""
    return [sys.executable, "-W", "ignore", "-m", "engine.models.fetch", "--json", name]


def fetch_apart(name: str, on_progress: Callable[[SetupStep], None], check: Callable[[], None]) -> Path:
    """`ensure_model` in a child. `check` is called ten times a second; an exception from it, or from
    `on_progress`, ends the child and passes on. Raises as `ensure_model`."""
    if (here := present(name)) is not None:
        return here
    root = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    child = subprocess.Popen(
        command_for(name),
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
        start_new_session=True,  # with pip, which it may ask, it is one group
    )
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        assert child.stdout is not None
        with contextlib.suppress(ValueError, OSError):  # closed under our hands
            for line in child.stdout:
                lines.put(line)
        lines.put(None)

    reader = threading.Thread(target=read, name="model-fetch", daemon=True)
    reader.start()
    try:
        return _follow(name, lines, on_progress, check)
    finally:
        end_group(child)
        reader.join(1.0)
        if child.stdout is not None:
            child.stdout.close()


def _follow(
    name: str,
    lines: "queue.SimpleQueue[str | None]",
    on_progress: Callable[[SetupStep], None],
    check: Callable[[], None],
) -> Path:
    while True:
        check()
        try:
            line = lines.get(timeout=_LOOK_S)
        except queue.Empty:
            continue
        if line is None:
            raise FetchError(f"The download of {name} broke off: try again; what has arrived is kept.")
        told = json.loads(line)
        if "step" in told:
            on_progress(SetupStep(**told["step"]))
        elif "error" in told:
            kind = getattr(errors, told["kind"], FetchError)
            raise _same(kind, told["error"])
        else:
            return Path(told["path"])


def _same(kind: type[EngineError], message: str) -> EngineError:
    """An error of the same kind with the same words, past constructors that want parts."""
    error = kind.__new__(kind)
    Exception.__init__(error, message)
    return error


def end_group(child: "subprocess.Popen[str]") -> None:
    """Kill it with everything it started. It keeps nothing half-written under a final name."""
    if child.poll() is None:
        if hasattr(os, "killpg"):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()
    child.wait()
