"""Hardware profiles: what is known of a pair of backends, as data. Torch-free."""

import json
from dataclasses import dataclass
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

from engine.config import TOKEN_BUDGET
from engine.errors import ProfileError, UnknownNameError
from engine.paths import cache_dir
from engine.profiling.step_time import StepTimeModel

FORMAT, VERSION = "offramp-profile", 2
_READ = (1, VERSION)  # version 1 had neither a prefill table nor `start_s`: it says the same without them


@dataclass(frozen=True, slots=True)
class Rates:
    """Isolated rates in tokens per second, of a request of 512 in and 128 out, alone on its backend."""

    prefill: float
    decode: float

    @property
    def isolated_s(self) -> float:
        """Seconds for 512 in and 128 out: the order of speed between backends."""
        return 512 / self.prefill + 128 / self.decode


@dataclass(frozen=True, slots=True)
class BackendProfile:
    """Timings of one backend of a profile."""

    name: str
    kind: str  # "cpu" or "gpu"
    device_name: str
    slots: int
    kv_blocks: int
    block_bytes: int
    rates: Rates
    steps: StepTimeModel
    assumed: tuple[str, ...] = ()  # entries of the profile that rest on no published figure
    # Mean absolute relative errors of the step-time model, where it was fitted to measured steps:
    fit_error: float | None = None  # on the points that it was fitted to
    held_out_error: float | None = None  # on points kept out of the fit
    spread: float | None = None  # of equal steps around their median: what no model can foresee
    token_budget: int = TOKEN_BUDGET  # tokens of a step


@dataclass(frozen=True, slots=True)
class Profile:
    name: str
    title: str  # for the EMULATED mark: "Apple M2, published timings"
    source: str
    backends: tuple[BackendProfile, ...]

    def backend(self, name: str) -> BackendProfile:
        for backend in self.backends:
            if backend.name == name:
                return backend
        raise UnknownNameError(f"backend of profile {self.name}", name, [b.name for b in self.backends])


def _number(data: dict[str, Any], key: str, where: str) -> float:
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise ProfileError(f"{where}: '{key}' is {value!r}: give a number of 0 or more.")
    return float(value)


def _share(data: Any, key: str, where: str) -> float | None:
    if data is None or data.get(key) is None:
        return None
    return _number(data, key, where)


def _table(data: Any, where: str) -> tuple[tuple[int, float], ...]:
    """Seconds by rows or tokens, in order."""
    table = tuple(sorted((int(n), _number(data, n, where)) for n in data))
    if table and table[0][0] < 1:
        raise ProfileError(f"{where}: a table of step times begins at 1, not at {table[0][0]}.")
    return table


def _whole(data: dict[str, Any], key: str, least: int, most: int, where: str) -> int:
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ProfileError(f"{where}: '{key}' is {value!r}: give a whole number from {least} to {most:,}.")
    return value


def _budget(data: dict[str, Any], where: str) -> int:
    """Tokens of a step: profiles did not say so from the beginning."""
    if "token_budget" not in data:
        return TOKEN_BUDGET
    return _whole(data, "token_budget", max(16, data["slots"]), 65_536, where)


def _text(data: dict[str, Any], key: str, where: str) -> str:
    value = data[key]
    if not isinstance(value, str) or not value.strip():
        raise ProfileError(f"{where}: '{key}' is {value!r}: give it a text.")
    return value


_FIT = ("fit_error", "held_out_error", "spread")


