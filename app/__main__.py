"""`offramp`: a command goes to the engine's command line before Qt is imported; else the window opens."""

import multiprocessing
import os
import sys
from argparse import Namespace
from collections.abc import Sequence

NO_DISPLAY = (
    "offramp: there is no display to open a window on: use --screenshot FILE to render the window into a "
    "file, or `python -m engine` for the command line.\n"
)
COMMAND_LINE_OPTIONS = ("--version", "--help-window", "-h", "--help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command or the window. Returns the exit code."""
    multiprocessing.freeze_support()
    from app.chart_png import paint_png
    from engine import cli

    argv = list(sys.argv[1:] if argv is None else argv)
    if argv[:2] == ["bench", "window"]:
        from app.window_bench import main as bench_window

        return bench_window(argv[2:])
    if argv and (argv[0] in cli.SUBCOMMANDS or argv[0] in COMMAND_LINE_OPTIONS):
        return cli.main(argv, paint_png)
    args = cli.window_parser().parse_args(argv)
    if not _has_display():
        if not args.screenshot:
            sys.stderr.write(NO_DISPLAY)
            return 2
        os.environ["QT_QPA_PLATFORM"] = "offscreen"
    return _open_window(args, argv)


def _has_display() -> bool:
    if not sys.platform.startswith("linux"):
        return True
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM"))


def _open_window(args: Namespace, argv: Sequence[str]) -> int:
    from app.application import run

    return run(args, argv)


if __name__ == "__main__":
    sys.exit(main())
