"""Fair clustering under bounded cost: the largest balance that a budget pays for."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.core.certificate import Certificate, Verdict
from optfair.core.problem import Problem
from optfair.core.solution import Solution
from optfair.errors import DeclarationError, Infeasible, SolverFailure, kind_of
from optfair.methods.fair_clustering.approximations import check_starts, weighted_kmeans
from optfair.methods.fair_clustering.assignment import FairAssignment, cluster_count, typical_cost
from optfair.methods.fair_clustering.rules import balance
from optfair.numbers import (
    check_level,
    check_number,
    check_positive,
    check_seconds,
    check_seed,
    check_text,
    checked,
    real,
)
from optfair.rows.frames import in_one_order, taken_apart

# What the search for the largest balance under a budget returns, and how it is verified.

# Name of the constraint that the search adds.
RULE = "balance"
# What fractions lose in double precision.
ROUNDING = float(np.finfo(float).eps)


@dataclass(frozen=True, eq=False, repr=False)
class BalanceUnderBudget:
    """The largest balance of an assignment within a budget, proved from both sides.

    Attributes
    ----------
    problem : FairAssignment
        What the balance was sought on.
    balance : float
        Balance of the assignment ``solution`` (soft), whose cost is within the budget.
    upper : float
        No assignment within the budget has a larger balance.
    solution : Solution
        The assignment: the cheapest of its balance.
    refused : Solution, Certificate or None
        Proof that balance ``upper`` costs more than the budget: the cheapest assignment with
        that balance and its bound, or a certificate that there is none. None where ``upper``
        is the population's balance, which nothing exceeds.
    budget : float
        Largest mean cost allowed.
    steps : tuple of (float, float)
        Balance and least cost of each problem that was solved; infinite where infeasible.
    status : {"converged", "time_limit", "interrupted", "stalled"}
        Why the search stopped; "stalled" where the solver's tolerance does not tell on which
        side of the budget a balance is.
    tolerance : float
        Relative residual that counts as rounding.
    seconds : float
        Wall time.
    """

    problem: FairAssignment
    balance: float
    upper: float
    solution: Solution
    refused: Solution | Certificate | None
    budget: float
    steps: tuple[tuple[float, float], ...]
    status: str
    tolerance: float
    seconds: float

    @property
    def labels(self) -> NDArray[np.intp]:
        """Cluster with the largest fraction of each row (hard)."""
        return np.asarray(np.argmax(self.solution["assignment"], axis=1), dtype=np.intp)

    def verify(self) -> Verdict:
        """Recompute both ends from the problem, the assignment and the multipliers."""
        highest = population_balance(self.problem)
        if not 0.0 <= self.balance <= highest * (1.0 + 1e-12):
            return Verdict(False, (f"balance {self.balance:.6g} is not in [0, {highest:.6g}]",))
        reasons = self._unproved(highest)
        declared = self.problem.with_constraints({RULE: balance(self.balance)})
        for name, term in declared.constraints.items():
            off = term.relative_violation(self.solution.values)
            if not off <= self.tolerance:
                reasons.append(f"the assignment violates {name!r} by {off:.1e}")
        cost = declared.objective_value(self.solution.values)
        if not affordable(cost, self.budget, self.tolerance, typical_cost(self.problem)):
            reasons.append(f"the assignment costs {cost:.10g}")
        return Verdict(not reasons, tuple(reasons))

    def _unproved(self, highest: float) -> list[str]:
        """Say why a balance above ``upper`` is not excluded."""
        if self.refused is None:
            if self.upper >= highest * (1.0 - 1e-12):
                return []
            return [f"balances from {self.upper:.6g} to {highest:.6g} are not refused"]
        if isinstance(self.refused, Certificate):
            return list(self.refused.verify().reasons)
        reasons = []
        other, residuals = self.refused.problem, self.refused.residuals()
        terms = self.problem.constraints
        if other.objective != self.problem.objective or terms != {
            k: t for k, t in other.constraints.items() if k != RULE
        }:
            reasons.append("the refusal is of another problem")
        elif abs(_asked(other) - self.upper) > 1e-12:
            reasons.append(f"the refusal is of balance {_asked(other):.6g}")
        if not residuals.dual <= self.tolerance or not residuals.consistency <= 1e-12:
            reasons.append("the refusal does not prove its bound")
        if not self.refused.bound > self.budget:
            reasons.append(f"the refusal costs {self.refused.bound:.10g} at least")
        return reasons

    def __repr__(self) -> str:
        why = "the population's" if self.refused is None else "more is proved to cost more"
        return "\n".join(
            [
                f"BalanceUnderBudget: {self.status} after {len(self.steps)} problems,"
                f" {self.seconds:.2f} s",
                f"  balance  {self.balance:.6g}, at most {self.upper:.6g} ({why})",
                f"  cost     {self.solution.objective:.10g}, budget {self.budget:.10g}",
            ]
        )


def affordable(cost: float, budget: float, tolerance: float, unit: float) -> bool:
    """Whether a cost is within the budget, but for the rounding that solvers are allowed.

    That is relative to the cost, whatever its units; rounding of sums is relative to ``unit``,
    the cost of a row.
    """
    return cost - max(tolerance * abs(cost), ROUNDING * unit) <= budget


def population_balance(problem: Problem) -> float:
    """Return the population's balance: clusters average to it, so none of all exceeds it."""
    shares = problem.data["shares"]
    return float(shares.min() / shares.max())


