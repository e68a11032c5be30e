"""The face of a curved block that its multipliers lie in, in integers, and what leads inside."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from optfair.proofs.cones import Cone, SecondOrder
from optfair.proofs.digits import simple_denominators, whole_multiple
from optfair.proofs.rounding import SMALLEST, UNIT, Floats
from optfair.proofs.triples import exp_rows, power_normal

if TYPE_CHECKING:
    from optfair.solution.conic_form import ConicForm


# Eigenvalues below such a share of the largest may be 0 where the next is so many times as large.
SMALL, APART = 1e-6, 30.0
# Splits of the eigenvalues of a block that are tried.
TRIED = 4
# Denominators of a basis, and how far its numerators may be from integers, and where they are sharp.
DENOMINATORS, NEAR, SHARP = (1, 2, 3, 4, 5, 6, 8, 10, 12), 0.05, 1e-4
# Products of zero eigenvectors and a basis that are taken for 0, as a share of its numbers.
SAME = 1e-3
# Integers below this are exact in floats; parts of one that entries of a block are made of.
EXACT, GRID = 2.0**52, 2.0**20
# Largest order of a block, and products of two entries of a basis.
LARGEST, PRODUCTS = 1_200, 10_000_000
# Least eigenvalue of the products of normed columns that do not depend on each other.
APART_COLUMNS = 1e-10
# Cubes of the orders of matrices that are tested for being semidefinite, and eigenvalues of one of
# trace 1 that are taken for 0.
TESTED, ROUNDED = 3e9, 1e-9
# Entries of all columns that are looked through for copies; denominators that are tried first, and
# the largest.
ENTRIES, SIMPLE, COPIES = 8_000_000, 12, 2_000
Copies = tuple[Any, float]


@dataclass(frozen=True, eq=False)
class Face:
    """A relaxation whose blocks are smaller, and the way back.

    Attributes
    ----------
    form : ConicForm
        The relaxation; multipliers of its smaller blocks are the entries of W.
    z : array
        Multipliers there, nearest to those that showed the face.
    cones : tuple of Cone
        Those of the program itself.
    bases : dict
        V by the number of the cone.
    copies : (array, float)
        Columns that count for others, and how many times as large these may then be.
    """

    form: ConicForm
    z: Floats
    cones: tuple[Cone, ...]
    bases: dict[int, Floats]
    copies: Copies

    @cached_property
    def stated(self) -> tuple[ConicForm, Floats]:
        """The relaxation as solvers take it, and what multiplies its multipliers for those here."""
        own, root = self.form, np.ones(self.form.b.size)
        for c in own.cones:
            if c.kind == "psd" and c.root == 1.0:
                root[c.start : c.stop][~c.diagonal] = 0.5**0.5
        A = sp.csc_array(sp.diags_array(root) @ own.A)
        cones = tuple(replace(c, root=2.0**0.5) for c in own.cones)
        return replace(own, A=A, b=own.b * root, cones=cones), root

    def whole(self, w: Floats) -> Floats:
        """Return multipliers of the program itself, in floats."""
        z = np.zeros(self.cones[-1].stop)
        for k, (inner, c) in enumerate(zip(self.form.cones, self.cones, strict=True)):
            own = w[inner.start : inner.stop]
            if k in self.bases and c.kind == "soc":
                own = self.bases[k] @ own
            elif k in self.bases:
                (i, j), V = c.places, self.bases[k]
                own = (V @ inner.matrix(own) @ V.T)[i, j] * np.where(i == j, 1.0, c.root)
            z[c.start : c.stop] = own
        return z


def on_face(form: ConicForm, z: Floats) -> Face | None:
    r"""Return a relaxation whose blocks have room where those of the program have none.

    Equations may force :math:`Z N = 0` on all multipliers of a block, as
    :math:`\langle e e^T, Z \rangle = 0` does. Then none is inside the cone, and nothing proves
    that a move which makes residuals exactly 0 stays there. For any matrix V

    .. math:: F(x) \succeq 0 \;\Rightarrow\; V^T F(x) V \succeq 0,

    so a bound on the program with the smaller block is one on the program itself, with
    multipliers :math:`Z = V W V^T`; for any v in a second-order cone
    :math:`s \in K \Rightarrow v^T s \ge 0` likewise, with multipliers :math:`z = v w`. Here V spans,
    in small integers, what is orthogonal to the zero eigenvectors of Z in floats, or is of unit
    vectors where lines of Z are next to 0; after a wrong guess less is proved, and nothing false.

    A principal submatrix is taken of any block. Others count in the entries that were declared,
    before those off the diagonal were multiplied by the root of 2, and every product is exact:
    blocks of other numbers than integers over a power of two are left alone. Two neighbouring
    floats can have the same product with the root of 2. In a constant that is charged for, on the
    diagonal of the smaller block; a block with such a coefficient of a column is left alone.
    Columns that are combinations of others there, costs included, are taken out, where integers
    show it. This is facial reduction (Borwein, Wolkowicz 1981) by looking at an answer.

    Parameters
    ----------
    form, z : ConicForm, array (m,)
        The program, and multipliers.

    Returns
    -------
    Face or None
        None where no block has a face that can be written down.
    """
    tried: dict[int, list[Floats]] = {}  # what may span the face of a block, the smallest first
    before, known = form.last.get("face", ({}, None))
    whole = _boundaries(form.cones, z)
    for k, c in enumerate(form.cones):
        if c.kind == "psd" and c.root != 1.0 and c.order <= LARGEST:
            Z = c.matrix(z[c.start : c.stop])
            spans = [
                V for V in (integer_range(Z, before.get(k, [None])[0]), _lines(Z)) if V is not None
            ]
            if spans := [V for V in spans if np.count_nonzero(V) ** 2 <= PRODUCTS]:
                tried[k] = spans
        elif c.start in whole:
            tried[k] = [whole[c.start][:, None]]
    if not tried:
        return None
    if not (tried.keys() == before.keys() and all(map(_alike, tried.values(), before.values()))):
        known = _relaxed(form, tried)
        form.last["face"] = (tried, known)
    if known is None:
        return None
    smaller, used, copies = known
    inverses = {k: np.asarray(np.linalg.pinv(V), dtype=float) for k, V in used.items()}
    own = []
    for k, c in enumerate(form.cones):
        multipliers = z[c.start : c.stop]
        if k in inverses and c.kind == "soc":
            multipliers = np.maximum(inverses[k] @ multipliers, 0.0)
        elif k in inverses:
            W, inner = inverses[k] @ c.matrix(multipliers) @ inverses[k].T, smaller.cones[k]
            roots = np.where(inner.diagonal, 1.0, inner.root)
            multipliers = (0.5 * (W + W.T))[inner.places] * roots
        own.append(multipliers)
    return Face(smaller, np.concatenate(own), form.cones, used, copies)


@dataclass(frozen=True, eq=False)
class Costless:
    r"""A direction that costs nothing and adds a semidefinite matrix to one block.

    With :math:`q^T d = 0` and :math:`-A d = F \succeq 0` every multiplier has
    :math:`\langle F, Z \rangle = 0`, so Z F = 0, and where
    :math:`V^T S V \succ 0` for V that spans the null space of F, some way along d all of S is
    inside the cone.

    Attributes
    ----------
    cone : Cone
        The block.
    d : array (n,)
        The direction.
    F : array (order, order)
        The matrix.
    """

    cone: Cone
    d: Floats
    F: Floats

    @classmethod
    def of(cls, form: ConicForm) -> tuple[Costless, ...]:
        """Return the sum of such columns of each block, as floats show them."""
        A, q, left = sp.csc_array(form.A), form.q, TESTED
        (m, n), by_block = A.shape, dict[int, Costless]()
        owner, diagonal = np.full(m, -1), np.zeros(m, dtype=bool)
        for k, c in enumerate(form.cones):
            if c.kind == "psd" and c.order <= LARGEST:
                owner[c.start : c.stop], diagonal[c.start : c.stop] = k, c.diagonal
        column, diagonal = np.repeat(np.arange(n), np.diff(A.indptr)), diagonal[A.indices]
        trace = np.bincount(column, -A.data * diagonal, n)
        other = (owner[A.indices] < 0) | (diagonal & (A.data > 0.0))
        other = np.bincount(column, other, n) > 0
        for j in np.flatnonzero((q == 0.0) & (trace > 0.0) & ~other):
            rows, data = (v[A.indptr[j] : A.indptr[j + 1]] for v in (A.indices, A.data))
            k = int(owner[rows[0]])
            c = form.cones[k]
            if (owner[rows] != k).any():
                continue
            entries = np.zeros(c.stop - c.start)
            entries[rows - c.start] = -data / trace[j]
            F = c.matrix(entries)
            lines = np.flatnonzero(F.any(axis=1))
            left -= float(lines.size) ** 3
            if left < 0.0:
                break
            if np.linalg.eigvalsh(F[np.ix_(lines, lines)])[0] >= -ROUNDED:
                known = by_block.setdefault(k, cls(c, np.zeros(n), np.zeros(F.shape)))
                known.d[j] = 1.0 / trace[j]
                known.F[:] += F
        return tuple(by_block.values())

    @cached_property
    def split(self) -> tuple[Floats, Floats]:
        """Bases V of the null space of F and N of its range, :math:`N^T F N = I`."""
        sizes, vectors = np.linalg.eigh(self.F)
        null = sizes <= ROUNDED * sizes[-1]
        return vectors[:, null], vectors[:, ~null] / np.sqrt(sizes[~null])

    def multipliers(self) -> Floats:
        """Return multipliers of the block in the middle of the face."""
        V, _ = self.split
        i, j = self.cone.places
        return np.asarray((V @ V.T)[i, j] * np.where(i == j, 1.0, self.cone.root))

    def length(self, s: Floats, least: float) -> float:
        """Return how far along d a slack is above -least I: what a Schur complement needs."""
        (V, N), S = self.split, self.cone.matrix(s[self.cone.start : self.cone.stop])
        own, vectors = np.linalg.eigh(V.T @ S @ V)
        across = vectors.T @ (V.T @ S @ N)
        need = across.T @ (across / np.maximum(own + least, least)[:, None]) - N.T @ S @ N
        return max(0.0, float(np.linalg.eigvalsh(need)[-1]))


def forced(
    form: ConicForm, short: Callable[[Floats], float] | None = None
) -> tuple[Face, Callable[[Floats], Floats]] | None:
    """Return the face that columns without a cost force multipliers into, and the way to a point.

    Points have no limit along such columns: what is solved on the face says nothing of them. They
    are chosen last, so that slacks are in their cones but for a rounding.

    Parameters
    ----------
    form : ConicForm
        The program. That its columns are so is seen in floats; no bound rests on it.
    short : callable, optional
        What least eigenvalues at a point may be below 0 by; `ROUNDED` of the sides by default.

    Returns
    -------
    (face, point) or None
        What makes a point of one of the face, its columns in their places. None where there are no
        such columns, or the face cannot be written down.
    """
    ways = Costless.of(form)
    if not ways or form.P.nnz:
        return None
    middle = np.ones(form.b.size)
    for c in form.cones:
        if c.kind == "psd":
            middle[c.start : c.stop] = c.diagonal
    for way in ways:
        middle[way.cone.start : way.cone.stop] = way.multipliers()
    rounding = ROUNDED * (1.0 + float(np.abs(form.b).max(initial=0.0)))

    def point(x: Floats) -> Floats:
        s, least = form.slack(x), rounding if short is None else short(x)
        return np.asarray(sum((way.length(s, least) * way.d for way in ways), start=x))

    face = on_face(form, middle)
    return None if face is None else (face, point)


def _relaxed(
    form: ConicForm, tried: dict[int, list[Floats]]
) -> tuple[ConicForm, dict[int, Floats], Copies] | None:
    """Return the program with smaller blocks, V of each, and copies; None where none is written down."""
    columns: Any = sp.hstack([form.rows, sp.csr_array(form.b[:, None])], format="csr")
    used: dict[int, Floats] = {}
    blocks, parts, start = [], [], 0
    for k, c in enumerate(form.cones):
        cone, rows = c, columns[c.start : c.stop]
        spans = tried.get(k, ())
        for charged, V in itertools.product((False, True), spans):
            made = _summed(c, rows, V) if c.kind == "soc" else _restricted(c, rows, V, charged)
            if made is not None:
                cone, rows = made
                used[k] = V
                break
        blocks.append(replace(cone, start=start, stop=start + rows.shape[0]))
        parts.append(rows)
        start += rows.shape[0]
    if not used:
        return None
    both = sp.csc_array(sp.vstack(parts))
    A, q, copies = _without_copies(both[:, :-1], form.q, form.P.nnz == 0)
    b = both[:, [-1]].toarray().ravel()
    return replace(form, q=q, A=A, b=b, cones=tuple(blocks)), used, copies


def _alike(some: list[Floats], others: list[Floats]) -> bool:
    return len(some) == len(others) and all(map(np.array_equal, some, others))


def _without_copies(A: Any, q: Floats, linear: bool = True) -> tuple[Any, Floats, Copies]:
    """Return the columns, and 0 for those that are proved to be combinations of others, with these."""
    (m, n), whole = A.shape, (A, q, (np.zeros(0, dtype=np.intp), 1.0))
    if not linear or m * n > ENTRIES:
        return whole
    nonzero = np.flatnonzero(np.diff(A.indptr))
    with np.errstate(over="ignore"):
        size = np.asarray(A.multiply(A).sum(axis=0)).ravel()[nonzero] ** 0.5
    if not ((size > 0.0) & np.isfinite(size)).all():
        return whole  # squares leave the range of floats
    own = sp.csc_array(A[:, nonzero] @ sp.diags_array(1.0 / size))
    if nonzero.size and np.linalg.eigvalsh((own.T @ own).toarray())[0] > APART_COLUMNS:
        return whole
    M = np.vstack([A.toarray(), q[None, :]])
    weight = 1.0 / np.maximum(np.count_nonzero(M, axis=0), 1) ** 2  # short columns are kept
    _, R, order = scipy.linalg.qr(M * weight, mode="economic", pivoting=True)
    size = np.abs(np.diag(R))
    rank = int((size > 1e-10 * size.max(initial=0.0)).sum())
    kept, others = order[:rank], order[rank:]
    if not (others.size and rank and (np.round(M * GRID) == M * GRID).all()):
        return whole
    Y = np.linalg.lstsq(M[:, kept], M[:, others], rcond=None)[0]
    common = denominators(Y)
    near = np.round(Y * common)
    fits = (GRID * (np.abs(M[:, kept]) @ np.abs(near) + np.abs(M[:, others]) * common)).max(axis=0)
    proved = (M[:, kept] @ near == M[:, others] * common).all(axis=0) & (fits < EXACT)
    used = 1.0 - np.isin(np.arange(n), others[proved])
    A = sp.csc_array(A @ sp.diags_array(used))
    A.eliminate_zeros()
    at = proved & near.any(axis=0)
    share = np.abs(near / common)[:, at].sum(axis=1).max(initial=0.0)
    return A, q * used, (others[at], (1.0 + float(share)) * (1.0 + 1e-9))


def denominators(Y: Floats) -> Floats:
    """Return an integer for each column that makes it one of integers, nearly; a guess."""
    common, left = np.ones(Y.shape[1]), np.ones(Y.shape[1], dtype=bool)
    for d in range(1, SIMPLE + 1):
        near = left & (np.abs(np.round(Y * d) - Y * d) <= 1e-6).all(axis=0)
        common[near], left = d, left & ~near
    for j in np.flatnonzero(left):
        own = 1
        _, at = np.unique(np.round(Y[:, j], 9), return_index=True)
        for v in Y[at, j].tolist():
            own = math.lcm(own, Fraction(v).limit_denominator(COPIES).denominator)
            if own >= COPIES:  # they are of no integers
                break
        common[j] = min(own, COPIES)
    return common


def _boundaries(cones: tuple[Cone, ...], z: Floats) -> dict[int, Floats]:
    """Return whole numbers in second-order cones, by first rows, near multipliers on boundaries."""
    curved, out = SecondOrder.of(cones), dict[int, Floats]()
    tails, heads = z.copy(), z[curved.heads]
    tails[curved.heads] = 0.0
    near = (heads > 0.0) & (heads <= curved.lengths(tails) * (1.0 + SMALL)) & (curved.sizes > 1)
    simple = curved.spread(near)
    shares = z[curved.rows[simple]] / curved.spread(heads)[simple]
    simple[simple] = simple_denominators(shares) > 0
    for k in np.flatnonzero(np.logical_and.reduceat(simple, curved.starts)).tolist():
        start = int(curved.heads[k])
        v = whole_multiple(z[start : start + int(curved.sizes[k])])
        if v is not None:
            head, *tail = (int(entry) for entry in v.tolist())
            if head > 0 and head * head >= sum(entry * entry for entry in tail):
                out[start] = v
    return out


def _summed(c: Cone, rows: Any, v: Floats) -> tuple[Cone, Any] | None:
    """Return what a vector in the cone says of a block, one row, with the side as last column."""
    rows = sp.csr_array(rows)
    size = (np.abs(v).T @ abs(rows)).max()
    if not 0.0 < float(size) < np.ldexp(EXACT, int(last_digit(rows.data))):
        return None  # the sums would be rounded
    return replace(c, kind="nonneg"), sp.csr_array(sp.csr_array(v.T) @ rows)


def _restricted(c: Cone, rows: Any, V: Floats, charged: bool = False) -> tuple[Cone, Any] | None:
    """Return a block on its face, and its rows with the sides as last column, where charged rounded."""
    (i, j), r = c.places, V.shape[1]
    if np.count_nonzero(V) == r and (V.max(axis=0) == 1.0).all():  # a principal submatrix
        kept = np.asarray(V.any(axis=1))
        return replace(c, order=r), rows[np.flatnonzero(kept[i] & kept[j])]
    # products of two entries of a column of V, of an entry and its mirror image, and their sums
    terms = 2 * int(np.count_nonzero(V, axis=0).max()) ** 2 + 8
    known = _declared(c, rows, terms if charged else 0)
    if known is None:
        return None
    declared, off_by = known
    own, off = replace(c, order=r, root=1.0), i != j
    (p, q), across = own.places, products(c, V, own)
    sizes = sp.csc_array(abs(across) @ abs(declared))
    if charged:  # constants are
        sizes = sizes[:, :-1]
    if sizes.data.max(initial=0.0) * GRID >= EXACT:
        return None
    matrix = sp.csr_array(sp.diags_array(np.where(p == q, 1.0, 2.0)) @ (across @ declared))
    matrix.eliminate_zeros()
    if off_by.any():  # what is known to be semidefinite is V'FV + (its largest row sum) I
        size = np.abs(V).T @ c.matrix(off_by * np.where(off, c.root, 1.0)) @ np.abs(V)
        side = matrix[:, [-1]].toarray().ravel()
        raised = side + float(size.sum(axis=1).max()) * (1.0 + 1e-9)
        side = np.where(p == q, np.nextafter(raised, np.inf), side)
        matrix = sp.csr_array(sp.hstack([matrix[:, :-1], sp.csr_array(side[:, None])]))
    return own, matrix


def products(c: Cone, V: Floats, own: Cone) -> Any:
    """Return the rows of V'SV, a block of its own, as sums of the rows of the matrix S of a block."""
    (i, j), (p, q), (n, r) = c.places, own.places, V.shape
    place, off = np.arange(i.size), i != j
    at = (np.r_[i * n + j, (j * n + i)[off]], np.r_[place, place[off]])
    full = sp.csr_array((np.ones(at[0].size), at), shape=(n * n, i.size))
    columns = sp.csc_array(V)
    return sp.kron(columns, columns, format="csc")[:, p * r + q].T @ full


