"""Numbers that describe clusterings and counterfactuals; each says what it is measured on."""

from __future__ import annotations

from optfair.methods.fair_clustering.metrics.clustering import (
    additive_gap,
    balance,
    composition,
    cost,
    max_gap,
)
from optfair.methods.fair_clustering.metrics.silhouette import silhouette
from optfair.methods.fair_mixtures.metrics.mixture import (
    category_profile,
    mean_gap,
    negative_log_likelihood,
    total_cost,
)
from optfair.methods.group_counterfactuals.metrics.counterfactuals import (
    LipschitzConstants,
    distortion,
    lipschitz_constants,
    transport_cost,
    validity,
)
from optfair.methods.sparse_counterfactuals.metrics.sparse_counterfactuals import (
    counterfactual_effect,
    distance_ratio,
    edit_mask,
    mean_difference,
    median_difference,
    output_mmd,
    output_transport,
)

__all__ = [
    "LipschitzConstants",
    "additive_gap",
    "balance",
    "category_profile",
    "composition",
    "cost",
    "counterfactual_effect",
    "distance_ratio",
    "distortion",
    "edit_mask",
    "lipschitz_constants",
    "max_gap",
    "mean_difference",
    "mean_gap",
    "median_difference",
    "negative_log_likelihood",
    "output_mmd",
    "output_transport",
    "silhouette",
    "total_cost",
    "transport_cost",
    "validity",
]
