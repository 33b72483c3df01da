"""Regret: how far a policy stays behind the best placement, over many random bursts, simulated."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any

from engine.experiments.percentiles import percentile
from engine.experiments.tables import DEFAULT_POLICY, p95_ttft, policies_of
from engine.profiling.profile import Profile
from engine.recording import refuse_early
from engine.request import Request, RequestId, SamplingParams
from engine.routing.length import LengthEstimator
from engine.simulation.oracle import Outcome, Yardstick, outcome_of
from engine.simulation.simulate import Simulation
from engine.weights import DEFAULT_WEIGHTS, PolicyWeights
from engine.workloads.presets import PlannedRequest, Workload

LEAST, MOST = 2, 12  # requests of a burst: every placement of so many can be tried
_BUDGET = 256
_LENGTHS = {"label": (8, 24), "answer": (48, 112), "story": (160, 256)}
ORACLE = f"{DEFAULT_POLICY}, true lengths"


def random_burst(seed: int, most: int = MOST) -> Workload:
    """A mixed burst: labels to stories, warm and cold prompts of 32 to 900 tokens, uneven gaps."""
    draw = random.Random(seed)
    count = draw.randint(LEAST, most)
    ids = iter(range(1, 10_000_000))

    def fresh(tokens: int) -> tuple[int, ...]:
        return tuple(next(ids) for _ in range(tokens))

    prefixes = [fresh(draw.choice((128, 256, 512))) for _ in range(2)]
    seeded = draw.random() < 0.5
    requests, offset_s = [], 0.0
    gap_s = draw.choice((0.01, 0.05, 0.2))
    for _ in range(count):
        kind = draw.choice(list(_LENGTHS))
        prefix = draw.choice((*prefixes, ()))
        prompt = prefix + fresh(draw.randint(16, 64) if prefix else draw.choice((32, 128, 512, 900)))
        sampling = SamplingParams(temperature=0.0, top_p=1.0, max_new_tokens=_BUDGET)
        requests.append(PlannedRequest(offset_s, prompt, sampling, kind, draw.randint(*_LENGTHS[kind])))
        offset_s += draw.expovariate(1 / gap_s)
    seeding = tuple(prefixes) if seeded else ()
    return Workload(f"random-{seed}", seed, tuple(requests), seeding, "random mixed burst")


def seasoned(kind: str = "class", seed: int = 7) -> LengthEstimator:
    """An estimator that has already seen a hundred replies, as one in use has."""
    lengths, draw = LengthEstimator(kind), random.Random(seed)
    sampling = SamplingParams(max_new_tokens=_BUDGET)
    for i in range(100):
        tag = draw.choice(list(_LENGTHS))
        request = Request(RequestId(-1 - i), (1,) * 64, sampling, 0.0, tag)
        lengths.observe(request, draw.randint(*_LENGTHS[tag]), censored=False)
    return lengths


@dataclass(frozen=True, slots=True)
class RegretRow:
    """Regret of one policy over all bursts, as fractions of the best."""

    policy: str
    default: bool
    mean_e2e: tuple[float, ...]
    makespan: tuple[float, ...]

    def to_json(self) -> dict[str, object]:
        return {
            "policy": self.policy,
            "default": self.default,
            "simulated": True,
            "bursts": len(self.mean_e2e),
            "regret_mean_e2e": _summary(self.mean_e2e),
            "regret_makespan": _summary(self.makespan),
        }


def _summary(values: Sequence[float]) -> dict[str, float | None]:
    return {"mean": sum(values) / len(values), "p95": percentile(values, 95), "max": max(values)}


def regret_rows(
    profile: Profile,
    bursts: int,
    slots: dict[str, int] | None = None,
    seed: int = 0,
    on_burst: Callable[[int], None] = lambda done: None,
    weights: PolicyWeights = DEFAULT_WEIGHTS,
) -> list[RegretRow]:
    """Regret of every policy, and of the default with true lengths, on the same random bursts."""
    runs = [(p, p, "class") for p in policies_of(profile)] + [(ORACLE, DEFAULT_POLICY, "oracle")]
    found: dict[str, list[tuple[float, float]]] = {name: [] for name, _, _ in runs}
    # Every estimator goes on learning from burst to burst, as it would in use.
    lengths = {name: seasoned(kind) for name, _, kind in runs}
    for number in range(bursts):
        workload = random_burst(seed * 100_000 + number)
        best = Yardstick(profile, workload, slots).best()
        for name, policy, _ in runs:
            result = Simulation(profile, policy, slots, lengths=lengths[name], weights=weights).run(workload)
            found[name].append(_regret(outcome_of(result), best.mean_e2e_s, best.makespan_s))
        on_burst(number + 1)
    return [
        RegretRow(name, name == DEFAULT_POLICY, tuple(e for e, _ in pairs), tuple(m for _, m in pairs))
        for name, pairs in found.items()
    ]


def _regret(outcome: Outcome, best_e2e_s: float, best_makespan_s: float) -> tuple[float, float]:
    # The best is the best that was confirmed; a policy that beats it by a hair has no negative regret.
    return (
        max(0.0, outcome.mean_e2e_s / best_e2e_s - 1),
        max(0.0, outcome.makespan_s / best_makespan_s - 1),
    )


@dataclass(frozen=True, slots=True)
class Bounds:
    """How often the default policy was worse than the better single backend, over random bursts."""

    bursts: int
    makespan_broken: int  # more than 1 % longer
    p95_broken: int  # p95 TTFT more than 2 % longer
    makespan_change: float  # mean, fractions of the better single backend's
    mean_e2e_change: float
    p95_ttft_change: float


def bounds(
    profile: Profile,
    bursts: int,
    slots: dict[str, int] | None = None,
    seed: int = 0,
    on_burst: Callable[[int], None] = lambda done: None,
    weights: PolicyWeights = DEFAULT_WEIGHTS,
) -> Bounds:
    """The default policy against each backend alone on random bursts of 2 to 16 requests, simulated."""
    lengths = seasoned()
    alone = [f"forced-{b.name}" for b in profile.backends]
    makespan_broken = p95_broken = 0
    changes: list[tuple[float, float, float]] = []
    for number in range(bursts):
        workload = random_burst(seed * 100_000 + 50_000 + number, most=16)
        runs = [Simulation(profile, policy, slots).run(workload) for policy in alone]
        routed = Simulation(profile, DEFAULT_POLICY, slots, lengths=lengths, weights=weights)
        runs.append(routed.run(workload))
        figures = [(outcome_of(r).makespan_s, outcome_of(r).mean_e2e_s, p95_ttft(r)) for r in runs]
        best = [min(values) for values in zip(*figures[:-1], strict=True)]
        makespan, e2e, ttft = (mine / b - 1 for mine, b in zip(figures[-1], best, strict=True))
        changes.append((makespan, e2e, ttft))
        makespan_broken += makespan > 0.01
        p95_broken += ttft > 0.02
        on_burst(number + 1)
    means = [sum(c[i] for c in changes) / bursts for i in range(3)]
    return Bounds(bursts, makespan_broken, p95_broken, *means)


def moved_at_s(result: Mapping[str, Any]) -> dict[int, float] | None:
    """When each request that moved (its number, from 1) came to the backend where it ran, in seconds since
    the burst began; None of a run that did not record it."""
    moved = [r for r in result["requests"] if (r.get("receipt") or {}).get("moved_from")]
    if any(r.get("routed_s") is None for r in moved):
        return None
    return {int(r["id"]): float(r["arrival_s"]) + float(r["routed_s"]) for r in moved}


def explain(
    profile: Profile,
    workload: Workload,
    policy: str,
    result: dict[str, Any] | None,
    weights: PolicyWeights = DEFAULT_WEIGHTS,
) -> dict[str, object]:
    """Best placement, bound and the split of the regret of one run. `weights` are those of its policy.

    For each goal, as fractions of the best: `model_error` = as it ran against the same placement simulated,
    a request that moved given to its last backend when it was in the run; `placed_otherwise` = that against
    the policy simulated, which may decide otherwise than it did live; `length_error` = the policy against
    itself with true lengths; `greedy_choice` = that against the best. These add up to `total`. A move may
    beat every placement at arrival: the regret is below 0 then. `unproven_gap` = the best against the lower
    bound, 0 where every placement was tried, and no part of the sum. None is not known. Raises
    `ConfigError` where requests did not end by themselves.
    """
    refuse_early(result, "regret")
    yardstick = Yardstick(profile, workload)
    best = yardstick.best()
    names = [b.name for b in profile.backends]
    measured = same = None
    if result is not None and all(r["backend"] in names for r in result["requests"]):
        measured = outcome_of(result)
        placed = tuple(names.index(r["backend"]) for r in result["requests"])
        given_s = moved_at_s(result)
        same = None if given_s is None else yardstick.exact(placed, given_s)
    routed = outcome_of(Simulation(profile, policy, lengths=seasoned(), weights=weights).run(workload))
    exact_lengths = LengthEstimator("oracle")
    exact = Simulation(profile, policy, lengths=exact_lengths, weights=weights)
    true = outcome_of(exact.run(workload))
    goals = {
        "makespan": (attrgetter("makespan_s"), best.makespan_s),
        "mean_e2e": (attrgetter("mean_e2e_s"), best.mean_e2e_s),
    }
    split: dict[str, dict[str, float | None]] = {}
    for goal, (of, least) in goals.items():
        gap = 0.0 if best.proven or goal != "makespan" else max(0.0, least / best.lower_bound_s - 1)
        split[goal] = {
            "total": (of(measured if measured is not None else routed) - least) / least,
            "model_error": None if measured is None or same is None else (of(measured) - of(same)) / least,
            "placed_otherwise": None if same is None else (of(same) - of(routed)) / least,
            "length_error": (of(routed) - of(true)) / least,
            "greedy_choice": (of(true) - least) / least,
            "unproven_gap": gap,
        }
    return {
        "preset": workload.preset,
        "policy": policy,
        "simulated": True,
        "proven": best.proven,
        "tried": best.tried,
        "measured": asdict(measured) if measured is not None else {},
        "simulated_same_placement": asdict(same) if same is not None else {},
        "policy_simulated": asdict(routed),
        "policy_true_lengths": asdict(true),
        "best": {"makespan_s": best.makespan_s, "mean_e2e_s": best.mean_e2e_s},
        "best_placement": [names[p] for p in best.mean_e2e_placement],
        "lower_bound": {"makespan_s": best.lower_bound_s},
        "regret": split,
    }
