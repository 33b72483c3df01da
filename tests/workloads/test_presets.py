"""Every preset keeps its promise, with a stand-in tokeniser and with the embedded model's."""

import hashlib
import re
import subprocess
import sys
import zlib
from collections.abc import Callable
from functools import cache
from itertools import combinations, pairwise
from statistics import fmean, stdev

import pytest

from engine.errors import ConfigError, UnknownNameError
from engine.models.fetch import ensure_model
from engine.models.prepare import prepared
from engine.text import TextCodec
from engine.workloads.presets import MAX_CONTEXT, PRESETS, Workload, make_workload

SCRIPT = """
import hashlib, zlib
from engine.workloads.presets import PRESETS, make_workload
words = lambda text: [zlib.crc32(word.encode()) % 50000 for word in text.split()]
print(hashlib.sha256(repr([make_workload(name, words, 3) for name in PRESETS]).encode()).hexdigest())
"""


def words(text: str) -> list[int]:
    return [zlib.crc32(word.encode()) % 50_000 for word in re.findall(r"\w+|\W", text)]


def split_words(text: str) -> list[int]:
    return [zlib.crc32(word.encode()) % 50_000 for word in text.split()]


@cache
def codec() -> TextCodec:
    return TextCodec.load(prepared(ensure_model("smollm2-135m-instruct")))


def embedded(text: str) -> list[int]:
    return codec().encode(text, add_special=False)


@pytest.fixture(params=[words, embedded], ids=["stand-in", "embedded"])
def tokenise(request: pytest.FixtureRequest) -> Callable[[str], list[int]]:
    return request.param


