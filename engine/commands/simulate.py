"""`offramp simulate --profile NAME --preset NAME`: the same engine on a virtual clock. Marked simulated."""

import argparse
from typing import Any

from engine.errors import UnknownNameError
from engine.profiling.profile import load_profile, published_profiles
from engine.routing.policies import check_policy
from engine.simulation.simulate import fake_tokenise, simulate
from engine.workloads.presets import PRESETS, make_workload


def add_parser(commands: Any) -> None:
    from engine.cli import add_policy_option
    from engine.commands.burst import add_preset_options

    parser = commands.add_parser("simulate", help="run a preset on a virtual clock", description=__doc__)
    parser.add_argument(
        "--profile",
        default="apple-m2-published",
        metavar="NAME",
        help=f"{', '.join(published_profiles())}, or a profile file",
    )
    add_preset_options(parser)
    add_policy_option(parser)
    parser.add_argument(
        "--slots", default=None, metavar="N", help="as the profile says, or 4, or gpu=1,cpu=4"
    )
    parser.add_argument("--scheduling", default="fcfs")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.set_defaults(run=run)


def simulated(args: argparse.Namespace, profile_name: str) -> dict[str, object]:
    """The result of the simulation that `args` ask for."""
    from engine.config import BackendOptions

    profile = load_profile(profile_name)
    names = [b.name for b in profile.backends]
    if args.preset not in PRESETS:
        raise UnknownNameError("preset", args.preset, list(PRESETS))
    check_policy(args.policy, names)
    slots = None
    if args.slots is not None:
        options = BackendOptions(slots=args.slots)
        options.check_slot_names(names)
        slots = {b.name: options.slots_of(b.name, b.slots) for b in profile.backends}
    workload = make_workload(args.preset, fake_tokenise, args.seed)
    return simulate(profile, workload, args.policy, slots, args.scheduling)


def run(args: argparse.Namespace) -> int:
    from engine.commands.burst import show

    show(simulated(args, args.profile), args.json)
    return 0
