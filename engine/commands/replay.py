"""`offramp replay RUN --policy NAME`: what would another policy have done with this very run? Simulated,
on the calibration the run was recorded with."""

import argparse
import json
import sys
from typing import Any

from engine.recording import calibrated, early_words, find_run, read_run, recorded_weights
from engine.routing.policies import check_policy
from engine.simulation.simulate import Simulation
from engine.weights import parse_weights


def add_parser(commands: Any) -> None:
    from engine.cli import add_policy_option

    parser = commands.add_parser("replay", help="replay a recorded run, simulated", description=__doc__)
    parser.add_argument("run_name", metavar="RUN", help="a run file, the start of its id, or last")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object, and nothing else, on stdout"
    )
    parser.add_argument("--slots", metavar="N", help="as recorded, or 4, or gpu=1,cpu=4")
    add_policy_option(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from engine.commands.burst import show
    from engine.commands.simulate import slots_from

    path = find_run(args.run_name)
    recorded = read_run(path)
    profile = calibrated(recorded, path)
    check_policy(args.policy, [b.name for b in profile.backends])
    weights = parse_weights(args.weights) if args.weights is not None else recorded_weights(recorded.head)
    simulation = Simulation(profile, args.policy, slots_from(args, profile), weights=weights)
    result = simulation.run(recorded.workload)
    was = recorded.result or {}
    result["recorded"] = {"policy": recorded.head["policy"], "makespan_s": was.get("makespan_s")}
    if args.json:
        sys.stdout.write(json.dumps(result, indent=1) + "\n")
        return 0
    show(result, False)
    if was.get("makespan_s"):
        sys.stdout.write(
            f"Recorded under {recorded.head['policy']}: makespan {was['makespan_s']:.2f} s, "
            f"{was['output_throughput']:.1f} tok/s out.\n"
        )
    if words := early_words(was):
        sys.stdout.write(f"There {words}: their replies are replayed as far as they came.\n")
    return 0
