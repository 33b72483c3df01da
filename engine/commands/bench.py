"""`offramp bench`: speed against peers, quality of the formats, cost growth and overhead."""

import argparse
import json
import os
import sys
from dataclasses import asdict
from importlib.util import find_spec
from typing import Any

from engine.commands import bench_routing, bench_steps
from engine.commands.common import STDERR, print_table
from engine.errors import ConfigError


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "bench", help="measure backends: speed, quality, growth", description=__doc__
    )
    kinds = parser.add_subparsers(dest="bench", metavar="WHAT", required=True)
    backends = kinds.add_parser("backends", help="prefill and decode against a peer, in alternating runs")
    backends.add_argument("--against", default="llama-cpp", choices=("llama-cpp", "transformers"))
    backends.add_argument("--rounds", type=int, default=5, metavar="N", help="runs of each side and test (5)")
    backends.add_argument("--threads", default="1,all", metavar="LIST", help="thread counts (1,all)")
    backends.add_argument("--tests", default="all", metavar="LIST", help="such as prefill_512 (all)")
    _add_model(backends)
    backends.add_argument("--device", default="cpu", metavar="DEVICE", help="cpu, cuda or cuda:N (cpu)")
    backends.add_argument(
        "--load-format", default="auto", choices=("auto", "dummy"), help="dummy: random weights"
    )
    backends.add_argument("--architecture", metavar="NAME", help="shapes for dummy, such as qwen2.5-0.5b")
    backends.add_argument("--json", action="store_true", help="print JSON rows")
    backends.set_defaults(run=run_backends)
    quality = kinds.add_parser("quality", help="perplexity and agreement of the formats against float32")
    quality.add_argument("--formats", default="auto", metavar="LIST", help="such as auto,bf16,int8 (auto)")
    _add_model(quality, formats=False)
    quality.add_argument("--json", action="store_true", help="print JSON rows")
    quality.set_defaults(run=run_quality)
    window = kinds.add_parser("window", help="what the window costs, and how quickly it answers")
    window.set_defaults(run=run_window)
    bench_routing.add_parser(kinds)
    bench_steps.add_parser(kinds)
    for name, words in (
        ("growth", "costs of long replies and queues"),
        ("overhead", "the loop around a step"),
    ):
        growth = kinds.add_parser(name, help=words)
        growth.add_argument("--tokens", type=int, default=4000 if name == "growth" else 64, metavar="N")
        growth.add_argument("--queued", type=int, default=32, metavar="N", help="waiting requests (32)")
        _add_model(growth)
        growth.add_argument("--json", action="store_true", help="print JSON rows")
        growth.set_defaults(run=run_growth)


def _add_model(parser: argparse.ArgumentParser, formats: bool = True) -> None:
    from engine.config import FORMATS

    parser.add_argument("--model", default="smollm2-135m-instruct", metavar="NAME")
    if formats:
        parser.add_argument("--format", default="auto", choices=FORMATS)


def thread_counts(text: str) -> list[int]:
    """ "1,all" as numbers, each once. Raises `ConfigError`."""
    from engine.devices.cpu import physical_cores

    counts: list[int] = []
    for part in text.split(","):
        word = part.strip()
        if word != "all" and not (word.isdecimal() and 1 <= int(word) <= 256):
            raise ConfigError(f"--threads {text} is unclear: use numbers from 1 to 256, or all, as in 1,all.")
        counts.append(physical_cores() if word == "all" else int(word))
    return list(dict.fromkeys(counts))


def wanted_tests(text: str, device: str = "cpu") -> tuple[str, ...]:
    from engine.experiments.backend_bench import DEVICE_TESTS, TESTS

    known = TESTS if device == "cpu" else DEVICE_TESTS
    if text == "all":
        return known
    names = tuple(name.strip() for name in text.split(","))
    if unknown := [name for name in names if name not in known]:
        raise ConfigError(f"There is no test '{unknown[0]}': choose from {', '.join(known)}.")
    return names


