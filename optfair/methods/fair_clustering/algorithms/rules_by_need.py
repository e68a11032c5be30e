"""Rules on masses that are left out of a program until its solution breaks them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from optfair.numbers import Floats, Indices

if TYPE_CHECKING:
    from optfair.methods.fair_clustering.algorithms.mass_program import MassProgram

Flags = NDArray[np.bool_]
Solved = TypeVar("Solved", bound=Any)

# Rows that may be left out, of so many at least and so many a mass. What counts as broken, relative
# to the size of a row where a mass is the share of its group. Programs that are solved before all
# rules are in. Multipliers, to the largest, that count.
LEAST_ROWS, EACH_MASS, BROKEN, TRIES, PAID = 2_500, 2, 1e-11, 40, 1e-8


@dataclass(frozen=True, eq=False)
class Point:
    """Masses and auxiliaries, and multipliers of the rules."""

    y: Floats
    z: Floats


@dataclass(frozen=True, eq=False)
class RuleParts:
    r"""Linear rules in parts that share no auxiliary column; which of them masses break is seen at once.

    A rule for every pair of groups has :math:`G (G - 1) / 2` rows a cluster, of which about as many
    bind as there are masses. The auxiliary columns of a part, such as :math:`t \ge |d|`, have
    least values, and what else it says falls with them: it can be satisfied if these satisfy it.

    Parameters
    ----------
    A, b : sparse (rows, columns), array
        All rules: b - Ay in their cones.
    masses, shares
        As of `MassProgram`.
    part : array (rows,)
        Part of each row, -1 of rows that always stay.
    auxiliary : array (columns,)
        Part of each auxiliary column, -1 of all others.
    defines : array
        Rows that bound an auxiliary column of a part from below.
    """

    A: Any
    b: Floats
    masses: Indices
    shares: Floats
    part: Indices
    auxiliary: Indices
    defines: Indices

    @classmethod
    def of(cls, program: MassProgram) -> RuleParts | None:
        """Return the parts of a program, None where few rows could be left out."""
        form, own = program.form, np.zeros(program.form.q.size, dtype=bool)
        m, n, own[program.masses] = form.b.size, form.q.size, True
        if m < LEAST_ROWS:
            return None
        entries = sp.coo_array(form.A)
        row, column = (at.astype(np.intp) for at in (entries.row, entries.col))
        value = entries.data
        aside = ~own[column] & (value != 0.0)
        row, column, low = row[aside], column[aside], value[aside] < 0.0
        count, falls = np.bincount(row, minlength=m), np.bincount(row[low], minlength=m)
        defines = (count == 1) & (falls == 1)
        defined = np.bincount(column[defines[row]], minlength=n) > 0
        stays_row = ~form.nonnegative | ((falls > 0) & ~defines)
        stays = ~own & ((form.q != 0.0) | (np.diff(sp.csc_array(form.P).indptr) > 0) | ~defined)
        graph = sp.coo_array((np.ones(row.size), (row, m + column)), shape=(m + n, m + n))
        _, label = connected_components(graph, directed=False)
        always = np.unique(label[np.concatenate([stays_row, stays])])
        label[np.isin(label, always)] = -1
        part = label[:m].astype(np.intp)
        auxiliary = np.where(own, -1, label[m:]).astype(np.intp)
        if (part >= 0).sum() < max(LEAST_ROWS, EACH_MASS * program.masses.size):
            return None
        defines = np.flatnonzero(defines & (part >= 0))
        A = sp.csr_array(form.A)
        return cls(A, form.b, program.masses, program.shares, part, auxiliary, defines)

    @cached_property
    def _least(self) -> tuple[Indices, Indices, Floats, Any]:
        """Rows that define auxiliary columns in the order of these, the columns, and divisors."""
        rows = sp.coo_array(self.A[self.defines])
        own = self.auxiliary[rows.col] >= 0
        order = np.argsort(rows.col[own], kind="stable")
        column = rows.col[own][order].astype(np.intp)
        first = np.flatnonzero(np.diff(column, prepend=-1))
        return self.defines[rows.row[own][order]], column[first], -rows.data[own][order], first

    @cached_property
    def _sizes(self) -> Floats:
        units = np.ones(self.auxiliary.size)
        units[self.masses] = self.shares[:, None]
        sizes = abs(self.A) @ units
        return np.where(sizes > 0.0, sizes, 1.0)

    @cached_property
    def _cells(self) -> tuple[Indices, Indices]:
        """Each part with each mass of its rows."""
        entries = sp.coo_array(self.A)
        of_masses = np.zeros(self.auxiliary.size, dtype=bool)
        of_masses[self.masses] = True
        kept = of_masses[entries.col] & (self.part[entries.row] >= 0)
        pairs = np.stack([self.part[entries.row[kept]], entries.col[kept]])
        part, cell = np.unique(pairs, axis=1)
        return part, cell

    def completed(self, y: Floats) -> Floats:
        """Return y with the least values of the auxiliary columns of parts."""
        made = np.where(self.auxiliary >= 0, 0.0, y)
        rows, columns, divisor, first = self._least
        if columns.size:
            made[columns] = np.maximum.reduceat((self.A @ made - self.b)[rows] / divisor, first)
        return made

    def most_broken(self, y: Floats) -> Flags:
        """Return which parts the masses break, of each mass the one that is broken most."""
        over = np.maximum(self.A @ self.completed(y) - self.b, 0.0) / self._sizes
        worst, most = np.zeros(int(self.part.max()) + 1), np.zeros(y.size)
        own = np.flatnonzero((over > BROKEN) & (self.part >= 0))
        np.maximum.at(worst, self.part[own], over[own])
        part, cell = self._cells
        np.maximum.at(most, cell, worst[part])
        broken = np.zeros(worst.size, dtype=bool)
        broken[part[(worst[part] > 0.0) & (worst[part] == most[cell])]] = True
        return broken

    def excerpt(self, program: MassProgram, chosen: Flags) -> tuple[MassProgram, Indices, Indices]:
        """Return a program of these rules with some parts alone, and its rows and columns in it."""
        form = program.form
        kept = (self.part < 0) | chosen[self.part]
        rows = np.flatnonzero(kept)
        columns = np.flatnonzero((self.auxiliary < 0) | chosen[self.auxiliary])
        ends = np.append(0, np.cumsum(kept))
        cones = (replace(c, start=int(ends[c.start]), stop=int(ends[c.stop])) for c in form.cones)
        place = np.full(form.q.size, -1)
        place[columns] = np.arange(columns.size)
        some = replace(
            form,
            P=sp.csc_array(form.P)[columns][:, columns],
            q=form.q[columns],
            A=sp.csc_array(self.A[rows][:, columns]),
            b=form.b[rows],
            cones=tuple(c for c in cones if c.stop > c.start),
            columns={},
            rooted=(),
        )
        return replace(program, form=some, masses=place[program.masses]), rows, columns


def solve_by_need(
    program: MassProgram,
    solve: Callable[[MassProgram], Solved],
    masses: Floats,
    z: Floats | None = None,
) -> Solved:
    """Return what ``solve`` finds for all rules, from programs with those that matter.

    What solves a program with some rules and satisfies the others solves it with all of them; the
    multipliers of the others are 0.

    Parameters
    ----------
    program : MassProgram
        All rules.
    solve : callable
        Returns a dataclass with fields y and z, y empty where it fails, or None.
    masses : array (G, K)
        Masses near the solution's: the rules that they break are looked at first.
    z : array, optional
        Multipliers near the solution's.
    """
    parts = program.parts
    if parts is None:
        return solve(program)
    y = np.zeros(program.form.q.size)
    y[program.masses] = masses
    chosen = parts.most_broken(y)
    if z is not None:
        paid = parts.part[np.abs(z) > PAID * np.abs(z).max(initial=0.0)]
        chosen[paid[paid >= 0]] = True
    for _ in range(TRIES):
        some, rows, columns = parts.excerpt(program, chosen)
        result = solve(some)
        if result is None or not result.y.size:
            break
        y = np.zeros(program.form.q.size)
        y[columns] = result.y
        broken = parts.most_broken(y) & ~chosen
        if not broken.any():
            multipliers = np.zeros(program.form.b.size)
            multipliers[rows] = result.z
            whole = parts.completed(y)
            whole[columns] = result.y
            return replace(result, y=whole, z=multipliers)
        chosen |= broken
    return solve(program)
