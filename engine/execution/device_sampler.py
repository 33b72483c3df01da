"""Sampling where the logits are: fixed shapes and no question to the host, so a graph can hold it.

The same distribution and the same random number as `sampler.Sampler` on the CPU give the same token, but
for roundings. Each row is drawn on its own, whatever the rows beside it ask for.
"""

import torch

from engine.execution.decode_inputs import DecodeInputs, Draw

HEAD = 1024  # likeliest tokens that a filter is looked for in before the vocabulary is sorted
UNSETTLED = -1


def draw(logits: torch.Tensor, inputs: DecodeInputs, most: Draw) -> torch.Tensor:
    """One token id per row, int64 [rows]. `logits` [rows, vocab] float32.

    `most` is the most demanding draw among the rows; temperature 0 is greedy in any of them. `UNSETTLED`
    where a filter leaves more than the `HEAD` likeliest tokens: `draw_sorted` then says.
    """
    likeliest = logits.argmax(-1)
    if most == Draw.GREEDY:
        return likeliest
    draws = inputs.temperatures > 0
    scores = _scores(logits, inputs)
    # Without top-k and top-p the vocabulary stays in its own order, which spares the sorting.
    probabilities = torch.softmax(scores, -1)
    floor = inputs.min_p[:, None] * probabilities.amax(-1, keepdim=True)
    ids = _pick(torch.where(probabilities >= floor, probabilities, 0.0), inputs.uniforms)
    if most == Draw.FILTERED:
        filters = (inputs.top_k > 0) | (inputs.top_p < 1)
        ids = torch.where(filters, _of_head(scores, inputs), ids)
    return torch.where(draws, ids, likeliest)


def draw_sorted(logits: torch.Tensor, inputs: DecodeInputs) -> torch.Tensor:
    """What `draw` leaves unsettled, with the whole vocabulary sorted."""
    # Stable, so that among equals the first of the vocabulary comes first.
    scores, order = _scores(logits, inputs).sort(dim=-1, descending=True, stable=True)
    return _of_sorted(scores, order, torch.softmax(scores, -1), inputs)


def _scores(logits: torch.Tensor, inputs: DecodeInputs) -> torch.Tensor:
    return logits / torch.where(inputs.temperatures > 0, inputs.temperatures, 1.0)[:, None]


def _of_head(scores: torch.Tensor, inputs: DecodeInputs) -> torch.Tensor:
    """Rows with top-k or top-p, by the likeliest tokens alone where these are all that is left."""
    head, order = scores.topk(min(HEAD, scores.shape[1]), dim=-1)
    probabilities = torch.exp(head - scores.logsumexp(-1, keepdim=True))
    ids = _of_sorted(head, order, probabilities, inputs)
    whole = head.shape[1] == scores.shape[1]
    by_count = (inputs.top_k > 0) & (inputs.top_k <= head.shape[1])
    by_mass = (inputs.top_k == 0) & (probabilities.sum(-1) >= inputs.top_p)
    return ids if whole else torch.where(by_count | by_mass, ids, UNSETTLED)


def _of_sorted(
    scores: torch.Tensor, order: torch.Tensor, probabilities: torch.Tensor, inputs: DecodeInputs
) -> torch.Tensor:
    """Draw among sorted tokens [rows, tokens]; `probabilities` are those before any filter."""
    count = scores.shape[1]
    ranks = torch.arange(count, device=scores.device)
    top_k = torch.where(inputs.top_k > 0, inputs.top_k, count)[:, None]
    cut = torch.softmax(scores.masked_fill(ranks >= top_k, float("-inf")), -1)
    probabilities = torch.where(inputs.top_k[:, None] > 0, cut, probabilities)
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
