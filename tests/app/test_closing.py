"""Closing the window on real backends in real processes: nobody is left behind, and what had come is kept."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QObject, QTimer
from test_real_window import LONG_MS, TINY, _alive, _children, decoding, open_window, write  # noqa: F401

from app.chats import ChatStore
from app.main_window import MainWindow
from app.series.conversation import Exchange
from engine.request import RequestState, SamplingParams

WORDS = 3_500  # a token each: with the least budget, 16 tokens a step, the prompt takes hundreds of steps
ONE = ("--backends", "cpu", "--token-budget", "16", "--slots", "2", "--kv-blocks", "600")
STORY, LONG = "Tell me a long story.", " ".join(f"word{i}" for i in range(WORDS))
ENDLESS = SamplingParams(max_new_tokens=3_000, ignore_eos=True)
CUT = "Offramp ended before the reply did."


def reading(window: MainWindow) -> bool:
    """Part of a prompt has been computed, and part has not."""
    loads = [load for view in window.board.backends.values() for load in view.load.requests]
    return any(0 < load.prefill_remaining < load.prompt_tokens for load in loads)


def timers(*roots: QObject) -> list[QTimer]:
    return [t for root in roots for t in root.findChildren(QTimer) if t.isActive()]


def kept(path: Path) -> dict[str, Exchange]:
    """By its prompt, what the next start finds."""
    store = ChatStore(path)
    talks = [store.load(listed.key) for listed in store.listed()]
    store.close()
    return {e.prompt: e for talk in talks if talk is not None for e in talk.exchanges}


@pytest.fixture
def closed(open_window, tmp_path) -> Iterator[Callable[[MainWindow], None]]:  # noqa: F811
    """Closes a window and looks for what it has left behind."""
    threads, processes = set(threading.enumerate()), _children()

    def close(window: MainWindow) -> None:
        begun = _children() - processes
        assert begun
        window.close()
        assert not _alive(begun | (_children() - processes))
        assert timers(window, window.bridge, window.session) == []
        assert [t.name for t in set(threading.enumerate()) - threads if t.is_alive()] == []
        assert not window.bridge.running

    yield close


def test_closing_while_a_prompt_is_read_and_a_reply_written(open_window, closed, qtbot, tmp_path) -> None:  # noqa: F811
    path = tmp_path / "chats.sqlite"
    window = open_window(*TINY, *ONE, chats=path)
    qtbot.waitUntil(lambda: window.board.ready or bool(window.board.failure), timeout=LONG_MS)
    assert window.board.failure is None
    prompt = window.prompt
    prompt.composer.sampling_line.set_sampling(ENDLESS)
    write(window, qtbot, STORY)
    story = prompt.talk.exchanges[0]
    qtbot.waitUntil(lambda: decoding(window) and bool(story.reply), timeout=LONG_MS)
    prompt.new_conversation()
    write(window, qtbot, LONG)
    qtbot.waitUntil(lambda: reading(window), timeout=LONG_MS)
    assert all(row.state is not RequestState.FINISHED for row in window.board.requests.values())
    closed(window)
    found = kept(path)
    assert found[STORY].reply == story.reply != "" and found[LONG].reply == ""
    assert all(e.done and e.problem == CUT for e in found.values()) and len(found) == 2


def test_closing_while_the_model_is_loaded(open_window, closed, qtbot, tmp_path) -> None:  # noqa: F811
    """What was written for later stays where it is written until it is sent: nothing is kept of it."""
    before, path = _children(), tmp_path / "chats.sqlite"
    window = open_window(*TINY, *ONE, chats=path)
    window.prompt.composer.editor.setPlainText(STORY)
    qtbot.waitUntil(lambda: bool(_children() - before), timeout=LONG_MS)
    assert not window.board.ready
    closed(window)
    assert kept(path) == {}
