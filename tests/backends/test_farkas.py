"""Farkas vectors as solvers report them: rounding is taken out, and nothing else is proved."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import optfair as of
from optfair.backends.exact import falls, in_fractions
from optfair.backends.farkas import InfeasibilityProof, Ray, proved_infeasible
from optfair.backends.registry import conic_interface
from optfair.compile.form import compile_problem
from optfair.proofs.check_proof import check
from optfair.proofs.cones import Cone
from optfair.solution.conic_form import ConicForm
from optfair.transforms.relaxation import relaxed

GOALS = {
    "norm": lambda x: cp.norm(x - 3),
    "largest": lambda x: cp.max(cp.abs(x - 3)),
    "sum": lambda x: cp.norm1(x - 3),
    "exponential": lambda x: cp.sum(cp.exp(x)),
}


def apart(goal: str, reach: float) -> Any:
    x = cp.Variable(5, name="x")
    a = np.random.default_rng(1).normal(size=5)
    rows = [cp.norm(x) <= 1, a @ x >= reach * np.linalg.norm(a)]
    return of.from_cvxpy(cp.Problem(cp.Minimize(GOALS[goal](x)), rows), ["ball", "far"])


@pytest.mark.parametrize("goal", GOALS)
def test_auxiliary_rows_of_the_objective_do_not_spoil_a_certificate(goal: str) -> None:
    with pytest.raises(of.Infeasible) as caught:
        apart(goal, 1.1).solve("clarabel")
    assert caught.value.certificate is not None and caught.value.certificate.verify()
    assert set(caught.value.conflict) == {"ball", "far"}


def contradiction(rng: np.random.Generator, order: int, count: int) -> list[Any]:
    """Return symmetric matrices whose span, added to the first, has no semidefinite one."""
    root = rng.normal(size=(order, order))
    Z = root @ root.T
    made = [(M := rng.normal(size=(order, order))) + M.T for _ in range(count + 1)]
    made = [M - np.sum(M * Z) / np.sum(Z * Z) * Z for M in made]
    return [made[0] - Z / np.sum(Z * Z), *made[1:]]


def test_equations_of_the_objective_have_no_part_in_a_contradiction() -> None:
    """The fit is objective and limit at once, so the rows of the first are not needed for any vector."""
    rng = np.random.default_rng(21)
    X, b = rng.normal(size=(90, 30)), cp.Variable(30, name="b")
    y = X @ rng.normal(size=30) * 5
    y[::7] *= -1
    fit = cp.sum(cp.huber(X @ b - y, 1))
    least = of.from_cvxpy(cp.Problem(cp.Minimize(fit))).solve().objective
    short = of.from_cvxpy(cp.Problem(cp.Minimize(fit), [fit <= 0.9 * least]), ["limit"])
    with pytest.raises(of.Infeasible, match="certificate from clarabel") as caught:
        short.solve("clarabel")
    proof = caught.value.certificate
    assert isinstance(proof, InfeasibilityProof) and proof.verify() and proof.conflict == ("limit",)
    assert short.with_terms(short.objective, {}).solve().objective == pytest.approx(least)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_block_that_also_holds_a_free_column_excludes_points_by_its_other_lines(
    seed: int,
) -> None:
    # multipliers are 0 in the lines of t, exactly: no number of the block is a short one
    rng = np.random.default_rng(seed)
    x, t = cp.Variable(4), cp.Variable()
    S, G = contradiction(rng, 6, 4), rng.normal(size=(5, 6, 2))
    F, H = S[0], G[0]
    for i in range(4):
        F, H = F + x[i] * S[i + 1], H + x[i] * G[i + 1]
    rows = [cp.bmat([[F, H], [H.T, t * np.eye(2)]]) >> 0]
    with pytest.raises(of.Infeasible) as caught:
        of.from_cvxpy(cp.Problem(cp.Minimize(t), rows)).solve("clarabel")
    assert caught.value.certificate is not None and caught.value.certificate.verify()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_linear_rows_exclude_each_other_beside_exponentials_of_the_objective(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, A = cp.Variable(4), rng.normal(size=(6, 4))
    y, G, h = rng.random(6), rng.normal(size=(6, 4)), rng.normal(size=6)
    G, h = G - np.outer(y, y @ G) / (y @ y), h - y * (y @ h + 1.0) / (y @ y)
    with pytest.raises(of.Infeasible) as caught:
        of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(cp.exp(A @ x))), [G @ x <= h])).solve()
    assert caught.value.certificate is not None and caught.value.certificate.verify()


def form(low: float) -> ConicForm:
    """Return least t with t >= x, t >= -x, x >= low and x <= 1."""
    A = [[1.0, -1.0], [-1.0, -1.0], [-1.0, 0.0], [1.0, 0.0]]
    return ConicForm(
        P=sp.csc_array((2, 2)),
        q=np.array([0.0, 1.0]),
        offset=0.0,
        A=sp.csc_array(A),
        b=np.array([0.0, 0.0, -low, 1.0]),
        cones=(Cone("nonneg", 0, 4),),
        sign=1,
    )


@pytest.mark.parametrize("noise", [0.0, 1e-12, 1e-9, 5e-6])
def test_rounding_is_taken_out_as_far_as_the_proof_needs(noise: float) -> None:
    reported = np.array([noise, 0.3 * noise, 1.0, 1.0])
    assert bool(InfeasibilityProof(form(2.0), reported).verify()) == (noise == 0.0)
    found = proved_infeasible(form(2.0), reported, {"1234"[k]: np.array([k]) for k in range(4)})
    assert found is not None and found.verify()
    assert found.z.tolist() == [0.0, 0.0, 1.0, 1.0] and found.conflict == ("3", "4")


@pytest.mark.parametrize("z", [[0, 0, 1, 1], [1, 1, 1, 1], [1e-9, 0, 1, 1], [0, 0, 1, 1e-8]])
def test_what_is_feasible_is_never_proved_infeasible(z: list[float]) -> None:
    assert proved_infeasible(form(0.5), np.array(z, dtype=float), {}) is None


@pytest.mark.parametrize("z", [[0, 0, 1, 0], [0, 0, -1, -1], [0, 0, 0, 0]])
def test_wrong_vectors_are_no_proof(z: list[float]) -> None:
    assert proved_infeasible(form(2.0), np.array(z, dtype=float), {}) is None


@pytest.mark.parametrize("z", [[0, 0, 1, 1.001], [0, 0, 1.001, 1], [1e-3, 0, 1, 1]])
def test_what_a_vector_leaves_over_is_paid_with_bounds(z: list[float]) -> None:
    """x >= 2 and x <= 1: a column between bounds need not cancel, a free one is left out."""
    found = proved_infeasible(form(2.0), np.array(z, dtype=float), {})
    assert found is not None and str(found.verify()) == "verified"


# Second-order cones whose vectors are integers: (5, 3, 4) is exactly on the boundary.
TRIPLES = ((5, 3, 4), (9, 1, 4, 8), (15, 2, 10, 11), (3, 1, 2, 2))


def apart_by(gap: float, seed: int, unit: float) -> Any:
    """Return constraints whose Farkas vectors are on the boundary; without a gap they hold."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 6))
    x, point, against, rows = cp.Variable(n, name="x"), rng.integers(-3, 4, n), np.zeros(n), []
    for _ in range(int(rng.integers(1, 4))):
        z = np.array(TRIPLES[rng.integers(len(TRIPLES))])
        A = rng.integers(-2, 3, (z.size, n))
        across = np.r_[z[0], -z[1:]] * rng.integers(0, 2)
        against += A.T @ z
        s = unit * (A @ x + (across - A @ point))
        rows.append(cp.norm(s[1:]) <= s[0] if rng.random() < 0.5 else cp.SOC(s[0], s[1:]))
    rows.append(against @ x <= against @ point - gap)
    return of.from_cvxpy(cp.Problem(cp.Minimize(0), rows))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("unit", [1.0, 2.0**-10])
