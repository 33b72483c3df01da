"""Bursts: a preset's requests with their arrival times, after every backend has been seeded alike."""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from engine.backend import DropUnowned
from engine.errors import EngineError
from engine.events import BurstDone, BurstStarted, Notice
from engine.ledger import result_json
from engine.profiling.profile import Profile
from engine.recording import Recorder, head_json
from engine.request import Request, RequestId, SamplingParams
from engine.simulation.capacity import preset_capacity_rps
from engine.step_report import StepReport
from engine.weights import PolicyWeights
from engine.workloads.presets import Workload, make_workload
from engine.workloads.texts import Tokenise

if TYPE_CHECKING:
    from engine.core import Core


_ONE_TOKEN = SamplingParams(temperature=0.0, top_p=1.0, max_new_tokens=1, ignore_eos=True)


class Phase(StrEnum):
    WAITING = "waiting"  # for chats that stream and for calibration
    SEEDING = "seeding"  # every backend runs the seeding prompts
    RUNNING = "running"


@dataclass(slots=True)
class Burst:
    """One run of a preset. Requests are numbered from 1 within it."""

    preset: str
    seed: int
    run_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    policy: str = ""
    phase: Phase = Phase.WAITING
    workload: Workload | None = None
    start_s: float = 0.0
    seeding: set[RequestId] = field(default_factory=set)
    to_come: int = 0
    open: set[RequestId] = field(default_factory=set)
    recorder: Recorder | None = None
    foreseen: dict[RequestId, tuple[float, float]] = field(default_factory=dict)  # at the last arrival
    build: Callable[[Tokenise], Workload] | None = None  # in place of a preset
    slots: Mapping[str, int] | None = None  # by backend, for this burst alone
    token_times: bool = False  # in the result, when each token came
    mixed: bool = False  # requests from outside, or settings changed under way: not for comparisons


