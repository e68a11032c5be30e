"""Elimination in exact numbers: what is semidefinite, its root, and which equations imply the others."""

from __future__ import annotations

import heapq
import math
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.proofs.rounding import Floats, coordinates

# Lines of matrices that are decided in whole numbers at once, and vectors that are tried first in
# others; binary digits that factors of whole numbers must have.
TESTED, AXES, SHORT = 4, 8, 30
# Products of fractions that an elimination may take.
ELIMINATED = 20_000
# And products modulo a prime.
TRIED = 200_000
# Products of residues that one modulo a prime may take, and the prime: 2 ** 31 is 1.
RESIDUES, PRIME = 20_000_000, 2**31 - 1


def exactly_semidefinite(P: Floats) -> bool:
    """Whether a small matrix of floats is positive semidefinite, by elimination in whole numbers.

    Examples
    --------
    >>> exactly_semidefinite(np.ones((2, 2))), exactly_semidefinite(np.array([[0.0, 1e-300], [1e-300, 1.0]]))
    (True, False)
    """
    if len(P) > TESTED and P.any():
        # rounded forms without full rank fall along half of the vectors next to their null space
        vectors = np.linalg.eigh(np.ldexp(P, -int(np.frexp(abs(P).max())[1])))[1][:, :AXES].T
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


def apart(M: Any) -> bool:
    r"""Whether no row of a matrix of floats follows from the others: modulo a prime none does.

    Rows that are dependent are so modulo every prime that divides no denominator, and those of floats
    are powers of 2. False decides nothing.

    Examples
    --------
    >>> apart(sp.csr_array([[0.1, 0.2], [0.1, 0.3]])), apart(sp.csr_array([[0.1, 0.2], [0.2, 0.4]]))
    (True, False)
    """
    k, m = M.shape
    if k > m or k * k * m > RESIDUES:
        return False
    row, column, data = coordinates(M)
    fraction, power = np.frexp(data)
    whole = np.ldexp(fraction, 53).astype(np.int64) % PRIME
    left = np.zeros((k, m), dtype=np.int64)
    np.add.at(left, (row, column), whole * (1 << (power.astype(np.int64) - 53) % 31) % PRIME)
    left %= PRIME
    for i in range(k):
        lead = int(np.argmax(left[i] != 0))
        if left[i, lead] == 0:
            return False
        factor = left[i + 1 :, lead] * pow(int(left[i, lead]), -1, PRIME) % PRIME
        left[i + 1 :] = (left[i + 1 :] - factor[:, None] * left[i] % PRIME) % PRIME
    return True


def independent(M: Any, *residuals: list[Fraction]) -> list[int] | None:
    r"""Return equations of :math:`M \Delta = -r` that imply the others, for every r, by exact elimination.

    None when they contradict each other, or are too many.

    Examples
    --------
    >>> M = sp.csr_array([[1.0, 2.0], [2.0, 4.0], [0.0, 1.0]])
    >>> independent(M, [Fraction(1), Fraction(2), Fraction(5)])
    [0, 2]
    >>> independent(M, [Fraction(1), Fraction(1), Fraction(5)]) is None
    True
    """
    rows = sp.csr_array(M)
    k, m = rows.shape
    if apart(rows):
        return list(range(k))
    order = np.argsort(np.diff(rows.indptr), kind="stable").tolist()  # the shortest first
    often = np.bincount(rows.indices, minlength=m)
    each = np.split(np.arange(rows.nnz), rows.indptr[1:-1])
    exact = [{int(rows.indices[e]): Fraction(rows.data[e]) for e in own} for own in each]
    for at, r in enumerate(residuals):
        for row, left in zip(exact, r, strict=True):
            row[m + at] = left
    # modulo a prime it is quick, and says which rows are a sum of which others, if any can be
    own = m + len(residuals)
    small = [{j: _residue(a) for j, a in row.items()} | {own + i: 1} for i, row in enumerate(exact)]
    likely = _eliminated([(i, small[i]) for i in order], often, TRIED, PRIME)
    if likely is None or any(j < own for left in likely[1].values() for j in left):
        return None
    due = {j - own for left in likely[1].values() for j in left}
    sure = _eliminated([(i, exact[i]) for i in order if i in due], often, ELIMINATED)
    if sure is None or any(sure[1].values()):
        return None
    return sorted(set(range(k)).difference(sure[1]))


def _residue(a: Fraction) -> int:
    return a.numerator * pow(a.denominator, -1, PRIME) % PRIME


def _eliminated(
    rows: list[tuple[int, dict[int, Any]]], often: NDArray[Any], most: int, prime: int = 0
) -> tuple[list[int], dict[int, dict[int, Any]]] | None:
    """Return the rows that follow from none before, and what is left of the others behind the columns.

    Exactly, or modulo a prime; None where that takes more products than it may.
    """
    m, work = often.size, 0
    kept: list[int] = []
    reduced: list[tuple[int, dict[int, Any]]] = []
    place: dict[int, int] = {}  # pivot -> which of the reduced has it
    others: dict[int, dict[int, Any]] = {}
    for i, whole in rows:
        row = {j: a for j, a in whole.items() if a}
        # a reduced row has no pivot of an earlier one, so in their order none comes back
        due = [place[j] for j in row if j in place]
        heapq.heapify(due)
        while due:
            pivot, other = reduced[heapq.heappop(due)]
            if pivot not in row:
                continue  # cancelled, or met twice
            factor = row[pivot]  # of 1
            for j, a in other.items():
                if j in place and j not in row:
                    heapq.heappush(due, place[j])
                left = row.pop(j, 0) - factor * a
                left = left % prime if prime else left
                if left:
                    row[j] = left
            work += len(other)
            if work > most:
                return None
        leads = [j for j in row if j < m]
        if not leads:
            others[i] = row
            continue
        kept.append(i)
        place[pivot := min(leads, key=often.__getitem__)] = len(reduced)
        one = pow(row[pivot], -1, prime) if prime else 1 / row[pivot]
        reduced.append((pivot, {j: a * one % prime if prime else a * one for j, a in row.items()}))
    return kept, others