@pytest.mark.parametrize("seed", range(8))
def test_vectors_on_the_boundary_of_cones_are_proofs(
    seed: int, unit: float, tmp_path: Path
) -> None:
    with pytest.raises(of.Infeasible) as e:
        apart_by(0.125, seed, unit).solve("clarabel")
    assert e.value.certificate.verify()
    e.value.certificate.save(tmp_path / "proof.json")
    assert "no point" in check(json.loads((tmp_path / "proof.json").read_text()))
    try:
        found = apart_by(0.0, seed, unit).solve("clarabel")
    except of.SolverFailure as failure:  # a program without room is hard, not infeasible
        found = failure.solution
    assert found is None or found.residuals().feasibility < 1.0


@pytest.mark.parametrize("head", [5, 13])
def test_directions_along_the_boundary_of_cones_are_rays(head: int) -> None:
    x = cp.Variable(3, name="x")
    tail = np.array([3.0, 4.0] if head == 5 else [5.0, 12.0])
    rows = [cp.norm(cp.hstack([tail[0] * x[0] + 1, tail[1] * x[0] - 2, x[2]])) <= head * x[0] + 7]
    with pytest.raises(of.Unbounded) as e:
        of.from_cvxpy(cp.Problem(cp.Minimize(x[1] - x[0]), [*rows, x[1] >= 0])).solve()
    assert e.value.certificate.verify() and e.value.ray["x"][0] > 0.0


