"""Every action of the window: one menu, one shortcut each. Ctrl is Cmd on a Mac."""

from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QDialog, QGridLayout, QMainWindow, QMenu, QVBoxLayout, QWidget

from app.theme import font
from app.widgets.labels import make_label
from engine import __version__

# name, text, shortcut
ACTIONS = (
    ("run", "Run burst", "Ctrl+R"),
    ("repeat", "Repeat the last burst", "Ctrl+Shift+R"),
    ("stop", "Stop all", "Ctrl+."),
    ("", "", ""),
    ("focus_prompt", "Write a prompt", "Ctrl+L"),
    ("new_conversation", "New conversation", "Ctrl+N"),
    ("system_prompt", "System prompt…", ""),
    ("sampling", "Sampling…", ""),
    ("receipt", "Last receipt", "Ctrl+I"),
    ("", "", ""),
    ("theme", "Light or dark", "Ctrl+T"),
    ("system_theme", "Follow the system's theme", ""),
    ("reset_layout", "Restore the layout", ""),
    ("", "", ""),
    ("shortcuts", "Keyboard shortcuts", "F1"),
    ("about", "About Offramp", ""),
    ("quit", "Quit", "Ctrl+Q"),
)


def build_menu(window: QMainWindow, handlers: dict[str, object]) -> tuple[QMenu, dict[str, QAction]]:
    """The menu with all actions; `handlers` maps each name to what it calls."""
    menu, actions = QMenu(window), {}
    menu.setFont(font("label"))
    menu.setAccessibleName("Menu")
    for name, text, keys in ACTIONS:
        if not name:
            menu.addSeparator()
            continue
        action = QAction(text, window)
        if keys:
            action.setShortcut(QKeySequence(keys))
        action.triggered.connect(handlers[name])
        menu.addAction(action)
        window.addAction(action)  # a shortcut in a menu that is never shown would not work
        actions[name] = action
    return menu, actions


def _dialog(parent: QWidget, title: str) -> tuple[QDialog, QVBoxLayout]:
    dialog = QDialog(parent)
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    dialog.setWindowTitle(title)
    column = QVBoxLayout(dialog)
    column.setContentsMargins(32, 32, 32, 32)
    column.setSpacing(12)
    column.addWidget(make_label(title, "lead", bold=True))
    return dialog, column


def show_about(parent: QWidget) -> QDialog:
    dialog, column = _dialog(parent, "Offramp")
    for text in (
        f"Version {__version__}. When does a CPU beat waiting for the GPU? "
        "Answered live, on your own machine.",
        "Nothing leaves this machine. The network is used only to fetch a model that you ask for; "
        "with networking off everything else works.",
        "Where EMULATED is shown, backends only wait: their times come from a hardware profile.",
    ):
        label = make_label(text, "body")
        label.setWordWrap(True)
        label.setFixedWidth(440)
        column.addWidget(label)
    dialog.open()
    return dialog


def show_shortcuts(parent: QWidget) -> QDialog:
    dialog, column = _dialog(parent, "Keyboard shortcuts")
    grid = QGridLayout()
    grid.setHorizontalSpacing(32)
    grid.setVerticalSpacing(8)
    listed = [(text, keys) for _name, text, keys in ACTIONS if keys]
    listed += [
        ("Send the prompt", "Return"),
        ("New line in the prompt", "Shift+Return"),
        ("Stop the answer", "Esc"),
    ]
    for row, (text, keys) in enumerate(listed):
        shown = QKeySequence(keys).toString(QKeySequence.SequenceFormat.NativeText)
        grid.addWidget(make_label(text), row, 0)
        grid.addWidget(make_label(shown, tone="muted"), row, 1)
    column.addLayout(grid)
    dialog.open()
    return dialog
