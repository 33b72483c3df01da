"""Prefix hashes: a block is known by the hash of its 16 tokens and of everything before them."""

import hashlib
from array import array
from collections.abc import Sequence

from engine.config import BLOCK_TOKENS

DIGEST_BYTES = 16


def root_hash(salt: str) -> bytes:
    """Start of a chain. `salt` names the model and the format: their caches must never mix."""
    return hashlib.blake2b(salt.encode(), digest_size=DIGEST_BYTES).digest()


def next_hash(parent: bytes, tokens: Sequence[int]) -> bytes:
    """Hash of one whole block. blake2b, because Python's `hash` differs between spawned processes."""
    assert len(tokens) == BLOCK_TOKENS
    return hashlib.blake2b(parent + array("i", tokens).tobytes(), digest_size=DIGEST_BYTES).digest()


def extend_chain(chain: list[bytes], root: bytes, tokens: Sequence[int], blocks: int) -> list[bytes]:
    """Lengthen `chain` in place to the first `blocks` whole blocks of `tokens`; returns it."""
    for index in range(len(chain), blocks):
        start = index * BLOCK_TOKENS
        chain.append(next_hash(chain[-1] if chain else root, tokens[start : start + BLOCK_TOKENS]))
    return chain


def restorable_blocks(prompt_tokens: int) -> int:
    """Whole blocks a prompt may restore: its last token is always computed, it yields the first logits."""
    return max(0, prompt_tokens - 1) // BLOCK_TOKENS


class PrefixIndex:
    """Which block holds which hash, plus the additions and removals since they were last taken."""

    def __init__(self, salt: str) -> None:
        self.root = root_hash(salt)
        self._block: dict[bytes, int] = {}
        self._added: list[bytes] = []
        self._removed: list[bytes] = []
        self.removals = 0  # ever; a match can only have shrunk when this has grown

    def __len__(self) -> int:
        return len(self._block)

    def __contains__(self, block_hash: bytes) -> bool:
        return block_hash in self._block

    def get(self, block_hash: bytes) -> int | None:
        return self._block.get(block_hash)

    def add(self, block_hash: bytes, block: int) -> None:
        assert block_hash not in self._block
        self._block[block_hash] = block
        self._added.append(block_hash)

    def remove(self, block_hash: bytes) -> None:
        del self._block[block_hash]
        self._removed.append(block_hash)
        self.removals += 1

    def match(self, chain: Sequence[bytes]) -> list[int]:
        """Blocks of the longest known prefix of `chain`."""
        blocks = []
        for block_hash in chain:
            block = self._block.get(block_hash)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def take_delta(self) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        """(added, removed) since the last call; a hash that did both within it appears as it ended."""
        touched = set(self._added) | set(self._removed)
        removed_before = set(self._removed) - set(self._added)
        both = set(self._removed) & set(self._added)
        added = tuple(h for h in touched if h in self._block)
        # Something added and removed within one step was never known outside; removing it is harmless.
        removed = tuple(removed_before | {h for h in both if h not in self._block})
        self._added, self._removed = [], []
        return added, removed

    def items(self) -> list[tuple[bytes, int]]:
        return list(self._block.items())
