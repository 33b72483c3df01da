"""From what the user asked for to backends of this machine: automatic choice and thread plan."""

import re
from collections.abc import Callable

from engine.config import BackendOptions, BackendSpec
from engine.devices.cpu import cpu_threads
from engine.devices.probe import Accelerator, probe_accelerators
from engine.errors import BackendError, ConfigError, UnknownNameError
from engine.events import SetupStep
from engine.profiling.profile import BackendProfile, Profile
from engine.request import BackendName

_DEVICE = re.compile(r"cpu|cuda(:\d+)?|mps|emulated:[\w.-]+")
_EMULATED = "emulated:"  # and the name of a backend in the profile of --emulate


def is_mixed(options: BackendOptions) -> bool:
    """Whether emulated backends were asked for by name, beside real ones."""
    return _EMULATED in options.wanted


def check_mixture(options: BackendOptions, profile: Profile | None) -> None:
    """Raises `ConfigError` where emulated backends are named that no profile gives."""
    for device in parse_wanted(options.wanted):
        name = device.removeprefix(_EMULATED)
        if name == device:
            continue
        if profile is None:
            raise ConfigError(f"{device} takes its timings from a profile: add --emulate apple-m2-published.")
        if name not in (names := [b.name for b in profile.backends]):
            raise UnknownNameError("backend of the profile", name, names)


def parse_wanted(wanted: str) -> list[str]:
    """Devices of a `--backends` list. Raises `ConfigError` naming the entry that is wrong."""
    devices = [d.strip() for d in wanted.split(",")]
    for device in devices:
        if not _DEVICE.fullmatch(device):
            raise ConfigError(
                f"--backends {wanted}: '{device}' is no device: use cpu, cuda, cuda:0 or mps, "
                "for example cpu,cpu or cpu,cuda."
            )
    return ["cuda:0" if d == "cuda" else d for d in devices]


def emulated_specs(profile: Profile, options: BackendOptions) -> tuple[BackendSpec, ...]:
    """Backends that only wait, as a profile says."""
    names = [b.name for b in profile.backends]
    options.check_slot_names(names)
    specs = tuple(_emulated_spec(b, options) for b in profile.backends)
    for spec in specs:
        spec.validate()
    return specs


def _emulated_spec(backend: BackendProfile, options: BackendOptions) -> BackendSpec:
    return BackendSpec(
        BackendName(backend.name),
        backend.kind,
        "emulated",
        slots=options.slots_of(backend.name, backend.slots),
        kv_blocks=backend.kv_blocks,
        token_budget=options.token_budget or backend.token_budget,
        scheduling=options.scheduling,
    )


def choose_backends(
    options: BackendOptions, tell: Callable[[SetupStep], None], profile: Profile | None = None
) -> tuple[tuple[BackendSpec, ...], str]:
    """Specs for this machine, and a sentence where something asked for or hoped for is missing.

    `profile` gives the timings of entries such as emulated:gpu. Raises `BackendError` when an accelerator
    was asked for by name and its probe fails, `ConfigError` for names that clash or are in no profile.
    """
    note = ""
    if options.wanted == "auto":
        good, note = _probed(tell)
        devices = ["cpu", good[0].device] if good else ["cpu", "cpu"]
    else:
        devices = parse_wanted(options.wanted)
        check_mixture(options, profile)
        missing = [d for d in devices if d != "cpu" and not d.startswith(_EMULATED)]
        if missing:
            good, why = _probed(tell)
            for device in missing:
                if device not in {a.device for a in good}:
                    raise BackendError(f"The backend {device} cannot be used: {why or 'there is none here.'}")
    names = _names(devices)
    options.check_slot_names(names)
    cpus = devices.count("cpu")
    plan = cpu_threads(cpus) if cpus else []
    threads = iter([options.threads] * cpus if options.threads else plan)
    seen_cpu = False
    specs = []
    for name, device in zip(names, devices, strict=True):
        if device.startswith(_EMULATED) and profile is not None:
            specs.append(_emulated_spec(profile.backend(name), options))
            specs[-1].validate()
            continue
        # Two CPU backends are made unlike, so that there is something to route: the second is plain float32.
        form = "float32" if device == "cpu" and seen_cpu and options.format == "auto" else options.format
        seen_cpu = seen_cpu or device == "cpu"
        spec = BackendSpec(
            BackendName(name),
            "cpu" if device == "cpu" else "gpu",
            device,
            next(threads) if device == "cpu" else 1,
            form,
            options.slots_of(name),
            options.kv_blocks,
            options.budget_of(device),
            options.scheduling,
        )
        spec.validate()
        specs.append(spec)
    return tuple(specs), note


def _names(devices: list[str]) -> list[str]:
    """cpu, gpu; numbered from 1 where there are several of a kind. Emulated ones are called as their
    profile calls them."""
    real = [d for d in devices if not d.startswith(_EMULATED)]
    kinds = ["cpu" if d == "cpu" else "gpu" for d in real]
    numbered = (
        kind if kinds.count(kind) == 1 else f"{kind}-{kinds[: i + 1].count(kind)}"
        for i, kind in enumerate(kinds)
    )
    names = [d.removeprefix(_EMULATED) if d.startswith(_EMULATED) else next(numbered) for d in devices]
    if twice := [n for n in names if names.count(n) > 1]:
        raise ConfigError(f"--backends names {twice[0]} twice: emulate another backend of the profile.")
    return names


def _probed(tell: Callable[[SetupStep], None]) -> tuple[list[Accelerator], str]:
    """Accelerators that pass their probe, and why the others do not."""
    tell(SetupStep("probe", "Probe the GPU", "in a child process, against the CPU"))
    found = probe_accelerators()
    good = [a for a in found if a.ok]
    reasons = " ".join(a.reason for a in found if not a.ok and a.reason)
    detail = ", ".join(a.name for a in good) or reasons or "No GPU here: two CPU backends."
    tell(SetupStep("probe", "Probe the GPU", detail, "done"))
    return good, reasons
