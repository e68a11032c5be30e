"""Figures over many problems: shifted geometric means and performance profiles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError

Floats = NDArray[np.float64]

__all__ = ["PerformanceProfile", "performance_profile", "shifted_geometric_mean"]


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
    v = np.asarray(list(values), dtype=float)
    if not v.size or not (v >= 0).all() or not shift > 0:
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
        Solver -> sorted ratios to the best solver, of the problems it solved.
    taken : dict
        Solver -> number of problems it takes; refusals are not counted against it.
    """

    measure: str
    ratios: Mapping[str, Floats]
    taken: Mapping[str, int]

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
