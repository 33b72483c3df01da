"""Calibration: isolated rates, the step-time model, and how backends slow each other down.

Everything runs through the real engine as internal requests. One backend at a time (both for the last
stage), never beside user work, and under a lock for the whole machine: two windows that measured at once
would measure each other. User work pauses it; the stage that was running begins again later. What a stage
measured is kept as soon as it ends, and until then what was known before stays.
"""

from typing import TYPE_CHECKING

from engine.backend import Cancel, DropUnowned
from engine.errors import ConfigError, PromptError
from engine.events import BackendState, Notice, SetupStep
from engine.ledger import Entry
from engine.profiling.alone import MachineLock
from engine.profiling.points import Point
from engine.profiling.store import Measured, MeasuredKey, load_measured, save_measured
from engine.request import BackendName, Request, RequestId
from engine.routing.policies import BATCHED_POLICIES
from engine.stages import KINDS, Stage, points_of, result_of, result_words
from engine.step_report import StepReport
from engine.supervisor import Unit

if TYPE_CHECKING:
    from engine.core import Core

_REST_S = 0.5  # quiet after user work before a measurement begins


def measured_key(unit: Unit) -> MeasuredKey:
    """Under which the measurements of a loaded backend are kept."""
    info = unit.info
    return MeasuredKey(unit.plan.salt, info.format, info.device_name, info.threads, unit.plan.spec.slots)


