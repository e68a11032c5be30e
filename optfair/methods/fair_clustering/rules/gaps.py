"""Rules on the difference between groups in their fractions per cluster."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from optfair.core.rule import Rule
from optfair.errors import DeclarationError
from optfair.methods.fair_clustering.rules.target import between, mass_target

if TYPE_CHECKING:
    from optfair.core.problem import Problem

__all__ = [
    "AdditiveGap",
    "MaxGap",
    "PerfectFairness",
    "additive_gap",
    "max_gap",
    "perfect_fairness",
]


@dataclass(frozen=True)
class PerfectFairness(Rule):
    """Every group sends the same fraction of itself to each cluster."""

    latex = r"M_{gk} / \pi_g = M_{hk} / \pi_h"

    def bind(self, problem: Problem) -> Any:
        """Return the equalities of consecutive groups."""
        M, shares = mass_target(problem, self)
        return (np.diff(np.eye(shares.size), axis=0) / shares) @ M == 0


def _differences(problem: Problem, rule: Rule) -> tuple[Any, int]:
    """Return (differences of fractions for every pair of groups, number of pairs)."""
    M, shares = mass_target(problem, rule)
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


@dataclass(frozen=True)
class AdditiveGap(Rule):
    """For every pair of groups, the fractions differ by at most eps, summed over clusters."""

    eps: float
    latex = r"\textstyle\sum_k |M_{gk}/\pi_g - M_{hk}/\pi_h| \le \varepsilon"

    def __post_init__(self) -> None:
        _check_eps(self.eps, 2.0)

    def bind(self, problem: Problem) -> Any:
        """Return one inequality per pair of groups."""
        differences, pairs = _differences(problem, self)
        return cp.sum(cp.abs(differences), axis=1) <= self.eps * np.ones(pairs)


@dataclass(frozen=True)
class MaxGap(Rule):
    """For every pair of groups and every cluster, the fractions differ by at most eps."""

    eps: float
    latex = r"|M_{gk}/\pi_g - M_{hk}/\pi_h| \le \varepsilon"

    def __post_init__(self) -> None:
        _check_eps(self.eps, 2.0)

    def bind(self, problem: Problem) -> Any:
        """Return one inequality per pair of groups and cluster."""
        differences, _ = _differences(problem, self)
        return cp.abs(differences) <= self.eps


def _check_eps(eps: float, largest: float) -> None:
    if not between(eps, 0.0, largest):
        raise DeclarationError(
            f"eps={eps!r} is outside [0, {largest:g}]",
            "two sets of fractions that sum to 1 differ by at most 2 in total",
            "0 is perfect fairness, 2 no constraint",
        )


def perfect_fairness() -> PerfectFairness:
    r"""Every group sends the same fraction of itself to each cluster.

    .. math:: M_{gk} / \pi_g = M_{hk} / \pi_h \quad \forall g, h, k

    Class: LP.

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
    return PerfectFairness()


def additive_gap(eps: float) -> AdditiveGap:
    r"""Fractions of any two groups differ by at most ``eps``, summed over the clusters.

    .. math:: \sum_k |M_{gk} / \pi_g - M_{hk} / \pi_h| \le \varepsilon

    Class: LP. FCA-C with tolerance ε (Kim et al. 2025, eq. 19, with the exact weight) is
    this rule with 2ε.

    Parameters
    ----------
    eps : float in [0, 2]
        0 is perfect fairness, 2 no constraint.

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
    return AdditiveGap(eps)


def max_gap(eps: float) -> MaxGap:
    r"""Fractions of any two groups differ by at most ``eps`` in every cluster.

    .. math:: |M_{gk} / \pi_g - M_{hk} / \pi_h| \le \varepsilon \quad \forall g, h, k

    Class: LP.

    Parameters
    ----------
    eps : float in [0, 2]
        0 is perfect fairness; from 1 on it is no constraint.

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
    return MaxGap(eps)
