"""Figures over many problems: shifted geometric means, performance profiles, accuracy against time."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.errors import DataError
from optfair.numbers import Floats, check_names, check_positive, checked, floats

if TYPE_CHECKING:
    from optfair.comparison.comparison import Comparison
    from optfair.comparison.run import Run


@checked(shift=check_positive)
def shifted_geometric_mean(values: Iterable[float], shift: float = 1.0) -> float:
    r"""Return the shifted geometric mean.

    .. math:: \Big(\prod_{i=1}^n (v_i + s)\Big)^{1/n} - s

    Neither the easiest problems decide it, as they do a geometric mean, nor the hardest, as
    they do an arithmetic one. The shift says what counts as easy: with 1 second, 0.01 and
    0.001 seconds are nearly the same.

    Parameters
    ----------
    values : iterable of float
        Nonnegative.
    shift : float
        Positive; 1 second by convention.

    Raises
    ------
    DataError
        A value is negative, or there is none.

    Examples
    --------
    >>> from optfair.comparison import shifted_geometric_mean
    >>> round(shifted_geometric_mean([0.0, 3.0]), 12)
    1.0

    References
    ----------
    T. Achterberg, Constraint Integer Programming, PhD thesis, TU Berlin 2007, appendix A.3.
    """
    v = floats(values if hasattr(values, "__array__") else check_names(values, "values"), "values")
    if v.ndim != 1 or not v.size or not (v >= 0).all() or not shift > 0:
        raise DataError(
            "a shifted geometric mean needs nonnegative values and a positive shift",
            f"got {v.size} values, least {v.min(initial=np.inf):g}, shift {shift:g}",
        )
    return float(np.expm1(np.log1p(v / shift).mean()) * shift)


@dataclass(frozen=True)
class PerformanceProfile:
    """Ratios to the best, by solver.

    Attributes
    ----------
    measure : str
        What was compared.
    ratios : dict
        Solver -> sorted ratios to the best solver, of the problems it solved; in a data profile
        the measure itself.
    taken : dict
        Solver -> number of problems it takes; refusals are not counted against it.
    to_best : bool
        Whether these are ratios to the best; False in a data profile.
    """

    measure: str
    ratios: Mapping[str, Floats]
    taken: Mapping[str, int]
    to_best: bool = True

    def share(self, solver: str, ratio: float) -> float:
        """Return the share of the problems it takes that it solves within a ratio to the best."""
        return float((self.ratios[solver] <= ratio).sum() / max(1, self.taken[solver]))

    def steps(self, solver: str) -> tuple[Floats, Floats]:
        """Return the ratios at which its share rises, and the shares from there on."""
        at, counts = np.unique(self.ratios[solver], return_counts=True)
        return at, np.cumsum(counts) / max(1, self.taken[solver])


def performance_profile(
    values: Mapping[str, Mapping[str, float | None]], measure: str = "seconds"
) -> PerformanceProfile:
    r"""Return Dolan and Moré's performance profile.

    .. math:: \rho_s(\tau) = \frac{1}{|P_s|}\,\big|\{p \in P_s : t_{ps} \le \tau \min_{s'} t_{ps'}\}\big|

    :math:`P_s` are the problems that solver s takes, so that a solver of linear programs is not
    blamed for a semidefinite one; where all take all it is the profile of the paper.

    Parameters
    ----------
    values : dict of dict
        Solver -> problem -> positive measure, None where it was not solved; without an entry
        where the solver does not take the problem.
    measure : str
        What it is called.

    References
    ----------
    E. D. Dolan, J. J. Moré, Benchmarking optimization software with performance profiles,
    Mathematical Programming 91, 2002.
    """
    best: dict[str, float] = {}
    for by_problem in values.values():
        for problem, value in by_problem.items():
            if value is not None:
                best[problem] = min(value, best.get(problem, np.inf))
    ratios = {
        solver: np.sort([_ratio(v, best[p]) for p, v in by_problem.items() if v is not None])
        for solver, by_problem in values.items()
    }
    return PerformanceProfile(measure, ratios, {s: len(v) for s, v in values.items()})


def _ratio(value: Any, best: float) -> float:
    if not value >= 0:
        raise DataError(f"a performance profile needs nonnegative values, got {value!r}")
    return 1.0 if value == best else float(value / best) if best > 0 else np.inf


@dataclass(frozen=True)
class Accuracy:
    r"""How exact the points of a solver are at one tolerance, and what they took.

    .. math:: \frac{|f(x) - f^\star|}{\max(1, |f^\star|)}, \qquad
              \text{the largest relative violation of a constraint at } x

    Without a certified optimum :math:`f^\star` the relative gap to the bound stands in, which is
    no less where the bound is proved. A run without a point, and an error beyond 1, count as 1:
    not one digit is right. Proofs of infeasibility have no point and are left out.

    Attributes
    ----------
    solver : str
        Who.
    tolerance : float
        What was asked.
    answered, runs : int
        Runs with a verified answer, of those that count.
    seconds : tuple of float
        Of each run; the time limit where it has none.
    objective, feasibility : tuple of float
        Errors of each run.
    """

    solver: str
    tolerance: float
    answered: int
    runs: int
    seconds: tuple[float, ...]
    objective: tuple[float, ...]
    feasibility: tuple[float, ...]

    def median(self, measure: str) -> float:
        """Return the median over the runs of ``seconds``, ``objective`` or ``feasibility``."""
        return float(statistics.median(getattr(self, measure)))


def accuracy(comparisons: Iterable[Comparison]) -> tuple[Accuracy, ...]:
    """Return accuracies and seconds of every solver at every tolerance, loose ones first."""
    by_tolerance: dict[float, Comparison] = {}
    for c in comparisons:
        if not hasattr(c, "cells"):
            raise DataError(
                f"a {type(c).__name__} is no comparison", remedy="compare solvers first"
            )
        if by_tolerance.setdefault(c.tolerance, c) is not c:
            raise DataError(
                f"two comparisons are at the tolerance {c.tolerance:g}",
                remedy="give one comparison for each tolerance",
            )
    order = dict.fromkeys(s for c in by_tolerance.values() for s in c.solvers)
    found = []
    for solver in order:
        for tolerance in sorted(by_tolerance, reverse=True):
            c = by_tolerance[tolerance]
            runs = [r for r in c.runs if r.solver == solver and _has_accuracy(r)]
            if runs:
                found.append(_accuracy(solver, tolerance, runs))
    return tuple(found)


def _has_accuracy(run: Run) -> bool:
    return run.asked and run.outcome != "infeasible"


def _accuracy(solver: str, tolerance: float, runs: list[Run]) -> Accuracy:
    return Accuracy(
        solver,
        tolerance,
        sum(r.answered for r in runs),
        len(runs),
        tuple(r.time_limit if r.seconds is None else r.seconds for r in runs),
        tuple(_error(_off(r)) for r in runs),
        tuple(_error(r.feasibility) for r in runs),
    )


def _off(run: Run) -> float | None:
    """Return the error of an objective, the gap where no optimum is certified."""
    if run.objective is None or run.stated is None:
        return run.gap
    return abs(run.objective - run.stated) / max(1.0, abs(run.stated))


def _error(value: float | None) -> float:
    return 1.0 if value is None else min(1.0, value)
