"""Pairs on the central path of small semidefinite programs, in numbers of many digits."""

from __future__ import annotations

import time
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np

from optfair.numbers import Floats
from optfair.proofs.digits import Decimals, SmallProgram, inverse_root, many_digits

if TYPE_CHECKING:
    from optfair.solution.conic_form import ConicForm

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