def bench_spec(args: argparse.Namespace) -> dict[str, Any]:
    """What both sides run on: device, weights, format. Raises `ConfigError` for words that do not fit."""
    from engine.experiments.backend_bench import device_sizes
    from engine.models.architecture import named_shape
    from engine.models.fetch import ensure_model

    kind, _, index = args.device.partition(":")
    if kind not in ("cpu", "cuda") or (index and not (kind == "cuda" and index.isdecimal())):
        raise ConfigError(f"--device {args.device} is unclear: use cpu, cuda or cuda:0.")
    if kind == "cuda" and args.against != "transformers":
        raise ConfigError("On CUDA the peer is transformers: add --against transformers.")
    if (args.load_format == "dummy") != (args.architecture is not None):
        raise ConfigError("--load-format dummy and --architecture NAME go together: give both or neither.")
    if args.architecture is not None:
        named_shape(args.architecture)
        if args.against == "llama-cpp":
            raise ConfigError("llama.cpp needs a real model: leave --load-format dummy out.")
    return {
        "device": "cuda:0" if args.device == "cuda" else args.device,
        "format": args.format,
        "model": None if args.architecture else str(ensure_model(args.model)),
        "architecture": args.architecture,
        "load_format": args.load_format,
        **(device_sizes() if kind == "cuda" else {}),
    }


def run_backends(args: argparse.Namespace) -> int:
    from engine.experiments.backend_bench import answerable, compare, peers_of

    if args.rounds < 1:
        raise ConfigError(f"--rounds {args.rounds} makes no sense: use 1 or more.")
    spec = bench_spec(args)
    tests = wanted_tests(args.tests, spec["device"])
    counts = thread_counts(args.threads) if spec["device"] == "cpu" else [1]  # one thread drives a GPU
    if args.against == "llama-cpp" and find_spec("llama_cpp") is None:
        raise ConfigError(
            'llama-cpp-python is not installed: CMAKE_ARGS="-DGGML_NATIVE=ON" pip install "offramp[bench]" '
            "--no-binary llama-cpp-python builds it for this machine."
        )
    _warn_busy()
    rows = []
    for threads in counts:
        for peer in peers_of(args.against, spec["device"]):
            chosen = answerable(peer, tests)
            if chosen:
                rows += compare({**spec, "threads": threads}, peer, chosen, args.rounds, STDERR.print)
    if args.json:
        sys.stdout.write(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
        return 0
    columns = ("threads", "test", "ours tok/s", "peer", "peer tok/s", "ratio")
    print_table(
        "Ours against the peer, medians of alternating runs",
        columns,
        [(r.threads, r.test, r.ours_tok_s, r.peer, r.peer_tok_s, r.ratio) for r in rows],
        "decode: all rows together, each at a context of 512 tokens",
    )
    return 0


def run_quality(args: argparse.Namespace) -> int:
    from engine.config import FORMATS
    from engine.errors import UnknownNameError
    from engine.experiments.children import json_lines
    from engine.models.fetch import ensure_model

    formats = [name.strip() for name in args.formats.split(",")]
    for name in formats:
        if name not in FORMATS:
            raise UnknownNameError("format", name, FORMATS)
    spec = {"model": str(ensure_model(args.model)), "formats": formats, "threads": 1}
    rows = list(json_lines("engine.experiments.quality", spec))
    if args.json:
        sys.stdout.write(json.dumps(rows, indent=1) + "\n")
        return 0
    print_table(
        "Quality on the fixed text, against float32 of the same file",
        ("format", "perplexity", "change", "same first choice"),
        [(r["format"], r["perplexity"], f"{r['change']:+.2%}", f"{r['agreement']:.3f}") for r in rows],
        f"{rows[0]['tokens']:,} tokens; the default may be 1 % worse at most",
    )
    return 0


def run_growth(args: argparse.Namespace) -> int:
    from engine.experiments.children import json_lines
    from engine.models.fetch import ensure_model

    if not 64 <= args.tokens <= 100_000 or not 0 <= args.queued <= 10_000:
        raise ConfigError("Use 64 to 100,000 --tokens and 0 to 10,000 --queued requests.")
    spec = {
        "model": str(ensure_model(args.model)),
        "format": args.format,
        "threads": 1,
        "tokens": args.tokens,
        "queued": args.queued,
    }
    _warn_busy()
    rows = list(json_lines("engine.experiments.growth", spec))
    if args.json:
        sys.stdout.write(json.dumps(rows, indent=1) + "\n")
        return 0
    print_table(
        "Costs around and inside a step, medians",
        ("test", "value", "unit"),
        [(r["test"], r["value"], r["unit"]) for r in rows],
    )
    return 0


def run_window(args: argparse.Namespace) -> int:
    """The window's own package answers `offramp bench window` before this does."""
    raise ConfigError("This measures the window: run `offramp bench window` where Qt is installed.")


def _warn_busy() -> None:
    if hasattr(os, "getloadavg") and os.getloadavg()[0] > max(1, (os.cpu_count() or 1) - 1):
        STDERR.print(
            "Other work is running on this machine: no core is idle, so rates will be low and uneven."
        )
