"""Whether a model fits: more copies, more blocks, wider formats and less memory make it fit less."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import FORMATS, BackendSpec
from engine.models.architecture import NAMED_SHAPES, named_shape
from engine.models.catalog import CATALOGUE
from engine.models.fit import Memory, backend_bytes, fit, this_memory
from engine.request import BackendName

GB = 10**9
ORDER = ("fits", "tight", "too large")


def spec(name: str = "cpu", device: str = "cpu", form: str = "float32", blocks: int = 384) -> BackendSpec:
    return BackendSpec(BackendName(name), "cpu", device, format=form, kv_blocks=blocks)


def test_float32_with_a_tied_head_is_four_bytes_a_weight_and_a_cache_of_float32() -> None:
    shape = named_shape("smollm2-135m")
    weights, cache = backend_bytes(shape, spec())
    assert weights == 4 * shape.parameters
    assert cache == 384 * 16 * shape.kv_elements * 4


def test_an_emulated_backend_needs_nothing() -> None:
    assert backend_bytes(named_shape("qwen3-0.6b"), spec(device="emulated")) == (0, 0)


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_has_a_size(form: str) -> None:
    assert backend_bytes(named_shape("tiny"), spec(form=form))[0] > 0


@given(st.sampled_from(NAMED_SHAPES), st.integers(2, 20_000), st.integers(1, 3), st.integers(1, 64))
def test_more_of_anything_never_fits_better(name: str, blocks: int, copies: int, gigabytes: int) -> None:
    shape, memory = named_shape(name), Memory(gigabytes * GB, {})
    backends = [spec(f"cpu-{i}", blocks=blocks) for i in range(copies)]
    less = fit(shape, backends, 32, memory)
    for more in (
        fit(shape, [*backends, spec("cpu-9", blocks=blocks)], 32, memory),
        fit(shape, [replace(b, kv_blocks=2 * blocks) for b in backends], 32, memory),
        fit(shape, backends, 32, Memory(gigabytes * GB // 2, {})),
    ):
        assert ORDER.index(more.verdict) >= ORDER.index(less.verdict)


def test_the_words_name_need_room_and_place() -> None:
    both = [spec(), spec("gpu", "cuda:0", "auto")]
    roomy = fit(named_shape("qwen3-0.6b"), both, 4096, Memory(64 * GB, {"cuda:0": 80 * GB}))
    assert roomy.verdict == "fits" and "2 copies and their KV pools" in roomy.words
    small = fit(named_shape("qwen3-0.6b"), both, 4096, Memory(64 * GB, {"cuda:0": GB}))
    assert small.verdict == "too large" and "of 1.0 GB on cuda:0" in small.words


def test_a_context_longer_than_the_pool_is_said() -> None:
    found = fit(named_shape("qwen3-0.6b"), [spec(blocks=64)], 8192, Memory(64 * GB, {}))
    assert found.verdict == "tight" and "holds 1,024 of the 8,192 tokens" in found.words


def test_this_machine_has_memory_and_every_catalogue_entry_has_a_shape() -> None:
    assert this_memory().main > 10**8
    assert all(named_shape(entry.shape).parameters for entry in CATALOGUE.values())