def without_end(scale: float = 1.0) -> Any:
    """Return a transport with as much as is asked for, beside two flows in a fixed ratio.

    A row of the transport follows from the others, so no point has room next to it; the flows
    satisfy their rows in fractions only.
    """
    x, y = cp.Variable((3, 4), name="x", nonneg=True), cp.Variable(2, name="y", nonneg=True)
    rows = {
        "supply": cp.sum(x, axis=1) == np.array([3.0, 4.0, 5.0]) * scale,
        "demand": cp.sum(x, axis=0) == 3.0 * scale,
        "ratio": 0.3 * y[0] == 0.7 * y[1],
        "again": 0.6 * y[0] == 1.4 * y[1],
    }
    goal = cp.Minimize(cp.sum(x) - y[0] - 0.1 * y[1])
    return of.from_cvxpy(cp.Problem(goal, [*rows.values()]), [*rows])


@pytest.mark.parametrize("scale", [1.0, 2.0**-20, 2.0**20])
def test_rays_and_their_points_are_proved_in_fractions_where_floats_have_none(
    scale: float, tmp_path: Path
) -> None:
    with pytest.raises(of.Unbounded) as e:
        without_end(scale).solve("highs")
    ray = e.value.certificate.in_fractions()
    assert e.value.certificate.verify() and ray.verify()
    assert ray.exact_d is not None and ray.exact_start is not None
    assert ray.direction["y"][1] / ray.direction["y"][0] == pytest.approx(3 / 7)
    ray.save(tmp_path / "proof.json")
    assert "without limit" in check(json.loads((tmp_path / "proof.json").read_text()))
    for k in np.flatnonzero(ray.d):  # an entry moved by its last digit is noticed
        moved = [*ray.exact_d]
        moved[k] *= 1 + Fraction(1, 2**60)
        assert not replace(ray, exact_d=tuple(moved)).verify()
    for k in np.flatnonzero(ray.start):
        moved = [*ray.exact_start]
        moved[k] *= 1 + Fraction(1, 2**60)
        assert not replace(ray, exact_start=tuple(moved)).verify()
    back = replace(ray, d=-ray.d, exact_d=tuple(-v for v in ray.exact_d))
    assert not back.verify() and not replace(ray, d=2 * ray.d).verify()
    assert not replace(ray, start=None).verify()


@pytest.mark.parametrize("low", [0.0, 0.1])
def test_what_falls_by_less_than_its_objective_shows_is_unbounded_in_fractions(low: float) -> None:
    x = cp.Variable(3, name="x")
    goal = cp.Minimize(-1e8 * x[0] + 1.5e7 * x[1] + 3e-9 * x[2])
    problem = of.from_cvxpy(cp.Problem(goal, [x[:2] >= low, x <= [3, 5, 7]]))
    with pytest.raises(of.Unbounded) as e:
        in_fractions(problem, 5.0)
    ray: Any = e.value.certificate
    assert ray.rate == pytest.approx(-3e-9) and ray.verify()
    assert not replace(ray, exact_start=None).verify()  # nothing but floats shows it then


