"""The paged KV cache itself. The only file of this package that holds tensors.

One tensor a layer, [tokens, 2 * kv_heads, head_dim]: a token's keys, then its values. So a step writes
both with one copy, and a row whose blocks follow each other is read as a view, at no cost. A row with
scattered blocks is gathered block by block, which costs one pass over its keys and values.
"""

from dataclasses import dataclass

import torch

from engine.config import BLOCK_TOKENS
from engine.models.architecture import ModelShape


def block_bytes(shape: ModelShape, dtype: torch.dtype) -> int:
    """Bytes of one block of `BLOCK_TOKENS` tokens, keys and values of all layers."""
    return BLOCK_TOKENS * shape.kv_elements * dtype.itemsize


@dataclass(frozen=True, slots=True)
class Window:
    """The cached tokens 0 .. length - 1 of one request: a run of the storage, or a list of blocks."""

    length: int
    first: int  # first token of the run in the storage; unused with `blocks`
    blocks: torch.Tensor | None  # int64 [blocks], when they do not follow each other


class KVStorage:
    """KV cache of `blocks` blocks, plus one that padding may overwrite.

    Zeroed, because a masked position still meets its value times zero, and zero times garbage can be NaN.
    """

    def __init__(self, shape: ModelShape, blocks: int, dtype: torch.dtype, device: torch.device) -> None:
        self.shape, self.blocks, self.dtype, self.device = shape, blocks, dtype, device
        size = ((blocks + 1) * BLOCK_TOKENS, 2 * shape.kv_heads, shape.head_dim)
        self._layers = [torch.zeros(size, dtype=dtype, device=device) for _ in range(shape.layers)]

    @property
    def block_bytes(self) -> int:
        return block_bytes(self.shape, self.dtype)

    @property
    def scratch_token(self) -> int:
        """A place that no request owns, for the writes of padding tokens."""
        return self.blocks * BLOCK_TOKENS

    def window(self, blocks: list[int], length: int) -> Window:
        """Where the first `length` tokens of a block table lie. Made once a step, used by every layer."""
        used = blocks[: -(-length // BLOCK_TOKENS)]
        if used == list(range(used[0], used[0] + len(used))):
            return Window(length, used[0] * BLOCK_TOKENS, None)
        return Window(length, 0, torch.tensor(used, device=self.device))

    def layer(self, layer: int) -> torch.Tensor:
        """A layer's cache [tokens, 2 * kv_heads, head_dim], for kernels that read its blocks in place."""
        return self._layers[layer]

    def write(self, layer: int, places: torch.Tensor, keys_values: torch.Tensor) -> None:
        """Store `keys_values` [tokens, 2 * kv_heads, head_dim] at the storage tokens `places` [tokens]."""
        self._layers[layer].index_copy_(0, places, keys_values)

    def view(self, layer: int, first: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of a run of storage tokens, each [1, kv_heads, length, head_dim], strided.

        One operation for each: in a decode step every one counts.
        """
        cache, kv_heads, dim = self._layers[layer], self.shape.kv_heads, self.shape.head_dim
        token = 2 * kv_heads * dim
        size, stride = (1, kv_heads, length, dim), (0, dim, token, 1)
        at = first * token
        return cache.as_strided(size, stride, at), cache.as_strided(size, stride, at + kv_heads * dim)

    def read(self, layer: int, window: Window) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of a window, each [kv_heads, length, head_dim], strided."""
        if window.blocks is None:
            keys, values = self.view(layer, window.first, window.length)
            return keys[0], values[0]
        paged = self._layers[layer].view(self.blocks + 1, -1).index_select(0, window.blocks)
        both = paged.view(-1, 2 * self.shape.kv_heads, self.shape.head_dim)[: window.length]
        by_head, kv_heads = both.transpose(0, 1), self.shape.kv_heads
        return by_head[:kv_heads], by_head[kv_heads:]

    def read_table(self, layer: int, table: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of several requests, each [rows, kv_heads, blocks * 16, head_dim], contiguous.

        `table` [rows, blocks] holds block ids; what lies past a request's context must be masked.
        """
        rows = table.shape[0]
        paged = self._layers[layer].view(self.blocks + 1, -1).index_select(0, table.flatten())
        both = paged.view(rows, -1, 2, self.shape.kv_heads, self.shape.head_dim).permute(2, 0, 3, 1, 4)
        keys, values = both.contiguous().unbind(0)
        return keys, values
