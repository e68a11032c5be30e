"""Where a benchmark ran."""

from __future__ import annotations

import os
import platform
from typing import Any

import optfair as of

__all__ = ["environment"]


def environment() -> dict[str, Any]:
    """Return versions and machine, for the record beside the figures."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "optfair": of.__version__,
    }
