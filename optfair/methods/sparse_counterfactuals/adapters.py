"""Route of the structure ``row-choices``: a dynamic program over the budget, with its proof or the rules in conflict."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from optfair.backends.registry import choose
from optfair.backends.request import Outcome, ReportedBound, Request, SolverProfile
from optfair.backends.solve import solve
from optfair.core.certificate import Certificate, DualCheck, DualProof, Verdict, unvouched
from optfair.core.expressions import Values
from optfair.core.solution import Solution, Status
from optfair.errors import Infeasible, SolverFailure, UnsupportedProblem
from optfair.methods.sparse_counterfactuals.action_plan import ActionPlan, MinimumEdits
from optfair.methods.sparse_counterfactuals.algorithms import (
    closest,
    end_bound,
    merge_width,
    search_labels,
    window_bound,
)
from optfair.methods.sparse_counterfactuals.choice_problem import ChoiceProblem
from optfair.methods.sparse_counterfactuals.choices import Reach, RowTable, common_unit, reach
from optfair.numbers import Floats, Indices

if TYPE_CHECKING:
    from optfair.core.problem import Problem


# No plan satisfies the rules: which of them, as a certificate that can be verified again.

# Rounding of a sum of effects that still counts as reaching a level.
ROUNDING = 1e-9


@dataclass(frozen=True, eq=False, repr=False)
class ChoiceConflict(Certificate):
    """Terms that exclude each other, by counting.

    Attributes
    ----------
    problem : ChoiceProblem
        Whose terms they are.
    conflict : tuple of str
        Their names.
    """

    problem: ChoiceProblem
    conflict: tuple[str, ...]
    of_objective = False

    def verify(self) -> Verdict:
        """Look for a plan under these terms alone."""
        missing = [name for name in self.conflict if name not in self.problem.constraints]
        if missing:
            return Verdict(False, (f"{missing[0]!r} is not a term any more",))
        why = _impossible(self.problem, self.conflict)
        return Verdict(bool(why), () if why else ("these terms leave a plan",))

    def __str__(self) -> str:
        return _impossible(self.problem, self.conflict)


def reached(level: Any, problem: MinimumEdits) -> Any:
    """Whether sums of effects, counted in the wanted direction, are near enough to the target."""
    return level >= -_allowed(problem)


def _allowed(problem: MinimumEdits) -> float:
    """Return how far a sum of effects may stay from the target, rounding included."""
    return problem.missing + ROUNDING * (problem.unit + problem.missing)


def refuse_conflict(problem: ChoiceProblem, table: RowTable) -> None:
    """Raise when no plan satisfies the rules.

    Raises
    ------
    Infeasible
        With terms none of which could be left out.
    """
    exclusions = problem.exclusions()
    names = [*exclusions] if not isinstance(exclusions, str) else []
    names += [n for n in ("budget", "effect") if n in problem.constraints]
    if _impossible(problem, names, table):
        raise _conflict(problem, names)


def _conflict(problem: ChoiceProblem, names: list[str]) -> Infeasible:
    """Return the error of terms that exclude each other, without those that could be left out."""
    for name in list(names):
        fewer = [n for n in names if n != name]
        if _impossible(problem, fewer):
            names = fewer
    certificate = ChoiceConflict(problem, ("one choice", *names))
    remedy = f"remove or loosen one of {', '.join(map(repr, names))}"
    return Infeasible.of(certificate, certificate.conflict, remedy=remedy)


def _impossible(problem: ChoiceProblem, names: Iterable[str], table: RowTable | None = None) -> str:
    """Return why no plan satisfies these terms, empty when one may."""
    active = set(names)
    exclusions = problem.exclusions()
    if isinstance(exclusions, str):
        return ""
    if table is None:
        table = row_table(problem, [n for n in exclusions if n in active])
    bare = np.flatnonzero(np.isinf(table.lower).all(axis=1))
    if bare.size:
        return f"row {int(bare[0])} is left without a choice"
    least = float(table.cheapest.sum()) * table.unit
    if isinstance(problem, ActionPlan) and "budget" in active:
        budget = problem.budget
        if least > budget * (1.0 + 1e-9):
            return f"the cheapest plan costs {least:g}, the budget is {budget:g}"
    if isinstance(problem, MinimumEdits) and "effect" in active:
        ends = table.upper.max(axis=1) if problem.direction > 0 else -table.lower.min(axis=1)
        total = float(ends.sum())
        if not reached(total, problem):
            share = 1.0 + min(total, 0.0) / abs(problem.choices.unedited)
            return f"the choices that are left reach an effect of {share:.4g}"
        if "overshoot" in active and _misses(table, _allowed(problem)):
            return f"no plan that is left ends within {_allowed(problem):.3g} of the target"
    return ""


def _misses(table: RowTable, wide: float, deadline: float = np.inf) -> bool:
    """Whether it is proved that no plan has a sum of effects within so much of 0."""
    merged = 2.0 * (table.rows + 1) * merge_width(table)  # of sums that are taken for the same
    search = search_labels(table, table.dearest, wide + merged, deadline=deadline)
    return search.complete and search.chosen is None


def row_table(problem: ChoiceProblem, rules: Iterable[str] | None = None) -> RowTable:
    """Return the table of a problem, or of some of its rules alone.

    Raises
    ------
    UnsupportedProblem
        The structure is lost, or the costs are too fine for a table.
    """
    exclusions = problem.exclusions()
    unit = common_unit(problem.choices.cell_costs)
    if isinstance(exclusions, str) or unit is None:
        raise UnsupportedProblem(
            f"the dynamic program does not apply: {exclusions}",
            remedy="leave the choice of the solver to the library",
        )
    allowed = np.ones(problem.choices.size, dtype=bool)
    for name in exclusions if rules is None else rules:
        allowed &= ~exclusions[name]
    return RowTable.of(problem.choices, allowed, unit)


# Route of the structure ``row-choices``: a dynamic program over the budget, with its proof.

# A sum this near to 0, relative to the size of one effect, is taken for 0.
ZERO = 1e-9
# Nearer than this a sum of scores cannot be told from 0.
LEAST = 1e-13
# Entries of the dynamic program: rows times budget.
LARGEST = 50_000_000


@dataclass(frozen=True)
class Selection:
    """A plan with a proof, before anybody else is asked."""

    chosen: Indices
    proof: DualProof
    bound: float
    done: bool
    rounds: tuple[Any, ...] = ()


def run(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Prove the optimum by the dynamic program, or hand over with the plan that was found.

    Zero deviation is its own proof. What the dynamic program leaves open goes to the default
    solver of integer programs, which starts from the plan; its bound is then a reported one.
    """
    request.refuse_options(profile)
    begin = time.perf_counter()
    p: Any = problem
    table = row_table(p)
    refuse_conflict(p, table)
    compiled_at = time.perf_counter()
    solution = (
        _nearest(p, table, request) if isinstance(p, ActionPlan) else _fewest(p, table, request)
    )
    seconds = {"compile": compiled_at - begin, "solve": time.perf_counter() - compiled_at}
    values = _values(p, solution.chosen)
    if solution.done:
        return Outcome("optimal", values, {}, solution.proof, seconds, solution.rounds)
    outcome = _handed_over(p, profile, request, values, solution)
    seconds["solve"] = time.perf_counter() - compiled_at
    return replace(outcome, seconds=seconds)


