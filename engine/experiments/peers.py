"""Whom we are compared with: llama.cpp, transformers, and what the memory could do at most."""

import ctypes
import time
from typing import Any

from engine.experiments.contestant_tests import CONTEXT, ROWS, SHARED, STEPS, burst_prompts, prompts


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

    def burst(self, requests: int, prompt: int, count: int, turn: int) -> float:
        raise RuntimeError("llama.cpp has no continuous batching in its C interface")

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
    """transformers in bf16: `generate`, every row with its own prompt, and continuous batching."""

    def __init__(self, spec: dict[str, Any]) -> None:
        import torch

        from engine.experiments.reference import reference_model

        torch.set_num_threads(spec["threads"])
        self._torch = torch
        self._model = reference_model(spec).to(spec["device"], torch.bfloat16)
        self.about = "bf16, generate and continuous batching"
        self._vocab = int(self._model.config.vocab_size)
        rows = prompts(self._vocab, False, spec.get("rows", ROWS))
        self._prompts = torch.tensor(rows, device=spec["device"])

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
            ).tolist()  # an accelerator is done once ids are on the host

    def ready(self, rows: int, shared: bool) -> None:
        return None

    def decode(self, rows: int) -> None:
        self._generate(rows, STEPS + 1)

    def burst(self, requests: int, prompt: int, count: int, turn: int) -> float:
        from transformers import GenerationConfig

        config = GenerationConfig(do_sample=False, max_new_tokens=count, eos_token_id=-1)
        texts = burst_prompts(self._vocab, requests, prompt, turn)
        started = time.perf_counter()
        # The manager stays: what it allocates and records belongs to the first, untimed run.
        found = self._model.generate_batch(inputs=texts, generation_config=config, persistent_manager=True)
        spent = time.perf_counter() - started
        tokens = sum(len(reply.generated_tokens) for reply in found.values())
        if tokens != requests * count:
            raise RuntimeError(f"continuous batching gave {tokens} of {requests * count} tokens")
        return tokens / spent


class Roofline:
    """Tokens a second if a step cost nothing but reading weights and context once, at a copy's speed."""

    def __init__(self, spec: dict[str, Any]) -> None:
        import torch

        from engine.devices import adapter
        from engine.experiments.reference import shape_of

        self._torch, self._adapter = torch, adapter
        self._device = adapter.open_device(spec["device"])
        self._shape = shape_of(spec)
        self._source = torch.ones(2**28, device=self._device)  # 1 GiB
        self._target = torch.empty_like(self._source)
        self._bytes_s = max(self._copy() for _ in range(3))
        self.about = f"1 GiB copied at {self._bytes_s / 1e9:,.0f} GB/s, read and written; bf16 weights"

    def _copy(self) -> float:
        """Bytes a second, read and written."""
        self._adapter.wait(self._device)
        started = time.perf_counter()
        self._target.copy_(self._source)
        self._adapter.wait(self._device)
        return 2 * 2**30 / (time.perf_counter() - started)

    def rate(self, rows: int) -> float:
        self._bytes_s = max(self._bytes_s, self._copy())
        bytes_a_step = 2 * (self._shape.linear_parameters + rows * CONTEXT * self._shape.kv_elements)
        return rows * self._bytes_s / bytes_a_step
