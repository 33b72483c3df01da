"""A reply that streams into its conversation. No Qt."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from app.series.conversation import Conversation, Exchange
from app.series.thinking import Splitter


@dataclass(slots=True, eq=False)
class Running:
    """`talk` may be shown or not; `kept_s` is when the reply last went to the disk."""

    talk: Conversation
    exchange: Exchange
    splitter: Splitter = field(default_factory=Splitter)
    kept_s: float = 0.0
    unkept: bool = False
    seen: bool = False  # the board has known its request

    def add(self, pieces: Sequence[str], output_tokens: int) -> tuple[str, bool]:
        """Take `pieces`, about a token each and the last of `output_tokens`.

        Returns what the answer has gained, and whether thinking began or ended with it.
        """
        exchange, splitter = self.exchange, self.splitter
        before, visible = (splitter.thinking, splitter.thought), []
        for still, piece in enumerate(pieces, start=1 - len(pieces)):
            inside = splitter.thinking
            visible.append(splitter.push(piece))
            if inside and not splitter.thinking:
                exchange.thought_tokens = max(exchange.thought_tokens, output_tokens + still)
        if splitter.thinking:
            exchange.thought_tokens = max(exchange.thought_tokens, output_tokens)
        exchange.reply += "".join(pieces)
        return "".join(visible), before != (splitter.thinking, splitter.thought)
