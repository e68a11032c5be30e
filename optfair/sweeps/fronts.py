"""Fronts of several objectives over the feasible set of any problem, with what is proved of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np

from optfair.core.composition import objective_term, owned, variable_names
from optfair.core.problem import Problem, check_problem
from optfair.core.term import ObjectiveTerm
from optfair.errors import DeclarationError, kind_of, nearest, shown
from optfair.numbers import (
    check_choice,
    check_count,
    check_functions,
    check_jobs,
    check_path,
    check_positive,
    check_text,
    checked,
    floats,
)
from optfair.sweeps.along import Run, asked_of_all, processes
from optfair.sweeps.pareto_front import FrontPoint, Halfspace, ParetoFront
from optfair.sweeps.sweep_result import Dependence, Point

if TYPE_CHECKING:
    from optfair.core.solution import Solution

# Weight of the other objectives where one is asked for, so that ties are broken in their favour.
OTHERS = 1e-3
# How far an earlier objective may be off its optimum in a lexicographic order, of its size: a curved
# one leaves a ball about a point, which solvers of cones need some room in.
SLACK, CURVED_SLACK = 1e-6, 1e-4
# An edge of the front narrower than this share of the ranges is not split any more.
NARROW = 1e-9
# A range below this share of the size of an objective is none: the others do not trade with it.
NO_RANGE = 1e-9
METHODS = ("weighted", "lexicographic", "epsilon")


@checked(
    problem=check_problem,
    points=check_count,
    width=check_positive,
    functions=check_functions,
    save=check_path,
    n_jobs=check_jobs,
)
def pareto(
    problem: Problem,
    objectives: Mapping[str, Any] | Sequence[str],
    *,
    method: str = "weighted",
    points: int = 20,
    width: float | None = None,
    values: Any = None,
    functions: Mapping[str, Callable[[Solution], Any]] | None = None,
    solver: str | None = None,
    tolerance: float = 1e-7,
    time_limit: float | None = None,
    save: str | Path | None = None,
    n_jobs: int = 1,
) -> ParetoFront:
    r"""Return the front of several objectives over the feasible set of a problem.

    .. math::
        \min_x \sum_i w_i g_i(x) \quad \text{or} \quad
        \min_x \{g_1(x) + \rho \sum_{i>1} g_i(x) / r_i : g_i(x) \le \varepsilon_i,\ i > 1\}

    with g in the direction of minimisation and r its ranges. A proved bound L of such a problem
    says of every feasible y that obeys its levels :math:`w^T g(y) \ge L`: no feasible point is
    better than a point g of the front in every objective by more than
    :math:`\max\{(w^T g - L) / w^T r,\ \max_i (g_i - \varepsilon_i) / r_i\}` of its range. The least
    of these over all problems that were solved stands beside every point.

    Parameters
    ----------
    problem : Problem
        Its constraints are kept; its objective counts only where it is named.
    objectives : dict, or sequence of str
        Two or more: name -> CVXPY expression (minimised), cvxpy.Minimize or cvxpy.Maximize of
        one; or names of terms of the problem's own objective.
    method : {"weighted", "lexicographic", "epsilon"}
        Weighted sums: of two objectives, each between neighbours that are far from what is
        proved (all corners of the front of a linear program). Levels on all objectives but the
        first, which also reach what no weights do where the front is not convex. Or one point,
        each objective in turn with the earlier ones held at their optima (to 1e-6 of their size,
        1e-4 of a curved one).
    points : int
        Solve at most so many, beside the ends.
    width : float, optional
        Stop when points and bounds are nowhere further apart than this share of the ranges (two
        objectives).
    values : array, optional
        Weights (m, k), or levels (m, k - 1) of all objectives but the first, in place of chosen ones.
    functions : dict, optional
        Name -> function of the solution, for further columns.
    solver, tolerance, time_limit
        As for `solve`; the time limit is for every point.
    save : path, optional
        A JSON file that holds the points between the ends, from which another call goes on.
    n_jobs : int
        Processes of joblib (-1: one a core) that solve the points between the ends.

    Returns
    -------
    ParetoFront
        Points that no other dominates, a frame, a picture, and bounds between the points of two.

    Raises
    ------
    DeclarationError
        Fewer than two objectives, one that is no expression on this problem, values that are no
        weights or levels.
    Infeasible, Unbounded
        No point is feasible; an objective alone improves without limit.

    Examples
    --------
    >>> import cvxpy as cp, optfair as of
    >>> x = cp.Variable(2, name="x")
    >>> p = of.from_cvxpy(cp.Problem(cp.Minimize(0), [cp.sum(x) == 1, x >= 0]))
    >>> front = of.pareto(p, {"first": cp.square(x[0]), "second": cp.square(x[1])}, width=0.02)
    >>> front.grade, max(point.within for point in front.points) < 1e-4
    ('proved', True)
    >>> low, high = front.band(0.25)
    >>> bool(low <= 0.25 <= high)
    True

    References
    ----------
    Ehrgott, Multicriteria Optimization, 2nd edition, chapters 3-5; Mavrotas, Effective
    implementation of the ε-constraint method, Appl. Math. Comput. 213 (2009).
    """
    check_choice(method, "method", METHODS)
    goals = _goals(problem, objectives)
    front = _Front(problem, goals, asked_of_all(solver, tolerance, time_limit))
    front.functions, front.save, front.jobs = dict(functions or {}), save, n_jobs
    if width is not None and len(goals) != 2:
        raise DeclarationError(f"a width for {len(goals)} objectives", remedy="it is for two")
    if method == "lexicographic":
        front.in_turn()
    else:
        front.ends()
        if front.trades:
            along = front.weighted if method == "weighted" else front.levels
            along(points, width, values)
    return front.result(method)


@dataclass(frozen=True)
class _Goal:
    """An objective: ``expression`` is minimised, ``sign`` times what was declared."""

    name: str
    sign: float
    expression: Any
    term: ObjectiveTerm


def _goals(problem: Problem, objectives: Any) -> tuple[_Goal, ...]:
    """Return the objectives, analysed on the problem's variables."""
    if isinstance(objectives, str) or not isinstance(objectives, (Mapping, Sequence)):
        raise DeclarationError(
            f"objectives are {kind_of(objectives)}",
            remedy="give a dict of expressions by name, or names of terms of the objective",
        )
    if any(t.limit is not None for t in problem.constraints.values()):
        raise DeclarationError(
            "a rule of this problem has guessed a limit for its own objective",
            remedy="sweep a parameter of it instead: optfair.sweep",
        )
    for name in objectives:
        if isinstance(name, (cp.Expression, cp.Minimize, cp.Maximize)):
            raise DeclarationError(
                f"objective {shown(str(name))} has no name",
                remedy="give a dict of expressions by name, as in {'cost': ..., 'risk': ...}",
            )
        check_text(name, "an objective's name")
    given = objectives if isinstance(objectives, Mapping) else {n: n for n in objectives}
    goals = []
    for name, item in given.items():
        sign = 1.0
        if isinstance(item, str):
            if item not in problem.objective:
                raise DeclarationError(
                    f"no objective term {item!r}", remedy=nearest(item, problem.objective)
                )
            sign = 1.0 if problem.sense == "minimize" else -1.0
            item = problem.objective[item].build()
        elif isinstance(item, (cp.Minimize, cp.Maximize)):
            sign = 1.0 if isinstance(item, cp.Minimize) else -1.0
            item = item.args[0]
        if not isinstance(item, cp.Expression):
            raise DeclarationError(
                f"objective {name!r} is {kind_of(item)}",
                remedy="give a CVXPY expression on the problem's variables",
            )
        own = sign * owned(problem, item)
        if unknown := variable_names(own, problem.names)[1]:
            raise DeclarationError(
                f"objective {name!r} uses variables of another problem: {', '.join(unknown)}",
                f"this problem has {', '.join(problem.variables)}",
                "write it on p[...] of this problem or of one it was made from",
            )
        term = objective_term(str(name), own, problem.names, "minimize")
        if not term.scope:
            raise DeclarationError(f"objective {name!r} depends on no variable")
        goals.append(_Goal(str(name), sign, term.build(), term))
    if len(goals) < 2:
        raise DeclarationError(
            f"{len(goals) or 'no'} objective{'' if len(goals) == 1 else 's'}",
            remedy="a front needs two or more",
        )
    return tuple(goals)


