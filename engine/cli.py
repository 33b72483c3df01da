"""The command line: `offramp COMMAND` and, where Qt is absent, `python -m engine COMMAND`."""

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from engine import __version__
from engine.config import FORMATS, SCHEDULING_POLICIES, BackendOptions, EngineConfig
from engine.errors import EngineError
from engine.weights import DEFAULT_WEIGHTS, PolicyWeights, parse_weights

SUBCOMMANDS = (
    *("generate", "burst", "simulate", "compare", "sweep", "map", "replay", "regret", "models", "profile"),
    *("bench", "doctor"),
)

_DESCRIPTION = """\
When does a CPU beat waiting for the GPU? Answered live, on your own machine.
Without a command the window opens; its options are listed by `offramp --help-window`."""


def add_engine_options(parser: argparse.ArgumentParser) -> None:
    """Options that decide what the engine runs; shared by the window and the commands."""
    model = parser.add_argument_group("model")
    model.add_argument(
        "--model",
        default="smollm2-135m-instruct",
        metavar="NAME",
        help="catalogue name, GGUF file or model folder (see `offramp models list`)",
    )
    model.add_argument(
        "--format",
        default="auto",
        choices=FORMATS,
        help="linear format of every backend; auto = the fast one, float32 on a second CPU backend",
    )
    model.add_argument("--context", type=int, default=4096, metavar="TOKENS", help="context length (4096)")
    model.add_argument(
        "--load-format",
        default="auto",
        choices=("auto", "dummy"),
        help="dummy = random weights, for speed runs without a model",
    )
    model.add_argument("--architecture", metavar="NAME", help="shape of dummy weights, such as qwen2.5-0.5b")
    backends = parser.add_argument_group("backends")
    backends.add_argument(
        "--backends",
        default="auto",
        metavar="LIST",
        help="auto, or devices such as cpu,cpu or cpu,cuda or cpu,mps or cpu; "
        "with --emulate also cpu,emulated:gpu",
    )
    backends.add_argument(
        "--emulate",
        metavar="PROFILE",
        help="backends that only wait, timed by a profile such as apple-m2-published",
    )
    backends.add_argument("--threads", type=int, metavar="N", help="threads of each CPU backend")
    backends.add_argument(
        "--slots",
        default="4",
        metavar="N",
        help="active requests per backend: 4, or gpu=1,cpu=4, or auto; for a burst also best",
    )
    backends.add_argument(
        "--kv-blocks", type=int, default=384, metavar="N", help="KV blocks of 16 tokens (384)"
    )
    backends.add_argument("--token-budget", type=int, metavar="N", help="tokens a step (512; CUDA 2,048)")
    backends.add_argument("--scheduling", default="fcfs", choices=SCHEDULING_POLICIES)
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of workloads and dummy weights (0)"
    )


def add_policy_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--policy",
        default="total-delay",
        metavar="NAME",
        help="isolated-rates, round-robin, least-requests, forced-NAME (a backend, fastest, slowest)",
    )
    parser.add_argument(
        "--weights",
        metavar="LIST",
        help=f"what total-delay weighs, where it is not {DEFAULT_WEIGHTS}",
    )


def weights_from(args: argparse.Namespace) -> PolicyWeights:
    """What `--weights` says; the defaults where it was not given. Raises `ConfigError`."""
    text = getattr(args, "weights", None)
    return DEFAULT_WEIGHTS if text is None else parse_weights(text)


def config_from(args: argparse.Namespace) -> EngineConfig:
    """Engine configuration from parsed options. Raises `EngineError`."""
    from engine.choose import check_mixture
    from engine.errors import ConfigError
    from engine.profiling.profile import load_profile

    if args.context < 32:
        raise ConfigError(f"--context {args.context} is too short: use 32 tokens or more.")
    if args.threads is not None and not 1 <= args.threads <= 1024:
        raise ConfigError(f"--threads {args.threads} makes no sense: use 1 or more.")
    profile = load_profile(args.emulate) if args.emulate is not None else None
    options = BackendOptions(
        args.backends,
        args.format,
        args.threads,
        args.slots,
        args.kv_blocks,
        args.token_budget,
        args.scheduling,
    )
    if args.backends != "auto":
        check_mixture(options, profile)
    options.slots_of("")
    return EngineConfig(
        model=args.model,
        policy=getattr(args, "policy", "total-delay"),
        weights=weights_from(args),
        options=options,
        context_tokens=args.context,
        emulate=args.emulate,
        load_format=args.load_format,
        architecture=args.architecture,
        seed=args.seed,
    )


def window_parser() -> argparse.ArgumentParser:
    """Options of the window."""
    parser = argparse.ArgumentParser(prog="offramp", description="Open the window.")
    add_engine_options(parser)
    add_policy_option(parser)
    window = parser.add_argument_group("window")
    window.add_argument("--preset", metavar="NAME", help="burst to run once the backends are ready")
    window.add_argument("--theme", choices=("system", "dark", "light"), default=None)
    window.add_argument("--size", default="1920x1080", metavar="WxH", help="window size of a screenshot")
    window.add_argument(
        "--screenshot", metavar="PNG", help="render the window offscreen into a file and leave"
    )
    window.add_argument("--after", type=float, metavar="S", help="take it S seconds after the burst began")
    window.add_argument("--after-burst", action="store_true", help="take it when the burst has ended")
    return parser


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    from engine.commands import (
        bench,
        burst,
        compare,
        doctor,
        generate,
        models,
        offload_map,
        profile,
        regret,
        replay,
        simulate,
        sweep,
    )

    parser = argparse.ArgumentParser(
        prog="offramp", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"offramp {__version__}")
    parser.add_argument("--help-window", action="store_true", help="list the options of the window")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    experiments = (compare, sweep, offload_map)
    for module in (generate, burst, simulate, *experiments, replay, regret, models, profile, bench, doctor):
        module.add_parser(commands)
    return parser


def main(argv: Sequence[str] | None = None, paint_png: Callable[[Path, Path], None] | None = None) -> int:
    """Run one command. Exit codes: 0 good, 1 a request or backend failed, 2 a user's mistake, 130 Ctrl+C.

    `paint_png(svg, png)` draws charts as pictures, which takes the window's Qt.
    """
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    parser = make_parser()
    args = parser.parse_args(argv)
    args.paint_png = paint_png
    if args.help_window:
        window_parser().print_help()
        return 0
    if args.command is None:
        parser.print_help()
        return 0
    try:
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except EngineError as error:
        sys.stderr.write(f"offramp: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("offramp: stopped.\n")
        return 130
    except BrokenPipeError:  # the reader of our output has left, as `| head` does
        sys.stderr.close()
        return 0
