"""The fast simulator against the per-step one, the best placement, the bound, and regret."""

import random

import pytest

from engine.experiments.regret import explain, random_burst, regret_rows
from engine.profiling.profile import load_profile
from engine.request import SamplingParams
from engine.simulation.oracle import Yardstick, outcome_of
from engine.simulation.simulate import Simulation, fake_tokenise, simulate
from engine.workloads.presets import PlannedRequest, Workload, make_workload

APPLE, BATCHING = load_profile("apple-m2-published"), load_profile("batching-gpu")


@pytest.mark.parametrize("profile", [APPLE, BATCHING], ids=lambda p: p.name)
def test_the_fast_simulator_agrees_with_the_steps(profile) -> None:  # type: ignore[no-untyped-def]
    errors = []
    for seed in range(12):
        draw = random.Random(seed)
        workload = random_burst(seed)
        placement = tuple(draw.randrange(2) for _ in workload.requests)
        yardstick = Yardstick(profile, workload)
        quick, exact = yardstick.quick(placement), yardstick.exact(placement)
        errors.append(abs(quick.makespan_s / exact.makespan_s - 1))
    assert sum(errors) / len(errors) < 0.02 and max(errors) < 0.08


def test_the_best_of_the_published_burst() -> None:
    best = Yardstick(APPLE, make_workload("seed-warm-8", fake_tokenise)).best()
    assert best.proven and best.tried == 2**8
    assert best.makespan_s == pytest.approx(8.48, abs=0.01)
    assert best.lower_bound_s <= best.makespan_s


@pytest.mark.parametrize("profile", [APPLE, BATCHING], ids=lambda p: p.name)
def test_nothing_beats_the_best_or_the_bound(profile) -> None:  # type: ignore[no-untyped-def]
    for seed in range(3):
        workload = random_burst(900 + seed, most=6)
        best = Yardstick(profile, workload).best()
        for policy in ("total-delay", "isolated-rates", "round-robin", "forced-cpu", "forced-gpu"):
            made = outcome_of(simulate(profile, workload, policy))
            assert made.makespan_s >= 0.98 * best.makespan_s  # the search ranks on the fast simulator
            assert made.mean_e2e_s >= 0.98 * best.mean_e2e_s
            assert made.makespan_s >= best.lower_bound_s


def test_beyond_enumeration_the_search_still_beats_every_policy_nearly() -> None:
    workload = make_workload("hit-97", fake_tokenise)
    best = Yardstick(APPLE, workload).best()
    assert not best.proven
    for policy in ("total-delay", "forced-gpu"):
        made = outcome_of(simulate(APPLE, workload, policy))
        assert best.makespan_s <= 1.03 * made.makespan_s and best.mean_e2e_s <= 1.03 * made.mean_e2e_s


def test_regret_orders_the_policies() -> None:
    rows = {r.policy: r.to_json()["regret_mean_e2e"] for r in regret_rows(BATCHING, 6)}
    default, worst = rows["total-delay"], rows["forced-cpu"]
    assert isinstance(default, dict) and isinstance(worst, dict)
    assert 0 <= default["mean"] <= 0.03 < worst["mean"]
    assert "total-delay, true lengths" in rows


def test_the_split_of_a_regret_adds_up() -> None:
    workload = make_workload("seed-warm-8", fake_tokenise)
    result = Simulation(APPLE, "isolated-rates").run(workload)
    data = explain(APPLE, workload, "isolated-rates", result)
    for parts in data["regret"].values():  # type: ignore[attr-defined]
        known = sum(v for k, v in parts.items() if k not in ("total", "unproven_gap"))
        assert parts["total"] == pytest.approx(known, abs=1e-9)


def test_hidden_lengths_are_hidden_from_the_default_but_not_from_the_oracle() -> None:
    """Two bursts that differ only in a hidden length are routed alike until that length has shown."""

    def burst(first: int) -> Workload:
        budget = SamplingParams(temperature=0.0, top_p=1.0, max_new_tokens=256)
        planned = [
            PlannedRequest(
                0.01 * i, tuple(range(100 * i, 100 * i + 40)), budget, "a", first if i == 0 else 100
            )
            for i in range(6)
        ]
        return Workload("x", 0, tuple(planned), (), "")

    routes = []
    for first in (250, 60):
        result = Simulation(APPLE, "total-delay").run(burst(first))
        requests = result["requests"]
        assert isinstance(requests, list)
        routes.append([(r["backend"], r["receipt"]["candidates"][0]["delay_s"]) for r in requests])
    assert routes[0] == routes[1]
