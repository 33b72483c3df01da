"""`offramp burst --preset NAME`: run a preset on real (or emulated) backends and print what happened."""

import argparse
import json
import sys
from typing import Any

from engine.commands.common import print_table, running_engine
from engine.errors import BackendError, UnknownNameError
from engine.events import BurstDone, BurstStarted, Event
from engine.workloads.presets import PRESETS


def add_parser(commands: Any) -> None:
    from engine.cli import add_engine_options, add_policy_option

    parser = commands.add_parser("burst", help="run a preset burst on the backends", description=__doc__)
    add_preset_options(parser)
    parser.add_argument(
        "--virtual", action="store_true", help="with --emulate: on the virtual clock, at once"
    )
    add_engine_options(parser)
    add_policy_option(parser)
    parser.set_defaults(run=run)


def add_preset_options(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(PRESETS)
    parser.add_argument("--preset", default="seed-warm-8", metavar="NAME", help=f"one of {names}")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object, and nothing else, on stdout"
    )


def run(args: argparse.Namespace) -> int:
    from engine.cli import config_from

    if args.preset not in PRESETS:
        raise UnknownNameError("preset", args.preset, list(PRESETS))
    if args.virtual:
        from engine.commands.simulate import simulated
        from engine.errors import ConfigError

        if args.emulate is None:
            raise ConfigError("--virtual runs emulated backends only: add --emulate apple-m2-published.")
        show(simulated(args, args.emulate), args.json)
        return 0
    results: list[dict[str, object]] = []
    with running_engine(config_from(args)) as watch:
        watch.until_ready()
        run_id = watch.engine.run_burst(args.preset, None, args.seed)

        def over(events: list[Event]) -> bool:
            for event in events:
                if isinstance(event, BurstStarted):
                    sys.stderr.write(f"Running {event.preset} with {event.policy}, {event.count} requests\n")
                if isinstance(event, BurstDone) and event.run_id == run_id:
                    results.append(event.result)
            return bool(results)

        watch.until(over)
    result = results[0]
    if not result:
        raise BackendError("The burst did not run: look at the lines above.")
    show(result, args.json)
    failed = [r for r in _requests(result) if r["finish_reason"] == "error"]
    return 1 if failed else 0


def _requests(result: dict[str, Any]) -> list[dict[str, Any]]:
    return list(result["requests"])


def show(result: dict[str, Any], as_json: bool) -> None:
    """Print a burst's result, as JSON alone or as tables."""
    if as_json:
        sys.stdout.write(json.dumps(result, indent=1) + "\n")
        return
    mark = ""
    if result["simulated"]:
        mark = f"SIMULATED on {result['profile']}"
    elif result["emulated"]:
        mark = f"EMULATED, {result['profile']}"
    rows = []
    for r in _requests(result):
        scores = ", ".join(
            f"{c['backend']} {c['score_s']:.3f}"
            for c in r["receipt"]["candidates"]
            if c["score_s"] is not None
        )
        rows.append(
            (
                r["id"],
                r["backend"],
                r["prompt_tokens"],
                r["cached_tokens"],
                r["output_tokens"],
                r["queue_s"],
                r["ttft_s"],
                r["e2e_s"],
                r["finish_reason"],
                scores or "not calibrated",
            )
        )
    print_table(
        f"{result['preset']}, {result['policy']}" + (f" [{mark}]" if mark else ""),
        ("#", "backend", "in", "cached", "out", "queue s", "TTFT s", "E2E s", "finish", "scores s"),
        rows,
    )
    placed = ", ".join(f"{n} on {b}" for b, n in result["requests_per_backend"].items())
    makespan, throughput = result["makespan_s"], result["output_throughput"]
    sys.stdout.write(
        f"Makespan {makespan:.2f} s, {throughput:.1f} tok/s out, {placed}.\n"
        if makespan
        else "Nothing finished.\n"
    )
