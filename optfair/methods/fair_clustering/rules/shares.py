"""Rules on the size of clusters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cvxpy as cp

from optfair.core.rule import Rule
from optfair.errors import DeclarationError
from optfair.methods.fair_clustering.rules.target import finite_vector, mass_target

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = ["ClusterShare", "cluster_share"]


@dataclass(frozen=True)
class ClusterShare(Rule):
    """Every cluster holds between lower and upper of the total weight."""

    lower: Any = None
    upper: Any = None
    latex = r"l_k \le \textstyle\sum_g M_{gk} \le u_k"

    def bind(self, problem: Problem) -> Any:
        """Return the lower and upper inequalities that were asked for."""
        M, _ = mass_target(problem, self)
        K = M.shape[1]
        low = finite_vector(0.0 if self.lower is None else self.lower, K, "cluster_share lower")
        high = finite_vector(1.0 if self.upper is None else self.upper, K, "cluster_share upper")
        if (low > high).any() or (low < 0).any() or (high > 1).any():
            raise DeclarationError(
                "cluster_share bounds are no intervals in [0, 1]",
                f"lower {low.tolist()}, upper {high.tolist()}",
                "give 0 <= lower <= upper <= 1",
            )
        if low.sum() > 1.0 + 1e-12 or high.sum() < 1.0 - 1e-12:
            raise DeclarationError(
                "cluster_share bounds cannot hold together",
                f"lower bounds sum to {low.sum():g}, upper to {high.sum():g}, the clusters to 1",
                f"with {K} clusters, give lower <= {1 / K:.4g} <= upper",
            )
        size = cp.sum(M, axis=0)
        parts = {}
        if self.lower is not None:
            parts["lower"] = size >= low
        if self.upper is not None:
            parts["upper"] = size <= high
        if not parts:
            raise DeclarationError("cluster_share has no bound", remedy="give lower, upper or both")
        return parts


def cluster_share(lower: Any = None, upper: Any = None) -> ClusterShare:
    r"""Every cluster holds between ``lower`` and ``upper`` of the total weight.

    .. math:: l_k \le \sum_g M_{gk} \le u_k

    Class: LP.

    Parameters
    ----------
    lower, upper : float or array (K,), optional
        Bounds in [0, 1], for all clusters or one each.

    Returns
    -------
    ClusterShare
        Its terms are called ``name.lower`` and ``name.upper``.

    Raises
    ------
    DeclarationError
        Bounds that no assignment can satisfy.

    Examples
    --------
    >>> import optfair as of
    >>> of.cluster_share(lower=0.1)
    ClusterShare(lower=0.1, upper=None)
    """
    return ClusterShare(lower, upper)
