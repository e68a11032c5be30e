"""Local optimisation: verified feasibility, several starts, never called optimal."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.backends import nlp_backend
from optfair.backends.registry import profile
from optfair.backends.request import Outcome, Request, SolverProfile
from optfair.methods.textbook.geometry import TrustRegion


def run(problem: Any, solver: str = "uno", **asked: Any) -> Outcome:
    facts = profile(solver)
    quiet = replace(facts, fixed={"logger": nlp_backend.SILENT}) if solver == "uno" else facts
    return nlp_backend.run(problem, quiet, Request(**asked))


def two_valleys() -> Any:
    """x⁴ - 2x² + 0.3x has a deep valley left of 0 and a shallow one right of it."""
    x = cp.Variable(name="x")
    return of.from_cvxpy(
        cp.Problem(cp.Minimize(cp.square(cp.square(x)) - 2 * cp.square(x) + 0.3 * x), [x >= -3]),
        ["low"],
    )


def valleys() -> tuple[float, float]:
    """Values at the deep and the shallow local minimum, from the roots of the derivative."""
    roots = np.sort(np.roots([4.0, 0.0, -4.0, 0.3]).real)
    deep, shallow = (float(r**4 - 2 * r**2 + 0.3 * r) for r in (roots[0], roots[2]))
    return deep, shallow


def test_a_local_result_is_called_local() -> None:
    rng = np.random.default_rng(1)
    H = rng.normal(size=(4, 4))
    p = TrustRegion(H=H + H.T, g=rng.normal(size=4), radius=1.0)
    best = p.convex_form().solve(tolerance=1e-9).objective
    s = p.solve("uno")
    assert s.status.termination == "local" and s.status.primal == "feasible"
    assert s.proof is None and s.bound == -np.inf and s.gap == np.inf
    assert not s.is_optimal(1e-3) and not s.certificate.verify()
    assert s.objective >= best - 1e-6
    assert s.residuals().feasibility <= 1e-7


@pytest.mark.parametrize("seed", range(4))
def test_local_is_never_below_global(seed: int) -> None:
    rng = np.random.default_rng(seed)
    Q = rng.normal(size=(3, 3))
    x = cp.Variable(3, name="x")
    p = of.from_cvxpy(
        cp.Problem(
            cp.Minimize(cp.quad_form(x, Q + Q.T) + rng.normal(size=3) @ x),
            [cp.sum_squares(x) <= 2, x[0] * x[1] >= -0.2],
        )
    )
    best = p.solve("scip").objective
    outcome = run(p)
    assert outcome.termination == "local"
    assert p.objective_value(outcome.values) >= best - 1e-6 * max(1.0, abs(best))


def test_the_best_of_several_starts_is_kept() -> None:
    deep, shallow = valleys()
    p = two_valleys()
    assert p.objective_value(run(p).values) == pytest.approx(deep, abs=1e-7)
    # one start is positive and finds the shallow valley only
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nlp_backend, "STARTS", 1)
        alone = run(p)
    assert alone.termination == "local"
    assert p.objective_value(alone.values) == pytest.approx(shallow, abs=1e-7)


def test_maximise_keeps_the_largest() -> None:
    x = cp.Variable(name="x")
    goal = -cp.square(cp.square(x)) + 2 * cp.square(x) - 0.3 * x
    p = of.from_cvxpy(cp.Problem(cp.Maximize(goal), [x >= -3]))
    assert p.objective_value(run(p).values) == pytest.approx(-valleys()[0], abs=1e-7)


def test_the_warm_start_is_the_first_start(monkeypatch: pytest.MonkeyPatch) -> None:
    deep, _ = valleys()
    p = two_valleys()
    s = p.solve("uno")
    monkeypatch.setattr(nlp_backend, "STARTS", 1)
    again = run(p, warm_start=s)
    assert again.warm_start == "used"
    assert p.objective_value(again.values) == pytest.approx(deep, abs=1e-7)
    y = cp.Variable(2, name="y")
    other = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(y)), [y >= 0]))
    assert "no value of the shape of 'y'" in run(other, warm_start=s).warm_start


def test_the_seed_decides_the_starts() -> None:
    rng = np.random.default_rng(0)
    Q = rng.normal(size=(6, 6))
    x = cp.Variable(6, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.quad_form(x, Q + Q.T)), [x >= -1, x <= 1]))
    first, again = (run(p, seed=3).values["x"] for _ in range(2))
    assert np.array_equal(first, again)
    draws = [next(nlp_backend._starts(p, None, {"x": 1.0}, s))["x"] for s in (3, 3, 4)]
    assert np.array_equal(draws[0], draws[1]) and not np.array_equal(draws[0], draws[2])


def test_logarithms_and_symmetric_matrices() -> None:
    x = cp.Variable(3, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Maximize(cp.sum(cp.log(x))), [cp.sum(x) <= 1]))
    np.testing.assert_allclose(run(p).values["x"], 1 / 3, atol=1e-6)
    X = cp.Variable((2, 2), name="X", symmetric=True)
    q = of.from_cvxpy(cp.Problem(cp.Maximize(X[0, 1] + 0.5 * X[1, 0]), [cp.sum_squares(X) <= 2]))
    found = run(q).values["X"]
    np.testing.assert_allclose(found, np.ones((2, 2)) - np.eye(2), atol=1e-6)


def test_matrices_keep_their_order() -> None:
    target = np.arange(6.0).reshape(2, 3)
    X = cp.Variable((2, 3), name="X")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(X - target)), [X >= -1]))
    np.testing.assert_allclose(run(p).values["X"], target, atol=1e-6)


def test_shared_variables_never_hold_a_value() -> None:
    p = two_valleys()
    run(p)
    assert all(v.value is None for v in p.variables.values())


# --- refusals -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("write", "why"),
    [
        (lambda x: cp.abs(x[0]) >= 1, "rules of disciplined nonlinear programming"),
        (lambda x: cp.SOC(x[0], x), "in the cone SOC"),
        (lambda x: cp.diag(x) >> 0, "in the cone PSD"),
    ],
)
def test_terms_outside_the_rules_are_refused_by_name(write: Any, why: str) -> None:
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= -1, write(x)]), ["box", "odd one"])
    with pytest.raises(of.UnsupportedProblem) as failure:
        run(p)
    assert "'odd one'" in failure.value.cause and why in failure.value.cause


def test_an_objective_outside_the_rules_is_refused_by_name() -> None:
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Maximize(cp.norm1(x)), [x >= -1, x <= 2]))
    with pytest.raises(of.UnsupportedProblem, match="'objective' does not follow"):
        run(p)


def test_integers_are_refused() -> None:
    p = two_valleys().with_integrality("x")
    with pytest.raises(of.UnsupportedProblem, match="no integer variables") as failure:
        run(p)
    assert "'x'" in failure.value.evidence


@pytest.mark.parametrize("options", [{"nosuch": 1}, {"max_iterations": "many"}])
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(of.UnsupportedProblem, match="does not take these options") as failure:
        run(two_valleys(), options=options)
    assert next(iter(options)) in failure.value.evidence


def test_options_reach_the_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []
    real = nlp_backend._solve

    def spy(chain: Any, program: Any, variables: Any, options: Any, log: bool) -> Any:
        seen.append(dict(options))
        return real(chain, program, variables, options, log)

    monkeypatch.setattr(nlp_backend, "_solve", spy)
    run(two_valleys(), tolerance=1e-6, seed=5, time_limit=20.0, options={"max_iterations": 99})
    assert len(seen) == nlp_backend.STARTS
    assert seen[0]["primal_tolerance"] == pytest.approx(1e-7) and seen[0]["max_iterations"] == 99
    assert 0 < seen[-1]["time_limit"] < seen[0]["time_limit"] <= 20.0
    assert "seed" not in seen[0] and seen[0]["logger"] == nlp_backend.SILENT


def test_a_solver_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SolverProfile, "installed", property(lambda self: False))
    with pytest.raises(of.NotInstalled) as failure:
        run(two_valleys(), "ipopt")
    assert "module 'cyipopt' was not found" in failure.value.evidence
    assert "pip install cyipopt" in failure.value.remedy
    # what is wrong with the problem comes first
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [cp.abs(x) >= 1]), ["far"])
    with pytest.raises(of.UnsupportedProblem, match="'far'"):
        run(p, "ipopt")


def test_everything_up_to_the_solve_of_the_other_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its interface compiles the problem; the call is answered with a known point."""
    from cvxpy.reductions.solvers.defines import SOLVER_MAP_NLP

    seen: dict[str, Any] = {}

    def answer(data: Any, warm_start: bool, verbose: bool, solver_opts: Any) -> Any:
        seen.update(data, options=solver_opts)
        return {"status": 0, "x": np.array([0.5]), "obj_val": 0.25, "num_iters": 1}

    monkeypatch.setattr(SolverProfile, "installed", property(lambda self: True))
    monkeypatch.setattr(SOLVER_MAP_NLP["IPOPT"], "solve_via_data", answer)
    x = cp.Variable(name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.square(x)), [x >= 0.5]))
    outcome = run(p, "ipopt", tolerance=1e-6, time_limit=9.0)
    assert outcome.termination == "local" and outcome.values["x"] == 0.5
    assert seen["x0"].shape == (1,) and seen["cl"].tolist() == [0.0]
    assert seen["options"]["tol"] == pytest.approx(1e-7)
    assert 0 < seen["options"]["max_wall_time"] <= 9.0


