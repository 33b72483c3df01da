"""Windows for tests: the stand-in engine, settings in a scratch file, offscreen."""

import os

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import threading
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fake_engine import NOW_S, FakeEngine, setup_events
from pytestqt.qtbot import QtBot

from app.bridge import Bridge
from app.main_window import MainWindow
from app.preferences import Preferences
from app.series.board import Board
from app.session import Session
from app.settings import Settings
from app.theme import ThemeHolder
from engine.cli import window_parser

SCENE_NOW_S = 1_000.0 + NOW_S


class Rig:
    """A window with the stand-in engine behind it."""

    def __init__(self, qtbot: QtBot, folder: Path, theme: str = "dark") -> None:
        self.qtbot, self.board, self.engine = qtbot, Board(), FakeEngine()
        self.themes, self.bridge = ThemeHolder(theme), Bridge(self.board)
        self.settings = Settings(folder / "settings.ini")
        self.engines: list[FakeEngine] = []  # those that a reload made
        args = window_parser().parse_args([])
        self.session = Session(
            self.bridge, args, Preferences(folder / "settings.json"), make_engine=self.another_engine
        )
        self.window = MainWindow(
            self.board, self.themes, self.bridge, self.settings, self.session, clock=lambda: SCENE_NOW_S
        )
        self.window.resize(1920, 1080)
        with qtbot.waitSignal(self.window.painted):
            self.window.show()

    def another_engine(self, args: Namespace) -> FakeEngine:
        self.engine = FakeEngine(args)
        self.engines.append(self.engine)
        return self.engine

    def start(self) -> None:
        self.bridge.start(lambda: self.engine)
        self.window.wishes.set_choices(
            ["seed-warm-8", "cold-12"], self.engine.policies(), "seed-warm-8", "isolated-rates"
        )

    def ready(self) -> "Rig":
        self.start()
        self.engine.publish(*setup_events())
        self.settle()
        return self

    def settle(self) -> None:
        """Everything published so far is on the screen."""
        self.bridge.drain()
        self.window.tick()
        self.qtbot.wait(5)

    def write(self, text: str) -> None:
        self.window.prompt.composer.editor.setPlainText(text)
        self.window.prompt.composer.button.click()
        self.settle()


@pytest.fixture
def make_rig(qtbot: QtBot, tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    """Rigs that are closed at the end; a thread that outlives its window fails the test."""
    before, rigs = set(threading.enumerate()), []

    def make(**options: str) -> Rig:
        rigs.append(Rig(qtbot, tmp_path, **options))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.window.close()
        rig.window.deleteLater()
    left = [t.name for t in threading.enumerate() if t not in before and t.is_alive()]
    assert not left, f"threads left behind: {left}"


@pytest.fixture
def rig(make_rig: Callable[..., Rig]) -> Rig:
    return make_rig().ready()