def test_a_fall_whose_rows_exclude_each_other_by_their_last_digits_is_not_proved() -> None:
    x, y = cp.Variable(2, name="x"), cp.Variable(name="y")
    rows = [0.1 * x[0] + 0.2 * x[1] == 0.3, 0.3 * x[0] + 0.6 * x[1] == 0.9, y >= 0]
    problem = of.from_cvxpy(cp.Problem(cp.Minimize(x[0] - x[0] - y), rows))
    with pytest.raises(of.OptfairError) as e:
        problem.solve("highs")
    assert not isinstance(e.value, of.Unbounded)


def test_a_conflict_names_all_that_it_needs_whatever_their_multipliers() -> None:
    # a limit on the costs in another unit has a small multiplier, and is needed all the same
    x = cp.Variable(3, name="x", nonneg=True)
    rows = {
        "least": cp.sum(x) >= 3,
        "apart": x[0] <= 9,
        "costs": 1e6 * (x @ [1.0, 2.0, 3.0]) <= 2e6,
    }
    problem = of.from_cvxpy(cp.Problem(cp.Minimize(x[0]), [*rows.values()]), [*rows])
    with pytest.raises(of.Infeasible) as e:
        problem.solve("highs")
    assert set(e.value.conflict) == {"least", "costs", "x nonnegative"}, e.value.conflict
    left = [name for name in problem.constraints if name not in e.value.conflict]
    with pytest.raises(of.Infeasible):
        problem.without(*left).solve("clarabel")
    for name in ("least", "costs"):
        assert problem.without(name).solve().is_optimal(1e-6)


X = cp.Variable(2, name="x")


@pytest.mark.parametrize(
    "rows",
    [
        [cp.inv_pos(X[0]) <= X[1], X[0] <= -1],
        [cp.kl_div(X[0], X[1]) <= -0.1],
        [cp.exp(X[0]) <= X[1], X[1] <= X[0] + 0.5],
        [cp.log(X[0]) >= X[1], X[0] <= 0, X[1] >= -2],
        [cp.geo_mean(X) >= 2, X[0] + X[1] <= 3],
        [cp.norm(X) <= X[0] - 1, X[0] <= -1],
    ],
    ids=["reciprocal", "divergence", "tangent", "logarithm", "mean", "half-line"],
)
def test_textbook_contradictions_are_proved(rows: list[Any]) -> None:
    with pytest.raises(of.Infeasible) as e:
        of.from_cvxpy(cp.Problem(cp.Minimize(1), rows)).solve()
    assert e.value.certificate.verify()


def test_equations_of_which_there_are_too_many_exclude_each_other_beside_a_norm() -> None:
    rng = np.random.default_rng(0)
    A, b, x = rng.normal(size=(60, 40)), rng.normal(size=60), cp.Variable(40, name="x")
    problem = cp.Problem(cp.Minimize(cp.norm(x)), [A @ x == b])
    with pytest.raises(of.Infeasible) as e:
        of.from_cvxpy(problem, ["fit"]).solve()
    assert e.value.conflict == ("fit",) and e.value.certificate.verify()


@pytest.mark.parametrize("unit", [1e-12, 1e-9, 1.0, 1e9])
def test_a_ray_leaves_no_row_whatever_its_unit(unit: float) -> None:
    y = cp.Variable(2, name="y")
    rows = [unit * (y[0] - y[1]) <= unit, y >= 0]
    with pytest.raises(of.Unbounded) as caught:
        of.from_cvxpy(cp.Problem(cp.Minimize(-y[0]), rows)).solve()
    assert caught.value.certificate.verify()
    # a small coefficient is one: there is no ray where it holds
    s = of.from_cvxpy(cp.Problem(cp.Minimize(-y[0]), [*rows, y[1] <= 5])).solve()
    assert s.objective == pytest.approx(-6.0)


def test_a_slow_ray_beside_columns_in_other_units_is_proved() -> None:
    """Per step it gains 1e-8 of the largest cost: of that size it is long, in units of columns it is not."""
    A = [[2.0, 16.0, 0.0, -1024.0, -2.0], [-1.0, -48.0, -1572864.0, -1536.0, 1.0]]
    costs, sides = [3.0, 32.0, 1048576.0, 2048.0, -3.015625], [-3.0, -24.0]
    with pytest.raises(of.Unbounded) as e:
        of.from_arrays(None, costs, A=A, l=sides, u=sides, lb=np.zeros(5)).solve()
    assert e.value.certificate.verify()
    assert np.flatnonzero(e.value.ray["x"]).tolist() == [0, 4]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", ["norm", "matrix", "squares"])
