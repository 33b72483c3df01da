"""A runner that computes with torch: one model, one KV cache, one device, one thread."""

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from engine.config import BackendSpec
from engine.devices import adapter
from engine.devices.owner import Owner
from engine.errors import BackendError, ConfigError
from engine.execution.bakeoff import fastest_format
from engine.execution.cuda_graphs import DecodeGraphs, PendingSample, context_buckets
from engine.execution.linear import LINEAR_FORMATS
from engine.execution.memory import require_memory
from engine.execution.prefill_graphs import PrefillGraphs
from engine.execution.sampler import Sampler
from engine.execution.step_plan import StepPlan, plan_step
from engine.execution.thread_guard import ThreadGuard
from engine.execution.thread_plan import PROMPT, ROWS, kind_of, plan_threads, trial_batch
from engine.execution.transformer import Progress, Transformer
from engine.kv.storage import KVStorage
from engine.models.architecture import named_shape
from engine.models.weights import DummyWeights, Weights, open_weights
from engine.request import RequestId
from engine.scheduling.batch import Batch, BatchRow

_now_s = time.perf_counter


def _silent(_: str, __: float) -> None:
    return None


class TorchRunner:
    """Executes batches. Built, used and closed in one thread; another thread's call raises.

    `format`, `device_name`, `weight_bytes` and `block_bytes` are facts for the screen.
    """

    def __init__(
        self,
        spec: BackendSpec,
        weights: Weights,
        context_tokens: int,
        seed: int = 0,
        on_progress: Progress = _silent,
        others: Sequence[BackendSpec] = (),
    ) -> None:
        # First of all: a new thread inherits whatever thread count was set last anywhere.
        torch.set_num_threads(spec.threads)
        self._owner = Owner("a runner")
        self._closed = False
        self._device = adapter.open_device(spec.device)
        self.shape = weights.shape
        self.context_tokens = min(context_tokens, self.shape.max_context)
        self.format = choose_format(spec, weights, self._device)
        self.device_name = adapter.name(self._device, spec.threads)
        self.weight_bytes = 0
        form = LINEAR_FORMATS[self.format]
        dtype = adapter.kv_dtype(self._device, form.activations)
        sharing = others if adapter.shares_memory(self._device) else ()
        budget = adapter.memory_budget(self._device)
        require_memory(spec, self.shape, form.activations, dtype, budget, sharing)
        with torch.inference_mode():
            self._model = Transformer(weights, form, self.context_tokens, self._device, on_progress)
            self._storage = KVStorage(self.shape, spec.kv_blocks, dtype, self._device)
        self.weight_bytes = self._model.step_bytes
        self._sampler = Sampler(seed)
        self._bucket = adapter.bucket(self._device)
        self._graphs: DecodeGraphs | None = None
        self._prefills: PrefillGraphs | None = None
        self.thread_plan: dict[int, int] = {}  # threads of each kind of step, see `thread_plan`
        if self._device.type == "cpu":
            self.thread_plan = plan_threads(
                self.logits, spec.threads, spec.slots, spec.kv_blocks, self.context_tokens
            )
        self._guard = ThreadGuard(spec.threads, self.thread_plan)
        if self._device.type == "cuda":
            self._make_graphs(spec.slots, on_progress)
        elif adapter.keeps_shapes(self._device):
            self._meet_shapes(spec.slots, spec.kv_blocks, on_progress)

    @property
    def threads(self) -> int:
        """Threads that a step may take: all, or fewer where they got in each other's way."""
        return self._guard.threads

    @property
    def block_bytes(self) -> int:
        """Bytes of KV cache in one block, keys and values of all layers."""
        return self._storage.block_bytes

    def run(self, batch: Batch) -> list[int]:
        """Compute the batch; one id per row with `samples`, in row order, on the host when it returns."""
        if self._graphs is not None and self._prefills is not None:
            return self._run_graphs(batch, self._graphs, self._prefills)
        kind = kind_of(batch)
        count = self._guard.count(kind)
        if count != torch.get_num_threads():
            torch.set_num_threads(count)
        started_s = _now_s()
        rows = [row for row in batch.rows if row.samples]
        logits = self.logits(batch)
        with torch.inference_mode():
            ids = self._sampler.sample(logits, rows)
        seconds = _now_s() - started_s
        if kind != PROMPT:
            self._guard.note(len(rows), seconds, shared=count > 1)
        return ids

    def _meet_shapes(self, slots: int, blocks: int, on_progress: Progress) -> None:
        """Run a step of every bucket before a request waits for it. The cache holds nothing yet."""
        reads = [size for size in (64, 128, 256, 512, 1024, 2048, 4096) if size <= self.context_tokens]
        kinds = [kind for kind in (PROMPT, *ROWS) if kind <= max(1, slots)]
        steps = [trial_batch(kind, blocks, self.context_tokens, size) for kind in kinds for size in reads]
        for done, batch in enumerate(steps):
            if batch is not None:
                self.logits(batch)
            on_progress("prepare kernels", (done + 1) / len(steps))

    def rest(self) -> None:
        """Nothing has been asked for a while."""
        self._check_thread()
        adapter.rest(self._device)

    def _make_graphs(self, slots: int, on_progress: Progress) -> None:
        with torch.inference_mode():
            self._graphs = DecodeGraphs(
                self._model, self._storage, self._sampler, self.context_tokens, slots, on_progress
            )
            contexts = context_buckets(self.context_tokens)
            self._prefills = PrefillGraphs(self._model, self._storage, contexts, on_progress)
            if self._device.type == "cuda":
                self._prefills.choose_pieces(lambda row: self.logits(Batch([row])), self.context_tokens)

    def _run_graphs(self, batch: Batch, graphs: DecodeGraphs, prefills: PrefillGraphs) -> list[int]:
        """All rows of one token in one launch, then each longer row in one of its own; ids at the end."""
        self._check_thread()
        singles = [row for row in batch.rows if row.length == 1]
        ids: dict[int, int] = {}  # by the row's identity
        pending: list[tuple[BatchRow, PendingSample]] = []
        with torch.inference_mode():
            if singles:
                graphs.launch(singles)
            for row in batch.rows:
                if row.length > 1:
                    logits = prefills.logits(row) if prefills.takes(row) else self.logits(Batch([row]))
                    if row.samples:
                        pending.append((row, PendingSample(logits, [row], self._sampler)))
            if singles:
                ids |= zip(map(id, singles), graphs.collect(), strict=True)
            for row, sample in pending:
                ids[id(row)] = sample.collect()[0]
        adapter.wait(self._device)
        prefills.settled()
        return [ids[id(row)] for row in batch.rows if row.samples]

    def logits(self, batch: Batch, every_token: bool = False) -> torch.Tensor:
        """Compute the batch; float32 logits [rows with `samples`, vocab] on the device, or
        [tokens, vocab] with `every_token`, which is for measuring a format's quality."""
        self._check_thread()
        assert batch.rows, "an empty batch has nothing to compute"
        with torch.inference_mode():
            plan = self.lay_out(batch)
            if every_token:
                count = sum(row.length for row in batch.rows)
                plan = replace(plan, sampled=torch.arange(count, device=self._device))
            return self._model.forward(plan, self._storage)

    def lay_out(self, batch: Batch) -> StepPlan:
        """The batch in tensors: ids, places in the cache, block tables."""
        return plan_step(batch, self._storage, self._bucket)

    def forget(self, request_id: RequestId) -> None:
        """The request ended: drop its random generator."""
        self._check_thread()
        self._sampler.forget(request_id)

    def close(self) -> None:
        """Free weights and cache in the thread that made them. Calling it twice is harmless."""
        if self._closed:
            return
        self._check_thread()
        self._closed = True
        for recorded in (self._graphs, self._prefills):
            if recorded is not None:
                recorded.close()
        self._graphs = self._prefills = None
        del self._model, self._storage, self._sampler
        adapter.release(self._device)

    def _check_thread(self) -> None:
        self._owner.check()
        if self._closed:
            raise RuntimeError("this runner is closed")


