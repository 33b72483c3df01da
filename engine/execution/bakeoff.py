"""Which linear format is fastest here: a second of trials, the answer cached per machine and shape.

Only formats that keep the model's quality take part. Four bits do where the file's own grid has four:
the values are then the file's. Mean KL to float32 and top-1 agreement (SmolLM2-135M, Q4_1): bf16 0.001
and 0.96, int8 0.007 and 0.94, int4 on the file's grid 0.003 and 0.95, off any grid 0.06 and 0.79.
"""

import hashlib
import json
import logging
import time
from pathlib import Path

import torch

from engine.devices.cpu import processor_name
from engine.errors import ConfigError
from engine.execution.linear import LINEAR_FORMATS, LinearFormat
from engine.models.architecture import ModelShape
from engine.models.weights import Weights
from engine.paths import cache_dir, make_folder

ROWS = (1, 4, 64)  # a lone reader, a shared step and a piece of a prompt
_FRESH_BYTES = 32 << 20  # float32 weights cycled through, more than a private cache holds
_REPEATS = 5  # the best counts; the first ones also build the kernels
_MARGIN = 0.95  # a challenger must be faster by more than the trials' noise
_log = logging.getLogger(__name__)


def fastest_format(weights: Weights, threads: int) -> str:
    """The name of the fastest format for these weights on this CPU with this many threads."""
    candidates = ["float32", "bf16", "int8"]
    if weights.grid("layers.0.q") is not None and weights.grid("layers.0.gate") is not None:
        candidates.append("int4")
    path = cache_dir() / "formats.json"
    key = _key(weights.shape, threads, candidates)
    known = _read(path)
    if known.get(key) in candidates:
        return known[key]
    best, best_s = "", float("inf")
    for name in candidates:
        seconds = trial_s(weights.shape, LINEAR_FORMATS[name])
        _log.info(
            "format trial %s: %.2f ms a layer and row, added up over %s rows", name, seconds * 1e3, ROWS
        )
        if seconds < best_s * _MARGIN:
            best, best_s = name, seconds
    _write(path, {**known, key: best})
    return best


def trial_s(shape: ModelShape, form: LinearFormat) -> float:
    """Seconds per layer and row for its matrices and its share of the head, added up over `ROWS`."""
    sizes = (
        (shape.qkv_rows, shape.hidden),
        (shape.hidden, shape.heads * shape.head_dim),
        (2 * shape.intermediate, shape.hidden),
        (shape.hidden, shape.intermediate),
    )
    slice_rows = min(shape.vocab, 8192) // 16 * 16 or shape.vocab  # stands for the whole head
    largest = max(rows * columns for rows, columns in (*sizes, (slice_rows, shape.hidden)))
    noise = torch.randn(largest, generator=torch.Generator().manual_seed(0))

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return noise[: rows * columns].view(rows, columns).clone()

    copies = max(1, _FRESH_BYTES // sum(4 * rows * columns for rows, columns in sizes))
    layers = [
        [form.pack(matrix(*size), None, None) for size in sizes] for _ in range(min(copies, shape.layers))
    ]
    head = form.pack_head(matrix(slice_rows, shape.hidden), None, None)
    head_share = shape.vocab / slice_rows / shape.layers
    total = 0.0
    with torch.inference_mode():
        for rows in ROWS:
            inputs = [torch.randn(rows, columns).to(form.activations) for _, columns in sizes]
            hidden = inputs[0]
            layer_s, head_s = [], []
            for _ in range(_REPEATS):
                started = time.perf_counter()
                for layer in layers:
                    for linear, x in zip(layer, inputs, strict=True):
                        linear(x)
                middle = time.perf_counter()
                head(hidden)
                layer_s.append((middle - started) / len(layers))
                head_s.append(time.perf_counter() - middle)
            total += (min(layer_s) + min(head_s) * head_share) / rows
    return total


def _key(shape: ModelShape, threads: int, candidates: list[str]) -> str:
    sizes = (shape.layers, shape.hidden, shape.qkv_rows, shape.intermediate, shape.vocab)
    parts = (processor_name(), torch.__version__, threads, sizes, candidates)
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()


def _read(path: Path) -> dict[str, str]:
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # absent or damaged: the trials run again
    return known if isinstance(known, dict) else {}


def _write(path: Path, known: dict[str, str]) -> None:
    try:
        make_folder(path.parent)
        path.write_text(json.dumps(known, indent=1), encoding="utf-8")
    except (OSError, ConfigError) as error:
        _log.warning("the format trials could not be cached: %s", error)
