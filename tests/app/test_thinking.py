"""What a model thinks before it answers is folded, and is not its answer."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_helpers import answered, begun, lines, more
from PySide6.QtCore import QUrl
from PySide6.QtGui import QGuiApplication
from tokenizers import Tokenizer
from tokenizers.models import BPE

from app.series.conversation import Conversation, Exchange
from app.series.thinking import Splitter, split
from engine.events import RequestDone
from engine.request import FinishReason, RequestId, RequestTimings
from engine.text import TextCodec, TextMeta

REPLY = "<think>\nTwo sentences.\n\nShort.\n</think>\n\nIt keeps **keys**."
PIECES = ["<think>", "\n", "Let", " me", "see", "</think>", "\n\n", "Yes", "."]


def test_split() -> None:
    assert split(REPLY) == ("Two sentences.\n\nShort.", "It keeps **keys**.", False)
    assert split("<think>\nHm") == ("Hm", "", True) and split("\n<think></think>Yes") == ("", "Yes", False)
    assert split("<think>\n<think>\nHm</think>Yes") == ("Hm", "Yes", False)  # the template's, then its own
    assert split("") == ("", "", False) and split("<thi") == ("", "", True)
    for plain in ("Say <think>a</think>.", "<b>bold</b>", "</think>x", "  indented", "<thin air"):
        assert split(plain) == ("", plain, False)


tags = st.sampled_from(["<think>", "</think>", "<thi", "nk>", "</", "\n", " ", "a", "<", "Ω"])


@given(st.lists(tags, max_size=12), st.randoms(use_true_random=False))
def test_however_a_reply_is_cut_the_answer_is_the_same(parts, random) -> None:
    reply, splitter, shown, at = "".join(parts), Splitter(), "", 0
    while at < len(reply):
        size = random.randint(1, 4)
        shown += splitter.push(reply[at : at + size])
        at += size
        so_far = split(reply[:at])
        assert shown == so_far[1]
        assert splitter.thinking == (so_far[2] and not "<think>".startswith(reply[:at].lstrip()))


# What Qwen3's chat template does with the replies before the last question.
TEMPLATE = """{%- for message in messages %}
{%- set content = message.content %}
{%- if message.role == "assistant" and '</think>' in content %}
{%- set content = content.split('</think>')[-1].lstrip('\\n') %}
{%- endif %}
{{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
{%- endfor %}"""


@pytest.mark.parametrize("reply", [REPLY, "Yes.", "<think>\n\n</think>\n\nOk", "<think>a</think>b</think>c"])
def test_history_is_what_the_template_would_make_of_the_whole_reply(reply) -> None:
    meta = TextMeta(8, 64, None, (), False, (), {}, True)
    codec = TextCodec(Tokenizer(BPE()), meta, TEMPLATE)
    talk = Conversation(exchanges=[Exchange("<think>typed</think>", 1, reply, True)])
    whole = [
        {"role": "user", "content": "<think>typed</think>"},
        {"role": "assistant", "content": reply},
        {"role": "user", "content": "Next"},
    ]
    assert codec.render_chat(talk.messages("Next")) == codec.render_chat(whole)


def test_a_reply_thinks_then_answers(rig, qtbot) -> None:
    prompt = rig.window.prompt
    number = begun(rig, "Why?", *PIECES[:4])
    assert "Thinking… 4 tokens" in lines(rig) and not any("Let" in line for line in lines(rig))
    more(rig, number, PIECES[4])
    assert "Thinking… 5 tokens" in lines(rig)
    more(rig, number, *PIECES[5:8])
    assert "Yes" in lines(rig) and "Thought, 6 tokens  show" in lines(rig)
    more(rig, number, PIECES[8])
    assert "Yes." in lines(rig)
    timings = RequestTimings(990.0, 990.0, 990.1, 991.0)
    rig.engine.publish(RequestDone(RequestId(number), "gpu", FinishReason.STOP, 24, 0, 9, timings))
    rig.settle()
    qtbot.waitUntil(lambda: prompt.talks.live is None)
    assert [line for line in lines(rig) if "Yes" in line or "Th" in line] == [
        "Thought, 6 tokens  show",
        "Yes.",
    ]


def test_a_reply_whose_template_opened_the_thinking_part(rig, qtbot) -> None:
    """The engine sends the template's tag with the first text: until then it is read, not thought."""
    prompt = rig.window.prompt
    number = begun(rig, "Why?", "<think>\nLet", " me")
    assert "Thinking… 2 tokens" in lines(rig) and not any("Let" in line for line in lines(rig))
    more(rig, number, "</think>", "\n\n", "Yes.")
    assert "Yes." in lines(rig) and "Thought, 3 tokens  show" in lines(rig)
    timings = RequestTimings(990.0, 990.0, 990.1, 991.0)
    rig.engine.publish(RequestDone(RequestId(number), "gpu", FinishReason.STOP, 24, 0, 5, timings))
    rig.settle()
    qtbot.waitUntil(lambda: prompt.talks.live is None)
    prompt.transcript.anchorClicked.emit(QUrl("fold:0"))
    assert "Let me" in lines(rig) and "Yes." in lines(rig)
    assert prompt.talk.exchanges[0].answer == "Yes."


def test_the_fold_opens_and_closes_and_holds_the_place(rig, qtbot) -> None:
    transcript = rig.window.prompt.transcript
    answered(rig, qtbot, "Why?", REPLY)
    for word in range(3):
        answered(rig, qtbot, f"More {word}", "And so on.\n\n" * 12)
    bar = transcript.verticalScrollBar()
    bar.setValue(3)
    transcript.anchorClicked.emit(QUrl("fold:0"))
    text = lines(rig)
    assert "Two sentences." in text and "Short." in text and text[1].endswith("hide") and bar.value() == 3
    assert text.count("And so on.") == 36 and text.count("It keeps keys.") == 1
    rig.themes.toggle()
    assert "Two sentences." in lines(rig)
    transcript.anchorClicked.emit(QUrl("fold:0"))
    assert "Two sentences." not in lines(rig)


def test_thinking_is_neither_copied_nor_sent_back(rig, qtbot) -> None:
    prompt = rig.window.prompt
    answered(rig, qtbot, "Why?", REPLY)
    prompt.act("copy")
    assert QGuiApplication.clipboard().text() == "It keeps **keys**."
    rig.write("And then?")
    asked = [c for c in rig.engine.calls if c[0] == "submit_chat"][-1][1]
    assert [m["content"] for m in asked] == ["Why?", "It keeps **keys**.", "And then?"]
    assert "Two sentences" not in prompt.talk.as_markdown()
    exported = json.loads(prompt.talk.as_json())["exchanges"][0]
    assert (exported["reply"], exported["thinking"]) == ("It keeps **keys**.", "Two sentences.\n\nShort.")


def test_a_reply_cut_while_it_thinks(rig, qtbot) -> None:
    prompt = rig.window.prompt
    QGuiApplication.clipboard().setText("before")
    begun(rig, "Why?", *PIECES[:4])
    prompt.stop()
    rig.settle()
    qtbot.waitUntil(lambda: prompt.talks.live is None)
    assert any(line.startswith("Thought, 4 tokens, cut short") for line in lines(rig))
    prompt.transcript.anchorClicked.emit(QUrl("fold:0"))
    assert "Let me" in lines(rig)
    prompt.act("copy")
    assert QGuiApplication.clipboard().text() == "before"  # there is no answer to copy
    rig.write("Again")
    asked = [c for c in rig.engine.calls if c[0] == "submit_chat"][-1][1]
    assert [m["content"] for m in asked] == ["Again"]


def test_what_a_user_types_is_never_folded(rig, qtbot) -> None:
    answered(rig, qtbot, "<think>What is</think> this?", "A tag, <think>really</think>.")
    assert lines(rig)[0] == "<think>What is</think> this?"
    assert "A tag, <think>really</think>." in lines(rig) and not any("Thought" in x for x in lines(rig))
    rig.write("Next")
    asked = [c for c in rig.engine.calls if c[0] == "submit_chat"][-1][1]
    assert asked[0]["content"] == "<think>What is</think> this?"


def test_empty_thinking_leaves_no_trace(rig, qtbot) -> None:
    answered(rig, qtbot, "Why? /no_think", "<think>\n\n</think>\n\nBecause.")
    assert "Because." in lines(rig) and not any("Thought" in line for line in lines(rig))


def test_a_theme_that_changes_while_it_thinks(rig) -> None:
    number = begun(rig, "Why?", *PIECES[:3])
    rig.themes.toggle()
    more(rig, number, *PIECES[3:8])
    rig.themes.toggle()
    more(rig, number, PIECES[8])
    assert "Yes." in lines(rig) and "Thought, 6 tokens  show" in lines(rig)
