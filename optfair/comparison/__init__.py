"""Solvers side by side: every run in a process of its own, judged by our residuals."""

from __future__ import annotations

from optfair.comparison.compare import ConfiguredSolver, compare_solvers
from optfair.comparison.comparison import Comparison
from optfair.comparison.figures import Accuracy, PerformanceProfile, shifted_geometric_mean
from optfair.comparison.run import Run

__all__ = [
    "Accuracy",
    "Comparison",
    "ConfiguredSolver",
    "PerformanceProfile",
    "Run",
    "compare_solvers",
    "shifted_geometric_mean",
]
