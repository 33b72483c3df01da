"""One view of a model's weights, whatever they are stored in.

Canonical names: `embedding` [vocab, hidden], `final_norm` [hidden], `output` [vocab, hidden] (absent when
tied), `rope_factors` [head_dim / 2] (Llama 3 files only), and per layer `layers.N.` + `attention_norm`,
`q`, `k`, `v`, `o`, `q_bias`, `k_bias`, `v_bias`, `q_norm`, `k_norm`, `mlp_norm`, `gate`, `up`, `down`.
Matrices are [outputs, inputs]. q and k rows have each head's rotary pairs half a head apart.
"""

import math
from pathlib import Path
from typing import Protocol

import torch

from engine.errors import ModelFileError
from engine.models.architecture import ModelShape
from engine.models.gguf import GgufFile, Grid4
from engine.models.safetensors_file import SafetensorsFolder

# canonical name -> (GGUF name, safetensors name); layer names come after "blk.N." and "model.layers.N."
_TOP = {
    "embedding": ("token_embd.weight", "model.embed_tokens.weight"),
    "final_norm": ("output_norm.weight", "model.norm.weight"),
    "output": ("output.weight", "lm_head.weight"),
    "rope_factors": ("rope_freqs.weight", ""),
}
_LAYER = {
    "attention_norm": ("attn_norm.weight", "input_layernorm.weight"),
    "q": ("attn_q.weight", "self_attn.q_proj.weight"),
    "k": ("attn_k.weight", "self_attn.k_proj.weight"),
    "v": ("attn_v.weight", "self_attn.v_proj.weight"),
    "o": ("attn_output.weight", "self_attn.o_proj.weight"),
    "q_bias": ("attn_q.bias", "self_attn.q_proj.bias"),
    "k_bias": ("attn_k.bias", "self_attn.k_proj.bias"),
    "v_bias": ("attn_v.bias", "self_attn.v_proj.bias"),
    "q_norm": ("attn_q_norm.weight", "self_attn.q_norm.weight"),
    "k_norm": ("attn_k_norm.weight", "self_attn.k_norm.weight"),
    "mlp_norm": ("ffn_norm.weight", "post_attention_layernorm.weight"),
    "gate": ("ffn_gate.weight", "mlp.gate_proj.weight"),
    "up": ("ffn_up.weight", "mlp.up_proj.weight"),
    "down": ("ffn_down.weight", "mlp.down_proj.weight"),
}


class Weights(Protocol):
    """Where weights come from. Used while loading, then closed."""

    shape: ModelShape

    def __contains__(self, name: str) -> bool: ...

    def tensor(self, name: str) -> torch.Tensor:
        """A fresh float32 CPU tensor. Raises `ModelFileError` or `UnsupportedModelError`."""
        ...

    def grid(self, name: str) -> Grid4 | None:
        """The matrix on its file's own 4-bit grid, or None where the file has none."""
        ...

    def close(self) -> None: ...


def expected_shape(shape: ModelShape, name: str) -> tuple[int, ...]:
    """The dimensions that a canonical tensor must have."""
    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    known: dict[str, tuple[int, ...]] = {
        "embedding": (shape.vocab, shape.hidden),
        "output": (shape.vocab, shape.hidden),
        "final_norm": (shape.hidden,),
        "rope_factors": (shape.head_dim // 2,),
        "attention_norm": (shape.hidden,),
        "mlp_norm": (shape.hidden,),
        "q": (q, shape.hidden),
        "k": (kv, shape.hidden),
        "v": (kv, shape.hidden),
        "o": (shape.hidden, q),
        "q_bias": (q,),
        "k_bias": (kv,),
        "v_bias": (kv,),
        "q_norm": (shape.head_dim,),
        "k_norm": (shape.head_dim,),
        "gate": (shape.intermediate, shape.hidden),
        "up": (shape.intermediate, shape.hidden),
        "down": (shape.hidden, shape.intermediate),
    }
    return known[name.rpartition(".")[2]]


def _checked(tensor: torch.Tensor, shape: ModelShape, name: str) -> torch.Tensor:
    wanted = expected_shape(shape, name)
    if tuple(tensor.shape) != wanted:
        raise ModelFileError(
            f"The tensor '{name}' measures {list(tensor.shape)} where {list(wanted)} belongs: "
            "download the model again."
        )
    return tensor


def _stored_name(name: str, which: int) -> str:
    if not name.startswith("layers."):
        return _TOP[name][which]
    _, layer, part = name.split(".")
    return f"{('blk', 'model.layers')[which]}.{layer}.{_LAYER[part][which]}"


class GgufWeights:
    """Weights of a GGUF file."""

    def __init__(self, path: Path) -> None:
        self._file = GgufFile(path)
        self.shape = self._file.shape()

    def _permuted(self, name: str) -> int:
        """Heads whose rows the file holds in llama order; 0 for everything else and other architectures."""
        if self.shape.architecture != "llama":
            return 0
        part = name.rpartition(".")[2]
        return {"q": self.shape.heads, "q_bias": self.shape.heads}.get(
            part, self.shape.kv_heads if part in ("k", "k_bias") else 0
        )

    def __contains__(self, name: str) -> bool:
        return _stored_name(name, 0) in self._file.tensors

    def tensor(self, name: str) -> torch.Tensor:
        values = self._file.read(_stored_name(name, 0), self._permuted(name))
        return _checked(torch.from_numpy(values), self.shape, name)

    def grid(self, name: str) -> Grid4 | None:
        return self._file.read_grid(_stored_name(name, 0), self._permuted(name))

    def close(self) -> None:
        self._file.close()


class SafetensorsWeights:
    """Weights of a Hugging Face model folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = SafetensorsFolder(folder)
        self.shape = self._folder.shape()

    def __contains__(self, name: str) -> bool:
        return _stored_name(name, 1) in self._folder

    def tensor(self, name: str) -> torch.Tensor:
        return _checked(self._folder.read(_stored_name(name, 1)), self.shape, name)

    def grid(self, name: str) -> Grid4 | None:
        return None

    def close(self) -> None:
        self._folder.close()


class DummyWeights:
    """Random weights of the right shapes, the same for the same seed. They give speed, not sense."""

    def __init__(self, shape: ModelShape, seed: int = 0) -> None:
        self.shape = shape
        self._generator = torch.Generator().manual_seed(seed)

    def __contains__(self, name: str) -> bool:
        return name != "rope_factors"

    def tensor(self, name: str) -> torch.Tensor:
        size = expected_shape(self.shape, name)
        if name.endswith("norm"):
            return torch.ones(size)
        # Variance 1 / inputs keeps activations near one through any depth.
        return torch.randn(size, generator=self._generator) / math.sqrt(size[-1])

    def grid(self, name: str) -> Grid4 | None:
        return None

    def close(self) -> None: ...


def open_weights(path: Path) -> GgufWeights | SafetensorsWeights:
    """Open a GGUF file or a model folder. Raises `ModelFileError` or `UnsupportedModelError`."""
    return SafetensorsWeights(path) if path.is_dir() else GgufWeights(path)
