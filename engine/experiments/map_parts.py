"""The pictures and tables of the offload map, and everything that they draw on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.experiments.arms import fastest_place
from engine.experiments.charts import Mark
from engine.experiments.effects import Effect
from engine.experiments.grid import Done
from engine.experiments.heatmap import PAYS, Cell, Panel, Shade, heatmap
from engine.experiments.offload_map import ALONE, POLICIES, Grid, effects
from engine.experiments.report import Table
from engine.experiments.statistics import Verdict
from engine.experiments.svg import figure
from engine.profiling.profile import Profile

METRIC_WORDS = {"mean_e2el_ms": "mean E2E", "duration": "makespan"}
_TONES = {Verdict.BETTER: "good", Verdict.WORSE: "bad"}
_NOTE = (
    "% less time than alone \u00b1 the wider half of the 95 % interval. Green pays, orange harms; "
    "the rest is no difference by the rule below."
)


@dataclass(frozen=True, slots=True)
class Measured:
    """Runs of some cells in real time, on `where`: "measured on this machine"."""

    done: Done
    seeds: Sequence[int]
    where: str


@dataclass(frozen=True, slots=True)
class Told:
    """Everything that the pictures and tables draw on."""

    grids: Sequence[Grid]
    done: Done
    seeds: Sequence[int]
    measured: Measured | None
    profile: Profile
    usual: Mapping[str, int]

    @property
    def fast(self) -> str:
        return self.profile.backends[fastest_place(self.profile)].name

    @property
    def slow(self) -> str:
        return max(self.profile.backends, key=lambda b: b.rates.isolated_s).name

    def effects(self, grid: Grid, metric: str, policies: Sequence[str] = POLICIES) -> dict[Cell, Effect]:
        return effects(self.done, grid, metric, self.seeds, policies)

    def points(self, grid: Grid, metric: str) -> dict[Cell, Effect]:
        if self.measured is None or not grid.best:
            return {}
        return effects(self.measured.done, grid, metric, self.measured.seeds)


def called(name: str, start: bool = False) -> str:
    """ "the GPU" where there is one of it, else "CPU-2"."""
    if name.lower() in ("cpu", "gpu"):
        return f"{'The' if start else 'the'} {name.upper()}"
    return name.upper()


def count_paying(found: Mapping[Cell, Effect]) -> tuple[int, int]:
    """Cells where it pays, of how many."""
    return sum(1 for e in found.values() if tells(e) and e.gain > 0), len(found)


# --- the pictures ---


def picture(told: Told, grids: Sequence[Grid], metric: str, mark: Mark, foot: str) -> str:
    """The map of one pair of axes as SVG: at the best slots, and at the usual ones where that differs."""
    drawn = list(grids)
    alike = len(grids) > 1 and _alike(told, grids[0], grids[1], metric)
    if alike:
        drawn = drawn[:1]
    panels = [_panel(told, grid, metric, alike) for grid in drawn]
    title = f"Where {called(told.slow)} pays: {METRIC_WORDS[metric]}"
    subtitle = (
        f"% less {METRIC_WORDS[metric]} than {called(told.fast)} alone; the better of "
        f"{' and '.join(POLICIES)}; {grids[0].about}"
    )
    return heatmap(title, subtitle, panels, mark, foot, told.measured.where if told.measured else "")


def _alike(told: Told, a: Grid, b: Grid, metric: str) -> bool:
    """Whether the second map would only repeat the first: no cell that differs pays or harms in either."""
    first, second = told.effects(a, metric), told.effects(b, metric)
    return all(
        a.points[cell] == b.points[cell] or not (tells(first[cell]) or tells(second[cell]))
        for cell in first
        if cell in second
    )


def tells(e: Effect) -> bool:
    """Whether a cell pays or harms: its interval leaves 0 out, and by 2 % or more."""
    return bool(e.sure) and abs(e.gain) >= PAYS


def _panel(told: Told, grid: Grid, metric: str, alike: bool) -> Panel:
    found, points = told.effects(grid, metric), told.points(grid, metric)
    pays, count = count_paying(found)
    most = max((e.gain for e in found.values() if tells(e)), default=0.0)
    usual = told.usual[told.fast]
    where = "its best slots" if grid.best else f"{usual} slots"
    finding = f"in {pays} of {count} cells, up to {figure(most * 100, 0)} %" if pays else "nowhere"
    if alike:
        words = f"best slots found for every cell; at {usual} slots the map is the same"
    else:
        words = "found for every cell" if grid.best else "as the profile is set: maybe a bad setting"
    measured = {} if told.measured is None else points
    return Panel(
        f"{told.fast.upper()} at {where}: {finding}",
        words,
        grid.columns,
        grid.rows,
        {cell: Shade(e.gain, e.sure, _hover(told, grid, cell, metric, e)) for cell, e in found.items()},
        grid.x,
        grid.y,
        {cell: Shade(e.gain, e.sure, f"{_where(told)}: {e.words()}.") for cell, e in measured.items()},
    )


def _where(told: Told) -> str:
    return told.measured.where.capitalize() if told.measured is not None else ""


def _hover(told: Told, grid: Grid, cell: Cell, metric: str, e: Effect) -> str:
    slots = dict(grid.held[cell])[told.fast]
    words = f"{grid.columns[cell[0]]}, {grid.rows[cell[1]]} cached, {told.fast.upper()} with {slots} slots"
    alone = told.done.mean(grid.points[cell], ALONE, metric)
    return f"{words}: alone {figure(alone, 2)} s; simulated gain {e.words()}."


# --- the tables ---


def map_table(told: Told, grid: Grid, metric: str) -> Table:
    """Every cell's gain with its interval, as the picture has them."""
    found = told.effects(grid, metric)
    rows: list[tuple[str, ...]] = []
    tones: dict[tuple[int, int], str] = {}
    for j in reversed(range(len(grid.rows))):
        cells = []
        for i in range(len(grid.columns)):
            e = found.get((i, j))
            if e is not None and abs(e.gain) >= PAYS and e.verdict in _TONES:
                tones[len(rows), i + 1] = _TONES[e.verdict]
            cells.append("n/a" if e is None else e.short())
        rows.append((grid.rows[j], *cells))
    slots = "best" if grid.best else "usual"
    title = f"Less {METRIC_WORDS[metric]}, simulated, {slots} slots; columns: {grid.x}"
    name = f"map-{grid.name}-{slots}-{metric.replace('_', '-')}"
    return Table(name, title, ("", *grid.columns), tuple(rows), _NOTE, tones)


