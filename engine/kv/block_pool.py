"""The pool of KV blocks: who owns which block, what is free, and what goes next. No tensors here.

A block is in exactly one of three places:
  owned   - one or more requests hold it (`owners` is not empty);
  cached  - nobody holds it, but it keeps a prefix hash and can be restored;
  free    - nobody holds it and it holds nothing.
Every operation is O(1) in the number of blocks.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable

from engine.request import RequestId
from engine.step_report import BlockChange, BlockState


class BlockPool:
    """`num_blocks` blocks with owners, hashes and two orders: free first, then least recently used."""

    def __init__(self, num_blocks: int) -> None:
        assert num_blocks > 0
        self.num_blocks = num_blocks
        # First in, first out: a fresh pool hands out neighbours, which keeps a request's blocks in runs.
        self._free: deque[int] = deque(range(num_blocks))
        self._cached: OrderedDict[int, None] = OrderedDict()  # least recently used first
        self._owners: list[list[RequestId]] = [[] for _ in range(num_blocks)]
        self._hash: list[bytes | None] = [None] * num_blocks
        self._depth: list[int] = [-1] * num_blocks
        self._changed: set[int] = set()
        self._evicted: set[int] = set()

    @property
    def unused(self) -> int:
        """Blocks that nobody owns: free and cached."""
        return len(self._free) + len(self._cached)

    def owners(self, block: int) -> tuple[RequestId, ...]:
        return tuple(self._owners[block])

    def is_owned(self, block: int) -> bool:
        return bool(self._owners[block])

    def hash_of(self, block: int) -> bytes | None:
        return self._hash[block]

    def take(self, owner: RequestId, depth: int) -> tuple[int, bytes | None]:
        """Give `owner` an empty block; evicts the least recently used cached one when none is free.

        Returns the block and the hash that was evicted with it, if any. The caller has checked `unused`.
        """
        assert self.unused, "take() from an empty pool"
        evicted = None
        if self._free:
            block = self._free.popleft()
        else:
            block, _ = self._cached.popitem(last=False)
            evicted, self._hash[block] = self._hash[block], None
            self._evicted.add(block)
        self._owners[block].append(owner)
        self._depth[block] = depth
        self._changed.add(block)
        return block, evicted

    def share(self, block: int, owner: RequestId) -> None:
        """Make `owner` one more owner of a block that keeps a hash."""
        assert self._hash[block] is not None and owner not in self._owners[block]
        if not self._owners[block]:
            del self._cached[block]
        self._owners[block].append(owner)
        self._changed.add(block)

    def release(self, block: int, owner: RequestId) -> None:
        """`owner` lets go. The last one leaves the block cached (if it has a hash) or free."""
        self._owners[block].remove(owner)
        if not self._owners[block]:
            if self._hash[block] is not None:
                self._cached[block] = None
            else:
                self._depth[block] = -1
                self._free.append(block)
        self._changed.add(block)

    def keep(self, block: int, block_hash: bytes) -> None:
        """An owned block has been filled: remember what it holds."""
        assert self._owners[block] and self._hash[block] is None
        self._hash[block] = block_hash

    def drop_cached(self) -> list[bytes]:
        """Free every cached block; returns their hashes."""
        hashes = []
        for block in self._cached:
            block_hash = self._hash[block]
            assert block_hash is not None
            hashes.append(block_hash)
            self._hash[block], self._depth[block] = None, -1
            self._changed.add(block)
        # Sorted, so that the next requests get neighbouring blocks again.
        self._free = deque(sorted((*self._free, *self._cached)))
        self._cached.clear()
        return hashes

    def state(self, block: int) -> BlockState:
        owners = len(self._owners[block])
        if owners:
            return BlockState.SHARED if owners > 1 else BlockState.ACTIVE
        return BlockState.FREE if self._hash[block] is None else BlockState.CACHED

    def take_changes(self) -> tuple[BlockChange, ...]:
        """Blocks whose state or owners changed since the last call."""
        changes = tuple(
            BlockChange(b, self.state(b), tuple(self._owners[b]), self._depth[b], b in self._evicted)
            for b in sorted(self._changed)
        )
        self._changed.clear()
        self._evicted.clear()
        return changes

    def check_integrity(self, expected: Iterable[tuple[RequestId, list[int]]]) -> None:
        """Every block is in one place, and the owners are those of the `expected` block tables."""
        wanted: list[list[RequestId]] = [[] for _ in range(self.num_blocks)]
        for owner, blocks in expected:
            for block in blocks:
                wanted[block].append(owner)
        free, cached = set(self._free), set(self._cached)
        assert len(free) == len(self._free), "a block is free twice"
        for block in range(self.num_blocks):
            assert sorted(self._owners[block]) == sorted(wanted[block]), f"owners of block {block} differ"
            places = (block in free) + (block in cached) + bool(self._owners[block])
            assert places == 1, f"block {block} is in {places} places"
            if block in free:
                assert self._hash[block] is None, f"free block {block} keeps a hash"
            if block in cached:
                assert self._hash[block] is not None, f"cached block {block} has no hash"
