"""The one file that talks to pyscipopt: quadratic programs from sparse coefficients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pyscipopt import Model
from pyscipopt.scip import Expr, Term

from optfair.backends.request import RawPoint, refused_options
from optfair.core.labels import free_name
from optfair.errors import SolverFailure, UnsupportedProblem, nearest
from optfair.numbers import Floats

if TYPE_CHECKING:
    from optfair.compile.program import QuadraticForms, QuadraticTerm

_STATUS = {
    "optimal": "optimal",
    "gaplimit": "optimal",  # the gap that was asked for; ours is measured afterwards
    "primallimit": "unbounded",
    "infeasible": "infeasible",
    "unbounded": "unbounded",
    "inforunbd": "infeasible_or_unbounded",
    "userinterrupt": "interrupted",
    "terminate": "interrupted",
}


class ScipModel:
    r"""A branch-and-bound model of quadratics of one vector x.

    .. math::
        \min_{x, z}\; z \quad\text{s.t.}\quad f_0(x) \le z,\quad f_k(x) \le 0,\quad h_l(x) = 0

    The objective of branch and bound is linear: a quadratic f₀ becomes a row, and z a column.
    A linear f₀ stays the objective.

    Parameters
    ----------
    forms : QuadraticForms
        Coefficients by term.
    name : str
        Name of the model.
    epigraph : bool
        Write a linear objective as a row too.
    brackets : str
        What encloses indices in names; .lp files keep square brackets for quadratics.
    """

    def __init__(
        self,
        forms: QuadraticForms,
        name: str = "problem",
        *,
        epigraph: bool = False,
        brackets: str = "[]",
    ) -> None:
        self.forms = forms
        self._brackets = brackets
        self.model = Model(name)
        self._columns: list[Any] = [None] * forms.size
        taken: set[str] = set()
        for variable, at in forms.columns.items():
            labels = self._names(variable, forms.shapes[variable], taken)
            for j, label in zip(range(at.start, at.stop), labels, strict=True):
                kind = "I" if forms.integer[j] else "C"
                self._columns[j] = self.model.addVar(label, vtype=kind, lb=None)
        rows = {"Obj"}  # what the writers call the objective
        total = forms.total
        self._top = None
        if epigraph or not total.affine:
            self._top = self.model.addVar(_unique("objective", taken), lb=None)
            self._add_objective_row(total, rows)
            goal = Expr({Term(self._top): 1.0})
        else:
            goal = next(self._expressions(total)) + float(total.r[0])
        self.model.setObjective(goal, "minimize" if forms.sense == "minimize" else "maximize")
        for term in forms.constraints:
            self._add(term, rows)

    def _names(self, name: str, shape: tuple[int, ...], taken: set[str]) -> list[str]:
        """Return a name per entry, column by column: x, x[3] or x[0,2]; blanks become _."""
        opening, closing = self._brackets[0], self._brackets[1]
        stem = "_".join(name.split()).replace("[", opening).replace("]", closing)
        if not shape:
            return [_unique(stem, taken)]
        indices = (i[::-1] for i in product(*(range(n) for n in reversed(shape))))
        return [_unique(f"{stem}{opening}{','.join(map(str, i))}{closing}", taken) for i in indices]

    def _add_objective_row(self, total: QuadraticTerm, rows: set[str]) -> None:
        top = Expr({Term(self._top): -1.0})
        row = next(self._expressions(total)) + top
        side = -float(total.r[0])
        below = row <= side if self.forms.sense == "minimize" else row >= side
        self.model.addCons(below, name=_unique("objective", rows))

    def _add(self, term: QuadraticTerm, rows: set[str]) -> None:
        labels = self._names(term.name, term.shape, rows)
        for row, side, label in zip(self._expressions(term), -term.r, labels, strict=True):
            side = float(side)
            self.model.addCons(row == side if term.set == "zero" else row <= side, name=label)

    def _expressions(self, term: QuadraticTerm) -> Iterator[Any]:
        """Yield every entry without its constant."""
        x, A, Q, pairs = self._columns, term.map.A, term.map.Q, term.map.pairs
        for k in range(term.size):
            at, quadratic = (slice(m.indptr[k], m.indptr[k + 1]) for m in (A, Q))
            entries = {Term(x[j]): float(v) for j, v in zip(A.indices[at], A.data[at], strict=True)}
            for p, v in zip(Q.indices[quadratic], Q.data[quadratic], strict=True):
                entries[Term(x[pairs[0, p]], x[pairs[1, p]])] = float(v)
            yield Expr(entries)

    def set(self, options: Mapping[str, Any]) -> None:
        """Set options by the solver's own names.

        Raises
        ------
        UnsupportedProblem
            There is no such option, or not with such a value.
        """
        known = self.model.getParams()
        for name, value in options.items():
            if name not in known:
                raise UnsupportedProblem(
                    "the solver does not take these options",
                    f"it has no option {name!r}",
                    nearest(name, known) if name.count("/") else "options are called section/name",
                )
            wrong = _mismatch(known[name], value)
            if wrong is not None:
                raise refused_options("the solver", f"{name} = {value!r} is not {wrong}")
            try:
                self.model.setParam(name, type(known[name])(value))
            except ValueError as e:
                why = f"{name} = {value!r} is out of range"
                raise refused_options("the solver", why) from e

    def start_from(self, x: Floats) -> None:
        """Hand in a feasible point as first incumbent; where it is NaN, the solver completes it."""
        known = np.isfinite(x)
        whole = bool(known.all())
        start = self.model.createSol() if whole else self.model.createPartialSol()
        for j in np.flatnonzero(known):
            self.model.setSolVal(start, self._columns[j], float(x[j]))
        if whole and self._top is not None:
            self.model.setSolVal(start, self._top, float(self.forms.total.value(x)[0]))
        self.model.addSol(start)

    def solve(self, options: Mapping[str, Any], *, beyond: float, log: bool) -> RawPoint:
        """Solve; Ctrl-C and limits leave the incumbent and the bound.

        Parameters
        ----------
        options : dict
            By the solver's own names.
        beyond : float
            Size of an objective that is taken for unbounded.
        log : bool
            Show the solver's log.

        Raises
        ------
        SolverFailure
            The solver gave up, for instance on a relaxation it could not solve.
        """
        sign = -1.0 if self.forms.sense == "minimize" else 1.0
        self.set({"limits/primal": sign * beyond, **options})
        self.model.hideOutput(not log)
        try:
            # without the interpreter's lock: threads that draw progress keep running
            self.model.optimizeNogil()
        except MemoryError:
            raise
        except Exception as e:  # its return codes have no class of their own
            raise SolverFailure(
                "branch and bound broke off",
                str(e).removeprefix("SCIP: "),
                "rescale the data, bound the variables, or try another solver",
            ) from e
        word = self.model.getStatus()
        status = _STATUS.get(word, "time_limit" if word.endswith("limit") else word)
        bound: float | None = float(self.model.getDualbound())
        if bound is not None and self.model.isInfinity(abs(bound)):
            bound = None
        if not self.model.getNSols():
            return RawPoint(status, bound=bound)
        best = self.model.getBestSol()
        x = np.array([self.model.getSolVal(best, column) for column in self._columns])
        return RawPoint(status, x, bound=bound)

    def write(self, path: Path) -> None:
        """Write the model; the suffix says in which format."""
        self.model.writeProblem(str(path), verbose=False)
        if path.suffix == ".mps":
            lines = path.read_text(encoding="utf-8").splitlines()
            path.write_text("\n".join(_merged(lines)) + "\n", encoding="utf-8")


def _unique(name: str, taken: set[str]) -> str:
    taken.add(own := free_name(name, taken, "_"))
    return own


def _mismatch(current: Any, value: Any) -> str | None:
    """Say what a value should have been, by the value the option has now."""
    number = isinstance(value, (int, float, np.integer, np.floating))
    if isinstance(current, bool):
        return None if isinstance(value, (bool, np.bool_)) else "True or False"
    if isinstance(current, int):
        return None if number and value == int(value) else "a whole number"
    if isinstance(current, float):
        return None if number else "a number"
    return None if isinstance(value, str) else "a word"


def _merged(lines: Iterable[str]) -> Iterator[str]:
    """Add up repeated entries of a quadratic part: the writer halves squares into two.

    Readers disagree about repeated entries: some add them, some refuse the file.
    """
    block: dict[tuple[str, str], float] = {}
    inside = False
    for line in lines:
        if not line.startswith(" "):
            yield from (f"    {i}  {j}  {value!r}" for (i, j), value in block.items())
            block, inside = {}, line.startswith("QCMATRIX")
        if inside and line.startswith(" "):
            first, second, value = line.split()
            block[first, second] = block.get((first, second), 0.0) + float(value)
        else:
            yield line
