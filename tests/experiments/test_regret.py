"""Regret of runs in which a waiting request moved: compared is where, and from when, it really ran."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from engine.cli import main
from engine.experiments.hindsight import regret, what_if
from engine.experiments.regret import explain, moved_at_s, random_burst
from engine.experiments.repeats import forecast_errors
from engine.profiling.profile import load_profile
from engine.recording import read_run
from engine.simulation.simulate import Simulation, fake_tokenise
from engine.workloads.presets import Workload, make_workload
from tests.runs import write_run

APPLE = load_profile("apple-m2-published")
PARTS = ("model_error", "placed_otherwise", "length_error", "greedy_choice")
# With the default policy on this profile, requests move in these.
PRESETS, SMALL = ("hit-97", "labels-and-stories"), "random-351"


@cache
def made(name: str = SMALL) -> tuple[Workload, dict[str, Any]]:
    """A burst and how it went, simulated. The small one has 8 requests: every placement is tried at once."""
    workload = random_burst(351, 8) if name == SMALL else make_workload(name, fake_tokenise)
    return workload, dict(Simulation(APPLE, "total-delay").run(workload))


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run file of the small burst."""
    monkeypatch.setattr("tests.runs.make_workload", lambda *_: made()[0])
    return write_run(tmp_path, policy="total-delay")


def mean_e2e_s(result: dict[str, Any]) -> float:
    return float(sum(r["e2e_s"] for r in result["requests"]) / len(result["requests"]))


@pytest.mark.parametrize("name", [SMALL, *PRESETS])
def test_a_run_with_moves_is_repeated_as_it_was(name: str) -> None:
    """Placed at arrival where it ended, a request would never have waited elsewhere: the run is another."""
    workload, result = made(name)
    given_s = moved_at_s(result)
    assert given_s, "this burst is here for its moves"
    names = [b.name for b in APPLE.backends]
    placement = [names.index(r["backend"]) for r in result["requests"]]
    again = dict(Simulation(APPLE, "forced-gpu").run(workload, placement, given_s=given_s))
    # A move that is told to the microsecond may meet the beginning of a step or just miss it.
    assert mean_e2e_s(again) == pytest.approx(mean_e2e_s(result), rel=1e-3)
    assert again["makespan_s"] == pytest.approx(result["makespan_s"], rel=1e-3)
    at_arrival = dict(Simulation(APPLE, "forced-gpu").run(workload, placement))
    assert abs(mean_e2e_s(at_arrival) / mean_e2e_s(result) - 1) > 0.01


@pytest.mark.parametrize("slower", [1.0, 1.1])
@pytest.mark.parametrize("policy", ["total-delay", "isolated-rates"])
def test_the_parts_of_a_regret_add_up_to_the_whole(policy: str, slower: float) -> None:
    """Whatever policy it is said to have run under, so that the simulated placement differs as well."""
    workload, result = made()
    rows = [{**r, "e2e_s": r["e2e_s"] * slower} for r in result["requests"]]
    measured = {**result, "requests": rows, "makespan_s": result["makespan_s"] * slower}
    data: Any = explain(APPLE, workload, policy, measured)
    best = data["best"]
    for goal, parts in data["regret"].items():
        assert parts["total"] == pytest.approx(sum(parts[p] for p in PARTS), abs=1e-9)
        error_s = parts["model_error"] * best[f"{goal}_s"]
        assert error_s == pytest.approx((slower - 1) * data["simulated_same_placement"][f"{goal}_s"])
    assert data["regret"]["mean_e2e"]["placed_otherwise"] != 0, "it knew other lengths, or decides otherwise"


def test_without_a_result_the_parts_that_need_one_are_not_known() -> None:
    data: Any = explain(APPLE, make_workload("seed-warm-8", fake_tokenise), "total-delay", None)
    for parts in data["regret"].values():
        assert parts["model_error"] is None and parts["placed_otherwise"] is None
        assert parts["total"] == pytest.approx(parts["length_error"] + parts["greedy_choice"])


def test_a_run_that_does_not_say_when_it_moved_is_not_compared_with_another() -> None:
    workload, result = made()
    rows = [{k: v for k, v in r.items() if k != "routed_s"} for r in result["requests"]]
    data: Any = explain(APPLE, workload, "total-delay", {**result, "requests": rows})
    assert data["simulated_same_placement"] == {} and data["measured"]
    assert all(p["model_error"] is None for p in data["regret"].values())


def test_the_commands_read_the_moves_from_the_file(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["regret", str(recorded), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["regret"]["mean_e2e"]["model_error"] == pytest.approx(0, abs=1e-6)
    assert data["simulated_same_placement"]["makespan_s"] == made()[1]["makespan_s"]
    assert regret(recorded)["simulated_same_placement"] == data["simulated_same_placement"]
    assert main(["regret", str(recorded)]) == 0
    assert "model error +0.0%, placed otherwise" in capsys.readouterr().out


def test_what_ifs_leave_the_moves_of_the_others_as_they_were(recorded: Path) -> None:
    result = read_run(recorded).result
    assert result is not None
    rows = result["requests"]
    offsets, placement = [r["arrival_s"] for r in rows], [r["backend"] for r in rows]
    (moved,) = moved_at_s(result) or {}
    _total, same, stayed, *_ = what_if(recorded, offsets, placement, moved, policies=True)
    assert same["mean_e2e_s"] == pytest.approx(mean_e2e_s(result))
    places = [*placement[: moved - 1], "gpu", *placement[moved:]]
    assert [r["backend"] for r in stayed["requests"]] == places
    _total, other = what_if(recorded, offsets, placement, 1, policies=False)
    late = other["requests"][moved - 1]
    assert late["ttft_s"] > (moved_at_s(result) or {})[moved] - offsets[moved - 1]


def test_a_forecast_for_a_backend_that_was_left_judges_nobody() -> None:
    """What the move itself foresaw does."""
    _, result = made()
    rows = [{**r, "predicted_last_arrival_s": r["e2e_s"]} for r in result["requests"]]
    (moved,) = moved_at_s(result) or {}
    rows[moved - 1]["predicted_last_arrival_s"] = 1000.0
    found = forecast_errors([{**result, "requests": rows}])
    assert found["at_routing"]["requests"] == len(rows)
    assert found["at_last_arrival"] == {"requests": len(rows) - 1, "mean": 0.0, "p95": 0.0}
