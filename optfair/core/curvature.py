"""The curvature of quadratics, proved from their coefficients whatever an expression asserts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.atoms.affine import wraps
from cvxpy.atoms.quad_form import QuadForm

from optfair.core.expressions import substitute
from optfair.core.quadratic_map import NotQuadratic, QuadraticMap, quadratic_map
from optfair.errors import DeclarationError
from optfair.proofs.definiteness import Definiteness, definiteness, symmetric

# Eigenvalues are told for so many scalars at most; they illustrate, the proof is another.
TOLD = 120


@dataclass(frozen=True, eq=False)
class QuadraticCurvature:
    """What is proved of the Hessian H of a quadratic, and of -H.

    Attributes
    ----------
    up, down : Definiteness
        Of H and of -H.
    note : str
        The finding in words.
    rows : QuadraticMap
        Its coefficients.
    """

    up: Definiteness
    down: Definiteness
    note: str
    rows: QuadraticMap

    @property
    def convex(self) -> bool:
        """Whether H is positive semidefinite, up to a shift that bounds are charged for."""
        return self.up.accepted

    @property
    def word(self) -> str:
        """What to call it."""
        if self.convex:
            return "convex quadratic"
        return "concave quadratic" if self.down.accepted else "indefinite quadratic"


def quadratic_curvature(expression: Any) -> QuadraticCurvature | None:
    """Return the curvature of a scalar quadratic from its exact coefficients, at any size.

    None when the expression is not multiplied out.

    Examples
    --------
    >>> x = cp.Variable(2)
    >>> quadratic_curvature(x[0] * x[0] + 2 * x[0] * x[1] + x[1] * x[1]).word
    'convex quadratic'
    >>> quadratic_curvature(x[0] * x[0] - 1e-4 * x[1] * x[1]).word
    'indefinite quadratic'
    """
    if expression.size != 1:
        return None
    offsets, size = {}, 0
    for v in sorted(expression.variables(), key=lambda v: v.id):
        offsets[v.id] = size
        size += v.size
    try:
        rows = quadratic_map(expression, offsets, size)
    except NotQuadratic:
        return None
    i, j = rows.pairs
    Q = sp.csr_array(rows.Q)
    at = slice(Q.indptr[0], Q.indptr[1])
    k, value = Q.indices[at], Q.data[at]
    half = sp.csc_array((value, (i[k], j[k])), shape=(size, size))
    H = sp.csc_array(half + half.T)
    up, down = definiteness(H), definiteness(-H)
    if size <= TOLD:
        eigenvalues = np.linalg.eigvalsh(H.toarray())
        note = f"Hessian eigenvalues in [{eigenvalues[0]:.3g}, {eigenvalues[-1]:.3g}]"
    else:
        note = f"Hessian {up}"
    return QuadraticCurvature(up, down, note, rows)


def rounding(expression: Any) -> float:
    """Return the largest shift with which a quadratic form in an expression counts as definite."""
    found_forms = [n.args[1] for n in _nodes(expression) if isinstance(n, QuadForm)]
    forms = [P.value for P in found_forms if P.is_constant() and not P.parameters()]
    found = [definiteness(sign * symmetric(P)) for P in forms for sign in (1.0, -1.0)]
    return max((d.shift for d in found if d.accepted), default=0.0)


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
    for node in _nodes(expression):
        if isinstance(node, QuadForm) and node.args[1].is_constant():
            swaps[id(node.args[1])] = _tested(name, node.args[1])
        elif isinstance(node, wraps.Wrap) and id(node) not in swaps and not _holds(node):
            swaps[id(node)] = node.args[0]
    return substitute(expression, swaps) if swaps else expression


def _nodes(e: Any) -> Iterator[Any]:
    """Yield every node once; a matrix before what it is made of."""
    seen: set[int] = set()
    stack = [e]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        stack += [a for a in node.args if hasattr(a, "args")]


def _tested(name: str, matrix: Any) -> Any:
    """Return the matrix of a quadratic form with what is proved about it."""
    value = matrix.value
    if np.iscomplexobj(getattr(value, "data", value)):
        raise DeclarationError(
            f"{name!r} has a quadratic form with a complex matrix",
            remedy="write it with real variables and matrices",
        )
    P = symmetric(value)
    stored: Any = P if sp.issparse(value) else P.toarray()
    constant = cp.Constant(stored)
    if definiteness(P).accepted:
        return wraps.psd_wrap(constant)
    if definiteness(-P).accepted:
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
    dense = np.asarray(value.toarray() if hasattr(value, "toarray") else value)
    if isinstance(wrap, wraps.nonneg_wrap):
        return bool((dense >= 0.0).all())
    if isinstance(wrap, wraps.nonpos_wrap):
        return bool((dense <= 0.0).all())
    if isinstance(wrap, wraps.psd_wrap):
        return definiteness(symmetric(value)).accepted
    if isinstance(wrap, wraps.nsd_wrap):
        return definiteness(symmetric(-value)).accepted
    return bool(np.array_equal(dense, -dense.T))
