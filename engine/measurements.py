"""What is known of the running backends' speed: prices, ranks and the machine's profile follow from it."""

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.backend import SetSlots
from engine.errors import ConfigError
from engine.profiling.profile import BackendProfile
from engine.profiling.store import Measured, save_local
from engine.request import BackendName
from engine.routing.router import Pace

if TYPE_CHECKING:
    from engine.core import Core

log = logging.getLogger(__name__)


class Measurements:
    """Rates and step-time models by backend, as published or as calibrated here."""

    def __init__(self, core: "Core") -> None:
        self._core = core
        self._known: dict[BackendName, Measured] = {}

    def known(self, name: BackendName) -> Measured | None:
        """What is known of a backend so far."""
        return self._known.get(name)

    def set(self, name: BackendName, measured: Measured) -> None:
        """Rates (and step times) of a backend became known: tell the router and the screen."""
        core = self._core
        rates, spec = measured.rates, core.supervisor.units[name].plan.spec
        core.router.set_rates(name, rates)
        if measured.steps is not None:
            slots = core.supervisor.units[name].info.slots
            core.router.set_pace(name, Pace(measured.steps, slots, spec.token_budget))
        self._known[name] = measured
        if measured.steps is not None and core.config.options.slots == "auto":
            self.set_slots(name, measured.steps.auto_slots(spec.slots))
        self._keep_profile()
        order = core.router.fastest_first()
        for other, unit in core.supervisor.units.items():
            info = replace(unit.info, rank=order.index(other))
            if other == name:
                info = replace(
                    info,
                    prefill_rate=rates.prefill,
                    decode_rate=rates.decode,
                    step_error=measured.held_out_error,
                    priced=measured.steps is not None,
                    paired=measured.paired,
                )
            if info != unit.info:
                core.supervisor.update_info(other, info)

    def set_slots(self, name: BackendName, slots: int) -> None:
        """Change how many requests a backend admits, and how it is priced; at most what it started with."""
        core = self._core
        unit = core.supervisor.units[name]
        slots = min(slots, unit.plan.spec.slots)
        if slots == unit.info.slots:
            return
        core.supervisor.send(name, SetSlots(slots))
        core.supervisor.update_info(name, replace(unit.info, slots=slots))
        measured = self._known.get(name)
        if measured is not None and measured.steps is not None:
            core.router.set_pace(name, Pace(measured.steps, slots, unit.plan.spec.token_budget))

    def profiles(self) -> tuple[BackendProfile, ...] | None:
        """Every running backend as a profile has it; None while one of them is not measured."""
        out = []
        for unit in self._core.supervisor.units.values():
            if not unit.ready:
                continue
            info, measured = unit.info, self._known.get(unit.plan.spec.name)
            if measured is None or measured.steps is None:
                return None
            device = info.device_name if info.emulated else f"{info.device_name}, {info.format}"
            out.append(
                BackendProfile(
                    info.name,
                    info.kind,
                    device,
                    info.slots,
                    info.kv_blocks,
                    info.block_bytes,
                    measured.rates,
                    measured.steps,
                    fit_error=measured.fit_error,
                    held_out_error=measured.held_out_error,
                    spread=measured.spread,
                )
            )
        return tuple(out) or None

    def _keep_profile(self) -> None:
        """Once every running backend is measured, together they are this machine's profile."""
        if self._core.config.emulate is None and (profiles := self.profiles()) is not None:
            try:
                save_local(profiles)
            except (OSError, ConfigError) as error:
                log.warning("the profile of this machine was not kept: %s", error)
