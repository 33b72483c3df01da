"""What must be set before torch is first imported. No torch here."""

import os
import platform

# Metal's own memory limit exceeds the machine's memory; these are shares of its recommended working set.
_METAL_LIMITS = {"PYTORCH_MPS_HIGH_WATERMARK_RATIO": "0.8", "PYTORCH_MPS_LOW_WATERMARK_RATIO": "0.7"}
# How often a thread of libgomp looks whether the others are done before it sleeps. By default it looks for
# some 13 ms, longer than a slice of the system's scheduler: where another job wants a core, a thread that
# waits keeps the core from the one it waits for, and a step of 30 ms took 500 (two threads, two busy cores).
# At 50 us an undisturbed step is as fast as before, and a disturbed one stays near one thread's time.
_SHORT_WAITS = {"GOMP_SPINCOUNT": "1000"}


def prepare_environment() -> None:
    """Call it before torch is imported. What the user has set stays.

    Threads that wait for each other soon sleep, and Metal may not allocate more than the machine has.
    """
    settings = dict(_SHORT_WAITS) if "OMP_WAIT_POLICY" not in os.environ else {}
    if platform.system() == "Darwin":
        settings |= _METAL_LIMITS
    for name, value in settings.items():
        os.environ.setdefault(name, value)
