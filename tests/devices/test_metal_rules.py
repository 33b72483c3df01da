"""Metal's rules, tried without Metal: one thread, few shapes, its share of the memory, short steps."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from engine.backend import REST_S, Backend, Close, DropUnowned, Submit, serve
from engine.clock import VirtualClock
from engine.config import BackendSpec
from engine.devices import adapter, mps
from engine.errors import BackendError
from engine.execution.memory import footprint
from engine.execution.profile_runner import ProfileRunner
from engine.execution.step_plan import plan_step
from engine.execution.torch_runner import TorchRunner, make_runner
from engine.kv.manager import KvManager
from engine.kv.storage import KVStorage
from engine.models.architecture import ModelShape, named_shape
from engine.profiling.profile import load_profile
from engine.request import BackendName, Request, RequestId, SamplingParams
from engine.scheduling.batch import Batch
from engine.scheduling.policies import make_policy
from engine.scheduling.scheduler import Scheduler
from engine.transport import Plan, make_backend
from tests.support import Stream, generate, open_runner, spec, tiny_model

CONTEXT, STEP = 4096, 512  # the most tokens of a context and of a step
METAL = torch.device("mps")


@pytest.fixture
def metal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with Metal, as far as this module asks: 10 GiB recommended of 32."""
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 10 << 30)
    monkeypatch.setattr(torch.mps, "empty_cache", lambda: None)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("M", (), {"total": 32 << 30})())
    monkeypatch.setattr(mps, "_owners", [])


@pytest.fixture
def as_metal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the runner does on Metal, with the device's string set to cpu."""
    monkeypatch.setattr(adapter, "bucket", lambda _: mps.bucket)
    monkeypatch.setattr(adapter, "shares_memory", lambda _: True)


def elsewhere(call: Callable[[], object]) -> BaseException | None:
    caught: list[BaseException] = []

    def body() -> None:
        try:
            call()
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=body, name="stranger")
    thread.start()
    thread.join()
    return caught[0] if caught else None


# -- one thread


def test_every_call_of_another_thread_is_refused(metal: None) -> None:
    assert adapter.open_device("mps") == METAL
    for call in (
        lambda: adapter.open_device("mps"),
        lambda: adapter.release(METAL),
        lambda: adapter.memory_budget(METAL),
    ):
        call()  # its own thread may
        error = elsewhere(call)
        assert isinstance(error, RuntimeError) and "'stranger' called what belongs to 'MainThread'" in str(
            error
        )


def test_before_it_is_open_anyone_may_ask_what_is_there(metal: None) -> None:
    assert elsewhere(mps.devices) is None
    assert mps.devices() == [("mps", mps.device_name(), 8 << 30)]


# -- few shapes


