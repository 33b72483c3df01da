"""A decode step in few kernels a layer, over buffers that stay where they are.

One or two rows take five kernels a layer; more take the library's products and four kernels between them.
The residual stream is float32 here; what enters a product is rounded to the format's type, as in
`Transformer.forward`, but for normed rows in our own kernels. Imported only where triton is there.
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

FEW_ROWS = 2  # up to here by kernels of ours; beyond, matrix units win, and the library knows them best
_REGISTER_BYTES = 32 * 1024  # for the weights of one program that are on their way


@dataclass(frozen=True, slots=True)
class Tiling:
    """Outputs of a program, and inputs that it multiplies at a time."""

    n: int
    k: int


def tiling(inputs: int, itemsize: int, gated: bool) -> Tiling:
    """As many outputs a program as its registers hold weights of; the same for every number of rows."""
    k = min(1024, triton.next_power_of_2(inputs))
    line_bytes = -(-inputs // k) * k * itemsize * (1 + gated)
    return Tiling(max(1, min(8, _REGISTER_BYTES // triton.next_power_of_2(line_bytes))), k)


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
        self._hidden = buffer(rows, shape.hidden, dtype=active)
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
        if rows > FEW_ROWS:
            return self._library_logits(rows, inputs, context)
        for index, layer in enumerate(model.layers):
            self._product(rows, x, layer.qkv, self._qkv, norm=layer.attention_norm)
            self._attend(index, layer, inputs, context, self._qkv)
            self._product(rows, self._mixed, layer.o, x, add=True)
            self._product(rows, x, layer.gate_up, self._inner, norm=layer.mlp_norm, gated=True)
            self._product(rows, self._inner, layer.down, x, add=True)
        self._product(rows, x, model.head, self._logits, norm=model.final_norm)
        return self._logits[:rows]

    def _library_logits(self, rows: int, inputs: DecodeInputs, context: int) -> torch.Tensor:
        """The same with the library's products."""
        model, shape = self._model, self._shape
        hidden, mixed, inner = self._hidden[:rows], self._mixed[:rows], self._inner[:rows]
        y: torch.Tensor | None = None
        for index, layer in enumerate(model.layers):
            self._norm(rows, layer.attention_norm, y)
            self._attend(index, layer, inputs, context, layer.qkv(hidden))
            self._norm(rows, layer.mlp_norm, layer.o(mixed))
            both = layer.gate_up(hidden)
            grid = (rows, triton.cdiv(shape.intermediate, 1024))
            cuda_kernels.gated[grid](both, inner, N=shape.intermediate, N_TILE=1024)
            y = layer.down(inner)
        self._norm(rows, model.final_norm, y)
        self._logits[:rows] = model.head(hidden)
        return self._logits[:rows]

    def _norm(self, rows: int, weight: torch.Tensor, y: torch.Tensor | None) -> None:
        """The stream, after `y` is added to it, normed into the hidden buffer."""
        size = self._shape.hidden
        cuda_kernels.normed[(rows,)](
            self._x,
            self._x if y is None else y,
            weight,
            self._hidden,
            self._shape.rms_eps,
            K=size,
            ADD=y is not None,
            K_TILE=triton.next_power_of_2(size),
        )

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
        inputs, outputs, itemsize = x.shape[1], out.shape[1], linear.weight.itemsize
        cut = tiling(inputs, itemsize, gated)
        cuda_kernels.few_rows[(triton.cdiv(outputs, cut.n),)](
            x,
            linear.weight,
            linear.weight if linear.bias is None else linear.bias,
            x if norm is None else norm,
            out,
            self._shape.rms_eps,
            N=outputs,
            K=inputs,
            NORM=norm is not None,
            BIAS=linear.bias is not None,
            GATED=gated,
            ADD=add,
            ROWS=rows,
            N_TILE=cut.n,
            K_TILE=cut.k,
            EARLY=self._early,
            launch_pdl=self._early,
        )

    def _attend(
        self, index: int, layer: Layer, inputs: DecodeInputs, context: int, qkv: torch.Tensor
    ) -> None:
        shape, model = self._shape, self._model
        rows = inputs.ids.shape[0]
        early = self._early and rows <= FEW_ROWS  # between the library's products it gains nothing
        half_tile = max(16, triton.next_power_of_2(shape.head_dim // 2))
        grid = (rows, shape.kv_heads, triton.cdiv(context, self._tile))
        cuda_attention.attend[grid](
            qkv,
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
            EARLY=early,
            launch_pdl=early,
        )
