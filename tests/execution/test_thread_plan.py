"""Threads for each kind of step: what counts as a kind, which count wins, what the runner does with it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.execution import thread_plan, torch_runner
from engine.execution.thread_plan import (
    PROMPT,
    ROWS,
    describe,
    fastest_count,
    kind_of,
    ladder,
    plan_threads,
    trial_batch,
)
from engine.execution.torch_runner import make_runner
from engine.scheduling.batch import Batch
from tests.support import Stream, spec, tiny_model


@pytest.fixture(autouse=True)
def same_threads_afterwards() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


class Machine:
    """A clock, and steps whose time depends on the count of threads in use."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: dict[int, float]) -> None:
        self.now_s, self.count, self.seconds = 0.0, 0, seconds
        self.tried: list[int] = []
        monkeypatch.setattr(thread_plan, "_now_s", lambda: self.now_s)

    def use(self, count: int) -> None:
        self.count = count

    def step(self) -> None:
        self.tried.append(self.count)
        self.now_s += self.seconds[self.count]

    def choose(self, threads: int) -> int:
        return fastest_count(self.step, threads, self.use)


def rows(count: int, length: int = 1) -> list[Stream]:
    return [Stream(n, [5] * length, [n]) for n in range(count)]


def test_a_step_belongs_to_the_largest_kind_that_it_reaches() -> None:
    for count, kind in ((1, 1), (2, 2), (3, 2), (4, 4), (7, 4), (8, 8), (30, 8)):
        assert kind_of(Batch([s.row() for s in rows(count)])) == kind
    mixed = [*rows(3), Stream(9, [5, 6], [9])]
    assert kind_of(Batch([s.row() for s in mixed])) == PROMPT


def test_the_ladder_ends_at_one() -> None:
    assert [ladder(n) for n in (1, 2, 7, 8)] == [[1], [2, 1], [7, 3, 1], [8, 4, 2, 1]]


@pytest.mark.parametrize(
    ("seconds", "threads", "want"),
    [
        ({2: 0.02, 1: 0.04}, 2, 2),
        ({2: 0.08, 1: 0.03}, 2, 1),  # threads that wait for each other
        ({2: 0.030, 1: 0.0305}, 2, 1),  # a near tie leaves a core free
        ({8: 0.03, 4: 0.02, 2: 0.022, 1: 0.05}, 8, 4),
    ],
)
def test_the_fastest_count_wins(
    monkeypatch: pytest.MonkeyPatch, seconds: dict[int, float], threads: int, want: int
) -> None:
    assert Machine(monkeypatch, seconds).choose(threads) == want


def test_a_lone_slow_step_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, {2: 0.01, 1: 0.02})
    plain, seen = machine.step, 0

    def step() -> None:
        nonlocal seen
        seen += 1
        plain()
        machine.now_s += 0.1 * (seen == 7)  # the third turn's first

    machine.step = step  # type: ignore[method-assign]
    assert machine.choose(2) == 2


def test_slow_models_are_tried_briefly_and_hopeless_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(monkeypatch, {8: 1.0, 4: 1.9, 2: 4.0, 1: 8.0})
    assert machine.choose(8) == 8
    assert machine.tried == [8, 4, 2, 1] * 2 + [8]


def test_trials_fit_the_cache_and_the_context() -> None:
    for kind in (PROMPT, *ROWS):
        for blocks in (1, 3, 8, 384):
            batch = trial_batch(kind, blocks, 4096)
            if batch is None:
                assert blocks < kind
                continue
            used = [block for row in batch.rows for block in row.blocks]
            assert len(set(used)) == len(used) and max(used) < blocks
            assert all(row.context <= 16 * len(row.blocks) for row in batch.rows)
            assert kind_of(batch) == kind and len(batch.rows) == max(1, kind)
    assert trial_batch(1, 384, 15) is None
    short = trial_batch(4, 384, 40)
    assert short is not None and max(row.context for row in short.rows) <= 40


def test_one_thread_needs_no_trial() -> None:
    def run(_: Batch) -> None:
        raise AssertionError("nothing is to be tried")

    assert plan_threads(run, 1, 4, 384, 4096) == {PROMPT: 1, 1: 1, 2: 1, 4: 1}


def test_the_plan_covers_the_slots_and_leaves_all_threads() -> None:
    seen: list[int] = []
    plan = plan_threads(lambda batch: seen.append(torch.get_num_threads()), 2, 5, 384, 4096)
    assert set(plan) == {PROMPT, 1, 2, 4} and set(plan.values()) <= {1, 2}
    assert set(seen) == {1, 2} and torch.get_num_threads() == 2


def test_the_plan_in_words() -> None:
    assert describe({PROMPT: 4, 1: 1, 2: 2}) == "1 row 1, 2 rows 2, prompts 4"


def test_the_runner_follows_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_runner, "plan_threads", lambda *_: {PROMPT: 2, 1: 1, 2: 2})
    tiny_model("llama").save_pretrained(tmp_path)
    runner = make_runner(replace(spec(), threads=2), tmp_path, None, "auto", 128)
    for streams, count in ((rows(1, 9), 2), (rows(1), 1), (rows(2), 2), (rows(5), 2), (rows(1), 1)):
        runner.run(Batch([s.row() for s in streams]))
        assert torch.get_num_threads() == count
    assert runner.threads == 2
    runner.close()


def test_the_trial_leaves_no_trace_in_replies(tmp_path: Path) -> None:
    """The cache that the trials wrote to gives the same logits as a fresh one."""
    tiny_model("llama").save_pretrained(tmp_path)
    logits = []
    for threads in (1, 2):
        runner = make_runner(replace(spec(), threads=threads), tmp_path, None, "auto", 128)
        logits.append(runner.logits(Batch([s.row() for s in rows(2, 13)])))
        runner.close()
    torch.testing.assert_close(logits[0], logits[1], atol=1e-4, rtol=1e-4)
