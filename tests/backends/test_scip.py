"""Global optimisation of nonconvex quadratic programs, against optima known otherwise."""

from __future__ import annotations

import importlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optfair as of
from optfair.backends import scip_backend
from optfair.backends.global_backend import quadratic_form
from optfair.backends.registry import profile
from optfair.backends.request import Outcome, Request
from optfair.backends.scip_backend import export_scip, separated
from optfair.methods.textbook.geometry import TrustRegion

pyscipopt = importlib.import_module("pyscipopt")


def run(problem: Any, **asked: Any) -> Outcome:
    return scip_backend.run(problem, profile("scip"), Request(**asked))


def symmetric(rng: np.random.Generator, n: int) -> Any:
    Q = rng.normal(size=(n, n))
    return Q + Q.T


def checked(problem: Any, outcome: Outcome, optimum: float, tolerance: float = 1e-6) -> None:
    """The value is the optimum, the point holds, and the bound is on the right side."""
    assert outcome.termination == "optimal"
    value = problem.objective_value(outcome.values)
    unit = max(1.0, abs(optimum))
    assert abs(value - optimum) <= tolerance * unit
    for term in problem.constraints.values():
        assert term.relative_violation(outcome.values) <= 1e-7
    bound = outcome.proof.check(outcome.values, {}).bound  # type: ignore[union-attr]
    sign = 1.0 if problem.sense == "minimize" else -1.0
    # a point may cheat by the feasibility tolerance, and so may the bound
    assert sign * (value - bound) >= -1e-7 * unit
    assert abs(value - bound) <= 1e-6 * unit


# --- optima known from theory ---------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_trust_region_against_its_hidden_convex_form(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p = TrustRegion(H=symmetric(rng, 4), g=rng.normal(size=4), radius=1.5)
    exact = p.convex_form().solve(tolerance=1e-9).objective
    checked(p, run(p), exact)
    s = p.solve("scip")
    assert s.status.termination == "optimal" and not s.residuals().above(1e-7)
    assert str(s.grade) == "reported by scip" and not s.is_optimal(1e-7)
    assert s.proof is not None and s.proof.source == "branch and bound of scip, as reported"
    assert s.gap <= 1e-7


def test_the_sphere_gives_the_smallest_eigenvalue() -> None:
    Q = symmetric(np.random.default_rng(5), 4)
    x = cp.Variable(4, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.quad_form(x, Q)), [cp.sum_squares(x) == 1]))
    checked(p, run(p), float(np.linalg.eigvalsh(Q)[0]))


def test_the_annulus_has_a_nearest_point_on_its_inner_circle() -> None:
    # from (0.3, 0.4), at distance 1/2 of the center, the ring 1 <= |x| <= 2 is 1/2 away
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(
        cp.Problem(
            cp.Minimize(cp.sum_squares(x - np.array([0.3, 0.4]))),
            [cp.sum_squares(x) >= 1, cp.sum_squares(x) <= 4],
        ),
        ["hole", "disk"],
    )
    outcome = run(p)
    checked(p, outcome, 0.25)
    np.testing.assert_allclose(outcome.values["x"], [0.6, 0.8], atol=1e-4)


def test_bilinear_pooling() -> None:
    """Haverly's first pooling problem: the best profit is 400."""
    a, b, c, x, y = (cp.Variable(name=n) for n in ("a", "b", "c", "x", "y"))
    to_x, to_y, quality = cp.Variable(name="to_x"), cp.Variable(name="to_y"), cp.Variable(name="q")
    direct_x, direct_y = cp.Variable(name="direct_x"), cp.Variable(name="direct_y")
    flows = [a, b, c, x, y, to_x, to_y, direct_x, direct_y]
    p = of.from_cvxpy(
        cp.Problem(
            cp.Maximize(9 * x + 15 * y - 6 * a - 16 * b - 10 * c),
            [
                a + b == to_x + to_y,
                c == direct_x + direct_y,
                x == to_x + direct_x,
                y == to_y + direct_y,
                3 * a + b == quality * (to_x + to_y),
                quality * to_x + 2 * direct_x <= 2.5 * x,
                quality * to_y + 2 * direct_y <= 1.5 * y,
                x <= 100,
                y <= 200,
                quality >= 1,
                quality <= 3,
                *(f >= 0 for f in flows),
            ],
        )
    )
    checked(p, run(p), 400.0)


# --- brute force ----------------------------------------------------------------------


