"""The functions of an expression as they were given, with nothing asserted of them that is not proved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.atoms.affine import wraps
from cvxpy.atoms.affine.binary_operators import MulExpression
from cvxpy.atoms.elementwise.power import Power, PowerApprox
from cvxpy.atoms.geo_mean import GeoMeanApprox
from cvxpy.atoms.pnorm import Pnorm, PnormApprox
from cvxpy.atoms.quad_form import QuadForm
from cvxpy.constraints import PowCone3D
from cvxpy.utilities.power_tools import is_power2

from optfair.core.expressions import dense, substitute
from optfair.core.problem_class import known_symmetric, parts_of
from optfair.core.term import constant_numbers, is_quadratic
from optfair.errors import DeclarationError
from optfair.proofs.definiteness import DENSE, as_array, curvature_of, dense_shift, symmetric
from optfair.proofs.rounding import coordinates


def exact_functions(written: Any) -> Any:
    """Return an expression or constraint with the exponents, weights and logarithms it was given.

    CVXPY takes fractions near exponents and weights, and quadratures: bounds would be of these.

    Examples
    --------
    >>> import cvxpy as cp
    >>> norm = cp.pnorm(cp.Variable(2), 3.0004883)
    >>> print(norm.p, exact_functions(norm).p)
    3 3.0004883
    """
    if not written.args:
        return written
    written = _power_cone(written) if isinstance(written, PowCone3D) else written
    args = [exact_functions(arg) for arg in written.args]
    if (
        not _APPROXIMATED.isdisjoint(type(written).__mro__)
        and (other := _exactly(written, args)) is not None
    ):
        return other
    return written if list(map(id, args)) == list(map(id, written.args)) else written.copy(args)


def _power_cone(written: Any) -> Any:
    """Return a power cone of vectors, as CVXPY's solvers take them, with the exponents it was given."""
    matrices = written.args[0].ndim > 1
    if type(written) is PowCone3D and not matrices:
        return written
    sides = [cp.vec(e, "F") if matrices else e for e in (*written.args, written.alpha)]
    return PowCone3D(*sides, constr_id=written.id)


# Functions that CVXPY may take for others, or has no matrix of.
_APPROXIMATED = frozenset[Any](
    [
        *(MulExpression, QuadForm, Power, Pnorm, PnormApprox, GeoMeanApprox),
        *(cp.von_neumann_entr, cp.sum_largest, cp.lambda_sum_largest),
    ]
)


def _exactly(written: Any, args: list[Any]) -> Any:
    """Return what a function of arguments is with the numbers it was given, None where it has them."""
    if _vanishes(written, args):  # it has no matrix in CVXPY
        return sum((0.0 * cp.sum(v) for v in written.variables()), np.zeros(written.shape))
    if isinstance(written, Power) and written.is_constant() and written.variables():
        return cp.Constant(np.ones(written.shape))  # CVXPY takes one 1 for all entries of x**0
    if isinstance(written, PowerApprox) and written.p_used is not None and written.approx_error:
        return cp.power(args[0], written.p.value, approx=False)
    if isinstance(written, Power) and _even(written) and not args[0].is_nonneg():
        return written.copy([cp.abs(args[0])])  # CVXPY compiles x**6 as that of max(x, 0)
    if isinstance(written, (PnormApprox, GeoMeanApprox)):
        shape = {"axis": written.axis, "keepdims": written.keepdims, "approx": False}
        if isinstance(written, PnormApprox) and _apart(written.p, written.original_p):
            return cp.pnorm(args[0], written.original_p, **shape)
        if isinstance(written, GeoMeanApprox):
            weights = np.zeros(written._keep.size)
            weights[written._keep] = written.p
            if _apart(written.w, weights[written._keep] / weights.sum()):
                return cp.geo_mean(args[0], weights, **shape)
    if isinstance(written, cp.von_neumann_entr) and written.quad_approx:
        return cp.von_neumann_entr(args[0])
    reduced = isinstance(written, (cp.sum_largest, cp.lambda_sum_largest, Pnorm))
    return _reduced(written, args[0]) if reduced else None


def _vanishes(e: Any, args: Sequence[Any]) -> bool:
    """Whether one of two factors is 0, and the other, not affine, is finite everywhere."""
    if not isinstance(e, (MulExpression, QuadForm)):
        return False
    zero = [a.is_constant() and not a.parameters() and not constant_numbers(a).any() for a in args]
    if isinstance(e, QuadForm):
        return zero[1]

    def total(b: Any) -> bool:
        if is_quadratic(b):  # CVXPY would search eigenvalues of its forms
            return any(isinstance(n, QuadForm) for n in parts_of(b)) or not b.is_affine()
        known = (b.is_convex() or b.is_concave()) and not b.is_affine()
        return known and not any(c.variables() for c in b.domain)

    return any(zero[k] and total(b) for k, b in enumerate(args[::-1]))


