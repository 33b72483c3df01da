"""A conversation: prompts, replies and who wrote them; what the engine is asked next. No Qt."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from app.series.board import BackendView, RequestRow
from app.series.thinking import split
from app.series.words import figure
from engine.request import FinishReason, RequestState

PROBLEMS = {
    FinishReason.ERROR: "Its backend stopped before the end.",
    FinishReason.CONTEXT: "The context is full: start a new conversation.",
}
TITLE_CHARS = 60


@dataclass(slots=True)
class Exchange:
    """One prompt and its reply. `rank` and `backend` are known once it was routed."""

    prompt: str
    request_id: int  # 0: its engine is gone, and its receipt with it
    reply: str = ""  # as it came, with its thinking part
    done: bool = False
    rank: int | None = None
    backend: str = ""
    figures: str = ""  # "0.05 s TTFT, 287 tok/s, 496 cached"
    note: str = ""  # why it did not go to the fastest
    problem: str = ""  # why it ended without a whole answer
    progress: str = ""  # while nothing has come: "reading 312 of 516 tokens"
    tokens: int = 0  # prompt and reply, once known
    thought_tokens: int = 0  # of the reply, spent on thinking
    row: int = 0  # in the store; 0 = not kept

    @property
    def answer(self) -> str:
        """The reply without its thinking part: what is copied, exported and told to the model."""
        return split(self.reply)[1]

    @property
    def thinking(self) -> str:
        return split(self.reply)[0]

    def look(self) -> tuple[object, ...]:
        """What is written around the reply: it is drawn again when this changes."""
        return self.rank, self.backend, self.figures, self.note, self.progress, self.thought_tokens


@dataclass(slots=True)
class Conversation:
    """`key` is its place in the store, 0 until the first prompt."""

    key: int = 0
    title: str = ""
    system: str = ""
    exchanges: list[Exchange] = field(default_factory=list)

    def messages(self, prompt: str, before: int | None = None) -> list[dict[str, str]]:
        """What the engine gets, with the exchanges `before` that index: thinking is left out as the chat
        templates do, and a prompt without any answer as well, since two users in a row confuse."""
        out = [{"role": "system", "content": self.system}] if self.system else []
        for exchange in self.exchanges[:before]:
            if answer := exchange.answer:
                out.append({"role": "user", "content": exchange.prompt})
                out.append({"role": "assistant", "content": answer})
        return [*out, {"role": "user", "content": prompt}]

    def copy(self) -> "Conversation":
        """A second one that begins with the same exchanges; not kept yet."""
        exchanges = [
            replace(e, row=0)
            if e.done
            else replace(e, row=0, done=True, progress="", problem="Duplicated before its end.")
            for e in self.exchanges
        ]
        return Conversation(0, copy_title(self.title), self.system, exchanges)

    def used_tokens(self) -> int:
        """Of the context, by the last exchange; 0 where nothing is known."""
        return next((e.tokens for e in reversed(self.exchanges) if e.tokens), 0)

    def as_markdown(self) -> str:
        lines = [f"# {self.title or 'Conversation'}", ""]
        if self.system:
            lines += [f"*System prompt:* {self.system}", ""]
        for e in self.exchanges:
            lines += ["## Prompt", "", e.prompt, "", "## Reply", "", e.answer or "(none)", ""]
            signature = ", ".join(part for part in (e.backend, e.figures, e.problem) if part)
            if signature:
                lines += [f"*{signature}*", ""]
        return "\n".join(lines)

    def as_json(self) -> str:
        exchanges = []
        for e in self.exchanges:
            thinking, answer, _ = split(e.reply)
            exchanges.append(
                {"prompt": e.prompt, "reply": answer, **({"thinking": thinking} if thinking else {}),
                 "backend": e.backend, "figures": e.figures, "note": e.note, "problem": e.problem,
                 "tokens": e.tokens}
            )  # fmt: skip
        data = {"format": "offramp-conversation", "version": 1, "title": self.title, "system": self.system}
        return json.dumps({**data, "exchanges": exchanges}, indent=2, ensure_ascii=False) + "\n"


def title_of(prompt: str) -> str:
    """The first line of the first prompt, short enough for a list."""
    line = next((part.strip() for part in prompt.splitlines() if part.strip()), "New conversation")
    return line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1].rstrip() + "…"


def copy_title(title: str) -> str:
    """ "Cats" becomes "Cats (copy)", that "Cats (copy 2)"."""
    found = re.fullmatch(r"(.*) \(copy(?: (\d+))?\)", title, re.DOTALL)
    if found is None:
        return f"{title or 'Conversation'} (copy)"
    return f"{found[1]} (copy {int(found[2] or 1) + 1})"


def describe(exchange: Exchange, row: RequestRow, view: BackendView | None) -> None:
    """Write into `exchange` what is known of its request by now."""
    if view is not None:
        exchange.rank, exchange.backend = view.info.rank, view.info.label
    parts = []
    if row.first_token_s is not None:
        ttft_s = row.first_token_s - row.arrival_s
        shown = f"{ttft_s:.2f} s" if ttft_s >= 0.005 else f"{ttft_s * 1000:.1f} ms"
        parts.append(f"{shown} TTFT")
        rate = _rate(row)
        if rate is not None:
            parts.append(f"{rate:.0f} tok/s")
        if row.cached_tokens is not None:
            parts.append(f"{figure(row.cached_tokens)} cached")
    elif view is not None and row.state is not RequestState.FINISHED:
        parts.append("waiting")
    if row.reason is FinishReason.ABORT:
        parts.append("stopped")
    exchange.figures = ", ".join(parts)
    exchange.progress = _progress(row, view)
    exchange.tokens = row.prompt_tokens + row.output_tokens
    if row.receipt is not None and exchange.rank:  # not the fastest: say why without being asked
        exchange.note = row.receipt.reason
    exchange.problem = (row.message or PROBLEMS.get(row.reason, "")) if row.reason in PROBLEMS else ""


def _rate(row: RequestRow) -> float | None:
    """Decode speed of a finished reply, without its prefill."""
    if row.state is not RequestState.FINISHED or not row.finished_s or row.output_tokens < 2:
        return None
    times = row.token_times_s
    first, last = (times[0], times[-1]) if len(times) > 1 else (row.first_token_s, row.finished_s)
    count = len(times) if len(times) > 1 else row.output_tokens
    return (count - 1) / (last - first) if first is not None and last > first else None


def _progress(row: RequestRow, view: BackendView | None) -> str:
    """What happens while no token has come."""
    if view is None or row.first_token_s is not None or row.state is RequestState.FINISHED:
        return ""
    ahead = 0
    for load in view.load.requests:
        if load.request_id == row.request_id:
            if not load.active:
                return f"{figure(ahead)} ahead of it in the queue" if ahead else "next in the queue"
            read = load.prompt_tokens - load.prefill_remaining
            return f"reading {figure(read)} of {figure(load.prompt_tokens)} tokens"
        ahead += not load.active
    return "on its way to the backend"


def unfinished(exchanges: Sequence[Exchange]) -> None:
    """Loaded from a store: what had no end when the window went away has one now."""
    for exchange in exchanges:
        if not exchange.done:
            exchange.done = True
            exchange.problem = exchange.problem or "Offramp ended before the reply did."