def test_max_cut_as_products_of_signs() -> None:
    rng = np.random.default_rng(2)
    W = np.triu(rng.integers(0, 5, size=(7, 7)), 1).astype(float)
    W = W + W.T
    x = cp.Variable(7, name="side")
    cut = (W.sum() - cp.quad_form(x, W)) / 4
    p = of.from_cvxpy(cp.Problem(cp.Maximize(cut), [cp.square(x) == 1]), ["sign"])
    best = max(
        (W.sum() - np.array(s) @ W @ np.array(s)) / 4 for s in itertools.product((-1, 1), repeat=7)
    )
    outcome = run(p)
    checked(p, outcome, best)
    np.testing.assert_allclose(np.abs(outcome.values["side"]), 1.0, atol=1e-6)


@pytest.mark.parametrize("sense", [cp.Minimize, cp.Maximize])
def test_an_indefinite_integer_quadratic(sense: Any) -> None:
    rng = np.random.default_rng(11)
    Q, c = symmetric(rng, 3), rng.normal(size=3)
    k = cp.Variable(3, name="k", integer=True)
    p = of.from_cvxpy(
        cp.Problem(
            sense(cp.quad_form(k, Q) + c @ k + 7.5),
            [k >= -2, k <= 2, cp.sum_squares(k) <= 6, k[0] * k[1] <= 1],
        )
    )
    grid = (np.array(v, dtype=float) for v in itertools.product(range(-2, 3), repeat=3))
    values = [v @ Q @ v + c @ v + 7.5 for v in grid if v @ v <= 6 and v[0] * v[1] <= 1]
    outcome = run(p)
    checked(p, outcome, min(values) if sense is cp.Minimize else max(values))
    assert np.array_equal(outcome.values["k"], np.round(outcome.values["k"]))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(20))
def test_random_small_instances_against_a_search_over_the_arc(seed: int) -> None:
    """Two variables: the optimum lies at a stationary point, on an edge or in the interior."""
    rng = np.random.default_rng(seed)
    Q, c, d = symmetric(rng, 2), rng.normal(size=2), rng.normal(size=2)
    limit = rng.uniform(0.2, 1.5)
    x = cp.Variable(2, name="x")
    sense = cp.Minimize if seed % 2 else cp.Maximize
    shape = x[0] * x[1] if seed % 3 else cp.sum_squares(x) - 2 * cp.square(x[1])
    p = of.from_cvxpy(
        cp.Problem(sense(cp.quad_form(x, Q) + c @ x), [cp.sum_squares(x - d) <= 1, shape <= limit])
    )
    outcome = run(p, tolerance=1e-6)
    value = p.objective_value(outcome.values)
    # a fine grid of the disk can only miss the optimum by its width
    radius, angle = np.meshgrid(np.linspace(0, 1, 401), np.linspace(0, 2 * np.pi, 1601))
    u, v = d[0] + radius * np.cos(angle), d[1] + radius * np.sin(angle)
    inside = (u * v if seed % 3 else u**2 - v**2) <= limit
    f = Q[0, 0] * u**2 + 2 * Q[0, 1] * u * v + Q[1, 1] * v**2 + c[0] * u + c[1] * v
    best = f[inside].min() if seed % 2 else f[inside].max()
    slope = np.abs(Q).sum() * 2 * (1 + np.linalg.norm(d)) + np.linalg.norm(c)
    sign = 1.0 if seed % 2 else -1.0
    assert -1e-5 <= sign * (best - value) + 1e-5 <= 0.01 * slope
    checked(p, outcome, value)


# --- forms ----------------------------------------------------------------------------


def test_second_order_cones_are_written_as_quadratics_exactly() -> None:
    x, t = cp.Variable(2, name="x"), cp.Variable(name="t")
    p = of.from_cvxpy(
        cp.Problem(
            cp.Maximize(cp.sum(x) - 0.1 * t),
            [cp.norm(x) <= t, cp.SOC(1.0, x), cp.norm1(x - 1) <= 1, x[0] * x[1] <= 0.25],
        )
    )
    # on the circle x y = 1/4: x + y = sqrt(1 + 1/2)
    checked(p, run(p), np.sqrt(1.5) - 0.1)


def test_a_convex_objective_that_is_not_quadratic() -> None:
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.norm(x)), [x[0] * x[1] >= 1, x >= 0]))
    outcome = run(p)
    checked(p, outcome, np.sqrt(2.0))
    assert set(outcome.values) == {"x"}


def test_symmetric_matrices_stay_symmetric() -> None:
    X = cp.Variable((2, 2), name="X", symmetric=True)
    p = of.from_cvxpy(
        cp.Problem(cp.Maximize(X[0, 1] + 0.5 * X[1, 0]), [cp.sum_squares(X) <= 2, X[0, 0] >= 1])
    )
    outcome = run(p)
    checked(p, outcome, 1.5 * np.sqrt(0.5))
    assert outcome.values["X"][0, 1] == pytest.approx(outcome.values["X"][1, 0], abs=1e-9)


