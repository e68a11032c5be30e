"""A solver in a process of its own: what it does there does not reach us."""

from __future__ import annotations

import os
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from threadpoolctl import threadpool_info, threadpool_limits

import optfair as of
from optfair.backends import cvxpy_backend as module_of_steps
from optfair.backends import isolation, registry
from optfair.backends import solve as module
from optfair.backends.cvxpy_backend import onto_rows
from optfair.backends.registry import profile
from optfair.backends.request import Request
from optfair.compile.form import compile_problem

STRANGE = """
    import os, time

    class Solver:
        def __init__(self, how):
            self.how = how

        def solve_via_data(self, data, verbose, solver_opts, **more):
            print("what a solver prints")
            if self.how == "crash":
                os.abort()
            if self.how == "leave":
                os._exit(3)
            if self.how == "hang":
                time.sleep(600)
            if self.how == "refuse":
                raise ValueError("no such option: speed")
            return {"info": {"status": "fine"}, "x": data["x"] + 1}

        def invert(self, result, inverse):
            return Answer(result["x"])

    class Answer:
        def __init__(self, x):
            self.x, self.attr = x, {}
"""


@pytest.fixture
def strange(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / "strange_solver.py").write_text(textwrap.dedent(STRANGE), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    isolation.close_idle()  # these know another path
    import strange_solver

    yield strange_solver.Solver
    isolation.close_idle()
    sys.modules.pop("strange_solver")


def ask(interface: Any, seconds: float = 60.0) -> isolation.Answer:
    data = {"x": np.arange(3.0)}
    return isolation.solve_apart(
        interface,
        data,
        None,
        {},
        name="strange",
        log=False,
        seconds=seconds,
        paths=["info.status", "info.none"],
    )


def test_an_answer_comes_back_and_the_process_is_kept(
    strange: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    answer = ask(strange("answer"))
    assert answer.raw.x.tolist() == [1.0, 2.0, 3.0]
    assert answer.reports == {"info.status": "fine", "info.none": None}
    (kept,) = isolation._idle
    ask(strange("answer"))
    assert isolation._idle == [kept]
    assert capfd.readouterr().out == ""


def test_a_crash_is_a_failure_of_that_solver(strange: Any) -> None:
    for how, word in (("crash", "SIGABRT"), ("leave", "exit code 3")):
        with pytest.raises(of.SolverFailure, match="strange ended its process") as e:
            ask(strange(how))
        assert word in e.value.evidence
    assert ask(strange("answer")).raw is not None


def test_a_solver_without_a_clock_is_ended(strange: Any) -> None:
    begin = time.perf_counter()
    assert ask(strange("hang"), 3.0).raw is None
    assert time.perf_counter() - begin < 20.0


def test_what_it_raises_is_raised_here(strange: Any) -> None:
    with pytest.raises(ValueError, match="no such option"):
        ask(strange("refuse"))
    assert len(isolation._idle) == 1


def test_control_c_ends_the_process(strange: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    workers: list[Any] = []
    taken = isolation._idle.taken

    def kept() -> Any:
        workers.append(taken())
        return workers[-1]

    def pressed(self: Any, task: bytes, seconds: float) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(isolation._idle, "taken", kept)
    monkeypatch.setattr(isolation.Worker, "ask", pressed)
    with pytest.raises(KeyboardInterrupt):
        ask(strange("hang"))
    assert not workers[0].alive and not isolation._idle


def quadratic() -> Any:
    x = cp.Variable(4, name="x")
    return of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x - 2)), [cp.sum(x) <= 4, x >= 0]))


@pytest.mark.parametrize("solver", ["piqp", "clarabel", "scs", "osqp"])
def test_answers_are_those_of_our_own_process(solver: str) -> None:
    apart = quadratic().solve(solver, tolerance=1e-5, isolate=True)
    here = quadratic().solve(solver, tolerance=1e-5)
    for name, y in here.multipliers.items():
        assert np.allclose(apart.multipliers[name], y, atol=1e-12)
    assert np.allclose(apart["x"], here["x"], atol=1e-12)


def test_a_time_limit_is_kept_for_it() -> None:
    assert "time_limit" not in profile("piqp").options
    s = quadratic().solve("piqp", time_limit=60.0)
    assert s.solver == "piqp" and s.is_optimal(1e-7)