def _values(p: ChoiceProblem, chosen: Indices) -> dict[str, Floats]:
    a = np.zeros(p.choices.size)
    a[chosen] = 1.0
    values = {"choice": a}
    if isinstance(p, ActionPlan):
        # by the arithmetic of the declared terms, so that they hold to the last digit
        values["deviation"] = np.asarray(abs(float(p.choices.effects @ a)))
    for array in values.values():
        array.flags.writeable = False
    return values


def _capacity(p: ChoiceProblem, table: RowTable) -> int:
    units = table.dearest
    if isinstance(p, ActionPlan) and "budget" in p.constraints:
        units = table.capacity(p.budget)
    if table.rows * (units + 1) > LARGEST:
        raise UnsupportedProblem(
            f"a budget of {units} steps of {table.unit:g} is too fine for the dynamic program",
            f"{table.rows} rows make {table.rows * (units + 1):.3g} entries",
            "round the costs",
        )
    return units


# --- ActionPlan ------------------------------------------------------------------------------


def _nearest(p: ActionPlan, table: RowTable, request: Request) -> Selection:
    capacity = _capacity(p, table)
    aim = max(LEAST, min(ZERO, 0.01 * request.tolerance)) * p.objective_unit
    # a plan as near as was asked for needs no other proof than the sign of the objective
    enough = request.tolerance * p.objective_unit
    c = closest(table, capacity, aim, enough=enough, seed=request.seed, deadline=request.deadline)
    return Selection(c.chosen, DistanceProof(p, c.window), c.bound, c.done, c.rounds)


