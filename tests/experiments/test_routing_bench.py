"""The router's own bench: what it times, what it compares, and how near the forecast is."""

import json
import random
from collections.abc import Sequence
from itertools import count

import pytest

from engine.cli import main
from engine.experiments.routing_bench import (
    AIM_MEAN,
    AIM_P95,
    busy_router,
    decision_times,
    forecast_errors,
    random_load,
)
from engine.profiling.profile import BackendProfile, Profile, Rates, load_profile
from engine.profiling.step_time import StepTimeModel
from engine.routing.forecast import Forecast, Job, Track
from tests.builders import MEASURED, make_request

ONE_PRICE = StepTimeModel(((1, 0.008),), 5e-7, 4e-4)
FITTED = Profile(
    "fitted",
    "a test's own",
    "none",
    (
        BackendProfile("cpu", "cpu", "x", 4, 384, 1, Rates(900, 40), MEASURED),
        BackendProfile(
            "gpu", "gpu", "x", 4, 384, 1, Rates(2500, 120), StepTimeModel(((1, 0.008),), 5e-7, 4e-4)
        ),
    ),
)


@pytest.mark.parametrize("profile", [load_profile("batching-gpu"), FITTED], ids=["published", "fitted"])
def test_the_forecast_is_as_near_as_was_aimed(profile: Profile) -> None:
    found = forecast_errors(profile, 6)
    assert found.loads == 6 and found.requests > 50
    assert found.mean <= AIM_MEAN and found.p95 <= AIM_P95 and found.good


def test_a_forecast_that_is_too_hopeful_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = Track.ended

    def shorter(track: Track, queue: Sequence[Job] = ()) -> Forecast:
        cast = ended(track, queue)
        return Forecast(cast.first_s, {k: 0.9 * s for k, s in cast.finish_s.items()}, 0.9 * cast.clear_s)

    monkeypatch.setattr(Track, "ended", shorter)
    found = forecast_errors(FITTED, 2)
    assert not found.good and found.bias < -0.05 and found.mean > 0.05


def test_loads_are_alike_for_the_same_seed_and_as_large_as_said() -> None:
    first, again = (random_load(random.Random("x")) for _ in range(2))
    assert first == again
    sizes = [len(random_load(random.Random(i)).requests) for i in range(60)]
    assert min(sizes) >= 2 and max(sizes) <= 64 and max(sizes) > 50


@pytest.mark.parametrize("outstanding", [1, 8, 64])
def test_what_is_outstanding_is_there_and_stays(outstanding: int) -> None:
    router = busy_router(load_profile("batching-gpu"), outstanding, random.Random(0))
    for number in (1_000, 1_001):
        receipt = router.choose(make_request(number, 40), 1.0)
        assert sum(c.active + c.queued for c in receipt.candidates) == outstanding
        assert receipt.policy == "total-delay" and receipt.predicted_s is not None
        router.forget(receipt.chosen, receipt.request_id)


def test_times_are_of_the_decisions_alone() -> None:
    """A clock that counts its own reading: between two of a decision nobody else reads it."""
    ticks = count()
    found = decision_times(load_profile("batching-gpu"), 5, 4, clock=lambda: float(next(ticks)))
    assert (found.decisions, found.median_s, found.p95_s, found.good) == (5, 1.0, 1.0, False)


def test_the_command_prints_tables_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["bench", "routing", "--loads", "1", "--decisions", "3", "--profile", "batching-gpu"]
    assert main(argv) == 0
    table = capsys.readouterr().out
    assert "64 requests outstanding" in table and "SIMULATED" in table and "batching-gpu" in table
    assert main([*argv, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["aims"] == {"decision_s": 0.001, "forecast_mean": 0.02, "forecast_p95": 0.08}
    assert data["decisions"][0]["decisions"] == 3 and data["decisions"][0]["median_s"] > 0
    assert data["forecasts"][0]["loads"] == 1 and data["forecasts"][0]["simulated"] is True


@pytest.mark.parametrize("wrong", [["--loads", "0"], ["--decisions", "-1"], ["--outstanding", "0"]])
def test_nonsense_is_one_sentence(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "routing", *wrong]) == 2
    assert "makes no sense" in capsys.readouterr().err
