"""The turned model is the same model, and its matrices have no outliers left."""

import pytest
import torch

from engine.execution.linear import LINEAR_FORMATS
from engine.execution.step_plan import plan_step
from engine.execution.transformer import Transformer
from engine.kv.storage import KVStorage
from engine.models.rotation import RotatedWeights, Rotation, block_size, hadamard
from engine.models.weights import Weights, open_weights
from engine.scheduling.batch import Batch
from tests.support import Stream, embedded_model_path, tiny_model

CPU = torch.device("cpu")


def logits(weights: Weights, tokens: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        model = Transformer(weights, LINEAR_FORMATS["float32"], 256, CPU, lambda *_: None)
        storage = KVStorage(weights.shape, 16, torch.float32, CPU)
        rows = Batch([Stream(1, tokens, list(range(16))).row()])
        return model.forward(plan_step(rows, storage, None), storage)


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [True, False])
def test_float32_does_not_change(
    architecture: str, tied: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp(architecture)
    tiny_model(architecture, tied=tied).save_pretrained(path)
    weights = open_weights(path)
    tokens = list(range(3, 60))
    torch.testing.assert_close(
        logits(RotatedWeights(weights), tokens), logits(weights, tokens), atol=3e-4, rtol=1e-3
    )


def test_the_embedded_model_does_not_change_but_for_its_outliers() -> None:
    weights = open_weights(embedded_model_path())
    turned = RotatedWeights(weights)
    tokens = [(7 * n * n + 11) % 49152 for n in range(60)]
    torch.testing.assert_close(logits(turned, tokens), logits(weights, tokens), atol=3e-3, rtol=1e-3)

    def peak(matrix: torch.Tensor) -> float:
        """Largest element over the root mean square, the rows' worst."""
        return float((matrix.abs().amax(1) / matrix.square().mean(1).sqrt()).max())

    assert peak(turned.tensor("embedding")) < 6 < peak(weights.tensor("embedding"))
    weights.close()


@pytest.mark.parametrize("size", [576, 896, 64, 35, 2048])
def test_the_matrix_is_orthogonal_and_the_same_every_time(size: int) -> None:
    matrix = Rotation(size).columns(torch.eye(size))
    torch.testing.assert_close(matrix @ matrix.t(), torch.eye(size), atol=1e-5, rtol=0)
    assert torch.equal(matrix, Rotation(size).columns(torch.eye(size)))
    some = torch.randn(size, 3)
    torch.testing.assert_close(Rotation(size).rows(some), matrix.t() @ some, atol=1e-4, rtol=1e-4)


def test_hadamard_undoes_itself() -> None:
    assert torch.equal(hadamard(128) @ hadamard(128), 128 * torch.eye(128))
    assert [block_size(n, 128) for n in (1536, 4864, 96, 7)] == [128, 128, 32, 1]
