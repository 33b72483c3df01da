"""Starts backends, reads their messages, and sees when one dies or stalls. Runs in the engine's thread."""

import contextlib
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait

from engine.backend import Command, Submit
from engine.clock import Clock
from engine.config import Limits
from engine.events import BackendInfo, BackendState, BackendStatus, Event, Notice
from engine.execution.emulated import Neighbours
from engine.profiling.profile import BackendProfile
from engine.request import BackendName, RequestId
from engine.step_report import StepReport
from engine.transport import Loaded, LoadFailed, Loading, Plan, ProcessTransport, ThreadTransport, Transport

log = logging.getLogger(__name__)

STALL_LEAST_S = 5.0  # silence that is never called a stall
STALL_FACTOR = 10.0  # times the slowest recent step


@dataclass(slots=True)
class Unit:
    """One backend as the supervisor keeps it."""

    plan: Plan
    info: BackendInfo
    profile: BackendProfile | None = None  # set for an emulated backend
    transport: Transport | None = None
    state: BackendState = BackendState.WAITING
    message: str = ""
    heard_s: float = 0.0
    slow_step_s: float = 0.5
    owed: set[RequestId] = field(default_factory=set)  # sent, and no report has ended them
    held: list[Command] = field(default_factory=list)  # commands for a stalled backend
    failure: str = ""  # why it could not load, in its own words
    limits: Limits = field(init=False)  # that its process was told last

    def __post_init__(self) -> None:
        self.limits = self.plan.spec.limits

    @property
    def ready(self) -> bool:
        return self.state in (BackendState.READY, BackendState.CALIBRATING, BackendState.STALLED)


Message = tuple[BackendName, Loaded | StepReport | None]  # None: the backend is gone


