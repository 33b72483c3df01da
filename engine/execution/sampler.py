"""From logits to token ids, in float32 on the CPU, one row at a time.

Each request owns a generator and draws one number a token, so its text depends on its seed alone: not on
the other rows, the step it ran in or the backend's history.
"""

import torch

from engine.request import RequestId
from engine.scheduling.batch import BatchRow

HEAD = 256  # candidates that top-p looks at before it sorts everything
AHEAD = 32  # random numbers that a request draws at once


class Sampler:
    """Draws the next token of each row. Not for use from two threads."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._generators: dict[RequestId, torch.Generator] = {}
        self._ahead: dict[RequestId, list[float]] = {}  # numbers drawn and not used yet, last one next

    def sample(self, logits: torch.Tensor, rows: list[BatchRow]) -> list[int]:
        """One id per row. `logits` [rows, vocab] float32, on any device.

        Rows without a penalty and with temperature 0 are settled where the logits are; only the others
        travel to the CPU.
        """
        ids: list[int] = logits.argmax(-1).tolist()
        for index, row in enumerate(rows):
            params = row.sampling
            if params.temperature == 0 and params.repetition_penalty == 1:
                continue
            scores = penalised(logits[index].cpu(), row.history, params.repetition_penalty)
            ids[index] = int(scores.argmax()) if params.temperature == 0 else self._draw(scores, row)
        return ids

    def _draw(self, scores: torch.Tensor, row: BatchRow) -> int:
        params = row.sampling
        probabilities, candidates = distribution(
            scores, params.temperature, params.top_k, params.top_p, params.min_p
        )
        uniform = self.uniform(row)
        # Inverse of the cumulated distribution: exactly one number per token whatever the filters leave.
        cumulated = probabilities.double().cumsum(0)
        at = torch.searchsorted(cumulated, uniform * cumulated[-1], right=True)
        return int(candidates[min(int(at), len(candidates) - 1)])

    def uniform(self, row: BatchRow) -> float:
        """The request's next random number in [0, 1): call it once for each token that is drawn."""
        ahead = self._ahead.setdefault(row.request_id, [])
        if not ahead:
            # The same numbers as one by one, at a twentieth of the time.
            numbers = torch.rand(AHEAD, generator=self._generator(row), dtype=torch.float64)
            ahead += reversed(numbers.tolist())
        return ahead.pop()

    def _generator(self, row: BatchRow) -> torch.Generator:
        generator = self._generators.get(row.request_id)
        if generator is None:
            seed = row.sampling.seed
            # Without a seed of its own a request takes one from the engine's seed and its number.
            seed = (self._seed * 1_000_003 + row.request_id) % 2**63 if seed is None else seed
            generator = torch.Generator().manual_seed(seed)
            self._generators[row.request_id] = generator
        return generator

    def forget(self, request_id: RequestId) -> None:
        self._generators.pop(request_id, None)
        self._ahead.pop(request_id, None)


def penalised(scores: torch.Tensor, history: list[int], penalty: float) -> torch.Tensor:
    """Make every token of `history` less likely: positive scores are divided, negative ones multiplied.

    `scores` [vocab]; returned unchanged at penalty 1. Keskar et al. 2019 (CTRL).
    """
    if penalty == 1 or not history:
        return scores
    seen = torch.tensor(sorted(set(history)))
    old = scores[seen]
    return scores.index_copy(0, seen, torch.where(old > 0, old / penalty, old * penalty))


def distribution(
    scores: torch.Tensor, temperature: float, top_k: int, top_p: float, min_p: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Probabilities and token ids of the candidates that the filters leave, likeliest first if any is on.

    `scores` [vocab] float32. Order as in transformers: temperature, top-k, top-p, min-p. Probabilities
    are not normalised after the filters. Top-p keeps the token that crosses the threshold (Holtzman et
    al. 2020); min-p is relative to the likeliest token (Nguyen et al. 2024).
    """
    scores = scores / temperature
    vocab = scores.shape[0]
    if 0 < top_k < vocab:
        values, ids = scores.topk(top_k)
        probabilities = torch.softmax(values, 0)
    elif top_p < 1:
        # Sorting a whole vocabulary takes milliseconds; the head of it nearly always holds the mass.
        values, ids = scores.topk(min(HEAD, vocab))
        probabilities = torch.exp(values - scores.logsumexp(0))
        if probabilities.sum() < top_p and len(ids) < vocab:
            values, ids = scores.sort(descending=True, stable=True)
            probabilities = torch.softmax(values, 0)
    else:
        probabilities, ids = torch.softmax(scores, 0), torch.arange(vocab)
    if top_p < 1:
        before = probabilities.cumsum(0) - probabilities
        kept = int((before < top_p).sum())
        probabilities, ids = probabilities[:kept], ids[:kept]
    if min_p > 0:
        keep = probabilities >= min_p * probabilities.max()
        probabilities, ids = probabilities[keep], ids[keep]
    return probabilities, ids
