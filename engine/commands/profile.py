"""`offramp profile`: isolated rates and step times of each backend, measured once per machine."""

import argparse
import json
import sys
from typing import Any

from engine.commands.common import print_table, running_engine
from engine.events import BackendInfo
from engine.profiling.profile import Profile, Rates, load_profile, profile_json
from engine.profiling.store import forget_measured


def add_parser(commands: Any) -> None:
    from engine.cli import add_engine_options

    parser = commands.add_parser("profile", help="measure and show rates and step times", description=__doc__)
    parser.add_argument("--again", action="store_true", help="measure again what is already known")
    parser.add_argument("--formats", action="store_true", help="show the trials of linear formats on the CPU")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_engine_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from engine.cli import config_from

    config = config_from(args)
    if args.formats:
        return _formats(args)
    if args.again:
        forget_measured()
    with running_engine(config) as watch:
        watch.until_ready()
        sys.stderr.write("Measuring what is not known yet, about a minute a backend; Ctrl+C stops.\n")
        watch.until_calibrated()
        infos = watch.running
    profile = load_profile(args.emulate or "local")
    if args.json:
        fits = {i.name: i.step_error for i in infos}
        sys.stdout.write(json.dumps({**profile_json(profile), "held_out_error": fits}, indent=1) + "\n")
        return 0
    _show(profile, infos, args.emulate)
    return 0


def _formats(args: argparse.Namespace) -> int:
    """The bake-off: every shape of the model at 1 to 256 rows in every format that keeps its quality."""
    from engine.devices.cpu import cpu_threads
    from engine.experiments.children import json_lines
    from engine.models.fetch import ensure_model

    threads = args.threads or cpu_threads(1)[0]
    spec = {"what": "trials", "model": str(ensure_model(args.model)), "threads": threads}
    found = list(json_lines("engine.experiments.kernels", spec))
    chosen, trials = found[-1]["chosen"], found[:-1]
    if args.json:
        sys.stdout.write(
            json.dumps({"chosen": chosen, "threads": threads, "trials": trials}, indent=1) + "\n"
        )
        return 0
    formats = list(dict.fromkeys(t["format"] for t in trials))
    cells = {(t["matrix"], t["outputs"], t["inputs"], t["rows"], t["format"]): t for t in trials}
    table = [
        (f"{matrix} {outputs}x{inputs}", rows)
        + tuple(round(cells[matrix, outputs, inputs, rows, f]["seconds"] * 1e6, 1) for f in formats)
        for matrix, outputs, inputs, rows in dict.fromkeys(key[:4] for key in cells)
    ]
    worst = {f: max(t["error"] for t in trials if t["format"] == f) for f in formats}
    print_table(
        f"Products on {threads} thread{'' if threads == 1 else 's'}, microseconds",
        ("matrix", "rows", *formats),
        table,
        "largest error on random numbers: " + ", ".join(f"{f} {e:.2%}" for f, e in worst.items()),
    )
    sys.stdout.write(f"chosen: {chosen}\n")
    return 0


def _show(profile: Profile, infos: list[BackendInfo], emulated: str | None) -> None:
    mark = f" [EMULATED, {emulated}]" if emulated else ""
    rows: list[tuple[object, ...]] = []
    for i in infos:
        rates = Rates(i.prefill_rate or 0.0, i.decode_rate or 0.0)
        rows.append(
            (i.name, i.device_name, i.format, i.threads, rates.prefill, rates.decode, rates.isolated_s)
        )
    columns = ("backend", "device", "format", "threads", "prefill tok/s", "decode tok/s", "512 + 128 s")
    print_table(f"Isolated rates, 512 tokens in, 128 out, alone{mark}", columns, rows)
    rows = []
    for i in infos:
        m = profile.backend(i.name).steps
        error = "n/a" if i.step_error is None else f"{i.step_error:.1%}"
        rows.append(
            (
                i.name,
                ", ".join(f"{n}: {a * 1e3:.2f}" for n, a in m.decode_s),
                f"{m.context_s * 1e6:.2f}",
                f"{m.prefill_s * 1e3:.3f}",
                f"{m.attention_s * 1e9:.2f}",
                f"{m.chunk_s * 1e3:.2f}",
                f"{m.mixed_s * 1e3:.2f}",
                f"{m.interference:.0%}",
                error,
            )
        )
    headings = (
        "backend",
        "A, ms a step at rows",
        "c, us a context token",
        "d, ms a prefill token",
        "e, ns",
        "chunk, ms",
        "m, ms",
        "chi",
        "held-out error",
    )
    sys.stdout.write("\n")
    print_table(f"Step-time model: T = A[n] + c K + d P + e C + chunk + m{mark}", headings, rows)
