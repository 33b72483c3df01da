"""Every action of the window: one menu entry, most with a shortcut. Ctrl is Cmd on a Mac.

The menus follow the order of macOS; there they are the menu bar, elsewhere one menu behind "…" with the
same entries in the same order.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QMainWindow, QMenu

from app.theme import font

Role = QAction.MenuRole


@dataclass(frozen=True, slots=True)
class Entry:
    """`keys` are the action's shortcuts, the first of them shown; name "" is a separator."""

    name: str = ""
    text: str = ""
    keys: tuple[str, ...] = ()
    role: Role = Role.NoRole


LINE = Entry()
MENUS: tuple[tuple[str, tuple[Entry, ...]], ...] = (
    (
        "Offramp",
        (
            Entry("about", "About Offramp", role=Role.AboutRole),
            Entry("settings", "Settings…", ("Ctrl+,",), Role.PreferencesRole),
            Entry("quit", "Quit", ("Ctrl+Q",), Role.QuitRole),
        ),
    ),
    (
        "File",
        (
            Entry("new_conversation", "New conversation", ("Ctrl+N",)),
            Entry("conversations", "Conversations…", ("Ctrl+O",)),
            Entry("duplicate", "Duplicate the conversation", ("Ctrl+Shift+D",)),
            Entry("models", "Models…", ("Ctrl+Shift+K",)),
            Entry("open_model", "Open a GGUF file…", ("Ctrl+Shift+O",)),
            LINE,
            Entry("export_markdown", "Export the conversation as Markdown…", ("Ctrl+Shift+S",)),
            Entry("export_json", "Export the conversation as JSON…"),
        ),
    ),
    (
        "Prompt",
        (
            Entry("focus_prompt", "Write a prompt", ("Ctrl+L",)),
            Entry("stop_reply", "Stop the reply", ("Ctrl+Shift+X",)),
            Entry("copy_reply", "Copy the last reply", ("Ctrl+Shift+C",)),
            Entry("regenerate", "Regenerate the last reply", ("Ctrl+Shift+G",)),
            Entry("edit_last", "Edit the last prompt", ("Ctrl+E",)),
            LINE,
            Entry("system_prompt", "System prompt…", ("Ctrl+Shift+Y",)),
            Entry("sampling", "Sampling…", ("Ctrl+Shift+M",)),
        ),
    ),
    (
        "View",
        (
            Entry("presenter", "Presenter mode", ("F5", "Ctrl+Shift+P")),
            Entry("earlier", "A moment earlier", ("Ctrl+[",)),
            Entry("later", "A moment later", ("Ctrl+]",)),
            Entry("live", "Back to live", ("Ctrl+Shift+L",)),
            LINE,
            Entry("theme", "Light or dark", ("Ctrl+T",)),
            Entry("system_theme", "Follow the system's theme"),
            Entry("reset_layout", "Restore the layout"),
        ),
    ),
    (
        "Burst",
        (
            Entry("run", "Run burst", ("Ctrl+R",)),
            Entry("repeat", "Repeat the last burst", ("Ctrl+Shift+R",)),
            Entry("own_burst", "Your own burst…", ("Ctrl+Shift+B",)),
            Entry("compare", "Compare A/B…", ("Ctrl+B",)),
            Entry("experiments", "Experiments…", ("Ctrl+Shift+E",)),
            Entry("stop", "Stop all", ("Ctrl+.",)),
            LINE,
            Entry("receipt", "Last receipt", ("Ctrl+I",)),
            Entry("result", "Last result", ("Ctrl+Shift+I",)),
            Entry("history", "Run history…", ("Ctrl+Shift+H",)),
        ),
    ),
    (
        "Help",
        (
            Entry("shortcuts", "Keyboard shortcuts", ("F1",)),
            Entry("tour", "Show me around"),
            Entry("log", "Log…"),
        ),
    ),
)


def entries() -> list[Entry]:
    return [entry for _title, group in MENUS for entry in group if entry.name]


def shown(keys: str) -> str:
    """A shortcut as this system writes it."""
    return QKeySequence(keys).toString(QKeySequence.SequenceFormat.NativeText)


def build_menu(
    window: QMainWindow, handlers: Mapping[str, Callable[[], object]]
) -> tuple[QMenu, dict[str, QAction]]:
    """The menu with all actions; `handlers` maps each name to what it calls."""
    menu, actions = QMenu(window), {}
    menu.setFont(font("label"))
    menu.setAccessibleName("Menu")
    for entry in entries():
        action = actions[entry.name] = QAction(entry.text, window)
        action.setShortcuts([QKeySequence(k) for k in entry.keys])
        action.setMenuRole(entry.role)
        handler = handlers[entry.name]
        action.triggered.connect(lambda _checked=False, handler=handler: handler())
        window.addAction(action)  # a shortcut in a menu that is never shown would not work
    # Behind the "…" the application's own entries come last, as people look for them there.
    groups = [*MENUS[1:], MENUS[0]]
    for index, (_title, group) in enumerate(groups):
        if index:
            menu.addSeparator()
        for entry in group:
            if entry.name:
                menu.addAction(actions[entry.name])
    if sys.platform == "darwin":
        fill_menu_bar(window, actions)
    return menu, actions


def fill_menu_bar(window: QMainWindow, actions: Mapping[str, QAction]) -> None:
    """File, Prompt, View, Burst, Help; Qt moves About, Settings and Quit by their roles."""
    bar = window.menuBar()
    for title, group in MENUS:
        menu = bar.addMenu(title)
        for entry in group:
            if entry.name:
                menu.addAction(actions[entry.name])
            else:
                menu.addSeparator()