@pytest.mark.parametrize(
    ("write", "why"),
    [
        (lambda x: x[0] * x[1] * x[0] <= 1, "multiplies what is quadratic already"),
        (lambda x: cp.exp(x) <= 1, "ExpCone"),
        (lambda x: cp.norm(x) >= 1, "not of degree 2"),
        (lambda x: cp.sum_squares(x) * x[0] <= 1, "multiplies what is quadratic already"),
    ],
)
def test_what_is_not_quadratic_is_refused_by_name(write: Any, why: str) -> None:
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= -1, write(x)]), ["box", "odd one"])
    with pytest.raises(of.UnsupportedProblem) as failure:
        run(p)
    assert "'odd one'" in failure.value.cause and why in failure.value.evidence
    assert "remove 'odd one'" in failure.value.remedy


# --- honesty --------------------------------------------------------------------------


def disk() -> Any:
    x = cp.Variable(2, name="x")
    return of.from_cvxpy(
        cp.Problem(cp.Minimize(x[0] * x[1]), [cp.sum_squares(x) <= 2, x[0] >= 0]), ["disk", "half"]
    )


@pytest.mark.parametrize("entry", [0, 1])
@pytest.mark.parametrize("shift", [1e-4, -1e-4])
def test_a_tampered_solution_fails(entry: int, shift: float) -> None:
    from dataclasses import replace

    s = disk().solve("scip")
    assert s.objective == pytest.approx(-1.0, abs=1e-6) and not s.residuals().above(1e-7)
    assert "reported by scip" in str(s.certificate.verify())
    moved = s["x"].copy()
    moved[entry] += shift
    assert replace(s, values={"x": moved}).residuals().above(1e-7)
    assert replace(s, bound=s.bound - 1e-4).residuals().above(1e-7)
    assert replace(s, objective=s.objective - 1e-4).residuals().above(1e-7)


def test_infeasible_is_its_word_and_says_so() -> None:
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(
        cp.Problem(cp.Minimize(x[0]), [cp.sum_squares(x) <= 1, x[0] * x[1] >= 1]), ["disk", "far"]
    )
    with pytest.raises(of.SolverFailure, match="scip says that no point") as failure:
        run(p)
    assert (failure.value.claim, failure.value.claimed_by) == ("infeasible", "scip")
    assert "no certificate" in failure.value.evidence and "'far'" in failure.value.remedy


@pytest.mark.parametrize("linear", [True, False])
def test_unbounded(linear: bool) -> None:
    x = cp.Variable(2, name="x")
    goal = x[0] if linear else x[0] * x[1]
    # a linear program has a ray; nothing proves that a product falls for ever
    error = of.Unbounded if linear else of.SolverFailure
    with pytest.raises(error, match="improves without limit") as failure:
        run(of.from_cvxpy(cp.Problem(cp.Minimize(goal), [x[1] >= 1])))
    if linear:
        assert failure.value.certificate.verify()
    else:
        assert failure.value.claim == "unbounded"


def test_unbounded_and_infeasible_are_told_apart() -> None:
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x[0]), [x[1] >= 1, x[1] <= 0]))
    with pytest.raises(of.SolverFailure) as failure:
        run(p)
    assert failure.value.claim == "infeasible"
    with pytest.raises(of.Infeasible):  # who leaves a certificate proves it
        p.solve()


# --- options --------------------------------------------------------------------------


def hard(n: int = 45) -> Any:
    Q = symmetric(np.random.default_rng(0), n)
    x = cp.Variable(n, name="x")
    return of.from_cvxpy(cp.Problem(cp.Minimize(cp.quad_form(x, Q)), [x >= 0, x <= 1]))


@pytest.mark.slow
def test_the_time_limit_leaves_an_incumbent_with_its_gap() -> None:
    p = hard()
    for limit in (2.0, 4.0, 8.0, 16.0, 32.0, 64.0):
        begin = time.perf_counter()
        try:
            s = p.solve("scip", time_limit=limit)
        except of.SolverFailure:  # a busy machine takes longer to its first point and bound
            continue
        finally:
            assert time.perf_counter() - begin < limit + 60.0  # the search takes hours
        assert s.status.termination == "time_limit" and s.status.primal == "feasible"
        assert not s.is_optimal(1e-3) and s.bound < s.objective and s.gap > 0.01
        assert s.options["time_limit"] == limit
        if np.isfinite(s.bound):
            break
    assert np.isfinite(s.bound) and s.gap < np.inf


