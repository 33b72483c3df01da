"""Text to tokens and back: exact under every split, equal to the reference templates."""

import json
import subprocess
import sys
import time
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from engine.errors import ModelFileError, PromptError
from engine.models.fetch import ensure_model
from engine.models.prepare import prepared
from engine.text import Detokenizer, StopChecker, TextCodec, TextMeta

CHATS = [
    [{"role": "user", "content": "What is a wheel?"}],
    [{"role": "system", "content": "Answer in verse."}, {"role": "user", "content": "Why is the sky blue?"}],
    [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hello! How can I help?"},
        {"role": "user", "content": "Name three rivers — and a café 🎉\n\n- one\n- two"},
    ],
    [
        {"role": "system", "content": ""},
        {"role": "user", "content": "  spaces  and <|im_end|> inside "},
        {"role": "assistant", "content": "ok"},
        {"role": "user", "content": "x" * 300},
    ],
]


@pytest.fixture(scope="module")
def folder() -> Path:
    return prepared(ensure_model("smollm2-135m-instruct"))


@pytest.fixture(scope="module")
def codec(folder: Path) -> TextCodec:
    return TextCodec.load(folder)


def pieces(codec: TextCodec, ids: list[int]) -> list[str]:
    detokenizer = codec.detokenizer()
    return [*(detokenizer.push(token) for token in ids), detokenizer.finish()]


# -- detokenising


@given(st.text(max_size=80))
def test_any_text_comes_back_in_pieces(codec: TextCodec, text: str) -> None:
    ids = codec.encode(text, add_special=False)
    out = pieces(codec, ids)
    decoded = codec.decode(ids)  # differs from `text` only for the few bytes this vocabulary lacks
    assert "".join(out) == decoded
    if "\ufffd" not in decoded:
        assert not any("\ufffd" in piece for piece in out)


@given(st.lists(st.integers(0, 49_151), max_size=60))
def test_any_token_ids_come_out_as_the_tokenizer_decodes_them(codec: TextCodec, ids: list[int]) -> None:
    assert "".join(pieces(codec, ids)) == codec.decode(ids)


@given(st.text(alphabet="👩‍🚀🎉é漢字𝔘 a", max_size=40), st.data())
def test_a_cut_inside_a_character_waits_for_the_rest(
    codec: TextCodec, text: str, data: st.DataObject
) -> None:
    ids = codec.encode(text, add_special=False)
    cut = data.draw(st.integers(0, len(ids)))
    detokenizer = codec.detokenizer()
    head = "".join(detokenizer.push(token) for token in ids[:cut])
    assert text.startswith(head)
    assert head + "".join(detokenizer.push(token) for token in ids[cut:]) + detokenizer.finish() == text


def test_an_unfinished_character_at_the_end_is_shown_once(codec: TextCodec) -> None:
    ids = codec.encode("🎉", add_special=False)
    assert len(ids) > 1
    assert pieces(codec, ids[:-1])[:-1] == [""] * (len(ids) - 1)
    assert pieces(codec, ids[:-1])[-1] == codec.decode(ids[:-1]) == "\ufffd"


def test_special_tokens_and_ids_beyond_the_vocabulary_say_nothing(codec: TextCodec) -> None:
    assert "".join(pieces(codec, [0, 1, 2, 99_999])) == ""


def test_a_token_costs_the_same_early_and_late(codec: TextCodec) -> None:
    """20,000 tokens in well under a second, or the cost grows with the length."""
    ids = codec.encode("One more word, then another. " * 3000, add_special=False)[:20_000]
    detokenizer = codec.detokenizer()
    start = time.process_time()
    for token in ids:
        detokenizer.push(token)
    assert time.process_time() - start < 1.0


@given(st.text(alphabet="ab é🎉漢\n", max_size=30))
def test_byte_fallback_vocabularies_detokenise_exactly(text: str) -> None:
    """The other kind of vocabulary: words with a leading mark, and single bytes for what is unknown."""
    codec = fallback_codec()
    ids = [codec._tokenizer.token_to_id(token) for token in fallback_tokens(text)]
    assert "".join(pieces(codec, ids)) == codec.decode(ids)


def fallback_tokens(text: str) -> list[str]:
    out: list[str] = []
    for character in text.replace(" ", "▁"):
        known = character in "ab▁"
        out += [character] if known else [f"<0x{byte:02X}>" for byte in character.encode()]
    return out


def fallback_codec() -> TextCodec:
    vocabulary = {token: i for i, token in enumerate([*"ab▁", *(f"<0x{b:02X}>" for b in range(256))])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True))
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    meta = TextMeta(len(vocabulary), 128, None, (), False, (), {}, byte_level=False)
    return TextCodec(tokenizer, meta, None)


# -- stop strings


def run_stops(stops: list[str], parts: list[str]) -> tuple[str, bool]:
    checker = StopChecker(stops)
    out = "".join(checker.push(part)[0] for part in parts)
    return out + checker.finish(), checker.stopped


def by_definition(stops: list[str], text: str) -> tuple[str, bool]:
    """The stop string that is complete first ends the text before it; of several at once, the longest."""
    for end in range(1, len(text) + 1):
        lengths = [len(stop) for stop in stops if text[:end].endswith(stop)]
        if lengths:
            return text[: end - max(lengths)], True
    return text, False


