"""What is proved is solved: cones where they are known, tangents elsewhere, verified as declared."""

from __future__ import annotations

import pickle
import tomllib
from fractions import Fraction
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.backends import local_optima, tangents
from optfair.backends.farkas import InfeasibilityProof
from optfair.backends.tangents import Curved
from optfair.backends.unattained import misses
from optfair.convexity.cones import disciplined
from optfair.convexity.proof import CurvatureProof
from optfair.convexity.writing import parse

HERE = Path(__file__).parent
ROWS = [
    row
    for name in ("convexity_seed.toml", "convexity_own.toml")
    for row in tomllib.loads((HERE / name).read_text())["expression"]
    if row["truth"] != "neither"
]


def declared(row: dict[str, Any]) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    variables: dict[str, Any] = {}
    bounds: dict[str, Any] = {}
    for name, box in row["box"].items():
        scalar = not isinstance(box, dict)
        v = cp.Variable(name=name) if scalar else cp.Variable(tuple(box["shape"]), name=name)
        low, high = box if scalar else (box["low"], box["high"])
        variables[name] = v
        bounds[f"{name} low"], bounds[f"{name} high"] = v >= low, v <= high
    return parse(row["text"], variables), bounds, variables


@pytest.mark.sampled(4)
@pytest.mark.parametrize("row", ROWS[::2], ids=lambda r: r["name"])
def test_the_cone_form_equals_the_function(row: dict[str, Any]) -> None:
    """At fixed points the optimum over what was brought in is the declared value."""
    expression, bounds, variables = declared(row)
    if expression.is_dcp():
        return
    proof = of.prove(expression, bounds, curvature=row["truth"])
    assert isinstance(proof, CurvatureProof)
    found = disciplined(proof, row["truth"])
    if found is None:
        assert proof.rule  # its way is by tangents
        return
    out, sides = found
    rng = np.random.default_rng(0)
    for v in variables.values():
        box = row["box"][v.name()]
        low, high = (box["low"], box["high"]) if isinstance(box, dict) else box
        v.value = rng.uniform(low, high, v.shape)
    value = float(np.ravel(expression.value)[0])
    fixed = [v == v.value for v in variables.values()]
    goal = cp.Minimize(cp.sum(out)) if row["truth"] == "convex" else cp.Maximize(cp.sum(out))
    problem = cp.Problem(goal, [*sides, *fixed])
    assert problem.is_dcp()
    problem.solve(solver=cp.CLARABEL)
    assert problem.value == pytest.approx(value, rel=1e-5, abs=1e-5)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("row", ROWS[1::6], ids=lambda r: r["name"])
def test_a_proved_function_is_optimised_over_its_box(row: dict[str, Any]) -> None:
    expression, bounds, variables = declared(row)
    goal = cp.Minimize(expression) if row["truth"] == "convex" else cp.Maximize(expression)
    p = of.from_cvxpy(cp.Problem(goal, list(bounds.values())), list(bounds))
    assert p.problem_class.convex
    s = p.solve(tolerance=1e-6)
    assert s.is_optimal(1e-6) and s.grade.word == "proved"
    rng = np.random.default_rng(1)
    sign = 1.0 if row["truth"] == "convex" else -1.0
    for _ in range(200):
        for v in variables.values():
            box = row["box"][v.name()]
            low, high = (box["low"], box["high"]) if isinstance(box, dict) else box
            v.value = rng.uniform(low, high, v.shape)
        value = float(np.ravel(expression.value)[0])
        assert sign * (value - s.objective) >= -1e-5 * (1 + abs(value))


def tilted(row: dict[str, Any]) -> tuple[Any, float]:
    """Return a problem whose optimum is known: a drawn point, by a linear term added to a row.

    Where f is convex, f(x) - g'x with g the gradient at a point is least at that point.
    """
    expression, bounds, variables = declared(row)
    rng = np.random.default_rng(7)
    for v in variables.values():
        box = row["box"][v.name()]
        low, high = (box["low"], box["high"]) if isinstance(box, dict) else box
        v.value = low + (high - low) * rng.uniform(0.2, 0.8, v.shape)
    at = float(np.ravel(expression.value)[0])
    slopes = {v: _slopes(expression, v) for v in variables.values()}
    optimum = at - sum(float(np.sum(slope * v.value)) for v, slope in slopes.items())
    goal = expression - sum(cp.sum(cp.multiply(slope, v)) for v, slope in slopes.items())
    for v in variables.values():
        v.value = None
    sense = cp.Minimize if row["truth"] == "convex" else cp.Maximize
    return of.from_cvxpy(cp.Problem(sense(goal), list(bounds.values())), list(bounds)), optimum


