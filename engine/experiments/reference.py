"""transformers' own model of our shapes, for speed. Its weights are random: speed asks for no more."""

from pathlib import Path
from typing import Any

from engine.models.architecture import ModelShape, named_shape
from engine.models.inspect import inspect_model


def shape_of(spec: dict[str, Any]) -> ModelShape:
    """The file's shape, or the named architecture's where there is no file."""
    if spec["model"] is None:
        return named_shape(spec["architecture"])
    return inspect_model(Path(spec["model"]))


def empty_model(shape: ModelShape) -> Any:
    """A model of this shape, on torch's default device, its weights as transformers makes them."""
    import transformers

    kind = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}[shape.architecture]
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        max_position_embeddings=shape.max_context,
        rms_norm_eps=shape.rms_eps,
        tie_word_embeddings=shape.tied_embedding,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
    )
    return getattr(transformers, f"{kind}ForCausalLM")(config).eval()


def reference_model(spec: dict[str, Any]) -> Any:
    """A model of the file's or the named architecture's shape, on the CPU, ready to generate."""
    return empty_model(shape_of(spec))
