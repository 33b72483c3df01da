"""Runs on a started engine: rest before each, caches emptied and filled anew, trouble told."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.cli import main
from engine.errors import BackendError
from engine.events import BurstDone
from engine.experiments.arms import Arm
from engine.experiments.runs import Live
from engine.experiments.source import preset_source
from tests.engine.watched import profile_json

ARM = Arm("total-delay", (("cpu", 2), ("gpu", 4)))
PREFIX, PROMPT, BLOCK = 64, 100, 16


class Quiet:
    """An engine that answers a burst with `result` at once, and writes down what happens in which order."""

    def __init__(self, result: dict[str, Any]) -> None:
        self.result, self.log, self._events = result, list[Any](), list[Any]()

    def run_burst(self, name: str, policy: str, seed: int, **more: Any) -> str:
        self.log.append(("run", name, policy, seed, more["slots"], more["token_times"]))
        self._events.append(BurstDone("run-1", False, self.result))
        return "run-1"

    def cancel_all(self) -> None:
        self.log.append("cancel")

    def drain(self) -> list[Any]:
        out, self._events = self._events, []
        return out


@pytest.fixture
def rested(monkeypatch: pytest.MonkeyPatch) -> Callable[[Quiet], Quiet]:
    """No test sleeps: the rest is written into the log."""

    def watch(engine: Quiet) -> Quiet:
        clock = SimpleNamespace(sleep=lambda s: engine.log.append(("rest", s)))
        monkeypatch.setattr("engine.experiments.runs.time", clock)
        return engine

    return watch


def live(engine: Quiet, drain: Callable[[], list[Any]] | None = None) -> Live:
    return Live(engine, drain or engine.drain, cool_s=1.5)  # type: ignore[arg-type]


def test_backends_rest_before_every_run(rested: Callable[[Quiet], Quiet]) -> None:
    engine = rested(Quiet({"makespan_s": 2.0}))
    place = live(engine)
    for seed in (3, 4):
        assert place.run(preset_source("seed-warm-8"), ARM, seed, "draw") == {"makespan_s": 2.0}
    run = ("run", "seed-warm-8", "total-delay", 3, {"cpu": 2, "gpu": 4}, True)
    assert engine.log[:2] == [("rest", 1.5), run]
    assert [entry[0] for entry in engine.log] == ["rest", "run", "rest", "run"]


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ({}, "did not finish"),
        ({"makespan_s": None}, "did not finish"),
        ({"makespan_s": 1.0, "mixed": True}, "Other requests ran beside"),
        (
            {"makespan_s": 1.0, "requests": [{"finish_reason": "error"}, {"finish_reason": "length"}]},
            "1 of 2 requests ended with error",
        ),
    ],
)
def test_a_run_that_is_none_is_an_error(
    result: dict[str, Any], words: str, rested: Callable[[Quiet], Quiet]
) -> None:
    with pytest.raises(BackendError, match=words):
        live(rested(Quiet(result))).run(preset_source("seed-warm-8"), ARM, 0, "draw")


def test_ctrl_c_ends_what_runs(rested: Callable[[Quiet], Quiet]) -> None:
    engine = rested(Quiet({}))
    drains = iter((list, lambda: (_ for _ in ()).throw(KeyboardInterrupt)))
    with pytest.raises(KeyboardInterrupt):
        live(engine, lambda: next(drains)()).run(preset_source("seed-warm-8"), ARM, 0, "draw")
    assert engine.log[-1] == "cancel"


def test_every_run_starts_with_the_seeded_prefix_alone_in_the_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same prompts run again and again: without a reset later runs would find them whole in the cache."""
    monkeypatch.setenv("OFFRAMP_CACHE_DIR", str(tmp_path / "cache"))
    path, trace, out = tmp_path / "fast.json", tmp_path / "own.json", tmp_path / "out"
    path.write_text(json.dumps(profile_json(decode_s=0.0005)), "utf-8")
    one = {"prompt_tokens": PROMPT, "prefix": "a", "prefix_tokens": PREFIX, "max_new_tokens": 4}
    requests = [{**one, "at_s": i / 50} for i in range(4)]
    trace.write_text(json.dumps({"requests": requests, "warm": True}), "utf-8")
    argv = [
        "compare",
        "--emulate",
        str(path),
        "--policies",
        "forced-cpu,forced-gpu,round-robin",
        "--pairs",
        "3",
    ]
    assert main([*argv, "--trace", str(trace), "--out", str(out)]) == 0
    runs = [json.loads(p.read_text("utf-8")) for p in (out / "runs").iterdir()]
    assert len(runs) >= 9
    for run in runs:
        assert {r["cached_tokens"] for r in run["result"]["requests"]} == {PREFIX // BLOCK * BLOCK}
        assert not run["result"]["mixed"]
