"""What tests of real computation share: the embedded model, rows and batches, tiny random models."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFWriter
from gguf.quants import quantize

from engine.config import BackendSpec
from engine.execution.torch_runner import TorchRunner
from engine.experiments.reference import empty_model
from engine.models.gguf import GgufFile
from engine.models.inspect import inspect_model
from engine.models.weights import open_weights
from engine.request import GREEDY, BackendName, RequestId, SamplingParams
from engine.scheduling.batch import Batch, BatchRow

EMBEDDED = "smollm2-135m-instruct"


def embedded_model_path() -> Path:
    """The embedded model's GGUF file, fetched once."""
    from engine.models.fetch import ensure_model

    return ensure_model(EMBEDDED)


def spec(format: str = "float32", device: str = "cpu", blocks: int = 384) -> BackendSpec:
    return BackendSpec(BackendName("cpu"), "cpu", device, threads=1, format=format, kv_blocks=blocks)


def open_runner(path: Path, format: str = "float32", blocks: int = 384, context: int = 4096) -> TorchRunner:
    weights = open_weights(path)
    try:
        return TorchRunner(spec(format, blocks=blocks), weights, context)
    finally:
        weights.close()


@dataclass
class Stream:
    """A request as a runner sees it: its tokens, how many are computed, and its block table."""

    number: int
    tokens: list[int]
    blocks: list[int]
    computed: int = 0
    sampling: SamplingParams = GREEDY
    new: list[int] = field(default_factory=list)

    def row(self, most: int = 512) -> BatchRow:
        """The next `most` tokens at most, as the scheduler would ask for them."""
        todo = self.tokens[self.computed :][:most]
        return BatchRow(
            RequestId(self.number),
            slot=0,
            tokens=todo,
            start=self.computed,
            blocks=self.blocks,
            samples=self.computed + len(todo) == len(self.tokens),
            is_decode=bool(self.new),
            sampling=self.sampling,
            history=list(self.tokens),
            prompt_tokens=len(self.tokens) - len(self.new),
        )


def generate(runner: TorchRunner, streams: list[Stream], count: int, chunk: int = 512) -> list[list[int]]:
    """Advance all streams together until each has `count` new tokens. Returns the new tokens."""
    while active := [s for s in streams if len(s.new) < count]:
        rows = [(s, s.row(chunk)) for s in active]
        ids = iter(runner.run(Batch([row for _, row in rows])))
        for stream, row in rows:
            stream.computed += row.length
            if row.samples:
                token = next(ids)
                stream.new.append(token)
                stream.tokens.append(token)
    return [s.new for s in streams]


def scattered(count: int, offset: int = 0) -> list[int]:
    """Up to 97 different block ids, no two of them neighbours in the table and in the storage."""
    return [offset + index * 7 % 97 for index in range(count)]


