"""Decode steps as single launches: a recorded graph per row bucket, context bucket and kind of sampling.

A step writes its rows into one matrix on the host and launches one graph, which copies the matrix, computes,
samples and copies the ids back. On devices without graphs the same work runs operation by operation.
"""

import logging
from collections.abc import Callable
from importlib.util import find_spec
from typing import Protocol

import torch

from engine.config import BLOCK_TOKENS
from engine.devices import adapter
from engine.errors import BackendError
from engine.execution.decode_inputs import DecodeInputs, Draw, Staging
from engine.execution.device_sampler import UNSETTLED, draw, draw_sorted
from engine.execution.sampler import Sampler
from engine.execution.table_decoder import TableDecoder
from engine.execution.transformer import Progress, Transformer
from engine.kv.storage import KVStorage
from engine.scheduling.batch import BatchRow

MOST_ROWS = 64  # of one launch; a longer step takes several
FIRST_CONTEXT = 512  # tokens; the buckets double from here
Recorder = Callable[[Callable[[], None]], Callable[[], None]]
_log = logging.getLogger(__name__)


class Decoder(Protocol):
    """From inputs on the device to logits on the device, in work of fixed shape."""

    def logits(self, inputs: DecodeInputs, context: int) -> torch.Tensor: ...


def row_bucket(rows: int) -> int:
    """1, 2, 4, ... rows."""
    return 1 << max(0, rows - 1).bit_length()


