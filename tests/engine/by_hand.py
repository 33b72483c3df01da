"""A core whose backends move only when the test says so: no threads, no waiting, a clock that is set.

`HandTransport` takes the place of a backend's process. It holds a real `Backend`; `step` lets it take its
commands and run once, `die` closes its end of the pipe as the death of a process does.
"""

import contextlib
from collections.abc import Callable, Iterable
from itertools import count
from multiprocessing import Pipe
from typing import Any

import pytest

from engine.backend import Close, Command
from engine.clock import VirtualClock
from engine.config import BackendSpec, EngineConfig
from engine.core import Core
from engine.events import BackendState, BackendStatus, Event, RequestArrived, RequestDone, TextOut
from engine.execution.profile_runner import ProfileRunner
from engine.placeholder import VOCABULARY, PlaceholderCodec
from engine.preparation import infos_of
from engine.profiling.profile import parse_profile
from engine.request import BackendName, FinishReason, RequestId, SamplingParams
from engine.scheduling.batch import Batch
from engine.supervisor import Unit
from engine.transport import Loaded, LoadFailed, Plan, make_backend
from tests.engine.watched import check_life, id_of, profile_json


class HandTransport:
    sentinel: int | None = None
    pid: int | None = None
    ending = "was killed by signal 9"

    def __init__(self, plan: Plan, house: "House") -> None:
        self.pipe, self._theirs = Pipe()
        self._clock = house.clock
        self.runner = ProfileRunner(house.profile.backend(plan.spec.name))
        self.backend = make_backend(plan, self.runner)
        self.backend.clock = house.clock
        self.commands: list[Command] = []
        self._begun: tuple[Batch, float] | None = None

    def load(self) -> None:
        self._theirs.send(Loaded("placeholder", "by hand", 1, self.runner.block_bytes))

    def fail(self, why: str) -> None:
        self._theirs.send(LoadFailed(why))
        self.die()

    def take(self) -> None:
        """Take the commands that came."""
        while self._theirs.poll(0):
            command = self._theirs.recv()
            self.commands.append(command)
            self.backend.handle(command)

    def step(self) -> bool:
        """Take commands, compute one step, publish. False when there was nothing to do."""
        return self.begin() and self.end()

    def begin(self) -> bool:
        """Take commands and begin a step that `end` ends. False when there is nothing to tell."""
        if self._begun is not None:
            return True
        self.take()
        batch = self.backend.begin()
        if batch.rows:
            self._begun = batch, self._clock.now_s()
            return True
        report = self.backend.idle_report()
        if report is not None:
            self._theirs.send(report)
        return report is not None

    def end(self) -> bool:
        """End the step that has begun, and publish it."""
        if self._begun is None:
            return True
        (batch, began_s), self._begun = self._begun, None
        ids = self.runner.run(batch)
        self._clock.advance_to(max(self._clock.now_s(), began_s + self.runner.seconds(batch, False)))
        self._theirs.send(self.backend.finish(batch, ids, began_s, self._clock.now_s()))
        return True

    def die(self) -> None:
        self._theirs.close()

    @property
    def dead(self) -> bool:
        """Also while nobody has noticed yet."""
        return self._theirs.closed

    # --- what the supervisor calls ---

    def send(self, command: Command) -> None:
        with contextlib.suppress(OSError):
            self.pipe.send(command)

    def ask_to_close(self) -> None:
        self.send(Close())

    def close(self, patience_s: float) -> None:
        self.pipe.close()
        self._theirs.close()


class House:
    """A core, its events, and both backends in the test's hands."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        policy: str = "forced-gpu",
        calibrated: bool = True,
        load: bool = True,
        context_tokens: int = 4096,
        **profile: Any,
    ) -> None:
        self.clock = VirtualClock(1000.0)
        self.profile = parse_profile(profile_json(**profile), "by hand")
        monkeypatch.setattr("engine.supervisor.ThreadTransport", lambda plan, *_: HandTransport(plan, self))
        monkeypatch.setattr("engine.supervisor.ProcessTransport", lambda plan: HandTransport(plan, self))
        specs = [
            BackendSpec(BackendName(b.name), b.kind, "emulated", slots=b.slots, kv_blocks=b.kv_blocks)
            for b in self.profile.backends
        ]
        units = [
            Unit(
                Plan(s, s.name, context_tokens, ()),
                info,
                self.profile.backend(s.name) if calibrated else None,
            )
            for s, info in zip(specs, infos_of(specs, self.profile), strict=True)
        ]
        self.events: list[Event] = []
        self._ids = count(1)
        config = EngineConfig(policy=policy, context_tokens=context_tokens)
        codec = PlaceholderCodec()
        self.core = Core(config, codec, VOCABULARY, units, self.clock, self.events.append, self._ids)
        self._wake, self._waker = Pipe(duplex=False)
        self.core.start()
        if load:
            self.hand("cpu").load()
            self.hand("gpu").load()
            self.turn()

    def hand(self, name: str) -> HandTransport:
        transport = self.core.supervisor.units[BackendName(name)].transport
        assert isinstance(transport, HandTransport)
        return transport

    def state(self, name: str) -> BackendState:
        return self.core.supervisor.units[BackendName(name)].state

    def message(self, name: str) -> str:
        told = [e.message for e in self.events if isinstance(e, BackendStatus) and e.info.name == name]
        return told[-1]

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            self.core.turn(self._wake, 0.0)
            self.core.advance()

    def wait_s(self, seconds: float) -> None:
        self.clock.advance_to(self.clock.now_s() + seconds)
        self.turn()

    def pump(self, *names: str, until: Callable[[], bool] | None = None, most: int = 5_000) -> None:
        """Step the backends in turn until `until`, or until none has anything to do."""
        for _ in range(most):
            worked = [self.hand(n).step() for n in names or self.alive()]
            self.turn()
            if until is not None and until():
                return
            if until is None and not any(worked):
                return
            if not any(worked):
                self.wait_s(0.3)
        raise AssertionError("it does not come to an end")

    def alive(self) -> list[str]:
        return [n for n, u in self.core.supervisor.units.items() if u.transport is not None]

    def chat(
        self, text: str = "hello there", new: int = 8, only: str | None = None, **more: Any
    ) -> RequestId:
        request_id = RequestId(next(self._ids))
        sampling = SamplingParams(max_new_tokens=new, **more)
        only_name = BackendName(only) if only else None
        self.core.typed.chat(request_id, ({"role": "user", "content": text},), sampling, only_name)
        return request_id

    def done(self, request_id: int) -> RequestDone | None:
        found = [e for e in self.events if isinstance(e, RequestDone) and e.request_id == request_id]
        assert len(found) < 2, "a request ended twice"
        return found[0] if found else None

    def reasons(self, ids: Iterable[int]) -> list[FinishReason | None]:
        return [d.reason if (d := self.done(i)) else None for i in ids]

    def text(self, request_id: int) -> str:
        return "".join(e.text for e in self.events if isinstance(e, TextOut) and e.request_id == request_id)

    def check(self) -> None:
        """Every request that arrived has one whole life, and the backends hold nothing any more."""
        for request_id in [e.request_id for e in self.events if isinstance(e, RequestArrived)]:
            moved = [e for e in self.events if id_of(e) == request_id]
            check_life(moved)
        for name in self.alive():
            scheduler = self.hand(name).backend.scheduler
            scheduler.check_integrity()
            assert scheduler.idle
