"""A trace as a workload: re-timed, clipped to the context, with text that shares as the trace says."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from engine.errors import ConfigError
from engine.request import SamplingParams
from engine.workloads.presets import PlannedRequest, Prompt, Workload
from engine.workloads.texts import Tokenise, TokenSource
from engine.workloads.traces import Trace, TraceRow

_TEXT_TOKENS = 4096  # of running text, from which every block is cut


def retimed(trace: Trace, speed: float | None = None, rate_rps: float | None = None) -> Trace:
    """The same trace `speed` times as fast, or at `rate_rps` requests a second on average."""
    if speed is None and rate_rps is None:
        return trace
    factor = speed if speed is not None else 0.0
    if rate_rps is not None:
        if trace.span_s <= 0:
            return trace  # all at once: there is no rate to change
        factor = rate_rps * trace.span_s / max(1, len(trace.rows) - 1)
    if not 1e-9 < factor < 1e9:
        raise ConfigError(f"The trace cannot run {factor:g} times as fast: use a number above 0.")
    rows = tuple(replace(r, at_s=round(r.at_s / factor, 6)) for r in trace.rows)
    return replace(trace, rows=rows, notes=(*trace.notes, f"{factor:.4g} times as fast as recorded"))


def clipped(trace: Trace, context_tokens: int) -> Trace:
    """Every request cut to the context: a reply to a quarter of it, a prompt to what the reply leaves."""
    most_new = max(1, context_tokens // 4)
    longest = min(most_new, max(r.output_tokens for r in trace.rows))
    rows, cut = [], 0
    for row in trace.rows:
        new = min(row.output_tokens, most_new)
        budget = min(row.max_new_tokens or longest, most_new)
        room = context_tokens - budget
        prompt = min(row.prompt_tokens, room)
        cut += (prompt, new) != (row.prompt_tokens, row.output_tokens)
        rows.append(replace(row, prompt_tokens=prompt, output_tokens=min(new, budget), max_new_tokens=budget))
    words = f"{cut:,} of {len(rows):,} cut to a context of {context_tokens:,}"
    return replace(trace, rows=tuple(rows), notes=(*trace.notes, words) if cut else trace.notes)


@dataclass(slots=True)
class _Text:
    """Blocks of text by name: the same name, the same tokens; another name differs from its first token."""

    pool: Prompt
    seed: int
    alphabet: list[int] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)

    def block(self, name: str, length: int) -> Prompt:
        number = self.numbers.setdefault(name, len(self.numbers))
        start = random.Random(f"{self.seed}:{name}").randrange(len(self.pool))
        out = [self.pool[(start + i) % len(self.pool)] for i in range(length)]
        # Two ids write the number of the block, so that no two blocks can be mistaken for each other.
        base = len(self.alphabet)
        for place, digit in enumerate((number % base, number // base % base)):
            if place < length:
                out[place] = self.alphabet[digit]
        return tuple(out)


def trace_workload(trace: Trace, tokenise: Tokenise, context_tokens: int, seed: int = 0) -> Workload:
    """Prompts as token ids, clipped to `context_tokens`. Deterministic for a seed and a tokeniser."""
    trace = clipped(trace, context_tokens)
    source = TokenSource(tokenise, random.Random(f"{trace.name}:{seed}"))
    pool = source.tokens(_TEXT_TOKENS)
    text = _Text(pool, seed, list(dict.fromkeys(pool)))
    requests, seeding = [], dict[str, Prompt]()
    for i, row in enumerate(trace.rows):
        assert row.max_new_tokens is not None
        # A reply of known length says so; the others stop where the trace did, seen by the scheduler alone.
        known = row.output_tokens == row.max_new_tokens
        sampling = SamplingParams(
            temperature=0.0, top_p=1.0, max_new_tokens=row.max_new_tokens, ignore_eos=known
        )
        prompt = _prompt(row, i, trace.block_tokens, text, tokenise)[: context_tokens - row.max_new_tokens]
        if trace.warm and row.prefix:
            seeding[row.prefix] = prompt[: row.prefix_tokens]
        reply = None if known else row.output_tokens
        requests.append(PlannedRequest(row.at_s, prompt, sampling, row.tag, reply))
    words = f"{trace.kind}, {len(requests):,} requests over {trace.span_s:,.1f} s"
    description = "; ".join((words, *trace.notes))
    return Workload(trace.name, seed, tuple(requests), tuple(seeding.values()), description)


def _prompt(row: TraceRow, number: int, block_tokens: int, text: _Text, tokenise: Tokenise) -> Prompt:
    parts: list[Prompt] = []
    if row.prefix:
        parts.append(text.block(f"prefix {row.prefix}", row.prefix_tokens))
    if row.text:
        parts.append(tuple(tokenise(row.text)))
    for name in row.hashes:
        parts.append(text.block(f"hash {name}", block_tokens))
    length = sum(len(p) for p in parts)
    wanted = length if row.text else max(row.prompt_tokens, 1)
    if length < wanted:
        parts.append(text.block(f"request {number}", wanted - length))
    return _joined(parts)[:wanted]


def _joined(parts: Iterable[Prompt]) -> Prompt:
    return tuple(token for part in parts for token in part)
