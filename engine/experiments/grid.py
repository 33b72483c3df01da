"""Many runs over a grid of settings: each leaves a file, and what is there already is not run again."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.experiments.arms import Arm
from engine.experiments.metrics import BY_KEY, DEFAULT_SLO
from engine.experiments.runs import Place, RunFile, digest, figures_of, load_run, run_path, save_run, slim
from engine.experiments.source import Source


@dataclass(frozen=True, slots=True)
class Job:
    """One run: `point` and `arm_name` together name it and its file."""

    point: str
    arm_name: str
    source: Source
    arm: Arm
    seed: int
    place: Place | None = None  # where it differs from the others', as with another KV budget

    @property
    def name(self) -> tuple[str, str, int]:
        return self.point, self.arm_name, self.seed


@dataclass(frozen=True, slots=True)
class Done:
    """Finished runs by point, arm and seed."""

    runs: Mapping[tuple[str, str, int], RunFile]
    finished: bool

    def values(self, point: str, arm: str, metric: str) -> list[float]:
        """One a seed, in the metric's unit; empty where a run has no value."""
        found = [(seed, r.figures[metric]) for (p, a, seed), r in self.runs.items() if (p, a) == (point, arm)]
        if any(v is None for _, v in found):
            return []
        return [v * BY_KEY[metric].scale for _, v in sorted(found)]

    def mean(self, point: str, arm: str, metric: str) -> float | None:
        """Mean over the seeds; None where a run is missing or has no value."""
        values = self.values(point, arm, metric)
        return sum(values) / len(values) if values else None


def run_jobs(
    jobs: Sequence[Job],
    place: Place,
    settings: Mapping[str, Any],
    folder: Path,
    tell: Callable[[int], None] = lambda done: None,
) -> Done:
    """Run what is missing. Ctrl+C keeps what is done."""
    runs: dict[tuple[str, str, int], RunFile] = {}
    digests: dict[str, str] = {}  # of the requests: a name alone does not tell that they have changed
    try:
        for done, job in enumerate(jobs, 1):
            name = job.source.name
            if name not in digests:
                digests[name] = job.source.digest()
            arm = [job.arm.policy, job.arm.slots]
            key = digest({**settings, "workload": name, "requests": digests[name], "arm": arm})
            path = run_path(folder, job.seed + 1, f"{job.point}-{job.arm_name}")
            run = load_run(path, key)
            if run is None:
                where = job.place or place
                result = slim(where.run(job.source, job.arm, job.seed, f"{job.name}"))
                figures = figures_of(result, DEFAULT_SLO)
                run = RunFile(job.arm_name, job.seed + 1, job.seed, result, figures)
                save_run(path, key, run, DEFAULT_SLO)
            runs[job.name] = run
            tell(done)
    except KeyboardInterrupt:
        return Done(runs, False)
    return Done(runs, True)
