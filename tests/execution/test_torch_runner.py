"""The runner's manners: threads, formats, devices, memory, closing."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.devices import adapter
from engine.errors import BackendError, ConfigError
from engine.execution.torch_runner import TorchRunner, make_runner
from engine.kv.storage import KVStorage, block_bytes
from engine.models.architecture import named_shape
from engine.request import RequestId, SamplingParams
from engine.scheduling.batch import Batch
from tests.support import Stream, generate, open_runner, spec, tiny_model


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    tiny_model("llama").save_pretrained(tmp_path)
    return tmp_path


def in_thread(call: object) -> BaseException | None:
    caught: list[BaseException] = []

    def body() -> None:
        try:
            call()  # type: ignore[operator]
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    return caught[0] if caught else None


def test_another_thread_is_refused(tiny: Path) -> None:
    runner = open_runner(tiny)
    batch = Batch([Stream(1, [3, 4], [0]).row()])
    for call in (lambda: runner.run(batch), lambda: runner.forget(RequestId(1)), runner.close):
        assert isinstance(in_thread(call), RuntimeError)
    assert len(runner.run(batch)) == 1
    runner.close()


def test_closing_twice_is_harmless_and_final(tiny: Path) -> None:
    runner = open_runner(tiny)
    runner.close()
    runner.close()
    with pytest.raises(RuntimeError, match="closed"):
        runner.run(Batch([Stream(1, [3], [0]).row()]))


def test_threads_are_set_first(tiny: Path) -> None:
    before = torch.get_num_threads()
    try:
        seen: list[int] = []

        def progress(_: str, __: float) -> None:
            seen.append(torch.get_num_threads())

        make_runner(replace(spec(), threads=2), tiny, None, "auto", 64, 0, progress).close()
        assert seen and set(seen) == {2}
    finally:
        torch.set_num_threads(before)


def test_progress_runs_from_above_zero_to_one(tiny: Path) -> None:
    steps: list[tuple[str, float]] = []
    make_runner(spec(), tiny, None, "auto", 64, 0, lambda what, done: steps.append((what, done))).close()
    shares = [done for _, done in steps]
    assert shares == sorted(shares) and shares[-1] == 1.0 and {what for what, _ in steps} == {"load"}


def test_facts(tiny: Path) -> None:
    runner = open_runner(tiny, context=99_999)
    assert runner.block_bytes == block_bytes(runner.shape, torch.float32) == 16 * 2 * 2 * 2 * 64 * 4
    assert runner.context_tokens == 512  # the model's own
    assert runner.format == "float32" and "1 of" in runner.device_name
    assert runner.weight_bytes == runner.shape.linear_parameters * 4
    runner.close()


def test_only_sampling_rows_answer(tiny: Path) -> None:
    runner = open_runner(tiny)
    first, second = Stream(1, [5, 6, 7, 8], [0]), Stream(2, [9, 8], [1])
    assert len(runner.run(Batch([first.row(2), second.row()]))) == 1
    first.computed = 2
    assert runner.run(Batch([Stream(3, [1, 2, 3], [2]).row(2)])) == []
    assert len(runner.run(Batch([first.row()]))) == 1
    runner.close()


def test_seeded_text_does_not_depend_on_company(tiny: Path) -> None:
    runner = open_runner(tiny)
    params = [SamplingParams(temperature=1.2, seed=n) for n in range(4)]

    def stream(n: int) -> Stream:
        return Stream(n, [n + 3] * (5 + n), list(range(n * 4, n * 4 + 4)), sampling=params[n])

    alone = [generate(runner, [stream(n)], 12)[0] for n in range(4)]
    for n in range(4):
        runner.forget(RequestId(n))
    assert generate(runner, [stream(n) for n in range(4)], 12, chunk=3) == alone
    runner.close()


def test_random_weights_by_name() -> None:
    shape = named_shape("smollm2-135m")
    runner = make_runner(spec("bf16", blocks=4), None, "smollm2-135m", "dummy", 64, 3)
    assert runner.shape == shape
    assert len(runner.run(Batch([Stream(1, [1, 2, 3], [0]).row()]))) == 1
    runner.close()
    with pytest.raises(ConfigError, match="--architecture"):
        make_runner(spec(), None, None, "dummy", 64)
    with pytest.raises(ConfigError, match="no model to load"):
        make_runner(spec(), None, None, "auto", 64)


def test_devices_and_formats_that_cannot_be(tiny: Path) -> None:
    with pytest.raises(ConfigError, match="choose auto, float32, bf16, int8, int4"):
        open_runner(tiny, "int3")
    with pytest.raises(ConfigError, match="no device 'tpu'"):
        make_runner(spec(device="tpu"), tiny, None, "auto", 64)
    if not torch.cuda.is_available():
        with pytest.raises(BackendError, match="CUDA"):
            make_runner(spec(device="cuda:0"), tiny, None, "auto", 64)


def test_too_little_device_memory_is_said_at_once(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "memory_budget", lambda _: 1 << 20)
    with pytest.raises(BackendError, match="384 KV blocks need .* GiB and cpu offers 0.0 GiB"):
        open_runner(tiny)


def test_storage_reads_runs_and_scattered_blocks_alike() -> None:
    shape = named_shape("smollm2-135m")
    storage = KVStorage(replace(shape, layers=1), 12, torch.float32, torch.device("cpu"))
    values = torch.randn(40, 6, 64)
    for blocks in ([3, 4, 5], [9, 2, 7]):
        places = torch.tensor([blocks[p // 16] * 16 + p % 16 for p in range(40)])
        storage.write(0, places, values)
        keys, kept = storage.read(0, storage.window(blocks, 40))
        assert torch.equal(keys, values[:, :3].transpose(0, 1)) and torch.equal(
            kept, values[:, 3:].transpose(0, 1)
        )
    assert storage.window([3, 4, 5, 1], 40).blocks is None  # the fourth block is not needed
    assert storage.block_bytes == 16 * 6 * 64 * 4
    keys, kept = storage.read_table(0, torch.tensor([[3, 4, 5], [9, 2, 7]]))
    assert keys.shape == (2, 3, 48, 64) and torch.equal(keys[0], keys[1]) and torch.equal(kept[0], kept[1])


def test_runner_type_is_what_backends_expect(tiny: Path) -> None:
    from engine.execution.runner import Runner

    runner: Runner = open_runner(tiny)
    assert isinstance(runner, TorchRunner)
    runner.close()
