"""What the menus of the toolbar offer, each with a line that explains it. No Qt."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.series.words import figure
from engine.models.catalog import ModelStatus
from engine.models.found import FoundModel

OPEN_FILE, MODELS = "open-file", "models-sheet"
POLICIES = {
    "total-delay": "Where everybody together waits least, batching and queues foreseen.",
    "batched-clear": "To the backend that would be clear first, batching foreseen.",
    "isolated-rates": "To the backend that would be clear first, at speeds measured alone: the baseline.",
    "least-requests": "To the backend with the fewest requests, whatever their size.",
    "round-robin": "Backends take turns, whatever they still have to do.",
    "forced-fastest": "Everything to the fastest backend: what routing is compared with.",
    "forced-slowest": "Everything to the slowest backend.",
}


@dataclass(frozen=True, slots=True)
class Choice:
    """One line of a menu. `value` "" is a heading, which cannot be chosen."""

    value: str
    title: str
    note: str = ""
    done: bool = False  # installed
    current: bool = False
    preset: str = ""  # whose arrivals are drawn beside the title


def policy_line(name: str, labels: Mapping[str, str]) -> str:
    if name in POLICIES:
        return POLICIES[name]
    backend = name.removeprefix("forced-")
    return f"Everything to the {labels.get(backend, backend.upper())}."


def policy_choices(names: Sequence[str], labels: Mapping[str, str]) -> list[Choice]:
    return [Choice(name, name, policy_line(name, labels)) for name in names]


def preset_choices(names: Iterable[str], lines: Mapping[str, str]) -> list[Choice]:
    return [Choice(name, name, sentence(lines.get(name, "")), preset=name) for name in names]


def sentence(text: str) -> str:
    """With a capital and a full stop."""
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if not text or text[-1] in ".?" else ".")


def size_text(size_bytes: int) -> str:
    return f"{size_bytes / 1e9:.1f} GB" if size_bytes >= 1e9 else f"{figure(size_bytes / 1e6)} MB"


def model_choices(
    catalogue: Sequence[ModelStatus],
    found: Sequence[FoundModel],
    profiles: Sequence[tuple[str, str]],
    current: str,
) -> list[Choice]:
    """Catalogue, other programs' models, a file of one's own, emulation. `profiles`: (name, title)."""
    out = [Choice("", "Models")]
    for status in catalogue:
        entry = status.entry
        where = "installed" if status.installed else "downloads first"
        note = f"{size_text(status.size_bytes)}, {entry.licence}, {where}"
        if entry is catalogue[0].entry:
            note += "; small, a demonstrator"
        value = f"model:{entry.name}"
        out.append(Choice(value, entry.title, note, status.installed, value == current))
    if found:
        out.append(Choice("", "Found on this machine"))
    for model in found:
        value = f"model:{model.path}"
        note = f"{size_text(model.size_bytes)}, from {model.owner}"
        out.append(Choice(value, model.name, note, True, value == current))
    known = {c.value for c in out}
    if current.startswith("model:") and current not in known:
        path = Path(current.removeprefix("model:"))
        out.append(Choice(current, path.name, str(path.parent), True, True))
    out.append(Choice(OPEN_FILE, "Open a GGUF file…", "A llama, qwen2 or qwen3 model on this machine."))
    out.append(Choice(MODELS, "All models…", "Size, licence and fit; download, load, unload, delete."))
    out.append(Choice("", "Emulated: no model, only timings"))
    for name, title in profiles:
        value = f"emulate:{name}"
        out.append(Choice(value, title, "Backends that only wait; replies are placeholder words.", False,
                          value == current))  # fmt: skip
    return out
