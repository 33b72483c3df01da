"""From a configuration to what a core needs: backends chosen, model fetched and converted, units to start.

All of it happens before the first backend loads, in the engine's thread; it may take minutes and it says
how far it is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from engine.choose import choose_backends, emulated_specs, is_mixed
from engine.config import BackendSpec, EngineConfig
from engine.events import BackendInfo, Event, ModelLoaded, Notice, SetupStep
from engine.placeholder import VOCABULARY, PlaceholderCodec
from engine.profiling.profile import Profile, load_profile
from engine.replies import Codec
from engine.supervisor import Unit
from engine.text import TextCodec
from engine.transport import Plan

USUAL_SHAPE = "smollm2-135m"


@dataclass(frozen=True, slots=True)
class Prepared:
    """`config` has the context that the model allows; `units` are ready to be started."""

    config: EngineConfig
    codec: Codec
    vocabulary: int
    units: list[Unit]


@dataclass(frozen=True, slots=True)
class Model:
    """`path` is None for random weights and for text that only takes its place."""

    path: Path | None
    codec: Codec
    vocabulary: int
    name: str  # to show
    max_context: int  # tokens


class Preparation:
    """`leave` raises what ends a long set-up when the window closes; `announce` hears of the backends.

    `announce` gets them before they load, so that they can be drawn, and may raise to refuse them.
    """

    def __init__(
        self,
        config: EngineConfig,
        publish: Callable[[Event], None],
        leave: Callable[[], None],
        announce: Callable[[Sequence[BackendSpec], Sequence[BackendInfo], Profile | None], None],
    ) -> None:
        self.config = config
        self._publish, self._leave, self._announce = publish, leave, announce

    def run(self) -> Prepared:
        """Raises the `EngineError` that prevents it, and whatever `leave` and `announce` raise."""
        name = self.config.emulate
        profile = load_profile(name) if name is not None else None
        if profile is not None and not is_mixed(self.config.options):
            return self._emulated(profile)
        return self._real(profile)

    def _tell(self, step: SetupStep) -> None:
        self._leave()
        self._publish(step)

    def _real(self, profile: Profile | None) -> Prepared:
        """Real backends, and beside them emulated ones where `profile` names their times."""
        specs, note = choose_backends(self.config.options, self._tell, profile)
        infos = infos_of(specs, profile)
        self._announce(specs, infos, profile)
        model = self._model()
        config = replace(self.config, context_tokens=min(self.config.context_tokens, model.max_context))
        if note:
            self._publish(Notice("info", note))
        emulation = profile.title if profile is not None else ""
        self._publish(ModelLoaded(model.name, "", config.context_tokens, profile is not None, emulation))
        units = [
            Unit(
                _plan(config, spec, specs, model),
                info,
                profile.backend(spec.name) if profile is not None and spec.emulated else None,
            )
            for spec, info in zip(specs, infos, strict=True)
        ]
        return Prepared(config, model.codec, model.vocabulary, units)

    def _emulated(self, profile: Profile) -> Prepared:
        config = self.config
        specs = emulated_specs(profile, config.options)
        infos = infos_of(specs, profile)
        self._announce(specs, infos, profile)
        units = [
            Unit(Plan(spec, spec.name, config.context_tokens, ()), info, profile.backend(spec.name))
            for spec, info in zip(specs, infos, strict=True)
        ]
        self._publish(ModelLoaded("Placeholder text", "", config.context_tokens, True, profile.title))
        return Prepared(config, PlaceholderCodec(), VOCABULARY, units)

    def _model(self) -> Model:
        """Downloaded and converted on first use."""
        from engine.models.apart import fetch_apart
        from engine.models.inspect import inspect_model
        from engine.models.prepare import prepared

        config = self.config
        if config.load_format == "dummy":
            from engine.models.architecture import named_shape

            name = _shape_name(config)
            shape = named_shape(name)
            placeholder = PlaceholderCodec(shape.vocab)
            return Model(None, placeholder, shape.vocab, f"{name}, random weights", shape.max_context)
        path = fetch_apart(config.model, self._tell, self._leave)
        shape = inspect_model(path)
        codec = TextCodec.load(prepared(path, self._tell, self._leave))
        name = path.stem if path.is_file() else path.name
        return Model(path, codec, shape.vocab, name, shape.max_context)


def _shape_name(config: EngineConfig) -> str:
    return config.architecture or USUAL_SHAPE


def _plan(config: EngineConfig, spec: BackendSpec, specs: Sequence[BackendSpec], model: Model) -> Plan:
    return Plan(
        spec,
        f"{model.name}|{spec.format}",
        config.context_tokens,
        () if spec.emulated else tuple(sorted(model.codec.eos_ids)),  # placeholder ids mean nothing
        str(model.path) if model.path else None,
        _shape_name(config),
        config.load_format,
        config.seed,
        tuple(other for other in specs if other is not spec and not other.emulated),
    )


def infos_of(specs: Sequence[BackendSpec], profile: Profile | None = None) -> list[BackendInfo]:
    """What is shown of each backend before it has loaded."""
    # Until rates are known: GPUs first, then in the order given.
    order = sorted(range(len(specs)), key=lambda i: (specs[i].kind != "gpu", i))
    infos = []
    for i, spec in enumerate(specs):
        timed = profile.backend(spec.name) if profile is not None and spec.emulated else None
        info = BackendInfo(
            name=spec.name,
            label=spec.label,
            kind=spec.kind,
            rank=order.index(i),
            device=spec.device,
            device_name=timed.device_name if timed is not None else spec.device,
            emulated=spec.emulated,
            slots=spec.slots,
            kv_blocks=spec.kv_blocks,
            block_bytes=timed.block_bytes if timed is not None else 0,
            threads=spec.threads,
            format=spec.format,
        )
        infos.append(info)
    return infos
