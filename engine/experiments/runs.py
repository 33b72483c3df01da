"""One run of one setting: where it is computed, and the file it leaves."""

import copy
import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from engine.engine import Engine
from engine.errors import BackendError, ConfigError
from engine.events import BurstDone, Event
from engine.experiments.arms import Arm
from engine.experiments.metrics import serve_json
from engine.experiments.source import Source
from engine.paths import make_folder
from engine.profiling.profile import Profile
from engine.recording import early_words
from engine.routing.length import LengthEstimator
from engine.simulation.noise import StepNoise
from engine.simulation.simulate import Simulation, fake_tokenise
from engine.workloads.presets import Workload

FORMAT, VERSION = "offramp-experiment-run", 1


class Place(Protocol):
    """Where runs are computed."""

    def run(self, source: Source, arm: Arm, seed: int, draw: str) -> dict[str, Any]:
        """One run; returns its JSON with token times. `draw` tells runs of the same seed apart."""
        ...


class Simulated:
    """The virtual clock: a run takes a fraction of a second. Step times vary unless `noise` is 0."""

    def __init__(self, profile: Profile, noise: float, kv_blocks: int | None = None) -> None:
        self.profile, self.noise, self.kv_blocks = profile, noise, kv_blocks
        self._seen: dict[str, LengthEstimator] = {}
        self._built: tuple[str, int, Workload] | None = None  # the last: the arms of a pair share it

    def run(self, source: Source, arm: Arm, seed: int, draw: str) -> dict[str, Any]:
        if source.name not in self._seen:
            self._seen[source.name] = source.seasoned()
        noise = StepNoise(draw, self.noise) if self.noise > 0 else None
        simulation = Simulation(
            self.profile,
            arm.policy,
            arm.slots_by_name,
            kv_blocks=self.kv_blocks,
            lengths=copy.deepcopy(self._seen[source.name]),  # what one run learns is not another's
            noise=noise,
        )
        if self._built is None or self._built[:2] != (source.name, seed):
            self._built = (source.name, seed, source.build(fake_tokenise, seed))
        return dict(simulation.run(self._built[2], token_times=True))


class Live:
    """A started engine, real or emulated on the wall clock, reused over the runs."""

    def __init__(self, engine: Engine, drain: Callable[[], list[Event]], cool_s: float = 1.0) -> None:
        """`drain` takes the engine's new events and raises what ended it; `cool_s` is rest before a run."""
        self._engine, self._drain, self._cool_s = engine, drain, cool_s

    def run(self, source: Source, arm: Arm, seed: int, draw: str) -> dict[str, Any]:
        time.sleep(self._cool_s)
        self._drain()
        run_id = self._engine.run_burst(
            source.name,
            arm.policy,
            seed,
            build=lambda tokenise: source.build(tokenise, seed),
            slots=arm.slots_by_name,
            token_times=True,
        )
        try:
            result = self._result(run_id)
        except KeyboardInterrupt:
            self._engine.cancel_all()
            raise
        if not result or result.get("makespan_s") is None:
            raise BackendError(f"A run of {arm.policy} did not finish: look at the lines above.")
        if result.get("mixed"):
            raise BackendError("Other requests ran beside the experiment: run it again when it is quiet.")
        if words := early_words(result):
            raise BackendError(f"In a run of {arm.policy} {words}: look at the lines above.")
        return result

    def _result(self, run_id: str) -> dict[str, Any]:
        while True:
            for event in self._drain():
                if isinstance(event, BurstDone) and event.run_id == run_id:
                    return event.result
            time.sleep(0.02)


@dataclass(frozen=True, slots=True)
class RunFile:
    """A finished run as kept in a folder: what was asked, the run's JSON, and its figures."""

    arm: str
    pair: int
    seed: int
    result: dict[str, Any]
    figures: dict[str, Any]


def digest(settings: Mapping[str, Any]) -> str:
    """Of everything a run depends on: runs with another one are not taken over."""
    return hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=8).hexdigest()


def run_path(folder: Path, pair: int, arm: str) -> Path:
    safe = arm.replace("@", "-at-").replace("=", "").replace(",", "-").replace("/", "-")
    return folder / "runs" / f"pair-{pair:02d}-{safe}.json"


def save_run(path: Path, key: str, run: RunFile, slo: Mapping[str, float]) -> None:
    """Written beside and renamed, so that an interrupted run leaves nothing half done."""
    make_folder(path.parent)
    data = {
        "format": FORMAT,
        "version": VERSION,
        "settings": key,
        "arm": run.arm,
        "pair": run.pair,
        "seed": run.seed,
        "slo_ms": dict(slo),
        "figures": run.figures,
        "result": run.result,
    }
    part = path.with_suffix(f".{os.getpid()}.part")
    try:
        part.write_text(json.dumps(data, separators=(",", ":")), "utf-8")
        os.replace(part, path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written ({error.strerror}): free some space.") from error


def load_run(path: Path, key: str) -> RunFile | None:
    """A run kept earlier with the same settings; None when there is none."""
    try:
        data = json.loads(path.read_text("utf-8"))
        if data["format"] != FORMAT or data["version"] != VERSION or data["settings"] != key:
            return None
        return RunFile(data["arm"], data["pair"], data["seed"], data["result"], data["figures"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def slim(result: dict[str, Any]) -> dict[str, Any]:
    """A run's JSON without the receipts: an experiment keeps many."""
    requests = [{k: v for k, v in r.items() if k != "receipt"} for r in result["requests"]]
    return {**result, "requests": requests}


def figures_of(result: Mapping[str, Any], slo: Mapping[str, float]) -> dict[str, Any]:
    return serve_json(result, slo)
