"""Solutions round-trip through one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.storage import read_archive, write_archive


def test_round_trip(tmp_path: Path) -> None:
    X = np.arange(12.0).reshape(6, 2)
    p = of.FairAssignment(X, groups=[0, 1, 0, 1, 0, 1], centers=X[:2])
    s = p.solve()
    s.save(tmp_path / "run")
    record = read_archive(tmp_path / "run")[0]
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
    record, arrays = read_archive(tmp_path / "run")

    def loaded(record: Any, arrays: Any) -> Any:
        (tmp_path / "run.npz").unlink()
        write_archive(tmp_path / "run", record, arrays)
        return of.load_solution(tmp_path / "run", p)

    for change in (
        {"proof:z": arrays["proof:z"] + 1e-3},
        {"proof:x": arrays["proof:x"] + 1e-3},
        {"proof:z": arrays["proof:z"][:-1]},
        {"value:x": arrays["value:x"] + 1e-3},
    ):
        found = loaded(record, arrays | change)
        assert not found.is_optimal(1e-6) and not found.grade.sound, change
    assert not loaded(record, {k: v for k, v in arrays.items() if k != "proof:z"}).is_optimal(1e-6)
    assert loaded(record, arrays).is_optimal(1e-6)
    for facts in ({"interface": "NOBODY"}, {}, "HIGHS", None):
        assert not loaded(record | {"proof": facts}, arrays).is_optimal(1e-6)
    for odd in ({"objective": "a"}, {"schema": 1}, {"seconds": None}, {"bound": True}):
        with pytest.raises(of.DataError, match="save it again"):
            loaded(record | odd, arrays)
    with pytest.raises(of.DataError, match="NaN"):
        loaded(record, arrays | {"proof:x": np.full_like(arrays["proof:x"], np.nan)})
