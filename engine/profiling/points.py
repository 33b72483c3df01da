"""What calibration runs: groups of requests whose steps between them show every term of the model.

Torch-free and pure: a plan is data, the calibrator runs it through the real engine.
"""

import random
from dataclasses import dataclass

from engine.request import SamplingParams

PROMPT_TOKENS, NEW_TOKENS = 512, 128  # of the isolated rates
OWN_CONTEXTS, SHARED_CONTEXT = (64, 512), 1024  # of decode rows: each its own, or one for all
PREFILLS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048)  # entries of the prefill table
_DEEP_PREFILLS = (16, 128, 512)  # measured behind the longest context as well
_LONG = (600, 1000)  # prompts that still prefill while others decode
_ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
_OWN_PREFIXES = 4  # so many long contexts at once; more rows share them
_ROUNDS = 3
_DECODE_STEPS = 6  # tokens of each row in each round
_SPARE_TOKENS = 64  # of context and pool, beside the contexts of a point


@dataclass(frozen=True, slots=True)
class Point:
    """Requests submitted together; the next point begins when all have ended.

    Points of one name are repeats of each other. `only` says on which of the stage's backends it runs, by
    place; None = on all of them at once.
    """

    what: str
    prompts: tuple[tuple[int, ...], ...]
    new_tokens: int
    measured: bool = True
    only: int | None = None

    @property
    def sampling(self) -> SamplingParams:
        return SamplingParams(temperature=0.0, top_p=1.0, max_new_tokens=self.new_tokens, ignore_eos=True)


class _Tokens:
    """Random prompts, so that nothing is restored but what a plan means to share."""

    def __init__(self, vocabulary: int, seed: int) -> None:
        self._draws = random.Random(seed)
        self._vocabulary = vocabulary

    def prompt(self, tokens: int, prefix: tuple[int, ...] = ()) -> tuple[int, ...]:
        return prefix + tuple(self._draws.randrange(self._vocabulary) for _ in range(tokens))


def warm_up(vocabulary: int, seed: int) -> Point:
    """Kernels choose their paths and pages are touched before anything is timed."""
    return Point("warm-up", (_Tokens(vocabulary, seed).prompt(PROMPT_TOKENS),), 8, measured=False)


def rates_point(vocabulary: int, seed: int) -> Point:
    """512 tokens in and 128 out, alone."""
    return Point("isolated rates", (_Tokens(vocabulary, seed + 1).prompt(PROMPT_TOKENS),), NEW_TOKENS)


def step_points(
    vocabulary: int, slots: int, context_tokens: int, kv_blocks: int, seed: int, token_budget: int = 512
) -> list[Point]:
    """Decode rows at three contexts, prefill behind three, mixed steps; within slots, budget, context, pool.

    Every prefill length runs once before it counts: libraries prepare a kernel for each new shape. Repeats
    come in later rounds, not one after another: other programs then disturb some of them and not all.
    """
    tokens = _Tokens(vocabulary, seed + 2)
    room = min(context_tokens, kv_blocks * 16) - _SPARE_TOKENS
    sizes = [n for n in PREFILLS if n <= min(room, token_budget)] or [max(1, room)]
    points = [Point("warm-up", (tokens.prompt(n),), 2, measured=False) for n in sizes]
    contexts: dict[int, list[tuple[int, ...]]] = {}
    for context in (c for c in OWN_CONTEXTS if c + 32 <= room):
        count = max(1, min(slots, _OWN_PREFIXES, kv_blocks * 16 // (2 * context)))
        contexts[context] = [tokens.prompt(context) for _ in range(count)]
    if room >= SHARED_CONTEXT + 32:
        contexts[SHARED_CONTEXT] = [tokens.prompt(SHARED_CONTEXT)]
    for context, prefixes in contexts.items():
        name = f"prefill {context}" if context in sizes else f"a context of {context}"
        points += [Point(name, (prefix,), 1) for prefix in prefixes]
    bases = [(), *(prefixes[0] for context, prefixes in contexts.items() if context != OWN_CONTEXTS[0])]
    for round_ in range(_ROUNDS):
        for context, prefixes in contexts.items():
            points += _decode(tokens, context, prefixes, slots)
        for base in bases:
            for size in sizes if len(base) < SHARED_CONTEXT else _DEEP_PREFILLS:
                if len(base) + size <= room and (size < 64 or round_ != 1):
                    name = f"prefill {size} behind {len(base)}" if base else f"prefill {size}"
                    points.append(Point(name, (tokens.prompt(size, base),), 1))
    for long in (n for n in _LONG if n <= room):
        for rows in sorted({1, max(1, slots - 1)}):
            # The short ones decode while the long one still prefills: mixed steps.
            prompts = (*(tokens.prompt(16) for _ in range(rows)), tokens.prompt(long))
            points.append(Point(f"{rows} rows beside a prefill of {long}", prompts, 3))
    return points


def _decode(tokens: _Tokens, context: int, prefixes: list[tuple[int, ...]], slots: int) -> list[Point]:
    """Rows behind a context that is in the cache already, so that little is computed before they decode."""
    points = []
    for rows in _row_counts(slots):
        prompts = tuple(tokens.prompt(16, prefixes[i % len(prefixes)]) for i in range(rows))
        points.append(Point(f"{rows} rows at {context}", prompts, _DECODE_STEPS))
    return points


def pair_points(vocabulary: int, slots: int, backends: int, seed: int) -> list[Point]:
    """A steady load, on each backend alone and then on all at once: the difference is the interference."""
    tokens = _Tokens(vocabulary, seed + 3)
    rows = max(1, min(4, slots))

    def load(what: str, new_tokens: int, only: int | None = None) -> Point:
        return Point(what, tuple(tokens.prompt(64) for _ in range(rows)), new_tokens, only=only)

    return [*(load(ALONE, 24, place) for place in range(backends)), load(TOGETHER, 48)]


ALONE, TOGETHER = "alone", "all backends busy"


def _row_counts(slots: int) -> list[int]:
    return sorted({n for n in _ROWS if n <= slots} | {slots})
