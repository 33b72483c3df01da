"""Every policy on every preset, on the simulator: the table of `offramp simulate --all-policies`."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

from engine.experiments.arms import best_slots
from engine.experiments.percentiles import percentile
from engine.experiments.source import Source, preset_source
from engine.profiling.profile import Profile
from engine.routing.policies import policy_names
from engine.simulation.capacity import preset_capacity_rps
from engine.simulation.oracle import ENUMERATED, Yardstick, outcome_of
from engine.simulation.simulate import Simulation, fake_tokenise
from engine.weights import DEFAULT_WEIGHTS, PolicyWeights

SEEDS = 5
DEFAULT_POLICY = "total-delay"
Row = dict[str, object]


def policies_of(profile: Profile) -> list[str]:
    """The policies worth a row: the aliases would only repeat the forced ones."""
    names = policy_names([b.name for b in profile.backends])
    return [n for n in names if n not in ("forced-fastest", "forced-slowest")]


def all_policies(
    profile: Profile,
    presets: Iterable[str],
    slots: Mapping[str, int] | Literal["best"] | None = None,
    seeds: Sequence[int] = range(SEEDS),
    policies: Sequence[str] | None = None,
    on_row: Callable[[Row], None] = lambda row: None,
    weights: PolicyWeights = DEFAULT_WEIGHTS,
) -> list[Row]:
    """One row per preset and policy: means over the seeds, the same seeds for every policy.

    `slots` "best" are, for each preset, those with which the fastest backend serves it best alone. Rows of
    the default policy carry its `bounds` against the better single backend.

    `regret` is (mean E2E - best) / best against every placement enumerated, for presets of up to
    14 requests; None beyond, where a best is not known.
    """
    rows: list[Row] = []
    for preset in presets:
        source, used, capacity = _prepared(profile, preset, slots)
        workloads = [source.build(fake_tokenise, seed) for seed in seeds]
        best: list[float] | None = None
        if len(workloads[0].requests) <= ENUMERATED:
            best = [Yardstick(profile, w, used).best().mean_e2e_s for w in workloads]
        for policy in policies or policies_of(profile):
            # Lengths of earlier replies are known, as they are in use; the burst's own are not.
            runs = [
                Simulation(profile, policy, used, lengths=source.seasoned(), weights=weights).run(w)
                for w in workloads
            ]
            outcomes = [outcome_of(r) for r in runs]
            regret = None
            if best is not None:
                regret = _mean([o.mean_e2e_s / b - 1 for o, b in zip(outcomes, best, strict=True)])
            row: Row = {
                "profile": profile.name,
                "preset": preset,
                "policy": policy,
                "default": policy == DEFAULT_POLICY,
                "weights": str(weights),
                "simulated": True,
                "makespan_s": _mean([o.makespan_s for o in outcomes]),
                "mean_e2e_s": _mean([o.mean_e2e_s for o in outcomes]),
                "p95_ttft_s": _mean([p95_ttft(r) for r in runs]),
                "requests_per_backend": _placed(runs),
                "regret": regret,
                "capacity_rps": capacity,
                "slots": used or {b.name: b.slots for b in profile.backends},
            }
            rows.append(row)
            on_row(row)
    for row in rows:
        if row["default"] and (found := bounds_of(row, rows)):
            row["bounds"] = found
    return rows


def _prepared(
    profile: Profile, preset: str, slots: Mapping[str, int] | Literal["best"] | None
) -> tuple[Source, dict[str, int] | None, float | None]:
    """The preset at its rate, the slots it runs with, and the capacity that its rate is a share of."""
    used = None if slots is None or slots == "best" else dict(slots)
    if slots == "best":
        used = best_slots(profile, preset_source(preset, preset_capacity_rps(profile, preset, None)))
    capacity = preset_capacity_rps(profile, preset, used)
    return preset_source(preset, capacity), used, capacity


MOST = {"makespan_s": 0.01, "p95_ttft_s": 0.02}  # how much worse than the better backend alone is allowed
MOST_WARM_P95 = 0.06  # where every prompt is cached: two backends at once slow each other down


def bounds_of(row: Row, rows: Sequence[Row]) -> dict[str, dict[str, object]]:
    """By how much a row is worse than the better single backend of its preset, and whether that is allowed.

    Empty where the single backends have no rows.
    """
    alone = [r for r in rows if r["preset"] == row["preset"] and str(r["policy"]).startswith("forced-")]
    found: dict[str, dict[str, object]] = {}
    for figure, most in MOST.items() if alone else ():
        warm = figure == "p95_ttft_s" and str(row["preset"]).startswith("seed-warm")
        change = _figure(row, figure) / min(_figure(a, figure) for a in alone) - 1
        limit = MOST_WARM_P95 if warm else most
        found[figure] = {"change": change, "most": limit, "holds": change <= limit}
    return found


def bounds_line(rows: Sequence[Row]) -> str:
    """How many bounds of the default policy hold against the better single backend, and which break."""
    judged = [
        (row, figure, b) for row in rows if row["default"] for figure, b in bounds_of(row, rows).items()
    ]
    broken = [f"{row['preset']} {figure} {b['change']:+.1%}" for row, figure, b in judged if not b["holds"]]
    words = f"; broken: {', '.join(broken)}" if broken else ""
    return (
        f"{len(judged) - len(broken)} of {len(judged)} bounds hold against the better backend alone{words}."
    )


def _figure(row: Row, name: str) -> float:
    value = row[name]
    assert isinstance(value, float)
    return value


def p95_ttft(result: dict[str, object]) -> float:
    requests = result["requests"]
    assert isinstance(requests, list)
    value = percentile([float(r["ttft_s"]) for r in requests], 95)
    assert value is not None
    return value


def _placed(runs: Sequence[dict[str, object]]) -> dict[str, float]:
    """Mean number of requests on each backend."""
    out: dict[str, float] = {}
    for run in runs:
        counts = run["requests_per_backend"]
        assert isinstance(counts, dict)
        for name, n in counts.items():
            out[name] = out.get(name, 0.0) + n / len(runs)
    return {name: round(n, 2) for name, n in out.items()}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
