"""Settings and their precedence, the help sheet, About, the tour, the menus."""

import json
from argparse import Namespace

import pytest
from fake_engine import golden_scene
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLabel, QMainWindow
from test_window import clipped

from app.actions import MENUS, build_menu, entries, fill_menu_bar
from app.dialogs import shortcut_groups, show_about, show_shortcuts
from app.preferences import Preferences, effective, from_environment, given_on_command_line
from engine.cli import window_parser


def test_the_command_line_beats_the_environment_beats_the_file(tmp_path) -> None:
    argv = ["--slots", "8"]
    args, given = window_parser().parse_args(argv), given_on_command_line(argv)
    assert given == {"slots"}
    saved = {"slots": "1", "kv_blocks": 128, "threads": 2}
    merged = effective(args, given, saved, {"OFFRAMP_KV_BLOCKS": "256", "OFFRAMP_THREADS": "x"})
    assert (merged.slots, merged.kv_blocks, merged.threads) == ("8", 256, 2)
    assert merged.token_budget == args.token_budget


def test_a_bad_key_is_dropped_and_the_others_stay(tmp_path) -> None:
    path = tmp_path / "settings.json"
    data = {"version": 1, "slots": 4, "kv_blocks": -3, "context": 2048, "threads": True, "odd": 1}
    path.write_text(json.dumps(data))
    assert Preferences(path).values == {"context": 2048}
    path.write_text("{")
    assert "cannot be read" in Preferences(path).problem
    path.write_text('{"version": 99, "slots": "2"}')
    found = Preferences(path)
    assert not found.values and "another version" in found.problem
    assert from_environment({"OFFRAMP_SCHEDULING": "nonsense", "OFFRAMP_MODEL": "qwen3-0.6b"}) == {
        "model": "qwen3-0.6b"
    }


def test_changes_are_written_and_taken_back(tmp_path) -> None:
    made = Preferences(tmp_path / "deep" / "settings.json")
    made.change({"slots": "2", "kv_blocks": 64})
    made.change({"kv_blocks": None})
    assert Preferences(made.path).values == {"slots": "2"}


def test_settings_reload_the_engine_and_are_kept(rig, qtbot) -> None:
    dialog = rig.window.wishes.show_settings()
    assert not dialog.reload_button.isEnabled() and "runs with these" in dialog.state.text()
    dialog.fields["slots"].setText("nonsense")
    assert not dialog.reload_button.isEnabled() and "unclear" in dialog.state.text()
    dialog.fields["slots"].setText("gpu=1,cpu=4")
    dialog.fields["kv_blocks"].setValue(512)
    assert dialog.changes() == {"slots": "gpu=1,cpu=4", "kv_blocks": 512}
    dialog.reload_button.click()
    qtbot.waitUntil(lambda: bool(rig.engines))
    assert (rig.engine.config.slots, rig.engine.config.kv_blocks) == ("gpu=1,cpu=4", 512)
    assert json.loads(rig.session.preferences.path.read_text())["kv_blocks"] == 512
    assert not dialog.reload_button.isEnabled()
    dialog.defaults_button.click()
    assert dialog.changes() == {"slots": "4", "kv_blocks": 384}
    dialog.close()


def test_the_theme_applies_at_once(rig) -> None:
    dialog = rig.window.wishes.show_settings()
    dialog.fields["theme"].chosen.emit("light")
    assert rig.themes.current.name == "light" and not rig.engines
    assert clipped(dialog) == []
    dialog.close()


def test_help_lists_every_shortcut(rig) -> None:
    listed = {text for _title, rows in shortcut_groups() for _keys, text in rows}
    assert {e.text for e in entries() if e.keys} <= listed
    dialog = show_shortcuts(rig.window)
    assert clipped(dialog) == []
    dialog.close()


def test_about_names_versions_and_licences(rig) -> None:
    dialog = show_about(rig.window)
    words = " ".join(label.text() for label in dialog.findChildren(QLabel))
    assert "Nothing leaves this machine" in words and "networking off" in words
    assert "PySide6-Essentials" in words and "LGPL-3.0" in words and "MIT licence" in words
    assert clipped(dialog) == []
    dialog.close()


def test_the_menu_bar_follows_the_order_of_a_mac(qtbot) -> None:
    window = QMainWindow()
    qtbot.addWidget(window)
    _menu, actions = build_menu(window, {e.name: lambda: None for e in entries()})
    fill_menu_bar(window, actions)
    titles = [a.text() for a in window.menuBar().actions()]
    assert titles == [title for title, _ in MENUS] == ["Offramp", "File", "Prompt", "View", "Burst", "Help"]
    assert all(actions[e.name].text() == e.text for e in entries())


def test_the_tour_has_four_steps_and_comes_once(rig) -> None:
    window = rig.window
    window.actions_by_name["tour"].trigger()
    tour = window.tour
    titles = []
    for _ in range(4):
        titles.append(tour.title.text())
        assert tour.rect().contains(tour.card.geometry())
        tour.next.click()
    assert len(set(titles)) == 4 and not tour.isVisible() and rig.settings.tour_seen()
    window.begin_tour()
    QTest.keyClick(tour, Qt.Key.Key_Right)
    assert tour.index == 1
    QTest.keyClick(tour, Qt.Key.Key_Escape)
    assert not tour.isVisible()


@pytest.mark.parametrize("size", [(1280, 720), (1920, 1080)])
def test_the_tour_fits(rig, size) -> None:
    rig.engine.publish(*golden_scene())
    rig.window.resize(*size)
    rig.settle()
    rig.window.begin_tour()
    for index in range(4):
        rig.window.tour.go(index)
        assert rig.window.tour.rect().contains(rig.window.tour.card.geometry())
        assert clipped(rig.window.tour.card) == []
    rig.window.tour.end()


def test_every_button_of_the_window_is_reached_by_tab(rig) -> None:
    rig.engine.publish(*golden_scene())
    rig.settle()
    window = rig.window
    window.activateWindow()
    window.prompt.composer.editor.setFocus()
    seen = set()
    for _ in range(80):
        QTest.keyClick(window.focusWidget(), Qt.Key.Key_Tab)
        seen.add(window.focusWidget())
    bar, prompt = window.toolbar, window.prompt
    wanted = [bar.model, bar.policy, bar.preset, bar.stop_button, bar.presenter_button, bar.theme_button,
              bar.menu_button, prompt.system_button, prompt.title.list_button, prompt.new_button,
              prompt.title.more_button, prompt.composer.editor, prompt.composer.button, prompt.transcript,
              window.routing.chart, window.requests.table, window.requests.filter_button]  # fmt: skip
    assert [w.accessibleName() for w in wanted if w not in seen] == []


def test_namespaces_are_not_shared(rig) -> None:
    before = Namespace(**vars(rig.session.args))
    rig.window.wishes.reload(slots="7")
    assert before.slots == "4" and rig.session.args.slots == "7"