def measured_table(told: Told, grid: Grid, metric: str) -> Table | None:
    """Measured beside simulated, a line a cell; None where nothing was measured."""
    found, points = told.effects(grid, metric), told.points(grid, metric)
    if not points:
        return None
    rows = []
    for cell, e in sorted(points.items()):
        simulated = found[cell].short() if cell in found else "n/a"
        slots = ", ".join(f"{n} {s}" for n, s in grid.held[cell])
        name = f"{grid.columns[cell[0]]} requests, {grid.rows[cell[1]]} cached"
        rows.append((name, slots, simulated, e.short(), str(e.pairs), e.verdict.value))
    columns = ("", "slots", "simulated, %", f"{_where(told)}, %", "pairs", "verdict of the measured")
    title = f"Less {METRIC_WORDS[metric]}: {told.measured.where if told.measured else ''} beside simulated"
    return Table(f"measured-{grid.name}-{metric.replace('_', '-')}", title, columns, tuple(rows))


def map_data(told: Told, grid: Grid, metric: str) -> dict[str, Any]:
    """One map for results.json; gains and ends of intervals are fractions."""

    def listed(values: Mapping[Cell, Effect]) -> list[dict[str, Any]]:
        return [
            {
                "x": grid.columns[i],
                "y": grid.rows[j],
                "point": grid.points[i, j],
                "slots": dict(grid.held[i, j]),
                "gain": e.gain,
                "low": e.low,
                "high": e.high,
                "verdict": e.verdict.value,
                "policies": list(e.policies),
            }
            for (i, j), e in values.items()
        ]

    return {
        "map": grid.name,
        "slots": "best" if grid.best else "usual",
        "metric": metric,
        "x": grid.x,
        "y": grid.y,
        "cells": listed(told.effects(grid, metric)),
        "measured": listed(told.points(grid, metric)),
    }
