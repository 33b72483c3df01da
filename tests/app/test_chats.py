"""Conversations: kept as they happen, found again, renamed, deleted, changed and exported."""

import json
import sqlite3

import pytest
from fake_engine import GPU
from prompt_helpers import answered
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest

from app.chats import VERSION, ChatStore, open_store
from app.series.conversation import Conversation, Exchange, title_of
from app.widgets.conversation_list import when
from engine.errors import ConfigError
from engine.events import RequestRouted, StepDone
from engine.receipt import Receipt
from engine.request import RequestId
from engine.step_report import Admission, BackendLoad, RequestLoad, StepReport


@pytest.fixture
def store(tmp_path):
    made = ChatStore(tmp_path / "chats.sqlite")
    yield made
    made.close()


def test_the_last_conversation_is_open_after_a_restart(rig, qtbot, tmp_path) -> None:
    rig.window.prompt.use_store(ChatStore(tmp_path / "chats.sqlite"))
    rig.window.prompt.set_system("Be short.")
    answered(rig, qtbot, "First", "One.")
    answered(rig, qtbot, "Second", "Two.")
    again = ChatStore(tmp_path / "chats.sqlite")
    loaded = again.load(again.listed()[0].key)
    assert loaded is not None and loaded.title == "First" and loaded.system == "Be short."
    assert [(e.prompt, e.reply, e.done, e.backend) for e in loaded.exchanges] == [
        ("First", "One.", True, "GPU"),
        ("Second", "Two.", True, "GPU"),
    ]
    again.close()


def test_search_rename_and_delete(store) -> None:
    for prompt in ("A cat", "A dog 100 %"):
        talk, exchange = Conversation(), Exchange(prompt, 1, "about animals")
        store.begin(talk, exchange)
        store.keep(exchange)
    assert [c.title for c in store.listed()] == ["A dog 100 %", "A cat"]
    assert [c.title for c in store.listed("cat")] == ["A cat"]
    assert [c.title for c in store.listed("100 %")] == ["A dog 100 %"]
    assert len(store.listed("animals")) == 2 and store.listed("_nothing_") == []
    key = store.listed("cat")[0].key
    store.rename(key, "  Felines ")
    store.rename(key, "   ")
    assert store.listed()[1].title == "Felines"
    store.delete(key)
    assert len(store.listed()) == 1 and store.load(key) is None
    left = store._db.execute("SELECT COUNT(*) FROM exchanges").fetchone()[0]
    assert left == 1


def test_a_store_of_another_version_is_left_alone(tmp_path) -> None:
    path = tmp_path / "chats.sqlite"
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {VERSION + 1}")
    db.close()
    with pytest.raises(ConfigError, match="another version"):
        ChatStore(path)
    store, problem = open_store(path)
    assert "another version" in problem and store.path is None
    store.close()


def test_garbage_on_disk_is_said_and_the_window_goes_on(tmp_path) -> None:
    path = tmp_path / "chats.sqlite"
    path.write_bytes(b"this is no database" * 100)
    store, problem = open_store(path)
    assert "not kept" in problem
    store.close()


def test_titles_are_short() -> None:
    assert title_of("\n  Hello there \nmore") == "Hello there"
    assert len(title_of("x" * 200)) == 60 and title_of(" ") == "New conversation"
    assert when(0.0, 0.0) == when(60.0, 60.0) or ":" in when(0.0, 0.0)


def test_regenerate_replaces_the_reply(rig, qtbot) -> None:
    answered(rig, qtbot, "First", "One.")
    answered(rig, qtbot, "Second", "Two.")
    rig.window.actions_by_name["regenerate"].trigger()
    rig.settle()
    assert [m["content"] for m in rig.engine.calls[-1][1]] == ["First", "One.", "Second"]
    text = rig.window.prompt.transcript.toPlainText()
    assert "Two." not in text and text.count("Second") == 1


def test_editing_an_earlier_prompt_drops_what_followed(rig, qtbot) -> None:
    prompt = rig.window.prompt
    answered(rig, qtbot, "First", "One.")
    answered(rig, qtbot, "Second", "Two.")
    prompt.transcript.action_requested.emit("edit", 0)
    assert prompt.composer.editor.toPlainText() == "First"
    assert "Editing prompt 1" in prompt.composer.meter.hint
    prompt.composer.editor.setPlainText("Changed")
    prompt.composer.button.click()
    rig.settle()
    assert [m["content"] for m in rig.engine.calls[-1][1]] == ["Changed"]
    assert "Second" not in prompt.transcript.toPlainText()


