"""`offramp burst --preset NAME`: run a preset on real (or emulated) backends and print what happened.

With `--slots best` the fastest backend gets the slots with which it serves the burst best alone."""

import argparse
import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from engine.commands.common import Watch, print_table, running_engine
from engine.errors import BackendError
from engine.events import BurstDone, BurstStarted, Event
from engine.workloads.presets import PRESETS

if TYPE_CHECKING:
    from engine.experiments.source import Source


def add_parser(commands: Any) -> None:
    from engine.cli import add_engine_options, add_policy_option
    from engine.commands.workloads import add_trace_options

    parser = commands.add_parser("burst", help="run a preset burst on the backends", description=__doc__)
    add_preset_options(parser)
    add_trace_options(parser)
    parser.add_argument(
        "--virtual", action="store_true", help="with --emulate: on the virtual clock, at once"
    )
    parser.add_argument(
        "--repeats", type=int, default=1, metavar="N", help="run it N times and judge the forecast"
    )
    parser.add_argument("--alone", action="store_true", help="with --repeats: without the other policies")
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
    from engine.commands.slots import calibrated_best, settle_slots
    from engine.commands.workloads import known_profile, source_from
    from engine.errors import ConfigError

    source = source_from(args, known_profile(args.emulate), args.context)
    if not 1 <= args.repeats <= 1000:
        raise ConfigError(f"--repeats {args.repeats} makes no sense: use 1 or more.")
    if args.virtual:
        from engine.commands.simulate import simulated

        if args.emulate is None:
            raise ConfigError("--virtual runs emulated backends only: add --emulate apple-m2-published.")
        show(simulated(args, args.emulate), args.json)
        return 0
    look_for_best = settle_slots(args)
    with running_engine(config_from(args)) as watch:
        watch.until_ready()
        slots = calibrated_best(args, watch) if look_for_best else None
        if args.repeats > 1:
            return _repeat(args, watch, source, slots)
        result = one_burst(watch, source, None, args.seed, slots)
    show(result, args.json)
    failed = [r for r in _requests(result) if r["finish_reason"] == "error"]
    return 1 if failed else 0


def one_burst(
    watch: Watch,
    source: "Source",
    policy: str | None,
    seed: int,
    slots: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """Run one burst on a started engine and wait for its result. `slots` by backend; None leaves them."""
    # The engine builds presets itself: some arrive at a share of what its own calibration says it can serve.
    build = None if source.name in PRESETS else lambda tokenise: source.build(tokenise, seed)
    run_id = watch.engine.run_burst(source.name, policy, seed, build, slots)
    results: list[dict[str, Any]] = []

    def over(events: list[Event]) -> bool:
        for event in events:
            if isinstance(event, BurstStarted):
                sys.stderr.write(f"Running {event.preset} with {event.policy}, {event.count} requests\n")
            if isinstance(event, BurstDone) and event.run_id == run_id:
                results.append(event.result)
        return bool(results)

    watch.until(over)
    if not results[0]:
        raise BackendError("The burst did not run: look at the lines above.")
    return results[0]


def _repeat(args: argparse.Namespace, watch: Watch, source: "Source", slots: Mapping[str, int] | None) -> int:
    """The burst again and again, under its policy and under those it is to be compared with, in turns."""
    from engine.experiments.repeats import against, forecast_errors, run_noise

    single = [p for p in watch.engine.policies() if p.startswith("forced-") and not p.endswith("est")]
    others = (
        [] if args.alone else [p for p in ("isolated-rates", "least-requests", *single) if p != args.policy]
    )
    order = [args.policy, *others]
    runs: dict[str, list[dict[str, Any]]] = {p: [] for p in order}
    for number in range(args.repeats):
        # Who goes first changes from round to round, so that a drift of the machine hits everybody.
        for policy in order[number % len(order) :] + order[: number % len(order)]:
            runs[policy].append(one_burst(watch, source, policy, args.seed, slots))
    mine = runs[args.policy]
    summary = {
        "preset": source.name,
        "policy": args.policy,
        "repeats": args.repeats,
        "emulated": mine[0]["emulated"],
        "forecast_errors": forecast_errors(mine),
        "noise": run_noise(mine),
        "comparison": against(runs, args.policy),
    }
    if args.json:
        sys.stdout.write(json.dumps({**summary, "runs": runs}, indent=1) + "\n")
        return 0
    _show_repeats(summary)
    return 0


def _show_repeats(summary: dict[str, Any]) -> None:
    mark = " [EMULATED]" if summary["emulated"] else ""
    head = f"{summary['preset']}, {summary['policy']}, {summary['repeats']} runs{mark}"
    print_table(
        f"{head}: error of the forecast of E2E",
        ("forecast", "requests", "mean", "p95"),
        [
            (name.replace("_", " "), e["requests"], _percent(e["mean"]), _percent(e["p95"]))
            for name, e in summary["forecast_errors"].items()
        ],
    )
    noise = summary["noise"]
    sys.stdout.write(
        f"Run-to-run noise: E2E {_percent(noise['e2e'])}, makespan {_percent(noise['makespan'])}.\n\n"
    )
    rows = []
    for row in summary["comparison"]:
        for goal in ("makespan", "mean_e2e"):
            f = row[goal]
            interval = f"{_percent(f['low'])} to {_percent(f['high'])}"
            words = goal.replace("_", " ")
            rows.append(
                (
                    row["against"],
                    words,
                    f["against_s"],
                    f["mean_s"],
                    _percent(f["change"]),
                    interval,
                    f["verdict"],
                )
            )
    if rows:
        print_table(
            f"{summary['policy']} against",
            ("policy", "figure", "its mean s", "ours s", "change", "95 % interval", "verdict"),
            rows,
        )


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{value:+.1%}" if value < 0 else f"{value:.1%}"


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
    weighed = f" ({result['weights']})" if result["policy"] == "total-delay" and "weights" in result else ""
    print_table(
        f"{result['preset']}, {result['policy']}{weighed}" + (f" [{mark}]" if mark else ""),
        ("#", "backend", "in", "cached", "out", "queue s", "TTFT s", "E2E s", "finish", "scores s"),
        rows,
    )
    if result.get("capacity_rps"):
        sys.stdout.write(
            f"Arrivals are a share of {result['capacity_rps']:.3g} requests a second, "
            "which the fastest backend serves alone.\n"
        )
    placed = ", ".join(f"{n} on {b}" for b, n in result["requests_per_backend"].items())
    makespan, throughput = result["makespan_s"], result["output_throughput"]
    sys.stdout.write(
        f"Makespan {makespan:.2f} s, {throughput:.1f} tok/s out, {placed}.\n"
        if makespan
        else "Nothing finished.\n"
    )
