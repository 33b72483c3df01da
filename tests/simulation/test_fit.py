"""The fit of step times: what it recovers, what it shrugs off, and what it never gives."""

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import ProfileError
from engine.profiling.fit import Sample, fit_steps, slow_down
from engine.profiling.points import step_points
from engine.profiling.profile import BackendProfile, Profile, Rates, parse_profile, profile_json
from engine.profiling.step_time import StepTimeModel

TRUE = StepTimeModel(
    ((1, 0.010), (2, 0.013), (3, 0.014), (4, 0.020)),
    context_s=2e-6,
    prefill_s=1e-4,
    attention_s=5e-8,
    mixed_s=3e-3,
    chunk_s=2e-3,
    prefill_table_s=(
        (8, 0.020), (16, 0.024), (32, 0.030), (64, 0.036), (128, 0.060), (256, 0.075), (512, 0.130)
    ),
    start_s=6e-6,
)  # fmt: skip
REPEATS = 5


def features() -> list[Sample]:
    """Steps as a calibration has them, without times."""
    out = []
    for context in (80, 530, 1040):
        out += [Sample(n, n * context, 0, 0.0, 0, 0.0, f"{n} rows at {context}") for n in (1, 2, 3, 4)]
        out += [chunks(n, 16, context - 16, f"{n} rows at {context}") for n in (1, 2, 3, 4)]
    for start in (0, 512, 1024):
        out += [
            chunks(1, size, start, f"prefill {size} at {start}") for size in (8, 16, 32, 64, 128, 256, 512)
        ]
    for rows in (1, 3):
        out.append(replace(chunks(1, 100, 460, "mixed, short"), rows=rows, context_tokens=rows * 20))
        out.append(replace(chunks(1, 500, 512, "mixed, long"), rows=rows, context_tokens=rows * 20))
    return out


def chunks(count: int, length: int, start: int, point: str) -> Sample:
    return Sample(0, 0, count * length, float(count * length * (start + length / 2)), count, 0.0, point)


def measured(noise: float = 0.0, interrupted: float = 0.0, seed: int = 0) -> list[Sample]:
    """Every step `REPEATS` times; some take five times as long because something else ran."""
    rng, out = random.Random(seed), []
    for s in features():
        for i in range(REPEATS):
            factor = rng.uniform(1 - noise, 1 + noise) * (5.0 if i and rng.random() < interrupted else 1.0)
            out.append(replace(s, seconds=s.predicted_s(TRUE) * factor))
    return out


def worst(model: StepTimeModel) -> float:
    return max(abs(s.predicted_s(model) / s.predicted_s(TRUE) - 1) for s in features())


def test_a_model_that_is_true_is_found() -> None:
    fit = fit_steps(measured())
    assert worst(fit.model) < 0.01
    assert fit.error < 0.003 and fit.spread == 0.0
    assert fit.points == len(features())


def test_interruptions_count_for_nothing() -> None:
    fit = fit_steps(measured(noise=0.03, interrupted=0.2))
    assert worst(fit.model) < 0.06
    assert fit.spread > 0.3, "and the spread of the repeats says that there were some"


def test_what_is_held_out_is_no_part_of_its_own_prediction() -> None:
    """A model with too few terms for the truth errs more on points that it has not seen."""
    wild = [
        replace(s, seconds=s.seconds * random.Random(f"{s.point}{s.rows}{s.chunks}").uniform(0.5, 1.5))
        for s in measured()
    ]
    fit = fit_steps(wild)
    assert fit.error > 0.05
    assert fit.held_out_error > 1.1 * fit.error


@pytest.mark.parametrize("keep", [0, 1, 11])
def test_too_few_steps_are_refused(keep: int) -> None:
    with pytest.raises(ProfileError, match="Too few"):
        fit_steps([s for s in measured() if s.rows][:keep])


def test_prefill_alone_is_refused() -> None:
    with pytest.raises(ProfileError, match="Too few"):
        fit_steps([s for s in measured() if not s.rows])


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(st.lists(st.floats(1e-5, 10.0), min_size=len(features()), max_size=len(features())))
def test_no_times_give_a_model_below_nothing_or_one_that_falls(times: list[float]) -> None:
    steps = [replace(s, seconds=t) for s, t in zip(features(), times, strict=True)]
    model = fit_steps(steps).model
    scalars = (
        model.context_s,
        model.prefill_s,
        model.attention_s,
        model.mixed_s,
        model.chunk_s,
        model.start_s,
    )
    assert min(scalars) >= 0
    for table in (model.decode_s, model.prefill_table_s):
        values = [seconds for _, seconds in table]
        assert values == sorted(values) and values[0] >= 0
    for tokens in (1, 20, 512, 2000):  # the bound of the yardstick rests on it
        assert model.prefill_s * tokens <= model.tokens_s(tokens) * (1 + 1e-9)
    backend = BackendProfile("cpu", "cpu", "x", 4, 384, 1, Rates(1, 1), model)
    data = json.loads(json.dumps(profile_json(Profile("local", "t", "s", (backend,)))))
    assert parse_profile(data, "kept").backends == (backend,)


def test_interference_is_told_from_an_error_of_the_model() -> None:
    alone = [replace(s, seconds=1.3 * s.predicted_s(TRUE)) for s in features() if s.rows]
    beside = [replace(s, seconds=1.2 * s.seconds) for s in alone]
    assert slow_down(TRUE, alone, beside) == pytest.approx(0.2)
    assert slow_down(TRUE, [], beside) == pytest.approx(0.56)
    assert slow_down(TRUE, alone, []) == 0.0
    assert slow_down(TRUE, beside, alone) == 0.0, "faster beside another one is noise"


@pytest.mark.parametrize("slots", [1, 2, 4, 8, 32])
@pytest.mark.parametrize(("context", "blocks"), [(4096, 384), (2048, 100), (700, 384), (128, 384), (40, 8)])
def test_every_point_fits_where_it_is_to_run(slots: int, context: int, blocks: int) -> None:
    for point in step_points(1000, slots, context, blocks, 0):
        assert len(point.prompts) <= max(slots, 2)
        for prompt in point.prompts:
            assert len(prompt) + point.new_tokens <= min(context, blocks * 16)


def test_every_prefill_length_is_warm_before_it_counts() -> None:
    seen: set[int] = set()
    for point in step_points(1000, 4, 4096, 384, 0):
        if not point.measured:
            seen |= {len(p) for p in point.prompts}
        elif point.what.startswith("prefill") and "behind" not in point.what:
            assert {len(p) for p in point.prompts} <= seen