class Plain(Problem):
    """The constraints of a problem under any objective."""

    unit_from_data = True


class _Value:
    """The value of an objective at a solution, in the direction of minimisation; it travels."""

    def __init__(self, name: str, expression: Any, variables: Mapping[str, Any]) -> None:
        self.stated = name, expression, dict(variables)

    def __reduce__(self) -> Any:
        return _Value, self.stated

    def __call__(self, solution: Solution) -> float:
        return self._term.number(solution.values)

    @cached_property
    def _term(self) -> ObjectiveTerm:
        name, expression, variables = self.stated  # these have new ids where they arrive
        return objective_term(name, expression, {v.id: k for k, v in variables.items()}, "minimize")


class _Front:
    """The points and half-spaces of a front so far, and how the next is solved."""

    functions: dict[str, Callable[[Solution], Any]]
    save: str | Path | None
    jobs: int

    def __init__(
        self, problem: Problem, goals: tuple[_Goal, ...], asked: Mapping[str, Any]
    ) -> None:
        self.goals, self.asked, self.declared = goals, asked, problem
        self.weights = [
            cp.Parameter(nonneg=True, name=f"weight of {g.name}", value=1.0) for g in goals
        ]
        # a plain problem: what a model knows is of its own objective
        self.plain: Problem = object.__new__(Plain)
        self.plain.__dict__.update(problem._child(sense="minimize").__dict__)
        terms = [
            objective_term(g.name, w * g.expression, problem.names, "minimize")
            for g, w in zip(goals, self.weights, strict=True)
        ]
        self.sum = self.plain.with_terms(
            {t.name: t for t in terms}, problem.constraints
        )._proved_anew()
        self.convex = self.sum.problem_class.convex and not self.sum.integers
        self.ranges = np.ones(len(goals))
        self.trades = True
        self.points: list[FrontPoint] = []
        self.known: list[Halfspace] = []

    def result(self, method: str) -> ParetoFront:
        """Return the front of what was solved."""
        names = tuple(g.name for g in self.goals)
        signs = tuple(g.sign for g in self.goals)
        points = [p for p in self.points if p.weights or p.levels]
        return ParetoFront.of(
            self.declared, names, signs, method, points, self.known, self.ranges, self.convex
        )

    def values(self, solution: Solution) -> tuple[float, ...]:
        """Return the objectives at a solution, in the direction of minimisation."""
        return tuple(g.term.number(solution.values) for g in self.goals)

    # --- one problem --------------------------------------------------------------------------

    def _taken(self, here: Problem, weights: Any, levels: Any = None) -> FrontPoint:
        """Solve a problem that is not swept, and keep the point."""
        begin = time.perf_counter()
        solution = here.solve(**self.asked)
        more = {name: f(solution) for name, f in self.functions.items()}
        return self._keep(
            self.values(solution), weights, levels, solution, more, time.perf_counter() - begin
        )

    def _keep(
        self, values: Any, weights: Any, levels: Any, solution: Any, more: Any, seconds: float
    ) -> FrontPoint:
        """Keep a point, and the half-space its bound proves."""
        none = (np.inf,) * len(self.goals)
        point = FrontPoint(
            tuple(float(v) for v in values),
            tuple(float(w) for w in weights),
            none if levels is None else tuple(float(v) for v in levels),
            solver=solution.solver,
            seconds=seconds,
            more=more,
            solution=solution if hasattr(solution, "values") else solution.solution,
        )
        grade = solution.grade if isinstance(solution.grade, str) else solution.grade.word
        self.known.append(Halfspace(point.weights, point.levels, float(solution.bound), grade))
        self.points.append(point)
        return point

    def _at(self, weights: Any) -> Problem:
        given = dict(zip((w.name() for w in self.weights), weights, strict=True))
        return self.sum.at(given)

    def _alone(self, goal: _Goal) -> Problem:
        return self.plain.with_terms({goal.name: goal.term}, self.plain.constraints)

    def _read(self, p: Point, weights: Any, levels: Any = None) -> FrontPoint | None:
        if not p.solved:
            return None
        values = [p.more[f"value of {g.name}"] for g in self.goals]
        more = {name: p.more[name] for name in self.functions}
        return self._keep(values, weights, levels, p, more, p.seconds)

    def _run(self, problem: Problem, names: tuple[str, ...], known: Dependence, ends: Any) -> Run:
        columns: dict[str, Any] = {
            f"value of {g.name}": _Value(g.name, g.expression, problem.variables)
            for g in self.goals
        }
        run = Run(problem, names, known, ends, {**self.functions, **columns}, True, self.save)
        run.asked = dict(self.asked)
        return run

    # --- the methods --------------------------------------------------------------------------

    def in_turn(self) -> None:
        """Minimise each objective in turn, the earlier ones held at their optima."""
        levels = np.full(len(self.goals), np.inf)
        for i, g in enumerate(self.goals):
            held = {
                f"level of {h.name}": h.expression <= levels[j]
                for j, h in enumerate(self.goals[:i])
            }
            point = self._taken(
                self._alone(g).with_constraints(held), np.eye(len(levels))[i], levels.copy()
            )
            size = max(point.solution.unit, abs(point.values[i]))
            straight = g.term.evidence.problem_class.name == "LP"
            slack = (SLACK if straight else CURVED_SLACK) * size
            self.ranges[i], levels[i] = size, point.values[i] + slack
        self.points = self.points[-1:]

    def ends(self) -> None:
        """Minimise each objective alone for the ranges, then with a little of the others."""
        k = len(self.goals)
        for i, g in enumerate(self.goals):
            # one compiled form serves all weights; 0 times what is not convex has none
            here = self._at(np.eye(k)[i]) if self.convex else self._alone(g)
            self._taken(here, np.eye(k)[i])
        alone = np.array([p.values for p in self.points])
        rough = np.ptp(alone, axis=0)
        units = [p.solution.unit for p in self.points]
        # a search without convexity leaves rows open by the tolerance, and objectives with them
        share = NO_RANGE if self.convex else max(NO_RANGE, float(self.asked["tolerance"]))
        small = rough <= share * np.maximum(units, np.abs(alone).max(axis=0))
        self.trades = not small.all()
        rough[small] = 1.0
        self.ranges, self.points = rough, [] if self.trades else self.points[:1]
        if not self.trades:
            return
        for i in range(k):
            own = (OTHERS + (1.0 - k * OTHERS) * np.eye(k)[i]) / rough
            self._taken(self._at(own), own)
        ends = np.array([p.values for p in self.points])
        own_range, most = np.ptp(ends, axis=0), np.abs(np.vstack([alone, ends])).max(axis=0)
        # what is left open where another is minimised alone goes with the root of the tolerance
        least = float(self.asked["tolerance"]) * np.maximum(units, most)
        idle = (own_range <= least) & (rough <= least / float(self.asked["tolerance"]) ** 0.5)
        if idle.sum() >= k - 1:  # one objective is left: its optimum is the front
            best = int(ends[:, idle.argmin()].argmin())
            self.ranges, self.points, self.trades = rough, [self.points[best]], False
            return
        self.ranges = np.where(own_range > NO_RANGE * rough, own_range, rough)

    def weighted(self, points: int, width: float | None, values: Any) -> None:
        """Solve weighted sums: those given, a grid of them, or where an edge of two is widest."""
        k = len(self.goals)
        names = tuple(w.name() for w in self.weights)
        run = self._run(self.sum, names, Dependence("", "weights are swept"), (0.0, 1.0))
        if values is not None or k > 2:
            spaced = (w / self.ranges for w in np.array(_simplex(k, points)))
            given = spaced if values is None else _grid(values, k, "weights")
            grid = [tuple(float(v) for v in w) for w in given]
            self._along(run, grid)
            return
        done: set[tuple[float, ...]] = set()
        while run.fresh < points and not run.interrupted:
            edges = [e for e in self.result("weighted").edges() if e[1] not in done]
            wide = [e for e in edges if e[0] > (NARROW if width is None else width)]
            if not wide:
                return
            many = min(processes(self.jobs), points - run.fresh)
            widest = [at for _, at in sorted(wide, reverse=True)[:many]]
            done.update(widest)
            self._along(run, widest)

    def _along(self, run: Run, weights: Sequence[tuple[float, ...]]) -> None:
        run.along(weights, self.jobs)
        for at in weights:
            if at in run.points:  # Ctrl-C did not come before
                self._read(run.points[at], at)

    def levels(self, points: int, width: float | None, values: Any) -> None:
        """Minimise the first objective, a little of the others with it, under levels on them."""
        k = len(self.goals)
        weights = np.full(k, OTHERS) / self.ranges
        weights[0] = 1.0 / self.ranges[0]
        ends = np.array([p.values for p in self.points])
        low, high = ends.min(axis=0), ends.max(axis=0)
        limits = [
            cp.Parameter(name=f"level of {g.name}", value=float(high[i]))
            for i, g in enumerate(self.goals[1:], 1)
        ]
        rows = {
            f"level of {g.name}": g.expression <= limit
            for g, limit in zip(self.goals[1:], limits, strict=True)
        }
        under = self._at(weights).with_constraints(rows)
        word = "convex" if self.convex else "nonincreasing"
        known = (
            Dependence(word, "a level moves a right-hand side") if k == 2 else Dependence("", "")
        )
        run = self._run(
            under, tuple(p.name() for p in limits), known, (float(low[1]), float(high[1]))
        )
        each = max(2, round(points ** (1.0 / (k - 1)))) if width is None else 2
        axes = [np.linspace(low[i], high[i], each).tolist() for i in range(1, k)]
        grid = product(*axes) if values is None else _grid(values, k - 1, "levels")
        run.along([tuple(float(v) for v in at) for at in grid], self.jobs)
        if width is not None and values is None:
            run.refine(width, points, self.jobs)
        for at, p in run.points.items():
            self._read(p, weights, (np.inf, *at))


def _simplex(k: int, points: int) -> list[tuple[float, ...]]:
    """Return evenly spaced weights of sum 1, at most so many, none of them 0."""
    parts = 1
    while len(list(combinations(range(parts + k), k - 1))) <= points:
        parts += 1
    bars = combinations(range(parts + k - 1), k - 1)
    cuts = (np.diff([-1, *b, parts + k - 1]) - 1.0 for b in bars)
    return [tuple((OTHERS + (1.0 - k * OTHERS) * c / parts).tolist()) for c in cuts]


def _grid(values: Any, columns: int, word: str) -> list[tuple[float, ...]]:
    """Return weights or levels as they were given, checked."""
    own = floats(values, word)
    own = own.reshape(-1, 1) if own.ndim == 1 and columns == 1 else own
    fine = own.ndim == 2 and own.shape[1] == columns and np.isfinite(own).all()
    if word == "weights":
        fine = fine and bool((own >= 0.0).all() and (own.sum(axis=1) > 0.0).all())
    if not fine:
        raise DeclarationError(
            f"{word} of the shape {own.shape} cannot be",
            remedy=f"give rows of {columns} finite numbers, a row a point; weights are not negative",
        )
    return [tuple(row) for row in own.tolist()]
