"""The window on real backends in real processes: one is killed and restarted, and closing leaves nobody."""

import os
import socket
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from app.bridge import Bridge
from app.main_window import MainWindow
from app.preferences import Preferences
from app.series.board import Board
from app.session import Session
from app.settings import Settings
from app.theme import ThemeHolder
from engine.cli import window_parser
from engine.events import BackendState
from engine.request import RequestState

TINY = ("--backends", "cpu,cpu", "--threads", "1", "--load-format", "dummy", "--architecture", "tiny",
        "--policy", "round-robin")  # fmt: skip
LONG_MS = 60_000


def _children() -> set[psutil.Process]:
    """Backends and downloads of ours; the helper of multiprocessing stays for the whole session."""
    found = psutil.Process().children(recursive=True)
    return {p for p in found if "resource_tracker" not in " ".join(_command(p))}


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.fixture
def open_window(qtbot, tmp_path: Path) -> Iterator[Callable[..., MainWindow]]:
    windows: list[MainWindow] = []

    def make(*options: str, chats: Path | None = None) -> MainWindow:
        board = Board()
        bridge = Bridge(board)
        args: Namespace = window_parser().parse_args(list(options))
        session = Session(bridge, args, Preferences(tmp_path / "settings.json"))
        settings = Settings(tmp_path / "s.ini")
        window = MainWindow(board, ThemeHolder("dark"), bridge, settings, session, chats=chats)
        with qtbot.waitSignal(window.painted):
            window.show()
        windows.append(window)
        session.start()
        return window

    yield make
    for window in windows:
        window.close()
        window.deleteLater()


def write(window: MainWindow, qtbot, text: str) -> None:
    composer = window.prompt.composer
    composer.editor.setPlainText(text)
    qtbot.waitUntil(composer.button.isEnabled, timeout=LONG_MS)
    composer.button.click()


def decoding(window: MainWindow) -> bool:
    return any(r.state is RequestState.DECODING for r in window.board.requests.values())


@pytest.mark.skipif(os.name == "nt", reason="signals are POSIX")
def test_a_killed_backend_says_so_and_comes_back_with_its_button(open_window, qtbot) -> None:
    before = _children()
    window = open_window(*TINY)
    qtbot.waitUntil(lambda: window.board.ready, timeout=LONG_MS)
    backends = sorted(_children() - before, key=lambda p: p.create_time())
    backends[0].kill()
    views = window.board.backends
    qtbot.waitUntil(lambda: any(v.state is BackendState.STOPPED for v in views.values()), timeout=LONG_MS)
    dead = next(v.info.name for v in views.values() if v.state is BackendState.STOPPED)
    panel = window.backends.panels[dead]
    qtbot.waitUntil(lambda: panel.restart_button.isVisible())
    assert "signal 9" in panel._message.text() and "carry on" in panel._message.text()
    write(window, qtbot, "Who answers now?")
    qtbot.waitUntil(lambda: bool(window.board.requests), timeout=LONG_MS)
    row = next(reversed(window.board.requests.values()))
    qtbot.waitUntil(lambda: row.state is RequestState.FINISHED, timeout=LONG_MS)
    assert row.backend != dead and row.output_tokens
    panel.restart_button.click()
    qtbot.waitUntil(
        lambda: views[dead].state in (BackendState.READY, BackendState.CALIBRATING), timeout=LONG_MS
    )
    assert not panel.restart_button.isVisible()
    window.close()
    assert not _alive(_children() - before)


def test_closing_during_a_burst_leaves_no_process(open_window, qtbot) -> None:
    before = _children()
    window = open_window(*TINY)
    qtbot.waitUntil(lambda: window.board.ready, timeout=LONG_MS)
    window.bridge.run_burst("seed-warm-48", "round-robin")
    qtbot.waitUntil(lambda: decoding(window), timeout=LONG_MS)
    begun = _children() - before
    assert begun
    window.close()
    assert not _alive(begun | (_children() - before))


def test_closing_during_a_download_that_hangs_ends_it(open_window, qtbot, monkeypatch, tmp_path) -> None:
    """A server that takes the connection and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.getsockname()[1]}")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setenv("OFFRAMP_MODELS_DIR", str(tmp_path / "models"))
        before = _children()
        window = open_window("--model", "hf:owner/repo/model.gguf", "--backends", "cpu")
        accepted: list[socket.socket] = []
        server.setblocking(False)

        def connected() -> bool:
            try:
                accepted.append(server.accept()[0])
            except BlockingIOError:
                return False
            return True

        qtbot.waitUntil(connected, timeout=LONG_MS)
        begun = _children() - before
        assert begun
        window.close()
        assert not _alive(begun | (_children() - before))
        for connection in accepted:
            connection.close()


def _alive(processes: set[psutil.Process]) -> list[str]:
    """Those that still run a moment later."""
    _gone, alive = psutil.wait_procs(list(processes), timeout=2.0)
    return [" ".join(_command(p)) for p in alive if p.is_running()]
