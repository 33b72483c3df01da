"""What `compare`, `sweep` and `map` share: where runs are computed, progress, and the last words."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine.commands.common import STDERR
from engine.errors import ConfigError
from engine.experiments.charts import Mark
from engine.experiments.report import NO_PNG, Report, write_report
from engine.experiments.runs import Live, Place, Simulated
from engine.profiling.profile import (
    Profile,
    load_profile,
    local_profile_path,
    profile_json,
    published_profiles,
)

USUAL_SLOTS = 4


def chosen_profile(name: str | None) -> Profile:
    """The profile asked for, else this machine's, else an assumed one."""
    if name is None:
        name = "local" if local_profile_path().is_file() else "batching-gpu"
    return load_profile(name)


def add_place_options(parser: argparse.ArgumentParser) -> None:
    """Simulated on a profile unless `--real`."""
    from engine.cli import add_engine_options

    parser.add_argument(
        "--quick", action="store_true", help="fewer points, requests and runs: a minute, not many"
    )
    add_out_option(parser)
    names = ", ".join([*published_profiles(), "local"])
    parser.add_argument(
        "--profile",
        metavar="NAME",
        help=f"{names}, or a profile file; without it this machine's calibration, else batching-gpu",
    )
    parser.add_argument(
        "--real", action="store_true", help="run on the backends of this machine (or --emulate) instead"
    )
    add_progress_option(parser)
    add_engine_options(parser)


def add_out_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", required=True, metavar="DIR", help="folder for the report and every run")


def add_pairs_option(parser: argparse.ArgumentParser, each: str, usual: int | str) -> None:
    """So many pairs of every `each`. A `usual` in words leaves the number to the experiment: None."""
    words = f"pairs of runs of every {each} ({usual})"
    default = usual if isinstance(usual, int) else None
    parser.add_argument("--pairs", type=int, default=default, metavar="N", help=words)


def check_pairs(pairs: int | None) -> None:
    """Raises `ConfigError` for a number of pairs that makes no sense; None leaves it to the experiment."""
    if pairs is not None and not 1 <= pairs <= 1000:
        raise ConfigError(f"--pairs {pairs} makes no sense: use 1 to 1,000.")


def add_progress_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--progress",
        choices=("auto", "json"),
        default="auto",
        help="json: progress and result as JSON lines on stdout, for programs",
    )


def add_noise_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--noise",
        type=float,
        default=2.0,
        metavar="PERCENT",
        help="simulated: how much step times vary, a whole run by half of it (2)",
    )


@dataclass(frozen=True, slots=True)
class Where:
    """A place for runs, with the profile that prices it and what must be said about it."""

    place: Place
    profile: Profile
    usual: dict[str, int]  # slots of every backend where nothing else is said
    most: int | None  # slots that may be asked for; None = as many as the simulator likes
    mark: Mark
    facts: tuple[tuple[str, str], ...]
    settings: dict[str, Any]  # everything of this that a run depends on


@contextmanager
def simulated(args: argparse.Namespace) -> Iterator[Where]:
    """The virtual clock, without noise."""
    profile = chosen_profile(args.profile)
    usual = {b.name: b.slots for b in profile.backends}
    if profile.name == "local":  # its slots are those that the last engine was given, of no meaning here
        usual = dict.fromkeys(usual, USUAL_SLOTS)
    mark = Mark("SIMULATED", profile.title)
    settings = {"profile": profile_json(profile), "simulated": True}
    yield Where(Simulated(profile, 0.0), profile, usual, None, mark, facts_of(args, profile), settings)


def with_noise(at: Where, percent: float) -> Where:
    """The same place with step times that vary, drawn anew for every run. Raises `ConfigError`."""
    if not 0 <= percent <= 50:
        raise ConfigError(f"--noise {percent:g} makes no sense: use 0 to 50 percent.")
    words = f"{percent:g} % a step and {percent / 2:g} % a run, lognormal, drawn anew for every run"
    return replace(
        at,
        place=Simulated(at.profile, percent / 100),
        settings={**at.settings, "noise": percent / 100},
        facts=(("Step-time noise", words), *at.facts),
    )