def _slopes(expression: Any, v: Any) -> Any:
    """Return central differences where the variables are; CVXPY's own fail where it divides."""
    at, slopes = np.array(v.value, dtype=float), np.zeros(v.shape)
    for i in np.ndindex(v.shape):
        ends = []
        for step in (1e-5, -1e-5):
            moved = at.copy()
            moved[i] += step
            v.value = moved
            ends.append(float(np.ravel(expression.value)[0]))
        slopes[i] = (ends[0] - ends[1]) / 2e-5
    v.value = at
    return slopes


@pytest.mark.parametrize(
    "row",
    [pytest.param(r, marks=[] if i % 24 == 5 else [pytest.mark.slow]) for i, r in enumerate(ROWS)],
    ids=lambda r: r["name"],
)
def test_the_optimum_that_is_known_is_found(row: dict[str, Any]) -> None:
    p, optimum = tilted(row)
    s = p.solve(tolerance=1e-6)
    size = max(1.0, abs(optimum))
    assert s.is_optimal(1e-6) and abs(s.objective - optimum) <= 3e-6 * size
    sign = 1.0 if row["truth"] == "convex" else -1.0
    assert sign * (s.bound - optimum) <= 1e-6 * size  # what is proved is never beyond the truth


def test_support_that_goes_takes_the_proof_with_it() -> None:
    x = cp.Variable(name="x")
    p = of.from_cvxpy(
        cp.Problem(cp.Minimize(1 / (3 - x) - x / 4), [x <= 2.5, x >= 0]), ["high", "low"]
    )
    assert p.problem_class.convex and p.certificate.verify()
    assert "on high" in str(p.explain())
    assert p.without("low").problem_class.convex
    open_again = p.without("high")
    assert not open_again.problem_class.convex
    assert open_again.with_constraints(other=x <= 2).problem_class.convex
    assert p.solve().objective == pytest.approx(0.25, abs=1e-7)


def test_no_two_terms_support_each_other() -> None:
    """x^3 <= 8 is convex where x >= 0, and 1/y <= 1 where y > 0: neither says so of itself."""
    x = cp.Variable(name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x), [x * x * x <= 8, -1 / (x * x * x) <= -0.1]))
    assert not p.problem_class.convex


def test_a_chain_of_proofs() -> None:
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    rows = [x * x + y * y <= 1, 1 / (2 - x) + cp.exp(y) * cp.exp(y) <= 5]
    p = of.from_cvxpy(cp.Problem(cp.Maximize(x + y), rows), ["disk", "delay"])
    delay = p.constraints["delay"].evidence
    assert delay.proof is not None and delay.proof.rests_on == ("disk",)
    assert p.solve().is_optimal(1e-7)
    assert not p.without("disk").problem_class.convex


def test_a_quadratic_written_out_is_solved_as_one() -> None:
    rng = np.random.default_rng(0)
    x = cp.Variable(60, name="x")
    A = rng.normal(size=(60, 60))
    written = x @ (A.T @ A @ x) + x @ x - 2 * cp.sum(x)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(written), [x >= -1]))
    assert str(p.problem_class) == "QP"
    s = p.solve()
    plain = of.from_cvxpy(
        cp.Problem(
            cp.Minimize(cp.sum_squares(A @ x) + cp.sum_squares(x) - 2 * cp.sum(x)), [x >= -1]
        )
    ).solve()
    assert s.is_optimal(1e-7) and s.objective == pytest.approx(plain.objective, abs=1e-6)


