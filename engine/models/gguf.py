"""Open a GGUF file: metadata, and tensors as numpy arrays. No torch here.

The header is parsed by hand because the library's reader builds an object for every vocabulary entry
(5 s for 49,152 tokens against 0.1 s); type numbers, block sizes and dequantisation are the library's.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import math
import mmap
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from engine.errors import ModelFileError, UnsupportedModelError
from engine.models.architecture import ModelShape, shape_from_gguf

READABLE = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K")
_SCALARS = "BbHhIif?saQqd"  # struct codes by value type; "s" string and "a" array stand for themselves
_STRING, _ARRAY = 8, 9

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies. `shape` is rows first; `offset` is in bytes from the start of the file."""

    name: str
    shape: tuple[int, ...]
    type_number: int
    offset: int

    @property
    def type_name(self) -> str:
        try:
            return str(GGMLQuantizationType(self.type_number).name)
        except ValueError:
            return f"number {self.type_number}"


@dataclass(frozen=True, slots=True)
class Grid4:
    """A matrix kept on its file's 4-bit grid: value = codes * scale + minimum, in groups of 32 columns.

    `codes` [rows, columns] uint8 in 0..15; `scale`, `minimum` [rows, columns / 32] float32.
    """

    codes: npt.NDArray[np.uint8]
    scale: Floats
    minimum: Floats

    def rows(self, order: npt.NDArray[np.int64]) -> "Grid4":
        """The same rows in another order."""
        return Grid4(self.codes[order], self.scale[order], self.minimum[order])


class _Header:
    """A cursor over the header's bytes. Raises `struct.error`, `IndexError` or `ValueError` past the end."""

    def __init__(self, data: mmap.mmap | bytes) -> None:
        self._data = data
        self.at = 0

    def number(self, code: str) -> Any:
        (value,) = struct.unpack_from("<" + code, self._data, self.at)
        self.at += struct.calcsize("<" + code)
        return value

    def string(self) -> str:
        length = self.number("Q")
        if length > len(self._data) - self.at:
            raise ValueError("a string runs past the end")
        raw = self._data[self.at : self.at + length]
        self.at += length
        return raw.decode("utf-8", errors="replace")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            item, count = self.number("I"), self.number("Q")
            if count > len(self._data) - self.at:
                raise ValueError("an array runs past the end")
            if item in (_STRING, _ARRAY):
                return [self.value(item) for _ in range(count)]
            code = f"<{count}{_SCALARS[item]}"
            values = list(struct.unpack_from(code, self._data, self.at))
            self.at += struct.calcsize(code)
            return values
        return self.number(_SCALARS[kind])


