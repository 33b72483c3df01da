"""Live correction of a backend's step-time model: how long steps really take against what was predicted."""

from dataclasses import dataclass

from engine.profiling.step_time import StepTimeModel
from engine.step_report import StepReport

HALF_LIFE_STEPS = 200
WINDOW_STEPS = 20  # steps judged together: single steps are noisy, what a forecast adds up is not
_KEEP = 0.5 ** (1 / HALF_LIFE_STEPS)
_KEEP_WINDOW = 0.5 ** (WINDOW_STEPS / HALF_LIFE_STEPS)


@dataclass(slots=True)
class PriceCheck:
    """`factor`: real over predicted, an exponential mean. `error`: how far windows of steps stray from it."""

    factor: float = 1.0
    error: float = 0.0
    steps: int = 0
    _real_s: float = 0.0
    _predicted_s: float = 0.0

    def step(self, report: StepReport, model: StepTimeModel, others_busy: bool) -> None:
        """Take one step that computed something."""
        predicted_s = model.step_s(
            report.decode_rows,
            report.context_tokens,
            report.prefill_tokens,
            report.prefill_attention,
            report.prefill_chunks,
            others_busy,
        )
        if predicted_s <= 0:
            return
        # An interruption of the whole machine is no property of the backend: one step counts so much at most.
        ratio = min(5.0, max(0.2, report.duration_s / predicted_s))
        self.factor = _KEEP * self.factor + (1 - _KEEP) * ratio
        self.steps += 1
        self._real_s += ratio * predicted_s
        self._predicted_s += predicted_s
        if self.steps % WINDOW_STEPS == 0:
            stray = abs(self._real_s / (self.factor * self._predicted_s) - 1)
            self.error = _KEEP_WINDOW * self.error + (1 - _KEEP_WINDOW) * stray
            self._real_s = self._predicted_s = 0.0
