"""Settings and their precedence, the help sheet, About, the tour, the menus."""

import json
from argparse import Namespace

import pytest
from fake_engine import golden_scene
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractSpinBox, QLabel, QMainWindow, QScrollArea, QWidget
from test_window import clipped

from app.actions import MENUS, build_menu, entries, fill_menu_bar
from app.dialogs import evenly, shortcut_groups, show_about, show_shortcuts
from app.preferences import Preferences, effective, from_environment, given_on_command_line
from app.settings_dialog import BACKENDS, POLICY
from engine.cli import window_parser
from engine.weights import PolicyWeights, parse_weights

TAB = Qt.FocusPolicy.TabFocus


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
    page = dialog.backends
    assert not dialog.reload_button.isEnabled() and "runs with these" in page.state.text()
    page.fields["slots"].setText("nonsense")
    assert not dialog.reload_button.isEnabled() and "unclear" in page.state.text()
    page.fields["slots"].setText("gpu=1,cpu=4")
    page.fields["kv_blocks"].setValue(512)
    assert page.changes() == {"slots": "gpu=1,cpu=4", "kv_blocks": 512}
    assert dialog.reload_button.text() == "Reload"
    dialog.reload_button.click()
    qtbot.waitUntil(lambda: bool(rig.engines))
    assert (rig.engine.config.slots, rig.engine.config.kv_blocks) == ("gpu=1,cpu=4", 512)
    assert json.loads(rig.session.preferences.path.read_text())["kv_blocks"] == 512
    assert not dialog.reload_button.isEnabled()
    dialog.tabs.setCurrentIndex(BACKENDS)
    dialog.defaults_button.click()
    assert page.changes() == {"slots": "4", "kv_blocks": 384}
    dialog.close()


def test_what_the_backends_can_take_is_applied_without_a_reload(rig) -> None:
    dialog = rig.window.wishes.show_settings()
    page = dialog.backends
    page.fields["slots"].setText("gpu=1,cpu=2")
    page.fields["token_budget"].setValue(256)
    assert (dialog.reload_button.text(), dialog.reload_button.isEnabled()) == ("Apply", True)
    dialog.reload_button.click()
    assert rig.engine.calls[-1] == ("set_limits", "gpu=1,cpu=2", 256) and not rig.engines
    assert json.loads(rig.session.preferences.path.read_text())["slots"] == "gpu=1,cpu=2"
    assert not dialog.reload_button.isEnabled() and "runs with these" in page.state.text()
    page.fields["token_budget"].setValue(page.fields["token_budget"].minimum())
    dialog.reload_button.click()
    assert rig.engine.calls[-1] == ("set_limits", "gpu=1,cpu=2", None)
    dialog.close()


def test_a_row_says_what_takes_a_reload(rig) -> None:
    dialog = rig.window.wishes.show_settings()
    dialog.tabs.setCurrentIndex(BACKENDS)
    page = dialog.backends
    notes = page.rows.notes
    page.fields["slots"].setText("9")
    assert "prepared for 4 slots: more take a reload" in notes["slots"].text()
    assert notes["slots"].property("tone") == "warning" and "prepared" not in notes["token_budget"].text()
    assert page.fields["slots"].accessibleDescription() == notes["slots"].text()
    assert (dialog.reload_button.text(), dialog.reload_button.isEnabled()) == ("Reload", True)
    assert clipped(dialog) == []
    page.fields["slots"].setText("tpu=1")
    assert "'tpu'" in page.state.text() and not dialog.reload_button.isEnabled()
    page.fields["slots"].setText("4")
    page.fields["token_budget"].setValue(4096)
    assert "more take a reload" in notes["token_budget"].text() and "prepared" not in notes["slots"].text()
    dialog.close()


def test_weights_of_the_policy_count_at_once_and_are_kept(rig) -> None:
    dialog = rig.window.wishes.show_settings()
    dialog.tabs.setCurrentIndex(POLICY)
    page, saved = dialog.weights, lambda: json.loads(rig.session.preferences.path.read_text())
    page.numbers["margin"].setValue(10)
    assert rig.engine.calls[-1] == ("set_weights", PolicyWeights(margin=0.1))
    page.switches["moves"].click()
    assert rig.engine.calls[-1] == ("set_weights", PolicyWeights(margin=0.1, moves=False))
    assert parse_weights(saved()["weights"]) == rig.session.weights() == page.weights
    assert not rig.engines, "no reload"
    rig.window.wishes.reload(slots="2")
    assert rig.session.weights() == page.weights, "the next engine begins with them"
    dialog.defaults_button.click()
    assert page.numbers["margin"].value() == 5 and page.switches["moves"].isChecked()
    assert "weights" not in saved() and rig.session.args.weights is None
    dialog.close()


