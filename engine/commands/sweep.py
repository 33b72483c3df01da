"""`offramp sweep KIND`: turn one knob, simulated on a profile or on real backends, and draw what happens."""

import argparse
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
from engine.errors import ConfigError
from engine.experiments.arms import MOST_SLOTS
from engine.experiments.grid import run_jobs
from engine.experiments.report import command_line
from engine.experiments.runs import Simulated
from engine.experiments.statistics import LEAST_PAIRS
from engine.experiments.sweep import KINDS, knob, knob_jobs, rate_knob, slot_jobs, slot_ladder
from engine.experiments.sweep_report import knob_report, slots_report

_LIVE_SLOTS = {"slots": MOST_SLOTS}  # a sweep of slots starts with all that it will ask for
_WORDS = (
    "slots: 1 to 32 a backend, the knee marked; rate: 0.2 to 1.2 of capacity, Poisson and bursty; "
    "hit-rate: 0 to 97 %% of every prompt cached; prompt, output: their lengths; kv: the cache's size"
)


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("sweep", help="turn one knob and draw what happens", description=__doc__)
    parser.add_argument("kind", choices=KINDS, help=_WORDS)
    add_pairs_option(parser, "point", f"{LEAST_PAIRS}; slots 1, with --real --quick 2")
    add_noise_option(parser)
    add_place_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    folder = out_folder(args)
    check_pairs(args.pairs)
    if args.real and args.kind == "kv":
        raise ConfigError("A KV budget cannot change while backends run: leave --real out of this sweep.")
    usual = 1 if args.kind == "slots" else 2 if args.real and args.quick else LEAST_PAIRS
    seeds = range(args.seed, args.seed + (args.pairs or usual))
    where = live(args, _LIVE_SLOTS.get(args.kind, 8)) if args.real else simulated(args)
    with where as at:
        if not args.real and args.kind != "slots":  # a knee is found on the plain clock
            at = with_noise(at, args.noise)
        settings = {**at.settings, "kind": args.kind}
        if args.kind == "slots":
            ladder = slot_ladder(args.quick, at.most or MOST_SLOTS)
            jobs = slot_jobs(at.profile, at.usual, args.quick, at.most or MOST_SLOTS, seeds)
        else:
            if args.kind == "rate":
                knobs = [rate_knob(at.profile, args.quick, at.usual, bursty) for bursty in (False, True)]
            else:
                knobs = [knob(args.kind, args.quick)]
            places = None
            if args.kind == "kv":
                places = {v: Simulated(at.profile, args.noise / 100, int(v)) for v in knobs[0].values}
            jobs = [j for k in knobs for j in knob_jobs(k, at.profile, at.usual, seeds, at.most, places)]
        with progress("runs", len(jobs), args.progress) as tell:
            done = run_jobs(jobs, at.place, settings, folder, tell)
    if not done.finished:
        stopped()
        if not done.runs:
            return 130
    commands, facts = (
        [command_line()],
        (*at.facts, ("Seeds", f"{seeds.start} to {seeds.stop - 1}, one a pair")),
    )
    if args.kind == "slots":
        report, data = slots_report(done, at.profile, ladder, at.mark, facts, commands)
    else:
        report, data = knob_report(args.kind, knobs, done, seeds, at.profile, at.mark, facts, commands)
    finish(args, folder, report, data)
    return 0 if done.finished else 130
