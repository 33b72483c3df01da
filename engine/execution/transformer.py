"""The model: llama, qwen2 and qwen3 in one short forward pass over [tokens, hidden].

Few operations matter more than few multiplications at one row, so query, key and value are one matrix,
gate and up are one, and the rotary tables are gathered once a step with the softmax scale folded in. On a
CPU a head's rotary pairs lie side by side, so that one complex product turns them: attention does not mind
how a head's elements are ordered.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F

from engine.execution import int8
from engine.execution.attention import attend
from engine.execution.linear import Linear, LinearFormat, join_grids
from engine.execution.step_plan import StepPlan
from engine.kv.storage import KVStorage
from engine.models.architecture import ModelShape
from engine.models.rotation import RotatedWeights
from engine.models.weights import Weights

Progress = Callable[[str, float], None]


class Layer:
    """One block's weights. Norm weights are float32 or the residual type; the rest is in the format."""

    __slots__ = ("attention_norm", "down", "gate_up", "mlp_norm", "o", "qk_norm", "qkv")

    def __init__(
        self,
        qkv: Linear,
        o: Linear,
        gate_up: Linear,
        down: Linear,
        attention_norm: torch.Tensor,
        mlp_norm: torch.Tensor,
        qk_norm: torch.Tensor | None,
    ) -> None:
        self.qkv, self.o, self.gate_up, self.down = qkv, o, gate_up, down
        self.attention_norm, self.mlp_norm = attention_norm, mlp_norm
        self.qk_norm = qk_norm  # [heads + kv_heads, head_dim], or None