def test_buckets_are_few_and_never_too_small() -> None:
    for most, count in ((8, 4), (CONTEXT // 16, 10), (STEP, 14)):
        sizes = [mps.bucket(n) for n in range(1, most + 1)]
        assert len(set(sizes)) == count and sizes == sorted(sizes)
        assert all(size >= n for n, size in enumerate(sizes, 1))
        assert all(mps.bucket(size) == size for size in sizes)


_SHAPE = ModelShape("llama", 1, 32, 4, 2, 8, 64, 128, 1e4, 1e-5, CONTEXT, True)
_STORAGE = KVStorage(_SHAPE, 8 * CONTEXT // 16, torch.float32, torch.device("cpu"))


def rows(parts: list[tuple[int, int]]) -> list[Stream]:
    """(computed, new) tokens of each row, in blocks of its own."""
    each = CONTEXT // 16
    return [
        Stream(n, [5] * (computed + new), list(range(n * each, (n + 1) * each)), computed=computed)
        for n, (computed, new) in enumerate(parts)
    ]


parts = st.lists(
    st.tuples(st.integers(0, CONTEXT - STEP), st.one_of(st.just(1), st.integers(2, STEP // 8))),
    min_size=1,
    max_size=8,
)


@settings(max_examples=120, deadline=None)
@given(parts)
def test_any_mix_of_rows_has_shapes_out_of_a_small_set(mix: list[tuple[int, int]]) -> None:
    plan = plan_step(Batch([s.row() for s in rows(mix)]), _STORAGE, mps.bucket)
    tokens = {mps.bucket(n) for n in range(1, STEP + 1)}
    blocks = {mps.bucket(n) for n in range(1, CONTEXT // 16 + 1)}
    assert plan.ids.shape[0] in tokens
    assert not plan.spans and not plan.singles and not plan.groups
    if plan.table is not None:
        count, width = plan.table.blocks.shape
        assert count in (1, 2, 4, 8) and width in blocks
        assert plan.table.mask.shape == (count, 2, 2, 16 * width)
    for padded in plan.padded:
        length, width = padded.rows.shape[0], padded.blocks.shape[1]
        assert length in tokens and width in blocks and padded.mask.shape == (1, 2, 2 * length, 16 * width)
    # 4 x 10 tables, 14 x 10 longer rows and 14 sizes of everything else: fewer than 200 shapes, for good.
    assert 4 * len(blocks) + len(tokens) * len(blocks) + len(tokens) < 200


class Shapes(TorchDispatchMode):
    """Every operation with the shapes of its tensors, which is what Metal keeps a graph for."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, tuple[tuple[int, ...], ...]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        shapes = tuple(tuple(a.shape) for a in args if isinstance(a, torch.Tensor))
        self.seen.append((func.name(), shapes))
        return func(*args, **(kwargs or {}))


def operations(runner: TorchRunner, mix: list[tuple[int, int]]) -> list[Any]:
    streams = [
        Stream(n, [5] * (computed + new), list(range(40 * n, 40 * n + 40)), computed=computed)
        for n, (computed, new) in enumerate(mix)
    ]
    plan = plan_step(Batch([s.row() for s in streams]), runner._storage, mps.bucket)
    with torch.inference_mode(), Shapes() as shapes:
        runner._model.forward(plan, runner._storage)
    return shapes.seen


def test_batches_of_the_same_buckets_run_the_same_shapes(tmp_path: Path, as_metal: None) -> None:
    tiny_model("llama").save_pretrained(tmp_path)
    runner = open_runner(tmp_path)
    decode = operations(runner, [(130, 1), (30, 1), (200, 1)])
    assert decode == operations(runner, [(255, 1), (64, 1), (70, 1)])
    assert decode != operations(runner, [(256, 1), (64, 1), (70, 1)])  # one block more is another bucket
    prompts = operations(runner, [(40, 40), (0, 20), (90, 1)])
    assert prompts == operations(runner, [(31, 43), (12, 17), (80, 1)])
    runner.close()


def test_the_runner_says_the_same_in_metals_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_model("llama").save_pretrained(tmp_path)
    replies = []
    for way in (None, mps.bucket):
        monkeypatch.setattr(adapter, "bucket", lambda _, way=way: way)
        runner = open_runner(tmp_path)
        streams = [Stream(n, [3 + n] * (4 + 11 * n), list(range(20 * n, 20 * n + 20))) for n in range(5)]
        replies.append(generate(runner, streams, 6, chunk=13))
        runner.close()
    assert replies[0] == replies[1]


# -- memory and time


def test_the_budget_is_the_smaller_share(metal: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert mps.memory_budget() == 8 << 30
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 30 << 30)
    assert mps.memory_budget() == int(0.6 * (32 << 30))


def test_the_other_backends_share_is_taken_from_the_budget(
    tmp_path: Path, as_metal: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_model("llama").save_pretrained(tmp_path)
    ours, other = spec("float32", blocks=16), replace(spec("float32", blocks=16), name=BackendName("cpu-2"))
    alone = open_runner(tmp_path, blocks=16)
    share = footprint(other, alone.shape)
    alone.close()
    monkeypatch.setattr(adapter, "memory_budget", lambda _: 2 * share)
    make_runner(ours, tmp_path, None, "auto", 64, others=(other,)).close()
    monkeypatch.setattr(adapter, "memory_budget", lambda _: 2 * share - 1)
    with pytest.raises(BackendError, match="beside CPU 2: use fewer KV blocks"):
        make_runner(ours, tmp_path, None, "auto", 64, others=(other,))
    monkeypatch.setattr(adapter, "shares_memory", lambda _: False)  # memory of its own: nobody beside it
    make_runner(ours, tmp_path, None, "auto", 64, others=(other,)).close()


def test_a_share_counts_weights_and_cache() -> None:
    shape, least = named_shape("smollm2-135m"), spec("int4", blocks=2)
    for form in ("auto", "float32", "bf16", "int8", "int4", "int8-dynamic"):
        small, large = (footprint(replace(least, format=form, kv_blocks=n), shape) for n in (2, 1002))
        assert large - small == 1000 * 16 * shape.kv_elements * 4
        assert small >= shape.parameters
    assert footprint(replace(least, format="float32"), shape) > 4 * shape.parameters


def test_only_metal_shares_the_machines_memory() -> None:
    assert [adapter.shares_memory(torch.device(d)) for d in ("cpu", "cuda", "mps")] == [False, False, True]


@pytest.mark.parametrize(("device", "tokens"), [("mps", STEP), ("cpu", 2048), ("cuda:0", 2048)])
def test_a_step_on_metal_is_short(device: str, tokens: int) -> None:
    plan = Plan(
        BackendSpec(BackendName("gpu"), "gpu", device, token_budget=2048, kv_blocks=300), "s", 4096, ()
    )
    runner: Any = None
    backend = make_backend(plan, runner)
    prompt = tuple(range(5, 3005))
    backend.handle(Submit(Request(RequestId(1), prompt, SamplingParams(max_new_tokens=1), 0.0), 0))
    assert backend.begin().prefill_tokens == tokens


def test_shapes_are_met_at_load_and_leave_nothing_in_the_cache(
    as_metal: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    tiny_model("llama").save_pretrained(folder)
    plain = open_runner(folder, blocks=40, context=512)
    met: list[tuple[int, int]] = []
    logits = TorchRunner.logits

    def seen(runner: TorchRunner, batch: Batch, every_token: bool = False) -> torch.Tensor:
        met.append((len(batch.rows), max(row.context for row in batch.rows)))
        return logits(runner, batch, every_token)

    monkeypatch.setattr(adapter, "keeps_shapes", lambda _: True)
    monkeypatch.setattr(TorchRunner, "logits", seen)
    warm = open_runner(folder, blocks=40, context=512)
    assert {rows for rows, _ in met} == {1, 2, 4}  # the buckets of four slots
    assert {mps.bucket(context) for rows, context in met if rows == 1} == {64, 128, 256, 512}
    prompts = [Stream(n, [5 + n + i for i in range(20)], [3 * n, 3 * n + 1, 3 * n + 2]) for n in range(3)]
    again = [Stream(s.number, list(s.tokens), s.blocks) for s in prompts]
    assert generate(warm, prompts, 6) == generate(plain, again, 6)
    warm.close()
    plain.close()


def test_an_idle_backend_rests_once_and_goes_on() -> None:
    class Resting(ProfileRunner):
        rests = 0

        def rest(self) -> None:
            self.rests += 1

    waited: list[float | None] = []
    commands = iter([None, DropUnowned(), None, None, Close()])

    def receive(timeout_s: float | None) -> object:
        waited.append(timeout_s)
        return next(commands)

    runner = Resting(load_profile("batching-gpu").backends[0])
    scheduler = Scheduler(KvManager(8, "rest"), make_policy("fcfs"), 1, 64, ())
    backend = Backend(BackendName("gpu"), scheduler, runner, VirtualClock())
    serve(backend, receive, lambda _: None)  # type: ignore[arg-type]
    assert waited == [REST_S, None, 0, REST_S, None] and runner.rests == 2
