"""Solve a problem along one or two parameters, each point from where the last solve ended."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from copy import copy
from dataclasses import asdict, replace
from functools import partial
from itertools import pairwise, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
from cvxpy.atoms.affine.add_expr import AddExpression
from cvxpy.constraints import Equality, Inequality

from optfair.backends.registry import profile
from optfair.backends.request import Request
from optfair.compile.conic_proof import ConicProof, ValueLine
from optfair.core.expressions import dense
from optfair.core.identity import fingerprint
from optfair.core.labels import entry_names
from optfair.core.parameters import parameters
from optfair.core.problem import Problem, check_problem
from optfair.errors import DataError, DeclarationError, Infeasible, OptfairError, kind_of, nearest
from optfair.numbers import (
    Flags,
    check_count,
    check_flag,
    check_functions,
    check_jobs,
    check_names,
    check_path,
    check_point,
    check_positive,
    check_text,
    checked,
    floats,
)
from optfair.storage import check_record, read_json, write_text
from optfair.sweeps.sweep_result import Dependence, Point, Sweep, as_minimised, dependence, gaps

if TYPE_CHECKING:
    from optfair.core.solution import Solution

# Points nearer than this part of the segment are the same.
CLOSE = 1e-9

logger = logging.getLogger("optfair")


@checked(
    problem=check_problem,
    width=check_positive,
    points=check_count,
    functions=check_functions,
    save=check_path,
    keep=check_flag,
    n_jobs=check_jobs,
)
def sweep(
    problem: Problem,
    parameter: str | Sequence[str],
    values: Any,
    *,
    width: float | None = None,
    points: int = 200,
    functions: Mapping[str, Callable[[Solution], Any]] | None = None,
    solver: str | None = None,
    tolerance: float = 1e-7,
    time_limit: float | None = None,
    save: str | Path | None = None,
    keep: bool = False,
    n_jobs: int = 1,
) -> Sweep:
    r"""Solve a problem along a parameter, each time from where the last solve ended.

    .. math:: v(t) = \min_x \{f_t(x) : x \in C_t\}

    Where v is proved convex (right-hand sides of a convex problem), concave (costs, of any
    problem) or monotone, every point bounds v between the points too: multipliers are a line
    below a convex v, feasible points a line above a concave one, chords do the rest.

    Parameters
    ----------
    problem : Problem
        What to solve.
    parameter : str or pair of str
        One of `Problem.parameters`, or two whose values are combined; or a linear row, such as
        "budget" or "demand[2]" or its label in a file: then its right-hand side moves.
    values : array, or pair of arrays
        Values to solve at; with ``width`` the two ends (low, high), and the points between them
        are chosen where the band is widest; for two parameters a pair of arrays.
    width : float, optional
        Stop when the band is nowhere wider than this part of the range of the optimal values.
    points : int
        Solve at most so many, with ``width``.
    functions : dict, optional
        Name -> function of the solution, for further columns.
    solver, tolerance, time_limit
        As for `solve`; the time limit is for every point.
    save : path, optional
        A JSON file that holds what is done: another call with the same file goes on from there.
    keep : bool
        Keep the solutions on the points.
    n_jobs : int
        Processes of joblib (-1: one a core; a Dask client by `joblib.parallel_config`); each goes
        along a piece of the values.

    Returns
    -------
    Sweep
        Points, a frame, the band and a picture; after Ctrl-C of the points until then.

    Raises
    ------
    DeclarationError
        Unknown parameter, values that it cannot have, a width where nothing is proved between
        points, a file of another sweep.

    Examples
    --------
    >>> import cvxpy as cp, optfair as of
    >>> x, b = cp.Variable(2, name="x"), cp.Parameter(name="b", value=1.0)
    >>> p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x)), [cp.sum(x) >= b]))
    >>> s = of.sweep(p, "b", (0.0, 4.0), width=0.05)
    >>> s.dependence.word, s.width <= 0.05, len(s) < 12
    ('convex', True, True)
    >>> low, high = s.band(3.0)
    >>> bool(low <= 4.5 <= high)
    True
    >>> of.sweep(of.library.load("textbook/diet").problem(), "minimum nutrition[0]", [0, 10]).names
    ('minimum nutrition[0]',)

    References
    ----------
    Convexity in right-hand sides and concavity in costs: Boyd, Vandenberghe, Convex
    Optimization, 5.6.1; Bertsimas, Tsitsiklis, Introduction to Linear Optimization, 5.2-5.3.
    """
    wanted = (parameter,) if isinstance(parameter, str) else check_names(parameter, "parameter")
    for name in wanted:
        moved = with_side(problem, check_text(name, "parameter"))
        lost = parameters(problem).keys() - parameters(moved).keys()
        if lost & {*wanted}:
            raise DeclarationError(
                f"{name!r} and {min(lost)!r} stand in one row",
                remedy="state the row on two parameters, and sweep these",
            )
        problem = moved
    names, grid = _grid(problem, wanted, values, width)
    known = Dependence("", "there are two parameters")
    run = Run(problem, names, known, (grid[0][0], grid[-1][0]), functions or {}, keep, save)
    if len(names) == 1:
        low, high = run.ends
        run.known = Dependence("", "there is one value")
        if high > low:
            run.known = dependence(problem, names[0], low, high)
    if width is not None and not run.known.word:
        raise DeclarationError(
            f"nothing is proved between values of {names[0]!r}",
            run.known.because,
            "give the values to solve at",
        )
    run.asked = asked_of_all(solver, tolerance, time_limit)
    run.along(grid, n_jobs)
    if width is not None:
        run.refine(width, points, n_jobs)
    return run.result()


def _grid(
    problem: Problem, wanted: Sequence[str], values: Any, width: float | None
) -> tuple[tuple[str, ...], list[tuple[float, ...]]]:
    """Return the names of the parameters, and the values to begin with."""
    known = parameters(problem)
    names = tuple(_full_name(problem, known, name) for name in wanted)
    if len(names) not in (1, 2) or len({*names}) < len(names):
        twice = " of one name" if len({*names}) < len(names) else ""
        raise DeclarationError(f"{len(names)} parameters{twice}", remedy="sweep one or two")
    axes = (values,) if len(names) == 1 else _pair(values)
    if len(axes) != len(names):
        raise DeclarationError(
            f"values for {len(axes)} of {len(names)} parameters",
            remedy="give one array of values per parameter",
        )
    numbers = []
    for name, axis in zip(names, axes, strict=True):
        if known[name].shape != ():
            raise DeclarationError(
                f"parameter {name!r} is an array",
                f"it has the shape {known[name].shape}",
                "write the terms with a scalar parameter times a direction, and sweep that",
            )
        own = np.unique(floats(axis, f"values of {name!r}"))
        if not own.size:
            raise DeclarationError(f"no value of {name!r}", remedy="give some")
        for v in own:
            known[name].checked(float(v))
        numbers.append(own.tolist())
    if width is not None and (len(names) == 2 or len(numbers[0]) != 2):
        raise DeclarationError(
            "a width is for the segment between two values of one parameter",
            remedy="give values=(low, high)",
        )
    return names, [tuple(at) for at in product(*numbers)]


def asked_of_all(solver: str | None, tolerance: float, time_limit: float | None) -> dict[str, Any]:
    """Return the options of every solve, refused here if no point could be solved with them."""
    Request(tolerance, time_limit)
    if solver is not None:
        profile(check_text(solver, "solver"))
    asked = {"solver": solver, "tolerance": tolerance, "time_limit": time_limit}
    return {name: value for name, value in asked.items() if value is not None}


def _pair(values: Any) -> tuple[Any, ...]:
    """Return the values of each of two parameters."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise DataError(f"values are {kind_of(values)}", remedy="give an array of each")
    return tuple(values)