@given(
    st.lists(st.text(alphabet="abc", min_size=1, max_size=5), max_size=4),
    st.lists(st.text(alphabet="abc", max_size=4), max_size=12),
)
def test_stop_strings_do_not_depend_on_the_cuts(stops: list[str], parts: list[str]) -> None:
    text = "".join(parts)
    assert run_stops(stops, parts) == run_stops(stops, list(text)) == by_definition(stops, text)


@given(st.lists(st.text(alphabet="ab", max_size=3), max_size=10))
def test_text_given_out_is_never_taken_back(parts: list[str]) -> None:
    checker = StopChecker(["abba", "bab"])
    given_out = list(accumulate((checker.push(part)[0] for part in parts), initial=""))
    assert by_definition(["abba", "bab"], "".join(parts))[0].startswith(given_out[-1])


def test_a_possible_stop_string_is_held_back_and_let_go() -> None:
    checker = StopChecker(["\n\nUser:"])
    assert checker.push("Hello\n") == ("Hello", False)
    assert checker.push("\nUs") == ("", False)
    assert checker.push("ually") == ("\n\nUsually", False)
    assert checker.push("!\n\nUser: me") == ("!", True)
    assert checker.push("more") == ("", True)
    assert checker.finish() == ""


def test_the_tail_that_looked_like_a_stop_string_is_not_lost() -> None:
    checker = StopChecker(["END"])
    assert checker.push("the EN") == ("the ", False)
    assert checker.finish() == "EN"


# -- chat


def test_templates_render_as_the_reference_does(codec: TextCodec) -> None:
    """Ids from transformers' apply_chat_template, in a process of its own: it brings torch along."""
    model = ensure_model("smollm2-135m-instruct")
    script = (
        "import json, sys; from transformers import AutoTokenizer\n"
        "from engine.models.prepare import plain_memmaps\n"
        "with plain_memmaps(): t = AutoTokenizer.from_pretrained(sys.argv[1], gguf_file=sys.argv[2])\n"
        "chats = json.loads(sys.argv[3])\n"
        "print(json.dumps([t.apply_chat_template(c, add_generation_prompt=True, return_dict=False)"
        " for c in chats]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(model.parent), model.name, json.dumps(CHATS)],
        capture_output=True,
        text=True,
        check=True,
    )
    for chat, expected in zip(CHATS, json.loads(done.stdout.splitlines()[-1]), strict=True):
        assert codec.encode_chat(chat) == expected


def test_a_reply_ends_with_the_chat_token_too(codec: TextCodec) -> None:
    ends = {codec.decode([token], skip_special=False) for token in codec.eos_ids}
    assert ends == {"<|im_end|>", "<|endoftext|>"}


def test_digits_stand_apart(codec: TextCodec) -> None:
    assert len(codec.encode("2026", add_special=False)) == 4


def test_a_new_turn_keeps_the_ids_of_the_old_ones(codec: TextCodec) -> None:
    chat = [*CHATS[0]]
    prompt = codec.encode_chat(chat)
    reply = codec.encode("A round thing.", add_special=False)
    chat += [{"role": "assistant", "content": "A round thing."}, {"role": "user", "content": "And a cart?"}]
    assert codec.continue_chat([*prompt, *reply], chat) == codec.encode_chat(chat)
    edited = [*chat[:1], {"role": "assistant", "content": "  trimmed "}, chat[-1]]
    assert codec.continue_chat(prompt, edited) is not None


def make_codec(template: str | None) -> TextCodec:
    meta = TextMeta(3, 128, 0, (1,), True, (), {"bos_token": "<s>", "eos_token": "</s>"}, True)
    tokenizer = Tokenizer(models.BPE(vocab={"a": 0, "b": 1, "Ġ": 2}, merges=[]))
    return TextCodec(tokenizer, meta, template)


def test_templates_get_the_usual_globals() -> None:
    codec = make_codec("{{ bos_token }}{{ strftime_now('%%') }}{{ messages|tojson }}{{ eos_token }}")
    assert codec.render_chat([{"role": "user", "content": "é<"}]) == (
        '<s>%[{"role": "user", "content": "é<"}]</s>'
    )


@pytest.mark.parametrize(
    "template",
    ["{{ raise_exception('no system prompt') }}", "{{ messages.__class__.__mro__ }}", "{{ 1 + messages }}"],
)
def test_a_template_that_refuses_is_a_sentence(template: str) -> None:
    with pytest.raises(PromptError, match="chat template refuses"):
        make_codec(template).render_chat([{"role": "user", "content": "a"}])


def test_a_broken_template_is_a_sentence() -> None:
    with pytest.raises(ModelFileError, match="template is broken"):
        make_codec("{% if %}")


def test_a_model_without_a_template_continues_plain_text() -> None:
    codec = make_codec(None)
    assert codec.encode_chat([{"role": "user", "content": "ab"}]) == [0, 0, 1]
    assert codec.encode("ab", add_special=False) == [0, 1]


def test_a_damaged_folder_is_a_sentence(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "meta.json").write_text((folder / "meta.json").read_text())
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ModelFileError, match="delete that folder"):
        TextCodec.load(tmp_path)


def test_the_text_module_needs_no_torch() -> None:
    script = (
        "import sys, engine.text, engine.models.prepare, engine.models.fetch\n"
        "assert not {'torch', 'transformers', 'PySide6'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_detokenizer_is_exported_by_the_codec(codec: TextCodec) -> None:
    assert isinstance(codec.detokenizer(), Detokenizer)
