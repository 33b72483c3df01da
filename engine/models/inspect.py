"""Look at a model before loading or downloading it. No torch here, so that any process may ask."""

import json
import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import EngineError, ModelFileError, UnsupportedModelError
from engine.models.architecture import ModelShape, shape_from_config, shape_from_gguf
from engine.models.gguf import GgufFile, TensorInfo, parse_header, unreadable


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a header says. `problem` is why it can't run, in a sentence; `shape` is None where that is why."""

    family: str  # "llama", or whatever the file calls itself
    tensor_types: tuple[str, ...]  # of its tensors, by their number, most first; () where it is not said
    size_bytes: int
    shape: ModelShape | None = None
    problem: str = ""

    @property
    def parameters(self) -> int:
        return self.shape.parameters if self.shape is not None else 0


def inspect_model(path: Path) -> ModelShape:
    """The shape of a GGUF file or a model folder, from its header alone (0.2 s).

    Raises `ModelFileError` or `UnsupportedModelError`, also for tensors of a type that cannot be read.
    """
    if path.is_dir():
        return shape_from_config(read_config(path))
    file = GgufFile(path)
    try:
        shape = file.shape()
        if problem := unreadable(t.type_name for t in file.tensors.values()):
            raise UnsupportedModelError(f"{path.name} cannot be used. {problem}")
        return shape
    finally:
        file.close()


def examine(path: Path) -> Inspection:
    """The same without raising: whatever is wrong becomes `problem`."""
    from engine.models.catalog import size_on_disk

    try:
        if path.is_dir():
            return from_config(read_config(path), size_on_disk(path))
        file = GgufFile(path)
    except EngineError as error:
        return Inspection("unknown", (), 0, problem=str(error))
    try:
        return from_header(file.metadata, file.tensors, path.stat().st_size)
    finally:
        file.close()


def from_header(metadata: Mapping[str, Any], tensors: Mapping[str, TensorInfo], size: int) -> Inspection:
    """What the parsed header of a GGUF file means for us."""
    family = str(metadata.get("general.architecture", "unknown"))
    types = _most_first(t.type_name for t in tensors.values())
    try:
        shape = shape_from_gguf(metadata, {name: t.shape for name, t in tensors.items()})
    except EngineError as error:
        return Inspection(family, types, size, problem=str(error))
    return Inspection(family, types, size, shape, unreadable(types))


def from_bytes(data: bytes, name: str, size: int) -> Inspection | None:
    """The same from the first bytes of a file of `size` bytes; None while more of them are needed."""
    try:
        return from_header(*parse_header(data, name, size), size)
    except ModelFileError as error:
        return Inspection("unknown", (), size, problem=str(error))
    except (struct.error, IndexError, ValueError) as error:
        if len(data) < size:
            return None
        return Inspection("unknown", (), size, problem=f"{name} is damaged ({error}): download it again.")


def from_config(config: Mapping[str, Any], size: int) -> Inspection:
    """What a folder's config.json means for us."""
    family = str(config.get("model_type", "unknown"))
    kind = config.get("dtype") or config.get("torch_dtype")
    types = (str(kind),) if kind else ()
    try:
        return Inspection(family, types, size, shape_from_config(config))
    except EngineError as error:
        return Inspection(family, types, size, problem=str(error))


def _most_first(types: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name, _ in Counter(types).most_common())


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
