"""Prefill chunks as single launches: a recorded forward pass per token bucket and context bucket.

A chunk at few tokens takes the host ten times as long to dispatch as the device to compute. Behind an empty
cache attention is plain causal; behind cached tokens a mask says who sees what.
"""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from engine.config import BLOCK_TOKENS
from engine.devices import adapter
from engine.execution.step_plan import Span, StepPlan
from engine.execution.transformer import Progress, Transformer
from engine.kv.storage import KVStorage, Window
from engine.request import GREEDY, RequestId
from engine.scheduling.batch import BatchRow

FIRST_TOKENS = 32
MOST_TOKENS = 512  # of one recording; longer chunks run in pieces, where that is faster than unrecorded
PIECES = (2, 4)  # of a chunk that are tried against the unrecorded pass
STAGES = 8  # chunks that may be on their way to the device at once


def token_bucket(tokens: int) -> int:
    """32, 64, ... tokens."""
    return max(FIRST_TOKENS, 1 << max(0, tokens - 1).bit_length())


def _part(row: BatchRow, first: int, end: int) -> BatchRow:
    """Tokens `first` to `end` of a chunk, behind the ones before them."""
    if (first, end) == (0, row.length):
        return row
    return replace(row, tokens=row.tokens[first:end], start=row.start + first)


