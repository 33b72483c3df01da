"""A decode step in torch operations of fixed shape: what a graph holds where triton is missing."""

import torch

from engine.config import BLOCK_TOKENS
from engine.execution.decode_inputs import DecodeInputs
from engine.execution.step_plan import StepPlan, Table
from engine.execution.transformer import Transformer
from engine.kv.storage import KVStorage


class TableDecoder:
    """Gathers every row's blocks up to the bucket's context and attends over them under a mask."""

    def __init__(self, model: Transformer, storage: KVStorage) -> None:
        self._model, self._storage = model, storage

    def logits(self, inputs: DecodeInputs, context: int) -> torch.Tensor:
        """Float32 [rows, vocab]; keys and values of the new tokens are in the cache then.

        `context` in tokens, a whole number of blocks, is at least the longest length.
        """
        return self._model.forward(self._plan(inputs, context), self._storage)

    def _plan(self, inputs: DecodeInputs, context: int) -> StepPlan:
        width = context // BLOCK_TOKENS
        padding = inputs.lengths == 0
        # A padding row sees one token of the scratch block, so that its softmax stays finite.
        lengths = inputs.lengths.clamp_min(1).long()
        steps = torch.arange(context, device=lengths.device)
        used = steps[None, ::BLOCK_TOKENS] < lengths[:, None]
        scratch = self._storage.scratch_token // BLOCK_TOKENS
        blocks = inputs.blocks[:, :width].long().masked_fill(~used | padding[:, None], scratch)
        positions = lengths - 1
        homes = blocks.gather(1, (positions // BLOCK_TOKENS)[:, None])[:, 0]
        places = homes * BLOCK_TOKENS + positions % BLOCK_TOKENS
        rows = torch.arange(lengths.shape[0], device=lengths.device)
        mask = (steps[None, :] < lengths[:, None])[:, None, None, :]
        return StepPlan(inputs.ids.long(), positions, places, [], Table(rows, blocks, mask), [], rows)
