"""Rules on the masses of groups in clusters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from optfair.core.composition import Rule
from optfair.errors import DeclarationError, no_number
from optfair.methods.fair_clustering.margins import (
    Margin,
    MassRule,
    as_margin,
    between,
    finite_vector,
    group_vector,
    mass_target,
    open_limits,
)

if TYPE_CHECKING:
    from optfair.core.problem import Problem
    from optfair.numbers import Floats

# Rules on the difference between groups in their fractions per cluster.


@dataclass(frozen=True, repr=False)
class PerfectFairness(MassRule):
    """Every group sends the same fraction of itself to each cluster."""

    latex = r"M_{gk} / \pi_g = M_{hk} / \pi_h"

    def bind(self, problem: Problem) -> Any:
        """Return the equalities of consecutive groups."""
        M, shares, _ = self.target(problem)
        return (np.diff(np.eye(shares.size), axis=0) / shares) @ M == 0


def pair_differences(problem: Problem, rule: MassRule) -> tuple[Any, int]:
    """Return (differences of fractions for every pair of groups, number of pairs)."""
    M, shares, _ = rule.target(problem)
    pairs = list(combinations(range(shares.size), 2))
    rows = np.arange(len(pairs))
    first, second = np.array(pairs).T
    ones = np.ones(len(pairs))
    matrix = sp.csr_array(
        (
            np.concatenate([ones / shares[first], -ones / shares[second]]),
            (np.concatenate([rows, rows]), np.concatenate([first, second])),
        ),
        shape=(len(pairs), shares.size),
    )
    return matrix @ M, len(pairs)


@dataclass(frozen=True, repr=False)
class AdditiveGap(MassRule):
    """For every pair of groups, the fractions differ by at most eps, summed over clusters."""

    eps: float
    sides = frozenset({"eps"})
    latex = r"\textstyle\sum_k |M_{gk}/\pi_g - M_{hk}/\pi_h| \le \varepsilon"

    def __post_init__(self) -> None:
        _check_eps(self.eps, 2.0)

    def bind(self, problem: Problem) -> Any:
        """Return one inequality per pair of groups."""
        differences, pairs = pair_differences(problem, self)
        return cp.sum(cp.abs(differences), axis=1) <= self.eps * np.ones(pairs)


@dataclass(frozen=True, repr=False)
class MaxGap(MassRule):
    """For every pair of groups and every cluster, the fractions differ by at most eps."""

    eps: float
    sides = frozenset({"eps"})
    latex = r"|M_{gk}/\pi_g - M_{hk}/\pi_h| \le \varepsilon"

    def __post_init__(self) -> None:
        _check_eps(self.eps, 2.0)

    def bind(self, problem: Problem) -> Any:
        """Return one inequality per pair of groups and cluster."""
        differences, pairs = pair_differences(problem, self)
        return cp.abs(differences) <= open_limits(problem, self.eps, pairs)


def _check_eps(eps: float, largest: float) -> None:
    if not between(eps, 0.0, largest):
        raise DeclarationError(
            f"eps={eps!r} is outside [0, {largest:g}]",
            no_number(eps) or "two sets of fractions that sum to 1 differ by at most 2 in total",
            "0 is perfect fairness, 2 no constraint",
        )


def perfect_fairness(*, on: Margin | str | None = None) -> PerfectFairness:
    r"""Every group sends the same fraction of itself to each cluster.

    .. math:: M_{gk} / \pi_g = M_{hk} / \pi_h \quad \forall g, h, k

    Class: LP.

    Parameters
    ----------
    on : Margin or str, optional
        Attributes by which groups are compared (`margin`, `intersection`, or a name); all
        groups by default.

    Returns
    -------
    PerfectFairness
        A rule for ``with_constraints`` or ``fairness=``.

    Examples
    --------
    >>> import optfair as of
    >>> of.perfect_fairness()
    PerfectFairness()
    """
    return PerfectFairness(on=as_margin(on))


def additive_gap(eps: float, *, on: Margin | str | None = None) -> AdditiveGap:
    r"""Fractions of any two groups differ by at most ``eps``, summed over the clusters.

    .. math:: \sum_k |M_{gk} / \pi_g - M_{hk} / \pi_h| \le \varepsilon

    Class: LP. FCA-C with tolerance ε (Kim et al. 2025, eq. 19, with the exact weight) is
    this rule with 2ε.

    Parameters
    ----------
    eps : float in [0, 2]
        0 is perfect fairness, 2 no constraint.
    on : Margin or str, optional
        Attributes by which groups are compared (`margin`, `intersection`, or a name); all
        groups by default.

    Returns
    -------
    AdditiveGap

    Raises
    ------
    DeclarationError
        ``eps`` outside [0, 2].

    Examples
    --------
    >>> import optfair as of
    >>> of.additive_gap(0.1)
    AdditiveGap(eps=0.1)
    """
    return AdditiveGap(eps, on=as_margin(on))


def max_gap(eps: float, *, on: Margin | str | None = None) -> MaxGap:
    r"""Fractions of any two groups differ by at most ``eps`` in every cluster.

    .. math:: |M_{gk} / \pi_g - M_{hk} / \pi_h| \le \varepsilon \quad \forall g, h, k

    Class: LP.

    Parameters
    ----------
    eps : float in [0, 2]
        0 is perfect fairness; from 1 on it is no constraint.
    on : Margin or str, optional
        Attributes by which groups are compared (`margin`, `intersection`, or a name); all
        groups by default.

    Returns
    -------
    MaxGap

    Raises
    ------
    DeclarationError
        ``eps`` outside [0, 2].

    Examples
    --------
    >>> import optfair as of
    >>> of.max_gap(0.05)
    MaxGap(eps=0.05)
    """
    return MaxGap(eps, on=as_margin(on))


# Rules on the composition of each cluster: balance and proportional bounds.

# By how much a bound may miss the population's own value.
ROUNDING = 1e-9


@dataclass(frozen=True, repr=False)
class Balance(MassRule):
    """In every cluster, each group has at least b times the mass of any other."""

    b: float
    latex = r"M_{gk} \ge b\, M_{hk}"

    def __post_init__(self) -> None:
        if not between(self.b, 0.0, 1.0):
            raise DeclarationError(
                f"balance b={self.b!r} is outside [0, 1]",
                no_number(self.b) or "it is the smallest ratio of two groups in a cluster",
                "give a number between 0 (no constraint) and the balance of the population",
            )

    def bind(self, problem: Problem) -> Any:
        """Return one inequality per ordered pair of groups and cluster."""
        M, shares, names = self.target(problem)
        best = float(shares.min() / shares.max())
        if self.b > best * (1.0 + ROUNDING):
            few, most = (str(names[at]) for at in (shares.argmin(), shares.argmax()))
            raise DeclarationError(
                f"balance b={self.b:g} cannot be reached",
                f"the population itself has balance {best:.6g}, of {few!r} to {most!r}, and"
                " clusters average to it",
                f"give b <= {best:.6g}",
            )
        b = min(self.b, best)
        pairs = list(permutations(range(shares.size), 2))
        matrix = np.zeros((len(pairs), shares.size))
        for row, (g, h) in enumerate(pairs):
            matrix[row, g], matrix[row, h] = 1.0, -b
        return matrix @ M >= 0


@dataclass(frozen=True, repr=False)
class Proportion(MassRule):
    """In every cluster, each group's part of the mass lies between bounds."""

    lower: Any = None
    upper: Any = None
    latex = r"\beta_g \textstyle\sum_h M_{hk} \le M_{gk} \le \alpha_g \sum_h M_{hk}"

    def bind(self, problem: Problem) -> Any:
        """Return the lower and upper inequalities that were asked for."""
        M, shares, labels = self.target(problem)
        names = labels.tolist()
        low = group_vector(self.lower, names, "lower", 0.0)
        high = group_vector(self.upper, names, "upper", 1.0)
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


