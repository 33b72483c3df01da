"""`offramp bench routing`: what a decision costs, and how well the router foresees."""

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from engine.commands.common import print_table
from engine.errors import ConfigError


def add_parser(kinds: Any) -> None:
    """Add `routing` to the kinds of `offramp bench`."""
    parser = kinds.add_parser(
        "routing", help="time of a decision, error of the forecast", description=__doc__
    )
    parser.add_argument(
        "--profile",
        action="append",
        metavar="NAME",
        help="step times to use; may be repeated (all published)",
    )
    parser.add_argument("--loads", type=int, default=200, metavar="N", help="random loads to foresee (200)")
    parser.add_argument("--decisions", type=int, default=200, metavar="N", help="decisions to time (200)")
    parser.add_argument("--outstanding", type=int, default=64, metavar="N", help="requests outstanding (64)")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from engine.commands.experiments import progress
    from engine.experiments.routing_bench import (
        AIM_DECISION_S,
        AIM_MEAN,
        AIM_P95,
        decision_times,
        forecast_errors,
    )
    from engine.profiling.profile import load_profile, published_profiles

    for name, most in (("loads", 100_000), ("decisions", 1_000_000), ("outstanding", 10_000)):
        if not 1 <= getattr(args, name) <= most:
            raise ConfigError(f"--{name} {getattr(args, name)} makes no sense: use 1 to {most:,}.")
    profiles = [load_profile(name) for name in args.profile or published_profiles()]
    times = [
        decision_times(p, args.decisions, args.outstanding, args.seed, after_end=after_end)
        for p in profiles
        for after_end in (False, True)
    ]
    errors = []
    for profile in profiles:
        with progress(f"loads on {profile.name}", args.loads) as tell:
            errors.append(forecast_errors(profile, args.loads, args.seed, tell))
    if args.json:
        aims = {"decision_s": AIM_DECISION_S, "forecast_mean": AIM_MEAN, "forecast_p95": AIM_P95}
        data = {
            "aims": aims,
            "decisions": [{**asdict(t), "good": t.good, "good_p95": t.good_p95} for t in times],
            "forecasts": [{**asdict(e), "simulated": True, "good": e.good} for e in errors],
        }
        sys.stdout.write(json.dumps(data, indent=1) + "\n")
        return 0
    print_table(
        f"One decision of total-delay, {args.outstanding} requests outstanding",
        ("profile", "after", "decisions", "median ms", "p95 ms", "aim, median", "p95"),
        [
            (
                t.profile,
                "a step and an end" if t.after_end else "a step",
                t.decisions,
                t.median_s * 1e3,
                t.p95_s * 1e3,
                _verdict(t.good, "1 ms"),
                _verdict(t.good_p95, "1 ms"),
            )
            for t in times
        ],
    )
    sys.stdout.write("\n")
    print_table(
        f"Forecast of the time to each end against the per-step simulator, SIMULATED, {args.loads} loads",
        ("profile", "requests", "mean", "p95", "bias", "aim, mean and p95"),
        [
            (
                e.profile,
                e.requests,
                f"{e.mean:.2%}",
                f"{e.p95:.2%}",
                f"{e.bias:+.2%}",
                _verdict(e.good, "2 %, 8 %"),
            )
            for e in errors
        ],
    )
    return 0


def _verdict(good: bool, aim: str) -> str:
    return f"{aim}: {'met' if good else 'missed'}"
