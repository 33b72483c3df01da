"""The step-time model: table, interpolation, extension, terms."""

from dataclasses import replace

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


TABLED = replace(MODEL, prefill_table_s=((8, 0.004), (16, 0.005), (64, 0.006), (512, 0.030)), start_s=1e-6)


@pytest.mark.parametrize(
    ("tokens", "seconds"),
    [(0, 0), (1, 0.004), (8, 0.004), (12, 0.0045), (64, 0.006), (288, 0.018), (512, 0.030), (960, 0.054)],
)
def test_prefill_is_interpolated_where_a_table_was_measured(tokens: int, seconds: float) -> None:
    assert TABLED.tokens_s(tokens) == pytest.approx(seconds)
    assert MODEL.tokens_s(tokens) == pytest.approx(tokens * 1e-4)


@pytest.mark.parametrize("starts", [(0,), (512,), (500, 500), (16, 16, 16)])
def test_what_chunks_find_in_the_cache_follows_from_their_mean_position(starts: tuple[int, ...]) -> None:
    length, chunks = 20, len(starts)
    attention = float(sum(length * (start + length / 2) for start in starts))
    with_starts = TABLED.chunks_s(chunks * length, attention, chunks)
    without = replace(TABLED, start_s=0.0).chunks_s(chunks * length, attention, chunks)
    assert with_starts - without == pytest.approx(1e-6 * sum(starts))


def test_the_step_has_the_parts_of_its_chunks_and_nothing_of_none() -> None:
    assert TABLED.chunks_s(0, 0.0, 0) == 0.0
    alone = TABLED.step_s(0, 0, 100, 5000.0, 1, False)
    assert alone == pytest.approx(TABLED.chunks_s(100, 5000.0, 1))
    beside = TABLED.step_s(2, 1000, 100, 5000.0, 1, False)
    assert beside == pytest.approx(alone + TABLED.step_s(2, 1000, 0, 0.0, 0, False) + MODEL.mixed_s)


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
