"""`--slots best` of a burst on backends: as many as let the fastest backend serve it best alone.

They are looked for on the simulator, with the profile of emulated backends or with the calibration of real
ones. Real backends therefore start with `LIVE_SLOTS`, and the burst sets its own.
"""

import argparse

from engine.commands.common import Watch
from engine.commands.compare import LIVE_SLOTS
from engine.commands.experiments import USUAL_SLOTS
from engine.commands.simulate import slots_from
from engine.errors import ConfigError
from engine.profiling.profile import load_profile

BEST = "best"


def settle_slots(args: argparse.Namespace) -> bool:
    """Put slots to start with in the place of `--slots best`. Raises `ConfigError`.

    True where the best are not known before the backends are calibrated: ask `calibrated_best` then.
    """
    if args.slots != BEST:
        return False
    if args.emulate is None:
        args.slots = str(LIVE_SLOTS)
        return True
    if args.backends != "auto":
        raise ConfigError("--slots best needs backends that are all real or all emulated: use numbers here.")
    found = slots_from(args, load_profile(args.emulate)) or {}
    args.slots = ",".join(f"{name}={slots}" for name, slots in found.items())
    return False


def calibrated_best(args: argparse.Namespace, watch: Watch) -> dict[str, int]:
    """The best slots of every running backend, as soon as they are calibrated. Raises `ConfigError`."""
    watch.until_calibrated()
    running = watch.running
    if not running or not all(info.priced for info in running):
        raise ConfigError("--slots best needs a calibration, and there is none: use numbers here.")
    profile = load_profile("local")
    usual = {str(info.name): USUAL_SLOTS for info in running}
    if usual.keys() != {b.name for b in profile.backends}:
        raise ConfigError("--slots best needs a calibration of the backends that run: use numbers here.")
    asked = argparse.Namespace(**{**vars(args), "slots": BEST})
    return slots_from(asked, profile, usual, LIVE_SLOTS) or usual
