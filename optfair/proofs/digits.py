"""Small semidefinite programs in sixty digits: pairs near the optimum, and bounds from pairs."""

from __future__ import annotations

import time
from dataclasses import dataclass
from decimal import Context, Decimal, DivisionByZero, InvalidOperation, Overflow, localcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from optfair.proofs.cones import Cone

if TYPE_CHECKING:
    from optfair.solution.conic_form import ConicForm

Floats = NDArray[np.float64]
Decimals = NDArray[Any]  # of Decimal

# Digits of every number, and a share of the largest that is far above what they lose.
DIGITS, LOST = 60, Decimal("1e-45")
# Columns and order of a block up to which programs are small.
COLUMNS, ORDER = 30, 20
# Steps towards multipliers that solve their equations and stay inside.
STEPS = 12


def many_digits() -> Any:
    """Return a context in which numbers have many digits; what leaves their range raises."""
    return localcontext(Context(DIGITS, traps=[InvalidOperation, DivisionByZero, Overflow]))


def decimals(values: Any) -> Decimals:
    """Return floats as they are."""
    values = np.asarray(values, dtype=float)
    return np.array([Decimal(v) for v in values.ravel().tolist()], object).reshape(values.shape)


def root(M: Decimals) -> Decimals:
    """Return the lower Cholesky factor; LinAlgError where a pivot is not positive."""
    L = M.copy()
    for k in range(len(L)):
        if not L[k, k] > 0:
            raise np.linalg.LinAlgError("a pivot is not positive")
        L[k, k] = L[k, k].sqrt()
        L[k + 1 :, k] = L[k + 1 :, k] / L[k, k]
        L[k + 1 :, k + 1 :] = L[k + 1 :, k + 1 :] - np.outer(L[k + 1 :, k], L[k + 1 :, k])
        L[k, k + 1 :] = Decimal(0)
    return L


def inverse_root(M: Decimals) -> Decimals:
    """Return the inverse of the lower Cholesky factor."""
    L = root(M)
    X = decimals(np.eye(len(L)))
    for i in range(len(L)):
        X[i] = (X[i] - L[i, :i].dot(X[:i])) / L[i, i] if i else X[i] / L[i, i]
    return X


@dataclass(frozen=True, eq=False)
class SmallProgram:
    """A program of points, half-lines and small matrices in many digits.

    Parameters
    ----------
    q : array (n,)
    A, b : array (m, n), (m,)
        With entries of matrices off the diagonal times the root of 2.
    cones : tuple of Cone
    """

    q: Decimals
    A: Decimals
    b: Decimals
    cones: tuple[Cone, ...]

    @classmethod
    def of(cls, form: ConicForm) -> SmallProgram | None:
        """Return a linear program over small matrices; None where it is none."""
        kinds = {c.kind for c in form.cones}
        small = form.q.size <= COLUMNS and all(c.order <= ORDER for c in form.cones)
        short = form.b.size <= COLUMNS * ORDER
        if not (small and short and "psd" in kinds <= {"psd", "nonneg"}) or form.P.nnz:
            return None
        q, A, b = decimals(form.q), decimals(form.A.toarray()), decimals(form.b)
        return cls(q, A, b, form.cones)

    @cached_property
    def columns(self) -> list[Decimals]:
        """Matrices of the columns (n, k, k), block by block; a half-line is one of order 1."""
        return self.matrices(self.A)

    def matrices(self, v: Decimals) -> list[Decimals]:
        """Return the matrices of rows, or of the columns of many rows."""
        blocks = []
        for c in self.cones:
            own = v[c.start : c.stop]
            if c.kind != "psd":
                blocks += [own[[k]].reshape(*v.shape[1:], 1, 1) for k in range(len(own))]
                continue
            i, j = c.places
            full = np.full((c.order, c.order, *v.shape[1:]), Decimal(0), dtype=object)
            full[i, j] = full[j, i] = (own.T / _units(c)).T
            blocks.append(np.moveaxis(full, (0, 1), (-2, -1)))
        return blocks

    def rows(self, matrices: list[Decimals]) -> Decimals:
        """Return the rows of matrices."""
        left, parts = iter(matrices), []
        for c in self.cones:
            if c.kind != "psd":
                parts += [next(left).reshape(1) for _ in range(c.stop - c.start)]
                continue
            i, j = c.places
            parts.append(next(left)[i, j] * _units(c))
        return np.concatenate(parts)

    def across(self, Z: list[Decimals]) -> Decimals:
        """Return the products of the columns with matrices."""
        pairs = zip(self.columns, Z, strict=True)
        return np.asarray(np.sum([(F * z).sum(axis=(1, 2)) for F, z in pairs], axis=0))

    def combined(self, y: Decimals) -> list[Decimals]:
        """Return the sums of the matrices of the columns, so many of each."""
        return [np.tensordot(y, F, axes=1) for F in self.columns]

    def gram(self, left: list[Decimals], right: list[Decimals]) -> Decimals:
        """Return the inverse Cholesky factor of the products of L F_i R with F_j."""
        M = np.full((self.q.size, self.q.size), Decimal(0))
        for F, a, b in zip(self.columns, left, right, strict=True):
            own = np.array([a.dot(f).dot(b) for f in F], dtype=object)
            M = M + own.reshape(len(F), -1).dot(F.reshape(len(F), -1).T)
        return inverse_root((M + M.T) / 2)


