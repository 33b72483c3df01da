"""Compare settings on one workload: n pairs, order shuffled, every run kept, resumed when interrupted."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.experiments.arms import Arm
from engine.experiments.metrics import METRICS, Metric
from engine.experiments.runs import (
    Place,
    RunFile,
    digest,
    figures_of,
    load_run,
    run_path,
    save_run,
    slim,
)
from engine.experiments.source import Source
from engine.experiments.statistics import Comparison, compare


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run: every arm once a pair, the arms of a pair with the same workload and seed.

    The first arm is the baseline. `place` describes where it runs, for the digest of the settings.
    """

    source: Source
    arms: tuple[Arm, ...]
    pairs: int
    seed: int
    usual_slots: Mapping[str, int]
    place: Mapping[str, Any]
    slo: Mapping[str, float]

    def settings(self) -> dict[str, Any]:
        """Everything a run depends on but its arm and pair."""
        return {
            "workload": self.source.name,
            "requests": self.source.digest(),
            "seed": self.seed,
            "usual_slots": dict(self.usual_slots),
            "slo_ms": dict(self.slo),
            **self.place,
        }

    def key(self, arm: Arm) -> str:
        return arm.key(self.usual_slots)

    def order(self) -> list[tuple[int, Arm]]:
        """(pair from 1, arm): arms shuffled within each pair, so that no setting always goes first."""
        draw = random.Random(f"order:{self.seed}")
        out = []
        for pair in range(1, self.pairs + 1):
            arms = list(self.arms)
            draw.shuffle(arms)
            out += [(pair, arm) for arm in arms]
        return out


Tell = Callable[[int, int, bool], None]  # runs done, of how many, and whether the last one was kept earlier


@dataclass(frozen=True, slots=True)
class Outcome:
    """Runs by arm, in order of pairs, for the pairs that every arm has finished."""

    plan: Plan
    runs: Mapping[str, Sequence[RunFile]]
    finished: bool

    @property
    def pairs(self) -> int:
        return len(next(iter(self.runs.values())))

    def values(self, arm: str, metric: Metric) -> list[float] | None:
        """One value a run in the metric's unit; None when any run has none."""
        values = [r.figures[metric.key] for r in self.runs[arm]]
        if not values or any(v is None for v in values):
            return None
        return [v * metric.scale for v in values]

    def comparisons(self, against: str | None = None) -> dict[str, dict[str, Comparison]]:
        """By arm and metric key, against the baseline or another arm."""
        base = against or self.plan.key(self.plan.arms[0])
        out: dict[str, dict[str, Comparison]] = {}
        for arm in self.runs:
            if arm == base:
                continue
            out[arm] = {}
            for metric in METRICS:
                before, after = self.values(base, metric), self.values(arm, metric)
                if before is not None and after is not None:
                    out[arm][metric.key] = compare(before, after, metric.lower_is_better, self.plan.seed)
        return out


def run_plan(plan: Plan, place: Place, folder: Path, tell: Tell = lambda done, total, kept: None) -> Outcome:
    """Run what is missing in `folder`. Ctrl+C keeps what is done and returns what is complete."""
    settings = digest(plan.settings())
    order = plan.order()
    found: dict[tuple[int, str], RunFile] = {}
    finished = True
    try:
        for done, (pair, arm) in enumerate(order, 1):
            key = plan.key(arm)
            path = run_path(folder, pair, key)
            run = load_run(path, settings)
            kept = run is not None
            if run is None:
                seed = plan.seed + pair - 1
                result = slim(place.run(plan.source, arm, seed, f"{plan.seed}:{pair}:{key}"))
                run = RunFile(key, pair, seed, result, figures_of(result, plan.slo))
                save_run(path, settings, run, plan.slo)
            found[pair, key] = run
            tell(done, len(order), kept)
    except KeyboardInterrupt:
        finished = False
    keys = [plan.key(a) for a in plan.arms]
    whole = [p for p in range(1, plan.pairs + 1) if all((p, k) in found for k in keys)]
    return Outcome(plan, {k: [found[p, k] for p in whole] for k in keys}, finished)
