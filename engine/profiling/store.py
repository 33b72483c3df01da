"""Measured rates kept on this machine, by everything that changes them. Torch-free."""

import hashlib
import json
import os
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from engine import __version__
from engine.paths import cache_dir, make_folder
from engine.profiling.profile import Rates


@dataclass(frozen=True, slots=True)
class RatesKey:
    """What a rate depends on. `threads` and `device` tell two CPU backends apart."""

    model: str
    format: str
    device: str
    threads: int
    slots: int

    def digest(self) -> str:
        versions = f"{__version__} {metadata.version('torch')}"
        parts = "|".join(
            (self.model, self.format, self.device, str(self.threads), str(self.slots), versions)
        )
        return hashlib.blake2b(parts.encode(), digest_size=10).hexdigest()


def _file(key: RatesKey) -> Path:
    return cache_dir() / "rates" / f"{key.digest()}.json"


def load_rates(key: RatesKey) -> Rates | None:
    """Rates measured earlier; None when there are none, or the file is unreadable."""
    try:
        data = json.loads(_file(key).read_text("utf-8"))
        rates = Rates(float(data["prefill"]), float(data["decode"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return rates if rates.prefill > 0 and rates.decode > 0 else None


def save_rates(key: RatesKey, rates: Rates) -> None:
    """Keep rates; written beside and renamed, so that a reader never sees half a file."""
    path = _file(key)
    make_folder(path.parent)
    text = json.dumps(
        {
            "model": key.model,
            "format": key.format,
            "device": key.device,
            "threads": key.threads,
            "slots": key.slots,
            "prefill": rates.prefill,
            "decode": rates.decode,
        }
    )
    temporary = path.with_suffix(f".{os.getpid()}.part")
    temporary.write_text(text, "utf-8")
    os.replace(temporary, path)


def forget_rates() -> None:
    """Drop every measured rate; the next start measures again."""
    for path in (cache_dir() / "rates").glob("*.json"):
        path.unlink(missing_ok=True)
