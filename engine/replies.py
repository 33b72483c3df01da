"""Replies to typed prompts: tokens become text, stop strings end them, conversations keep token ids."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.placeholder import PlaceholderCodec, PlaceholderDetokenizer
from engine.request import SamplingParams
from engine.text import THINK, Detokenizer, Message, StopChecker, TextCodec

Codec = TextCodec | PlaceholderCodec
_KEPT_CONVERSATIONS = 64


@dataclass(slots=True)
class Reply:
    """The text of one reply while it streams.

    `opening` is what the prompt has said of it already: the tag of the thinking part, where the chat template
    writes it. It goes before the first text, so that every reader finds the tag where other models put it.
    """

    messages: tuple[Message, ...]
    prompt: tuple[int, ...]
    detokenizer: Detokenizer | PlaceholderDetokenizer
    stops: StopChecker
    opening: str = ""
    parts: list[str] = field(default_factory=list)

    def push(self, token: int) -> tuple[str, bool]:
        """(text that became certain, stopped by a stop string)."""
        text, stopped = self.stops.push(self.detokenizer.push(token))
        return self._opened(text), stopped

    def finish(self) -> str:
        """The rest, when the reply ended by itself."""
        text, stopped = self.stops.push(self.detokenizer.finish())
        if not stopped:
            text += self.stops.finish()
        return self._opened(text)

    def _opened(self, text: str) -> str:
        if not text:
            return ""
        if not self.parts:
            text = self.opening + text
        self.parts.append(text)
        return text

    @property
    def text(self) -> str:
        return "".join(self.parts)


class Conversations:
    """Makes prompts. A conversation that goes on reuses the ids it already has, so its prefix hits."""

    def __init__(self, codec: Codec) -> None:
        self.codec = codec
        # (messages up to and with the reply) -> ids up to and with the reply
        self._kept: dict[tuple[tuple[str, str], ...], tuple[int, ...]] = {}

    def open(self, messages: Sequence[Message], sampling: SamplingParams) -> Reply:
        """Tokenise a conversation that ends with a user's turn."""
        ids: list[int] | None = None
        kept = self._kept.get(self._key(messages[:-1]))
        if kept is not None:
            ids = self.codec.continue_chat(kept, messages)
        prompt = tuple(ids if ids is not None else self.codec.encode_chat(messages))
        stops = () if sampling.ignore_eos else sampling.stop
        opening = f"{THINK}\n" if self.codec.opens_thinking(prompt) else ""
        return Reply(tuple(messages), prompt, self.codec.detokenizer(), StopChecker(stops), opening)

    def keep(self, reply: Reply, tokens: Sequence[int]) -> None:
        """The reply ended by itself: its ids serve the next turn. `tokens` are the generated ids."""
        ids = [t for t in tokens if t not in self.codec.eos_ids]
        whole = (*reply.messages, {"role": "assistant", "content": reply.text})
        self._kept[self._key(whole)] = (*reply.prompt, *ids)
        while len(self._kept) > _KEPT_CONVERSATIONS:
            del self._kept[next(iter(self._kept))]

    @staticmethod
    def _key(messages: Sequence[Message]) -> tuple[tuple[str, str], ...]:
        return tuple((m["role"], m["content"]) for m in messages)
