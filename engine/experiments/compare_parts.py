"""The sections of a comparison's report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.experiments import charts
from engine.experiments.arms import Arm, Solo, best_of
from engine.experiments.charts import Axes, Curve, Mark, Row
from engine.experiments.compare import Outcome
from engine.experiments.metrics import BY_KEY, METRICS, Metric
from engine.experiments.report import Chart, Section, Table
from engine.experiments.statistics import Comparison, Verdict, mean_interval
from engine.experiments.svg import counted, figure, interval_words, percent

TONES = {Verdict.BETTER: "good", Verdict.WORSE: "bad"}
_DRAWN = ("duration", "mean_e2el_ms", "p95_ttft_ms")


@dataclass(frozen=True, slots=True)
class Told:
    """An outcome with the words for its arms and its comparisons against the baseline."""

    outcome: Outcome
    labels: Mapping[str, str]
    base: str
    found: Mapping[str, Mapping[str, Comparison]]
    mark: Mark

    def mean(self, arm: str, metric: Metric) -> float | None:
        values = self.outcome.values(arm, metric)
        return sum(values) / len(values) if values else None


def result_section(told: Told) -> Section:
    """Means in a table, then every run and the change within each pair as pictures."""
    parts: list[Table | Chart] = [_means_table(told)]
    for key in _DRAWN:
        metric = BY_KEY[key]
        parts += [c for c in (_runs_chart(told, metric), _change_chart(told, metric)) if c is not None]
    return Section("Results", "", tuple(parts))


def _means_table(told: Told) -> Table:
    arms = list(told.outcome.runs)
    rows: list[tuple[str, ...]] = []
    tones: dict[tuple[int, int], str] = {}
    for metric in METRICS:
        means = [told.mean(a, metric) for a in arms]
        if all(m is None for m in means):
            continue
        for i, arm in enumerate(arms, 1):
            comparison = told.found.get(arm, {}).get(metric.key)
            if comparison is not None and comparison.verdict in TONES:
                tones[len(rows), i] = TONES[comparison.verdict]
        rows.append((f"{metric.label}, {metric.unit}", *(figure(m) for m in means)))
    usual = ", ".join(f"{n} {s}" for n, s in told.outcome.plan.usual_slots.items())
    slo = ", ".join(f"{k.upper()} {v:,.0f} ms" for k, v in told.outcome.plan.slo.items())
    note = (
        f"Green is better and orange worse than {told.labels[told.base]}, by the rule below. "
        f"Where no slots are named: {usual}. "
        f"Goodput counts requests within {slo}. p99 is shown from 100 requests on."
    )
    columns = ("", *(told.labels[a] for a in arms))
    return Table("means", f"Mean of {told.outcome.pairs} runs", columns, tuple(rows), note, tones)


def _foot(told: Told, dot: str) -> str:
    plan = told.outcome.plan
    words = f"Dot: one {dot}; square and whisker: mean and its 95 % interval."
    return f"{plan.source.name}, {counted(told.outcome.pairs, 'pair')}. {words}"


def _runs_chart(told: Told, metric: Metric) -> Chart | None:
    rows = []
    for arm in told.outcome.runs:
        values = told.outcome.values(arm, metric)
        if values:
            low, high = mean_interval(values, told.outcome.plan.seed) or (None, None)
            mean = sum(values) / len(values)
            note = f"{figure(mean, 2)} {metric.unit}"
            rows.append(Row(_short(told.labels[arm]), tuple(values), mean, low, high, note))
    if not rows:
        return None
    title = f"{metric.label} of each run"
    drawing = charts.dots(title, metric.definition, metric.unit, rows, told.mark, _foot(told, "run"))
    return Chart(f"runs-{_slug(metric)}", drawing)


def _change_chart(told: Told, metric: Metric) -> Chart | None:
    rows = []
    for arm, by in told.found.items():
        before, after = told.outcome.values(told.base, metric), told.outcome.values(arm, metric)
        c = by.get(metric.key)
        if before is None or after is None or c is None or not c.baseline_mean:
            continue
        pairs = tuple((b - a) / c.baseline_mean * 100 for a, b in zip(before, after, strict=True))
        low, high = (None if v is None else v / c.baseline_mean * 100 for v in (c.low, c.high))
        share = c.difference / c.baseline_mean
        label = _short(told.labels[arm])
        rows.append(Row(label, pairs, share * 100, low, high, percent(share), c.verdict))
    if not rows:
        return None
    words = f"percent of {told.labels[told.base]}, the fastest backend alone at its best slot count"
    title = f"{metric.label}: change within each pair"
    foot = _foot(told, "pair")
    drawing = charts.dots(title, words, "%", rows, told.mark, foot, zero="no change")
    return Chart(f"change-{_slug(metric)}", drawing)


def verdict_section(told: Told, arm: str) -> Section:
    """One setting against the baseline, metric by metric."""
    rows: list[tuple[str, ...]] = []
    tones = {}
    for key, c in told.found[arm].items():
        metric = BY_KEY[key]
        if c.verdict in TONES:
            tones[len(rows), 5] = TONES[c.verdict]
        interval = interval_words(c.share(c.low), c.share(c.high))
        change = percent(c.share(c.difference))
        name = f"{metric.label}, {metric.unit}"
        rows.append((name, figure(c.baseline_mean), figure(c.mean), change, interval, c.verdict.value))
    label, base = told.labels[arm], told.labels[told.base]
    columns = ("", base, label, "change", "95 % interval", "verdict")
    slug = "".join(ch if ch.isalnum() else "-" for ch in arm)
    return Section(
        f"{label} against {base}", "", (Table(f"verdict-{slug}", "", columns, tuple(rows), "", tones),)
    )


def placement_section(told: Told) -> Section:
    runs_by_arm = told.outcome.runs
    names = sorted({b["name"] for runs in runs_by_arm.values() for r in runs for b in r.result["backends"]})
    rows: list[tuple[str, ...]] = []
    for arm, runs in runs_by_arm.items():
        counts = [[r.result["requests_per_backend"].get(n, 0) for r in runs] for n in names]
        cells = [f"{figure(sum(c) / len(c), 1)} ({min(c)} to {max(c)})" for c in counts if c]
        rows.append((told.labels[arm], *cells))
    table = Table("placement", "Requests a run, mean (least to most)", ("", *names), tuple(rows))
    return Section("Where the requests went", "", (table,))


def ladder_section(ladder: Sequence[Solo], arm: Arm, mark: Mark) -> Section:
    """How the baseline's slot count was found."""
    best, name = best_of(ladder), arm.policy.removeprefix("forced-")
    rows = tuple((str(s.slots), figure(s.makespan_s, 2), figure(s.mean_e2e_s, 2)) for s in ladder)
    columns = ("slots", "makespan, s", "mean E2E, s")
    table = Table("baseline-sweep", f"{name} alone, simulated without noise", columns, rows)
    words = (
        f"The baseline that counts is the fastest backend alone at its best slot count: {name} with "
        f"{best.slots} slot{'' if best.slots == 1 else 's'}, found on the simulator (the least makespan; "
        "within 1 % of it, the least mean E2E)."
    )
    curve = Curve(
        f"{name.upper()} alone",
        tuple((float(s.slots), s.makespan_s) for s in ladder),
        0,
        strong=True,
        knee=(float(best.slots), best.makespan_s),
        knee_words=f"best: {best.slots} slot{'' if best.slots == 1 else 's'}",
    )
    doublings = tuple(float(n) for n in (1, 2, 4, 8, 16, 32) if n <= ladder[-1].slots)
    axes = Axes("slots: requests served at once", "makespan, s", doublings, logarithmic=True)
    simulated = Mark("SIMULATED", mark.words or "calibration of this machine")
    title = f"{name.upper()} alone at every slot count"
    words_below = "makespan of the same workload; the baseline takes the best"
    drawing = charts.curves(title, words_below, axes, [curve], simulated)
    return Section("The baseline", words, (Chart("baseline-slots", drawing), table))


def runs_section(told: Told) -> Section:
    keys = ("duration", "output_throughput", "mean_ttft_ms", "p95_ttft_ms", "mean_e2el_ms", "p95_e2el_ms")
    metrics = [BY_KEY[k] for k in keys]
    rows: list[tuple[str, ...]] = []
    for arm, runs in told.outcome.runs.items():
        for run in runs:
            values = [run.figures[m.key] for m in metrics]
            scaled = [None if v is None else v * m.scale for v, m in zip(values, metrics, strict=True)]
            cells = (figure(v, 3) for v in scaled)
            rows.append((told.labels[arm], str(run.pair), str(run.seed), *cells))
    columns = ("setting", "pair", "seed", *(f"{m.label}, {m.unit}" for m in metrics))
    words = "Each has a file in runs/ with the time of every token."
    return Section("Every run", words, (Table("runs", "", columns, tuple(rows)),))


def _slug(metric: Metric) -> str:
    return metric.label.lower().replace(" ", "-")


def _short(label: str) -> str:
    return label if len(label) <= 31 else label[:30] + "\u2026"