class Calibrator:
    """Stages still to do, in order. `advance` begins the next point when it is quiet."""

    def __init__(self, core: "Core", vocabulary: int) -> None:
        self._core = core
        self._vocabulary = vocabulary
        self._stages: list[Stage] = []
        self._rest_until_s = 0.0
        self._lock = MachineLock()
        self._rounds = core.config.seed

    # --- what is to do --------------------------------------------------------------------------------

    def loaded(self, name: BackendName) -> None:
        """A backend runs: take what is known of it, and plan what is not."""
        unit = self._core.supervisor.units[name]
        measured, refused = load_measured(measured_key(unit))
        if refused:
            self._core.publish(Notice("warning", refused))
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

    def stop(self) -> None:
        """Give up what is not measured yet. What is stays, and the next start goes on from there."""
        self.pause()
        stages, self._stages = self._stages, []
        for stage in stages:
            self._tell(stage, "failed", "Stopped. What was measured is kept.")

    def _plan_pair(self, known: bool) -> None:
        """Last of all: every running backend at once, where that is not known of all of them."""
        names = tuple(n for n, u in self._core.supervisor.units.items() if u.ready and u.profile is None)
        planned = any(s.kind == "pair" for s in self._stages)
        self._stages = [s for s in self._stages if s.kind != "pair"]
        if len(names) > 1 and (planned or not known):
            self._stages.append(Stage("pair", names))
        self._stages.sort(key=lambda s: list(KINDS).index(s.kind))
        for stage in self._stages:
            if not stage.total:
                self._tell(stage, "waiting", total=len(self._points(stage)))

    def drop(self, name: BackendName) -> None:
        """The backend died."""
        if self._stages and name in self._stages[0].names:
            self.pause()
        lost = [s for s in self._stages if name in s.names]
        self._stages = [s for s in self._stages if name not in s.names]
        for stage in lost:
            self._tell(stage, "failed", "The backend stopped.")
        if not self._stages:
            self._lock.release()

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
        if stage.open or not self._lock.hold():
            return  # another Offramp measures; the loop asks again
        if not stage.total and not self._begin(stage):
            return
        if stage.points:
            self._run_point(stage)
        else:
            self._finish(stage)

    def _begin(self, stage: Stage) -> bool:
        """Plan its points; False when they cannot run here: the stage is then given up."""
        supervisor = self._core.supervisor
        self._rounds += 1
        stage.points = self._points(stage)
        if not all(self._fits(prompt, p) for p in stage.points for prompt in p.prompts):
            self._stages.pop(0)
            if not self._stages:
                self._lock.release()
            what, who = KINDS[stage.kind], ", ".join(supervisor.units[n].info.label for n in stage.names)
            words = f"Not measured on {who} ({what}): the context or the KV pool is too small for it."
            self._core.publish(Notice("warning", words))
            self._tell(stage, "failed", words)
            return False
        stage.total = len(stage.points)
        for name in stage.names:
            self._core.limits.hold(name)
            supervisor.set_state(name, BackendState.CALIBRATING, KINDS[stage.kind])
        self._tell(stage, "running")
        return True

    def _points(self, stage: Stage) -> list[Point]:
        specs = [self._core.supervisor.units[n].plan.spec for n in stage.names]
        return points_of(stage, specs, self._core.config.context_tokens, self._vocabulary, self._rounds)

    def _fits(self, prompt: tuple[int, ...], point: Point) -> bool:
        request = Request(RequestId(0), prompt, point.sampling, 0.0)
        try:
            return not self._core.fitted(request).context_cut
        except PromptError:
            return False

    def _run_point(self, stage: Stage) -> None:
        point = stage.point = stage.points.pop(0)
        for name in stage.names if point.only is None else stage.names[point.only : point.only + 1]:
            for prompt in point.prompts:
                stage.open.add(self._core.internal(name, prompt, point.sampling))
        self._tell(stage, "running")

    def on_report(self, report: StepReport) -> None:
        """Collect the steps of the running point."""
        if self._stages:
            stage = self._stages[0]
            point = stage.point
            if stage.open and point is not None and point.measured and report.backend in stage.names:
                stage.reports.append((point.what, report))

    def ended(self, entry: Entry) -> None:
        """An internal request ended; was it ours?"""
        if self._stages and entry.request.id in self._stages[0].open:
            self._stages[0].open.discard(entry.request.id)
            self._stages[0].last = entry

    def pause(self) -> None:
        """User work comes first."""
        if not self._stages or not self._stages[0].total:
            self._lock.release()  # between two stages nothing runs, but the lock may be held
            return
        stage = self._stages[0]
        for request_id in stage.open:
            entry = self._core.ledger.entries.pop(request_id)
            self._core.supervisor.send(entry.backend, Cancel(request_id))
        for name in stage.names:
            if self._core.supervisor.units[name].state is BackendState.CALIBRATING:
                self._core.supervisor.set_state(name, BackendState.READY)
            self._core.limits.release(name)
        again = self._stages[0] = Stage(stage.kind, stage.names)
        self._tell(again, "waiting", total=stage.total)
        self._lock.release()

    def close(self) -> None:
        self._lock.release()

    # --- results --------------------------------------------------------------------------------------

    def _finish(self, stage: Stage) -> None:
        supervisor = self._core.supervisor
        self._stages.pop(0)
        detail, whole = KINDS[stage.kind], True
        for name in stage.names:
            supervisor.send(name, DropUnowned())
            self._core.limits.release(name)
            supervisor.set_state(name, BackendState.READY)
            key = measured_key(supervisor.units[name])
            measured, warning = result_of(stage, name, self._core.measurements.known(name))
            if warning:
                self._core.publish(Notice("warning", warning))
            if measured is not None:
                self._keep(key, measured)
                self._core.measurements.set(name, measured)
                detail = result_words(stage.kind, measured)
            whole = whole and measured is not None
        self._tell(stage, "done" if whole else "failed", detail)
        if not self._stages:
            self._lock.release()

    def _keep(self, key: MeasuredKey, measured: Measured) -> None:
        try:
            save_measured(key, measured)
        except (OSError, ConfigError) as error:
            words = f"The calibration could not be kept ({error}): the next start measures again."
            self._core.publish(Notice("warning", words))

    def _tell(self, stage: Stage, state: str, detail: str = "", total: int | None = None) -> None:
        units = self._core.supervisor.units
        what = "both backends" if len(stage.names) > 1 else f"the {units[stage.names[0]].info.label} backend"
        done = float(stage.total - len(stage.points))
        self._core.publish(
            SetupStep(
                stage.key,
                f"Calibrate {what}",
                detail or KINDS[stage.kind],
                state,
                done if total is None else 0.0,
                float(stage.total if total is None else total),
            )
        )
