"""A window that is killed at any moment: what was on the screen a moment ago is there again afterwards."""

import subprocess
import sys
from pathlib import Path

import pytest
from prompt_helpers import lines

from app.chats import ChatStore

HERE = Path(__file__).resolve().parent
WINDOW = """
import sys
sys.path[:0] = [{here!r}, {root!r}]
from pathlib import Path
from PySide6.QtWidgets import QApplication
from PySide6.QtTest import QTest
from app.bridge import Bridge
from app.chats import ChatStore
from app.main_window import MainWindow
from app.preferences import Preferences
from app.series.board import Board
from app.session import Session
from app.settings import Settings
from app.theme import ThemeHolder
from engine.cli import window_parser
from fake_engine import CPU, GPU, FakeEngine, setup_events
app, folder = QApplication([]), Path({folder!r})
board, engine = Board(), FakeEngine()
bridge = Bridge(board)
session = Session(bridge, window_parser().parse_args([]), Preferences(folder / "settings.json"))
window = MainWindow(board, ThemeHolder("dark"), bridge, Settings(folder / "s.ini"), session,
                    chats=folder / "chats.sqlite")
prompt = window.prompt
window.show()
def wait(what):
    for _ in range(3_000):
        if what():
            return
        QTest.qWait(10)
    sys.exit("it never came")
wait(lambda: prompt.talks.store.path is not None)
bridge.start(lambda: engine)
engine.publish(*setup_events())
wait(lambda: board.ready and prompt.composer.button.isEnabled())
def ask(number, text, reply, backend):
    prompt.composer.editor.setPlainText(text)
    prompt.composer.button.click()
    engine.answer(number, reply, backend, done=False)
def kept():
    store = ChatStore(folder / "chats.sqlite")
    replies = [e.reply for c in store.listed() for e in store.load(c.key).exchanges]
    store.close()
    return replies
ask(1, "Tell me a long story.", "Once upon a time", GPU)
prompt.new_conversation()
ask(2, "And a short one.", "<think> Hm", CPU)
wait(lambda: set(kept()) == {{"Once upon a time", "<think> Hm"}})
print("kept", flush=True)
QTest.qWait(60_000)
"""
WRITER = """
import sys
sys.path[:0] = [{root!r}]
from pathlib import Path
from app.chats import ChatStore
from app.series.conversation import Conversation, Exchange
store, talk = ChatStore(Path({folder!r}) / "chats.sqlite"), Conversation()
for number in range(100_000):
    gone = talk.exchanges[-1:] if number % 5 == 4 else []
    exchange = Exchange(f"Prompt {{number}}", number + 1)
    store.begin(talk, exchange, gone)
    talk.exchanges[len(talk.exchanges) - len(gone):] = [exchange]
    for word in range(4):
        exchange.reply += f" {{number}}.{{word}}"
        store.keep(exchange)
        print(number, word, len(talk.exchanges), flush=True)
"""


def killed(script: str, lines_before: int) -> list[str]:
    """Run it, kill it with SIGKILL after so many lines of output; returns them."""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = [process.stdout.readline().strip() for _ in range(lines_before)]
        process.kill()
        said += [line.strip() for line in process.stdout if line.endswith("\n")]
    return said


def test_two_partial_replies_are_there_after_a_kill(make_rig, tmp_path) -> None:
    script = WINDOW.format(here=str(HERE), root=str(HERE.parents[1]), folder=str(tmp_path))
    assert killed(script, 1) == ["kept"]
    rig = make_rig().ready()
    prompt = rig.window.prompt
    prompt.use_store(ChatStore(tmp_path / "chats.sqlite"))
    text = lines(rig)  # the last one is open
    assert text[0] == "And a short one." and any("Thought, cut short" in line for line in text)
    assert "Offramp ended before the reply did." in text and not any("why?" in line for line in text)
    other = next(c.key for c in prompt.talks.listed() if c.title.startswith("Tell me"))
    prompt.open_conversation(other)
    text = lines(rig)
    assert text[:2] == ["Tell me a long story.", "Once upon a time"]
    assert "Offramp ended before the reply did." in text
    rig.write("Go on.")
    asked = [c for c in rig.engine.calls if c[0] == "submit_chat"][-1][1]
    assert [m["content"] for m in asked] == ["Tell me a long story.", "Once upon a time", "Go on."]


@pytest.mark.parametrize("moment", [1, 2, 7, 19, 20, 61])
def test_what_was_written_survives_a_kill_at_any_moment(tmp_path, moment) -> None:
    said = killed(WRITER.format(root=str(HERE.parents[1]), folder=str(tmp_path)), moment)
    number, word, count = (int(part) for part in said[-1].split())
    store = ChatStore(tmp_path / "chats.sqlite")
    assert store._db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    exchanges = store.load(store.listed()[0].key).exchanges
    store.close()
    # The writer may have been a step further than it had said.
    found = next(e for e in exchanges if e.prompt == f"Prompt {number}") if word < 3 else exchanges[-1]
    told = "".join(f" {number}.{w}" for w in range(word + 1))
    later = exchanges[-1].prompt == f"Prompt {number + 1}"
    assert found.reply.startswith(told) or later
    assert len(exchanges) in {count, count + 1}