def _declared(c: Cone, rows: Any, terms: int = 0) -> tuple[Any, Floats] | None:
    """Return the entries before the root of 2 and by how much constants may differ from them.

    Constants that are charged for may differ by the rounding of sums of so many terms. None where
    others are off the grid, as is any coefficient of a column, or one is not known for sure.
    """
    if c.mixed:
        return None
    entries = sp.coo_array(rows)
    i, j = c.places
    factor = np.where(i == j, 1.0, np.sqrt(2.0))[entries.row]
    with np.errstate(over="ignore"):
        near = np.round(entries.data / factor * GRID) / GRID
        ends = [np.nextafter(near, far) for far in (-np.inf, np.inf)]
        shared = np.any([end * factor == entries.data for end in ends], axis=0) & (factor != 1.0)
    constant, off = entries.col == rows.shape[1] - 1, near * factor != entries.data
    if ((off | shared) & ~constant).any() or (off.any() and not terms):
        return None
    off_by = np.zeros(rows.shape[0])
    off_by[entries.row[shared]] = np.max([np.abs(end - near) for end in ends], axis=0)[shared]
    if terms:
        near[constant] = entries.data[constant] / factor[constant]
        off_by[entries.row[constant]] += terms * UNIT * np.abs(near[constant]) + SMALLEST
    return sp.csr_array((near, (entries.row, entries.col)), shape=rows.shape), off_by


