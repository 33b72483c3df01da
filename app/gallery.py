"""Pictures of every state of the window: `python -m app.gallery FOLDER [--sizes 1280x720,1920x1080]`.

One emulated run is enough: the window stands still at a moment and is then drawn in both schemes and every
size. What cannot be waited for (a dead backend, a download) is told to the board as the engine would.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QEventLoop, QTimer
from PySide6.QtWidgets import QApplication, QWidget

from app.bridge import Bridge
from app.dialogs import show_about, show_log, show_shortcuts
from app.main_window import MainWindow
from app.preferences import Preferences
from app.screenshot import parse_size
from app.series.board import Board
from app.session import EMULATED, Session
from app.settings import Settings
from app.theme import ThemeHolder, font
from engine.cli import window_parser
from engine.events import BackendState, BackendStatus, EngineFailed, Event, SetupStep
from engine.paths import models_dir
from engine.request import SamplingParams

SIZES = "1280x720,1920x1080,3840x2160"
THEMES = ("dark", "light")
MOMENT_S, LATER_S, PATIENCE_S = 2.8, 6.0, 60.0
BEFORE_S = 1.2
POLICY = "isolated-rates"
PROMPTS = (
    "What does a prefix cache do? Two sentences.",
    "Give me an everyday comparison.",
    "When does it not help?",
)
STOPPED = "Its process ended with code 134 at 14:02:11. Requests 1 to 4 ended with error, 5 to 7 moved."
FAILED = "The model file is truncated: choose the model again to download it anew."


def wait(ms: int) -> None:
    """Let the event loop run."""
    loop = QEventLoop()
    QTimer.singleShot(ms, loop.quit)
    loop.exec()


def wait_until(done: Callable[[], bool]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not done() and time.monotonic() < end_s:
        wait(10)


class Gallery:
    """Makes windows, waits for moments, saves pictures. `saved` lists the files."""

    def __init__(self, folder: Path, sizes: Sequence[tuple[int, int]], scratch: Path) -> None:
        self.folder, self.sizes, self._scratch = folder, sizes, scratch
        self.saved: list[Path] = []
        self._windows = 0

    def window(self, *options: str) -> MainWindow:
        self._windows += 1
        folder = self._scratch / str(self._windows)
        folder.mkdir()
        board = Board()
        bridge = Bridge(board)
        args = window_parser().parse_args(list(options))
        session = Session(bridge, args, Preferences(folder / "settings.json"))
        window = MainWindow(board, ThemeHolder("dark"), bridge, Settings(folder / "s.ini"), session)
        window.setMinimumSize(320, 240)
        window.resize(*self.sizes[0])
        window.show()
        wait(300)
        return window

    def tell(self, window: MainWindow, *events: Event) -> None:
        window.bridge.changed.emit(window.board.apply(list(events)))
        window.tick()

    def take(self, window: MainWindow, name: str, part: Callable[[], QWidget] | None = None) -> None:
        """`name` in both schemes and every size; `part` cuts one panel out, at the middle size only."""
        sizes = self.sizes if part is None else self.sizes[len(self.sizes) // 2 :][:1]
        for theme in THEMES:
            window.themes.set_mode(theme)
            for width, height in sizes:
                window.resize(width, height)
                window.tick()
                wait(60)
                window.tick()
                # A toast is news, and no part of the state that is pictured.
                window.toast.hide()
                widget = window if part is None else part()
                path = self.folder / f"{name}-{theme}-{width}x{height}.png"
                if not widget.grab().save(str(path), "PNG"):
                    raise OSError(f"{path} could not be written")
                self.saved.append(path)

    def all(self) -> None:
        self.before_the_engine()
        self.emulated()

    def before_the_engine(self) -> None:
        window = self.window()
        self.take(window, "empty")
        self.tell(
            window,
            SetupStep("download", "Downloading SmolLM2 135M Instruct", "", "running", 61e6, 93e6),
            SetupStep("verify", "Unpacking and checking the model", "", "waiting"),
        )
        self.take(window, "getting-ready")
        self.tell(window, EngineFailed(FAILED))
        self.take(window, "failed")
        window.begin_tour()
        self.take(window, "tour")
        window.close()

    def emulated(self) -> None:
        window = self.window("--emulate", EMULATED, "--policy", POLICY)
        from engine.workloads.presets import PRESETS

        window.session.start()
        window.wishes.set_choices(list(PRESETS), window.bridge.policies(), "seed-warm-8", POLICY)
        wait_until(lambda: window.board.ready)
        self.take(window, "emulated")
        self._converse(window)
        self._burst(window, "seed-warm-8", MOMENT_S)
        self.take(window, "busy")
        panels: dict[str, Callable[[], QWidget]] = {
            "prompt": lambda: window.prompt,
            "backends": lambda: window.backends,
            "routing": lambda: window.routing,
            "ttft": lambda: window.ttft,
            "throughput": lambda: window.throughput,
            "requests": lambda: window.requests,
        }
        for name, part in panels.items():
            self.take(window, f"panel-{name}", part)
        self._moment_before(window)
        self._receipt(window)
        window.toggle_presenter()
        self.take(window, "presenter")
        window.leave_presenter()
        views = window.board.ranked()[::-1]
        loads = [view.load for view in views]
        for view, name in zip(views, ("error", "all-stopped"), strict=True):
            self.tell(window, BackendStatus(view.info, BackendState.STOPPED, STOPPED))
            self.take(window, name)
        for view, load in zip(views, loads, strict=True):
            self.tell(window, BackendStatus(view.info, BackendState.READY))
            view.load = load
        window.unfreeze()
        wait_until(lambda: window.card.isVisible())
        self._result(window)
        self._dialogs(window)
        self._burst(window, "seed-warm-48", LATER_S)
        self.take(window, "busy-48")
        window.unfreeze()
        window.close()

    def _moment_before(self, window: MainWindow) -> None:
        """The same burst, looked back at."""
        run = window.board.run
        if run is not None:
            window.time_cursor.go_to(run.started.start_s + BEFORE_S)
            wait(60)
            self.take(window, "looking-back")
            window.time_cursor.go_live()

    def _receipt(self, window: MainWindow) -> None:
        """Of the last decision, then with what might have been."""
        window.show_last_receipt()
        self.take(window, "receipt")
        window.sheet.ask_what_if()
        hindsight, run = window.looking_back.hindsight, window.board.run
        wait_until(lambda: run is None or not hindsight.what_if(run.started.run_id).running)
        bar = window.sheet.scroll.verticalScrollBar()
        bar.rangeChanged.connect(lambda _least, most: bar.setValue(most))
        self.take(window, "what-if")
        bar.rangeChanged.disconnect()
        window.sheet.close_sheet()

    def _result(self, window: MainWindow) -> None:
        """The card with its regret, the same run as a table, and the list of all runs."""
        hindsight, run = window.looking_back.hindsight, window.board.run

        def judged() -> bool:
            state = hindsight.regret(run.started.run_id) if run is not None else None
            return state is None or state.failed or state.regret is not None

        wait_until(judged)
        self.take(window, "result")
        window.card.requests_button.setChecked(True)
        self.take(window, "result-requests")
        window.looking_back.ask_why()
        self.take(window, "result-receipt")
        window.card.close_card()
        self._shots(window, "history", lambda: window.looking_back.show_history().window())

    def _converse(self, window: MainWindow) -> None:
        """Two conversations, one with two replies, and what the prompt panel opens."""
        prompt = window.prompt
        prompt.composer.sampling_line.set_sampling(SamplingParams(max_new_tokens=24, seed=7))
        for text in PROMPTS:
            if text == PROMPTS[-1]:
                prompt.new_conversation()
            prompt.send(text)
            wait_until(lambda: prompt.talks.live is None)
        prompt.open_conversation(1)
        for name, show in (
            ("conversations", prompt.show_conversations),
            ("sampling", prompt.composer.sampling_line.open),
            ("system-prompt", prompt.edit_system),
        ):
            self._shots(window, name, show)

    def _burst(self, window: MainWindow, preset: str, moment_s: float) -> None:
        before = window.board.run
        window.wishes.run_when_ready(preset, POLICY)
        wait_until(lambda: window.board.run is not before)
        start_s = window.board.run.started.start_s if window.board.run else time.monotonic()
        wait_until(lambda: time.monotonic() - start_s >= moment_s)
        window.bridge.drain()
        window.freeze(start_s + moment_s)

    def _dialogs(self, window: MainWindow) -> None:
        for name, show in (
            ("settings", window.wishes.show_settings),
            ("shortcuts", lambda: show_shortcuts(window)),
            ("about", lambda: show_about(window)),
            ("log", lambda: show_log(window, window.themes)),
            ("models", window.wishes.show_models),
        ):
            self._shots(window, name, show)

    def _shots(self, window: MainWindow, name: str, show: Callable[[], QWidget]) -> None:
        """A window of its own that `show` opens, in both schemes."""
        for theme in THEMES:
            window.set_theme(theme)
            opened = show()
            wait(60)
            # The models sheet reads headers before it has rows.
            wait_until(lambda opened=opened: bool(getattr(opened, "rows", True)))
            wait(60)
            path = self.folder / f"{name}-{theme}.png"
            opened.grab().save(str(path), "PNG")
            self.saved.append(path)
            opened.close()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", default=SIZES)
    options = parser.parse_args(argv)
    sizes = [parse_size(text) for text in options.sizes.split(",")]
    known = [size for size in sizes if size is not None]
    if len(known) != len(sizes):
        sys.stderr.write(f"--sizes {options.sizes} is unclear: write it as {SIZES}.\n")
        return 2
    options.folder.mkdir(parents=True, exist_ok=True)
    app = QApplication.instance() or QApplication(["offramp"])
    app.setFont(font("label"))
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["OFFRAMP_MODELS_DIR"] = str(models_dir())
        os.environ["OFFRAMP_DATA_DIR"] = scratch  # nobody's own runs are pictured, and none are added
        gallery = Gallery(options.folder, known, Path(scratch))
        gallery.all()
    for path in gallery.saved:
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