@contextmanager
def live(args: argparse.Namespace, start_slots: int, cool_s: float | None = None) -> Iterator[Where]:
    """Backends in real time: one engine, calibrated, for all runs. `start_slots` bounds what runs may ask."""
    from engine.cli import config_from
    from engine.commands.common import running_engine

    asked = argparse.Namespace(**{**vars(args), "slots": str(start_slots)})
    config = config_from(asked)
    config = replace(config, options=replace(config.options, slots=str(start_slots)))
    with running_engine(config) as watch:
        watch.until_ready()
        sys.stderr.write("Waiting for calibration, which the best slot count needs; Ctrl+C stops.\n")
        watch.until_calibrated()
        infos = watch.running
        profile = load_profile(args.emulate or "local")
        usual = dict.fromkeys((str(i.name) for i in infos), USUAL_SLOTS)
        about = [[i.name, i.device_name, i.format, i.threads] for i in infos]
        mark = Mark("EMULATED", profile.title) if args.emulate else Mark()
        pause_s = cool_s if cool_s is not None else 0.0 if args.emulate else 1.0
        # The calibration itself is no setting: it may be renewed between a run and its continuation.
        settings = {"model": args.model, "backends": about, "live": True}
        place = Live(watch.engine, watch.drain, pause_s)
        yield Where(place, profile, usual, start_slots, mark, facts_of(args, profile), settings)


def facts_of(args: argparse.Namespace, profile: Profile) -> tuple[tuple[str, str], ...]:
    """Model, backends and where the timings come from."""
    backends = "; ".join(
        f"{b.name}: {b.device_name}, {b.kv_blocks} KV blocks, {b.rates.prefill:,.0f} and "
        f"{b.rates.decode:,.0f} tok/s alone"
        for b in profile.backends
    )
    nothing = args.emulate or getattr(args, "profile", None) or not getattr(args, "real", True)
    model = "Placeholder text: nothing is computed" if nothing else f"{args.model}, format {args.format}"
    facts = [("Model", model), ("Backends", backends), ("Timings", f"{profile.name}: {profile.source}")]
    assumed = "; ".join(f"{b.name}: {', '.join(b.assumed)}" for b in profile.backends if b.assumed)
    return (*facts, ("Assumed", assumed)) if assumed else tuple(facts)


def out_folder(args: argparse.Namespace) -> Path:
    folder = Path(args.out)
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"--out {folder} is a file: name a folder.")
    return folder


@contextmanager
def progress(what: str, total: int, how: str = "auto") -> Iterator[Callable[..., None]]:
    """A bar with the remaining time on stderr; without a terminal, or as JSON, a line now and then."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    if how == "json":
        yield _json_lines(what, total)
        return
    if not sys.stderr.isatty():
        step, start = max(1, total // 4), time.monotonic()

        def line(done: int, *_: object) -> None:
            if done % step == 0 or done == total:
                left_s = (time.monotonic() - start) / max(1, done) * (total - done)
                words = f", about {left_s:,.0f} s left" if done < total else ""
                sys.stderr.write(f"{what}: {done} of {total}{words}\n")

        yield line
        return
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=STDERR, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done, *_: bar.update(task, completed=done)


def _json_lines(what: str, total: int, clock: Callable[[], float] = time.monotonic) -> Callable[..., None]:
    """At most ten lines a second: `left_s` goes by the pace so far, None before the first run is done."""
    start = last = clock()
    _say({"type": "progress", "what": what, "done": 0, "total": total, "left_s": None})

    def tell(done: int, *_: object) -> None:
        nonlocal last
        now = clock()
        if now - last >= 0.1 or done == total:
            last = now
            left_s = round((now - start) / max(1, done) * (total - done), 1)
            _say({"type": "progress", "what": what, "done": done, "total": total, "left_s": left_s})

    return tell


def _say(line: Mapping[str, object]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def stopped() -> None:
    sys.stderr.write("Stopped: what is done is kept, the same command goes on.\n")


def finish(args: argparse.Namespace, folder: Path, report: Report, data: Mapping[str, Any]) -> None:
    """Write the report and say the headline and where it lies."""
    paint = getattr(args, "paint_png", None)
    written = write_report(folder, report, data, paint)
    if args.progress == "json":
        charts = [str((folder / name).resolve()) for name in written if name.endswith(".svg")]
        told = {"headline": report.headline, "mark": report.mark.text, "summary": list(report.summary)}
        path = str((folder / "report.html").resolve())
        _say({"type": "report", **told, "report": path, "charts": charts})
        return
    mark = f" [{report.mark.text}]" if report.mark.strong else ""
    sys.stdout.write(f"{report.headline}{mark}\n")
    for sentence in report.summary:
        sys.stdout.write(f"{sentence}\n")
    sys.stdout.write(f"Report: {folder / 'report.html'}\n")
    if paint is None:
        sys.stderr.write(f"{NO_PNG}\n")
