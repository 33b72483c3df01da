"""A decode step in five kernels a layer, over buffers that stay where they are.

The residual stream is float32 here; what enters a matrix product is rounded to the format's type, as in
`Transformer.forward`. Imported only where triton is there.
"""

from dataclasses import dataclass

import torch
import triton

from engine.config import BLOCK_TOKENS
from engine.devices import adapter
from engine.execution import cuda_attention, cuda_kernels
from engine.execution.decode_inputs import DecodeInputs
from engine.execution.linear import Dense, Linear
from engine.execution.transformer import Layer, Transformer
from engine.kv.storage import KVStorage

FEW_ROWS = 8  # up to here the plain kernel, which reads every weight once for four rows, is the faster
_REGISTER_BYTES = 32 * 1024  # for the weights of one program that are on their way
_SHARED_BYTES = 96 * 1024  # of a multiprocessor's fast memory, for one program's tiles in flight


@dataclass(frozen=True, slots=True)
class Tiling:
    """How a product is cut into programs. `k` and `slices`, which order the sums, do not depend on rows."""

    m: int
    n: int
    k: int
    stages: int = 1
    slices: int = 4
    warps: int = 4


def few_tiling(rows: int, inputs: int, itemsize: int, gated: bool) -> Tiling:
    """Up to four rows a program, and as many outputs as its registers hold weights of."""
    k = min(1024, triton.next_power_of_2(inputs))
    line_bytes = -(-inputs // k) * k * itemsize * (1 + gated)
    return Tiling(min(rows, 4), max(1, min(8, _REGISTER_BYTES // triton.next_power_of_2(line_bytes))), k)


def many_tiling(rows: int, outputs: int, inputs: int, itemsize: int, x_itemsize: int, gated: bool) -> Tiling:
    """Wide enough to read x seldom, narrow enough to fill the device, with many loads in flight."""
    k = 64 // itemsize  # of each slice
    m = 16 if rows <= 16 else 32
    n = 64 if outputs >= 32768 else 32 if outputs >= 2048 else 16
    stage_bytes = 4 * k * (n * (1 + gated) * itemsize + m * x_itemsize)
    return Tiling(m, n, k, max(2, min(6, _SHARED_BYTES // stage_bytes)))


def context_tile(head_dim: int, itemsize: int) -> int:
    """Cached tokens that one attention program reads: its keys and values must fit the fast memory."""
    return 128 if head_dim * itemsize <= 256 else 64


class FusedDecoder:
    """Runs up to `rows` rows of up to `context` tokens. Not for use from two threads."""

    def __init__(self, model: Transformer, storage: KVStorage, rows: int, context: int) -> None:
        shape, device = model.shape, model.device
        self._model, self._storage, self._shape = model, storage, shape
        active, heads = model.format.activations, shape.heads
        self._early = adapter.overlaps(device)
        self._tile = context_tile(shape.head_dim, active.itemsize)
        self._tiles = -(-context // self._tile)

        def buffer(*size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
            return torch.zeros(size, dtype=dtype, device=device)

        self._x = buffer(rows, shape.hidden)
        self._qkv = buffer(rows, shape.qkv_rows)
        self._mixed = buffer(rows, heads * shape.head_dim, dtype=active)
        self._inner = buffer(rows, shape.intermediate, dtype=active)
        self._logits = buffer(rows, shape.vocab)
        self._partial = buffer(rows, self._tiles, heads, shape.head_dim)
        self._partial_max = buffer(rows, self._tiles, heads)
        self._partial_sum = buffer(rows, self._tiles, heads)
        self._arrived = buffer(rows, shape.kv_heads, dtype=torch.int32)

    def logits(self, inputs: DecodeInputs, context: int) -> torch.Tensor:
        """Float32 [rows, vocab], in a buffer of this object; the new tokens' keys and values are cached.

        `context` in tokens is at least the longest length.
        """
        rows = inputs.ids.shape[0]
        model, x = self._model, self._x
        x[:rows] = model.embedding.index_select(0, inputs.ids)
        for index, layer in enumerate(model.layers):
            self._product(rows, x, layer.qkv, self._qkv, norm=layer.attention_norm)
            self._attend(index, layer, inputs, context)
            self._product(rows, self._mixed, layer.o, x, add=True)
            self._product(rows, x, layer.gate_up, self._inner, norm=layer.mlp_norm, gated=True)
            self._product(rows, self._inner, layer.down, x, add=True)
        self._product(rows, x, model.head, self._logits, norm=model.final_norm)
        return self._logits[:rows]

    def _product(
        self,
        rows: int,
        x: torch.Tensor,
        linear: Linear,
        out: torch.Tensor,
        *,
        norm: torch.Tensor | None = None,
        gated: bool = False,
        add: bool = False,
    ) -> None:
        assert isinstance(linear, Dense), "only plain matrices are laid out for the kernel"
        inputs, outputs = x.shape[1], out.shape[1]
        form = {
            "N": outputs,
            "K": inputs,
            "NORM": norm is not None,
            "BIAS": linear.bias is not None,
            "GATED": gated,
            "ADD": add,
            "EARLY": self._early,
            "launch_pdl": self._early,
        }
        bias = x if linear.bias is None else linear.bias
        norm = x if norm is None else norm
        eps = self._shape.rms_eps
        if rows <= FEW_ROWS:
            cut = few_tiling(rows, inputs, linear.weight.itemsize, gated)
            grid = (triton.cdiv(outputs, cut.n), rows // cut.m)
            tiles = {"ROWS": cut.m, "N_TILE": cut.n, "K_TILE": cut.k, "num_warps": cut.warps}
            cuda_kernels.few_rows[grid](x, linear.weight, bias, norm, out, eps, **form, **tiles)
            return
        cut = many_tiling(rows, outputs, inputs, linear.weight.itemsize, x.itemsize, gated)
        grid = (triton.cdiv(outputs, cut.n), triton.cdiv(rows, cut.m))
        tiles = {"M_TILE": cut.m, "N_TILE": cut.n, "SLICE": cut.k, "SLICES": cut.slices, "STAGES": cut.stages}
        cuda_kernels.many_rows[grid](
            x, linear.weight, bias, norm, out, rows, eps, num_warps=cut.warps, **form, **tiles
        )

    def _attend(self, index: int, layer: Layer, inputs: DecodeInputs, context: int) -> None:
        shape, model = self._shape, self._model
        half_tile = max(16, triton.next_power_of_2(shape.head_dim // 2))
        grid = (inputs.ids.shape[0], shape.kv_heads, triton.cdiv(context, self._tile))
        cuda_attention.attend[grid](
            self._qkv,
            self._storage.layer(index),
            inputs.lengths,
            inputs.blocks,
            model.cos,
            model.sin,
            model.cos if layer.qk_norm is None else layer.qk_norm,
            self._partial,
            self._partial_max,
            self._partial_sum,
            self._arrived,
            self._mixed,
            inputs.stride,
            self._tiles,
            shape.head_dim**-0.5,
            shape.rms_eps,
            KV_HEADS=shape.kv_heads,
            GROUP=shape.group,
            GROUP_TILE=max(16, triton.next_power_of_2(shape.group)),
            DIM=shape.head_dim,
            HALF_TILE=half_tile,
            BLOCK=BLOCK_TOKENS,
            TILE=self._tile,
            MERGE=max(1, 256 // half_tile),
            NORM=layer.qk_norm is not None,
            EARLY=self._early,
            launch_pdl=self._early,
        )
