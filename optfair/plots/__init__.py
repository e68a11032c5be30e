"""Pictures; needs the extra `plot`."""

from __future__ import annotations

from optfair.methods.cluster_counterfactuals.plots.cluster_counterfactuals import (
    plot_cluster_counterfactuals,
)
from optfair.methods.cluster_counterfactuals.plots.digits import plot_image_counterfactuals
from optfair.methods.cluster_counterfactuals.plots.separability import (
    plot_distances,
    plot_separability,
)
from optfair.methods.fair_clustering.plots.composition import plot_composition
from optfair.methods.fair_clustering.plots.convergence import plot_convergence
from optfair.methods.fair_clustering.plots.front import plot_front
from optfair.methods.fair_clustering.plots.projection import plot_projection
from optfair.methods.fair_mixtures.plots.mixture_front import plot_mixture_front
from optfair.methods.fair_mixtures.plots.mixture_profile import plot_category_profiles
from optfair.methods.group_counterfactuals.plots.counterfactuals import plot_arrows, plot_groups
from optfair.methods.group_counterfactuals.plots.distortion import plot_counterfactual_front
from optfair.methods.group_counterfactuals.plots.maps import plot_map
from optfair.methods.sparse_counterfactuals.plots.changed_cells import EditTable, edit_table
from optfair.methods.sparse_counterfactuals.plots.edits import plot_edits, plot_row_edits
from optfair.methods.sparse_counterfactuals.plots.effect import plot_effect
from optfair.plots.profile import plot_profile

__all__ = [
    "EditTable",
    "edit_table",
    "plot_arrows",
    "plot_category_profiles",
    "plot_cluster_counterfactuals",
    "plot_composition",
    "plot_convergence",
    "plot_counterfactual_front",
    "plot_distances",
    "plot_edits",
    "plot_effect",
    "plot_front",
    "plot_groups",
    "plot_image_counterfactuals",
    "plot_map",
    "plot_mixture_front",
    "plot_profile",
    "plot_projection",
    "plot_row_edits",
    "plot_separability",
]
