"""The offload map: over backlog and cached share, and over rate and hit rate, where does the CPU pay?

A cell compares the better of two policies with the fastest backend alone, all at the slot count that is
best for the fastest alone in that cell. The surface is simulated on a profile; cells can be measured as well.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.experiments.arms import Arm, baseline_arm, fastest_place
from engine.experiments.charts import Mark
from engine.experiments.generated import burst_source, stream_source
from engine.experiments.grid import Done, Job
from engine.experiments.heatmap import PAYS, Cell, Panel, heatmap
from engine.experiments.metrics import METRICS
from engine.experiments.report import Chart, Report, Section, Table, machine_facts
from engine.experiments.source import Source, capacity_rps
from engine.experiments.svg import figure, percent
from engine.experiments.sweep_report import assumed_foot
from engine.experiments.tables import DEFAULT_POLICY
from engine.profiling.profile import Profile

ALONE = "alone"
POLICIES = (DEFAULT_POLICY, "batched-clear")
REPLY = 128
METRIC_WORDS = {"mean_e2el_ms": "mean E2E", "duration": "makespan"}


@dataclass(frozen=True, slots=True)
class Grid:
    """One map: its axes and the workload of every cell (column, row)."""

    name: str
    x: str
    y: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    sources: Mapping[Cell, Source]
    best: bool  # slots: the best for the fastest alone, else those of the profile

    def point(self, cell: Cell) -> str:
        return f"{self.name}-{'best' if self.best else 'usual'}-{cell[0]}-{cell[1]}"


def backlog_grid(quick: bool, best: bool = True) -> Grid:
    """Requests that come together x the share of their prompts that is cached."""
    backlogs = (1, 4, 8, 16, 32, 48) if quick else (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64)
    shares = _shares(quick)
    sources = {
        (i, j): burst_source(n, s, reply=REPLY) for i, n in enumerate(backlogs) for j, s in enumerate(shares)
    }
    return Grid(
        "backlog",
        "backlog: requests that arrive 50 ms apart",
        "cached share of every prompt",
        tuple(str(n) for n in backlogs),
        tuple(f"{s:.0%}".replace("%", " %") for s in shares),
        sources,
        best,
    )


def rate_grid(profile: Profile, slots: Mapping[str, int], quick: bool, best: bool = True) -> Grid:
    """Arrival rate, in shares of the fastest backend's capacity at that hit rate, x hit rate."""
    loads = (0.2, 0.4, 0.6, 0.8, 1.0, 1.2) if quick else tuple(i / 10 for i in range(2, 13))
    shares = _shares(quick)
    count = 16 if quick else 60
    place = fastest_place(profile)
    name = profile.backends[place].name
    sources: dict[Cell, Source] = {}
    for j, share in enumerate(shares):
        together = burst_source(32, share, reply=REPLY, gap_s=0.0)
        most = baseline_arm(profile, together, slots)[0].slots_by_name[name] if best else slots[name]
        capacity = capacity_rps(profile, together, place, most)
        for i, load in enumerate(loads):
            sources[i, j] = stream_source(count, load * capacity, False, share, reply=REPLY)
    return Grid(
        "rate",
        "arrivals (Poisson), share of the fastest backend's capacity",
        "hit rate: cached share of every prompt",
        tuple(f"{load:.0%}".replace("%", " %") for load in loads),
        tuple(f"{s:.0%}".replace("%", " %") for s in shares),
        sources,
        best,
    )


def _shares(quick: bool) -> tuple[float, ...]:
    return (0.0, 0.25, 0.5, 0.75, 0.97) if quick else (0.0, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 0.97)


def map_jobs(
    grid: Grid,
    profile: Profile,
    slots: Mapping[str, int],
    seeds: Sequence[int],
    cells: Sequence[Cell] | None = None,
    most: int | None = None,
) -> list[Job]:
    """The fastest alone and every policy, a run a cell and seed."""
    name = profile.backends[fastest_place(profile)].name
    jobs = []
    for cell, source in grid.sources.items():
        if cells is not None and cell not in cells:
            continue
        held = tuple(slots.items())
        if grid.best:
            held = baseline_arm(profile, source, slots, most)[0].slots
        point = grid.point(cell)
        for seed in seeds:
            jobs.append(Job(point, ALONE, source, Arm(f"forced-{name}", held), seed))
            jobs += [Job(point, policy, source, Arm(policy, held), seed) for policy in POLICIES]
    return jobs


def gains(done: Done, grid: Grid, metric: str, policies: Sequence[str] = POLICIES) -> dict[Cell, float]:
    """How much less time the better policy takes than the fastest alone, as fractions, where all have run."""
    out = {}
    for cell in grid.sources:
        point = grid.point(cell)
        alone = done.mean(point, ALONE, metric)
        routed = [done.mean(point, policy, metric) for policy in policies]
        times = [t for t in routed if t is not None]
        if alone and len(times) == len(policies):
            out[cell] = 1 - min(times) / alone
    return out


