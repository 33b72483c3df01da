"""Several backends at once on true lengths, jumping from event to event: the yardstick's fast simulator.

It follows the same rules as the scheduler, step for step, and gives the per-step simulator's times (the
tests hold them against each other), but costs about a millisecond a burst. That is what makes it possible
to try every placement of a burst.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.profiling.step_time import StepTimeModel
from engine.routing.forecast import Job, steps_until

_NEVER = float("inf")


@dataclass(slots=True)
class Lane:
    """One backend: its model, what waits, what runs. Times are seconds since the burst began."""

    model: StepTimeModel
    slots: int
    token_budget: int
    free_blocks: int
    waiting: list[Job]  # in order of arrival
    now: float = 0.0
    filling: list[list[int]] = field(default_factory=list)  # [key, prefill, decode, context, blocks]
    running: list[list[int]] = field(default_factory=list)
    first: dict[int, float] = field(default_factory=dict)
    finish: dict[int, float] = field(default_factory=dict)
    rows_s: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rows_s = [self.model.rows_s(n) for n in range(self.slots + 1)]
        self.waiting = list(reversed(self.waiting))

    @property
    def busy(self) -> bool:
        return bool(self.filling or self.running)

    @property
    def wakes_s(self) -> float:
        """When an idle lane has something to do."""
        return max(self.now, self.waiting[-1].ready_s) if self.waiting else _NEVER

    def admit(self) -> None:
        """Take what has arrived, as slots and blocks allow."""
        while self.waiting and len(self.running) + len(self.filling) < self.slots:
            head = self.waiting[-1]
            if head.ready_s > self.now or (head.blocks > self.free_blocks and self.busy):
                return
            self.waiting.pop()
            self.free_blocks -= head.blocks
            self.filling.append([head.key, max(1, head.prefill), head.decode, head.context, head.blocks])

    def next_event_s(self, slow: float) -> float:
        """End of the present phase at this speed: a prefill step, or decode until something changes."""
        if self.filling:
            return self.now + self._fill_s() * slow
        steps, per_step, growth = self._decode_phase(slow)
        return self.now + steps * per_step + growth * steps * (steps - 1) / 2

    def advance(self, until_s: float, slow: float) -> None:
        """Go on to the first end of a step at or after `until_s`, or to the end of the phase."""
        if self.filling:
            self._fill(slow)
            return
        steps, per_step, growth = self._decode_phase(slow)
        until = steps_until(until_s - self.now, per_step, growth) if until_s > self.now else 1
        steps = min(steps, until)
        self.now += steps * per_step + growth * steps * (steps - 1) / 2
        ended = False
        for row in self.running:
            row[2] -= steps
            row[3] += steps
            ended = ended or row[2] <= 0
        if ended:
            self._end()

    def _decode_phase(self, slow: float) -> tuple[int, float, float]:
        """(steps until an event, seconds of the first, growth a step) of decode-only steps."""
        n = len(self.running)
        context = sum(row[3] for row in self.running) + n
        per_step = (self.rows_s[n] + self.model.context_s * context) * slow
        growth = self.model.context_s * n * slow
        steps = min(row[2] for row in self.running)
        if self.waiting and n < self.slots and self.waiting[-1].ready_s > self.now:
            steps = min(steps, steps_until(self.waiting[-1].ready_s - self.now, per_step, growth))
        return steps, per_step, growth

    def _chunks(self) -> list[tuple[list[int], int]]:
        budget = self.token_budget - len(self.running)
        out = []
        for row in self.filling:
            if budget <= 0:
                break
            length = min(budget, row[1])
            out.append((row, length))
            budget -= length
        return out

    def _fill_s(self) -> float:
        n, chunks = len(self.running), self._chunks()
        return self.model.step_s(
            n,
            sum(row[3] for row in self.running) + n,
            sum(length for _, length in chunks),
            sum(length * (row[3] + length / 2) for row, length in chunks),
            len(chunks),
            others_busy=False,
        )

    def _fill(self, slow: float) -> None:
        """One step that prefills."""
        seconds, chunks = self._fill_s() * slow, self._chunks()
        self.now += seconds
        for row in self.running:
            row[2] -= 1
            row[3] += 1
        for row, length in chunks:
            row[1] -= length
            row[3] += length
            if row[1] == 0:
                self.first[row[0]] = self.now
                row[2] -= 1
                self.running.append(row)
        self.filling = [row for row in self.filling if row[1] > 0]
        self._end()

    def _end(self) -> None:
        for row in self.running:
            if row[2] <= 0:
                self.finish[row[0]] = self.now
                self.free_blocks += row[4]
        self.running = [row for row in self.running if row[2] > 0]


def run_together(lanes: Sequence[Lane]) -> None:
    """Run every lane dry. A step is slowed by 1 + chi when another lane is busy as it begins."""
    while True:
        for lane in lanes:
            if not lane.busy and lane.waiting:
                # An idle lane sleeps until its next arrival; the others may not run past that moment.
                others = [other.now for other in lanes if other is not lane and other.busy]
                if lane.wakes_s <= min(others, default=_NEVER):
                    lane.now = lane.wakes_s
            if lane.waiting:
                lane.admit()
        busy = [lane for lane in lanes if lane.busy]
        if not busy:
            if all(not lane.waiting for lane in lanes):
                return
            continue
        slow = [1 + lane.model.interference if len(busy) > 1 else 1.0 for lane in busy]
        events = [lane.next_event_s(s) for lane, s in zip(busy, slow, strict=True)]
        sleeping = [lane.wakes_s for lane in lanes if not lane.busy]
        horizon = min([*events, *sleeping])
        # The lane that is furthest behind goes first, and only to the first step that ends past the horizon.
        behind = min(range(len(busy)), key=lambda i: busy[i].now)
        busy[behind].advance(horizon, slow[behind])


def make_lanes(
    models: Sequence[tuple[StepTimeModel, int, int, int]], jobs: Sequence[Sequence[Job]]
) -> list[Lane]:
    """`models`: (step times, slots, token budget, KV blocks) for each backend, with its jobs."""
    return [Lane(m, s, b, k, list(j)) for (m, s, b, k), j in zip(models, jobs, strict=True)]
