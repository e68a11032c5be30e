"""Solutions round-trip through JSON and npz."""

from __future__ import annotations

import json
from pathlib import Path

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
