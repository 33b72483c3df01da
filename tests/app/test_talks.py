"""Several conversations: they stream side by side, and nothing that was said gets lost."""

import json
import sqlite3

import pytest
from fake_engine import CPU, GPU
from prompt_helpers import answered, begun, lines, more
from PySide6.QtTest import QTest

from app.chats import SCHEMA, VERSION, ChatStore
from app.series.conversation import Conversation, Exchange, copy_title
from app.widgets.conversation_list import RUNS
from app.widgets.prompt_title import file_name
from engine.errors import BackendError, ConfigError
from engine.events import EngineFailed, RequestDone, TextOut
from engine.request import FinishReason, RequestId, RequestTimings


@pytest.fixture
def kept(rig, tmp_path):
    """The window with a store on disk."""
    rig.window.prompt.use_store(ChatStore(tmp_path / "chats.sqlite"))
    return rig


def ended(rig, number: int, reason: FinishReason = FinishReason.STOP) -> None:
    timings = RequestTimings(990.0, 990.0, 990.1, 991.0)
    rig.engine.publish(RequestDone(RequestId(number), GPU, reason, 24, 0, 3, timings))
    rig.settle()
    rig.window.prompt.talks.pump()


def test_two_conversations_stream_side_by_side(kept) -> None:
    prompt = kept.window.prompt
    first = begun(kept, "First", "One", " two", backend=GPU)
    key = prompt.talk.key
    prompt.new_button.click()
    assert prompt.composer.button.text() == "Send" and prompt.transcript.toPlainText() == ""
    assert prompt.title._panel.phrase_label.full_text() == "1 more runs"
    second = begun(kept, "Second", "Eins", backend=CPU)
    assert [c[0] for c in kept.engine.calls].count("cancel") == 0
    more(kept, first, " three")  # not shown, and it grows
    more(kept, second, " zwei")
    assert "Eins zwei" in lines(kept) and not any("three" in line for line in lines(kept))
    prompt.open_conversation(key)
    assert "One two three" in lines(kept) and prompt.composer.button.text() == "Stop"
    more(kept, first, " four")
    assert "One two three four" in lines(kept)
    ended(kept, first)
    assert prompt.composer.button.text() == "Send" and prompt.talks.running_elsewhere() == 1
    ended(kept, second)
    assert prompt.talks.running_keys() == set() and prompt.title._panel.phrase_label.full_text() == ""


def test_stop_ends_the_reply_that_is_shown_and_no_other(kept) -> None:
    prompt = kept.window.prompt
    begun(kept, "First", "One")
    prompt.new_button.click()
    begun(kept, "Second", "Two")
    kept.window.actions_by_name["stop_reply"].trigger()
    assert [c for c in kept.engine.calls if c[0] == "cancel"] == [("cancel", 2)]
    kept.settle()
    prompt.talks.pump()
    assert prompt.talks.live is None and prompt.talks.running_elsewhere() == 1


def test_the_list_tells_which_conversations_reply(kept, qtbot) -> None:
    prompt = kept.window.prompt
    answered(kept, qtbot, "Quiet", "Done.")
    prompt.new_button.click()
    number = begun(kept, "Busy", "One")
    popover = prompt.show_conversations()
    marks = {popover.list.item(i).text(): popover.list.item(i).data(RUNS) for i in range(2)}
    assert marks == {"Quiet": False, "Busy": True}
    ended(kept, number)  # while the list is open
    assert not any(popover.list.item(i).data(RUNS) for i in range(2))
    popover.close()


def test_a_reply_that_ended_unseen_is_whole_when_it_is_opened(kept) -> None:
    prompt = kept.window.prompt
    number = begun(kept, "First", "It is **bold**")
    key = prompt.talk.key
    prompt.new_button.click()
    ended(kept, number)
    prompt.open_conversation(key)
    assert "It is bold" in lines(kept) and prompt.talk.exchanges[0].done