def choose_format(spec: BackendSpec, weights: Weights, device: torch.device) -> str:
    """The linear format that a backend uses. Raises `ConfigError` for one its device cannot run."""
    if spec.format == "auto":
        on_cpu = device.type == "cpu"
        return fastest_format(weights, spec.threads) if on_cpu else adapter.default_format(device)
    form = LINEAR_FORMATS.get(spec.format)
    if form is None or device.type not in form.devices:
        known = [name for name, f in LINEAR_FORMATS.items() if device.type in f.devices]
        raise ConfigError(
            f"The format '{spec.format}' does not run on {spec.device}: choose auto, {', '.join(known)}."
        )
    return form.name


def make_runner(
    spec: BackendSpec,
    model_path: Path | None,
    architecture: str | None,
    load_format: str,
    context_tokens: int,
    seed: int = 0,
    on_progress: Progress = _silent,
    others: Sequence[BackendSpec] = (),
) -> TorchRunner:
    """Load a model onto a backend's device.

    `load_format` "dummy" gives random weights of `architecture`, or of the model at `model_path`.
    `others` are backends with the same model on the same machine.
    Raises the errors of model files, `ConfigError` for a format and `BackendError` for a device.
    """
    weights: Weights
    if load_format == "dummy":
        if architecture is None:
            raise ConfigError("Random weights need an architecture: name one with --architecture.")
        weights = DummyWeights(named_shape(architecture), seed)
    elif model_path is None:
        raise ConfigError("There is no model to load: name a GGUF file or a model folder.")
    else:
        weights = open_weights(model_path)
    try:
        return TorchRunner(spec, weights, context_tokens, seed, on_progress, others)
    except torch.OutOfMemoryError as error:
        raise BackendError(
            f"{spec.device} has too little memory for this model: use fewer KV blocks or another model."
        ) from error
    finally:
        weights.close()
