"""One meaning of tolerance, time_limit, threads, seed and verbose; nothing is ignored."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.backends.registry import licence_state, profile, profiles
from optfair.backends.request import Request, SolverProfile

USABLE = [p.name for p in profiles().values() if not p.structure and licence_state(p).usable]
ASKED = {"time_limit": 20.0, "threads": 2, "seed": 3}


def small(solver: str = "") -> Any:
    """Return a linear program, in integers or with a matrix for a solver that takes no other."""
    x = cp.Variable(2, name="x")
    rows = [x >= 0, x[0] + 2 * x[1] >= 2, x <= 5]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x[0] + x[1]), rows), ["lo", "mix", "up"])
    classes = profile(solver).classes if solver else ("LP",)
    if "LP" in classes:
        return p
    whole = any(c.startswith("MI") for c in classes)
    p = p.with_integrality("x") if whole else p
    return p if "MILP" in classes else p.with_constraints(psd=cp.diag(x) >> 0)


def knapsack(n: int = 150, rows: int = 50) -> Any:
    rng = np.random.default_rng(1)
    x = cp.Variable(n, name="x")
    W = rng.integers(10, 100, size=(rows, n)).astype(float)
    value = rng.integers(10, 100, n).astype(float)
    limits = [W @ x <= W.sum(axis=1) / 3, x >= 0, x <= 1]
    return of.from_cvxpy(cp.Problem(cp.Maximize(value @ x), limits)).with_integrality("x")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("option", ASKED)
@pytest.mark.parametrize("solver", USABLE)
def test_an_option_is_taken_or_refused(solver: str, option: str) -> None:
    asked: dict[str, Any] = {option: ASKED[option]}
    if option in profile(solver).options:
        chosen = Request(**asked).solver_options(profile(solver))
        # the solver accepts the name and the type, and still finds the optimum
        assert chosen[profile(solver).options[option]] == pytest.approx(ASKED[option], rel=0.05)
        s = small(solver).solve(solver, tolerance=1e-5, **asked)
        assert s.objective == pytest.approx(1.0, abs=1e-4)
        assert s.options[option] == ASKED[option]
        return
    if option == "time_limit" and profile(solver).via == "cvxpy":
        # without a clock of its own it gets a process that is ended
        assert Request(**asked).apart(profile(solver)) == pytest.approx(20.0, rel=0.05)
        s = small(solver).solve(solver, tolerance=1e-5, **asked)
        assert s.objective == pytest.approx(1.0, abs=1e-4)
        return
    with pytest.raises(of.UnsupportedProblem, match=f"{solver} has no option for {option}"):
        small(solver).solve(solver, **asked)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("solver", USABLE)
def test_an_unknown_option_of_the_solvers_own_is_an_error(solver: str) -> None:
    with pytest.raises(of.UnsupportedProblem) as failure:
        small(solver).solve(solver, options={"no_such_option": 1})
    assert "option" in failure.value.cause
    assert "no_such_option" in str(failure.value)


@pytest.mark.parametrize("solver", USABLE)
def test_every_solver_is_asked_for_a_tolerance(solver: str) -> None:
    facts = profile(solver)
    names = set(facts.tolerance) - {"share", "smallest"}
    assert names
    loose, tight = (
        Request(tolerance=t).solver_options(facts)[facts.tolerance[name]]
        for t in (1e-4, 1e-6)
        for name in sorted(names)[:1]
    )
    assert loose > tight > 0


@pytest.mark.sampled(2)
@pytest.mark.parametrize("solver", USABLE)
def test_silent_means_silent(solver: str, capfd: pytest.CaptureFixture[str]) -> None:
    small(solver).solve(solver, tolerance=1e-5)
    x = cp.Variable(name="x")
    slack: Any = of.from_cvxpy(cp.Problem(cp.Minimize(0 * x), [x <= 1, x >= -1]))
    classes = profile(solver).classes
    if "LP" not in classes:
        matrix = cp.bmat([[2.0, x], [x, 2.0]]) >> 0
        whole = any(c.startswith("MI") for c in classes)
        slack = slack.with_integrality("x") if whole else slack
        slack = slack if "MILP" in classes else slack.with_constraints(m=matrix)
    slack.solve(solver, tolerance=1e-5)
    out = capfd.readouterr()
    assert out.out == "" and out.err == ""


def test_options_that_a_solver_passes_over_are_caught_by_us() -> None:
    facts = profile("daqp")
    with pytest.raises(of.UnsupportedProblem, match="daqp has no option 'colour'"):
        Request(options={"colour": "red"}).solver_options(facts)
    assert Request(options={"iter_limit": 5}).solver_options(facts)["iter_limit"] == 5


def test_a_warm_start_of_a_cone_program_saves_iterations() -> None:
    rng = np.random.default_rng(0)
    x = cp.Variable(60, name="x")
    A, b = rng.normal(size=(80, 60)), rng.normal(size=80)
    goal = cp.Minimize(cp.sum_squares(A @ x - b) + cp.norm(x, 1))
    p = of.from_cvxpy(cp.Problem(goal, [cp.sum(x) == 1, x <= 0.3]), ["one", "cap"])
    few = {"tolerance": 1e-5, "options": {"max_iters": 30}}
    with pytest.raises(of.SolverFailure):
        p.solve("scs", **few)
    first = p.solve("scs", tolerance=1e-6)
    s = p.solve("scs", warm_start=first, **few)
    assert s.options["warm_start"] == "used" and s.is_optimal(1e-5)
    other = p.without("cap")
    s = other.solve("scs", tolerance=1e-4, warm_start=first)
    assert s.options["warm_start"] == "not used: the earlier problem compiles to another shape"


def test_a_warm_start_of_an_integer_program_is_its_first_incumbent() -> None:
    p = knapsack(60, 20)

    def stopped(count: int, **more: Any) -> Any:
        """Stop after so many points better than the one at hand, long before the time limit."""
        options = {"mip_max_improving_sols": count}
        return p.solve("highs", time_limit=600.0, options=options, **more)

    cold = stopped(1)
    first = next(s for s in map(stopped, range(2, 30)) if s.objective > cold.objective)
    s = stopped(1, warm_start=first)
    assert s.options["warm_start"] == "used"
    assert s.objective >= first.objective > cold.objective
    relaxed = small()
    again = relaxed.solve("highs", warm_start=relaxed.solve())
    assert again.options["warm_start"].startswith("not used: highs starts integer problems only")


def test_a_warm_start_from_another_problem_is_not_used() -> None:
    s = knapsack(20, 5).solve("highs", warm_start=small().solve())
    assert s.options["warm_start"] == "not used: it has no value of the shape of 'x'"


def test_a_warm_start_reaches_the_commercial_solver_too() -> None:
    p = knapsack(60, 20)
    best = p.solve("gurobi")
    one = {"time_limit": 30.0, "options": {"SolutionLimit": 1}}
    cold, warm = p.solve("gurobi", **one), p.solve("gurobi", warm_start=best, **one)
    assert cold.objective < warm.objective == pytest.approx(best.objective)
    assert cold.status.termination == "solver_limit" and cold.bound >= best.objective - 1e-6


def test_the_process_of_a_solver_is_ended_by_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    from optfair.backends import conic_backend

    killed: list[bool] = []

    class Interrupted:
        returncode = -9

        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        def communicate(self) -> tuple[str, str]:
            if not killed:
                raise KeyboardInterrupt
            return "", ""

        def kill(self) -> None:
            killed.append(True)

    monkeypatch.setattr(conic_backend.subprocess, "Popen", Interrupted)
    with pytest.raises(KeyboardInterrupt, match="interrupted"):
        small().solve("glop")
    assert killed


def test_a_process_that_dies_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optfair.backends.conic_backend.WORKER", "optfair.no_such_worker")
    with pytest.raises(of.SolverFailure, match="glop failed") as failure:
        small().solve("glop")
    assert "no_such_worker" in failure.value.evidence


def test_a_local_result_needs_the_name_of_its_solver() -> None:
    from optfair.backends.registry import choose

    x = cp.Variable(2, name="x")
    rows = [cp.sum_squares(x) >= 1, cp.abs(x) <= 2]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), rows), ["out", "box"])
    assert all(profile(c.name).nonconvex == "global" for c in choose(p, None))
    s = p.solve("uno")
    assert s.status.termination == "local" and "local" in repr(s).splitlines()[0]
    assert not s.is_optimal(1.0) and not s.certificate.verify()


def test_a_local_point_that_is_not_feasible_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    from optfair.backends import nlp_backend
    from optfair.backends.request import Outcome

    def lying(problem: Any, asked: SolverProfile, request: Request) -> Outcome:
        return Outcome("local", {"x": np.array([0.1, 0.1])}, {}, None, {})

    monkeypatch.setattr(nlp_backend, "run", lying)
    with pytest.raises(of.SolverFailure, match="no result passed") as failure:
        small().solve("uno")
    assert "'mix' is violated" in failure.value.evidence


def test_a_ray_is_handed_on_when_it_verifies() -> None:
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x[0] - 2 * x[1]), [x >= 1]), ["lo"])
    with pytest.raises(of.Unbounded) as found:
        p.solve("highs")
    ray = found.value.ray["x"]
    assert ray.min() >= 0 and ray[0] - 2 * ray[1] < 0


def test_a_ray_that_leaves_the_constraints_is_dropped() -> None:
    from optfair.compile.form import compile_problem
    from optfair.proofs.points import recession_faults

    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x[0] - 2 * x[1]), [x >= 1]), ["lo"])
    form = compile_problem(p, "HIGHS").form
    assert not recession_faults(form, np.array([0.0, 1.0]))
    assert recession_faults(form, np.array([-1.0, 1.0]))  # leaves x >= 1
    assert recession_faults(form, np.array([2.0, 0.5]))  # the objective rises
    assert recession_faults(form, np.array([2.0, 1.0]))  # it stays as it is
    assert recession_faults(form, np.array([np.nan, 1.0])) and recession_faults(form, np.ones(3))


def whole(*, cost: float = 2.0, least: Any = 0) -> Any:
    z = cp.Variable(2, name="z")
    rows = [cp.sum(z) <= 7.5, z <= 6] + ([] if least is None else [z >= least])
    p = of.from_cvxpy(cp.Problem(cp.Maximize(cost * z[0] + z[1]), rows))
    return p.with_integrality("z")


def test_integer_programs_in_whole_numbers() -> None:
    s = whole().solve("cp-sat", seed=3, threads=2, time_limit=20.0)
    assert not s.residuals().above(1e-9) and s.objective == s.bound == 13.0
    assert str(s.grade) == "reported by cp-sat" and not s.is_optimal(1e-9)
    assert s.proof is not None and s.proof.source == "branch and bound of cp-sat, as reported"
    # its own limit of 1e7 would cut this optimum off
    z = cp.Variable(name="z")
    far = of.from_cvxpy(cp.Problem(cp.Maximize(z), [z <= 3e8 + 0.5, z >= 0]))
    assert far.with_integrality("z").solve("cp-sat").objective == 3e8


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"least": None}, "'z' has entries without lower and upper bounds"),
        ({"cost": 0.5}, "the data hold -0.5"),
    ],
)
def test_what_whole_numbers_cannot_state_is_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(of.UnsupportedProblem, match="cp-sat does not take this MILP") as refusal:
        whole(**change).solve("cp-sat")
    assert why in refusal.value.evidence


def test_a_continuous_variable_is_refused_by_a_solver_of_whole_numbers() -> None:
    y = cp.Variable(name="y")
    z = cp.Variable(2, name="z")
    rows = [cp.sum(z) + y <= 7.5, z <= 6, z >= 0, y >= 0]
    p = of.from_cvxpy(cp.Problem(cp.Maximize(z[0] + y), rows)).with_integrality("z")
    with pytest.raises(of.UnsupportedProblem) as refusal:
        p.solve("cp-sat")
    assert "'y' is continuous" in refusal.value.evidence


def test_names_of_options_are_text() -> None:
    x = cp.Variable(name="x")
    with pytest.raises(of.DataError, match="options has the name 1"):
        of.from_cvxpy(cp.Problem(cp.Minimize(x), [x >= 1])).solve(options={1: 1})
