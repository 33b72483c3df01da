"""What a decode step is told, in one int32 matrix that travels to the device in one copy.

A line per row: token id, context length, uniform number (float64, two columns), temperature, top-k, top-p,
min-p, then the block table. A line of length 0 is padding.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import torch

from engine.request import SamplingParams
from engine.scheduling.batch import BatchRow

HEADER = 8  # columns before the block table; even, so that float64 numbers stay aligned


class Draw(IntEnum):
    """How much a step's most demanding row asks of sampling."""

    GREEDY = 0  # the likeliest token
    PLAIN = 1  # temperature and min-p
    FILTERED = 2  # top-k or top-p: the vocabulary is sorted


def draw_of(params: SamplingParams) -> Draw:
    """What a row asks for; a repetition penalty is another matter, see `DecodeGraphs`."""
    if params.temperature == 0 or params.repetition_penalty != 1:
        return Draw.GREEDY
    return Draw.FILTERED if params.top_k or params.top_p < 1 else Draw.PLAIN


@dataclass(frozen=True, slots=True)
class DecodeInputs:
    """The matrix's columns as tensors that share its memory. `stride` is one line in elements."""

    ids: torch.Tensor  # int32 [rows]
    lengths: torch.Tensor  # int32 [rows], the new token included
    uniforms: torch.Tensor  # float64 [rows]
    temperatures: torch.Tensor  # float32 [rows]
    top_k: torch.Tensor  # int32 [rows]
    top_p: torch.Tensor  # float32 [rows]
    min_p: torch.Tensor  # float32 [rows]
    blocks: torch.Tensor  # int32 [rows, blocks]

    @classmethod
    def of(cls, matrix: torch.Tensor) -> "DecodeInputs":
        """`matrix` int32 [rows, HEADER + blocks], with an even number of columns."""
        floats = matrix[:, 4:HEADER].view(torch.float32)
        return cls(
            ids=matrix[:, 0],
            lengths=matrix[:, 1],
            uniforms=matrix[:, 2:4].view(torch.float64)[:, 0],
            temperatures=floats[:, 0],
            top_k=matrix[:, 5],
            top_p=floats[:, 2],
            min_p=floats[:, 3],
            blocks=matrix[:, HEADER:],
        )

    @property
    def stride(self) -> int:
        return self.ids.stride(0)


class Staging:
    """The matrix on the host. What a line keeps from the step before is not written again."""

    def __init__(self, rows: int, blocks: int, pinned: bool) -> None:
        columns = HEADER + blocks + blocks % 2
        self.matrix = torch.zeros(rows, columns, dtype=torch.int32, pin_memory=pinned)
        self._ints = self.matrix.numpy()
        self._floats = self._ints.view(np.float32)
        self._doubles = self._ints.view(np.float64)
        self._tables: list[list[int]] = [[] for _ in range(rows)]
        self._params: list[SamplingParams | None] = [None] * rows

    def place(self, rows: list[BatchRow], padded: int) -> None:
        """Write ids, lengths and blocks of `rows`, each with one token, and padding up to `padded` lines."""
        count = len(rows)
        self._ints[:count, 0] = [row.tokens[-1] for row in rows]
        self._ints[:count, 1] = [row.context for row in rows]
        self._ints[count:padded, 1] = 0
        for line, row in enumerate(rows):
            if self._tables[line] != row.blocks:
                self._ints[line, HEADER : HEADER + len(row.blocks)] = row.blocks
                self._tables[line] = list(row.blocks)

    def sample(self, rows: list[BatchRow], uniform: Callable[[BatchRow], float]) -> Draw:
        """Write how `rows` are drawn; returns what the most demanding needs.

        `uniform` is asked once for each row that draws a token now.
        """
        most = Draw.GREEDY
        for line, row in enumerate(rows):
            if self._params[line] is not row.sampling:
                self._set_params(line, row.sampling)
            kind = draw_of(row.sampling)
            if kind and row.samples:
                self._doubles[line, 1] = uniform(row)
                most = max(most, kind)
        return most

    def _set_params(self, line: int, params: SamplingParams) -> None:
        self._params[line] = params
        # A row with a penalty is drawn elsewhere: here it counts as greedy.
        self._floats[line, 4] = params.temperature if draw_of(params) else 0.0
        self._ints[line, 5] = params.top_k
        self._floats[line, 6] = params.top_p
        self._floats[line, 7] = params.min_p
