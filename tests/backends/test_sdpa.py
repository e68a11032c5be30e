"""Semidefinite programs in the form of SeDuMi, with and without the library that solves them."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import optfair as of
from optfair.backends.conic_backend import SedumiProgram
from optfair.backends.registry import profile
from optfair.compile.form import compile_problem
from optfair.proofs.cones import Cone

NAMES = ("sdpa", "sdpa-multiprecision")


def program() -> of.Problem:
    """Least eigenvalue with a bound and an equation beside it: -1 at X = (1, -1)(1, -1)' / 2."""
    X = cp.Variable((2, 2), name="X", symmetric=True)
    C = np.array([[0.0, 1.0], [1.0, 0.0]])
    rows = [X >> 0, cp.trace(X) == 1, X[0, 1] <= 3]
    return of.from_cvxpy(cp.Problem(cp.Minimize(cp.trace(C @ X)), rows))


def test_whole_matrices_instead_of_triangles() -> None:
    cones = (Cone("psd", 0, 3, order=2), Cone("zero", 3, 4), Cone("nonneg", 4, 6))
    full = SedumiProgram(cones).full
    X = np.array([[1.0, 2.0], [2.0, 5.0]])
    own = np.array([1.0, 2.0 * np.sqrt(2.0), 5.0, 7.0, 8.0, 9.0])
    np.testing.assert_allclose(full @ own, [7.0, 8.0, 9.0, *X.ravel()])
    np.testing.assert_allclose(full.T @ (full @ own), own)


def test_what_is_handed_over_has_the_optimum_of_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other solver's pair meets the equations, in the order and the signs of the library."""
    p = program()
    form = compile_problem(p, "CLARABEL", quadratic=False).form
    pair = p.solve("clarabel").proof
    stated = SedumiProgram(form.cones)
    z = stated.full @ pair.z

    def solve(A: Any, b: Any, c: Any, K: Any, J: Any, options: dict[str, Any]) -> tuple[Any, ...]:
        assert (K.f, K.l, K.s) == (1, 1, (2,)) and J.f == form.q.size
        np.testing.assert_allclose(A @ z, b.toarray().ravel(), atol=1e-6)
        slack = c.toarray().ravel() - A.T @ pair.x
        np.testing.assert_allclose(slack[0], 0.0, atol=1e-6)
        assert slack[1] >= 0.0 and np.linalg.eigvalsh(slack[2:].reshape(2, 2))[0] >= -1e-6
        assert options == {"print": "no", "maxIteration": 5}
        columns = (sp.csr_array(v[:, None]) for v in (z, pair.x))
        return *columns, {"phasevalue": "pdOPT"}, {}, {}

    def cone(**sizes: Any) -> SimpleNamespace:
        return SimpleNamespace(**{"f": 0, "l": 0, "s": (), **sizes})

    fake = SimpleNamespace(solve=solve, SymCone=cone)
    monkeypatch.setitem(sys.modules, "sdpap", fake)
    data = {"A": stated.full @ sp.csr_array(form.A), "b": stated.full @ form.b, "q": form.q}
    found = stated.invert(stated.solve_via_data(data, False, {"maxIteration": 5}), {})
    assert found.status == "pdOPT"
    np.testing.assert_allclose(stated.full.T @ found.z, pair.z)


@pytest.mark.parametrize("name", NAMES)
def test_it_solves_where_it_is_installed_and_says_so_where_it_is_not(name: str) -> None:
    p = program()
    if not profile(name).installed:
        with pytest.raises(of.NotInstalled, match=name) as missing:
            p.solve(name)
        assert "pip install" in missing.value.remedy
        return
    s = p.solve(name, tolerance=1e-6, time_limit=60.0)
    assert s.is_optimal(1e-6) and s.objective == pytest.approx(-1.0, abs=1e-6)
    X = cp.Variable((2, 2), name="X", PSD=True)
    nothing = of.from_cvxpy(cp.Problem(cp.Minimize(X[0, 0]), [cp.trace(X) == -1]))
    with pytest.raises(of.Infeasible):
        nothing.solve(name, tolerance=1e-6)
    with pytest.raises(of.UnsupportedProblem, match="no option 'nonsense'"):
        p.solve(name, options={"nonsense": 1})


@pytest.mark.parametrize("name", NAMES)
def test_it_is_never_asked_unless_it_is_named(name: str) -> None:
    from optfair.backends.registry import choose

    assert name not in [c.name for c in choose(program(), None)]


def test_a_problem_without_an_objective_is_never_unbounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a solver says: nothing is asked again without end."""
    from optfair.backends import blocks_backend
    from optfair.backends.blocks_backend import Ended

    x = cp.Variable((2, 2), name="x", PSD=True)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(0), [cp.trace(x) == 1]))
    wrong = Ended("infeasible", np.zeros(3), np.zeros(3), 1, 0.0)
    monkeypatch.setattr(blocks_backend, "interior_point", lambda *_, **__: wrong)
    monkeypatch.setattr(
        blocks_backend.Beside,
        "ended",
        lambda _, e: Ended("unbounded", np.zeros(3), np.zeros(4), 1, 0.0),
    )
    with pytest.raises(of.SolverFailure, match="without an objective"):
        p.solve("psd-blocks")