def test_tangents_prove_their_bound() -> None:
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    goal = cp.Minimize(cp.exp(x) - x * x / 2 - 2 * x + cp.square(y - x))
    p = of.from_cvxpy(cp.Problem(goal, [x >= 0, x <= 3, y >= 1, y <= 5]))
    assert str(p.problem_class) == "NLP"
    s = p.solve()
    assert s.solver == "tangents" and s.is_optimal(1e-7)
    assert s.grade.word in ("proved", "within")
    grid = np.linspace(0, 3, 30_001)
    best = (np.exp(grid) - grid**2 / 2 - 2 * grid + np.maximum(1 - grid, 0) ** 2).min()
    assert s.objective == pytest.approx(best, abs=1e-6) and s.bound <= best + 1e-9


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("size", [1, 3])
def test_tangents_find_a_limit_where_the_first_two_have_none(size: int, unit: float) -> None:
    # the local point alone has slopes that are 0 but for rounding
    x = cp.Variable(size, nonneg=True, name="x")
    goal = cp.sum(cp.xexp(x / unit)) - 3.0 / unit * cp.sum(x)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(unit * goal)))
    assert str(p.problem_class) == "NLP"
    s = p.solve()
    least = unit * size * -0.7074781194243491  # (1 + x) exp x = 3
    assert s.grade.word == "proved" and s.objective == pytest.approx(least, rel=1e-8)
    assert s.bound == pytest.approx(least, rel=1e-6)


def test_a_descent_without_end_is_no_limit_of_tangents() -> None:
    x, y = cp.Variable(nonneg=True, name="x"), cp.Variable(nonneg=True, name="y")
    with pytest.raises(of.UnsupportedProblem, match="tangents bound nothing here"):
        of.from_cvxpy(cp.Problem(cp.Minimize(cp.xexp(x) - x - y))).solve("tangents")


def test_positive_variables_of_a_geometric_program_without_a_box() -> None:
    x = cp.Variable(pos=True, name="x")
    s = of.from_cvxpy(cp.Problem(cp.Minimize(cp.xexp(x) + 1 / x))).solve()
    grid = np.linspace(0.3, 1.0, 70_001)
    least = float((grid * np.exp(grid) + 1 / grid).min())
    assert s.grade.word == "proved" and s.objective == pytest.approx(least, rel=1e-8)


def test_tangents_in_a_constraint_beside_cones() -> None:
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    rows = [
        cp.exp(x) - x * x / 2 + y * y <= 3,
        x >= 0,
        x <= 3,
        y >= -2,
        y <= 2,
        cp.norm(cp.hstack([x, y])) <= 1.3,
    ]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(y - x), rows), ["well", "a", "b", "c", "d", "ball"])
    s = p.solve()
    assert s.is_optimal(1e-6) and s.solver == "tangents"
    assert all(t.relative_violation(s.values) <= 1e-6 for t in p.constraints.values())


def test_delays_with_a_budget() -> None:
    """CVXPY's issue 2348: sum of lam/(u - lam) under a budget, at capacities of 1e4 and above."""
    lam = np.array([1.0, 2.0, 3.0])
    u = cp.Variable(3, name="u")
    rows = [cp.sum(u) <= 4.0e4, u >= lam + 1e-3]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(cp.multiply(lam, 1 / (u - lam)))), rows))
    s = p.solve(tolerance=1e-8)
    exact = np.sqrt(lam).sum() ** 2 / (4.0e4 - lam.sum())
    assert s.objective == pytest.approx(exact, rel=1e-3)
    assert s.grade.word == "proved"


def test_tangents_of_another_problem_prove_nothing() -> None:
    """The relaxation is made anew with every row: that of narrower bounds is another."""
    from dataclasses import replace

    x = cp.Variable(name="x")

    def solved(low: float) -> Any:
        goal = cp.Minimize(cp.exp(x) - x * x / 2 - 2 * x)
        return of.from_cvxpy(cp.Problem(goal, [x >= low, x <= 3])).solve()

    s, narrower = solved(0.0), solved(2.0)
    for known in (s, pickle.loads(pickle.dumps(s))):
        assert np.isfinite(known.proof.check(known.values, known.multipliers).bound)
    for wrong in (
        replace(s.proof, relaxed=narrower.proof.relaxed),
        replace(s.proof, points=s.proof.points[:1]),
    ):
        assert not np.isfinite(wrong.check(s.values, s.multipliers).bound)


def steep(limit: float) -> Any:
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    rows = [cp.exp(x) - x * x / 2 + y * y <= limit, x >= 0, x <= 3, x + y >= 0.8]
    return of.from_cvxpy(cp.Problem(cp.Minimize(y - x), rows), ["well", "low", "high", "near"])


