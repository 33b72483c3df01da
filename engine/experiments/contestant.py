"""One side of a speed comparison: ours, llama.cpp or transformers on the same weights, in its own process.

`python -m engine.experiments.contestant '{"kind": ...}'` answers each test's name on stdin with one JSON
line, `{"tok_s": ...}`; apart, one side's idle threads do not spin in the other's time. Decode tests run
`STEPS` greedy steps from a context of 512 tokens, all rows together.
"""

import ctypes
import json
import sys
import time
from pathlib import Path
from typing import Any, Protocol

CONTEXT = 512
SHARED = 496  # tokens of prefix in common, as in the warm burst
STEPS = 12
ROWS = 8


class Contestant(Protocol):
    about: str  # format or build, one line

    def prefill(self) -> None:
        """Compute `CONTEXT` tokens of an empty context and choose one more."""
        ...

    def ready(self, rows: int, shared: bool) -> None:
        """Have `rows` contexts of `CONTEXT` tokens computed; not timed."""
        ...

    def decode(self, rows: int) -> None:
        """`STEPS` steps of one token a row."""
        ...


def prompts(vocab: int, shared: bool) -> list[list[int]]:
    """`ROWS` lists of `CONTEXT` ids, the first `SHARED` of them alike or not."""
    rows = [
        [(7 * n * n + 31 * n + 1009 * r + 5) % (vocab - 10) + 5 for n in range(CONTEXT)] for r in range(ROWS)
    ]
    return [rows[0][:SHARED] + r[SHARED:] for r in rows] if shared else rows


