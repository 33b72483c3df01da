"""The live correction of step times."""

import pytest

from engine.events import StepReport
from engine.profiling.step_time import StepTimeModel
from engine.request import BackendName
from engine.routing.correction import HALF_LIFE_STEPS, PriceCheck

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
