"""The shape of a model: every number the engine needs before it touches a weight. No torch here."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.errors import ModelFileError, UnknownNameError, UnsupportedModelError

ARCHITECTURES = ("llama", "qwen2", "qwen3")


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Stretching of rotary frequencies. `linear` divides all by `factor`; `llama3` spares the fast ones
    (Llama 3.1 model card): wavelengths under original/high stay, over original/low are divided, between
    them the two are blended."""

    kind: str  # "linear" or "llama3"
    factor: float
    low: float = 1.0
    high: float = 4.0
    original: int = 8192


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of a decoder-only transformer. Lengths are in elements, contexts in tokens."""

    architecture: str  # one of ARCHITECTURES
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    rope_theta: float
    rms_eps: float
    max_context: int
    tied_embedding: bool
    qkv_bias: bool = False
    qk_norm: bool = False
    rope_scaling: RopeScaling | None = None
    eos_ids: tuple[int, ...] = ()
    name: str = ""

    def __post_init__(self) -> None:
        if self.architecture not in ARCHITECTURES:
            raise UnsupportedModelError(
                f"The architecture '{self.architecture}' is not supported: use a model of one of "
                f"{', '.join(ARCHITECTURES)}."
            )
        sizes = (self.layers, self.hidden, self.heads, self.kv_heads, self.head_dim, self.intermediate)
        if min(*sizes, self.vocab, self.max_context) < 1 or self.heads % self.kv_heads or self.head_dim % 2:
            raise ModelFileError(
                "The sizes in the model's metadata contradict each other: download the model again."
            )

    @property
    def group(self) -> int:
        """Query heads that share one key/value head."""
        return self.heads // self.kv_heads

    @property
    def qkv_rows(self) -> int:
        """Rows of the fused query, key and value matrix."""
        return (self.heads + 2 * self.kv_heads) * self.head_dim

    @property
    def kv_elements(self) -> int:
        """Elements of KV cache per token, keys and values of all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim

    @property
    def linear_parameters(self) -> int:
        """Weights that a decode step reads: the layers' matrices and the output head."""
        attention = self.hidden * (self.qkv_rows + self.heads * self.head_dim)
        return self.layers * (attention + 3 * self.hidden * self.intermediate) + self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        """Weights in all, norms and biases left out."""
        return self.linear_parameters + (0 if self.tied_embedding else self.vocab * self.hidden)


