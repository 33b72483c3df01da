"""The weights of total-delay: the line that says them, what each changes, and that they are written down."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.cli import main
from engine.errors import ConfigError
from engine.events import RequestRouted
from engine.profiling.profile import load_profile
from engine.profiling.step_time import StepTimeModel
from engine.recording import read_run, recorded_weights
from engine.routing.forecast import Job, forecast
from engine.routing.pricing import Outlook, cost_s, prices, total_delay
from engine.simulation.simulate import fake_tokenise, simulate
from engine.weights import DEFAULT_WEIGHTS, PolicyWeights, parse_weights
from engine.workloads.presets import make_workload
from tests.engine.by_hand import House
from tests.engine.conftest import Make

APPLE = "apple-m2-published"


@pytest.mark.parametrize(
    "weights",
    [
        DEFAULT_WEIGHTS,
        PolicyWeights(0.0, 0.0, False, False),
        PolicyWeights(others=0.1 + 0.2, margin=1 / 3),
        PolicyWeights(10.0, 1.0),
    ],
)
def test_the_line_comes_back_as_it_was(weights: PolicyWeights) -> None:
    assert parse_weights(str(weights)) == weights


def test_what_is_not_named_keeps_its_default() -> None:
    assert str(DEFAULT_WEIGHTS) == "others=1,margin=0.05,guards=on,moves=on"
    assert parse_weights(" moves = off , others=0.5") == PolicyWeights(others=0.5, moves=False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "unclear"),
        ("others", "unclear"),
        ("others=1,", "unclear"),
        ("other=1", "no weight named 'other'"),
        ("others=much", "no number"),
        ("others=nan", "from 0 to 10"),
        ("others=-1", "from 0 to 10"),
        ("others=11", "from 0 to 10"),
        ("margin=5", "share from 0 to 1"),
        ("moves=yes", "moves=on or moves=off"),
        ("moves=on,moves=off", "twice"),
    ],
)
def test_a_mistake_is_told_in_one_sentence(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        parse_weights(text)
    assert str(caught.value).endswith(".")
    assert str(caught.value).count(". ") == 0


# --- what each changes -----------------------------------------------------------------------------------


def outlook(decode_s: float, waiting: int) -> Outlook:
    model = StepTimeModel(((1, decode_s),), prefill_s=1e-6)
    queue = [Job(i, 10, 100, 0, 1) for i in range(waiting)]
    return Outlook(model, 1, 512, [], queue, 1_000, Job(99, 10, 100, 0, 1), 100, 0.0, 0.0)


def goes(slow_s: float, weights: PolicyWeights) -> bool:
    both = [outlook(0.010, 2), outlook(slow_s, 0)]
    return total_delay(both, prices(both), 0, weights=weights) == 1


def test_a_margin_is_what_leaving_must_save() -> None:
    # On the fastest it ends after 3 s, on the other one after 2.5 s: a sixth is saved.
    assert goes(0.025, DEFAULT_WEIGHTS)
    assert not goes(0.025, PolicyWeights(margin=0.2))
    assert goes(0.0295, PolicyWeights(margin=0.0))
    assert not goes(0.0295, DEFAULT_WEIGHTS)


def test_without_guards_only_the_margin_decides() -> None:
    both = [outlook(0.010, 2), outlook(0.025, 0)]
    assert total_delay(both, prices(both), 0) == 1
    # A reply that may well be four times as long would be the one for which everybody waits at the end.
    long = [both[0], replace(both[1], new_p90=400)]
    assert total_delay(long, prices(long), 0) == 0
    assert total_delay(long, prices(long), 0, weights=PolicyWeights(guards=False)) == 1


def test_others_weigh_as_much_as_they_are_told_to() -> None:
    table = prices([outlook(0.010, 2), outlook(0.025, 0)])
    for price in table:
        assert cost_s(price, DEFAULT_WEIGHTS) == price.delay_s, "to the bit"
        assert cost_s(price, PolicyWeights(others=0)) == price.e2e_s
        half = cost_s(price, PolicyWeights(others=0.5))
        assert half == pytest.approx((price.e2e_s + price.delay_s) / 2)


def test_without_moves_no_head_leaves_its_queue() -> None:
    workload = make_workload("seed-warm-48", fake_tokenise)

    def moved(weights: PolicyWeights) -> int:
        result: dict[str, Any] = simulate(load_profile(APPLE), workload, "total-delay", weights=weights)
        return sum(r["receipt"]["moved_from"] is not None for r in result["requests"])

    assert moved(DEFAULT_WEIGHTS) and not moved(PolicyWeights(moves=False))


def test_without_moves_a_death_still_moves_who_waits(house_of: Callable[..., House]) -> None:
    house = house_of(policy="total-delay")
    house.core.bursts.weigh(PolicyWeights(moves=False))
    ids = [house.chat(f"prompt {i}", new=4, only="gpu") for i in range(6)]  # 4 slots
    house.hand("gpu").step()
    house.turn()
    house.hand("gpu").die()
    house.turn()
    house.pump(*house.alive())
    receipts = [e.receipt for e in house.events if isinstance(e, RequestRouted)]
    moved = [r for r in receipts if r.moved_from is not None]
    assert [r.request_id for r in moved] == ids[4:]
    assert all(r.weights == PolicyWeights(moves=False) for r in moved)


def test_a_backend_may_run_more_than_its_slots_in_a_forecast() -> None:
    """Fewer slots count from now on; who runs already runs to the end."""
    model = StepTimeModel(((1, 0.01), (4, 0.02)))
    active = [Job(i, 0, 10, 16, 2) for i in range(4)]
    cast = forecast(model, 1, 512, active, [Job(9, 10, 10, 0, 2)], 100)
    assert [cast.finish_s[i] for i in range(4)] == pytest.approx([0.2] * 4)
    assert cast.finish_s[9] > 0.2


# --- written down ----------------------------------------------------------------------------------------


def test_receipts_tell_weights_and_margin() -> None:
    weights = PolicyWeights(margin=0.1)
    workload = make_workload("seed-warm-8", fake_tokenise)
    result: dict[str, Any] = simulate(load_profile(APPLE), workload, "total-delay", weights=weights)
    assert result["weights"] == str(weights)
    for request in result["requests"]:
        receipt = request["receipt"]
        cpu, gpu = (next(c for c in receipt["candidates"] if c["backend"] == n) for n in ("cpu", "gpu"))
        assert receipt["weights"] == str(weights)
        assert gpu["margin_s"] is None, "the fastest needs none"
        assert cpu["margin_s"] >= 0.1 * gpu["e2e_s"] * (1 - 1e-9)
    plain: dict[str, Any] = simulate(load_profile(APPLE), workload, "isolated-rates", weights=weights)
    assert all(r["receipt"]["weights"] is None for r in plain["requests"])


def test_a_run_keeps_its_weights_and_a_replay_uses_them(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    it = make(policy="total-delay")
    it.engine.set_weights(PolicyWeights(others=0.25))
    path = Path(str(it.burst_done(it.engine.run_burst("seed-warm-8")).result["run_file"]))
    assert recorded_weights(read_run(path).head) == PolicyWeights(others=0.25)
    assert recorded_weights({}) == DEFAULT_WEIGHTS, "an older run"
    for options, wanted in (([], "others=0.25"), (["--weights", "moves=off"], "moves=off")):
        assert main(["replay", str(path), "--json", *options]) == 0
        assert json.loads(capsys.readouterr().out)["weights"] == str(parse_weights(wanted))
    with pytest.raises(ConfigError):
        it.engine.set_weights(PolicyWeights(others=-1))


def test_weights_changed_during_a_burst_keep_it_out_of_comparisons(make: Make) -> None:
    it = make(policy="total-delay")
    run_id = it.engine.run_burst("seed-warm-8")
    it.wait(lambda e: isinstance(e, RequestRouted))
    it.engine.set_weights(PolicyWeights(moves=False))
    assert it.burst_done(run_id).result["mixed"] is True


def test_the_command_line_takes_weights(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["simulate", "--preset", "seed-warm-8", "--json"]
    assert main([*command, "--weights", "margin=1"]) == 0
    assert json.loads(capsys.readouterr().out)["weights"] == "others=1,margin=1,guards=on,moves=on"
    assert main([*command, "--weights", "margin=x"]) == 2
    assert "margin=x is no number" in capsys.readouterr().err