class Ours:
    """The runner of a backend, without its scheduler."""

    def __init__(self, spec: dict[str, Any]) -> None:
        from engine.config import BackendSpec
        from engine.execution.torch_runner import make_runner
        from engine.request import BackendName

        self._span = (CONTEXT + STEPS) // 16 + 1  # blocks a row
        backend = BackendSpec(
            BackendName("bench"),
            "cpu",
            spec["device"],
            threads=spec["threads"],
            format=spec["format"],
            slots=ROWS,
            kv_blocks=2 * ROWS * self._span,
        )
        path = None if spec["model"] is None else Path(spec["model"])
        self._runner = make_runner(backend, path, spec["architecture"], spec["load_format"], 2 * CONTEXT)
        self.about = self._runner.format
        self._prompts = {s: prompts(self._runner.shape.vocab, s) for s in (False, True)}
        self._tables: dict[bool, list[list[int]]] = {}
        self._shared = False

    def _row(self, number: int, tokens: list[int], computed: int, blocks: list[int]) -> Any:
        from engine.request import GREEDY, RequestId
        from engine.scheduling.batch import BatchRow

        todo = tokens[computed:]
        return BatchRow(
            RequestId(number), 0, todo, computed, blocks, True, len(todo) == 1, GREEDY, tokens, CONTEXT
        )

    def _run(self, rows: list[Any]) -> list[int]:
        from engine.scheduling.batch import Batch

        return self._runner.run(Batch(rows))

    def prefill(self) -> None:
        self._run([self._row(99, self._prompts[False][0], 0, list(range(self._span)))])

    def ready(self, rows: int, shared: bool) -> None:
        self._shared = shared
        if shared in self._tables:
            return
        offset = ROWS * self._span * shared
        tables = [list(range(offset + r * self._span, offset + (r + 1) * self._span)) for r in range(ROWS)]
        if shared:
            tables = [tables[0][: SHARED // 16] + table[SHARED // 16 :] for table in tables]
        for number, (tokens, table) in enumerate(zip(self._prompts[shared], tables, strict=True)):
            self._run([self._row(number, tokens, SHARED if shared and number else 0, table)])
        self._tables[shared] = tables

    def decode(self, rows: int) -> None:
        texts = [[*tokens, 7] for tokens in self._prompts[self._shared][:rows]]
        tables = self._tables[self._shared]
        for _ in range(STEPS):
            batch = [self._row(n, text, len(text) - 1, tables[n]) for n, text in enumerate(texts)]
            for text, token in zip(texts, self._run(batch), strict=True):
                text.append(token)


class LlamaCpp:
    """llama.cpp through the C interface of llama-cpp-python."""

    def __init__(self, spec: dict[str, Any]) -> None:
        import llama_cpp as api

        self._api, self._threads = api, spec["threads"]
        silence = api.llama_log_callback(lambda *_: None)
        self._silence = silence  # the library keeps only a pointer
        api.llama_log_set(silence, ctypes.c_void_p(0))
        api.llama_backend_init()
        self.about = api.llama_print_system_info().decode()
        params = api.llama_model_default_params()
        params.n_gpu_layers = 0
        self._model = api.llama_model_load_from_file(spec["model"].encode(), params)
        self._vocab = int(api.llama_vocab_n_tokens(api.llama_model_get_vocab(self._model)))
        self._contexts: dict[bool, Any] = {}
        self._batch = api.llama_batch_init(CONTEXT, 0, 1)
        self._scratch = self._context(unified=False)
        self._prompts = {s: prompts(self._vocab, s) for s in (False, True)}
        self._shared = False

    def _context(self, unified: bool) -> Any:
        """Rows with prefixes in common need one pool of cells; others are faster in one stream each."""
        params = self._api.llama_context_default_params()
        params.n_ctx = 2 * ROWS * CONTEXT
        params.n_batch = params.n_ubatch = CONTEXT
        params.n_seq_max = ROWS
        params.n_threads = params.n_threads_batch = self._threads
        params.kv_unified = unified
        return self._api.llama_init_from_model(self._model, params)

    def _decode(self, context: Any, tokens: list[tuple[int, int, int]], last_only: bool) -> list[int]:
        """`tokens` (id, position, sequence); the likeliest next ids."""
        import numpy as np

        batch = self._batch
        batch.n_tokens = len(tokens)
        for at, (token, position, sequence) in enumerate(tokens):
            batch.token[at], batch.pos[at] = token, position
            batch.n_seq_id[at], batch.seq_id[at][0] = 1, sequence
            batch.logits[at] = not last_only or at == len(tokens) - 1
        if self._api.llama_decode(context, batch) != 0:
            raise RuntimeError("llama.cpp could not compute the batch")
        wanted = [len(tokens) - 1] if last_only else range(len(tokens))
        logits = (self._api.llama_get_logits_ith(context, at) for at in wanted)
        return [int(np.ctypeslib.as_array(x, (self._vocab,)).argmax()) for x in logits]

    def prefill(self) -> None:
        self._api.llama_memory_clear(self._api.llama_get_memory(self._scratch), False)
        self._decode(self._scratch, [(t, n, 0) for n, t in enumerate(self._prompts[False][0])], True)

    def ready(self, rows: int, shared: bool) -> None:
        self._shared = shared
        if shared not in self._contexts:
            context = self._contexts[shared] = self._context(unified=shared)
            for row, tokens in enumerate(self._prompts[shared]):
                start = SHARED if shared and row else 0
                if start:
                    memory = self._api.llama_get_memory(context)
                    self._api.llama_memory_seq_cp(memory, 0, row, 0, SHARED)
                self._decode(context, [(t, start + n, row) for n, t in enumerate(tokens[start:])], True)
        memory = self._api.llama_get_memory(self._contexts[shared])
        for row in range(ROWS):
            self._api.llama_memory_seq_rm(memory, row, CONTEXT, -1)

    def decode(self, rows: int) -> None:
        ids = [7] * rows
        for step in range(STEPS):
            tokens = [(token, CONTEXT + step, row) for row, token in enumerate(ids)]
            ids = self._decode(self._contexts[self._shared], tokens, False)


class Transformers:
    """transformers' `generate` in bf16, every row with its own prompt."""

    def __init__(self, spec: dict[str, Any]) -> None:
        import torch

        from engine.experiments.reference import reference_model

        torch.set_num_threads(spec["threads"])
        self._torch = torch
        self._model = reference_model(spec).to(torch.bfloat16)
        self.about = "bf16, generate"
        self._prompts = torch.tensor(prompts(self._model.config.vocab_size, False))
        self._cache: Any = None

    def prefill(self) -> None:
        self._generate(1, 1)

    def _generate(self, rows: int, count: int) -> None:
        with self._torch.inference_mode():
            ids = self._prompts[:rows]
            self._model.generate(
                ids,
                attention_mask=self._torch.ones_like(ids),
                max_new_tokens=count,
                min_new_tokens=count,
                do_sample=False,
            )

    def ready(self, rows: int, shared: bool) -> None:
        return None

    def decode(self, rows: int) -> None:
        self._generate(rows, STEPS + 1)


def measure(side: Contestant, test: str) -> float:
    """Tokens a second of all rows together, in one run of a test."""
    if test == "prefill_512":
        started = time.perf_counter()
        side.prefill()
        return CONTEXT / (time.perf_counter() - started)
    rows = int(test.rpartition("_")[2])
    side.ready(rows, "shared" in test)
    started = time.perf_counter()
    side.decode(rows)
    spent = time.perf_counter() - started
    if isinstance(side, Transformers):  # its prompts are computed within: take their time away
        started = time.perf_counter()
        side._generate(rows, 1)
        spent -= time.perf_counter() - started
    return rows * STEPS / spent


def main() -> None:
    spec = json.loads(sys.argv[1])
    kinds: dict[str, Any] = {"ours": Ours, "llama-cpp": LlamaCpp, "transformers": Transformers}
    side: Contestant = kinds[spec["kind"]](spec)
    answers = sys.stdout
    sys.stdout = sys.stderr  # libraries may print
    answers.write(json.dumps({"about": side.about}) + "\n")
    answers.flush()
    for line in sys.stdin:
        answers.write(json.dumps({"tok_s": measure(side, line.strip())}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
