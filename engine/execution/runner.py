"""The runner's side of the bargain: take a batch, give back one token id per sampling row."""

from typing import Protocol

from engine.request import RequestId
from engine.scheduling.batch import Batch


class Runner(Protocol):
    """Executes batches on one device. Used from one thread only, from construction to `close`."""

    @property
    def block_bytes(self) -> int:
        """Bytes of KV cache in one block, keys and values of all layers."""
        ...

    def run(self, batch: Batch) -> list[int]:
        """Compute the batch. Returns one token id for each row with `samples`, in row order.

        When it returns, the ids are on the host and every computed position is in the KV cache.
        """
        ...

    def forget(self, request_id: RequestId) -> None:
        """The request ended: drop what is kept for it (its random generator)."""
        ...

    def rest(self) -> None:
        """Nothing has been asked for a while: give back what is only kept for speed."""
        ...

    def close(self) -> None: ...
