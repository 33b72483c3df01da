"""What a step costs, in operations and in elements: neither grows with anything but what attention reads."""

from collections import Counter
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from engine.execution.torch_runner import TorchRunner
from engine.scheduling.batch import Batch
from tests.support import Stream, open_runner, tiny_model


class Operations(TorchDispatchMode):
    """Counts operations and the elements of the tensors that they make."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.calls[func.name()] += 1
        given = {a.untyped_storage().data_ptr() for a in args if isinstance(a, torch.Tensor)}
        if isinstance(out, torch.Tensor) and out.untyped_storage().data_ptr() not in given:  # no view
            self.elements += out.numel()
        return out


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("growth")
    tiny_model("llama", max_position_embeddings=4096).save_pretrained(path)
    runner = open_runner(path, "float32", blocks=600)
    yield runner
    runner.close()


def cost(runner: TorchRunner, contexts: list[int]) -> Operations:
    """One decode step, each row at its context, in runs of blocks of its own."""
    rows, first = [], 0
    for number, context in enumerate(contexts):
        blocks = list(range(first, first + context // 16 + 1))
        first += len(blocks)
        rows.append(Stream(number, [5] * context, blocks, computed=context - 1).row())
    with Operations() as seen:
        runner.logits(Batch(rows))
    return seen


def test_a_long_reply_costs_what_attention_reads(runner: TorchRunner) -> None:
    short, long = cost(runner, [100]), cost(runner, [4000])
    assert long.calls == short.calls
    # Scores and their softmax, of every layer and head: nothing else knows the context's length.
    shape = runner.shape
    assert long.elements - short.elements == 2 * shape.layers * shape.heads * 3900


def test_every_row_costs_the_same(runner: TorchRunner) -> None:
    one, two, four = (
        sum(cost(runner, [200 + 16 * n for n in range(rows)]).calls.values()) for rows in (2, 3, 5)
    )
    assert (four - two) == 2 * (two - one)


def test_operations_a_layer_stay_few(runner: TorchRunner) -> None:
    seen = cost(runner, [300])
    assert sum(seen.calls.values()) / runner.shape.layers < 70, seen.calls.most_common()