def _lines(Z: Floats) -> Floats | None:
    """Return the unit vectors of the lines whose multipliers may not be 0, if they are fewer."""
    sizes = np.diag(Z)
    kept = sizes > SMALL * sizes.max(initial=0.0)
    return np.eye(sizes.size)[:, kept] if kept.any() and not kept.all() else None


def integer_range(Z: Floats, before: Floats | None = None, *, sharp: bool = False) -> Floats | None:
    """Return integers that span what is orthogonal to the zero eigenvectors, if there are any.

    Those that were known before are returned where they do: others of the same program are often on
    the same face. Of sharp entries denominators may be large.
    """
    sizes, vectors = np.linalg.eigh(Z)
    largest = float(sizes[-1])
    if not largest > 0.0:
        return None
    ratio = sizes[1:] / np.maximum(np.abs(sizes[:-1]), 1e-17 * largest)
    split = np.flatnonzero((sizes[:-1] <= SMALL * largest) & (ratio >= APART))
    for k in split[np.argsort(-ratio[split], kind="stable")][:TRIED] + 1:
        if (
            before is not None
            and before.shape[1] == len(Z) - k
            and (np.abs(vectors[:, :k].T @ before) <= SAME * np.abs(before).max()).all()
        ):
            return before
        _, R, order = scipy.linalg.qr(vectors[:, :k].T, mode="economic", pivoting=True)
        X = np.linalg.solve(R[:, :k], R[:, k:])
        own = [(denominators(X), SHARP)] if sharp else []
        for d, near in (*own, *((d, NEAR) for d in DENOMINATORS)):
            whole = np.round(X * d)
            if (np.abs(whole - X * d) <= near).all():
                V = np.zeros((len(Z), len(Z) - k))
                in_turn = np.argsort(order[k:])
                V[order[k:][in_turn], np.arange(len(Z) - k)] = (d * np.ones(len(Z) - k))[in_turn]
                V[order[:k]] = -whole[:, in_turn]
                return V
    return None


