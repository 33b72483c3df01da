"""Profiles: the shipped ones, and one sentence for each way a file can be wrong."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from engine.errors import ProfileError, UnknownNameError
from engine.profiling.profile import load_profile, parse_profile, published_profiles

GOOD: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "engine/profiling/published/apple-m2-published.json").read_text("utf-8")
)


def broken(*path: str | int, value: Any = None, drop: bool = False) -> dict[str, Any]:
    data: Any = copy.deepcopy(GOOD)
    place = data
    for key in path[:-1]:
        place = place[key]
    if drop:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return dict(data)


@pytest.mark.parametrize("name", published_profiles())
def test_published_profiles_load_and_say_what_is_assumed(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name and profile.title and profile.source
    assert [b.kind for b in profile.backends] == ["cpu", "gpu"]
    assert all(b.assumed for b in profile.backends)
    assert all(b.slots == 4 for b in profile.backends)


def test_the_published_figures() -> None:
    cpu, gpu = load_profile("apple-m2-published").backends
    assert (cpu.rates.prefill, cpu.rates.decode) == (73, 45)
    assert (gpu.rates.prefill, gpu.rates.decode) == (2551, 293)
    assert gpu.steps.rows_s(1) == 0.00341
    assert [gpu.steps.rows_s(n) for n in (2, 3, 4, 16)] == pytest.approx([0.0112 * n for n in (2, 3, 4, 16)])
    assert [cpu.steps.rows_s(n) for n in (1, 3, 4)] == pytest.approx([n / 45 for n in (1, 3, 4)])
    assert (cpu.steps.interference, gpu.steps.interference) == (0.18, 0.08)


def test_an_unknown_profile_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="apple-m2-published, batching-gpu"):
        load_profile("apple-m9")


def test_a_profile_file_by_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(GOOD), "utf-8")
    assert load_profile(str(path)).backends == load_profile("apple-m2-published").backends


STEP = ("backends", 0, "step")
WRONG = {
    "not our format": broken("format", value="something"),
    "a later version": broken("version", value=99),
    "no backends": broken("backends", value=[]),
    "backends that are none": broken("backends", value=[1, 2]),
    "backends as a word": broken("backends", value="cpu"),
    "two of one name": broken("backends", 1, "name", value="cpu"),
    "a name that is a number": broken("backends", 0, "name", value=3),
    "an empty name": broken("backends", 0, "name", value=""),
    "an unknown kind": broken("backends", 0, "kind", value="npu"),
    "no rates": broken("backends", 0, "rates", drop=True),
    "a rate of nothing": broken("backends", 0, "rates", "decode", value=0),
    "a negative rate": broken("backends", 0, "rates", "prefill", value=-1),
    "a rate in words": broken("backends", 0, "rates", "prefill", value="fast"),
    "a rate that is no number": broken("backends", 0, "rates", "prefill", value=float("nan")),
    "no slots": broken("backends", 0, "slots", value=0),
    "half a slot": broken("backends", 0, "slots", value="many"),
    "a negative pool": broken("backends", 0, "kv_blocks", value=-5),
    "an empty pool": broken("backends", 0, "kv_blocks", value=0),
    "fewer tokens a step than slots": broken("backends", 0, "token_budget", value=3),
    "tokens a step in words": broken("backends", 0, "token_budget", value="many"),
    "no step times": broken(*STEP, drop=True),
    "an empty table": broken(*STEP, "decode_s", value={}),
    "a table from 2 rows on": broken(*STEP, "decode_s", value={"2": 0.1}),
    "a table with 0 rows": broken(*STEP, "decode_s", value={"0": 0.1, "1": 0.1}),
    "rows in words": broken(*STEP, "decode_s", value={"one": 0.1}),
    "negative seconds": broken(*STEP, "decode_s", value={"1": -0.1}),
    "seconds that are no number": broken(*STEP, "decode_s", value={"1": float("nan")}),
    "endless seconds": broken(*STEP, "decode_s", value={"1": float("inf")}),
    "a table as a list": broken(*STEP, "decode_s", value=[1, 2]),
    "a negative coefficient": broken(*STEP, "interference", value=-0.5),
    "a missing coefficient": broken(*STEP, "chunk_s", drop=True),
    "no title": broken("title", drop=True),
}


@pytest.mark.parametrize("data", WRONG.values(), ids=WRONG.keys())
def test_a_malformed_profile_is_one_sentence(data: dict[str, Any]) -> None:
    with pytest.raises(ProfileError) as caught:
        parse_profile(data, "mine.json")
    text = str(caught.value)
    assert text.startswith("mine.json") and text.endswith(".") and "\n" not in text and len(text) < 250


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", '"word"', "\x00"])
def test_a_file_that_is_no_profile(text: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(text, "utf-8")
    with pytest.raises(ProfileError):
        load_profile(str(path))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="cannot be read"):
        load_profile(str(tmp_path / "none.json"))
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(ProfileError, match="cannot be read"):
        load_profile(str(tmp_path / "folder.json"))


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ProfileError):
        load_profile(str(path))
