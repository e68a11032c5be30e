"""Proofs in numbers that a program without floats can check: steps, exact multipliers, points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.proofs import check_proof
from optfair.proofs.columns import (
    Rows,
    Trace,
    declared_bounds,
    declared_steps,
    linear_rows,
    propagated,
    with_cut,
)
from optfair.proofs.cones import SecondOrder, beside_diagonals
from optfair.proofs.digits import chosen_columns, solve_exactly
from optfair.proofs.moves import inside
from optfair.proofs.narrowed import Narrowed
from optfair.proofs.residual import in_dual
from optfair.proofs.rounding import ROOT, UNIT, Floats, length

if TYPE_CHECKING:
    from optfair.solution.conic_form import ConicForm


# Times that columns which a move opens are made 0 with the others.
ROUNDS = 30
# What a column may cost, as a share of the objective, before its residual is made 0.
DEAR = 1e-9
# Cones of multipliers below this share of the largest are taken to have none, if need be.
FAINT = 1e-8
# Shares of the diagonal that a semidefinite multiplier is raised by until it is proved to be one.
LIFTS = (0.0, 1e-14, 1e-13, 1e-12, 1e-11, 1e-10, 1e-8)

# Least weight of a multiplier that may move by little: far above what makes equations depend.
LITTLE = 1e-8

# Binary digits of multipliers of few.
DIGITS = 24

# (column, whether from above, limit)
Given = tuple[int, int, int]


def plain(value: float) -> int | str:
    """Return a double as an integer where it is one of usual size, else in hexadecimal.

    Examples
    --------
    >>> plain(3.0), plain(0.1)
    (3, '0x1.999999999999ap-4')
    """
    value = float(value)
    return int(value) if abs(value) < 2**53 and value == int(value) else value.hex()


def _plains(values: Any) -> list[int | str]:
    return [plain(v) for v in np.asarray(values, dtype=float).tolist()]


def _triplets(M: Any) -> list[list[Any]]:
    entries = sp.csc_array(M)
    entries.sum_duplicates()
    entries.eliminate_zeros()
    triplets = entries.tocoo()
    return [triplets.row.tolist(), triplets.col.tolist(), _plains(triplets.data)]


def declared(form: ConicForm) -> tuple[ConicForm, Floats]:
    """Return a program in the entries that were declared, and what multipliers are multiplied by.

    Raises
    ------
    Rejected
        They are not known of some entry that stands times the root of 2.
    """
    if (plain := form.plain) is None:
        raise check_proof.Rejected("two floats have the product with the root of 2 in a row")
    return plain, np.where(beside_diagonals(form.cones, form.b.size), ROOT, 1.0)


def form_record(form: ConicForm, integer: Sequence[int] = ()) -> dict[str, Any]:
    """Return the numbers of a cone program as declared, ready for JSON, every one of them exact."""
    form, _ = declared(form)
    cones = [
        [c.kind, c.stop - c.start, [c.order, c.upper] if c.kind == "psd" else plain(c.power)]
        if c.kind in ("psd", "pow")
        else [c.kind, c.stop - c.start, None]
        for c in form.cones
    ]
    return {
        "rows": int(form.b.size),
        "columns": int(form.q.size),
        "sign": int(form.sign),
        "offset": plain(form.offset),
        "q": _plains(form.q),
        "P": _triplets(form.P),
        "A": _triplets(form.A),
        "b": _plains(form.b),
        "cones": cones,
        "integer": [int(j) for j in integer],
        "names": {k: [int(at.start), int(at.stop)] for k, at in form.columns.items()},
    }


@dataclass(frozen=True)
class Move:
    """Ratios over one denominator that are added to some entries of a vector of floats."""

    places: tuple[int, ...] = ()
    numerators: tuple[int, ...] = ()
    denominator: int = 1


def vector_record(values: Floats, move: Move | None = None) -> list[int | str]:
    """Return a vector of floats, and what is added to it, ready for JSON."""
    record = _plains(values)
    if move is None:
        return record
    for i, v in zip(move.places, move.numerators, strict=True):
        record[i] = ratio(Fraction(float(values[i])) + Fraction(v, move.denominator))
    return record


def ratio(value: Fraction) -> int | str:
    """Return a fraction as an integer, or as two hexadecimal ones.

    Examples
    --------
    >>> ratio(Fraction(-7, 20)), ratio(Fraction(3))
    ('-0x7/0x14', 3)
    """
    small = value.denominator == 1 and abs(value) < 2**53
    return int(value) if small else f"{hex(value.numerator)}/{hex(value.denominator)}"


@dataclass(frozen=True, eq=False)
class Leaf:
    """Multipliers with the steps that pay for what they leave over.

    Attributes
    ----------
    record : dict
        Ready for JSON.
    cut : float or None
        The value of the objective that steps use as its upper bound, if one does.
    """

    record: dict[str, Any]
    cut: float | None


def leaf_of(
    form: ConicForm,
    exact: check_proof.Form,
    z: Floats,
    x: Floats | None,
    cut: float | None = None,
    given: Sequence[Given] = (),
    unit: float = 1.0,
    faint: float = 0.0,
) -> Leaf:
    r"""Return what multipliers prove, in numbers that can be checked without floats.

    Columns whose residual :math:`(Px + q + A^T z)_j` meets a bound that is not there get bounds
    by propagation; those that stay open get a residual of exactly 0 by a move of few multipliers,
    the solution of linear equations in rationals.

    Parameters
    ----------
    form : ConicForm
        The program.
    exact : check_proof.Form
        The same in integers.
    z : array (m,)
        Multipliers; moved into the dual cone first.
    x : array (n,) or None
        Where curvature is measured; None for a contradiction of the constraints alone.
    cut : float, optional
        A value of the objective that rows may use as its upper bound.
    given : sequence of (column, whether from above, limit)
        Bounds of the branch.
    unit : float
        Size of the objective: what a column may cost is a share of it.
    faint : float
        Cones whose multipliers are below such a share of the largest have none.
    """
    form, factors = declared(form)
    z = factors * z
    z = _inside(form, z, faint * float(np.abs(z).max(initial=0.0)))
    costs = x is not None
    point = x if x is not None else np.zeros(form.q.size)
    rows = linear_rows(form)
    lower, upper = declared_bounds(rows)
    for j, above, limit in given:
        if above:
            upper[j] = min(upper[j], limit)
        else:
            lower[j] = max(lower[j], limit)
    r = _residual(exact, z, point, costs)
    signs = np.array([(v > 0) - (v < 0) for v in r])
    trace: Trace = []
    used = None
    if _open(signs, lower, upper).any():
        if costs and cut is not None and not form.P.nnz and form.q.any():
            rows, used = with_cut(form, rows, cut), cut

        def suffice(low: Floats, high: Floats) -> bool:
            return not _open(signs, low, high).any()

        lower, upper = propagated(rows, lower, upper, suffice, trace=trace)
    zeroed = _open(signs, lower, upper)
    if costs:
        zeroed |= _dear(form, r, lower, upper, point, unit)
    moved, raised, best = (Move(), Move()), z, (signs, (Move(), Move()), z)
    for _ in range(ROUNDS if zeroed.any() else 0):
        moved_to = _moved(form, z, r, np.flatnonzero(zeroed), costs)
        if moved_to is None:
            break
        moved, raised = moved_to
        r = _residual(exact, raised, point, costs, *moved)
        now = np.array([(v > 0) - (v < 0) for v in r])
        still = _open(now, lower, upper)
        if still.sum() < _open(best[0], lower, upper).sum() or not still.any():
            best = (now, moved, raised)
        if not (still & ~zeroed).any():
            break  # nothing is left, or the same would be asked again
        zeroed |= still
        r = _residual(exact, z, point, costs)
    signs, moved, z = best
    curved = np.zeros(form.q.size, dtype=bool)
    if costs and form.P.nnz and form.curvature.shift != 0.0:
        curved[sp.csc_array(form.P).indices] = True
    steps = needed_steps(rows, trace, (signs > 0) | curved, (signs < 0) | curved, given)
    record = {
        "against": "objective" if costs else "constraints",
        "multipliers": vector_record(z, moved[0]),
        "steps": steps,
    }
    if costs and form.P.nnz:
        record["point"] = vector_record(point, moved[1])
    return Leaf(record, used)


def starts(form: ConicForm, x: Floats, z: Floats) -> Iterator[tuple[Floats, Floats, float]]:
    """Yield points, multipliers, and the share below which cones of these have none."""
    yield x, z, 0.0
    yield x, short(z), 0.0
    yield x, z, FAINT
    for quick in (True, False):
        near = inside(form, x, z, quick=quick)
        if near is not None:
            yield x, near, 0.0
    if form.P.nnz and not form.q.any():  # squares are 0 at least
        yield 0.0 * x, 0.0 * z, 0.0


def short(z: Floats) -> Floats:
    """Return multipliers in few digits, which those that were rounded often are exactly."""
    up = DIGITS - int(np.frexp(np.abs(z).max(initial=0.0))[1])
    return np.asarray(np.ldexp(np.round(np.ldexp(z, up)), -up))


def leaves_of(
    form: ConicForm, exact: check_proof.Form, x: Floats, z: Floats, scale: float, cut: float
) -> Iterator[Leaf]:
    """Yield what multipliers prove: as a bound moved them, on their face, as they are, and nearby.

    Parameters
    ----------
    form : ConicForm
        The program as compiled.
    exact : check_proof.Form
        The same as declared, with its objective times the scale.
    x, z : array
        A point, and multipliers of the program as compiled.
    scale : float
        What its objective and multipliers are multiplied by.
    cut : float
        The objective of the point then: what rows may use as an upper bound.
    """
    plain, factors = declared(form)
    costs = {"P": plain.P * scale, "q": plain.q * scale, "offset": plain.offset * scale}
    own = replace(plain, **costs)
    size = max(own.unit, abs(own.objective(x) - own.offset))
    if (moved := form.lower_bound(x, z).by) is not None:
        yield leaf_of(own, exact, factors * moved * scale, x, cut, unit=size)
    if (face := Narrowed.of(form, z, plain, factors)) is not None:
        less = replace(face.form, **costs)
        inner = check_proof.Form(form_record(less))
        for at, near, faint in starts(less, x, face.z * scale):
            leaf = leaf_of(less, inner, near, at, cut, unit=size, faint=faint)
            if (record := face.whole(leaf.record, z.size)) is not None:
                yield replace(leaf, record=record)
    for at, near, faint in starts(own, x, factors * z * scale):
        yield leaf_of(own, exact, near, at, cut, unit=size, faint=faint)


def contradiction(form: ConicForm, exact: check_proof.Form, z: Floats) -> Leaf:
    """Return what multipliers of constraints exclude; in few digits, or on a face, if need be."""
    plain, factors = declared(form)

    def tried() -> Iterator[Leaf]:
        for own in (factors * z, short(factors * z)):
            yield leaf_of(plain, exact, own, None)
        if (face := Narrowed.of(form, z, plain, factors)) is not None:
            leaf = leaf_of(face.form, check_proof.Form(form_record(face.form)), face.z, None)
            if (record := face.whole(leaf.record, z.size)) is not None:
                yield replace(leaf, record=record)

    for leaf in tried():
        with suppress(check_proof.Rejected):
            if check_proof.lower(exact, leaf.record, (), {}) is None:
                break
    return leaf


def _inside(form: ConicForm, z: Floats, faint: float) -> Floats:
    """Return multipliers nearby that the checker finds in the dual cone."""
    z = in_dual(form.cones, z)
    for c in form.cones:
        if c.kind not in ("soc", "psd"):
            continue
        at = slice(c.start, c.stop)
        own = z[at] = z[at] * (np.abs(z[at]).max(initial=0.0) > faint)
        axis = c.diagonal if c.kind == "psd" else np.arange(own.size) == 0
        more = [c.order, c.upper]
        for lift in LIFTS:
            tried = np.where(axis, own + lift * np.abs(own).max(initial=0.0), own)
            if lift < LIFTS[-1] and c.order**2 > check_proof.SMALL and _edge(c.matrix(tried)):
                continue
            whole, _ = check_proof.integers([Fraction(v) for v in tried.tolist()])
            if check_proof.inside(c.kind, whole, more, True):
                z[at] = tried
                break
    return z


def _edge(M: Floats) -> bool:
    """Return whether a matrix, with a diagonal of 1, has less of a margin than the checker needs."""
    roots = np.sqrt(np.diag(M))
    if not (roots > 0.0).all():
        return False
    return bool(np.linalg.eigvalsh(M / roots / roots[:, None])[0] < -check_proof.MARGINS[0])


def _residual(
    exact: check_proof.Form,
    z: Floats,
    x: Floats,
    costs: bool,
    move: Move | None = None,
    moved_point: Move | None = None,
) -> list[Fraction]:
    """Return Px + q + A'z in fractions; without costs A'z."""
    whole, over = check_proof.vector(vector_record(z, move), exact.m, "multipliers")
    under, bent = 1, [0] * exact.n
    if costs and exact.P:
        point, under = check_proof.vector(vector_record(x, moved_point), exact.n, "point")
        bent = exact.times(exact.P, point, exact.n)
    r = [costs * q * over * under + p * over for q, p in zip(exact.q, bent, strict=True)]
    for i, j, v in exact.A:
        r[j] += v * whole[i] * under
    unit = exact.unit * over * under
    return [Fraction(v, unit) if v else Fraction(0) for v in r]


def _open(signs: Any, lower: Floats, upper: Floats) -> NDArray[np.bool_]:
    """Return the columns whose residual meets a bound that is not there."""
    return np.asarray(((signs > 0) & ~np.isfinite(lower)) | ((signs < 0) & ~np.isfinite(upper)))


def _dear(
    form: ConicForm, r: list[Fraction], lower: Floats, upper: Floats, x: Floats, unit: float
) -> NDArray[np.bool_]:
    """Return the columns whose residual costs much more at its bound than at a point."""
    size = np.array([float(v) for v in r])
    with np.errstate(invalid="ignore"):
        cost = np.where(size > 0.0, size * (lower - x), size * (upper - x))
    # a residual is rounding where it is small, and where the point may move along a curve
    small = np.abs(size) <= 1e-6 * (1.0 + np.abs(size).max(initial=0.0))
    small[form.P.indices] = True
    return np.asarray(np.isfinite(cost) & (cost < -DEAR * unit) & small)


def _moved(
    form: ConicForm, z: Floats, r: list[Fraction], at: NDArray[Any], costs: bool
) -> tuple[tuple[Move, Move], Floats] | None:
    """Return what makes some residuals 0, and the multipliers with heads raised for it.

    Few multipliers are moved, and of a quadratic objective the point where it is measured.
    """
    room, columns = _room(form, z), form.columns_of_rows
    if costs and form.P.nnz:
        columns = sp.csc_array(sp.vstack([columns, form.P]))
        room = np.concatenate([room, np.full(form.q.size, np.inf)])
    moved = _solved(sp.csr_array(columns[:, at].T), room, [-r[i] for i in at])
    if moved is None:
        return None
    places, numerators, under = moved
    sizes, shares = np.zeros(z.size), {}
    parts: list[list[tuple[int, int]]] = [[], []]
    for i, v in zip(places, numerators, strict=True):
        if i >= z.size:
            parts[1].append((i - z.size, v))
            continue
        parts[0].append((i, v))
        share = shares[i] = Fraction(v, under)
        sizes[i] = np.nextafter(abs(float(share)), np.inf)
        if room[i] < np.inf and share < 0 and -share > Fraction(float(z[i])):
            return None
    raised = z.copy()
    for c in form.cones:
        behind = sizes[c.start : c.stop]
        if c.kind in ("soc", "psd") and behind.any():
            where = np.arange(c.start, c.stop)
            exact = [Fraction(float(z[i])) + shares.get(i, 0) for i in where.tolist()]
            whole, _ = check_proof.integers(exact)
            if check_proof.inside(c.kind, whole, [c.order, c.upper], True):
                continue  # it had room
            head = where[:1] if c.kind == "soc" else where[c.diagonal]
            raised[head] = np.nextafter(raised[head] + length(behind) * (1.0 + 4.0 * UNIT), np.inf)
    moves = [Move(tuple(i for i, _ in p), tuple(v for _, v in p), under) for p in parts]
    return (moves[0], moves[1]), raised


def _room(form: ConicForm, z: Floats) -> Floats:
    """Return how far each multiplier may move: rows of equalities, and behind heads, freely."""
    room = np.zeros(z.size)
    for c in form.cones:
        at = slice(c.start, c.stop)
        if c.kind == "zero":
            room[at] = np.inf
        elif c.kind == "nonneg":
            room[at] = z[at]
        elif c.kind == "soc" and z[at].any():
            room[c.start + 1 : c.stop] = np.inf
        elif c.kind == "psd" and z[at].any():
            room[at] = np.where(c.diagonal, c.depth(z[at]), np.inf)
    if curved := SecondOrder.of(form.cones):
        room[curved.heads] = curved.depths(z)
    return room


def needed_steps(
    rows: Rows, trace: Trace, low: Any, high: Any, given: Sequence[Given] = ()
) -> list[list[Any]]:
    """Return the steps of a trace that some bounds rest on: row, column, side, value.

    Parameters
    ----------
    rows : Rows
        What was propagated.
    trace : list
        What `propagated` left there.
    low, high : array (n,) of bool
        Columns whose lower and upper bounds are needed.
    given : sequence of (column, whether from above, limit)
        Bounds that need no step.
    """
    A = rows.A
    need = np.array([low, high])
    sides = np.zeros((2, A.shape[0]), dtype=bool)
    kept: list[tuple[Any, Any, Any, Any]] = []
    first, second = np.full(A.shape[0], -1), np.full(A.shape[0], -1)
    first[rows.behind[0]], second[rows.behind[0]] = rows.behind[1], rows.behind[2]
    for row, column, side, value in reversed(trace):
        if not row.size:
            continue
        if column[0] < 0:
            keep = sides[side, row]
            sides[side[keep], row[keep]] = False
            for i in np.unique(np.concatenate([first[row[keep]], second[row[keep]]])):
                _rest_on(A, int(i), 1, -1, need)
        else:
            keep = need[side, column]
            need[side[keep], column[keep]] = False
            entry = _entries(A, row[keep], column[keep])
            sign = np.where((entry > 0.0) == (side[keep] == 1), 1, -1)
            lines = np.column_stack([row[keep], sign])
            lines, own, count = np.unique(lines, axis=0, return_inverse=True, return_counts=True)
            alone = np.full(len(lines), -1)
            alone[own.ravel()] = column[keep]
            for (i, way), j, many in zip(lines.tolist(), alone, count, strict=True):
                _rest_on(A, i, way, int(j) if many == 1 else -1, need)
                if first[i] >= 0:
                    sides[1 if way > 0 else 0, i] = True
        order = np.lexsort((column[keep], row[keep]))
        kept.append(tuple(part[keep][order] for part in (row, column, side, value)))
    for j, above, _ in given:
        need[above, j] = False
    row, column, side, value = declared_steps(rows)
    keep = need[side, column]
    kept.append((row[keep], column[keep], side[keep], value[keep]))
    return [
        [int(i), int(j), int(s), plain(v)]
        for group in reversed(kept)
        for i, j, s, v in zip(*group, strict=True)
    ]


def _rest_on(A: Any, i: int, sign: int, own: int, need: NDArray[np.bool_]) -> None:
    """Mark the bounds that the least activity of a row is made of, but for one column."""
    at = slice(A.indptr[i], A.indptr[i + 1])
    columns, entries = A.indices[at], sign * A.data[at]
    other = (columns != own) & (entries != 0.0)
    need[np.where(entries[other] > 0.0, 0, 1), columns[other]] = True


def _entries(A: Any, row: Any, column: Any) -> Floats:
    return np.asarray([A[i, j] for i, j in zip(row, column, strict=True)], dtype=float)


def feasible_exactly(
    A: Any, b: Floats, equal: NDArray[Any], x: Floats, room: Floats
) -> Move | None:
    """Return what to add to few entries of x so that some rows hold with equality, in fractions."""
    rows = sp.csr_array(A)[equal]
    exact_x = [Fraction(float(v)) for v in x]
    sides = []
    for k, i in enumerate(equal):
        own = slice(rows.indptr[k], rows.indptr[k + 1])
        total = Fraction(float(b[i]))
        for a, j in zip(rows.data[own], rows.indices[own], strict=True):
            total -= Fraction(float(a)) * exact_x[j]
        sides.append(total)
    if not any(sides):
        return Move()
    moved = _solved(rows, room, sides)
    return None if moved is None else Move(tuple(moved[0]), tuple(moved[1]), moved[2])


def _solved(M: Any, room: Floats, sides: list[Fraction]) -> tuple[list[int], list[int], int] | None:
    """Return few columns with room, and their values over one denominator, that solve equations."""
    used = np.flatnonzero((np.diff(sp.csc_array(M).indptr) > 0) & (room > 0.0))
    chosen = chosen_columns(M[:, used], np.clip(room[used], LITTLE, 1.0)) if used.size else None
    if chosen is None:
        return None
    equations, own = chosen
    solved = solve_exactly(M[equations][:, used[own]], [sides[k] for k in equations])
    return None if solved is None else (used[own].tolist(), *solved)