def test_late_text_reaches_a_conversation_that_is_not_shown(kept) -> None:
    prompt = kept.window.prompt
    number = begun(kept, "First", "Good")
    key = prompt.talk.key
    prompt.new_button.click()
    ended(kept, number)
    kept.engine.publish(TextOut(RequestId(number), " morning"))
    kept.settle()
    prompt.open_conversation(key)
    assert "Good morning" in lines(kept)


def test_duplicate_makes_a_second_conversation_that_goes_its_own_way(kept, qtbot) -> None:
    prompt = kept.window.prompt
    answered(kept, qtbot, "First", "One.")
    original = prompt.talk.key
    kept.window.actions_by_name["duplicate"].trigger()
    assert prompt.talk.key != original and prompt.talk.title == "First (copy)"
    answered(kept, qtbot, "Second", "Two.")
    asked = [c for c in kept.engine.calls if c[0] == "submit_chat"][-1][1]
    assert [m["content"] for m in asked] == ["First", "One.", "Second"]
    store = prompt.talks.store
    counts = {c.title: c.count for c in store.listed()}
    assert counts == {"First (copy)": 2, "First": 1}
    popover = prompt.show_conversations()
    popover.search.setText("copy")
    popover.duplicate_button.click()
    assert prompt.talk.title == "First (copy 2)" and len(prompt.talk.exchanges) == 2


def test_a_copy_of_a_reply_that_streams_says_that_it_was_cut(kept) -> None:
    prompt = kept.window.prompt
    number = begun(kept, "First", "One")
    prompt.act("duplicate")
    more(kept, number, " two")
    assert "One" in lines(kept) and "Duplicated before its end." in lines(kept)
    assert prompt.composer.button.text() == "Send" and prompt.talks.running_elsewhere() == 1


def test_titles_of_copies() -> None:
    assert copy_title("Cats") == "Cats (copy)" and copy_title("") == "Conversation (copy)"
    assert copy_title("Cats (copy)") == "Cats (copy 2)" and copy_title("Cats (copy 9)") == "Cats (copy 10)"


def test_deleting_a_conversation_stops_its_reply(kept) -> None:
    prompt = kept.window.prompt
    begun(kept, "First", "One")
    key = prompt.talk.key
    prompt.new_button.click()
    prompt.talks.delete(key)
    assert ("cancel", 1) in kept.engine.calls and prompt.talks.running_keys() == set()
    kept.settle()
    prompt.talks.pump()
    assert prompt.talks.store.listed() == []


@pytest.mark.parametrize("how", ["regenerate", "edit"])
def test_a_refusal_loses_nothing(kept, qtbot, monkeypatch, how) -> None:
    prompt = kept.window.prompt
    answered(kept, qtbot, "First", "One.")
    answered(kept, qtbot, "Second", "Two.")

    def refuse(*_args):
        raise BackendError("The engine has ended: load the model again.")

    monkeypatch.setattr(kept.engine, "submit_chat", refuse)
    prompt.act(how, 0)
    if how == "edit":
        prompt.composer.editor.setPlainText("Changed")
        prompt.composer.button.click()
        assert prompt.composer.editor.toPlainText() == "Changed"
    assert "load the model again" in prompt.composer.problem.text()
    assert {"One.", "Two."} <= set(lines(kept))
    loaded = prompt.talks.store.load(prompt.talk.key)
    assert [e.reply for e in loaded.exchanges] == ["One.", "Two."]


def test_regenerating_keeps_the_draft(kept, qtbot) -> None:
    prompt = kept.window.prompt
    answered(kept, qtbot, "First", "One.")
    prompt.composer.editor.setPlainText("My next question is lo")
    prompt.act("regenerate")
    assert prompt.composer.editor.toPlainText() == "My next question is lo"
    assert prompt.talks.live is not None


def test_regenerating_an_older_reply_stops_the_one_that_streams(kept, qtbot) -> None:
    prompt = kept.window.prompt
    answered(kept, qtbot, "First", "One.")
    begun(kept, "Second", "Two")
    prompt.act("regenerate", 0)
    assert ("cancel", 2) in kept.engine.calls
    kept.settle()
    prompt.talks.pump()
    assert [e.prompt for e in prompt.talk.exchanges] == ["First"] and prompt.talks.live is not None
    assert [e.prompt for e in prompt.talks.store.load(prompt.talk.key).exchanges] == ["First"]


