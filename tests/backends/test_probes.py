"""Installed, licensed, size-limited: three questions, answered before anything is solved.

The commercial packages are not part of the test extra; their tests run where they are installed.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.backends import registry
from optfair.backends.registry import LicenceState, choose, licence_state, profile, profiles
from optfair.backends.request import Request, SolverProfile
from optfair.compile.form import compile_problem

sys.path.insert(0, str(Path(__file__).parents[1] / "conformance"))
from instances import CASES


def lp(n: int = 3, rows: int = 0) -> Any:
    x = cp.Variable(n, name="x")
    more = [np.ones((rows, n)) @ x <= 9.0 * n] if rows else []
    return of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= 1, *more]))


def qp(n: int) -> Any:
    x = cp.Variable(n, name="x")
    return of.from_cvxpy(cp.Problem(cp.Minimize(cp.quad_form(x, np.eye(n))), [cp.sum(x) == 1]))


class FakeLibrary:
    """A licensed library of the kind the trial model asks, with a limit or none."""

    class GurobiError(Exception):
        pass

    def __init__(self, limit: float, started: bool = True) -> None:
        self.limit, self.started = limit, started

    def Env(self, empty: bool) -> Any:
        def start() -> None:
            if not self.started:
                raise self.GurobiError("No licence found")

        return SimpleNamespace(setParam=lambda *_: None, start=start)

    def Model(self, env: Any) -> Any:
        size: list[int] = []

        def optimize() -> None:
            if size[0] > self.limit:
                raise self.GurobiError("Model too large for size-limited license")

        return SimpleNamespace(addMVar=size.append, optimize=optimize, dispose=lambda: None)


@pytest.mark.parametrize(
    ("library", "word"),
    [
        (FakeLibrary(2000), "size-limited"),
        (FakeLibrary(np.inf), "licensed"),
        (FakeLibrary(0, started=False), "no licence"),
    ],
)
def test_the_trial_model_tells_the_three_states_apart(library: Any, word: str) -> None:
    assert registry._trial_model(library, 2000)[0] == word


def test_open_solvers_are_not_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_probed", lambda *_: pytest.fail("probed"))
    for p in profiles().values():
        if p.kind == "open" and p.installed:
            assert str(licence_state(p)) == "installed, open"
    monkeypatch.setattr(SolverProfile, "installed", False)
    for p in profiles().values():
        state = licence_state(p)
        assert str(state) == f"not installed: {p.install}" and not state.usable


def test_no_licence_is_said_before_solving(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SolverProfile, "installed", True)
    monkeypatch.setattr(registry, "_probed", lambda *_: ("no licence", "no file", None))
    with pytest.raises(of.NotLicensed) as failure:
        lp().solve("mosek")
    assert "mosek is installed but has no licence" in failure.value.cause
    assert failure.value.evidence == "no file"
    assert "highs" in failure.value.remedy and "gurobi" not in failure.value.remedy.split("use")[1]
    assert choose(lp(), None)[0].name == "highs"  # present or not, never the default


def test_too_large_is_said_before_solving(monkeypatch: pytest.MonkeyPatch) -> None:
    state = LicenceState("size-limited")
    monkeypatch.setattr(registry, "licence_state", lambda _: state)
    facts = profile("gurobi")

    def refused(problem: Any) -> bool:
        form = compile_problem(problem, "CLARABEL").form
        try:
            registry.refuse_size(facts, registry.compiled_size(form), lambda: ["highs"])
        except of.SizeLimited as e:
            assert "gurobi is limited in size" in e.cause and "highs" in e.remedy
            return True
        return False

    x = cp.Variable(150, name="x")
    ball = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [cp.norm(x) <= 1]))
    assert [refused(p) for p in (lp(2000), lp(2001))] == [False, True]
    assert [refused(p) for p in (lp(3, 1997), lp(3, 1998))] == [False, True]
    assert [refused(p) for p in (qp(200), qp(201))] == [False, True]
    assert refused(ball)  # 150 variables and a cone of 151 rows
    monkeypatch.setattr(registry, "licence_state", lambda _: LicenceState("licensed"))
    assert not refused(lp(2001)) and not refused(qp(201))


def test_the_limits_in_the_file_are_those_of_the_bundled_licence() -> None:
    facts = profile("gurobi")
    if licence_state(facts).word != "size-limited":
        return  # a full licence: there is no limit to meet
    for inside, outside in ((lp(1000, 1000), lp(1000, 1001)), (qp(200), qp(201))):
        assert inside.solve("gurobi").is_optimal(1e-6)
        with pytest.raises(of.SizeLimited, match="limited in size"):
            outside.solve("gurobi")


def test_the_solver_itself_refuses_just_beyond_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    if licence_state(profile("gurobi")).word != "size-limited":
        return
    # without our check the library's own refusal comes back as a failure
    monkeypatch.setattr("optfair.backends.cvxpy_backend.refuse_size", lambda *_: None)
    with pytest.raises(of.SolverFailure):
        qp(201).solve("gurobi")


def test_probing_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    registry._probed.cache_clear()
    assert licence_state(profile("gurobi")).usable
    assert lp().solve("gurobi").is_optimal(1e-6)
    out = capfd.readouterr()
    assert out.out == "" and out.err == ""


@pytest.mark.parametrize("case", [c for c in CASES if not c.startswith("nonconvex")])
def test_the_task_is_the_compiled_form(case: str) -> None:
    """Building needs no licence: the task evaluates its constraints where we do."""
    mosek = importlib.import_module("mosek")
    from optfair.backends.conic_backend import build_task

    problem, _ = CASES[case].build()
    p = of.from_cvxpy(problem)
    assert profile("mosek").accepts(p)
    form = compile_problem(p, "CLARABEL", quadratic=False).form
    assert not form.P.nnz
    x = np.random.default_rng(0).normal(size=form.q.size)
    integer = np.arange(form.q.size) < len(CASES[case].integers)
    with build_task(form, integer) as task:
        kinds = [task.getvartype(j) == mosek.variabletype.type_int for j in range(form.q.size)]
        assert kinds == list(integer)
        task.putxx(mosek.soltype.itr, x)
        assert task.getprimalobj(mosek.soltype.itr) == pytest.approx(form.objective(x))
        slack = form.slack(x)
        for i, cone in enumerate(form.cones):
            ours = slack[cone.start : cone.stop]
            theirs = np.array(task.evaluateacc(mosek.soltype.itr, i))
            kind = str(task.getdomaintype(task.getaccdomain(i))).rpartition(".")[2]
            if cone.kind == "psd":
                lower = cone.matrix(ours).T[np.triu_indices(cone.order)]
                weight = np.where(np.eye(cone.order)[np.triu_indices(cone.order)] > 0, 1, 2**0.5)
                ours = lower * weight
            if cone.kind == "exp":
                ours = ours[::-1]
            assert np.allclose(theirs, ours)
            expected = {
                "zero": "rzero",
                "nonneg": "rplus",
                "soc": "quadratic_cone",
                "psd": "svec_psd_cone",
                "exp": "primal_exp_cone",
                "pow": "primal_power_cone",
            }
            assert kind == expected[cone.kind]


def test_every_option_of_the_file_is_one_the_library_knows() -> None:
    mosek = importlib.import_module("mosek")
    facts = profile("mosek")
    chosen = Request(time_limit=3.0, seed=1, threads=2).solver_options(facts)
    with mosek.Task() as task:
        for name, value in chosen.items():
            task.putparam(name, str(value))
        assert task.getdouparam(mosek.dparam.optimizer_max_time) == pytest.approx(3.0, abs=0.1)
        assert task.getintparam(mosek.iparam.num_threads) == 2
        assert task.getdouparam(mosek.dparam.intpnt_co_tol_rel_gap) == pytest.approx(1e-9)


def test_without_a_licence_there_is_no_result_and_no_crash() -> None:
    if licence_state(profile("mosek")).word != "no licence":
        return
    with pytest.raises(of.NotLicensed, match="has no licence"):
        lp().solve("mosek")


def test_an_unknown_recipe_is_an_error() -> None:
    with pytest.raises(of.OptfairError, match="unknown licence probe 'nonsense'"):
        registry._probed("nonsense", "math", 0)
