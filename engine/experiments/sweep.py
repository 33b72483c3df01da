"""Sweeps: one knob turned, everything else held, the baseline found anew at every point."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from engine.experiments.arms import LADDER, MOST_SLOTS, Arm, baseline_arm, fastest_place
from engine.experiments.generated import burst_source, returning_source, stream_source
from engine.experiments.grid import Done, Job
from engine.experiments.runs import Place
from engine.experiments.source import Source, capacity_rps
from engine.experiments.statistics import LEAST_PAIRS, mean_interval
from engine.profiling.profile import Profile

KINDS = ("slots", "rate", "hit-rate", "prompt", "output", "kv")
BASELINE, ISOLATED, ROUTED = "fastest alone", "isolated-rates", "total-delay"
KNEE = 0.95  # of the best throughput


@dataclass(frozen=True, slots=True)
class Knob:
    """What is turned: its values, their names on the axis, and the workload at each."""

    kind: str
    axis: str
    values: tuple[float, ...]
    sources: tuple[Source, ...]
    logarithmic: bool = False
    percent: bool = False


def knob(kind: str, quick: bool) -> Knob:
    """The knob of a sweep other than slots and rate."""
    if kind == "hit-rate":
        shares = (0.0, 0.25, 0.5, 0.75, 0.97) if quick else tuple(i / 10 for i in range(10)) + (0.97,)
        sources = tuple(burst_source(12 if quick else 24, s) for s in shares)
        return Knob(kind, "share of every prompt that is cached", shares, sources, percent=True)
    if kind == "prompt":
        lengths = (32, 128, 512, 2048) if quick else (16, 32, 64, 128, 256, 512, 1024, 2048)
        sources = tuple(burst_source(8 if quick else 16, 0.0, n) for n in lengths)
        return Knob(kind, "prompt, tokens (nothing cached)", _floats(lengths), sources, logarithmic=True)
    if kind == "output":
        lengths = (8, 32, 128, 256) if quick else (4, 8, 16, 32, 64, 128, 256, 512)
        sources = tuple(burst_source(8 if quick else 16, 0.9, 256, n) for n in lengths)
        return Knob(kind, "reply, tokens", _floats(lengths), sources, logarithmic=True)
    assert kind == "kv"
    blocks = (64, 128, 256, 512) if quick else (48, 64, 96, 128, 192, 256, 384, 512, 768)
    source = returning_source(8, 2 if quick else 4)
    axis = "KV budget of each backend, blocks of 16 tokens"
    return Knob(kind, axis, _floats(blocks), (source,) * len(blocks), logarithmic=True)


def rate_knob(profile: Profile, quick: bool, slots: Mapping[str, int], bursty: bool) -> Knob:
    """Arrival rate in shares of what the fastest backend serves alone at its best slot count."""
    loads = tuple(i / 10 for i in ((2, 4, 6, 8, 10, 12) if quick else range(2, 13)))
    count = 20 if quick else 60
    share = 0.75
    base, _ = baseline_arm(profile, burst_source(32, share, gap_s=0.0), slots)
    place = fastest_place(profile)
    best = base.slots_by_name[profile.backends[place].name]
    capacity = capacity_rps(profile, burst_source(32, share, gap_s=0.0), place, best)
    sources = tuple(stream_source(count, load * capacity, bursty, share) for load in loads)
    axis = f"arrivals, share of the capacity of {capacity:.3g} requests a second"
    return Knob("bursty" if bursty else "poisson", axis, loads, sources, percent=True)


def knob_jobs(
    chosen: Knob,
    profile: Profile,
    slots: Mapping[str, int],
    seeds: Sequence[int],
    most: int | None = None,
    places: Mapping[float, Place] | None = None,
) -> list[Job]:
    """At every value: the fastest alone at its best slots, the slowest alone, and two policies.

    One seed after the other, the arms of a pair in another order every time.
    """
    points: list[tuple[float, Source, dict[str, Arm]]] = []
    slowest = max(profile.backends, key=lambda b: b.rates.isolated_s).name
    for value, source in zip(chosen.values, chosen.sources, strict=True):
        at = profile
        if chosen.kind == "kv":
            at = replace(profile, backends=tuple(replace(b, kv_blocks=int(value)) for b in profile.backends))
        base, _ = baseline_arm(at, source, slots, most)
        arms = {BASELINE: base, ISOLATED: Arm(ISOLATED, base.slots), ROUTED: Arm(ROUTED, base.slots)}
        if len(profile.backends) > 1:
            arms[f"{slowest} alone"] = Arm(f"forced-{slowest}", base.slots)
        points.append((value, source, arms))
    jobs: list[Job] = []
    for seed in seeds:
        for value, source, arms in points:
            point, place = f"{chosen.kind}-{value:g}", (places or {}).get(value)
            pair = [Job(point, n.replace(" ", "-"), source, a, seed, place) for n, a in arms.items()]
            random.Random(f"order:{point}:{seed}").shuffle(pair)
            jobs += pair
    return jobs


def slot_ladder(quick: bool, most: int = MOST_SLOTS) -> tuple[int, ...]:
    wanted = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32) if quick else tuple(sorted({*LADDER, 7, 14}))
    return tuple(n for n in wanted if n <= most)


def slot_jobs(
    profile: Profile, slots: Mapping[str, int], quick: bool, most: int, seeds: Sequence[int]
) -> list[Job]:
    """Each backend alone, all requests at once and most of each prompt cached, at every slot count."""
    source = burst_source(64, 0.95, reply=32 if quick else 64, gap_s=0.0)
    jobs = []
    for backend in profile.backends:
        for n in slot_ladder(quick, most):
            arm = Arm(f"forced-{backend.name}", tuple({**slots, backend.name: n}.items()))
            jobs += [Job(f"slots-{n}", backend.name, source, arm, seed) for seed in seeds]
    return jobs


def knee(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The fewest slots within 5 % of the best throughput."""
    best = max(y for _, y in points)
    return next(p for p in points if p[1] >= KNEE * best)


def curve_of(
    done: Done, prefix: str, values: Sequence[float], arm: str, metric: str
) -> tuple[tuple[tuple[float, float], ...], tuple[tuple[float, float] | None, ...]]:
    """(value, mean over seeds) of one arm where it has finished, and the 95 % interval of each mean."""
    points, ranges = [], []
    for value in values:
        found = done.values(f"{prefix}-{value:g}", arm, metric)
        if found:
            points.append((float(value), sum(found) / len(found)))
            ranges.append(mean_interval(found) if len(found) >= LEAST_PAIRS else None)
    return tuple(points), tuple(ranges)


def _floats(values: Sequence[int]) -> tuple[float, ...]:
    return tuple(float(v) for v in values)
