"""Logits of tiny random models against transformers: architectures, file formats, batches, caches."""

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.devices import adapter, mps
from engine.execution.step_plan import plan_step
from engine.models.gguf import READABLE
from engine.scheduling.batch import Batch
from tests.support import (
    Stream,
    generate,
    open_runner,
    reference_weights,
    scattered,
    tiny_model,
    write_gguf,
)

ARCHITECTURES = ("llama", "qwen2", "qwen3")
PROMPT = torch.randint(0, 320, (70,), generator=torch.Generator().manual_seed(3)).tolist()


def expected(model: Any, tokens: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return model(torch.tensor([tokens])).logits[0]


@pytest.fixture(scope="module", params=ARCHITECTURES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A model of each architecture, saved as sharded safetensors."""
    model = tiny_model(request.param, tied=request.param == "qwen3")
    path = tmp_path_factory.mktemp(request.param)
    model.save_pretrained(path, max_shard_size="1MB")
    assert len(list(path.glob("*.safetensors"))) > 1
    return model, path


def test_a_prompt_at_once_and_in_chunks(folder: tuple[Any, Path]) -> None:
    model, path = folder
    runner = open_runner(path)
    want = expected(model, PROMPT)
    whole = runner.logits(Batch([Stream(1, PROMPT, list(range(5))).row()]), every_token=True)
    torch.testing.assert_close(whole, want, atol=2e-4, rtol=1e-4)
    stream = Stream(2, PROMPT, scattered(5, offset=20))
    while stream.computed < len(PROMPT):
        row = stream.row(17)
        got = runner.logits(Batch([row]), every_token=True)
        torch.testing.assert_close(got, want[row.start : row.context], atol=2e-4, rtol=1e-4)
        stream.computed += row.length
    runner.close()


def test_prefill_and_decode_rows_together(folder: tuple[Any, Path]) -> None:
    model, path = folder
    runner = open_runner(path)
    streams = [
        Stream(1, PROMPT[:40], scattered(4)),
        Stream(2, PROMPT[:16], list(range(100, 104))),
        Stream(3, PROMPT, list(range(110, 115))),
    ]
    generate(runner, streams[:1], 2)  # now a decode row
    runner.run(Batch([streams[2].row(30)]))
    streams[2].computed = 30  # now in the middle of its prompt
    rows = [s.row() for s in streams]
    got = runner.logits(Batch(rows))
    want = torch.stack([expected(model, s.tokens)[-1] for s in streams])
    torch.testing.assert_close(got, want, atol=2e-4, rtol=1e-4)
    runner.close()


def test_padded_rows_give_the_same(folder: tuple[Any, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The way of computing that accelerators take, here with Metal's bucket sizes."""
    monkeypatch.setattr(adapter, "bucket", lambda _: mps.bucket)
    model, path = folder
    runner = open_runner(path)
    streams = [Stream(n, PROMPT[n : 20 + 9 * n], list(range(n * 5, n * 5 + 5))) for n in range(5)]
    generate(runner, streams[:3], 3)  # three decode rows become four, 5 blocks become 8
    got = runner.logits(Batch([s.row() for s in streams]))
    want = torch.stack([expected(model, s.tokens)[-1] for s in streams])
    torch.testing.assert_close(got, want, atol=2e-4, rtol=1e-4)
    runner.close()


def test_blocks_shared_by_two_requests(folder: tuple[Any, Path]) -> None:
    model, path = folder
    runner = open_runner(path)
    first = Stream(1, PROMPT[:48], [5, 9, 7])
    runner.run(Batch([first.row()]))
    other = PROMPT[:32] + PROMPT[50:60]
    second = Stream(2, other, [5, 9, 11], computed=32)  # a prefix hit of two blocks
    torch.testing.assert_close(
        runner.logits(Batch([second.row()]))[0], expected(model, other)[-1], atol=2e-4, rtol=1e-4
    )
    runner.close()


@pytest.mark.parametrize("format", ["bf16", "int8", "int4", "int8-dynamic"])
def test_fast_formats_stay_near(folder: tuple[Any, Path], format: str) -> None:
    model, path = folder
    runner = open_runner(path, format)
    want = expected(model, PROMPT)
    rows = Stream(1, PROMPT, scattered(5)).row()
    got = runner.logits(Batch([rows]), every_token=True)
    error = (got - want).norm() / want.norm()
    assert error < {"bf16": 0.02, "int8": 0.03, "int4": 0.3, "int8-dynamic": 0.06}[format]
    # The kernels for few rows and for many hold the same values.
    one = Stream(1, PROMPT, rows.blocks, computed=len(PROMPT) - 1)
    last = runner.logits(Batch([one.row()]))[0]
    # A difference in the last bit may turn an activation's code over.
    assert (last - got[-1]).norm() / got[-1].norm() < (0.04 if format == "int8-dynamic" else 0.02)
    runner.close()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_gguf_of_each_architecture(architecture: str, tmp_path: Path) -> None:
    model = tiny_model(architecture, tied=architecture == "llama")
    path = tmp_path / "tiny.gguf"
    write_gguf(model, path)
    runner = open_runner(path)
    got = runner.logits(Batch([Stream(1, PROMPT, list(range(5))).row()]), every_token=True)
    torch.testing.assert_close(got, expected(model, PROMPT), atol=2e-4, rtol=1e-4)
    assert runner.shape.eos_ids == (2,) and runner.shape.vocab == 320
    runner.close()


@pytest.mark.parametrize("kind", READABLE)
def test_gguf_of_each_tensor_type(kind: str, tmp_path: Path) -> None:
    model = tiny_model("llama")
    path = tmp_path / "tiny.gguf"
    write_gguf(model, path, kind)
    model.load_state_dict(reference_weights(path, model))
    runner = open_runner(path)
    got = runner.logits(Batch([Stream(1, PROMPT, list(range(5))).row()]), every_token=True)
    torch.testing.assert_close(got, expected(model, PROMPT), atol=3e-4, rtol=1e-3)
    runner.close()


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1"])
def test_int4_keeps_the_grid_of_the_file(kind: str, tmp_path: Path) -> None:
    model = tiny_model("llama")
    path = tmp_path / "tiny.gguf"
    write_gguf(model, path, kind)
    model.load_state_dict(reference_weights(path, model))
    want = expected(model, PROMPT)
    runner = open_runner(path, "int4")
    got = runner.logits(Batch([Stream(1, PROMPT, list(range(5))).row()]), every_token=True)
    assert (got - want).norm() / want.norm() < 0.03  # rounding of activations and of the head's eight bits
    runner.close()


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
        {
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    ],
)
def test_stretched_rotary_frequencies(rope: dict[str, Any], tmp_path: Path) -> None:
    model = tiny_model("llama", rope_parameters=rope)
    model.save_pretrained(tmp_path)
    runner = open_runner(tmp_path)
    got = runner.logits(Batch([Stream(1, PROMPT, list(range(5))).row()]), every_token=True)
    torch.testing.assert_close(got, expected(model, PROMPT), atol=2e-4, rtol=1e-4)
    runner.close()


def test_rows_that_share_a_prefix(folder: tuple[Any, Path]) -> None:
    """Two groups, one of them scattered, and a row of its own; own parts of different lengths."""
    model, path = folder
    runner = open_runner(path)
    other = [3 + token % 300 for token in reversed(PROMPT)]
    streams = []
    for number, (prompt, common) in enumerate([(PROMPT, [4, 5, 6, 7]), (other, [9, 2, 30, 12])]):
        runner.run(Batch([Stream(90 + number, prompt[:64], common).row()]))
        for n in range(3):
            own = 40 + 10 * number + 3 * n
            tokens = prompt[:64] + [n + 5] * (1 + 13 * n)
            streams.append(Stream(own, tokens, [*common, own, own + 1, own + 2], computed=64))
    streams.append(Stream(80, PROMPT[:20], [80, 81, 82]))
    generate(runner, streams, 2)
    rows = [s.row() for s in streams]
    plan = plan_step(Batch(rows), runner._storage, None)
    assert [len(g.rows) for g in plan.groups] == [3, 3] and len(plan.singles) == 1
    assert plan.groups[0].shared.blocks is None and plan.groups[1].shared.blocks is not None
    want = torch.stack([expected(model, s.tokens)[-1] for s in streams])
    torch.testing.assert_close(runner.logits(Batch(rows)), want, atol=2e-4, rtol=1e-4)
    runner.close()
