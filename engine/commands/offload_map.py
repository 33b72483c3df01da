"""`offramp map`: when does a CPU beat waiting for the GPU? Over backlog and cached share, over rate and hit
rate: a simulated surface, with points measured on real backends where `--real` asks for them."""

import argparse
import sys
from typing import Any

from engine.commands.experiments import (
    add_place_options,
    finish,
    live,
    out_folder,
    progress,
    simulated,
)
from engine.experiments.grid import Done, run_jobs
from engine.experiments.heatmap import Cell
from engine.experiments.offload_map import backlog_grid, map_jobs, map_report, rate_grid
from engine.experiments.report import command_line

_LIVE_SLOTS = 8


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("map", help="draw where the CPU pays", description=__doc__)
    add_place_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    folder = out_folder(args)
    seeds = range(args.seed, args.seed + (1 if args.quick else 3))
    measured: Done | None = None
    if args.real:
        with live(args, _LIVE_SLOTS) as real:
            grid = backlog_grid(args.quick)
            cells = _few(len(grid.columns), len(grid.rows))
            jobs = map_jobs(grid, real.profile, real.usual, seeds, cells, real.most)
            with progress("measured runs", len(jobs)) as tell:
                measured = run_jobs(
                    jobs, real.place, {**real.settings, "map": True}, folder / "measured", tell
                )
        args.profile = args.emulate or "local"  # the surface is simulated on what was measured
    with simulated(args) as at:
        most = _LIVE_SLOTS if args.real else None
        grids = [backlog_grid(args.quick), rate_grid(at.profile, at.usual, args.quick)]
        jobs = [j for g in grids for j in map_jobs(g, at.profile, at.usual, seeds, None, most)]
        if any(j.arm.slots_by_name != at.usual for j in jobs):
            # Beside it the same at the profile's own slots, where that is not the best setting.
            others = [backlog_grid(args.quick, best=False)]
            if not args.quick:
                others.append(rate_grid(at.profile, at.usual, args.quick, best=False))
            grids += others
            jobs += [j for g in others for j in map_jobs(g, at.profile, at.usual, seeds)]
        with progress("simulated runs", len(jobs)) as tell:
            done = run_jobs(jobs, at.place, {**at.settings, "map": True}, folder, tell)
    if not done.finished:
        sys.stderr.write("Stopped: what is done is kept, the same command goes on.\n")
        return 130
    facts = (*at.facts, ("Seeds", f"{seeds.start} to {seeds.stop - 1}"))
    report, data = map_report(grids, done, measured, at.profile, at.usual, at.mark, facts, [command_line()])
    finish(args, folder, report, data)
    return 0


def _few(columns: int, rows: int) -> list[Cell]:
    """Cells worth measuring: half and most of the backlog, with nothing, some and nearly all cached."""
    return [(i, j) for i in (columns // 2, columns - 2) for j in (0, rows // 2, rows - 1)]
