"""The compiled cone program in its units, all powers of two, and the residuals of a primal-dual pair on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.numbers import Floats
from optfair.proofs.bounds import LowerBound, lower_bound
from optfair.proofs.columns import declared_bounds, linear_rows
from optfair.proofs.cones import Cone, beside_diagonals, cone_figures, largest_entry
from optfair.proofs.definiteness import Definiteness, definiteness
from optfair.proofs.effort import finished
from optfair.proofs.equations import Inverses
from optfair.proofs.reduction import Entries, forced
from optfair.proofs.roots import Rooted
from optfair.proofs.rounding import UNIT, Products, unscaled
from optfair.proofs.unpaid import Unpaid, loosened
from optfair.solution.column_units import blocks_of, column_units
from optfair.solution.units import (
    APART,
    Handed,
    alike,
    balanced,
    congruence,
    equilibrium,
    level,
    turned,
    units_at,
)

T = TypeVar("T")
Says = tuple[str, Floats | None]

# Violations of rows below this share of their terms are as good as none, and rounding of slacks.
NEGLIGIBLE, ROUGH = 1e-12, 8.0 * np.finfo(float).eps
# What a row of a curved cone is measured by at least: violations below are none to declared terms.
MEASURED = 1e-280
# Curvature of programs in other units: beyond it sides over tiny coefficients are no size of points.
CURVED = 2.0**60
# How often an entry of a semidefinite block exceeds the diagonal of a line that is then asked for.
LEANING = 1e3
# Typical coefficients of an objective that a simplex method is handed as they stand.
ORDINARY = 1e4
# What is computed once of the matrices, and of the cones, whatever the other numbers are.
FACTS = {
    "P": ("curvature", "bending"),
    "A": ("columns_of_rows", "rows", "sizes", "products", "across"),
    "cones": ("equal", "nonnegative", "declared_within"),
}


@dataclass(frozen=True)
class ConicResiduals:
    """Relative residuals of a primal-dual pair; all zero at an optimum.

    The bound holds in exact arithmetic, as far as ``unpaid`` says; it is -inf, with ``fault``,
    where nothing is proved. The estimate takes the multipliers at their word. ``relative`` is the
    complementarity where the products on curved cones count relative to the root of their sizes,
    ``rows`` the largest violation of a linear row relative to its own terms, ``face`` that of rows
    which are 0 at every feasible point, ``penalty`` what all are worth at the multipliers.
    """

    primal: float
    dual: float
    gap: float
    complementarity: float
    relative: float
    objective: float
    bound: float
    unpaid: Unpaid | None = None
    fault: str = ""
    estimate: float = -np.inf
    rows: float = 0.0
    face: float = 0.0
    penalty: float = 0.0


def least_unit(price: float, side: float) -> float:
    """Return the least size an objective is measured by, of multipliers and sides of such sizes."""
    return min(1.0, price * side) or 1.0


def scale_of(size: float) -> float:
    """Return the power of two, among normal floats, that brings a positive size near 1.

    Examples
    --------
    >>> scale_of(3.0), scale_of(8e-320) == 2.0**1022
    (0.25, True)
    """
    return float(2.0 ** np.clip(-np.round(np.log2(size)), -1022.0, 1022.0))


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

    @cached_property
    def plain(self) -> ConicForm | None:
        """The same rows in the entries that were declared, None where these are not known.

        Multipliers of rows beside a diagonal are the sums of two entries.
        """
        if all(c.kind != "psd" for c in self.cones):
            return self
        make: Callable[[], ConicForm] | None = self.__dict__.get("_plain")
        made = self if make is None else make()

        def declared(form: ConicForm) -> tuple[Cone, ...]:
            return tuple(replace(c, root=2.0) if c.kind == "psd" else c for c in form.cones)

        if declared(made) != declared(self):  # rows in another order
            made = self
        beside = beside_diagonals(made.cones, made.b.size)
        A, b = sp.csc_array(made.columns_of_rows, copy=True), made.b.copy()
        A.data[beside[A.indices]], sure = unscaled(A.data[beside[A.indices]])
        b[beside], known = unscaled(b[beside])
        if not (sure.all() and known.all()) or any(c.mixed for c in self.cones):
            return None
        return replace(made, A=A, b=b, cones=declared(self))

    @property
    def polyhedral(self) -> bool:
        """Whether every cone is a half-line or a point and the objective is linear."""
        straight = self.P.nnz == 0 and not self.rooted
        return straight and all(c.kind in ("zero", "nonneg") for c in self.cones)

    @property
    def rounded(self) -> list[Rooted]:
        """The quadratic forms that may be less than what the rows have for them."""
        return [r for r in self.rooted if r.share.any()]

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

    def residuals(self, x: Floats, z: Floats, enough: float = np.inf) -> ConicResiduals:
        """Return the relative residuals of the pair (x, z), with a bound that is ``enough`` or the best.

        Feasibility is relative to 1 + the largest right-hand side or objective entry, the gap to
        max(1, abs(objective)). The last ones are kept: what a solver asked for is asked for again.
        """
        asked = (x.tobytes(), z.tobytes(), enough)
        return self.remembered("residuals", asked, lambda: self._residuals(x, z, enough))

    def _residuals(self, x: Floats, z: Floats, enough: float) -> ConicResiduals:
        s, objective, Px = self.slack(x), self.objective(x), self.bending.times(x)
        scale, unit = 1.0 + max(largest_entry(self.q), largest_entry(Px)), max(1.0, abs(objective))
        beyond = np.zeros(s.size)
        primal, outside, products, relative, leak, penalty = cone_figures(
            self.cones, s, z, max(unit, scale), NEGLIGIBLE, beyond
        )
        r = Px + self.q + self.across.times(z)
        # each column by its own scale; what large multipliers leave by cancelling is no residual
        rounding = 16.0 * np.finfo(float).eps * self.across.terms(np.abs(z))
        own = np.maximum(np.abs(r) - rounding, 0.0) / (1.0 + np.abs(self.q) + np.abs(Px))
        stationarity = float(own.max(initial=0.0))
        proved = lower_bound(self, x, z, objective, enough)
        held, _ = loosened(self, objective, (x, z))  # nobody's word is on rows that are rounded
        penalty -= ROUGH * float(np.abs(z) @ (np.abs(self.b) + self.products.terms(np.abs(x))))
        return ConicResiduals(
            primal=primal / (1.0 + largest_entry(self.b)),
            dual=max(stationarity, outside / scale),
            gap=abs(objective - proved.value) / unit,
            complementarity=products / max(unit, scale),
            relative=relative / max(unit, scale),
            objective=objective,
            bound=proved.value,
            unpaid=proved.unpaid,
            fault=proved.fault,
            estimate=held.dual_objective(x, z) + self._least(r, x) - leak,
            rows=self.worst_row(x, s, beyond),
            face=self._face(x, s),
            penalty=max(0.0, penalty),
        )

    def worst_row(self, x: Floats, s: Floats, beyond: Floats | None = None) -> float:
        """Return the largest violation of a row or a cone relative to the size of its terms.

        A column counts for its own size, at least for one number in it: rows and columns may
        be in any units. A cone has the size of the largest of its rows.

        Parameters
        ----------
        x, s : array
            Columns, and the slacks of the rows.
        beyond : array (m,), optional
            How far the entries of cones are outside of these, where that is known.
        """
        if self.faint is not None:
            return np.inf  # nothing measures what is said there
        if beyond is None:
            beyond = np.zeros(s.size)
            cone_figures(self.cones, s, np.zeros(s.size), 1.0, NEGLIGIBLE, beyond)
        below = np.where(self.nonnegative, np.maximum(-s, 0.0), beyond)
        outside = np.where(self.equal, np.abs(s), below)
        at = np.flatnonzero(outside)
        if not at.size:
            return 0.0
        size = self._in_cones(np.maximum(self.products.terms(np.abs(x)), np.abs(self.b)))[at]
        if (outside[at] <= NEGLIGIBLE * size).all():  # units of columns would only make it less
            return float((outside[at] / np.where(size > 0.0, size, 1.0)).max())
        return self._of_terms(x, outside)

    def _of_terms(self, x: Floats, outside: Floats, *, of_cones: bool = True) -> float:
        """Return the largest violation of a row, of its terms with columns of their units at least."""
        at = np.flatnonzero(outside)
        own = np.maximum(np.abs(x), self.column_units)
        size = np.maximum(self.products.terms(own), np.abs(self.b))
        size = (self._in_cones(size) if of_cones else size)[at]
        return float((outside[at] / np.where(size > 0.0, size, 1.0)).max(initial=0.0))

    def _in_cones(self, sizes: Floats) -> Floats:
        """Return the largest of the sizes of the rows of each cone, and those of linear rows."""
        if (self.equal | self.nonnegative).all():
            return sizes
        starts = np.flatnonzero(np.diff(self.blocks, prepend=-1))
        most = np.maximum.reduceat(sizes, starts)
        return np.repeat(most, np.diff(starts, append=sizes.size))

    @cached_property
    def blocks(self) -> NDArray[np.intp]:
        """The first row of the cone that each row is in, itself where it is alone."""
        return blocks_of(self)

    def _face(self, x: Floats, s: Floats) -> float:
        """Return the largest entry, of its terms, that a semidefinite block has at no feasible point.

        It is looked for where an entry far exceeds the diagonal in its line.
        """
        inside = np.zeros(s.size, dtype=bool)
        for c in self.cones:
            if c.kind == "psd" and np.isfinite(s[c.start : c.stop]).all():
                M = np.abs(c.matrix(s[c.start : c.stop]))
                inside[c.start : c.stop] = (M.max(axis=1) > LEANING * np.diag(M)).any()
        if not inside.any():
            return 0.0
        outside = np.where(inside & self.forced, np.abs(s), 0.0)
        return self._of_terms(x, outside, of_cones=False)

    @cached_property
    def faint(self) -> int | None:
        """A row of a cone whose numbers are all below those it is measured by, if there is one."""
        sizes = np.abs(self.A.data)
        if not ((sizes < MEASURED) & (sizes > 0.0)).any():
            return None
        most = np.fmax(self.sizes.max(axis=1).toarray().ravel(), np.abs(self.b))
        curved = ~(self.equal | self.nonnegative)
        faint = np.flatnonzero(curved & (most > 0.0) & (most < MEASURED))
        return int(faint[0]) if faint.size else None

    @cached_property
    def forced(self) -> NDArray[np.bool_]:
        """Which rows are 0 at every feasible point, as facial reduction proves."""
        return forced(Entries.of(self))

    @cached_property
    def column_units(self) -> Floats:
        """Size of a number in each column: what equilibrates the rows with their right-hand sides."""
        return column_units(self)

    @cached_property
    def units(self) -> tuple[Floats, Floats] | None:
        """Powers of two for rows and columns, None where the numbers are near 1 as they stand.

        What they bring near 1 is the geometric mean of every row and column, and of the
        right-hand sides: that undoes any change of units. Rows of one cone share a unit, but for
        blocks whose lines are in several.
        """
        if self.congruent is not None:
            return self.congruent[1:]
        return balanced(self) or level(self)

    @cached_property
    def congruent(self) -> tuple[ConicForm, Floats, Floats] | None:
        """The form with the lines of each block in one unit, with these; None where they are."""
        units = congruence(self)
        if units is None:
            return None
        made = self.in_units(*units)
        if np.abs(made.P.data).max(initial=0.0) > CURVED:
            return None
        back = made.in_units(*(1.0 / u for u in units))
        if not alike(self, back):
            return None  # a number left the range of floats
        made.__dict__["congruent"] = None  # its own is
        return made, *units

    @cached_property
    def same(self) -> tuple[Handed, float] | None:
        """The same program to the last digit with numbers near 1, and the unit of costs, if known."""
        if self.congruent is not None:
            made, rows, columns = self.congruent
            near = replace(Handed.of(self, rows, columns), form=made)
        else:
            kinds = {c.kind for c in self.cones if c.order != 1}
            rows, columns = equilibrium(self) if "psd" in kinds else (self.b, np.ones(1))
            apart = columns.max() >= 2.0**APART * columns.min()
            other = Handed.of(self, rows, columns) if apart else self.turned
            if kinds & {"exp", "pow"} or other is None or not other.exactly(self):
                return None
            near = other
        unit = near.form.cost_scale("largest")
        costs = {name: getattr(near.form, name) * unit for name in ("P", "q", "offset")}
        own = replace(near.form, **costs)
        own.__dict__["congruent"] = own.__dict__["same"] = None
        return replace(near, form=own), unit

    @cached_property
    def turned(self) -> Handed | None:
        """The form in units of its exponential and power cones, None where it needs none."""
        return turned(self)

    def handed(
        self, integer: NDArray[np.bool_], *, turned: bool = True, units: Says = ("", None)
    ) -> Handed | None:
        """Return the form in its units, with these; integer columns keep theirs.

        Parameters
        ----------
        integer : array (n,) of bool
            Which columns are.
        turned : bool
            Whether rows of one cone may be in units of their own.
        units : (str, array or None)
            What has a say in continuous programs: "sides", or the "point" beside it.
        """
        if integer.any():
            own = balanced(self, integer)
            return None if own is None else Handed.of(self, *own)
        if units[0] == "sides":
            return Handed.of(self, *equilibrium(self, sides=True))
        at = units[1] if units[0] == "point" and self.b.size else None  # no rows tell no units
        if at is not None and at.size == self.q.size:
            return units_at(self, at)
        if turned and self.turned is not None:
            return self.turned
        if self.units is None:
            return None
        return Handed.of(self, *self.units)

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
        sizes = sizes[sizes > 0.0] if sizes.any() else np.ones(1)
        near = {"typical": float(np.median(sizes)), "largest": float(sizes.max())}
        scales = {k: scale_of(v) for k, v in near.items()}
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
    def last(self) -> dict[str, tuple[Any, Any]]:
        """What the last face, residuals and bound were made of, and they themselves."""
        return {}

    @cached_property
    def inverses(self) -> Inverses:
        """What is known of equations between its columns, and costs more than to ask again."""
        return {}

    def remembered(self, what: str, made_of: Any, make: Callable[[], T]) -> T:
        """Return what was made last where it was made of the same, else make it."""
        before, known = self.last.get(what, (None, None))
        if before != made_of:
            known = make()
            if finished():  # else there may be more with more time
                self.last[what] = made_of, known
        return cast("T", known)

    @cached_property
    def unit(self) -> float:
        """Least size an objective with these data is measured by: 1, or less for small numbers."""
        return least_unit(self.price, self._side)

    @cached_property
    def price(self) -> float:
        """Size of a multiplier: what a number of the right-hand sides costs."""
        return max(largest_entry(self.q), largest_entry(self.P.data) * self._side)

    @property
    def _side(self) -> float:
        return min(1.0, largest_entry(self.b)) or 1.0

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
    def declared_within(self) -> Floats | None:
        """Share by which entries of a row may differ from those declared; None where none does.

        Beside the diagonal of a block they were multiplied by the root of 2: two roundings.
        """
        beside = beside_diagonals(self.cones, self.b.size)
        return np.where(beside, 4.0 * UNIT, 0.0) if beside.any() else None

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
