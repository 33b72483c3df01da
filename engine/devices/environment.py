"""What must be set before torch is first imported. No torch here."""

import os
import platform

# Metal's own memory limit exceeds the machine's memory; these are shares of its recommended working set.
_METAL_LIMITS = {"PYTORCH_MPS_HIGH_WATERMARK_RATIO": "0.8", "PYTORCH_MPS_LOW_WATERMARK_RATIO": "0.7"}


def prepare_environment() -> None:
    """Limit what Metal may allocate, unless the user set the limits. Does nothing elsewhere."""
    if platform.system() == "Darwin":
        for name, value in _METAL_LIMITS.items():
            os.environ.setdefault(name, value)
