"""The forecast in its plainest form: one step after the other, every row counted by itself.

The router's own jumps from event to event; the tests hold it against this one, which leaves nothing to
be clever about.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.profiling.step_time import StepTimeModel
from engine.routing.forecast import Job


@dataclass
class Row:
    """A request that has a slot."""

    job: Job
    prefill: int
    decode: int
    context: int


def plain_forecast(
    model: StepTimeModel,
    slots: int,
    token_budget: int,
    active: Sequence[Job],
    queue: Sequence[Job],
    free_blocks: int,
    factor: float = 1.0,
) -> tuple[dict[int, float], dict[int, float]]:
    """(seconds until each first token, seconds until each end), by key."""
    first = {j.key: 0.0 for j in active if j.prefill <= 0}
    finish: dict[int, float] = {}
    rows = [Row(j, j.prefill, j.decode, j.context) for j in active]
    waiting, now = [replace(j, prefill=max(1, j.prefill)) for j in queue], 0.0
    while rows or waiting:
        if not rows:
            now = max(now, waiting[0].ready_s)
        while waiting and len(rows) < slots and waiting[0].ready_s <= now:
            if rows and waiting[0].blocks > free_blocks:
                break
            job = waiting.pop(0)
            free_blocks -= job.blocks
            rows.append(Row(job, job.prefill, job.decode, job.context))
        decoding = [row for row in rows if row.prefill <= 0]
        budget, chunks = token_budget - len(decoding), []
        for row in rows:
            if row.prefill > 0 and budget > 0:
                chunks.append((row, min(budget, row.prefill)))
                budget -= chunks[-1][1]
        now += factor * model.step_s(
            len(decoding),
            sum(row.context for row in decoding) + len(decoding),
            sum(length for _, length in chunks),
            sum(length * (row.context + length / 2) for row, length in chunks),
            len(chunks),
            others_busy=False,
        )
        for row in decoding:
            row.decode, row.context = row.decode - 1, row.context + 1
        for row, length in chunks:
            row.prefill, row.context = row.prefill - length, row.context + length
            if row.prefill == 0:
                row.decode -= 1
                first[row.job.key] = now
        for row in [row for row in rows if row.prefill <= 0 and row.decode <= 0]:
            finish[row.job.key] = now
            free_blocks += row.job.blocks
            rows.remove(row)
    return first, finish
