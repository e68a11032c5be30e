"""Pictures; needs the extra `plot`."""

from __future__ import annotations

from optfair.plots.composition import plot_composition
from optfair.plots.convergence import plot_convergence
from optfair.plots.front import plot_front
from optfair.plots.profile import plot_profile
from optfair.plots.projection import plot_projection

__all__ = ["plot_composition", "plot_convergence", "plot_front", "plot_profile", "plot_projection"]
