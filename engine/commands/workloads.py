"""Options that say what to run: a preset or a trace from a file, and how a trace is fitted."""

import argparse
from collections.abc import Mapping
from pathlib import Path

from engine.errors import ConfigError
from engine.experiments.arms import fastest_place, priced_slots
from engine.experiments.source import Source, capacity_rps, preset_source, trace_source
from engine.profiling.profile import Profile, load_profile, local_profile_path
from engine.simulation.capacity import preset_capacity_rps
from engine.simulation.simulate import CONTEXT_TOKENS
from engine.workloads.presets import PRESETS
from engine.workloads.replayed import retimed
from engine.workloads.traces import read_trace

LIMIT = 200


def add_trace_options(parser: argparse.ArgumentParser) -> None:
    trace = parser.add_argument_group("trace")
    trace.add_argument(
        "--trace",
        metavar="FILE",
        help="in place of a preset: Mooncake-style JSON lines, Azure or BurstGPT CSV, or your own burst as "
        'JSON: {"requests": [{"at_s": 0, "prompt": "...", "max_new_tokens": 64}]}',
    )
    trace.add_argument(
        "--limit", type=int, default=LIMIT, metavar="N", help=f"take the first N requests of it ({LIMIT})"
    )
    how = trace.add_mutually_exclusive_group()
    how.add_argument("--speed", type=float, metavar="X", help="run it X times as fast as recorded")
    how.add_argument("--rate", type=float, metavar="R", help="run it at R requests a second on average")
    how.add_argument(
        "--load", type=float, metavar="L", help="run it at L times the fastest backend's capacity (0.8)"
    )


def known_profile(emulated: str | None) -> Profile | None:
    """What is known of the backends' speed before they start: an emulated profile, else this machine's."""
    if emulated is not None:
        return load_profile(emulated)
    return load_profile("local") if local_profile_path().is_file() else None


def source_from(
    args: argparse.Namespace,
    profile: Profile | None,
    context_tokens: int = CONTEXT_TOKENS,
    preset_slots: Mapping[str, int] | None = None,
) -> Source:
    """The workload that the options ask for. Raises `ConfigError`.

    `preset_slots` are those of the run, where they are not the profile's: arrivals of a preset may be a share
    of what the fastest backend serves with them.
    """
    if getattr(args, "trace", None) is None:
        if profile is None or args.preset not in PRESETS:
            return preset_source(args.preset)
        return preset_source(args.preset, preset_capacity_rps(profile, args.preset, preset_slots))
    if args.limit < 1:
        raise ConfigError(f"--limit {args.limit} leaves nothing: use 1 or more.")
    for name in ("speed", "rate", "load"):
        value = getattr(args, name)
        if value is not None and not 0 < value < 1e9:
            raise ConfigError(f"--{name} {value:g} makes no sense: use a number above 0.")
    trace = read_trace(Path(args.trace), args.limit)
    rate = args.rate
    if args.load is not None:
        if profile is None:
            raise ConfigError("--load needs a calibrated machine: run `offramp profile`, or use --rate.")
        place = fastest_place(profile)
        slots = min(profile.backends[place].slots, priced_slots(profile, place))
        rate = args.load * capacity_rps(profile, trace_source(trace, context_tokens), place, slots)
    return trace_source(retimed(trace, args.speed, rate), context_tokens)
