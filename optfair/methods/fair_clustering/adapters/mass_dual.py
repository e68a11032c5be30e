"""Route of the structure ``mass-assignment``: rules to the small cone program, the mass-dual algorithm, its certificate."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from optfair.backends.farkas import InfeasibilityProof
from optfair.backends.policy import conic_interface
from optfair.backends.progress import round_progress
from optfair.backends.request import Outcome, Request
from optfair.compile.form import Compiled, compile_problem
from optfair.core.certificate import DualCheck, drift
from optfair.core.expressions import Values
from optfair.core.problem import Declaration, Problem
from optfair.core.problem_class import LP, Evidence
from optfair.core.solution import LazyValues
from optfair.core.term import ConstraintTerm, ObjectiveTerm
from optfair.errors import DeclarationError, Infeasible
from optfair.methods.fair_clustering.algorithms.mass_program import MassProgram
from optfair.methods.fair_clustering.algorithms.price_search import MassResult, solve_mass_dual
from optfair.methods.fair_clustering.assignment import FairAssignment, GroupedRows
from optfair.proofs.rounding import gamma, loss

if TYPE_CHECKING:
    from optfair.backends.profile import SolverProfile
    from optfair.core.problem import Problem as AnyProblem

__all__ = [
    "CompiledRules",
    "MassProof",
    "compile_rules",
    "run",
    "warm_prices",
]


# Compile the rules of a fair assignment, alone, into the small cone program.

Floats = NDArray[np.float64]


class RuleProblem(Problem):
    """min h(M) subject to the rules: what is left of a fair assignment without its rows."""

    title = "rules on masses"

    def __init__(
        self,
        masses: Any,
        objective: tuple[ObjectiveTerm, ...],
        constraints: tuple[ConstraintTerm, ...],
    ) -> None:
        super().__init__({"masses": masses, "objective": objective, "constraints": constraints})

    def declare(self) -> Declaration:
        """Keep the masses in the problem even when no rule uses them."""
        M = self.data["masses"]
        anchor = ObjectiveTerm(
            "anchor",
            frozenset({"masses"}),
            Evidence("anchor", "affine", "minimize", LP),
            build=lambda: 0.0 * cp.sum(M),
            value=lambda values: 0.0,
        )
        return Declaration(
            {"masses": M}, "minimize", (anchor, *self.data["objective"]), self.data["constraints"]
        )


@dataclass(frozen=True, eq=False)
class CompiledRules:
    """The small cone program, the way back to named rules, and a feasible point."""

    compiled: Compiled
    program: MassProgram
    feasible: Floats


def compile_rules(problem: AnyProblem) -> CompiledRules:
    """Compile the rules of a problem with the structure ``mass-assignment``.

    Raises
    ------
    Infeasible
        The rules exclude each other; the error names a set in which none can be spared.
    """
    objective = tuple(t for t in problem.objective.values() if t.scope <= {"masses"})
    constraints = tuple(t for t in problem.constraints.values() if t.scope <= {"masses"})
    shares = tuple(float(s) for s in problem.data["shares"])
    return _compile(problem["masses"], objective, constraints, shares)


@lru_cache(maxsize=32)  # centers move, rules stay: alternating algorithms compile them once
def _compile(
    masses: Any,
    objective: tuple[ObjectiveTerm, ...],
    constraints: tuple[ConstraintTerm, ...],
    shares: tuple[float, ...],
) -> CompiledRules:
    compiled, program = _program(masses, objective, constraints, shares)
    feasible = program.feasible()
    if feasible is None:
        raise _conflict(masses, constraints, shares)
    return CompiledRules(compiled, program, feasible)


def _program(
    masses: Any,
    objective: tuple[ObjectiveTerm, ...],
    constraints: tuple[ConstraintTerm, ...],
    shares: tuple[float, ...],
) -> tuple[Compiled, MassProgram]:
    compiled = compile_problem(RuleProblem(masses, objective, constraints), conic_interface(), {})
    G, K = masses.shape
    at = compiled.form.columns["masses"].start
    position = at + np.arange(G * K).reshape(K, G).T  # CVXPY lays matrices out by column
    return compiled, MassProgram(compiled.form, position, np.array(shares))


def _conflict(
    masses: Any, constraints: tuple[ConstraintTerm, ...], shares: tuple[float, ...]
) -> Infeasible:
    """Drop rules one by one while the rest stays infeasible; what is left is in conflict."""
    kept = list(constraints)
    for term in constraints:
        rest = tuple(t for t in kept if t is not term)
        if _program(masses, (), rest, shares)[1].feasible() is None:
            kept = list(rest)
    names = tuple(t.name for t in kept)
    program = _program(masses, (), tuple(kept), shares)[1]
    z = program.farkas_vector()
    proof = None if z is None else InfeasibilityProof(program.closed(), z, names)
    if len(names) == 1:
        cause = f"this rule cannot hold: {names[0]!r}"
        evidence = "no group masses satisfy it, whatever the rows"
    else:
        cause = f"these rules exclude each other: {', '.join(map(repr, names))}"
        evidence = "no group masses satisfy them all, whatever the rows; without any one some do"
    return Infeasible(
        cause,
        evidence,
        f"change or remove one of them, or soften({names[-1]!r}, weight=1.0)",
        certificate=proof if proof is not None and proof.verify() else None,
        conflict=names,
    )


# Prices of group masses from a solution found before.


def warm_prices(p: GroupedRows, request: Request) -> NDArray[np.float64] | None:
    """Return the multipliers of ``mass definition`` of the warm start, if there is one.

    Raises
    ------
    DeclarationError
        A solution of another kind of problem, or of one with other groups or clusters.
    """
    if request.warm_start is None:
        return None
    given = request.warm_start.multipliers
    if "mass definition" not in given:
        raise DeclarationError(
            "the warm start has no multipliers of 'mass definition'",
            f"it is a solution of {type(request.warm_start.problem).__name__}",
            f"give a solution of a {type(p).__name__} with as many groups and clusters",
        )
    prices = np.asarray(given["mass definition"], dtype=float)
    if prices.shape != p["masses"].shape:
        raise DeclarationError(
            f"the warm start has prices {prices.shape}, this problem needs {p['masses'].shape}",
            remedy="give a solution with as many groups and clusters",
        )
    return prices


# Route of the structure ``mass-assignment``: the mass-dual algorithm, with its certificate.

CHUNK = 65_536
# Gaps the search aims at: linear programming is exact, an interior-point master is not.
POLYHEDRAL, CURVED = 1e-10, 3e-8


def run(problem: Problem, profile: SolverProfile, request: Request) -> Outcome:
    """Run the mass-dual algorithm on a problem that has the structure."""
    begin = time.perf_counter()
    request.refuse_options(profile)
    p = cast(FairAssignment, problem)
    rules = compile_rules(p)
    compiled_at = time.perf_counter()
    aim = POLYHEDRAL if rules.program.polyhedral else CURVED
    with round_progress(request.verbose, "mass-dual") as report:
        result = solve_mass_dual(
            rules.program,
            p.cost,
            p.data["groups"],
            p.data["weights"],
            feasible=rules.feasible,
            prices=warm_prices(p, request),
            tolerance=min(aim, 0.4 * request.tolerance),
            deadline=request.deadline,
            report=report,
        )
    solved_at = time.perf_counter()
    values, multipliers, proof = _recovered(p, rules, result)
    return Outcome(
        result.status,
        values,
        multipliers,
        proof,
        {
            "compile": compiled_at - begin,
            "solve": solved_at - compiled_at,
            "recover": time.perf_counter() - solved_at,
        },
        tuple(result.history),
    )


def _recovered(
    p: FairAssignment, rules: CompiledRules, result: MassResult
) -> tuple[dict[str, Floats], Mapping[str, Any], MassProof]:
    K = p.cost.clusters
    A = np.zeros((p.cost.rows, K))
    A[result.rows, result.clusters] = result.fractions
    # zero-weight rows count for nothing in the masses, so their fractions are free
    w, groups, G = p.data["weights"], p.data["groups"], p.shares.size
    entry = groups[result.rows] * K + result.clusters
    entries_weight = np.asarray(w[result.rows] * result.fractions, dtype=float)
    M = np.asarray(np.bincount(entry, entries_weight, G * K), dtype=float).reshape(G, K)
    values = {"assignment": A, "masses": M}
    proof = MassProof(p, rules, result.y, result.z)
    named = rules.compiled.by_name(result.y, result.z)[1]
    prices = proof.prices
    entries: dict[str, Any] = {
        "row sum": lambda: _frozen(proof.row_multipliers()),
        "nonnegativity": lambda: _frozen(proof.sign_multipliers()),
        "mass definition": _frozen(prices),
        **{name: _frozen(v) for name, v in named.items()},
    }
    multipliers = LazyValues(entries)
    object.__setattr__(proof, "own", multipliers)
    return {k: _frozen(v) for k, v in values.items()}, multipliers, proof


def _frozen(array: Floats) -> Floats:
    array = np.asarray(array)
    array.flags.writeable = False
    return array


@dataclass(frozen=True, eq=False)
class MassProof:
    r"""Bound from the prices Λ of the masses, recomputed from the rows.

    .. math::
        q(\Lambda) = \sum_i w_i \min_k (D_{ik} + \Lambda_{g_i k})
                     + \min_M \{h(M) - \langle\Lambda, M\rangle : \text{rules}\}

    The second part is the Lagrangian value of the rules' multipliers z, whose derivative in
    M is Λ itself. The multipliers of the other terms follow from Λ: those of the row sums
    are :math:`-w_i \min_k`, those of the signs the reduced costs.
    """

    problem: FairAssignment
    rules: CompiledRules
    y: Floats
    z: Floats
    own: Any = None
    source: str = "duality"

    @property
    def prices(self) -> Floats:
        """Λ (G x K)."""
        return self.rules.program.prices(self.y, self.z)

    def _reduced(self, rows: slice, prices: Floats) -> Floats:
        groups = self.problem.data["groups"][rows]
        return np.asarray(self.problem.cost.columns(rows) + prices[groups].T)

    def row_multipliers(self) -> Floats:
        """Return the multipliers of the row sums."""
        n, w, prices = self.problem.cost.rows, self.problem.data["weights"], self.prices
        lows = [self._reduced(slice(i, i + CHUNK), prices).min(axis=0) for i in range(0, n, CHUNK)]
        return np.asarray(-w * np.concatenate(lows))

    def sign_multipliers(self) -> Floats:
        """Return the multipliers of the signs (n x K)."""
        w = self.problem.data["weights"]
        reduced = self._reduced(slice(None), self.prices)
        return np.ascontiguousarray((w * (reduced - reduced.min(axis=0))).T)

    def check(self, values: Values, multipliers: Mapping[str, Any]) -> DualCheck:
        """Recompute bound and residuals with the multipliers given."""
        p, program = self.problem, self.rules.program
        form = program.form
        prices = np.asarray(multipliers["mass definition"], dtype=float)
        n, w = p.cost.rows, p.data["weights"]
        rules = program.proved_bound(self.y, self.z, prices)
        bound, size = rules.value, 0.0
        off = float(gamma(p.cost.points.shape[1] + 8.0))
        for i in range(0, n, CHUNK):
            rows = slice(i, i + CHUNK)
            reduced = self._reduced(rows, prices)
            # a distance has a rounding a column: lowered by that, whichever is the least
            reduced -= off * (np.abs(reduced) + 2.0 * np.abs(prices[p.data["groups"][rows]].T))
            low = reduced.min(axis=0)
            bound += float(w[rows] @ low)
            size += float(w[rows] @ np.abs(low))
        unit = 1.0 + max(size, float(np.abs(prices).max(initial=0.0)))
        outside = max(
            (c.distance(self.z[c.start : c.stop], dual=True) for c in form.cones), default=0.0
        )
        dual = max(outside, program.stationarity(self.y, self.z)) / unit
        s = form.slack(self.y)
        jordan = max(
            (c.complementarity(s[c.start : c.stop], self.z[c.start : c.stop]) for c in form.cones),
            default=0.0,
        )
        apart = float((np.abs(prices - self.prices) / (1.0 + np.abs(prices))).max(initial=0.0))
        bound -= loss(n, size + abs(rules.value))
        return DualCheck(
            bound,
            dual,
            jordan / unit,
            max(apart, self._drift(multipliers)),
            unpaid=rules.unpaid,
            free=() if rules.unpaid is None else form.column_names(rules.unpaid.columns),
        )

    def _drift(self, multipliers: Mapping[str, Any]) -> float:
        """Return how far multipliers somebody handed in are from those that follow from Λ."""
        if multipliers is self.own:  # read-only, and derived from Λ when first read
            return 0.0
        derived: dict[str, Floats] = {
            "row sum": self.row_multipliers(),
            "nonnegativity": self.sign_multipliers(),
            **self.rules.compiled.by_name(self.y, self.z)[1],
        }
        return drift(multipliers, derived)