class PrefillGraphs:
    """Computes one chunk at a time. `contexts` are the context buckets in tokens, whole blocks each."""

    def __init__(
        self, model: Transformer, storage: KVStorage, contexts: list[int], on_progress: Progress
    ) -> None:
        self._model, self._storage, self._contexts = model, storage, contexts
        self._device = model.device
        self._record = adapter.recorder(self._device)
        size = 1 + 3 * MOST_TOKENS + max(contexts[-1], MOST_TOKENS) // BLOCK_TOKENS
        pinned = self._device.type == "cuda"
        self._staging = torch.zeros(STAGES, size, dtype=torch.int64, pin_memory=pinned)
        self._stages = self._staging.numpy()
        self._taken = 0  # stages that the device may still be reading
        self._inputs = torch.zeros(size, dtype=torch.int64, device=self._device)
        self._replays: dict[tuple[int, int], Callable[[], None]] = {}
        self._logits: dict[tuple[int, int], torch.Tensor] = {}
        self.pieces = 1  # most recordings that one chunk may take, one after another
        if self._device.type == "cuda":
            self._warm(on_progress)

    def takes(self, row: BatchRow) -> bool:
        return 1 < row.length <= MOST_TOKENS * self.pieces

    def choose_pieces(self, plain: Callable[[BatchRow], torch.Tensor], context_tokens: int) -> None:
        """Find by trial how many pieces still beat `plain`, the unrecorded pass. The cache must hold nothing
        yet: it is written to. A small model's pass takes the host as long for 600 tokens as for 2,000, and
        the device far less; a large one's keeps the device busy."""
        room = min(context_tokens, self._storage.blocks * BLOCK_TOKENS)
        for pieces in (n for n in PIECES if MOST_TOKENS * n <= room):
            tokens = [5 + i % 50 for i in range(MOST_TOKENS * pieces)]
            blocks = list(range(len(tokens) // BLOCK_TOKENS))
            row = BatchRow(RequestId(0), 0, tokens, 0, blocks, True, False, GREEDY, tokens, len(tokens))
            if self._seconds(self.logits, row) > self._seconds(plain, row):
                return
            self.pieces = pieces

    def _seconds(self, compute: Callable[[BatchRow], torch.Tensor], row: BatchRow) -> float:
        """Best of three, after one that prepares kernels."""
        times = []
        for _ in range(4):
            begin = time.perf_counter()
            compute(row)
            adapter.wait(self._device)
            self.settled()
            times.append(time.perf_counter() - begin)
        return min(times[1:])

    def logits(self, row: BatchRow) -> torch.Tensor:
        """Launch a chunk; float32 logits [1, vocab] of its last token, valid until the next launch."""
        for first in range(0, row.length - MOST_TOKENS, MOST_TOKENS):
            self._launch(_part(row, first, first + MOST_TOKENS))
        return self._launch(_part(row, (row.length - 1) // MOST_TOKENS * MOST_TOKENS, row.length))

    def _launch(self, row: BatchRow) -> torch.Tensor:
        tokens = token_bucket(row.length)
        # 0 stands for "nothing cached": the context is the chunk itself.
        context = next(c for c in self._contexts if c >= row.context) if row.start else 0
        if self._taken == STAGES:
            adapter.wait(self._device)
            self._taken = 0
        stage = self._taken
        self._taken += 1
        size = self._fill(self._stages[stage], row, tokens, (context or tokens) // BLOCK_TOKENS)
        self._inputs[:size].copy_(self._staging[stage, :size], non_blocking=True)
        key = (tokens, context)
        self._replay(key)()
        return self._logits[key]

    def settled(self) -> None:
        """Everything launched is done: the stages are free again."""
        self._taken = 0

    def close(self) -> None:
        """Drop the recordings, which refer to this object and it to them."""
        self._replays.clear()
        self._logits.clear()

    def _fill(self, stage: np.ndarray, row: BatchRow, tokens: int, blocks: int) -> int:
        """Write a chunk's inputs, padded to `tokens` and `blocks`; returns how many numbers that are."""
        scratch = self._storage.scratch_token
        size = 1 + 3 * tokens + blocks
        ids, positions, places = stage[1 : 1 + 3 * tokens].reshape(3, tokens)
        table = np.asarray(row.blocks, np.int64)
        stage[0] = row.length - 1
        ids[: row.length], ids[row.length :] = row.tokens, 0
        positions[: row.length], positions[row.length :] = np.arange(row.start, row.context), row.start
        own = positions[: row.length]
        places[: row.length] = table[own // BLOCK_TOKENS] * BLOCK_TOKENS + own % BLOCK_TOKENS
        places[row.length :] = scratch
        used = table[:blocks]
        stage[1 + 3 * tokens : size] = scratch // BLOCK_TOKENS
        stage[1 + 3 * tokens :][: len(used)] = used
        return size

    def _replay(self, key: tuple[int, int]) -> Callable[[], None]:
        if key not in self._replays:
            self._replays[key] = self._record(lambda: self._work(*key))
        return self._replays[key]

    def _work(self, tokens: int, context: int) -> None:
        window = context or tokens
        size = 1 + 3 * tokens + window // BLOCK_TOKENS
        ids, positions, places = self._inputs[1 : 1 + 3 * tokens].view(3, tokens).unbind(0)
        blocks = self._inputs[1 + 3 * tokens : size]
        mask = None
        if context:
            mask = torch.arange(context, device=self._device)[None, :] <= positions[:, None]
        span = Span(0, tokens, Window(window, 0, blocks), mask)
        plan = StepPlan(ids, positions, places, [], None, [span], self._inputs[:1])
        self._logits[tokens, context] = self._model.forward(plan, self._storage)

    def _warm(self, on_progress: Progress) -> None:
        """Record every bucket on padding alone."""
        sizes = sorted({token_bucket(n) for n in range(1, MOST_TOKENS + 1)})
        keys = [(tokens, context) for context in (0, *self._contexts) for tokens in sizes]
        for done, (tokens, context) in enumerate(keys):
            window = (context or tokens) // BLOCK_TOKENS
            self._inputs[: 1 + 2 * tokens] = 0
            self._inputs[1 + 2 * tokens : 1 + 3 * tokens] = self._storage.scratch_token
            self._inputs[1 + 3 * tokens :][:window] = self._storage.scratch_token // BLOCK_TOKENS
            self._replay((tokens, context))
            on_progress("record graphs", (done + 1) / len(keys))
