"""What `compare`, `sweep` and `map` share: a folder for the results, progress, and the last words."""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engine.commands.common import STDERR
from engine.errors import ConfigError
from engine.experiments.report import NO_PNG, Report, write_report
from engine.profiling.profile import Profile, load_profile, local_profile_path, published_profiles


def add_output_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", required=True, metavar="DIR", help="folder for the report and every run")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of everything drawn (0)")


def add_profile_option(parser: argparse.ArgumentParser) -> None:
    names = ", ".join([*published_profiles(), "local"])
    parser.add_argument(
        "--profile",
        metavar="NAME",
        help=f"{names}, or a profile file; this machine's calibration where there is one, else batching-gpu",
    )


def chosen_profile(name: str | None) -> Profile:
    """The profile asked for, else this machine's, else an assumed one."""
    if name is None:
        name = "local" if local_profile_path().is_file() else "batching-gpu"
    return load_profile(name)


def out_folder(args: argparse.Namespace) -> Path:
    folder = Path(args.out)
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"--out {folder} is a file: name a folder.")
    return folder


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[..., None]]:
    """A bar with the remaining time on stderr; without a terminal a line now and then."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    if not sys.stderr.isatty():
        step = max(1, total // 4)

        def line(done: int, *_: object) -> None:
            if done % step == 0 or done == total:
                sys.stderr.write(f"{what}: {done} of {total}\n")

        yield line
        return
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=STDERR, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done, *_: bar.update(task, completed=done)


def finish(args: argparse.Namespace, folder: Path, report: Report, data: Mapping[str, Any]) -> None:
    """Write the report and say the headline and where it lies."""
    paint = getattr(args, "paint_png", None)
    write_report(folder, report, data, paint)
    mark = f" [{report.mark.text}]" if report.mark.strong else ""
    sys.stdout.write(f"{report.headline}{mark}\n")
    for sentence in report.summary:
        sys.stdout.write(f"{sentence}\n")
    sys.stdout.write(f"Report: {folder / 'report.html'}\n")
    if paint is None:
        sys.stderr.write(f"{NO_PNG}\n")