def test_ctrl_c_leaves_the_incumbent() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_scip import hard, pyscipopt, run\n"
        "from optfair.backends.scip_backend import ScipModel\n"
        "class Tell(pyscipopt.Eventhdlr):\n"
        "    def eventinit(self):\n"
        "        self.model.catchEvent(pyscipopt.SCIP_EVENTTYPE.BESTSOLFOUND, self)\n"
        "    def eventexec(self, event):\n"
        "        print('incumbent', flush=True)\n"
        "solve = ScipModel.solve\n"
        "def told(self, *given, **options):\n"
        "    self.model.includeEventhdlr(Tell(), 'tell', 'says that there is an incumbent')\n"
        "    return solve(self, *given, **options)\n"
        "ScipModel.solve = told\n"
        "o = run(hard())\n"
        "print(o.termination, sorted(o.values), o.proof is None or o.proof.bound < 0)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(Path(__file__).parent)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == "incumbent\n"
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=300)  # the search takes hours
    assert out.splitlines()[-1] == "interrupted ['x'] True"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"limits/gapp": 1.0}, "no option 'limits/gapp'"),
        ({"nosuch": 1}, "no option 'nosuch'"),
        ({"limits/gap": "small"}, "is not a number"),
        ({"limits/nodes": 1.5}, "is not a whole number"),
        ({"misc/catchctrlc": 2}, "is not True or False"),
        ({"limits/gap": -1.0}, "out of range"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(of.UnsupportedProblem, match="does not take these options") as failure:
        run(disk(), options=options)
    assert why in failure.value.evidence


def test_options_reach_the_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    from optfair.backends.scip_backend import ScipModel

    seen: dict[str, Any] = {}
    real = ScipModel.solve

    def spy(self: ScipModel, options: Any, **more: Any) -> Any:
        raw = real(self, options, **more)
        seen.update({name: self.model.getParam(name) for name in options})
        return raw

    monkeypatch.setattr(ScipModel, "solve", spy)
    run(disk(), seed=7, tolerance=1e-6, time_limit=30.0, options={"limits/nodes": 500})
    assert seen["randomization/randomseedshift"] == 7 and seen["limits/nodes"] == 500
    assert seen["numerics/feastol"] == pytest.approx(1e-7)
    assert 0 < seen["limits/time"] <= 30.0
    # never below what the feasibility tolerance resolves
    assert seen["limits/gap"] == seen["limits/absgap"] == pytest.approx(3e-7)
    run(disk(), tolerance=1e-9)
    assert seen["limits/gap"] == pytest.approx(3 * seen["numerics/feastol"])
    run(disk(), options={"limits/gap": 0.5})
    assert seen["limits/gap"] == 0.5


SETS: dict[str, Callable[[Any, float], list[Any]]] = {
    "ball": lambda x, u: [cp.sum_squares(x) <= u**2],
    "box": lambda x, u: [x >= -u, x <= u],
    "simplex": lambda x, u: [x >= 0.0, cp.sum(x) == u],
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("unit", [1e-6, 1e-3, 1e-2, 1e3, 1e6])
def test_an_indefinite_quadratic_is_minimised_in_any_units(
    name: str, unit: float, capfd: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(7)
    Q, q = rng.normal(size=(3, 3)), rng.normal(size=3)

    def least(u: float) -> Any:
        x = cp.Variable(3, name="x")
        cost = cp.quad_form(x, Q + Q.T) / u + q @ x
        return of.from_cvxpy(cp.Problem(cp.Minimize(cost), SETS[name](x, u))).solve("scip")

    assert least(unit).objective == pytest.approx(unit * least(1.0).objective, rel=1e-6)
    assert capfd.readouterr() == ("", "")  # nothing is written unless it is asked for


def test_a_gap_that_was_asked_for_is_not_called_optimal() -> None:
    with pytest.raises(of.SolverFailure, match="no result passed verification"):
        hard(12).solve("scip", options={"limits/gap": 0.5, "limits/absgap": 0.5})


def test_a_solver_that_breaks_off_is_a_failure_with_its_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Broken(pyscipopt.Model):  # type: ignore[misc]
        def optimizeNogil(self) -> None:
            raise Exception("SCIP: error in LP solver!")

    monkeypatch.setattr(pyscipopt, "Model", Broken)
    with pytest.raises(of.SolverFailure, match="broke off") as failure:
        run(disk())
    assert failure.value.evidence == "error in LP solver!"


def test_the_same_seed_gives_the_same_point() -> None:
    p = hard(10)
    first, again = (run(p, seed=3).values["x"] for _ in range(2))
    assert np.array_equal(first, again)


def test_warm_start() -> None:
    p = hard(10)
    s = p.solve("scip")
    assert p.solve("scip", warm_start=s).options["warm_start"] == "used"
    off = p.with_constraints(cap=cp.sum(p["x"]) <= 0.5)
    assert "not used: it violates 'cap' by" in off.solve("scip", warm_start=s).options["warm_start"]
    other = disk().solve("scip")
    assert "no value of the shape of 'x'" in run(p, warm_start=other).warm_start


def test_shared_variables_never_hold_a_value() -> None:
    p = disk()
    run(p)
    assert all(v.value is None for v in p.variables.values())


# --- files ----------------------------------------------------------------------------


def mixed() -> Any:
    rng = np.random.default_rng(0)
    x, k = cp.Variable((2, 2), name="my x"), cp.Variable(2, name="k", integer=True)
    goal = cp.quad_form(cp.vec(x, order="F"), symmetric(rng, 4)) + k[0] + 2.5
    return of.from_cvxpy(
        cp.Problem(
            cp.Maximize(goal),
            [
                cp.norm(k) <= 2.5,
                cp.sum_squares(x) <= 1,
                k <= 3,
                k >= -1,
                x[0, 0] * k[1] >= 0.5,
            ],
        ),
        ["size", "the ball", "up", "low", "product"],
    )


@cache
def optimum_of_mixed() -> float:
    return float(mixed().solve("scip").objective)


@pytest.mark.parametrize("suffix", [".cip", ".lp", ".mps"])
def test_written_models_have_the_same_optimum_and_the_names(suffix: str, tmp_path: Path) -> None:
    target = export_scip(mixed(), tmp_path / f"model{suffix}")
    again = pyscipopt.Model()
    again.hideOutput()
    again.readProblem(str(target))
    again.optimize()
    assert again.getObjVal() == pytest.approx(optimum_of_mixed(), abs=1e-4)
    names = {v.name for v in again.getVars(transformed=False)}
    expected = {f"my_x[{i},{j}]" for i in range(2) for j in range(2)} | {"k[0]", "k[1]"}
    if suffix == ".lp":
        expected = {n.replace("[", "(").replace("]", ")") for n in expected}
    assert expected <= names
    if suffix != ".cip":
        text = target.read_text()
        assert "the_ball" in text and "product" in text


def test_no_entry_of_a_quadratic_part_is_repeated(tmp_path: Path) -> None:
    text = export_scip(disk(), tmp_path / "disk.mps").read_text()
    rows = [line.split() for line in text.split("QCMATRIX disk\n")[1].splitlines()]
    squares = [r for r in rows if len(r) == 3 and r[0] == r[1]]
    assert [(r[0], float(r[2])) for r in squares] == [("x[0]", 1.0), ("x[1]", 1.0)]


def test_export_refuses_what_it_cannot_write(tmp_path: Path) -> None:
    with pytest.raises(of.UnsupportedProblem, match="not a format") as failure:
        export_scip(disk(), tmp_path / "disk.nl")
    assert ".cip, .lp, .mps" in failure.value.evidence
    x = cp.Variable(name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x), [cp.exp(x) <= 1]), ["grow"])
    with pytest.raises(of.UnsupportedProblem, match="'grow' is not quadratic"):
        export_scip(p, tmp_path / "grow.cip")


def test_names_stay_unique(tmp_path: Path) -> None:
    top, same = cp.Variable(name="objective"), cp.Variable(name="objective_2")
    p = of.from_cvxpy(
        cp.Problem(cp.Minimize(top * same), [top >= 1, same >= 1, top + same <= 9]),
        ["objective", "Obj", "sum"],
    )
    target = export_scip(p, tmp_path / "model.mps")
    again = pyscipopt.Model()
    again.hideOutput()
    again.readProblem(str(target))
    again.optimize()
    assert again.getObjVal() == pytest.approx(1.0, abs=1e-5)


def dense(n: int = 12) -> Any:
    rng = np.random.default_rng(4)
    A, b = rng.normal(size=(n, n)), rng.normal(size=n)
    k = cp.Variable(n, name="k", integer=True)
    goal = cp.sum_squares(A @ k - 3 * b)
    return of.from_cvxpy(cp.Problem(cp.Minimize(goal), [k >= -1, k <= 1])), A, b


def test_sums_of_squares_are_separated_and_stay_the_same_function() -> None:
    rng = np.random.default_rng(8)
    A, P = rng.normal(size=(4, 3)), rng.normal(size=(3, 3))
    P = P @ P.T + np.eye(3)
    x = cp.Variable(3, name="x")
    X = cp.Variable((2, 3), name="X")
    p = of.from_cvxpy(
        cp.Problem(
            cp.Minimize(cp.sum_squares(A @ x - 1) + 2 * cp.quad_form(x - 1, P) + x[0] * x[1]),
            [cp.sum_squares(X @ P, axis=0) >= 1, cp.sum_squares(X) <= 9, cp.square(x) <= 4],
        ),
        ["columns", "ball", "box"],
    )
    forms = quadratic_form(p)
    assert forms.size > 9
    point = {"x": rng.normal(size=3), "X": rng.normal(size=(2, 3))}
    x0, X0 = point["x"], point["X"]
    full = dict(point)
    # the added variables by the equalities that define them, in order
    factor = np.linalg.cholesky(P)
    added = [n for n in forms.columns if n not in point]
    full |= dict(zip(added, [A @ x0 - 1, factor.T @ (x0 - 1), X0 @ P], strict=True))
    v = forms.vector(full)
    assert forms.total.value(v)[0] == pytest.approx(p.objective_value(point), rel=1e-12)
    terms = {t.name: t for t in forms.constraints}
    for name in ("objective squares 0", "objective squares 1", "columns squares 0"):
        np.testing.assert_allclose(terms[name].value(v), 0.0, atol=1e-12)
    np.testing.assert_allclose(terms["columns"].value(v), 1 - ((X0 @ P) ** 2).sum(axis=0))
    assert terms["ball"].map.Q.nnz == 6 and terms["box"].size == 3


def test_a_dense_integer_least_squares_problem() -> None:
    p, A, b = dense(8)
    grid = np.array(list(itertools.product((-1, 0, 1), repeat=8)), dtype=float)
    best = float(((grid @ A.T - 3 * b) ** 2).sum(axis=1).min())
    checked(p, run(p, time_limit=30.0), best)


def test_a_warm_start_with_added_variables_is_completed() -> None:
    from optfair.backends.scip_backend import ScipModel

    p, _, _ = dense(12)
    s = p.solve("scip")
    assert p.solve("scip", warm_start=s).options["warm_start"] == "used"
    forms = quadratic_form(p)
    added = {n: np.full(d, np.nan) for n, d in forms.shapes.items() if n != "k"}
    model = ScipModel(forms)
    model.start_from(forms.vector({**s.values, **added}))
    raw = model.solve({"limits/nodes": 1, "limits/solutions": 1}, beyond=1e15, log=False)
    assert raw.x is not None
    assert forms.total.value(raw.x)[0] == pytest.approx(s.objective, rel=1e-6)


def test_columns_of_the_problem_come_first() -> None:
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.norm1(x)), [x[0] * x[1] >= 1, x >= 0]))
    forms = quadratic_form(p)
    assert forms.columns["x"] == slice(0, 2) and forms.size > 2