def _units(c: Cone) -> Decimals:
    """Return what the entries of a matrix are multiplied by in its rows."""
    return np.array([Decimal(1) if own else Decimal(2).sqrt() for own in c.diagonal], dtype=object)


def bound_nearby(form: ConicForm, z: Floats) -> tuple[float, float] | None:
    r"""Return a bound that multipliers with many digits prove near given ones.

    The matrices that solve :math:`A^T z = -q` next to Z, measured by Z itself, are
    :math:`Z + \sum_j y_j Z F_j Z`. Where the multipliers have no room around them in floats, these
    are often inside all the same. A Cholesky factorisation that completes proves it, in numbers
    whose rounding is far below what is taken off the diagonal (Rump 2006).

    Parameters
    ----------
    form : ConicForm
        The program.
    z : array (m,)
        Multipliers, in the cones but for rounding.

    Returns
    -------
    (value, slope) or None
        The bound where every column is at most R in size is ``value - slope R``.
    """
    program = SmallProgram.of(form)
    if program is None or not np.isfinite(z).all():
        return None
    try:
        with many_digits():
            return _bound_nearby(form, program, decimals(z))
    except (np.linalg.LinAlgError, ArithmeticError):
        return None


def _bound_nearby(form: ConicForm, program: SmallProgram, z: Decimals) -> tuple[float, float]:
    Z = [_raised(own) for own in program.matrices(z)]
    for _ in range(STEPS):
        root = program.gram(Z, Z)
        y = root.T.dot(root.dot(-program.q - program.across(Z)))
        moves = [own.dot(F).dot(own) for own, F in zip(Z, program.combined(y), strict=True)]
        length = Decimal(1)
        while not all(_inside(a + length * d) for a, d in zip(Z, moves, strict=True)):
            length /= 2
        Z = [a + length * (d + d.T) / 2 for a, d in zip(Z, moves, strict=True)]
        if length == 1:
            break
    z = program.rows(Z)
    for own in program.matrices(z):
        inverse_root(own - LOST * np.trace(own) * decimals(np.eye(len(own))))
    size = abs(program.A).T.dot(abs(z)) + abs(program.q)
    slope = (abs(program.q + program.A.T.dot(z)) + LOST * size).sum()
    value = Decimal(form.offset) - program.b.dot(z)
    value -= LOST * (abs(Decimal(form.offset)) + abs(program.b).dot(abs(z)))
    down, up = np.nextafter(float(value), -np.inf), np.nextafter(float(slope), np.inf)
    return float(down), float(up)


def _inside(M: Decimals) -> bool:
    try:
        root(M)
    except np.linalg.LinAlgError:
        return False
    return True


def _raised(M: Decimals) -> Decimals:
    """Return a matrix with as little on the diagonal as makes it one inside the cone."""
    unit: Decimals = np.trace(M) * decimals(np.eye(len(M)))
    shares = (Decimal(0), *(Decimal(10) ** k for k in range(-20, -5)))
    inner = (raised for share in shares if _inside(raised := M + share * unit))
    outcome: Decimals | None = next(inner, None)
    if outcome is None:
        raise np.linalg.LinAlgError("a matrix is not near the cone")
    return outcome


