"""The embedded model's real weights on CUDA against transformers: `python -m tests.device.real_weights FILE`.

float32: every greedy id is transformers' first choice, or tied with it. bf16: how far the logits are, how
often the first choice agrees, and how long replies run alike. pytest does not collect this file: it needs
a GPU.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer

from engine.config import BackendSpec
from engine.execution.torch_runner import TorchRunner
from engine.models.prepare import prepared
from engine.models.weights import open_weights
from engine.request import BackendName
from engine.scheduling.batch import Batch
from tests.execution.texts import PROMPTS
from tests.support import Stream, generate, reference_model

NEW = 64  # tokens of each reply
TIE = 1e-3  # two logits closer than this may swap places: sums are rounded in another order
DEVICE = "cuda:0"


def open_runner(path: Path, format: str) -> TorchRunner:
    weights = open_weights(path)
    try:
        spec = BackendSpec(BackendName("gpu"), "gpu", DEVICE, 1, format, 8, 1024)
        return TorchRunner(spec, weights, 2048)
    finally:
        weights.close()


def streams(prompts: list[list[int]]) -> list[Stream]:
    """Up to 8 together, in interleaved blocks."""
    return [
        Stream(n, list(p), [n + 8 * i for i in range((len(p) + NEW) // 16 + 1)])
        for n, p in enumerate(prompts)
    ]


def replies(runner: TorchRunner, prompts: list[list[int]], together: int) -> list[list[int]]:
    found: list[list[int]] = []
    for first in range(0, len(prompts), together):
        found += generate(runner, streams(prompts[first : first + together]), NEW, chunk=200)
    return found


class Oracle:
    """transformers' float32 logits of whole sequences, on the device."""

    def __init__(self, path: Path) -> None:
        torch.backends.cuda.matmul.allow_tf32 = False
        self._model = reference_model(path).to(DEVICE)
        self._model.generation_config.eos_token_id = None  # replies of one length compare best

    def last(self, tokens: list[int], count: int) -> torch.Tensor:
        """Logits [count, vocab] that chose the last `count` tokens."""
        with torch.inference_mode():
            ids = torch.tensor([tokens], device=DEVICE)
            logits: torch.Tensor = self._model(ids, logits_to_keep=count + 1).logits[0, :-1]
            return logits.float()

    def generated(self, prompt: list[int]) -> list[int]:
        ids = torch.tensor([prompt], device=DEVICE)
        made = self._model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=NEW,
        )
        found: list[int] = made[0, len(prompt) :].tolist()
        return found


def agreement(oracle: Oracle, prompts: list[list[int]], made: list[list[int]]) -> dict[str, Any]:
    """How the oracle sees replies: ids that are not its first choice, how far behind, and ties."""
    behind = []
    for prompt, new in zip(prompts, made, strict=True):
        scores = oracle.last(prompt + new, len(new))
        chosen = scores.gather(1, torch.tensor(new, device=DEVICE)[:, None])[:, 0]
        behind.append((scores.amax(1) - chosen).cpu())
    gaps = torch.cat(behind)
    return {
        "tokens": len(gaps),
        "first_choice": float((gaps == 0).float().mean()),
        "ties": int(((gaps > 0) & (gaps < TIE)).sum()),
        "not_first_choice": int((gaps >= TIE).sum()),
        "furthest_behind": float(gaps.max()),
    }


def divergence(runner: TorchRunner, oracle: Oracle, prompts: list[list[int]]) -> float:
    """Mean KL of our next-token distributions from the oracle's, over all prompt positions kept."""
    found = []
    for prompt in prompts:
        row = Stream(1, list(prompt), list(range(120))).row(4096)
        got = runner.logits(Batch([row]), every_token=True).float().log_softmax(-1)
        keep = min(len(prompt) - 1, 256)
        want = oracle.last(prompt, keep).log_softmax(-1)
        got = got[-keep - 1 : -1]
        found.append((want.exp() * (want - got)).sum(-1).cpu())
    return float(torch.cat(found).mean())


def main() -> int:
    path = Path(sys.argv[1])
    tokenizer = Tokenizer.from_file(str(prepared(path) / "tokenizer.json"))
    prompts = [tokenizer.encode(text, add_special_tokens=False).ids for text in PROMPTS]
    oracle = Oracle(path)
    theirs = [oracle.generated(prompt) for prompt in prompts]
    report: dict[str, Any] = {"device": torch.cuda.get_device_name(0), "prompts": len(prompts)}
    for form in ("float32", "bf16"):
        runner = open_runner(path, form)
        for together in (1, 8):
            began = time.perf_counter()
            made = replies(runner, prompts, together)
            alike = [a == b for a, b in zip(made, theirs, strict=True)]
            first = [
                next((n for n, (a, b) in enumerate(zip(x, y, strict=True)) if a != b), NEW)
                for x, y in zip(made, theirs, strict=True)
            ]
            report[f"{form}, {together} together"] = {
                "replies_equal_to_generate": sum(alike),
                "mean_tokens_alike_from_the_start": sum(first) / len(first),
                **agreement(oracle, prompts, made),
                "seconds": time.perf_counter() - began,
            }
        report[f"{form}, mean KL"] = divergence(runner, oracle, prompts)
        runner.close()
    sys.stdout.write(json.dumps(report, indent=1) + "\n")
    exact = [v["not_first_choice"] for k, v in report.items() if k.startswith("float32,") and "together" in k]
    return 0 if not any(exact) else 1


if __name__ == "__main__":
    sys.exit(main())
