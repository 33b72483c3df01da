"""A sweep told: curves with the knee marked, and the table behind them."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from engine.experiments import charts
from engine.experiments.arms import priced_slots
from engine.experiments.charts import Axes, Curve, Mark
from engine.experiments.effects import Effect, effect_at
from engine.experiments.grid import Done
from engine.experiments.heatmap import PAYS
from engine.experiments.metrics import BY_KEY, METRICS
from engine.experiments.published import published_sections
from engine.experiments.report import Chart, Report, Section, Table, machine_facts
from engine.experiments.statistics import RULE, Verdict
from engine.experiments.svg import counted, figure, percent
from engine.experiments.sweep import KNEE, Knob, curve_of, knee
from engine.profiling.profile import Profile

BASE, ISOLATED, ROUTED = "fastest-alone", "isolated-rates", "total-delay"
_TONES = {Verdict.BETTER: "good", Verdict.WORSE: "bad"}
_TITLES = {
    "hit-rate": "the cached share",
    "prompt": "prompt length",
    "output": "reply length",
    "kv": "cache size",
    "poisson": "load, Poisson arrivals",
    "bursty": "load, bursty arrivals",
}
_DASHES = {BASE: "", ISOLATED: "6 5", ROUTED: ""}
Facts = Sequence[tuple[str, str]]


def assumed_foot(profile: Profile) -> str:
    """What of a profile rests on no measurement, short enough for the foot of a picture."""
    if any(b.assumed == ("everything",) for b in profile.backends):
        return "Assumed rows: every timing of this profile."
    rows = [f"{b.name.upper()} {b.assumed[0].replace('_s', '')}" for b in profile.backends if b.assumed]
    return f"Assumed rows, among other assumptions: {'; '.join(rows)}." if rows else ""


def slots_report(
    done: Done, profile: Profile, ladder: Sequence[int], mark: Mark, facts: Facts, commands: Sequence[str]
) -> tuple[Report, dict[str, Any]]:
    """Throughput of each backend alone over its slots, with the knee."""
    knees: dict[str, float] = {}
    told: list[str] = []
    parts: list[Table | Chart] = []
    foot = assumed_foot(profile)
    fastest = sorted(range(len(profile.backends)), key=lambda i: profile.backends[i].rates.isolated_s)
    ranks = {place: rank for rank, place in enumerate(fastest)}
    for metric_key, title in (
        ("output_throughput", "Throughput over slots"),
        ("mean_tpot_ms", "Time per token over slots"),
        ("mean_e2el_ms", "Mean E2E over slots"),
    ):
        metric, series = BY_KEY[metric_key], []
        for i, backend in enumerate(profile.backends):
            points, _ = curve_of(done, "slots", ladder, backend.name, metric_key)
            if not points:
                continue
            at, words = None, ""
            if metric_key == "output_throughput":
                at = knee(points)
                knees[backend.name] = at[0]
                words = _knee_words(at[0], points)
                told.append(f"{backend.name.upper()} {words}")
                words = words if "rising" in words else f"knee: {words}"
            most = priced_slots(profile, i)
            known = tuple(p for p in points if p[0] <= most)
            beyond = tuple(p for p in points if p[0] >= known[-1][0])
            label = f"{backend.name.upper()} alone"
            if len(beyond) > 1:
                words_beyond = f"{label}, assumed from {most + 1} on"
                series.append(Curve(words_beyond, beyond, ranks[i], dash="3 4"))
                label = ""
            series.append(Curve(label, known, ranks[i], strong=True, knee=at, knee_words=words))
        if series:
            axes = Axes(
                "slots: requests served at once", f"{metric.label}, {metric.unit}", _doublings(ladder), True
            )
            subtitle = "each backend alone, all requests at once, 95 % of each prompt cached"
            drawing = charts.curves(title, subtitle, axes, series, mark, foot)
            parts.append(Chart(metric_key.replace("_", "-"), drawing))
    names = [b.name for b in profile.backends]
    keys = ("output_throughput", "mean_tpot_ms", "mean_e2el_ms")
    rows = []
    for n in ladder:
        cells = [figure(done.mean(f"slots-{n}", name, k)) for name in names for k in keys]
        rows.append((str(n), *cells))
    columns = ("slots", *(f"{b} {BY_KEY[k].label}, {BY_KEY[k].unit}" for b in names for k in keys))
    parts.append(Table("slots", "", columns, tuple(rows)))
    near = round((1 - KNEE) * 100)
    summary = (
        f"The knee is the fewest slots within {near} % of the best throughput: more slots only make "
        "everybody wait longer for each token.",
    )
    whole = [Section("Results", "", tuple(parts)), *published_sections(profile)]
    report = _report(
        "sweep-slots", "slots", f"Knee: {', '.join(told)}", summary, whole, mark, facts, commands
    )
    return report, {"knees": knees, "rows": [list(r) for r in rows], "columns": list(columns)}


def _knee_words(slots: float, points: Sequence[tuple[float, float]]) -> str:
    """ "4 slots", or that no knee was reached: the last point is no knee where throughput still grows."""
    if len(points) > 1 and slots == points[-1][0]:
        return f"still rising at {slots:g} slots"
    return f"{slots:g} slot{'' if slots == 1 else 's'}"


def knob_report(
    kind: str,
    knobs: Sequence[Knob],
    done: Done,
    seeds: Sequence[int],
    profile: Profile,
    mark: Mark,
    facts: Facts,
    commands: Sequence[str],
) -> tuple[Report, dict[str, Any]]:
    """Policies against the fastest alone over one knob (two for arrivals: Poisson and bursty)."""
    slowest = max(profile.backends, key=lambda b: b.rates.isolated_s).name
    fastest = min(profile.backends, key=lambda b: b.rates.isolated_s).name
    sections: list[Section] = []
    data = []
    gains: list[Effect] = []
    foot = assumed_foot(profile)
    for one in knobs:
        parts: list[Table | Chart] = []
        for key in ("mean_e2el_ms", "p95_ttft_ms", "duration"):
            metric = BY_KEY[key]
            series = []
            for arm, label, rank in (
                (BASE, f"{fastest.upper()} alone, best slots", 0),
                (ISOLATED, ISOLATED, None),
                (ROUTED, ROUTED, None),
            ):
                points, ranges = curve_of(done, one.kind, one.values, arm, key)
                if points:
                    dash, strong = _DASHES[arm], arm == ROUTED
                    wide = arm == BASE
                    series.append(Curve(label, points, rank, dash, strong, wide=wide, ranges=ranges))
            if not series or (key == "duration" and kind == "rate"):
                continue
            axes = Axes(
                one.axis,
                f"{metric.label}, {metric.unit}",
                one.values,
                one.logarithmic,
                one.percent,
                rule=(1.0, "capacity") if kind == "rate" else None,
            )
            title = f"{metric.label} over {_TITLES[one.kind]}"
            subtitle = f"{metric.definition}; lower is better"
            drawing = charts.curves(title, subtitle, axes, series, mark, foot)
            parts.append(Chart(f"{one.kind}-{key.replace('_', '-')}", drawing))
        table, found = _knob_table(one, done, seeds, slowest)
        gains += found
        parts.append(table)
        data.append(
            {
                "kind": one.kind,
                "columns": list(table.columns),
                "rows": [list(r) for r in table.rows],
                "effects": [asdict(e) for e in found],
            }
        )
        title = f"{one.kind.capitalize()} arrivals" if kind == "rate" else "Results"
        sections.append(Section(title, f"{one.sources[0].description}, and so on.", tuple(parts)))
    alone = f"{fastest.upper()} alone at its best slot count"
    summary = (
        "At every point the fastest backend alone takes the slot count that is best there, and the policies "
        f"run with the same slots, in {counted(len(seeds), 'pair')}. Whiskers: 95 % intervals of the means; "
        "the verdict of a point goes by the differences within its pairs.",
    )
    headline = _knob_headline(gains, alone)
    sections += published_sections(profile)
    report = _report(f"sweep-{kind}", kind, headline, summary, sections, mark, facts, commands)
    return report, {"knobs": data}


def _knob_headline(gains: Sequence[Effect], alone: str) -> str:
    """At how many points it is better or worse, by the rule and by 2 % at least."""
    sure = [e.gain for e in gains if e.sure]
    better, worse = [g for g in sure if g >= PAYS], [g for g in sure if g <= -PAYS]
    if gains and all(e.verdict is Verdict.NONE for e in gains):
        return f"{ROUTED} against {alone}: too few pairs for a verdict"
    if not better and not worse:
        words = f"{ROUTED} and {alone} differ by 2 % or more of mean E2E"
        return f"No difference found: {words} at none of {len(gains)} points"
    parts = []
    if better:
        parts.append(f"better at {len(better)}, up to {percent(max(better), sign=False)} less")
    if worse:
        parts.append(f"worse at {len(worse)}, up to {percent(-min(worse), sign=False)} more")
    return f"{ROUTED} against {alone}: mean E2E {' and '.join(parts)}, of {len(gains)} points"


def _knob_table(one: Knob, done: Done, seeds: Sequence[int], slowest: str) -> tuple[Table, list[Effect]]:
    arms = [BASE, f"{slowest}-alone", ISOLATED, ROUTED]
    keys = ("mean_e2el_ms", "p95_ttft_ms", "duration")
    rows: list[tuple[str, ...]] = []
    gains: list[Effect] = []
    tones: dict[tuple[int, int], str] = {}
    for value in one.values:
        point = f"{one.kind}-{value:g}"
        cells = [figure(done.mean(point, arm, key)) for key in keys for arm in arms]
        gain = effect_at(done, point, BASE, (ROUTED,), "mean_e2el_ms", seeds)
        if gain is not None:
            gains.append(gain)
            if gain.verdict in _TONES:
                tones[len(rows), len(cells) + 2] = _TONES[gain.verdict]
        name = percent(value, sign=False) if one.percent else f"{value:g}"
        rows.append((name, *cells, *(("n/a", "n/a") if gain is None else (gain.short(), gain.verdict.value))))
    columns = (
        "",
        *(f"{BY_KEY[k].label}, {a.replace('-alone', ' alone')}" for k in keys for a in arms),
        f"% less E2E with {ROUTED}",
        "verdict",
    )
    note = "\u00b1: the wider half of the 95 % interval of the gain."
    return Table(f"{one.kind}", "", columns, tuple(rows), note, tones), gains


def _report(
    kind: str,
    title: str,
    headline: str,
    summary: Sequence[str],
    sections: Sequence[Section],
    mark: Mark,
    facts: Facts,
    commands: Sequence[str],
) -> Report:
    definitions = (*((m.label, m.definition) for m in METRICS), ("Verdict", RULE))
    return Report(
        kind,
        f"Sweep of {title}",
        headline,
        "",
        tuple(summary),
        tuple(sections),
        mark,
        (*facts, *machine_facts()),
        tuple(commands),
        definitions,
    )


def _doublings(ladder: Sequence[int]) -> tuple[float, ...]:
    return tuple(float(n) for n in (1, 2, 4, 8, 16, 32) if ladder[0] <= n <= ladder[-1])
