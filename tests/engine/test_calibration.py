"""Calibration through a core in the test's hands: order, pauses, locks and what cannot be measured."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from filelock import FileLock

from engine.burst import Burst
from engine.events import BackendState, BurstDone, Notice, RequestRouted, SetupStep
from engine.request import FinishReason
from tests.engine.by_hand import House

Make = Callable[..., House]


@pytest.fixture
def make(house_of: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Make:
    monkeypatch.setenv("OFFRAMP_CACHE_DIR", str(tmp_path))
    return partial(house_of, calibrated=False, policy="isolated-rates")


def infos(house: House) -> dict[str, tuple[float | None, float | None]]:
    units = house.core.supervisor.units
    return {n: (u.info.prefill_rate, u.info.decode_rate) for n, u in units.items()}


def settled(house: House) -> bool:
    return not house.core.calibrator._stages


def calibrating(house: House) -> list[str]:
    return [n for n in ("cpu", "gpu") if house.state(n) is BackendState.CALIBRATING]


def test_both_are_measured_and_come_out_right(make: Make) -> None:
    house = make()
    at_once = 0
    while not settled(house):
        house.pump(until=lambda: True)
        stage = house.core.calibrator._stages[:1]
        if stage and stage[0].kind != "pair":
            at_once = max(at_once, len(calibrating(house)))
    assert at_once == 1  # one at a time, but for the last stage
    rates = infos(house)
    assert rates["gpu"][1] == pytest.approx(1000, rel=0.02)
    assert rates["cpu"][1] == pytest.approx(500, rel=0.02)
    assert rates["cpu"][0] == pytest.approx(200_000, rel=0.02)
    assert house.core.router.fastest_first() == ["gpu", "cpu"]
    told = [e for e in house.events if isinstance(e, SetupStep) and e.state == "done"]
    assert {e.key for e in told} >= {"calibrate:cpu", "calibrate:gpu"} or len(told) >= 2
    assert [house.state(n) for n in ("cpu", "gpu")] == [BackendState.READY] * 2


def test_what_was_measured_is_kept(make: Make) -> None:
    house = make()
    house.pump(until=lambda: settled(house))
    again = make()
    assert settled(again) and infos(again) == infos(house)


def test_a_prompt_comes_first_and_the_measurement_begins_again_later(make: Make) -> None:
    house = make()
    house.turn()
    house.pump(until=lambda: calibrating(house) == ["cpu"])
    for _ in range(5):
        house.hand("cpu").step()
    house.turn()
    request_id = house.chat(new=4)
    assert calibrating(house) == []
    receipt = next(e.receipt for e in house.events if isinstance(e, RequestRouted))
    assert receipt.policy == "least-requests" and receipt.reason.startswith("Not calibrated yet")
    house.pump(until=lambda: house.done(request_id) is not None)
    assert calibrating(house) == []  # quiet for a moment first
    house.wait_s(0.3)
    assert calibrating(house) == []
    house.wait_s(0.3)
    assert calibrating(house) == ["cpu"]
    house.pump(until=lambda: settled(house))
    assert infos(house)["cpu"][1] == pytest.approx(500, rel=0.02)


@pytest.mark.parametrize("steps", [0, 1, 3, 8, 12, 60, 150])
def test_a_pause_at_any_moment_leaves_nothing_behind(make: Make, steps: int) -> None:
    house = make()
    for _ in range(steps):
        for name in ("cpu", "gpu"):
            house.hand(name).step()
        house.turn()
    request_id = house.chat(new=3, only="gpu")
    house.pump(until=lambda: house.done(request_id) is not None)
    assert house.reasons([request_id]) == [FinishReason.LENGTH]
    house.pump(until=lambda: settled(house))
    house.check()
    assert infos(house)["gpu"][1] == pytest.approx(1000, rel=0.02)
    assert not [e for e in house.core.ledger.entries.values() if not e.number]


def test_another_window_that_measures_is_waited_for(make: Make, tmp_path: Path) -> None:
    other = FileLock(tmp_path / "calibration.lock")
    with other:
        house = make()
        for _ in range(5):
            house.wait_s(1)
        assert calibrating(house) == []
    house.wait_s(1)
    assert calibrating(house) == ["cpu"]
    house.pump(until=lambda: settled(house))
    with other.acquire(timeout=0):
        pass  # given back at the end


def test_a_death_ends_its_measurement_and_the_other_goes_on(make: Make) -> None:
    house = make()
    house.pump(until=lambda: calibrating(house) == ["cpu"])
    house.hand("cpu").step()
    house.hand("cpu").die()
    house.turn()
    house.pump("gpu", until=lambda: settled(house))
    assert infos(house)["cpu"] == (None, None)
    assert infos(house)["gpu"][1] == pytest.approx(1000, rel=0.02)


def test_nothing_is_measured_while_a_burst_runs(make: Make) -> None:
    """Not even between two of its requests, when nothing is open."""
    house = make()
    house.pump(until=lambda: settled(house))
    house.core.bursts.start(Burst("seed-warm-8", 0), None)
    house.core.recalibrate()
    seen = []

    def over() -> bool:
        burst = house.core.bursts.burst
        if burst is not None and burst.phase != "waiting":
            seen.extend(calibrating(house))
        return any(isinstance(e, BurstDone) for e in house.events)

    house.pump(until=over)
    assert seen == []
    house.pump(until=lambda: settled(house))


def test_recalibrate_in_the_middle_of_a_burst_waits(make: Make) -> None:
    house = make(decode_s=0.0001)  # each request is over long before the next arrives
    house.pump(until=lambda: settled(house))
    house.core.bursts.start(Burst("seed-warm-8", 0), None)
    house.pump(until=lambda: house.core.bursts.burst.phase == "running")  # type: ignore[union-attr]
    house.core.recalibrate()
    seen = []

    def over() -> bool:
        done = any(isinstance(e, BurstDone) for e in house.events)
        if not done:
            seen.extend(calibrating(house))
        return done

    while not over():
        for name in ("cpu", "gpu"):
            house.hand(name).step()
        house.wait_s(0.01)
    assert seen == []
    house.pump(until=lambda: settled(house))


@pytest.mark.parametrize("limits", [{"context_tokens": 256}, {"kv_blocks": 20}, {"context_tokens": 32}])
def test_what_does_not_fit_is_told_and_given_up(make: Make, limits: dict[str, int]) -> None:
    """512 tokens in and 128 out need 640 tokens of context and 40 blocks."""
    house = make(**limits)
    house.pump(until=lambda: settled(house))
    assert infos(house) == {"cpu": (None, None), "gpu": (None, None)}
    assert any("too small" in n.message for n in house.events if isinstance(n, Notice))
    states = [e.state for e in house.events if isinstance(e, SetupStep)]
    assert "failed" in states  # so that nobody waits for it
    request_id = house.chat("hello", new=5)
    house.pump(until=lambda: house.done(request_id) is not None)
    assert house.reasons([request_id]) == [FinishReason.LENGTH]
    house.check()
