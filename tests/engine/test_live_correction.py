"""A profile that is wrong by 30 %: seen, shown, and put right in every later forecast."""

from collections.abc import Callable

import pytest

from engine.events import PriceNews
from engine.profiling.profile import parse_profile
from engine.profiling.step_time import StepTimeModel
from engine.request import BackendName, RequestId
from engine.routing.correction import HALF_LIFE_STEPS
from engine.routing.forecast import Job
from engine.routing.pricing import Outlook, prices, total_delay
from engine.weights import DEFAULT_WEIGHTS
from tests.engine.by_hand import House
from tests.engine.watched import profile_json

GPU = BackendName("gpu")


@pytest.fixture
def house(house_of: Callable[..., House]) -> House:
    return house_of(policy="total-delay")


def slower_than_known(house: House, times: float) -> None:
    """The gpu's steps really take `times` as long as its profile says."""
    real = parse_profile(profile_json(decode_s=0.001 * times, prefill=400_000 / times), "real")
    house.hand("gpu").runner.profile = real.backend("gpu")


def foreseen(house: House, request_id: RequestId) -> float:
    found = house.core.ledger.entries[request_id].receipt
    assert found is not None and found.predicted_s is not None
    return found.predicted_s


@pytest.mark.parametrize("times", [0.7, 1.3])
def test_the_factor_finds_the_truth_and_the_forecast_follows(house: House, times: float) -> None:
    slower_than_known(house, times)
    first = house.chat(new=200, only="gpu")
    house.pump()
    for _ in range(5):
        house.chat(new=HALF_LIFE_STEPS, only="gpu")
        house.pump()
    news = [e for e in house.events if isinstance(e, PriceNews) and e.backend == GPU]
    assert news[-1].factor == pytest.approx(times, rel=0.06), "shown, if half a second late"
    assert [n.factor > 1 for n in news] == [times > 1] * len(news)
    last = house.chat(new=200, only="gpu")
    house.pump()
    e2e_s = house.done(last).timings.e2e_s  # type: ignore[union-attr]
    assert e2e_s is not None
    assert foreseen(house, last) == pytest.approx(e2e_s, rel=0.03)
    assert abs(foreseen(house, first) / e2e_s - 1) > 0.2, "before, it was off by as much as the profile"
    check = house.core.router.check(GPU)
    assert check is not None and check.factor == pytest.approx(times, rel=0.02)
    assert check.error < 0.05


def outlook(decode_s: float, waiting: int, error: float) -> Outlook:
    model = StepTimeModel(((1, decode_s),), prefill_s=1e-6)
    queue = [Job(i, 10, 100, 0, 1) for i in range(waiting)]
    return Outlook(model, 1, 512, [], queue, 1_000, Job(99, 10, 100, 0, 1), 100, 0.0, 0.0, error=error)


@pytest.mark.parametrize("slower_has_it", [False, True])
def test_an_uncertain_price_must_promise_more_before_a_request_leaves_the_fastest(
    slower_has_it: bool,
) -> None:
    """h is 5 %, or twice the live error of either backend where that is more."""

    def goes(error: float) -> bool:
        errors = (0.0, error) if slower_has_it else (error, 0.0)
        both = [outlook(0.010, 2, errors[0]), outlook(0.022, 0, errors[1])]
        return total_delay(both, prices(both), 0) == 1

    table = prices([outlook(0.010, 2, 0.0), outlook(0.022, 0, 0.0)])
    gain = (table[0].delay_s - table[1].delay_s) / table[0].e2e_s
    assert gain > DEFAULT_WEIGHTS.margin == 0.05
    assert goes(0.0) and goes(0.025) and goes(gain / 2 - 0.005)
    assert not goes(gain / 2 + 0.005)