def map_report(
    grids: Sequence[Grid],
    done: Done,
    measured: Done | None,
    profile: Profile,
    usual: Mapping[str, int],
    mark: Mark,
    facts: Sequence[tuple[str, str]],
    commands: Sequence[str],
) -> tuple[Report, dict[str, Any]]:
    """The pictures, one for each pair of axes and metric, and the tables behind them."""
    fastest = profile.backends[fastest_place(profile)].name
    sections, data = [], []
    foot = assumed_foot(profile)
    main = next(g for g in grids if g.name == "backlog" and g.best)
    for name, words in (("backlog", "backlog and cached share"), ("rate", "arrival rate and hit rate")):
        parts: list[Table | Chart] = []
        for metric, metric_words in METRIC_WORDS.items():
            if name == "rate" and metric == "duration":
                continue  # under a steady stream the makespan is the stream's length
            panels = []
            for grid in (g for g in grids if g.name == name):
                found = gains(done, grid, metric)
                points = gains(measured, grid, metric) if measured is not None and grid.best else {}
                panels.append(_panel(grid, found, points, fastest, usual))
                parts.append(_table(grid, found, metric))
                data.append(_data(grid, found, points, metric))
            mine = [g for g in grids if g.name == name]
            title = _title(metric_words, [max(gains(done, g, metric).values(), default=0.0) for g in mine])
            subtitle = f"the better of {' and '.join(POLICIES)} against {fastest.upper()} alone, over {words}"
            drawing = heatmap(title, subtitle, panels, mark, foot)
            parts.append(Chart(f"map-{name}-{metric_words.replace(' ', '-').lower()}", drawing))
        sections.append(
            Section(words.capitalize(), "", tuple(sorted(parts, key=lambda p: isinstance(p, Table))))
        )
    e2e = gains(done, main, "mean_e2el_ms")
    default = gains(done, main, "mean_e2el_ms", (DEFAULT_POLICY,))
    pays = sum(1 for g in e2e.values() if g >= PAYS)
    harms = sum(1 for g in default.values() if g <= -PAYS)
    summary = (
        f"Over backlog and cached share, {pays} of {len(e2e)} cells gain 2 % of mean E2E or more, the best "
        f"{percent(max(e2e.values(), default=0.0), sign=False)}. {DEFAULT_POLICY} alone loses as much "
        f"in {harms}.",
        f"Every cell compares with {fastest.upper()} alone at its best slot count in that cell, "
        "and the policies run with the same slots. A cell is one simulated run of each, or the mean over "
        "seeds, without interval.",
    )
    headline = f"A CPU beats waiting for the GPU in {pays} of {len(e2e)} cells at the best slot count"
    other = next((g for g in grids if g.name == "backlog" and not g.best), None)
    if other is not None:
        at_usual = gains(done, other, "mean_e2el_ms")
        paying = sum(1 for g in at_usual.values() if g >= PAYS)
        headline += f", in {paying} of {len(at_usual)} at {usual[fastest]} slots"
    report = Report(
        "map",
        "Offload map",
        headline,
        "",
        summary,
        tuple(sections),
        mark,
        (*facts, *machine_facts()),
        tuple(commands),
        tuple((m.label, m.definition) for m in METRICS),
    )
    return report, {"maps": data}


def _title(metric: str, most: Sequence[float]) -> str:
    """The finding: the largest gain at the best slot count, and at the usual one where that is another."""
    words = [
        f"up to {figure(m * 100, 0)} % less {metric}" if m >= PAYS else f"no less {metric}" for m in most
    ]
    if len(words) == 1:
        return f"Offloading: {words[0]}"
    return f"Offloading: {words[0]} at the best slots, {words[1].replace(f' {metric}', '')} at the usual"


def _panel(
    grid: Grid,
    found: Mapping[Cell, float],
    points: Mapping[Cell, float],
    fastest: str,
    usual: Mapping[str, int],
) -> Panel:
    title = (
        f"{fastest.upper()} at its best slot count"
        if grid.best
        else f"{fastest.upper()} at {usual[fastest]} slots"
    )
    words = (
        "found for every cell" if grid.best else "as the profile is set: a gain may be one over a bad setting"
    )
    if points:
        words += "; circles: measured, one run a seed"
    return Panel(title, words, grid.columns, grid.rows, found, points, grid.x, grid.y)


def _table(grid: Grid, found: Mapping[Cell, float], metric: str) -> Table:
    rows = []
    for j in reversed(range(len(grid.rows))):
        cells = (percent(found.get((i, j))) for i in range(len(grid.columns)))
        rows.append((grid.rows[j], *cells))
    slots = "best" if grid.best else "usual"
    title = f"Less {METRIC_WORDS[metric]} than the fastest alone, {slots} slots; columns: {grid.x}"
    name = f"map-{grid.name}-{slots}-{metric.replace('_', '-')}"
    return Table(name, title, ("", *grid.columns), tuple(rows))


def _data(
    grid: Grid, found: Mapping[Cell, float], points: Mapping[Cell, float], metric: str
) -> dict[str, Any]:
    def listed(values: Mapping[Cell, float]) -> list[dict[str, Any]]:
        return [
            {"x": grid.columns[i], "y": grid.rows[j], "gain": round(g, 6)} for (i, j), g in values.items()
        ]

    return {
        "map": grid.name,
        "slots": "best" if grid.best else "usual",
        "metric": metric,
        "x": grid.x,
        "y": grid.y,
        "cells": listed(found),
        "measured": listed(points),
    }
