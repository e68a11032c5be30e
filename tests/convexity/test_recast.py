"""Whole problems in other words: logarithms of variables, rows rewritten, levels of a ratio."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from fractions import Fraction
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import optfair as of
from optfair.convexity.domain import IMPLIED
from optfair.convexity.expression import Leaf, linear, raw_call, raw_product
from optfair.convexity.intervals import Interval
from optfair.convexity.recast import recast
from optfair.convexity.rules import grows
from optfair.core.canonical import built

x, y, w = (cp.Variable(name=n, pos=True) for n in "xyw")
v = cp.Variable(3, name="v", pos=True)

GEOMETRIC: list[tuple[Any, list[Any]]] = [
    (cp.Minimize(x * y), [x * y * y >= 2, x + y <= 10, x >= 0.1]),
    (
        cp.Maximize(x * y * w),
        [2 * (x * y + x * w) <= 200, y * w <= 50, x <= 2 * y, x >= 0.5 * y, y <= 2 * w, y >= w],
    ),
    (cp.Minimize(cp.sum(1 / v)), [cp.prod(v) <= 8, v <= [3, 4, 5], v[0] * v[1] == 2]),
    (cp.Minimize(x / y + cp.sqrt(y * w) / x), [x * w >= 1, w <= 3, w * w + y <= 10]),
    (cp.Minimize(cp.maximum(x, y) * w), [x * y >= 3, w * x >= 2]),
    (
        cp.Minimize(cp.max((np.array([[1, 2, 1], [1, 2, 4], [1, 3, 1]]) @ v + 1) / v)),
        [v <= [3, 4, 5]],
    ),
    (cp.Minimize(1 / x + y / x), [cp.one_minus_pos(x) >= y * x, y >= 0.2]),
]


X = cp.Variable((3, 3), name="X", pos=True)
MATRICES: list[tuple[Any, list[Any]]] = [
    (cp.Minimize(cp.pf_eigenvalue(X)), [X[0, 0] == 1, X[0, 2] == 1.9, cp.prod(X) >= 2]),
    (cp.Maximize(cp.prod(X)), [cp.pf_eigenvalue(X) <= 2]),
    (cp.Minimize(cp.sum(cp.eye_minus_inv(X))), [X >= 0.05, X[0, 1] * X[1, 0] >= 0.01]),
    (cp.Maximize(cp.geo_mean(X)), [cp.eye_minus_inv(X) <= 2]),
    (cp.Minimize(cp.pf_eigenvalue(cp.eye_minus_inv(X))), [X >= 0.1]),
    (cp.Minimize(cp.sum(cp.gmatmul(np.array([[1.0, -1, 0], [0, 2, -1]]), v))), [v >= 0.1, v <= 3]),
    (cp.Minimize(cp.sum(cp.cumprod(v))), [v >= 0.5, v[0] * v[2] >= 1]),
    (cp.Minimize(cp.sum(cp.cumprod(X, axis=1))), [X >= 0.5, cp.prod(X) >= 1]),
    (cp.Minimize(cp.sum(cp.maximum(v / 2, 2 / v))), [cp.sum(v) <= 5]),
]


@pytest.mark.parametrize(("goal", "rows"), MATRICES, ids=lambda g: str(g)[:30])
def test_matrices_of_positive_entries(goal: Any, rows: Any) -> None:
    """By graphs of eigenvalues and inverses: a bound below every point, and the optimum of CVXPY."""
    plain = cp.Problem(goal, rows)
    p = of.from_cvxpy(plain)
    s = p.solve(tolerance=1e-7)
    assert p.certificate.verify() and s.is_optimal(1e-6) and s.grade.word == "proved"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it calls some of its own inaccurate
        plain.solve(gp=True, solver=cp.CLARABEL)
    assert s.objective == pytest.approx(plain.value, rel=1e-5)
    sign = 1.0 if p.sense == "minimize" else -1.0
    rng = np.random.default_rng(0)
    for _ in range(50):  # points near the optimum that are feasible
        near = {n: u * np.exp(0.05 * rng.normal(size=u.shape)) for n, u in s.values.items()}
        if all(t.relative_violation(near) <= 0.0 for t in p.constraints.values()):
            assert sign * p.objective_at(near) >= sign * s.bound


Y = cp.Variable((2, 2), name="Y", pos=True)
PERRON = cp.pf_eigenvalue(Y)


@pytest.mark.parametrize(
    ("goal", "rows"),
    [
        (cp.Maximize(PERRON), [Y <= 1]),
        (cp.Maximize(Y[0, 0] * PERRON), [Y <= 1]),
        (cp.Maximize(cp.eye_minus_inv(Y)[0, 0]), [Y <= 0.2]),
        (cp.Minimize(1 / PERRON), [Y <= 1]),
        (cp.Minimize(x / PERRON), [Y <= 1, x >= 2]),
        (cp.Minimize(cp.sum(Y)), [PERRON >= 5]),
        (cp.Minimize(cp.sum(Y)), [PERRON == 5]),
        (cp.Minimize(cp.pf_eigenvalue(cp.bmat([[1 / PERRON, x], [x, 1]]))), [Y <= 1, x >= 1]),
    ],
    ids=str,
)
def test_a_graph_bounds_from_below_only(goal: Any, rows: Any) -> None:
    """Where less of the function is worse, its graph would be left without a limit."""
    assert of.from_cvxpy(cp.Problem(goal, rows)).recast is None


@pytest.mark.parametrize(
    "goal",
    [
        cp.maximum(0.5 * PERRON, x),
        (x + 0.5 * PERRON) * (y + 1),
        cp.pf_eigenvalue(cp.bmat([[x, 0.5 * PERRON], [1.0, y]])),
    ],
    ids=lambda g: str(g)[:30],
)
def test_what_grows_with_a_graph_is_bounded_by_it(goal: Any) -> None:
    assert of.from_cvxpy(cp.Problem(cp.Minimize(goal), [Y >= 1, x >= 1])).recast is not None


def test_a_function_grows_with_a_leaf_where_every_part_does() -> None:
    g, u = (Leaf(("test of growth", n), n, 1, (1,)) for n in "gu")
    up, other = raw_call("exp", [g], 1), raw_call("exp", [u], 1)

    def line(*terms: Any, offset: float = 0.0) -> Any:
        return linear([(np.array([[c]]), n) for c, n in terms], [offset])

    both, one = line((0.5, up), (2.0, other)), Fraction(1)
    grow = [both, other, raw_product([(both, one), (line((1.0, other), offset=1.0), one)])]
    for node in [*grow, raw_call("log", [both], 1), raw_call("of all: maximum", grow, 1)]:
        assert grows(node, {g})
    for node in (
        line((-0.5, up), (2.0, other)),
        raw_product([(both, -one)]),
        raw_product([(both, one), (line((1.0, up), offset=1.0), -one)]),
        raw_product([(both, one), (line((1.0, u), offset=-1.0), one)]),
        raw_call("abs", [g], 1),
        raw_call("log", [line((1.0, other), (-1.0, up))], 1),
    ):
        assert not grows(node, {g})
        assert node.leaves == {g} or grows(node, {Leaf(("test of growth", "none"), "z", 1, (1,))})


def test_entries_that_are_numbers_have_a_graph() -> None:
    matrix = cp.bmat([[x, 1.0], [3.0, y]])
    s = of.from_cvxpy(cp.Problem(cp.Minimize(cp.pf_eigenvalue(matrix)), [x >= 1, y >= 1])).solve()
    assert s.is_optimal(1e-6) and s.objective == pytest.approx(1 + np.sqrt(3.0), rel=1e-6)


def log_of_3() -> tuple[float, float]:
    log = Interval.exactly(np.array([3.0])).call("log")
    assert log.low[0] < log.high[0]
    return float(log.low[0]), float(log.high[0])


def test_logarithms_of_numbers_are_rounded_so_that_no_point_is_lost() -> None:
    low, _ = log_of_3()
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.pf_eigenvalue(3 * Y)), [Y >= 1]))
    numbers = [c.value for t in p.recast.inner.terms for c in built(t).constants()]
    dense = [c.toarray() if sp.issparse(c) else c for c in numbers]
    assert {v for c in dense for v in np.ravel(c).tolist() if abs(v - low) < 1e-9} == {low}


c, d, free = (cp.Variable(name=n) for n in ("c", "d", "free"))


@pytest.mark.parametrize(
    ("goal", "rows", "logs"),
    [
        (cp.Minimize(3 * cp.sqrt(c) * d), [c >= 0.1, d >= 0.1], True),
        (cp.Maximize(3 * c * d), [c <= 2, d <= 1, c >= 0.1, d >= 0.1], True),
        (cp.Maximize(3 * c * d), [c <= 2, d <= 1, c >= 0.1, d >= 0.1, free <= c], False),
        (cp.Maximize(3 * c * d), [c <= 2, d <= 1, c >= 0, d >= 0], False),  # it may be 0
    ],
    ids=str,
)
def test_the_logarithm_of_an_objective_is_rounded_below_it(
    goal: Any, rows: Any, logs: bool
) -> None:
    low, high = log_of_3()
    made = of.from_cvxpy(cp.Problem(goal, rows)).recast
    assert made.way == "logarithm" and made.in_logarithms is logs
    assert made.choice.goal[1].constant.tolist() == [low if goal.NAME == "minimize" else -high]


def test_an_equation_in_logarithms_is_a_row_either_way() -> None:
    made = of.from_cvxpy(cp.Problem(cp.Minimize(x + y), [x * y == 2]), ["product"]).recast
    assert [p.name for p in made.rows["product"]] == ["product 0", "product 0 above"]


def test_levels_are_made_anew_and_hold_where_the_objective_is_defined() -> None:
    goal = cp.Maximize(cp.sqrt(c) / (d + 2))
    made = of.from_cvxpy(cp.Problem(goal, [c + d <= 4, d >= 0])).recast
    assert made.way == "level" and any(IMPLIED in name for name in made.inner.constraints)
    assert made.verify() and made.at(-0.5).verify()
    assert not replace(made.at(-0.5), level=-0.25).verify()


def test_an_inverse_of_one_entry() -> None:
    Z = cp.Variable((1, 1), name="Z", pos=True)
    s = of.from_cvxpy(cp.Problem(cp.Minimize(cp.eye_minus_inv(Z)[0, 0]), [Z >= 0.5])).solve()
    assert s.is_optimal(1e-6) and s.objective == pytest.approx(2.0)


@pytest.mark.parametrize("row", [cp.length(v) <= -1, 2 * cp.sign(x - y) + 3 <= 0])
def test_below_the_least_value_of_an_atom_there_is_nothing(row: Any) -> None:
    with pytest.raises(of.Infeasible) as e:
        of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(v) + x), [row, v >= -1, x <= 3])).solve()
    assert e.value.certificate.verify()


def test_what_is_proved_of_a_recast_problem_is_of_that_alone() -> None:
    def made(least: float) -> Any:
        rows = [cp.length(v) <= 1, v[1] >= least, v <= 1.0]
        return of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(v)), rows))

    proofs = []
    for least in (0.5, 0.75):
        with pytest.raises(of.Infeasible) as e:
            made(least).solve()
        proofs.append(e.value.certificate)
    assert all(type(c).__name__ == "RecastCertificate" and c.verify() for c in proofs)
    assert proofs[0].faults(made(0.5)) == () and proofs[0].faults(made(0.75)) != ()
    lent = replace(proofs[0], inner=proofs[1].inner)
    assert lent.verify().reasons == ("it is a proof of another problem",)
    assert replace(proofs[0], problem=made(0.75)).verify().reasons != ()


def test_the_level_of_one_quadratic_ratio_is_a_quadratic_program() -> None:
    problem = of.from_cvxpy(cp.Problem(cp.Maximize(c / (c * c + 1.0)), [c >= 0]))
    assert problem.recast is not None and problem.recast.way == "level"
    assert str(problem.recast.at(-0.25).inner.problem_class) == "QP"


def test_the_largest_of_ratios_is_known_where_each_of_them_is() -> None:
    rows, ratio = [c >= 0, d >= 0, c + d <= 4], (c + 1) / (d + 2)
    known = of.from_cvxpy(cp.Problem(cp.Minimize(cp.maximum(ratio, (d + 1) / (c + 2))), rows))
    assert known.recast is not None and known.recast.way == "level"
    beside = cp.maximum(ratio, 2 - cp.square(c))
    assert of.from_cvxpy(cp.Problem(cp.Minimize(beside), rows)).recast is None


def test_levels_that_are_not_convex_end_in_a_failure_of_the_route() -> None:
    """Every point is nearer to the other center: such levels are outside of balls."""
    u = cp.Variable(2, name="u")
    far = cp.dist_ratio(u, np.array([1.0, 0]), np.array([-1.0, 0]))
    p = of.from_cvxpy(cp.Problem(cp.Minimize(far), [u[1] >= 1, u[0] <= -0.5]))
    with pytest.raises(of.SolverFailure):
        p.solve(time_limit=5)


def test_zero_entries_have_no_graph() -> None:
    """Of reducible matrices the vector of Perron and Frobenius is not positive."""
    M = cp.bmat([[x, 1.0], [0.0, y]])
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.pf_eigenvalue(M)), [x >= 2, y >= 1]))
    assert p.recast is None


@pytest.mark.parametrize(("goal", "rows"), GEOMETRIC[:5], ids=lambda g: str(g)[:30])
def test_sums_in_logarithms_are_known_to_composition_rules(goal: Any, rows: Any) -> None:
    inner = of.from_cvxpy(cp.Problem(goal, rows)).recast.inner
    assert all(t.evidence.proof is None for t in inner.terms), inner.explain()


@pytest.mark.parametrize(("goal", "rows"), GEOMETRIC, ids=lambda g: str(g)[:30])
@pytest.mark.sampled(2)
def test_geometric_programs_have_the_optimum_of_their_logarithms(goal: Any, rows: Any) -> None:
    plain = cp.Problem(goal, rows)
    p = of.from_cvxpy(plain)
    assert p.problem_class.curvature == "log-log convex" and p.certificate.verify()
    assert "log-log convex" in str(p.explain())
    s = p.solve()
    plain.solve(gp=True, solver=cp.CLARABEL)
    assert s.objective == pytest.approx(plain.value, rel=1e-5)
    assert s.is_optimal(1e-6) and s.grade.sound
    sign = 1.0 if p.sense == "minimize" else -1.0
    assert sign * s.bound <= sign * plain.value * (1 + sign * 1e-7)


def test_prices_of_a_geometric_program_are_those_of_its_rows() -> None:
    def solved(budget: float) -> Any:
        rows = [x * y * y >= budget, x + y <= 10, x >= 0.1]
        return of.from_cvxpy(cp.Problem(cp.Minimize(x * y), rows), ["a", "b", "c"]).solve(
            tolerance=1e-8
        )

    price = float(solved(2.0).multipliers["a"])
    h = 1e-3
    assert price == pytest.approx(
        (solved(2 + h).objective - solved(2 - h).objective) / 2 / h, rel=1e-3
    )


QUASICONVEX: list[tuple[Any, list[Any], float]] = [
    (cp.Minimize((x + 1) / (y + 2)), [x >= 0.1, y <= 4, x + y >= 2], 1.1 / 6),
    (cp.Maximize((2 * x + y) / (x + 3 * y + 1)), [x + y <= 4, x >= 0.5, y >= 0.2], 7.8 / 5.4),
    (cp.Minimize(x + 2 * y), [x * y >= 3], float(2 * np.sqrt(6))),
    (cp.Maximize(x), [x * x <= y * w, y + w <= 6], 3.0),
    (cp.Maximize(x * y), [x * x + y * y <= 2], 1.0),
    (cp.Minimize(y), [x / (y + 1) <= 0.5, x >= 3], 5.0),
    (cp.Maximize(cp.sqrt(x) / (y * y + 1)), [x <= 9, y >= 2], 0.6),
]


@pytest.mark.parametrize(("goal", "rows", "truth"), QUASICONVEX, ids=lambda g: str(g)[:30])
def test_quasiconvex_problems_are_solved_with_a_bound(goal: Any, rows: Any, truth: float) -> None:
    p = of.from_cvxpy(cp.Problem(goal, rows))
    # products of positive variables are log-log convex as well
    assert p.problem_class.curvature in ("quasiconvex", "log-log convex")
    assert p.certificate.verify()
    s = p.solve()
    assert s.objective == pytest.approx(truth, rel=2e-6) and s.is_optimal(1e-6) and s.grade.sound
    sign = 1.0 if p.sense == "minimize" else -1.0
    assert sign * s.bound <= sign * truth + 1e-9


@pytest.mark.sampled(3)
@pytest.mark.parametrize("unit", [1e-9, 1e-6, 1.0, 1e6])
@pytest.mark.parametrize("most", [4.0, np.inf])
def test_levels_are_of_the_unit_of_the_objective(unit: float, most: float) -> None:
    """(x - 3y)/(y + 1) is 0 where the search begins, and at least -3 if y has no upper bound."""
    goal = cp.Minimize(unit * (x - 3 * y) / (y + 1))
    p = of.from_cvxpy(cp.Problem(goal, [x >= 0, x <= 2, y >= 0, y <= most]))
    s = p.solve()
    truth = -2.4 * unit if np.isfinite(most) else -3.0 * unit
    assert s.objective == pytest.approx(truth, rel=1e-6) and s.bound <= truth
    assert str(s.grade) == "proved" and s.certificate.verify() and s.values["y"] < 1e15


def test_a_denominator_that_may_be_negative_is_not_multiplied_away() -> None:
    """min z with 1/z <= 1 and z >= -5 has the optimum -5, not 1."""
    z = cp.Variable(name="z")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(z), [1 / z <= 1, z >= -5]))
    assert p.problem_class.curvature in ("nonconvex", "unverified")
    q = of.from_cvxpy(cp.Problem(cp.Minimize(z), [1 / z <= 1, z >= 0.001]))
    assert q.solve().objective == pytest.approx(1.0)


def test_logarithms_need_variables_that_are_positive() -> None:
    a, b = cp.Variable(name="a", nonneg=True), cp.Variable(name="b", nonneg=True)
    # a = b = 0 is feasible beside a^3 >= 16: logarithms would lose it
    p = of.from_cvxpy(cp.Problem(cp.Minimize(a), [a <= b * b, 4 * b <= a * a]))
    assert p.problem_class.curvature != "log-log convex"


def test_an_infeasible_geometric_program_is_proved_so() -> None:
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x * y), [x * y >= 5, x <= 1, y <= 2]))
    with pytest.raises(of.Infeasible) as e:
        p.solve()
    assert e.value.certificate.verify()


def test_what_is_not_attained_is_not_called_unbounded() -> None:
    falling = of.from_cvxpy(cp.Problem(cp.Minimize(x * y), [x * y * y >= 2])).solve()
    assert falling.grade.word == "proved" and 0.0 == falling.bound <= falling.objective <= 1e-7
    with pytest.raises(of.Unbounded) as e:
        of.from_cvxpy(cp.Problem(cp.Maximize(x * y), [x * y * y >= 2])).solve()
    assert e.value.certificate.verify()


@pytest.mark.parametrize("k", [0, 6])
def test_changed_numbers_are_noticed(k: int) -> None:
    goal, rows = GEOMETRIC[0] if k == 0 else QUASICONVEX[0][:2]
    s = of.from_cvxpy(cp.Problem(goal, rows)).solve()
    moved = {n: np.asarray(a) + 1e-4 for n, a in s.values.items()}
    assert not replace(s, values=moved).is_optimal(1e-7)
    other = of.from_cvxpy(cp.Problem(goal, [*rows[:2], x >= 0.2])).solve() if k == 0 else None
    proof: Any = s.proof
    if other is not None:
        assert not np.isfinite(
            replace(proof, relaxed=other.proof.relaxed).check(s.values, s.multipliers).bound  # type: ignore[union-attr]
        )
    else:
        higher = replace(proof, way=proof.way.at(proof.way.level + 0.1))
        assert not np.isfinite(higher.check(s.values, s.multipliers).bound)


a, b = cp.Variable(name="a"), cp.Variable(name="b")
SQUARE = cp.square(a - 1)
# Points at which both sides are 0, or a base is negative, have no logarithms and are not lost.
NO_LOGARITHM: list[tuple[Any, list[Any], float]] = [
    (cp.Minimize(b), [a <= cp.multiply(a, b), a >= 0, b >= 0, a <= 4, b <= 4], 0.0),
    (cp.Minimize(a), [cp.exp(b) <= a * a, b >= 0, a >= -5, a <= 5], -5.0),
    (cp.Minimize(a + b), [cp.square(a) * b >= 3, b >= 0, a >= -5, a <= 5, b <= 9], -4.88),
    (cp.Minimize(b), [SQUARE * b >= 3 * SQUARE, a >= 0.5, b >= 0.5, a <= 4, b <= 4], 0.5),
    (cp.Minimize((a + 1) / b), [a >= 0, b >= 0, b <= 1], 1.0),
    (cp.Minimize(-a - 2 * b), [a * b >= 3, a <= 0, b <= 0], float(2 * np.sqrt(6))),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("goal", "rows", "truth"), NO_LOGARITHM, ids=lambda g: str(g)[:30])
def test_no_point_is_lost_to_a_logarithm(goal: Any, rows: Any, truth: float) -> None:
    s = of.from_cvxpy(cp.Problem(goal, rows)).solve(tolerance=1e-5)
    assert s.objective == pytest.approx(truth, abs=1e-5) and s.bound <= truth + 1e-6


def test_an_objective_that_is_0_everywhere_does_not_exclude_its_points() -> None:
    rows = [a >= 0, b >= 0, a + b + w <= 1, w >= 1]
    s = of.from_cvxpy(cp.Problem(cp.Maximize(a * b), rows)).solve()
    assert s.objective == pytest.approx(0.0, abs=1e-6)


def test_a_problem_is_recast_within_counted_steps(monkeypatch: Any) -> None:
    """A step is counted, not timed: the answer is the same on a slow machine, and none when short."""
    import optfair.convexity.recast as module

    goal, rows = QUASICONVEX[5][:2]
    assert of.from_cvxpy(cp.Problem(goal, rows)).recast is not None
    monkeypatch.setattr(module, "TOGETHER", 5)
    assert of.from_cvxpy(cp.Problem(goal, rows)).recast is None
    u, z = cp.Variable(100, name="u"), cp.Variable(100, name="z")
    monkeypatch.setattr(module, "TOGETHER", 2000)
    p = of.from_cvxpy(
        cp.Problem(
            cp.Minimize(cp.sum(cp.multiply(u, 1 / z))),
            [u >= 0.1, z >= 0.1, z <= 3, cp.sum(u) >= 20],
        )
    )
    begin = time.process_time()
    assert not p.problem_class.convex
    assert time.process_time() - begin < 5.0  # about 0.2 s; it was 8


x0, y0 = cp.Variable(name="x"), cp.Variable(name="y")


@pytest.mark.parametrize(
    ("goal", "rows", "truth"),
    [
        (
            cp.Minimize(cp.maximum((x0 + 1) / (y0 + 2), (y0 + 1) / (x0 + 2))),
            [x0 >= 0, y0 >= 0, x0 + y0 <= 4, x0 >= 0.3 * y0 + 0.2],
            0.5625,
        ),
        (cp.Minimize(-1 / (1 + x0**2)), [], -1.0),
        (cp.Minimize(cp.sign(cp.square(x0) - x0)), [], -1.0),
        (cp.Minimize(cp.length(cp.hstack([x0, y0]))), [x0 <= 1, y0 >= -1], 0.0),
        (cp.Maximize(cp.log(x0) / x0), [], float(np.exp(-1.0))),
        (cp.Minimize(3 * cp.length(cp.hstack([x0, y0 - 1, y0 - 2])) + 1), [x0 >= 1], 7.0),
        (cp.Minimize(cp.sign(x0)), [x0 >= -1, y0 >= x0], -1.0),
        (cp.Minimize(cp.sign(x0)), [x0 >= 0.5, y0 >= x0], 1.0),
        # sqrt is defined on x >= 0 alone, which nobody states
        (cp.Maximize(cp.sqrt(x0) / (y0 + 2)), [x0 + y0 <= 4, y0 >= 0], 1.0),
        (cp.Maximize(cp.sqrt(x0) / (y0 + 2)), [x0 <= 4, y0 >= 0], 1.0),
        # levels near 0 have no limit: lower ones are reached along a ray
        (cp.Maximize(cp.sqrt(x0) / y0), [y0 >= cp.exp(x0)], float(np.sqrt(0.5) * np.exp(-0.5))),
        # the first levels are next to 0, and neither reached nor proved: their points lead further
        (cp.Maximize(x0 / (x0 * x0 + 1)), [x0 >= 0], 0.5),
        (cp.Minimize(cp.ceil(x0)), [x0 >= 0.3], 1.0),
        (cp.Maximize(3 * cp.floor(x0) - 2), [x0 <= 2.7], 4.0),
        (cp.Minimize(2 * cp.ceil(x0 * x0 + y0) + 1), [y0 >= 1.5], 5.0),
    ],
    ids=str,
)
def test_quasiconvex_without_stated_bounds(goal: Any, rows: list[Any], truth: float) -> None:
    p = of.from_cvxpy(cp.Problem(goal, rows))
    assert str(p.problem_class) == "quasiconvex NLP" and p.certificate.verify()
    s = p.solve()
    assert s.is_optimal(1e-6) and s.objective == pytest.approx(truth, abs=1e-6)
    assert s.grade.sound and abs(s.bound - truth) <= 1e-6


@pytest.mark.parametrize(
    "rows",
    [
        lambda x, y: [x * y >= 1, x >= 0.1, y >= 0.1],
        lambda x, y: [x / y <= 2, y >= 1, x >= 0],
        lambda x, y: [(x - 3 * y) / (y + 1) <= 2, y >= 0],
        lambda x, y: [cp.sqrt(cp.abs(x)) <= 2],
        lambda x, y: [cp.ceil(x) <= 3],
    ],
)
@pytest.mark.parametrize("goal", [lambda x, y: x + y, None])
def test_rows_in_other_words_need_no_objective_and_not_every_variable(goal: Any, rows: Any) -> None:
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    every = rows(x, y)
    names = [f"row {k}" for k in range(len(every))]
    declared = of.from_cvxpy(cp.Problem(cp.Minimize(x + y), every), names)
    p = declared.with_terms({}, declared.constraints) if goal is None else declared
    assert p.problem_class is not None
    if goal is None:
        s = p.solve()
        assert s.objective == 0.0 and set(s.values) == {"x", "y"}
        assert all(t.relative_violation(s.values) <= 1e-6 for t in declared.constraints.values())


def test_a_quotient_of_one_over_a_scalar_is_a_vector_of_one() -> None:
    """CVXPY takes 1 / x of a vector of one entry for a number."""
    x = cp.Variable(name="x")
    goal = cp.Maximize(cp.log(3 / x + 10 * cp.power(x, 2)))
    p = of.from_cvxpy(cp.Problem(goal, [3 * cp.power(x, 0.5) <= 4.073, x >= 1, x <= 5]))
    s = p.solve()
    at = (4.073 / 3) ** 2
    assert s.objective == pytest.approx(np.log(3 / at + 10 * at**2)) and s.grade.sound


A0, B0 = (cp.Variable((2, 2), name=n, symmetric=True) for n in ("A", "B"))
a0 = np.array([[2.0, 1.0], [1.0, 3.0]])
u0 = cp.Variable(3, name="u")
K0 = (1.5 + 0.34**0.5) / (1.5 - 0.34**0.5)  # of [[2, 0.3], [0.3, 1]]


@pytest.mark.parametrize(
    ("goal", "rows", "truth"),
    [
        (cp.Minimize(cp.gen_lambda_max(A0, B0)), [a0 == A0, cp.trace(B0) <= 2, B0 >> 0], 2.5),
        (cp.Minimize(cp.trace(B0)), [cp.gen_lambda_max(A0, B0) <= 3, a0 == A0], 5 / 3),
        (cp.Minimize(cp.sum(u0)), [cp.dist_ratio(u0, np.ones(3), np.zeros(3)) <= 0.4], 15 / 7),
        (cp.Minimize(cp.dist_ratio(u0, np.ones(3), np.zeros(3))), [u0 <= 0.8], 0.25),
        (cp.Minimize(cp.norm(u0 - np.array([1.0, 2, 3]))), [cp.length(u0) <= 2], 3.0),
        (cp.Minimize(cp.condition_number(A0)), [A0[0, 0] == 2, A0[1, 1] == 1, A0[0, 1] >= 0.3], K0),
        (cp.Minimize(1 + 2 * cp.condition_number(A0)), [A0[0, 0] == 2], 3.0),
        (cp.Minimize(A0[1, 1]), [cp.condition_number(A0) <= 4, A0[0, 0] == 2], 0.5),
    ],
    ids=lambda e: str(e)[:30],
)
@pytest.mark.filterwarnings("ignore:.*quadratic")
def test_quasiconvex_atoms_by_their_sublevel_sets(goal: Any, rows: Any, truth: float) -> None:
    p = of.from_cvxpy(cp.Problem(goal, rows))
    assert p.problem_class.curvature == "quasiconvex"
    s = p.solve()
    assert s.is_optimal(1e-6) and s.objective == pytest.approx(truth, rel=1e-6)
    assert s.grade.sound and s.bound <= truth * (1 + 1e-9)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_condition_numbers_have_no_unit_and_are_those_of_semidefinite_matrices(unit: float) -> None:
    rows = [A0[0, 0] == 2 * unit, A0[1, 1] == unit]
    s = of.from_cvxpy(cp.Problem(cp.Minimize(cp.condition_number(A0)), rows)).solve()
    assert s.objective == pytest.approx(2.0) and s.grade.sound
    # beyond its domain the quotient of the eigenvalues is a number as well, of any size
    for more in ([A0[0, 1] >= 1.5 * unit], [A0[1, 0] <= -1.5 * unit]):
        with pytest.raises(of.Infeasible) as e:
            of.from_cvxpy(cp.Problem(cp.Minimize(cp.condition_number(A0)), rows + more)).solve()
        assert e.value.certificate.verify()


def test_condition_numbers_of_other_matrices_are_none() -> None:
    """They have no definite symmetric matrix, or none but 0, whoever states it."""
    N, x = cp.Variable((2, 2), name="N"), cp.Variable(name="x")
    turned = np.array([[1.0, 1.0], [-1.0, 1.0]]) + x * np.eye(2)
    for matrix, rows in (
        (N, [N[0, 1] == 1, N[1, 0] == -1, N[0, 0] == 1]),
        (turned, [x >= -3, x <= 3]),
        (A0, [A0[0, 0] == -4, A0[1, 1] == -1]),
    ):
        with pytest.raises(of.Infeasible):
            of.from_cvxpy(cp.Problem(cp.Minimize(cp.condition_number(matrix)), rows)).solve()
    number = cp.condition_number(A0)
    with pytest.raises(of.SolverFailure):
        of.from_cvxpy(cp.Problem(cp.Minimize(number), [A0 == 0])).solve()
    trace = of.from_cvxpy(cp.Problem(cp.Minimize(cp.trace(A0)), [A0[0, 0] == -4, A0[1, 1] <= -3]))
    with pytest.raises(of.Infeasible):
        trace.with_constraints(even=number <= 1).solve()

    class Declared(of.Problem):
        def declare(self) -> Any:
            rows = {"first": (A0[0, 0] == -4, ""), "last": (A0[1, 1] == -1, "")}
            return of.core.declaration("minimize", {"spread": (number, "")}, rows)

    with pytest.raises(of.Infeasible):
        Declared({}).solve()
    symmetric = of.from_cvxpy(
        cp.Problem(cp.Minimize(cp.condition_number(N)), [N[0, 1] == 0.5, N[0, 0] == 1])
    ).solve()  # of [[1, 1/2], [1/2, y]] it is least at y = 3/2
    assert symmetric.objective == pytest.approx(1.5 + 5**0.5 / 2, rel=1e-5)
    assert symmetric["N"][0, 1] == pytest.approx(symmetric["N"][1, 0])


def test_of_levels_whose_slope_is_not_known_there_is_no_price() -> None:
    problem = cp.Problem(cp.Minimize(cp.trace(A0)), [cp.condition_number(A0) <= 2, A0[0, 0] == 4])
    p = of.from_cvxpy(problem, ["spread", "first"])
    s = p.solve()
    assert s.objective == pytest.approx(6.0) and s.is_optimal()
    assert set(s.multipliers) == {"first"}
    assert s.shadow_price["first"] == pytest.approx(1.5)
    p.write_back(s)
    assert problem.constraints[0].dual_value is None and problem.value == pytest.approx(6.0)
    # nor of any row, where the objective is such a function
    ratio = cp.Problem(cp.Minimize(cp.condition_number(A0)), [A0[0, 0] == 4, A0[1, 1] == 1])
    spread = of.from_cvxpy(ratio).solve()
    assert spread.objective == pytest.approx(4.0) and spread.is_optimal()
    assert not spread.multipliers


def test_an_optimum_that_is_the_least_value_of_its_function_is_proved() -> None:
    ratio = cp.dist_ratio(u0, np.ones(3), -np.ones(3))
    s = of.from_cvxpy(cp.Problem(cp.Minimize(ratio), [u0 >= -1, u0 <= 2])).solve()
    assert s.is_optimal() and s.grade.word == "proved"
    assert -1e-7 <= s.bound <= 0.0 <= s.objective <= 1e-7


def test_one_minus_what_is_positive_ends_at_one() -> None:
    """CVXPY evaluates it beyond its domain, where two factors below 0 have a large product."""
    x = cp.Variable(3, pos=True, name="x")
    product = cp.Problem(cp.Maximize(cp.prod(cp.one_minus_pos(x))), [cp.prod(x) >= 0.01])
    s = of.from_cvxpy(product).solve()
    truth = (1 - 0.01 ** (1 / 3)) ** 3
    assert s.objective == pytest.approx(truth) and s.grade.word == "proved"
    y = cp.Variable(2, name="y")
    for goal, rows, end in (
        (cp.Minimize(cp.one_minus_pos(x[0])), [x >= 0.01], 0.0),
        (cp.Minimize(cp.sum(y)), [cp.one_minus_pos(y) >= 0.25], 0.0),
        (cp.Maximize(cp.sum(cp.one_minus_pos(y))), [y >= -3], 2.0),
    ):
        s = of.from_cvxpy(cp.Problem(goal, rows)).solve()
        assert s.objective == pytest.approx(end, abs=1e-7) and s.grade.word == "proved"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("budget", [True, False])
def test_the_largest_return_for_its_risk(unit: float, budget: bool) -> None:
    """Means of both signs: by a row that keeps the return positive, or fixes it."""
    mean, factors = (
        np.array([0.8, -0.3, 0.4]),
        np.array([[1.0, 0.2, 0], [0, 0.7, 0.1], [0.3, 0, 0.5]]),
    )
    h = cp.Variable(3, name="h")
    rows = [mean @ h >= 0.01 * unit, cp.sum(h) == unit] if budget else [mean @ h == unit]
    s = of.from_cvxpy(cp.Problem(cp.Maximize(mean @ h / cp.norm(factors @ h)), rows)).solve()
    inverse = np.linalg.inv(factors)
    truth = float(np.linalg.norm(inverse.T @ mean))
    assert s.is_optimal(1e-6) and s.grade.sound and s.objective == pytest.approx(truth, rel=1e-6)
    assert s.bound >= truth * (1 - 1e-9)


@pytest.mark.parametrize("n", [40, 150])
def test_the_best_ratio_of_many_assets_is_that_of_one_cone_program(n: int) -> None:
    """Of return to risk: h = y / sum(y) with the least risk of a return of 1."""
    rng = np.random.default_rng(n)
    factors, mean = rng.normal(size=(n, n)), rng.uniform(-0.5, 1.0, n)
    h, y = cp.Variable(n, name="h"), cp.Variable(n)
    rows = [mean @ h >= 0.01, cp.sum(h) == 1, h >= 0]
    s = of.from_cvxpy(cp.Problem(cp.Maximize(mean @ h / cp.norm(factors @ h)), rows))
    own = cp.norm(factors @ y)
    least = cp.Problem(cp.Minimize(own), [mean @ y == 1, y >= 0]).solve(solver="CLARABEL")
    assert s.problem_class.curvature == "quasiconvex"
    best = s.solve()
    assert best.grade.word == "proved" and best.objective == pytest.approx(1 / least, rel=1e-6)
    assert best.bound >= best.objective


def test_a_ratio_of_many_positive_variables_is_recast_though_logarithms_take_too_long() -> None:
    n = 300
    c, x = np.linspace(0.5, 1.0, n), cp.Variable(n, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize((c @ x + 1) / (cp.sum(x) + 2)), [x >= 0.1, x <= 2]))
    s = p.solve()
    assert p.problem_class.curvature == "quasiconvex" and s.grade.word == "proved"
    # the cheapest are at their most, as many as lower the ratio
    truth = min(
        (c @ x + 1) / (x.sum() + 2)
        for k in range(n + 1)
        for x in [np.where(np.arange(n) < k, 2, 0.1)]
    )
    assert s.objective == pytest.approx(truth, rel=1e-7)


@pytest.mark.parametrize("n", [4, 8, 12])
def test_the_delay_of_a_line_of_wires_is_a_geometric_program_of_any_length(n: int) -> None:
    """Products with sums in which numbers stand beside variables, of n^2 terms."""
    rng = np.random.default_rng(n)
    x = cp.Variable(n, pos=True, name="x")
    a, b = rng.uniform(0.5, 1, n), rng.uniform(0.1, 0.4, n)
    delay = sum((1 / x[i]) * sum(a[j] * x[j] + b[j] for j in range(i, n)) for i in range(n))
    problem = cp.Problem(cp.Minimize(delay), [cp.sum(x) <= 40, x >= 0.3, x <= 8])
    p = of.from_cvxpy(problem)
    assert p.problem_class.curvature == "log-log convex"
    # written by log-sum-exps alone, so that cones prove it
    assert p.recast.inner.objective["objective"].build().is_dcp()
    s = p.solve()
    optimum = problem.solve(gp=True, solver="CLARABEL")
    assert s.grade.word == "proved" and s.objective == pytest.approx(optimum, rel=1e-6)


WRITTEN_OTHERWISE: list[Any] = [
    lambda x: (cp.Maximize(cp.sqrt(x[0]) / cp.exp(x[0])), [x[0] >= 0.01]),
    lambda x: (cp.Minimize(x[0] / x[1]), [x >= 1, x <= 3]),
    lambda x: (cp.Minimize(x[0] * x[1] + 2 / x[0]), [x[0] ** 2 * x[1] >= 2, x >= 0.5]),
    lambda x: (cp.Maximize((x[0] + x[1]) / cp.norm(x + 1.0)), [x >= 0, cp.sum(x) <= 2]),
    lambda x: (cp.Minimize(cp.ceil(x[0] + x[1])), [x >= 0.6]),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("shift", [1.0, -1e4, 1e-3])
@pytest.mark.parametrize("write", WRITTEN_OTHERWISE)
def test_an_objective_is_the_same_turned_over_and_with_a_number_added(
    write: Any, shift: float
) -> None:
    x = cp.Variable(2, name="x", pos=True)
    goal, rows = write(x)
    f = goal.args[0]
    twin = (cp.Maximize if isinstance(goal, cp.Minimize) else cp.Minimize)(-f - shift)
    p, q = of.from_cvxpy(cp.Problem(goal, rows)), of.from_cvxpy(cp.Problem(twin, rows))
    assert q.problem_class.curvature == p.problem_class.curvature != "unverified"
    s, t = p.solve(), q.solve()
    assert t.objective == pytest.approx(-s.objective - shift, abs=1e-6)
    assert s.grade.word == t.grade.word == "proved"
    # the bound is one on the declared objective, on its side
    side = 1.0 if q.sense == "minimize" else -1.0
    assert side * t.bound <= side * t.objective + 1e-12 * abs(shift)


@pytest.mark.parametrize(
    ("write", "optimum"),
    [
        (lambda x: cp.max(cp.ceil(x)), 3.0),
        (lambda x: 2 * cp.maximum(cp.ceil(x[0]), cp.ceil(x[1] + x[2])) - 1, 7.0),
        (lambda x: cp.ceil(cp.max(x)) + 0.5, 3.5),
    ],
)
def test_the_largest_of_several_steps_is_a_step(write: Any, optimum: float) -> None:
    x = cp.Variable(3, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(write(x)), [cp.sum(x) >= 7.3, x <= 5]))
    s = p.solve()
    assert p.problem_class.curvature == "quasiconvex" and s.grade.word == "proved"
    assert s.objective == s.bound == optimum


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
def test_values_of_parameters_are_read_anew(unit: float) -> None:
    x, y, z = (cp.Variable(pos=True, name=n) for n in "xyz")
    a = cp.Parameter(pos=True, value=2.0, name="a")
    b = cp.Parameter(pos=True, value=1.0, name="b")
    rows = [a * x * y * z / unit**2 + b * x * z <= 10 * unit**2, x <= b * y, y <= b * x, z >= unit]
    p = of.from_cvxpy(cp.Problem(cp.Maximize(x * y * z), rows))
    s = p.solve()
    assert s.objective == pytest.approx(4.0 * unit**3 if unit == 1.0 else s.bound, rel=1e-6)
    assert str(s.grade) == "proved" and s.certificate.verify()
    if unit == 1.0:  # x = 2y at the best, x = y before
        assert p.at({"a": 1.0, "b": 2.0}).solve().objective == pytest.approx(6.417424254, rel=1e-7)
    c = cp.Parameter(value=0.5, name="c")
    e = of.from_cvxpy(cp.Problem(cp.Minimize(x**c + 1 / x), [x <= 3]))
    truth = 2.0 ** (1 / 3) + 2.0 ** (-2 / 3)  # x = 2^(2/3)
    assert e.solve().objective == pytest.approx(truth, rel=1e-7)
    b.value, top = 2.0 * unit, cp.Parameter(value=3.0 * unit, name="top")
    q = of.from_cvxpy(cp.Problem(cp.Maximize((2 * x + unit) / (x + b)), [x <= top]))
    assert q.solve().objective == pytest.approx(7.0 / 5.0, rel=1e-6)
    assert q.at({"top": unit}).solve().objective == pytest.approx(1.0, rel=1e-6)
    b.value = 3.0 * unit
    with pytest.raises(of.DeclarationError, match="'b' in 'objective' was"):
        q.solve()


WHOLE = cp.Variable(2, name="k", integer=True)
INTEGERS: list[tuple[Any, list[Any], float]] = [
    (cp.Minimize((WHOLE[0] + 3) / (WHOLE[1] + 1)), [WHOLE >= 0, cp.sum(WHOLE) <= 6.5], 3 / 7),
    (cp.Maximize((WHOLE[0] + 3) / (WHOLE[1] + 1)), [WHOLE >= 0.5, cp.sum(WHOLE) <= 6.5], 4.0),
    (cp.Minimize(cp.ceil(WHOLE[0] - 0.5 * WHOLE[1])), [WHOLE[0] >= 2.5, WHOLE[1] <= 3], 2.0),
    (cp.Minimize(WHOLE[0] + WHOLE[1]), [WHOLE >= 0, (WHOLE[0] + 3) / (WHOLE[1] + 1) <= 0.7], 4.0),
]


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize(("goal", "rows", "best"), INTEGERS, ids=lambda g: str(g)[:30])
def test_integers_by_levels(goal: Any, rows: Any, best: float, unit: float) -> None:
    sense = type(goal)
    p = of.from_cvxpy(cp.Problem(sense(unit * goal.args[0]), rows))
    assert str(p.problem_class) == "quasiconvex MINLP" and p.certificate.verify()
    s = p.solve()
    assert s.status.termination == "optimal" and s.grade.word == "reported"
    assert s.objective == pytest.approx(unit * best, rel=1e-9) and not s.multipliers
    below = s.bound if sense is cp.Minimize else -s.bound
    assert below <= unit * (best if sense is cp.Minimize else -best) + 1e-9 * unit


def test_integers_between_which_there_is_none() -> None:
    rows = [WHOLE >= 0.2, WHOLE[0] <= 0.8]
    with pytest.raises(of.Infeasible) as none:
        of.from_cvxpy(cp.Problem(INTEGERS[0][0], rows)).solve()
    assert none.value.certificate is not None and none.value.certificate.verify()


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize(
    ("goal", "rows", "truth"),
    [
        (lambda u: y / x, lambda u: [cp.diff_pos(y, x) >= u, x <= 3 * u], lambda u: 4.0 / 3.0),
        (lambda u: x * y, lambda u: [cp.exp(y / x) <= cp.log(y / u)], lambda u: 48.810271 * u * u),
        (
            lambda u: x + y,
            lambda u: [x * y * cp.one_minus_pos(x / (4 * u)) >= u * u],
            lambda u: 2.3305004 * u,
        ),
        (
            lambda u: x * y,
            lambda u: [(y * cp.one_minus_pos(x / y)) ** 2 >= u * u, x >= y / 3],
            lambda u: 0.75 * u * u,
        ),
    ],
    ids=["difference", "exponential below a logarithm", "one minus a quotient", "square"],
)
def test_products_of_differences_and_functions_of_any_sign_are_geometric(
    goal: Any, rows: Any, truth: Any, unit: float
) -> None:
    p = of.from_cvxpy(cp.Problem(cp.Minimize(goal(unit)), rows(unit)))
    assert p.recast is not None and p.certificate.verify()
    s = p.solve()
    assert s.solver == "equivalent-convex" and s.grade.word == "proved"
    assert s.objective == pytest.approx(truth(unit), rel=1e-6) and s.is_optimal(1e-6)


def test_the_square_of_a_difference_of_any_sign_is_not_geometric() -> None:
    rows = [cp.square(y - x) >= 1, x >= y / 3]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x * y), rows))
    assert p.recast is None and not p.problem_class.convex
    asked = of.from_cvxpy(cp.Problem(cp.Minimize(x * y), [cp.diff_pos(y, x) ** 4 >= x, rows[1]]))
    s = asked.solve()  # y = 3 x and 16 x^4 = x
    assert s.grade.word == "proved" and s.objective == pytest.approx(
        3 * 0.0625 ** (2 / 3), rel=1e-6
    )


def test_what_a_difference_asks_for_stays_where_it_is_multiplied_out() -> None:
    # y - x + 1 <= 0 has points, none of them with the x <= y of diff_pos
    rows = [cp.diff_pos(y, x) + 1 <= 0, y >= 1, y <= 5]
    with pytest.raises(of.Infeasible) as e:
        of.from_cvxpy(cp.Problem(cp.Minimize(x / y), rows)).solve()
    assert e.value.certificate.verify()


def test_what_a_function_asks_for_is_a_bound_in_logarithms_as_well() -> None:
    """diff_pos(y, x) asks for x <= y: no more is held of x = 1, y = 3."""
    x, y = (cp.Variable(name=n, pos=True) for n in "xy")
    rows = [cp.diff_pos(y, x) >= 1, x <= 3]
    made = recast(of.from_cvxpy(cp.Problem(cp.Minimize(y / x), rows)))
    assert made is not None and made.in_logarithms
    at = {"log x": np.array(0.0), "log y": np.log(3.0)}
    assert {float(np.max(t.violation(at))) for t in made.inner.constraints.values()} == {0.0}


def test_rows_of_one_term_are_rewritten_in_the_way_of_the_row_before() -> None:
    n = 20
    x, y = cp.Variable(n, name="x"), cp.Variable(n, name="y")
    rows = [cp.multiply(x, y) >= 1, x >= 0, y >= 0]
    s = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x) + 2 * cp.sum(y)), rows)).solve()
    assert s.grade.word == "proved"
    assert s.objective == pytest.approx(2 * np.sqrt(2) * n, rel=1e-7)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("n", [1, 2, 60])
def test_squares_below_a_square_are_a_norm_below_its_root(n: int, unit: float) -> None:
    x, t = cp.Variable(n, name="x"), cp.Variable(name="t", nonneg=True)
    rows = [cp.sum_squares(x) + unit**2 <= cp.square(t), t <= 2 * unit]
    s = of.from_cvxpy(cp.Problem(cp.Maximize(cp.sum(x)), rows)).solve()
    assert s.grade.word == "proved"
    assert s.objective == pytest.approx(np.sqrt(3 * n) * unit, rel=1e-6)


def test_decimal_exponents_are_products_with_floats_in_logarithms() -> None:
    x = cp.Variable(3, pos=True, name="x")
    product = cp.power(x[0], 0.13) * cp.power(x[1], 0.7) / cp.power(x[2], 1 / 3)
    p = of.from_cvxpy(
        cp.Problem(cp.Minimize(product + 2 / product + cp.sum(x)), [product <= 5, x <= 9])
    )
    assert p.recast is not None and "ower" not in str(p.recast.inner.cvxpy)
    plain = cp.Problem(cp.Minimize(product + 2 / product + cp.sum(x)), [product <= 5, x <= 9])
    s = p.solve()
    assert s.is_optimal(1e-6)
    assert s.objective == pytest.approx(plain.solve(gp=True, solver="CLARABEL"), rel=1e-6)


def test_curvature_in_a_sparse_matrix_is_not_compared_entry_by_entry() -> None:
    z = cp.Variable(2, name="z", nonneg=True)
    curved = cp.quad_form(z, cp.psd_wrap(sp.csc_array([[2.0, 1.0], [1.0, 1.0]])))
    p = of.from_cvxpy(cp.Problem(cp.Maximize(curved), [cp.sum(z) <= 1.0]))
    assert p.solve().objective == pytest.approx(2.0, rel=1e-6)