def last_digit(v: Floats) -> int:
    """Return the largest e such that all numbers are whole multiples of 2**e, 0 for none.

    Examples
    --------
    >>> last_digit(np.array([0.75, 6.0])), last_digit(np.array([24.0, 0.0]))
    (-2, 3)
    """
    part, power = np.frexp(v[v != 0.0])
    if not part.size:
        return 0
    whole = np.ldexp(part, 53).astype(np.int64)
    lowest = np.frexp((whole & -whole).astype(float))[1] - 1
    return int((power - 53 + lowest).min())


# What leads from a face to the inside: rows of curved cones, and of a block, up to which multipliers
# move; the share of the largest eigenvalue of a block below which others are of its kernel.
CURVED, BLOCK, KERNEL = 10_000, 5_000, 1e-6


def normals_of(form: ConicForm, z: Floats) -> tuple[Any, Floats]:
    """Return by which rows the depth of multipliers in curved cones, not all 0, grows, and how large it is."""
    parts: list[tuple[int, Floats, float]] = []
    for c in form.cones:
        own = z[c.start : c.stop]
        if c.kind == "soc" and own.any():
            tail = float(np.linalg.norm(own[1:]))
            parts.append((c.start, np.append(1.0, -own[1:] / (tail or 1.0)), own[0] - tail))
        if c.kind == "pow" and (normal := power_normal(own, c.power))[0].any():
            parts.append((c.start, *normal))
    u, v, w = z[exp := exp_rows(form.cones)].T
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        slope = np.where(u < 0.0, np.exp(v / u - 1.0), 0.0)
        normals = np.stack([slope * (1.0 - v / u), slope, np.ones(u.size)], axis=1)
    some = (slope > 0.0) & (slope < np.inf)
    depths = (w + u * np.where(some, slope, 0.0))[some].tolist()
    parts += zip(exp[some, 0].tolist(), normals[some], depths, strict=True)
    parts.sort(key=itemgetter(0))
    sizes = [normal.size for _, normal, _ in parts]
    parts, sizes = (parts, sizes) if sum(sizes) <= CURVED else ([], [])
    rows = [np.arange(start, start + n) for (start, _, _), n in zip(parts, sizes, strict=True)]
    entries = np.concatenate([np.zeros(0), *(normal for _, normal, _ in parts)])
    index = np.concatenate([np.zeros(0, dtype=int), *rows])
    ends = np.append(0, np.cumsum(sizes, dtype=int))
    G = sp.csr_array((entries, index, ends), shape=(len(parts), z.size))
    return G, np.array([depth for *_, depth in parts])


