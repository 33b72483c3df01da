"""Eight bits for weights and activations: products of whole numbers in the processor's matrix units.

A row's scale depends on nothing but the row, so its result is the same bit for bit in any company. Readers
of the residual stream take rows that the norm has scaled: on a rotated stream (`models.rotation`) their
elements are near normally distributed, so one step size fits every row, and what lies beyond `CLIP` root
mean squares, one element in 2,000, is cut off. Writers divide each row by its largest element.
"""

import math
from functools import cache

import torch

from engine.models.rotation import block_size, hadamard

CLIP = 3.5  # root mean squares that the largest code of a normed row stands for
_TURNED = 128  # columns of the Hadamard blocks that spread the outliers in the input of `down`
_MANY_ROWS = 32  # from here on the turn is a bf16 product, which takes a tenth of float32's time


@cache
def levels() -> int:
    """Largest activation code. Without VNNI pairs of products are summed in 16 bits, which 8-bit codes
    overflow; 7-bit ones do not."""
    return 127 if torch.cpu._is_vnni_supported() else 63


@cache
def available() -> bool:
    """Whether torch can multiply this way here, tried on a small exact product."""
    try:
        codes = torch.arange(64, dtype=torch.uint8).view(2, 32)
        weight = torch.eye(32, dtype=torch.int8)
        one = torch.ones(32)
        y = _product(codes, torch.ops.onednn.qlinear_prepack(weight, None), one, one.long() * 0, None, 0)
        return torch.equal(y, codes.float())
    except (AttributeError, NotImplementedError, RuntimeError):
        return False


def _product(
    codes: torch.Tensor,
    packed: torch.Tensor,
    scales: torch.Tensor,
    zeros: torch.Tensor,
    bias: torch.Tensor | None,
    zero: int,
) -> torch.Tensor:
    # The step size of the activations is part of `scales`: two factors would be applied in an order that
    # depends on the number of rows.
    y: torch.Tensor = torch.ops.onednn.qlinear_pointwise.default(
        codes, 1.0, zero, packed, scales, zeros, bias, 1.0, 0, torch.float32, "none", [], ""
    )
    return y


class CodeProduct:
    """`(codes - zero) * step @ weight.T + bias`, the weight as one int8 an element and a scale per output.

    Takes codes, uint8 [rows, inputs]; the result is float32 [rows, outputs].
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, step: float) -> None:
        scales = weight.abs().amax(1).clamp_min(1e-12) / 127.0
        whole = (weight / scales[:, None]).round_().to(torch.int8)
        self._scales = scales * step
        self._packed = torch.ops.onednn.qlinear_prepack(whole, None)
        self._zeros = torch.zeros(weight.shape[0], dtype=torch.int64)
        self._bias, self._zero = bias, levels() + 1
        self.nbytes = weight.numel() + self._scales.nbytes

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return _product(x, self._packed, self._scales, self._zeros, self._bias, self._zero)


def _middle(size: int) -> torch.Tensor:
    """The zero code and a half to round by. A whole row, since a lone number would keep `addcmul` and
    `addcdiv` from taking several elements at a time."""
    return torch.full((size,), levels() + 1.5)


class Norm:
    """Root-mean-square norm without a weight whose result is codes for a `Reader`."""

    def __init__(self, size: int, epsilon: float) -> None:
        # All constants go under the root: rsqrt(k * (eps + |x|^2 / n)) = levels / (CLIP * rms).
        squared = (CLIP / levels()) ** 2
        self._epsilon = torch.tensor(epsilon * squared)
        self._share = squared / size
        self._middle = _middle(size)
        self._limits = 1.0, 2 * levels() + 1.5

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """`x` float32 [rows, size]; returns uint8 of the same shape."""
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        factor = torch.addcmul(self._epsilon, length, length, value=self._share).rsqrt_()
        return torch.addcmul(self._middle, x, factor).clamp_(*self._limits).to(torch.uint8)


class Reader(CodeProduct):
    """A matrix that reads the normed stream."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        super().__init__(weight, bias, CLIP / levels())


class Writer:
    """A matrix that writes to the stream. With `turn` its input is turned in Hadamard blocks first."""

    def __init__(self, weight: torch.Tensor, turn: bool) -> None:
        block = block_size(weight.shape[1], _TURNED) if turn else 1
        if block > 1:
            weight = ((weight.view(-1, block) @ hadamard(block)) / block).view_as(weight)
        self._turn = hadamard(block) if block > 1 else None
        self._turn_bf16 = hadamard(block).bfloat16()  # exact: elements are +-1
        self._product = CodeProduct(weight, None, 1.0 / levels())
        self._middle = _middle(weight.shape[1])
        self._levels = float(levels())

    @property
    def nbytes(self) -> int:
        return self._product.nbytes

    def _scaled(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The product of `x` [rows, inputs] before each row is multiplied by the second result [rows, 1]."""
        many = x.shape[0] >= _MANY_ROWS
        if self._turn is not None:
            turn = self._turn_bf16 if many else self._turn
            x = torch.mm(x.view(-1, turn.shape[0]).to(turn.dtype), turn).view_as(x)
        x = x.float()
        if many:  # one pass more, but no tensor of absolute values
            top = torch.maximum(x.amax(-1, keepdim=True), x.amin(-1, keepdim=True).neg_())
        else:
            top = x.abs().amax(-1, keepdim=True)
        top.clamp_min_(1e-20)
        codes = torch.addcdiv(self._middle, x, top, value=self._levels).to(torch.uint8)
        return self._product(codes), top

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        y, top = self._scaled(x)
        return y.mul_(top)

    def add_to(self, stream: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """`stream` + product, in place and returned."""
        y, top = self._scaled(x)
        return stream.addcmul_(y, top)


def quiet_share() -> float:
    """Share of a normal distribution beyond `CLIP`, for tests."""
    return math.erfc(CLIP / math.sqrt(2.0))
