"""What the window takes from its settings as it opens, and leaves there as it closes."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.main_window import MainWindow

USUAL_SIZE = (1920, 1080)


def restore(window: "MainWindow") -> None:
    settings = window.settings
    geometry = settings.state("geometry")
    if geometry is None or not window.restoreGeometry(geometry):
        window.resize(*USUAL_SIZE)
    for key in window.panel_layout.all_keys():
        state = settings.state(key)
        if state is not None:
            window.panel_layout.restore(key, state)
    window.prompt.composer.sampling_line.set_sampling(settings.sampling())
    window.prompt.set_system(settings.system_prompt())


def save(window: "MainWindow") -> None:
    settings = window.settings
    settings.set_state("geometry", window.saveGeometry())
    states = window.panel_layout.states()
    for key in window.panel_layout.all_keys():
        settings.set_state(key, states.get(key))
    settings.set_sampling(window.prompt.composer.sampling_line.sampling)
    settings.set_system_prompt(window.prompt.system)
    settings.save()
