"""Which format `auto` means: trials, candidates, the cached answer."""

import json
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from engine.execution import bakeoff, int8
from engine.execution.linear import LINEAR_FORMATS
from engine.models.architecture import ModelShape
from engine.models.weights import DummyWeights, Weights, open_weights
from tests.support import tiny_model, write_gguf


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, float]:
    """Seconds that each format's trial claims to take; "tried" counts the contests, "share" is what their
    thread computes of their time, "idle" the cores that others leave."""
    claimed = {"float32": 2.0, "bf16": 1.0, "int8": 1.0, "int4": 1.0, "int8-dynamic": 1.0}
    claimed |= {"tried": 0.0, "share": 0.99, "idle": 2.0}

    def contest(_: ModelShape, names: list[str]) -> dict[str, float]:
        claimed["tried"] += 1
        clock["wall"] += 1.0
        clock["cpu"] += claimed["share"]
        return {name: claimed[name] for name in names}

    clock = {"wall": 0.0, "cpu": 0.0}
    fake = SimpleNamespace(perf_counter=lambda: clock["wall"], thread_time=lambda: clock["cpu"])
    monkeypatch.setattr(bakeoff, "time", fake)
    monkeypatch.setattr(bakeoff, "contest", contest)
    monkeypatch.setattr(bakeoff, "idle_cores", lambda: claimed["idle"])
    monkeypatch.setenv("OFFRAMP_CACHE_DIR", str(tmp_path))
    return claimed


@pytest.fixture(scope="module", params=["F32", "Q4_1"])
def weights(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Weights:
    path = tmp_path_factory.mktemp("bake") / f"{request.param}.gguf"
    write_gguf(tiny_model("llama"), path, request.param)
    return open_weights(path)


def test_the_fastest_wins_and_is_remembered(times: dict[str, float], weights: Weights) -> None:
    times["int8"] = 0.5
    assert bakeoff.fastest_format(weights, 1) == "int8"
    tried, times["bf16"] = times["tried"], 0.1
    assert bakeoff.fastest_format(weights, 1) == "int8" and times["tried"] == tried
    assert bakeoff.fastest_format(weights, 2) == "bf16"  # another thread count is another question


def test_four_bits_only_on_the_grid_of_the_file(times: dict[str, float], weights: Weights) -> None:
    times["int4"] = 0.2
    on_grid = weights.grid("layers.0.q") is not None
    assert bakeoff.fastest_format(weights, 1) == ("int4" if on_grid else "bf16")


def test_a_tie_goes_to_the_better_quality(times: dict[str, float], weights: Weights) -> None:
    times["int8"] = times["int4"] = 0.97
    assert bakeoff.fastest_format(weights, 1) == "bf16"


def test_a_damaged_cache_only_costs_the_trials(
    times: dict[str, float], weights: Weights, tmp_path: Path
) -> None:
    (tmp_path / "formats.json").write_text("[1,")
    assert bakeoff.fastest_format(weights, 1) == "bf16"
    assert list(json.loads((tmp_path / "formats.json").read_text()).values()) == ["bf16"]


def test_a_choice_of_a_busy_moment_is_made_again_when_cores_are_idle(
    times: dict[str, float], weights: Weights
) -> None:
    times |= {"share": 0.6, "int8": 0.5}
    assert bakeoff.fastest_format(weights, 1) == "int8"
    times |= {"idle": 0.4, "int8": 1.0, "bf16": 0.5}
    assert bakeoff.fastest_format(weights, 1) == "int8" and times["tried"] == 1  # busy still: nothing better
    times["idle"] = 1.3
    assert bakeoff.fastest_format(weights, 1) == "bf16" and times["tried"] == 2  # but again disturbed
    times["share"] = 0.95
    assert bakeoff.fastest_format(weights, 1) == "bf16" and times["tried"] == 3
    assert bakeoff.fastest_format(weights, 1) == "bf16" and times["tried"] == 3  # now it is sure


def test_formats_take_turns_and_lone_disturbances_do_not_count() -> None:
    order: list[str] = []
    left = {"a": [5.0, 1.0, 9.0, 1.05], "b": [2.0, 2.1, 2.0, 2.0]}

    def run(name: str) -> float:
        order.append(name)
        return left[name][order.count(name) - 1]

    best = bakeoff.in_turns([lambda: run("a"), lambda: run("b")], 3)
    assert best == [1.0, 2.0]
    assert order == ["a", "b"] * 4  # after three turns "a" has seen its best time only once


def test_turns_end_when_no_time_is_seen_twice() -> None:
    seen: list[float] = []

    def ever_faster() -> float:
        seen.append(0.5 ** len(seen))
        return seen[-1]

    assert bakeoff.in_turns([ever_faster], 3) == [seen[-1]] and 3 < len(seen) < 50
    assert bakeoff.in_turns([lambda: 1.0], 1) == [1.0]


def test_idle_cores_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "cpu_count", lambda logical: 8)
    monkeypatch.setattr(psutil, "cpu_percent", lambda interval: 75.0)
    assert 2.0 <= bakeoff.idle_cores() < 3.0


def test_a_real_trial_takes_a_positive_time() -> None:
    shape = ModelShape("llama", 2, 64, 2, 1, 32, 128, 512, 1e4, 1e-5, 256, True)
    assert DummyWeights(shape).grid("layers.0.q") is None
    names = [n for n, f in LINEAR_FORMATS.items() if not f.rotated or int8.available()]
    assert all(0 < seconds < 5 for seconds in bakeoff.contest(shape, names).values())
    found = bakeoff.trials(shape, names)
    assert {(t.format, t.matrix, t.rows) for t in found} == {
        (n, m, r) for n in names for m in ("qkv", "o", "gate_up", "down", "head") for r in bakeoff.ROWS
    }
    assert all(t.error < (0.2 if t.format == "int4" else 0.03) for t in found)