@dataclass(frozen=True, eq=False)
class DistanceProof:
    r"""Least distance from 0 of any sum within the budget, recomputed from the effects.

    The dynamic program gives the ends L and U of the range of the sum under the budget, so
    :math:`\eta \ge \max(L, -U, 0)`, less what additions are rounded by. With a window w, every plan with \|sum\| < w is looked for
    again; when there is none, :math:`\eta \ge w` up to rounding.
    """

    problem: ActionPlan
    window: float = 0.0
    source: str = "duality"

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Recompute the bound; an integer program has no multipliers."""
        table = row_table(self.problem)
        capacity = _capacity(self.problem, table)
        bound = end_bound(table, reach(table, capacity), capacity)
        bound = max(bound, window_bound(table, capacity, self.window))
        return DualCheck(bound, 0.0, consistency=unvouched(multipliers))


# --- MinimumEdits ----------------------------------------------------------------------------


def _fewest(p: MinimumEdits, table: RowTable, request: Request) -> Selection:
    kernels = reach(table, _capacity(p, table))
    least = _first(p, kernels)
    chosen = kernels.largest(least) if p.direction > 0 else kernels.least(least)
    wide = _allowed(p)
    if "overshoot" not in p.constraints or abs(float(table.effects[chosen].sum())) <= wide:
        return Selection(chosen, EffectProof(p, least), least * table.unit, True)
    near = p.missing + max(ROUNDING, request.tolerance) * (p.unit + p.missing)
    if "effect" in p.constraints and _misses(table, near, request.deadline):
        raise _conflict(p, [*p.exclusions(), "effect", "overshoot"])
    floor, proved = least, True
    rounds: list[Any] = []
    for units in range(least, table.dearest + 1):
        c = closest(table, units, wide, seed=request.seed, deadline=request.deadline)
        rounds.append((f"{units} units", c.distance))
        if c.distance <= wide:
            proof = EffectProof(p, floor)
            return Selection(c.chosen, proof, floor * table.unit, proved, tuple(rounds))
        proved = proved and c.done
        if proved:
            floor = units + 1
        if time.perf_counter() > request.deadline:
            break
    # no plan inside the band was met: whether there is one is left to the general solver
    return Selection(c.chosen, EffectProof(p, floor), floor * table.unit, False, tuple(rounds))


def _first(p: MinimumEdits, kernels: Reach) -> int:
    """Return the least budget whose range of sums reaches the effect."""
    ends = kernels.upper if p.direction > 0 else -kernels.lower
    enough = reached(ends, p)
    return int(enough.argmax()) if enough.any() else ends.size - 1


@dataclass(frozen=True, eq=False)
class EffectProof:
    """Budget below which no plan reaches the effect, recomputed from the effects.

    The dynamic program gives the largest sum for every budget. Where scores must not pass the
    target either, every plan of one unit less than ``floor`` inside the band is looked for
    again.
    """

    problem: MinimumEdits
    floor: int
    source: str = "duality"

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Recompute the bound; an integer program has no multipliers."""
        p, table = self.problem, row_table(self.problem)
        kernels = reach(table, _capacity(p, table))
        units = _first(p, kernels)
        if self.floor > units and "overshoot" in p.constraints:
            wide = _allowed(p)
            search = search_labels(table, self.floor - 1, wide)
            if search.complete and search.chosen is None:
                units = self.floor
        return DualCheck(units * table.unit, 0.0, consistency=unvouched(multipliers))


# --- handing over ----------------------------------------------------------------------------


def _handed_over(
    p: ChoiceProblem, profile: SolverProfile, request: Request, values: Values, incumbent: Selection
) -> Outcome:
    """Let the default solver of integer programs go on from the plan."""
    plan = Solution(
        problem=p,
        solver=profile.name,
        version=profile.version,
        status=Status("stalled", "feasible", "unknown"),
        objective=p.objective_at(values),
        bound=incumbent.bound,
        values=values,
        multipliers={},
        proof=incumbent.proof,
    )
    general = next((s for s in choose(p, None) if not s.structure), None)
    own = Outcome("time_limit", values, {}, incumbent.proof, {}, incumbent.rounds)
    if general is None or time.perf_counter() > request.deadline:
        return own
    left = None if request.time_limit is None else request.seconds_left
    try:
        s = solve(
            p,
            general.name,
            tolerance=request.tolerance,
            time_limit=left,
            threads=request.threads,
            seed=request.seed,
            verbose=request.verbose,
            warm_start=plan,
        )
    except SolverFailure:
        return own
    bound = max(incumbent.bound, s.bound)
    source = s.residuals().source
    best = s.values if s.objective <= plan.objective else values
    if s.objective > plan.objective and "overshoot" in p.constraints:
        best = s.values  # the plan is outside the band
    proof = ReportedBound(p, bound, s.solver) if s.bound > incumbent.bound else incumbent.proof
    rounds = (*incumbent.rounds, (source, s.objective))
    return Outcome(s.status.termination, best, {}, proof, {}, rounds)
