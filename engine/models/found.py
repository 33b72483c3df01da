"""Models that LM Studio, Ollama and Hugging Face have already downloaded. Read only, torch-free."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engine.models.catalog import size_on_disk

_OLLAMA_WEIGHTS = "application/vnd.ollama.image.model"


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model outside Offramp's own folder. `path` is what `--model` takes; it may still not run."""

    name: str
    owner: str  # "LM Studio", "Ollama", "Hugging Face"
    path: Path
    size_bytes: int


def find_models(home: Path | None = None) -> list[FoundModel]:
    """Every GGUF file and safetensors folder in the usual places, sorted by owner and name.

    Unreadable folders and files are left out: they belong to others.
    """
    home = home or Path.home()
    found = [*_lm_studio(home), *_ollama(home), *_hugging_face(home)]
    return sorted(found, key=lambda model: (model.owner, model.name.lower()))


def _lm_studio(home: Path) -> Iterator[FoundModel]:
    for root in (home / ".lmstudio" / "models", home / ".cache" / "lm-studio" / "models"):
        for file in _files(root, "*.gguf"):
            if not file.name.startswith("mmproj"):  # a picture encoder, no language model
                yield FoundModel(file.stem, "LM Studio", file, size_on_disk(file))


def _ollama(home: Path) -> Iterator[FoundModel]:
    """Manifests name their blobs by digest: manifests/REGISTRY/LIBRARY/MODEL/TAG -> blobs/sha256-..."""
    root = Path(os.environ.get("OLLAMA_MODELS") or home / ".ollama" / "models")
    for manifest in _files(root / "manifests", "*"):
        try:
            layers = json.loads(manifest.read_text(encoding="utf-8"))["layers"]
            digests = [layer["digest"] for layer in layers if layer["mediaType"] == _OLLAMA_WEIGHTS]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        for digest in digests:
            blob = root / "blobs" / str(digest).replace(":", "-")
            if blob.is_file():
                name = f"{manifest.parent.name}:{manifest.name}"
                yield FoundModel(name, "Ollama", blob, size_on_disk(blob))


def _hugging_face(home: Path) -> Iterator[FoundModel]:
    """hub/models--OWNER--NAME/snapshots/REVISION/, the newest revision of each repository."""
    base = os.environ.get("HF_HOME") or home / ".cache" / "huggingface"
    hub = Path(os.environ.get("HF_HUB_CACHE") or Path(base) / "hub")
    for repo in _files(hub, "models--*", folders=True, deep=False):
        revisions = _files(repo / "snapshots", "*", folders=True, deep=False)
        if not revisions:
            continue
        folder = max(revisions, key=lambda path: path.stat().st_mtime)
        name = repo.name.removeprefix("models--").replace("--", "/")
        for file in _files(folder, "*.gguf"):
            yield FoundModel(f"{name}/{file.name}", "Hugging Face", file, size_on_disk(file))
        if (folder / "config.json").is_file() and any(folder.glob("*.safetensors")):
            yield FoundModel(name, "Hugging Face", folder, size_on_disk(folder))


def _files(root: Path, pattern: str, folders: bool = False, deep: bool = True) -> list[Path]:
    """Files (or folders) below `root`, [] where it is absent or closed to us."""
    try:
        paths = root.rglob(pattern) if deep else root.glob(pattern)
        return sorted(path for path in paths if (path.is_dir() if folders else path.is_file()))
    except OSError:
        return []
