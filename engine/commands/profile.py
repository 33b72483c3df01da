"""`offramp profile`: isolated rates and step times of each backend, measured once per machine.

Ctrl+C stops it: what was measured by then is kept, and of the rest what was known before."""

import argparse
import json
import sys
from typing import Any

from engine.commands.common import print_table, running_engine
from engine.config import EngineConfig
from engine.events import BackendInfo
from engine.profiling.profile import Profile, Rates, load_profile, profile_json
from engine.profiling.step_time import StepTimeModel


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
    try:
        infos = _measured(config, args.again and not args.emulate)
    except KeyboardInterrupt:
        sys.stderr.write("Stopped: what was measured is kept, the same command goes on from there.\n")
        return 130
    profile = load_profile(args.emulate or "local")
    if args.json:
        sys.stdout.write(json.dumps(profile_json(profile), indent=1) + "\n")
        return 0
    _show(profile, infos, args.emulate)
    return 0


def _measured(config: EngineConfig, again: bool) -> list[BackendInfo]:
    """The backends once they are measured, fastest first."""
    with running_engine(config) as watch:
        watch.until_ready()
        if again:
            watch.recalibrate()
        sys.stderr.write("Measuring what is not known yet, about a minute a backend; Ctrl+C stops.\n")
        watch.until_calibrated()
        return watch.running


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
        rows.append(
            (
                i.name,
                ", ".join(f"{n}: {a * 1e3:.2f}" for n, a in m.decode_s),
                f"{m.context_s * 1e6:.2f}",
                _prefill_words(m),
                f"{m.attention_s * 1e9:.2f}",
                f"{m.start_s * 1e6:.2f}",
                f"{m.chunk_s * 1e3:.2f}",
                f"{m.mixed_s * 1e3:.2f}",
                f"{m.interference:.0%}",
            )
        )
    headings = (
        "backend",
        "A, ms a step at rows",
        "c, us a context token",
        "D, ms at prefill tokens",
        "e, ns",
        "s, us a cached token",
        "chunk, ms",
        "m, ms",
        "chi",
    )
    sys.stdout.write("\n")
    print_table(f"Step-time model: T = A[n] + c K + D[P] + e C + s S + chunk + m{mark}", headings, rows)
    fitted = [profile.backend(i.name) for i in infos]
    if any(b.fit_error is not None for b in fitted):
        sys.stdout.write("\n")
        print_table(
            "How well it fits: mean absolute errors, relative",
            ("backend", "fit", "held out", "spread of equal steps"),
            [(b.name, _percent(b.fit_error), _percent(b.held_out_error), _percent(b.spread)) for b in fitted],
            "held out: each fifth of the points predicted by a fit to the others",
        )


def _prefill_words(m: StepTimeModel) -> str:
    if not m.prefill_table_s:
        return f"{m.prefill_s * 1e3:.3f} a token"
    return ", ".join(f"{n}: {d * 1e3:.2f}" for n, d in m.prefill_table_s)


def _percent(share: float | None) -> str:
    return "n/a" if share is None else f"{share:.1%}"