def _asked(problem: Problem) -> float:
    """Return the b of a problem's rule: what clusters of the first group alone violate it by."""
    alone = np.zeros(problem["masses"].shape)
    alone[0] = 1.0
    return float(np.max(problem.constraints[RULE].violation({"masses": alone})))


# Fair clustering under bounded cost: the largest balance that a budget pays for.

logger = logging.getLogger("optfair")

# Weight share below which a cluster counts as empty: masses there are a solver's rounding.
EMPTY = 1e-9
# Smallest tolerance that a solver is asked for.
SHARPEST = 1e-11


@checked(budget=check_number, verbose=check_level, solver=check_text, time_limit=check_seconds)
def largest_balance(
    problem: FairAssignment,
    budget: float,
    *,
    tol: float = 1e-4,
    solver: str | None = None,
    time_limit: float | None = None,
    verbose: int = 0,
    **options: Any,
) -> BalanceUnderBudget:
    r"""Find the assignment of largest balance whose cost is within a budget.

    .. math::
        \max_{A, M, b}\; b \quad\text{s.t.}\quad M_{gk} \ge b\, M_{hk}\; \forall g \ne h, k,
        \quad \textstyle\sum_{i,k} w_i A_{ik} D_{ik} \le \text{budget},
        \quad A \text{ obeys the problem's constraints}

    Class: quasiconvex. For fixed b it is the problem with the rule `balance`, an LP unless
    further constraints are not linear, and b is within reach when its least cost φ(b) is
    within the budget. φ never falls, so the answer is bracketed: an assignment at the lower
    end, a dual bound above the budget at the upper one. Steps follow the chord of φ and its
    slope :math:`\varphi'(b) = \sum \lambda_{ghk} M_{hk}`, with the multipliers λ of the rule,
    and halve the bracket where that is slow.

    The centers stay where they are: the paper opens them by k-means; see
    `bounded_cost_kmeans`.

    Parameters
    ----------
    problem : FairAssignment
        Usually with ``fairness=None``; whatever constraints it has are kept.
    budget : float
        Largest mean cost, in units of the problem's objective.
    tol : float
        Stop when the bracket of the balance is this narrow.
    solver : str, optional
        As in `optfair.solve`, as are further keywords.
    time_limit : float, optional
        Wall seconds over all steps.
    verbose : {0, 1, 2}
        Silent; the solver's progress; its log.
    **options
        Further options of `optfair.solve`, such as ``tolerance``.

    Returns
    -------
    BalanceUnderBudget

    Raises
    ------
    Infeasible
        A budget below the least cost of the problem itself, with that optimum as evidence.
    DeclarationError
        Another problem, one with a constraint named ``balance``, options out of range.

    Examples
    --------
    >>> import optfair as of
    >>> from optfair.methods.fair_clustering.bounded_cost import largest_balance
    >>> X, sex = of.datasets.load("german_credit").numeric("sex", standardize=True)
    >>> p = of.FairAssignment(X, groups=sex, centers=X[:5], fairness=None)
    >>> budget = 1.002 * p.solve().objective
    >>> found = largest_balance(p, budget)
    >>> round(found.balance, 3), found.upper - found.balance <= 1e-4
    (0.27, True)
    >>> found.solution.objective <= budget, found.verify()
    (True, verified)

    References
    ----------
    Esmaeili, Brubach, Srinivasan, Dickerson: Fair Clustering Under a Bounded Cost, NeurIPS
    2021.
    """
    limit = _checked(problem, budget, tol)
    begin = time.perf_counter()
    tolerance = float(options.get("tolerance", 1e-7))
    steps: list[tuple[float, float]] = []
    best = last = _solved(problem, None, time_limit, solver, verbose, options)
    steps.append((0.0, best.objective))
    unit = typical_cost(problem)
    if not affordable(best.objective, limit, tolerance, unit):
        raise _too_little(best, limit)
    highest = population_balance(problem)
    low, high = _End(_achieved(best, highest), best.objective), _End(highest, np.inf)
    refused: Solution | Certificate | None = None
    status, target, slow = "converged", highest, 0
    while high.b - low.b > (0.0 if refused is None else tol):
        width = high.b - low.b
        left = None if time_limit is None else time_limit - (time.perf_counter() - begin)
        declared = problem.with_constraints({RULE: balance(target)})
        try:
            last = _solved(declared, last, left, solver, verbose, options)
            if last.bound <= limit and not affordable(last.objective, limit, tolerance, unit):
                left = None if time_limit is None else time_limit - (time.perf_counter() - begin)
                last = _sharper(declared, last, limit, left, solver, verbose, options)
        except (KeyboardInterrupt, _OutOfTimeError) as e:
            status = "time_limit" if isinstance(e, _OutOfTimeError) else "interrupted"
            break
        except Infeasible as e:
            if e.certificate is None:
                raise
            high, refused = _End(target, np.inf), e.certificate
        else:
            if affordable(last.objective, limit, tolerance, unit):
                low = _End(max(target, _achieved(last, high.b)), last.objective, _slope(last))
                best = last
            elif last.bound > limit:
                high, refused = _End(target, last.bound, _slope(last)), last
            else:  # cut short, with the budget between its bound and its cost
                early = last.status.termination
                status = early if early in ("time_limit", "interrupted") else "stalled"
                break
        steps.append((target, high.cost if high.b == target else low.cost))
        logger.info("balance %.6g costs %.10g, budget %.10g", *steps[-1], limit)
        slow = slow + 1 if high.b - low.b > 0.5 * width else 0
        target = _next(low, high, limit, tol, halve=slow >= 2)
    return BalanceUnderBudget(
        problem=problem,
        balance=low.b,
        upper=high.b,
        solution=best,
        refused=refused,
        budget=limit,
        steps=tuple(steps),
        status=status,
        tolerance=tolerance,
        seconds=time.perf_counter() - begin,
    )


