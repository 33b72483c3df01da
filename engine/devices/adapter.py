"""What the runner needs of a device, whichever it is."""

from collections.abc import Callable

import torch

from engine.devices import cpu, cuda, mps
from engine.errors import ConfigError


def open_device(name: str) -> torch.device:
    """The torch device of "cpu", "cuda:N" or "mps". Raises `ConfigError` or `BackendError`."""
    kind, _, index = name.partition(":")
    if kind == "cpu":
        return torch.device("cpu")
    if kind == "cuda":
        return cuda.open_device(int(index) if index.isdigit() else 0)
    if kind == "mps":
        return mps.open_device()
    raise ConfigError(f"There is no device '{name}': use cpu, cuda:0 or mps.")


def name(device: torch.device, threads: int) -> str:
    """What the screen calls the device."""
    if device.type == "cuda":
        return cuda.device_name(device.index or 0)
    return mps.device_name() if device.type == "mps" else cpu.device_name(threads)


def kv_dtype(device: torch.device, activations: torch.dtype) -> torch.dtype:
    """The cache's type: the activations', but on a CPU bf16 only with AMX.

    Without it the fused bf16 kernel takes 9-25 times two float32 products' time at one query; with it the
    two are even there, the cache is half as large, and prefill gains half again.
    """
    if device.type == "cpu" and not torch.cpu._is_amx_tile_supported():
        return torch.float32
    return activations


def default_format(device: torch.device) -> str:
    """What "auto" means on an accelerator."""
    return "float32" if device.type == "cuda" and not cuda.has_bf16(device.index or 0) else "bf16"


def memory_budget(device: torch.device) -> int | None:
    """Bytes that weights and cache may take together; None where the system decides."""
    if device.type == "cuda":
        return cuda.free_bytes(device.index or 0)
    return mps.memory_budget() if device.type == "mps" else None


def shares_memory(device: torch.device) -> bool:
    """True where the device's memory is the machine's own, so that CPU backends take their share of it."""
    return device.type == "mps"


def bucket(device: torch.device) -> Callable[[int], int] | None:
    """How to round a shape up: only Metal pays for every new one. None on a CPU, where rows of one token
    are better computed one by one than as a padded table."""
    if device.type == "cpu":
        return None
    return mps.bucket if device.type == "mps" else _same


def keeps_shapes(device: torch.device) -> bool:
    """True where the first step of every shape is slow, because the device prepares and keeps it."""
    return device.type == "mps"


def rest(device: torch.device) -> None:
    """Nothing has been asked for a while: give back what is only kept for speed, where that waits."""
    if device.type == "mps":
        mps.release()


def _same(count: int) -> int:
    return count


def overlaps(device: torch.device) -> bool:
    """True where a kernel may start before the one before has ended."""
    return device.type == "cuda" and cuda.overlaps(device.index or 0)


def recorder(device: torch.device) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Turns work of fixed shape into what does it again: one launch on CUDA, itself elsewhere."""
    return cuda.Recorder() if device.type == "cuda" else _itself


def _itself(work: Callable[[], None]) -> Callable[[], None]:
    return work


def wait(device: torch.device) -> None:
    """Until the device has done what this thread asked of it."""
    if device.type == "cuda":
        cuda.wait()


def release(device: torch.device) -> None:
    """Give cached memory back to the system, from the thread that used the device."""
    if device.type == "cuda":
        cuda.release()
    elif device.type == "mps":
        mps.release()
