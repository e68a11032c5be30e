"""The one file that talks to pyscipopt: nonconvex quadratic programs to global optimality."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from optfair.backends.farkas import unbounded
from optfair.backends.global_backend import in_units, quadratic_form, unit_of
from optfair.backends.registry import claimed_infeasible
from optfair.backends.request import (
    Outcome,
    RawPoint,
    ReportedBound,
    Request,
    SolverProfile,
    refused_options,
    stages,
    with_whole,
)
from optfair.compile.program import QuadraticForms, QuadraticTerm
from optfair.core.labels import free_name
from optfair.core.quadratics import QuadraticMap
from optfair.errors import NotInstalled, OptfairError, SolverFailure, UnsupportedProblem, nearest
from optfair.numbers import Flags, Floats

if TYPE_CHECKING:
    from optfair.core.problem import Problem


_FORMATS = (".cip", ".lp", ".mps")
GAPS = ("limits/gap", "limits/absgap")
FEASIBILITY = "numerics/feastol"
# Squares from which on a sum of them is separated: it gains little from fewer, and loses digits.
SQUARES = 8
# A feasible point with an objective beyond this ends the search: it is taken for unbounded.
BEYOND = 1e15


def run(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Solve to global optimality; Ctrl-C and the time limit return the incumbent.

    Parameters
    ----------
    problem : Problem
        Linear and quadratic terms, convex or not; convex terms that second-order cones
        express; integer variables.
    profile : SolverProfile
        Facts about the solver.
    request : Request
        Options that mean the same for every solver.

    Returns
    -------
    Outcome
        With the bound that branch and bound reports; it cannot be recomputed here.

    Raises
    ------
    UnsupportedProblem
        A term that quadratics cannot express, or an option the solver does not have.
    Infeasible, Unbounded
        On the solver's word, without a certificate.
    """
    begin = time.perf_counter()
    try:
        stated = quadratic_form(problem, request.deadline)
        forms, columns, _, unit = in_units(separated(stated))
        model = ScipModel(forms, deadline=request.deadline)
    except TimeoutError:
        return Outcome("time_limit", {}, {}, None, stages(begin, now := time.perf_counter(), now))
    least = unit_of(stated, forms, unit, problem.data_unit)
    options = _options(request, profile, least / unit)
    model.set(options)  # a wrong option fails before anything is solved
    start, warm = request.start(problem)
    if start is not None:
        limit = float(options.get(FEASIBILITY, request.tolerance))
        point, warm = _start(problem, forms, start, limit)
        if point is not None:
            model.start_from(point / columns)
    compiled_at = time.perf_counter()
    raw = model.solve(
        _options(request, profile, least / unit), beyond=BEYOND, log=request.verbose >= 2
    )
    solved_at = time.perf_counter()
    if raw.status == "infeasible":
        why = "its branch and bound excluded every region and leaves no certificate"
        raise claimed_infeasible(problem, profile.name, why)
    best = None if raw.x is None else float(forms.total.value(raw.x)[0])
    beyond = best is not None and abs(best) >= BEYOND
    if beyond or raw.status in ("unbounded", "infeasible_or_unbounded"):
        seen = f"a feasible point with objective {unit * best:.3g}" if best and beyond else ""
        raise _unbounded(problem, profile, request, seen)
    proof = None
    if raw.bound is not None:
        proof = ReportedBound(problem, unit * raw.bound, profile.name, least)
    values: dict[str, Floats] = {}
    if raw.x is not None and np.isfinite(raw.x).all():
        values = with_whole(problem, forms.by_name(columns * raw.x))
    seconds = stages(begin, compiled_at, solved_at)
    return Outcome(raw.status, values, {}, proof, seconds, warm_start=warm)