def parse_profile(data: dict[str, Any], where: str) -> Profile:
    """Build a profile from parsed JSON; `where` names the file in error messages."""
    try:
        if data["format"] != FORMAT or data["version"] not in _READ:
            raise ProfileError(
                f"{where} is no Offramp profile of version 1 or {VERSION}: use one made by this version."
            )
        backends = []
        for item in data["backends"]:
            steps = item["step"]
            table = _table(steps["decode_s"], where)
            prefill_table = _table(steps.get("prefill_table_s", {}), where)
            if any(b[1] < a[1] for a, b in pairwise(prefill_table)):
                raise ProfileError(f"{where}: prefill_table_s must not fall with more tokens.")
            model = StepTimeModel(
                decode_s=table,
                context_s=_number(steps, "context_s", where),
                prefill_s=_number(steps, "prefill_s", where),
                attention_s=_number(steps, "attention_s", where),
                mixed_s=_number(steps, "mixed_s", where),
                chunk_s=_number(steps, "chunk_s", where),
                interference=_number(steps, "interference", where),
                prefill_table_s=prefill_table,
                start_s=_number(steps, "start_s", where) if "start_s" in steps else 0.0,
            )
            rates = Rates(_number(item["rates"], "prefill", where), _number(item["rates"], "decode", where))
            if rates.prefill <= 0 or rates.decode <= 0 or not table or table[0][0] != 1:
                raise ProfileError(f"{where}: rates must be above 0 and decode_s must start at 1 row.")
            backends.append(
                BackendProfile(
                    _text(item, "name", where),
                    _text(item, "kind", where),
                    _text(item, "device_name", where),
                    _whole(item, "slots", 1, 256, where),
                    _whole(item, "kv_blocks", 2, 1_000_000, where),
                    _whole(item, "block_bytes", 0, 10**12, where),
                    rates,
                    model,
                    tuple(item.get("assumed", ())),
                    fit_error=_share(item.get("fit"), "fit_error", where),
                    held_out_error=_share(item.get("fit"), "held_out_error", where),
                    spread=_share(item.get("fit"), "spread", where),
                    token_budget=_budget(item, where),
                )
            )
        names = [b.name for b in backends]
        if not names or len(set(names)) < len(names) or any(b.kind not in ("cpu", "gpu") for b in backends):
            raise ProfileError(
                f"{where}: give at least one backend, each of kind cpu or gpu with its own name."
            )
        title, source = _text(data, "title", where), _text(data, "source", where)
        return Profile(_text(data, "name", where), title, source, tuple(backends))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ProfileError(f"{where} is not a readable profile ({error}): make it again.") from error


def profile_json(profile: Profile) -> dict[str, Any]:
    """The JSON form that `parse_profile` reads."""
    backends: list[dict[str, Any]] = []
    for b in profile.backends:
        m = b.steps
        backends.append(
            {
                "name": b.name,
                "kind": b.kind,
                "device_name": b.device_name,
                "slots": b.slots,
                "kv_blocks": b.kv_blocks,
                "token_budget": b.token_budget,
                "block_bytes": b.block_bytes,
                "rates": {"prefill": b.rates.prefill, "decode": b.rates.decode},
                "step": {
                    "decode_s": {str(n): a for n, a in m.decode_s},
                    "context_s": m.context_s,
                    "prefill_s": m.prefill_s,
                    "attention_s": m.attention_s,
                    "mixed_s": m.mixed_s,
                    "chunk_s": m.chunk_s,
                    "interference": m.interference,
                    "prefill_table_s": {str(n): d for n, d in m.prefill_table_s},
                    "start_s": m.start_s,
                },
                "assumed": list(b.assumed),
            }
        )
        if b.fit_error is not None:
            backends[-1]["fit"] = {key: getattr(b, key) for key in _FIT}
    head = {"format": FORMAT, "version": VERSION, "name": profile.name, "title": profile.title}
    return {**head, "source": profile.source, "backends": backends}


def local_profile_path() -> Path:
    """Where the calibration of this machine lies as a profile."""
    return cache_dir() / "measured" / "local.profile"


def published_profiles() -> list[str]:
    """Names of the profiles that ship with Offramp."""
    folder = resources.files("engine.profiling") / "published"
    return sorted(f.name.removesuffix(".json") for f in folder.iterdir() if f.name.endswith(".json"))


def load_profile(name: str) -> Profile:
    """A published profile by name, "local" for this machine's calibration, or a profile file by path."""
    if name in published_profiles():
        text = (resources.files("engine.profiling") / "published" / f"{name}.json").read_text("utf-8")
        return parse_profile(json.loads(text), name)
    path = local_profile_path() if name == "local" else Path(name)
    if name == "local" and not path.is_file():
        raise ProfileError("This machine has not been calibrated yet: run `offramp profile` first.")
    if name == "local" or path.suffix == ".json":
        try:
            data = json.loads(path.read_text("utf-8"))
            if name == "local" and isinstance(data, dict) and data.get("version") != VERSION:
                raise ProfileError(
                    "This machine was calibrated by another version of Offramp: run `offramp profile` again."
                )
            return parse_profile(data, str(path))
        except OSError as error:
            raise ProfileError(f"{path} cannot be read ({error.strerror}): check the path.") from error
        except ValueError as error:
            hint = "run `offramp profile`" if name == "local" else "make the profile again"
            raise ProfileError(f"{path} is not JSON ({error}): {hint}.") from error
    raise UnknownNameError("profile", name, [*published_profiles(), "local"])
