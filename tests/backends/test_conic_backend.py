"""Solvers of the compiled form: what they are handed, and how their words are read."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.backends.conic_backend import _optimized, _silent, _task_point, _whole
from optfair.backends.registry import conic_interface
from optfair.compile.form import compile_problem
from optfair.transforms.relaxation import relaxed


def compiled(problem: Any) -> Any:
    return compile_problem(relaxed(problem), conic_interface())


def test_whole_numbers_are_within_the_declared_bounds() -> None:
    n = cp.Variable(2, integer=True, name="n")
    rows = [n >= np.array([0.5, -1.5]), n <= np.array([3.7, 2.0]), n[0] + n[1] <= 4.5]
    p = of.from_cvxpy(cp.Problem(cp.Maximize(n[0] + 2 * n[1]), rows))
    bounds = _whole(p, compiled(p), "a solver")
    assert bounds["lower_x"].tolist() == [1.0, -1.0] and bounds["upper_x"].tolist() == [3.0, 2.0]
    assert 4.0 in bounds["upper"] and not (bounds["upper"] % 1.0).any()


def test_the_bound_of_an_integer_program_has_its_constant() -> None:
    n = cp.Variable(2, integer=True, name="n")
    goal = cp.Minimize(n[0] + 2 * n[1] + 5)
    s = of.from_cvxpy(cp.Problem(goal, [n >= 1, n <= 4, n[0] + n[1] >= 3])).solve("cp-sat")
    assert s.objective == pytest.approx(9.0) and s.bound == pytest.approx(9.0)


def test_what_is_printed_past_python_is_held_back(capfd: pytest.CaptureFixture[str]) -> None:
    with _silent():
        for stream in (1, 2):
            os.write(stream, b"inside")
    for stream in (1, 2):
        os.write(stream, b"after")
    assert tuple(capfd.readouterr()) == ("after", "after")


def test_an_option_that_mosek_does_not_have_is_refused() -> None:
    pytest.importorskip("mosek")
    x = cp.Variable(2, name="x")
    form = compiled(of.from_cvxpy(cp.Problem(cp.Minimize(x[0]), [x >= 1])))
    with pytest.raises(of.UnsupportedProblem, match="does not take these options") as refused:
        _optimized(form, "mosek", 1.0, {"MSK_DPAR_NO_SUCH": 1.0}, False)
    assert "MSK_DPAR_NO_SUCH = 1.0" in refused.value.evidence


def test_an_answer_at_a_limit_of_time_keeps_its_own_word() -> None:
    mosek = pytest.importorskip("mosek")
    x = cp.Variable(2, name="x")
    form = compiled(of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= 1]))).form
    late, done = mosek.rescode.trm_max_time, mosek.rescode.ok

    def word(state: Any, stop: Any) -> str:
        task: Any = SimpleNamespace(
            solutiondef=lambda kind: True,
            getsolsta=lambda kind: state,
            getxx=lambda kind: [1.0, 1.0],
            getaccdoty=lambda kind, i: np.ones(form.cones[i].stop - form.cones[i].start),
        )
        return str(_task_point(task, form, False, 1.0, stop).status)

    assert word(mosek.solsta.optimal, late) == word(mosek.solsta.optimal, done) == "optimal"
    assert word(mosek.solsta.unknown, late) == "time_limit"
    assert word(mosek.solsta.unknown, done) == "inaccurate"
    assert word(mosek.solsta.prim_infeas_cer, late) == "infeasible"


def test_integers_beside_cones_are_excluded_or_fall_without_limit() -> None:
    """A relaxation without a limit says nothing of integers, before one point has them."""
    x, z, w = (cp.Variable(name=n, integer=n != "x") for n in "xzw")
    size = cp.norm(cp.hstack([x, z, 1]))
    between, near = [w >= 0.2, w <= 0.8, z >= 1], [z >= 0.5, z <= 3, x >= 1]
    for goal in (cp.square(x) - 5 * z, cp.exp(x) - 5 * z, size - 5 * z):
        with pytest.raises(of.Infeasible) as none:
            of.from_cvxpy(cp.Problem(cp.Minimize(goal), between)).solve()
        assert none.value.certificate is not None and none.value.certificate.verify()
    falls = [(g - 5 * z, [z >= x, x >= 1]) for g in (cp.square(x), cp.exp(x), size)]
    for goal, rows in (*falls, (size - 5 * x, near)):
        with pytest.raises(of.Unbounded) as far:
            of.from_cvxpy(cp.Problem(cp.Minimize(goal), rows)).solve()
        assert far.value.certificate is not None and far.value.certificate.verify()