def separated(forms: QuadraticForms) -> QuadraticForms:
    r"""Return forms in which sums of squares are sums of columns, each above one square.

    .. math:: \sum_j c_j x_j^2 \le r \iff \sum_j c_j t_j \le r,\quad x_j^2 \le t_j

    The same for what is minimised. Tangents of one square are few, and those of a sum many
    (benchmarks/integer_cones.py commits units at quadratic costs). Cones, whose squares are not all
    of one sign, stay.
    """
    sign = 1.0 if forms.sense == "minimize" else -1.0
    total = _only_squares(forms.total.map, sign)
    which = [np.broadcast_to(total, t.size) for t in forms.objective]
    which += [_only_squares(t.map, 1.0) & (t.set == "nonpositive") for t in forms.constraints]
    terms = [*forms.objective, *forms.constraints]
    of_rows = [np.repeat(w, np.diff(t.map.Q.indptr)) for w, t in zip(which, terms, strict=True)]
    products = [t.map.Q.indices[w] for w, t in zip(of_rows, terms, strict=True)]
    squared = [t.map.pairs[0, at] for at, t in zip(products, terms, strict=True)]
    if not (columns := np.unique(np.concatenate(squared))).size:
        return forms
    n, k = forms.size, columns.size
    moved = []
    for term, own, base in zip(terms, of_rows, squared, strict=True):
        Q, A = term.map.Q, term.map.A
        row = np.repeat(np.arange(term.size), np.diff(Q.indptr))
        at = row[own], np.searchsorted(columns, base)
        added = sp.csr_array((Q.data[own], at), shape=(term.size, k))
        left = sp.csr_array((Q.data[~own], (row[~own], Q.indices[~own])), shape=Q.shape)
        A = sp.csr_array(sp.hstack([A, added]))
        moved.append(replace(term, map=QuadraticMap(left, term.map.pairs, A, term.map.b)))
    # what rows may be off by adds up
    weight = np.ones(k)
    for term, own, base in zip(terms, of_rows, squared, strict=True):
        np.maximum.at(weight, np.searchsorted(columns, base), k * np.abs(term.map.Q.data[own]))
    weight = np.minimum(weight, k)
    above = sp.csr_array((-weight, (np.arange(k), n + np.arange(k))), shape=(k, n + k))
    each = sp.diags_array(weight, format="csr"), np.stack([columns] * 2)
    squares = QuadraticMap(*each, above, np.zeros(k))
    name = free_name("squares", {*forms.columns, *(t.name for t in terms)})
    split = len(forms.objective)
    return QuadraticForms(
        forms.sense,
        tuple(moved[:split]),
        (*moved[split:], QuadraticTerm(name, "nonpositive", (k,), squares)),
        {**forms.columns, name: slice(n, n + k)},
        {**forms.shapes, name: (k,)},
        np.append(forms.integer, np.zeros(k, dtype=bool)),
    )


def _only_squares(entries: QuadraticMap, sign: float) -> Flags:
    """Return which entries are sums of many squares with coefficients of a sign."""
    Q, (i, j) = entries.Q, entries.pairs
    row = np.repeat(np.arange(Q.shape[0]), np.diff(Q.indptr))
    right = (i == j)[Q.indices] & (sign * Q.data > 0.0)
    count = np.bincount(row[right], minlength=Q.shape[0])
    return np.asarray((count >= SQUARES) & (count == np.diff(Q.indptr)))


def export_scip(problem: Problem, path: str | Path) -> Path:
    """Write a quadratic program, convex or not, with its names, as branch and bound gets it.

    Second-order cones and sums of squares are written with the variables that
    `quadratic_form` adds; they are called ``added_1``, ``added_2`` ... In .cip every number is
    written to its last digit; SCIP itself writes the others, to fifteen digits.

    Parameters
    ----------
    problem : Problem
        What `run` takes.
    path : str or Path
        Ends in .cip, .lp or .mps.

    Returns
    -------
    Path
        Where it was written.

    Raises
    ------
    UnsupportedProblem
        Another suffix, or a term that quadratics cannot express.
    NotInstalled
        The package that writes the file is missing.
    """
    target = Path(path)
    if target.suffix not in _FORMATS:
        raise UnsupportedProblem(
            f"{target.name!r} is not a format for quadratic programs",
            f"known are {', '.join(_FORMATS)}",
            "choose one of these suffixes",
        )
    forms = quadratic_form(problem)
    name = "_".join(problem.title.split())
    if target.suffix == ".cip":
        target.write_text("\n".join(_cip_lines(forms, name)) + "\n", encoding="utf-8")
        return target
    try:
        import pyscipopt  # noqa: F401
    except ImportError as e:
        raise NotInstalled(
            "writing nonconvex quadratic programs needs pyscipopt", str(e), "pip install pyscipopt"
        ) from e
    if target.suffix == ".lp":
        # some readers take a constant in the objective for the name of a variable
        shifted = bool(forms.total.r[0] != 0.0)
        ScipModel(forms, name, epigraph=shifted, brackets="()").write(target)
    else:
        ScipModel(forms, name).write(target)
    return target


