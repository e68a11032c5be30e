"""Solvers that lie: whatever an adapter hands back, nothing false is claimed and nothing raw escapes."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.backends import solve as solving
from optfair.backends.registry import profile
from optfair.backends.request import Outcome, RawPoint

Floats = Any
TOLERANCE = 1e-6


def lp() -> Any:
    x = cp.Variable(3, name="x")
    rows = [x[0] + 2 * x[1] >= 3, x[1] + x[2] >= 2, x[0] + x[2] <= 4, x >= 0]
    return of.from_cvxpy(cp.Problem(cp.Minimize(np.array([2.0, 3.0, 1.5]) @ x), rows))


def milp() -> Any:
    return lp().with_integrality("x")


def qp() -> Any:
    x = cp.Variable(3, name="x")
    rows = [cp.sum(x) == 1, x >= 0]
    return of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x - np.arange(3.0))), rows))


def assignment() -> Any:
    X = np.random.default_rng(1).normal(size=(14, 2))
    return of.FairAssignment(X, groups=np.arange(14) % 2, centers=X[:3])


def coupling() -> Any:
    rng = np.random.default_rng(2)
    return of.KantorovichCoupling(
        rng.normal(size=(5, 2)), rng.normal(size=(7, 2)), centers=rng.normal(size=(3, 2))
    )


def _x(change: Callable[[Floats], Any]) -> Callable[[RawPoint], RawPoint]:
    return lambda raw: replace(raw, x=None if raw.x is None else change(raw.x))


def _z(change: Callable[[Floats], Any]) -> Callable[[RawPoint], RawPoint]:
    return lambda raw: replace(raw, z=None if raw.z is None else change(raw.z))


def _with(**fields: Any) -> Callable[[RawPoint], RawPoint]:
    return lambda raw: replace(raw, **fields)


# what is done to the point of the compiled program
RAW: dict[str, Callable[[RawPoint], RawPoint]] = {
    "primal moved": _x(lambda x: x + 1e-3),
    "primal zero": _x(np.zeros_like),
    "primal short": _x(lambda x: x[:-1]),
    "primal long": _x(lambda x: np.append(x, 0.0)),
    "primal NaN": _x(lambda x: np.where(np.arange(x.size) == 0, np.nan, x)),
    "primal infinite": _x(lambda x: np.where(np.arange(x.size) == 0, np.inf, x)),
    "primal huge": _x(lambda x: x * 1e18),
    "no primal": _with(x=None),
    "dual moved": _z(lambda z: z + 0.1),
    "dual zero": _z(np.zeros_like),
    "dual negated": _z(lambda z: -z),
    "dual short": _z(lambda z: z[:-1]),
    "dual long": _z(lambda z: np.append(z, 0.0)),
    "dual NaN": _z(lambda z: np.where(np.arange(z.size) == 0, np.nan, z)),
    "dual infinite": _z(lambda z: np.where(np.arange(z.size) == 0, np.inf, z)),
    "dual huge": _z(lambda z: z * 1e200),
    "no dual": _with(z=None),
    "nothing": _with(x=None, z=None),
    "infeasible": lambda raw: RawPoint("infeasible", None, raw.z),
    "infeasible, no vector": _with(status="infeasible", x=None, z=None),
    "infeasible, ones": lambda raw: RawPoint(
        "infeasible", None, None if raw.z is None else np.ones_like(raw.z)
    ),
    "infeasible, NaN": lambda raw: RawPoint(
        "infeasible", None, None if raw.z is None else raw.z * np.nan
    ),
    "infeasible, short": lambda raw: RawPoint(
        "infeasible", None, None if raw.z is None else raw.z[:-1]
    ),
    "infeasible or unbounded": _with(status="infeasible_or_unbounded", x=None, z=None),
    "an unknown word": _with(status="splendid"),
    "bound NaN": _with(bound=np.nan),
    "bound infinite": _with(bound=np.inf),
    "bound too good": _with(bound=1e6),
}
# adapters of compiled programs: (module, solver, problem)
COMPILED = {
    "highspy lp": ("highspy_backend", "highs", lp),
    "highspy qp": ("highspy_backend", "highs", qp),
    "highspy milp": ("highspy_backend", "highs", milp),
    "cvxpy conic": ("cvxpy_backend", "clarabel", qp),
    "cvxpy lp": ("cvxpy_backend", "clarabel", lp),
    "cvxpy qp interface": ("cvxpy_backend", "osqp", qp),
    "ortools": ("ortools_backend", "glop", lp),
    "ortools integers": ("ortools_backend", "cp-sat", milp),
}


# these start a process for every solve: a few lies in the fast tier
PROCESSES = ("ortools", "ortools integers")
FEW = ("primal moved", "dual short", "infeasible, ones", "values moved", "no proof")


def pairs(cases: Mapping[str, Any], lies: Mapping[str, Any]) -> list[Any]:
    """Return every case with every lie."""
    return [
        pytest.param(case, lie, marks=[pytest.mark.slow] * (case in PROCESSES and lie not in FEW))
        for case in cases
        for lie in lies
    ]


@cache
def truth_of(declare: Callable[[], Any]) -> float:
    return float(declare().solve(tolerance=1e-8).objective)


def judge(problem: Any, solver: str | None, truth: float) -> Any:
    """Solve; what comes back is an error of ours, or claims nothing that is false."""
    try:
        s = problem.solve(solver, tolerance=TOLERANCE)
    except (of.Infeasible, of.Unbounded) as e:
        raise AssertionError(f"a false claim: {e}") from e
    except of.OptfairError as e:
        assert e.cause
        return None
    if s.is_optimal(TOLERANCE):
        assert s.objective == pytest.approx(truth, rel=1e-4, abs=1e-4)
        assert s.bound == pytest.approx(truth, rel=1e-4, abs=1e-4)
    if s.status.primal == "feasible":
        for name, off in s.residuals().primal.items():
            assert off <= TOLERANCE, name
    return s


@pytest.mark.parametrize(("case", "lie"), pairs(COMPILED, RAW))
def test_a_lie_about_the_compiled_point(
    case: str, lie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module_name, solver, declare = COMPILED[case]
    truth = truth_of(declare)
    module: Any = importlib.import_module(f"optfair.backends.{module_name}")
    honest = module.run_generic
    told = 0

    def lying(problem: Any, profile: Any, request: Any, call: Any, **more: Any) -> Any:
        def lied(*arguments: Any) -> RawPoint:
            nonlocal told
            told += 1
            return RAW[lie](call(*arguments))

        return honest(problem, profile, request, lied if profile.name == solver else call, **more)

    monkeypatch.setattr(module, "run_generic", lying)
    problem = declare()
    s = judge(problem, solver, truth)
    assert told > 0
    if s is not None and lie.startswith(("primal", "no primal", "nothing", "infeasible")):
        # a wrong point may be cleaned up, it may not be handed on
        assert s.objective == pytest.approx(truth, rel=1e-4, abs=1e-4)


def test_the_default_goes_on_to_a_solver_that_does_not_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = importlib.import_module("optfair.backends.highspy_backend")
    honest = module.run_generic
    for lie in ("primal moved", "dual short", "dual NaN", "infeasible, ones", "nothing"):

        def lying(problem: Any, profile: Any, request: Any, call: Any, **more: Any) -> Any:
            return honest(problem, profile, request, lambda *a: RAW[lie](call(*a)), **more)  # noqa: B023

        monkeypatch.setattr(module, "run_generic", lying)
        s = lp().solve(tolerance=TOLERANCE)
        assert s.is_optimal(TOLERANCE) and s.solver != "highs" and s.attempts


def _values(change: Callable[[Any], Any]) -> Callable[[Outcome], Outcome]:
    return lambda o: replace(o, values={k: change(np.array(v)) for k, v in o.values.items()})


def _multipliers(change: Callable[[Any], Any]) -> Callable[[Outcome], Outcome]:
    return lambda o: replace(
        o, multipliers={k: change(np.array(v)) for k, v in o.multipliers.items()}
    )


def _one_fewer(numbers: Mapping[str, Any]) -> dict[str, Any]:
    return {k: numbers[k] for k in list(numbers)[1:]}


class ForgedProof:
    """A bound out of thin air."""

    source = "duality"

    def __init__(self, problem: Any, bound: float) -> None:
        self.problem, self.bound = problem, bound

    def check(self, values: Any, multipliers: Any) -> Any:
        from optfair.core.certificate import DualCheck

        return DualCheck(self.bound, 0.0)


# what is done to what an adapter hands back by name
NAMED: dict[str, Callable[[Outcome], Outcome]] = {
    "values moved": _values(lambda v: v + 1e-3),
    "values zero": _values(np.zeros_like),
    "values NaN": _values(lambda v: v * np.nan),
    "values infinite": _values(lambda v: v + np.inf),
    "values of another shape": _values(lambda v: v.ravel()[:-1]),
    "a value missing": lambda o: replace(o, values=_one_fewer(o.values)),
    "no values": lambda o: replace(o, values={}),
    "multipliers moved": _multipliers(lambda v: v + 0.1),
    "multipliers NaN": _multipliers(lambda v: v * np.nan),
    "multipliers of another shape": _multipliers(lambda v: np.append(v.ravel(), 0.0)),
    "a multiplier missing": lambda o: replace(o, multipliers=_one_fewer(o.multipliers)),
    "no multipliers": lambda o: replace(o, multipliers={}),
    "no proof": lambda o: replace(o, proof=None),
    "bound NaN": lambda o: replace(o, proof=ForgedProof(_problem(o), np.nan)),
    "bound infinite": lambda o: replace(o, proof=ForgedProof(_problem(o), np.inf)),
    "status": lambda o: replace(_values(lambda v: v + 1.0)(o), termination="optimal"),
    "an unknown word": lambda o: replace(o, termination="splendid"),
}


def _problem(o: Outcome) -> Any:
    return None if o.proof is None else o.proof.problem


ADAPTERS: dict[str, tuple[str, Callable[[], Any]]] = {
    "highspy": ("highs", lp),
    "cvxpy": ("clarabel", qp),
    "ortools": ("glop", lp),
    "scip": ("scip", milp),
    "gurobi": ("gurobi", qp),
    "pyomo": ("gurobi-pyomo", qp),
    "nlp": ("uno", qp),
    "mass-dual": ("mass-dual", assignment),
    "network simplex": ("pot-network-simplex", coupling),
}


@pytest.mark.parametrize(("case", "lie"), pairs(ADAPTERS, NAMED))
def test_a_lie_about_named_numbers(case: str, lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    solver, declare = ADAPTERS[case]
    truth = truth_of(declare)
    adapter = solving._adapter
    honest = adapter(profile(solver))
    told = 0

    def lying(problem: Any, profile: Any, request: Any) -> Outcome:
        nonlocal told
        found: Outcome = honest(problem, profile, request)
        told += 1
        return NAMED[lie](found)

    monkeypatch.setattr(solving, "_adapter", lambda p: lying if p.name == solver else adapter(p))
    s = judge(declare(), solver, truth)
    assert told > 0
    if s is not None and lie.startswith(("values", "a value", "no values", "status")):
        assert s.status.primal != "feasible" or s.objective == pytest.approx(truth, abs=1e-4)
    if s is not None and lie in ("no proof", "bound NaN", "bound infinite", "no multipliers"):
        assert lie == "no multipliers" or not s.is_optimal(TOLERANCE)
