"""Tokens per second against numbers worked out by hand."""

import numpy as np
import pytest
from scenes import GPU, arrive, board, burst, step

from app.series.throughput import BINS, Throughput


def made(*gaps: tuple[float, float]) -> Throughput:
    series = Throughput()
    series.restart(100.0)
    for since, until in gaps:
        series.add("gpu", 100 + since, 100 + until)
    return series


def test_a_token_is_spread_over_its_own_gap():
    rates = made((0.0, 0.4)).rates("gpu", 100.4)
    assert rates == pytest.approx([2.5] * 4)
    assert made((0.05, 0.15)).rates("gpu", 100.2) == pytest.approx([5.0, 5.0])


def test_every_token_is_counted_once():
    series = made(*((i * 0.0464, (i + 1) * 0.0464) for i in range(50)))
    assert series.rates("gpu", 110.0).sum() * 0.1 == pytest.approx(50)
    assert series.rates("gpu", 110.0).max() >= series.rates("gpu", 110.0).mean()


def test_the_unfinished_step_is_not_drawn():
    series = made((0.0, 0.35))
    series.step("gpu", 100.35)
    assert len(series.rates("gpu", 102.0, busy=("gpu",))) == 3
    assert len(series.rates("gpu", 102.0)) == 20  # idle: nothing came, and that is known


def test_the_range_doubles_and_then_slides():
    series = made((0.0, 0.1))
    ranges = [series.window(100 + t) for t in (1, 4, 4.1, 9, 20, 40, 75)]
    assert ranges == [(0, 4), (0, 4), (0, 8), (0, 16), (0, 32), (0, 60), (15, 75)]


def test_no_more_than_a_minute_is_kept():
    series = made((0.0, 0.1), (30.5, 30.6), (90.0, 90.1))
    rates = series.rates("gpu", 190.1)
    assert len(rates) == BINS
    assert rates.sum() * 0.1 == pytest.approx(2)
    assert series.start_s() == pytest.approx(90.1 - BINS * 0.1, abs=0.2)


def test_a_token_longer_than_the_ring_does_no_harm():
    assert np.isfinite(made((0.0, 500.0)).rates("gpu", 700.0)).all()


def test_tokens_of_one_instant_and_before_the_origin():
    series = made((0.25, 0.25), (-2.0, -1.0), (-0.1, 0.1))
    assert series.rates("gpu", 100.3).sum() * 0.1 == pytest.approx(1.5)


def test_the_board_feeds_it():
    shown = board(
        burst(1, 10.0), arrive(1, 10.0), step(GPU, 10.0, 10.2, 1, admit=(1,)), step(GPU, 10.2, 10.3, 1)
    )
    assert shown.throughput.rates("gpu", 10.5, shown.busy()) == pytest.approx([5.0, 5.0, 10.0])
