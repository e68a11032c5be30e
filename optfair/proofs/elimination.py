"""Elimination in whole numbers: what is exactly semidefinite, and its root, every entry rounded once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.proofs.rounding import Floats

# Lines of matrices that are decided in whole numbers at once, and vectors that are tried first in
# others; binary digits that factors of whole numbers must have.
TESTED, TRIED, SHORT = 4, 8, 30


def exactly_semidefinite(P: Floats) -> bool:
    """Whether a small matrix of floats is positive semidefinite, by elimination in whole numbers.

    Examples
    --------
    >>> exactly_semidefinite(np.ones((2, 2))), exactly_semidefinite(np.array([[0.0, 1e-300], [1e-300, 1.0]]))
    (True, False)
    """
    if len(P) > TESTED and P.any():
        # rounded forms without full rank fall along half of the vectors next to their null space
        vectors = np.linalg.eigh(np.ldexp(P, -int(np.frexp(abs(P).max())[1])))[1][:, :TRIED].T
        tried, M = np.rint(np.ldexp(vectors, 30)).astype(np.int64).astype(object), _whole(P)[0]
        if any(v @ M @ v < 0 for v in tried):
            return False
    return exact_root(P) is not None


def _whole(P: Floats) -> tuple[NDArray[Any], int]:
    """Return whole multiples of a power of two that are the entries, and its exponent."""
    part, power = np.frexp(P)
    lowest = int(power[P != 0.0].min(initial=0))
    up = np.where(P != 0.0, power.astype(np.int64) - lowest, 0).astype(object)
    return np.left_shift(np.ldexp(part, 53).astype(np.int64).astype(object), up), lowest


def exact_root(P: Floats, *, below: bool = False) -> Floats | None:
    """Return F with F'F = P, every entry rounded once; None for what is not semidefinite.

    Below, rows of short whole numbers lose a share, by their factors; None where they are not short.
    """
    M, lowest = _whole(P)
    before, left, rows, digits = 1, np.arange(len(M)), [], 53 - lowest
    while M.size:
        # the first of the largest, as near as a factor of 2: rows of simple numbers stay simple
        k = int(np.argmax([v.bit_length() if v > 0 else 0 for v in M.diagonal()]))
        pivot, rest = M[k, k], np.arange(len(M)) != k
        if pivot <= 0:
            if pivot < 0 or M.any():
                return None
            break
        under = (pivot * before << max(digits, 0), max(-digits, 0))
        row, own = np.zeros(len(P)), math.gcd(*M[k]) if below else 1
        if below:
            free = 53 - max(abs(v) // own for v in M[k]).bit_length()
            if free < SHORT:
                return None
            factor = root_down(own**2 << under[1], under[0], free)
            row[left] = [factor * (v // own) for v in M[k]]
        else:
            row[left] = [
                math.sqrt((v * v << under[1]) / under[0]) * (1 if v > 0 else -1) for v in M[k]
            ]
        rows.append(row)
        lead = M[rest, k]
        # minors of the matrix, whole numbers (Bareiss 1968): positive before, of the same sign now
        M = (pivot * M[rest][:, rest] - np.outer(lead, lead)) // before
        before, left = pivot, left[rest]
    return np.array(rows).reshape(-1, len(P))


def root_down(above: int, under: int, digits: int) -> float:
    """Return a float of so many binary digits next to, and not above, the root of a fraction."""
    shift = digits - (above.bit_length() - under.bit_length()) // 2
    root = math.isqrt((above << max(2 * shift, 0)) // (under << max(-2 * shift, 0)))
    more = max(root.bit_length() - digits, 0)
    return math.ldexp(root >> more, more - shift)
