"""Intervals cover at the stated rate, and verdicts follow the rule, on data with known effects."""

import numpy as np
import pytest

from engine.experiments.statistics import LEAST_PAIRS, Verdict, compare, mean_interval


@pytest.mark.parametrize(("pairs", "least"), [(5, 0.93), (7, 0.93), (10, 0.93), (20, 0.93)])
def test_intervals_cover_the_true_mean_at_the_stated_rate(pairs: int, least: float) -> None:
    draw = np.random.default_rng(pairs)
    trials, covered = 500, 0
    for seed in range(trials):
        interval = mean_interval(draw.normal(1.0, 0.5, pairs).tolist(), seed)
        assert interval is not None
        covered += interval[0] <= 1.0 <= interval[1]
    assert least <= covered / trials <= 0.985


def runs(draw: np.random.Generator, pairs: int, mean: float, noise: float) -> list[float]:
    return (mean * (1 + noise * draw.standard_normal(pairs))).tolist()


def test_equal_settings_differ_no_more_often_than_one_time_in_twenty() -> None:
    draw = np.random.default_rng(0)
    wrong = sum(
        compare(runs(draw, 10, 10.0, 0.02), runs(draw, 10, 10.0, 0.02), True, seed).verdict
        is not Verdict.SAME
        for seed in range(400)
    )
    assert wrong / 400 <= 0.075


def test_three_runs_never_claim_a_change_of_3_percent_at_2_percent_noise() -> None:
    draw = np.random.default_rng(1)
    for seed in range(300):
        c = compare(runs(draw, 3, 10.0, 0.02), runs(draw, 3, 9.7, 0.02), True, seed)
        assert c.verdict is Verdict.NONE
        assert c.low is not None and c.low <= c.difference


def test_ten_pairs_find_a_large_change() -> None:
    draw = np.random.default_rng(2)
    found = [
        compare(runs(draw, 10, 10.0, 0.02), runs(draw, 10, 9.0, 0.02), True, seed).verdict
        for seed in range(50)
    ]
    assert found == [Verdict.BETTER] * 50


@pytest.mark.parametrize(("lower", "verdict"), [(True, Verdict.BETTER), (False, Verdict.WORSE)])
def test_the_direction_of_a_metric_decides(lower: bool, verdict: Verdict) -> None:
    before, after = [10.0, 10.1, 9.9, 10.0, 10.2], [9.0, 9.1, 8.9, 9.0, 9.1]
    assert compare(before, after, lower).verdict is verdict
    assert compare(after, before, lower).verdict is not verdict


def test_runs_without_noise() -> None:
    same = compare([2.0] * 5, [2.0] * 5, True)
    assert (same.verdict, same.low, same.high) == (Verdict.SAME, 0.0, 0.0)
    assert compare([2.0] * 5, [1.9] * 5, True).verdict is Verdict.BETTER
    assert compare([2.0] * 4, [1.0] * 4, True).verdict is Verdict.NONE
    assert LEAST_PAIRS == 5


def test_shares_are_of_the_baselines_mean() -> None:
    c = compare([4.0, 6.0], [5.0, 6.0], True)
    assert c.share(c.difference) == pytest.approx(0.1)
    assert compare([0.0], [1.0], True).share(1.0) is None
    assert mean_interval([1.0]) is None


def test_the_same_seed_gives_the_same_interval() -> None:
    values = [1.0, 2.0, 4.0, 3.0, 2.5]
    assert mean_interval(values, 3) == mean_interval(values, 3)
