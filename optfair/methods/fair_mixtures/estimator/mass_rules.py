"""The rules of a fair mixture as the small program in the group masses, whatever the rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DeclarationError
from optfair.methods.fair_clustering.algorithms.program import MassProgram
from optfair.methods.fair_clustering.algorithms.rules import compile_rules
from optfair.methods.fair_clustering.fair_assignment import FairAssignment
from optfair.methods.fair_clustering.fits import fair_problem
from optfair.methods.fair_clustering.rules.gaps import MaxGap, PerfectFairness

Floats = NDArray[np.float64]

__all__ = ["fair_labels_problem", "mass_program", "named_rules"]


def named_rules(eps: float | None, rules: Any) -> dict[str, Any]:
    """Return rules by name: the gap ``eps`` as ``fairness``, and what else was given.

    Parameters
    ----------
    eps : float or None
        Largest difference of two groups' fractions in a component; None for no such rule.
    rules : Rule, list of rules, dict of rules by name, or None
        Further rules on the masses.
    """
    named: dict[str, Any] = {}
    if eps is not None:
        named["fairness"] = PerfectFairness() if eps == 0.0 else MaxGap(eps)
    if isinstance(rules, dict):
        if eps is not None and "fairness" in rules:
            raise DeclarationError(
                "rules has the name 'fairness'",
                f"eps={eps:g} is the rule of that name",
                "give the rule another name, or eps=None",
            )
        named.update(rules)
    elif rules is not None:
        named["rules"] = rules
    return named


def mass_program(
    names: NDArray[Any], shares: Floats, clusters: int, rules: dict[str, Any]
) -> MassProgram:
    """Return the rules in the cone form that projections read.

    Parameters
    ----------
    names : array (G,)
        Sorted group labels.
    shares : array (G,)
        Weight share of each group.
    clusters : int
        Number of components K.
    rules : dict
        Rules by name.

    Raises
    ------
    Infeasible
        Rules that exclude each other.
    DeclarationError
        Rules that do not fit the groups.
    """
    # the rules see groups and shares only, so K rows per group stand for all
    groups = np.repeat(np.asarray(names), clusters)
    problem = fair_problem(
        None,
        groups,
        None,
        rules or None,
        costs=np.zeros((groups.size, clusters)),
        sample_weight=np.repeat(shares / clusters, clusters),
    )
    return compile_rules(problem).program


def fair_labels_problem(
    log_joint: Floats, groups: NDArray[Any], weights: Floats, rules: dict[str, Any]
) -> FairAssignment:
    r"""Return the problem whose vertex gives labels that obey the rules themselves.

    .. math:: \min_{A \in C}\; -\sum_{ik} w_i A_{ik} \log \pi_k f_k(x_i)

    It is the projection at temperature zero. Under linear rules all but a few rows have one
    cluster, so the labels obey the rules but for these rows.

    Parameters
    ----------
    log_joint : array (n, K)
        Log joint densities.
    groups, weights : arrays (n,)
        Label and weight of each row.
    rules : dict
        Rules by name.
    """
    return fair_problem(None, groups, None, rules or None, costs=-log_joint, sample_weight=weights)