def test_the_next_solver_is_asked_after_a_crash(
    monkeypatch: pytest.MonkeyPatch, strange: Any
) -> None:
    from optfair.backends import cvxpy_backend

    apart = cvxpy_backend.solve_apart

    def crashes(interface: Any, *rest: Any, **more: Any) -> Any:
        first = more["name"] == "first"
        return apart(strange("crash") if first else interface, *rest, **more)

    first = replace(profile("clarabel"), name="first")
    monkeypatch.setattr(cvxpy_backend, "solve_apart", crashes)
    monkeypatch.setattr(module, "choose", lambda *_: (first, profile("clarabel")))
    s = quadratic().solve(isolate=True)
    assert s.solver == "clarabel" and "ended its process" in s.attempts[0]


def test_processes_serve_threads_at_once() -> None:
    found: list[float] = []
    threads = [
        threading.Thread(
            target=lambda: found.append(quadratic().solve("clarabel", isolate=True).objective)
        )
        for _ in range(2)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert np.allclose(found, 4.0, atol=1e-6) and len(found) == 2
    isolation.close_idle()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_has_workers_of_its_own(strange: Any) -> None:
    quadratic().solve("piqp", isolate=True)
    assert isolation._idle
    child = os.fork()
    if child == 0:
        os._exit(len(isolation._idle))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0 and isolation._idle


@pytest.mark.parametrize("density", [0.001, 0.02])
def test_a_solver_that_looks_at_its_clock_rarely_is_ended_soon_after_its_limit(
    density: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    n, asked = 2_000, []

    def late(*_: Any, seconds: float, **__: Any) -> isolation.Answer:
        asked.append(seconds)
        return isolation.Answer(None, {})

    monkeypatch.setattr("optfair.backends.cvxpy_backend.solve_apart", late)
    A = sp.random_array((n, n), density=density, rng=np.random.default_rng(0), format="csc")
    problem = of.from_arrays(None, np.ones(n), A, l=A @ np.ones(n), u=np.inf, lb=0.0)
    if A.nnz > profile("clarabel").coarse:
        with pytest.raises(of.SolverFailure, match=r"clarabel \(time_limit\): it left no point"):
            problem.solve("clarabel", time_limit=30.0)
        assert asked and 0.0 < max(asked) <= 36.0
    else:  # small steps: it hears its clock, and keeps its point
        assert problem.solve("clarabel", time_limit=30.0).is_optimal(1e-6) and not asked


def test_no_factorisation_moves_a_point_that_is_far_from_its_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    A, tried = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0]]), []
    problem = of.from_arrays(None, np.ones(3), A, l=[1.0, 2.0], u=[1.0, np.inf], lb=0.0)
    form = compile_problem(problem, "CLARABEL").form
    near, splu = np.array([1e-5, 1.0, 1.0]), module_of_steps.spla.splu
    monkeypatch.setattr(
        module_of_steps.spla, "splu", lambda *a, **k: tried.append(1) or splu(*a, **k)
    )
    moved = onto_rows(form, near, 1e-9)
    assert tried and np.abs(A[0] @ moved - 1.0) <= 1e-9
    tried.clear()
    assert onto_rows(form, near + 1.0, 1e-9) is not None and not tried


def test_blocks_that_may_need_more_memory_than_there_is_are_solved_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    apart = module_of_steps.solve_apart

    def noted(*given: Any, name: str, **more: Any) -> Any:
        asked.append(name)
        return apart(*given, name=name, **more)

    monkeypatch.setattr(module_of_steps, "solve_apart", noted)
    X = cp.Variable((2, 2), symmetric=True, name="X")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.trace(X)), [X >> np.diag([1.0, 2.0])]))
    here = p.solve("clarabel")
    assert not asked
    monkeypatch.setattr(module_of_steps, "HEAVY", 1)
    there = p.solve("clarabel")
    assert asked == ["clarabel"]
    assert there.is_optimal(1e-6) and there.objective == pytest.approx(here.objective, abs=1e-7)


def test_one_thread_multiplies_meanwhile() -> None:
    def threads() -> set[int]:
        # what counts threads by OpenMP counts them for each caller
        own = (i for i in threadpool_info() if i.get("threading_layer") == "pthreads")
        return {i["num_threads"] for i in own}

    with threadpool_limits(2, user_api="blas"):
        before = threads()
        with isolation.one_thread():
            assert threads() == {1}
            with isolation.one_thread():
                assert threads() == {1}
            assert threads() == {1}
        assert threads() == before
        with pytest.raises(ValueError), isolation.one_thread():
            raise ValueError
        assert threads() == before
        met: list[set[int]] = []

        def elsewhere() -> None:
            with isolation.one_thread():
                met.append(threads())

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        assert met == [before] and threads() == before


