"""Starting: dispatch, no display, the bridge, pictures."""

import subprocess
import sys
import threading
import time
from argparse import Namespace
from pathlib import Path

import pytest
from fake_engine import FakeEngine, golden_scene
from PySide6.QtGui import QImage

from app.bridge import Bridge
from app.screenshot import Photographer, parse_size
from app.series.board import Board
from engine.errors import ConfigError
from engine.events import EngineFailed, Notice

REPOSITORY = Path(__file__).resolve().parents[2]


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess:
    environment = {"PATH": "/usr/bin:/bin", "HOME": variables.pop("HOME", "/nonexistent"), **variables}
    command = [sys.executable, "-m", "app", *arguments]
    return subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=120
    )


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems always have a display")
def test_without_a_display_one_sentence_says_what_works() -> None:
    done = run()
    assert done.returncode == 2
    assert "--screenshot" in done.stderr and "python -m engine" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_command_never_imports_qt() -> None:
    code = (
        "import sys; from app.__main__ import main\n"
        "try: main(['--version'])\nexcept SystemExit: pass\n"
        "assert not any(m.startswith('PySide6') for m in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=True, capture_output=True)


def test_the_window_never_imports_torch() -> None:
    code = (
        "import sys, app.application, app.main_window\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=True, capture_output=True)


def test_an_emulated_burst_is_rendered_without_a_display(tmp_path) -> None:
    target = tmp_path / "burst.png"
    done = run(
        "--screenshot", str(target), "--preset", "seed-warm-8", "--emulate", "apple-m2-published",
        "--after", "1.0", "--size", "1280x720", "--theme", "light", HOME=str(tmp_path),
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    picture = QImage(str(target))
    assert (picture.width(), picture.height()) == (1280, 720)
    assert picture.pixelColor(2, 2).lightness() > 200


@pytest.mark.parametrize(
    ("text", "size"),
    [("1920x1080", (1920, 1080)), ("1280X720", (1280, 720)), ("12x", None), ("axb", None), ("1x1", None)],
)
def test_sizes_are_read(text, size) -> None:
    assert parse_size(text) == size


def picture_of(rig, qtbot, tmp_path, **options) -> int:
    path = tmp_path / "out.png"
    settings = {"burst": False, "after_s": 0.0, "after_burst": False, **options}
    photographer = Photographer(rig.window, path, clock=time.monotonic, **settings)
    with qtbot.waitSignal(photographer.done, timeout=5_000) as done:
        pass
    return done.args[0]


def test_a_picture_is_saved(rig, qtbot, tmp_path) -> None:
    rig.engine.publish(*golden_scene())
    assert picture_of(rig, qtbot, tmp_path) == 0
    assert QImage(str(tmp_path / "out.png")).width() == 1920


def test_a_picture_of_a_failure_is_an_error(rig, qtbot, tmp_path, capfd) -> None:
    rig.engine.publish(EngineFailed("No model: fetch one."))
    rig.settle()
    assert picture_of(rig, qtbot, tmp_path) == 1
    assert capfd.readouterr().err == "offramp: No model: fetch one.\n"


def test_a_picture_of_a_refused_burst_is_an_error(rig, qtbot, tmp_path) -> None:
    rig.engine.publish(Notice("error", "There is no such preset."))
    rig.settle()
    assert picture_of(rig, qtbot, tmp_path, burst=True) == 1


def test_a_bridge_turns_a_bad_configuration_into_a_failure(qtbot) -> None:
    def refuse() -> FakeEngine:
        raise ConfigError("--context 3 is too short: use 32 tokens or more.")

    bridge = Bridge(Board())
    with qtbot.waitSignal(bridge.changed):
        bridge.start(refuse)
    assert bridge.board.failure is not None and "too short" in bridge.board.failure
    bridge.close()


def test_closing_waits_for_a_slow_engine_only_so_long(qtbot, monkeypatch) -> None:
    monkeypatch.setattr("app.bridge.CLOSE_S", 0.2)
    released = threading.Event()

    class Slow(FakeEngine):
        def close(self) -> None:
            released.wait(60)

    bridge = Bridge(Board())
    bridge.start(Slow)
    began = time.monotonic()
    bridge.close()
    assert time.monotonic() - began < 10.0, "it waited for the engine, not for its own patience"
    released.set()


def test_options_of_the_window_are_known() -> None:
    from engine.cli import window_parser

    args = window_parser().parse_args(["--size", "1280x720", "--theme", "light"])
    assert isinstance(args, Namespace) and args.theme == "light"
