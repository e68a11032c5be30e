"""Quadratic functions of affine entries: their matrices, in fractions or in floats, and what these prove."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise
from operator import mul
from typing import Any

import numpy as np

from optfair.convexity.expression import (
    Leaf,
    Node,
    Product,
    Sum,
    affine,
    linear,
    scalars,
    select,
)
from optfair.convexity.intervals import exact_product, exact_sum
from optfair.convexity.polynomials import Polynomial, expanded, is_polynomial
from optfair.core.quadratics import lower_root
from optfair.numbers import Floats

Matrix = list[list[Fraction]]

# Variables of a quadratic whose matrix is eliminated in fractions, and of one that is read at all.
VARIABLES, MANY = 40, 2_000
# By how much a root may be less than what is next to it.
LESS = 2.0**-44


def few(node: Node) -> bool:
    """Return whether a node is a number of few scalars."""
    return node.size == 1 and len(scalars(node)) <= VARIABLES


# --- in fractions ------------------------------------------------------------------------------------


class Quadratic:
    """A quadratic function with rational coefficients.

    Attributes
    ----------
    entries : tuple of Node
        Its variables, entries of leaves.
    matrix : list of lists of Fraction
        Symmetric M of order n + 1 with f(x) = [x; 1]' M [x; 1].
    """

    def __init__(self, entries: Sequence[Node], matrix: Matrix) -> None:
        self.entries, self.matrix = tuple(entries), matrix

    @property
    def form(self) -> Matrix:
        """The part of degree two."""
        n = len(self.entries)
        return [row[:n] for row in self.matrix[:n]]

    @property
    def homogeneous(self) -> bool:
        """Whether it has neither linear terms nor a constant."""
        return not any(self.matrix[-1])

    def on_hyperplane(self, normal: Sequence[Fraction]) -> Matrix:
        """Return the matrix restricted to {v: normal'v = 0}, in coordinates without one entry."""
        p = next(k for k, c in enumerate(normal) if c)
        rest = [k for k in range(len(normal)) if k != p]
        ratio = [normal[k] / normal[p] for k in rest]
        M = self.matrix
        return [
            [
                M[i][j] - ratio[a] * M[p][j] - ratio[b] * M[i][p] + ratio[a] * ratio[b] * M[p][p]
                for b, j in enumerate(rest)
            ]
            for a, i in enumerate(rest)
        ]


@lru_cache(maxsize=256)
def quadratic(node: Node, entries: tuple[Node, ...] = ()) -> Quadratic | None:
    """Return an entry as a quadratic of entries of leaves, None when it is none.

    Parameters
    ----------
    node : Node
        Of one entry.
    entries : tuple of Node
        Variables that must be among its own.
    """
    if not entries and (read := quadratic_in_floats(node)) is not None and read.of_leaves:
        own = [select(leaf, [int(i)]) for leaf, lines in read.lines for i in lines[:, 0]]
        return Quadratic(own, [[Fraction(v) for v in row] for row in read.matrix.tolist()])
    terms = expanded(node)
    return None if terms is None else quadratic_of(terms, entries)


def quadratic_of(terms: Polynomial, entries: Iterable[Node]) -> Quadratic | None:
    """Return an expanded polynomial as a quadratic, None when it is none."""
    if not is_polynomial(terms) or any(sum(p for _, p in m) > 2 for m in terms):
        return None
    own = {n for m in terms for n, _ in m} | set(entries)
    names = sorted(own, key=lambda n: n.serial)
    at = {n: k for k, n in enumerate(names)}
    size = len(names) + 1
    M = [[Fraction(0)] * size for _ in range(size)]
    for monomial, c in terms.items():
        places = [at[n] for n, p in monomial for _ in range(int(p))]
        i, j = (*places, *([size - 1] * (2 - len(places))))
        M[i][j] += c / 2
        M[j][i] += c / 2
    return Quadratic(names, M)


def coefficients(node: Node, entries: Sequence[Node]) -> list[Fraction] | None:
    """Return an affine entry as coefficients of given entries and 1, None where it has others."""
    form = quadratic(node, tuple(entries))
    if form is None or any(any(row) for row in form.form):
        return None
    if len(form.entries) > len(entries):
        return None
    at = {n: k for k, n in enumerate(form.entries)}
    last = form.matrix[-1]
    return [2 * last[at[n]] for n in entries] + [last[-1]]


def inertia(M: Matrix) -> tuple[int, int, int]:
    """Return how many eigenvalues of a symmetric rational matrix are positive, negative and 0.

    By congruence (Sylvester's law), so it is exact.

    Examples
    --------
    >>> inertia([[Fraction(1), Fraction(1)], [Fraction(1), Fraction(1)]])
    (1, 0, 1)
    >>> inertia([[Fraction(0), Fraction(1)], [Fraction(1), Fraction(0)]])
    (1, 1, 0)
    """
    A = [list(row) for row in M]
    positive = negative = 0
    left = list(range(len(A)))
    while left:
        p = next((k for k in left if A[k][k]), None)
        if p is None:
            pair = next(((i, j) for i in left for j in left if i < j and A[i][j]), None)
            if pair is None:
                break
            i, j = pair
            for k in left:
                A[i][k] += A[j][k]
            for k in left:
                A[k][i] += A[k][j]
            p = i
        pivot = A[p][p]
        positive, negative = positive + (pivot > 0), negative + (pivot < 0)
        left.remove(p)
        for i in left:
            if A[i][p]:
                factor = A[i][p] / pivot
                for j in left:
                    A[i][j] -= factor * A[p][j]
    return positive, negative, len(M) - positive - negative


def not_above(M: Matrix, near: Floats) -> tuple[Floats, bool]:
    """Return F next to a root of a semidefinite matrix, and whether F'F is proved to be below it."""
    for F in (near, near * (1.0 - LESS)):
        exact = [[Fraction(v) for v in column] for column in F.T.tolist()]
        off = [
            [c - sum(map(mul, a, b), Fraction(0)) for c, b in zip(row, exact, strict=True)]
            for row, a in zip(M, exact, strict=True)
        ]
        if not inertia(off)[1]:
            return F, True
    return near, False


# --- in floats -----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class QuadraticInFloats:
    """A quadratic function of affine entries, with floats for coefficients.

    Attributes
    ----------
    lines : list of (Node, array (k, 3))
        Its entries: for a leaf (index, factor, shift), each factor * leaf[index] + shift; for
        another affine node (row, 1, 0).
    matrix : array (n + 1, n + 1)
        Symmetric M with f(y) = [y; 1]' M [y; 1] of the entries y in their order, without rounding.
    """

    lines: list[tuple[Node, Any]]
    matrix: Floats

    @property
    def of_leaves(self) -> bool:
        """Whether its entries are those of leaves."""
        plain = ((lines[:, 1:] == (1.0, 0.0)).all() for _, lines in self.lines)
        return all(isinstance(n, Leaf) for n, _ in self.lines) and all(plain)

    @cached_property
    def root(self) -> tuple[Any, bool]:
        """F with F'F next to M, and whether it is proved to be below: then f is a squared norm."""
        return lower_root(self.matrix)

    @cached_property
    def convex(self) -> bool:
        """Whether the part of degree two is proved to be semidefinite."""
        return bool(lower_root(self.matrix[:-1, :-1])[1])

    @cached_property
    def concave(self) -> bool:
        """Whether the negative of that is."""
        return bool(lower_root(-self.matrix[:-1, :-1])[1])


@lru_cache(maxsize=8)
def quadratic_in_floats(node: Node) -> QuadraticInFloats | None:
    """Return an entry as a quadratic of affine entries that are multiplied two by two, None else."""
    if not isinstance(node, Sum) or node.size != 1:
        return None
    terms, constants = list[tuple[Any, list[tuple[Node, Any]]]](), [node.constant]
    queue = [(M.data, M.indices, n) for M, n in node.parts]
    while queue:
        data, rows, n = queue.pop()
        if isinstance(n, Sum) and not affine(n):  # coefficients of coefficients
            for c, error, at, inner in _nested(data, rows, n):
                if (error != 0.0).any():
                    return None
                queue += [] if inner is None else [(c, at, inner)]
                constants += [c] if inner is None else []
            continue
        factors = n.factors if isinstance(n, Product) else ((n, Fraction(1)),)
        own = [b for b, p in factors for _ in range(int(p) if p in (1, 2) else 3)]
        if len(own) > 2 or not all(map(affine, own)):
            return None
        terms.append((data, [(base, lines[rows]) for base, lines in map(_lines, own)]))
    every: dict[Node, list[Any]] = {}
    for _, picked in terms:
        for base, lines in picked:
            every.setdefault(base, []).append(lines)
    unique, places, count = list[tuple[Node, Any]](), dict[Node, Any](), 0
    for base in sorted(every, key=_serial):
        lines, at = np.unique(np.concatenate(every[base]), axis=0, return_inverse=True)
        ends = np.cumsum([0, *map(len, every[base])])
        places[base] = iter([count + at.ravel()[a:b] for a, b in pairwise(ends)])
        unique.append((base, lines))
        count += len(lines)
    if not 0 < count <= MANY:
        return None
    numbers = np.concatenate(constants)
    triples: list[tuple[Any, Any, Any]] = [(numbers, *np.full((2, numbers.size), count))]
    for data, picked in terms:
        own = [next(places[base]) for base, _ in picked]
        triples.append((data, own[0], own[1] if own[1:] else np.full(data.size, count)))
    c, i, j = (np.concatenate(part) for part in zip(*triples, strict=True))
    M = _added_exactly(c, i, j, count + 1)
    return None if M is None else QuadraticInFloats(unique, M)


def _nested(
    data: Floats, rows: Any, node: Sum
) -> Iterator[tuple[Floats, Floats, Any, Node | None]]:
    """Yield multiples of what rows of a sum are, the errors of these, and of which entries of what."""
    c, error = exact_product(data, node.constant[rows])
    yield np.asarray(c), np.asarray(error), None, None
    for N, inner in node.parts:
        counts = np.diff(N.indptr)[rows]
        shift = np.repeat(N.indptr[rows] - np.cumsum(counts) + counts, counts)
        at = shift + np.arange(shift.size)
        c, error = exact_product(np.repeat(data, counts), N.data[at])
        yield np.asarray(c), np.asarray(error), N.indices[at], inner


def _added_exactly(c: Floats, i: Any, j: Any, size: int) -> Floats | None:
    """Return the symmetric matrix with c/2 at (i, j) and (j, i), None where a sum is rounded."""
    key = np.minimum(i, j) * size + np.maximum(i, j)
    order = np.argsort(key, kind="stable")
    key, c = key[order], c[order]
    first = np.flatnonzero(np.diff(key, prepend=-1))
    count = np.diff(first, append=key.size)
    total = c[first].copy()
    for k in range(1, int(count.max())):
        more = np.flatnonzero(count > k)
        total[more], error = exact_sum(total[more], c[first[more] + k])
        if (error != 0.0).any():
            return None
    if not np.isfinite(total).all() or (np.abs(total[total != 0.0]) < LEAST).any():
        return None
    M = np.zeros((size, size))
    M[key[first] // size, key[first] % size] = total / 2.0
    return M + M.T


# Numbers below this may lose a digit when they are halved.
LEAST = 2.0**-1000


def _serial(node: Node) -> int:
    return node.serial


def _lines(node: Node) -> tuple[Node, Any]:
    """Return the rows of an affine node as entries of a leaf where each has one, or of distinct rows."""
    if isinstance(node, Sum) and len(node.parts) == 1:
        M, leaf = node.parts[0]
        if isinstance(leaf, Leaf) and (np.diff(M.indptr) == 1).all():
            return leaf, np.stack([M.indices, M.data, node.constant], axis=1)
    base, at = _distinct(node) if isinstance(node, Sum) else (node, np.arange(node.size))
    return base, np.stack([at, np.ones(at.size), np.zeros(at.size)], axis=1)


def _distinct(node: Sum) -> tuple[Node, Any]:
    """Return the node of the rows without those that stand there again, and where each one is.

    Their order is that of their numbers, so that two nodes with the same rows have one.
    """
    rows: list[bytes] = [c.tobytes() for c in node.constant]
    for M, _ in node.parts:
        for k, (a, b) in enumerate(pairwise(M.indptr.tolist())):
            rows[k] += (b - a).to_bytes(8) + M.indices[a:b].tobytes() + M.data[a:b].tobytes()
    every, first, at = np.unique(
        np.array(rows, dtype=object), return_index=True, return_inverse=True
    )
    if len(every) == node.size and (np.diff(at) > 0).all():
        return node, at
    return linear([(M[first], n) for M, n in node.parts], node.constant[first]), at.ravel()


@lru_cache(maxsize=256)
def squared_norm(node: Node) -> bool:
    """Whether an entry is a quadratic that is negative nowhere, by its matrix."""
    if few(node) and (q := quadratic(node)) is not None:
        return inertia(q.matrix)[1] == 0
    read = quadratic_in_floats(node)
    return read is not None and read.root[1]
