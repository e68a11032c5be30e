"""Programs with a residual for each observation: by an interior point, proved as by the simplex method."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.backends.registry import choose, reordered


def _loss(kind: str, m: int, n: int) -> cp.Problem:
    rng = np.random.default_rng(0)
    A = rng.normal(size=(m, n))
    b = A @ rng.normal(size=n) + rng.standard_t(2, size=m)
    x, t = cp.Variable(n, name="x"), cp.Variable(name="t")
    far = A @ x - b
    residual = cp.Variable(m, name="residual")
    losses: dict[str, Any] = {
        "absolute": cp.norm1(far),
        "variable residuals": cp.norm1(residual),
        "quantile": cp.sum(0.5 * cp.abs(far) + 0.4 * far),
        "hinge": cp.sum(cp.pos(1 - cp.multiply(np.sign(b), A @ x))) + 0.1 * cp.norm1(x),
        "value at risk": t + cp.sum(cp.pos(-A @ x - t)) / (0.05 * m),
    }
    rows: dict[str, Any] = {
        "value at risk": [cp.norm_inf(x) <= 10],
        "variable residuals": [residual == far],
    }
    return cp.Problem(cp.Minimize(losses[kind]), rows.get(kind, []))


KINDS = ["absolute", "quantile", "hinge", "value at risk", "variable residuals"]


@pytest.mark.parametrize("kind", KINDS)
def test_residuals_are_eliminated_and_proved(kind: str) -> None:
    p = of.from_cvxpy(_loss(kind, 1_500, 25))
    s, other = p.solve(), p.solve("highs")
    assert (s.solver, s.grade.word, s.attempts) == ("clarabel", "proved", ())
    assert s.objective == pytest.approx(other.objective, rel=1e-6)
    assert s.seconds["compile"] > 0.0 and "choose" in s.seconds


def _asked(problem: cp.Problem) -> list[str]:
    p = of.from_cvxpy(problem)
    return [profile.name for profile in reordered(p, choose(p, None))]


def test_others_keep_their_vertex() -> None:
    rng = np.random.default_rng(0)
    x = cp.Variable(25, name="x")
    A, b = rng.normal(size=(1_500, 25)), rng.uniform(1, 2, 1_500)
    farthest = cp.Problem(cp.Minimize(cp.norm_inf(A @ x - b)))  # no column of its own for a row
    within = cp.Problem(cp.Maximize(A[0] @ x), [A @ x <= b])
    y = cp.Variable(1_500, name="y")  # of a chain no column meets more than two rows
    chain = cp.Problem(cp.Minimize(cp.norm1(cp.diff(y)) + cp.norm1(y - b)))
    few = _loss("absolute", 500, 25)
    z = cp.Variable(2_500, name="z")  # long columns, with short ones beside them, in few rows
    flat = cp.Problem(cp.Minimize(cp.sum(z)), [A.T @ z[:1_500] + z[1_500:1_525] == 1, z >= 0])
    for problem in (farthest, within, chain, few, flat):
        assert _asked(problem)[0] == "highs"
    asked = _asked(_loss("absolute", 1_500, 25))
    assert asked[:2] == ["clarabel", "highs"] and len(set(asked)) == len(asked)


def test_who_is_named_is_asked() -> None:
    assert of.from_cvxpy(_loss("hinge", 1_500, 25)).solve("highs").solver == "highs"