def test_rays_beside_curved_cones_are_proved_in_fractions(
    kind: str, seed: int, tmp_path: Path
) -> None:
    """Equations and cones that a ray leaves where they are hold for no floats, but for fractions."""
    rng = np.random.default_rng(seed)
    x, n = cp.Variable(6, name="x"), 6
    A, F, at = rng.normal(size=(1, n)), rng.normal(size=(2, n)), rng.normal(size=n)
    rows: list[Any] = [A @ x == A @ at, rng.normal(size=(2, n)) @ x <= 1]
    goal = rng.normal(size=n) @ x
    if kind == "norm":
        goal = goal + cp.norm(F @ x)
    elif kind == "squares":
        goal = goal + cp.sum_squares(F @ x - 1)
    else:
        X = cp.Variable((3, 3), symmetric=True, name="X")
        rows += [X >> 0, cp.trace(X) <= 3, X[0, 1] == F[0] @ x]
        goal = goal + X[0, 2]
    with pytest.raises(of.Unbounded) as error:
        of.from_cvxpy(cp.Problem(cp.Minimize(goal), rows)).solve()
    ray = error.value.certificate
    assert ray is not None and ray.verify()
    ray.save(tmp_path / "ray.json")
    text = (tmp_path / "ray.json").read_text(encoding="utf-8")
    assert check(json.loads(text)).startswith("proved: the objective improves")


def test_a_ray_of_integers_starts_at_integers_and_moves_by_them() -> None:
    n, y = cp.Variable(2, integer=True, name="n"), cp.Variable(name="y")

    def ray(direction: Any, start: Any, *rows: Any) -> tuple[Ray, Any]:
        p = of.from_cvxpy(cp.Problem(cp.Minimize(-y - n[0]), [y >= 0, y <= 5 * n[0], *rows]))
        compiled = compile_problem(relaxed(p), conic_interface())
        d, x = np.zeros((2, compiled.form.q.size))
        for v, (move, first) in (
            ("n", (direction[:2], start[:2])),
            ("y", (direction[2], start[2])),
        ):
            d[compiled.form.columns[v]], x[compiled.form.columns[v]] = move, first
        return Ray(p, d, x), compiled

    for move, period in (
        ([1, 0, 0], 1),
        ([0.5, 0, 1], 2),
        ([0.5, 1 / 3, 0.1], 6),
        ([2**-0.5, 0, 1], 0),
        ([1.0, 2**-0.5, 0], 0),
    ):
        assert ray(move, [1, 1, 1])[0].period == period
    assert Ray.starts(*ray([1, 0, 0], [3, 1, 1]))
    assert Ray.starts(*ray([1, 0, 0], [3, 1, 1], n[0] + n[1] == 4))
    # half an integer satisfies the equation, and the nearest integer does not
    assert not Ray.starts(*ray([1, 0, 0], [3, 0.5, 1], 2 * n[1] == 1))
    assert not Ray.starts(*ray([1, 0, 0], [0, 1, 1]))  # y may be at most 0 there


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_a_point_is_where_the_declared_forms_hold_in_all_of_its_neighbourhood(side: float) -> None:
    x, y = cp.Variable(2, name="x"), cp.Variable(name="y")
    P = np.array([[2.0, 1.0], [1.0, 2.0]]) / 3.0
    p = of.from_cvxpy(cp.Problem(cp.Minimize(-y), [cp.quad_form(x, P) <= 2, y >= 0]))
    compiled = compile_problem(p, conic_interface())
    ray = Ray(p, np.zeros(compiled.form.q.size))

    def holds(first: float, second: float, step: float) -> bool:
        point = np.zeros(compiled.form.q.size)
        point[compiled.form.columns["x"]] = side * first, side * second
        return ray._declared(compiled, point, np.full(point.size, step))

    assert holds(0.0, 0.0, 0.1) and holds(0.9, 0.9, 1e-9)  # 2 x'x at most
    assert not holds(1.1, 1.1, 1e-9) and not holds(0.9, 0.9, 0.2) and not holds(2.0, 0.0, 0.0)
    assert not holds(0.0, 0.0, np.inf)


