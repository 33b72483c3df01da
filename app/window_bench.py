"""`offramp bench window`: what the window costs, and how quickly it answers while a burst runs.

Each scenario runs in a process of its own, bursts with and without the window in alternating order.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from app.virtual_display import Screen, unseen_screen
from engine.errors import EngineError

# With one core free. Heartbeat gaps in ms, redraws a second, throughput with the window to without.
MOST_GAP_MS, MOST_P99_MS, MOST_REDRAWS, LEAST_RATIO = 100.0, 50.0, 10.5, 0.95
PAIRS, REPEATS = 3, 10
QUICK = {"pairs": 1, "repeats": 2, "requests": 6}


@dataclass(frozen=True, slots=True)
class Scenario:
    """`bounded`: the budgets hold, since a core is left for the window."""

    name: str
    title: str
    bounded: bool
    options: tuple[str, ...]


def scenarios(cores: int) -> tuple[Scenario, ...]:
    """One real and one emulated backend on all cores but one; two real ones on all of them."""
    every = ("--backends", "cpu,cpu", "--threads", str(max(1, cores // 2)))
    mixed = ("--backends", "cpu,emulated:gpu", "--emulate", "apple-m2-published")
    return (
        Scenario("real-and-emulated", "One real and one emulated backend, one core free", True, mixed),
        Scenario("two-real", "Two real backends, no core free", False, every),
    )


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="offramp bench window",
        description="Heartbeat, redraws, throughput and memory of the window while bursts run on an unseen "
        "screen, and its heartbeat while the time cursor is dragged over the last one. Exit code 1 where a "
        "bounded scenario misses its budget.",
    )
    parser.add_argument("--preset", default="seed-warm-48", metavar="NAME")
    parser.add_argument("--policy", default="isolated-rates", metavar="NAME")
    parser.add_argument("--pairs", type=int, metavar="N", help=f"runs without the window ({PAIRS})")
    parser.add_argument("--repeats", type=int, metavar="N", help=f"runs with the window ({REPEATS})")
    parser.add_argument("--requests", type=int, metavar="N", help="only the first N requests of the preset")
    parser.add_argument("--scenario", choices=[s.name for s in scenarios(2)], help="only this one")
    parser.add_argument("--quick", action="store_true", help="a minute's try: few and short runs, no proof")
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    return parser


def order(pairs: int, repeats: int) -> list[str]:
    """Pairs in alternating order, then what is left of the repeats with the window."""
    out: list[str] = []
    for index in range(pairs):
        out += ["with", "without"] if index % 2 == 0 else ["without", "with"]
    return out + ["with"] * (repeats - pairs)


def judged(scenario: Scenario, found: Mapping[str, Any]) -> dict[str, Any]:
    """A scenario's row: the child's figures, the paired ratio, memory growth, and whether it is in budget."""
    pairs = list(zip(found["tok_s"]["with"], found["tok_s"]["without"], strict=False))
    ratio = median(with_it / without for with_it, without in pairs)
    beats, rss = found["heartbeat_ms"], found["rss_mb"]
    within = (
        beats["max"] < MOST_GAP_MS
        and beats["p99"] < MOST_P99_MS
        and max(found["redraws_per_s"].values(), default=0.0) <= MOST_REDRAWS
        and ratio >= LEAST_RATIO
    )
    return {
        "name": scenario.name,
        "bounded": scenario.bounded,
        "heartbeat_ms": beats,
        "redraws_per_s": found["redraws_per_s"],
        "throughput_ratio": round(ratio, 3),
        "rss_growth_mb": round(rss[-1] - rss[0], 1),
        "within_budget": within if scenario.bounded else None,
        "own_time_ms": found["own_time_ms"],
        "worst_gaps": found["worst_gaps"],
        "drag_ms": found["drag_ms"],
        "tok_s": found["tok_s"],
        "rss_mb": rss,
        "seconds": found["seconds"],
        "load_average": found["load_average"],
    }


def run_child(spec: Mapping[str, Any], screen: Screen) -> dict[str, Any]:
    """Run `app.bench_child` there; its progress passes through. Raises `EngineError` with its reason."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "app.bench_child", json.dumps(spec)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **screen.variables, "PYTHONPATH": paths},
    ) as child:
        assert child.stdout is not None
        try:
            lines = child.stdout.read().splitlines()
        except BaseException:
            child.terminate()
            raise
    if child.returncode or not lines:
        raise EngineError(f"The window's process ended with code {child.returncode}.")
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def main(argv: Sequence[str]) -> int:
    parser = make_parser()
    args = parser.parse_args(argv)
    quick = QUICK if args.quick else {}
    pairs = args.pairs or quick.get("pairs", PAIRS)
    repeats = args.repeats or quick.get("repeats", REPEATS)
    requests = args.requests or quick.get("requests")
    if not 1 <= pairs <= repeats or (requests is not None and requests < 1):
        parser.error("use at least one pair, no fewer repeats than pairs, and at least one request.")
    from engine.devices.cpu import physical_cores

    rows = []
    with unseen_screen() as screen:
        if screen.why:
            sys.stderr.write(f"Rendering offscreen: {screen.why}.\n")
        for scenario in scenarios(physical_cores()):
            if args.scenario not in (None, scenario.name):
                continue
            sys.stderr.write(f"{scenario.title}:\n")
            spec = {
                "options": scenario.options,
                "preset": args.preset,
                "policy": args.policy,
                "order": order(pairs, repeats),
                "requests": requests,
            }
            try:
                rows.append(judged(scenario, run_child(spec, screen)))
            except KeyboardInterrupt:
                return 130
            except EngineError as error:
                sys.stderr.write(f"offramp: {error}\n")
                return 1
    head = {"screen": screen.name, "cores": physical_cores(), "preset": args.preset, "requests": requests}
    if args.json:
        sys.stdout.write(json.dumps({**head, "scenarios": rows}, indent=1) + "\n")
    else:
        _show(rows, screen)
    return 1 if any(row["within_budget"] is False for row in rows) else 0


def _show(rows: Sequence[Mapping[str, Any]], screen: Screen) -> None:
    from engine.commands.common import print_table

    columns = ("scenario", "gap p50 ms", "p99", "max", "most redraws/s", "throughput", "growth MB", "budget")
    table = []
    for row in rows:
        beats = row["heartbeat_ms"]
        budget = {True: "kept", False: "missed", None: "none"}[row["within_budget"]]
        most = max(row["redraws_per_s"].values())
        table.append((row["name"], beats["p50"], beats["p99"], beats["max"], most,
                      row["throughput_ratio"], row["rss_growth_mb"], budget))  # fmt: skip
    note = f"screen: {screen.name}; throughput = with the window to without, median of pairs"
    print_table("The window while a burst runs", columns, table, note)