def test_every_number_of_a_cip_file_is_written_to_its_last_digit(tmp_path: Path) -> None:
    x, k = cp.Variable(2, name="a <b>"), cp.Variable(name="k", integer=True)
    rows = [
        (0.1 + 0.2) * x[0] + 1e-10 * x[1] - k / 3 <= 1 / 7,
        x[0] * x[1] / 3 <= 1e-12,
        k >= -3.0000000000000004,
        x[1] == 1e-300,
        x <= 2.0**53 - 1.0,
    ]
    goal = cp.Minimize(x[0] ** 2 / 3 + k + 1 / 11)
    p = of.from_cvxpy(cp.Problem(goal, rows), ["sum", "product", "low", "tiny", "high"])
    text = export_scip(p, tmp_path / "p.cip").read_text()
    wanted = {
        "+0.3333333333333333*<a__b_[0]>*<a__b_[0]>-<objective> <= -0.09090909090909091;",
        "[linear] <sum>: +0.30000000000000004<a__b_[0]> +1e-10<a__b_[1]> -0.3333333333333333<k>"
        " <= 0.14285714285714285;",
        "[nonlinear] <product>: +0.3333333333333333*<a__b_[0]>*<a__b_[1]> <= 1e-12;",
        "[linear] <low>: -1.0<k> <= 3.0000000000000004;",
        "[linear] <tiny>: +1.0<a__b_[1]> == 1e-300;",
        "[linear] <high[1]>: +1.0<a__b_[1]> <= 9007199254740991.0;",
    }
    assert [w for w in wanted if w not in text] == []
    with pytest.raises(of.UnsupportedProblem, match=r"1e\+20"):
        export_scip(p.with_constraints(far=p["k"] >= -1e20), tmp_path / "far.cip")


