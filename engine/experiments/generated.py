"""Workloads made for sweeps: one property varies and everything else stays."""

import random

from engine.config import BLOCK_TOKENS
from engine.experiments.source import Source
from engine.request import SamplingParams
from engine.workloads.arrivals import evenly, gamma, poisson
from engine.workloads.presets import PlannedRequest, Workload
from engine.workloads.texts import Tokenise, TokenSource

PROMPT, REPLY, GAP_S = 512, 64, 0.05
BURSTY_SHAPE = 0.25


def _sampling(tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0.0, top_p=1.0, max_new_tokens=tokens, ignore_eos=True)


def shared_tokens(prompt: int, share: float) -> int:
    """Whole blocks of a prompt that are cached at this share; the last token is always computed."""
    return min(int(round(share * prompt)), prompt - 1) // BLOCK_TOKENS * BLOCK_TOKENS


def burst_source(
    count: int, share: float = 0.0, prompt: int = PROMPT, reply: int = REPLY, gap_s: float = GAP_S
) -> Source:
    """`count` prompts `gap_s` apart; the first `share` of each is in every cache before the clock starts."""
    name = f"burst-{count}x{prompt}-{reply}-{share:.0%}-{gap_s:g}s".replace("%", "")

    def build(tokenise: Tokenise, seed: int) -> Workload:
        return _shared(name, evenly(count, gap_s), share, prompt, reply, tokenise, seed)

    words = f"{count} prompts of {prompt} tokens, {share:.0%} cached, {reply} out, {gap_s * 1e3:g} ms apart"
    return Source(name, words, build)


def stream_source(
    count: int, rate_rps: float, bursty: bool, share: float, prompt: int = PROMPT, reply: int = REPLY
) -> Source:
    """Arrivals at `rate_rps` a second, Poisson or in clumps, `share` of every prompt cached."""
    name = f"stream-{count}x{prompt}-{reply}-{share:.0%}-{rate_rps:.4g}-{'bursty' if bursty else 'poisson'}"

    def build(tokenise: Tokenise, seed: int) -> Workload:
        # The same draws at every rate, only scaled: a curve over rates then shows the rate and not the luck.
        draw = random.Random(f"arrivals:{count}:{bursty}:{seed}")
        arrivals = gamma(count, rate_rps, BURSTY_SHAPE, draw) if bursty else poisson(count, rate_rps, draw)
        return _shared(name, arrivals, share, prompt, reply, tokenise, seed)

    how = "in clumps (gamma, shape 0.25)" if bursty else "Poisson"
    words = (
        f"{count} prompts of {prompt} tokens, {share:.0%} cached, {reply} out, {rate_rps:.3g} a second, {how}"
    )
    return Source(name.replace("%", ""), words, build)


def _shared(
    name: str, arrivals: list[float], share: float, prompt: int, reply: int, tokenise: Tokenise, seed: int
) -> Workload:
    text = TokenSource(tokenise, random.Random(f"{name}:{seed}"))
    shared = shared_tokens(prompt, share)
    prefix = text.tokens(shared)
    tails = text.distinct([prompt - shared] * len(arrivals))
    sampling = _sampling(reply)
    requests = tuple(
        PlannedRequest(at_s, prefix + tail, sampling, name)
        for at_s, tail in zip(arrivals, tails, strict=True)
    )
    return Workload(name, seed, requests, (prefix,) if prefix else (), name)


def returning_source(prefixes: int, uses: int, prompt: int = PROMPT, reply: int = 32) -> Source:
    """Prefixes that come back in random order: whether they still hit depends on the cache's size."""
    name = f"returning-{prefixes}x{uses}-{prompt}-{reply}"

    def build(tokenise: Tokenise, seed: int) -> Workload:
        draw = random.Random(f"{name}:{seed}")
        text = TokenSource(tokenise, draw)
        heads = text.distinct([shared_tokens(prompt, 0.95)] * prefixes)
        order = [i for i in range(prefixes) for _ in range(uses)]
        draw.shuffle(order)
        tails = text.distinct([prompt - len(heads[0])] * len(order))
        sampling = _sampling(reply)
        requests = tuple(
            PlannedRequest(at_s, heads[i] + tail, sampling, name)
            for at_s, i, tail in zip(evenly(len(order), 0.1), order, tails, strict=True)
        )
        return Workload(name, seed, requests, (), name)

    words = f"{prefixes} prefixes of {prompt} tokens, each {uses} times, shuffled, {reply} out, 100 ms apart"
    return Source(name, words, build)
