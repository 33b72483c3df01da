"""When threads are given up, and that it is told."""

from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
import torch

from engine.execution import torch_runner
from engine.execution.thread_guard import RETRY, WINDOW, ThreadGuard
from engine.execution.torch_runner import make_runner
from tests.support import Stream, generate, spec, tiny_model


def notes(guard: ThreadGuard, times: list[float], rows: int = 4) -> int:
    """How often the guard changed the number of threads."""
    return sum(guard.note(rows, seconds) for seconds in times)


EVEN, UNEVEN = [1.0, 1.1] * WINDOW, [1.0] * 9 + [8.0]


def test_even_steps_keep_all_threads() -> None:
    guard = ThreadGuard(4)
    assert notes(guard, EVEN) == 0 and guard.threads == 4


def test_uneven_steps_cost_a_thread_a_window() -> None:
    guard = ThreadGuard(3)
    assert notes(guard, UNEVEN * (WINDOW // 10)) == 1 and guard.threads == 2
    assert notes(guard, UNEVEN * WINDOW) == 1 and guard.threads == 1  # the last one stays


def test_a_lone_slow_step_and_other_row_counts_do_not_count() -> None:
    guard = ThreadGuard(2)
    assert notes(guard, [1.0] * (WINDOW - 1) + [50.0]) == 0
    for n in range(WINDOW):
        assert notes(guard, [1.0, 9.0], rows=n % 2 + 1) == 0


def test_steps_of_one_thread_say_nothing_about_sharing() -> None:
    guard = ThreadGuard(2, {1: 1, 4: 2})
    assert not any(guard.note(1, seconds, shared=False) for seconds in UNEVEN * WINDOW)
    assert (guard.count(1), guard.count(4), guard.count(8)) == (1, 2, 2)


def test_a_thread_given_up_is_tried_again_ever_more_rarely() -> None:
    guard = ThreadGuard(2)
    for patience in (RETRY, 2 * RETRY):
        assert notes(guard, UNEVEN * (WINDOW // 10)) == 1 and guard.threads == 1
        assert notes(guard, [1.0] * (patience - 1)) == 0 and guard.count(4) == 1
        assert guard.note(4, 1.0) and guard.threads == guard.count(4) == 2
    assert notes(guard, EVEN) == 0 and guard.threads == 2


def test_the_runner_goes_on_with_fewer_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = torch.get_num_threads()
    ticks = count()  # a clock on which every tenth step is slow

    def now_s() -> float:
        step, end = divmod(next(ticks), 2)
        return step * 100.0 + end * (8.0 if step % 10 == 9 else 1.0)

    monkeypatch.setattr(torch_runner, "_now_s", now_s)
    monkeypatch.setattr(torch_runner, "plan_threads", lambda *_: {1: 2})
    tiny_model("llama").save_pretrained(tmp_path)
    try:
        runner = make_runner(replace(spec(), threads=2), tmp_path, None, "auto", 128)
        assert runner.threads == torch.get_num_threads() == 2
        generate(runner, [Stream(1, [3, 4, 5], list(range(8)))], WINDOW + 2)
        assert runner.threads == torch.get_num_threads() == 1
        runner.close()
    finally:
        torch.set_num_threads(before)
