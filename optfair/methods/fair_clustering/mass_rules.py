"""The rules of a fair assignment compiled alone into the small cone program, and prices of its masses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.backends.farkas import InfeasibilityProof
from optfair.backends.registry import conic_interface
from optfair.backends.request import Request
from optfair.compile.form import Compiled, compile_problem
from optfair.core.problem import Declaration, Problem
from optfair.core.problem_class import LP, Evidence
from optfair.core.term import ConstraintTerm, ObjectiveTerm, Term
from optfair.errors import DeclarationError, Infeasible, SolverFailure, kind_of
from optfair.methods.fair_clustering.algorithms.mass_program import MassProgram
from optfair.methods.fair_clustering.assignment import FairAssignment, GroupedRows
from optfair.methods.fair_clustering.cost_rules import CostTerm
from optfair.numbers import Floats
from optfair.solution.conic_form import ConicForm

if TYPE_CHECKING:
    from optfair.core.problem import Problem as AnyProblem

# Compile the rules of a fair assignment, alone, into the small cone program.


class RuleProblem(Problem):
    """min h(M) subject to the rules: what is left of a fair assignment without its rows."""

    title = "rules on masses"

    def __init__(
        self,
        variables: tuple[Any, ...],
        objective: tuple[ObjectiveTerm, ...],
        constraints: tuple[ConstraintTerm, ...],
    ) -> None:
        super().__init__(
            {"variables": variables, "objective": objective, "constraints": constraints}
        )

    def declare(self) -> Declaration:
        """Keep the variables in the problem even when no rule uses them."""
        variables = {v.name(): v for v in self.data["variables"]}
        anchor = ObjectiveTerm(
            "anchor",
            frozenset(variables),
            Evidence("anchor", "affine", "minimize", LP),
            build=lambda: 0.0 * sum(cp.sum(v) for v in variables.values()),
            value=lambda values: 0.0,
        )
        return Declaration(
            variables, "minimize", (anchor, *self.data["objective"]), self.data["constraints"]
        )


@dataclass(frozen=True, eq=False)
class CompiledRules:
    """The small cone program, the way back to named rules, and a feasible point.

    Of a facility location the program is that of all sites open that loosen a row; ``room``
    (rows x sites) is how much of the sides every open site is, ``opening`` (sites) what it costs.
    """

    compiled: Compiled
    program: MassProgram
    feasible: Floats
    room: Any
    opening: Floats

    @cached_property
    def _tied(self) -> Floats:
        """Sizes of the rows of auxiliaries alone whose side is 0; 0 of other rows."""
        program, form = self.program, self.program.form
        full = np.zeros(form.q.size)
        full[program.masses] = program.shares[:, None]
        of_masses = form.products.terms(full)
        i, j, a = sp.find(abs(sp.csr_array(form.A)))
        of_auxiliary = (of_masses[i] > 0.0) & (full[j] == 0.0)
        reach = np.zeros(form.q.size)
        np.maximum.at(reach, j[of_auxiliary], (of_masses[i] / a)[of_auxiliary])
        return np.where((of_masses == 0.0) & (form.b == 0.0), form.products.terms(reach), 0.0)

    def violation(self, y: Floats, masses: Any) -> float:
        """Return the largest violation of a linear rule at masses, relative to its own terms.

        A mass counts for itself, at least for the share of its group: rules on groups of little
        weight are as strict as those on others. A row of auxiliaries alone, with side 0, counts as
        the rows do that tie these to masses.
        """
        program, form = self.program, self.program.form
        at = y.copy()
        at[program.masses] = masses
        s = form.slack(at)
        outside = np.where(
            form.equal, np.abs(s), np.where(form.nonnegative, np.maximum(-s, 0.0), 0.0)
        )
        at[program.masses] = np.maximum(np.abs(masses), program.shares[:, None])
        size = np.maximum(form.products.terms(np.abs(at)), np.abs(form.b))
        size = np.where(self._tied > 0.0, np.maximum(size, self._tied), size)
        return float((outside / np.where(size > 0.0, size, 1.0)).max(initial=0.0))


def compile_rules(problem: AnyProblem) -> CompiledRules:
    """Compile the rules of a problem with the structure ``mass-assignment``.

    Raises
    ------
    Infeasible
        The rules exclude each other; the error names a set in which none can be spared.
    """
    names = rule_variables(problem)
    objective = tuple(t for t in problem.objective.values() if on_masses(t, names))
    constraints = tuple(t for t in problem.constraints.values() if on_masses(t, names))
    shares = tuple(float(s) for s in problem.data["shares"])
    return _compile(tuple(problem[k] for k in names), objective, constraints, shares)


def rule_variables(problem: AnyProblem) -> tuple[str, ...]:
    """Return the variables of rules: masses, and of a facility location what is open."""
    return ("masses", "open") if "opening_costs" in problem.data else ("masses",)


def on_masses(term: Term, names: tuple[str, ...]) -> bool:
    """Whether a term is a rule on masses."""
    return term.scope <= {*names} and term.scope != {"open"}


@lru_cache(maxsize=32)  # centers move, rules stay: alternating algorithms compile them once
def _compile(
    variables: tuple[Any, ...],
    objective: tuple[ObjectiveTerm, ...],
    constraints: tuple[ConstraintTerm, ...],
    shares: tuple[float, ...],
) -> CompiledRules:
    compiled, program, room, opening = _program(variables, objective, constraints, shares)
    feasible = program.feasible()
    if feasible is None:
        raise _conflict(variables, constraints, shares)
    return CompiledRules(compiled, program, feasible, room, opening)


def _program(
    variables: tuple[Any, ...],
    objective: tuple[ObjectiveTerm, ...],
    constraints: tuple[ConstraintTerm, ...],
    shares: tuple[float, ...],
) -> tuple[Compiled, MassProgram, Any, Floats]:
    compiled = compile_problem(RuleProblem(variables, objective, constraints), conic_interface())
    form, (G, K) = compiled.form, variables[0].shape
    sites = np.zeros(form.q.size, dtype=bool)
    for v in variables[1:]:
        sites[form.columns[v.name()]] = True
    room, opening = -sp.csr_array(form.A[:, sites]), form.q[sites]
    at = form.columns["masses"].start
    at -= int(sites[:at].sum())
    position = at + np.arange(G * K).reshape(K, G).T  # CVXPY lays matrices out by column
    if variables[1:]:
        own = ~sites
        columns = {"masses": slice(at, at + G * K)}
        sides, P = form.b + room.maximum(0.0).sum(axis=1), form.P[own][:, own]
        stated = form.A[:, own], sides, form.cones, columns, form.sign, form.rooted
        form = ConicForm(P, form.q[own], form.offset, *stated)
    return compiled, MassProgram(form, position, np.array(shares)), room, opening


def _conflict(
    variables: tuple[Any, ...], constraints: tuple[ConstraintTerm, ...], shares: tuple[float, ...]
) -> Infeasible | SolverFailure:
    """Drop rules one by one while the rest stays infeasible; what is left is in conflict."""
    kept = list(constraints)
    for term in constraints:
        rest = tuple(t for t in kept if t is not term)
        if rest and _program(variables, (), rest, shares)[1].feasible() is None:
            kept = list(rest)
    names = tuple(t.name for t in kept)
    program = _program(variables, (), tuple(kept), shares)[1]
    z = program.farkas_vector()
    proof = None if z is None else InfeasibilityProof(program.closed(), z, names)
    if len(names) == 1:
        cause = f"this rule cannot hold: {names[0]!r}"
        evidence = "no group masses satisfy it, whatever the rows"
    else:
        cause = f"these rules exclude each other: {', '.join(map(repr, names))}"
        evidence = "no group masses satisfy them all, whatever the rows; without any one some do"
    remedy = f"change or remove one of them, or soften({names[-1]!r}, weight=1.0)"
    if proof is None or not proof.verify():
        evidence = "no group masses that satisfy them are found, and no proof that there are none"
        unproved = f"{cause}, which is not proved here"
        return SolverFailure(
            unproved, evidence, remedy, claim="infeasible", claimed_by="the rules on masses"
        )
    return Infeasible(cause, evidence, remedy, certificate=proof, conflict=names)


def check_room(problem: FairAssignment) -> None:
    """Raise where forbidden arcs leave a group no masses that obey the rules, whatever the costs.

    Raises
    ------
    Infeasible
        With the rules in conflict, and the groups that may go nowhere else: capacities below
        their weight.
    """
    arcs = problem.demands.charge.barred
    if arcs is None:
        return
    w, groups = problem.data["weights"], problem.data["groups"]
    G, K = problem["masses"].shape
    room = np.stack([np.bincount(groups, w * free, G) for free in ~arcs.T], axis=1).astype(float)
    # sums of weights are rounded: masses that fill the room are no conflict
    room += (problem.cost.rows + 4.0) * np.finfo(float).eps
    name = next(
        k
        for k, t in problem.constraints.items()
        if isinstance(t, CostTerm) and t.charge.barred is not None
    )
    M, shares = problem["masses"], np.asarray(problem.data["shares"], dtype=float)
    rules = tuple(t for t in problem.constraints.values() if t.scope <= {"masses"})

    def within(room: Floats) -> ConstraintTerm:
        return ConstraintTerm(
            name,
            frozenset({"masses"}),
            Evidence(name, "affine", "Nonpositive", LP),
            build=lambda: room >= M,
            violation=lambda v: np.maximum(np.asarray(v["masses"]) - room, 0.0),
            shape=(G, K),
        )

    def excluded(g: int) -> bool:
        alone = np.repeat(2.0 * shares[:, None], K, axis=1)
        alone[g] = room[g]
        stated = (*rules, within(alone)), tuple(shares.tolist())
        return _program((M,), (), *stated)[1].feasible() is None

    try:
        _compile((M,), (), (*rules, within(room)), tuple(shares.tolist()))
    except Infeasible as e:
        names = np.asarray(problem.data["group_names"])
        said = [_room(names[g], shares[g], room[g]) for g in range(G) if excluded(g)]
        raise Infeasible(
            e.cause,
            "; ".join([e.evidence, *said]),
            e.remedy,
            certificate=e.certificate,
            conflict=e.conflict,
        ) from None


def _room(name: Any, share: float, room: Floats) -> str:
    """Say where a group may go, and with how much of its weight."""
    at = np.flatnonzero(room > 1e-9 * share)
    where = ", ".join(f"{min(room[k], share):.4g} into cluster {k}" for k in at[:5])
    more = f" and {at.size - 5} more" if at.size > 5 else ""
    return f"group {str(name)!r} weighs {share:.4g} of all, and may put {where or 'nothing'}{more}"


# Prices of group masses from a solution found before.


def warm_prices(p: GroupedRows, request: Request) -> NDArray[np.float64] | None:
    """Return the multipliers of ``mass definition`` of the warm start, if there is one.

    Raises
    ------
    DeclarationError
        A solution of another kind of problem, or of one with other groups or clusters.
    """
    if request.warm_start is None:
        given_with = p.data.get("prices")
        return None if given_with is None else np.asarray(given_with, dtype=float)
    given = request.warm_start.multipliers
    if "mass definition" not in given:
        raise DeclarationError(
            "the warm start has no multipliers of 'mass definition'",
            f"it is a solution of {type(request.warm_start.problem).__name__}",
            f"give a solution of {kind_of(p)} with as many groups and clusters",
        )
    prices = np.asarray(given["mass definition"], dtype=float)
    if prices.shape != p["masses"].shape:
        raise DeclarationError(
            f"the warm start has prices {prices.shape}, this problem needs {p['masses'].shape}",
            remedy="give a solution with as many groups and clusters",
        )
    return prices
