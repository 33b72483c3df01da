"""Arrivals at a share of capacity: one number, from the profile at hand, in every command alike."""

import json
from pathlib import Path
from typing import Any

import pytest

from engine.cli import main
from engine.commands.burst import show
from engine.experiments.source import capacity_rps, preset_source
from engine.experiments.tables import all_policies
from engine.profiling.profile import load_profile, parse_profile
from engine.recording import read_head
from engine.simulation.capacity import preset_capacity_rps, served_rps
from engine.simulation.simulate import fake_tokenise, simulate
from engine.workloads.presets import DEFAULT_CAPACITY_RPS, PRESETS, make_workload
from tests.engine.watched import Watched, profile_json

PACED = [name for name, info in PRESETS.items() if info.paced]
FAST = parse_profile(profile_json(), "fast")


def test_the_presets_that_ask_for_it() -> None:
    assert PACED == ["bursty", "steady-0.5", "steady-0.8", "steady-1.0", "steady-1.2"]
    for name in PRESETS:
        slow, fast = (make_workload(name, fake_tokenise, 0, rps) for rps in (1.0, 2.0))
        moved = [r.offset_s for r in slow.requests] != [r.offset_s for r in fast.requests]
        assert moved == (name in PACED)
        assert (fast.capacity_rps, preset_capacity_rps(FAST, name) is None) == (
            (2.0, False) if name in PACED else (None, True)
        )


def test_it_is_the_fastest_backends_whatever_its_place_or_name() -> None:
    names = [b.name for b in FAST.backends]
    gpu = names.index("gpu")
    workload = make_workload("steady-1.0", fake_tokenise)
    assert preset_capacity_rps(FAST, "bursty") == served_rps(FAST, workload, gpu, 4)
    turned = {**profile_json(), "backends": profile_json()["backends"][::-1]}
    assert preset_capacity_rps(parse_profile(turned, "turned"), "bursty") == pytest.approx(
        preset_capacity_rps(FAST, "bursty")
    )
    assert served_rps(FAST, workload, 1 - gpu, 4) == pytest.approx(
        served_rps(FAST, workload, gpu, 4) / 2, rel=0.01
    )


def test_it_is_what_that_backend_serves_on_the_per_step_simulator() -> None:
    profile = load_profile("batching-gpu")
    capacity = preset_capacity_rps(profile, "steady-1.2")
    assert capacity is not None
    workload = make_workload("steady-1.2", fake_tokenise, 0, 50.0)  # all at once: never without work
    result: dict[str, Any] = simulate(profile, workload, "forced-gpu")
    assert len(workload.requests) / result["makespan_s"] == pytest.approx(capacity, rel=0.2)


def test_slots_change_it() -> None:
    apple = load_profile("apple-m2-published")
    one, four = (preset_capacity_rps(apple, "bursty", {"gpu": n}) for n in (1, 4))
    assert one is not None and four is not None and one > 2 * four
    assert preset_capacity_rps(apple, "bursty") == four
    assert preset_capacity_rps(apple, "bursty", {"cpu": 1}) == four


def test_a_sweep_counts_by_the_same_function() -> None:
    source = preset_source("steady-1.0", 3.0)
    assert capacity_rps(FAST, source, 1, 4) == preset_capacity_rps(FAST, "steady-1.0")


def simulated(capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, Any]:
    argv = ["simulate", "--profile", "batching-gpu", "--preset", "steady-0.8", "--json", *more]
    assert main(argv) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_simulate_states_and_uses_it(capsys: pytest.CaptureFixture[str]) -> None:
    profile = load_profile("batching-gpu")
    result = simulated(capsys)
    assert result["capacity_rps"] == preset_capacity_rps(profile, "steady-0.8")
    workload = make_workload("steady-0.8", fake_tokenise, 0, result["capacity_rps"])
    assert [r["arrival_s"] for r in result["requests"]] == pytest.approx(
        [r.offset_s for r in workload.requests]
    )
    assert simulated(capsys, "--slots", "gpu=1")["capacity_rps"] < result["capacity_rps"]
    show(result, as_json=False)
    assert f"{result['capacity_rps']:.3g} requests a second" in capsys.readouterr().out


def test_the_table_of_policies_states_and_uses_it() -> None:
    profile = load_profile("batching-gpu")
    row, fixed = all_policies(profile, ["steady-0.8", "seed-warm-8"], None, [0], ["forced-gpu"])
    workload = make_workload("steady-0.8", fake_tokenise, 0, preset_capacity_rps(profile, "steady-0.8"))
    alone: dict[str, Any] = simulate(profile, workload, "forced-gpu")
    assert row["capacity_rps"] == workload.capacity_rps and fixed["capacity_rps"] is None
    assert row["makespan_s"] == pytest.approx(alone["makespan_s"])


def test_a_burst_states_and_uses_it_also_in_its_file(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    try:
        watched.engine.wait_ready(10)
        done = watched.burst_done(watched.engine.run_burst("bursty", "forced-gpu"))
    finally:
        watched.engine.close()
    capacity = preset_capacity_rps(FAST, "bursty")
    assert done.result["capacity_rps"] == pytest.approx(capacity)
    assert read_head(Path(str(done.result["run_file"])))["capacity_rps"] == pytest.approx(capacity)
    requests = done.result["requests"]
    assert isinstance(requests, list)
    planned = make_workload("bursty", fake_tokenise, 0, capacity)
    assert requests[-1]["arrival_s"] == pytest.approx(planned.requests[-1].offset_s)


def test_without_a_profile_it_is_the_default() -> None:
    assert make_workload("bursty", fake_tokenise).capacity_rps == DEFAULT_CAPACITY_RPS
