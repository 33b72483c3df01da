"""What calibration runs: groups of requests whose steps between them show every term of the model.

Torch-free and pure: a plan is data, the calibrator runs it through the real engine.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from engine.request import SamplingParams

PROMPT_TOKENS, NEW_TOKENS = 512, 128  # of the isolated rates
CONTEXTS = (64, 512, 1024)
PREFILLS = (16, 64, 256, 512)
_DECODE_STEPS = 12


@dataclass(frozen=True, slots=True)
class Point:
    """Requests submitted together; the next point begins when all have ended."""

    what: str
    prompts: tuple[tuple[int, ...], ...]
    new_tokens: int
    measured: bool = True

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
    return Point("warm-up", (_Tokens(vocabulary, seed).prompt(64),), 8, measured=False)


def rates_point(vocabulary: int, seed: int) -> Point:
    """512 tokens in and 128 out, alone."""
    return Point("isolated rates", (_Tokens(vocabulary, seed + 1).prompt(PROMPT_TOKENS),), NEW_TOKENS)


def step_points(vocabulary: int, slots: int, context_tokens: int, kv_blocks: int, seed: int) -> list[Point]:
    """Decode rows at three contexts, prefill at two starts, mixed steps; within slots, context and pool."""
    tokens = _Tokens(vocabulary, seed + 2)
    room = min(context_tokens, kv_blocks * 16) - 64
    points = []
    for context in (c for c in CONTEXTS if c + 32 <= room):
        prefix = tokens.prompt(context)
        points.append(Point(f"prefix of {context}", (prefix,), 1))
        for rows in _row_counts(slots):
            # The rows share their prefix, so that little is computed before they decode together.
            prompts = tuple(tokens.prompt(16, prefix) for _ in range(rows))
            points.append(Point(f"{rows} rows at {context}", prompts, _DECODE_STEPS))
    base = tokens.prompt(min(512, room // 2 // 16 * 16))
    points.append(Point("a prefix to start from", (base,), 1))
    for length in (p for p in PREFILLS if len(base) + p <= room):
        points.append(Point(f"prefill {length}", (tokens.prompt(length),), 1))
        points.append(Point(f"prefill {length} at {len(base)}", (tokens.prompt(length, base),), 1))
    long = min(1000, room)
    for rows in _row_counts(max(1, slots - 1)):
        # The short ones decode while the long one still prefills: mixed steps.
        prompts = (*(tokens.prompt(16) for _ in range(rows)), tokens.prompt(long))
        points.append(Point(f"{rows} rows beside a prefill", prompts, 3))
    return points


def pair_point(vocabulary: int, slots: int, seed: int) -> Point:
    """A steady load, for two backends at once: its steps against the model show the interference."""
    tokens = _Tokens(vocabulary, seed + 3)
    rows = max(1, min(4, slots))
    return Point("both backends busy", tuple(tokens.prompt(64) for _ in range(rows)), 48)


def _row_counts(slots: int) -> Iterator[int]:
    rows = 1
    while rows <= slots:
        yield rows
        rows *= 2
    if rows // 2 != slots:
        yield slots
