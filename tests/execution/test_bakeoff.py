"""Which format `auto` means: trials, candidates, the cached answer."""

import json
from pathlib import Path

import pytest

from engine.execution import bakeoff, int8
from engine.execution.linear import LinearFormat
from engine.models.architecture import ModelShape
from engine.models.weights import DummyWeights, Weights, open_weights
from tests.support import tiny_model, write_gguf


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, float]:
    """Seconds that each format's trial claims to take; what was tried is counted under "tried"."""
    claimed = {"float32": 2.0, "bf16": 1.0, "int8": 1.0, "int4": 1.0, "int8-dynamic": 1.0, "tried": 0.0}

    def trial_s(_: ModelShape, form: LinearFormat) -> float:
        claimed["tried"] += 1
        return claimed[form.name]

    monkeypatch.setattr(bakeoff, "trial_s", trial_s)
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


def test_a_real_trial_takes_a_positive_time() -> None:
    shape = ModelShape("llama", 2, 64, 2, 1, 32, 128, 512, 1e4, 1e-5, 256, True)
    assert DummyWeights(shape).grid("layers.0.q") is None
    for form in bakeoff.LINEAR_FORMATS.values():
        if form.rotated and not int8.available():
            continue
        assert 0 < bakeoff.trial_s(shape, form) < 5
        found = bakeoff.trials(shape, form)
        assert {(t.matrix, t.rows) for t in found} == {
            (m, r) for m in ("qkv", "o", "gate_up", "down", "head") for r in bakeoff.ROWS
        }
        assert all(t.error < (0.2 if form.name == "int4" else 0.03) for t in found)
