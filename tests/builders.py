"""Builders for tests that need no weights: requests, a scheduler, and a cache that remembers every token.

`Memory` is the device of these tests. It stores the token id of every position in its block and refuses to
compute a row whose earlier positions do not hold this request's own tokens: a wrong block table, a block
shared too early, a position skipped or written by two requests all show at once.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from engine.config import BLOCK_TOKENS
from engine.kv.manager import KvManager
from engine.profiling.step_time import StepTimeModel
from engine.request import GREEDY, FinishReason, Request, RequestId
from engine.scheduling.batch import Batch
from engine.scheduling.policies import make_policy
from engine.scheduling.scheduler import Scheduler
from engine.step_report import Ending

VOCABULARY = 97
# As a calibration gives it: a table of prefill sizes, and chunks that read the cache.
MEASURED = StepTimeModel(
    ((1, 0.012), (2, 0.017), (4, 0.020)),
    context_s=2.7e-6,
    attention_s=4e-8,
    mixed_s=4e-3,
    chunk_s=5e-3,
    interference=0.04,
    prefill_table_s=((8, 0.030), (64, 0.060), (512, 0.110)),
    start_s=2e-6,
)


def make_request(
    request_id: int = 1,
    prompt: Sequence[int] | int = 40,
    new: int = 8,
    *,
    ignore_eos: bool = False,
    context_cut: bool = False,
    arrival_s: float = 0.0,
    tag: str = "",
) -> Request:
    """A greedy request; `prompt` is its ids or a number of distinct ones nobody else has."""
    ids = tuple(prompt) if not isinstance(prompt, int) else unlike(request_id, prompt)
    sampling = type(GREEDY)(temperature=0.0, top_p=1.0, max_new_tokens=new, ignore_eos=ignore_eos)
    return Request(RequestId(request_id), ids, sampling, arrival_s, tag, context_cut=context_cut)


def unlike(seed: int, count: int) -> tuple[int, ...]:
    """`count` ids that share no block with those of another seed."""
    return tuple(1_000 + seed * 10_000 + i for i in range(count))


def make_kv(blocks: int = 64, salt: str = "test") -> KvManager:
    return KvManager(blocks, salt)


def make_scheduler(
    policy: str = "fcfs",
    *,
    slots: int = 4,
    budget: int = 64,
    blocks: int = 64,
    eos: Sequence[int] = (),
) -> Scheduler:
    return Scheduler(make_kv(blocks), make_policy(policy), slots, budget, eos)


def next_token(tokens: Sequence[int]) -> int:
    """The fake model: a function of every token so far and of their order."""
    text = ",".join(map(str, tokens)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=4).digest(), "little") % VOCABULARY


def sequential(request: Request, eos: Sequence[int] = ()) -> tuple[list[int], FinishReason]:
    """What the model says when nobody else is there: the truth for every schedule."""
    tokens = list(request.prompt)
    while True:
        tokens.append(next_token(tokens))
        new = tokens[request.prompt_tokens :]
        if new[-1] in eos and not request.sampling.ignore_eos:
            return new, FinishReason.STOP
        if len(new) == request.sampling.max_new_tokens:
            return new, FinishReason.CONTEXT if request.context_cut else FinishReason.LENGTH


class Memory:
    """Paged storage of token ids instead of keys and values."""

    def __init__(self, blocks: int) -> None:
        self._cells: list[list[int | None]] = [[None] * BLOCK_TOKENS for _ in range(blocks)]

    def execute(self, batch: Batch) -> list[int]:
        """Write all rows, as a real step does, then read what each row attends to."""
        written: dict[tuple[int, int], int] = {}
        for row in batch.rows:
            assert row.length > 0, "an empty row"
            assert row.tokens == row.history[row.start : row.context], "a row computes other tokens"
            assert len(row.blocks) * BLOCK_TOKENS >= row.context, "the block table is too short"
            assert len(set(row.blocks)) == len(row.blocks), "a block stands twice in one table"
            for position in range(row.start, row.context):
                cell = row.blocks[position // BLOCK_TOKENS], position % BLOCK_TOKENS
                assert cell not in written, f"requests {written[cell]} and {row.request_id} write one cell"
                written[cell] = row.request_id
                self._cells[cell[0]][cell[1]] = row.history[position]
        out = []
        for row in batch.rows:
            seen = [self._cells[row.blocks[p // BLOCK_TOKENS]][p % BLOCK_TOKENS] for p in range(row.context)]
            assert seen == row.history[: row.context], f"request {row.request_id} reads another's tokens"
            assert row.samples == (row.context == len(row.history))
            if row.samples:
                out.append(next_token(row.history))
        return out


@dataclass
class Drive:
    """A scheduler on `Memory`, checked after every step."""

    scheduler: Scheduler
    budget: int
    memory: Memory = field(init=False)
    outputs: dict[int, list[int]] = field(default_factory=dict)
    reasons: dict[int, FinishReason] = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list)
    lengths: list[dict[int, int]] = field(default_factory=list)  # tokens of each row, one dict a step
    admitted: list[int] = field(default_factory=list)
    cached: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.memory = Memory(self.scheduler.kv.pool.num_blocks)

    def add(self, *requests: Request, estimate: int = 0) -> None:
        for request in requests:
            self.scheduler.add(request, estimate)

    def step(self) -> Batch:
        """One step, with every promise of a schedule checked."""
        scheduler = self.scheduler
        batch = scheduler.schedule(0.0)
        scheduler.check_integrity()
        rows = batch.rows
        assert sum(r.length for r in rows) <= self.budget, "the token budget was exceeded"
        assert len({r.request_id for r in rows}) == len(rows), "a request has two rows"
        assert len({r.slot for r in rows}) == len(rows), "a slot is used twice"
        assert all(0 <= r.slot < scheduler.slots for r in rows)
        kinds = [r.is_decode for r in rows]
        assert kinds == sorted(kinds, reverse=True), "decode rows come first"
        decoding = {r.request_id for r in scheduler.load().requests if r.active and r.generated}
        assert decoding == {r.request_id for r in rows if r.is_decode}, "a decoding request was left out"
        outcome = scheduler.update(batch, self.memory.execute(batch))
        scheduler.check_integrity()
        for request_id, token in outcome.tokens:
            self.outputs.setdefault(request_id, []).append(token)
        for ending in outcome.ended:
            self._end(ending)
        admitted, adopted = scheduler.take_admissions()
        self.admitted += [a.request_id for a in admitted]
        self.cached |= {a.request_id: a.cached_tokens for a in admitted} | dict(adopted)
        self.batches.append(batch)
        self.lengths.append({r.request_id: r.length for r in rows})
        return batch

    def run(self, until: Callable[[], bool] | None = None, most: int = 5_000) -> None:
        """Step until `until` holds or nothing is left. A schedule that makes no progress fails."""
        for _ in range(most):
            if self.scheduler.idle or (until is not None and until()):
                return
            assert self.step().rows, "requests are waiting and the step is empty"
        raise AssertionError(f"not done after {most} steps")

    @property
    def prefill_tokens(self) -> int:
        return sum(b.prefill_tokens for b in self.batches)

    def _end(self, ending: Ending) -> None:
        assert ending.request_id not in self.reasons, "a request ended twice"
        self.reasons[ending.request_id] = ending.reason


def drive(
    policy: str = "fcfs", *, slots: int = 4, budget: int = 64, blocks: int = 64, eos: Sequence[int] = ()
) -> Drive:
    return Drive(make_scheduler(policy, slots=slots, budget=budget, blocks=blocks, eos=eos), budget)
