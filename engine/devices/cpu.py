"""The CPU as a device: its name and how many threads each backend may take. No torch here."""

import platform
import subprocess
from functools import cache
from pathlib import Path

import psutil

from engine.errors import ConfigError


@cache
def physical_cores() -> int:
    """Cores this process may use: physical ones, but no more than its affinity or quota allows."""
    usable = len(psutil.Process().cpu_affinity()) if hasattr(psutil.Process, "cpu_affinity") else 0
    logical = psutil.cpu_count(logical=True) or 1
    physical = psutil.cpu_count(logical=False) or logical
    return max(1, min(physical, usable or logical))


def cpu_threads(backends: int, cores: int | None = None) -> list[int]:
    """Threads of each CPU backend: they sum to cores - 1, the earlier ones take the rest, none has 0.

    The core left over draws the window and routes.
    """
    if backends < 1:
        raise ConfigError("There is no CPU backend to give threads to: use at least one.")
    available = max(1, (physical_cores() if cores is None else cores) - 1)
    share, rest = divmod(available, backends)
    return [max(1, share + (index < rest)) for index in range(backends)]


@cache
def processor_name() -> str:
    """The processor's name without trade marks and clock rates, such as "Intel Xeon"."""
    name = platform.processor()
    try:
        if platform.system() == "Linux":
            lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
            name = next((x.partition(":")[2] for x in lines if x.startswith("model name")), name)
        elif platform.system() == "Darwin":
            command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
            name = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        pass  # the generic name from `platform` is good enough for a label
    for noise in ("(R)", "(TM)", "(tm)", "CPU", "Processor"):
        name = name.replace(noise, " ")
    return " ".join(name.partition("@")[0].split()) or platform.machine() or "CPU"


def device_name(threads: int) -> str:
    """What the screen calls a CPU backend: "Intel Xeon, 1 of 2 cores"."""
    cores = physical_cores()
    return f"{processor_name()}, {threads} of {cores} core{'' if cores == 1 else 's'}"
