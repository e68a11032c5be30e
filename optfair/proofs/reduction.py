r"""Facial reduction in fractions: what no separating vector excludes, a chain of them does.

Of a semidefinite block with a diagonal entry 0 the whole line is 0, of a second-order cone with
:math:`s_0 = 0` every entry. A combination of rows that cancels in every column shows such zeros,
these give further equations, and the equations show more: facial reduction (Borwein, Wolkowicz
1981) by diagonals (Permenter, Parrilo 2018). Of y exp(x/y) <= z with z = 0, y is 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.optimize
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.proofs.check_proof import number
from optfair.proofs.cones import Cone, beside_diagonals
from optfair.proofs.digits import balanced, chosen_columns, solve_exactly
from optfair.proofs.points import feasible_near
from optfair.proofs.portable import ratio
from optfair.proofs.roots import zeroing_rows
from optfair.proofs.rounding import Floats, unscaled
from optfair.proofs.triples import FLOOR

if TYPE_CHECKING:
    from optfair.solution.conic_form import ConicForm

Bools = NDArray[np.bool_]

# Links of a chain; entries of the rows up to which links are looked for.
LINKS, ENTRIES = 60, 20_000
# Rows of second-order cones up to which more of them is used than that 0 comes from 0.
SHORT = 12
# Entries of a vector that are taken for 0, as a share of the largest.
ZERO = 1e-9
# How near to a limit a value is, relative to the size of the objective.
CLOSE = 1e-5
# Seconds for one linear program, and for one exact solution of equations.
SECONDS = 5.0

# A combination of rows: weights by row.
Link = dict[int, Fraction]


@dataclass(frozen=True, eq=False)
class Entries:
    r"""Rows of a cone program in the entries that were declared.

    The entries of a block beside its diagonal stand in a compiled program times the root of 2.
    Two neighbouring floats can have the same product: such rows are not known, and not used.

    Parameters
    ----------
    rows : sparse (m, n + 1)
        Coefficients, with the sides as last column: a row states what s is, b - A x.
    known : array (m,)
        Which of them are certain.
    cones : tuple of Cone
        Blocks of rows.
    """

    rows: Any
    known: Bools
    cones: tuple[Cone, ...]

    @classmethod
    def of(cls, form: ConicForm) -> Entries:
        """Return those of a compiled program."""
        stated = form.plain or form
        rows: Any = sp.csr_array(sp.hstack([stated.rows, sp.csr_array(stated.b[:, None])]))
        rows.eliminate_zeros()
        owner = np.repeat(np.arange(form.b.size), np.diff(rows.indptr))
        scaled = beside_diagonals(stated.cones, form.b.size)[owner]
        data, sure = rows.data.copy(), np.ones(rows.data.size, dtype=bool)
        data[scaled], sure[scaled] = unscaled(data[scaled])
        sure &= ~beside_diagonals(stated.cones, form.b.size, mixed=True)[owner]
        # a row of one number says the same whatever its size: nothing but its zero is used
        single = np.diff(rows.indptr)[owner] == 1
        data[single & ~sure] = np.sign(data[single & ~sure])
        known = np.bincount(owner[~sure & ~single], minlength=form.b.size) == 0
        known[zeroing_rows(form)[0]] = False
        declared = sp.csr_array((data, rows.indices, rows.indptr), shape=rows.shape)
        return cls(declared, known, stated.cones)

    def at_most(self, cost: Floats, value: float) -> Entries:
        """Return the rows with one more: the cost is at most a value."""
        m = self.rows.shape[0]
        row = sp.csr_array(np.append(cost, value)[None, :])
        return Entries(
            sp.csr_array(sp.vstack([self.rows, row])),
            np.append(self.known, True),
            (*self.cones, Cone("nonneg", m, m + 1)),
        )

    def alternative(self, cost: Floats | None = None) -> Entries | None:
        r"""Return the rows of :math:`A^T z = 0,\; b^T z = -1,\; z \in K^*`, None where they are not known.

        Vectors z count in entries of matrices. No point satisfies them where no Farkas vector exists.
        Of a cost q they are :math:`A^T z = -q`: no point satisfies them where no multipliers exist.
        """
        if not self.known.all():
            return None
        m, n = self.rows.shape[0], self.rows.shape[1] - 1
        start = n + (cost is None)
        weight, cones, own = np.ones(m), [Cone("zero", 0, start)], [sp.csr_array((0, m))]
        each = sp.eye_array(m, format="csr")
        for c in self.cones:
            if c.kind == "psd":
                weight[np.arange(c.start, c.stop)[~c.diagonal]] = 2.0
            if c.kind != "zero":
                turn, stated = _dual(c)
                size = turn.shape[0]
                own.append(sp.csr_array(turn @ each[c.start : c.stop]))
                cones.append(replace(stated, start=start, stop=start + size))
                start += size
        equations = sp.csr_array(self.rows.T @ sp.diags_array(weight))[: cones[0].stop]
        sides = np.zeros(start)
        sides[: cones[0].stop] = np.append(np.zeros(n), -1.0) if cost is None else -cost
        inside = -sp.csr_array(sp.vstack(own))
        rows = sp.hstack([sp.vstack([equations, inside]), sp.csr_array(sides[:, None])])
        stacked = sp.csr_array(rows)
        stacked.eliminate_zeros()
        return Entries(stacked, np.ones(start, dtype=bool), tuple(cones))

    @cached_property
    def exact(self) -> tuple[Any, Any, list[Fraction]]:
        """Where the numbers of a row begin, their columns, and they in fractions."""
        numbers = list(map(Fraction, self.rows.data.tolist()))
        return self.rows.indptr.tolist(), self.rows.indices.tolist(), numbers

    def near(self, z: Floats, unit: Floats, used: NDArray[Any], count: int) -> Link | None:
        """Return weights of some rows near z, in some units, with which the first columns cancel."""
        support = np.flatnonzero(np.abs(z) > ZERO * np.abs(z).max(initial=0.0))
        if not support.size:
            return None
        weights = _exactly(self.rows[used[support]], (z * unit)[support], count)
        if weights is None:
            return None
        return {int(used[i]): v for i, v in zip(support, weights, strict=True) if v}

    def contradiction(self, z: Floats, unit: Floats) -> Link | None:
        """Return a Farkas vector in fractions near one in floats, in units of its rows."""
        link = self.near(z, unit, np.arange(z.size), self.rows.shape[1] - 1)
        return None if link is None or chain_fault(self, [link]) else link

    def combined(self, link: Link) -> dict[int, Fraction]:
        """Return the exact sum of rows times their weights, by column."""
        start, columns, numbers = self.exact
        total: dict[int, Fraction] = {}
        for i, weight in link.items():
            for k in range(start[i], start[i + 1]):
                total[columns[k]] = total.get(columns[k], Fraction(0)) + weight * numbers[k]
        return {j: v for j, v in total.items() if v}


def _dual(cone: Cone) -> tuple[Any, Cone]:
    """Return rows that state the dual of a cone by its multipliers, and what they are in.

    Triples (u, v, w) are in the dual of the exponential cone where (u - v, -u, w) are in itself. Short
    second-order cones are matrices with :math:`s_0 + s_1` and :math:`s_0 - s_1` on the diagonal and
    the others in the first line. Of power cones two numbers are nonnegative, and where either is 0
    the third is, as in a matrix of order 2; nothing else is used of it.
    """
    size = cone.stop - cone.start
    if cone.kind == "exp":
        T = np.array([[1.0, -1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
        return sp.block_diag([T] * (size // 3), format="csr"), cone
    if cone.kind == "pow":
        T = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
        return sp.csr_array(T), Cone("psd", 0, 3, 2, root=2.0)
    if cone.kind == "soc" and 3 <= size <= SHORT:
        matrix = Cone("psd", 0, size * (size - 1) // 2, size - 1, root=2.0)
        (i, j), T = matrix.places, np.zeros((matrix.stop, size))
        T[i == j, 0], T[i == j, 1] = 1.0, np.where(i[i == j] == 0, 1.0, -1.0)
        line = np.flatnonzero((j == 0) & (i > 0))
        T[line, i[line] + 1] = 1.0
        return sp.csr_array(T), matrix
    return sp.eye_array(size, format="csr"), cone


class Face:
    """The least face that the links so far have shown: equations, and what is nonnegative.

    Attributes
    ----------
    equal : array of bool (m,)
        Rows that are 0 on it.
    signed : array of bool (m,)
        Rows that are at least 0: of half-lines, diagonals, the first of a second-order cone, and y
        and z of y exp(x/y) <= z.
    """

    def __init__(self, entries: Entries) -> None:
        self.entries = entries
        m = entries.rows.shape[0]
        self.equal, self.signed = np.zeros(m, dtype=bool), np.zeros(m, dtype=bool)
        for c in entries.cones:
            at = np.arange(c.start, c.stop)
            if c.kind == "zero":
                self.equal[at] = True
            elif c.kind == "nonneg":
                self.signed[at] = True
            elif c.kind == "psd":
                self.signed[at[c.diagonal]] = True
            elif c.kind == "soc" and at.size:
                self.signed[at[0]] = True
            elif c.kind == "exp":
                self.signed[at[1::3]] = self.signed[at[2::3]] = True

    def fault(self, link: Link) -> str:
        """Say why a link shows nothing; empty for zeros of its signed rows or a contradiction."""
        exact = all(isinstance(v, (int, Fraction)) and v for v in link.values())
        if not link or not exact or not all(0 <= i < self.equal.size for i in link):
            return "a link is no combination of the rows"
        allowed = all(self.equal[i] or (self.signed[i] and v > 0) for i, v in link.items())
        if not (allowed and all(self.entries.known[i] for i in link)):
            return "a link uses a row whose sign is not known"
        total = self.entries.combined(link)
        if set(total) - {self.entries.rows.shape[1] - 1}:
            return "the rows of a link do not cancel"
        if self.side(link) > 0:
            return "the side of a link is positive"
        return ""

    def side(self, link: Link) -> Fraction:
        """Return what the sides sum to: below 0 is a contradiction."""
        return self.entries.combined(link).get(self.entries.rows.shape[1] - 1, Fraction(0))

    def take(self, link: Link) -> None:
        """Set to 0 what a link without a fault shows to be 0."""
        shown = np.zeros(self.equal.size, dtype=bool)
        shown[[i for i, v in link.items() if v > 0]] = True
        shown &= self.signed & ~self.equal
        for c in self.entries.cones:
            at = np.arange(c.start, c.stop)
            if c.kind == "psd" and shown[at].any():
                gone = np.zeros(c.order, dtype=bool)
                i, j = c.places
                gone[i[c.diagonal & shown[at]]] = True
                shown[at] |= gone[i] | gone[j]
            elif c.kind == "soc" and shown[at].any():
                shown[at] = True
            elif c.kind == "exp":  # y exp(x/y) is 0 for y = 0 alone
                shown[at[1::3]] |= shown[at[2::3]]
        self.equal |= shown
        self.signed &= ~shown

    def shown(self) -> Iterator[Link]:
        """Yield links as far as there are any, a contradiction last, and set to 0 what they show."""
        for _ in range(LINKS):
            if (link := self.next()) is None:
                return
            yield link
            if self.side(link) < 0:
                return
            self.take(link)

    def next(self) -> Link | None:
        """Return a link that shows more, a contradiction before all; None where none is found."""
        used = np.flatnonzero((self.equal | self.signed) & self.entries.known)
        rows = sp.csr_array(self.entries.rows[used])
        if not used.size or rows.nnz > ENTRIES:
            return None
        step = self._solved(used, rows, contradiction=True)
        if step is not None:
            return step
        empty = np.flatnonzero((np.diff(rows.indptr) == 0) & self.signed[used])
        if empty.size:
            return {int(i): Fraction(1) for i in used[empty]}
        return self._solved(used, rows, contradiction=False)

    def _solved(self, used: NDArray[Any], rows: Any, *, contradiction: bool) -> Link | None:
        """Look for a vertex of the combinations that cancel, and solve for it in fractions."""
        n, signed = rows.shape[1] - 1, self.signed[used]
        if not signed.any() and not contradiction:
            return None
        row, column = balanced(rows)
        scaled = sp.csr_array(sp.diags_array(row) @ rows @ sp.diags_array(column))
        equations: Any = scaled[:, :n].T
        sides, last = np.zeros(n), scaled[:, [n]].T
        if contradiction:
            more, right = -last, [1.0]
        else:
            more, right = sp.vstack([last, signed[None, :].astype(float)]), [0.0, 1.0]
        free = np.flatnonzero(~signed)
        A = sp.vstack([equations, more], format="csc")
        A = sp.hstack([A, -A[:, free]], format="csc")
        kept = np.diff(sp.csr_array(A).indptr) > 0
        target = np.concatenate([sides, right])
        if target[~kept].any():
            return None
        solve: Any = scipy.optimize.linprog
        result = solve(
            np.ones(A.shape[1]),
            A_eq=sp.csr_array(A)[kept],
            b_eq=target[kept],
            method="highs-ds",
            options={"time_limit": SECONDS},
        )
        if result.status != 0:
            return None
        z = result.x[: used.size].copy()
        z[free] -= result.x[used.size :]
        link = self.entries.near(z, row, used, n if contradiction else n + 1)
        if link is None:
            return None
        good = not self.fault(link) and (self.side(link) < 0 or self._shows(link))
        return link if good and (not contradiction or self.side(link) < 0) else None

    def _shows(self, link: Link) -> bool:
        return any(v > 0 and self.signed[i] and not self.equal[i] for i, v in link.items())


def _exactly(rows: Any, near: Floats, count: int) -> list[Fraction] | None:
    """Return weights near those given with which the first columns cancel exactly."""
    first = int(np.abs(near * abs(rows).max(axis=1).toarray().ravel()).argmax()) if rows.nnz else 0
    others = np.delete(np.arange(near.size), first)
    if not others.size:
        return [Fraction(1 if near[first] > 0 else -1)]
    B = sp.csr_array(rows[others][:, :count])
    chosen = chosen_columns(B, np.ones(count))
    if chosen is None or chosen[0].size < others.size:
        return None
    sign = 1 if near[first] > 0 else -1
    side = [Fraction(-sign * v) for v in rows[[first]].toarray().ravel()[chosen[1]].tolist()]
    solved = solve_exactly(sp.csr_array(B[:, chosen[1]].T), side, SECONDS)
    if solved is None:
        return None
    fractions = [Fraction(v, solved[1]) for v in solved[0]]
    fractions.insert(first, Fraction(sign))
    return fractions


def chain(entries: Entries) -> tuple[Link, ...] | None:
    """Return links that end in a contradiction, none of which can be spared; None without one.

    Examples
    --------
    A block with x and 0 on its diagonal and 1 beside it:

    >>> rows = sp.csr_array([[-1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    >>> links = chain(Entries(rows, np.ones(3, dtype=bool), (Cone("psd", 0, 3, 2),)))
    >>> [{i: int(v) for i, v in link.items()} for link in links or ()]
    [{2: 1}, {1: -1}]
    """
    face = Face(entries)
    links = list(face.shown())
    if not links or face.side(links[-1]) >= 0:
        return None
    for k in reversed(range(len(links) - 1)):
        fewer = [*links[:k], *links[k + 1 :]]
        if not chain_fault(entries, fewer):
            links = fewer
    return None if chain_fault(entries, links) else tuple(links)


def chain_fault(entries: Entries, links: Iterable[Link]) -> str:
    """Say why links do not end in a contradiction, in exact arithmetic; empty where they do."""
    face = Face(entries)
    for link in links:
        if fault := face.fault(link):
            return fault
        if face.side(link) < 0:
            return ""
        face.take(link)
    return "the links end in no contradiction"


def links_of(entries: Entries) -> tuple[Link, ...]:
    """Return links that show rows to be 0 at every feasible point, as far as there are any."""
    face = Face(entries)
    return tuple(link for link in face.shown() if face.side(link) == 0)


def restated(form: ConicForm, links: Iterable[Link]) -> ConicForm | None:
    r"""Return the program with what links show to be 0 as equations, None where they do not.

    The same points satisfy it, and multipliers of more kinds prove a bound: those of a row that is 0
    have any sign, and of a semidefinite block the lines that are left need be semidefinite. Where
    the value of the dual is below the optimum, or no multipliers attain it, these may.
    """
    face = Face(entries := Entries.of(form))
    stated = face.equal.copy()
    for link in links:
        if face.fault(link):
            return None
        face.take(link)
    gone = face.equal & ~stated
    zeros = entries.rows[np.flatnonzero(gone & entries.known)]  # of others the size is not known
    if any(c.kind in ("exp", "pow") and gone[c.start : c.stop].any() for c in form.cones):
        return None  # what is left of them are half-lines
    left = np.flatnonzero(~gone)

    def on_face(own: ConicForm) -> ConicForm:
        cones, start = [Cone("zero", 0, zeros.shape[0])], zeros.shape[0]
        for c in own.cones:
            stays = ~gone[c.start : c.stop]
            order = int(np.count_nonzero(c.diagonal & stays)) if c.kind == "psd" else c.order
            cones.append(replace(c, start=start, stop=start + int(stays.sum()), order=order))
            start = cones[-1].stop
        A = sp.csc_array(sp.vstack([zeros[:, :-1], own.rows[left]]))
        b = np.concatenate([zeros[:, [-1]].toarray().ravel(), own.b[left]])
        kept = tuple(c for c in cones if c.stop > c.start)
        return replace(own, A=A, b=b, cones=kept)

    made = on_face(form)
    object.__setattr__(made, "_plain", lambda: on_face(form.plain or form))
    return made


def forced(entries: Entries) -> Bools:
    """Return which rows are 0 at every feasible point though they are no equations, in exact arithmetic.

    Points with another entry there may violate their cone by as little as one likes, and are not
    near a feasible one. Where no point is feasible all rows are.

    Examples
    --------
    A block with 0 and y on its diagonal and x beside them:

    >>> rows = sp.csr_array([[0.0, 0.0, 0.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
    >>> forced(Entries(rows, np.ones(3, dtype=bool), (Cone("psd", 0, 3, 2),)))
    array([ True,  True, False])
    """
    face = Face(entries)
    stated = face.equal.copy()
    for link in face.shown():
        if face.side(link) < 0:
            return np.ones(stated.size, dtype=bool)
    return np.asarray(face.equal & ~stated)


def steps(links: Sequence[Any]) -> str:
    """Return how many links a chain has, in words.

    Examples
    --------
    >>> steps([{0: Fraction(1)}]), steps(())
    ('1 step of facial reduction', '0 steps of facial reduction')
    """
    return f"{len(links)} step{'s' * (len(links) != 1)} of facial reduction"


@dataclass(frozen=True, eq=False)
class Excluded:
    """Rows that no point satisfies, and whether any vector separates them from their cones.

    Attributes
    ----------
    links : tuple of Link
        They end in a contradiction.
    others : tuple of Link or None
        The same of the rows that a Farkas vector satisfies: there is none. Points then come as near
        to the cones as one likes.
    """

    links: tuple[Link, ...]
    others: tuple[Link, ...] | None

    def __str__(self) -> str:
        return steps(self.links)

    def fault(self, entries: Entries) -> str:
        """Say why it is not so, in exact arithmetic; empty where it is."""
        fault = chain_fault(entries, self.links)
        if fault or self.others is None:
            return fault
        other = entries.alternative()
        return "rows are not known exactly" if other is None else chain_fault(other, self.others)

    def record(self) -> dict[str, Any]:
        """Return the links, ready for JSON: rows with their weights, every one of them exact."""

        def written(links: tuple[Link, ...]) -> list[Any]:
            return [[[i, ratio(v)] for i, v in link.items()] for link in links]

        others = None if self.others is None else written(self.others)
        return {"links": written(self.links), "others": others}

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Excluded:
        """Return what `record` wrote."""

        def read(links: Any) -> tuple[Link, ...]:
            return tuple({index(i): number(v) for i, v in link} for link in links)

        others = record["others"]
        return cls(read(record["links"]), None if others is None else read(others))


def excluded(entries: Entries) -> Excluded | None:
    """Return the proof that no point satisfies rows, None where facial reduction finds none."""
    links = chain(entries)
    if links is None:
        return None
    other = entries.alternative()
    return Excluded(links, None if other is None else chain(other))


def missed(form: ConicForm, value: float) -> tuple[float, Excluded] | None:
    r"""Return a limit near a value that no point attains, and the proof; None where none is found.

    No point has :math:`q^T x \le v`, and no multipliers show more than v: the optimum is v, or
    between v and the value. Nothing is claimed where the constraints alone have a face: there a
    duality gap may leave an optimum above v that is attained.

    Parameters
    ----------
    form : ConicForm
        A program with a linear objective.
    value : float
        Its objective at a feasible point, without the constant.
    """
    if form.P.nnz or all(c.kind != "psd" for c in form.cones) or not np.isfinite(value):
        return None
    entries, size = Entries.of(form), max(form.unit, abs(value))
    if Face(entries).next() is not None:
        return None
    for limit in dict.fromkeys((0.0, *(float(f"{value:.{k}g}") for k in (3, 6)))):
        if abs(limit - value) <= CLOSE * size:
            chain = excluded(entries.at_most(form.q, limit))
            if chain is not None and chain.others is not None:
                return limit, chain
    return None


# Room of a point in its curved cones, as a share of the largest entry of a block.
ROOM = (1e-3, 1e-6, 1e-9)


def roomy(form: ConicForm, x: Floats) -> bool:
    """Whether near a point one is proved to satisfy all rows, those of curved cones with room.

    It satisfies rows whose sides are less by a vector inside their cones.
    """
    s = form.slack(x)
    return any(_roomy(form, x, s, share) for share in ROOM)


def _roomy(form: ConicForm, x: Floats, s: Floats, share: float) -> bool:
    inner = np.zeros(form.b.size)
    for c in form.cones:
        at, size = np.arange(c.start, c.stop), share * np.abs(s[c.start : c.stop]).max(initial=0.0)
        if c.kind in ("zero", "nonneg") or not at.size:
            continue
        if not size > FLOOR:
            return False
        if c.kind == "psd":
            inner[at[c.diagonal]] = size
        elif c.kind == "soc":
            inner[at[0]] = size
        else:
            ways = [-1.0, 1.0, 1.0] if c.kind == "exp" else [1.0, 1.0, 0.0]
            inner[at] = size * np.tile(ways, at.size // 3)
    b = form.b - inner
    rounded = np.abs((form.b - b) - inner) > 1e-3 * np.abs(inner)  # less than that stays inside
    return not rounded.any() and feasible_near(form.A, b, form.cones, x) is not None


def unlimited(form: ConicForm, x: Floats) -> tuple[Link, ...] | None:
    r"""Return the proof that :math:`\inf q^T x = -\infty`, None where none is found.

    No multipliers satisfy :math:`A^T z = -q,\; z \in K^*`, and a point has room in every curved
    cone: then a finite infimum would have some (strong duality).

    Examples
    --------
    Maximise the logarithm of a number:

    >>> from optfair.solution.conic_form import ConicForm
    >>> A, b = -sp.csc_array([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]), np.array([0.0, 1.0, 0.0])
    >>> nothing = sp.csc_array((2, 2))
    >>> form = ConicForm(nothing, np.array([-1.0, 0.0]), 0.0, A, b, (Cone("exp", 0, 3),))
    >>> links = unlimited(form, np.array([0.0, 2.0]))
    >>> links is not None and not unlimited_fault(form, np.array([0.0, 2.0]), links)
    True
    """
    own = None if form.P.nnz or form.rounded else Entries.of(form).alternative(form.q)
    if own is None or own.rows.nnz > ENTRIES or (links := chain(own)) is None:
        return None
    return links if roomy(form, x) else None


def unlimited_fault(form: ConicForm, x: Floats, links: Iterable[Link]) -> str:
    """Say why an objective is not proved to have no limit, in exact arithmetic; empty where it is."""
    own = None if form.P.nnz or form.rounded else Entries.of(form).alternative(form.q)
    if own is None:
        return "the objective is not linear, or rows are not known exactly"
    if x.shape != form.q.shape or not roomy(form, x):
        return "no point is proved to have room in the curved cones"
    return chain_fault(own, links)