class BurstRunner:
    """At most one burst at a time. `advance` moves it from phase to phase."""

    def __init__(self, core: "Core") -> None:
        self._core = core
        self.burst: Burst | None = None

    def start(self, burst: Burst, policy: str | None) -> None:
        """Queue a burst; it begins when chats have ended and calibration is done.

        An unknown policy or a cache that cannot hold the seeding ends it at once, with a notice.
        """
        core = self._core
        if self.burst is not None:
            core.publish(Notice("warning", "A burst is running: stop it first, or wait for its end."))
            core.publish(BurstDone(burst.run_id, True, {}))
            return
        try:
            if policy is not None:
                core.router.set_policy(policy)
            burst.workload = self._built(burst)
            for prompt in burst.workload.seeding:
                core.fitted(Request(RequestId(0), prompt, _ONE_TOKEN, 0.0))
        except EngineError as error:
            core.publish(Notice("error", str(error)))
            core.publish(BurstDone(burst.run_id, True, {}))
            return
        burst.policy = core.router.policy
        core.calibrator.pause_unless_needed(burst.policy)
        self.burst = burst

    def _built(self, burst: Burst) -> Workload:
        """Its requests; those of a preset arrive as the backends can serve them, as far as that is known."""
        core = self._core
        codec = core.conversations.codec

        def tokenise(text: str) -> list[int]:
            return codec.encode(text, add_special=False)

        if burst.build is not None:
            return burst.build(tokenise)
        backends, capacity = core.measurements.profiles(), None
        if backends is not None:
            profile = Profile("run", "the run's own calibration", "", backends)
            capacity = preset_capacity_rps(profile, burst.preset, burst.slots)
        return make_workload(burst.preset, tokenise, burst.seed, capacity)

    @property
    def waiting(self) -> Burst | None:
        """The burst that has not begun yet."""
        return self.burst if self.burst is not None and self.burst.phase is Phase.WAITING else None

    def advance(self, busy: bool) -> None:
        """Go on to the next phase when the present one is over."""
        burst = self.burst
        if burst is None:
            return
        if burst.phase is Phase.WAITING:
            if not busy and not self._core.calibrator.blocks(burst.policy):
                self._seed(burst)
        elif burst.phase is Phase.SEEDING:
            if not burst.seeding:
                self._run(burst)
        elif not burst.to_come and not burst.open:
            self._finish(burst, aborted=False)

    def weigh(self, weights: PolicyWeights) -> None:
        """Other weights for the policy; a burst under way is then decided by two sets of them."""
        router = self._core.router
        if weights != router.weights:
            router.set_weights(weights)
            self.outsider()

    def outsider(self) -> None:
        """A typed prompt came in, or a setting was changed."""
        if self.burst is not None and self.burst.phase is not Phase.WAITING:
            self.burst.mixed = True

    def on_report(self, report: StepReport) -> None:
        """A step while the burst runs is part of its record."""
        if self.burst is not None and self.burst.recorder is not None:
            self.burst.recorder.step(report)

    def ended(self, request_id: RequestId) -> None:
        if self.burst is not None:
            entry = self._core.ledger.entries.get(request_id)
            if self.burst.recorder is not None and entry is not None and request_id in self.burst.open:
                self.burst.recorder.request(entry, entry.request.arrival_s - self.burst.start_s)
            self.burst.seeding.discard(request_id)
            self.burst.open.discard(request_id)

    def abort(self) -> None:
        """Stop: what has not arrived never will. The core has cancelled the open requests."""
        if self.burst is not None:
            self._finish(self.burst, aborted=True)

    def _seed(self, burst: Burst) -> None:
        assert burst.workload is not None
        burst.phase = Phase.SEEDING
        if burst.workload.capacity_rps is not None:
            burst.workload = self._built(burst)  # what it waited for may have been the calibration
        for name in self._core.router.alive():
            self._core.supervisor.send(name, DropUnowned())
            if burst.slots is not None and name in burst.slots:
                self._core.limits.hold(name, burst.slots[name])
            for prompt in burst.workload.seeding:
                burst.seeding.add(self._core.internal(name, prompt, _ONE_TOKEN))

    def _run(self, burst: Burst) -> None:
        assert burst.workload is not None
        core, planned = self._core, burst.workload.requests
        burst.phase = Phase.RUNNING
        burst.policy = core.router.policy  # it may have been changed while the burst waited
        burst.start_s = core.clock.now_s()
        burst.to_come = len(planned)
        offsets = tuple(p.offset_s for p in planned)
        core.publish(
            BurstStarted(burst.run_id, burst.preset, burst.policy, len(planned), burst.start_s, offsets)
        )

        self._record(burst)

        def arrive(number: int) -> None:
            p = planned[number - 1]
            # The planned time, not the time of the timer: being late is part of the latency.
            arrival_s = burst.start_s + p.offset_s
            request_id = RequestId(next(core.ids))
            request = Request(request_id, p.prompt, p.sampling, arrival_s, p.tag, p.reply_tokens)
            burst.to_come -= 1
            burst.open.add(request.id)
            core.submit(request, number, burst.run_id)
            if not burst.to_come:
                self._foresee(burst)

        for number, p in enumerate(planned, 1):
            core.at(burst.start_s + p.offset_s, lambda n=number: arrive(n))  # type: ignore[misc]

    def _record(self, burst: Burst) -> None:
        """Open the run's file. A disk that is full costs the record, not the burst."""
        assert burst.workload is not None
        core = self._core
        backends = core.measurements.profiles()
        profile = None
        if backends is not None:
            profile = Profile("run", "the run's own calibration", "recorded with the run", backends)
        emulated = core.config.emulate is not None
        try:
            burst.recorder = Recorder(
                head_json(
                    burst.run_id,
                    burst.workload,
                    burst.policy,
                    core.config.model,
                    emulated,
                    profile,
                    core.router.weights,
                )
            )
        except OSError as error:
            core.publish(Notice("warning", f"This run is not recorded ({error.strerror}): free some space."))

    def _foresee(self, burst: Burst) -> None:
        """When everybody has arrived: each request's E2E as foreseen now, and with true lengths."""
        core = self._core
        now = core.clock.now_s()
        estimated, true = core.router.foresee(now), core.router.foresee(now, truth=True)
        for request_id, left_s in estimated.items():
            entry = core.ledger.entries.get(request_id)
            if entry is not None and request_id in burst.open:
                since = now - entry.request.arrival_s
                burst.foreseen[request_id] = (since + left_s, since + true[request_id])

    def _finish(self, burst: Burst, aborted: bool) -> None:
        self.burst = None
        core = self._core
        result = result_json(
            burst.preset,
            burst.policy,
            [u.info for u in core.supervisor.units.values()],
            [e for e in core.ledger.entries.values() if e.run_id == burst.run_id],
            burst.start_s,
            emulated=core.config.emulate is not None,
            simulated=False,
            extra={
                "profile": core.config.emulate,
                "mixed": burst.mixed,
                "weights": str(core.router.weights),
                "capacity_rps": burst.workload.capacity_rps if burst.workload else None,
                "run_id": burst.run_id,
                "run_file": str(burst.recorder.path) if burst.recorder else None,
            },
            foreseen=burst.foreseen,
            token_times=burst.token_times,
        )
        if burst.slots is not None and burst.phase is not Phase.WAITING:
            for name in core.supervisor.units:
                core.limits.release(name)
        if burst.recorder is not None:
            burst.recorder.close(None if aborted else result)
        core.publish(BurstDone(burst.run_id, aborted, result))
