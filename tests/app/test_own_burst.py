"""Your own burst: the form, its JSON, traces from files, and the run that it starts."""

import json

import pytest
from prompt_helpers import contrast
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QPushButton
from test_window import clipped

from app.burst_form import FIELDS, BurstForm, show_burst_form
from app.series.own_burst import OwnBurst
from app.theme import ThemeHolder
from app.widgets.check_box import BOX, CheckBox
from engine.errors import BackendError
from engine.experiments.source import trace_source
from engine.simulation.simulate import fake_tokenise
from engine.workloads.traces import read_trace


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("OFFRAMP_DATA_DIR", str(tmp_path / "data"))


def test_the_form_makes_the_burst_that_it_describes(tmp_path) -> None:
    own = OwnBurst(count=3, gap_ms=20, prompt=100, shared=64, warm=True, reply=7)
    path = own.save(tmp_path / "mine.json")
    workload = trace_source(read_trace(path)).build(fake_tokenise, 0)
    assert [r.offset_s for r in workload.requests] == [0.0, 0.02, 0.04]
    assert {len(r.prompt) for r in workload.requests} == {100}
    assert all(r.output_tokens == 7 and r.sampling.ignore_eos for r in workload.requests)
    prompts = [r.prompt for r in workload.requests]
    assert {p[:64] for p in prompts} == {workload.seeding[0]} and len({p[64] for p in prompts}) == 3
    assert "3 prompts of 100 tokens" in own.words() and "20 ms apart" in own.words()


@pytest.mark.parametrize(
    ("changes", "seeded", "words"),
    [
        ({"warm": False}, 0, "computed once"),
        ({"shared": 0}, 0, "tokens out"),
        ({"count": 1}, 1, "1 prompt of"),
    ],
)
def test_other_bursts(tmp_path, changes, seeded, words) -> None:
    given = {"count": 4, "gap_ms": 0, "prompt": 80, "shared": 32, "warm": True, "reply": 2, **changes}
    own = OwnBurst(**given)
    workload = trace_source(read_trace(own.save(tmp_path / "a.json"))).build(fake_tokenise, 0)
    assert len(workload.seeding) == seeded and len(workload.requests) == own.count
    assert words in own.words() and "  " not in own.words()
    others = [OwnBurst(**{**given, key: given[key] + 5}) for key in given if key != "warm"]
    assert len({own.name(), *(other.name() for other in others)}) == 6


def test_it_runs_like_a_preset_and_repeats(rig, qtbot) -> None:
    form = show_burst_form(rig.window)
    form.fields["count"].setValue(5)
    form.run_button.click()
    assert not form.isVisible()
    name = form.burst().name() + ".json"
    runs = [c for c in rig.engine.calls if c[0] == "run_burst"]
    assert runs == [("run_burst", name, rig.window.toolbar.policy.currentText())]
    assert len(rig.engine.built[-1](fake_tokenise).requests) == 5
    rig.window.toolbar.took_notice()
    rig.window.toolbar.refresh(0.0)
    rig.window.wishes.repeat()
    assert len(rig.engine.built) == 2 and rig.engine.calls[-1][1] == name
    assert show_burst_form(rig.window) is form and form.fields["count"].value() == 5


def test_a_file_is_read_and_its_mistakes_are_said_with_the_line(rig, tmp_path) -> None:
    form = show_burst_form(rig.window)
    good, bad = tmp_path / "trace.csv", tmp_path / "bad.csv"
    good.write_text("time,input,output\n0,64,8\n9,64,4\n", "utf-8")
    bad.write_text("time,input,output\n0,64,8\n-1,64,4\n", "utf-8")
    form.open_file(bad)
    assert "bad.csv, line 3: the time is" in form.words.text() and form.words.property("tone") == "error"
    form.open_file(tmp_path / "none.csv")
    assert "cannot be read" in form.words.text()
    form.open_file(good)
    assert "2 requests over 9.0 s" in form.words.text()
    form.run_button.click()
    assert rig.engine.calls[-1][1] == "trace.csv"
    assert [r.offset_s for r in rig.engine.built[-1](fake_tokenise).requests] == [0, 9]


def test_what_the_context_cannot_hold_is_said(rig) -> None:
    form = show_burst_form(rig.window)
    form.fields["prompt"].setValue(4_000)
    assert "32 tokens more than the context of 4,096 holds" in form.words.text()
    assert not form.run_button.isEnabled()
    form.fields["reply"].setValue(64)
    assert form.run_button.isEnabled() and form.words.property("tone") == "muted"
    form.fields["shared"].setValue(9_999)
    assert form.fields["shared"].value() == 3_999
    form.fields["shared"].setValue(0)
    assert not form.warm.isEnabled()


def test_what_the_engine_refuses_stays_in_the_form(rig) -> None:
    def refuse(_source) -> None:
        raise BackendError("No backend is ready: restart one.")

    form = BurstForm(rig.themes, rig.window, 4096, refuse)
    form.run()
    assert form.words.text() == "No backend is ready: restart one."


def test_saving(rig, tmp_path, monkeypatch) -> None:
    form, path = show_burst_form(rig.window), tmp_path / "mine.json"
    monkeypatch.setattr("app.burst_form.QFileDialog.getSaveFileName", lambda *a: (str(path), ""))
    form.save_button.click()
    assert len(json.loads(path.read_text("utf-8"))["requests"]) == 8
    assert f"offramp burst --trace {path}" in form.words.text()
    path = tmp_path / "none" / "mine.json"
    form.save_button.click()
    assert "cannot be written" in form.words.text()


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_everything_has_a_name_and_nothing_is_clipped(make_rig, theme) -> None:
    rig = make_rig(theme=theme).ready()
    rig.window.actions_by_name["own_burst"].trigger()
    form = rig.window.findChild(BurstForm)
    assert form.isVisible() and clipped(form) == []
    assert all(form.fields[key].accessibleName() for key, *_ in FIELDS)
    assert all(button.accessibleName() for button in form.findChildren(QPushButton))


@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize("ticked", [True, False])
def test_a_check_box_is_seen_ticked_or_not(qtbot, theme, ticked) -> None:
    themes = ThemeHolder(theme)
    box = CheckBox(themes, "Warm")
    qtbot.addWidget(box)
    box.setChecked(ticked)
    box.resize(box.sizeHint())
    picture = box.grab().toImage()
    edge = picture.pixelColor(BOX // 2, (box.height() - BOX) // 2)
    assert contrast(edge, themes.current.window) > 3
    inside = {picture.pixelColor(x, box.height() // 2).name() for x in range(3, BOX - 3)}
    assert (themes.current.inverse.name() in inside) is ticked
    QTest.mouseClick(box, Qt.MouseButton.LeftButton, pos=QPoint(box.width() - 4, 12))
    assert box.isChecked() is not ticked
