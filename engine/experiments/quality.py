"""What a format costs in quality: perplexity and greedy agreement on a fixed text, against float32.

`python -m engine.experiments.quality '{"model": ..., "formats": [...]}'` prints one JSON line a format, in a
process of its own because it computes. The text is this project's own: English prose and technical English
(`workloads/data/quality.txt`), then code.
"""

import json
import math
import random
import sys
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import Any

TOKENS = 3072
WINDOW = 512  # tokens that a text is read in, each window from an empty context


def fixed_text() -> str:
    from engine.workloads.texts import passages

    prose = (resources.files("engine.workloads") / "data" / "quality.txt").read_text(encoding="utf-8")
    return prose + "".join(islice(passages("code", random.Random(5)), 60))


def main() -> None:
    """The child's side."""
    from engine.devices.environment import prepare_environment

    prepare_environment()
    import torch
    from tokenizers import Tokenizer

    from engine.config import BackendSpec
    from engine.execution.torch_runner import make_runner
    from engine.models.prepare import prepared
    from engine.request import GREEDY, BackendName, RequestId
    from engine.scheduling.batch import Batch, BatchRow

    spec: dict[str, Any] = json.loads(sys.argv[1])
    path = Path(spec["model"])
    tokenizer = Tokenizer.from_file(str(prepared(path) / "tokenizer.json"))
    ids = tokenizer.encode(fixed_text(), add_special_tokens=False).ids[:TOKENS]
    want: torch.Tensor | None = None
    base = 0.0
    for form in ["float32", *spec["formats"]]:
        backend = BackendSpec(BackendName("quality"), "cpu", "cpu", spec["threads"], form, kv_blocks=40)
        runner = make_runner(backend, path, None, "auto", 2 * WINDOW)
        losses, choices = [], []
        for begin in range(0, len(ids) - 1, WINDOW):
            part = ids[begin : begin + WINDOW]
            row = BatchRow(RequestId(1), 0, part, 0, list(range(33)), True, False, GREEDY, part, len(part))
            logits = runner.logits(Batch([row]), every_token=True)[:-1]
            following = torch.tensor(part[1:])
            losses.append(torch.nn.functional.cross_entropy(logits, following, reduction="none").double())
            choices.append(logits.argmax(-1))
        runner.close()
        loss, chosen = float(torch.cat(losses).mean()), torch.cat(choices)
        if want is None:
            want, base = chosen, loss
        found = {
            "format": runner.format,
            "perplexity": round(math.exp(loss), 4),
            "change": round(math.exp(loss - base) - 1.0, 5),
            "agreement": round(float((chosen == want).double().mean()), 4),
            "tokens": len(ids),
        }
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
