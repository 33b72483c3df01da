"""The endless text: seeded, plentiful, and without a slot left unfilled."""

import random
import zlib
from itertools import islice

import pytest

from engine.workloads.texts import TokenSource, passages


def words(text: str) -> list[int]:
    return [zlib.crc32(word.encode()) % 50_000 for word in text.split()]


@pytest.mark.parametrize("kind", ["prose", "code"])
def test_the_same_seed_gives_the_same_text(kind: str) -> None:
    first, again, other = (list(islice(passages(kind, random.Random(s)), 50)) for s in ("a", "a", "b"))
    assert first == again
    assert first != other


def test_every_slot_is_filled() -> None:
    for kind in ("prose", "code"):
        text = "".join(islice(passages(kind, random.Random(0)), 3000))
        assert "${small" not in text
        assert "$name" not in text
        assert "$field}" not in text.replace("${field}", "")
    assert "#" not in "".join(islice(passages("prose", random.Random(0)), 3000))


def test_a_hundred_thousand_tokens_hardly_repeat_a_block() -> None:
    tokens = TokenSource(words, random.Random("length")).tokens(100_000)
    blocks = [tokens[at : at + 16] for at in range(0, len(tokens), 16)]
    assert len(set(blocks)) > 0.99 * len(blocks)


def test_distinct_texts_never_start_alike() -> None:
    source = TokenSource(words, random.Random(0))
    texts = [*source.distinct([5] * 60), *source.distinct([7] * 60)]
    assert [len(text) for text in texts] == [5] * 60 + [7] * 60
    assert len({text[0] for text in texts}) == 120


def test_a_tokeniser_that_opens_every_word_alike_still_gives_distinct_texts() -> None:
    source = TokenSource(lambda text: [0, *words(text)], random.Random(0))
    assert len({text[0] for text in source.distinct([4] * 48)}) == 48


def test_a_tokeniser_with_too_few_ids_is_refused() -> None:
    with pytest.raises(ValueError, match="different ids"):
        TokenSource(lambda text: [1], random.Random(0)).distinct([4] * 8)
