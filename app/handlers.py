"""What each action of the menu calls. Looked up when it is called, so that parts may be made later."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from app.dialogs import show_about, show_log, show_shortcuts

if TYPE_CHECKING:
    from app.main_window import MainWindow


def handlers_of(window: "MainWindow") -> dict[str, Callable[[], object]]:
    return {
        "run": lambda: window.wishes.run(),
        "repeat": lambda: window.wishes.repeat(),
        "stop": lambda: window.wishes.stop_all(),
        "compare": lambda: window.wishes.show_compare(),
        "own_burst": lambda: _own_burst(window),
        "experiments": lambda: _experiments(window),
        "models": lambda: window.wishes.show_models(),
        "open_model": lambda: window.model_menu.open_file(),
        "focus_prompt": lambda: window.prompt.composer.editor.setFocus(),
        "new_conversation": lambda: window.prompt.new_conversation(),
        "conversations": lambda: window.prompt.show_conversations(),
        "duplicate": lambda: window.prompt.act("duplicate"),
        "stop_reply": lambda: window.prompt.stop(),
        "export_markdown": lambda: window.prompt.act("markdown"),
        "export_json": lambda: window.prompt.act("json"),
        "copy_reply": lambda: window.prompt.act("copy"),
        "regenerate": lambda: window.prompt.act("regenerate"),
        "edit_last": lambda: window.prompt.act("edit"),
        "system_prompt": lambda: window.prompt.edit_system(),
        "sampling": lambda: window.prompt.composer.sampling_line.open(),
        "receipt": window.show_last_receipt,
        "result": lambda: window.wishes.show_result(),
        "history": lambda: window.looking_back.show_history(),
        "presenter": window.toggle_presenter,
        "earlier": lambda: window.time_cursor.step(-1),
        "later": lambda: window.time_cursor.step(1),
        "live": lambda: window.time_cursor.go_live(),
        "theme": lambda: window.set_theme("light" if window.themes.current.name == "dark" else "dark"),
        "system_theme": lambda: window.set_theme("system"),
        "reset_layout": window.reset_layout,
        "shortcuts": lambda: show_shortcuts(window),
        "about": lambda: show_about(window),
        "log": lambda: show_log(window, window.themes),
        "settings": lambda: window.wishes.show_settings(),
        "tour": window.begin_tour,
        "quit": window.close,
    }


def _experiments(window: "MainWindow") -> object:
    from app.experiments_dialog import show_experiments  # it needs QtSvg and the profiles: not at the start

    return show_experiments(window)


def _own_burst(window: "MainWindow") -> object:
    from app.burst_form import show_burst_form

    return show_burst_form(window)
