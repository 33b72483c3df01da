"""Text to token ids and back: chat template, tokenising, incremental detokenising, stop strings.

Torch-free. The folder that `TextCodec` reads is written by `engine.models.prepare`.
"""

import codecs
import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import Template, TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from engine.errors import ModelFileError, PromptError

META_VERSION = 1
THINK = "<think>"  # how the families that think begin a reply, or have their template begin it
_TAG_TOKENS = 16  # enough for the tag and the line ends after it where every character is a token
Message = Mapping[str, str]  # "role" and "content"


@dataclass(frozen=True, slots=True)
class TextMeta:
    """What meta.json says about a tokenizer."""

    vocab_size: int
    max_context: int
    bos_id: int | None
    eos_ids: tuple[int, ...]  # every id that ends a reply, the chat's end of turn included
    add_bos: bool
    special_ids: tuple[int, ...]
    special_tokens: dict[str, str]  # bos_token, eos_token, ...: what templates may name
    byte_level: bool  # every token is a run of bytes, so detokenising is a table


class TextCodec:
    """One model's tokenizer and chat template. Safe to use from several threads."""

    def __init__(self, tokenizer: Tokenizer, meta: TextMeta, template: str | None) -> None:
        self.meta = meta
        self.eos_ids = frozenset(meta.eos_ids)
        self._tokenizer = tokenizer
        self._lock = threading.Lock()  # the library's settings are shared by all callers
        self._special = frozenset(meta.special_ids)
        self._template = _compile(template) if template else None
        self._bytes_of: dict[int, bytes] = {}

    @classmethod
    def load(cls, folder: Path) -> "TextCodec":
        """Read tokenizer.json, meta.json and chat_template.jinja. Raises `ModelFileError`."""
        try:
            raw = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
            if raw.pop("version") != META_VERSION:
                raise ValueError("another version wrote it")
            for name in ("eos_ids", "special_ids"):
                raw[name] = tuple(raw[name])
            meta = TextMeta(**raw)
            tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
            template = folder / "chat_template.jinja"
            text = template.read_text(encoding="utf-8") if template.is_file() else None
            return cls(tokenizer, meta, text)
        except Exception as error:  # the tokenizers library raises bare Exception
            raise ModelFileError(
                f"The prepared tokenizer in {folder} cannot be read ({error}): delete that folder."
            ) from error

    @property
    def has_chat_template(self) -> bool:
        return self._template is not None

    def encode(self, text: str, add_special: bool = True) -> list[int]:
        """Token ids of `text`; `add_special` puts the begin-of-text id first where the model wants one."""
        with self._lock:
            ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        if add_special and self.meta.add_bos and self.meta.bos_id is not None:
            return [self.meta.bos_id, *ids]
        return list(ids)

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        with self._lock:
            return str(self._tokenizer.decode(list(ids), skip_special_tokens=skip_special))

    def render_chat(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> str:
        """The conversation as the model was trained to see it. Raises `PromptError`."""
        if self._template is None:  # a base model: it continues plain text
            return "\n\n".join(message["content"] for message in messages)
        try:
            return self._template.render(
                messages=[dict(message) for message in messages],
                tools=None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **self.meta.special_tokens,
            )
        except (TemplateError, TypeError, KeyError) as error:
            raise PromptError(
                f"The model's chat template refuses this conversation ({error}): "
                "change the order of the messages or leave out the system prompt."
            ) from error

    def encode_chat(self, messages: Sequence[Message]) -> list[int]:
        """Token ids of the conversation up to where the reply starts. Raises `PromptError`."""
        if self._template is None:
            return self.encode(self.render_chat(messages))
        return self.encode(self.render_chat(messages), add_special=False)  # templates write their own

    def continue_chat(self, kept: Sequence[int], messages: Sequence[Message]) -> list[int] | None:
        """`kept` (ids of the last prompt and its reply, no end-of-turn id) and the ids of what follows.

        `messages` is the whole conversation: ..., the reply, the new turn. None when the template does not
        render the reply unchanged; tokenise afresh then.
        """
        if self._template is None or len(messages) < 2:
            return None
        before, reply = self.render_chat(messages[:-2]), messages[-2]["content"]
        whole = self.render_chat(messages)
        if not whole.startswith(before + reply):
            return None
        return [*kept, *self.encode(whole[len(before) + len(reply) :], add_special=False)]

    def opens_thinking(self, prompt: Sequence[int]) -> bool:
        """Whether the chat template has opened the thinking part, so that the reply begins inside it."""
        if self._template is None:  # such a prompt ends with what the user wrote
            return False
        return self.decode(prompt[-_TAG_TOKENS:], skip_special=False).rstrip().endswith(THINK)

    def detokenizer(self) -> "Detokenizer":
        return Detokenizer(self)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes one token of a byte-level vocabulary stands for; b"" for special and unknown ids."""
        found = self._bytes_of.get(token_id)
        if found is None:
            token = None if token_id in self._special else self._tokenizer.id_to_token(token_id)
            found = self._bytes_of[token_id] = b"" if token is None else _to_bytes(token)
        return found


class Detokenizer:
    """Turns one request's token ids into text as they come.

    The pieces concatenate to exactly `codec.decode(all ids)`. A character that spans tokens comes out once
    it is whole; U+FFFD appears only for bytes that are no character whatever follows.
    """

    # Other vocabularies: tokens after which an unfinished character is given up. UTF-8 needs four at most.
    _PATIENCE = 8

    def __init__(self, codec: TextCodec) -> None:
        self._codec = codec
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace") if codec.meta.byte_level else None
        self._ids: list[int] = []  # a short window: the last certain tokens and those not certain yet
        self._sure = 0  # how many of `_ids` have been emitted
        self._shown = ""  # the text of those

    def push(self, token_id: int) -> str:
        """The text that became certain with this token: often one word, sometimes nothing."""
        if self._utf8 is not None:
            return self._utf8.decode(self._codec.token_bytes(token_id))
        self._ids.append(token_id)
        text = self._codec.decode(self._ids)
        if text.endswith("\ufffd") and len(self._ids) - self._sure < self._PATIENCE:
            return ""
        return self._emit(text)

    def finish(self) -> str:
        """What was still held back. The detokenizer is used up afterwards."""
        if self._utf8 is not None:
            return self._utf8.decode(b"", final=True)
        return self._emit(self._codec.decode(self._ids)) if len(self._ids) > self._sure else ""

    def _emit(self, text: str) -> str:
        new = text[len(self._shown) :]
        # The tokens just shown stay as context: neighbours decide about spaces, and the first token of a text
        # loses its own. They start at a character's border, and being few makes each step cost the same.
        self._ids = self._ids[self._sure :]
        self._sure, self._shown = len(self._ids), self._codec.decode(self._ids)
        return new


class StopChecker:
    """Finds stop strings in streamed text, however it is cut, and holds back what may become one.

    Each stop string is followed by its own Knuth-Morris-Pratt automaton, so the cost is linear in the text
    and the outcome does not depend on the cuts: the stop string that is complete first wins.
    """

    def __init__(self, stops: Iterable[str]) -> None:
        self._stops = [(stop, _fallbacks(stop)) for stop in dict.fromkeys(stops) if stop]
        self._matched = [0] * len(self._stops)  # characters of each that the text so far ends with
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> tuple[str, bool]:
        """(certain text, stopped). Text from the stop string on is dropped, later pushes give nothing."""
        if self.stopped:
            return "", True
        if not self._stops:
            return text, False
        for position, character in enumerate(text):
            longest = 0
            for index, (stop, fallback) in enumerate(self._stops):
                matched = self._matched[index]
                while matched and stop[matched] != character:
                    matched = fallback[matched - 1]
                matched += stop[matched] == character
                self._matched[index] = matched
                if matched == len(stop):
                    longest = max(longest, matched)
            if longest:
                self.stopped = True
                certain = self._held + text[: position + 1]
                self._held = ""
                return certain[: len(certain) - longest], True
        seen = self._held + text
        certain_length = len(seen) - max(self._matched)
        self._held = seen[certain_length:]
        return seen[:certain_length], False

    def finish(self) -> str:
        """The text held back, now that nothing can complete a stop string."""
        held, self._held = self._held, ""
        return "" if self.stopped else held


def _fallbacks(stop: str) -> list[int]:
    """For each prefix, the length of its longest proper border."""
    table = [0] * len(stop)
    length = 0
    for index in range(1, len(stop)):
        while length and stop[index] != stop[length]:
            length = table[length - 1]
        length += stop[index] == stop[length]
        table[index] = length
    return table


def _byte_table() -> dict[str, int]:
    """Byte-level BPE writes every byte as one visible character: printable Latin-1 stands for itself, the
    other bytes for the characters from U+0100 on, in order (Radford et al. 2019)."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(byte): byte for byte in visible}
    hidden = (byte for byte in range(256) if byte not in set(visible))
    return table | {chr(0x100 + index): byte for index, byte in enumerate(hidden)}


_BYTES = _byte_table()


def _to_bytes(token: str) -> bytes:
    try:
        return bytes(_BYTES[character] for character in token)
    except KeyError:  # an added token is written as it is
        return token.encode()


def _compile(template: str) -> Template:
    """Templates come with downloads: they run in jinja2's sandbox, with the globals that authors expect."""

    def raise_exception(message: str) -> NoReturn:
        raise TemplateError(message)

    def to_json(value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    try:
        return environment.from_string(template)
    except TemplateError as error:
        raise ModelFileError(f"The model's chat template is broken ({error}): use another file.") from error