def with_side(problem: Problem, name: str) -> Problem:
    """Return the problem with the right-hand side of a linear row as a parameter, if it is one."""
    place = None if name in parameters(problem) else _row(problem, name)
    if place is None:
        return problem
    label, at = place
    constraint = problem.constraints[label].build()
    if not isinstance(constraint, (Equality, Inequality)):
        raise DeclarationError(
            f"{name!r} has no right-hand side",
            f"it is {kind_of(constraint)}",
            "sweep a row that is an equality or an inequality",
        )
    if open_entries(constraint)[at]:
        raise DeclarationError(
            f"{name!r} has no right-hand side",
            "it is infinite, or no variable stands before it",
            "state a finite one, and sweep that",
        )
    number = int(not constraint.args[0].is_constant())  # of the side that has no variables
    side = constraint.args[number]
    stated = dense(side.value) if side.is_constant() else np.zeros(constraint.shape)
    stated = np.broadcast_to(stated, constraint.shape)
    moving = np.zeros(constraint.shape)
    moving[at] = 1.0
    leaf = cp.Parameter(name=name, value=float(stated[at]))
    moved = stated * (1.0 - moving) + moving * leaf
    sides = list(constraint.args)
    sides[number] = moved if side.is_constant() else side + moved
    return problem.without(label).with_constraints({label: type(constraint)(*sides)})


