"""The presets: named lists of requests with arrival times, the same for the same seed everywhere.

Prompts are token ids without a chat template. Replies have a fixed length (greedy, end-of-text ignored),
so that two runs of a preset do the same work. No request needs more than 2,048 tokens of context.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

from engine.config import BLOCK_TOKENS
from engine.errors import ConfigError, UnknownNameError
from engine.request import SamplingParams
from engine.workloads.arrivals import evenly, gamma, poisson
from engine.workloads.texts import Tokenise, TokenSource

MAX_CONTEXT = 2048
DEFAULT_CAPACITY_RPS = 1.0  # where no backend was measured
CAPACITY_PRESET = "steady-1.0"  # whose requests capacity is measured on

Prompt = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request of a burst, `offset_s` seconds after its start. `tag` is its class for length estimates.

    With `reply_tokens` the reply stops after so many tokens, and nobody but the scheduler knows it; else it
    runs to `max_new_tokens`.
    """

    offset_s: float
    prompt: Prompt
    sampling: SamplingParams
    tag: str = ""
    reply_tokens: int | None = None

    @property
    def output_tokens(self) -> int:
        """The length its reply will have."""
        return self.sampling.max_new_tokens if self.reply_tokens is None else self.reply_tokens


@dataclass(frozen=True, slots=True)
class Workload:
    """A burst. `seeding` prompts run on every backend (one new token each) before the clock starts."""

    preset: str
    seed: int
    requests: tuple[PlannedRequest, ...]
    seeding: tuple[Prompt, ...]
    description: str
    capacity_rps: float | None = None  # that its arrivals are a share of; None where they are fixed


@dataclass(frozen=True, slots=True)
class PresetInfo:
    name: str
    one_line: str
    count: int  # requests
    paced: bool = False  # its arrivals are a share of what the fastest backend serves


@dataclass(frozen=True, slots=True)
class _Draw:
    """What a preset is built from."""

    count: int
    text: TokenSource
    rng: random.Random
    capacity_rps: float


_Plan = tuple[list[PlannedRequest], list[Prompt]]
_BUILDERS: dict[str, Callable[[_Draw], _Plan]] = {}
PRESETS: dict[str, PresetInfo] = {}


def make_workload(
    name: str, tokenise: Tokenise, seed: int = 0, capacity_rps: float | None = None
) -> Workload:
    """Build preset `name`. Torch-free and deterministic: the same seed and tokeniser, the same ids.

    `tokenise` maps text to ids without special tokens. `capacity_rps` is what the fastest backend serves
    in requests a second; only presets that are `paced` ask. Raises `UnknownNameError` or `ConfigError`.
    """
    if name not in PRESETS:
        raise UnknownNameError("preset", name, tuple(PRESETS))
    capacity = DEFAULT_CAPACITY_RPS if capacity_rps is None else capacity_rps
    if not 0 < capacity < 1e6:
        raise ConfigError(f"The capacity is {capacity} requests a second: use a number above 0.")
    rng = random.Random(f"{name}:{seed}")  # strings are hashed by SHA-512, alike in every process
    info = PRESETS[name]
    requests, seeding = _BUILDERS[name](_Draw(info.count, TokenSource(tokenise, rng), rng, capacity))
    requests.sort(key=lambda request: request.offset_s)
    assert len(requests) == info.count
    assert all(len(r.prompt) + r.sampling.max_new_tokens <= MAX_CONTEXT for r in requests), name
    used = capacity if info.paced else None
    return Workload(name, seed, tuple(requests), tuple(seeding), info.one_line, used)


def _preset(
    name: str, count: int, one_line: str, paced: bool = False
) -> Callable[[Callable[[_Draw], _Plan]], Callable[[_Draw], _Plan]]:
    def register(builder: Callable[[_Draw], _Plan]) -> Callable[[_Draw], _Plan]:
        PRESETS[name] = PresetInfo(name, one_line, count, paced)
        _BUILDERS[name] = builder
        return builder

    return register


