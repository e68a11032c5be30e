"""What a type checker sees: composing keeps the type, and verbs have options with types."""

from __future__ import annotations

from typing import assert_type

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

import optfair as of
from optfair.backends.integer_programs import Pool
from optfair.compile.conic_proof import ExactOptimum
from optfair.convexity.prove import Answer
from optfair.core.certificate import Certificate


def composed() -> None:
    """Is read, not run."""
    p = of.textbook.Diet(cost=[1.0], nutrition=[[1.0]], minimum=[1.0], maximum=[2.0], most=[3.0])
    x = p["servings"]

    assert_type(p.with_constraints(few=x <= 2), of.textbook.Diet)
    assert_type(p.with_constraints({"few": x <= 2}).without("few"), of.textbook.Diet)
    assert_type(p.with_integrality("servings").soften("most servings", 1.0), of.textbook.Diet)
    assert_type(p.with_variables(z=cp.Variable(name="z")).at(), of.textbook.Diet)
    assert_type(p.solve("highs", tolerance=1e-9, threads=1, exact=True), of.Solution)
    assert_type(p.solve().certificate.prove(time_limit=1.0).solution, of.Solution)
    assert_type(p.diagnose(time_limit=1.0), of.diagnosis.Diagnosis)
    p.solve(tolerence=1e-9)  # type: ignore[call-arg]
    p.solve(tolerance="small")  # type: ignore[arg-type]


def answered(problem: of.Problem, function: cp.Expression) -> None:
    """Is read, not run."""
    s = problem.solve()
    assert_type(s["x"], NDArray[np.float64])
    assert_type(s.pool, Pool | None)
    assert_type(s.exact, ExactOptimum | None)
    assert_type(of.Infeasible("no point").certificate, Certificate | None)
    assert_type(of.convexity.prove_terms(problem), dict[str, Answer])
    x = cp.Variable(name="x")  # whose operators have no types
    assert_type(of.prove(x * x), Answer)
    assert_type(of.prove(function), Answer)