def _reduced(e: Any, x: Any) -> Any:
    """Return what CVXPY gets wrong of norms and sums of largest, in other words; None where nothing.

    A sum of all falls without limit, an axis is not kept, lengths along one are in another order.
    """
    if isinstance(e, cp.lambda_sum_largest):
        n = x.shape[-1]
        every = cp.trace(x) if known_symmetric(x) else cp.lambda_sum_largest(x, n)
        return every if e.k > n else None
    if isinstance(e, cp.sum_largest) and e.k * e.size >= x.size:
        return cp.sum(x, axis=e.axis, keepdims=e.keepdims)
    if e.axis is None and e.ndim and (isinstance(e, cp.sum_largest) or e.p == 2.0):
        one = cp.sum_largest(x, e.k) if isinstance(e, cp.sum_largest) else cp.norm(cp.vec(x, "F"))
        return cp.reshape(one, e.shape, order="F")
    if isinstance(e, Pnorm) and e.p == 2.0 and e.axis is not None and x.ndim > 2:
        flat = cp.reshape(cp.moveaxis(x, e.axis, 0), (x.shape[e.axis], e.size), order="F")
        return cp.reshape(cp.norm(flat, axis=0), e.shape, order="F")
    return None


def largest_entries(e: Any, args: Sequence[Any], solver_context: Any = None) -> tuple[Any, Any]:
    """Return a sum of largest entries and its rows, whatever values the variables have.

    CVXPY takes these for a start, which fails of matrices with few rows.
    """
    x, level, over = args[0], cp.Variable(e.shape), cp.Variable(args[0].shape)
    along = cp.sum(x, axis=e.axis, keepdims=True).shape
    each = cp.reshape(level, along, order="F") if e.axis is not None else level
    total = cp.sum(over, axis=e.axis, keepdims=e.keepdims) + e.k * level
    return total, [x <= over + each, over >= 0]


def _even(e: Any) -> bool:
    """Whether a power has an even exponent of which CVXPY does not know that it is."""
    return (p := e.p_used) is not None and p > 0 and p % 2 == 0 and not is_power2(p)


def _apart(used: Any, given: Any) -> bool:
    """Whether numbers differ from given ones by more than these were rounded."""
    used, given = np.asarray(used, dtype=float), np.asarray(given, dtype=float)
    return bool((np.abs(used - given) > 4.0 * np.finfo(float).eps * np.abs(given)).any())


# Nothing is asserted that is not proved: matrices of quadratic forms.


def proved_assertions(name: str, expression: Any) -> Any:
    """Return an expression or constraint in which nothing is asserted that is not proved.

    ``psd_wrap`` and ``assume_PSD`` make CVXPY believe; so the matrix of every quadratic form is
    tested here, and handed on as proved or as neither. Assertions about what varies are dropped.

    Parameters
    ----------
    name : str
        What errors call the term.
    expression : cvxpy.Expression or cvxpy.Constraint
        What somebody wrote, without parameters.
    """
    swaps: dict[int, Any] = {}
    for node in parts_of(expression):
        if isinstance(node, QuadForm) and node.args[1].is_constant():
            swaps[id(node.args[1])] = _tested(name, node.args[1])
        elif isinstance(node, wraps.Wrap) and id(node) not in swaps and not _holds(node):
            swaps[id(node)] = node.args[0]
    return substitute(expression, swaps) if swaps else expression


def _tested(name: str, matrix: Any) -> Any:
    """Return the matrix of a quadratic form with what is proved about it."""
    value = matrix.value
    if np.iscomplexobj(getattr(value, "data", value)):
        raise DeclarationError(
            f"{name!r} has a quadratic form with a complex matrix",
            remedy="write it with real variables and matrices",
        )
    if isinstance(value, np.ndarray) and len(value) <= DENSE:
        whole = (value + value.T) * 0.5
        if dense_shift(whole, 0.0) == 0.0:  # most are definite
            return wraps.psd_wrap(cp.Constant(whole))
    P = symmetric(value)
    constant = cp.Constant(sp.csc_array(P) if sp.issparse(value) else as_array(P))
    if not coordinates(P)[2].any():
        return constant  # it is both, which no wrap says
    if curvature_of(P).accepted:
        return wraps.psd_wrap(constant)
    if curvature_of(-P).accepted:
        return wraps.nsd_wrap(constant)
    # a sum of one of each kind is neither to CVXPY, which would test any other constant itself
    return wraps.psd_wrap(constant) + wraps.nsd_wrap(cp.Constant(sp.csc_array(P.shape)))


def _holds(wrap: Any) -> bool:
    """Whether what a wrap asserts is true of a constant; of anything else nobody knows."""
    if isinstance(wrap, (wraps.symmetric_wrap, wraps.hermitian_wrap)):
        return True  # no curvature rests on it
    if not wrap.is_constant():
        return False
    value = wrap.args[0].value
    entries = dense(value, None)
    if isinstance(wrap, wraps.nonneg_wrap):
        return bool((entries >= 0.0).all())
    if isinstance(wrap, wraps.nonpos_wrap):
        return bool((entries <= 0.0).all())
    if isinstance(wrap, wraps.psd_wrap):
        return curvature_of(symmetric(value)).accepted
    if isinstance(wrap, wraps.nsd_wrap):
        return curvature_of(symmetric(-value)).accepted
    return bool(np.array_equal(entries, -entries.T))