def dense(rows: int = 1_500, columns: int = 3_000) -> Any:
    """A linear program whose first step takes uno minutes, and no signal gets in meanwhile."""
    rng = np.random.default_rng(0)
    A, x = rng.random((rows, columns)), cp.Variable(columns, name="x")
    limits = [A @ x >= A.sum(axis=1), x >= 0, x <= 3]
    return of.from_cvxpy(cp.Problem(cp.Minimize(rng.random(columns) @ x), limits))


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[isolation.Worker]]:
    """Processes that are asked meanwhile."""
    asked: list[isolation.Worker] = []
    taken = isolation._idle.taken

    def noted() -> isolation.Worker:
        asked.append(taken())
        return asked[-1]

    monkeypatch.setattr(isolation._idle, "taken", noted)
    yield asked
    isolation.close_idle()


def test_a_step_that_never_ends_is_ended_with_its_process(workers: list[isolation.Worker]) -> None:
    with pytest.raises(of.SolverFailure, match=r"uno \(time_limit\): it left no point"):
        dense().solve("uno", time_limit=1.5)
    assert workers and not any(w.alive for w in workers)
    s = dense(5, 10).solve("uno", isolate=True, time_limit=100.0)
    assert s.status.termination == "local" and workers[-1].alive


@pytest.mark.parametrize(("solver", "word"), [("uno", "left no point"), ("scs", None)])
def test_control_c_ends_a_step_with_its_process(
    solver: str, word: str | None, workers: list[isolation.Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = isolation.Worker.ask

    def pressed(self: isolation.Worker, message: bytes, seconds: float) -> Any:
        clock = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
        clock.start()
        try:
            return ask(self, message, seconds)
        finally:
            clock.join()

    monkeypatch.setattr(isolation.Worker, "ask", pressed)
    with pytest.raises(KeyboardInterrupt, match=word):
        dense().solve(solver, time_limit=100.0)
    assert workers and not any(w.alive for w in workers) and not isolation._idle
    monkeypatch.setattr(isolation.Worker, "ask", ask)
    s = dense(5, 10).solve(solver, isolate=True, time_limit=100.0, tolerance=1e-5)
    assert s.status.termination in ("local", "optimal") and workers[-1].alive


@pytest.mark.parametrize("solver", ["uno", "scs", "dccp", "qpalm"])
def test_answers_under_a_limit_come_from_a_process_above_a_size(
    solver: str, workers: list[isolation.Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(profile(solver).module)
    problem = dense(6, 12)
    here = problem.solve(solver, tolerance=1e-5, time_limit=100.0)
    assert not workers
    profiles = {**registry.profiles(), solver: replace(profile(solver), coarse=10)}
    monkeypatch.setattr(registry, "profiles", lambda: profiles)
    there = problem.solve(solver, tolerance=1e-5, time_limit=100.0)
    assert workers and there.status == here.status
    assert there.objective == pytest.approx(here.objective, abs=1e-4)
    assert np.allclose(there["x"], here["x"], atol=1e-4)


def test_a_solver_with_a_clock_has_it_in_a_process_as_well() -> None:
    request = Request(isolate=True, time_limit=50.0)
    facts = profile("clarabel")
    assert 0.0 < request.solver_options(facts)["time_limit"] <= 50.0
    assert 50.0 < (request.apart(facts) or 0.0) <= 60.0
    assert "time_limit" not in request.solver_options(profile("piqp"))
    assert request.apart(profile("highs")) is None


@pytest.mark.parametrize("solver", ["highs", "clarabel", "scs", "piqp", "scipy-linprog"])
def test_a_large_program_is_not_handed_over_when_time_is_up(
    solver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    p, small = dense(150, 400), dense(5, 10)
    monkeypatch.setattr(Request, "deadline", property(lambda _: -np.inf))
    monkeypatch.setattr(module_of_steps, "_refuse_magnitude", lambda compiled: None)
    run, facts, asked = (
        registry.adapter_of(profile(solver)),
        profile(solver),
        Request(time_limit=1.0),
    )
    outcome = registry.outcome_of(run, p, facts, asked)
    assert outcome.termination == "time_limit" and not outcome.values and outcome.seconds
    handed = list[int]()
    monkeypatch.setattr(module_of_steps, "_refuse_magnitude", lambda compiled: handed.append(1))
    registry.outcome_of(run, small, facts, asked)
    assert handed
