"""The convex-concave procedure: its inner solver has what is left of the time."""

from __future__ import annotations

import warnings
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of

pytest.importorskip("dccp")

v = cp.Variable(3, name="v")
CONVEX = [cp.sum(v) >= 1, v >= 0, v <= 2]
PROBLEMS = {"convex": CONVEX, "concave": [*CONVEX, cp.sum_squares(v) >= 1]}


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_inner_solver_knows_the_time_limit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = list[float]()
    solve = cp.Problem.solve

    def noted(self: Any, *args: Any, **options: Any) -> Any:
        if "method" not in options:
            limits.append(options.get("time_limit", np.inf))
        return solve(self, *args, **options)

    monkeypatch.setattr(cp.Problem, "solve", noted)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(v)), PROBLEMS[name]))
    s = p.solve("dccp", time_limit=20.0)
    assert s.status.termination == "local" and s.objective == pytest.approx(1.0, abs=1e-5)
    assert 0.0 < limits[-1] <= 20.0  # before, the package projects the start by itself


def test_starts_are_the_same_each_time_and_an_inaccurate_step_is_no_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seeds, solve = list[Any](), cp.Problem.solve

    def noted(self: Any, *args: Any, **options: Any) -> Any:
        if "method" in options:
            seeds.append(options["seed"])
            warnings.warn("Solution may be inaccurate.", stacklevel=2)
        return solve(self, *args, **options)

    monkeypatch.setattr(cp.Problem, "solve", noted)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(v)), PROBLEMS["concave"]))
    one, two = (p.solve("dccp") for _ in range(2))
    assert one.status.termination == "local" and one["v"].tolist() == two["v"].tolist()
    p.solve("dccp", seed=3)
    assert seeds[0] == 0 and seeds[-1] == 3 and set(seeds) == {0, 3}


@pytest.mark.parametrize("name", PROBLEMS)
def test_what_ends_at_the_limit_says_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(self: Any, *args: Any, **options: Any) -> Any:
        self._status = cp.settings.USER_LIMIT

    monkeypatch.setattr(cp.Problem, "solve", late)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(v)), PROBLEMS[name]))
    with pytest.raises(of.SolverFailure, match=r"dccp \(time_limit\): it left no point"):
        p.solve("dccp", time_limit=20.0)