def test_a_number_counts_when_it_is_complete(rig) -> None:
    dialog = rig.window.wishes.show_settings()
    dialog.tabs.setCurrentIndex(POLICY)
    box = dialog.weights.numbers["others"]
    before = len(rig.engine.calls)
    box.setFocus()
    box.selectAll()
    QTest.keyClicks(box, "2.5")
    assert len(rig.engine.calls) == before
    QTest.keyClick(box, Qt.Key.Key_Return)
    assert rig.engine.calls[before:] == [("set_weights", PolicyWeights(others=2.5))]
    dialog.close()


def test_return_in_a_field_applies_it(rig) -> None:
    dialog = rig.window.wishes.show_settings()
    dialog.tabs.setCurrentIndex(BACKENDS)
    dialog.backends.fields["slots"].setText("3")
    QTest.keyClick(dialog.backends.fields["slots"], Qt.Key.Key_Return)
    assert rig.engine.calls[-1] == ("set_limits", "3", None) and dialog.isVisible()
    dialog.close()


def test_a_weight_finer_than_its_field_stays_as_it_is(rig) -> None:
    rig.session.adopt({"weights": "margin=0.0333"})
    dialog = rig.window.wishes.show_settings()
    dialog.weights.switches["guards"].click()
    assert rig.session.weights() == PolicyWeights(margin=0.0333, guards=False)
    dialog.close()


def test_bad_weights_are_dropped_like_any_bad_key(tmp_path) -> None:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"version": 1, "weights": "margin=much", "slots": "2"}))
    assert Preferences(path).values == {"slots": "2"}
    assert from_environment({"OFFRAMP_WEIGHTS": "moves=off"}) == {"weights": "moves=off"}
    assert from_environment({"OFFRAMP_WEIGHTS": "moves"}) == {}


def test_the_theme_applies_at_once(rig) -> None:
    dialog = rig.window.wishes.show_settings()
    dialog.window_page.theme.chosen.emit("light")
    assert rig.themes.current.name == "light" and not rig.engines
    dialog.close()


@pytest.mark.parametrize("theme", ["dark", "light"])
def test_every_page_of_the_settings_fits_and_names_its_controls(make_rig, theme) -> None:
    rig = make_rig(theme=theme).ready()
    rig.window.resize(1280, 720)
    dialog = rig.window.wishes.show_settings()
    for page in range(dialog.tabs.count()):
        dialog.tabs.setCurrentIndex(page)
        rig.settle()
        assert dialog.height() <= 680 and dialog.width() <= 1200
        assert clipped(dialog) == []
        controls = [w for w in dialog.findChildren(QWidget) if w.isVisible() and w.focusPolicy() & TAB]
        own = [w for w in controls if not isinstance(w.parent(), QAbstractSpinBox)]
        assert [w for w in own if not w.accessibleName()] == []
        assert set(own) <= reached(dialog)
    dialog.close()


def reached(dialog: QWidget) -> set[QWidget]:
    """What Tab comes to, from wherever it begins."""
    seen, at = set(), dialog
    for _ in range(200):
        at = at.nextInFocusChain()
        seen.add(at)
    return seen


def test_help_lists_every_shortcut(rig) -> None:
    listed = {text for _title, rows in shortcut_groups() for _keys, text in rows}
    assert {e.text for e in entries() if e.keys} <= listed
    dialog = show_shortcuts(rig.window)
    assert clipped(dialog) == []
    dialog.close()


def test_groups_are_spread_evenly_and_keep_their_order() -> None:
    assert evenly([5, 5, 5]) == [0, 1, 2]
    assert evenly([9, 2, 2, 2, 3, 9]) == [0, 1, 1, 1, 1, 2]
    assert evenly([4], columns=3) == sorted(evenly([4], columns=3)) and evenly([]) == []


def test_every_shortcut_is_seen_at_once_in_the_smallest_window(rig) -> None:
    rig.window.resize(1280, 720)
    dialog = show_shortcuts(rig.window)
    area = dialog.findChild(QScrollArea)
    assert area.verticalScrollBar().maximum() == area.horizontalScrollBar().maximum() == 0
    assert dialog.height() <= 720
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