@pytest.mark.slow
def test_what_tangents_exclude_is_proved_by_tangents_made_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    from dataclasses import replace

    monkeypatch.setattr(
        local_optima, "STEPS", 5
    )  # no local search finds a point where there is none
    with pytest.raises(of.Infeasible) as met:
        steep(1.5).solve()
    proof: Any = met.value.certificate
    for told in (proof, pickle.loads(pickle.dumps(proof))):
        assert told.verify() and str(told.verify().grade) == "proved"
    assert "well" in met.value.conflict and {*met.value.conflict} <= {*steep(1.5).constraints}
    # the vector is about this problem and these points, and no other
    for wrong in (
        replace(proof, problem=steep(2.5)),
        replace(proof, points=proof.points[:1]),
        replace(proof, z=np.zeros_like(proof.z)),
    ):
        assert not wrong.verify()
    with pytest.raises(of.UnsupportedProblem):
        proof.save(tmp_path / "proof.json")
    # tangents that lie cut off a point, and are found out when they are made again
    honest = Curved.tangent

    def lying(self: Curved, point: Any, boxes: Any) -> Any:
        cut = honest(self, point, boxes)
        return None if cut is None else (cut[0] + 4.0, cut[1])

    assert steep(2.5).solve().is_optimal(1e-6)
    with monkeypatch.context() as m, pytest.raises(of.Infeasible) as lied:
        m.setattr(Curved, "tangent", lying)
        steep(2.5).solve()
    false: Any = lied.value.certificate
    assert not false.verify() and InfeasibilityProof(false.form, false.z).verify()
    # where they are found out at once, nothing is claimed
    again = tangents._made_anew

    def honestly(*told: Any) -> Any:
        with monkeypatch.context() as m:
            m.setattr(Curved, "tangent", honest)
            return again(*told)

    monkeypatch.setattr(Curved, "tangent", lying)
    monkeypatch.setattr(tangents, "_made_anew", honestly)
    with pytest.raises(of.SolverFailure):
        steep(2.5).solve()


@pytest.mark.parametrize(
    ("goal", "low", "limit"),
    [("1/x", 1.0, 0.0), ("exp(-x)*exp(-x)", 1.0, 0.0), ("exp(-x) + 3", 1.0, 3.0)],
)
def test_an_optimum_that_no_point_attains_is_no_optimum(
    goal: str, low: float, limit: float
) -> None:
    x = cp.Variable(name="x")
    expression = parse(goal, {"x": x})
    s = of.from_cvxpy(cp.Problem(cp.Minimize(expression), [x >= low])).solve()
    assert s.objective > limit and not s.attained and "by no point" in repr(s)
    assert "none attains" in str(s.problem.diagnose())
    near = of.from_cvxpy(cp.Problem(cp.Minimize(expression), [x >= low, x <= 9])).solve()
    assert near.attained and "by no" not in repr(near)
    assert near.values["x"] == pytest.approx(9.0, rel=1e-3)  # the objective is nearly 0 there


@pytest.mark.parametrize(
    ("goal", "rows", "truth"),
    [
        # one wide side of the box costs nothing: the slope lies at the end of its enclosure
        ("x*log(x)", "x>=1e-9, x<=1e9", -float(np.exp(-1))),
        # the only point is one that ranges find
        ("x", "sqrt(1 + x*x) <= 1", 0.0),
    ],
)
def test_wide_boxes_and_single_points(goal: str, rows: str, truth: float) -> None:
    variables: dict[str, Any] = {"x": cp.Variable(name="x")}
    x = variables["x"]
    where = [cp.sqrt(1 + x**2) <= 1] if "sqrt" in rows else [x >= 1e-9, x <= 1e9]
    s = of.from_cvxpy(cp.Problem(cp.Minimize(parse(goal, variables)), where)).solve()
    assert s.is_optimal(1e-7) and s.objective == pytest.approx(truth, abs=1e-7)
    assert s.grade.word == "proved" and s.bound <= truth + 1e-12