def open_entries(constraint: Any) -> Flags:
    """Return which entries of a row hold whatever the variables are: their side was infinite."""
    varying = [a for a in constraint.args if not a.is_constant()]
    if len(varying) == 1 and isinstance(varying[0], AddExpression):  # what is added is constant
        varying = [a for a in varying[0].args if not a.is_constant()]
    held = np.ones(constraint.shape)
    if len(varying) == 1 and isinstance(varying[0], cp.multiply):
        factor = varying[0].args[0]
        if factor.is_constant():
            held = np.broadcast_to(dense(factor.value), constraint.shape)
    return np.asarray(held == 0.0)


def _row(problem: Problem, name: str) -> tuple[str, tuple[int, ...]] | None:
    """Return the constraint and the index that a name or label means, where it means one entry."""
    for label, term in problem.constraints.items():
        if name == label:
            if np.prod(term.shape, dtype=int) == 1:
                return label, (0,) * len(term.shape)
            raise DeclarationError(
                f"{name!r} has {np.prod(term.shape, dtype=int)} right-hand sides",
                remedy=f"name one entry, such as {entry_names(name, problem.axes(name), term.shape)[0]!r}",
            )
        known = [term.labels()] if term.labels else []
        if name.startswith(f"{label}["):
            axes = problem.axes(label)
            known += [entry_names(label, axes, term.shape)] if axes else []
            index = _index(name[len(label) :], term.shape)
            if index is not None and not any(name in names for names in known):
                return label, index
        for names in known:
            if name in names:
                at = np.unravel_index(list(names).index(name), term.shape, order="F")
                return label, tuple(int(i) for i in at)
    return None


