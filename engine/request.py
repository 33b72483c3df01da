"""A request: its prompt, its sampling parameters and its life. Plain data, no torch."""

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NewType

from engine.errors import PromptError, SamplingError

RequestId = NewType("RequestId", int)
BackendName = NewType("BackendName", str)


class RequestState(StrEnum):
    QUEUED = "queued"
    PREFILL = "prefill"
    DECODING = "decoding"
    FINISHED = "finished"


class FinishReason(StrEnum):
    STOP = "stop"  # an end-of-text token or a stop string
    LENGTH = "length"  # max_new_tokens reached
    CONTEXT = "context"  # the context is full before max_new_tokens
    ABORT = "abort"  # cancelled
    ERROR = "error"  # its backend died


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are drawn. `temperature` 0 is greedy; `top_k` 0, `top_p` 1 and `min_p` 0 are off."""

    temperature: float = 0.7
    top_k: int = 0
    top_p: float = 0.95
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None
    max_new_tokens: int = 256
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False  # also ignores stop strings

    def validate(self) -> None:
        """Raise `SamplingError` naming the first value that makes no sense."""
        checks: tuple[tuple[str, float, bool, str], ...] = (
            ("temperature", self.temperature, 0 <= self.temperature <= 10, "between 0 and 10"),
            ("top_k", self.top_k, self.top_k >= 0, "0 (off) or more"),
            ("top_p", self.top_p, 0 < self.top_p <= 1, "above 0 and at most 1"),
            ("min_p", self.min_p, 0 <= self.min_p < 1, "at least 0 and below 1"),
            (
                "repetition_penalty",
                self.repetition_penalty,
                0 < self.repetition_penalty <= 10,
                "above 0 and at most 10",
            ),
            ("max_new_tokens", self.max_new_tokens, self.max_new_tokens >= 1, "1 or more"),
            ("seed", self.seed or 0, self.seed is None or 0 <= self.seed < 2**63, "between 0 and 2^63 - 1"),
        )
        for name, value, good, wanted in checks:
            if not good or not math.isfinite(value):
                raise SamplingError(f"{name} is {value}: use a value {wanted}.")
        if any(not s for s in self.stop):
            raise SamplingError("A stop string is empty: leave it out or give it at least one character.")


GREEDY = SamplingParams(temperature=0.0, top_p=1.0)


@dataclass(frozen=True, slots=True)
class Request:
    """What a backend is asked to do. `prompt` holds token ids, never text."""

    id: RequestId
    prompt: tuple[int, ...]
    sampling: SamplingParams
    arrival_s: float  # when it was submitted, on the engine's clock
    tag: str = ""  # class for the output-length estimate; "" when unknown
    reply_tokens: int | None = None  # workloads: it stops after so many; only the scheduler may look
    context_cut: bool = False  # max_new_tokens was cut to what the context leaves

    @property
    def prompt_tokens(self) -> int:
        return len(self.prompt)

    def fitted(self, context_tokens: int) -> "Request":
        """This request with `max_new_tokens` cut to what the context leaves; it then ends with `context`.

        Raises `PromptError` for an empty prompt and for one that leaves no room at all.
        """
        if not self.prompt:
            raise PromptError("The prompt is empty: write something to answer.")
        room = context_tokens - len(self.prompt)
        if room < 1:
            raise PromptError(
                f"The prompt has {len(self.prompt):,} tokens and the context holds {context_tokens:,}: "
                "shorten the prompt or load the model with a longer context."
            )
        if self.sampling.max_new_tokens <= room:
            return self
        return replace(self, sampling=replace(self.sampling, max_new_tokens=room), context_cut=True)


@dataclass(frozen=True, slots=True)
class RequestTimings:
    """Times of one request on the engine's clock, in seconds; None until it happened.

    TTFT = submit to first token id, queue and routing included. TPOT = (E2E - TTFT) / (n - 1).
    """

    submitted_s: float
    admitted_s: float | None = None
    first_token_s: float | None = None
    finished_s: float | None = None
    token_times_s: tuple[float, ...] = ()

    @property
    def queue_s(self) -> float | None:
        return None if self.admitted_s is None else self.admitted_s - self.submitted_s

    @property
    def ttft_s(self) -> float | None:
        return None if self.first_token_s is None else self.first_token_s - self.submitted_s

    @property
    def e2e_s(self) -> float | None:
        return None if self.finished_s is None else self.finished_s - self.submitted_s

    @property
    def tpot_s(self) -> float | None:
        count = len(self.token_times_s)
        if count < 2:
            return None
        return (self.token_times_s[-1] - self.token_times_s[0]) / (count - 1)

    @property
    def itl_s(self) -> tuple[float, ...]:
        """Gaps between tokens: n - 1 of them."""
        times = self.token_times_s
        return tuple(b - a for a, b in zip(times, times[1:], strict=False))
