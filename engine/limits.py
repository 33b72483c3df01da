"""What running backends may do at once: slots and tokens a step, changed between two of their steps.

A burst or a measurement may hold a backend at limits of its own; what the user asked for counts again when it
lets go. Who runs already runs to the end: fewer slots only keep others from beginning.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.backend import SetLimits
from engine.config import AUTO_SLOTS, BackendOptions, BackendSpec, Limits, live_limits
from engine.errors import ReloadError
from engine.profiling.profile import Profile
from engine.request import BackendName

if TYPE_CHECKING:
    from engine.core import Core


class LiveLimits:
    """The limits that count, and those that are to count again. How they are priced follows them."""

    def __init__(self, core: "Core") -> None:
        self._core = core
        self._usual = {name: unit.limits for name, unit in core.supervisor.units.items()}
        self._held: dict[BackendName, Limits] = {}
        self._auto = core.config.options.slots == "auto"

    def change(self, wanted: Mapping[BackendName, Limits], auto: bool) -> None:
        """The user asks for these from now on; with `auto` as many of the slots as pay, once that is known.

        They must be within what each backend was prepared for: see `live_limits`.
        """
        units = self._core.supervisor.units
        before = [unit.limits for unit in units.values()]
        self._auto = auto
        for name, limits in wanted.items():
            self._usual[name] = limits
            self.measured(name)
        if before != [unit.limits for unit in units.values()]:
            self._core.bursts.outsider()

    def measured(self, name: BackendName) -> None:
        """Step times became known, or which slots are wanted: with `auto` they say how many pay."""
        known = self._core.measurements.known(name)
        if self._auto and known is not None and known.steps is not None:
            most = min(AUTO_SLOTS, self._core.supervisor.units[name].plan.spec.most_slots)
            self._usual[name] = replace(self._usual[name], slots=known.steps.auto_slots(most))
        self.settle(name)

    def hold(self, name: BackendName, slots: int | None = None) -> None:
        """Until `release`: so many slots, or (None) all that the backend was started with."""
        spec = self._core.supervisor.units[name].plan.spec
        budget = self._usual[name].token_budget
        own = spec.limits if slots is None else Limits(min(slots, spec.most_slots, budget), budget)
        self._held[name] = own
        self.settle(name)

    def release(self, name: BackendName) -> None:
        """What the user asked for counts again."""
        self._held.pop(name, None)
        self.settle(name)

    def settle(self, name: BackendName) -> None:
        """Bring a backend to the limits that count. A new process begins with those of its plan."""
        core, unit = self._core, self._core.supervisor.units[name]
        limits = self._held.get(name, self._usual[name])
        if limits != unit.limits:
            unit.limits = limits
            core.supervisor.send(name, SetLimits(limits))
        if limits.slots != unit.info.slots:
            core.supervisor.update_info(name, replace(unit.info, slots=limits.slots))
        core.measurements.price(name)


def usual_slots(specs: Iterable[BackendSpec], profile: Profile | None) -> dict[BackendSpec, int]:
    """The slots of every backend where none are asked for: an emulated one has those of its profile."""
    usual = BackendOptions().slots_of("")
    return {s: profile.backend(s.name).slots if profile is not None and s.emulated else usual for s in specs}


def wanted_limits(
    usual: Mapping[BackendSpec, int], slots: str, token_budget: int | None
) -> dict[BackendName, Limits]:
    """What `--slots` and `--token-budget` ask of running backends; `usual` as `usual_slots` gives it.

    Raises `ReloadError` where that takes a reload and `ConfigError` where it makes no sense.
    """
    options = BackendOptions(slots=slots, token_budget=token_budget)
    if not usual:
        raise ReloadError("The backends are not known yet: other limits take a reload.")
    options.check_slot_names([spec.name for spec in usual])
    return {spec.name: live_limits(spec, options, most) for spec, most in usual.items()}


def reload_reason(usual: Mapping[BackendSpec, int], slots: str, token_budget: int | None) -> str:
    """Why `wanted_limits` takes a reload; "" where the running backends can take them."""
    try:
        wanted_limits(usual, slots, token_budget)
    except ReloadError as error:
        return str(error)
    return ""