def shape_from_gguf(meta: Mapping[str, Any], tensors: Mapping[str, tuple[int, ...]]) -> ModelShape:
    """Build a shape from GGUF metadata and the tensors' shapes, rows first.

    Raises `UnsupportedModelError` for another architecture, `ModelFileError` for missing keys.
    """
    arch = str(meta.get("general.architecture", "missing"))
    if arch not in ARCHITECTURES:
        raise UnsupportedModelError(
            f"The architecture '{arch}' is not supported: use a model of one of {', '.join(ARCHITECTURES)}."
        )
    if int(meta.get(f"{arch}.expert_count", 0) or 0) > 0:
        raise UnsupportedModelError(
            "Mixture-of-experts models are not supported: use a dense model of one of "
            f"{', '.join(ARCHITECTURES)}."
        )

    def need(key: str) -> Any:
        value = meta.get(f"{arch}.{key}")
        if value is None:
            raise ModelFileError(
                f"The model file lacks the metadata '{arch}.{key}': download the model again."
            )
        return value

    if "token_embd.weight" not in tensors:
        raise ModelFileError("The model file has no token embedding: download the model again.")
    hidden, heads = int(need("embedding_length")), int(need("attention.head_count"))
    eos = (meta.get("tokenizer.ggml.eos_token_id"), meta.get("tokenizer.ggml.eot_token_id"))
    return ModelShape(
        architecture=arch,
        layers=int(need("block_count")),
        hidden=hidden,
        heads=heads,
        kv_heads=int(meta.get(f"{arch}.attention.head_count_kv", heads)),
        head_dim=int(meta.get(f"{arch}.attention.key_length", hidden // max(1, heads))),
        intermediate=int(need("feed_forward_length")),
        vocab=tensors["token_embd.weight"][0],
        rope_theta=float(meta.get(f"{arch}.rope.freq_base", 10000.0)),
        rms_eps=float(need("attention.layer_norm_rms_epsilon")),
        max_context=int(need("context_length")),
        tied_embedding="output.weight" not in tensors,
        qkv_bias="blk.0.attn_q.bias" in tensors,
        qk_norm="blk.0.attn_q_norm.weight" in tensors,
        rope_scaling=_gguf_scaling(meta, arch),
        eos_ids=tuple(dict.fromkeys(int(e) for e in eos if e is not None)),
        name=str(meta.get("general.name", "")),
    )


def _gguf_scaling(meta: Mapping[str, Any], arch: str) -> RopeScaling | None:
    kind = str(meta.get(f"{arch}.rope.scaling.type", "none"))
    if kind == "none":
        return None  # Llama 3 files carry their factors as a tensor instead
    if kind == "linear":
        return RopeScaling("linear", float(meta.get(f"{arch}.rope.scaling.factor", 1.0)))
    raise UnsupportedModelError(
        f"The rotary scaling '{kind}' is not supported: use a model with none, linear or llama3."
    )


def shape_from_config(config: Mapping[str, Any]) -> ModelShape:
    """Build a shape from a Hugging Face `config.json`. Raises as `shape_from_gguf` does."""
    arch = str(config.get("model_type", "missing"))
    if arch not in ARCHITECTURES:
        raise UnsupportedModelError(
            f"The architecture '{arch}' is not supported: use a model of one of {', '.join(ARCHITECTURES)}."
        )
    refused = (
        ("use_sliding_window", "sliding-window attention"),
        ("mlp_bias", "biases in the feed-forward layers"),
        ("attention_bias", "biases in the attention output"),
        ("quantization_config", "weights quantised outside GGUF"),
    )
    for key, words in refused:
        if config.get(key):
            raise UnsupportedModelError(
                f"This {arch} model uses {words}, which is not supported: use another."
            )
    if config.get("hidden_act", "silu") != "silu":
        raise UnsupportedModelError(
            f"The activation '{config['hidden_act']}' is not supported: use a {arch} model with silu."
        )
    rope: Mapping[str, Any] = config.get("rope_parameters") or {}
    scaling: Mapping[str, Any] = config.get("rope_scaling") or rope
    eos = config.get("eos_token_id")
    try:
        heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
        return ModelShape(
            architecture=arch,
            layers=int(config["num_hidden_layers"]),
            hidden=hidden,
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or hidden // max(1, heads)),
            intermediate=int(config["intermediate_size"]),
            vocab=int(config["vocab_size"]),
            rope_theta=float(config.get("rope_theta") or rope.get("rope_theta") or 10000.0),
            rms_eps=float(config.get("rms_norm_eps", 1e-6)),
            max_context=int(config.get("max_position_embeddings", 2048)),
            tied_embedding=bool(config.get("tie_word_embeddings", False)),
            qkv_bias=arch == "qwen2",
            qk_norm=arch == "qwen3",
            rope_scaling=_config_scaling(scaling),
            eos_ids=() if eos is None else tuple(eos) if isinstance(eos, list) else (int(eos),),
            name=str(config.get("_name_or_path", "")),
        )
    except KeyError as missing:
        raise ModelFileError(
            f"The model's config.json lacks {missing}: download the model again."
        ) from missing


def _config_scaling(scaling: Mapping[str, Any]) -> RopeScaling | None:
    kind = str(scaling.get("rope_type", scaling.get("type", "default")))
    if kind == "default":
        return None
    factor = float(scaling.get("factor", 1.0))
    if kind == "linear":
        return RopeScaling("linear", factor)
    if kind == "llama3":
        return RopeScaling(
            "llama3",
            factor,
            float(scaling.get("low_freq_factor", 1.0)),
            float(scaling.get("high_freq_factor", 4.0)),
            int(scaling.get("original_max_position_embeddings", 8192)),
        )
    raise UnsupportedModelError(
        f"The rotary scaling '{kind}' is not supported: use a model with none, linear or llama3."
    )


# Shapes of published models, for runs with random weights; "tiny" loads at once, to try the plumbing.
_NAMED = {
    "tiny": ModelShape("llama", 2, 64, 2, 1, 32, 128, 512, 10_000.0, 1e-5, 4096, True, eos_ids=(2,)),
    "smollm2-135m": ModelShape(
        "llama", 30, 576, 9, 3, 64, 1536, 49152, 100_000.0, 1e-5, 8192, True, eos_ids=(2,)
    ),
    "smollm2-360m": ModelShape(
        "llama", 32, 960, 15, 5, 64, 2560, 49152, 100_000.0, 1e-5, 8192, True, eos_ids=(2,)
    ),
    "qwen2.5-0.5b": ModelShape(
        "qwen2", 24, 896, 14, 2, 64, 4864, 151936, 1e6, 1e-6, 32768, True, qkv_bias=True, eos_ids=(151645,)
    ),
    "qwen3-0.6b": ModelShape(
        "qwen3", 28, 1024, 16, 8, 128, 3072, 151936, 1e6, 1e-6, 40960, True, qk_norm=True, eos_ids=(151645,)
    ),
}
NAMED_SHAPES = tuple(_NAMED)


def named_shape(name: str) -> ModelShape:
    """The shape of a published model. Raises `UnknownNameError`."""
    if name not in _NAMED:
        raise UnknownNameError("architecture", name, NAMED_SHAPES)
    return _NAMED[name]
