"""What a comparison in pairs says: means, differences with their intervals, and a verdict. No Qt.

The numbers and the rule come from `engine.experiments`; here they become words.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from app.series.words import figure, percent, plural, seconds
from engine.experiments.svg import telling_digits

SHOWN = (  # keys of the engine's metrics, with the decimals they are shown with
    ("duration", 2),
    ("output_throughput", 1),
    ("median_ttft_ms", 2),
    ("p95_ttft_ms", 2),
    ("median_e2el_ms", 2),
    ("p95_e2el_ms", 2),
)
WORDS = {"better": "better", "worse": "worse", "no difference": "no difference", "no verdict": "no verdict"}


@dataclass(frozen=True, slots=True)
class Line:
    """One metric of B against A. Changes are percent of A's mean."""

    name: str
    unit: str
    decimals: int
    a: float
    b: float
    change: float | None
    low: float | None
    high: float | None
    verdict: str  # "better", "worse", "no difference", "no verdict"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Policy `b` against the baseline `a`, over `pairs` runs of each."""

    preset: str
    a: str
    b: str
    pairs: int
    finished: bool
    a_makespans: tuple[float, ...]
    b_makespans: tuple[float, ...]
    lines: tuple[Line, ...]
    emulation: str = ""
    rule: str = ""
    best: str = ""  # a sentence about the fastest backend alone at its best slot count

    @property
    def makespan(self) -> Line | None:
        return next((line for line in self.lines if line.name == "Makespan"), None)

    @property
    def headline(self) -> str:
        line = self.makespan
        if line is None or line.verdict == "no verdict":
            return f"No verdict: {figure(self.pairs)} of the five pairs it takes"
        if line.verdict == "no difference":
            return "No difference found"
        word = "faster" if line.verdict == "better" else "slower"
        return f"{self.b} is {word}: {percent(line.change, 1, signed=True)} makespan"

    @property
    def sentence(self) -> str:
        line = self.makespan
        if line is None:
            return "No pair was finished."
        runs = f"{figure(self.pairs)} {plural(self.pairs, 'run')} each"
        means = f"{seconds(line.b)} instead of {seconds(line.a)}, means of {runs}."
        if line.low is None or line.high is None:
            return f"{means} {self.best}".rstrip()
        clear = "stays clear of zero" if line.low * line.high > 0 else "holds zero"
        return f"{means} The 95 % interval of the change, {interval(line)}, {clear}. {self.best}".rstrip()

    def as_markdown(self) -> str:
        lines = [f"### {self.preset}: {self.headline}", ""]
        if self.emulation:
            lines += [f"**EMULATED** {self.emulation}", ""]
        lines += [self.sentence, "", f"| | {self.a} | {self.b} | change | 95 % interval | |"]
        lines.append("|---|---:|---:|---:|---:|---|")
        for line in self.lines:
            cells = [figure(line.a, line.decimals), figure(line.b, line.decimals)]
            cells += [percent(line.change, 1, signed=True), interval(line), line.verdict]
            lines.append(f"| {line.name}, {line.unit} | " + " | ".join(cells) + " |")
        return "\n".join([*lines, "", self.rule]).rstrip() + "\n"

    def as_json(self) -> str:
        data: dict[str, Any] = {"format": "offramp-comparison", "version": 1, **asdict(self)}
        return json.dumps(data | {"headline": self.headline}, indent=2) + "\n"


def interval(line: Line) -> str:
    if line.low is None or line.high is None:
        return "n/a"
    digits = telling_digits(line.low, line.high)
    return f"{figure(line.low, digits, signed=True)} to {percent(line.high, digits, signed=True)}"


def verdict_of(
    outcome: Any, names: Sequence[str], preset: str, emulation: str, best: str = ""
) -> Verdict | None:
    """From an `engine.experiments.compare.Outcome`: A, B and, where it is another setting, the baseline that
    counts, which becomes a sentence; `best` is that sentence where there is none. None without a whole pair.
    """
    from engine.experiments.metrics import BY_KEY
    from engine.experiments.statistics import RULE

    if not outcome.pairs:
        return None
    base, setting, *third = (outcome.plan.key(arm) for arm in outcome.plan.arms)
    found = outcome.comparisons()[setting]
    lines = []
    for key, decimals in SHOWN:
        comparison, metric = found.get(key), BY_KEY[key]
        if comparison is None:
            continue
        change, low, high = (
            None if share is None else 100 * share
            for share in map(comparison.share, (comparison.difference, comparison.low, comparison.high))
        )
        lines.append(
            Line(metric.label, metric.unit, decimals, comparison.baseline_mean, comparison.mean,
                 change, low, high, str(comparison.verdict))
        )  # fmt: skip
    spans = [tuple(outcome.values(arm, BY_KEY["duration"]) or ()) for arm in (base, setting)]
    if third:
        label = outcome.plan.arms[2].label(outcome.plan.usual_slots)
        best = _against_best(outcome.comparisons(third[0]).get(setting, {}).get("duration"), label, names[1])
    return Verdict(preset, names[0], names[1], outcome.pairs, outcome.finished, spans[0], spans[1],
                   tuple(lines), emulation, RULE, best)  # fmt: skip


def _against_best(comparison: Any, label: str, name: str) -> str:
    """What `name` is worth against the fastest backend alone at its best slot count."""
    if comparison is None:
        return ""
    share = comparison.share(comparison.difference) or 0.0
    more = f"{percent(100 * abs(share), 1)} {'longer' if share > 0 else 'less'}"
    alone = f"The fastest alone at its best slot count ({label}) takes {seconds(comparison.baseline_mean)}"
    return f"{alone}; {name} takes {more} than that ({comparison.verdict})."
