"""`offramp map`: when does a CPU beat waiting for the GPU? Over backlog and cached share, over rate and hit
rate: a simulated surface, with points measured on real backends where `--real` asks for them."""

import argparse
from pathlib import Path
from typing import Any

from engine.commands.experiments import (
    add_noise_option,
    add_pairs_option,
    add_place_options,
    check_pairs,
    finish,
    live,
    out_folder,
    progress,
    simulated,
    stopped,
    with_noise,
)
from engine.experiments.grid import run_jobs
from engine.experiments.map_parts import Measured, Told
from engine.experiments.map_report import map_report
from engine.experiments.offload_map import at_usual_slots, backlog_grid, map_jobs, rate_grid, some_cells
from engine.experiments.report import command_line
from engine.experiments.statistics import LEAST_PAIRS

_LIVE_SLOTS = 8


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("map", help="draw where the CPU pays", description=__doc__)
    add_pairs_option(parser, "cell", f"{LEAST_PAIRS}; measured with --real --quick 2")
    add_noise_option(parser)
    add_place_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    folder = out_folder(args)
    check_pairs(args.pairs)
    measured: Measured | None = None
    most: int | None = None
    if args.real:
        measured = _measure(args, folder)
        if measured is None:
            return 130
        args.profile = args.emulate or "local"  # the surface is simulated on what was measured
        most = _LIVE_SLOTS
    with simulated(args) as plain:
        at = with_noise(plain, args.noise)
        seeds = range(args.seed, args.seed + (args.pairs or LEAST_PAIRS))
        grids = [
            backlog_grid(at.profile, at.usual, args.quick, most),
            rate_grid(at.profile, at.usual, args.quick, most),
        ]
        # Beside them the same at the profile's own slots, where that is not the best setting.
        grids += [at_usual_slots(g, at.usual) for g in (grids[:1] if args.quick else grids)]
        grids = [g for g in grids if g.best or any("-usual-" in point for point in g.points.values())]
        jobs = map_jobs(grids, at.profile, seeds)
        with progress("simulated runs", len(jobs), args.progress) as tell:
            done = run_jobs(jobs, at.place, {**at.settings, "map": True}, folder, tell)
    if not done.finished:
        stopped()
        if len(done.runs) < len(jobs) / len(seeds):  # no whole map for even one seed
            return 130
    facts = (*at.facts, ("Seeds", f"{seeds.start} to {seeds.stop - 1}, one a pair"))
    told = Told(grids, done, seeds, measured, at.profile, at.usual)
    report, data = map_report(told, at.mark, facts, [command_line()])
    finish(args, folder, report, data)
    return 0 if done.finished else 130


def _measure(args: argparse.Namespace, folder: Path) -> Measured | None:
    """A handful of cells in real time, paired with the fastest alone; None when it was stopped."""
    seeds = range(args.seed, args.seed + (args.pairs or (2 if args.quick else LEAST_PAIRS)))
    with live(args, _LIVE_SLOTS) as real:
        grid = backlog_grid(real.profile, real.usual, args.quick, real.most)
        jobs = map_jobs([grid], real.profile, seeds, some_cells(grid, args.quick))
        with progress("measured runs", len(jobs), args.progress) as tell:
            done = run_jobs(jobs, real.place, {**real.settings, "map": True}, folder / "measured", tell)
    if not done.finished:
        stopped()
        return None
    words = "measured on this machine" if args.emulate is None else "emulated, in real time"
    return Measured(done, seeds, words)
