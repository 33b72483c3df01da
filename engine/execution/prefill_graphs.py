"""Prefill chunks as single launches: a recorded forward pass per token bucket and context bucket.

A chunk at few tokens takes the host ten times as long to dispatch as the device to compute. Behind an empty
cache attention is plain causal; behind cached tokens a mask says who sees what.
"""

from collections.abc import Callable

import numpy as np
import torch

from engine.config import BLOCK_TOKENS
from engine.devices import adapter
from engine.execution.step_plan import Span, StepPlan
from engine.execution.transformer import Progress, Transformer
from engine.kv.storage import KVStorage, Window
from engine.scheduling.batch import BatchRow

FIRST_TOKENS = 32
MOST_TOKENS = 512  # longer chunks keep the device busy without a recording
STAGES = 8  # chunks that may be on their way to the device at once


def token_bucket(tokens: int) -> int:
    """32, 64, ... tokens."""
    return max(FIRST_TOKENS, 1 << max(0, tokens - 1).bit_length())


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
        if self._device.type == "cuda":
            self._warm(on_progress)

    def takes(self, row: BatchRow) -> bool:
        return 1 < row.length <= MOST_TOKENS

    def logits(self, row: BatchRow) -> torch.Tensor:
        """Launch a chunk; float32 logits [1, vocab] of its last token, valid until the next launch."""
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
