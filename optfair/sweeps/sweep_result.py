"""The optimum along parameters: points, what is known in between them, and why."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from optfair.backends.registry import conic_interface
from optfair.compile.conic_proof import ROUNDED, ValueLine, same_rows
from optfair.compile.form import compile_problem
from optfair.core import display
from optfair.core.labels import free_name
from optfair.core.parameters import Family, Parameter, chosen, parameters
from optfair.core.problem import Problem, check_problem
from optfair.errors import DeclarationError, Tabled, UnsupportedProblem, data_frame, say_names
from optfair.numbers import Floats, check_number, checked
from optfair.plots import COLOURS, colour_bar, legend_below, new_axes, plain, tidy

if TYPE_CHECKING:
    from optfair.solution.conic_form import ConicForm


# What a frame of points says of each, beside its parameters and what functions gave.
COLUMNS = (
    *("value", "bound", "status", "grade", "price", "lower", "upper"),
    *("solver", "seconds", "iterations", "conflict"),
)


def columns(names: Iterable[str], taken: Iterable[str]) -> list[str]:
    """Return names for columns of a frame, with a number where they are taken.

    Examples
    --------
    >>> columns(["b", "price", "b"], ("value", "price"))
    ['b', 'price 2', 'b 2']
    """
    own = list(taken)
    known = len(own)
    for name in names:
        own.append(free_name(name, own))
    return own[known:]


# What is known of the optimal value as a function of one parameter, and why.


@dataclass(frozen=True)
class Dependence:
    """How an optimal value depends on a parameter.

    Attributes
    ----------
    word : str
        convex, concave, nonincreasing, nondecreasing, or "" where nothing is proved; of the
        declared objective.
    because : str
        Why, or why nothing is.
    """

    word: str
    because: str

    def __str__(self) -> str:
        return f"{self.word or 'not known'}: {self.because}"


@checked(problem=check_problem, low=check_number, high=check_number)
def dependence(problem: Problem, name: str, low: float, high: float) -> Dependence:
    """Return what is proved of the optimal value as a function of a scalar parameter.

    Parameters
    ----------
    problem : Problem
        At any value of the parameter.
    name : str
        A scalar parameter of it.
    low, high : float
        Between which values.

    Examples
    --------
    >>> import cvxpy as cp, optfair as of
    >>> from optfair.sweeps import dependence
    >>> x, b = cp.Variable(2, name="x"), cp.Parameter(name="b", value=1.0)
    >>> p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x)), [cp.sum(x) == b]))
    >>> print(dependence(p, "b", 0.0, 2.0))
    convex: 'b' moves right-hand sides of convex constraints
    """
    own = chosen(parameters(problem), name)
    name = own.name
    if own.rule[0]:
        return _of_rule(problem, own)
    if own.leaf is None and not problem.movable[name]:
        return Dependence("", f"{name!r} moves more than right-hand sides or costs")
    ends = tuple(problem.at({name: t}) for t in (low, high))
    if curved := curved_terms(problem, own):
        return Dependence("", f"{curved[0]!r} is no affine function of {name!r}")
    try:
        relaxed = [p._child(integers=frozenset()) for p in ends] if problem.integers else ends
        first, last = (compile_problem(p, conic_interface()).form for p in relaxed)
    except UnsupportedProblem as e:
        return Dependence("", e.cause)
    minimised = problem.sense == "minimize"
    convex = problem.problem_class.convex and not problem.integers
    if same_rows(first, last) and convex:
        said = f"{name!r} moves right-hand sides of convex constraints"
        return Dependence("convex" if minimised else "concave", said)
    if _same_set(first, last):
        said = f"{name!r} moves costs alone: the best of linear functions"
        return Dependence("concave" if minimised else "convex", said)
    grows = _grows(first, last)
    if grows:
        word = "nonincreasing" if (grows > 0) == minimised else "nondecreasing"
        set_word = "widens" if grows > 0 else "narrows"
        return Dependence(word, f"the feasible set {set_word} as {name!r} grows")
    return Dependence("", f"{name!r} moves both sides, or costs and sides together")


def curved_terms(problem: Problem, own: Parameter) -> list[str]:
    """Return the terms that contain a parameter and are no affine function of it."""
    leaf = own.leaf
    terms = problem.terms if leaf is not None else ()
    moved = [t for t in terms if any(f.parameter.id == leaf.id for f in t.parameters)]
    return [t.name for t in moved if t.written is None or Family.of(problem, t) is None]


def _of_rule(problem: Problem, own: Parameter) -> Dependence:
    rule, field = problem.rules[own.rule[0]], own.rule[1]
    if not problem.moves_sides(rule, field):
        return Dependence("", f"{field!r} of {type(rule).__name__} is more than a right-hand side")
    if problem.integers or not problem.problem_class.convex:
        return Dependence("", "the problem is not convex")
    word = "convex" if problem.sense == "minimize" else "concave"
    return Dependence(word, f"{field!r} of {type(rule).__name__} moves right-hand sides alone")


def _same_set(first: ConicForm, last: ConicForm) -> bool:
    rows = first.A is last.A or (
        first.A.shape == last.A.shape and abs(first.A - last.A).max() == 0.0
    )
    return bool(rows) and np.array_equal(first.b, last.b) and first.cones == last.cones


def _grows(first: ConicForm, last: ConicForm) -> int:
    """Return 1 where the feasible set widens, -1 where it narrows, 0 where nothing is proved."""
    if first.A.shape != last.A.shape or first.cones != last.cones:
        return 0
    if not (np.array_equal(first.q, last.q) and abs(first.P - last.P).max() == 0.0):
        return 0
    if first.offset != last.offset:
        return 0
    change = sp.csr_array(last.A - first.A)
    change.eliminate_zeros()
    sides = last.b - first.b
    moved = np.flatnonzero((np.diff(change.indptr) > 0) | (sides != 0.0))
    if not first.nonnegative[moved].all():
        return 0
    # slack gained: the sides, less what the rows change by where the columns may be
    lower, upper = _lasting_bounds(first, moved)
    part: Any = sp.coo_array(change)
    least, most = sides.copy(), sides.copy()
    with np.errstate(invalid="ignore"):
        ends = np.array([part.data * lower[part.col], part.data * upper[part.col]])
    np.subtract.at(least, part.row, ends.max(axis=0))
    np.subtract.at(most, part.row, ends.min(axis=0))
    if (least[moved] >= 0.0).all():
        return 1
    return -1 if (most[moved] <= 0.0).all() else 0


def _lasting_bounds(form: ConicForm, moved: Any) -> tuple[Any, Any]:
    """Return the bounds of columns that rows state which do not move."""
    b = form.b.copy()
    b[moved] = np.inf
    lower, upper = form.moved({"b": b}).column_bounds
    return lower, upper


# The optimum along parameters: points, and the band it lies in between them.


@dataclass(frozen=True)
class Point:
    """One value of the parameters, and what came of it.

    Attributes
    ----------
    at : tuple of float
        Values of the parameters.
    status : str
        optimal, infeasible, or what the solve ended with.
    value, bound : float
        Objective, and the bound on the optimum; NaN without one.
    grade : str
        What the bound rests on.
    solver, conflict, seconds, iterations
        Who solved it, which constraints exclude each other, CPU-independent seconds on the wall.
    ends : tuple of float
        Objective of this solution at both ends of the segment, where costs move.
    segment : tuple of float
        Between which values its line, or that of ``ends``, is known to hold.
    more : dict
        What the functions of the solution gave.
    """

    at: tuple[float, ...]
    status: str
    value: float = np.nan
    bound: float = np.nan
    grade: str = ""
    solver: str = ""
    conflict: tuple[str, ...] = ()
    seconds: float = 0.0
    iterations: int | None = None
    line_given: ValueLine | None = None
    ends: tuple[float, ...] = ()
    segment: tuple[float, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)
    solution: Any = field(default=None, compare=False, repr=False)
    prove: Callable[[], ValueLine | None] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        say_names(self, more="function")

    @cached_property
    def line(self) -> ValueLine | None:
        """Line under the optimal value of the minimisation, where it is proved; when asked for."""
        return self.line_given if self.prove is None else self.prove()

    @property
    def solved(self) -> bool:
        """Whether there is an optimum."""
        return self.status == "optimal"

    def reaches(self, t: float) -> bool:
        """Whether what it proves between the points holds at a value."""
        return len(self.segment) == 2 and self.segment[0] <= t <= self.segment[1]

    @property
    def rise(self) -> float:
        """Slope of the objective of this solution, where costs move; NaN elsewhere."""
        if len(self.ends) != 2:
            return np.nan
        return (self.ends[1] - self.ends[0]) / (self.segment[1] - self.segment[0])

    def along(self, t: float) -> float:
        """Return the objective of this solution at a value of the segment, where costs move."""
        share = (t - self.segment[0]) / (self.segment[1] - self.segment[0])
        return (1.0 - share) * self.ends[0] + share * self.ends[1]


@dataclass(frozen=True, eq=False, repr=False)
class Sweep(Tabled):
    """The optimum along parameters, in the order of their values.

    Attributes
    ----------
    problem : Problem
        What was swept.
    names : tuple of str
        Its parameters.
    points : tuple of Point
        Sorted; infeasible ones stay, with what excludes each other.
    dependence : Dependence
        What is proved of the optimal value between the points.
    solves : int
        How many points were solved in this call; others came from the file.

    Examples
    --------
    >>> import cvxpy as cp, optfair as of
    >>> x, need = cp.Variable(name="x"), cp.Parameter(name="need", value=1.0)
    >>> p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.square(x)), [x >= need]), ["demand"])
    >>> swept = of.sweep(p, "need", [0.0, 1.0, 2.0])
    >>> [round(point.value, 6) for point in swept], swept[1].at, swept[1].grade
    ([0.0, 1.0, 4.0], (1.0,), 'proved')
    """

    problem: Problem
    names: tuple[str, ...]
    points: tuple[Point, ...]
    dependence: Dependence
    solves: int

    def __len__(self) -> int:
        return len(self.points)

    def __iter__(self) -> Iterator[Point]:
        return iter(self.points)

    def __getitem__(self, i: int) -> Point:
        return self.points[i]

    def frame(self) -> Any:
        """Return a pandas DataFrame, one row a point.

        Raises
        ------
        NotInstalled
            pandas is missing.
        """
        rows = []
        for p in self.points:
            lower, upper = self.band(p.at[0]) if self._banded else (np.nan, np.nan)
            names = columns([*self.names, *p.more], COLUMNS)
            rows.append(
                {
                    **dict(zip(names, p.at, strict=False)),
                    "value": p.value,
                    "bound": p.bound,
                    "status": p.status,
                    "grade": p.grade,
                    "price": self._price(p),
                    "lower": lower,
                    "upper": upper,
                    "solver": p.solver,
                    "seconds": p.seconds,
                    "iterations": p.iterations,
                    "conflict": ", ".join(p.conflict),
                    **dict(zip(names[len(p.at) :], p.more.values(), strict=True)),
                }
            )
        return data_frame(rows)

    def _price(self, p: Point) -> float:
        """Return the slope of the optimal value that the solution proves at a point."""
        return (p.rise if p.line is None else self._sign * p.line.slope) + 0.0

    @property
    def _sign(self) -> float:
        return 1.0 if self.problem.sense == "minimize" else -1.0

    @property
    def _kind(self) -> str:
        return as_minimised(self.dependence.word, self.problem.sense)

    @property
    def _banded(self) -> bool:
        return len(self.names) == 1 and bool(self.dependence.word)

    @checked(t=check_number)
    def band(self, t: float) -> tuple[float, float]:
        """Return bounds on the optimal value at a value of the parameter, between the points.

        The bound of duality is proved as far as `grade` says; the other side is the objective of
        points that are feasible to the tolerance. Infinite where nothing is known.

        Raises
        ------
        DeclarationError
            Two parameters, or nothing is proved between the points.
        """
        if not self._banded:
            raise DeclarationError(
                "no bounds between the points",
                str(self.dependence) if len(self.names) == 1 else "there are two parameters",
                "read the points",
            )
        points = [p for p in self.points if p.solved]
        lower, upper = _band(points, self._kind, float(t), self._sign)
        return (lower, upper) if self._sign > 0 else (-upper, -lower)

    @property
    def width(self) -> float:
        """Largest distance of the two bounds between points, over the range of the values."""
        return max((w for w, _ in gaps(self)), default=np.inf)

    @property
    def grade(self) -> str:
        """What the bounds rest on: "proved" when every point and line is."""
        solved = [p for p in self.points if p.solved]
        if self._kind == "convex" and not all(
            p.line is not None
            and p.line.sound
            and all(p.reaches(q.at[0]) for q in (solved[0], solved[-1]))
            for p in solved
        ):
            return "reported"
        return "proved" if all(p.grade == "proved" for p in solved) else "reported"

    def plot(self, ax: Any = None) -> Any:
        """Draw the optimal value, and the band it lies in."""
        ax = new_axes(ax, 6.0, 3.6)
        solved = [p for p in self.points if p.solved]
        without = [p for p in self.points if p.status == "infeasible"]
        if len(self.names) == 2:
            drawn = ax.scatter(*_places(solved), c=[p.value for p in solved], s=40, label="solved")
            colour_bar(drawn, "optimum", ax=ax)
            if without:
                ax.scatter(*_places(without), marker="x", color=COLOURS[5], label="infeasible")
                legend_below(ax, ax.get_legend_handles_labels()[0])
            ax.set_xlabel(plain(self.names[0]))
            ax.set_ylabel(plain(self.names[1]))
            tidy(ax, "Optimum", plain(self.dependence, 80))
            return ax
        ts = np.array([p.at[0] for p in solved])
        if self._banded and ts.size > 1:
            fine = np.unique(np.concatenate([np.linspace(ts[0], ts[-1], 201), ts]))
            lower, upper = np.array([self.band(t) for t in fine]).T
            ax.fill_between(fine, lower, upper, color=COLOURS[0], alpha=0.25, lw=1.2, label="band")
        ax.plot(ts, [p.value for p in solved], "o", ms=3.5, color=COLOURS[0], label="solved")
        label = "infeasible"
        for p in without:
            ax.axvline(p.at[0], color=COLOURS[5], lw=0.8, alpha=0.6, label=label)
            label = "_" + label  # one entry of the legend
        tidy(ax, f"Optimum along {plain(self.names[0])}", plain(self.dependence, 80))
        ax.set_xlabel(plain(self.names[0]))
        ax.set_ylabel("optimum")
        handles = ax.get_legend_handles_labels()[0]
        if len(handles) > 1:
            legend_below(ax, handles)
        return ax

    def _said(self) -> str:
        head = f"Sweep of {', '.join(self.names)}: {len(self)} points, {self.solves} solved"
        lines = [head, f"  optimum    {self.dependence}"]
        if self._banded and len([p for p in self.points if p.solved]) > 1:
            lines.append(f"  band       {self.width:.1e} of the range, {self.grade}")
        return "\n".join(lines)

    def _rows(self) -> Iterator[tuple[str, str]]:
        for p in self.points:
            at = ", ".join(f"{v:.6g}" for v in p.at)
            solved = f"{p.value:.8g} ({p.grade})"
            yield at, solved if p.solved else f"{p.status} {p.conflict or ''}"

    def __repr__(self) -> str:
        rows = [f"  {at:<12} {said}" for at, said in islice(self._rows(), 12)]
        more = [f"  ... {len(self) - 12} more"] if len(self) > 12 else []
        return "\n".join([self._said(), *rows, *more])

    def _repr_html_(self) -> str:
        table = display.html_table((", ".join(self.names), "optimum"), self._rows())
        return display.html_lines(self._said()) + table


_TURNED = {"convex": "concave", "nonincreasing": "nondecreasing"}
_TURNED |= {after: before for before, after in _TURNED.items()}


def _places(points: Sequence[Point]) -> Floats:
    return np.array([p.at for p in points], dtype=float).reshape(-1, 2).T


def as_minimised(word: str, sense: str) -> str:
    """Return what is known of the value that is minimised: where it is convex, lines lie below."""
    return word if sense == "minimize" else _TURNED.get(word, word)


def _band(points: Sequence[Point], kind: str, t: float, sign: float) -> tuple[float, float]:
    """Return bounds on the value of the minimisation: lower from duality, upper from points."""
    lower, upper = -np.inf, np.inf
    if not points:
        return lower, upper
    ts = [p.at[0] for p in points]
    k = int(np.searchsorted(ts, t))
    if k < len(ts) and ts[k] == t:
        lower, upper = _sides(points[k], sign)
    if not ts[0] <= t <= ts[-1]:
        return lower, upper
    near = points[max(k - 1, 0)], points[min(k, len(ts) - 1)]
    bounds, values = zip(*(_sides(p, sign) for p in near), strict=True)
    share = 0.0 if near[0] is near[1] else (t - near[0].at[0]) / (near[1].at[0] - near[0].at[0])
    if kind == "convex":  # chords above, lines of multipliers below
        upper = min(upper, (1.0 - share) * values[0] + share * values[1])
        lines = [p.line(t) for p in points if p.line is not None and p.reaches(t)]
        lower = max(lower, *lines, -np.inf)
        bare = any(p.line is None or not p.reaches(t) for p in near)
        for inner, outer in ((k - 1, k - 2), (k, k + 1)):  # or chords of the next piece, prolonged
            if bare and min(inner, outer) >= 0 and max(inner, outer) < len(ts) and ts[inner] != t:
                least, most = _sides(points[inner], sign)[0], _sides(points[outer], sign)[1]
                reach = (t - ts[inner]) / (ts[inner] - ts[outer])
                off = ROUNDED * (1.0 + abs(reach)) * (abs(least) + abs(most))
                lower = max(lower, least + (least - most) * reach - off)
    elif kind == "concave":  # chords of bounds below, lines of points above
        chord = (1.0 - share) * bounds[0] + share * bounds[1]
        lower = max(lower, chord - ROUNDED * (abs(bounds[0]) + abs(bounds[1])))
        along = [sign * p.along(t) for p in points if len(p.ends) == 2 and p.reaches(t)]
        upper = min(upper, *along, np.inf)
    else:
        falls = kind == "nonincreasing"
        lower = max(lower, bounds[1] if falls else bounds[0])
        upper = min(upper, values[0] if falls else values[1])
    return lower, upper


def _sides(p: Point, sign: float) -> tuple[float, float]:
    return sign * p.bound, sign * p.value


def gaps(sweep: Sweep, wanted: float = 0.0) -> list[tuple[float, float]]:
    r"""Return (width over the range of the values, where to solve next) of every piece.

    It is widest where the lines of its ends cross. Of a smooth piece k equal parts are each
    :math:`k^2` times as narrow: where the width that is wanted takes an odd number of them, the next
    point is at the end of one of the two in the middle, not at the crossing.
    """
    solved = [p for p in sweep.points if p.solved]
    if len(solved) < 2:
        return []
    values = np.array([p.value for p in solved])
    spread, open_ = float(np.ptp(values)), max(abs(p.value - p.bound) for p in solved)
    if spread <= 10.0 * open_:  # one value, up to what the points leave open
        spread = max(1e-12, float(np.abs(values).max()))
    kind, pieces = sweep._kind, []
    for a, b in pairwise(solved):
        t = 0.5 * (a.at[0] + b.at[0])
        heights, slopes = [0.0, 0.0], [0.0, 0.0]  # of the lines of both ends, at the first
        if kind == "convex" and a.line is not None and b.line is not None:
            heights = [line(a.at[0]) for line in (a.line, b.line)]
            slopes = [line.slope for line in (a.line, b.line)]
        elif kind == "concave" and len(a.ends) == 2 and len(b.ends) == 2:
            heights = [sweep._sign * p.along(a.at[0]) for p in (a, b)]
            slopes = [sweep._sign * p.rise for p in (a, b)]
        if slopes[0] != slopes[1]:
            t = a.at[0] + (heights[1] - heights[0]) / (slopes[0] - slopes[1])
        inner = 0.02 * (b.at[0] - a.at[0])
        t = min(max(t, a.at[0] + inner), b.at[0] - inner)
        lower, upper = sweep.band(t)
        width = (upper - lower) / spread
        if (
            wanted > 0.0
            and width < np.inf
            and (parts := math.ceil(math.sqrt(max(width, 0.0) / wanted))) in (3, 5)
        ):
            t = a.at[0] + (t - a.at[0]) * (1.0 - 1.0 / parts)
        pieces.append((width, t))
    return pieces
