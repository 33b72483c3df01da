"""The step-time model: table, interpolation, extension, terms."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.profiling.step_time import StepTimeModel

MODEL = StepTimeModel(
    ((1, 0.010), (2, 0.012), (4, 0.020), (8, 0.022)),
    context_s=1e-6,
    prefill_s=1e-4,
    attention_s=1e-8,
    mixed_s=1e-3,
    chunk_s=2e-3,
    interference=0.1,
)


@pytest.mark.parametrize(
    ("rows", "seconds"), [(0, 0), (1, 0.010), (2, 0.012), (3, 0.016), (4, 0.020), (6, 0.021), (8, 0.022)]
)
def test_rows_are_interpolated(rows: int, seconds: float) -> None:
    assert MODEL.rows_s(rows) == pytest.approx(seconds)


def test_rows_beyond_the_table_go_on_as_it_ends() -> None:
    assert MODEL.rows_s(12) == pytest.approx(0.024)


def test_a_table_of_one_entry_is_flat() -> None:
    assert StepTimeModel(((1, 0.5),)).rows_s(9) == 0.5


def test_the_terms_add_up() -> None:
    decode = MODEL.step_s(2, 1000, 0, 0.0, 0, False)
    prefill = MODEL.step_s(0, 0, 100, 5000.0, 1, False)
    assert decode == pytest.approx(0.012 + 0.001)
    assert prefill == pytest.approx(0.01 + 5e-5 + 2e-3)
    assert MODEL.step_s(2, 1000, 100, 5000.0, 1, False) == pytest.approx(decode + prefill + 1e-3)
    assert MODEL.step_s(2, 1000, 0, 0.0, 0, True) == pytest.approx(1.1 * decode)


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(
    st.dictionaries(st.integers(2, 64), st.floats(1e-6, 10), max_size=6),
    st.floats(1e-6, 10),
    st.integers(1, 256),
)
def test_no_table_makes_time_run_backwards(table: dict[int, float], first: float, rows: int) -> None:
    """A table may fall (kernels switch), and beyond its end it must not fall to nothing."""
    model = StepTimeModel(tuple(sorted({1: first, **table}.items())))
    assert model.step_s(rows, 0, 0, 0.0, 0, False) > 0
