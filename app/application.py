"""From parsed options to a running window: paint first, then import and start the engine."""

import gc
import os
import signal
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from PySide6.QtWidgets import QApplication

from app.bridge import Bridge
from app.logs import open_log
from app.main_window import MainWindow
from app.preferences import Preferences, effective, given_on_command_line
from app.screenshot import Photographer, parse_size
from app.series.board import Board
from app.session import Session
from app.settings import Settings
from app.text_size import apply_text_size
from app.theme import ThemeHolder, font
from engine import __version__
from engine.events import Notice
from engine.paths import data_dir

SWITCH_INTERVAL_S = 0.001  # the default of 5 ms lets a busy thread keep the window waiting for 13 ms


def run(args: Namespace, argv: Sequence[str] = ()) -> int:
    """Open the window of `args`, parsed from `argv`, and stay until it closes. Returns the exit code."""
    size = parse_size(args.size)
    if size is None:
        sys.stderr.write(f"offramp: --size {args.size} is not a size: write it as 1920x1080.\n")
        return 2
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    if not args.screenshot:
        open_log()
        # Before there is an application, and before any other object of Qt: it ends those that there are.
        apply_text_size(Settings().text_size())
    with tempfile.TemporaryDirectory() as scratch:
        # A picture must not depend on, nor change, what the window remembers.
        settings = Settings(Path(scratch) / "settings.ini" if args.screenshot else None)
        preferences = Preferences(Path(scratch) / "settings.json" if args.screenshot else None)
        given = given_on_command_line(argv)
        args = effective(args, given, preferences.values, {} if args.screenshot else os.environ)
        app = QApplication.instance() or QApplication(sys.argv[:1])
        app.setApplicationName("Offramp")
        app.setApplicationVersion(__version__)
        app.setFont(font("label"))
        return _run(app, args, size, settings, preferences)


def _run(
    app: QApplication, args: Namespace, size: tuple[int, int], settings: Settings, preferences: Preferences
) -> int:
    themes = ThemeHolder(args.theme or settings.theme())
    board = Board()
    bridge = Bridge(board)
    session = Session(bridge, args, preferences)
    chats = None if args.screenshot else data_dir() / "chats.sqlite"
    window = MainWindow(board, themes, bridge, settings, session, chats=chats)
    window.painted.connect(lambda: start_engine(window, args))
    if args.screenshot:
        window.setMinimumSize(320, 240)
        window.resize(*size)
        photographer = Photographer(
            window,
            Path(args.screenshot),
            burst=bool(args.preset),
            after_s=args.after,
            after_burst=args.after_burst,
            clock=time.monotonic,
        )
        photographer.done.connect(lambda code: _leave(app, window, code))
    signal.signal(signal.SIGINT, lambda *_: window.close())
    window.show()
    return app.exec()


def _leave(app: QApplication, window: MainWindow, code: int) -> None:
    window.close()
    app.exit(code)


def start_engine(window: MainWindow, args: Namespace) -> None:
    """After the first paint. What cannot be used is said in the window."""

    window.session.start()
    # What is alive now stays: full collections need not walk it again and hold the window up.
    gc.freeze()
    presets = _preset_names()
    saved = window.settings.choice("preset")
    preset = args.preset or (saved if saved in presets else presets[0])
    policies, policy = window.bridge.policies(), args.policy
    remembered = window.settings.choice("policy")
    if remembered in policies and policy == _default_policy():
        policy = remembered
        window.bridge.set_policy(policy)
    window.wishes.set_choices(presets, policies, preset, policy)
    if args.preset:
        window.wishes.run_when_ready(args.preset, policy)
    if not args.screenshot and not args.preset and not window.settings.tour_seen():
        window.begin_tour()
    if window.session.preferences.problem:
        window.toast.show_notice(Notice("warning", window.session.preferences.problem))


def _default_policy() -> str:
    from engine.cli import window_parser

    return window_parser().get_default("policy")


def _preset_names() -> list[str]:
    from engine.workloads.presets import PRESETS

    return list(PRESETS)