@pytest.mark.parametrize("names", [("ball", "ball 1"), ("ball", "ball side 0"), ("ball 1", "ball")])
def test_no_part_of_a_cone_is_lost_to_a_constraint_of_its_name(names: tuple[str, str]) -> None:
    y = cp.Variable(2, name="y")
    rows = [cp.norm(y) <= 2, y[0] <= 0.5] if names[0] == "ball" else [y[0] <= 0.5, cp.norm(y) <= 2]
    goal = cp.Maximize(cp.square(y[0]) - y[1] * y[0])
    s = of.from_cvxpy(cp.Problem(goal, rows), list(names)).solve("scip")
    assert s.objective == pytest.approx(2.0 + 2.0 * 2.0**0.5, abs=1e-5)


def test_tangents_at_the_end_of_the_floats_are_no_raw_error() -> None:
    k, x = cp.Variable(integer=True, name="k"), cp.Variable(name="x")
    with pytest.raises(of.OptfairError):
        of.from_cvxpy(cp.Problem(cp.Maximize(k + x), [cp.exp(x) <= 0, k <= 5, k >= 0])).solve()


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
def test_factors_of_turned_cones_are_known_not_to_be_negative(unit: float) -> None:
    # z^2 <= x y by x + y and x - y: no bound without x >= 0 and y >= 0
    z = cp.Variable(2, integer=True, name="z")
    goal = cp.pnorm(unit * z - [1.4 * unit, 2.6 * unit], 3)
    s = of.from_cvxpy(cp.Problem(cp.Minimize(goal), [z <= 5, z >= -5])).solve(time_limit=30)
    assert s["z"].tolist() == [1.0, 3.0] and s.status.termination == "optimal"
    assert s.objective == pytest.approx(0.128 ** (1 / 3) * unit, rel=1e-9)
    assert s.bound == pytest.approx(s.objective, rel=1e-6)