# What SCIP takes for infinite.
INFINITE = 1e20


def _cip_lines(forms: QuadraticForms, name: str) -> Iterator[str]:
    """Yield the lines of a .cip file: SCIP writes fewer digits, and leaves out what it finds small.

    Raises
    ------
    UnsupportedProblem
        A number is infinite there.
    """
    taken: set[str] = set()
    columns = [""] * forms.size
    for variable, at in forms.columns.items():
        columns[at] = _entry_names(variable, forms.shapes[variable], taken)
    kinds = np.where(forms.integer, "integer", "continuous").tolist()
    total, rows, costs = forms.total, {"Obj"}, np.zeros(forms.size)
    lines: list[str] = []
    if total.affine:
        costs = total.map.A.toarray()[0]
    else:
        columns.append(_unique("objective", taken))
        kinds.append("continuous")
        costs = np.append(costs, 1.0)
        (body,) = _bodies(total, columns)
        side = "<=" if forms.sense == "minimize" else ">="
        label = _unique("objective", rows)
        lines.append(
            f"  [nonlinear] <{label}>: {body}-<{columns[-1]}> {side} {-float(total.r[0])!r};"
        )
    offset = float(total.r[0]) if total.affine else 0.0
    for term in forms.constraints:
        labels = _entry_names(term.name, term.shape, rows)
        side = "==" if term.set == "zero" else "<="
        word = "linear" if term.affine else "nonlinear"
        for body, r, label in zip(_bodies(term, columns), (-term.r).tolist(), labels, strict=True):
            lines.append(f"  [{word}] <{label}>: {body} {side} {r!r};")
    maps = [total.map, *(t.map for t in forms.constraints)]
    most = max(float(np.abs(v).max(initial=0.0)) for m in maps for v in (m.Q.data, m.A.data, m.b))
    if most >= INFINITE:
        raise UnsupportedProblem(
            f"there is the number {most:g}",
            f"what is {INFINITE:g} or more is infinite in .cip",
            "write it in other units, or export to .mps or .cbf",
        )
    whole = int(forms.integer.sum())
    yield "STATISTICS"
    yield f"  Problem name     : {name}"
    counts = f"0 binary, {whole} integer, 0 implicit integer, {len(columns) - whole} continuous"
    yield f"  Variables        : {len(columns)} ({counts})"
    yield f"  Constraints      : {len(lines)} initial, {len(lines)} maximal"
    yield "OBJECTIVE"
    yield f"  Sense            : {forms.sense}"
    if offset:
        yield f"  Offset           : {offset!r}"
    yield "VARIABLES"
    for kind, column, cost in zip(kinds, columns, costs.tolist(), strict=True):
        yield f"  [{kind}] <{column}>: obj={cost!r}, original bounds=[-inf,+inf]"
    yield "CONSTRAINTS"
    yield from lines
    yield "END"


def _bodies(term: QuadraticTerm, columns: list[str]) -> Iterator[str]:
    """Yield every entry without its constant, as .cip files have it."""
    A, Q, pairs = term.map.A, term.map.Q, term.map.pairs
    times = "" if term.affine else "*"
    for k in range(term.size):
        at, quadratic = (slice(m.indptr[k], m.indptr[k + 1]) for m in (A, Q))
        linear = zip(A.data[at].tolist(), A.indices[at], strict=True)
        parts = [f"{_signed(v)}{times}<{columns[j]}>" for v, j in linear]
        for v, p in zip(Q.data[quadratic].tolist(), Q.indices[quadratic], strict=True):
            first, second = (columns[i] for i in pairs[:, p])
            parts.append(f"{_signed(v)}*<{first}>*<{second}>")
        body = (" " if term.affine else "").join(parts)
        yield body or f"0{times}<{columns[0]}>"


def _signed(value: float) -> str:
    return f"{'-' if value < 0.0 else '+'}{abs(value)!r}"


def _entry_names(
    name: str, shape: tuple[int, ...], taken: set[str], brackets: str = "[]"
) -> list[str]:
    """Return a name per entry, column by column: x, x[3] or x[0,2]; blanks become _."""
    opening, closing = brackets[0], brackets[1]
    stem = "_".join(name.split()).replace("[", opening).replace("]", closing)
    stem = stem.replace("<", "_").replace(">", "_")
    if not shape:
        return [_unique(stem, taken)]
    indices = (i[::-1] for i in product(*(range(n) for n in reversed(shape))))
    return [_unique(f"{stem}{opening}{','.join(map(str, i))}{closing}", taken) for i in indices]


