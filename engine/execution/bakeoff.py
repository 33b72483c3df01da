"""Which linear format is fastest here: a second of trials, the answer cached per machine and shape.

Only formats that keep the model's quality take part. Four bits do where the file's own grid has four:
the values are then the file's. Mean KL to float32 and top-1 agreement (SmolLM2-135M, Q4_1): bf16 0.001
and 0.96, int8 0.007 and 0.94, int4 on the file's grid 0.003 and 0.95, off any grid 0.06 and 0.79; dynamic
int8 on the rotated stream 0.013 and 0.94, perplexity +0.6 %. One format serves all shapes: a rotated
stream cannot be read by the others, and a request's text must not depend on how many rows its step has.
"""

import hashlib
import json
import logging
import math
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from engine.devices.cpu import processor_name
from engine.errors import ConfigError
from engine.execution import int8
from engine.execution.linear import LINEAR_FORMATS, Linear, LinearFormat
from engine.models.architecture import ModelShape
from engine.models.weights import Weights
from engine.paths import cache_dir, make_folder

ROWS = (1, 4, 8, 256)  # a lone reader, shared steps and a piece of a prompt
_FRESH_BYTES = 32 << 20  # float32 weights cycled through, more than a private cache holds
_REPEATS = 3  # the best counts; the first one also builds the kernels
_MARGIN = 0.95  # a challenger must be faster by more than the trials' noise
_log = logging.getLogger(__name__)


def fastest_format(weights: Weights, threads: int) -> str:
    """The name of the fastest format for these weights on this CPU with this many threads."""
    candidates = candidates_for(weights)
    path = cache_dir() / "formats.json"
    key = _key(weights.shape, threads, candidates)
    known = _read(path)
    if known.get(key) in candidates:
        return known[key]
    best, best_s = "", float("inf")
    for name in candidates:
        seconds = trial_s(weights.shape, LINEAR_FORMATS[name])
        _log.info("format trial %s: %.2f ms a layer, geometric mean over %s rows", name, seconds * 1e3, ROWS)
        if seconds < best_s * _MARGIN:
            best, best_s = name, seconds
    _write(path, {**known, key: best})
    return best


def candidates_for(weights: Weights) -> list[str]:
    """Formats that keep these weights' quality, best quality first."""
    found = ["float32", "bf16", "int8"]
    if weights.grid("layers.0.q") is not None and weights.grid("layers.0.gate") is not None:
        found.append("int4")
    if int8.available():
        found.append("int8-dynamic")
    return found


@dataclass(frozen=True, slots=True)
class Trial:
    """One product: best time, and the error of its worst kind relative to float32 on random numbers."""

    matrix: str  # "qkv", "o", "gate_up", "down" or "head"
    outputs: int
    inputs: int
    rows: int
    seconds: float
    error: float


def trial_s(shape: ModelShape, form: LinearFormat) -> float:
    """Seconds for one layer's matrices and its share of the head: the geometric mean over `ROWS`, so that a
    format twice as fast at one count and half as fast at another is as good."""
    spent = dict.fromkeys(ROWS, 0.0)
    for t in trials(shape, form):
        share = shape.vocab / shape.layers / t.outputs if t.matrix == "head" else 1.0
        spent[t.rows] += t.seconds * share
    return math.exp(sum(map(math.log, spent.values())) / len(spent))


def trials(
    shape: ModelShape, form: LinearFormat, rows: tuple[int, ...] = ROWS, repeats: int = _REPEATS
) -> list[Trial]:
    """Every distinct product of the model in one format, at every number of `rows`."""
    slice_rows = min(shape.vocab, 8192) // 16 * 16 or shape.vocab  # stands for the whole head
    sizes = {
        "qkv": (shape.qkv_rows, shape.hidden),
        "o": (shape.hidden, shape.heads * shape.head_dim),
        "gate_up": (2 * shape.intermediate, shape.hidden),
        "down": (shape.hidden, shape.intermediate),
        "head": (slice_rows, shape.hidden),
    }
    noise = torch.randn(max(n * k for n, k in sizes.values()), generator=torch.Generator().manual_seed(0))
    found = []
    with torch.inference_mode():
        for name, (outputs, inputs) in sizes.items():
            weight = noise[: outputs * inputs].view(outputs, inputs)
            copies = min(shape.layers, max(1, _FRESH_BYTES // (4 * outputs * inputs)))
            linears = [_packed(form, name, weight.clone()) for _ in range(copies)]
            for count in rows:
                x = torch.randn(count, inputs, generator=torch.Generator().manual_seed(count))
                x *= torch.rsqrt(x.square().mean(1, keepdim=True))
                given = x.to(form.activations)
                if form.rotated:
                    given = x if name in ("o", "down") else int8.Norm(inputs, 0.0)(x)
                want = x @ weight.t()
                error = float((linears[0](given).float() - want).norm() / want.norm())
                some = linears if count <= 8 else linears[:2]  # many rows compute more than they read
                times = [_timed(some, given) for _ in range(repeats)]
                found.append(Trial(name, outputs, inputs, count, min(times), error))
    return found


def _packed(form: LinearFormat, name: str, weight: torch.Tensor) -> Linear:
    if form.rotated and name in ("o", "down"):
        return int8.Writer(weight, turn=name == "down")
    return (form.pack_head if name == "head" else form.pack)(weight, None, None)


def _timed(linears: list[Linear], x: torch.Tensor) -> float:
    """Seconds per product, each with weights that the caches have not just seen."""
    started = time.perf_counter()
    for linear in linears:
        linear(x)
    return (time.perf_counter() - started) / len(linears)


def _key(shape: ModelShape, threads: int, candidates: list[str]) -> str:
    sizes = (shape.layers, shape.hidden, shape.qkv_rows, shape.intermediate, shape.vocab)
    parts = ("mean", ROWS, processor_name(), torch.__version__, threads, sizes, candidates)
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
