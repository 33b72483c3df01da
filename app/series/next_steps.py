"""What happens before a prompt can be answered, and what leads on where that stopped. No Qt."""

from dataclasses import dataclass, replace

from app.series.board import Board
from engine.events import BackendState, SetupStep

MODELS, AGAIN, RESTART = "models", "again", "restart:"
ALL_STOPPED = "Every backend has stopped: restart one."


@dataclass(frozen=True, slots=True)
class NextStep:
    """`key` is MODELS, AGAIN or RESTART and the name of a backend; `name` says it without the rest."""

    key: str
    text: str
    name: str
    icon: str = ""


CHOOSE = NextStep(MODELS, "Models…", "Choose a model")
OTHER = NextStep(MODELS, "Choose another model…", "Choose another model")
LOAD_AGAIN = NextStep(AGAIN, "Load again", "Load the model again", "restart")


def steps_of(board: Board) -> dict[str, SetupStep]:
    """The engine's steps, after those that come before it can say anything; none where it is to rest."""
    if board.asked:
        return {}
    begun = bool(board.setup or board.failure)
    steps = {
        "window": SetupStep("window", "Open the window", state="done"),
        "start": SetupStep("start", "Start the engine", state="done" if begun else "running"),
        **board.setup,
    }
    if board.failure:  # nothing goes on any more
        steps = {k: replace(s, state="failed") if s.state == "running" else s for k, s in steps.items()}
    return steps


def problem_of(board: Board) -> tuple[str, tuple[NextStep, ...]]:
    """Why no prompt can be answered, and what can be done about it; ("", ()) where it can, or soon can."""
    if board.failure:
        return board.failure, (CHOOSE, LOAD_AGAIN)
    views = board.ranked()
    if board.ready and views and all(view.state is BackendState.STOPPED for view in views):
        restarts = (
            NextStep(
                f"{RESTART}{view.info.name}",
                f"Restart {view.info.label}",
                f"Restart the {view.info.label} backend",
                "restart",
            )
            for view in reversed(views)  # the fastest first
        )
        return ALL_STOPPED, tuple(restarts)
    return "", ()
