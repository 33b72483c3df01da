"""`offramp simulate`: the same engine on a virtual clock: one preset, a table of policies, or regret.

Everything it prints is marked simulated."""

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from engine.commands.common import STDERR, print_table
from engine.commands.workloads import add_trace_options, source_from
from engine.config import SCHEDULING_POLICIES
from engine.errors import ConfigError, UnknownNameError
from engine.profiling.profile import Profile, load_profile, published_profiles
from engine.routing.policies import check_policy
from engine.simulation.simulate import CONTEXT_TOKENS, fake_tokenise, simulate
from engine.weights import DEFAULT_WEIGHTS, PolicyWeights
from engine.workloads.presets import PRESETS


def add_parser(commands: Any) -> None:
    from engine.cli import add_policy_option
    from engine.commands.burst import add_preset_options

    parser = commands.add_parser("simulate", help="run presets on a virtual clock", description=__doc__)
    names = ", ".join([*published_profiles(), "local"])
    parser.add_argument(
        "--profile", default="apple-m2-published", metavar="NAME", help=f"{names}, or a profile file"
    )
    add_preset_options(parser)
    add_trace_options(parser)
    add_policy_option(parser)
    parser.add_argument(
        "--slots", metavar="N", help="as the profile says, or 4, or gpu=1,cpu=4, auto, or best"
    )
    parser.add_argument("--scheduling", default="fcfs", choices=SCHEDULING_POLICIES)
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    many = parser.add_argument_group("tables")
    many.add_argument("--all-policies", action="store_true", help="a row for every policy")
    many.add_argument("--presets", metavar="LIST", help="with --all-policies: all, or names with commas")
    many.add_argument("--seeds", type=int, default=5, metavar="N", help="seeds averaged per row (5)")
    many.add_argument("--regret", action="store_true", help="against the best of every placement")
    many.add_argument("--bounds", action="store_true", help="the default against each backend alone")
    many.add_argument(
        "--bursts", type=int, default=200, metavar="N", help="with --regret and --bounds: random bursts (200)"
    )
    parser.set_defaults(run=run)


def slots_from(
    args: argparse.Namespace,
    profile: Profile,
    usual: Mapping[str, int] | None = None,
    most: int | None = None,
) -> dict[str, int] | None:
    """Slots per backend as `--slots` asks; None leaves the profile's. Raises `ConfigError`.

    With "best" the fastest backend gets those with which it serves the burst best alone, at most `most`, the
    others keep the `usual` ones (the profile's, where nothing is said), and stderr tells what was found.
    """
    from engine.config import AUTO_SLOTS, BackendOptions
    from engine.experiments.arms import baseline_arm, best_words

    if args.slots is None:
        return None
    if args.slots == "auto":
        return {b.name: b.steps.auto_slots(AUTO_SLOTS) for b in profile.backends}
    if args.slots == "best":
        if getattr(args, "preset", None) is None:
            raise ConfigError("--slots best belongs to one preset or trace: use numbers here.")
        usual = usual or {b.name: b.slots for b in profile.backends}
        source = source_from(args, profile, getattr(args, "context", CONTEXT_TOKENS))
        base, tried = baseline_arm(profile, source, usual, most)
        sys.stderr.write(f"{best_words(base, tried, usual)}\n")
        return base.slots_by_name
    options = BackendOptions(slots=args.slots)
    options.check_slot_names([b.name for b in profile.backends])
    return {b.name: options.slots_of(b.name, b.slots) for b in profile.backends}


def simulated(args: argparse.Namespace, profile_name: str) -> dict[str, object]:
    """The result of the one burst that `args` ask for."""
    profile = load_profile(profile_name)
    check_policy(args.policy, [b.name for b in profile.backends])
    slots = slots_from(args, profile)
    workload = source_from(args, profile, preset_slots=slots).build(fake_tokenise, args.seed)
    result = simulate(profile, workload, args.policy, slots, args.scheduling, _weights(args))
    return {**result, "capacity_rps": workload.capacity_rps}


def _weights(args: argparse.Namespace) -> PolicyWeights:
    from engine.cli import weights_from

    return weights_from(args)


def _weighed(weights: PolicyWeights) -> str:
    """Words for a title, where total-delay is not as it comes."""
    return "" if weights == DEFAULT_WEIGHTS else f", total-delay with {weights}"


def run(args: argparse.Namespace) -> int:
    from engine.commands.burst import show

    if args.slots == "best" and (args.regret or args.bounds):
        raise ConfigError("--slots best belongs to one preset or trace: use numbers here.")
    if not 1 <= args.bursts <= 100_000 or not 1 <= args.seeds <= 1000:
        raise ConfigError("--bursts and --seeds take a number of 1 or more.")
    profile = load_profile(args.profile)
    if args.regret:
        return _regret(args, profile)
    if args.bounds:
        return _bounds(args, profile)
    if args.all_policies:
        return _all_policies(args, profile)
    show(simulated(args, args.profile), args.json)
    return 0


