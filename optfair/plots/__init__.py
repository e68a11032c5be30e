"""Pictures; needs the extra `plot`."""

from __future__ import annotations

from optfair.plots.composition import plot_composition
from optfair.plots.front import plot_front

__all__ = ["plot_composition", "plot_front"]
