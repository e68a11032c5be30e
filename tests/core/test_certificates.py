"""Curvature and witnesses verify, and fail when they are wrong."""

from __future__ import annotations

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.core.certificate import Curvature, NonconvexityWitness
from optfair.core.problem_class import LP, Evidence


def ring() -> of.Problem:
    x = cp.Variable(2, name="x")
    return of.from_cvxpy(
        cp.Problem(cp.Minimize(cp.sum(x)), [cp.sum_squares(x) >= 1, cp.abs(x) <= 2]), ["out", "box"]
    )


def test_witness_is_found_and_verifies() -> None:
    p = ring()
    assert str(p.problem_class) == "nonconvex QCQP"
    witness = p.certificate
    assert isinstance(witness, NonconvexityWitness)
    assert witness.verify()
    assert witness.term == "out"


def test_a_wrong_witness_fails() -> None:
    p = ring()
    w = p.witness
    assert w is not None
    same = replace(w, second=w.first)
    assert "midpoint satisfies" in str(same.verify())
    outside = replace(w, first={"x": np.array([9.0, 9.0])})
    assert "violates 'box'" in str(outside.verify())
    assert not replace(w, term="gone").verify()


def test_a_witness_is_checked_again_after_composing() -> None:
    p = ring()
    assert p.witness is not None
    # in this corner the set is convex: the old witness must not survive
    corner = p.with_constraints(corner=p["x"] >= 1.5)
    assert corner.witness is None
    assert str(corner.problem_class) == "unverified QCQP"
    # dropping a constraint keeps both of its points feasible
    assert str(p.without("box").problem_class) == "nonconvex QCQP"


def test_removing_the_term_removes_the_class() -> None:
    assert str(ring().without("out").problem_class) == "LP"


def test_indefinite_objective() -> None:
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x[0] * x[1]), [cp.abs(x) <= 1]))
    assert str(p.problem_class) == "nonconvex QP"
    assert p.witness is not None and p.witness.verify()


def test_unverified_is_not_called_nonconvex() -> None:
    # convex on x >= 0, but by no rule without an upper bound: no proof and no witness either way
    x = cp.Variable(name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x), [cp.exp(x) - x * x / 2 <= 5, x >= 0]))
    assert p.problem_class.curvature == "unverified"


def test_curvature_verifies_and_catches_a_false_claim() -> None:
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [cp.norm(x) <= 1]), ["disk"])
    assert isinstance(p.certificate, Curvature)
    assert p.certificate.verify()
    term = p.constraints["disk"]
    lie = replace(term, evidence=Evidence("disk", "affine", "Nonpositive", LP))
    false = p.with_terms(p.objective, {"disk": lie})
    assert "disk" in str(false.certificate.verify())


def test_a_witness_of_an_objective_is_held_to_the_size_of_its_values() -> None:
    x = cp.Variable(name="x")
    rows = [x >= -1, x <= 1]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(1e9 - cp.square(x)), rows))
    name = next(iter(p.objective))
    ends = {"x": np.array(-1.0)}, {"x": np.array(1.0)}
    assert not NonconvexityWitness(p, name, *ends).verify()  # 1 of 1e9 is less than 1e-6 of it
    q = of.from_cvxpy(cp.Problem(cp.Minimize(1e3 - cp.square(x)), rows))
    assert NonconvexityWitness(q, name, *ends).verify()
    assert not NonconvexityWitness(q, name, ends[0], ends[0]).verify()
    assert not NonconvexityWitness(q, name, ends[0], {"x": np.array(1.1)}).verify()


def test_points_that_nearly_hold_far_out_are_no_witness() -> None:
    """(x^2 - 1) / (1 + x^8) <= 0 is the segment [-1, 1]; at 30 it is violated by 1e-9."""
    x = cp.Variable(name="x")
    row = (cp.square(x) - 1) * cp.inv_pos(1 + cp.power(x, 8)) <= 0
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x), [row]), ["decay"])
    assert p.witness is None
    verdict = NonconvexityWitness(p, "decay", {"x": 38.0}, {"x": -34.0}).verify()
    assert not verdict and "the first point violates" in str(verdict)


def test_a_certificate_says_what_is_proved_and_how() -> None:
    s = of.library.load("textbook/knapsack").problem().solve()
    told = str(s.certificate.explain()).splitlines()
    assert told[:2] == ["claim: no feasible point has an objective above 309", "of: Knapsack, MILP"]
    assert told[2] == f"evidence: {s.certificate}" and f"({s.grade})" in told[2]
    assert "somebody's word" in told[4] and told[5].startswith("check: NOT verified")
    proved = s.certificate.prove()
    assert "(proved)" in str(proved)
    told = str(proved.explain()).splitlines()
    assert "by branching" in told[3] and told[5] == "check: verified"
    assert all(f"<td>{line.partition(': ')[0]}</td>" in proved._repr_html_() for line in told)


def test_what_has_no_optimum_is_told_too() -> None:
    x = cp.Variable(name="x")
    with pytest.raises(of.Infeasible) as none:
        of.from_cvxpy(cp.Problem(cp.Minimize(x), [x >= 1, x <= 0]), ["low", "high"]).solve()
    with pytest.raises(of.Unbounded) as far:
        of.from_cvxpy(cp.Problem(cp.Minimize(x), [x <= 0])).solve()
    assert none.value.certificate is not None and far.value.certificate is not None
    assert "claim: no point satisfies the constraints\nevidence: Farkas" in str(
        none.value.certificate.explain()
    )
    assert "claim: the objective improves without limit\nof: CVXPY problem, LP" in str(
        far.value.certificate.explain()
    )
    assert "claim: the problem is not convex\nof: CVXPY problem, nonconvex QCQP" in str(
        ring().certificate.explain()
    )
    unbounded = of.from_cvxpy(cp.Problem(cp.Minimize(x), [x >= 1])).solve()
    nobody = replace(unbounded, bound=-np.inf, proof=None)
    assert "nothing bounds the objective" in nobody.certificate.claim
