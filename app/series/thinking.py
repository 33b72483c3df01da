"""The part of a reply in which a model thinks: `<think>…</think>` before the answer. No Qt.

Where a chat template opens that part, the engine begins the reply with the tag. Only the beginning of a
reply can be thinking, as the models that do it write it; the same words later on, or in what a user typed,
are words.
"""

OPEN, CLOSE = "<think>", "</think>"


def split(reply: str) -> tuple[str, str, bool]:
    """(thinking, answer, still thinking) of a reply as far as it has come."""
    start = reply.lstrip()
    if OPEN.startswith(start):  # nothing yet, or the first letters of the tag
        return "", "", bool(start)
    if not start.startswith(OPEN):
        return "", reply, False
    thought, close, answer = start[len(OPEN) :].partition(CLOSE)
    # Some models write the tag once more where their chat template has written it already.
    return thought.strip().removeprefix(OPEN).strip(), answer.lstrip("\n"), not close


class Splitter:
    """The same for a reply that streams, without reading it again: what `push` gave adds up to the answer."""

    def __init__(self) -> None:
        self.thinking = False
        self.thought = False  # there was, or is, a thinking part
        self._held = ""  # may be the beginning of a tag
        self._begun = False  # the answer has its first letter
        self._decided = False  # whether the reply begins with thinking

    def push(self, text: str) -> str:
        """The part of `text`, and of what was held back before, that belongs to the answer."""
        if not self._decided:
            self._held += text
            start = self._held.lstrip()
            if OPEN.startswith(start):
                return ""
            self._decided = True
            text, self._held = self._held, ""
            if not start.startswith(OPEN):
                self._begun = True
                return text
            self.thinking = self.thought = True
            text = start[len(OPEN) :]
        if self.thinking:
            self._held += text
            _, close, rest = self._held.partition(CLOSE)
            if not close:
                self._held = self._held[-(len(CLOSE) - 1) :]
                return ""
            self.thinking, self._held, text = False, "", rest
        if not self._begun:
            text = text.lstrip("\n")
            self._begun = bool(text)
        return text