@checked(price_of_fairness=check_positive, random_state=check_seed)
@in_one_order("X", "groups", "sample_weight")
def bounded_cost_kmeans(
    X: Any,
    *,
    groups: Any,
    n_clusters: int,
    price_of_fairness: float = 1.2,
    sample_weight: Any = None,
    n_init: int = 10,
    random_state: Any = None,
    **options: Any,
) -> BalanceUnderBudget:
    r"""Open centers by k-means, then assign with the largest balance at a price.

    .. math:: \text{budget} = \text{price of fairness} \times \text{cost of k-means}

    The comparator FCBC as papers run it: centers of plain k-means, kept fixed, and a budget
    of 1.2 times its cost. The assignment is soft, and the best one; hard ones are NP-hard to
    optimise, and ``labels`` takes the largest fraction of the few rows that are split.

    Parameters
    ----------
    X : array-like or DataFrame (n, d)
        Rows; the cost is the squared distance.
    groups : array-like (n,) or str
        Group label of each row, or the column of the frame that holds it; at least two groups.
    n_clusters : int
        Number of clusters K.
    price_of_fairness : float
        Budget over the cost of k-means, at least 1.
    sample_weight : array-like (n,), optional
        Weights; equal by default.
    n_init : int
        Starts of k-means.
    random_state : int, Generator or None
        Seeds k-means.
    **options
        As in `largest_balance`.

    Returns
    -------
    BalanceUnderBudget

    Raises
    ------
    DataError, DeclarationError
        Rows, groups or numbers that do not fit.

    Examples
    --------
    >>> import optfair as of
    >>> from optfair.methods.fair_clustering.bounded_cost import bounded_cost_kmeans
    >>> X, sex = of.datasets.load("german_credit").numeric("sex", standardize=True)
    >>> found = bounded_cost_kmeans(X, groups=sex, n_clusters=5, random_state=0)
    >>> found.refused is None, round(found.balance, 4)  # 1.2 pays for the population's balance
    (True, 0.4493)
    """
    check_starts(n_init)
    rows, labels, _ = taken_apart(X, groups)
    # bad input fails before k-means starts
    first = FairAssignment(
        rows, groups=labels, centers=rows[:1], sample_weight=sample_weight, fairness=None
    )
    cluster_count(n_clusters, len(rows), "n_clusters", "rows")
    price = check_number(price_of_fairness, "price_of_fairness")
    if price < 1.0:
        raise DeclarationError(
            f"price_of_fairness={price:g} is below 1",
            "no assignment to the centers of k-means is cheaper than that of k-means",
            "give e.g. 1.2",
        )
    weights = first.data["weights"]
    centers, _ = weighted_kmeans(
        rows, weights, n_clusters, n_init=n_init, random_state=random_state
    )
    problem = FairAssignment(
        rows, groups=labels, centers=centers, sample_weight=weights, fairness=None
    )
    cheapest = float(weights @ problem.cost.columns(slice(None)).min(axis=0))
    return largest_balance(problem, price * cheapest, **options)


