"""What a row of the models sheet says and offers. No Qt."""

from dataclasses import dataclass

from app.series.board import Board
from app.series.choices import size_text
from engine.events import BackendState
from engine.shelf import ShelfModel

FIT_TONES = {"fits": "success", "tight": "warning", "too large": "error", "refused": "error"}
FIT_WORDS = {"fits": "Fits", "tight": "Tight", "too large": "Too large", "unknown": "Not judged"}


@dataclass(frozen=True, slots=True)
class Transfer:
    """A download of the model: "" (none), "running", "paused" or "failed", and how far it is."""

    state: str = ""
    done: float = 0.0
    total: float = 0.0
    words: str = ""


@dataclass(frozen=True, slots=True)
class RowLook:
    """`action` is the main button, "" for none; `share` is the bar, None for none."""

    facts: str
    fit: str
    fit_tone: str
    action: str  # "Load", "Unload", "Download", "Pause", "Resume"
    can_delete: bool
    state: str = ""
    state_tone: str = "muted"
    share: float | None = None


def facts_of(model: ShelfModel) -> str:
    where = f"from {model.owner}, read only" if model.owner else ""
    parts = (size_text(model.size_bytes), model.family, " ".join(model.tensors), model.licence, where)
    return ", ".join(part for part in parts if part)


def fit_of(model: ShelfModel) -> tuple[str, str]:
    """(sentence, tone)."""
    fit = model.fit
    tone = FIT_TONES.get(fit.verdict, "muted")
    return (fit.words if model.refused else f"{FIT_WORDS[fit.verdict]}: {fit.words}."), tone


def look_of(model: ShelfModel, transfer: Transfer, loaded: bool, loading: bool) -> RowLook:
    fit, tone = fit_of(model)
    facts, ours = facts_of(model), not model.owner
    if transfer.state == "running":
        share = transfer.done / transfer.total if transfer.total else 0.0
        return RowLook(facts, fit, tone, "Pause", False, transfer.words or "Starting", share=share)
    if not model.installed:
        arrived = max(transfer.done if transfer.state else 0.0, float(model.arrived_bytes))
        words = transfer.words if transfer.state == "failed" else ""
        if arrived and not words:
            words = f"{size_text(arrived)} are here already"
        action = "" if model.refused else "Resume" if arrived else "Download"
        return RowLook(facts, fit, tone, action, bool(arrived), words,
                       "error" if transfer.state == "failed" else "muted")  # fmt: skip
    if loaded:
        return RowLook(facts, fit, tone, "Unload", False, "Loading" if loading else "Loaded",
                       "muted" if loading else "success")  # fmt: skip
    return RowLook(facts, fit, tone, "" if model.refused else "Load", ours)


def load_words(board: Board, unloaded: bool) -> tuple[str, str, float | None]:
    """What the engine is at, in words, their tone, and how far it is (None = no bar)."""
    if unloaded:
        return "Nothing is loaded.", "muted", None
    if board.failure is not None:
        return board.failure, "error", None
    if board.ready and board.model is not None:
        model, names = board.model, " and ".join(v.info.label for v in board.ranked())
        return (
            f"{model.name} runs on {names} with a context of {model.context_tokens:,} tokens.",
            "muted",
            None,
        )
    running = next((s for s in reversed(board.setup.values()) if s.state == "running"), None)
    if running is not None:
        share = running.done / running.total if running.total and running.done is not None else None
        return f"{running.title}. {running.detail}".rstrip(". ") + ".", "muted", share
    loading = [v for v in board.ranked() if v.state is BackendState.LOADING]
    if loading:
        words = "; ".join(f"{v.info.label}: {v.message}" for v in loading)
        return f"Loading. {words}.", "muted", _percent(loading[0].message)
    return "Getting ready.", "muted", None


def _percent(message: str) -> float | None:
    """ "reading layers, 45%" -> 0.45."""
    tail = message.rpartition(" ")[2]
    return int(tail[:-1]) / 100 if tail.endswith("%") and tail[:-1].isdecimal() else None