class Supervisor:
    """All backends of an engine by name."""

    def __init__(self, units: Iterable[Unit], clock: Clock, publish: Callable[[Event], None]) -> None:
        self.units = {u.plan.spec.name: u for u in units}
        self._clock = clock
        self._publish = publish
        self._neighbours = Neighbours()

    def start(self, name: BackendName) -> None:
        """Begin to load a backend; its `Loaded` message comes later."""
        unit = self.units[name]
        if unit.transport is not None:
            unit.transport.close(0.0)
        unit.owed.clear()
        unit.held.clear()
        unit.limits = unit.plan.spec.limits
        if unit.profile is not None:
            unit.transport = ThreadTransport(unit.plan, unit.profile, self._neighbours)
        else:
            unit.transport = ProcessTransport(unit.plan)
        self.set_state(name, BackendState.LOADING, "Starting its process")

    def set_state(self, name: BackendName, state: BackendState, message: str = "") -> None:
        unit = self.units[name]
        unit.state, unit.message, unit.heard_s = state, message, self._clock.now_s()
        self._publish(BackendStatus(unit.info, state, message))

    def update_info(self, name: BackendName, info: BackendInfo) -> None:
        """Something fixed became known (rates, rank): tell it without changing the state."""
        unit = self.units[name]
        unit.info = info
        self._publish(BackendStatus(info, unit.state, unit.message))

    def send(self, name: BackendName, command: Command) -> None:
        transport = self.units[name].transport
        if transport is None:
            return
        unit = self.units[name]
        # Only a request is sure of an answer; a cancel that comes too late gets none.
        if isinstance(command, Submit):
            if not unit.owed:
                unit.heard_s = self._clock.now_s()
            unit.owed.add(command.request.id)
        if unit.state is BackendState.STALLED:
            unit.held.append(command)  # its pipe may be full, and writing to that would stall this thread too
        else:
            transport.send(command)

    def poll(self, wake: Connection, timeout_s: float | None) -> list[Message]:
        """Wait for messages, deaths or `wake`, and take what there is."""
        running = [u for u in self.units.values() if u.transport is not None]
        handles: list[Connection | int] = [wake]
        for unit in running:
            assert unit.transport is not None
            handles.append(unit.transport.pipe)
            if unit.transport.sentinel is not None:
                handles.append(unit.transport.sentinel)
        ready = set(wait(handles, timeout_s))
        out: list[Message] = []
        for unit in running:
            transport = unit.transport
            assert transport is not None
            ended = transport.sentinel in ready
            if transport.pipe in ready or ended:
                ended = not self._read(unit, transport, out) or ended
            if ended:
                self._bury(unit, transport, out)
        self._watch_stalls()
        return out

    def _tell_threads(self, unit: Unit, threads: int) -> None:
        """The backend goes on with fewer threads, which got in each other's way, or tries one again."""
        fewer = threads < unit.info.threads
        self.update_info(unit.plan.spec.name, replace(unit.info, threads=threads))
        if fewer:
            words = f"Other programs slow {unit.info.label} down: it goes on with {threads} of its threads."
            self._publish(Notice("warning", words))

    def _read(self, unit: Unit, transport: Transport, out: list[Message]) -> bool:
        """Take every message that is there; False when the pipe is closed."""
        name = unit.plan.spec.name
        try:
            while transport.pipe.poll(0):
                message = transport.pipe.recv()
                unit.heard_s = self._clock.now_s()
                match message:
                    case StepReport():
                        unit.owed.difference_update(e.request_id for e in message.ended)
                        unit.owed.difference_update(message.withdrawn)
                        unit.slow_step_s = max(0.9 * unit.slow_step_s, message.duration_s)
                        if message.threads not in (0, unit.info.threads):  # 0 = not told
                            self._tell_threads(unit, message.threads)
                        out.append((name, message))
                    case Loading(what, fraction):
                        self.set_state(name, BackendState.LOADING, f"{what}, {fraction:.0%}")
                    case Loaded():
                        unit.info = replace(
                            unit.info,
                            format=message.format,
                            device_name=message.device_name,
                            threads=message.threads,
                            block_bytes=message.block_bytes,
                        )
                        out.append((name, message))
                    case LoadFailed(text):
                        unit.failure = text
        except (EOFError, OSError):
            return False
        return True

    def _bury(self, unit: Unit, transport: Transport, out: list[Message]) -> None:
        ending = f"Its process {transport.ending} at {time.strftime('%H:%M:%S')}."
        unit.message, unit.failure = unit.failure or ending, ""
        transport.close(0.0)
        unit.transport, unit.state = None, BackendState.STOPPED
        unit.owed.clear()
        unit.held.clear()
        out.append((unit.plan.spec.name, None))

    def _watch_stalls(self) -> None:
        now = self._clock.now_s()
        for name, unit in self.units.items():
            rate = unit.info.prefill_rate
            whole_step_s = unit.limits.token_budget / rate if rate else 0.0  # a step full of prefill
            limit = max(STALL_LEAST_S, STALL_FACTOR * max(unit.slow_step_s, whole_step_s))
            works = unit.state in (BackendState.READY, BackendState.CALIBRATING)
            if works and unit.owed and now - unit.heard_s > limit:
                heard = unit.heard_s
                self.set_state(name, BackendState.STALLED, f"No step for {limit:.0f} s")
                unit.heard_s = heard
            elif unit.state is BackendState.STALLED and now - unit.heard_s < limit:
                self.set_state(name, BackendState.READY)
                held, unit.held = unit.held, []
                for command in held:
                    self.send(name, command)

    def close(self, patience_s: float = 2.0) -> None:
        """Ask every backend to leave, then make it."""
        deadline = self._clock.now_s() + patience_s
        transports = [u.transport for u in self.units.values() if u.transport is not None]
        for transport in transports:
            transport.ask_to_close()
        for transport in transports:
            with contextlib.suppress(OSError, ValueError):
                transport.close(deadline - self._clock.now_s())
        for unit in self.units.values():
            unit.transport = None
