"""Reply lengths seen so far, kept per model, so that a new session does not begin knowing nothing."""

import hashlib
import json
import logging
import os
from pathlib import Path

from engine.paths import cache_dir, make_folder
from engine.routing.length import LengthEstimator

log = logging.getLogger(__name__)


def _file(model: str) -> Path:
    name = hashlib.blake2b(model.encode(), digest_size=8).hexdigest()
    return cache_dir() / "lengths" / f"{name}.json"


def load_lengths(model: str) -> LengthEstimator:
    """The estimator of a model, with what earlier sessions have seen."""
    lengths = LengthEstimator()
    try:
        data = json.loads(_file(model).read_text("utf-8"))
        if data["version"] == 1:
            lengths.restore(data["classes"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return LengthEstimator()
    return lengths


def save_lengths(model: str, lengths: LengthEstimator) -> None:
    """Keep what was seen. A disk that refuses costs the history only."""
    path = _file(model)
    try:
        make_folder(path.parent)
        temporary = path.with_suffix(f".{os.getpid()}.part")
        text = json.dumps({"version": 1, "model": model, "classes": lengths.to_json()})
        temporary.write_text(text, "utf-8")
        os.replace(temporary, path)
    except OSError as error:
        log.warning("reply lengths were not kept: %s", error)
