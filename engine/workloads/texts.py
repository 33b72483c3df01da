"""Endless plain prose and code, the same for the same seed on every machine.

Sentences and snippets are patterns with slots; a seeded generator picks the pattern and fills the slots.
The words are this project's own (`data/`).
"""

import random
import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib import resources

Tokenise = Callable[[str], list[int]]

_SLOT = re.compile(r"\$(?:(\w+)|\{(\w+)\}|\{'\$'\})")
_KINDS = {"prose": "\n", "code": "\n---\n"}


@cache
def _lines(name: str) -> tuple[str, ...]:
    text = (resources.files("engine.workloads") / "data" / f"{name}.txt").read_text(encoding="utf-8")
    return tuple(text.partition("\n")[2].strip().split(_KINDS.get(name, "\n")))  # line 1 is a remark


@cache
def _words() -> dict[str, tuple[str, ...]]:
    pairs = (line.split(": ", 1) for line in _lines("words"))
    return {slot: tuple(words.split(", ")) for slot, words in pairs}


def passages(kind: str, rng: random.Random) -> Iterator[str]:
    """Sentences ("prose") or snippets ("code") without end; each with the space or lines before it."""
    patterns = _lines(kind)
    while True:
        pattern = patterns[rng.randrange(len(patterns))]
        if kind == "prose":
            yield " " + _fill(pattern, rng, repeat=False)
        else:
            yield "\n\n" + _fill(pattern, rng, repeat=True)


def _fill(pattern: str, rng: random.Random, repeat: bool) -> str:
    """`repeat`: one word per slot name throughout, as identifiers need; numbers are drawn anew each time."""
    chosen: dict[str, str] = {}

    def word(match: re.Match[str]) -> str:
        slot = match[1] or match[2]
        if slot is None:
            return "$"  # written ${'$'}
        words = _words()[slot]
        if not repeat or slot == "small" or slot not in chosen:
            chosen[slot] = words[rng.randrange(len(words))]
        return chosen[slot]

    return _SLOT.sub(word, pattern)


class TokenSource:
    """Draws token lists of exact length from the endless text, and ids that differ from each other."""

    def __init__(self, tokenise: Tokenise, rng: random.Random) -> None:
        self._tokenise, self._rng = tokenise, rng
        self._streams = {kind: passages(kind, rng) for kind in _KINDS}
        self._openings: list[int] = []  # ids that start a word, each once, shuffled

    def tokens(self, count: int, kind: str = "prose") -> tuple[int, ...]:
        """The next `count` token ids of running text."""
        out: list[int] = []
        while len(out) < count:
            piece = self._tokenise(next(self._streams[kind]))
            assert piece, "tokenise gave nothing for a sentence"
            out += piece
        return tuple(out[:count])

    def distinct(self, lengths: list[int], kind: str = "prose") -> list[tuple[int, ...]]:
        """One text a length; no two start with the same token, so that they share no block."""
        if len(self._openings) < len(lengths):
            self._openings = self._make_openings(len(lengths))
        openings = [self._openings.pop() for _ in lengths]
        return [
            (opening, *self.tokens(length - 1, kind))
            for opening, length in zip(openings, lengths, strict=True)
        ]

    def _make_openings(self, wanted: int) -> list[int]:
        words = [word for slot in _words().values() for word in slot]
        ids = dict.fromkeys(self._tokenise(" " + word)[0] for word in words)
        for _ in range(wanted):  # a coarse tokeniser may open every word alike
            if len(ids) >= wanted:
                break
            ids |= dict.fromkeys(self.tokens(64))
        if len(ids) < wanted:
            raise ValueError(f"tokenise yields only {len(ids)} different ids and {wanted} are needed")
        openings = list(ids)
        self._rng.shuffle(openings)
        return openings
