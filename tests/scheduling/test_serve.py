"""The loop of a backend: what a step's time counts."""

from collections.abc import Callable

from engine.backend import Backend, Close, Command, Submit, serve
from engine.clock import VirtualClock
from engine.request import BackendName
from engine.scheduling.batch import Batch
from engine.step_report import StepReport
from tests.builders import make_request, make_scheduler

RUN_S, SEND_S, IDLE_S = 0.010, 0.004, 5.0


class _Runner:
    block_bytes = 1

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock

    def run(self, batch: Batch) -> list[int]:
        self._clock.advance_to(self._clock.now_s() + RUN_S)
        return [7 for row in batch.rows if row.samples]

    def forget(self, request_id: object) -> None: ...

    def rest(self) -> None: ...

    def close(self) -> None: ...


def served(give: Callable[[VirtualClock, int], Command | None]) -> list[StepReport]:
    """Reports of a backend on a hand-moved clock; `give` hands out commands, by the steps done so far."""
    clock, reports = VirtualClock(), list[StepReport]()
    backend = Backend(BackendName("x"), make_scheduler(), _Runner(clock), clock)

    def send(report: StepReport) -> None:
        clock.advance_to(clock.now_s() + SEND_S)
        reports.append(report)

    serve(backend, lambda _timeout: give(clock, len(reports)), send)
    return [r for r in reports if r.decode_rows or r.prefill_tokens]


def test_a_step_lasts_from_the_end_of_the_one_before_and_waiting_for_work_counts_nowhere() -> None:
    asked = [make_request(1, new=4), make_request(2, new=4)]

    def give(clock: VirtualClock, steps: int) -> Command | None:
        if steps == 0 and len(asked) == 2:
            return Submit(asked.pop(0), 0)
        if steps == 4:
            if not asked:
                return None
            clock.advance_to(clock.now_s() + IDLE_S)  # nothing to do: the backend waits in `receive`
            return Submit(asked.pop(0), 0)
        return Close() if steps == 8 else None

    steps = served(give)
    # Each reply: a first step from its own beginning, then three that also bear what the last one left to do.
    expected = 2 * [RUN_S, *3 * [RUN_S + SEND_S]]
    assert [round(s.duration_s, 9) for s in steps] == [round(s, 9) for s in expected]
    gaps = [b.started_s - a.finished_s for a, b in zip(steps, steps[1:], strict=False)]
    assert [round(g, 9) for g in gaps] == [0, 0, 0, round(IDLE_S + SEND_S, 9), 0, 0, 0]
    assert [round(s.overhead_s, 9) for s in steps] == 2 * [0.0, *3 * [SEND_S]]
