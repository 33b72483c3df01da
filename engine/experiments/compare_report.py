"""A comparison told: headline, sentences, and what goes into results.json."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from engine.experiments.arms import Solo
from engine.experiments.charts import Mark
from engine.experiments.compare import Outcome
from engine.experiments.compare_parts import (
    TONES,
    Told,
    ladder_section,
    placement_section,
    result_section,
    runs_section,
    verdict_section,
)
from engine.experiments.metrics import BY_KEY, METRICS, Metric
from engine.experiments.published import published_sections
from engine.experiments.report import Report, machine_facts
from engine.experiments.statistics import RULE, Comparison, Verdict
from engine.experiments.svg import counted, figure, interval_words, percent
from engine.experiments.tables import DEFAULT_POLICY
from engine.profiling.profile import Profile

_WORDS = {Verdict.BETTER: "is faster than", Verdict.WORSE: "is slower than"}


def compare_report(
    outcome: Outcome,
    profile: Profile | None,
    ladder: Sequence[Solo],
    mark: Mark,
    facts: Sequence[tuple[str, str]],
    commands: Sequence[str],
) -> tuple[Report, dict[str, Any]]:
    """The report, and what goes into results.json. Every figure comes from the outcome's run files."""
    plan = outcome.plan
    labels = {plan.key(a): a.label(plan.usual_slots) for a in plan.arms}
    told = Told(outcome, labels, plan.key(plan.arms[0]), outcome.comparisons(), mark)
    main = _main_arm(told)
    headline, tone = _headline(told, main)
    sections = [result_section(told), *(verdict_section(told, arm) for arm in told.found)]
    sections.append(placement_section(told))
    if ladder:
        sections.append(ladder_section(ladder, plan.arms[0], mark))
    if profile is not None:
        sections += published_sections(profile)
    sections.append(runs_section(told))
    seeds = f"{plan.seed} to {plan.seed + plan.pairs - 1}, one a pair"
    report = Report(
        "compare",
        f"Compare on {plan.source.name}",
        headline,
        tone,
        tuple(_summary(told, main)),
        tuple(sections),
        mark,
        (*facts, ("Seeds", seeds), *machine_facts()),
        tuple(commands),
        (*((m.label, m.definition) for m in METRICS), ("Verdict", RULE)),
    )
    return report, _data(told, ladder)


def _data(told: Told, ladder: Sequence[Solo]) -> dict[str, Any]:
    outcome = told.outcome
    return {
        "settings": outcome.plan.settings(),
        "baseline": told.base,
        "pairs": outcome.pairs,
        "finished": outcome.finished,
        "arms": {arm: {m.key: _raw(told.mean(arm, m), m) for m in METRICS} for arm in outcome.runs},
        "comparisons": {a: {m: _raw_comparison(c, m) for m, c in by.items()} for a, by in told.found.items()},
        "baseline_sweep": [asdict(s) for s in ladder],
        "runs": [
            {"arm": r.arm, "pair": r.pair, "seed": r.seed, **r.figures}
            for runs in outcome.runs.values()
            for r in runs
        ],
    }


def _raw(value: float | None, metric: Metric) -> float | None:
    """In the unit that the key names: the pages show latencies in seconds, `_ms` means milliseconds."""
    return None if value is None else value / metric.scale


def _raw_comparison(c: Comparison, key: str) -> dict[str, Any]:
    metric = BY_KEY[key]
    figures = ("baseline_mean", "mean", "difference", "low", "high")
    return {**asdict(c), **{name: _raw(getattr(c, name), metric) for name in figures}}


def _main_arm(told: Told) -> str | None:
    """The arm that the headline is about: the default policy at the baseline's slots, else anyone near."""
    base, *others = told.outcome.plan.arms
    defaults = [a for a in others if a.policy == DEFAULT_POLICY]
    chosen = next((a for a in defaults if a.slots == base.slots), None)
    chosen = chosen or next(iter(defaults), others[-1] if others else None)
    return None if chosen is None else told.outcome.plan.key(chosen)


def _headline(told: Told, main: str | None) -> tuple[str, str]:
    if main is None or "duration" not in told.found.get(main, {}):
        return f"{told.labels[told.base]}: nothing to compare it with", ""
    c = told.found[main]["duration"]
    name, other = told.labels[main], f"the fastest backend alone ({told.labels[told.base]})"
    if c.verdict in _WORDS:
        change = percent(c.share(c.difference))
        return f"{name} {_WORDS[c.verdict]} {other}: {change} makespan", TONES[c.verdict]
    if c.verdict is Verdict.NONE:
        return f"{name} against {other}: {counted(c.pairs, 'pair')}, too few for a verdict", ""
    return f"No difference found between {name} and {other} in makespan", ""


def _summary(told: Told, main: str | None) -> list[str]:
    outcome, plan = told.outcome, told.outcome.plan
    out = [
        f"{plan.source.name}: {plan.source.description}. {counted(outcome.pairs, 'pair')}, order shuffled."
    ]
    if not outcome.finished:
        out.append(
            f"Stopped early: {outcome.pairs} of {plan.pairs} pairs are complete; the same command goes on."
        )
    if main is None or "duration" not in told.found.get(main, {}):
        return out
    c = told.found[main]["duration"]
    out.append(
        f"Makespan {figure(c.mean, 2)} s instead of {figure(c.baseline_mean, 2)} s; the 95 % interval of "
        f"the change is {interval_words(c.share(c.low), c.share(c.high))} (paired bootstrap)."
    )
    out += _at_other_slots(told)
    count = len(outcome.runs[told.base][0].result["requests"])
    if count < 20:
        out.append(f"p95 of {count} requests is their maximum.")
    return out


def _at_other_slots(told: Told) -> list[str]:
    """What the same comparison says at the slots that were asked for, where these are not the best."""
    plan = told.outcome.plan
    base = plan.arms[0]
    for alone in plan.arms[1:]:
        routed = next((a for a in plan.arms if a.policy == DEFAULT_POLICY and a.slots == alone.slots), None)
        if alone.policy != base.policy or routed is None:
            continue
        c = told.outcome.comparisons(plan.key(alone))[plan.key(routed)]["duration"]
        slots = ", ".join(f"{n} {s}" for n, s in alone.slots)
        return [
            f"With slots {slots}, {routed.policy} changes the makespan by {percent(c.share(c.difference))} "
            f"against {alone.policy} ({c.verdict.value}). Only the comparison at the best slot count says "
            "what routing is worth: anything else may be a gain over a bad setting."
        ]
    return []
