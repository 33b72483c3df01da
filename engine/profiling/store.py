"""What was measured on this machine, kept by everything that changes it. Torch-free."""

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from engine import __version__
from engine.paths import cache_dir, make_folder
from engine.profiling.profile import BackendProfile, Profile, Rates, local_profile_path, profile_json
from engine.profiling.step_time import StepTimeModel


@dataclass(frozen=True, slots=True)
class MeasuredKey:
    """What a measurement depends on. `threads` and `device` tell two CPU backends apart."""

    model: str
    format: str
    device: str
    threads: int
    slots: int

    def digest(self) -> str:
        versions = f"{__version__} {metadata.version('torch')}"
        parts = "|".join((self.model, self.format, self.device, str(self.threads), str(self.slots), versions))
        return hashlib.blake2b(parts.encode(), digest_size=10).hexdigest()


@dataclass(frozen=True, slots=True)
class Measured:
    """Isolated rates, and the step-time model once that has been fitted as well."""

    rates: Rates
    steps: StepTimeModel | None = None
    fit_error: float | None = None  # mean absolute relative error on the steps it was fitted to
    held_out_error: float | None = None  # the same on steps it has not seen
    paired: bool = False  # the interference has been measured too


def _file(key: MeasuredKey) -> Path:
    return cache_dir() / "measured" / f"{key.digest()}.json"


def load_measured(key: MeasuredKey) -> Measured | None:
    """What was measured earlier; None when there is nothing, or the file is unreadable."""
    try:
        data = json.loads(_file(key).read_text("utf-8"))
        steps = data["steps"]
        if steps is not None:
            steps["decode_s"] = tuple((int(n), float(a)) for n, a in steps["decode_s"])
            steps = StepTimeModel(**steps)
        rates = Rates(float(data["rates"]["prefill"]), float(data["rates"]["decode"]))
        measured = Measured(rates, steps, data["fit_error"], data["held_out_error"], bool(data["paired"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return measured if rates.prefill > 0 and rates.decode > 0 else None


def save_measured(key: MeasuredKey, measured: Measured) -> None:
    """Keep a measurement; written beside and renamed, so that a reader never sees half a file."""
    path = _file(key)
    make_folder(path.parent)
    temporary = path.with_suffix(f".{os.getpid()}.part")
    temporary.write_text(json.dumps({"key": asdict(key), **asdict(measured)}, indent=1), "utf-8")
    os.replace(temporary, path)


def save_local(backends: tuple[BackendProfile, ...]) -> None:
    """Keep the calibration of this machine as the profile "local", for simulations."""
    title = "this machine, as calibrated"
    profile = Profile("local", title, "Calibration of this machine; interference as measured.", backends)
    path = local_profile_path()
    make_folder(path.parent)
    temporary = path.with_suffix(f".{os.getpid()}.part")
    temporary.write_text(json.dumps(profile_json(profile), indent=1), "utf-8")
    os.replace(temporary, path)


def forget_measured() -> None:
    """Drop every measurement; the next start measures again."""
    for path in (cache_dir() / "measured").glob("*.json"):
        path.unlink(missing_ok=True)
