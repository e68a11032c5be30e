"""Where runs were made: versions and machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from functools import lru_cache
from pathlib import Path

__all__ = ["environment"]

PACKAGES = ("cvxpy", "numpy", "scipy")


@lru_cache(maxsize=1)
def environment() -> dict[str, str]:
    """Return versions and machine, by name; nothing in it names a person or a host."""
    from optfair import __version__

    found = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {
        "optfair": __version__,
        "python": platform.python_version(),
        **found,
        "system": f"{platform.system()} {platform.machine()}",
        "processor": f"{_processor()}, {os.cpu_count()} cores",
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, "") or platform.processor() or platform.machine()
