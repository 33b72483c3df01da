"""Where a backend's loop runs: a child process that computes, or a thread that only waits (emulation).

Both look the same from outside: a duplex pipe of frozen dataclasses, and something to watch for death.
Torch is imported in the child only.
"""

import contextlib
import logging
import multiprocessing
import os
import signal
import threading
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from engine.backend import Backend, Close, Command, serve
from engine.clock import MonotonicClock
from engine.config import BackendSpec
from engine.devices.environment import prepare_environment
from engine.errors import EngineError
from engine.execution.emulated import EmulatedRunner, Neighbours
from engine.execution.runner import Runner
from engine.kv.manager import KvManager
from engine.profiling.profile import BackendProfile
from engine.scheduling.policies import make_policy
from engine.scheduling.scheduler import Scheduler

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a backend needs to load. Crosses the process border."""

    spec: BackendSpec
    salt: str  # of its prefix hashes
    context_tokens: int
    eos_ids: tuple[int, ...]
    model_path: str | None = None
    architecture: str | None = None
    load_format: str = "auto"
    seed: int = 0
    others: tuple[BackendSpec, ...] = ()  # that compute on this machine too, with the same model


@dataclass(frozen=True, slots=True)
class Loading:
    """Progress of a load, 0 to 1."""

    what: str
    fraction: float


@dataclass(frozen=True, slots=True)
class Loaded:
    """The backend takes requests from now on."""

    format: str
    device_name: str
    threads: int
    block_bytes: int


@dataclass(frozen=True, slots=True)
class LoadFailed:
    message: str


def make_backend(plan: Plan, runner: Runner) -> Backend:
    """Scheduler and cache around a runner, as `plan` says."""
    spec = plan.spec
    scheduler = Scheduler(
        KvManager(spec.kv_blocks, plan.salt),
        make_policy(spec.scheduling),
        spec.slots,
        spec.limits.token_budget,
        plan.eos_ids,
    )
    return Backend(spec.name, scheduler, runner, MonotonicClock())


def _receiver(pipe: Connection) -> Any:
    def receive(timeout_s: float | None) -> Command | None:
        try:
            if not pipe.poll(timeout_s):
                return None
            command: Command = pipe.recv()
            return command
        except (EOFError, OSError):
            return Close()  # the other side is gone; nobody would read what we compute

    return receive


def child_main(pipe: Connection, plan: Plan) -> None:
    """Entry point of a backend's process: load, serve, leave."""
    # Ctrl+C goes to the whole process group; the parent decides what ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prepare_environment()  # torch reads it once, when it is imported
    try:
        from engine.execution.torch_runner import make_runner

        def progress(what: str, fraction: float) -> None:
            pipe.send(Loading(what, fraction))

        runner = make_runner(
            plan.spec,
            Path(plan.model_path) if plan.model_path else None,
            plan.architecture,
            plan.load_format,
            plan.context_tokens,
            plan.seed,
            progress,
            plan.others,
        )
    except (BrokenPipeError, ConnectionError):
        return  # the parent died while we loaded
    except EngineError as error:
        pipe.send(LoadFailed(str(error)))
        return
    except Exception as error:
        traceback.print_exc()
        with contextlib.suppress(OSError):
            pipe.send(LoadFailed(f"Loading failed ({type(error).__name__}: {error}): see the log."))
        return
    try:
        pipe.send(
            Loaded(
                runner.format,
                runner.device_name,
                plan.spec.threads,
                runner.block_bytes,
            )
        )
        serve(make_backend(plan, runner), _receiver(pipe), pipe.send)
    except (BrokenPipeError, ConnectionError):
        pass
    finally:
        runner.close()
        pipe.close()
        # Skip interpreter teardown: torch's own threads make it slow and sometimes end in an abort.
        os._exit(0)


class ProcessTransport:
    """A backend in a child process of its own, spawned, so that nothing is inherited but the pipe."""

    def __init__(self, plan: Plan) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=child_main, args=(theirs, plan), name=f"offramp {plan.spec.name}", daemon=True
        )
        self._process.start()
        theirs.close()

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def sentinel(self) -> int | None:
        """Becomes ready when the process has ended."""
        return self._process.sentinel

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        self._process.join(0.5)
        code = self._process.exitcode
        if code is not None and code < 0:
            return f"was killed by signal {-code}"
        return f"ended with code {code}"

    def send(self, command: Command) -> None:
        with contextlib.suppress(OSError):  # death is told by the sentinel, once
            self.pipe.send(command)

    def ask_to_close(self) -> None:
        self.send(Close())

    def close(self, patience_s: float) -> None:
        """Wait for the process to leave; kill it when it does not."""
        self._process.join(max(0.0, patience_s))
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self.pipe.close()
        self._process.close()


class ThreadTransport:
    """An emulated backend in a thread: it only waits, so it takes nobody's time."""

    sentinel: int | None = None
    pid: int | None = None
    ending = "ended"

    def __init__(self, plan: Plan, profile: BackendProfile, neighbours: Neighbours) -> None:
        self.pipe, theirs = multiprocessing.Pipe()
        self._closing = threading.Event()
        self._thread = threading.Thread(
            target=self._main, args=(theirs, plan, profile, neighbours), name=f"offramp {plan.spec.name}"
        )
        self._thread.start()

    def _main(self, pipe: Connection, plan: Plan, profile: BackendProfile, neighbours: Neighbours) -> None:
        try:
            runner = EmulatedRunner(profile, neighbours, MonotonicClock(), self._closing)
            pipe.send(Loaded("placeholder", profile.device_name, 1, runner.block_bytes))
            serve(make_backend(plan, runner), _receiver(pipe), pipe.send, lambda: runner.others_busy)
        except (BrokenPipeError, ConnectionError):
            pass
        finally:
            pipe.close()

    def send(self, command: Command) -> None:
        with contextlib.suppress(OSError):
            self.pipe.send(command)

    def ask_to_close(self) -> None:
        self._closing.set()
        self.send(Close())

    def close(self, patience_s: float) -> None:
        self._closing.set()
        self.send(Close())
        self._thread.join()
        self.pipe.close()


Transport = ProcessTransport | ThreadTransport