def _presets(text: str | None, default: str) -> list[str]:
    names = list(PRESETS) if text == "all" else [n.strip() for n in (text or default).split(",")]
    for name in names:
        if name not in PRESETS:
            raise UnknownNameError("preset", name, list(PRESETS))
    return names


def _bar(total: int, what: str) -> tuple[Any, Callable[[object], None]]:
    """A progress bar on stderr, and what moves it on."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=STDERR, transient=True)
    task = bar.add_task(what, total=total)
    return bar, lambda _: bar.advance(task)


def _all_policies(args: argparse.Namespace, profile: Profile) -> int:
    from engine.experiments.tables import all_policies, bounds_line, policies_of

    presets = _presets(args.presets, args.preset)
    bar, advance = _bar(len(presets) * len(policies_of(profile)), "rows")
    with bar:
        rows = all_policies(
            profile,
            presets,
            "best" if args.slots == "best" else slots_from(args, profile),
            range(args.seed, args.seed + args.seeds),
            None,
            advance,
            _weights(args),
        )
    if args.json:
        sys.stdout.write(json.dumps(rows, indent=1) + "\n")
        return 0
    cells = []
    for r in rows:
        placed, regret = r["requests_per_backend"], r["regret"]
        assert isinstance(placed, dict)
        cells.append(
            (
                r["preset"],
                f"{r['policy']}{' (default)' if r['default'] else ''}",
                r["makespan_s"],
                r["mean_e2e_s"],
                r["p95_ttft_s"],
                ", ".join(f"{n:g} {b}" for b, n in placed.items()),
                f"{regret:.1%}" if isinstance(regret, float) else "n/a",
            )
        )
    columns = ("preset", "policy", "makespan s", "mean E2E s", "p95 TTFT s", "requests", "regret of E2E")
    title = f"SIMULATED on {profile.name}, mean of {args.seeds} seeds{_weighed(_weights(args))}"
    print_table(title, columns, cells)
    sys.stdout.write(bounds_line(rows) + "\n")
    return 0


def _regret(args: argparse.Namespace, profile: Profile) -> int:
    from engine.experiments.regret import regret_rows

    weights = _weights(args)
    bar, advance = _bar(args.bursts, "bursts")
    with bar:
        rows = regret_rows(profile, args.bursts, slots_from(args, profile), args.seed, advance, weights)
    data: list[dict[str, object]] = [{**r.to_json(), "weights": str(weights)} for r in rows]
    if args.json:
        sys.stdout.write(json.dumps(data, indent=1) + "\n")
        return 0
    cells = []
    for row in data:
        e2e, makespan = row["regret_mean_e2e"], row["regret_makespan"]
        assert isinstance(e2e, dict) and isinstance(makespan, dict)
        name = f"{row['policy']}{' (default)' if row['default'] else ''}"
        cells.append((name, *(f"{s[k]:.1%}" for s in (e2e, makespan) for k in ("mean", "p95", "max"))))
    columns = ("policy", "E2E mean", "p95", "max", "makespan mean", "p95", "max")
    title = f"Regret against the best placement, SIMULATED on {profile.name}, {args.bursts} bursts of 2 to 12"
    print_table(title + _weighed(weights), columns, cells)
    return 0


def _bounds(args: argparse.Namespace, profile: Profile) -> int:
    from dataclasses import asdict

    from engine.experiments.regret import bounds

    weights = _weights(args)
    bar, advance = _bar(args.bursts, "bursts")
    with bar:
        found = bounds(profile, args.bursts, slots_from(args, profile), args.seed, advance, weights)
    if args.json:
        data = {"profile": profile.name, "simulated": True, "weights": str(weights), **asdict(found)}
        sys.stdout.write(json.dumps(data, indent=1) + "\n")
        return 0
    share = found.makespan_broken / found.bursts, found.p95_broken / found.bursts
    sys.stdout.write(
        f"SIMULATED on {profile.name}, {found.bursts} random bursts of 2 to 16{_weighed(weights)},\n"
        "total-delay against the better backend alone:\n"
        f"makespan more than 1 % longer in {share[0]:.1%} of the bursts,\n"
        f"p95 TTFT more than 2 % longer in {share[1]:.1%};\n"
        f"mean change: makespan {found.makespan_change:+.1%}, mean E2E {found.mean_e2e_change:+.1%}, "
        f"p95 TTFT {found.p95_ttft_change:+.1%}.\n"
    )
    return 0