def _reply(tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0.0, top_p=1.0, max_new_tokens=tokens, ignore_eos=True)


def _planned(
    offsets_s: list[float], prompts: list[Prompt], new_tokens: int, tag: str
) -> list[PlannedRequest]:
    sampling = _reply(new_tokens)
    return [
        PlannedRequest(offset_s, prompt, sampling, tag)
        for offset_s, prompt in zip(offsets_s, prompts, strict=True)
    ]


def _sharing(draw: _Draw, shared: int, total: int) -> tuple[Prompt, list[Prompt]]:
    """A prefix of `shared` tokens, and prompts of `total` that start with it and differ right after it."""
    prefix = draw.text.tokens(shared)
    return prefix, [prefix + tail for tail in draw.text.distinct([total - shared] * draw.count)]


@_preset(
    "seed-warm-48", 48, "48 prompts of 516 tokens, 496 of them cached everywhere, 128 tokens out, 50 ms apart"
)
@_preset(
    "seed-warm-8", 8, "8 prompts of 516 tokens, 496 of them cached everywhere, 128 tokens out, 50 ms apart"
)
def _seed_warm(draw: _Draw) -> _Plan:
    # 500 shared tokens are 31 whole blocks of 16: 496 are restored whatever is cached as it fills.
    prefix, prompts = _sharing(draw, 500, 516)
    return _planned(evenly(draw.count, 0.05), prompts, 128, "warm"), [prefix]


@_preset("cold-12", 12, "12 unrelated prompts of 512 tokens, nothing cached, 128 tokens out, 50 ms apart")
def _cold(draw: _Draw) -> _Plan:
    prompts = draw.text.distinct([512] * draw.count)
    return _planned(evenly(draw.count, 0.05), prompts, 128, "cold"), []


@_preset(
    "cold-behind-backlog", 7, "6 requests fill the faster backend, then a cold prompt of 1,500 tokens arrives"
)
def _cold_behind_backlog(draw: _Draw) -> _Plan:
    prompts = draw.text.distinct([64] * (draw.count - 1) + [1500])
    backlog = _planned(evenly(draw.count - 1, 0.02), prompts[:-1], 192, "backlog")
    return [*backlog, *_planned([0.5], prompts[-1:], 64, "cold")], []


def _hit(percent: int, shared: int) -> None:
    @_preset(f"hit-{percent}", 16, f"16 prompts of 512 tokens, {percent} % of each cached, 128 tokens out")
    def build(draw: _Draw) -> _Plan:
        prefix, prompts = _sharing(draw, shared, 512)
        return _planned(evenly(draw.count, 0.1), prompts, 128, f"hit-{percent}"), [prefix] if prefix else []


for _percent, _blocks in ((0, 0), (25, 8), (50, 16), (75, 24), (97, 31)):
    _hit(_percent, _blocks * BLOCK_TOKENS)


@_preset("chat", 40, "8 conversations of 5 turns that grow to about 900 tokens, one system prompt for all")
def _chat(draw: _Draw) -> _Plan:
    system = draw.text.tokens(160)
    turns, requests = 5, []
    conversations = draw.count // turns
    for start_s, opening in zip(
        evenly(conversations, 0.8), draw.text.distinct([60] * conversations), strict=True
    ):
        prompt, at_s = system + opening, start_s
        for _ in range(turns):
            requests += _planned([round(at_s, 6)], [prompt], 96, "chat")
            # The reply is not waited for: a stand-in of its length takes its place in the next prompt.
            prompt += draw.text.tokens(96 + draw.rng.randint(30, 70))
            at_s += 2.0 + draw.rng.expovariate(1 / 3.0)  # reading and typing
    return requests, []


@_preset("templates", 32, "32 short questions under 4 system prompts of 320 tokens, 64 tokens out")
def _templates(draw: _Draw) -> _Plan:
    systems = draw.text.distinct([320] * 4)
    questions = draw.text.distinct([draw.rng.randint(40, 120) for _ in range(draw.count)])
    prompts = [systems[draw.rng.randrange(4)] + question for question in questions]
    return _planned(poisson(draw.count, 5.0, draw.rng), prompts, 64, "template"), []


