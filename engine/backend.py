"""One backend's loop: take commands, schedule, run, publish. It knows no transport and no tensors.

Commands come in and one `StepReport` a step goes out; both are plain data.
"""

from collections.abc import Callable
from dataclasses import dataclass

from engine.clock import Clock
from engine.config import Limits
from engine.execution.runner import Runner
from engine.request import BackendName, FinishReason, Request, RequestId
from engine.scheduling.batch import Batch
from engine.scheduling.scheduler import Scheduler, StepOutcome
from engine.step_report import Ending, StepReport


@dataclass(frozen=True, slots=True)
class Submit:
    request: Request
    estimate: int  # prompt tokens the router believed cached here


@dataclass(frozen=True, slots=True)
class Cancel:
    request_id: RequestId


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Give up a request that still waits. The next report says so; one that has begun stays."""

    request_id: RequestId


@dataclass(frozen=True, slots=True)
class DropUnowned:
    """Forget every cached block that no request holds."""


@dataclass(frozen=True, slots=True)
class SetLimits:
    """How many requests may be active and how long a step may be, from the next step on."""

    limits: Limits


@dataclass(frozen=True, slots=True)
class Close:
    """End the loop. Unfinished requests are simply gone."""


Command = Submit | Cancel | Withdraw | DropUnowned | SetLimits | Close


class Backend:
    """A scheduler, a runner and a name. `begin` and `finish` are the two halves of a step."""

    def __init__(self, name: BackendName, scheduler: Scheduler, runner: Runner, clock: Clock) -> None:
        self.name = name
        self.scheduler = scheduler
        self.runner = runner
        self.clock = clock
        self._sequence = 0
        self._ended: list[Ending] = []
        self._withdrawn: list[RequestId] = []
        self._touched = False  # something changed that no report has told yet

    def handle(self, command: Command) -> None:
        """Apply one command between two steps."""
        match command:
            case Submit(request, estimate):
                self.scheduler.add(request, estimate)
                self._touched = True
            case Cancel(request_id):
                if self.scheduler.abort(request_id):
                    self.runner.forget(request_id)
                    self._ended.append(Ending(request_id, FinishReason.ABORT))
                    self._touched = True
            case Withdraw(request_id):
                if self.scheduler.withdraw(request_id):
                    self._withdrawn.append(request_id)
                    self._touched = True
            case DropUnowned():
                self.scheduler.kv.drop_unowned()
                self._touched = True
            case SetLimits(limits):
                self.scheduler.set_limits(limits.slots, limits.token_budget)
            case Close():
                pass  # the transport ends the loop

    def begin(self) -> Batch:
        """Decide the next step; an empty batch means nothing to compute."""
        return self.scheduler.schedule(self.clock.now_s())

    def finish(
        self,
        batch: Batch,
        ids: list[int],
        started_s: float,
        finished_s: float,
        other_busy: bool | None = None,
        overhead_s: float = 0.0,
    ) -> StepReport:
        """Book the results of a step and describe it."""
        outcome = self.scheduler.update(batch, ids)
        for ending in outcome.ended:
            self.runner.forget(ending.request_id)
        return self._report(batch, outcome, started_s, finished_s, other_busy, overhead_s)

    def idle_report(self) -> StepReport | None:
        """A report without a step, when commands alone changed something."""
        if not self._touched:
            return None
        now = self.clock.now_s()
        return self._report(Batch([]), StepOutcome(), now, now)

    def _report(
        self,
        batch: Batch,
        outcome: StepOutcome,
        started_s: float,
        finished_s: float,
        other_busy: bool | None = None,
        overhead_s: float = 0.0,
    ) -> StepReport:
        admitted, adopted = self.scheduler.take_admissions()
        blocks, added, removed = self.scheduler.kv.take_changes()
        report = StepReport(
            backend=self.name,
            sequence=self._sequence,
            started_s=started_s,
            finished_s=finished_s,
            decode_rows=batch.decode_rows,
            context_tokens=batch.context_tokens,
            prefill_tokens=batch.prefill_tokens,
            prefill_chunks=batch.prefill_chunks,
            prefill_attention=batch.prefill_attention,
            overhead_s=overhead_s,
            tokens=tuple(outcome.tokens),
            admitted=admitted,
            cache_hits=adopted,
            ended=(*self._ended, *outcome.ended),
            withdrawn=tuple(self._withdrawn),
            load=self.scheduler.load(),
            blocks=blocks,
            hashes_added=added,
            hashes_removed=removed,
            other_busy=other_busy,
            threads=getattr(self.runner, "threads", 0),  # emulated runners have none
        )
        self._sequence += 1
        self._ended.clear()
        self._withdrawn.clear()
        self._touched = False
        return report


REST_S = 5.0  # without a command before the runner rests


def serve(
    backend: Backend,
    receive: Callable[[float | None], Command | None],
    send: Callable[[StepReport], None],
    others_busy: Callable[[], bool | None] = lambda: None,
) -> None:
    """Run a backend until `Close`.

    `receive(timeout_s)` returns a command, or None when none came in time (0 = only look, None = wait).
    `others_busy` tells whether another backend computed while the last step began, where that is known.
    """
    ended_s: float | None = None  # the last step, if there was work left behind it
    while True:
        if backend.scheduler.idle:
            ended_s = None
        command = receive(REST_S if backend.scheduler.idle else 0)
        if command is None and backend.scheduler.idle:
            backend.runner.rest()
            command = receive(None)
        while command is not None:
            if isinstance(command, Close):
                return
            backend.handle(command)
            command = receive(0)
        # A step's time runs from the end of the one before: what a request waits for is all of it, commands,
        # booking and sending included. Behind a step of half a millisecond on a GPU that is a third more.
        started_s = backend.clock.now_s() if ended_s is None else ended_s
        batch = backend.begin()
        if not batch.rows:
            ended_s = None
            report = backend.idle_report()
            if report is not None:
                send(report)
            continue
        run_s = backend.clock.now_s()
        ids = backend.runner.run(batch)
        ended_s = backend.clock.now_s()
        send(backend.finish(batch, ids, started_s, ended_s, others_busy(), run_s - started_s))