@pytest.mark.parametrize("goal", ["affine", "quadratic"])
def test_where_every_limit_is_reached_nothing_is_searched(
    goal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 norms took minutes of ranges before a diagnosis said that all is fine."""
    monkeypatch.setattr("optfair.convexity.prove.domain_of", None)
    x = cp.Variable(3, name="x")
    cost = cp.sum(x) if goal == "affine" else cp.sum_squares(x - 1)
    rows = [cp.norm(x) <= 1] if goal == "affine" else [x >= 0]
    s = of.from_cvxpy(cp.Problem(cp.Minimize(cost), rows)).solve()
    assert s.attained and s.problem.diagnose().verdict == "fine"


FALLING = {
    "a square over y": (lambda x, y: cp.quad_over_lin(x, y), lambda x, y: [x >= 1]),
    "with another": (lambda x, y: cp.inv_pos(y) + cp.quad_over_lin(x, y), lambda x, y: [x >= 1]),
    "on a row that opens": (
        lambda x, y: cp.quad_over_lin(x, y),
        lambda x, y: [x >= 1, cp.exp(-y) <= x],
    ),
}
ENDING = {
    "a row ends y": (lambda x, y: cp.quad_over_lin(x, y), lambda x, y: [x >= 1, x + y <= 5]),
    "an equation": (lambda x, y: cp.quad_over_lin(x, y), lambda x, y: [x >= 1, x + y == 5]),
    "a cone": (
        lambda x, y: cp.quad_over_lin(x, y),
        lambda x, y: [x >= 1, cp.SOC(5.0, cp.hstack([x, y]))],
    ),
    "zero is allowed": (lambda x, y: cp.quad_over_lin(x, y), lambda x, y: [x >= 0, y >= 1]),
    "y costs": (lambda x, y: cp.quad_over_lin(x, y) + 1e-9 * y, lambda x, y: [x >= 1]),
}


@pytest.mark.parametrize("name", [*FALLING, *ENDING])
def test_a_function_that_falls_along_an_axis_has_no_least_value(name: str) -> None:
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    goal, rows = {**FALLING, **ENDING}[name]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(goal(x, y)), rows(x, y)))
    least = 1e-6 if name in FALLING else 0.05  # far from any limit: it is not asked how near it is
    assert misses(p, least) is (name not in ENDING)
    q = of.from_cvxpy(cp.Problem(cp.Maximize(3.0 - goal(x, y)), rows(x, y)))
    assert misses(q, 3.0 - least) is (name not in ENDING)
    # a point spares slopes where the objective rises, and says the same
    point = {"x": np.array(1.0), "y": np.array(2.0)}
    assert misses(p, float(p.objective_at(point)), point) is (name not in ENDING)


def test_what_no_point_attains_is_said_where_no_result_passes() -> None:
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.quad_over_lin(x, y)), [x >= 1, y >= 1]))
    with pytest.raises(of.SolverFailure, match="no point is optimal"):
        p.solve("clarabel")
    assert p.solve().grade.word == "proved"  # nobody was named: a point far out is one of boxes


IN_UNITS = {
    "norm": lambda x, y: cp.sqrt(1 + x * x) + y * y - 0.3 * x,
    "relative entropy": lambda x, y: x * cp.log(x / y) + y,
    "entropy of a sum": lambda x, y: (x + y) * cp.log(x + y) + 1 / x,
    "ratio": lambda x, y: x * x / y + y,
    "delay": lambda x, y: 1 / (3 - x - y) + x * x,
}


@pytest.mark.parametrize("name", IN_UNITS)
@pytest.mark.sampled(2)
def test_variables_in_other_units_have_the_same_proof_cones_and_optimum(name: str) -> None:
    told, optima = set(), []
    for first, second in ((1.0, 1.0), (1e6, 1e6), (1e-4, 1e5), (3.0, 10.0)):
        v = cp.Variable(2, name="v")
        x, y = v[0] / first, v[1] / second
        rows = [x >= 0.25, y >= 0.25, x <= 1, y <= 1]
        p = of.from_cvxpy(cp.Problem(cp.Minimize(IN_UNITS[name](x, y)), rows))
        s = p.solve()
        assert s.grade.sound and s.is_optimal(1e-6)
        told.add(str(p.problem_class))
        optima.append(s.objective)
    assert len(told) == 1 and "NLP" not in told.pop()
    assert np.ptp(optima) <= 1e-6 * max(1.0, abs(optima[0]))


def test_a_maximum_over_vectors_goes_to_cones_where_tangents_need_bounds() -> None:
    x = cp.Variable(3, name="x")
    goal = cp.max(cp.log(cp.exp(x) + cp.exp(x[::-1]) + 1.0) - x)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(goal), [x <= 1]))
    s = p.solve()
    assert not any("nonlinear" in t.evidence.problem_class.cones for t in p.terms)
    assert s.grade.sound and s.objective == pytest.approx(np.log(2 + np.exp(-1)), abs=1e-6)


N = 80
LONG: dict[str, tuple[str, Any]] = {
    "log-sum-exp": ("CONIC(exp)", lambda x, y, c: cp.log(cp.exp(x) + c @ cp.exp(2 * y) + 3)),
    "norm": ("SOCP", lambda x, y, c: cp.sqrt(c @ cp.square(x) + cp.square(y - 1) + 0.01)),
    "fourth powers": ("NLP", lambda x, y, c: cp.power(cp.power(x, 4) + cp.power(y, 4), 0.25)),
    "perspective of exp": ("CONIC(exp)", lambda x, y, c: cp.multiply(y, cp.exp(x / y))),
    "perspective of log": ("CONIC(exp)", lambda x, y, c: -cp.multiply(y, cp.log(1 + x / y))),
    "perspective of one": ("CONIC(exp)", lambda x, y, c: -cp.multiply(y, cp.log(1 + 1 / y)) - x),
    "root of a product": ("CONIC(pow)", lambda x, y, c: -cp.sqrt(cp.multiply(x, y))),
    "rounded exponents": ("NLP", lambda x, y, c: 1 / cp.multiply(x, y)),
    "squares over numbers": ("SOCP", lambda x, y, c: (cp.square(x) + cp.square(x - y)) / y),
}


@pytest.mark.parametrize("name", LONG)
def test_long_vectors_are_written_entry_by_entry_at_once(name: str) -> None:
    """The least of n equal terms, at one point of each, is n times that of one."""
    word, of_each = LONG[name]
    x, y = cp.Variable(N, name="x"), cp.Variable(N, name="y")
    rows = [x >= 0.5, y >= 0.5, x <= 2, y <= 2, cp.sum(x) + 2 * cp.sum(y) == 4 * N]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(of_each(x, y, 2 * np.eye(N)))), rows))
    s = p.solve()
    assert str(p.problem_class) == word and s.grade.word == "proved"
    u, w = cp.Variable(1, name="u"), cp.Variable(1, name="w")
    rows = [u >= 0.5, w >= 0.5, u <= 2, w <= 2, u + 2 * w == 4]
    one = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(of_each(u, w, 2 * np.eye(1)))), rows)).solve()
    assert s.objective == pytest.approx(N * one.objective, rel=1e-6)


def test_a_part_that_is_a_number_on_its_bounds_is_written_as_one() -> None:
    x, y = cp.Variable(name="x", bounds=[-3, -1]), cp.Variable(name="y", bounds=[-1, 1])
    ratio = cp.power(cp.pos(x), 4) / cp.minimum(2 * x, cp.rel_entr(y, 2 * y))
    s = of.from_cvxpy(cp.Problem(cp.Minimize(ratio + y))).solve()
    assert s.grade.word == "proved" and s.objective == pytest.approx(0.0, abs=1e-7)


@pytest.mark.parametrize("sense", [cp.Minimize, cp.Maximize])
@pytest.mark.parametrize(("b", "d"), [(1.0, 5.0), (2.0, 3.0), (1.0, 10.0), (3.0, 4.0), (-1.0, 7.0)])
def test_a_quotient_of_numbers_that_variables_stand_in_is_rounded_outward(
    sense: Any, b: float, d: float
) -> None:
    x = cp.Variable(name="x")
    s = of.from_cvxpy(cp.Problem(sense((0 * x + b) / (0 * x + d)), [x >= 1, x <= 2])).solve()
    truth = Fraction(b) / Fraction(d)
    assert s.grade.word == "proved" and s.is_optimal(1e-9)
    assert (Fraction(float(s.bound)) <= truth) if sense is cp.Minimize else (truth <= s.bound)
    line = of.from_cvxpy(cp.Problem(cp.Minimize(x / (0 * x + d)), [x >= 1]))
    assert str(line.problem_class) == "LP"
