"""Which signal of the window's parts asks for what."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.main_window import MainWindow


def connect(window: "MainWindow") -> None:
    """What a user can press, and what must be heard of."""
    actions, wishes = window.actions_by_name, window.wishes
    window.session.said.connect(window.toast.show_notice)
    bar = window.toolbar
    bar.run_requested.connect(wishes.run)
    bar.stop_requested.connect(wishes.stop_all)
    bar.policy_chosen.connect(wishes.choose_policy)
    bar.preset_chosen.connect(wishes.choose_preset)
    bar.theme_requested.connect(actions["theme"].trigger)
    bar.presenter_requested.connect(window.toggle_presenter)
    bar.compare_requested.connect(wishes.show_compare)
    menu = window.model_menu
    menu.model_chosen.connect(wishes.choose_model)
    menu.profile_chosen.connect(wishes.choose_profile)
    menu.load_requested.connect(wishes.load_model)
    menu.sheet_requested.connect(wishes.show_models)
    window.prompt.step_requested.connect(wishes.take_step)
    window.backends.restart_requested.connect(window.bridge.restart_backend)
    window.backends.log_requested.connect(actions["log"].trigger)
    window.requests.emulated_requested.connect(wishes.run_emulated)
    for panel in (window.prompt, window.routing, window.requests):
        panel.receipt_requested.connect(window.show_receipt)
    window.card.repeat_requested.connect(wishes.repeat)
    window.card.closed.connect(window.focus_page)
    for part in (window.requests, window.sheet, window.prompt, window.card):
        part.failed.connect(wishes.fail)
