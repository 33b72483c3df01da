"""Drawing tokens: distribution, seeds, filters, penalty, independence of company."""

from collections import Counter

import pytest
import torch

from engine.execution.sampler import Sampler, distribution, penalised
from engine.request import GREEDY, RequestId, SamplingParams
from engine.scheduling.batch import BatchRow

LOGITS = torch.tensor([2.0, 1.0, 0.0, -1.0, 3.0])


def row(number: int, sampling: SamplingParams, history: tuple[int, ...] = (0,)) -> BatchRow:
    return BatchRow(RequestId(number), 0, [0], 0, [0], True, True, sampling, list(history), 1)


def draws(sampling: SamplingParams, count: int, number: int = 1, engine_seed: int = 0) -> list[int]:
    sampler, rows = Sampler(engine_seed), [row(number, sampling)]
    return [sampler.sample(LOGITS[None], rows)[0] for _ in range(count)]


def test_greedy_takes_the_best() -> None:
    assert draws(GREEDY, 3) == [4, 4, 4]


def test_draws_follow_the_distribution() -> None:
    count = 4000
    seen = Counter(draws(SamplingParams(temperature=1.5, top_p=1.0, seed=11), count))
    want = torch.softmax(LOGITS / 1.5, 0)
    statistic = sum((seen[i] - count * p) ** 2 / (count * p) for i, p in enumerate(want.tolist()))
    assert statistic < 18.5  # chi-squared, 4 degrees of freedom, p = 0.001


def test_the_same_seed_gives_the_same_tokens() -> None:
    params = SamplingParams(temperature=2.0, seed=5)
    assert draws(params, 50) == draws(params, 50, number=9, engine_seed=3)
    assert draws(params, 50) != draws(SamplingParams(temperature=2.0, seed=6), 50)


def test_without_a_seed_engine_seed_and_number_decide() -> None:
    params = SamplingParams(temperature=2.0)
    assert draws(params, 50, number=2) == draws(params, 50, number=2)
    assert draws(params, 50, number=2) != draws(params, 50, number=3)
    assert draws(params, 50, number=2) != draws(params, 50, number=2, engine_seed=1)


def test_company_changes_nothing() -> None:
    params = [SamplingParams(temperature=1.0 + n, seed=n, top_k=n) for n in range(4)]
    alone = [draws(p, 20, number) for number, p in enumerate(params)]
    sampler = Sampler(0)
    together: list[list[int]] = [[] for _ in params]
    for step in range(20):
        members = [n for n in range(4) if step >= n]  # they join one after the other
        ids = sampler.sample(LOGITS.expand(len(members), -1), [row(n, params[n]) for n in members])
        for n, token in zip(members, ids, strict=True):
            together[n].append(token)
    for n in range(4):
        assert together[n] == alone[n][: 20 - n]


def test_a_forgotten_request_starts_afresh() -> None:
    sampler, rows = Sampler(0), [row(1, SamplingParams(temperature=3.0, seed=1))]
    first = [sampler.sample(LOGITS[None], rows)[0] for _ in range(20)]
    sampler.forget(RequestId(1))
    sampler.forget(RequestId(7))  # never drew: nothing to drop
    assert [sampler.sample(LOGITS[None], rows)[0] for _ in range(20)] == first


@pytest.mark.parametrize(
    ("top_k", "top_p", "min_p", "left"),
    [
        (0, 1.0, 0.0, {0, 1, 2, 3, 4}),
        (2, 1.0, 0.0, {4, 0}),
        (99, 1.0, 0.0, {0, 1, 2, 3, 4}),
        (0, 0.5, 0.0, {4}),  # the likeliest alone has 0.64
        (0, 0.65, 0.0, {4, 0}),  # the token that crosses the threshold stays
        (0, 1.0, 0.3, {4, 0}),  # at least 0.3 of the likeliest: e^-1 is, e^-2 is not
        (3, 0.95, 0.1, {4, 0, 1}),
        (0, 1e-9, 0.0, {4}),  # never empty
    ],
)
def test_filters(top_k: int, top_p: float, min_p: float, left: set[int]) -> None:
    probabilities, ids = distribution(LOGITS, 1.0, top_k, top_p, min_p)
    assert set(ids.tolist()) == left and (probabilities > 0).all()


@pytest.mark.parametrize("spread", [0.1, 1.0, 4.0])
def test_top_p_beyond_the_head_of_the_vocabulary(spread: float) -> None:
    """A flat distribution needs the whole sort, a peaked one does not; both keep the same set."""
    scores = torch.randn(3000, generator=torch.Generator().manual_seed(2)) * spread
    probabilities, ids = distribution(scores, 1.0, 0, 0.9, 0.0)
    want, order = torch.softmax(scores, 0).sort(descending=True)
    count = int((want.cumsum(0) - want < 0.9).sum())
    assert set(ids.tolist()) == set(order[:count].tolist())
    torch.testing.assert_close(probabilities, want[:count])


def test_filters_agree_with_transformers() -> None:
    from transformers.generation import logits_process as theirs

    scores = torch.randn(500, generator=torch.Generator().manual_seed(2)) * 3
    _, ids = distribution(scores, 0.8, 50, 0.9, 0.02)
    kept = scores[None]
    for step in (
        theirs.TemperatureLogitsWarper(0.8),
        theirs.TopKLogitsWarper(50),
        theirs.TopPLogitsWarper(0.9),
        theirs.MinPLogitsWarper(0.02),
    ):
        kept = step(torch.zeros(1, 1, dtype=torch.int64), kept)
    assert set(ids.tolist()) == set(kept[0].isfinite().nonzero().flatten().tolist())


def test_penalty_agrees_with_transformers_and_turns_a_greedy_choice() -> None:
    from transformers.generation import RepetitionPenaltyLogitsProcessor

    history = [4, 3, 4]
    want = RepetitionPenaltyLogitsProcessor(1.6)(torch.tensor([history]), LOGITS[None].clone())[0]
    torch.testing.assert_close(penalised(LOGITS, history, 1.6), want)
    assert torch.equal(LOGITS, torch.tensor([2.0, 1.0, 0.0, -1.0, 3.0]))  # untouched
    params = SamplingParams(temperature=0.0, top_p=1.0, repetition_penalty=1.6)
    assert Sampler(0).sample(LOGITS[None], [row(1, params, (4,))]) == [0]