@pytest.mark.parametrize("axis", [0, 1])
def test_sides_of_cones_along_any_axis(axis: int) -> None:
    x = cp.Variable(2, nonneg=True, name="x")
    turned = cp.vstack([x[:2] - 1.0, np.array([2.0, 4.0])])
    cone = cp.SOC(x + 1.0, turned if axis == 0 else turned.T, axis=axis)  # x >= 1, x >= 4
    forms = quadratic_form(of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [cone])))
    (sides,) = (t for t in forms.constraints if "side" in t.name)
    assert sides.size == 4
    at = np.array([2.0, 3.0])
    assert np.sort(sides.value(at)).tolist() == [-6.0, -4.0, -2.0, -2.0]


@pytest.mark.parametrize("sense", ["minimize", "maximize"])
@given(seed=st.integers(0, 10_000))
def test_separated_squares_say_the_same(sense: str, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scip_backend, "SQUARES", 2)
        separate(sense, np.random.default_rng(seed))


def separate(sense: str, rng: Any) -> None:
    """Compare forms with those separated, and count what is."""
    x, y = cp.Variable(3, name="x"), cp.Variable(2, integer=True, name="squares")
    sign = 1.0 if sense == "minimize" else -1.0
    weights = rng.uniform(1e-3, 1e3, 3)
    cost = sign * (weights @ cp.square(x) + cp.sum_squares(y)) + x[0] - y[1]
    rows = [
        weights[:2] @ cp.square(x[:2]) + x[2] <= 5.0,  # separated
        cp.square(x[0]) - cp.square(x[1]) <= 1.0,  # of two signs
        cp.square(x[2]) + y[0] <= 9.0,  # one alone
        x[0] * x[1] + cp.square(x[0]) + cp.square(x[1]) <= 4.0,
    ]
    goal = cp.Minimize(cost) if sense == "minimize" else cp.Maximize(cost)
    forms = quadratic_form(of.from_cvxpy(cp.Problem(goal, rows)))
    apart = separated(forms)
    added = apart.size - forms.size
    assert added == 5 and not apart.integer[forms.size :].any()
    assert apart.total.affine and [t.affine for t in apart.constraints[:4]] == [True] + 3 * [False]
    point = rng.normal(size=forms.size)
    above = rng.uniform(0.0, 2.0, added) * rng.integers(0, 2)
    whole = np.concatenate([point, np.square(point) + above])
    own, last = apart.constraints[:-1], apart.constraints[-1]
    for before, after in zip(
        (*forms.objective, *forms.constraints), (*apart.objective, *own), strict=True
    ):
        off = after.value(whole) - before.value(point)
        np.testing.assert_allclose(off, 0.0 if not above.any() else off, atol=1e-9)
        assert (off >= -1e-9).all() or (sense == "maximize" and (off <= 1e-9).all())
    # what each is off by counts no more than the sum of all
    squares = last.value(whole)
    assert (squares <= 1e-9).all() and (np.abs(squares) >= above - 1e-9).all()
    assert (np.abs(last.map.Q.data) <= added).all()
    assert apart.by_name(whole)["squares"].tolist() == point[3:5].tolist()