def test_the_menu_of_an_older_reply_says_what_it_replaces(kept, qtbot) -> None:
    transcript = kept.window.prompt.transcript
    answered(kept, qtbot, "First", "One.")
    answered(kept, qtbot, "Second", "Two.")
    texts = [a.text() for a in transcript.menu_at(1).actions()]
    assert "Regenerate from here" in texts and "Edit and resend from here" in texts
    with qtbot.waitSignal(transcript.action_requested) as asked:
        end = transcript.document().characterCount() - 2
        menu = transcript.menu_at(end)
        next(a for a in menu.actions() if a.text() == "Regenerate").trigger()
    assert asked.args == ["regenerate", 1]


def test_closing_keeps_a_reply_as_cut(kept, tmp_path) -> None:
    begun(kept, "First", "Once upon")
    kept.window.close()
    again = ChatStore(tmp_path / "chats.sqlite")
    exchange = again.load(again.listed()[0].key).exchanges[0]
    assert exchange.reply == "Once upon" and "ended before the reply did" in exchange.problem
    again.close()


def test_another_engine_ends_every_reply_in_words(kept) -> None:
    prompt = kept.window.prompt
    begun(kept, "First", "One")
    key = prompt.talk.key
    prompt.new_button.click()
    begun(kept, "Second", "Two")
    kept.engine.publish(EngineFailed("The model file is truncated."))
    kept.settle()
    assert prompt.talks.running_keys() == set() and prompt.composer.button.text() == "Send"
    assert prompt.talks.store.load(key).exchanges[0].done


def test_the_system_prompt_is_kept_when_it_is_written(kept, qtbot) -> None:
    prompt = kept.window.prompt
    answered(kept, qtbot, "First", "One.")
    prompt.edit_system()
    popover = next(w for w in kept.window.findChildren(object) if getattr(w, "accessibleName", str)() ==
                   "System prompt" and hasattr(w, "setPlainText"))  # fmt: skip
    popover.setPlainText("Be short.")
    assert prompt.talks.store.load(prompt.talk.key).system == "Be short."
    popover.window().close()


def test_a_store_of_the_first_version_is_taken_over(tmp_path) -> None:
    path = tmp_path / "chats.sqlite"
    db = sqlite3.connect(path)
    old = SCHEMA.replace(",\n  thought_tokens INTEGER NOT NULL DEFAULT 0", "")
    assert old != SCHEMA
    db.executescript(old)
    db.execute("INSERT INTO conversations VALUES (1, 'Cats', '', 1.0, 1.0)")
    db.execute("INSERT INTO exchanges (conversation, prompt, reply, done) VALUES (1, 'Why?', 'So.', 1)")
    db.execute("PRAGMA user_version = 1")
    db.commit()
    db.close()
    for _ in range(2):
        store = ChatStore(path)
        assert store._db.execute("PRAGMA user_version").fetchone()[0] == VERSION
        assert [(e.prompt, e.reply, e.thought_tokens) for e in store.load(1).exchanges] == [
            ("Why?", "So.", 0)
        ]
        store.close()


def test_search_knows_capitals_of_every_alphabet(tmp_path) -> None:
    store = ChatStore(None)
    for prompt in ("Äpfel und Straßen", "Кошки"):
        store.begin(Conversation(), Exchange(prompt, 1))
    assert [c.title for c in store.listed("äPFEL")] == ["Äpfel und Straßen"]
    assert [c.title for c in store.listed("STRASSEN")] == ["Äpfel und Straßen"]
    assert [c.title for c in store.listed("кошк")] == ["Кошки"]
    store.close()


def test_the_signature_counts_cached_tokens(rig, qtbot) -> None:
    answered(rig, qtbot, "First", "One two three.")
    assert "  GPU, 0.05 s TTFT, 287 tok/s, 0 cached  why?" in [line.strip("\ufffc") for line in lines(rig)]
    data = json.loads(rig.window.prompt.talk.as_json())
    assert data["exchanges"][0]["figures"].endswith("0 cached")