def kernels_of(form: ConicForm, z: Floats, depth: float) -> tuple[Any, Floats]:
    r"""Return by which rows blocks of multipliers Z grow along their kernels N, and what they lack.

    They are the entries of :math:`N^T \Delta N`: with :math:`N^T (Z + \Delta) N = d I` a small Δ
    leaves a matrix with room around it, as those of log-determinants, whose rank is half, have none.
    """
    parts, lacking = [sp.csr_array((0, z.size))], [np.zeros(0)]
    for c in form.cones:
        own = z[c.start : c.stop]
        if c.kind != "psd" or not own.any() or own.size > BLOCK:
            continue
        values, vectors = np.linalg.eigh(c.matrix(own))
        few = int(np.count_nonzero(values < max(depth, KERNEL * values[-1])))
        if values[0] >= depth or few * (few + 1) // 2 > CURVED:
            continue
        N, (i, j) = vectors[:, :few], c.places
        a, b = np.triu_indices(few)
        both = N[i][:, a] * N[j][:, b]
        both = np.where((i == j)[:, None], both, (both + N[j][:, a] * N[i][:, b]) / c.root)
        before = sp.csr_array((a.size, c.start))
        parts.append(sp.hstack([before, both.T, sp.csr_array((a.size, z.size - c.stop))]))
        lacking.append(np.where(a == b, np.minimum(values[a] - depth, 0.0), 0.0))
    return sp.csr_array(sp.vstack(parts)), np.concatenate(lacking)
