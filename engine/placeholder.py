"""Text for backends that compute nothing: placeholder words in, placeholder words out."""

from collections.abc import Mapping, Sequence

_TEXT = """placeholder text stands where a model would write; this backend only waits as its profile says,
and every word here is filler that means nothing at all"""
_WORDS = tuple(_TEXT.split())
VOCABULARY = 512


class PlaceholderCodec:
    """The part of `TextCodec` that the engine uses, over a vocabulary of 512 placeholder words."""

    eos_ids: frozenset[int] = frozenset()

    def __init__(self, vocabulary: int = VOCABULARY) -> None:
        self._vocabulary = vocabulary

    def encode(self, text: str, add_special: bool = True) -> list[int]:
        """One id a word, the same in every process."""
        return [
            sum((i + 1) * 31 * ord(c) for i, c in enumerate(word)) % self._vocabulary for word in text.split()
        ]

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        return self.encode(" ".join(f"{m['role']}: {m['content']}" for m in messages))

    def continue_chat(self, kept: Sequence[int], messages: Sequence[Mapping[str, str]]) -> list[int] | None:
        return [*kept, *self.encode(messages[-1]["content"])]

    def opens_thinking(self, prompt: Sequence[int]) -> bool:
        return False

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        return "".join(self.word(i) for i in ids).lstrip()

    def detokenizer(self) -> "PlaceholderDetokenizer":
        return PlaceholderDetokenizer(self)

    @staticmethod
    def word(token_id: int) -> str:
        return " " + _WORDS[token_id % len(_WORDS)]


class PlaceholderDetokenizer:
    """Every token is a whole word, so nothing is ever held back."""

    def __init__(self, codec: PlaceholderCodec) -> None:
        self._codec = codec

    def push(self, token_id: int) -> str:
        return self._codec.word(token_id)

    def finish(self) -> str:
        return ""
