"""Calibration: isolated rates, the step-time model, and how backends slow each other down.

Everything runs through the real engine as internal requests. One backend at a time (both for the last
stage), never beside user work, and under a lock for the whole machine: two windows that measured at once
would measure each other. User work pauses it; the stage that was running begins again later.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from engine.backend import Cancel, DropUnowned
from engine.errors import PromptError
from engine.events import BackendState, Notice, SetupStep, StepReport
from engine.ledger import Entry
from engine.paths import cache_dir, make_folder
from engine.profiling.points import (
    NEW_TOKENS,
    PROMPT_TOKENS,
    Point,
    pair_point,
    rates_point,
    step_points,
    warm_up,
)
from engine.profiling.profile import Rates
from engine.profiling.store import Measured, MeasuredKey, load_measured, save_measured
from engine.request import BackendName, Request, RequestId
from engine.routing.policies import BATCHED_POLICIES
from engine.supervisor import Unit

if TYPE_CHECKING:
    from engine.core import Core
    from engine.profiling.fit import Sample

_REST_S = 0.5  # quiet after user work before a measurement begins
_SAYS = {
    "rates": "512 tokens in, 128 out, alone",
    "steps": "step times at several loads",
    "pair": "both at once: how much they slow each other down",
}


def measured_key(unit: Unit) -> MeasuredKey:
    """Under which the measurements of a loaded backend are kept."""
    info = unit.info
    return MeasuredKey(unit.plan.salt, info.format, info.device_name, info.threads, unit.plan.spec.slots)


def rates_of(entry: Entry) -> Rates | None:
    """Rates from a finished measurement; None when it was cut short."""
    times = entry.token_times_s
    if entry.admitted_s is None or len(times) < NEW_TOKENS or times[-1] <= times[0]:
        return None
    prefill_s = max(1e-9, times[0] - entry.admitted_s)
    return Rates(PROMPT_TOKENS / prefill_s, (NEW_TOKENS - 1) / (times[-1] - times[0]))


@dataclass(slots=True)
class Stage:
    """One kind of measurement on one backend, or on all for "pair"."""

    kind: str
    names: tuple[BackendName, ...]
    points: list[Point] = field(default_factory=list)  # still to run; empty before it begins
    total: int = 0
    measuring: bool = False  # the running point counts
    open: set[RequestId] = field(default_factory=set)
    reports: list[StepReport] = field(default_factory=list)
    last: Entry | None = None


class Calibrator:
    """Stages still to do, in order. `advance` begins the next point when it is quiet."""

    def __init__(self, core: "Core", vocabulary: int) -> None:
        self._core = core
        self._vocabulary = vocabulary
        self._stages: list[Stage] = []
        self._rest_until_s = 0.0
        self._lock: FileLock | None = None
        self._rounds = core.config.seed

    # --- what is to do --------------------------------------------------------------------------------

    def loaded(self, name: BackendName) -> None:
        """A backend runs: take what is known of it, and plan what is not."""
        unit = self._core.supervisor.units[name]
        measured = load_measured(measured_key(unit))
        if measured is not None:
            self._core.measurements.set(name, measured)
        if not self._core.config.calibrate:
            return
        if measured is None:
            self._stages.append(Stage("rates", (name,)))
        if measured is None or measured.steps is None:
            self._stages.append(Stage("steps", (name,)))
        self._plan_pair(measured is not None and measured.paired)

    def again(self) -> None:
        """Measure every running backend from the beginning."""
        self.pause()
        self._stages = []
        for name, unit in self._core.supervisor.units.items():
            if unit.ready and unit.profile is None:
                self._stages += [Stage("rates", (name,)), Stage("steps", (name,))]
        self._plan_pair(False)

    def _plan_pair(self, known: bool) -> None:
        """Last of all: every running backend at once, where that is not known of all of them."""
        names = tuple(n for n, u in self._core.supervisor.units.items() if u.ready and u.profile is None)
        planned = any(s.kind == "pair" for s in self._stages)
        self._stages = [s for s in self._stages if s.kind != "pair"]
        if len(names) > 1 and (planned or not known):
            self._stages.append(Stage("pair", names))
        # Every rate comes before any step time: a burst under an isolated policy waits for those only.
        self._stages.sort(key=lambda s: list(_SAYS).index(s.kind))

    def drop(self, name: BackendName) -> None:
        """The backend died."""
        if self._stages and name in self._stages[0].names:
            self.pause()
        self._stages = [s for s in self._stages if name not in s.names]
        if not self._stages:
            self._release()

    def pause_unless_needed(self, policy: str) -> None:
        """A burst under `policy` waits to begin."""
        if self._stages and policy not in BATCHED_POLICIES and self._stages[0].kind != "rates":
            self.pause()

    def blocks(self, policy: str) -> bool:
        """Must a burst under `policy` wait for what is still to measure?"""
        if not self._stages:
            return False
        return policy in BATCHED_POLICIES or self._stages[0].kind == "rates"

    # --- running it -----------------------------------------------------------------------------------

    def rest(self) -> None:
        """User work ended just now."""
        self._rest_until_s = self._core.clock.now_s() + _REST_S

    def advance(self, busy: bool) -> None:
        """Begin the next point when it is quiet."""
        if not self._stages or busy or self._core.clock.now_s() < self._rest_until_s:
            return
        stage = self._stages[0]
        if stage.open or not self._locked():
            return
        if not stage.total and not self._begin(stage):
            return
        if stage.points:
            self._run_point(stage)
        else:
            self._finish(stage)

    def _begin(self, stage: Stage) -> bool:
        """Plan its points; False when they cannot run here: the stage is then given up."""
        supervisor = self._core.supervisor
        unit = supervisor.units[stage.names[0]]
        spec, seed = unit.plan.spec, 1000 * self._rounds
        self._rounds += 1
        if stage.kind == "rates":
            stage.points = [warm_up(self._vocabulary, seed), rates_point(self._vocabulary, seed)]
        elif stage.kind == "steps":
            context = self._core.config.context_tokens
            stage.points = step_points(self._vocabulary, spec.slots, context, spec.kv_blocks, seed)
        else:
            slots = min(supervisor.units[n].plan.spec.slots for n in stage.names)
            stage.points = [pair_point(self._vocabulary, slots, seed)]
        if not all(self._fits(prompt, p) for p in stage.points for prompt in p.prompts):
            self._stages.pop(0)
            if not self._stages:
                self._release()
            what, who = _SAYS[stage.kind], ", ".join(supervisor.units[n].info.label for n in stage.names)
            words = f"Not measured on {who} ({what}): the context or the KV pool is too small for it."
            self._core.publish(Notice("warning", words))
            self._tell(stage, "failed", words)
            return False
        stage.total = len(stage.points)
        for name in stage.names:
            supervisor.set_state(name, BackendState.CALIBRATING, _SAYS[stage.kind])
        self._tell(stage, "running")
        return True

    def _fits(self, prompt: tuple[int, ...], point: Point) -> bool:
        request = Request(RequestId(0), prompt, point.sampling, 0.0)
        try:
            return not self._core.fitted(request).context_cut
        except PromptError:
            return False

    def _run_point(self, stage: Stage) -> None:
        point = stage.points.pop(0)
        stage.measuring = point.measured
        for name in stage.names:
            for prompt in point.prompts:
                stage.open.add(self._core.internal(name, prompt, point.sampling))
        self._tell(stage, "running")

    def on_report(self, report: StepReport) -> None:
        """Collect the steps of the running point."""
        if self._stages:
            stage = self._stages[0]
            if stage.open and stage.measuring and report.backend in stage.names:
                stage.reports.append(report)

    def ended(self, entry: Entry) -> None:
        """An internal request ended; was it ours?"""
        if self._stages and entry.request.id in self._stages[0].open:
            self._stages[0].open.discard(entry.request.id)
            self._stages[0].last = entry

    def pause(self) -> None:
        """User work comes first."""
        if not self._stages or not self._stages[0].total:
            self._release()  # between two stages nothing runs, but the lock may be held
            return
        stage = self._stages[0]
        for request_id in stage.open:
            entry = self._core.ledger.entries.pop(request_id)
            self._core.supervisor.send(entry.backend, Cancel(request_id))
        for name in stage.names:
            if self._core.supervisor.units[name].state is BackendState.CALIBRATING:
                self._core.supervisor.set_state(name, BackendState.READY)
        self._stages[0] = Stage(stage.kind, stage.names)
        self._release()

    def close(self) -> None:
        self._release()

    # --- results --------------------------------------------------------------------------------------

    def _finish(self, stage: Stage) -> None:
        supervisor = self._core.supervisor
        self._stages.pop(0)
        detail, whole = _SAYS[stage.kind], True
        for name in stage.names:
            supervisor.send(name, DropUnowned())
            supervisor.set_state(name, BackendState.READY)
            key = measured_key(supervisor.units[name])
            measured = self._result(stage, name, load_measured(key))
            if measured is not None:
                save_measured(key, measured)
                self._core.measurements.set(name, measured)
                detail = _words(stage.kind, measured)
            whole = whole and measured is not None
        self._tell(stage, "done" if whole else "failed", detail)
        if not self._stages:
            self._release()

    def _result(self, stage: Stage, name: BackendName, known: Measured | None) -> Measured | None:
        if stage.kind == "rates":
            rates = rates_of(stage.last) if stage.last is not None else None
            if rates is None:
                self._core.publish(Notice("warning", f"The rates of {name} could not be measured."))
                return None
            return Measured(rates)
        from engine.errors import ProfileError
        from engine.profiling.fit import fit_steps, interference  # scipy: not at start-up

        if known is None:
            return None
        if stage.kind == "steps":
            try:
                fit = fit_steps(_samples(stage.reports))
            except ProfileError as error:
                self._core.publish(Notice("warning", str(error)))
                return None
            return replace(
                known, steps=fit.model, fit_error=fit.error, held_out_error=fit.held_out_error, paired=False
            )
        if known.steps is None:
            return None
        mine = [r for r in stage.reports if r.backend == name]
        others = [r for r in stage.reports if r.backend != name]
        together = [r for r in mine if _beside(r, others)]
        return replace(known, steps=interference(known.steps, _samples(together)), paired=True)

    def _locked(self) -> bool:
        if self._lock is None:
            lock = FileLock(make_folder(cache_dir()) / "calibration.lock")
            try:
                lock.acquire(timeout=0)
            except Timeout:
                return False  # another Offramp measures; the loop asks again
            self._lock = lock
        return True

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _tell(self, stage: Stage, state: str, detail: str = "") -> None:
        units = self._core.supervisor.units
        what = "both backends" if len(stage.names) > 1 else f"the {units[stage.names[0]].info.label} backend"
        done = float(stage.total - len(stage.points))
        self._core.publish(
            SetupStep(
                f"calibrate:{stage.kind}:{'+'.join(stage.names)}",
                f"Calibrate {what}",
                detail or _SAYS[stage.kind],
                state,
                done,
                float(stage.total),
            )
        )


def _samples(reports: Sequence[StepReport]) -> "list[Sample]":
    from engine.profiling.fit import Sample

    return [
        Sample(
            r.decode_rows,
            r.context_tokens,
            r.prefill_tokens,
            r.prefill_attention,
            r.prefill_chunks,
            r.duration_s,
        )
        for r in reports
        if (r.decode_rows or r.prefill_tokens) and r.duration_s > 0
    ]


def _beside(report: StepReport, others: Sequence[StepReport]) -> bool:
    """Did the step run wholly while another backend computed?"""
    if not others:
        return False
    return others[0].started_s <= report.started_s and report.finished_s <= others[-1].finished_s


def _words(kind: str, measured: Measured) -> str:
    if kind == "rates":
        return f"{measured.rates.prefill:,.0f} tok/s in, {measured.rates.decode:,.0f} out"
    if kind == "steps" and measured.held_out_error is not None:
        return f"step times within {measured.held_out_error:.1%} on steps not fitted"
    chi = measured.steps.interference if measured.steps else 0.0
    return f"steps take {chi:.0%} longer while the other one works"