@dataclass(frozen=True)
class _End:
    """One end of the bracket: a balance, its least cost, and the slope of φ there."""

    b: float
    cost: float
    slope: float = np.nan


class _OutOfTimeError(SolverFailure):
    """No time is left for another problem."""


def _solved(
    problem: Problem,
    last: Solution | None,
    left: float | None,
    solver: str | None,
    verbose: int,
    options: dict[str, Any],
) -> Solution:
    """Solve in the seconds left, from the last solution."""
    out = _OutOfTimeError("the time limit came before the first assignment", remedy="give more")
    if last is not None and left is not None and left <= 0:
        raise out
    begin = time.perf_counter()
    try:
        return problem.solve(solver, time_limit=left, warm_start=last, verbose=verbose, **options)
    except SolverFailure:
        if left is not None and time.perf_counter() - begin >= left:
            raise out from None
        raise


def _sharper(
    problem: Problem,
    last: Solution,
    limit: float,
    left: float | None,
    solver: str | None,
    verbose: int,
    options: dict[str, Any],
) -> Solution:
    """Solve again where the gap, relative to the solver's unit, hides the budget."""
    tolerance = float(options.get("tolerance", 1e-7))
    share = abs(limit) / max(problem.objective_unit, abs(last.objective))
    finer = max(SHARPEST, tolerance * min(0.1, share))
    if last.status.termination != "optimal" or finer >= tolerance:
        return last
    try:
        return _solved(problem, last, left, solver, verbose, {**options, "tolerance": finer})
    except _OutOfTimeError:
        raise
    except SolverFailure:
        return last


def _checked(problem: Any, budget: Any, tol: float) -> float:
    if not isinstance(problem, FairAssignment):
        raise DeclarationError(
            f"largest_balance works on a FairAssignment, not on {kind_of(problem)}",
            remedy="declare optfair.FairAssignment(X, groups=, centers=, fairness=None)",
        )
    problem.with_constraints({RULE: balance(0.0)})  # raises where the name is taken
    if not 0 < real(tol) < 1:
        raise DeclarationError(f"tol={tol!r} is outside (0, 1)", remedy="give e.g. 1e-4")
    return check_number(budget, "budget")


def _too_little(best: Solution, budget: float) -> Exception:
    if not best.bound > budget:
        return SolverFailure(
            "the time limit came before an assignment within the budget",
            f"cost {best.objective:.10g}, bound {best.bound:.10g}, budget {budget:.10g}",
            "give more time",
        )
    remedy = f"give a budget of at least {best.objective:.10g}"
    if "fairness" in best.problem.constraints:
        remedy += ", or leave the rule out first: problem.without('fairness')"
    return Infeasible(
        f"no assignment costs at most {budget:.10g}",
        f"the least cost under the problem's own constraints is {best.objective:.10g}, proved"
        f" down to {best.bound:.10g}",
        remedy,
        certificate=best.certificate,
    )


def _achieved(solution: Solution, largest: float) -> float:
    """Return the balance of a solution's own masses, at most ``largest``."""
    M = np.asarray(solution["masses"], dtype=float)
    M = M[:, M.sum(axis=0) > EMPTY]
    return float(np.clip((M.min(axis=0) / M.max(axis=0)).min(), 0.0, largest))


def _slope(solution: Solution) -> float:
    """Return the derivative of the least cost in the balance, nan where it is unknown."""
    if RULE not in solution.multipliers:
        return np.nan
    M = np.asarray(solution["masses"], dtype=float)
    other = [h for _, h in permutations(range(len(M)), 2)]
    return float((np.asarray(solution.multipliers[RULE]) * M[other]).sum())


def _next(low: _End, high: _End, budget: float, tol: float, *, halve: bool) -> float:
    """Return the balance to try next.

    Where φ is convex the answer lies between the chord's crossing of the budget and those of
    the tangents; the end of the bracket that is farther from there is moved next to it.
    """
    middle = 0.5 * (low.b + high.b)
    if halve or not np.isfinite(high.cost):
        return middle
    at = low.b + (budget - low.cost) * (high.b - low.b) / (high.cost - low.cost)
    tangents = [e.b + (budget - e.cost) / e.slope for e in (low, high) if e.slope > 0]
    above = min((t for t in tangents if t >= at), default=high.b)
    aim = at - 0.25 * tol if at - low.b > high.b - above else above + 0.25 * tol
    return aim if low.b < aim < high.b else middle
