"""Bounds on the matrix of a map: Loewner order, factors of single directions, spectral norm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from optfair.core.evidence import Evidence
from optfair.core.problem_class import LP, ProblemClass
from optfair.core.term import ConstraintTerm, Values

Floats = NDArray[np.float64]
Read = Callable[[Values], Floats]

__all__ = ["factor_bounds", "loewner_bounds", "spectral_bound"]

SDP = ProblemClass(cones=frozenset({"psd"}))


def loewner_bounds(
    matrix: Any, scope: frozenset[str], read: Read, K: float | None, k: float | None
) -> dict[str, ConstraintTerm]:
    r"""Return :math:`A \preceq K I` and :math:`A \succeq I / k` of a symmetric matrix.

    With K = k = 1 the set is the identity alone and has no interior, which interior-point
    methods need: then it is an equality.

    Parameters
    ----------
    matrix : CVXPY expression (d, d)
        A, symmetric.
    scope : frozenset of str
        Names of its variables.
    read : callable
        Values by name -> A as an array.
    K, k : float or None
        None for no bound.

    Returns
    -------
    dict
        By part: "upper", "lower" or "identity".
    """
    d = matrix.shape[0]
    eye = np.eye(d)
    if K == 1.0 and k == 1.0:
        return {
            "identity": ConstraintTerm(
                "identity",
                scope,
                Evidence("identity", "affine", "Zero", LP),
                build=lambda: matrix == eye,
                latex="A = I",
                violation=lambda v: np.asarray(np.abs(read(v) - eye)),
                shape=(d, d),
                scale=1.0,
            )
        }
    parts = {}
    for word, sign, bound in (("upper", -1.0, K), ("lower", 1.0, None if k is None else 1.0 / k)):
        if bound is not None:
            parts[word] = _semidefinite(word, matrix, scope, read, sign, bound)
    return parts


def _semidefinite(
    word: str, matrix: Any, scope: frozenset[str], read: Read, sign: float, bound: float
) -> ConstraintTerm:
    """Return sign (A - bound I) in the cone of semidefinite matrices."""
    d = matrix.shape[0]
    eye = bound * np.eye(d)

    def outside(values: Values) -> Floats:
        A = read(values)
        if not np.isfinite(A).all():
            return np.array(np.inf)
        least = np.linalg.eigvalsh(sign * ((A + A.T) / 2 - eye))[0]
        return np.asarray(np.maximum(-least, 0.0))

    latex = rf"A \preceq {bound:g} I" if sign < 0 else rf"A \succeq {bound:.4g} I"
    return ConstraintTerm(
        word,
        scope,
        Evidence(word, "affine", "PSD", SDP),
        build=lambda: sign * (matrix - eye) >> 0,
        latex=latex,
        violation=outside,
        shape=(d, d),
        scale=bound,
    )


def factor_bounds(
    factors: Any, scope: frozenset[str], read: Read, K: float | None, k: float | None
) -> dict[str, ConstraintTerm]:
    r"""Return :math:`1/k \le a_j \le K` of the factors of single directions.

    Parameters
    ----------
    factors : CVXPY expression (d,) or scalar
        a.
    scope, read, K, k
        As in `loewner_bounds`; ``read`` gives the factors.

    Returns
    -------
    dict
        By part: "upper", "lower" or "identity".
    """
    shape = tuple(factors.shape)

    def term(word: str, where: str, latex: str, scale: float, **rest: Any) -> ConstraintTerm:
        return ConstraintTerm(
            word,
            scope,
            Evidence(word, "affine", where, LP),
            latex=latex,
            shape=shape,
            scale=scale,
            **rest,
        )

    if K == 1.0 and k == 1.0:
        return {
            "identity": term(
                "identity",
                "Zero",
                "a_j = 1",
                1.0,
                build=lambda: factors == np.ones(shape),
                violation=lambda v: np.asarray(np.abs(read(v) - 1.0)),
            )
        }
    parts = {}
    if K is not None:
        parts["upper"] = term(
            "upper",
            "Nonpositive",
            rf"a_j \le {K:g}",
            K,
            build=lambda: factors <= K,
            violation=lambda v: np.maximum(read(v) - K, 0.0),
        )
    if k is not None:
        low = 1.0 / k
        parts["lower"] = term(
            "lower",
            "Nonpositive",
            rf"a_j \ge {low:.4g}",
            low,
            build=lambda: factors >= low,
            violation=lambda v: np.maximum(low - read(v), 0.0),
        )
    return parts


def spectral_bound(
    matrix: Any, scope: frozenset[str], read: Read, K: float
) -> dict[str, ConstraintTerm]:
    r"""Return :math:`\sigma_{\max}(A) \le K` of a matrix that need not be symmetric."""

    def outside(values: Values) -> Floats:
        A = read(values)
        if not np.isfinite(A).all():
            return np.array(np.inf)
        return np.asarray(np.maximum(np.linalg.norm(A, 2) - K, 0.0))

    return {
        "upper": ConstraintTerm(
            "upper",
            scope,
            Evidence("upper", "convex", "Nonpositive", SDP),
            build=lambda: cp.sigma_max(matrix) <= K,
            latex=rf"\sigma_{{\max}}(A) \le {K:g}",
            violation=outside,
            shape=(),
            scale=K,
        )
    }
