"""`offramp bench steps`: where the time of a decode step on the CPU goes."""

import argparse
import json
import sys
from typing import Any

from engine.commands.common import print_table
from engine.errors import ConfigError


def add_parser(kinds: Any) -> None:
    from engine.config import FORMATS

    parser = kinds.add_parser("steps", help="where the time of a decode step on the CPU goes")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="threads (1)")
    parser.add_argument("--rows", default="1,4,8,shared-8", metavar="LIST", help="such as 1,4,shared-8")
    parser.add_argument("--model", default="smollm2-135m-instruct", metavar="NAME")
    parser.add_argument("--format", default="auto", choices=FORMATS)
    parser.add_argument("--json", action="store_true", help="print JSON rows")
    parser.set_defaults(run=run)


def tests_of(rows: str) -> list[str]:
    """ "1,shared-8" as the names of tests. Raises `ConfigError`."""
    found = []
    for part in rows.split(","):
        kind, _, count = part.strip().rpartition("-")
        if kind not in ("", "shared") or not count.isdecimal() or not 1 <= int(count) <= 8:
            raise ConfigError(f"--rows {rows} is unclear: use numbers from 1 to 8, as in 1,4,shared-8.")
        found.append(f"decode_512_shared_rows_{count}" if kind else f"decode_512_rows_{count}")
    return found


def run(args: argparse.Namespace) -> int:
    from engine.experiments.children import json_lines
    from engine.models.fetch import ensure_model

    if not 1 <= args.threads <= 256:
        raise ConfigError(f"--threads {args.threads} makes no sense: use 1 to 256.")
    tests = tests_of(args.rows)
    model = str(ensure_model(args.model))
    spec = {"model": model, "format": args.format, "threads": args.threads, "tests": tests}
    rows = list(json_lines("engine.experiments.step_parts", spec))
    if args.json:
        sys.stdout.write(json.dumps(rows, indent=1) + "\n")
        return 0
    parts = list(rows[0]["shares"])
    print_table(
        f"Where a step's time goes, {rows[0]['format']}, threads: {args.threads}",
        ("test", "step ms", "operations", *parts),
        [
            (r["test"], r["step_ms"], r["calls"], *(f"{r['shares'][part]:.0%}" for part in parts))
            for r in rows
        ],
        "shares by torch's profiler, which slows small operations down; step ms without it",
    )
    return 0
