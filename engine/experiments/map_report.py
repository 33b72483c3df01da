"""The offload map told: headline, sentences, and what goes into results.json."""

from collections.abc import Sequence
from typing import Any

from engine.experiments.charts import Mark
from engine.experiments.effects import Effect
from engine.experiments.heatmap import Cell
from engine.experiments.map_parts import (
    METRIC_WORDS,
    Told,
    called,
    count_paying,
    map_data,
    map_table,
    measured_table,
    picture,
    tells,
)
from engine.experiments.metrics import METRICS
from engine.experiments.offload_map import POLICIES, Grid
from engine.experiments.published import published_sections
from engine.experiments.report import Chart, Report, Section, Table, machine_facts
from engine.experiments.statistics import RULE
from engine.experiments.svg import counted, figure, percent
from engine.experiments.sweep_report import assumed_foot
from engine.experiments.tables import DEFAULT_POLICY

AXES = {"backlog": "Backlog and cached share", "rate": "Arrival rate and hit rate"}


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
            drawing = picture(told, grids, metric, mark, foot)
            charts.append(Chart(f"map-{name}-{words.replace(' ', '-').lower()}", drawing))
            for grid in grids:
                tables.append(map_table(told, grid, metric))
                data.append(map_data(told, grid, metric))
            if (table := measured_table(told, grids[0], metric)) is not None:
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


def _main(told: Told, best: bool) -> dict[Cell, Effect]:
    grid = next((g for g in told.grids if g.name == "backlog" and g.best is best), None)
    return {} if grid is None else told.effects(grid, "mean_e2el_ms")


def _headline(told: Told) -> str:
    pays, count = count_paying(_main(told, best=True))
    slow, fast = called(told.slow, start=True), called(told.fast)
    slow = "A CPU" if told.slow.lower() == "cpu" else slow
    words = f"{slow} beats waiting for {fast} in {pays} of {count} cells at the best slot count"
    if other := _main(told, best=False):
        pays, count = count_paying(other)
        words += f", in {pays} of {count} at {told.usual[told.fast]} slots"
    return words


def _summary(told: Told) -> list[str]:
    found = _main(told, best=True)
    pays, count = count_paying(found)
    most = max((e.gain for e in found.values() if tells(e)), default=0.0)
    upto = f", up to {percent(most, sign=False)}" if pays else ""
    same = sum(1 for e in found.values() if e.sure is False)
    grid = next(g for g in told.grids if g.name == "backlog" and g.best)
    default = told.effects(grid, "mean_e2el_ms", (DEFAULT_POLICY,))
    harms = sum(1 for e in default.values() if tells(e) and e.gain < 0)
    pairs = counted(max((e.pairs for e in found.values()), default=0), "pair")
    fast = called(told.fast)
    out = [
        f"Over backlog and cached share ({grid.about}), sending some requests to {called(told.slow)} takes "
        f"2 % of mean E2E or more off in {pays} of {count} cells{upto}; in {same} no difference is found. "
        f"{DEFAULT_POLICY} alone loses 2 % or more in {harms}.",
        f"Every cell compares with {fast} alone at its best slot count there, and the policies run with the "
        f"same slots. A cell is {pairs} of simulated runs; the policy of a pair is the one of "
        f"{' and '.join(POLICIES)} that was better in the other pairs, so that luck is not taken for a gain. "
        "Among so many cells expect one or two that are coloured where nothing differs.",
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
