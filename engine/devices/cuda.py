"""CUDA: one of the few files that name torch.cuda."""

import gc
from collections.abc import Callable

import torch

from engine.errors import BackendError


def open_device(index: int) -> torch.device:
    """The device `cuda:index`, made current in this thread. Raises `BackendError` if it is not there."""
    if not torch.cuda.is_available():
        raise BackendError("CUDA is not available here: install a CUDA build of torch, or use the CPU.")
    count = torch.cuda.device_count()
    if index >= count:
        raise BackendError(f"There is no cuda:{index}, only {count} CUDA device(s): use cuda:0.")
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def device_name(index: int) -> str:
    return torch.cuda.get_device_name(index)


def devices() -> list[tuple[str, str, int]]:
    """(device, name, memory in bytes) of every CUDA device; empty in a CPU build of torch."""
    if not torch.cuda.is_available():
        return []
    found = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        found.append((f"cuda:{index}", properties.name, int(properties.total_memory)))
    return found


def has_bf16(index: int) -> bool:
    """True where bf16 runs in hardware (compute capability 8.0 and later)."""
    return torch.cuda.get_device_capability(index)[0] >= 8


def overlaps(index: int) -> bool:
    """True where a kernel may start before the one before has ended (compute capability 9.0 and later)."""
    return torch.cuda.get_device_capability(index)[0] >= 9


def free_bytes(index: int) -> int:
    """Bytes of device memory that nobody uses now."""
    return int(torch.cuda.mem_get_info(index)[0])


class Recorder:
    """Makes one launch of many: work of fixed shapes on fixed tensors, with no question to the host.

    All recordings share one pool of temporary memory, so no two of them may run at once.
    """

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Callable[[], None]) -> Callable[[], None]:
        """Run `work` once, to load its kernels, record it, and return what launches it again."""
        work()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        collecting = gc.isenabled()
        gc.disable()  # freeing another graph spoils a recording
        try:
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                work()
        finally:
            if collecting:
                gc.enable()
        replay: Callable[[], None] = graph.replay
        return replay


def wait() -> None:
    """Until everything launched from this thread is done."""
    torch.cuda.current_stream().synchronize()


def release() -> None:
    torch.cuda.empty_cache()