class Transformer:
    """Weights and forward pass on one device. `context` bounds the positions (rotary tables)."""

    def __init__(
        self, weights: Weights, form: LinearFormat, context: int, device: torch.device, progress: Progress
    ) -> None:
        if form.rotated:
            weights = RotatedWeights(weights)
        self.shape, self.format, self.device = weights.shape, form, device
        # On a CPU the residual stream stays float32: norms are faster in it than in bf16, and more exact.
        self._stream = torch.float32 if device.type == "cpu" else form.activations
        self.embedding = weights.tensor("embedding")
        self.layers = []
        for index in range(self.shape.layers):
            self.layers.append(self._load_layer(weights, index))
            progress("load", (index + 1) / (self.shape.layers + 1))
        self.final_norm = self._vector(weights.tensor("final_norm"))
        self.head = self._load_head(weights)
        self.embedding = self.embedding.to(device, form.activations)
        self.cos, self.sin = self._rotary(weights, context)
        half = self.shape.head_dim // 2
        if device.type == "cpu":
            self._turns = torch.complex(self.cos[:, half:], self.sin[:, half:])
        rotated = self.shape.heads + self.shape.kv_heads
        scale = torch.ones(rotated, 1)
        scale[: self.shape.heads] = self.shape.head_dim**-0.5
        self._head_scale = scale.to(device)
        self._epsilon = torch.tensor(self.shape.rms_eps, device=device)
        self._code_norm = int8.Norm(self.shape.hidden, self.shape.rms_eps) if form.rotated else None
        progress("load", 1.0)

    # -- loading

    def _vector(self, values: torch.Tensor) -> torch.Tensor:
        return values.to(self.device, self._stream)

    def _linear(self, weights: Weights, prefix: str, parts: tuple[str, ...]) -> Linear:
        names = [prefix + part for part in parts]
        matrix = torch.cat([weights.tensor(name) for name in names]).to(self.device)
        bias = None
        if self.shape.qkv_bias and parts[0] == "q":
            bias = torch.cat([weights.tensor(name + "_bias") for name in names]).to(self.device)
        grid = join_grids([weights.grid(name) for name in names])
        if parts[0] == "q" and self.device.type == "cpu":
            order = self._pair_order(self.shape.heads + self.shape.kv_heads, self.shape.kv_heads)
            matrix, bias = matrix[order], None if bias is None else bias[order]
            grid = None if grid is None else grid.rows(order.numpy())
        return self.format.pack(matrix, grid, bias)

    def _pair_order(self, turned: int, left: int) -> torch.Tensor:
        """Rows of `turned` heads with each rotary pair side by side, then `left` heads as they are."""
        dim = self.shape.head_dim
        within = torch.arange(dim).view(2, -1).t().flatten()
        heads = torch.arange(turned)[:, None] * dim + within
        return torch.cat((heads.flatten(), torch.arange(turned * dim, (turned + left) * dim)))

    def _writer(self, weights: Weights, name: str) -> Linear:
        matrix = weights.tensor(name).to(self.device)
        if self.format.rotated:
            return int8.Writer(matrix, turn=name.endswith("down"))
        return self.format.pack(matrix, weights.grid(name), None)

    def _load_layer(self, weights: Weights, index: int) -> Layer:
        prefix, shape = f"layers.{index}.", self.shape
        qk_norm = None
        if shape.qk_norm:
            heads = ((shape.heads, "q_norm"), (shape.kv_heads, "k_norm"))
            parts = [weights.tensor(prefix + name).expand(count, -1) for count, name in heads]
            qk_norm = torch.cat(parts).to(self.device)
            if self.device.type == "cpu":
                qk_norm = qk_norm[:, self._pair_order(1, 0)].contiguous()
        return Layer(
            self._linear(weights, prefix, ("q", "k", "v")),
            self._writer(weights, prefix + "o"),
            self._linear(weights, prefix, ("gate", "up")),
            self._writer(weights, prefix + "down"),
            self._vector(weights.tensor(prefix + "attention_norm")),
            self._vector(weights.tensor(prefix + "mlp_norm")),
            qk_norm,
        )

    def _load_head(self, weights: Weights) -> Linear:
        name = "embedding" if self.shape.tied_embedding else "output"
        matrix = self.embedding if self.shape.tied_embedding else weights.tensor(name)
        return self.format.pack_head(matrix.to(self.device), weights.grid(name), None)

    def _rotary(self, weights: Weights, context: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Tables [context, head_dim]: cos twice, and sin with the sign that the rotation needs."""
        frequencies = rotary_frequencies(self.shape)
        if "rope_factors" in weights:
            frequencies = frequencies / weights.tensor("rope_factors").double()
        angles = torch.outer(torch.arange(context, dtype=torch.float64), frequencies)
        cos, sin = angles.cos().float(), angles.sin().float()
        return torch.cat((cos, cos), 1).to(self.device), torch.cat((-sin, sin), 1).to(self.device)

    @property
    def step_bytes(self) -> int:
        """Bytes of weights that one decode step reads."""
        linears = [m.nbytes for y in self.layers for m in (y.qkv, y.o, y.gate_up, y.down)]
        return sum(linears) + self.head.nbytes

    # -- running

    def _normed(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Root-mean-square norm over the last dimension (Zhang and Sennrich 2019), as the format's matrices
        take it: in its type of activations, or as codes."""
        if self._code_norm is not None:
            return self._code_norm(x)
        active = self.format.activations
        if x.device.type != "cpu":
            return F.rms_norm(x, weight.shape, weight, self.shape.rms_eps).to(active)
        # The library's is eight operations on a CPU; these five take two thirds of its time.
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        factor = torch.addcmul(self._epsilon, length, length, value=1.0 / x.shape[-1]).rsqrt_()
        return (x * factor).mul_(weight).to(active)

    def _plus(self, x: torch.Tensor, writer: Linear, y: torch.Tensor) -> torch.Tensor:
        """The stream after a writer has added its part."""
        if isinstance(writer, int8.Writer):
            return writer.add_to(x, y)
        return x + writer(y.to(self.format.activations))

    def _rotary_step(self, positions: torch.Tensor) -> Callable[[torch.Tensor], object]:
        """What turns queries and keys [tokens, heads, head_dim] of a step in place, and scales queries."""
        if self.device.type == "cpu":
            turns = self._turns.index_select(0, positions)[:, None] * self._head_scale
            return lambda qk: torch.view_as_complex(qk.view(*qk.shape[:2], -1, 2)).mul_(turns)
        cos = self.cos.index_select(0, positions)[:, None] * self._head_scale
        sin = self.sin.index_select(0, positions)[:, None] * self._head_scale
        half = self.shape.head_dim // 2

        def turn(qk: torch.Tensor) -> None:
            swapped = qk.roll(half, -1)
            qk.mul_(cos).addcmul_(swapped, sin)

        return turn

    def forward(self, plan: StepPlan, storage: KVStorage) -> torch.Tensor:
        """Logits [sampling rows, vocab] in float32. Keys and values of all tokens are in `storage` then."""
        shape = self.shape
        rotated = shape.heads + shape.kv_heads
        turn = self._rotary_step(plan.positions)
        x = F.embedding(plan.ids, self.embedding).to(self._stream)
        for index, layer in enumerate(self.layers):
            normed = self._normed(x, layer.attention_norm)
            # Queries and keys turn in float32 whatever the format.
            qkv = layer.qkv(normed).float().view(x.shape[0], -1, shape.head_dim)
            qk = qkv[:, :rotated]
            if layer.qk_norm is not None:
                qk.copy_(F.rms_norm(qk, (shape.head_dim,), None, shape.rms_eps) * layer.qk_norm)
            turn(qk)
            qkv = qkv.to(storage.dtype)
            storage.write(index, plan.places, qkv[:, shape.heads :])
            mixed = attend(index, qkv[:, : shape.heads], plan, storage)
            x = self._plus(x, layer.o, mixed.view(x.shape[0], -1))
            normed = self._normed(x, layer.mlp_norm)
            gate, up = layer.gate_up(normed).chunk(2, -1)
            x = self._plus(x, layer.down, F.silu(gate).mul_(up))
        last = self._normed(x.index_select(0, plan.sampled), self.final_norm)
        if last.shape[0] == 0:
            return x.new_empty((0, shape.vocab), dtype=torch.float32)
        return self.head(last).float()


def rotary_frequencies(shape: ModelShape) -> torch.Tensor:
    """Radians per position, float64 [head_dim / 2], stretched as the model's metadata says.

    Su et al. 2021 (RoFormer); the llama3 blend follows the Llama 3.1 model card.
    """
    steps = torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim
    frequencies = shape.rope_theta**-steps
    scaling = shape.rope_scaling
    if scaling is None:
        return frequencies
    if scaling.kind == "linear":
        return frequencies / scaling.factor
    turns = scaling.original * frequencies / (2 * math.pi)  # full turns within the original context
    keep = ((turns - scaling.low) / (scaling.high - scaling.low)).clamp(0.0, 1.0)
    return frequencies * (keep + (1.0 - keep) / scaling.factor)