# Steps at most, and the share of the way to the boundary that one goes.
ITERATIONS, CLOSE = 60, 0.9
# Size of the first matrices, and what the products of slacks and multipliers shrink to at a step.
START, SHRINK = Decimal(10_000), Decimal("0.2")
# Whole steps after which a pair is on the path; residual of the multipliers that counts as none.
SETTLED, NOTHING = 3, Decimal("1e-25")


def central_pair(
    form: ConicForm, share: float, deadline: float = np.inf
) -> tuple[Floats, Floats] | None:
    r"""Return a pair with :math:`S Z = \\mu I` whose gap is a share of the objective.

    Where the set of multipliers is thin or no optimum is attained, points on the path are so far
    out that floats carry no digit of it. Newton steps to a fixed :math:`\\mu`, in the direction of
    Helmberg, Rendl, Vanderbei and Wolkowicz, with 60 digits, reach it.

    Parameters
    ----------
    form : ConicForm
        The program.
    share : float
        Gap over objective.
    deadline : float
        ``time.perf_counter()`` to stop at.

    Returns
    -------
    (x, z) or None
        Rounded; None where the program is not small, or its multipliers have no inside.
    """
    program = SmallProgram.of(form)
    if program is None:
        return None
    try:
        with many_digits():
            return _central(form, program, Decimal(share), deadline)
    except (np.linalg.LinAlgError, ArithmeticError):
        return None


def _central(
    form: ConicForm, program: SmallProgram, share: Decimal, deadline: float
) -> tuple[Floats, Floats] | None:
    unit = Decimal(form.unit)
    sides = program.matrices(program.b)
    S = [START * np.array(np.eye(len(b)), dtype=int) + 0 * b for b in sides]
    x, Z, total = 0 * program.q, [own.copy() for own in S], sum(map(len, sides))
    a, c, whole = Decimal(0), Decimal(0), 0  # lengths of the last steps, and how many were 1
    for _ in range(ITERATIONS):
        off = [b - a - s for b, a, s in zip(sides, program.combined(x), S, strict=True)]
        rest = -program.q - program.across(Z)
        mu = sum((s * z).sum() for s, z in zip(S, Z, strict=True)) / total
        goal = share * max(abs(program.q.dot(x)), unit) / total
        whole = whole + 1 if a == c == 1 else 0
        if whole > SETTLED and abs(rest).max() < NOTHING and mu < 2 * goal:
            return _rounded(x), _rounded(program.rows(Z))
        if time.perf_counter() > deadline:
            break
        roots_s, roots_z = [inverse_root(s) for s in S], [inverse_root(z) for z in Z]
        inverse = [r.T.dot(r) for r in roots_s]
        back = [
            max(goal, SHRINK * mu) * i - z - _symmetric(z.dot(r).dot(i))
            for i, z, r in zip(inverse, Z, off, strict=True)
        ]
        root = program.gram(Z, inverse)
        dx = root.T.dot(root.dot(rest - program.across(back)))
        moved = program.combined(dx)
        dS = [r - m for r, m in zip(off, moved, strict=True)]
        dZ = [
            b + _symmetric(z.dot(m).dot(i))
            for b, z, m, i in zip(back, Z, moved, inverse, strict=True)
        ]
        a, c = _length(roots_s, dS), _length(roots_z, dZ)
        x = x + a * dx
        S = [_symmetric(s + a * d) for s, d in zip(S, dS, strict=True)]
        Z = [_symmetric(z + c * d) for z, d in zip(Z, dZ, strict=True)]
    return None


def _symmetric(M: Decimals) -> Decimals:
    return np.asarray((M + M.T) / 2)


def _rounded(v: Decimals) -> Floats:
    return np.asarray(v, dtype=float)


def _length(roots: list[Decimals], moves: list[Decimals]) -> Decimal:
    """Return how far matrices go, at most once and short of the boundary."""
    least = min(
        float(np.linalg.eigvalsh(_rounded(r.dot(d).dot(r.T)))[0])
        for r, d in zip(roots, moves, strict=True)
    )
    return Decimal(min(1.0, CLOSE / -least) if least < 0.0 else 1.0)
