"""Calibration files: what cannot be used is one sentence and measured anew; nothing is lost on the way."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine.burst import Burst
from engine.calibration import measured_key
from engine.engine import stop_all
from engine.errors import ProfileError
from engine.events import BackendState, Notice, SetupStep
from engine.profiling.profile import Rates, load_profile, local_profile_path
from engine.profiling.step_time import StepTimeModel
from engine.profiling.store import Measured, MeasuredKey, load_measured, save_measured
from engine.request import BackendName, FinishReason
from tests.engine.by_hand import House

Make = Callable[..., House]
CPU = BackendName("cpu")


@pytest.fixture
def make(house_of: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Make:
    monkeypatch.setenv("OFFRAMP_CACHE_DIR", str(tmp_path))
    return partial(house_of, calibrated=False, policy="isolated-rates")


def settled(house: House) -> bool:
    return not house.core.calibrator._stages


def calibrated(make: Make) -> House:
    house = make()
    house.pump(until=lambda: settled(house))
    return house


def files(folder: Path) -> dict[str, Path]:
    """Kept calibrations by backend."""
    return {json.loads(p.read_text("utf-8"))["key"]["model"]: p for p in folder.glob("measured/*.json")}


def sentences(house: House) -> list[str]:
    return [e.message for e in house.events if isinstance(e, Notice) and "kept calibration" in e.message]


def change(*keys: str, value: Any = None) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def edit(data: dict[str, Any]) -> dict[str, Any]:
        place: Any = data
        for key in keys[:-1]:
            place = place[key]
        if value is ...:
            del place[keys[-1]]
        else:
            place[keys[-1]] = value
        return data

    return edit


USELESS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "another computer": (change("key", "machine", value="elsewhere"), "on another computer"),
    "another model": (change("key", "model", value="qwen"), "with another model"),
    "another format": (change("key", "format", value="int3"), "in another format"),
    "another device": (change("key", "device", value="Xeon"), "on another device"),
    "other threads": (change("key", "threads", value=64), "another number of threads"),
    "other slots": (change("key", "slots", value=64), "another number of slots"),
    "another version of Offramp": (change("key", "offramp", value="0.0"), "another version of Offramp"),
    "another version of torch": (change("key", "torch", value="1.0"), "another version of torch"),
    "an earlier format": (change("version", value=1), "by another version of Offramp"),
    "a later format": (change("version", value=99), "by another version of Offramp"),
    "no format": (change("format", value=...), "by another version of Offramp"),
    "no key": (change("key", value=...), "damaged"),
    "no rates": (change("rates", value=...), "damaged"),
    "a rate of nothing": (change("rates", "decode", value=0), "damaged"),
    "a rate that is no number": (change("rates", "decode", value=float("nan")), "damaged"),
    "rates in words": (change("rates", value="fast"), "damaged"),
    "a negative step": (change("steps", "context_s", value=-1.0), "damaged"),
    "an endless step": (change("steps", "chunk_s", value=float("inf")), "damaged"),
    "an empty table": (change("steps", "decode_s", value=[]), "damaged"),
    "a table out of order": (change("steps", "decode_s", value=[[1, 0.1], [1, 0.2]]), "damaged"),
    "an unknown term": (change("steps", "warp_s", value=0.1), "damaged"),
    "a list": (lambda data: [data], "by another version of Offramp"),
    "nothing": (lambda data: None, "by another version of Offramp"),
}


KEY = MeasuredKey("a model", "int8", "A CPU, 1 of 2 cores", 1, 4)
STEPS = StepTimeModel(((1, 0.01), (4, 0.02)), 1e-6, prefill_table_s=((8, 0.01), (16, 0.02)), start_s=1e-7)
KNOWN = Measured(Rates(100, 10), STEPS, 0.03, 0.05, 0.02, True)


def edited(folder: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    (path,) = folder.glob("measured/*.json")
    path.write_text(json.dumps(edit(json.loads(path.read_text("utf-8")))), "utf-8")


def refused(why: str, words: str) -> bool:
    return words in why and why.endswith("measured again.") and "\n" not in why and len(why) < 200


def test_what_is_kept_comes_back_whole(make: Make) -> None:
    assert load_measured(KEY) == (None, "")
    save_measured(KEY, KNOWN)
    assert load_measured(KEY) == (KNOWN, "")
    save_measured(KEY, Measured(Rates(1, 1)))
    assert load_measured(KEY) == (Measured(Rates(1, 1)), "")


@pytest.mark.parametrize("kind", USELESS)
def test_a_file_that_cannot_be_used_is_refused_in_one_sentence(make: Make, tmp_path: Path, kind: str) -> None:
    edit, words = USELESS[kind]
    save_measured(KEY, KNOWN)
    edited(tmp_path, edit)
    found, why = load_measured(KEY)
    assert found is None and refused(why, words)


@pytest.mark.parametrize("raw", [b"", b"{", b"\x00\xff\xfe", b"[1, 2"], ids=["empty", "half", "bytes", "cut"])
def test_a_file_that_is_no_json(make: Make, tmp_path: Path, raw: bytes) -> None:
    save_measured(KEY, KNOWN)
    (path,) = tmp_path.glob("measured/*.json")
    path.write_bytes(raw)
    found, why = load_measured(KEY)
    assert found is None and refused(why, "damaged")


@pytest.mark.parametrize("kind", ["another computer", "a rate of nothing"])
def test_what_was_refused_is_measured_anew(make: Make, tmp_path: Path, kind: str) -> None:
    edit, words = USELESS[kind]
    rates = calibrated(make).core.measurements.known(CPU)
    path = files(tmp_path)["cpu"]
    path.write_text(json.dumps(edit(json.loads(path.read_text("utf-8")))), "utf-8")
    house = make()
    assert [refused(s, words) for s in sentences(house)] == [True]
    assert not settled(house)
    house.pump(until=lambda: settled(house))
    again, why = load_measured(measured_key(house.core.supervisor.units[CPU]))
    assert not why and again is not None and rates is not None
    assert again.rates.decode == pytest.approx(rates.rates.decode, rel=0.02)
    assert sentences(make()) == []


def test_a_folder_in_its_place(make: Make, tmp_path: Path) -> None:
    calibrated(make)
    path = files(tmp_path)["cpu"]
    path.unlink()
    path.mkdir()
    house = make()
    assert len(sentences(house)) == 1 and "cannot be read" in sentences(house)[0]
    house.pump(until=lambda: settled(house))  # nor can it be kept: that is said, and the session goes on
    assert any("could not be kept" in e.message for e in house.events if isinstance(e, Notice))
    assert house.core.measurements.known(CPU) is not None


def test_the_first_start_says_nothing(make: Make) -> None:
    assert sentences(make()) == []


def test_the_profile_of_this_machine_made_by_an_earlier_version(make: Make) -> None:
    calibrated(make)
    path = local_profile_path()
    data = json.loads(path.read_text("utf-8"))
    assert load_profile("local").backend("cpu").fit_error is not None
    path.write_text(json.dumps({**data, "version": 1}), "utf-8")
    with pytest.raises(ProfileError, match="another version of Offramp: run `offramp profile`"):
        load_profile("local")
    path.write_text("{", "utf-8")
    with pytest.raises(ProfileError, match="run `offramp profile`"):
        load_profile("local")


# --- measuring again --------------------------------------------------------------------------------------


def kept(tmp_path: Path) -> dict[str, Any]:
    return {name: json.loads(p.read_text("utf-8")) for name, p in files(tmp_path).items()}


@pytest.mark.parametrize("steps", [0, 150, 400])
def test_stopping_in_the_middle_leaves_whole_files(make: Make, tmp_path: Path, steps: int) -> None:
    house = calibrated(make)
    before, profile = kept(tmp_path), local_profile_path().read_text("utf-8")
    house.core.recalibrate()
    for _ in range(steps):
        for name in ("cpu", "gpu"):
            house.hand(name).step()
        house.turn()
    house.core.calibrator.stop()
    house.pump()
    after = kept(tmp_path)
    assert settled(house) and after.keys() == before.keys()
    for name, data in after.items():
        assert data["steps"] is not None, f"{name} lost its step times"
    assert json.loads(local_profile_path().read_text("utf-8")).keys() == json.loads(profile).keys()
    assert not list(tmp_path.glob("measured/*.part"))
    told = {e.key: e.state for e in house.events if isinstance(e, SetupStep)}
    assert set(told.values()) <= {"done", "failed"}, "nobody waits for what was given up"
    house.core.calibrator.stop()  # once more: nothing to stop
    house.check()


def test_a_stop_on_the_first_start_keeps_the_stages_that_ended(make: Make, tmp_path: Path) -> None:
    house = make()
    house.pump(until=lambda: house.core.measurements.known(CPU) is not None)
    house.core.calibrator.stop()
    house.pump()
    again = make()
    known = again.core.measurements.known(CPU)
    assert known is not None and known.steps is None
    assert [(s.kind, s.names) for s in again.core.calibrator._stages][0] == ("rates", ("gpu",))
    again.pump(until=lambda: settled(again))
    assert all(data["steps"] for data in kept(tmp_path).values())


def test_stop_all_ends_what_the_user_runs_first_and_the_calibration_when_that_is_all(make: Make) -> None:
    house = make()
    house.turn()
    request_id = house.chat(new=50)
    house.turn()
    stop_all(house.core)
    assert house.reasons([request_id]) == [FinishReason.ABORT] and not settled(house)
    house.pump(until=lambda: house.state("cpu") is BackendState.CALIBRATING)
    stop_all(house.core)
    assert settled(house)
    house.pump()
    assert house.state("cpu") is BackendState.READY
    house.core.bursts.start(Burst("seed-warm-8", 0), "least-requests")
    house.core.recalibrate()
    stop_all(house.core)
    assert house.core.bursts.burst is None and not settled(house), "the burst was meant"
    house.pump(until=lambda: settled(house))
    house.check()


def test_a_disk_that_is_full_costs_the_file_only(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("engine.calibration.save_measured", full)
    monkeypatch.setattr("engine.measurements.save_local", full)
    house = calibrated(make)
    known = house.core.measurements.known(CPU)
    assert known is not None and known.steps is not None and known.paired
    said = [e.message for e in house.events if isinstance(e, Notice)]
    assert any("could not be kept" in s for s in said)


def test_progress_is_told_before_and_while_it_runs(make: Make) -> None:
    from engine.commands.calibrating import CalibrationSteps

    house, steps, shown = make(), CalibrationSteps(), [0.0]
    seen = 0
    while not settled(house):
        for event in house.events[seen:]:
            steps.see(event)
        seen = len(house.events)
        done, whole = steps.points
        assert steps.open and whole > 100, "every stage is counted from the beginning"
        assert shown[-1] <= done <= whole
        shown.append(done)
        house.pump(until=lambda: True)
    for event in house.events[seen:]:
        steps.see(event)
    assert not steps.open and not steps.failed
    assert steps.points[0] == steps.points[1]
    assert len(set(shown)) > 50
