"""Every policy on every preset, on the simulator: the table of `offramp simulate --all-policies`."""

from collections.abc import Callable, Iterable, Sequence

from engine.experiments.percentiles import percentile
from engine.profiling.profile import Profile
from engine.request import Request, RequestId
from engine.routing.length import LengthEstimator
from engine.routing.policies import policy_names
from engine.simulation.capacity import preset_capacity_rps
from engine.simulation.oracle import ENUMERATED, Yardstick, outcome_of
from engine.simulation.simulate import Simulation, fake_tokenise
from engine.workloads.presets import make_workload

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
    slots: dict[str, int] | None = None,
    seeds: Sequence[int] = range(SEEDS),
    policies: Sequence[str] | None = None,
    on_row: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """One row per preset and policy: means over the seeds, the same seeds for every policy.

    `regret` is (mean E2E - best) / best against every placement enumerated, for presets of up to
    14 requests; None beyond, where a best is not known.
    """
    rows: list[Row] = []
    for preset in presets:
        capacity = preset_capacity_rps(profile, preset, slots)
        workloads = [make_workload(preset, fake_tokenise, seed, capacity) for seed in seeds]
        best: list[float] | None = None
        if len(workloads[0].requests) <= ENUMERATED:
            best = [Yardstick(profile, w, slots).best().mean_e2e_s for w in workloads]
        for policy in policies or policies_of(profile):
            # Lengths of earlier replies are known, as they are in use; the burst's own are not.
            runs = [Simulation(profile, policy, slots, lengths=_seasoned(preset)).run(w) for w in workloads]
            outcomes = [outcome_of(r) for r in runs]
            regret = None
            if best is not None:
                regret = _mean([o.mean_e2e_s / b - 1 for o, b in zip(outcomes, best, strict=True)])
            row: Row = {
                "profile": profile.name,
                "preset": preset,
                "policy": policy,
                "default": policy == DEFAULT_POLICY,
                "simulated": True,
                "makespan_s": _mean([o.makespan_s for o in outcomes]),
                "mean_e2e_s": _mean([o.mean_e2e_s for o in outcomes]),
                "p95_ttft_s": _mean([p95_ttft(r) for r in runs]),
                "requests_per_backend": _placed(runs),
                "regret": regret,
                "capacity_rps": capacity,
            }
            rows.append(row)
            on_row(row)
    return rows


MOST = {"makespan_s": 0.01, "p95_ttft_s": 0.02}  # how much worse than the better backend alone is allowed
MOST_WARM_P95 = 0.06  # where every prompt is cached: two backends at once slow each other down


def bounds_line(rows: Sequence[Row]) -> str:
    """How many bounds of the default policy hold against the better single backend, and which break."""
    held, broken = 0, []
    for preset in dict.fromkeys(str(r["preset"]) for r in rows):
        mine = [r for r in rows if r["preset"] == preset and r["default"]]
        alone = [r for r in rows if r["preset"] == preset and str(r["policy"]).startswith("forced-")]
        for row in mine if alone else ():
            for figure, most in MOST.items():
                limit = MOST_WARM_P95 if figure == "p95_ttft_s" and preset.startswith("seed-warm") else most
                change = _figure(row, figure) / min(_figure(a, figure) for a in alone) - 1
                held += change <= limit
                if change > limit:
                    broken.append(f"{preset} {figure} {change:+.1%}")
    words = f"; broken: {', '.join(broken)}" if broken else ""
    return f"{held} of {held + len(broken)} bounds hold against the better backend alone{words}."


def _figure(row: Row, name: str) -> float:
    value = row[name]
    assert isinstance(value, float)
    return value


def _seasoned(preset: str) -> LengthEstimator:
    """An estimator that has seen the replies of other seeds of the same preset."""
    lengths = LengthEstimator()
    for seed in range(1_000, 1_004):
        for i, planned in enumerate(make_workload(preset, fake_tokenise, seed).requests):
            if planned.reply_tokens is not None:
                request = Request(RequestId(-i), planned.prompt, planned.sampling, 0.0, planned.tag)
                lengths.observe(request, planned.reply_tokens, censored=False)
    return lengths


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
