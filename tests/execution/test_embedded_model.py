"""The embedded model against transformers: token for token in float32, near enough in the fast formats."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer

from engine.config import BLOCK_TOKENS
from engine.execution.torch_runner import TorchRunner
from engine.models.prepare import prepared
from engine.scheduling.batch import Batch
from tests.execution.texts import PROMPTS
from tests.support import Stream, embedded_model_path, generate, open_runner, reference_model

NEW = 5  # tokens generated for each prompt
TIE = 1e-3  # two logits closer than this may swap places: sums are rounded in another order


@pytest.fixture(scope="module")
def model_path() -> Path:
    return embedded_model_path()


@pytest.fixture(scope="module")
def oracle(model_path: Path) -> Any:
    return reference_model(model_path)


@pytest.fixture(scope="module")
def prompts(model_path: Path) -> list[list[int]]:
    tokenizer = Tokenizer.from_file(str(prepared(model_path) / "tokenizer.json"))
    found = [tokenizer.encode(text, add_special_tokens=False).ids for text in PROMPTS]
    assert len(found) == 20 and len(found[-1]) > 1500
    return found


class Scores:
    """The oracle's logits for token sequences, computed once each; the last positions are kept."""

    KEPT = 256

    def __init__(self, model: Any) -> None:
        self._model, self._known = model, dict[tuple[int, ...], torch.Tensor]()

    def __call__(self, tokens: list[int]) -> torch.Tensor:
        """Logits [last positions, vocab]."""
        if (key := tuple(tokens)) not in self._known:
            with torch.inference_mode():
                inputs = torch.tensor([tokens])
                self._known[key] = self._model(inputs, logits_to_keep=self.KEPT).logits[0]
        return self._known[key]

    def check_greedy(self, prompt: list[int], new: list[int]) -> int:
        """Each new token is the oracle's first choice, or tied with it. Returns the number of ties."""
        scores = self(prompt + new)[-len(new) - 1 : -1]
        chosen = scores.gather(1, torch.tensor(new)[:, None])[:, 0]
        behind = scores.amax(1) - chosen
        assert (behind < TIE).all(), f"{prompt[:8]}...: {behind.tolist()}"
        return int((behind > 0).sum())


@pytest.fixture(scope="module")
def scores(oracle: Any) -> Scores:
    return Scores(oracle)


@pytest.fixture(scope="module")
def float32(model_path: Path) -> Iterator[TorchRunner]:
    runner = open_runner(model_path, "float32", blocks=520)
    yield runner
    runner.close()


@pytest.fixture(scope="module")
def alone(float32: TorchRunner, prompts: list[list[int]]) -> list[list[int]]:
    """Each prompt's reply when it has the backend to itself."""
    return [generate(float32, [Stream(n, list(p), list(range(100)))], NEW)[0] for n, p in enumerate(prompts)]


def test_alone_token_for_token(scores: Scores, prompts: list[list[int]], alone: list[list[int]]) -> None:
    ties = sum(scores.check_greedy(p, new) for p, new in zip(prompts, alone, strict=True))
    assert ties <= 2  # a rare thing, or something is wrong


def test_in_batches_of_four(scores: Scores, float32: TorchRunner, prompts: list[list[int]]) -> None:
    """Interleaved block tables, and chunks of 200 so that prefill and decode rows mix."""
    for first in range(0, 20, 4):
        group = prompts[first : first + 4]
        streams = [
            Stream(n, list(p), [n + 4 * i for i in range((len(p) + NEW) // BLOCK_TOKENS + 1)])
            for n, p in enumerate(group)
        ]
        replies = generate(float32, streams, NEW, chunk=200)
        for prompt, new in zip(group, replies, strict=True):
            scores.check_greedy(prompt, new)


def test_with_prefix_hits(scores: Scores, float32: TorchRunner, prompts: list[list[int]]) -> None:
    """The second asker of a prompt adopts all its full blocks but what the last token needs."""
    for prompt in (prompts[1], prompts[-1]):
        hit = (len(prompt) - 1) // BLOCK_TOKENS
        blocks = [300 - n for n in range(hit)]
        generate(float32, [Stream(1, list(prompt), [*blocks, 301, 302])], 1)
        second = Stream(2, list(prompt), [*blocks, 303, 304], computed=hit * BLOCK_TOKENS)
        scores.check_greedy(prompt, generate(float32, [second], NEW)[0])


@pytest.mark.parametrize("format", ["bf16", "int8", "int4", "int8-dynamic"])
def test_fast_formats_keep_quality(
    format: str, model_path: Path, scores: Scores, prompts: list[list[int]], alone: list[list[int]]
) -> None:
    runner = open_runner(model_path, format)
    divergence, agreement = [], []
    for prompt, new in zip(prompts, alone, strict=True):
        tokens = prompt + new
        want = scores(tokens).log_softmax(-1)
        stream = Stream(1, tokens, list(range(120)))
        parts = []
        while stream.computed < len(tokens):
            row = stream.row()
            parts.append(runner.logits(Batch([row]), every_token=True)[-Scores.KEPT :])
            stream.computed += row.length
        got = torch.cat(parts)[-len(want) :].log_softmax(-1)
        divergence.append((want.exp() * (want - got)).sum(-1))
        agreement.append(want.argmax(-1) == got.argmax(-1))
    runner.close()
    kl, same = torch.cat(divergence).mean().item(), torch.cat(agreement).float().mean().item()
    sys.stdout.write(f"{format}: mean KL {kl:.5f}, top-1 agreement {same:.4f}\n")
    assert kl <= 0.02 and same >= 0.93


def test_auto_is_a_format_that_keeps_quality(model_path: Path) -> None:
    runner = open_runner(model_path, "auto", blocks=2, context=64)
    assert runner.format in ("bf16", "int8", "int4", "int8-dynamic")
    runner.close()
