"""Points that trade several objectives, and the half-spaces in which all feasible points lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.core import display
from optfair.errors import DeclarationError, Tabled, data_frame, say_names
from optfair.numbers import Floats, check_number, checked
from optfair.plots import COLOURS, colour_bar, new_axes, plain, tidy
from optfair.sweeps.sweep_result import columns

if TYPE_CHECKING:
    from optfair.core.problem import Problem

# Points nearer than this share of the ranges are one.
CLOSE = 1e-7
# What sums of a few products are off by, of their size.
ROUNDED = 64.0 * np.finfo(float).eps


@dataclass(frozen=True)
class Halfspace:
    r"""What a bound proves: :math:`w^T g(y) \ge L` for every feasible y with :math:`g(y) \le \varepsilon`.

    Attributes
    ----------
    weights, levels : tuple of float
        w and ε, infinite where there is none; of the objectives as they are minimised.
    bound : float
        L.
    grade : str
        What L rests on.
    """

    weights: tuple[float, ...]
    levels: tuple[float, ...]
    bound: float
    grade: str


@dataclass(frozen=True)
class FrontPoint:
    """A point of a front.

    Attributes
    ----------
    values : tuple of float
        The objectives, as they are declared.
    weights, levels : tuple of float
        Of the problem it was found by: of the objectives as they are minimised.
    within : float
        No feasible point is better in every objective by more than this share of its range.
    grade : str
        What that rests on.
    solution : Solution
        Of that problem, by the names of the declared one; none after a file was read.
    more : dict
        What the functions of the solution gave.
    """

    values: tuple[float, ...]
    weights: tuple[float, ...]
    levels: tuple[float, ...]
    within: float = np.inf
    grade: str = ""
    solver: str = ""
    seconds: float = 0.0
    more: Mapping[str, Any] = field(default_factory=dict)
    solution: Any = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        say_names(self, more="function")


@dataclass(frozen=True, eq=False, repr=False)
class ParetoFront(Tabled):
    """Points of several objectives that no other point at hand dominates.

    Attributes
    ----------
    problem : Problem
        Whose feasible set it is.
    names : tuple of str
        The objectives.
    senses : tuple of float
        1 for those that are minimised, -1 for those that are maximised.
    method : str
        How the points were chosen.
    points : tuple of FrontPoint
        By the first objective, best first.
    halfspaces : tuple of Halfspace
        In which every feasible point is proved, or reported, to lie.
    ranges : array
        Sizes of the objectives that ``within`` is measured by.
    convex : bool
        Whether what lies above a chord between points is feasible.

    Examples
    --------
    >>> import cvxpy as cp, optfair as of
    >>> x = cp.Variable(2, name="x", nonneg=True)
    >>> p = of.from_cvxpy(cp.Problem(cp.Minimize(0), [x[0] + 2 * x[1] >= 2]), ["demand"])
    >>> front = of.pareto(p, {"cheap": x[0] + 3 * x[1], "clean": 2 * x[0] + x[1]})
    >>> front.names, [[round(v, 6) for v in point.values] for point in front.points]
    (('cheap', 'clean'), [[2.0, 4.0], [3.0, 1.0]])
    """

    problem: Problem
    names: tuple[str, ...]
    senses: tuple[float, ...]
    method: str
    points: tuple[FrontPoint, ...]
    halfspaces: tuple[Halfspace, ...]
    ranges: Floats
    convex: bool

    @classmethod
    def of(
        cls,
        problem: Problem,
        names: tuple[str, ...],
        senses: tuple[float, ...],
        method: str,
        points: Sequence[FrontPoint],
        halfspaces: Sequence[Halfspace],
        ranges: Floats,
        convex: bool,
    ) -> ParetoFront:
        """Return the front of points whose values are those of the minimisation."""
        values = np.array([p.values for p in points]).reshape(len(points), len(names))
        scaled = values / ranges
        kept: list[int] = []  # no later one in this order dominates an earlier one
        for i in np.lexsort(scaled.T[::-1]):
            others = scaled[kept]
            if not (others <= scaled[i] + CLOSE).all(axis=1).any():
                kept.append(int(i))
        proved = [h for h in halfspaces if h.grade == "proved"]
        sound, every = _within(values, proved, ranges), _within(values, halfspaces, ranges)
        made = []
        for i in kept:
            # a bound that is only reported counts where it says much more
            enough = np.isfinite(sound[i]) and sound[i] <= max(2.0 * every[i], CLOSE)
            word = "proved" if enough else "reported"
            own = sound[i] if word == "proved" else every[i]
            signed = tuple(float(s * v) for s, v in zip(senses, values[i], strict=True))
            made.append(replace(points[i], values=signed, within=float(own), grade=word))
        return cls(problem, names, senses, method, tuple(made), tuple(halfspaces), ranges, convex)

    def __len__(self) -> int:
        return len(self.points)

    def __iter__(self) -> Iterator[FrontPoint]:
        return iter(self.points)

    def __getitem__(self, i: int) -> FrontPoint:
        return self.points[i]

    @property
    def values(self) -> Floats:
        """The objectives of the points (m, k), as they are declared."""
        return np.array([p.values for p in self.points]).reshape(len(self), len(self.names))

    @property
    def grade(self) -> str:
        """What the weakest of the points rests on."""
        return "proved" if all(p.grade == "proved" for p in self.points) else "reported"

    def frame(self) -> Any:
        """Return a pandas DataFrame, one row a point.

        Raises
        ------
        NotInstalled
            pandas is missing.
        """
        rows = []
        for p in self.points:
            names = columns([*self.names, *p.more], ("within", "grade", "solver", "seconds"))
            rows.append(
                {
                    **dict(zip(names, p.values, strict=False)),
                    "within": p.within,
                    "grade": p.grade,
                    "solver": p.solver,
                    "seconds": p.seconds,
                    **dict(zip(names[len(p.values) :], p.more.values(), strict=True)),
                }
            )
        return data_frame(rows)

    @property
    def _minimised(self) -> Floats:
        return self.values * self.senses

    @checked(level=check_number)
    def band(self, level: float) -> tuple[float, float]:
        """Return bounds on the best first objective when the second is no worse than a level.

        The side of duality is proved as far as `grade` says; the other is that of points which are
        feasible to the tolerance. Infinite where nothing is known.

        Raises
        ------
        DeclarationError
            There are not two objectives.
        """
        if len(self.names) != 2:
            raise DeclarationError(
                "bounds between the points are for two objectives", remedy="read the points"
            )
        t = self.senses[1] * float(level)
        lower, upper = self._lower(np.array([t]))[0], self._upper(t)
        first, second = sorted((self.senses[0] * lower, self.senses[0] * upper))
        return float(first), float(second)

    def _lower(self, ts: Floats) -> Floats:
        """Return bounds below the first objective, as minimised, where the second is at most t."""
        best = np.full(ts.size, -np.inf)
        for h in self.halfspaces:
            if h.weights[0] <= 0.0 or np.isfinite(h.levels[0]):
                continue
            line = (h.bound - h.weights[1] * ts) / h.weights[0]
            line -= ROUNDED * (abs(h.bound) + h.weights[1] * np.abs(ts)) / h.weights[0]
            best = np.where(ts <= h.levels[1], np.maximum(best, line), best)
        return best

    def _upper(self, t: float) -> float:
        """Return the first objective of a point, or of a chord, whose second is at most t."""
        values = self._minimised
        under = values[values[:, 1] <= t]
        best = float(under[:, 0].min(initial=np.inf))
        over = values[values[:, 1] > t]
        if self.convex and len(under) and len(over):
            share = (t - under[:, 1][:, None]) / (over[:, 1] - under[:, 1][:, None])
            chords = (1.0 - share) * under[:, 0][:, None] + share * over[:, 0]
            best = min(best, float(chords.min()))
        return best

    def edges(self) -> list[tuple[float, tuple[float, ...]]]:
        """Return (how far points may lie below it, its weights) of every edge of two objectives.

        The distance is that of the edge to the corner which the half-spaces of its two ends leave, as
        a share of the range of the objective in which it is less.
        """
        values = self._minimised / self.ranges
        edges: list[tuple[float, tuple[float, ...]]] = []
        plain = [h for h in self.halfspaces if not np.isfinite(h.levels).any()]
        W = np.array([h.weights for h in plain]).reshape(-1, 2) * self.ranges
        bounds = np.array([h.bound for h in plain])
        hull = _hull(values)
        for a, b in pairwise(hull):
            w = np.array([a[1] - b[1], b[0] - a[0]])
            w /= w.sum()
            left, right = (int(np.argmin((W @ v - bounds) / W.sum(axis=1))) for v in (a, b))
            pair = W[[left, right]]
            if left == right or abs(np.linalg.det(pair)) < 1e-12 * np.abs(pair).max() ** 2:
                continue
            corner = np.linalg.solve(pair, bounds[[left, right]])
            weights = tuple((w / self.ranges).tolist())
            edges.append((float(w @ (a - corner) / w.max()), weights))
        return edges

    def plot(self, ax: Any = None) -> Any:
        """Draw the points; of two objectives with the band that no feasible point is beyond."""
        ax = new_axes(ax, 6.0, 3.8)
        values = self.values
        labels = [
            plain(name) + ("" if sense > 0 else " (more is better)")
            for name, sense in zip(self.names, self.senses, strict=True)
        ]
        if len(self.names) == 2:
            own = np.sort(values[:, 1])
            fine = np.unique(np.concatenate([np.linspace(own[0], own[-1], 201), own]))
            low, high = np.array([self.band(t) for t in fine]).T
            known = np.isfinite(low) & np.isfinite(high)
            sides = fine[known], low[known], high[known]
            ax.fill_betweenx(*sides, color=COLOURS[0], alpha=0.25, lw=0)
            ax.plot(values[:, 0], values[:, 1], "o", ms=3.5, color=COLOURS[0])
        else:
            drawn = ax.scatter(values[:, 0], values[:, 1], c=values[:, 2], s=30)
            colour_bar(drawn, labels[2], ax=ax)
        ax.set_xlabel(labels[0])
        ax.set_ylabel(labels[1])
        worst = max(p.within for p in self.points)
        beside = f"no point is dominated by more than {worst:.1e} of the ranges ({self.grade})"
        if labels[3:]:
            beside += f"\nnot drawn: {', '.join(labels[3:])}"
        names = f"{', '.join(self.names[:-1])} and {self.names[-1]}"
        tidy(ax, f"Front of {plain(names)}", beside)
        return ax

    def _table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        head = (*self.names, "no better than", "")
        rows = [
            (*(f"{v + 0.0:.6g}" for v in p.values), f"{p.within:.1e}", p.grade) for p in self.points
        ]
        return head, rows

    @property
    def _title(self) -> str:
        return (
            f"ParetoFront of {', '.join(self.names)}: {len(self)} point{'s' * (len(self) != 1)}, {self.method}; "
            f"none is dominated by more than {max(p.within for p in self.points):.1e}"
            f" of the ranges ({self.grade})"
        )

    def __repr__(self) -> str:
        head, rows = self._table()
        lines = ["  " + "".join(f"{c:>16}" for c in row) for row in (head, *rows[:12])]
        more = [f"  ... {len(rows) - 12} more"] if len(rows) > 12 else []
        return "\n".join([self._title, *lines, *more])

    def _repr_html_(self) -> str:
        return display.html_lines(self._title) + display.html_table(*self._table())


def _within(values: Floats, halfspaces: Sequence[Halfspace], ranges: Floats) -> Floats:
    """Return how much better than each point a feasible one may be in all objectives at once."""
    if not halfspaces or not len(values):
        return np.full(len(values), np.inf)
    W = np.array([h.weights for h in halfspaces])
    bounds = np.array([h.bound for h in halfspaces])
    levels = np.array([h.levels for h in halfspaces])
    reach = values @ W.T - bounds
    reach += ROUNDED * (np.abs(values) @ W.T + np.abs(bounds))
    over = ((values[:, None, :] - levels) / ranges).max(axis=2)
    least: Floats = np.maximum(reach / (W @ ranges), over).min(axis=1)
    return np.maximum(least, 0.0)


def _hull(values: Floats) -> list[Floats]:
    """Return the lower left corners of points in the plane, by the first coordinate."""
    hull: list[Floats] = []
    for v in values[np.lexsort(values.T[::-1])]:
        while len(hull) > 1:
            (ax, ay), (bx, by) = hull[-2], hull[-1]
            if (bx - ax) * (v[1] - ay) - (by - ay) * (v[0] - ax) > 0.0:
                break
            hull.pop()
        hull.append(v)
    return hull
