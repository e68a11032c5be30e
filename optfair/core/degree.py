"""The degree of an expression as a polynomial in its variables."""

from __future__ import annotations

import math
from typing import Any

from cvxpy.atoms.affine.affine_atom import AffAtom
from cvxpy.atoms.affine.binary_operators import DivExpression, MulExpression
from cvxpy.atoms.elementwise.power import Power
from cvxpy.atoms.quad_form import QuadForm
from cvxpy.atoms.quad_over_lin import quad_over_lin

__all__ = ["degree", "is_quadratic"]


def is_quadratic(expression: Any) -> bool:
    """Return whether an expression is a polynomial of degree at most 2.

    CVXPY's own word does not do: it calls ``sum_squares(x) * t``, a cubic, quadratic, and
    ``huber(x)``, which is quadratic in the middle only.

    Examples
    --------
    >>> import cvxpy as cp
    >>> x, t = cp.Variable(2), cp.Variable()
    >>> expression = cp.sum_squares(x) * t
    >>> expression.is_quadratic(), is_quadratic(expression)
    (True, False)
    """
    return degree(expression) <= 2


def degree(expression: Any) -> float:
    """Return a bound on the degree of a polynomial, infinity for anything else.

    What cancels is counted: x³ - x³ has degree 3.

    Parameters
    ----------
    expression : cvxpy.Expression
        Any expression.

    Examples
    --------
    >>> import cvxpy as cp
    >>> x = cp.Variable(3)
    >>> [degree(e) for e in (cp.sum(x) + 1, x @ x, (x @ x) * x[0], cp.norm(x))]
    [1, 2, 3, inf]
    """
    return _degree(expression, {})


def _degree(e: Any, known: dict[int, float]) -> float:
    if id(e) not in known:
        known[id(e)] = _of(e, known)
    return known[id(e)]


def _of(e: Any, known: dict[int, float]) -> float:
    if e.is_constant():
        return 0
    if e.is_affine():
        return 1

    def arg(i: int) -> float:
        return _degree(e.args[i], known)

    if isinstance(e, DivExpression):
        return arg(0) if e.args[1].is_constant() else math.inf
    if isinstance(e, MulExpression):  # elementwise products among them
        return arg(0) + arg(1)
    if isinstance(e, AffAtom):
        return max(_degree(a, known) for a in e.args)
    if isinstance(e, Power):
        p = float(getattr(e.p, "value", e.p))
        return p * arg(0) if p >= 0 and p.is_integer() else math.inf
    if isinstance(e, (quad_over_lin, QuadForm)):
        return 2 * arg(0) if e.args[1].is_constant() else math.inf
    return math.inf