def reference_weights(path: Path, model: Any) -> dict[str, torch.Tensor]:
    """The GGUF file's weights by their names in `model`, dequantised by the gguf library and put in order
    by transformers. Of ours only the header's offsets take part: the library's reader needs a minute here.
    """
    from gguf.quants import dequantize
    from transformers.modeling_gguf_pytorch_utils import LlamaTensorProcessor

    config = model.config
    mend = LlamaTensorProcessor(config.to_dict()).process
    stored = GgufFile(path).tensors
    data = np.memmap(path, np.uint8, "r")
    found = {}
    for name in model.state_dict():
        theirs = name
        for ours, other in _GGUF_NAMES:
            theirs = theirs.replace(ours, other)
        tensor = stored.get(theirs, stored["token_embd.weight"])  # a tied head has no tensor
        kind = GGMLQuantizationType(tensor.type_number)
        rows, columns = tensor.shape if len(tensor.shape) > 1 else (1, tensor.shape[0])
        block, size = GGML_QUANT_SIZES[kind]
        raw = data[tensor.offset :][: rows * columns // block * size].reshape(rows, -1)
        values = dequantize(raw.view(np.float32) if kind.name == "F32" else raw, kind).reshape(tensor.shape)
        if config.model_type == "llama":
            values = mend(values, tensor.name).weights
        found[name] = torch.from_numpy(np.array(values, dtype=np.float32))
    return found


def reference_model(path: Path) -> Any:
    """The llama model at `path` in transformers, in float32, read without any of our code but the shape."""
    with torch.device("meta"):
        model = empty_model(inspect_model(path))
    model = model.to_empty(device="cpu").eval()
    model.load_state_dict(reference_weights(path, model))
    model.tie_weights()
    for module in model.modules():  # tables that are computed, not loaded
        if hasattr(module, "rope_init_fn") or type(module).__name__.endswith("RotaryEmbedding"):
            module.__init__(model.config)
    return model


# -- tiny random models, made by transformers and therefore an oracle of their own

_SIZES: dict[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 256,  # one whole block of the K quantisations
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    "eos_token_id": 2,
}


def tiny_model(architecture: str, tied: bool = False, **changes: Any) -> Any:
    """A seeded random transformers model of "llama", "qwen2" or "qwen3", in float32."""
    import transformers

    name = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}[architecture]
    sizes = {**_SIZES, **({"head_dim": 32} if architecture == "qwen3" else {}), **changes}
    config = getattr(transformers, name + "Config")(tie_word_embeddings=tied, **sizes)
    torch.manual_seed(7)
    model = getattr(transformers, name + "ForCausalLM")(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # biases and norms too, which start at exactly 0 and 1
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model


_GGUF_NAMES = (
    ("model.embed_tokens", "token_embd"),
    ("model.norm", "output_norm"),
    ("lm_head", "output"),
    ("model.layers.", "blk."),
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
)


def write_gguf(model: Any, path: Path, kind: str = "F32", architecture: str | None = None) -> None:
    """Write a tiny model as a converter would: llama's q and k rows interleaved, matrices as `kind`."""
    config = model.config
    arch = architecture or config.model_type
    writer = GGUFWriter(path, arch)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_eos_token_id(2)
    writer.add_array("tokenizer.ggml.tokens", ["a", "b"])
    if config.model_type == "qwen3":
        writer.add_key_length(config.head_dim)
    for name, value in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        array = value.numpy()
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
        for part, count in heads.items():
            if part in name and config.model_type == "llama":
                halves = array.reshape(count, 2, array.shape[0] // count // 2, -1)
                array = np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(array.shape)
        for ours, theirs in _GGUF_NAMES:
            name = name.replace(ours, theirs)
        quantised = GGMLQuantizationType[kind] if array.ndim > 1 else GGMLQuantizationType.F32
        writer.add_tensor(name, _encode(array, quantised), raw_dtype=quantised)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _encode(array: np.ndarray, kind: GGMLQuantizationType) -> np.ndarray:
    if kind.name in _K_QUANTS:
        return _K_QUANTS[kind.name](array)
    return quantize(array.astype(np.float32), kind)


def _random_blocks(array: np.ndarray, size: int, scales: tuple[int, ...]) -> np.ndarray:
    """Random bytes that are valid K-quantised blocks of 256: float16 scales at `scales`, small and positive.

    The library can read these types but not write them, and any values do to compare two readers.
    """
    generator = np.random.default_rng(array.shape[0] * 1000 + array.shape[1])
    blocks = generator.integers(0, 256, (array.shape[0], array.shape[1] // 256, size), dtype=np.uint8)
    for at in scales:
        scale = np.full(blocks.shape[:2], 2e-4, np.float16)
        blocks[..., at : at + 2] = scale.view(np.uint8).reshape(*blocks.shape[:2], 2)
    return blocks.reshape(array.shape[0], -1)


_K_QUANTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Q4_K": lambda a: _random_blocks(a, 144, (0, 2)),
    "Q5_K": lambda a: _random_blocks(a, 176, (0, 2)),
    "Q6_K": lambda a: _random_blocks(a, 210, (208,)),
}
