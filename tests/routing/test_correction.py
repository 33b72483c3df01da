"""The live correction of step times."""

import random

import pytest

from engine.profiling.step_time import StepTimeModel
from engine.request import BackendName
from engine.routing.correction import HALF_LIFE_STEPS, PriceCheck
from engine.step_report import StepReport

MODEL = StepTimeModel(((1, 0.010), (2, 0.012)), interference=0.5)


def step(seconds: float, rows: int = 1) -> StepReport:
    return StepReport(BackendName("cpu"), 0, 0.0, seconds, decode_rows=rows)


def test_a_model_that_is_right_is_left_alone() -> None:
    check = PriceCheck()
    for _ in range(500):
        check.step(step(0.010), MODEL, False)
    assert check.factor == pytest.approx(1.0) and check.error == pytest.approx(0.0)


def test_half_of_a_change_is_taken_over_after_the_half_life() -> None:
    check = PriceCheck()
    for _ in range(HALF_LIFE_STEPS):
        check.step(step(0.020), MODEL, False)
    assert check.factor == pytest.approx(1.5, rel=1e-6)
    assert check.error > 0.05, "while it still moves, the model is known to be off"


def test_interference_is_part_of_the_prediction() -> None:
    check = PriceCheck()
    for _ in range(300):
        check.step(step(0.015), MODEL, True)
    assert check.factor == pytest.approx(1.0)


def test_one_interruption_counts_for_little() -> None:
    check = PriceCheck()
    check.step(step(100.0), MODEL, False)
    assert check.factor < 1.02


@pytest.mark.parametrize("off", [0.7, 1.3])
def test_a_model_that_is_wrong_by_30_percent_is_put_right_within_a_few_half_lives(off: float) -> None:
    """Steps of every kind take `off` times what the model says, give or take a tenth."""
    check, draws = PriceCheck(), random.Random(0)
    for i in range(8 * HALF_LIFE_STEPS):
        report = step(MODEL.rows_s(1 + i % 2) * off * draws.uniform(0.9, 1.1), 1 + i % 2)
        check.step(report, MODEL, False)
    assert check.factor == pytest.approx(off, rel=0.02)
    assert check.error < 0.03, "and what is left is noise that a forecast averages out"


def test_the_error_falls_again_once_the_model_has_been_put_right() -> None:
    check, highest = PriceCheck(), 0.0
    for _ in range(8 * HALF_LIFE_STEPS):
        check.step(step(0.013), MODEL, False)
        highest = max(highest, check.error)
    assert highest > 0.04 and check.error < 0.01