def test_escape_leaves_an_edit_as_it_was(rig, qtbot) -> None:
    prompt = rig.window.prompt
    answered(rig, qtbot, "First", "One.")
    rig.window.actions_by_name["edit_last"].trigger()
    QTest.keyClick(prompt.composer.editor, Qt.Key.Key_Escape)
    assert prompt.composer.editor.toPlainText() == "" and "First" in prompt.transcript.toPlainText()
    answered(rig, qtbot, "Next", "Two.")
    assert len(prompt.talk.exchanges) == 2


def test_copy_and_export(rig, qtbot) -> None:
    answered(rig, qtbot, "First", "It is **bold**.")
    rig.window.actions_by_name["copy_reply"].trigger()
    assert QGuiApplication.clipboard().text() == "It is **bold**."
    talk = rig.window.prompt.talk
    assert "## Prompt\n\nFirst" in talk.as_markdown() and "GPU, 0.05 s TTFT" in talk.as_markdown()
    data = json.loads(talk.as_json())
    assert data["format"] == "offramp-conversation" and data["exchanges"][0]["reply"] == "It is **bold**."


def test_the_list_opens_renames_and_deletes(rig, qtbot, tmp_path) -> None:
    prompt = rig.window.prompt
    prompt.use_store(ChatStore(tmp_path / "chats.sqlite"))
    answered(rig, qtbot, "First", "One.")
    prompt.new_button.click()
    answered(rig, qtbot, "Other", "Two.")
    popover = prompt.show_conversations()
    assert [popover.list.item(i).text() for i in range(2)] == ["Other", "First"]
    popover.search.setText("One.")
    assert popover.list.count() == 1
    popover.list.setCurrentRow(0)
    popover.list.item(0).setText("Renamed")
    QTest.keyClick(popover.list, Qt.Key.Key_Return)
    assert "One." in prompt.transcript.toPlainText() and prompt.talk.exchanges[0].reply == "One."
    popover = prompt.show_conversations()
    assert "Renamed" in [popover.list.item(i).text() for i in range(2)]
    popover.delete_button.click()
    assert popover.list.count() == 2 and "Really" in popover.delete_button.text()
    popover.delete_button.click()
    assert popover.list.count() == 1 and prompt.transcript.toPlainText() == ""
    popover.close()


def test_prefill_progress_and_the_context_meter(rig, qtbot) -> None:
    prompt = rig.window.prompt
    rig.write("Read this")
    load = RequestLoad(RequestId(1), 0, 516, 0, 204, 0, 128)
    report = StepReport(
        GPU, 0, 990.0, 990.1, prefill_tokens=312, load=BackendLoad((load,)),
        admitted=(Admission(RequestId(1), 0, 0, 990.0),),
    )  # fmt: skip
    receipt = Receipt(RequestId(1), "isolated-rates", "s", GPU, "It is idle.", 990.0, ())
    rig.engine.publish(RequestRouted(receipt), StepDone(report))
    rig.settle()
    qtbot.waitUntil(lambda: "reading 312 of 516 tokens" in prompt.transcript.toPlainText())
    rig.engine.answer(RequestId(1), "Done")
    rig.settle()
    qtbot.waitUntil(lambda: prompt.composer.button.text() == "Send")
    rig.settle()
    assert (prompt.composer.meter.used, prompt.composer.meter.most) == (25, 4096)


def test_the_way_to_the_latest_shows_while_reading_above(rig, qtbot) -> None:
    transcript = rig.window.prompt.transcript
    answered(rig, qtbot, "A long one", "word\n\n" * 100)
    assert not transcript.latest_button.isVisible()
    transcript.verticalScrollBar().setValue(10)
    assert transcript.latest_button.isVisible()
    transcript.latest_button.click()
    assert not transcript.latest_button.isVisible()


def test_sampling_presets_set_the_values(rig) -> None:
    popover = rig.window.prompt.composer.sampling_line.open()
    precise = next(b for b in popover.findChildren(object) if getattr(b, "text", str)() == "Precise")
    precise.click()
    popover.close()
    assert rig.window.prompt.composer.sampling_line.sampling.temperature == 0.0
