"""Fit the step-time model to measured steps: non-negative least squares on the relative error.

Steps of one calibration point that do the same work are repeats. Their lower median stands for them: an
interruption of the machine counts for nothing, and every kind of step weighs the same, however often it ran.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import nnls

from engine.errors import ProfileError
from engine.profiling.points import PREFILLS
from engine.profiling.step_time import StepTimeModel

FOLDS = 5  # each fifth of the points is predicted by a fit to the others
_LEAST_POINTS = 12
_ROUNDS = 8  # of reweighting: from squares towards absolute errors, which outliers pull less
_FLOOR = 0.02  # relative error below which a point weighs no more


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured step: its features, its seconds, and the calibration point that it belongs to."""

    rows: int
    context_tokens: float
    prefill_tokens: int
    prefill_attention: float
    chunks: int
    seconds: float
    point: str = ""

    def predicted_s(self, model: StepTimeModel) -> float:
        """What `model` says of it, alone on the machine."""
        return model.step_s(
            self.rows, self.context_tokens, self.prefill_tokens, self.prefill_attention, self.chunks, False
        )


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted model and its mean absolute relative errors on the points it saw and on points held out.

    `spread` is how far repeats stray from their median: no model can predict single steps better.
    """

    model: StepTimeModel
    error: float
    held_out_error: float
    spread: float
    points: int


def fit_steps(samples: Sequence[Sample]) -> Fit:
    """Fit every coefficient. Raises `ProfileError` with too few steps."""
    groups = _repeats(samples)
    points = [_typical(g) for g in groups]
    if len(points) < _LEAST_POINTS or not any(p.rows for p in points):
        raise ProfileError("Too few steps were measured for a step-time model: calibrate again.")
    # Neighbours in size fall into different folds, so that what is held out lies between what is seen.
    points.sort(key=lambda p: (p.rows, p.prefill_tokens, p.prefill_attention, p.context_tokens))
    model = _fit(points)
    held_out: list[float] = []
    for fold in range(FOLDS):
        seen = _fit([p for i, p in enumerate(points) if i % FOLDS != fold])
        held_out += _errors(seen, points[fold::FOLDS])
    strays = [abs(s.seconds / _lower_median(g) - 1) for g in groups if len(g) > 1 for s in g]
    spread = float(np.mean(strays)) if strays else 0.0
    return Fit(model, float(np.mean(_errors(model, points))), float(np.mean(held_out)), spread, len(points))


def _errors(model: StepTimeModel, points: Sequence[Sample]) -> list[float]:
    return [abs(p.predicted_s(model) / p.seconds - 1) for p in points]


def _repeats(samples: Sequence[Sample]) -> list[list[Sample]]:
    """Steps of the same point with the same rows and chunks; their contexts differ by a few tokens."""
    groups: dict[tuple[str, int, int, int], list[Sample]] = {}
    for s in samples:
        groups.setdefault((s.point, s.rows, s.prefill_tokens, s.chunks), []).append(s)
    return list(groups.values())


def _typical(repeats: Sequence[Sample]) -> Sample:
    return replace(
        repeats[0],
        context_tokens=float(np.mean([s.context_tokens for s in repeats])),
        prefill_attention=float(np.mean([s.prefill_attention for s in repeats])),
        seconds=_lower_median(repeats),
    )


def _lower_median(repeats: Sequence[Sample]) -> float:
    return sorted(s.seconds for s in repeats)[(len(repeats) - 1) // 2]


def _fit(points: Sequence[Sample]) -> StepTimeModel:
    rows = sorted({1, *(p.rows for p in points if p.rows)})
    most = max((p.prefill_tokens for p in points), default=0)
    sizes = [n for n in PREFILLS if n <= most] or ([most] if most else [])
    matrix = np.array([_features(p, rows, sizes) for p in points], dtype=float)
    weights = _solve(matrix, np.array([p.seconds for p in points], dtype=float))
    a, rest = weights[: len(rows)], weights[len(rows) :]
    increments, (c, e, chunk, mixed, start) = rest[: len(sizes)], (float(w) for w in rest[len(sizes) :])
    widths = [1, *np.diff(sizes)]
    prefill = np.cumsum([i * w for i, w in zip(increments, widths, strict=False)])
    table = tuple((n, float(d)) for n, d in zip(sizes, prefill, strict=True))
    per_token = [d / n for n, d in table]
    if len(table) > 1:
        per_token.append(float(increments[-1]))  # what tokens beyond the table cost
    return StepTimeModel(
        # More rows never cost less.
        tuple((n, max(1e-7, float(s))) for n, s in zip(rows, np.maximum.accumulate(a), strict=True)),
        c,
        min(per_token, default=0.0),
        e,
        mixed,
        chunk,
        prefill_table_s=table,
        start_s=start,
    )


def _features(p: Sample, rows: Sequence[int], sizes: Sequence[int]) -> list[float]:
    """One row of the matrix, in the order in which `_fit` takes the weights apart."""
    starts = (
        max(0.0, p.chunks * p.prefill_attention / p.prefill_tokens - p.prefill_tokens / 2)
        if p.chunks
        else 0.0
    )
    mixed = float(p.rows > 0 and p.prefill_tokens > 0)
    ramps = _ramps(p.prefill_tokens, sizes)
    return [*_hats(p.rows, rows), *ramps, p.context_tokens, p.prefill_attention, p.chunks, mixed, starts]


def _hats(rows: int, knots: Sequence[int]) -> list[float]:
    """Weights of the table entries for `rows`: the interpolation of `StepTimeModel.rows_s`, linear in A."""
    weights = [0.0] * len(knots)
    if rows <= 0:
        return weights
    if len(knots) == 1:
        return [1.0]
    i = next((j for j, n in enumerate(knots) if n >= rows), len(knots) - 1)
    i = max(i, 1)
    share = (rows - knots[i - 1]) / (knots[i] - knots[i - 1])
    weights[i - 1], weights[i] = 1 - share, share
    return weights


def _ramps(tokens: int, sizes: Sequence[int]) -> list[float]:
    """`StepTimeModel.tokens_s` as a first entry and slopes behind it: more tokens never cost less."""
    if not tokens or not sizes:
        return [0.0] * len(sizes)
    ends = [*sizes[1:-1], max(tokens, sizes[-1])] if len(sizes) > 1 else []
    return [1.0, *(max(0.0, min(tokens, end) - begin) for begin, end in zip(sizes, ends, strict=False))]


def _solve(matrix: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Least error relative to each time. Columns are scaled for conditioning."""
    relative = matrix / seconds[:, None]
    scale = np.maximum(np.abs(relative).max(axis=0), 1e-12)
    columns = relative / scale
    trust = np.ones(len(seconds))
    for _ in range(_ROUNDS):
        weights, _ = nnls(columns * trust[:, None], trust)
        trust = 1 / np.sqrt(np.maximum(np.abs(columns @ weights - 1), _FLOOR))
    return np.asarray(weights / scale)


def slow_down(model: StepTimeModel, alone: Sequence[Sample], beside: Sequence[Sample]) -> float:
    """chi: how much longer steps take while another backend works, from the same load alone and beside it.

    Both are medians of real over predicted time, so that an error of the model at this load cancels out.
    Without steps beside another one it is 0; it is never less.
    """
    if not beside:
        return 0.0
    base = _median_ratio(model, alone) if alone else 1.0
    return max(0.0, _median_ratio(model, beside) / base - 1)


def _median_ratio(model: StepTimeModel, samples: Sequence[Sample]) -> float:
    return float(np.median([s.seconds / s.predicted_s(model) for s in samples]))