def test_a_direction_that_leaves_a_cone_does_not_fall() -> None:
    t, y = cp.Variable(name="t"), cp.Variable(2, name="y")
    goal = cp.Minimize(-t - cp.sum(y))
    p = of.from_cvxpy(cp.Problem(goal, [cp.SOC(t, y - 3)]))
    form = compile_problem(p, conic_interface()).form
    assert form.q.size == 3
    for d, holds in (
        ((5, 3, 4), True),
        ((5, 3, Fraction(4001, 1000)), False),
        ((0, 1, 0), False),
        ((-1, 0, 0), False),
        ((5, -3, -4), False),  # it stays in the cone, and the objective rises
    ):
        direction = [Fraction(0)] * 3
        direction[form.columns["t"].start] = Fraction(d[0])
        at = form.columns["y"].start
        direction[at : at + 2] = map(Fraction, d[1:])
        assert falls(form, direction) is holds
    assert not falls(form, [Fraction(0)] * 4)


def flows(n: int = 9) -> tuple[Any, list[Any]]:
    """Return powers, and rows of a network in which some limits hold with equality everywhere."""
    rng = np.random.default_rng(61)
    edges = [(i, i + 1) for i in range(n - 1)] + [(0, 5), (2, 7), (3, 8)]
    B = np.zeros((n, len(edges)))
    for k, (i, j) in enumerate(edges):
        B[i, k], B[j, k] = 1.0, -1.0
    angle, power = cp.Variable(n, name="angle"), cp.Variable(n, name="power", nonneg=True)
    flow, limits = cp.Variable(len(edges), name="flow"), np.zeros(n)
    limits[[0, 4]] = 4.0
    return power, [
        flow == cp.multiply(rng.uniform(5, 20, len(edges)), B.T @ angle),
        power - rng.uniform(0.1, 0.6, n) == B @ flow,
        angle[0] == 0,
        power <= limits,
        cp.abs(flow) <= 3,
    ]


def twice(*rows: Any) -> list[Any]:
    return [row for row in rows for _ in range(2)]


X, Z = cp.Variable((3, 3), PSD=True, name="X"), cp.Variable(2, name="Z")
FREE = cp.Variable(name="free")
UNLIMITED = {
    "matrix": lambda: (-cp.trace(X), twice(X[0, 0] == 1.0)),
    "sums": lambda: (-cp.trace(X), [X[0, 0] + X[1, 1] == 3, X[0, 0] == 1, X[1, 1] == 2]),
    "cone": lambda: (FREE, [cp.norm(Z) <= 2, *twice(Z[0] + Z[1] == 1)]),
    "squares": lambda: (lambda power, rows: (cp.sum_squares(power) + FREE, rows))(*flows()),
}


@pytest.mark.parametrize("name", UNLIMITED)
def test_rays_start_at_points_of_rows_that_depend_on_each_other(name: str) -> None:
    goal, rows = UNLIMITED[name]()
    with pytest.raises(of.Unbounded) as e:
        of.from_cvxpy(cp.Problem(cp.Minimize(goal), rows)).solve()
    assert e.value.certificate.verify()


def test_rows_that_contradict_each_other_by_a_rounding_have_no_point() -> None:
    """0.1 + 0.2 is not 0.3 in floats: nothing is called feasible, so no ray starts."""
    rows = [Z[0] == 0.1, Z[1] == 0.2, Z[0] + Z[1] == 0.3, cp.norm(Z) <= 2]
    with pytest.raises((of.SolverFailure, of.Infeasible)):
        of.from_cvxpy(cp.Problem(cp.Minimize(FREE), rows)).solve()


@pytest.mark.parametrize("kink", [lambda x: 2 * cp.pos(x[0] - 3), lambda x: cp.norm(x, 1) / 4])
def test_rays_of_integers_move_what_terms_introduce_as_well(kink: Any) -> None:
    x = cp.Variable(2, name="x", integer=True)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x[0] + kink(x)), [2 * x[0] == 3 * x[1], x <= 5]))
    with pytest.raises(of.Unbounded) as e:
        p.solve()
    assert e.value.certificate.verify()


