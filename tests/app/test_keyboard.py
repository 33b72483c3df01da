"""Every control of the whole window, and of its dialogs, has a name, is reached by Tab, and is left again."""

import pytest
from fake_engine import golden_scene
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractSpinBox,
    QApplication,
    QComboBox,
    QLineEdit,
    QPlainTextEdit,
    QTableView,
    QTextEdit,
    QWidget,
)

KINDS = (QAbstractButton, QComboBox, QLineEdit, QPlainTextEdit, QTextEdit, QAbstractSpinBox, QTableView)
STEPS = 150


def controls(top: QWidget) -> list[QWidget]:
    """What a user can operate now. Parts of other controls (a spin box's field) are left to those."""
    found = [w for w in top.findChildren(QWidget) if isinstance(w, KINDS)]
    return [
        w
        for w in found
        if w.isVisible()
        and w.isEnabled()
        and not isinstance(w.parentWidget(), QAbstractSpinBox | QComboBox | QTableView)
        and w.focusPolicy() & Qt.FocusPolicy.TabFocus
        and w.window() is top
    ]


def walked(top: QWidget, backwards: bool = False) -> list[QWidget]:
    """Where Tab, or Shift+Tab, leads."""
    keys = (Qt.Key.Key_Backtab, Qt.KeyboardModifier.ShiftModifier) if backwards else (Qt.Key.Key_Tab,)
    out = []
    for _ in range(STEPS):
        QTest.keyClick(top.focusWidget() or top, *keys)
        out.append(top.focusWidget())
    return out


def said(widget: QWidget) -> str:
    return f"{type(widget).__name__} {widget.accessibleName()!r}"


def check(top: QWidget) -> None:
    wanted = controls(top)
    assert wanted
    nameless = [type(w).__name__ for w in wanted if not (w.accessibleName() or getattr(w, "text", str)())]
    assert nameless == []
    path = walked(top)
    assert [said(w) for w in wanted if w not in path] == []
    # Somebody who is stuck in a control would see it twice in a row.
    assert not [said(a) for a, b in zip(path, path[1:], strict=False) if a is b]
    assert [said(w) for w in wanted if w not in walked(top, backwards=True)] == []


def test_the_whole_window_is_walked_both_ways(rig) -> None:
    rig.engine.publish(*golden_scene())
    rig.settle()
    rig.window.activateWindow()
    rig.window.prompt.composer.editor.setFocus()
    check(rig.window)


@pytest.mark.parametrize("action", ["settings", "models", "history", "log"])
def test_every_dialog_is_walked_both_ways(rig, qtbot, monkeypatch, action) -> None:
    monkeypatch.setattr("app.models_dialog.shelf", lambda _judge: [])
    before = set(QApplication.topLevelWidgets())
    rig.window.actions_by_name[action].trigger()
    qtbot.waitUntil(lambda: any(w.isVisible() for w in set(QApplication.topLevelWidgets()) - before))
    dialog = next(w for w in set(QApplication.topLevelWidgets()) - before if w.isVisible())
    dialog.activateWindow()
    check(dialog)
    dialog.close()
