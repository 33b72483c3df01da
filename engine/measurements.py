"""What is known of the running backends' speed: prices, ranks and the machine's profile follow from it."""

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.errors import ConfigError
from engine.events import PriceNews
from engine.profiling.profile import BackendProfile
from engine.profiling.store import Measured, save_local
from engine.request import BackendName
from engine.routing.router import Pace
from engine.step_report import StepReport

if TYPE_CHECKING:
    from engine.core import Core

log = logging.getLogger(__name__)
_NEWS_S = 0.5


class Measurements:
    """Rates and step-time models by backend, as published or as calibrated here."""

    def __init__(self, core: "Core") -> None:
        self._core = core
        self._known: dict[BackendName, Measured] = {}
        self._told_s: dict[BackendName, float] = {}  # when each backend's prices were last published

    def known(self, name: BackendName) -> Measured | None:
        """What is known of a backend so far."""
        return self._known.get(name)

    def set(self, name: BackendName, measured: Measured) -> None:
        """Rates (and step times) of a backend became known: tell the router and the screen."""
        core = self._core
        rates = measured.rates
        core.router.set_rates(name, rates)
        self._known[name] = measured
        core.limits.measured(name)
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

    def loaded(self, name: BackendName) -> None:
        """A backend runs: take what its profile says, or what was measured earlier and what is to measure."""
        core = self._core
        core.limits.settle(name)
        profile = core.supervisor.units[name].profile
        if profile is not None:
            self.set(name, Measured(profile.rates, profile.steps))
        else:
            core.calibrator.loaded(name)

    def on_report(self, report: StepReport) -> None:
        """Tell now and then how well the backend's steps are foreseen."""
        router, name = self._core.router, report.backend
        check = router.check(name)
        if check is not None and report.finished_s - self._told_s.get(name, 0.0) >= _NEWS_S:
            self._told_s[name] = report.finished_s
            self._core.publish(PriceNews(name, check.factor, check.error, router.lengths.live_error))

    def price(self, name: BackendName) -> None:
        """Let the router foresee a backend with its present limits, where step times are known."""
        known, limits = self._known.get(name), self._core.supervisor.units[name].limits
        if known is not None and known.steps is not None:
            self._core.router.set_pace(name, Pace(known.steps, limits.slots, limits.token_budget))

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
                    token_budget=unit.limits.token_budget,
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
