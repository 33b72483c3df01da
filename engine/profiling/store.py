"""What was measured on this machine, kept by everything that changes it. Torch-free."""

import hashlib
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any

from engine import __version__
from engine.paths import cache_dir, make_folder
from engine.profiling.profile import BackendProfile, Profile, Rates, local_profile_path, profile_json
from engine.profiling.step_time import StepTimeModel

FORMAT, VERSION = "offramp-measured", 2  # raised whenever the points or the model of the fit change


@dataclass(frozen=True, slots=True)
class MeasuredKey:
    """What a measurement depends on. `threads` and `device` tell two CPU backends apart."""

    model: str
    format: str
    device: str
    threads: int
    slots: int

    def digest(self) -> str:
        parts = "|".join((self.model, self.format, self.device, str(self.threads), str(self.slots)))
        return hashlib.blake2b(parts.encode(), digest_size=10).hexdigest()

    def to_json(self) -> dict[str, object]:
        """The key with the machine and the versions that it was measured under."""
        versions = {"offramp": __version__, "torch": metadata.version("torch")}
        return {**asdict(self), "machine": platform.node().partition(".")[0], **versions}


@dataclass(frozen=True, slots=True)
class Measured:
    """Isolated rates, and the step-time model once that has been fitted as well."""

    rates: Rates
    steps: StepTimeModel | None = None
    fit_error: float | None = None  # mean absolute relative error on the steps it was fitted to
    held_out_error: float | None = None  # the same on steps it has not seen
    spread: float | None = None  # how far equal steps strayed from their median
    paired: bool = False  # the interference has been measured too


def _file(key: MeasuredKey) -> Path:
    return cache_dir() / "measured" / f"{key.digest()}.json"


def load_measured(key: MeasuredKey) -> tuple[Measured | None, str]:
    """What was measured earlier, or None; and a sentence where there is a file that cannot be used."""
    path = _file(key)
    try:
        data = json.loads(path.read_text("utf-8"))
        if not isinstance(data, dict) or data.get("format") != FORMAT or data.get("version") != VERSION:
            return None, _refused(path, "was made by another version of Offramp")
        if other := _difference(data.get("key"), key.to_json()):
            return None, _refused(path, f"was measured {other}")
        return _parse(data), ""
    except FileNotFoundError:
        return None, ""
    except OSError as error:
        return None, _refused(path, f"cannot be read ({error.strerror})")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None, _refused(path, "is damaged")


def _refused(path: Path, why: str) -> str:
    return f"The kept calibration {path.name} {why}: it is ignored and measured again."


def _difference(found: object, wanted: dict[str, object]) -> str:
    """The first thing in which two keys differ, in words; "" where they are alike."""
    if not isinstance(found, dict):
        raise ValueError("no key")
    return next((_WORDS[k] for k, value in wanted.items() if found.get(k) != value), "")


_WORDS = {
    "model": "with another model",
    "format": "in another format",
    "device": "on another device",
    "threads": "with another number of threads",
    "slots": "with another number of slots",
    "machine": "on another computer",
    "offramp": "with another version of Offramp",
    "torch": "with another version of torch",
}


def _parse(data: dict[str, Any]) -> Measured:
    """Raises `ValueError`, `KeyError` or `TypeError` where a figure is missing or makes no sense."""
    steps = data["steps"]
    if steps is not None:
        tables = {name: _table(steps[name]) for name in ("decode_s", "prefill_table_s")}
        scalars = {k: number(v) for k, v in steps.items() if k not in tables}
        steps = StepTimeModel(**tables, **scalars)  # type: ignore[arg-type]
        if not steps.decode_s or steps.decode_s[0][0] != 1:
            raise ValueError("no step time of one row")
    rates = Rates(number(data["rates"]["prefill"]), number(data["rates"]["decode"]))
    if rates.prefill <= 0 or rates.decode <= 0:
        raise ValueError("a rate of nothing")
    fit, held_out, spread = (
        None if data[k] is None else number(data[k]) for k in ("fit_error", "held_out_error", "spread")
    )
    return Measured(rates, steps, fit, held_out, spread, bool(data["paired"]))


def _table(pairs: Sequence[Sequence[float]]) -> tuple[tuple[int, float], ...]:
    table = tuple((int(n), number(s)) for n, s in pairs)
    if any(b[0] <= a[0] for a, b in pairwise(table)) or (table and table[0][0] < 1):
        raise ValueError("a table out of order")
    return table


def number(value: object) -> float:
    """A finite number of 0 or more, as every figure of a measurement is. Raises `ValueError`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise ValueError(f"{value!r} is no figure")
    return float(value)


def save_measured(key: MeasuredKey, measured: Measured) -> None:
    """Keep a measurement; written beside and renamed, so that a reader never sees half a file."""
    path = _file(key)
    make_folder(path.parent)
    temporary = path.with_suffix(f".{os.getpid()}.part")
    data = {"format": FORMAT, "version": VERSION, "key": key.to_json(), **asdict(measured)}
    temporary.write_text(json.dumps(data, indent=1), "utf-8")
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
