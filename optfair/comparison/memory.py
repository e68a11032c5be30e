"""Memory of this process."""

from __future__ import annotations

import math
import sys
from pathlib import Path

__all__ = ["peak_megabytes", "reset_peak", "resident_megabytes"]

# Linux counts the high-water mark per address space here; that of getrusage outlives exec, so a
# child of a large process would seem large.
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_megabytes() -> float:
    """Return the largest memory since the start, or since `reset_peak`."""
    return _status("VmHWM:")


def resident_megabytes() -> float:
    """Return the memory in use now; where only the peak is known, that."""
    return _status("VmRSS:")


def reset_peak() -> None:
    """Let the high-water mark start from what is in use now, where the system can."""
    try:
        CLEAR.write_text("5")
    except OSError:
        return


def _status(field: str) -> float:
    try:
        lines = STATUS.read_text().splitlines()
    except OSError:
        return _usage()
    found = (line.split()[1] for line in lines if line.startswith(field))
    return next((int(kilobytes) / 1e3 for kilobytes in found), math.nan)


def _usage() -> float:
    try:
        import resource
    except ImportError:
        return math.nan
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # kilobytes on most systems, bytes on macOS
    return peak / (1e6 if sys.platform == "darwin" else 1e3)
