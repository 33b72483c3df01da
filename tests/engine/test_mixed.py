"""A real backend beside an emulated one: chosen, named, marked, measured and run."""

import json
from pathlib import Path

import pytest

from engine.choose import choose_backends
from engine.commands.common import running_engine
from engine.config import BackendOptions, EngineConfig
from engine.errors import ConfigError, UnknownNameError
from engine.events import BurstDone, ModelLoaded
from engine.profiling.profile import load_profile
from tests.engine.watched import profile_json

M2 = "apple-m2-published"


def test_emulated_entries_take_name_slots_and_pool_from_the_profile() -> None:
    profile = load_profile(M2)
    specs, _ = choose_backends(BackendOptions("cpu,emulated:gpu", slots="gpu=2,cpu=4"), print, profile)
    assert [(s.name, s.device, s.kind) for s in specs] == [("cpu", "cpu", "cpu"), ("gpu", "emulated", "gpu")]
    assert specs[1].slots == 2 and specs[1].kv_blocks == profile.backend("gpu").kv_blocks
    assert specs[0].format == "auto"


@pytest.mark.parametrize(
    ("wanted", "error", "words"),
    [
        ("cpu,emulated:gpu", ConfigError, "--emulate"),
        ("cpu,emulated:tpu", UnknownNameError, "choose one of cpu, gpu"),
        ("cpu,emulated:cpu", ConfigError, "twice"),
    ],
)
def test_a_mixture_that_cannot_be_is_refused_in_words(wanted, error, words) -> None:
    profile = None if words == "--emulate" else load_profile(M2)
    with pytest.raises(error, match=words):
        choose_backends(BackendOptions(wanted), print, profile)


def test_a_burst_runs_on_both_and_is_marked_emulated(tmp_path: Path) -> None:
    timings = tmp_path / "fast.json"
    timings.write_text(json.dumps(profile_json()))
    config = EngineConfig(
        policy="round-robin",
        options=BackendOptions("cpu,emulated:gpu"),
        emulate=str(timings),
        load_format="dummy",
        architecture="tiny",
        calibrate=False,
    )
    seen: list[object] = []
    with running_engine(config) as watch:
        watch.until(lambda events: bool(seen.extend(events)) or watch.engine.ready.is_set())
        watch.engine.run_burst("cold-12", "round-robin")

        def ended(events: list) -> bool:
            seen.extend(events)
            return any(isinstance(e, BurstDone) for e in events)

        watch.until(ended)
    model = next(e for e in seen if isinstance(e, ModelLoaded))
    assert model.emulated and model.emulation == "A test's own"
    assert {n: s.info.emulated for n, s in watch.statuses.items()} == {"cpu": False, "gpu": True}
    result = next(e.result for e in seen if isinstance(e, BurstDone))
    assert result["emulated"] is True
    assert {r["backend"] for r in result["requests"]} == {"cpu", "gpu"}
    assert all(r["finish_reason"] == "length" for r in result["requests"])


def test_a_step_holds_what_suits_the_device_unless_a_budget_is_asked_for() -> None:
    options = BackendOptions()
    assert [options.budget_of(d) for d in ("cpu", "cuda:1", "mps", "emulated")] == [512, 2048, 512, 512]
    assert BackendOptions(token_budget=100).budget_of("cuda:0") == 100
    specs, _ = choose_backends(BackendOptions("cpu"), print)
    assert specs[0].token_budget == 512
