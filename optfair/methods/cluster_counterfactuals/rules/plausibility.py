"""Rules that keep a point where data are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from optfair.core.rule import Rule
from optfair.errors import DeclarationError

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = ["LeastDensity", "least_density"]


@dataclass(frozen=True)
class LeastDensity(Rule):
    """The target cluster's density at the point is at least this."""

    density: float
    latex = r"p_t(z) \ge \delta"

    def bind(self, problem: Problem) -> Any:
        """Return the ellipsoid of the target."""
        p: Any = problem
        if not hasattr(p, "dense"):
            raise DeclarationError(
                "least_density is a rule on counterfactuals of Gaussian clusters",
                f"this problem has the variables {', '.join(problem.variables)}",
                "use it with ClusterCounterfactual.gaussian",
            )
        return p.dense(self.density)


def least_density(density: float) -> LeastDensity:
    r"""Density of the target cluster at the counterfactual is at least δ.

    .. math::
        p_t(z) \ge \delta \iff
        \tfrac12 (z - m_t)^T \Sigma_t^{-1} (z - m_t) \le \log p_t(m_t) - \log\delta

    An ellipsoid. Class: convex QCQP.

    Parameters
    ----------
    density : float
        δ > 0, at most the density at the mean of the target.

    Returns
    -------
    LeastDensity

    Raises
    ------
    DeclarationError
        When bound: clusters that have no density, or a density that is nowhere reached.

    Examples
    --------
    >>> least_density(0.01)
    LeastDensity(density=0.01)
    """
    return LeastDensity(density)
