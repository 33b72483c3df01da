"""Fit the step-time model to measured steps: non-negative least squares on the relative error."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import nnls

from engine.errors import ProfileError
from engine.profiling.step_time import StepTimeModel

HELD_OUT = 5  # every fifth step is kept for the test
TRIMMED = 0.05  # share of steps with the worst residuals that a second fit leaves out: interruptions


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured step: its features and its seconds."""

    rows: int
    context_tokens: int
    prefill_tokens: int
    prefill_attention: float
    chunks: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted model and its mean absolute relative errors on the steps it saw and on those held out."""

    model: StepTimeModel
    error: float
    held_out_error: float
    samples: int


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


def _features(s: Sample, knots: Sequence[int]) -> list[float]:
    mixed = float(s.rows > 0 and s.prefill_tokens > 0)
    return [
        *_hats(s.rows, knots),
        s.context_tokens,
        s.prefill_tokens,
        s.prefill_attention,
        s.chunks,
        mixed,
    ]


def fit_steps(samples: Sequence[Sample]) -> Fit:
    """Fit A (at the row counts seen), c, d, e, chunk and m. Raises `ProfileError` with too few steps."""
    knots = sorted({s.rows for s in samples if s.rows > 0})
    if len(samples) < 20 or not knots:
        raise ProfileError("Too few steps were measured for a step-time model: calibrate again.")
    if knots[0] != 1:
        knots.insert(0, 1)
    matrix = np.array([_features(s, knots) for s in samples], dtype=float)
    seconds = np.array([s.seconds for s in samples], dtype=float)
    test = np.arange(len(samples)) % HELD_OUT == HELD_OUT - 1
    train = ~test
    weights = _solve(matrix[train], seconds[train])
    residual = np.abs(matrix[train] @ weights / seconds[train] - 1)
    keep = residual <= np.quantile(residual, 1 - TRIMMED)
    weights = _solve(matrix[train][keep], seconds[train][keep])
    error = float(np.mean(np.abs(matrix[train] @ weights / seconds[train] - 1)))
    held_out = float(np.mean(np.abs(matrix[test] @ weights / seconds[test] - 1)))
    table = np.maximum.accumulate(weights[: len(knots)])  # more rows never cost less
    c, d, e, chunk, mixed = (float(w) for w in weights[len(knots) :])
    model = StepTimeModel(
        tuple((n, max(1e-7, float(a))) for n, a in zip(knots, table, strict=True)), c, d, e, mixed, chunk
    )
    return Fit(model, error, held_out, len(samples))


def _solve(matrix: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Least squares on relative error: every row divided by its time. Columns are scaled for conditioning."""
    relative = matrix / seconds[:, None]
    scale = np.maximum(np.abs(relative).max(axis=0), 1e-12)
    weights, _ = nnls(relative / scale, np.ones(len(seconds)))
    return np.asarray(weights / scale)


def interference(model: StepTimeModel, samples: Sequence[Sample]) -> StepTimeModel:
    """`model` with chi from steps measured while another backend was busy: the median slow-down, if any."""
    if not samples:
        return model
    ratios = [
        s.seconds
        / model.step_s(
            s.rows, s.context_tokens, s.prefill_tokens, s.prefill_attention, s.chunks, others_busy=False
        )
        for s in samples
    ]
    return replace(model, interference=max(0.0, float(np.median(ratios)) - 1))
