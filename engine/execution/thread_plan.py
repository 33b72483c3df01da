"""How many threads each kind of step takes: tried at load, since a step of one row may be too short to share.

More threads meet at the end of every product. For few rows that can cost more than it gains, and what pays
depends on the machine and the model. So a step of each kind is tried with all threads, with half of them, and
so on. The counts take turns and their quick turns count, so that a busy moment decides little: where other
jobs stay, `thread_guard` sees it.
"""

import logging
import time
from collections.abc import Callable
from functools import partial

import torch

from engine.request import GREEDY, RequestId
from engine.scheduling.batch import Batch, BatchRow

ROWS = (1, 2, 4, 8)  # kinds of decode steps: a step belongs to the largest that it reaches
PROMPT = 0  # the kind of a step with a piece of a prompt
PROMPT_TOKENS = 128
_CONTEXT = 128  # tokens that each row reads
_TURNS = 5
_PATIENCE_S = 0.3  # a kind of step: two turns are taken at least
_HOPELESS = 1.3  # half the threads take longer than this, so fewer still are not tried
_ENOUGH = 1.03  # fewer threads win a near tie: they leave cores to others
_log = logging.getLogger(__name__)
_now_s = time.perf_counter


def kind_of(batch: Batch) -> int:
    """`PROMPT`, or the entry of `ROWS` that stands for the batch."""
    if any(row.length > 1 for row in batch.rows):
        return PROMPT
    return max(rows for rows in ROWS if rows <= len(batch.rows))


def ladder(threads: int) -> list[int]:
    """All threads, half of them, and so on down to one."""
    counts = [threads]
    while counts[-1] > 1:
        counts.append(counts[-1] // 2)
    return counts


def trial_batch(kind: int, blocks: int, context: int, reads: int = _CONTEXT) -> Batch | None:
    """A step of a kind in an empty cache of `blocks` blocks, each row reading up to `reads` tokens; None
    where the cache is too small for it."""
    rows = max(1, kind)
    each = min(-(-reads // 16), blocks // rows, context // 16)
    if each < 1:
        return None
    length = min(PROMPT_TOKENS, 16 * each) if kind == PROMPT else 1
    start = 0 if kind == PROMPT else 16 * each - 1
    tokens = [5 + n % 50 for n in range(length)]
    return Batch(
        [
            BatchRow(
                RequestId(n),
                n,
                tokens,
                start,
                list(range(n * each, (n + 1) * each)),
                True,
                kind != PROMPT,
                GREEDY,
                tokens,
                start + 1,
            )
            for n in range(rows)
        ]
    )


def fastest_count(step: Callable[[], object], threads: int, use: Callable[[int], object]) -> int:
    """The count of threads for a step. `use` sets the count; `step` runs the step once."""
    alive = ladder(threads)
    times: dict[int, list[float]] = {count: [] for count in alive}
    begun_s = _now_s()
    for turn in range(-1, _TURNS):  # the first one builds kernels and does not count
        if turn >= 2 and _now_s() - begun_s > _PATIENCE_S:
            break
        for count in list(alive):
            use(count)
            started_s = _now_s()
            step()
            if turn >= 0:
                times[count].append(_now_s() - started_s)
        if turn == 0:
            first = {count: times[count][0] for count in alive}
            while len(alive) > 1 and first[alive[-1]] > _HOPELESS * first[alive[-2]]:
                alive.pop()
    quick = {count: sorted(times[count])[len(times[count]) // 4] for count in alive}
    best = min(quick.values())
    return min(count for count in alive if quick[count] <= _ENOUGH * best)


def plan_threads(
    run: Callable[[Batch], object], threads: int, most_rows: int, blocks: int, context: int
) -> dict[int, int]:
    """Threads for every kind of step with up to `most_rows` rows. Must be called before the cache holds
    anything, by the thread that computes; it leaves torch with `threads` threads."""
    kinds = [PROMPT, *(rows for rows in ROWS if rows == 1 or rows <= most_rows)]
    if threads == 1:
        return dict.fromkeys(kinds, 1)
    plan = {}
    try:
        for kind in kinds:
            batch = trial_batch(kind, blocks, context)
            if batch is None:
                plan[kind] = threads
                continue
            plan[kind] = fastest_count(partial(run, batch), threads, torch.set_num_threads)
    finally:
        torch.set_num_threads(threads)
    _log.info("thread plan: %s", describe(plan))
    return plan


def describe(plan: dict[int, int]) -> str:
    """The plan in words, such as "1 row 1, 4 rows 2, prompts 2"."""
    words = [f"{rows} row{'s' * (rows > 1)} {plan[rows]}" for rows in ROWS if rows in plan]
    return ", ".join([*words, f"prompts {plan[PROMPT]}"])
