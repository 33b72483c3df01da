"""The pool of blocks: three places, two orders, constant time."""

import pytest

from engine.kv.block_pool import BlockPool
from engine.request import RequestId
from engine.step_report import BlockState

A, B = RequestId(1), RequestId(2)


def test_a_fresh_pool_hands_out_neighbours() -> None:
    pool = BlockPool(8)
    assert [pool.take(A, depth)[0] for depth in range(8)] == list(range(8))
    assert pool.unused == 0


def test_an_empty_pool_refuses() -> None:
    pool = BlockPool(1)
    pool.take(A, 0)
    with pytest.raises(AssertionError, match="empty pool"):
        pool.take(A, 1)


def test_free_blocks_go_before_cached_ones() -> None:
    pool = BlockPool(3)
    kept, _ = pool.take(A, 0)
    pool.keep(kept, b"hash")
    pool.release(kept, A)
    assert pool.state(kept) is BlockState.CACHED
    assert [pool.take(B, i) for i in range(3)] == [(1, None), (2, None), (kept, b"hash")]
    assert pool.hash_of(kept) is None


def test_the_least_recently_released_block_is_evicted_first() -> None:
    pool = BlockPool(3)
    blocks = [pool.take(A, i)[0] for i in range(3)]
    for block in blocks:
        pool.keep(block, bytes([block]))
    for block in (1, 0, 2):
        pool.release(block, A)
    pool.share(1, B)  # used again and released again: now the youngest
    pool.release(1, B)
    assert [pool.take(B, i)[0] for i in range(3)] == [0, 2, 1]


def test_states_and_owners_are_told_once() -> None:
    pool = BlockPool(2)
    block, _ = pool.take(A, 0)
    pool.keep(block, b"h")
    pool.share(block, B)
    (change,) = pool.take_changes()
    assert (change.state, set(change.owners), change.depth) == (BlockState.SHARED, {A, B}, 0)
    assert pool.take_changes() == ()
    pool.release(block, A)
    assert [c.state for c in pool.take_changes()] == [BlockState.ACTIVE]
    pool.release(block, B)
    assert [c.state for c in pool.take_changes()] == [BlockState.CACHED]


def test_an_eviction_is_marked() -> None:
    pool = BlockPool(1)
    block, _ = pool.take(A, 0)
    pool.keep(block, b"h")
    pool.release(block, A)
    pool.take_changes()
    pool.take(B, 0)
    (change,) = pool.take_changes()
    assert change.evicted and change.owners == (B,)


def test_a_block_without_a_hash_becomes_free_and_forgets_its_depth() -> None:
    pool = BlockPool(1)
    block, _ = pool.take(A, 5)
    pool.release(block, A)
    (change,) = pool.take_changes()
    assert (change.state, change.depth) == (BlockState.FREE, -1)


def test_drop_cached_frees_only_what_nobody_owns() -> None:
    pool = BlockPool(3)
    for i in range(2):
        block, _ = pool.take(A, i)
        pool.keep(block, bytes([i]))
    pool.release(1, A)
    assert pool.drop_cached() == [bytes([1])]
    assert pool.state(0) is BlockState.ACTIVE and pool.state(1) is BlockState.FREE
    pool.check_integrity([(A, [0])])
    assert pool.take(B, 0)[0] == 1  # neighbours again


def test_sharing_needs_a_hash_and_a_new_owner() -> None:
    pool = BlockPool(2)
    block, _ = pool.take(A, 0)
    with pytest.raises(AssertionError):
        pool.share(block, B)
    pool.keep(block, b"h")
    with pytest.raises(AssertionError):
        pool.share(block, A)


def test_check_integrity_sees_a_wrong_table() -> None:
    pool = BlockPool(2)
    pool.take(A, 0)
    pool.check_integrity([(A, [0])])
    with pytest.raises(AssertionError):
        pool.check_integrity([])
    with pytest.raises(AssertionError):
        pool.check_integrity([(A, [1])])


def test_take_and_release_cost_the_same_in_a_large_pool() -> None:
    """Operations, not seconds: neither walks the pool, so the containers behind it never do."""
    pool = BlockPool(200_000)
    looked = 0

    class Counting(list):  # type: ignore[type-arg]
        def __iter__(self):  # type: ignore[no-untyped-def]
            nonlocal looked
            looked += 1
            return super().__iter__()

    pool._owners = Counting(pool._owners)
    pool._hash = Counting(pool._hash)
    for i in range(1_000):
        block, _ = pool.take(A, i)
        pool.keep(block, i.to_bytes(2, "little"))
        pool.release(block, A)
    assert looked == 0 and pool.unused == 200_000
