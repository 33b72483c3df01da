"""Open a Hugging Face model folder: config.json and *.safetensors, in one file or several."""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from engine.errors import ModelFileError, UnsupportedModelError
from engine.models.architecture import ModelShape, shape_from_config
from engine.models.inspect import read_config

_READABLE = (torch.float32, torch.float16, torch.bfloat16)


class SafetensorsFolder:
    """The tensors of a model folder by their names in the file. Files stay mapped until `close`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = read_config(folder)
        paths = sorted(folder.glob("*.safetensors"))
        if not paths:
            raise ModelFileError(f"There is no .safetensors file in {folder}: download the model again.")
        self._where: dict[str, Any] = {}
        for path in paths:
            try:
                opened: Any = safe_open(path, framework="pt")
                self._where.update(dict.fromkeys(opened.keys(), opened))
            except (SafetensorError, OSError) as error:
                raise ModelFileError(f"{path.name} is damaged ({error}): download it again.") from error

    def shape(self) -> ModelShape:
        """The model's shape. Raises `UnsupportedModelError` or `ModelFileError`."""
        return shape_from_config(self.config)

    def __contains__(self, name: str) -> bool:
        return name in self._where

    def read(self, name: str) -> torch.Tensor:
        """One tensor as float32. Raises `ModelFileError` if absent, `UnsupportedModelError` for its type."""
        if name not in self._where:
            raise ModelFileError(f"{self.folder} lacks the tensor '{name}': download the model again.")
        tensor: torch.Tensor = self._where[name].get_tensor(name)
        if tensor.dtype not in _READABLE:
            raise UnsupportedModelError(
                f"The tensor '{name}' has the type {tensor.dtype}, which is not supported: use a model in "
                "float32, float16 or bfloat16."
            )
        return tensor.float()

    def close(self) -> None:
        self._where.clear()
