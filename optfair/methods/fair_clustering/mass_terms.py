"""The terms that fractions of rows and the masses of groups have in common."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.core.evidence import Evidence
from optfair.core.problem_class import LP
from optfair.core.term import ConstraintTerm, Values

Floats = NDArray[np.float64]

__all__ = ["gathered_masses", "mass_terms"]


def gathered_masses(
    fractions: Floats, groups: NDArray[np.intp], weights: Floats, count: int
) -> Floats:
    r"""Return the masses of ``count`` groups (G x K).

    .. math:: M_{gk} = \sum_{i \in g} w_i R_{ik}
    """
    # one bincount per cluster: no n x K copy, whatever the number of groups
    columns = range(fractions.shape[1])
    return np.stack(
        [np.bincount(groups, weights * fractions[:, k], count) for k in columns], axis=1
    )


def mass_terms(
    fractions: Any, masses: Any, groups: NDArray[np.intp], weights: Floats, symbol: str
) -> tuple[ConstraintTerm, ConstraintTerm, ConstraintTerm]:
    """Return ``row sum``, ``nonnegativity`` and ``mass definition``, built when asked for.

    Parameters
    ----------
    fractions, masses : cvxpy.Variable
        (n, K) fractions of rows and (G, K) masses of groups.
    groups, weights : arrays (n,)
        Group index and weight of each row.
    symbol : str
        What the fractions are called in print.
    """
    n, K = fractions.shape
    G = masses.shape[0]
    name = fractions.name()

    def gathering() -> Any:
        return sp.csr_array((weights, (groups, np.arange(n))), shape=(G, n))

    def row_violation(v: Values) -> Floats:
        return np.asarray(np.abs(np.asarray(v[name]).sum(axis=1) - 1.0), dtype=float)

    def mass_violation(v: Values) -> Floats:
        apart = gathered_masses(np.asarray(v[name]), groups, weights, G) - v["masses"]
        return np.asarray(np.abs(apart), dtype=float)

    def term(label: str, scope: set[str], where: str, **rest: Any) -> ConstraintTerm:
        return ConstraintTerm(label, frozenset(scope), Evidence(label, "affine", where, LP), **rest)

    return (
        term(
            "row sum",
            {name},
            "Zero",
            build=lambda: cp.sum(fractions, axis=1) == 1,
            violation=row_violation,
            shape=(n,),
            scale=1.0,
            latex=rf"\textstyle\sum_k {symbol}_{{ik}} = 1",
        ),
        term(
            "nonnegativity",
            {name},
            "Nonpositive",
            build=lambda: fractions >= 0,
            violation=lambda v: np.maximum(-np.asarray(v[name]), 0.0),
            shape=(n, K),
            latex=rf"{symbol}_{{ik}} \ge 0",
        ),
        term(
            "mass definition",
            {name, "masses"},
            "Zero",
            build=lambda: gathering() @ fractions == masses,
            violation=mass_violation,
            shape=(G, K),
            latex=rf"M_{{gk}} = \textstyle\sum_{{i \in g}} w_i {symbol}_{{ik}}",
        ),
    )