def _options(request: Request, profile: SolverProfile, unit: float) -> dict[str, Any]:
    """Return the options; the gap stays above what the feasibility tolerance resolves.

    The objective of a quadratic is known to within the feasibility tolerance only: a search
    that is to close the gap further than that does not end. A gap that is not relative counts in
    the unit that objectives are measured by.
    """
    chosen = request.solver_options(profile)
    resolved = 3.0 * float(chosen.get(FEASIBILITY, 0.0))
    gap = max(0.3 * request.tolerance, resolved)
    gaps = dict(zip(GAPS, (gap, gap * unit), strict=True))
    return chosen | {name: v for name, v in gaps.items() if name not in request.options}


def _start(
    problem: Problem, forms: QuadraticForms, start: dict[str, Floats], limit: float
) -> tuple[Floats | None, str]:
    """Return the point of a warm start and "used", or None and why not.

    Added variables are NaN: the solver finds their values.
    """
    for name, term in problem.constraints.items():
        off = term.relative_violation(start)
        if not off <= limit:
            return None, f"not used: it violates {name!r} by {off:.1e}"
    added = {n: np.full(s, np.nan) for n, s in forms.shapes.items() if n not in problem.variables}
    return forms.vector({**start, **added}), "used"


def _unbounded(
    problem: Problem, profile: SolverProfile, request: Request, seen: str
) -> OptfairError:
    """Tell unbounded from infeasible by dropping the objective, where nothing was ``seen`` of it."""
    if seen:
        seen = f"{profile.name} found {seen}"
    else:
        # raises Infeasible when it is that
        alone = run(problem.with_terms({}, problem.constraints), profile, request)
        if not alone.values:
            raise SolverFailure(
                f"{profile.name} could not tell unbounded from infeasible",
                f"it stopped for {alone.termination} without a feasible point",
                "give more time, or bound the variables",
            )
        seen = f"{profile.name} reports it unbounded, and the constraints alone have a solution"
    return unbounded(problem, profile.name, why=seen)


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
    deadline : float
        When to raise TimeoutError instead, by `time.perf_counter`.
    """

    def __init__(
        self,
        forms: QuadraticForms,
        name: str = "problem",
        *,
        epigraph: bool = False,
        brackets: str = "[]",
        deadline: float = math.inf,
    ) -> None:
        from pyscipopt import Model
        from pyscipopt.scip import Expr, Term

        self.forms = forms
        self._brackets, self._deadline = brackets, deadline
        self.model = Model(name)
        self._columns: list[Any] = [None] * forms.size
        taken: set[str] = set()
        for variable, at in forms.columns.items():
            labels = _entry_names(variable, forms.shapes[variable], taken, brackets)
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

    def _add_objective_row(self, total: QuadraticTerm, rows: set[str]) -> None:
        from pyscipopt.scip import Expr, Term

        top = Expr({Term(self._top): -1.0})
        row = next(self._expressions(total)) + top
        side = -float(total.r[0])
        below = row <= side if self.forms.sense == "minimize" else row >= side
        self.model.addCons(below, name=_unique("objective", rows))

    def _add(self, term: QuadraticTerm, rows: set[str]) -> None:
        labels = _entry_names(term.name, term.shape, rows, self._brackets)
        for row, side, label in zip(self._expressions(term), -term.r, labels, strict=True):
            side = float(side)
            self.model.addCons(row == side if term.set == "zero" else row <= side, name=label)

    def _expressions(self, term: QuadraticTerm) -> Iterator[Any]:
        """Yield every entry without its constant."""
        from pyscipopt.scip import Expr, Term

        x, A, Q, pairs = self._columns, term.map.A, term.map.Q, term.map.pairs
        most = max(np.abs(part.data).max(initial=0.0) for part in (A, Q))
        if most >= self.model.infinity():
            raise UnsupportedProblem(
                f"SCIP takes {self.model.infinity():g} for infinite",
                f"{term.name!r} has a coefficient of {most:.1e}, in units that suit its others",
                "state its numbers in units that are nearer to one another",
            )
        for k in range(term.size):
            if time.perf_counter() > self._deadline:
                raise TimeoutError("the model is not built yet")
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
