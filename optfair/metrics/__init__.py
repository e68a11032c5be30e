"""Numbers that describe clusterings and counterfactuals; each says what it is measured on."""

from __future__ import annotations

from optfair.metrics.clustering import additive_gap, balance, composition, cost, max_gap
from optfair.metrics.counterfactuals import (
    LipschitzConstants,
    distortion,
    lipschitz_constants,
    transport_cost,
    validity,
)
from optfair.metrics.silhouette import silhouette

__all__ = [
    "LipschitzConstants",
    "additive_gap",
    "balance",
    "composition",
    "cost",
    "distortion",
    "lipschitz_constants",
    "max_gap",
    "silhouette",
    "transport_cost",
    "validity",
]
