"""`burst --slots best`: the same search, the same words as `simulate`, before or after calibration."""

import argparse
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.cli import main
from engine.commands.burst import one_burst
from engine.commands.slots import calibrated_best, settle_slots
from engine.errors import ConfigError
from engine.events import BurstDone
from engine.experiments.source import preset_source
from engine.profiling.profile import Profile, parse_profile
from tests.engine.watched import profile_json

APPLE = "apple-m2-published"


def options(**changes: Any) -> argparse.Namespace:
    usual = {"slots": "best", "emulate": None, "backends": "auto", "preset": "seed-warm-8", "trace": None}
    return argparse.Namespace(**{**usual, "context": 4096, **changes})


def slow_together() -> Profile:
    """Its gpu is the faster one; more than one row at a time cost it dearly."""
    data = profile_json()
    data["name"] = "local"
    data["backends"][1]["step"]["decode_s"] = {"1": 0.001, "2": 0.01, "16": 0.08}
    return parse_profile(data, "test")


def watch_of(names: tuple[str, ...] = ("cpu", "gpu"), priced: bool = True) -> Any:
    infos = [SimpleNamespace(name=n, priced=priced) for n in names]
    return SimpleNamespace(until_calibrated=lambda: None, running=infos)


def test_numbers_are_left_as_they_are() -> None:
    for slots in ("4", "auto", "gpu=1,cpu=4"):
        args = options(slots=slots)
        assert settle_slots(args) is False and args.slots == slots


def test_emulated_backends_start_with_the_best_of_their_profile() -> None:
    args = options(emulate=APPLE)
    assert settle_slots(args) is False and args.slots == "cpu=4,gpu=1"


def test_real_backends_start_with_enough_to_choose_from() -> None:
    args = options()
    assert settle_slots(args) is True and args.slots == "8"


def test_the_best_of_real_backends_follow_their_calibration(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("engine.commands.slots.load_profile", lambda name: slow_together())
    assert calibrated_best(options(slots="8"), watch_of()) == {"cpu": 4, "gpu": 1}
    words = capsys.readouterr().err
    assert "Best slots of gpu, the fastest alone: 1," in words and "(simulated with 1 to 8)." in words


@pytest.mark.parametrize("watch", [watch_of(priced=False), watch_of(()), watch_of(("cpu-1", "cpu-2"))])
def test_without_their_calibration_there_is_no_best(watch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.commands.slots.load_profile", lambda name: slow_together())
    with pytest.raises(ConfigError, match="calibration.*: use numbers here"):
        calibrated_best(options(slots="8"), watch)


def test_the_burst_runs_with_what_was_found() -> None:
    asked: list[Any] = []

    def run_burst(name: str, policy: str, seed: int, build: object, slots: object) -> str:
        asked.append(slots)
        return "run-1"

    done = BurstDone("run-1", False, {"makespan_s": 1.0})
    watch: Any = SimpleNamespace(engine=SimpleNamespace(run_burst=run_burst), until=lambda over: over([done]))
    assert one_burst(watch, preset_source("seed-warm-8"), None, 0, {"gpu": 1}) == {"makespan_s": 1.0}
    assert asked == [{"gpu": 1}]


def test_an_emulated_burst_finds_what_the_simulation_finds_and_searches_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "fast.json"
    data = profile_json(decode_s=0.0002)
    data["backends"][1]["step"]["decode_s"] = {"1": 0.0002, "2": 0.002, "8": 0.008}
    path.write_text(json.dumps(data), "utf-8")
    assert main(["simulate", "--profile", str(path), "--slots", "best", "--json"]) == 0
    simulated = capsys.readouterr()
    monkeypatch.setattr("engine.experiments.arms.solos", lambda *_: pytest.fail("it was searched before"))
    assert main(["burst", "--emulate", str(path), "--slots", "best", "--json"]) == 0
    burst = capsys.readouterr()
    slots = {b["name"]: b["slots"] for b in json.loads(burst.out)["backends"]}
    assert slots == json.loads(simulated.out)["slots"] == {"cpu": 4, "gpu": 1}
    sentence = next(line for line in simulated.err.splitlines() if line.startswith("Best slots of gpu"))
    assert sentence in burst.err.splitlines() and "with 4 it takes" in sentence


@pytest.mark.parametrize(
    ("slots", "words"),
    [("tpu=3", "no backend named 'tpu'"), ("fast", "is unclear"), ("0", "is unclear"), ("257", "is unclear")],
)
def test_what_makes_no_sense_is_said_in_the_same_words(
    slots: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = []
    for command in (["simulate", "--profile", APPLE], ["burst", "--emulate", APPLE]):
        assert main([*command, "--slots", slots]) == 2
        said.append(capsys.readouterr().err)
    assert said[0] == said[1] and words in said[0] and "Traceback" not in said[0]


def test_a_mixture_of_real_and_emulated_backends_has_no_best(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["burst", "--emulate", APPLE, "--backends", "cpu,emulated:gpu", "--slots", "best"]) == 2
    assert "all real or all emulated: use numbers here" in capsys.readouterr().err
