"""Will a backend's weights and cache fit? Asked before minutes are spent on loading them."""

from collections.abc import Sequence

import torch

from engine.config import BackendSpec
from engine.errors import BackendError
from engine.kv.storage import block_bytes
from engine.models.architecture import ModelShape

# Bytes a parameter takes, dense copies for many rows included, rounded up.
_WEIGHT_BYTES = {"float32": 4.0, "bf16": 2.0, "int8": 3.0, "int4": 2.7, "int8-dynamic": 1.5}
_UNKNOWN_FORMAT = 3.0  # "auto": not float32, which is never the fastest


def footprint(spec: BackendSpec, shape: ModelShape) -> int:
    """Bytes that a backend with the model of `shape` takes of the machine's memory, at most."""
    weights = shape.parameters * _WEIGHT_BYTES.get(spec.format, _UNKNOWN_FORMAT)
    return int(weights) + spec.kv_blocks * block_bytes(shape, torch.float32)


def require_memory(
    spec: BackendSpec,
    shape: ModelShape,
    weight: torch.dtype,
    cache: torch.dtype,
    budget: int | None,
    sharing: Sequence[BackendSpec] = (),
) -> None:
    """Raise `BackendError` where weights and cache cannot fit into `budget` bytes (None: the system decides).

    `sharing`: other backends with the same model that live in the same memory; their share is taken away.
    """
    if budget is None:
        return
    others = sum(footprint(other, shape) for other in sharing)
    needed = shape.parameters * weight.itemsize + spec.kv_blocks * block_bytes(shape, cache)
    if needed <= budget - others:
        return
    beside = f" beside {', '.join(other.label for other in sharing)}" if sharing else ""
    raise BackendError(
        f"Model and {spec.kv_blocks} KV blocks need {needed / 2**30:.1f} GiB and {spec.device} offers "
        f"{max(0, budget - others) / 2**30:.1f} GiB{beside}: use fewer KV blocks or a smaller model."
    )
