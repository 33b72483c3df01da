"""The offload map told: a picture for each pair of axes and metric, the tables behind them, and in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.experiments.arms import fastest_place
from engine.experiments.charts import Mark
from engine.experiments.effects import Effect
from engine.experiments.grid import Done
from engine.experiments.heatmap import PAYS, Cell, Panel, Shade, heatmap
from engine.experiments.metrics import METRICS
from engine.experiments.offload_map import ALONE, POLICIES, Grid, effects
from engine.experiments.published import published_sections
from engine.experiments.report import Chart, Report, Section, Table, machine_facts
from engine.experiments.statistics import RULE, Verdict
from engine.experiments.svg import counted, figure, percent
from engine.experiments.sweep_report import assumed_foot
from engine.experiments.tables import DEFAULT_POLICY
from engine.profiling.profile import Profile

METRIC_WORDS = {"mean_e2el_ms": "mean E2E", "duration": "makespan"}
AXES = {"backlog": "Backlog and cached share", "rate": "Arrival rate and hit rate"}
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


def map_report(
    told: Told, mark: Mark, facts: Sequence[tuple[str, str]], commands: Sequence[str]
) -> tuple[Report, dict[str, Any]]:
    """The report, and what goes into results.json."""
    foot = assumed_foot(told.profile)
    sections: list[Section] = []
    data = []
    for name, title in AXES.items():
        grids = [g for g in told.grids if g.name == name]
        charts: list[Chart] = []
        tables: list[Table] = []
        for metric, words in METRIC_WORDS.items():
            if not grids or (name == "rate" and metric == "duration"):
                continue  # under a steady stream the makespan is the stream's length
            drawing = _picture(told, grids, metric, mark, foot)
            charts.append(Chart(f"map-{name}-{words.replace(' ', '-').lower()}", drawing))
            for grid in grids:
                tables.append(_table(told, grid, metric))
                data.append(_data(told, grid, metric))
            if (table := _measured_table(told, grids[0], metric)) is not None:
                tables.insert(0, table)
        sections.append(Section(title, "", (*charts, *tables)))
    sections += published_sections(told.profile)
    return (
        Report(
            "map",
            "Offload map",
            _headline(told),
            "",
            tuple(_summary(told)),
            tuple(sections),
            mark,
            (*facts, *machine_facts()),
            tuple(commands),
            (*((m.label, m.definition) for m in METRICS), ("Verdict", RULE)),
        ),
        {"maps": data, "finished": told.done.finished},
    )


# --- in words ---


def called(name: str, start: bool = False) -> str:
    """ "the GPU" where there is one of it, else "CPU-2"."""
    if name.lower() in ("cpu", "gpu"):
        return f"{'The' if start else 'the'} {name.upper()}"
    return name.upper()


def _count(found: Mapping[Cell, Effect]) -> tuple[int, int]:
    """Cells where it pays, of how many."""
    return sum(1 for e in found.values() if _tells(e) and e.gain > 0), len(found)


def _main(told: Told, best: bool) -> dict[Cell, Effect]:
    grid = next((g for g in told.grids if g.name == "backlog" and g.best is best), None)
    return {} if grid is None else told.effects(grid, "mean_e2el_ms")


def _headline(told: Told) -> str:
    pays, count = _count(_main(told, best=True))
    slow, fast = called(told.slow, start=True), called(told.fast)
    slow = "A CPU" if told.slow.lower() == "cpu" else slow
    words = f"{slow} beats waiting for {fast} in {pays} of {count} cells at the best slot count"
    if other := _main(told, best=False):
        pays, count = _count(other)
        words += f", in {pays} of {count} at {told.usual[told.fast]} slots"
    return words


def _summary(told: Told) -> list[str]:
    found = _main(told, best=True)
    pays, count = _count(found)
    most = max((e.gain for e in found.values() if _tells(e)), default=0.0)
    upto = f", up to {percent(most, sign=False)}" if pays else ""
    same = sum(1 for e in found.values() if e.sure is False)
    grid = next(g for g in told.grids if g.name == "backlog" and g.best)
    default = told.effects(grid, "mean_e2el_ms", (DEFAULT_POLICY,))
    harms = sum(1 for e in default.values() if _tells(e) and e.gain < 0)
    pairs = counted(max((e.pairs for e in found.values()), default=0), "pair")
    fast = called(told.fast)
    out = [
        f"Over backlog and cached share ({grid.about}), sending some requests to {called(told.slow)} takes "
        f"2 % of mean E2E or more off in {pays} of {count} cells{upto}; in {same} no difference is found. "
        f"{DEFAULT_POLICY} alone loses 2 % or more in {harms}.",
        f"Every cell compares with {fast} alone at its best slot count there, and the policies run with the "
        f"same slots. A cell is {pairs} of simulated runs; the policy of a pair is the one of "
        f"{' and '.join(POLICIES)} that was better in the other pairs, so that luck is not taken for a gain.",
    ]
    if not told.done.finished:
        out.append("Stopped early: the map holds what is done; the same command goes on.")
    if told.measured is not None:
        out += _agreement(told, grid)
    return out


def _agreement(told: Told, grid: Grid) -> list[str]:
    found, points = told.effects(grid, "mean_e2el_ms"), told.points(grid, "mean_e2el_ms")
    apart = [abs(points[cell].gain - found[cell].gain) for cell in points if cell in found]
    if told.measured is None or not apart:
        return []
    cells = f"{len(apart)} cell{'' if len(apart) == 1 else 's'}"
    return [
        f"Circles are {told.measured.where}, in {cells}; there the measured gain of mean E2E lies "
        f"{figure(sum(apart) / len(apart) * 100, 1)} points from the simulated one on average, "
        f"{figure(max(apart) * 100, 1)} at most."
    ]


# --- the pictures ---


def _picture(told: Told, grids: Sequence[Grid], metric: str, mark: Mark, foot: str) -> str:
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
        a.points[cell] == b.points[cell] or not (_tells(first[cell]) or _tells(second[cell]))
        for cell in first
        if cell in second
    )


def _tells(e: Effect) -> bool:
    return bool(e.sure) and abs(e.gain) >= PAYS


def _panel(told: Told, grid: Grid, metric: str, alike: bool) -> Panel:
    found, points = told.effects(grid, metric), told.points(grid, metric)
    pays, count = _count(found)
    most = max((e.gain for e in found.values() if _tells(e)), default=0.0)
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


def _table(told: Told, grid: Grid, metric: str) -> Table:
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


def _measured_table(told: Told, grid: Grid, metric: str) -> Table | None:
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


def _data(told: Told, grid: Grid, metric: str) -> dict[str, Any]:
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
