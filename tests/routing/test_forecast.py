"""The forecast against the scheduler itself on a virtual clock: same rules, so the same times."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.backend import Backend, Submit
from engine.clock import VirtualClock
from engine.execution.profile_runner import ProfileRunner
from engine.kv.manager import KvManager, blocks_for
from engine.profiling.profile import BackendProfile, Rates
from engine.profiling.step_time import StepTimeModel
from engine.request import BackendName
from engine.routing.forecast import Job, forecast
from engine.scheduling.policies import make_policy
from engine.scheduling.scheduler import Scheduler
from tests.builders import make_request

MODEL = StepTimeModel(((1, 0.004), (4, 0.010)), 1e-6, 2e-4, 1e-7, 1e-3, 2e-3)
Work = Sequence[tuple[int, int]]  # (prompt tokens, new tokens)


def truth(work: Work, slots: int, budget: int, blocks: int) -> tuple[dict[int, float], dict[int, float]]:
    """First tokens and ends as the real scheduler on the real step times has them."""
    clock = VirtualClock()
    runner = ProfileRunner(BackendProfile("x", "gpu", "x", slots, blocks, 1, Rates(1, 1), MODEL))
    scheduler = Scheduler(KvManager(blocks, "x"), make_policy("fcfs"), slots, budget)
    backend = Backend(BackendName("x"), scheduler, runner, clock)
    for number, (prompt, new) in enumerate(work):
        backend.handle(Submit(make_request(number, prompt, new), 0))
    first: dict[int, float] = {}
    finish: dict[int, float] = {}
    while (batch := backend.begin()).rows:
        began_s, ids = clock.now_s(), runner.run(batch)
        clock.advance_to(began_s + runner.seconds(batch, False))
        report = backend.finish(batch, ids, began_s, clock.now_s())
        for request_id, _ in report.tokens:
            first.setdefault(request_id, report.finished_s)
        finish |= {e.request_id: report.finished_s for e in report.ended}
    return first, finish


def jobs(work: Work) -> list[Job]:
    return [Job(i, prompt, new, 0, blocks_for(prompt + new)) for i, (prompt, new) in enumerate(work)]


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(
    st.lists(st.tuples(st.integers(1, 200), st.integers(1, 60)), min_size=1, max_size=10),
    st.integers(1, 4),
    st.integers(16, 128),
    st.integers(0, 40),
)
def test_a_queue_ends_when_the_scheduler_ends_it(work: Work, slots: int, budget: int, spare: int) -> None:
    blocks = max(blocks_for(p + n) for p, n in work) + spare
    first, finish = truth(work, slots, budget, blocks)
    cast = forecast(MODEL, slots, budget, [], jobs(work), blocks)
    assert cast.first_s == pytest.approx(first)
    assert cast.finish_s == pytest.approx(finish)
    assert cast.clear_s == pytest.approx(max(finish.values()))


def test_a_correction_stretches_everything() -> None:
    work = [(100, 20), (50, 40)]
    one, two = (forecast(MODEL, 4, 64, [], jobs(work), 99, f) for f in (1.0, 1.5))
    assert two.clear_s == pytest.approx(1.5 * one.clear_s)


def test_what_is_not_there_yet_is_waited_for() -> None:
    cast = forecast(MODEL, 4, 64, [], [Job(1, 10, 5, 0, 1, ready_s=2.0)], 99)
    assert cast.first_s[1] > 2.0


def test_steps_that_cost_nothing_come_to_an_end() -> None:
    """A fit may price a decode step at 0."""
    free = StepTimeModel(((1, 0.0), (4, 0.0)))
    waiting = [Job(2, 10, 5, 0, 1, ready_s=2.0)]
    assert forecast(free, 4, 64, [Job(1, 0, 50, 10, 1)], waiting, 99).clear_s == 2.0