def context_buckets(context_tokens: int) -> list[int]:
    """512, 1,024, ... tokens; the last one holds the whole context, in whole blocks."""
    last = -(-context_tokens // BLOCK_TOKENS) * BLOCK_TOKENS
    buckets = []
    size = FIRST_CONTEXT
    while size < last:
        buckets.append(size)
        size *= 2
    return [*buckets, last]


def make_decoder(model: Transformer, storage: KVStorage, rows: int, context: int) -> tuple[Decoder, str]:
    """The fastest decoder that runs here, and its name: "fused" or "tables"."""
    if model.device.type == "cuda" and find_spec("triton"):
        try:
            from engine.execution.fused_decoder import FusedDecoder

            fused = FusedDecoder(model, storage, rows, context)
            matrix = torch.zeros(1, Staging(1, -(-context // BLOCK_TOKENS), False).matrix.shape[1]).int()
            fused.logits(DecodeInputs.of(matrix.to(model.device)), context)
            return fused, "fused"
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # no C compiler, an unknown processor: triton has many ways to fail
            _log.warning("fused kernels do not run here, decoding is slower: %s", error)
    return TableDecoder(model, storage), "tables"


class DecodeGraphs:
    """Decodes rows of one new token. Not for use from two threads."""

    def __init__(
        self,
        model: Transformer,
        storage: KVStorage,
        sampler: Sampler,
        context_tokens: int,
        slots: int,
        on_progress: Progress,
    ) -> None:
        self._device, self._storage, self._sampler = model.device, storage, sampler
        self._contexts = context_buckets(context_tokens)
        most = row_bucket(min(slots, MOST_ROWS))
        self.decoder, self.decoder_name = make_decoder(model, storage, most, self._contexts[-1])
        pinned = self._device.type == "cuda"
        self._staging = Staging(most, self._contexts[-1] // BLOCK_TOKENS, pinned)
        self._inputs = torch.zeros_like(self._staging.matrix, device=self._device)
        self._answers = torch.zeros(most, dtype=torch.int64, pin_memory=pinned)
        self._record = adapter.recorder(self._device)
        self._graphs: dict[tuple[int, int, Draw], RecordedStep] = {}
        self._last: RecordedStep | None = None
        self._rows: list[BatchRow] = []  # launched, not collected
        self._done: list[int] = []
        self._warm(on_progress)

    @property
    def most_rows(self) -> int:
        return self._answers.shape[0]

    def launch(self, rows: list[BatchRow]) -> None:
        """Start the rows, each with one token. `collect` must follow before the next launch."""
        self._done = []
        while len(rows) > self.most_rows:
            self._launch(rows[: self.most_rows])
            self._done += self._collect()
            rows = rows[self.most_rows :]
        self._launch(rows)

    def collect(self) -> list[int]:
        """One id per launched row, in order, once they are on the host; also for rows that do not sample."""
        return self._done + self._collect()

    def close(self) -> None:
        """Drop the recordings, which refer to this object and it to them."""
        self._graphs.clear()
        self._last = None

    def _launch(self, rows: list[BatchRow]) -> None:
        padded = row_bucket(len(rows))
        longest = max(row.context for row in rows)
        context = next(c for c in self._contexts if c >= longest)
        self._staging.place(rows, padded)
        kind = self._staging.sample(rows, self._sampler.uniform)
        self._rows, self._last = rows, self._graph(padded, context, kind)
        self._last.replay()

    def _collect(self) -> list[int]:
        assert self._last is not None, "nothing was launched"
        adapter.wait(self._device)
        ids: list[int] = self._answers[: len(self._rows)].tolist()
        return _settled(ids, self._last.logits, self._inputs, self._rows, self._sampler)

    def _graph(self, rows: int, context: int, kind: Draw) -> "RecordedStep":
        key = (rows, context, kind)
        if key not in self._graphs:
            inputs = DecodeInputs.of(self._inputs[:rows])

            def work() -> torch.Tensor:
                self._inputs[:rows].copy_(self._staging.matrix[:rows], non_blocking=True)
                logits = self.decoder.logits(inputs, context)
                self._answers[:rows].copy_(draw(logits, inputs, kind), non_blocking=True)
                return logits

            self._graphs[key] = RecordedStep(work, self._record)
        return self._graphs[key]

    def _warm(self, on_progress: Progress) -> None:
        """Record what the slots can ask for, so that no request waits for it. Padding computes nothing."""
        if self._device.type != "cuda":
            return
        rows = [1 << n for n in range(self.most_rows.bit_length())]
        keys = [(r, c, d) for c in self._contexts for r in rows for d in Draw]
        try:
            for done, key in enumerate(keys):
                self._graph(*key)
                on_progress("record graphs", (done + 1) / len(keys))
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise BackendError(f"Recording CUDA graphs failed ({error}): use --backends cpu.") from error


class RecordedStep:
    """The step of one bucket. `logits` are those of the last replay."""

    def __init__(self, work: Callable[[], torch.Tensor], record: Recorder) -> None:
        self._work = work
        self.logits = torch.empty(0)
        self.replay = record(self._run)

    def _run(self) -> None:
        self.logits = self._work()


class PendingSample:
    """Ids on their way: drawn on the device behind whatever was launched before, read once that is done."""

    def __init__(self, logits: torch.Tensor, rows: list[BatchRow], sampler: Sampler) -> None:
        """`logits` [rows, vocab]; they may be overwritten by the next launch."""
        staging = Staging(len(rows), 0, pinned=logits.device.type == "cuda")
        kind = staging.sample(rows, sampler.uniform)
        self._matrix = staging.matrix.to(logits.device, non_blocking=True)
        self._staging = staging.matrix  # the copy may not have begun
        self._rows, self._sampler = rows, sampler
        # Only filters and penalties look at the logits again.
        again = kind == Draw.FILTERED or any(row.sampling.repetition_penalty != 1 for row in rows)
        self._logits = logits.clone() if again else logits
        self._ids = draw(logits, DecodeInputs.of(self._matrix), kind)

    def collect(self) -> list[int]:
        """One id per row, in order."""
        return _settled(self._ids.tolist(), self._logits, self._matrix, self._rows, self._sampler)


def _settled(
    ids: list[int], logits: torch.Tensor, matrix: torch.Tensor, rows: list[BatchRow], sampler: Sampler
) -> list[int]:
    """`ids` with what the device left open: filters of a flat distribution, and penalties."""
    for index, row in enumerate(rows):
        line = slice(index, index + 1)
        if row.samples and row.sampling.repetition_penalty != 1:
            ids[index] = sampler.sample(logits[line], [row])[0]
        elif row.samples and ids[index] == UNSETTLED:
            ids[index] = int(draw_sorted(logits[line], DecodeInputs.of(matrix[line])))
    return ids