def test_a_program_of_integers_falls_from_a_vertex_that_has_no_room() -> None:
    x, k = cp.Variable(5, name="x"), cp.Variable(4, integer=True, name="k")
    rows = [
        5 * x[1] + 6 * x[3] - 6 * k[1] - 4 * k[3] == -36,
        -9 * k[0] + 4 * x[1] - 5 * x[2] + 3 * k[1] + 6 * k[2] + 4 * x[3] + 7 * x[4] >= 17,
        5 * k[0] + 9 * k[1] - 5 * k[2] + 4 * x[3] + 9 * k[3] <= 96,
        x[[0, 1, 4]] >= 0,
        x[2] >= -3,
        x[3] <= 1,
        k[[0, 1, 3]] >= 0,
        k[[0, 3]] <= 1,
    ]
    cost = -6 * x[0] + 7 * (k[0] + x[1]) + 8 * x[2] - 8 * k[1] + 3 * (k[2] + k[3] - x[3]) + 9 * x[4]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cost), rows))
    with pytest.raises(of.Unbounded) as caught:
        p.solve()
    assert caught.value.certificate is not None and caught.value.certificate.verify()
    assert caught.value.certificate.faults(p) == ()


def nearly_parallel(*more: Any, far: float = 0.07) -> Any:
    """Rows that would be parallel in decimals; as floats they meet at 7.5e15."""
    x = cp.Variable(2, name="x")
    rows = [x[0] + 3 * x[1] <= 6, 0.01 * x[0] + 0.03 * x[1] >= far, *(make(x) for make in more)]
    names = ["most", "least", *map(str, range(len(more)))]
    return of.from_cvxpy(cp.Problem(cp.Minimize(x[0]), rows), names)


def test_what_excludes_all_that_counts_as_a_point_says_how_far(tmp_path: Path) -> None:
    problem = nearly_parallel(lambda x: x[1] <= 1e3)
    with pytest.raises(
        of.Infeasible, match=r"verified on the compiled data for \|x\| ≤ 7.5e\+15"
    ) as e:
        nearly_parallel().solve()
    proof = e.value.certificate
    assert isinstance(proof, InfeasibilityProof) and (verdict := proof.verify())
    assert str(verdict).startswith("verified for |x| ≤ ") and verdict.grade.radius >= 1e15
    assert "free" in verdict.grade.because and "for |x| ≤" in str(proof)
    assert not verdict.everywhere and not proof.faults(problem)
    assert proof.faults(nearly_parallel(far=0.05))
    with pytest.raises(of.UnsupportedProblem, match=r"a proof for \|x\| ≤ .* is not written"):
        proof.save(tmp_path / "proof.json")
    # the point beyond is one
    x = [Fraction(7, 100) - Fraction(0.01) * 6, Fraction(0.03) - 3 * Fraction(0.01)]
    y = x[0] / x[1]
    assert Fraction(0.01) * (6 - 3 * y) + Fraction(0.03) * y == Fraction(7, 100) and abs(y) > 1e15


def test_nothing_is_said_where_a_point_of_ordinary_size_is_near() -> None:
    x = cp.Variable(2, name="x")
    for slope in (1e-14, 1e-13, 1e-10, 1e-6):  # x[0] <= -1 / slope
        rows = [x[0] + x[1] <= 0, (1.0 - slope) * x[0] + x[1] >= 1]
        problem = of.from_cvxpy(cp.Problem(cp.Minimize(0), rows))
        try:
            s = problem.solve()
        except of.SolverFailure:
            continue
        assert s.residuals().feasibility <= 1e-7


def test_a_conflict_of_rows_nearly_parallel_is_proved() -> None:
    found = nearly_parallel().diagnose()
    assert set(found.conflict) == {"most", "least"} and found.verify()
    assert any("proved for |x| ≤ " in line for line in found["conflict"].lines)
    grade = found["conflict"].verify().grade
    assert grade.word == "within" and grade.radius >= 1e15


def test_a_ray_beside_a_row_below_the_normal_floats_is_proved() -> None:
    x = cp.Variable(2, name="x")
    rows = [2.0**-1060 * (x[0] - x[1]) <= 2.0**-1060, x >= 0.0]
    with pytest.raises(of.Unbounded) as e:
        of.from_cvxpy(cp.Problem(cp.Minimize(-x[0] - x[1]), rows)).solve()
    assert e.value.certificate.verify()
