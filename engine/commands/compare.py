"""`offramp compare`: policies, in pairs of runs, against the fastest backend alone at its best slot count."""

import argparse
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from engine.commands.experiments import (
    Where,
    add_noise_option,
    add_out_option,
    add_pairs_option,
    add_progress_option,
    check_pairs,
    finish,
    live,
    out_folder,
    progress,
    simulated,
    stopped,
    with_noise,
)
from engine.commands.workloads import add_trace_options, source_from
from engine.config import BackendOptions
from engine.errors import ConfigError
from engine.experiments.arms import Arm, Solo, baseline_arm, parse_arms
from engine.experiments.compare import Plan, run_plan
from engine.experiments.compare_report import compare_report
from engine.experiments.metrics import parse_slo
from engine.experiments.report import command_line
from engine.experiments.source import Source
from engine.experiments.tables import DEFAULT_POLICY
from engine.profiling.profile import Profile
from engine.workloads.presets import PRESETS

LIVE_SLOTS = 8  # real backends start with so many, to look for the best; each run then sets its own


def add_parser(commands: Any) -> None:
    from engine.cli import add_engine_options

    parser = commands.add_parser("compare", help="compare policies in pairs of runs", description=__doc__)
    parser.add_argument(
        "--preset", default="seed-warm-8", metavar="NAME", help=f"one of {', '.join(PRESETS)}"
    )
    parser.add_argument(
        "--policies",
        default="forced-fastest,isolated-rates,total-delay",
        metavar="LIST",
        help="with commas; behind an @ the slots of one: total-delay@gpu=1, total-delay@best",
    )
    add_pairs_option(parser, "policy", 10)
    parser.add_argument(
        "--virtual", action="store_true", help="with --emulate: on the virtual clock, at once"
    )
    add_noise_option(parser)
    parser.add_argument("--slo", metavar="LIST", help="limits of goodput in ms (ttft=2000,tpot=100)")
    parser.add_argument(
        "--cool", type=float, default=None, metavar="S", help="rest before each run (1 s, emulated 0)"
    )
    add_out_option(parser)
    add_progress_option(parser)
    add_trace_options(parser)
    add_engine_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    folder = out_folder(args)
    check_pairs(args.pairs)
    slo = parse_slo(args.slo)
    if args.virtual and args.emulate is None:
        raise ConfigError("--virtual runs emulated backends only: add --emulate apple-m2-published.")
    if args.virtual:
        args.profile = args.emulate
    where = simulated(args) if args.virtual else live(args, _start_slots(args), args.cool)
    with where as at:
        if args.virtual:
            at = with_noise(at, args.noise)
        plan, ladder = _plan(args, at, slo)
        with progress("runs", len(plan.arms) * plan.pairs, args.progress) as tell:
            outcome = run_plan(plan, at.place, folder, tell)
    if not outcome.finished:
        stopped()
    if not outcome.pairs:
        sys.stderr.write("No pair is complete yet: the same command goes on where this stopped.\n")
        return 130
    report, data = compare_report(outcome, at.profile, ladder, at.mark, at.facts, [command_line()])
    finish(args, folder, report, data)
    return 0 if outcome.finished else 130


def _plan(args: argparse.Namespace, at: Where, slo: Mapping[str, float]) -> tuple[Plan, list[Solo]]:
    """Baseline first, then what was asked for; and the sweep that found the baseline's slots."""
    profile, usual = at.profile, at.usual
    names = list(usual)
    best = args.slots in ("best", "auto")
    options = BackendOptions(slots="4" if best else args.slots)
    options.check_slot_names(names)
    source: Source = source_from(args, profile, args.context)
    base, ladder = baseline_arm(profile, source, usual, at.most)
    slots = base.slots_by_name if best else {n: options.slots_of(n, usual[n]) for n in names}
    base = replace(base, slots=tuple({**slots, **_own(base)}.items()))
    fastest, slowest = base.policy, _slowest(profile)
    asked = args.policies.replace("forced-fastest", fastest).replace("forced-slowest", slowest)
    arms = parse_arms(asked, names, slots, base.slots_by_name)
    if (base_slots := base.slots_by_name) != slots and any(a.policy == DEFAULT_POLICY for a in arms):
        # Routing and slots are told apart only at the same slots.
        arms += [a for a in parse_arms(f"{DEFAULT_POLICY}@best", names, slots, base_slots) if a not in arms]
    arms = [base, *(a for a in arms if (a.policy, _used(a)) != (base.policy, _used(base)))]
    return Plan(source, tuple(arms), args.pairs, args.seed, usual, at.settings, slo), ladder


def _start_slots(args: argparse.Namespace) -> int:
    """What real backends start with: the most that any run will set."""
    asked = " ".join((args.slots, *(p.partition("@")[2] for p in args.policies.split(","))))
    return max(LIVE_SLOTS, *(min(256, int(n)) for n in re.findall(r"\d+(?=\s|/|,|$)", asked)), 1)


def _own(arm: Arm) -> dict[str, int]:
    """The slots of the one backend that a forced arm uses."""
    name = arm.policy.removeprefix("forced-")
    return {name: arm.slots_by_name[name]}


def _used(arm: Arm) -> list[tuple[str, int]]:
    return [(n, s) for n, s in arm.slots if arm.uses(n)]


def _slowest(profile: Profile) -> str:
    return f"forced-{max(profile.backends, key=lambda b: b.rates.isolated_s).name}"
