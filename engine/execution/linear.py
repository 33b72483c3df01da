"""Linear layers in several number formats, behind one call.

Every format's answer for a row is independent of the other rows but for the order of additions. The
weight-only formats hold a second, dense copy with the same values: their kernels are made for few rows
and take ten times a dense product's time, or more, on a prefill chunk.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F

from engine.execution.int8 import Reader
from engine.models.gguf import Grid4

GROUP = 32  # columns that share a scale in the 4-bit formats
FEW_ROWS = 6  # up to here the weight-only kernels beat a packed bf16 product


class Linear(Protocol):
    """`y = x @ weight.T + bias`. x [rows, inputs] in the format's activation type, y the same."""

    def __call__(self, x: torch.Tensor) -> torch.Tensor: ...

    @property
    def nbytes(self) -> int:
        """Bytes that one decode step reads."""
        ...


class Dense:
    """A plain matrix in the activations' own type."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self.weight, self.bias = weight, bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.weight, self.bias)

    @property
    def nbytes(self) -> int:
        return self.weight.nbytes


class PackedBf16:
    """bf16 in oneDNN's blocked layout, which spares the plain layout's re-ordering in every call."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self.nbytes = weight.nbytes
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight)
        self._bias = bias

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")
        return y


class Int8:
    """One int8 per weight and one scale per output; bf16 activations."""

    def __init__(self, codes: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor | None) -> None:
        self._codes, self._scale, self._bias = codes, scale.bfloat16(), bias
        self._dense = pack_bf16((codes * scale[:, None]).bfloat16(), bias)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > FEW_ROWS:
            return self._dense(x)
        y = torch._weight_int8pack_mm(x, self._codes, self._scale)
        return y if self._bias is None else y + self._bias

    @property
    def nbytes(self) -> int:
        return self._codes.nbytes


class Int4:
    """Four bits per weight in groups of 32 columns, each with a scale and a middle; bf16 activations."""

    def __init__(
        self, codes: torch.Tensor, scale: torch.Tensor, middle: torch.Tensor, bias: torch.Tensor | None
    ) -> None:
        rows, columns = codes.shape
        scale, middle = scale.bfloat16(), middle.bfloat16()
        self._packed = torch._convert_weight_to_int4pack_for_cpu(codes, 1)
        self._scales = torch.stack((scale.t(), middle.t()), dim=-1).contiguous()  # [groups, rows, 2]
        self._bias = bias
        # The kernel's own arithmetic: (code - 8) * scale + middle, with code 8 at the middle.
        centred = codes.view(rows, -1, GROUP).float() - 8.0
        dense = centred * scale.float()[..., None] + middle.float()[..., None]
        self._dense = pack_bf16(dense.view(rows, columns).bfloat16(), bias)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > FEW_ROWS:
            return self._dense(x)
        y = torch._weight_int4pack_mm_for_cpu(x, self._packed, GROUP, self._scales)
        return y if self._bias is None else y + self._bias

    @property
    def nbytes(self) -> int:
        return self._packed.nbytes + self._scales.nbytes


def pack_bf16(weight: torch.Tensor, bias: torch.Tensor | None) -> Linear:
    """A bf16 matrix on a CPU: packed where oneDNN is there."""
    if weight.device.type == "cpu" and torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return PackedBf16(weight, bias)
    return Dense(weight, bias)


def quantise_grid(weight: torch.Tensor) -> Grid4:
    """Round a float32 matrix [rows, columns] to 16 even steps per group, lowest to highest value."""
    groups = weight.view(weight.shape[0], -1, GROUP)
    low, high = groups.aminmax(dim=-1)
    scale = ((high - low) / 15.0).clamp_min(1e-12)
    codes = ((groups - low[..., None]) / scale[..., None]).round_().clamp_(0, 15)
    return Grid4(codes.view_as(weight).to(torch.uint8).numpy(), scale.numpy(), low.numpy())


def join_grids(grids: list[Grid4 | None]) -> Grid4 | None:
    """Grids of matrices stacked by rows; None unless all are there."""
    there = [g for g in grids if g is not None]
    if len(there) < len(grids):
        return None
    return Grid4(
        np.concatenate([g.codes for g in there]),
        np.concatenate([g.scale for g in there]),
        np.concatenate([g.minimum for g in there]),
    )


Pack = Callable[[torch.Tensor, Grid4 | None, torch.Tensor | None], Linear]


@dataclass(frozen=True, slots=True)
class LinearFormat:
    """How matrices are held and multiplied. `pack(weight, grid, bias)` takes a float32 [outputs, inputs]
    matrix on its device, the same matrix on its file's 4-bit grid if it has one, and a float32 bias."""

    name: str
    activations: torch.dtype
    devices: tuple[str, ...]  # device types that have its kernels
    pack: Pack
    pack_head: Pack  # the output matrix, which every token's choice hangs on
    rotated: bool = False  # for a rotated residual stream; readers take the codes of `int8.Norm`


def _float32(weight: torch.Tensor, grid: Grid4 | None, bias: torch.Tensor | None) -> Linear:
    return Dense(weight, bias)


def _bf16(weight: torch.Tensor, grid: Grid4 | None, bias: torch.Tensor | None) -> Linear:
    return pack_bf16(weight.bfloat16(), None if bias is None else bias.bfloat16())


def _int8(weight: torch.Tensor, grid: Grid4 | None, bias: torch.Tensor | None) -> Linear:
    if weight.shape[0] % 16 or weight.shape[1] % 16:
        return _bf16(weight, grid, bias)  # the kernel wants whole tiles; only odd little matrices lack them
    # The scale is rounded to bf16 first, so that the codes make up for its rounding.
    scale = (weight.abs().amax(dim=1).clamp_min(1e-12) / 127.0).bfloat16().float()
    codes = (weight / scale[:, None]).round_().clamp_(-127, 127).to(torch.int8)
    return Int8(codes, scale, None if bias is None else bias.bfloat16())


def _int4(weight: torch.Tensor, grid: Grid4 | None, bias: torch.Tensor | None) -> Linear:
    if weight.shape[0] % 16 or weight.shape[1] % GROUP:
        return _bf16(weight, grid, bias)
    if grid is None:
        grid = quantise_grid(weight)
    scale, minimum = torch.from_numpy(grid.scale), torch.from_numpy(grid.minimum)
    codes = torch.from_numpy(grid.codes).to(torch.int32)
    return Int4(codes, scale, minimum + 8.0 * scale, None if bias is None else bias.bfloat16())


def _reader(weight: torch.Tensor, grid: Grid4 | None, bias: torch.Tensor | None) -> Linear:
    return Reader(weight, bias)


LINEAR_FORMATS = {
    f.name: f
    for f in (
        LinearFormat("float32", torch.float32, ("cpu", "cuda", "mps"), _float32, _float32),
        LinearFormat("bf16", torch.bfloat16, ("cpu", "cuda", "mps"), _bf16, _bf16),
        LinearFormat("int8", torch.bfloat16, ("cpu",), _int8, _int8),
        # Four bits are too few for the head: mean KL 0.056 against 0.003 with eight (SmolLM2-135M).
        LinearFormat("int4", torch.bfloat16, ("cpu",), _int4, _int8),
        LinearFormat("int8-dynamic", torch.bfloat16, ("cpu",), _reader, _reader, rotated=True),
    )
}
