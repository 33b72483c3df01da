"""What the tour says, and which part of the window each step is about."""

from typing import TYPE_CHECKING

from app.tour import Step

if TYPE_CHECKING:
    from app.main_window import MainWindow


def tour_steps(window: "MainWindow") -> list[Step]:
    return [
        Step(
            "Two backends, one model",
            "The same model runs on both. Each shows its slots, who waits for it, and its KV cache. "
            "A backend is a shape, a colour and a word, everywhere in this window.",
            lambda: window.backends,
        ),
        Step(
            "Every request goes to one of them",
            "The router prices both and picks one. The largest words tell the last decision and its reason; "
            "Receipt, or a click on any mark, shows the whole sum.",
            lambda: window.routing,
        ),
        Step(
            "Run a burst",
            "Choose a policy and a burst, then press Run (Ctrl+R). Without a model, the Model menu has "
            "emulated machines: published timings, nothing computed.",
            lambda: window.toolbar,
        ),
        Step(
            "Or write a prompt",
            "Each reply is signed by the backend that wrote it. Nothing you write leaves this machine. "
            "F5 shows everything large for a room, F1 lists the keys.",
            lambda: window.prompt,
        ),
    ]
