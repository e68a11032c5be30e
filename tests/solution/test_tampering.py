"""A solution changed in any entry by 1e-4 no longer verifies: every model, every route."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.core.certificate import drift

CHANGE = 1e-4


def assignment(**changes: Any) -> Any:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(14, 2))
    groups = np.array([0, 1, 1, 0, 1, 0, 0, 1, 0, 1, 1, 1, 0, 1])
    return of.FairAssignment(X, groups=groups, centers=X[:3], **changes)


def coupling() -> Any:
    rng = np.random.default_rng(2)
    return of.KantorovichCoupling(
        rng.normal(size=(5, 2)), rng.normal(size=(7, 2)), centers=rng.normal(size=(3, 2))
    )


def cvxpy_problem(kind: str) -> Any:
    rng = np.random.default_rng(3)
    x = cp.Variable(4, name="x")
    A, b = rng.normal(size=(6, 4)), rng.normal(size=6)
    X = cp.Variable((3, 3), name="X", symmetric=True)
    C = rng.normal(size=(3, 3))
    problem = {
        "qp": cp.Problem(cp.Minimize(cp.sum_squares(A @ x - b)), [cp.sum(x) == 1, x >= 0]),
        "qcqp": cp.Problem(cp.Minimize(cp.sum(A @ x)), [cp.sum_squares(x) <= 1]),
        "socp": cp.Problem(cp.Minimize(cp.norm(A @ x - b)), [cp.norm(x) <= 0.3]),
        "sdp": cp.Problem(cp.Minimize(cp.trace((C + C.T) @ X)), [X >> 0, cp.diag(X) == 1]),
        "exp": cp.Problem(cp.Maximize(cp.sum(cp.entr(x)) + b[:4] @ x), [cp.sum(x) == 1]),
        "milp": cp.Problem(
            cp.Maximize(np.array([5.0, 4, 3, 7]) @ x),
            [np.array([2.0, 3, 1, 4]) @ x <= 6.5, x >= 0, x <= 1],
        ),
    }[kind]
    p = of.from_cvxpy(problem)
    return p.with_integrality("x") if kind == "milp" else p


def responsibilities(**changes: Any) -> Any:
    log_prob = np.random.default_rng(4).normal(size=(8, 3))
    return of.fair_mixtures.FairResponsibilities(
        log_prob, groups=[0, 1, 1, 0, 1, 0, 0, 1], **changes
    )


CASES = {
    "responsibilities by entropic-mass": (lambda: responsibilities(), "entropic-mass"),
    "gap of responsibilities": (
        lambda: responsibilities(fairness=of.max_gap(0.02)),
        "entropic-mass",
    ),
    "assignment by mass-dual": (lambda: assignment(), "mass-dual"),
    "assignment by highs": (lambda: assignment(), "highs"),
    "assignment by clarabel": (lambda: assignment(), "clarabel"),
    "gap and share by mass-dual": (
        lambda: assignment(fairness=of.additive_gap(0.1)).with_constraints(
            share=of.cluster_share(lower=0.2)
        ),
        "mass-dual",
    ),
    "curved rule by mass-dual": (
        lambda: (p := assignment(fairness=None)).with_constraints(
            ball=cp.norm(p["masses"][0] - p["masses"][1]) <= 0.12
        ),
        "mass-dual",
    ),
    "softened by mass-dual": (lambda: assignment().soften("fairness", 0.5), "mass-dual"),
    "integer assignment": (
        lambda: assignment(fairness=of.additive_gap(0.4)).with_integrality("assignment"),
        "highs",
    ),
    "coupling by network simplex": (coupling, "pot-network-simplex"),
    "coupling by highs": (coupling, "highs"),
    "qp": (lambda: cvxpy_problem("qp"), "clarabel"),
    "qcqp": (lambda: cvxpy_problem("qcqp"), "clarabel"),
    "socp": (lambda: cvxpy_problem("socp"), "clarabel"),
    "sdp": (lambda: cvxpy_problem("sdp"), "clarabel"),
    "exp": (lambda: cvxpy_problem("exp"), "clarabel"),
    "milp": (lambda: cvxpy_problem("milp"), "highs"),
}


def changed(mapping: Any, name: str, index: tuple[int, ...], by: float) -> dict[str, Any]:
    copy = {k: np.array(v) for k, v in mapping.items()}
    copy[name][index] += by
    return copy


def holds(s: Any) -> bool:
    """Whether every number holds, whoever stands behind the bound."""
    return not s.residuals().above(s.certificate.tolerance)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES)
def test_every_entry_is_guarded(case: str) -> None:
    declare, solver = CASES[case]
    s = declare().solve(solver, tolerance=1e-6)
    assert holds(s)
    assert bool(s.certificate.verify()) == s.grade.sound
    # a plain copy of the numbers still verifies: it is the change that is caught
    copied = replace(
        s,
        values={k: np.array(v) for k, v in s.values.items()},
        multipliers={k: np.array(v) for k, v in s.multipliers.items()},
    )
    assert holds(copied)
    missed = []
    for part in ("values", "multipliers"):
        for name, array in getattr(s, part).items():
            for index in np.ndindex(np.shape(array)):
                for by in (CHANGE, -CHANGE):
                    forged = replace(
                        copied, **{part: changed(getattr(copied, part), name, index, by)}
                    )
                    if holds(forged):
                        missed.append((part, name, index, by))
    assert missed == []
    assert not holds(replace(s, objective=s.objective + CHANGE))
    assert not holds(replace(s, bound=s.bound - CHANGE))


def test_a_forged_proof_fails_too() -> None:
    """What has no name may move as long as the bound is proved all the same."""
    s = cvxpy_problem("socp").solve("clarabel")
    proof: Any = s.proof
    named = 0
    for part in ("x", "z"):
        vector = getattr(proof, part)
        for i in range(vector.size):
            moved = vector.copy()
            moved[i] += CHANGE
            forged = replace(s, proof=replace(proof, **{part: moved}))
            told = forged.proof.compiled.by_name(forged.proof.x, forged.proof.z)
            if max(drift(told[0], s.values), drift(told[1], s.multipliers)) <= 1e-12:
                assert abs(forged.residuals().gap) <= 1e-7 or not forged.certificate.verify()
                continue
            named += 1
            assert not forged.certificate.verify()
    assert named >= s["x"].size + 1


def test_no_proof_is_not_optimal() -> None:
    s = cvxpy_problem("qp").solve("clarabel")
    assert not replace(s, proof=None).is_optimal(1.0)
    assert not replace(s, values={}).is_optimal(1.0)
    assert not replace(s, values={"x": np.full(4, np.nan)}).is_optimal(1.0)


def unpriced() -> dict[str, Any]:
    """Return problems whose bounds are proved without multipliers."""
    x, z = cp.Variable(name="x"), cp.Variable(2, integer=True, name="z")
    M = cp.Variable((3, 3), symmetric=True, name="M")
    gap = [M >> 0, M[0, 0] == 0, 2 * M[0, 1] + M[2, 2] == 1]
    return {
        "a face": cp.Problem(cp.Minimize(M[2, 2]), gap),
        "branching": cp.Problem(cp.Minimize(cp.sum_squares(z - 0.3)), [cp.sum(z) >= 1]),
        "boxes": cp.Problem(cp.Minimize(cp.inv_pos(x)), [x >= 2]),
    }


@pytest.mark.parametrize("name", unpriced())
def test_a_proof_without_multipliers_vouches_for_none(name: str) -> None:
    """Prices that somebody added to a proved solution were verified with it."""
    s = of.from_cvxpy(unpriced()[name]).solve()
    assert s.grade.word == "proved" and s.certificate.verify() and not s.multipliers
    for row, term in s.problem.constraints.items():
        assert not replace(s, multipliers={row: np.full(term.shape, 5.0)}).certificate.verify()
    moved = {n: (1.0 + 1e-9) * np.asarray(v) + 1e-9 for n, v in s.values.items()}
    assert s.proof.check(moved, {}).consistency >= 1e-12  # type: ignore[union-attr]


ODD = [True, [True] * 4, 10**400, [10**400, 0, 0, 0], "a", None, object(), [1, [2, 3]], b"x", 1j]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd)[:12])
def test_what_is_no_number_is_no_part_of_a_solution(odd: object, tmp_path: Path) -> None:
    s = cvxpy_problem("qp").solve("clarabel")
    for part in (*("objective", "bound", "unit", "status"), *("values", "multipliers", "proof")):
        if not (part == "proof" and odd is None) and not (odd == 1j and part == "values"):
            with pytest.raises(of.OptfairError, match=part):
                replace(s, **{part: odd})
    for part in ("values", "multipliers"):
        names = getattr(s, part)
        with pytest.raises(of.DataError, match=rf"{part}\['{next(iter(names))}'\]"):
            replace(s, **{part: {**names, next(iter(names)): odd}})
    with pytest.raises(of.DataError, match="tolerance"):
        replace(s, options={"tolerance": odd})
    with pytest.raises(of.DataError, match=r"values\['x'\]"):
        s.problem.objective_value({"x": odd})
    noted = replace(s, options={"told": odd})
    noted.save(tmp_path / "s")
    again = of.load_solution(tmp_path / "s", s.problem)
    assert again.objective == s.objective and again.is_optimal()


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e16])
def test_an_objective_is_of_numbers_in_range(number: float) -> None:
    p = cvxpy_problem("qp")
    with pytest.raises(of.DataError, match=r"values\['x'\].*\n.*entry 1"):
        p.objective_value({"x": [0.0, number, 0.0, 0.0]})
