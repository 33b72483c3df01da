"""Look at a model before loading it. No torch here, so that any process may ask."""

import json
from pathlib import Path

from engine.errors import ModelFileError
from engine.models.architecture import ModelShape, shape_from_config
from engine.models.gguf import GgufFile


def inspect_model(path: Path) -> ModelShape:
    """The shape of a GGUF file or a model folder, from its header alone (0.2 s).

    Raises `ModelFileError` or `UnsupportedModelError`.
    """
    if path.is_dir():
        return shape_from_config(read_config(path))
    file = GgufFile(path)
    try:
        return file.shape()
    finally:
        file.close()


def read_config(folder: Path) -> dict[str, object]:
    """The folder's config.json. Raises `ModelFileError`."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelFileError(f"There is no config.json in {folder}: choose a model folder.") from error
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{path} cannot be read ({error}): download the model again.") from error
    if not isinstance(config, dict):
        raise ModelFileError(f"{path} holds no JSON object: download the model again.")
    return config
