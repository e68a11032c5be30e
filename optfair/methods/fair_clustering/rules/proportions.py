"""Rules on the composition of each cluster: balance and proportional bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np

from optfair.core.rule import Rule
from optfair.errors import DeclarationError
from optfair.methods.fair_clustering.rules.target import between, group_vector, mass_target

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = ["Balance", "Proportion", "balance", "proportion"]

# By how much a bound may miss the population's own value.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Balance(Rule):
    """In every cluster, each group has at least b times the mass of any other."""

    b: float
    latex = r"M_{gk} \ge b\, M_{hk}"

    def __post_init__(self) -> None:
        if not between(self.b, 0.0, 1.0):
            raise DeclarationError(
                f"balance b={self.b!r} is outside [0, 1]",
                "it is the smallest ratio of two groups in a cluster",
                "give a number between 0 (no constraint) and the balance of the population",
            )

    def bind(self, problem: Problem) -> Any:
        """Return one inequality per ordered pair of groups and cluster."""
        M, shares = mass_target(problem, self)
        best = float(shares.min() / shares.max())
        if self.b > best * (1.0 + ROUNDING):
            raise DeclarationError(
                f"balance b={self.b:g} cannot be reached",
                f"the population itself has balance {best:.6g}, and clusters average to it",
                f"give b <= {best:.6g}",
            )
        b = min(self.b, best)
        pairs = list(permutations(range(shares.size), 2))
        matrix = np.zeros((len(pairs), shares.size))
        for row, (g, h) in enumerate(pairs):
            matrix[row, g], matrix[row, h] = 1.0, -b
        return matrix @ M >= 0


@dataclass(frozen=True)
class Proportion(Rule):
    """In every cluster, each group's part of the mass lies between bounds."""

    lower: Any = None
    upper: Any = None
    latex = r"\beta_g \textstyle\sum_h M_{hk} \le M_{gk} \le \alpha_g \sum_h M_{hk}"

    def bind(self, problem: Problem) -> Any:
        """Return the lower and upper inequalities that were asked for."""
        M, shares = mass_target(problem, self)
        low = group_vector(self.lower, problem, "lower", 0.0)
        high = group_vector(self.upper, problem, "upper", 1.0)
        names = problem.data["group_names"].tolist()
        for g, share in enumerate(shares):
            if not 0.0 <= low[g] <= high[g] <= 1.0:
                raise DeclarationError(
                    f"proportion bounds [{low[g]:g}, {high[g]:g}] of group {names[g]!r} are no interval in [0, 1]",
                    remedy="give 0 <= lower <= upper <= 1",
                )
            if low[g] > share * (1.0 + ROUNDING) or high[g] < share * (1.0 - ROUNDING):
                raise DeclarationError(
                    f"proportion bounds [{low[g]:g}, {high[g]:g}] of group {names[g]!r} cannot hold in every cluster",
                    f"its share of the population is {share:.6g}, and clusters average to it",
                    "give bounds around that share",
                )
        # a bound at the share itself must not exclude it by a rounding
        low, high = np.minimum(low, shares), np.maximum(high, shares)
        total = np.ones((shares.size, 1)) @ cp.sum(M, axis=0, keepdims=True)
        parts = {}
        if self.lower is not None:
            parts["lower"] = M - cp.multiply(low[:, None], total) >= 0
        if self.upper is not None:
            parts["upper"] = M - cp.multiply(high[:, None], total) <= 0
        if not parts:
            raise DeclarationError("proportion has no bound", remedy="give lower, upper or both")
        return parts


def balance(b: float) -> Balance:
    r"""In every cluster, each group has at least ``b`` times the mass of any other.

    .. math:: M_{gk} \ge b\, M_{hk} \quad \forall g \ne h, k

    Class: LP. Feasible exactly when b is at most the population's own balance
    :math:`\min \pi_g / \pi_h`; at that value, with two groups, it is perfect fairness. An
    empty cluster satisfies it.

    Parameters
    ----------
    b : float in [0, 1]
        Balance to guarantee.

    Returns
    -------
    Balance

    Raises
    ------
    DeclarationError
        ``b`` outside [0, 1], or above the population's balance when bound.

    Examples
    --------
    >>> import optfair as of
    >>> of.balance(0.4)
    Balance(b=0.4)
    """
    return Balance(b)


def proportion(
    lower: float | Mapping[Any, float] | None = None,
    upper: float | Mapping[Any, float] | None = None,
) -> Proportion:
    r"""In every cluster, each group's part of the mass lies between bounds.

    .. math:: \beta_g \sum_h M_{hk} \le M_{gk} \le \alpha_g \sum_h M_{hk}

    Class: LP (the ratio itself would not be convex).

    Parameters
    ----------
    lower, upper : float or dict by group label, optional
        β and α, between 0 and 1, around the group's share of the population.

    Returns
    -------
    Proportion
        Its terms are called ``name.lower`` and ``name.upper``.

    Raises
    ------
    DeclarationError
        Bounds that no clustering can satisfy, unknown group label.

    Examples
    --------
    >>> import optfair as of
    >>> of.proportion(lower={"female": 0.25})
    Proportion(lower={'female': 0.25}, upper=None)

    References
    ----------
    Bera, Chakrabarty, Flores, Negahbani: Fair Algorithms for Clustering, NeurIPS 2019.
    """
    return Proportion(lower, upper)
