"""The compiled cone program in its units, all powers of two, and the residuals of a primal-dual pair on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spla
from numpy.typing import NDArray

from optfair.numbers import Floats, Indices
from optfair.proofs.bounds import LowerBound, Unpaid, lower_bound
from optfair.proofs.columns import Rooted, declared_bounds, linear_rows
from optfair.proofs.cones import Cone, SecondOrder
from optfair.proofs.definiteness import Definiteness, definiteness
from optfair.proofs.rounding import Products, coordinates

# Binary digits by which lines of a block must differ, and by which all numbers must come nearer.
APART = 10.0
# Binary digits below the largest sides at which sides are rounding, and which share is largest:
# a few may stand for none.
SIDES, MANY = 40, 0.99
# Weight of sides and costs beside the numbers of curved programs without blocks.
LIGHT = 0.1
# Coefficients below such a share of the largest in their row and of that in their column.
NOISE = 1e-13
# Passes that bring the largest entry of every row and column near 1.
PASSES = 8
# Steps of the least squares.
STEPS = 200
# Numbers of a program up to which units are looked for, and the largest exponent of a unit.
LARGEST, MOST = 1_000_000, 250.0
# Largest exponent of a number then: none is lost below or above what floats hold.
HELD = 500.0


def congruence(form: ConicForm) -> tuple[Floats, Floats] | None:
    r"""Return powers of two for rows and columns that undo :math:`S \mapsto D S D`.

    With :math:`D = \operatorname{diag}(2^{d_i})` a block S is positive semidefinite where DSD is, a
    curved objective P is convex where DPD is, and no digit changes. The exponents of lines, rows,
    columns, sides and costs solve

    .. math::
        \min \sum_{a_{kl} \ne 0} (\log_2 |a_{kl}| + e_k + c_l)^2
        + \sum_{p_{kl} \ne 0} (\log_2 |p_{kl}| + t + c_k + c_l)^2, \qquad
        e_k = d_i + d_j \text{ for an entry } (i, j),

    over all numbers of the program, which brings them near 1 as far as units can; t is that of
    the costs.

    Parameters
    ----------
    form : ConicForm
        The program.

    Returns
    -------
    (rows, columns) or None
        None where there is neither a block nor curvature, or its lines, and the columns that
        bend, are in one unit nearly.
    """
    m, n = form.A.shape
    blocks = [c for c in form.cones if c.kind == "psd" and c.order > 1]
    if not (blocks or form.P.nnz) or form.A.nnz + form.P.nnz + m + n > LARGEST:
        return None
    if not blocks:  # most programs are seen to need none by their largest and least number
        sizes = np.abs(np.concatenate([form.A.data, form.P.data]))
        sizes = sizes[(sizes > 0.0) & np.isfinite(sizes)]
        if not sizes.size or np.log2(sizes.max()) - np.log2(sizes.min()) < 2.0 * APART:
            return None
    # whose exponents that of a row is the sum of: of its cone, or of two lines
    first, second, single, lines = np.arange(m), np.arange(m), np.ones(m, dtype=bool), m
    for c in form.cones:
        at = np.arange(c.start, c.stop)
        if c.kind == "psd":
            i, j = c.places
            first[at], second[at], single[at] = lines + i, lines + j, False
            lines += c.order
        elif c.kind in ("exp", "pow"):  # cones of three entries, one after the other
            first[at] = at - (at - c.start) % 3
        elif c.kind == "soc":
            first[at] = c.start
    costs = lines + n + 1  # behind the columns stand the unit of sides and that of costs
    first, second = np.append(first, costs), np.append(second, costs)
    cost, side = np.flatnonzero(form.q), np.flatnonzero((form.b != 0.0) & np.isfinite(form.b))
    row, column, entry = coordinates(form.columns_of_rows)
    *bent, curvature = coordinates(form.bending.rows)
    upper = bent[0] <= bent[1]
    # numbers, and the row and the columns whose units they are in
    parts: tuple[tuple[Any, ...], ...] = (
        (entry, row, column, None),
        (form.b[side], side, np.full(side.size, n), None),
        (form.q[cost], np.full(cost.size, m), cost, None),
        (curvature[upper], np.full(upper.sum(), m), bent[1][upper], bent[0][upper]),
    )
    # sides and costs of any size go with the same units: they only tell the rest apart, but for
    # those of lines; a side that is next to nothing is rounding
    usual = _usual(np.abs(form.b[side])) if side.size and not blocks else 0.0
    logs, weight, places = [], [], []
    for k, (values, row, column, other) in enumerate(parts):
        sizes = np.abs(values)
        used = (sizes > (usual if k == 1 else 0.0)) & np.isfinite(sizes)
        if k in (0, 3) and not blocks:
            used &= sizes > NOISE * _least_largest(sizes, row if other is None else other, column)
        logs.append(np.log2(sizes[used]))
        weight.append(np.full(logs[-1].size, LIGHT if k in (1, 2) and not blocks else 1.0))
        places.append((row[used], column[used], (column if other is None else other)[used]))
    logarithms, share = np.concatenate(logs), np.concatenate(weight)
    counted = share == 1.0
    if not counted.any() or np.ptp(logarithms[counted]) < 2.0 * APART:
        return None
    row, column, other = (np.concatenate(part) for part in zip(*places, strict=True))
    twice = np.append(np.where(single, 0.0, 1.0), 0.0)[row]
    squared = np.arange(logarithms.size) >= logarithms.size - logs[-1].size
    data = np.concatenate([np.ones(2 * logarithms.size), twice, np.where(squared, 1.0, 0.0)])
    index = np.concatenate([first[row], column + lines, second[row], other + lines])
    where = np.tile(np.arange(logarithms.size), 4)[data > 0.0], index[data > 0.0]
    E = sp.csr_array((data[data > 0.0], where), (logarithms.size, costs + 1))
    weighed = sp.csr_array(sp.diags_array(share) @ E)
    powers = np.round(
        spla.lsmr(weighed, -share * logarithms, atol=1e-10, btol=1e-10, maxiter=STEPS)[0]
    )
    left, columns = logarithms + E @ powers, powers[lines : lines + n]
    apart = np.ptp(powers[m:lines] if blocks else columns)
    if apart < APART or np.ptp(logarithms[counted]) - np.ptp(left[counted]) < APART:
        return None
    if np.abs(powers).max() > MOST or np.abs(left).max() > HELD:
        return None
    rows = powers[first[:m]] + np.where(single, 0.0, powers[second[:m]])
    if side.size and not blocks:  # entries do not say in which unit points are: their sides do
        near = np.exp2(np.log2(np.abs(form.b[side])) + rows[side])
        middle = np.round(np.log2(np.median(near[near > _usual(near)])))
        rows, columns = rows - middle, columns + middle
    return np.exp2(rows), np.exp2(columns)


def equilibrated(
    row: Indices, column: Indices, sizes: Floats, shape: tuple[int, int]
) -> tuple[Floats, Floats]:
    """Return factors of rows and columns that bring the largest entry of each near 1."""
    down, along = np.ones(shape[0]), np.ones(shape[1])
    for _ in range(PASSES):
        scaled = down[row] * sizes * along[column]
        for at, units in ((row, down), (column, along)):
            largest = np.zeros(units.size)
            np.maximum.at(largest, at, scaled)
            units /= np.sqrt(np.where(largest > 0.0, largest, 1.0))
    return down, along


def _least_largest(sizes: Floats, row: Indices, column: Indices) -> Floats:
    """Return the lesser of the largest entry of the row and that of the column of each entry."""
    each = []
    for place in (row, column):
        largest = np.zeros(place.max(initial=-1) + 1)
        np.maximum.at(largest, place, sizes)
        each.append(largest[place])
    return np.minimum(*each)


def _usual(sides: Floats) -> float:
    """Return a size below which sides are rounding of the others."""
    return float(np.ldexp(np.quantile(sides, MANY), -SIDES))


# Coefficients outside this range are handed over in other units.
SMALL, LARGE = 1e-6, 1e6
# So are columns of curved programs whose largest coefficient is less than this, or its inverse more.
COLUMN = 1e-5
# Rounds in which rows and columns are brought near 1 in turn.
BALANCING = 60
# Violations of rows below this share of their terms are as good as none.
NEGLIGIBLE = 1e-12
# Typical coefficients of an objective that a simplex method is handed as they stand.
ORDINARY = 1e4
# What is computed once of the matrices, and of the cones, whatever the other numbers are.
FACTS = {
    "P": ("curvature", "bending"),
    "A": ("columns_of_rows", "rows", "sizes", "products", "across"),
    "cones": ("equal", "nonnegative"),
}


@dataclass(frozen=True)
class ConicResiduals:
    """Relative residuals of a primal-dual pair; all zero at an optimum.

    The bound holds in exact arithmetic, as far as ``unpaid`` says; it is -inf, with ``fault``,
    where nothing is proved. The estimate takes the multipliers at their word.
    ``rows`` is the largest violation of a linear row relative to its own terms.
    """

    primal: float
    dual: float
    gap: float
    complementarity: float
    objective: float
    bound: float
    unpaid: Unpaid | None = None
    fault: str = ""
    estimate: float = -np.inf
    rows: float = 0.0


@dataclass(frozen=True, eq=False)
class ConicForm:
    """Minimise ½xᵀPx + qᵀx + offset subject to Ax + s = b, s in a product of cones.

    Parameters
    ----------
    P : sparse (n, n)
        Symmetric, positive semidefinite; all zero for a linear objective.
    q, offset
        Linear part and constant of the objective.
    A, b
        Rows of the cone constraints.
    cones : tuple of Cone
        Blocks of rows, in order.
    columns : dict
        Variable name -> slice of x.
    sign : float
        -1 when the declared problem maximises, so declared objective = sign * compiled.
    rooted : tuple of Rooted
        Quadratic forms of which the rows have rounded roots.
    """

    P: Any
    q: Floats
    offset: float
    A: Any
    b: Floats
    cones: tuple[Cone, ...]
    columns: dict[str, slice] = field(default_factory=dict)
    sign: float = 1.0
    rooted: tuple[Rooted, ...] = ()

    def moved(self, numbers: Mapping[str, Any]) -> ConicForm:
        """Return the form with other numbers in the same places; what is known of the rest stays."""
        made = replace(self, **numbers)
        for rests_on, facts in FACTS.items():
            if rests_on not in numbers:
                known = {fact: self.__dict__[fact] for fact in facts if fact in self.__dict__}
                made.__dict__.update(known)
        # that no units are needed is said by the rows, and whether there is curvature
        if not {"A", "P"} & set(numbers) and self.__dict__.get("units", ()) is None:
            made.__dict__["units"] = None
        return made

    @property
    def polyhedral(self) -> bool:
        """Whether every cone is a half-line or a point and the objective is linear."""
        straight = self.P.nnz == 0 and not self.rooted
        return straight and all(c.kind in ("zero", "nonneg") for c in self.cones)

    def objective(self, x: Floats) -> float:
        """Return the compiled objective at x, without the declared sign."""
        bent = 0.5 * x @ self.bending.times(x) if self.P.nnz else 0.0
        return float(bent + self.q @ x + self.offset)

    def slack(self, x: Floats) -> Floats:
        """Return s = b - A x."""
        return np.asarray(self.b - self.products.times(x), dtype=float)

    def dual_objective(self, x: Floats, z: Floats) -> float:
        """Return the Lagrangian bound -½xᵀPx - bᵀz + offset of a dual feasible pair."""
        bent = 0.5 * x @ self.bending.times(x) if self.P.nnz else 0.0
        return float(-bent - self.b @ z + self.offset)

    def residuals(self, x: Floats, z: Floats) -> ConicResiduals:
        """Return the relative residuals of the pair (x, z).

        Feasibility is relative to 1 + the largest right-hand side or objective entry,
        the gap to max(1, abs(objective)).
        """
        s = self.slack(x)
        primal, outside, jordan, leak = self._cones(s, z)
        Px = self.bending.times(x)
        r = Px + self.q + self.across.times(z)
        # each column by its own scale, one large cost must not excuse the others; what large
        # multipliers leave by cancelling in double precision is no residual
        rounding = 16.0 * np.finfo(float).eps * self.across.terms(np.abs(z))
        own = np.maximum(np.abs(r) - rounding, 0.0) / (1.0 + np.abs(self.q) + np.abs(Px))
        stationarity = float(own.max(initial=0.0))
        scale = 1.0 + max(_largest(self.q), _largest(Px))
        objective = self.objective(x)
        proved = lower_bound(self, x, z, objective)
        unit = max(1.0, abs(objective))
        return ConicResiduals(
            primal=primal / (1.0 + _largest(self.b)),
            dual=max(stationarity, outside / scale),
            gap=abs(objective - proved.value) / unit,
            complementarity=jordan / max(unit, scale),
            objective=objective,
            bound=proved.value,
            unpaid=proved.unpaid,
            fault=proved.fault,
            estimate=self.dual_objective(x, z) + self._least(r, x) - leak,
            rows=self._rows(x, s),
        )

    def _cones(self, s: Floats, z: Floats) -> tuple[float, float, float, float]:
        """Return how far slacks and multipliers are outside the cones, and apart in them.

        The last is what the multipliers' distances are worth at the slacks.
        """
        figures = [(0.0, 0.0, 0.0, 0.0)]
        if curved := SecondOrder.of(self.cones):
            off, outside = curved.distances(s), curved.distances(z)
            leak = float(outside @ curved.sums(np.abs(s)))
            figures.append((_largest(off), _largest(outside), curved.complementarity(s, z), leak))
        for c in self.cones:
            if c.kind != "soc":
                si, zi = s[c.start : c.stop], z[c.start : c.stop]
                o = c.distance(zi, dual=True)
                leak = o * float(np.abs(si).sum())
                figures.append((c.distance(si), o, c.complementarity(si, zi), leak))
        primal, dual, apart, leaks = np.array(figures).T
        return float(primal.max()), float(dual.max()), float(apart.max()), float(leaks.sum())

    def _rows(self, x: Floats, s: Floats) -> float:
        """Return the largest violation of a linear row relative to the size of its terms.

        A column counts for its own size, at least for one number in it: rows and columns may
        be in any units.
        """
        outside = np.where(
            self.equal, np.abs(s), np.where(self.nonnegative, np.maximum(-s, 0), 0.0)
        )
        at = np.flatnonzero(outside)
        if not at.size:
            return 0.0
        sides = np.abs(self.b[at])
        size = np.maximum(self.products.terms(np.abs(x))[at], sides)
        if (outside[at] <= NEGLIGIBLE * size).all():  # units of columns would only make it less
            return float((outside[at] / np.where(size > 0.0, size, 1.0)).max())
        own = np.maximum(np.abs(x), self.column_units)
        size = np.maximum(self.products.terms(own)[at], sides)
        return float((outside[at] / np.where(size > 0.0, size, 1.0)).max())

    @cached_property
    def column_units(self) -> Floats:
        """Size of a number in each column: what equilibrates the rows with their right-hand sides."""
        m, n = self.A.shape
        row, column, entry = coordinates(self.columns_of_rows)
        i = np.concatenate([row, np.arange(m)])
        j = np.concatenate([column, np.full(m, n)])
        sizes = np.abs(np.concatenate([entry, self.b]))
        used = (sizes > 0.0) & np.isfinite(sizes)
        units = equilibrated(i[used], j[used], sizes[used], (m, n + 1))[1]
        return np.asarray(units[:-1] / units[-1])

    @cached_property
    def units(self) -> tuple[Floats, Floats] | None:
        """Powers of two for rows and columns, None where the numbers are near 1 as they stand.

        What they bring near 1 is the geometric mean of every row and column, and of the
        right-hand sides: that undoes any change of units. Rows of one cone share a unit, but for
        blocks whose lines are in several.
        """
        return self._balanced() if self.congruent is None else self.congruent[1:]

    @cached_property
    def congruent(self) -> tuple[ConicForm, Floats, Floats] | None:
        """The form with the lines of each block in one unit, with these; None where they are."""
        units = congruence(self)
        if units is None:
            return None
        made = self.in_units(*units)
        back = made.in_units(*(1.0 / u for u in units))
        pairs = ((getattr(self, k), getattr(back, k)) for k in ("P", "q", "A", "b"))
        if not all(_same(one, other) for one, other in pairs):
            return None  # a number left the range of floats
        made.__dict__["congruent"] = None  # its own is
        return made, *units

    def handed(self, integer: NDArray[np.bool_]) -> tuple[ConicForm, Floats, Floats] | None:
        """Return the form in its units, with these; integer columns keep theirs."""
        if not integer.any():
            return self.near_one
        units = self._balanced(integer)
        return None if units is None else (self.in_units(*units), *units)

    def _balanced(self, held: NDArray[np.bool_] | None = None) -> tuple[Floats, Floats] | None:
        """Return powers of two for rows and columns, 1 for those that are held."""
        row, column, entry = coordinates(self.columns_of_rows)
        used = (entry != 0.0) & np.isfinite(entry)
        row, column, sizes = row[used], column[used], np.abs(entry[used])
        near = not sizes.size or (sizes.min() >= SMALL and sizes.max() <= LARGE)
        if near and (self.polyhedral or not sizes.size):
            return None
        m, n = self.A.shape
        # what is tiny in its row and in its column is rounding, and says nothing of units
        in_row, any_column, in_column = np.zeros(m), np.zeros(n), np.zeros(n)
        np.maximum.at(in_row, row, sizes)
        np.maximum.at(any_column, column, sizes)
        # nor does the entry of a bound, which has the unit of its column in any case: its side does
        several, sides = np.bincount(row, minlength=m)[row] > 1, np.abs(self.b)[row]
        stated = ~several & (sides > 0.0) & np.isfinite(sides)
        np.maximum.at(in_column, column[several], sizes[several])
        joined = in_column > 0.0
        np.maximum.at(in_column, column[stated], sizes[stated] / sides[stated])
        in_column = np.where(in_column > 0.0, in_column, any_column)
        most = in_column[in_column > 0.0]
        alike = self.polyhedral or (most.min() >= COLUMN and most.max() <= 1.0 / COLUMN)
        if alike and near:
            return None
        notable = sizes > NOISE * np.minimum(in_row[row], in_column[column])
        row, column, sizes = row[notable], column[notable], sizes[notable]
        if alike and (not sizes.size or (sizes.min() >= SMALL and sizes.max() <= LARGE)):
            return None
        block = np.arange(self.b.size)
        for c in self.cones:
            at = np.arange(c.start, c.stop)
            if c.kind in ("exp", "pow"):  # cones of three entries, one after the other
                block[at] = at - (at - c.start) % 3
            elif c.kind not in ("zero", "nonneg"):
                block[at] = c.start
        logs, row = np.log2(sizes), block[row]
        rows, columns = np.zeros(m), np.zeros(n)
        in_row = np.maximum(np.bincount(row, minlength=m), 1)
        weight = np.asarray(several[notable] | ~joined[column], dtype=float)
        in_column = np.maximum(np.bincount(column, weight, minlength=n), 1)
        for _ in range(BALANCING):
            rows = -np.bincount(row, logs + columns[column], m) / in_row
            columns = -np.bincount(column, weight * (logs + rows[row]), n) / in_column
            if held is not None:
                columns[held] = 0.0
        rows, sides = rows[block], np.abs(self.b)
        with np.errstate(divide="ignore"):
            shift = np.log2(sides) + rows
        shift = shift[(sides > 0.0) & np.isfinite(shift)]
        middle = float(np.median(shift)) if shift.size and held is None else 0.0
        with np.errstate(over="ignore"):
            units = np.exp2(np.round(rows - middle)), np.exp2(np.round(columns + middle))
        fit = all(np.isfinite(u).all() and (u > 0.0).all() for u in units)
        return units if fit and self._bends_alike(units[1]) else None

    def _bends_alike(self, columns: Floats) -> bool:
        """Whether units of columns keep the curvature of the objective within reach of floats.

        Rows do not see it: a variance may be in the same unit for columns whose rows differ by 1e20.
        """
        row, column, entry = coordinates(self.bending.rows)
        sizes = np.abs(entry)
        used = sizes > 0.0
        if not used.any():
            return True
        after = sizes * columns[row] * columns[column]

        def spread(v: Floats) -> float:
            return float(v[used].max() / max(v[used].min(), 1e-300))

        return spread(after) <= max(LARGE**2, spread(sizes))

    @cached_property
    def near_one(self) -> tuple[ConicForm, Floats, Floats] | None:
        """The form in its units, with these, None where its numbers are near 1 as they stand."""
        return None if self.units is None else (self.in_units(*self.units), *self.units)

    def in_units(self, rows: Floats, columns: Floats) -> ConicForm:
        """Return the form with its rows multiplied by one vector and its columns by another."""
        across = sp.diags_array(columns)
        return replace(
            self,
            P=sp.csc_array(across @ self.P @ across),
            q=self.q * columns,
            A=sp.csc_array(sp.diags_array(rows) @ self.A @ across),
            b=self.b * rows,
            rooted=tuple(r.in_units(columns) for r in self.rooted),
        )

    def cost_scale(self, which: str) -> float:
        """Return the power of two that brings the objective's largest or typical coefficient near 1.

        Solvers hold dual residuals to absolute tolerances: costs of 1e11 make them fail, costs
        of 1e-5 make them careless. A simplex method must not lose small costs under one large
        one, so its typical coefficient counts, and one that is within `ORDINARY` is let be: its
        own scaling knows better which pivots follow. An interior-point method wants nothing
        large. A power of two changes no digit.
        """
        return self._cost_scales[which]

    @cached_property
    def _cost_scales(self) -> dict[str, float]:
        sizes = np.abs(np.concatenate([self.q, self.P.data]))
        sizes = sizes[sizes > 0.0]
        if not sizes.size:
            return {"typical": 1.0, "largest": 1.0}
        near = {"typical": float(np.median(sizes)), "largest": float(sizes.max())}
        scales = {k: float(2.0 ** -np.round(np.log2(v))) for k, v in near.items()}
        if 1.0 / ORDINARY <= near["typical"] <= ORDINARY:
            scales["typical"] = 1.0
        return scales

    def _least(self, r: Floats, x: Floats) -> float:
        """Return what a dual residual costs at the size of x where no row bounds a column.

        No proof: it says what an answer is worth that is not proved.
        """
        lower, upper = self.column_bounds
        size = np.maximum(np.abs(x), float(np.abs(x).mean()) if x.size else 0.0)
        low = np.where(np.isfinite(lower), lower, -size)
        high = np.where(np.isfinite(upper), upper, size)
        return float(np.where(r > 0.0, r * low, r * high).sum())

    def lower_bound(self, x: Floats, z: Floats) -> LowerBound:
        """Return the bound that the pair proves, in exact arithmetic."""
        return lower_bound(self, x, z, self.objective(x))

    @cached_property
    def faces(self) -> dict[Any, Any]:
        """What `on_face` made of the program last, by the bases of its blocks."""
        return {}

    @cached_property
    def unit(self) -> float:
        """Least size an objective with these data is measured by: 1, or less for small numbers."""
        side = min(1.0, _largest(self.b)) or 1.0
        cost = max(_largest(self.q), _largest(self.P.data) * side) * side
        return min(1.0, cost) or 1.0

    @cached_property
    def curvature(self) -> Definiteness:
        """What is proved of the curvature of the objective."""
        return definiteness(self.P, sharp=True)

    @cached_property
    def columns_of_rows(self) -> Any:
        """The rows column by column: sparse csc (m, n)."""
        return self.A if self.A.format == "csc" else sp.csc_array(self.A)

    @cached_property
    def rows(self) -> Any:
        """The rows row by row: sparse csr (m, n)."""
        return self.products.rows

    @cached_property
    def products(self) -> Products:
        """What the rows multiply: Ax with its rounding."""
        return Products(self.A)

    @cached_property
    def sizes(self) -> Any:
        """The entries of the rows in size: sparse csr (m, n)."""
        return self.products.sizes

    @cached_property
    def across(self) -> Products:
        """What multiplies the rows: A'z with its rounding."""
        return Products(self.columns_of_rows.T)

    @cached_property
    def bending(self) -> Products:
        """What multiplies the curvature: Px with its rounding."""
        return Products(self.P)

    def _of_kind(self, kind: str) -> NDArray[np.bool_]:
        inside = np.zeros(self.b.size, dtype=bool)
        for c in self.cones:
            if c.kind == kind:
                inside[c.start : c.stop] = True
        return inside

    @cached_property
    def equal(self) -> NDArray[np.bool_]:
        """Which rows are equalities."""
        return self._of_kind("zero")

    @cached_property
    def nonnegative(self) -> NDArray[np.bool_]:
        """Which rows are inequalities."""
        return self._of_kind("nonneg")

    @cached_property
    def column_bounds(self) -> tuple[Floats, Floats]:
        """Bounds on single columns that rows state, rounded outward."""
        return declared_bounds(linear_rows(self))

    def column_names(self, columns: NDArray[Any]) -> tuple[str, ...]:
        """Return the names of the variables that some columns belong to."""
        named = [
            name
            for name, at in self.columns.items()
            if ((columns >= at.start) & (columns < at.stop)).any()
        ]
        return tuple(named) or ("an auxiliary variable",)


def _same(one: Any, other: Any) -> bool:
    return not (one - other).nnz if sp.issparse(one) else np.array_equal(one, other)


def _largest(vector: Any) -> float:
    return float(np.abs(vector).max(initial=0.0))
