"""Which accelerators really work: tried in a child process, because a broken one may abort its process.

The caller never imports torch. Results are cached for this build of the system and of torch.
`python -m engine.devices.probe list` and `... check DEVICE` are the child's side, JSON on stdout.
"""

import hashlib
import json
import logging
import os
import platform
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from engine.devices.environment import prepare_environment
from engine.errors import ConfigError
from engine.paths import cache_dir, make_folder

_TIMEOUT_S = 90.0
_TOLERANCE = 0.02  # of the largest value: bf16 keeps eight bits
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Accelerator:
    """A device that torch offers. `ok` only if its arithmetic was checked; else `reason` says what failed."""

    device: str  # "cuda:0", "mps"
    name: str
    memory_bytes: int
    ok: bool
    reason: str = ""


def probe_accelerators(refresh: bool = False) -> list[Accelerator]:
    """Every accelerator of this machine, checked. Empty at once where torch is a CPU build.

    The first call on a machine takes some seconds per device; `refresh` ignores the cached answer.
    """
    if not _may_have_accelerator():
        return []
    path = cache_dir() / f"accelerators-{_fingerprint()}.json"
    if not refresh and (cached := _read(path)) is not None:
        return cached
    listed, trouble = _child("list")
    if listed is None:
        _log.warning("listing accelerators failed: %s", trouble)
        return []
    found = [_checked(Accelerator(d["device"], d["name"], d["memory_bytes"], ok=False)) for d in listed]
    try:
        make_folder(path.parent)
        path.write_text(json.dumps([asdict(a) for a in found]), encoding="utf-8")
    except (OSError, ConfigError) as error:
        _log.warning("the device check could not be cached: %s", error)
    return found


def _checked(candidate: Accelerator) -> Accelerator:
    """The candidate after its own child process tried it."""
    result, trouble = _child("check", candidate.device)
    reason = trouble if result is None else str(result[0]["reason"])
    return Accelerator(candidate.device, candidate.name, candidate.memory_bytes, ok=not reason, reason=reason)


def _may_have_accelerator() -> bool:
    """False where no child process is needed to know: no torch, or a build for CPUs only."""
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        return False
    if platform.system() == "Darwin":
        return platform.machine() == "arm64"
    return not version.endswith("+cpu") and (platform.system() != "Linux" or Path("/dev/nvidiactl").exists())


def _fingerprint() -> str:
    """Changes with the system's build, torch, and the devices that the system shows."""
    devices = sorted(p.name for p in Path("/dev").glob("nvidia[0-9]*")) if os.name == "posix" else []
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    parts = (platform.platform(), platform.version(), metadata.version("torch"), visible, *devices)
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()


def _read(path: Path) -> list[Accelerator] | None:
    try:
        return [Accelerator(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError):
        return None  # absent, or written by another version: probe again


def _child(*arguments: str) -> tuple[list[dict[str, Any]] | None, str]:
    """Run this module in a child. Returns its list, or None and what went wrong in words."""
    root = str(Path(__file__).resolve().parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "engine.devices.probe", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, env=environment)
    except subprocess.TimeoutExpired:
        return None, f"the check did not answer within {_TIMEOUT_S:.0f} seconds"
    except OSError as error:
        return None, f"the check could not be started ({error})"
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines()
        last = f": {lines[-1][:200]}" if lines else ""
        ending = "crashed" if done.returncode < 0 else "failed"
        return None, f"the check {ending} with exit code {done.returncode}{last}"
    try:
        result: list[dict[str, Any]] = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        return None, "the check gave no answer"
    return result, ""


# -- the child's side: from here on torch may be imported


def _list() -> list[dict[str, Any]]:
    from engine.devices import cuda, mps

    return [
        {"device": device, "name": name, "memory_bytes": memory}
        for device, name, memory in (*cuda.devices(), *mps.devices())
    ]


def _check(name: str) -> str:
    """Try what the engine needs of a device against the CPU. Returns "" or the first mismatch in words."""
    import torch
    import torch.nn.functional as F

    from engine.devices import adapter

    device = adapter.open_device(name)
    generator = torch.Generator().manual_seed(1)

    def differs(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
        error = (ours.cpu().float() - theirs).abs().max() / theirs.abs().max()
        return not bool(error < _TOLERANCE)  # NaN differs too

    with torch.inference_mode():
        for dtype in (torch.float32, torch.bfloat16):
            a, b = (torch.randn(64, 512, generator=generator).to(dtype) for _ in range(2))
            if differs(F.linear(a.to(device), b.to(device)), F.linear(a.float(), b.float())):
                return f"its {dtype} matrix product differs from the CPU's"
            q, k, v = (torch.randn(1, 4, 96, 64, generator=generator).to(dtype) for _ in range(3))
            mask = torch.ones(96, 96, dtype=torch.bool).tril()
            theirs = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), attn_mask=mask)
            ours = F.scaled_dot_product_attention(
                q.to(device), k.to(device), v.to(device), attn_mask=mask.to(device)
            )
            if differs(ours, theirs):
                return f"its {dtype} attention differs from the CPU's"
            places = torch.tensor([5, 3, 60])
            written = torch.zeros(64, 512, dtype=dtype).index_copy_(0, places, a[:3])
            on_device = torch.zeros(64, 512, dtype=dtype, device=device)
            on_device.index_copy_(0, places.to(device), a[:3].to(device))
            if differs(on_device.index_select(0, places.to(device)), written[places].float()):
                return f"its {dtype} cache writes differ from the CPU's"
    return ""


def main(arguments: list[str]) -> int:
    """The child process. Exit code 0 and one line of JSON, or an exception's."""
    prepare_environment()
    answer = _list() if arguments[:1] == ["list"] else [{"reason": _check(arguments[1])}]
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