def _index(text: str, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the index that "[2,0]" is in an array of a shape."""
    if re.fullmatch(r"\[\d+(,\d+)*\]", text, re.ASCII) is None:
        return None
    at = tuple(map(int, text[1:-1].split(",")))
    inside = len(at) == len(shape) and all(i < n for i, n in zip(at, shape, strict=True))
    return at if inside else None


def _full_name(problem: Problem, known: Mapping[str, Any], name: str) -> str:
    """Return the name of a parameter that may be called by the field of its rule."""
    if name in known:
        return name
    own = [k for k, p in known.items() if p.rule[1] == name]
    if len(own) == 1:
        return own[0]
    raise DeclarationError(
        f"no parameter or row {name!r}", remedy=nearest(name, {**known, **problem.constraints})
    )


class Run:
    """The points of a sweep so far, and how the next is solved."""

    asked: dict[str, Any]

    def __init__(
        self,
        problem: Problem,
        names: tuple[str, ...],
        known: Dependence,
        ends: tuple[float, float],
        functions: Mapping[str, Callable[[Solution], Any]],
        keep: bool,
        save: str | Path | None,
    ) -> None:
        self.problem, self.names, self.known, self.ends = problem, names, known, ends
        self.functions, self.keep = functions, keep
        self.points: dict[tuple[float, ...], Point] = {}
        self.fresh, self.interrupted = 0, False
        self.file = None if save is None else _File(Path(save), problem, names)
        if self.file is not None:
            # a function that is new has to see the solutions, which no file holds
            known_points = self.file.read().items()
            self.points = {
                at: p for at, p in known_points if not p.solved or functions.keys() <= p.more.keys()
            }
        if len(names) == 1:  # what a file holds may lie further out
            places = [*ends, *(at[0] for at in self.points)]
            self.ends = min(places), max(places)
        self.sides: tuple[Any, Any] | None = None
        self._last: list[tuple[float, Solution]] = []

    def result(self) -> Sweep:
        """Return what there is, sorted."""
        ordered = tuple(self.points[at] for at in sorted(self.points))
        return Sweep(self.problem, self.names, ordered, self.known, self.fresh)

    def far(self, t: float) -> bool:
        """Whether no point is at a value."""
        return all(abs(at[0] - t) > CLOSE * (self.ends[1] - self.ends[0]) for at in self.points)

    def edge(self, width: float) -> float | None:
        """Return a value between feasible and infeasible ones, while these are far apart."""
        order = [self.points[at] for at in sorted(self.points)]
        for a, b in pairwise(order):
            apart = b.at[0] - a.at[0]
            if a.solved != b.solved and apart > max(width, 1e-6) * (self.ends[1] - self.ends[0]):
                return 0.5 * (a.at[0] + b.at[0])
        if not any(p.solved for p in order) and len(order) < 5:
            return float(np.mean([order[0].at[0], order[1].at[0]]))
        return None

    def refine(self, width: float, points: int, jobs: int = 1) -> None:
        """Solve where the band is widest, until it is nowhere wider or there are so many points."""
        many = processes(jobs)
        while self.fresh < points and not self.interrupted:
            edge = self.edge(width)
            if edge is not None:
                self.along([(edge,)])
                continue
            wide = [g for g in gaps(self.result(), width) if g[0] > width and self.far(g[1])]
            if not wide:
                return
            widest = sorted(wide)[::-1][: min(many, points - self.fresh)]
            self.along([(t,) for _, t in widest], jobs)

    def along(self, grid: Sequence[tuple[float, ...]], jobs: int = 1) -> None:
        """Solve at values in turn, or pieces of them in processes; Ctrl-C ends it with what is there."""
        new = [at for at in grid if at not in self.points]
        many = min(processes(jobs), len(new))
        try:
            if many < 2:
                for at in new:
                    self.point(at)
            else:
                self._in_pieces(many, new)
        except KeyboardInterrupt:
            if not self.points:
                raise
            self.interrupted = True
            logger.warning("interrupted; %d points are kept", len(self.points))

    def _in_pieces(self, many: int, new: Sequence[tuple[float, ...]]) -> None:
        """Solve some pieces a process, so that a file has what is done and slow pieces even out."""
        size = max(1, len(new) // (4 * many))
        try:
            self._inprocesses(many, [new[i : i + size] for i in range(0, len(new), size)])
        except BrokenProcessPool:  # a process died, and took what the others were at with it
            for at in new:
                if at not in self.points:
                    self._alone(at)

    def _inprocesses(self, many: int, pieces: Sequence[Sequence[tuple[float, ...]]]) -> None:
        from joblib import Parallel, delayed

        begun = Parallel(n_jobs=many, return_as="generator_unordered")(
            delayed(_piece)(self._blank(), piece) for piece in pieces
        )
        for solved in begun:
            self.points.update(solved)
            self.fresh += len(solved)
            if self.file is not None:
                self.file.write(self.points)

    def _blank(self) -> Run:
        """Return a run that asks the same, with no point and no file yet."""
        blank = copy(self)
        blank.points, blank.file, blank.sides, blank._last = {}, None, None, []
        return blank

    def _alone(self, at: tuple[float, ...]) -> None:
        """Solve at a value in a process of its own; where that dies too, the point says so."""
        try:
            self._inprocesses(2, [[at]])
        except BrokenProcessPool:
            self.points[at] = Point(at, "SolverFailure: the process that solved here was killed")
            self.fresh += 1

    def point(self, at: tuple[float, ...]) -> None:
        """Solve at a value, unless that was done."""
        if at in self.points:
            return
        begin = time.perf_counter()
        self.fresh += 1
        here = self.problem.at(dict(zip(self.names, at, strict=True)))
        try:
            solution = here.solve(**self.asked, warm_start=self._start(at[0]))
        except Infeasible as e:
            made = Point(at, "infeasible", conflict=tuple(e.conflict or ()))
        except OptfairError as e:
            made = Point(at, f"{type(e).__name__}: {e.cause}")
        else:
            made = self._read(at, here, solution)
        self.points[at] = replace(made, seconds=time.perf_counter() - begin)
        if made.status == "interrupted":
            raise KeyboardInterrupt  # what a file holds is not solved again
        if self.file is not None:
            self.file.write(self.points)

    def _start(self, t: float) -> Solution | None:
        """Return the nearest solution, for algorithms that start from one; others keep their own."""
        own = [(abs(t - s), nearest) for s, nearest in self._last]
        if not own:
            return None
        nearest = min(own, key=lambda pair: pair[0])[1]
        return None if isinstance(nearest.proof, ConicProof) or nearest.proof is None else nearest

    def _read(self, at: tuple[float, ...], here: Problem, solution: Solution) -> Point:
        status = str(solution.status.termination)
        self._last = [*self._last[-7:], (at[0], solution)]
        prove, ends = None, ()
        if self.known.word and status == "optimal" and self.ends[1] > self.ends[0]:
            sides = self._sides()
            own = getattr(solution.proof, "line", None)
            kind = as_minimised(self.known.word, self.problem.sense)
            if kind == "convex":
                prove = None if own is None else partial(own, sides, *self.ends)
            elif kind == "concave":
                ends = tuple(p.objective_at(solution.values) for p in sides)
        taken = solution.options.get("iterations")
        return Point(
            at,
            status,
            float(solution.objective),
            float(solution.bound),
            solution.grade.word,
            solution.solver,
            iterations=None if taken is None else int(taken),
            ends=ends,
            segment=() if prove is None and not ends else self.ends,
            more={name: f(solution) for name, f in self.functions.items()},
            solution=solution if self.keep else None,
            prove=prove,
        )

    def _sides(self) -> tuple[Any, Any]:
        """Return the problem at both ends."""
        if self.sides is None:
            first, last = (self.problem.at({self.names[0]: t}) for t in self.ends)
            self.sides = first, last
        return self.sides


def processes(jobs: int) -> int:
    """Return how many processes are asked for, as joblib counts them."""
    if jobs == 1:
        return 1
    from joblib import effective_n_jobs

    return int(effective_n_jobs(jobs))


def _piece(run: Run, piece: Sequence[tuple[float, ...]]) -> dict[tuple[float, ...], Point]:
    """Return the points of a piece, solved in this process, as they can be sent back."""
    run.along(piece)
    return {at: replace(p, prove=None, line_given=p.line) for at, p in run.points.items()}


class _File:
    """The points of a sweep on disk: JSON, written as a whole or not at all."""

    def __init__(self, path: Path, problem: Problem, names: tuple[str, ...]) -> None:
        self.path = path
        self.facts = {"schema": 2, "names": list(names), "problem": _identity(problem, names)}

    def read(self) -> dict[tuple[float, ...], Point]:
        """Return the points that are done."""
        if not self.path.exists():
            return {}
        try:
            document = dict(read_json(self.path))
            check_record(document, {"schema": self.facts["schema"]}, "it")
            own = {k: document[k] for k in self.facts}
            rows = [_point(row) for row in document["points"]]
        except (DataError, ValueError, KeyError, TypeError) as e:
            raise DataError(
                f"{self.path} is no sweep", f"{type(e).__name__}: {e}", "choose another file"
            ) from None
        if own != self.facts:
            raise DeclarationError(
                f"{self.path} holds another sweep",
                "its problem or its parameters differ",
                "choose another file",
            )
        return {p.at: p for p in rows}

    def write(self, points: Mapping[tuple[float, ...], Point]) -> None:
        """Write all points."""
        rows = []
        for p in points.values():
            row = asdict(replace(p, solution=None, prove=None, line_given=p.line))
            rows.append({k: v for k, v in row.items() if k not in ("solution", "prove")})
        write_text(self.path, json.dumps({**self.facts, "points": rows}, default=_plain))


def _plain(value: Any) -> Any:
    """Return what a function gave as numbers and lists of them."""
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        raise DeclarationError(
            f"a function gave {kind_of(value)}, which no file of points holds",
            remedy="let it return numbers, or leave out save=",
        )
    return array.tolist()


def _identity(problem: Problem, names: Iterable[str]) -> str:
    """Return a hash of the problem at one value of what is swept."""
    known = parameters(problem)
    return fingerprint(problem.at({name: known[name].value for name in names}))


# What a point and its line must hold to be read.
POINT: dict[str, Any] = {
    **dict.fromkeys(("at", "ends", "segment", "conflict"), list),
    **dict.fromkeys(("value", "bound", "seconds"), (int, float)),
    **dict.fromkeys(("status", "grade", "solver"), str),
    "iterations": (int, type(None)),
    "line_given": (dict, type(None)),
    "more": dict,
}
LINE: dict[str, Any] = {**dict.fromkeys(("start", "value", "slope"), (int, float)), "sound": bool}


def _point(row: Mapping[str, Any]) -> Point:
    check_record(row, POINT, "a point")
    line = row["line_given"]
    if line is not None:
        check_record(line, LINE, "the line of a point")
    check_point({k: row[k] for k in ("at", "ends", "segment")}, "a point")
    lists = {k: tuple(row[k]) for k in ("at", "conflict", "ends", "segment")}
    return Point(**{**row, **lists, "line_given": None if line is None else ValueLine(**line)})
