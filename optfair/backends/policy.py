"""Which solver by default: decided by the problem alone, never by what is installed."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from optfair import registry
from optfair.backends.profile import Refusal, SolverProfile
from optfair.backends.registry import open_takers, profile, profiles, refuse_unlicensed, takers
from optfair.errors import NotInstalled, UnsupportedProblem
from optfair.registry import fact_files, load_facts

if TYPE_CHECKING:
    from optfair.core.problem import Problem


@lru_cache(maxsize=4)
def _policy(path: Path) -> dict[str, Any]:
    return load_facts(path)


def choose(problem: Problem, solver: str | None) -> tuple[SolverProfile, ...]:
    """Return the solvers to try, in order: the named one alone, or the policy's.

    Parameters
    ----------
    problem : Problem
        What is to be solved.
    solver : str, optional
        Name of a solver.

    Raises
    ------
    UnsupportedProblem
        The named solver, or every solver, refuses the problem.
    NotInstalled
        The named solver, or the default, is not installed.
    NotLicensed
        The named solver has no licence to solve.
    """
    if solver is not None:
        named = profile(solver)
        _check(problem, named)
        return (named,)
    policy = _policy(fact_files("solvers")["_policy"])
    known = profiles()
    structured = (*policy["structures"], *registry.defaults())
    by_structure = [name for name in structured if known[name].accepts(problem)]
    pc = problem.problem_class
    order, budgets = policy["classes" if pc.convex else "nonconvex"].get(pc.name, ()), {}
    if pc.name == "SDP" and _order(problem) >= policy["semidefinite"]["order"]:
        linear = pc.cones == {"psd"} and not (pc.quadratic_objective or pc.quadratic_constraint)
        large = policy["semidefinite"]
        order, budgets = large["linear" if linear else "other"], large["budget"]
    by_class = [name for name in order if known[name].accepts(problem)]
    first = _by_proof(problem, policy["proved"])
    chosen = tuple(
        replace(known[name], fixed={**known[name].fixed, **budgets.get(name, {})})
        for name in dict.fromkeys(by_structure + first + by_class)
    )
    if not chosen:
        raise UnsupportedProblem(
            f"no open solver takes this {pc}"
            if not takers(problem)
            else f"there is no default solver for this {pc}",
            "; ".join(_reasons(problem)),
            "see explain() for the term that decides the class; " + _offer(problem),
        )
    if not chosen[0].installed:
        missing = chosen[0]
        raise NotInstalled(
            f"{missing.name} is not installed",
            f"it is the default for this {pc}; the module {missing.module!r} was not found",
            missing.install,
        )
    return tuple(p for p in chosen if p.installed)


def _order(problem: Problem) -> float:
    """Return the order of the one block that costs a cone solver as much as those there are.

    A block of order n costs it about n to the sixth: that is the cube of its entries.
    """
    terms = (t for t in problem.terms if "psd" in t.evidence.problem_class.cones)
    sides = [float(max(getattr(t, "shape", ()), default=0)) for t in terms]
    order: float = round(sum(n**6 for n in sides) ** (1.0 / 6.0), 6)
    return order


def _by_proof(problem: Problem, facts: dict[str, Any]) -> list[str]:
    """Return who bounds terms that were proved beyond composition rules, while they are few."""
    size = sum(v.size for v in problem.variables.values())
    few = size <= facts["variables"] and not problem.integers
    proved = any(t.evidence.proof is not None for t in problem.terms)
    return [facts["solver"]] if few and proved else []


def _check(problem: Problem, named: SolverProfile) -> None:
    verdict = named.accepts(problem)
    if isinstance(verdict, Refusal):
        raise UnsupportedProblem(
            "; ".join(verdict.reasons), remedy="; ".join([*verdict.remedies, _offer(problem)])
        )
    if not named.installed:
        raise NotInstalled(
            f"{named.name} is not installed",
            f"module {named.module!r} was not found",
            named.install,
        )
    refuse_unlicensed(named, lambda: open_takers(problem))


def _reasons(problem: Problem) -> list[str]:
    open_ones = [p for p in profiles().values() if p.kind == "open" and not p.structure]
    found = (p.accepts(problem) for p in open_ones)
    return [r for v in found if isinstance(v, Refusal) for r in v.reasons][:3]


def _offer(problem: Problem) -> str:
    able = [p.name for p in profiles().values() if p.accepts(problem)]
    return f"Solvers that can: {', '.join(able) or 'none of those known'}."


def conic_interface() -> str:
    """Return CVXPY's name of the default cone solver: its form is what we compile rules to."""
    policy = _policy(fact_files("solvers")["_policy"])
    return profile(policy["classes"]["CONIC"][0]).cvxpy_name
