"""Prefix hashes and their index."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.kv.prefix import PrefixIndex, extend_chain, next_hash, restorable_blocks, root_hash


@pytest.mark.parametrize(
    ("tokens", "blocks"), [(0, 0), (1, 0), (16, 0), (17, 1), (32, 1), (33, 2), (500, 31), (516, 32)]
)
def test_the_last_prompt_token_is_never_restorable(tokens: int, blocks: int) -> None:
    assert restorable_blocks(tokens) == blocks


@given(st.lists(st.integers(0, 2**31 - 1), min_size=32, max_size=64), st.integers(0, 31))
def test_a_hash_knows_everything_before_it(tokens: list[int], changed: int) -> None:
    other = list(tokens)
    other[changed] ^= 1
    root = root_hash("m")
    mine, theirs = extend_chain([], root, tokens, 2), extend_chain([], root, other, 2)
    assert [a == b for a, b in zip(mine, theirs, strict=True)] == [changed >= 16, False]


def test_salts_keep_models_apart() -> None:
    tokens = list(range(16))
    assert next_hash(root_hash("a"), tokens) != next_hash(root_hash("b"), tokens)


def test_hashes_are_the_same_in_another_process() -> None:
    code = (
        "from engine.kv.prefix import *;print(extend_chain([], root_hash('m'), list(range(32)), 2)[1].hex())"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == extend_chain([], root_hash("m"), list(range(32)), 2)[1].hex()


def test_a_chain_is_lengthened_in_place() -> None:
    tokens = list(range(64))
    chain = extend_chain([], root_hash("m"), tokens, 1)
    assert extend_chain(chain, root_hash("m"), tokens, 4) is chain
    assert chain == extend_chain([], root_hash("m"), tokens, 4)


def test_a_match_ends_at_the_first_gap() -> None:
    index = PrefixIndex("m")
    index.add(b"a", 3)
    index.add(b"c", 5)
    assert index.match([b"a", b"b", b"c"]) == [3]
    assert index.match([b"b"]) == []


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.booleans()), max_size=60))
def test_deltas_rebuild_the_index_elsewhere(operations: list[tuple[bool, int, bool]]) -> None:
    """A mirror that removes, then adds, ends where the index is, however often a hash came and went."""
    index, mirror = PrefixIndex("m"), set[bytes]()
    for add, number, publish in operations:
        block_hash = bytes([number])
        if add and block_hash not in index:
            index.add(block_hash, number)
        elif not add and block_hash in index:
            index.remove(block_hash)
        if publish:
            added, removed = index.take_delta()
            assert not set(added) & set(removed)
            mirror.difference_update(removed)
            mirror.update(added)
            assert mirror == {h for h, _ in index.items()}