def parse_header(
    data: mmap.mmap | bytes, name: str, size: int
) -> tuple[dict[str, Any], dict[str, TensorInfo]]:
    """Metadata and tensors from the first bytes of a GGUF file that is `size` bytes long in all.

    Raises `ModelFileError` for what is no GGUF or cut short, and `struct.error`, `IndexError` or `ValueError`
    where `data` ends within the header.
    """
    if data[:4] != b"GGUF":
        raise ModelFileError(f"{name} is not a GGUF file: choose a file that ends in .gguf.")
    header = _Header(data)
    header.at = 4
    version = header.number("I")
    if version not in (2, 3):
        raise ModelFileError(
            f"{name} has GGUF version {version}: use a file of version 2 or 3, little-endian."
        )
    tensor_count, value_count = header.number("Q"), header.number("Q")
    metadata: dict[str, Any] = {}
    for _ in range(value_count):
        key = header.string()
        metadata[key] = header.value(header.number("I"))
    found: list[TensorInfo] = []
    for _ in range(tensor_count):
        tensor, dims = header.string(), header.number("I")
        shape = tuple(header.number("Q") for _ in range(dims))[::-1]
        found.append(TensorInfo(tensor, shape, header.number("I"), header.number("Q")))
    alignment = int(metadata.get("general.alignment", 32))
    start = -(-header.at // alignment) * alignment
    tensors = {t.name: TensorInfo(t.name, t.shape, t.type_number, start + t.offset) for t in found}
    for info in tensors.values():
        if info.type_name in READABLE and info.offset + _byte_size(info) > size:
            raise ModelFileError(f"{name} is cut short: download it again.")
    return metadata, tensors


class GgufFile:
    """An open GGUF file. Tensors are read from the mapped file on demand.

    Raises `ModelFileError` when the file is missing, truncated or no GGUF.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError as error:
            raise ModelFileError(f"There is no model file {path}: check the path.") from error
        except (OSError, ValueError) as error:
            raise ModelFileError(
                f"The model file {path} cannot be read ({error}): download it again."
            ) from error
        try:
            self.metadata, self.tensors = parse_header(self._map, path.name, len(self._map))
        except (struct.error, IndexError, ValueError) as error:
            self.close()
            raise ModelFileError(f"{path.name} is damaged ({error}): download it again.") from error
        except ModelFileError:
            self.close()
            raise

    def shape(self) -> ModelShape:
        """The model's shape. Raises `UnsupportedModelError` or `ModelFileError`."""
        return shape_from_gguf(self.metadata, {name: t.shape for name, t in self.tensors.items()})

    def _rows(self, name: str, permute_heads: int) -> tuple[TensorInfo, npt.NDArray[np.uint8]]:
        """The raw bytes of a tensor, [rows, bytes per row]. A row is never split over quantised blocks, so
        the row order can be mended before any dequantisation, whatever the type."""
        info = self.tensors.get(name)
        if info is None:
            raise ModelFileError(f"{self.path.name} lacks the tensor '{name}': download it again.")
        if info.type_name not in READABLE:
            raise UnsupportedModelError(
                f"The tensor '{name}' has the type {info.type_name}, which is not supported: use a file "
                f"whose tensors are {', '.join(READABLE)}."
            )
        raw = np.frombuffer(self._map, np.uint8, _byte_size(info), info.offset)
        # A vector counts as one row, unless its elements are what must be permuted.
        rows = info.shape[0] if len(info.shape) > 1 or permute_heads else 1
        raw = raw.reshape(rows, -1)
        if permute_heads:
            # llama files keep each head's rotary pairs side by side; ours are half a head apart.
            pairs = raw.reshape(permute_heads, rows // permute_heads // 2, 2, -1)
            raw = np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows, -1)
        return info, raw

    def read(self, name: str, permute_heads: int = 0) -> Floats:
        """One tensor as float32, in its own shape. `permute_heads` undoes the llama row order of q and k.

        Raises `ModelFileError` if absent, `UnsupportedModelError` for a type outside `READABLE`.
        """
        info, raw = self._rows(name, permute_heads)
        kind = GGMLQuantizationType(info.type_number)
        if info.type_name == "F32":
            return raw.view(np.float32).reshape(info.shape).copy()
        if info.type_name == "F16":
            return raw.view(np.float16).astype(np.float32).reshape(info.shape)
        values: Floats = np.asarray(dequantize(raw, kind), dtype=np.float32)
        return values.reshape(info.shape)

    def read_grid(self, name: str, permute_heads: int = 0) -> Grid4 | None:
        """A Q4_0 or Q4_1 matrix on its own grid, else None. Blocks: scale, (minimum,) then 16 bytes whose
        low halves are columns 0..15 and high halves columns 16..31."""
        info = self.tensors.get(name)
        if info is None or info.type_name not in ("Q4_0", "Q4_1"):
            return None
        info, raw = self._rows(name, permute_heads)
        head = 2 if info.type_name == "Q4_0" else 4
        blocks = raw.reshape(info.shape[0], -1, head + 16)
        packed = blocks[..., head:]
        codes = np.concatenate((packed & 15, packed >> 4), axis=-1).reshape(info.shape)
        scales = np.ascontiguousarray(blocks[..., :head]).view(np.float16).astype(np.float32)
        scale = scales[..., 0]
        return Grid4(codes, scale, scale * -8.0 if head == 2 else scales[..., 1])

    def close(self) -> None:
        """Unmap the file. Arrays that still look into it keep it mapped until they die."""
        try:
            self._map.close()
        except BufferError:
            return


def unreadable(types: Iterable[str]) -> str:
    """Why tensors of these types cannot be read; "" where they can."""
    refused = sorted(set(types) - set(READABLE))
    if not refused:
        return ""
    return (
        f"Its tensors of the type {', '.join(refused)} are not supported: use a file whose tensors are "
        f"{', '.join(READABLE)}."
    )


def _byte_size(tensor: TensorInfo) -> int:
    block, size = GGML_QUANT_SIZES[GGMLQuantizationType(tensor.type_number)]
    count = math.prod(tensor.shape)
    if not tensor.shape or tensor.shape[-1] % block:
        raise ValueError(f"the tensor {tensor.name} has a row that is no whole number of blocks")
    return count // int(block) * int(size)