def test_enter_in_the_list_opens_and_escape_leaves(kept, qtbot) -> None:
    answered(kept, qtbot, "First", "One.")
    popover = kept.window.prompt.show_conversations()
    QTest.keyClick(popover.list, "\x1b")
    assert not popover.isVisible()


def test_export_writes_files_and_says_where_it_could_not(rig, qtbot, tmp_path) -> None:
    prompt = rig.window.prompt
    answered(rig, qtbot, "What is a/b: cache?", "It is **bold**.")
    dialog = prompt.export("markdown")
    assert dialog.selectedFiles()[0].endswith("What is ab cache.md")
    dialog.fileSelected.emit(str(tmp_path / "talk.md"))
    text = (tmp_path / "talk.md").read_text(encoding="utf-8")
    assert (
        text.startswith("# What is a/b: cache?") and "It is **bold**." in text and "*GPU, 0.05 s TTFT" in text
    )
    other = prompt.export("json")
    other.fileSelected.emit(str(tmp_path / "talk.json"))
    assert json.loads((tmp_path / "talk.json").read_text(encoding="utf-8"))["title"] == "What is a/b: cache?"
    with qtbot.waitSignal(prompt.failed) as said:
        other.fileSelected.emit(str(tmp_path / "no such folder" / "talk.json"))
    assert "Choose another folder" in said.args[0]
    assert file_name("../..", "md") == "conversation.md" and len(file_name("x" * 300, "md")) == 63
    dialog.close()
    other.close()


def test_the_end_of_a_reply_does_not_move_a_reader(rig, qtbot) -> None:
    transcript = rig.window.prompt.transcript
    number = begun(rig, "Long", "# Title\n\n" + "word\n\n" * 100)
    bar = transcript.verticalScrollBar()
    bar.setValue(bar.maximum() // 3)
    before = bar.value()
    ended(rig, number)
    assert rig.window.prompt.talks.live is None
    assert bar.value() == before and transcript.latest_button.isVisible()


def test_a_first_token_at_once_does_not_read_as_zero(rig) -> None:
    rig.write("Hello")
    rig.engine.answer(RequestId(1), "One two", ttft_s=0.0042)
    rig.settle()
    rig.window.prompt.talks.pump()
    assert any("GPU, 4.2 ms TTFT, 287 tok/s" in line for line in lines(rig))


def test_receipts_stay_within_reach_until_the_engine_is_another(kept, qtbot) -> None:
    prompt = kept.window.prompt
    answered(kept, qtbot, "First", "One.")
    key = prompt.talk.key
    prompt.new_button.click()
    prompt.open_conversation(key)
    assert "receipt:1" in prompt.transcript.toHtml()
    prompt.new_button.click()
    prompt.engine_replaced()
    prompt.open_conversation(key)
    assert "receipt:1" not in prompt.transcript.toHtml() and "One." in lines(kept)


def test_a_request_that_left_the_board_ends_in_words(kept) -> None:
    prompt = kept.window.prompt
    number = begun(kept, "First", "One")
    del kept.board.requests[RequestId(number)]  # a burst of thousands has pushed it off
    prompt.talks.pump()
    assert prompt.talks.live is None and "Offramp lost sight of this request." in lines(kept)


def test_a_full_disk_is_told_once_and_the_reply_goes_on(kept, monkeypatch) -> None:
    prompt, said = kept.window.prompt, []
    prompt.failed.connect(said.append)
    number = begun(kept, "First", "One")

    def full(*_args):
        raise ConfigError("The conversation was not saved (database or disk is full): free some space.")

    monkeypatch.setattr(prompt.talks.store, "keep", full)
    monkeypatch.setattr("app.talks.KEEP_S", -1.0)  # each time there is text
    for _ in range(4):
        more(kept, number, " more")
    assert "One more more more more" in lines(kept)
    assert len(said) == 1 and "free some space" in said[0]
