"""Which linear format is fastest here: seconds of trials, the answer cached per machine and shape.

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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
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
_REPEATS = 3  # at least; the best counts, and the first one also builds the kernels
_MOST_REPEATS = 12  # while other work keeps a best time from being seen twice
_TWICE = 1.1  # two times this near each other are the same
_MARGIN = 0.95  # a challenger must be faster by more than the trials' noise
_QUIET = 0.9  # share of the trials' time that their thread computed; less means that it waited for a core
_log = logging.getLogger(__name__)


def fastest_format(weights: Weights, threads: int) -> str:
    """The name of the fastest format for these weights on this CPU with this many threads.

    A choice made while other programs took the cores is kept too, but made again at a later start that
    finds enough of them idle.
    """
    candidates = candidates_for(weights)
    path = cache_dir() / "formats.json"
    key = _key(weights.shape, threads, candidates)
    known = _read(path)
    choice = known.get(key)
    if choice in candidates:  # an entry is "bf16", or "bf16?" where it was chosen in a busy moment
        return str(choice)
    doubted = str(choice).removesuffix("?")
    if doubted in candidates and idle_cores() < threads:
        return doubted
    wall_s, cpu_s = time.perf_counter(), time.thread_time()
    seconds = contest(weights.shape, candidates)
    share = (time.thread_time() - cpu_s) / max(time.perf_counter() - wall_s, 1e-9)
    best, best_s = "", float("inf")
    for name in candidates:
        _log.info("format trial %s: %.2f ms a layer, mean over %s rows", name, seconds[name] * 1e3, ROWS)
        if seconds[name] < best_s * _MARGIN:
            best, best_s = name, seconds[name]
    _write(path, {**_read(path), key: best if share >= _QUIET else best + "?"})
    return best


def idle_cores() -> float:
    """Cores that nobody used in the last moment, rounded in favour of a few background tasks."""
    cores = psutil.cpu_count(logical=True) or 1
    return float(cores * (1.0 - psutil.cpu_percent(interval=0.2) / 100.0) + 0.3)


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

    format: str
    matrix: str  # "qkv", "o", "gate_up", "down" or "head"
    outputs: int
    inputs: int
    rows: int
    seconds: float
    error: float


def contest(shape: ModelShape, names: list[str]) -> dict[str, float]:
    """Seconds for one layer's matrices and its share of the head, by format: the geometric mean over `ROWS`,
    so that a format twice as fast at one count and half as fast at another is as good."""
    spent = {name: dict.fromkeys(ROWS, 0.0) for name in names}
    for t in trials(shape, names):
        share = shape.vocab / shape.layers / t.outputs if t.matrix == "head" else 1.0
        spent[t.format][t.rows] += t.seconds * share
    return {name: math.exp(sum(map(math.log, s.values())) / len(s)) for name, s in spent.items()}


def trials(
    shape: ModelShape, names: list[str], rows: tuple[int, ...] = ROWS, repeats: int = _REPEATS
) -> list[Trial]:
    """Every distinct product of the model in the named formats, at every number of `rows`.

    The formats take turns at each product, so that a busy moment hits all of them.
    """
    slice_rows = min(shape.vocab, 8192) // 16 * 16 or shape.vocab  # stands for the whole head
    sizes = {
        "qkv": (shape.qkv_rows, shape.hidden),
        "o": (shape.hidden, shape.heads * shape.head_dim),
        "gate_up": (2 * shape.intermediate, shape.hidden),
        "down": (shape.hidden, shape.intermediate),
        "head": (slice_rows, shape.hidden),
    }
    noise = torch.randn(max(n * k for n, k in sizes.values()), generator=torch.Generator().manual_seed(0))
    forms = [LINEAR_FORMATS[name] for name in names]
    found = []
    with torch.inference_mode():
        for matrix, (outputs, inputs) in sizes.items():
            weight = noise[: outputs * inputs].view(outputs, inputs)
            copies = min(shape.layers, max(1, _FRESH_BYTES // (4 * outputs * inputs)))
            linears = [[_packed(form, matrix, weight.clone()) for _ in range(copies)] for form in forms]
            for count in rows:
                x = torch.randn(count, inputs, generator=torch.Generator().manual_seed(count))
                x *= torch.rsqrt(x.square().mean(1, keepdim=True))
                want = x @ weight.t()
                given = [_given(form, matrix, x) for form in forms]
                # Many rows compute more than they read.
                some = [each if count <= 8 else each[:2] for each in linears]
                runs = [partial(_timed, each, y) for each, y in zip(some, given, strict=True)]
                for form, each, y, seconds in zip(
                    forms, linears, given, in_turns(runs, repeats), strict=True
                ):
                    error = float((each[0](y).float() - want).norm() / want.norm())
                    found.append(Trial(form.name, matrix, outputs, inputs, count, seconds, error))
    return found


def in_turns(runs: Sequence[Callable[[], float]], repeats: int) -> list[float]:
    """The best time of each run. They take turns, and go on until each has seen its best one twice."""
    times: list[list[float]] = [[] for _ in runs]
    for turn in range(_MOST_REPEATS if repeats > 1 else 1):
        if turn >= repeats and all(sorted(t)[1] <= _TWICE * min(t) for t in times):
            break
        for run, seen in zip(runs, times, strict=True):
            seen.append(run())
    return [min(seen) for seen in times]


def _given(form: LinearFormat, matrix: str, x: torch.Tensor) -> torch.Tensor:
    """`x` as the matrix takes it in this format."""
    if not form.rotated:
        return x.to(form.activations)
    return x if matrix in ("o", "down") else int8.Norm(x.shape[1], 0.0)(x)


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
    parts = ("turns", ROWS, processor_name(), torch.__version__, threads, sizes, candidates)
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
