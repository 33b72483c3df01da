"""Output-length estimates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.request import Request, RequestId, SamplingParams
from engine.routing.length import ESTIMATES, LengthEstimator


def request(tag: str = "", budget: int = 256, prompt: int = 32, **more: object) -> Request:
    sampling = SamplingParams(max_new_tokens=budget, **more)  # type: ignore[arg-type]
    return Request(RequestId(1), (1,) * prompt, sampling, 0.0, tag)


def seen(lengths: list[int], tag: str = "label") -> LengthEstimator:
    estimator = LengthEstimator()
    for n in lengths:
        estimator.observe(request(tag), n, censored=False)
    return estimator


def test_knowing_nothing_the_budget_is_the_estimate() -> None:
    left = LengthEstimator().remaining(request(budget=100), 30)
    assert (left.mean, left.p90) == (70.0, 70.0)


def test_a_class_is_learned_and_shrunk_by_its_count() -> None:
    few, many = (
        seen([10] * 2).remaining(request("label")).mean,
        seen([10] * 200).remaining(request("label")).mean,
    )
    assert 10 < many < 12 < few < 256


def test_classes_do_not_mix_once_known() -> None:
    estimator = seen([10] * 100)
    for _ in range(100):
        estimator.observe(request("story"), 200, censored=False)
    assert estimator.remaining(request("label")).mean == pytest.approx(10, abs=12)
    assert estimator.remaining(request("story")).mean == pytest.approx(200, abs=12)


def test_what_is_generated_already_is_taken_into_account() -> None:
    estimator = seen([10] * 50 + [200] * 50)
    fresh, later = estimator.remaining(request("label")), estimator.remaining(request("label"), 50)
    assert fresh.mean < 120 and later.mean == pytest.approx(150, abs=12)


def test_censored_replies_say_at_least() -> None:
    plain, censored = seen([50] * 40), seen([])
    for i in range(40):
        censored.observe(request("label"), 50 if i % 2 else 200, censored=i % 2 == 1)
    assert censored.remaining(request("label")).mean > plain.remaining(request("label")).mean + 50


def test_ignore_eos_runs_to_its_budget() -> None:
    assert seen([5] * 100).remaining(request("label", 128, ignore_eos=True)).mean == 128


def test_the_live_error_waits_for_some_replies() -> None:
    estimator = seen([10] * 7)
    assert estimator.live_error is None
    for _ in range(200):
        estimator.observe(request("label"), 10, censored=False)
    assert estimator.live_error is not None and estimator.live_error < 0.5


def test_kept_and_restored() -> None:
    estimator = seen([10, 20, 30] * 20)
    other = LengthEstimator()
    other.restore({**estimator.to_json(), "broken": [("x", None, 3)]})  # type: ignore[list-item]
    assert other.remaining(request("label")) == estimator.remaining(request("label"))


@given(
    kind=st.sampled_from(ESTIMATES),
    lengths=st.lists(st.tuples(st.integers(1, 256), st.booleans()), max_size=40),
    budget=st.integers(1, 300),
    generated=st.integers(0, 299),
)
def test_always_within_the_budget(
    kind: str, lengths: list[tuple[int, bool]], budget: int, generated: int
) -> None:
    estimator = LengthEstimator(kind)
    for n, censored in lengths:
        estimator.observe(request("a"), n, censored)
    left = estimator.remaining(request("a", budget), generated)
    assert 1 <= left.mean <= max(1, budget - generated) + 1e-9
    assert 1 <= left.p90 <= max(1, budget - generated) + 1e-9


def test_what_was_said_before_a_reply_ended_is_not_said_after_it() -> None:
    lengths, one = LengthEstimator(), request("label", budget=100)
    for length in (10, 20, 20, 30):
        before = lengths.remaining(one, 5)
        assert lengths.remaining(one, 5) == before
        lengths.observe(one, length, censored=False)
        fresh = LengthEstimator()
        fresh.restore(lengths.to_json())
        assert lengths.remaining(one, 5) == fresh.remaining(one, 5) != before
    again = LengthEstimator()
    again.remaining(one)
    again.restore(lengths.to_json())
    assert again.remaining(one) == lengths.remaining(one)
