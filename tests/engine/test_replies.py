"""Replies to typed prompts: where a chat template opens the thinking part, the reply begins with its tag."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from engine.replies import Conversations
from engine.request import SamplingParams
from engine.text import TextCodec, TextMeta

TURNS = """{%- for message in messages %}{{ message.role + ': ' + message.content + '\\n' }}{%- endfor %}"""
OPENED = TURNS + "{{ 'assistant: <think>\\n' }}"
CLOSED = TURNS + "{{ 'assistant: <think>\\n\\n</think>\\n\\n' }}"
PLAIN = TURNS + "{{ 'assistant: ' }}"
ASKED = [{"role": "user", "content": "Why?"}]


def codec_of(template: str | None) -> TextCodec:
    """A vocabulary of the 256 bytes: the tag is as many tokens as it has letters."""
    vocabulary = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return TextCodec(tokenizer, TextMeta(256, 4_096, None, (), False, (), {}, True), template)


def reply_of(template: str | None, text: str, asked: str = "Why?", stop: tuple[str, ...] = ()) -> list[str]:
    """The pieces in which a reply comes out that the model wrote as `text`."""
    codec = codec_of(template)
    reply = Conversations(codec).open([{"role": "user", "content": asked}], SamplingParams(stop=stop))
    pieces = []
    for token in codec.encode(text):
        piece, stopped = reply.push(token)
        pieces.append(piece)
        if stopped:
            break
    else:
        pieces.append(reply.finish())
    pieces = [piece for piece in pieces if piece]
    assert reply.text == "".join(pieces)
    return pieces


def test_a_reply_that_begins_inside_the_thinking_part_begins_with_its_tag() -> None:
    pieces = reply_of(OPENED, "Hm.</think>Yes.")
    assert pieces[0] == "<think>\nH" and "".join(pieces) == "<think>\nHm.</think>Yes."


@pytest.mark.parametrize("template", [PLAIN, CLOSED, None])
def test_other_replies_are_left_alone(template) -> None:
    assert "".join(reply_of(template, "<think>Hm.</think>Yes.")) == "<think>Hm.</think>Yes."
    assert "".join(reply_of(template, "Yes.")) == "Yes."


def test_what_a_user_types_opens_nothing() -> None:
    """Without a template the prompt ends with the user's words."""
    assert "".join(reply_of(None, "Yes.", asked="Say <think>")) == "Yes."
    assert "".join(reply_of(PLAIN, "Yes.", asked="Say <think>")) == "Yes."


def test_a_reply_without_text_has_no_tag_and_stop_strings_hold_in_the_thinking_part() -> None:
    assert reply_of(OPENED, "") == []
    assert "".join(reply_of(OPENED, "So, END and more", stop=("END",))) == "<think>\nSo, "


def test_the_next_turn_of_such_a_conversation_is_rendered_anew() -> None:
    """Its prompt leaves the thinking part out, as the window asks for it."""
    codec = codec_of(OPENED)
    conversations = Conversations(codec)
    reply = conversations.open(ASKED, SamplingParams())
    tokens = codec.encode("Hm.</think>Yes.")
    for token in tokens:
        reply.push(token)
    conversations.keep(reply, tokens)
    asked = [*ASKED, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "And?"}]
    again = conversations.open(asked, SamplingParams())
    assert list(again.prompt) == codec.encode_chat(asked) and again.opening == "<think>\n"
