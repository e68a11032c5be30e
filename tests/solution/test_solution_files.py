"""Solutions round-trip through JSON and npz."""

from __future__ import annotations

import json
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest

import optfair as of


def test_round_trip(tmp_path: Path) -> None:
    X = np.arange(12.0).reshape(6, 2)
    p = of.FairAssignment(X, groups=[0, 1, 0, 1, 0, 1], centers=X[:2])
    s = p.solve()
    s.save(tmp_path / "run")
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["solver"] == "mass-dual" and record["class"] == "LP"
    assert record["gap"] <= 1e-9 and record["bound_by"] == "duality"
    again = of.load_solution(tmp_path / "run", p)
    for part in ("values", "multipliers"):
        ours, theirs = getattr(s, part), getattr(again, part)
        assert set(ours) == set(theirs)
        assert all(np.array_equal(ours[k], theirs[k]) for k in ours)
    # what was read is not taken on trust, but it is a warm start
    assert not again.is_optimal()
    warm = p.solve(warm_start=again)
    assert warm.is_optimal(1e-9) and warm.objective == pytest.approx(s.objective, rel=1e-12)
    with pytest.raises(of.DataError, match="exists"):
        s.save(tmp_path / "run")
    other = of.FairAssignment(X, groups=[0, 1, 0, 1, 0, 1], centers=X[:3])
    with pytest.raises(of.DataError, match="does not fit"):
        of.load_solution(tmp_path / "run", other)


x = cp.Variable(3, name="x")
ROWS = np.array([[0.1, 1.0, 0.3], [1.0, 0.2, 0.7]])
SOLVED = {
    "lp": (cp.Minimize(np.array([0.3, 1.0, 0.7]) @ x), [ROWS @ x >= 0.7, x >= 0]),
    "qp": (cp.Minimize(cp.sum_squares(ROWS @ x - 1.0) + x[0]), [cp.sum(x) == 1, x >= 0]),
    "socp": (cp.Maximize(-cp.norm(ROWS @ x - 1.0)), [cp.norm(x) <= 0.3]),
    "exp": (cp.Maximize(cp.sum(cp.entr(x))), [cp.sum(x) == 1, ROWS @ x >= 0.3]),
}


@pytest.mark.parametrize("kind", SOLVED)
def test_a_proof_is_kept(kind: str, tmp_path: Path) -> None:
    p = of.from_cvxpy(cp.Problem(*SOLVED[kind]))
    s = p.solve(tolerance=1e-6)
    assert s.is_optimal(1e-6)
    s.save(tmp_path / "run")
    again = of.load_solution(tmp_path / "run", p)
    assert again.is_optimal(1e-6) and again.certificate.verify()
    assert again.status.dual == "feasible" and str(again.grade) == str(s.grade)
    assert (again.bound, again.gap) == (s.bound, s.gap)
    # the proof is of this problem only
    tighter = of.load_solution(tmp_path / "run", p.with_constraints(cap=x[0] <= 0.01))
    assert not tighter.is_optimal(1e-6) and not tighter.grade.sound


def test_a_rescaled_proof_is_kept(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 2)) * 1e5
    p = of.FairAssignment(X, groups=np.arange(12) % 2, centers=X[:3])
    s = p.solve("highs")
    s.save(tmp_path / "run")
    again = of.load_solution(tmp_path / "run", p)
    assert again.is_optimal(s.certificate.tolerance) and str(again.grade) == str(s.grade)


def test_a_proof_that_was_tampered_with_is_no_proof(tmp_path: Path) -> None:
    p = of.from_cvxpy(cp.Problem(*SOLVED["lp"]))
    p.solve(tolerance=1e-6).save(tmp_path / "run")
    with np.load(tmp_path / "run.npz") as stored:
        arrays = dict(stored)
    for change in (
        {"proof:z": arrays["proof:z"] + 1e-3},
        {"proof:x": arrays["proof:x"] + 1e-3},
        {"proof:z": arrays["proof:z"][:-1]},
        {"proof:x": np.full_like(arrays["proof:x"], np.nan)},
        {"value:x": arrays["value:x"] + 1e-3},
    ):
        np.savez(tmp_path / "run.npz", **(arrays | change))
        assert not of.load_solution(tmp_path / "run", p).is_optimal(1e-6), change
        assert not of.load_solution(tmp_path / "run", p).grade.sound
    np.savez(tmp_path / "run.npz", **{k: v for k, v in arrays.items() if k != "proof:z"})
    assert not of.load_solution(tmp_path / "run", p).is_optimal(1e-6)
    np.savez(tmp_path / "run.npz", **arrays)
    assert of.load_solution(tmp_path / "run", p).is_optimal(1e-6)
    record = json.loads((tmp_path / "run.json").read_text())
    for facts in ({"interface": "NOBODY"}, {}, "HIGHS", None):
        (tmp_path / "run.json").write_text(json.dumps(record | {"proof": facts}))
        assert not of.load_solution(tmp_path / "run", p).is_optimal(1e-6)