def test_cones_and_products_are_not_separated() -> None:
    x, t = cp.Variable(3, name="x"), cp.Variable(name="t")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(t + x[0] * x[1]), [cp.norm(x) <= t, cp.sum(x) == 1]))
    forms = quadratic_form(p)
    assert separated(forms) is forms
    for n in (7, 8):  # few squares are not worth it
        y = cp.Variable(n, name="y")
        forms = quadratic_form(of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(y)), [y >= 1])))
        assert (separated(forms) is forms) == (n < 8)


def test_units_are_committed_at_quadratic_costs() -> None:
    """As CVXPY's own call of the solver, within what it leaves of feasibility."""
    rng = np.random.default_rng(0)
    G, T = 4, 6
    u, g = cp.Variable((G, T), boolean=True, name="u"), cp.Variable((G, T), name="g")
    most = rng.uniform(50, 200, (G, 1)) @ np.ones((1, T))
    need = 0.5 * most[:, 0].sum() * (1.0 + 0.3 * np.sin(np.arange(T)))
    cost = cp.sum(0.01 * cp.square(g)) + rng.uniform(10, 30, G) @ cp.sum(g, 1) + 300 * cp.sum(u)
    rows = [cp.sum(g, 0) >= need, g <= cp.multiply(most, u), g >= cp.multiply(0.3 * most, u)]
    problem = cp.Problem(cp.Minimize(cost), rows)
    s = of.from_cvxpy(problem).solve("scip")
    problem.solve(solver=cp.SCIP)
    assert s.status.termination == "optimal" and not s.attempts
    assert s.objective == pytest.approx(problem.value, rel=1e-6)
    assert set(s.values) == {"u", "g"}


@pytest.mark.parametrize(("integer", "radius", "optimum"), [(False, 2.0, -2.5), (True, 3.0, -5.0)])
def test_a_ball_is_no_obstacle_to_an_objective_that_is_not_convex(
    integer: bool, radius: float, optimum: float
) -> None:
    x = cp.Variable(3, integer=integer, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x[0] * x[1] - x[2]), [cp.norm(x) <= radius]))
    s = p.solve()
    assert str(p.problem_class) == f"nonconvex {'MI' * integer}SOCP" and s.solver == "scip"
    assert s.objective == pytest.approx(optimum, abs=1e-6) and s.bound <= s.objective + 1e-9


@pytest.mark.parametrize(("unit", "constant"), [(1.0, 1e6), (1e3, 0.0)])
def test_pooling_is_solved_in_any_unit_and_beside_a_constant(unit: float, constant: float) -> None:
    """Haverly's first problem: the tolerance is asked for a hundredfold where rows have no side."""
    A, B, Cx, Cy, Px, Py = (unit * cp.Variable(bounds=[0, 300 / unit], name=n) for n in "abcdef")
    q = unit * cp.Variable(bounds=[1 / unit, 3 / unit], name="q")
    earned = 9 * (Px + Cx) + 15 * (Py + Cy) - 6 * A - 16 * B - 10 * (Cx + Cy)
    rows = [Px + Py == A + B, Px + Cx <= 100, Py + Cy <= 200, q * (Px + Py) == 3 * A + B]
    rows += [q * Px + 2 * Cx <= 2.5 * (Px + Cx), q * Py + 2 * Cy <= 1.5 * (Py + Cy)]
    s = of.from_cvxpy(cp.Problem(cp.Maximize(earned + constant), rows)).solve()
    assert s.objective - constant == pytest.approx(400.0, abs=1e-4)


def test_a_coefficient_that_it_takes_for_infinite_is_named_before_anything_is_solved() -> None:
    x = cp.Variable(4, boolean=True, name="x")
    ball = cp.sum_squares(x + np.array([-1, 1, -3, 3])) <= 17
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x @ [1, 5, 3, 2] <= -5e-324, ball]))
    with pytest.raises(of.UnsupportedProblem, match="for infinite") as refused:
        p.solve("scip")
    assert "'c0' has a coefficient of" in str(refused.value)
    with pytest.raises(of.Infeasible) as none:
        p.solve()
    assert none.value.certificate is not None and none.value.certificate.verify()


def test_a_model_that_takes_longer_to_build_than_there_is_ends_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from optfair.backends.scip_backend import ScipModel

    p, _, _ = dense(12)
    with pytest.raises(TimeoutError):
        ScipModel(quadratic_form(p), deadline=time.perf_counter() - 1.0)
    x = cp.Variable(3, name="x")
    ball = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [cp.norm(x - 1) <= 2]))
    with pytest.raises(TimeoutError):
        quadratic_form(ball, time.perf_counter() - 1.0)
    monkeypatch.setattr(Request, "deadline", property(lambda _: -np.inf))
    outcome = scip_backend.run(p, profile("scip"), Request(time_limit=1.0))
    assert outcome.termination == "time_limit" and not outcome.values and outcome.proof is None
