"""Sampling where the logits are: fixed shapes and no question to the host, so a graph can hold it.

The same distribution and the same random number as `sampler.Sampler` on the CPU give the same token, but
for roundings. Each row is drawn on its own, whatever the rows beside it ask for.
"""

import torch

from engine.execution.decode_inputs import DecodeInputs, Draw


def draw(logits: torch.Tensor, inputs: DecodeInputs, most: Draw) -> torch.Tensor:
    """One token id per row, int64 [rows]. `logits` [rows, vocab] float32.

    `most` is the most demanding draw among the rows; temperature 0 is greedy in any of them.
    """
    likeliest = logits.argmax(-1)
    if most == Draw.GREEDY:
        return likeliest
    draws = inputs.temperatures > 0
    scores = logits / torch.where(draws, inputs.temperatures, 1.0)[:, None]
    # Without top-k and top-p the vocabulary stays in its own order, which spares the sorting.
    probabilities = torch.softmax(scores, -1)
    floor = inputs.min_p[:, None] * probabilities.amax(-1, keepdim=True)
    ids = _pick(torch.where(probabilities >= floor, probabilities, 0.0), inputs.uniforms)
    if most == Draw.FILTERED:
        filters = (inputs.top_k > 0) | (inputs.top_p < 1)
        ids = torch.where(filters, _filtered(scores, inputs), ids)
    return torch.where(draws, ids, likeliest)


def _filtered(scores: torch.Tensor, inputs: DecodeInputs) -> torch.Tensor:
    vocab = scores.shape[1]
    # Stable, so that among equals the first of the vocabulary comes first.
    scores, order = scores.sort(dim=-1, descending=True, stable=True)
    ranks = torch.arange(vocab, device=scores.device)
    top_k = torch.where(inputs.top_k > 0, inputs.top_k, vocab)[:, None]
    probabilities = torch.softmax(scores.masked_fill(ranks >= top_k, float("-inf")), -1)
    before = probabilities.cumsum(-1) - probabilities
    floor = inputs.min_p[:, None] * probabilities[:, :1]
    # 1 switches top-p off: the rounded sum before the last tokens may well be above it.
    top_p = torch.where(inputs.top_p < 1, inputs.top_p, 2.0)[:, None]
    kept = (before < top_p) & (probabilities >= floor)
    at = _pick(torch.where(kept, probabilities, 0.0), inputs.uniforms)
    return order.gather(1, at[:, None])[:, 0]


def _pick(probabilities: torch.Tensor, uniforms: torch.Tensor) -> torch.Tensor:
    """Inverse of the cumulated distribution, int64 [rows]: where `uniforms` [rows] of each total falls."""
    cumulated = probabilities.cumsum(-1, dtype=torch.float64)
    targets = uniforms[:, None] * cumulated[:, -1:]
    found = torch.searchsorted(cumulated, targets, right=True)[:, 0]
    return found.clamp_max(probabilities.shape[1] - 1)
