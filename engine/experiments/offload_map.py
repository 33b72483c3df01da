"""The offload map: over backlog and cached share, and over rate and hit rate, where does the CPU pay?

A cell compares the better of two policies with the fastest backend alone, all at the slot count that is
best for the fastest alone in that cell. The surface is simulated on a profile; cells can be measured as well.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from engine.experiments.arms import Arm, baseline_arm, fastest_place
from engine.experiments.effects import Effect, effect_at
from engine.experiments.generated import PROMPT, burst_source, stream_source
from engine.experiments.grid import Done, Job
from engine.experiments.heatmap import Cell
from engine.experiments.source import Source, capacity_rps
from engine.experiments.tables import DEFAULT_POLICY
from engine.profiling.profile import Profile

ALONE = "alone"
POLICIES = (DEFAULT_POLICY, "batched-clear")
REPLY, REPLY_QUICK = 128, 64
BACKLOGS, BACKLOGS_QUICK = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48), (1, 4, 8, 16, 32)
LOADS, LOADS_QUICK = (0.2, 0.4, 0.6, 0.8, 0.9, 1.0, 1.1, 1.2), (0.2, 0.4, 0.6, 0.8, 1.0, 1.2)
SHARES, SHARES_QUICK = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.97), (0.0, 0.25, 0.5, 0.75, 0.97)
Slots = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """One map: its axes, and the workload, slots and name of every cell (column, row)."""

    name: str
    x: str
    y: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    about: str  # the requests, in words
    sources: Mapping[Cell, Source]
    held: Mapping[Cell, Slots]
    points: Mapping[Cell, str]  # cells of two maps with the same slots share their runs
    best: bool  # slots: the best for the fastest alone, else those of the profile


def backlog_grid(profile: Profile, slots: Mapping[str, int], quick: bool, most: int | None = None) -> Grid:
    """Requests that come together x the share of their prompts that is cached, at the best slots."""
    backlogs = BACKLOGS_QUICK if quick else BACKLOGS
    shares = SHARES_QUICK if quick else SHARES
    reply = REPLY_QUICK if quick else REPLY
    sources = {
        (i, j): burst_source(n, s, reply=reply) for i, n in enumerate(backlogs) for j, s in enumerate(shares)
    }
    return _best(
        "backlog",
        "backlog: requests that arrive 50 ms apart",
        "cached share of every prompt",
        tuple(str(n) for n in backlogs),
        shares,
        reply,
        sources,
        profile,
        slots,
        most,
    )


def rate_grid(profile: Profile, slots: Mapping[str, int], quick: bool, most: int | None = None) -> Grid:
    """Arrival rate, in shares of the fastest backend's capacity at that hit rate, x hit rate."""
    loads = LOADS_QUICK if quick else LOADS
    shares = SHARES_QUICK if quick else SHARES
    count, reply = (16, REPLY_QUICK) if quick else (40, REPLY)
    place = fastest_place(profile)
    name = profile.backends[place].name
    sources: dict[Cell, Source] = {}
    for j, share in enumerate(shares):
        together = burst_source(32, share, reply=reply, gap_s=0.0)
        best = baseline_arm(profile, together, slots, most)[0].slots_by_name[name]
        capacity = capacity_rps(profile, together, place, best)
        for i, load in enumerate(loads):
            sources[i, j] = stream_source(count, load * capacity, False, share, reply=reply)
    return _best(
        "rate",
        "arrivals (Poisson), share of the fastest backend's capacity",
        "hit rate: cached share of every prompt",
        tuple(f"{load:.0%}".replace("%", " %") for load in loads),
        shares,
        reply,
        sources,
        profile,
        slots,
        most,
    )


def _best(
    name: str,
    x: str,
    y: str,
    columns: tuple[str, ...],
    shares: Sequence[float],
    reply: int,
    sources: Mapping[Cell, Source],
    profile: Profile,
    slots: Mapping[str, int],
    most: int | None,
) -> Grid:
    held = {cell: baseline_arm(profile, source, slots, most)[0].slots for cell, source in sources.items()}
    rows = tuple(f"{s:.0%}".replace("%", " %") for s in shares)
    points = {(i, j): f"{name}-best-{i}-{j}" for i, j in sources}
    about = f"prompts of {PROMPT} tokens, {reply} out"
    return Grid(name, x, y, columns, rows, about, sources, held, points, best=True)


def at_usual_slots(grid: Grid, slots: Mapping[str, int]) -> Grid:
    """The same map with the slots that the profile is set to."""
    usual = tuple(slots.items())
    points = {
        cell: point if dict(grid.held[cell]) == dict(usual) else point.replace("-best-", "-usual-")
        for cell, point in grid.points.items()
    }
    return replace(grid, held=dict.fromkeys(grid.sources, usual), points=points, best=False)


def map_jobs(
    grids: Sequence[Grid], profile: Profile, seeds: Sequence[int], cells: Sequence[Cell] | None = None
) -> list[Job]:
    """The fastest alone and every policy, a run a cell and seed; in every pair in another order.

    Cells that two grids share are run once. One seed after the other, so that stopping early leaves the
    whole map with fewer pairs rather than a part of it.
    """
    name = profile.backends[fastest_place(profile)].name
    jobs: list[Job] = []
    seen: set[tuple[str, int]] = set()
    for seed in seeds:
        for grid in grids:
            for cell, source in grid.sources.items():
                point, held = grid.points[cell], grid.held[cell]
                if (cells is not None and cell not in cells) or (point, seed) in seen:
                    continue
                seen.add((point, seed))
                pair = [Job(point, ALONE, source, Arm(f"forced-{name}", held), seed)]
                pair += [Job(point, policy, source, Arm(policy, held), seed) for policy in POLICIES]
                random.Random(f"order:{point}:{seed}").shuffle(pair)
                jobs += pair
    return jobs


def some_cells(grid: Grid, quick: bool) -> list[Cell]:
    """Cells worth measuring: two backlogs, with nothing and nearly all cached, and in between."""
    columns = [grid.columns.index(n) for n in (("8", "16") if quick else ("8", "24"))]
    last = len(grid.rows) - 1
    return [(i, j) for i in columns for j in ((0, last) if quick else (0, grid.rows.index("50 %"), last))]


def effects(
    done: Done, grid: Grid, metric: str, seeds: Sequence[int], policies: Sequence[str] = POLICIES
) -> dict[Cell, Effect]:
    """What every cell says that has run for one seed at least."""
    found = {}
    for cell, point in grid.points.items():
        one = effect_at(done, point, ALONE, policies, metric, seeds)
        if one is not None:
            found[cell] = one
    return found
