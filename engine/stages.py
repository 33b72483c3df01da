"""A stage of a calibration: what it runs, what it then knows, and both in words. No engine, no clock."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from engine.config import BackendSpec
from engine.errors import ProfileError
from engine.ledger import Entry
from engine.profiling.points import (
    NEW_TOKENS,
    PROMPT_TOKENS,
    Point,
    pair_points,
    rates_point,
    step_points,
    warm_up,
)
from engine.profiling.profile import Rates
from engine.profiling.store import Measured
from engine.request import BackendName, RequestId
from engine.step_report import StepReport

# In the order they run: a burst under an isolated policy waits for the rates only.
KINDS = {
    "rates": "512 tokens in, 128 out, alone",
    "steps": "step times at several loads",
    "pair": "both at once: how much they slow each other down",
}
_UNEVEN = 0.2  # spread of repeats from which on the machine was busy


@dataclass(slots=True)
class Stage:
    """One kind of measurement on one backend, or on all for "pair"."""

    kind: str
    names: tuple[BackendName, ...]
    points: list[Point] = field(default_factory=list)  # still to run; empty before it begins
    total: int = 0
    point: Point | None = None  # that runs
    open: set[RequestId] = field(default_factory=set)
    reports: list[tuple[str, StepReport]] = field(default_factory=list)  # with the names of their points
    last: Entry | None = None

    @property
    def key(self) -> str:
        """Of its line in "Getting ready"."""
        return f"calibrate:{self.kind}:{'+'.join(self.names)}"


def points_of(
    stage: Stage, specs: Sequence[BackendSpec], context_tokens: int, vocabulary: int, round_: int
) -> list[Point]:
    """What it runs on backends of these `specs`. Each round draws other prompts, so that nothing is restored
    from the last one."""
    seed, spec = 1000 * round_, specs[0]
    if stage.kind == "rates":
        return [warm_up(vocabulary, seed), rates_point(vocabulary, seed)]
    if stage.kind == "steps":
        return step_points(vocabulary, spec.slots, context_tokens, spec.kv_blocks, seed, spec.token_budget)
    return pair_points(vocabulary, min(s.slots for s in specs), len(specs), seed)


def rates_of(entry: Entry) -> Rates | None:
    """Rates from a finished measurement; None when it was cut short."""
    times = entry.token_times_s
    if entry.admitted_s is None or len(times) < NEW_TOKENS or times[-1] <= times[0]:
        return None
    prefill_s = max(1e-9, times[0] - entry.admitted_s)
    return Rates(PROMPT_TOKENS / prefill_s, (NEW_TOKENS - 1) / (times[-1] - times[0]))


def result_of(stage: Stage, name: BackendName, known: Measured | None) -> tuple[Measured | None, str]:
    """What is then known of a backend, None where nothing was measured, and a warning or ""."""
    if stage.kind == "rates":
        rates = rates_of(stage.last) if stage.last is not None else None
        if rates is None:
            return None, f"The rates of {name} could not be measured."
        # What else is known of it stays until it is measured anew.
        return Measured(rates) if known is None else replace(known, rates=rates), ""
    from engine.profiling.results import with_interference, with_steps  # scipy: not at start-up

    if known is None or (stage.kind == "pair" and known.steps is None):
        return None, ""
    if stage.kind == "pair":
        return with_interference(known, name, stage.reports), ""
    try:
        measured = with_steps(known, stage.reports)
    except ProfileError as error:
        return None, str(error)
    spread = measured.spread
    return measured, _uneven(name, spread) if spread is not None and spread > _UNEVEN else ""


def _uneven(name: str, spread: float) -> str:
    return (
        f"Equal steps of {name} varied by {spread:.0%}: the machine was busy while they were measured. "
        "When it is quiet, `offramp profile --again` measures anew."
    )


def result_words(kind: str, measured: Measured) -> str:
    """What a stage found, for its line in "Getting ready"."""
    if kind == "rates":
        return f"{measured.rates.prefill:,.0f} tok/s in, {measured.rates.decode:,.0f} out"
    if kind == "steps" and measured.held_out_error is not None:
        return f"step times within {measured.held_out_error:.1%} on steps not fitted"
    chi = measured.steps.interference if measured.steps else 0.0
    return f"steps take {chi:.0%} longer while the other one works"