@_preset("code", 12, "12 listings of 1,200 to 1,600 tokens, 16 to 48 tokens out: all prefill")
def _code(draw: _Draw) -> _Plan:
    prompts = draw.text.distinct([draw.rng.randint(1200, 1600) for _ in range(draw.count)], "code")
    return [
        PlannedRequest(offset_s, prompt, _reply(draw.rng.randint(16, 48)), "code")
        for offset_s, prompt in zip(evenly(draw.count, 0.3), prompts, strict=True)
    ], []


@_preset(
    "labels-and-stories",
    24,
    "Labels of 8 tokens to stories of 256, mixed, their lengths hidden from the router",
)
def _labels_and_stories(draw: _Draw) -> _Plan:
    lengths = {"label": (8, 24), "answer": (48, 112), "story": (160, 256)}
    kinds = list(lengths) * (draw.count // 3)
    draw.rng.shuffle(kinds)
    prompts = draw.text.distinct([draw.rng.randint(48, 96) for _ in kinds])
    # Every request asks for up to 256 tokens; only its class says that a label will be short.
    budget = SamplingParams(temperature=0.0, top_p=1.0, max_new_tokens=256)
    return [
        PlannedRequest(offset_s, prompt, budget, kind, draw.rng.randint(*lengths[kind]))
        for offset_s, prompt, kind in zip(evenly(draw.count, 0.05), prompts, kinds, strict=True)
    ], []


@_preset("cold-identical", 8, "the same cold prompt of 512 tokens 8 times, 10 ms apart: who computes it?")
def _cold_identical(draw: _Draw) -> _Plan:
    prompt = draw.text.tokens(512)
    return _planned(evenly(draw.count, 0.01), [prompt] * draw.count, 64, "identical"), []


@_preset("churn", 32, "16 prefixes of 1,024 tokens, each used twice: more than the cache holds")
def _churn(draw: _Draw) -> _Plan:
    prefixes = draw.text.distinct([1024] * (draw.count // 2))
    prompts = [
        prefix + tail
        for prefix, tail in zip(prefixes * 2, draw.text.distinct([16] * draw.count), strict=True)
    ]
    return _planned(evenly(draw.count, 0.25), prompts, 32, "churn"), []


@_preset("head-of-line", 13, "one cold prompt of 1,800 tokens, then 12 short ones right behind it")
def _head_of_line(draw: _Draw) -> _Plan:
    prompts = draw.text.distinct([1800] + [48] * (draw.count - 1))
    long = _planned([0.0], prompts[:1], 64, "long")
    return [*long, *_planned(evenly(draw.count - 1, 0.02, 0.02), prompts[1:], 32, "short")], []


def _mixed(draw: _Draw, offsets_s: list[float], tag: str) -> _Plan:
    """Unrelated prompts of 64 to 384 tokens, 32 to 128 tokens out."""
    prompts = draw.text.distinct([draw.rng.randint(64, 384) for _ in offsets_s])
    return [
        PlannedRequest(offset_s, prompt, _reply(draw.rng.randint(32, 128)), tag)
        for offset_s, prompt in zip(offsets_s, prompts, strict=True)
    ], []


@_preset("bursty", 32, "32 requests in clumps (gamma arrivals, shape 0.25) at 0.8 of capacity", True)
def _bursty(draw: _Draw) -> _Plan:
    return _mixed(draw, gamma(draw.count, 0.8 * draw.capacity_rps, 0.25, draw.rng), "bursty")


def _steady(load: float) -> None:
    @_preset(f"steady-{load}", 48, f"48 requests at random moments (Poisson), at {load} of capacity", True)
    def build(draw: _Draw) -> _Plan:
        return _mixed(draw, poisson(draw.count, load * draw.capacity_rps, draw.rng), "steady")


for _load in (0.5, 0.8, 1.0, 1.2):
    _steady(_load)
