"""Every model that could run here: the catalogue, what was fetched, what other programs keep. Each with its
family, tensors, size, licence, and whether it fits this machine on the backends that would start.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine.choose import choose_backends
from engine.config import BackendOptions, BackendSpec
from engine.devices.probe import probe_accelerators
from engine.errors import EngineError
from engine.models.architecture import ModelShape, named_shape
from engine.models.catalog import DEFAULT_MODEL, list_models
from engine.models.fit import Fit, Memory, fit, this_memory
from engine.models.found import find_models
from engine.models.inspect import Inspection, examine
from engine.models.store import arrived_bytes, own_models

DEMONSTRATOR = "a demonstrator: quick to fetch, weak at answering"


@dataclass(frozen=True, slots=True)
class ShelfModel:
    """One model. `name` is what `--model` takes; `owner` is "" for Offramp's own, else the program's name."""

    name: str
    title: str
    owner: str
    family: str
    tensors: tuple[str, ...]
    licence: str
    size_bytes: int
    installed: bool
    fit: Fit
    context_tokens: int | None = None
    arrived_bytes: int = 0  # of an interrupted download
    note: str = ""

    @property
    def refused(self) -> bool:
        return self.fit.verdict == "refused"


class Judge:
    """Fits on the backends that `options` would start here, at a context. `trouble`: why none could."""

    def __init__(self, options: BackendOptions, context_tokens: int) -> None:
        self.trouble = ""
        self.context_tokens = context_tokens
        self._specs: tuple[BackendSpec, ...] = ()
        self._memory = Memory(1, {})
        try:
            self._specs, _ = choose_backends(options, lambda _step: None)
            wanted = {
                s.device for s in self._specs if s.device.startswith("cuda")
            }  # Metal shares main memory
            cards = probe_accelerators() if wanted else []
            self._memory = this_memory((c.device, c.memory_bytes) for c in cards if c.device in wanted)
        except EngineError as error:
            self.trouble = str(error)

    def of_shape(self, shape: ModelShape | None) -> Fit:
        if shape is None or not self._specs:
            return Fit("unknown", self.trouble or "not known before it is looked at")
        return fit(shape, self._specs, self.context_tokens, self._memory)

    def of_inspection(self, seen: Inspection) -> Fit:
        """ "refused" with its reason where it cannot run at all."""
        return Fit("refused", seen.problem) if seen.problem else self.of_shape(seen.shape)


def shelf(
    judge: Judge, home: Path | None = None, seen: Callable[[Path], Inspection] = examine
) -> list[ShelfModel]:
    """All of them: the catalogue in its order, our own, others' by owner. Reads a header in 0.2 s."""
    out = []
    for status in list_models():
        entry = status.entry
        out.append(
            ShelfModel(
                entry.name,
                entry.title,
                "",
                entry.architecture,
                entry.tensors,
                entry.licence,
                status.size_bytes,
                status.installed,
                judge.of_shape(named_shape(entry.shape) if entry.shape else None),
                entry.context_tokens,
                0 if status.installed else arrived_bytes(entry.name),
                DEMONSTRATOR if entry.name == DEFAULT_MODEL else "",
            )
        )
    others = [(o.path, o.name, "", "see its page") for o in own_models()]
    others += [(m.path, m.name, m.owner, "see its source") for m in find_models(home)]
    for path, title, owner, licence in others:
        found = seen(path)
        context = found.shape.max_context if found.shape is not None else None
        out.append(
            ShelfModel(str(path), title, owner, found.family, found.tensor_types, licence, found.size_bytes,
                       True, judge.of_inspection(found), context)
        )  # fmt: skip
    return out