def balance(b: float, *, on: Margin | str | None = None) -> Balance:
    r"""In every cluster, each group has at least ``b`` times the mass of any other.

    .. math:: M_{gk} \ge b\, M_{hk} \quad \forall g \ne h, k

    Class: LP. Feasible exactly when b is at most the population's own balance
    :math:`\min \pi_g / \pi_h`; at that value, with two groups, it is perfect fairness. An
    empty cluster satisfies it.

    Parameters
    ----------
    b : float in [0, 1]
        Balance to guarantee.
    on : Margin or str, optional
        Attributes by which groups are compared (`margin`, `intersection`, or a name); all
        groups by default.

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
    return Balance(b, on=as_margin(on))


def proportion(
    lower: float | Mapping[Any, float] | None = None,
    upper: float | Mapping[Any, float] | None = None,
    *,
    on: Margin | str | None = None,
) -> Proportion:
    r"""In every cluster, each group's part of the mass lies between bounds.

    .. math:: \beta_g \sum_h M_{hk} \le M_{gk} \le \alpha_g \sum_h M_{hk}

    Class: LP (the ratio itself would not be convex).

    Parameters
    ----------
    lower, upper : float or dict by group label, optional
        β and α, between 0 and 1, around the group's share of the population.
    on : Margin or str, optional
        Attributes by which groups are compared (`margin`, `intersection`, or a name); all
        groups by default.

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
    >>> of.fair_clustering.proportion(lower={"female": 0.25})
    Proportion(lower={'female': 0.25}, upper=None)

    References
    ----------
    Bera, Chakrabarty, Flores, Negahbani: Fair Algorithms for Clustering, NeurIPS 2019.
    """
    return Proportion(lower, upper, on=as_margin(on))


# Rules on the size of clusters.


@dataclass(frozen=True)
class ClusterShare(Rule):
    """Every cluster holds between lower and upper of the total weight."""

    lower: Any = None
    upper: Any = None
    sides = frozenset({"lower", "upper"})
    latex = r"l_k \le \textstyle\sum_g M_{gk} \le u_k"

    def __post_init__(self) -> None:
        for name in self.sides:  # as values that can be compared
            given = getattr(self, name)
            if isinstance(given, list) or (isinstance(given, np.ndarray) and given.ndim == 1):
                object.__setattr__(self, name, tuple(given))

    def bind(self, problem: Problem) -> Any:
        """Return the lower and upper inequalities that were asked for."""
        M, _ = mass_target(problem, self)
        low, high = self.limits(M.shape[1])
        size = cp.sum(M, axis=0)
        parts = {}
        if self.lower is not None:
            parts["lower"] = size >= low
        if self.upper is not None:
            parts["upper"] = size <= open_limits(problem, high)
        if not parts:
            raise DeclarationError("cluster_share has no bound", remedy="give lower, upper or both")
        return parts

    def limits(self, K: int) -> tuple[Floats, Floats]:
        """Return the bounds of each cluster."""
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
        return low, high


def is_on_each_cluster(rule: Any, K: int) -> bool:
    """Whether a rule says of every cluster the same, and nothing of several together."""
    if isinstance(rule, ClusterShare):
        return all(np.ptp(limits) == 0.0 for limits in rule.limits(K))
    return type(rule) in (PerfectFairness, MaxGap, Balance, Proportion)  # heirs may say more


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
