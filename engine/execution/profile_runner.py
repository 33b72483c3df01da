"""A runner without a device: it knows how long a step takes, and its tokens mean nothing."""

from engine.profiling.profile import BackendProfile
from engine.request import RequestId
from engine.scheduling.batch import Batch

PLACEHOLDER_TOKENS = 512  # size of the placeholder vocabulary


class ProfileRunner:
    """Yields placeholder ids at once; `seconds` says what the step would have cost on the profile."""

    def __init__(self, profile: BackendProfile) -> None:
        self.profile = profile

    @property
    def block_bytes(self) -> int:
        return self.profile.block_bytes

    def seconds(self, batch: Batch, others_busy: bool) -> float:
        """Duration of this step by the profile's step-time model."""
        return self.profile.steps.step_s(
            batch.decode_rows,
            batch.context_tokens,
            batch.prefill_tokens,
            batch.prefill_attention,
            batch.prefill_chunks,
            others_busy,
        )

    def run(self, batch: Batch) -> list[int]:
        return [
            (row.request_id * 37 + row.context - row.prompt_tokens) % PLACEHOLDER_TOKENS
            for row in batch.rows
            if row.samples
        ]

    def rest(self) -> None:
        return None

    def forget(self, request_id: RequestId) -> None:
        pass

    def close(self) -> None:
        pass