# --- honesty --------------------------------------------------------------------------


def test_a_stationary_point_that_is_not_feasible_is_no_result() -> None:
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x[0]), [cp.sum_squares(x) <= -1]))
    outcome = run(p)
    assert outcome.termination == "infeasible stationary point"
    with pytest.raises(of.SolverFailure):  # not Infeasible: it proves nothing
        p.solve("uno")


def test_unbounded() -> None:
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x[0] * x[1]), [x[0] >= 1]))
    with pytest.raises(of.SolverFailure, match="improves without limit, which is not proved"):
        run(p)


def test_a_point_that_was_moved_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x[0] * x[1]), [cp.sum_squares(x) <= 1]), ["disk"])
    real = nlp_backend._solve

    def lying(*given: Any) -> Any:
        values, word = real(*given)
        return {name: 1.001 * v for name, v in values.items()}, word

    monkeypatch.setattr(nlp_backend, "_solve", lying)
    assert run(p).termination == "stationary, not feasible"
    with pytest.raises(of.SolverFailure, match="no result passed verification"):
        p.solve("uno")


def test_the_time_limit_ends_the_starts(monkeypatch: pytest.MonkeyPatch, later: Any) -> None:
    calls: list[int] = []
    real = nlp_backend._solve

    def slow(*given: Any) -> Any:
        calls.append(1)
        found = real(*given)
        later(600.0)
        return found

    monkeypatch.setattr(nlp_backend, "_solve", slow)
    outcome = run(two_valleys(), time_limit=1000.0)
    assert len(calls) == 2 and outcome.termination == "local"


def test_ctrl_c_ends_the_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    real = nlp_backend._solve
    calls: list[int] = []

    def pressed(*given: Any) -> Any:
        calls.append(1)
        found = real(*given)
        if len(calls) == 2:
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:  # as a solver that takes it for a failed evaluation
                return {}, "failed"
        return found

    monkeypatch.setattr(nlp_backend, "_solve", pressed)
    before = signal.getsignal(signal.SIGINT)
    outcome = run(two_valleys())
    assert len(calls) == 2 and outcome.termination == "local"  # what the first start found
    assert signal.getsignal(signal.SIGINT) is before


def test_a_function_without_a_smooth_form_is_refused_in_words() -> None:
    p = of.library.load("textbook/smallest_ball").problem()
    with pytest.raises(
        of.UnsupportedProblem, match=r"(?s)no smooth form.*quad_over_lin.*conic solver"
    ):
        p.solve("uno")
