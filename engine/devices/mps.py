"""Metal: one of the few files that name torch.mps. All calls come from the one thread that owns the device.

The rules here come from reports against torch's Metal backend, each named where it applies.
"""

import psutil
import torch

from engine.devices.cpu import processor_name
from engine.devices.owner import Owner
from engine.errors import BackendError

_owners: list[Owner] = []  # of the open device; empty before


def open_device() -> torch.device:
    """The Metal device, which belongs to this thread from now on. Raises `BackendError` where there is none,
    and `RuntimeError` where another thread of this process has it."""
    if not torch.backends.mps.is_available():
        raise BackendError("Metal is not available here: use the CPU.")
    _check_owner()
    if not _owners:
        _owners.append(Owner("Metal"))
    return torch.device("mps")


def _check_owner() -> None:
    for owner in _owners:
        owner.check()


def device_name() -> str:
    return f"{processor_name()} GPU"


def memory_budget() -> int:
    """Bytes that all backends together may take: 0.6 of RAM, or 0.8 of Metal's recommendation if less."""
    _check_owner()
    return int(min(0.6 * psutil.virtual_memory().total, 0.8 * torch.mps.recommended_max_memory()))


def devices() -> list[tuple[str, str, int]]:
    """(device, name, memory in bytes), or nothing where Metal is absent."""
    return [("mps", device_name(), memory_budget())] if torch.backends.mps.is_available() else []


def bucket(count: int) -> int:
    """Round up to 1, 2, 4, 8, 16, 32, 64 and then whole 64s: every new shape stays in Metal's graph cache
    for good (pytorch#181213)."""
    if count <= 64:
        return 1 << max(0, count - 1).bit_length()
    return -(-count // 64) * 64


def release() -> None:
    """Drop cached memory; only while idle, as it waits for the device."""
    _check_owner()
    torch.mps.empty_cache()