def shared(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def lengths(workload: Workload) -> list[int]:
    return [len(request.prompt) for request in workload.requests]


def outs(workload: Workload) -> list[int]:
    return [request.sampling.max_new_tokens for request in workload.requests]


def gaps(workload: Workload) -> list[float]:
    return [round(b.offset_s - a.offset_s, 6) for a, b in pairwise(workload.requests)]


def all_differ_at_once(workload: Workload) -> bool:
    return all(shared(a.prompt, b.prompt) == 0 for a, b in combinations(workload.requests, 2))


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_well_formed(name: str, tokenise: Callable[[str], list[int]]) -> None:
    workload = make_workload(name, tokenise)
    assert len(workload.requests) == PRESETS[name].count
    assert workload.description == PRESETS[name].one_line
    assert workload.requests[0].offset_s == 0.0
    assert all(gap >= 0 for gap in gaps(workload))
    for request in workload.requests:
        request.sampling.validate()
        assert request.prompt
        assert len(request.prompt) + request.sampling.max_new_tokens <= MAX_CONTEXT
        assert request.sampling.ignore_eos or request.reply_tokens  # a fixed length either way
        assert request.sampling.temperature == 0
        assert request.tag
        assert all(isinstance(token, int) for token in request.prompt)


@pytest.mark.parametrize("name", PRESETS)
def test_the_seed_decides(name: str) -> None:
    assert make_workload(name, words, 1) == make_workload(name, words, 1)
    assert make_workload(name, words, 1).requests != make_workload(name, words, 2).requests


def test_another_process_draws_the_same() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    here = repr([make_workload(name, split_words, 3) for name in PRESETS])
    assert done.stdout.strip() == hashlib.sha256(here.encode()).hexdigest()


@pytest.mark.parametrize("count", [8, 48])
def test_warm_bursts_share_exactly_500_tokens(count: int, tokenise: Callable[[str], list[int]]) -> None:
    workload = make_workload(f"seed-warm-{count}", tokenise)
    assert lengths(workload) == [516] * count
    assert outs(workload) == [128] * count
    assert gaps(workload) == [0.05] * (count - 1)
    for a, b in combinations(workload.requests, 2):
        assert shared(a.prompt, b.prompt) == 500
    assert workload.seeding == (workload.requests[0].prompt[:500],)


def test_cold_prompts_share_nothing(tokenise: Callable[[str], list[int]]) -> None:
    workload = make_workload("cold-12", tokenise)
    assert lengths(workload) == [512] * 12
    assert outs(workload) == [128] * 12
    assert gaps(workload) == [0.05] * 11
    assert all_differ_at_once(workload)
    assert workload.seeding == ()


def test_the_cold_prompt_comes_after_its_backlog() -> None:
    workload = make_workload("cold-behind-backlog", words)
    *backlog, cold = workload.requests
    assert {request.tag for request in backlog} == {"backlog"}
    assert cold.tag == "cold"
    assert len(cold.prompt) == 1500
    assert cold.offset_s > max(request.offset_s for request in backlog)
    assert all_differ_at_once(workload)


@pytest.mark.parametrize(("percent", "tokens"), [(0, 0), (25, 128), (50, 256), (75, 384), (97, 496)])
def test_hit_mixes_share_whole_blocks(percent: int, tokens: int) -> None:
    workload = make_workload(f"hit-{percent}", words)
    assert lengths(workload) == [512] * 16
    assert tokens % 16 == 0
    assert round(100 * tokens / 512) == percent
    assert all(shared(a.prompt, b.prompt) == tokens for a, b in combinations(workload.requests, 2))
    assert workload.seeding == ((workload.requests[0].prompt[:tokens],) if tokens else ())


def test_conversations_grow_from_their_own_past() -> None:
    requests = make_workload("chat", words).requests
    openings = {request.prompt[:220] for request in requests}
    assert len(openings) == 8
    for opening in openings:
        turns = [r.prompt for r in requests if r.prompt[:220] == opening]  # in order of arrival
        assert len(turns) == 5
        assert all(b[: len(a)] == a and len(b) > len(a) + 96 for a, b in pairwise(turns))
    assert len({request.prompt[:160] for request in requests}) == 1


def test_templates_share_four_system_prompts() -> None:
    workload = make_workload("templates", words)
    assert len({request.prompt[:320] for request in workload.requests}) == 4
    assert len({request.prompt for request in workload.requests}) == 32


def test_code_is_long_in_and_short_out() -> None:
    workload = make_workload("code", words)
    assert all(1200 <= n <= 1600 for n in lengths(workload))
    assert all(16 <= n <= 48 for n in outs(workload))


def test_labels_and_stories_mix_two_output_lengths() -> None:
    workload = make_workload("labels-and-stories", words)
    kinds = [r.tag for r in workload.requests]
    assert sorted(kinds) == ["answer"] * 8 + ["label"] * 8 + ["story"] * 8
    assert kinds != sorted(kinds)
    # The length is hidden: every request asks for the same, and none runs to its budget by order.
    assert {r.sampling.max_new_tokens for r in workload.requests} == {256}
    assert all(not r.sampling.ignore_eos for r in workload.requests)
    ranges = {"label": (8, 24), "answer": (48, 112), "story": (160, 256)}
    for request in workload.requests:
        low, high = ranges[request.tag]
        assert request.reply_tokens is not None and low <= request.reply_tokens <= high


def test_identical_prompts_are_identical() -> None:
    workload = make_workload("cold-identical", words)
    assert len({request.prompt for request in workload.requests}) == 1
    assert workload.seeding == ()


def test_churn_needs_more_blocks_than_the_pool_has() -> None:
    workload = make_workload("churn", words)
    prefixes = [request.prompt[:1024] for request in workload.requests]
    assert prefixes[:16] == prefixes[16:]
    assert len({prefix[0] for prefix in prefixes}) == 16
    assert 16 * 1024 / 16 > 2 * 384  # even both backends' default pools together
    assert len({request.prompt for request in workload.requests}) == 32


def test_the_long_one_is_at_the_head_of_the_line() -> None:
    first, *rest = make_workload("head-of-line", words).requests
    assert (len(first.prompt), first.tag) == (1800, "long")
    assert {len(request.prompt) for request in rest} == {48}
    assert rest[0].offset_s > 0


@pytest.mark.parametrize("load", [0.5, 0.8, 1.0, 1.2])
def test_steady_arrivals_have_the_rate_they_name(load: float) -> None:
    mean_gaps = [fmean(gaps(make_workload(f"steady-{load}", words, s, capacity_rps=4.0))) for s in range(12)]
    assert fmean(mean_gaps) == pytest.approx(1 / (4.0 * load), rel=0.1)


def test_bursty_arrivals_clump() -> None:
    spread = []
    for seed in range(12):
        found = gaps(make_workload("bursty", words, seed, capacity_rps=4.0))
        spread.append(stdev(found) / fmean(found))
    assert fmean(spread) > 1.4  # a Poisson process has 1, gamma of shape 0.25 has 2


def test_capacity_scales_time_and_nothing_else() -> None:
    slow, fast = (make_workload("steady-1.0", words, 5, capacity_rps=c) for c in (1.0, 2.0))
    assert [r.prompt for r in slow.requests] == [r.prompt for r in fast.requests]
    assert slow.requests[-1].offset_s == pytest.approx(2 * fast.requests[-1].offset_s, rel=1e-3)


def test_unknown_presets_and_odd_capacities_are_sentences() -> None:
    with pytest.raises(UnknownNameError, match="seed-warm-8"):
        make_workload("seed-warm-9", words)
    with pytest.raises(ConfigError, match="above 0"):
        make_workload("steady-1.0", words, capacity_rps=0.0)
