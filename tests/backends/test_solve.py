"""Choosing, refusing, falling back: what happens around a solve."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.backends import conic_backend
from optfair.backends import registry as registry_of_solvers
from optfair.backends import solve as solving
from optfair.backends.registry import choose, profile, profiles
from optfair.backends.request import Outcome, ReportedBound, Request, SolverProfile
from optfair.compile.form import compile_problem


def lp() -> Any:
    x = cp.Variable(3, name="x")
    return of.from_cvxpy(
        cp.Problem(cp.Minimize(cp.sum(x)), [x >= 1, cp.sum(x) <= 9]), ["low", "high"]
    )


def test_unknown_solver_suggests() -> None:
    with pytest.raises(of.UnsupportedProblem) as failure:
        lp().solve("hihgs")
    assert "unknown solver 'hihgs'" in str(failure.value)
    assert "did you mean 'highs'" in failure.value.remedy
    with pytest.raises(of.UnsupportedProblem, match="lists them all"):
        lp().solve("zzzzzz")


@pytest.mark.parametrize(
    ("name", "classes", "named"),
    [
        ("xpress", "QP and SOCP and MISOCP", ("for MISOCP take scip",)),
        ("CPLEX", "QP and SOCP and MISOCP", ("for QP take clarabel",)),
        ("ecos", "SOCP and CONIC", ("for CONIC take clarabel or scs",)),
        ("GLPK", "LP", ("for LP take highs",)),
        (cp.GLPK_MI, "MILP", ("for MILP take highs or scip",)),
        ("proxqp", "QP", ("for QP take clarabel or piqp",)),
    ],
)
def test_a_solver_of_cvxpy_without_a_profile(
    name: str, classes: str, named: tuple[str, ...]
) -> None:
    with pytest.raises(of.UnsupportedProblem, match=f"no profile of {name!r}") as failure:
        lp().solve(name)
    assert f"for {classes}, but" in failure.value.evidence
    assert all(other in failure.value.remedy for other in named), failure.value.remedy
    assert f"solver={name.upper()!r}" in failure.value.remedy


def test_a_solver_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SolverProfile, "installed", property(lambda self: self.name != "scs"))
    with pytest.raises(of.NotInstalled) as failure:
        lp().solve("scs")
    assert "module 'scs' was not found" in failure.value.evidence
    assert failure.value.remedy == "pip install scs"
    assert lp().solve().solver == "highs"


def test_the_default_does_not_move_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SolverProfile, "installed", property(lambda self: self.name != "highs"))
    with pytest.raises(of.NotInstalled, match="highs is not installed"):
        choose(lp(), None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tolerance": 0.0}, "tolerance"),
        ({"tolerance": 2.0}, "tolerance"),
        ({"time_limit": -1.0}, "time_limit"),
        ({"time_limit": "1"}, "time_limit"),
        ({"time_limit": float("nan")}, "time_limit"),
        ({"threads": 0}, "threads"),
        ({"threads": True}, "threads"),
        ({"seed": "a"}, "seed"),
        ({"seed": -5}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"verbose": 7}, "verbose"),
    ],
)
def test_options_are_checked_before_anything_runs(options: Any, message: str) -> None:
    with pytest.raises(of.DeclarationError, match=message):
        lp().solve(**options)


@pytest.mark.parametrize("verbose", [False, True, np.bool_(False)])
def test_verbose_is_true_or_false_as_well(verbose: Any) -> None:
    assert lp().solve(verbose=verbose).grade.sound


def test_options_a_solver_does_not_have_are_refused() -> None:
    with pytest.raises(of.UnsupportedProblem, match="clarabel has no option for seed"):
        lp().solve("clarabel", seed=3)
    with pytest.raises(of.UnsupportedProblem, match="scs has no option for threads"):
        lp().solve("scs", threads=2)
    with pytest.raises(of.UnsupportedProblem, match="highs does not take these options"):
        lp().solve("highs", options={"no_such_option": 1})
    coupling = of.KantorovichCoupling(cost=np.eye(2))
    with pytest.raises(of.UnsupportedProblem, match="no option for time_limit"):
        coupling.solve("pot-network-simplex", time_limit=1.0)


def test_seed_threads_and_time_limit_reach_the_solver() -> None:
    chosen = Request(seed=7, threads=2, time_limit=5.0).solver_options(profile("highs"))
    assert chosen["random_seed"] == 7 and chosen["threads"] == 2
    numpy = Request(seed=np.int64(7), threads=np.int32(2)).solver_options(profile("highs"))
    assert type(numpy["random_seed"]) is type(numpy["threads"]) is int
    assert 0 < chosen["time_limit"] <= 5.0
    assert chosen["mip_rel_gap"] == pytest.approx(1e-9)
    assert Request(tolerance=1e-11).solver_options(profile("highs"))["mip_rel_gap"] == 1e-10


def test_the_record_says_whether_a_warm_start_was_used() -> None:
    p = of.FairAssignment(np.eye(6), groups=[0, 1, 0, 1, 0, 1], centers=np.eye(6)[:2])
    s = p.solve()
    assert "warm_start" not in s.options
    assert p.solve(warm_start=s).options["warm_start"] == "used"
    assert p.solve("clarabel", warm_start=s).options["warm_start"] == (
        "not used: clarabel starts anew"
    )
    with pytest.raises(of.DeclarationError, match="not a Solution"):
        p.solve(warm_start=3)


def test_life_words_are_timed() -> None:
    s = lp().solve()
    words = ["choose", "import", "compile", "solve", "recover", "verify", "other"]
    assert list(s.seconds) == words
    assert all(v >= 0 for v in s.seconds.values())
    assert s.options["tolerance"] == 1e-7


@pytest.mark.parametrize("solver", [None, "highs", "clarabel", "osqp"])
@pytest.mark.parametrize("exact", [False, True])
def test_the_seconds_add_up(
    solver: str | None, exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a clock that ticks whenever it is read, to the tick."""
    p, ticks = lp(), itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(ticks)))
    begin = time.perf_counter()
    s = p.solve(solver, exact=exact)
    assert sum(s.seconds.values()) == time.perf_counter() - begin - 2.0


def test_what_other_solvers_took_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(problem: Any, asked: SolverProfile, request: Request) -> Outcome:
        time.sleep(0.05)
        raise of.SolverFailure("no")

    monkeypatch.setattr(conic_backend, "run_highspy", fails)
    s = lp().solve()
    assert s.solver == "clarabel" and s.seconds["attempts"] >= 0.05


def test_a_wrong_result_is_rejected_and_the_next_solver_takes_over(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = conic_backend.run_highspy

    def lying(problem: Any, asked: SolverProfile, request: Request) -> Outcome:
        outcome = real(problem, asked, request)
        if asked.name != "highs":
            return outcome
        moved = {k: v + 1e-3 for k, v in outcome.values.items()}
        return Outcome("optimal", moved, outcome.multipliers, outcome.proof, outcome.seconds)

    monkeypatch.setattr(conic_backend, "run_highspy", lying)
    with caplog.at_level(logging.INFO, logger="optfair"):
        s = lp().solve()
    assert s.solver == "clarabel" and s.is_optimal(1e-7)
    assert s.attempts[0].startswith("highs (optimal):") and "differ" in s.attempts[0]
    assert "result rejected" in caplog.text
    with pytest.raises(of.SolverFailure, match="no result passed verification"):
        lp().solve("highs")  # asked for by name: no quiet substitute


def test_status_says_what_we_checked() -> None:
    s = lp().solve()
    assert (s.status.termination, s.status.primal, s.status.dual) == ("optimal",) + (
        "feasible",
    ) * 2
    assert "optimal" in repr(s) and "bound by duality" in str(s.residuals())
    with pytest.raises(of.DeclarationError, match="no value 'y'"):
        s["y"]


def test_a_time_limit_leaves_the_incumbent_of_a_milp() -> None:
    rng = np.random.default_rng(1)
    n = 150  # a gap of 0.005 is left after 15 seconds
    x = cp.Variable(n, name="x")
    W = rng.integers(10, 100, size=(50, n)).astype(float)
    p = of.from_cvxpy(
        cp.Problem(
            cp.Maximize(rng.integers(10, 100, n).astype(float) @ x),
            [W @ x <= W.sum(axis=1) / 3, x >= 0, x <= 1],
        )
    ).with_integrality("x")
    for limit in (0.5, 2.0, 8.0, 32.0):
        try:
            s = p.solve(time_limit=limit)
        except of.SolverFailure:
            continue
        if s.gap < 1:  # a busy machine takes longer to its first good point
            break
    assert s.status.termination == "time_limit"
    assert s.residuals().feasibility <= 1e-7
    assert s.bound >= s.objective and 0 < s.gap < 1
    assert not s.is_optimal(1e-6)


def test_solver_table() -> None:
    table = of.solvers()
    assert {row["solver"] for row in table.to_list()} == set(profiles())
    text = repr(table)
    assert "highs" in text and "mass-assignment" in text and "installed" in text
    # rows for a loop, a notebook and pandas
    assert list(table) == table.to_list() and len(table) == len(profiles())
    assert all(f"<td>{name}</td>" in table._repr_html_() for name in profiles())
    assert list(table.to_frame()["solver"]) == [row["solver"] for row in table]


def test_large_and_small_costs_are_scaled_for_the_solver() -> None:
    x = cp.Variable(2, name="x")
    for size in (1e-9, 1.0, 1e12):
        p = of.from_cvxpy(
            cp.Problem(cp.Minimize(size * (x[0] + 2 * x[1])), [cp.sum(x) == 1, x >= 0]),
            ["one", "up"],
        )
        for solver in ("highs", "clarabel"):
            s = p.solve(solver)
            assert s.objective == pytest.approx(size, rel=1e-6)
            assert float(s.shadow_price["one"]) == pytest.approx(size, rel=1e-5)


def test_verbose_shows_rounds_on_stderr_only(capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2_000, 2))
    p = of.FairAssignment(X, groups=np.arange(2_000) % 2, centers=X[:4])
    p.solve(verbose=2)
    out = capsys.readouterr()
    assert out.out == ""
    assert "mass-dual: round 1" in out.err
    p.solve()
    assert capsys.readouterr().err == ""


def test_interrupting_a_milp_returns_its_incumbent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import _thread

    from optfair.backends import linear_program

    pressed: list[bool] = []

    class PressedAtTheFirstIncumbent(linear_program._Highs):
        def run(self) -> Any:
            def press(event: Any) -> None:
                if not pressed:
                    pressed.append(True)
                    _thread.interrupt_main()  # what Ctrl-C does

            self.cbMipImprovingSolution.subscribe(press)
            return super().run()

    monkeypatch.setattr(linear_program, "_Highs", PressedAtTheFirstIncumbent)
    rng = np.random.default_rng(1)
    n = 150  # a gap of 0.005 is left after 15 seconds
    x = cp.Variable(n, name="x")
    W = rng.integers(10, 100, size=(50, n)).astype(float)
    p = of.from_cvxpy(
        cp.Problem(
            cp.Maximize(rng.integers(10, 100, n).astype(float) @ x),
            [W @ x <= W.sum(axis=1) / 3, x >= 0, x <= 1],
        )
    ).with_integrality("x")
    s = p.solve()
    assert pressed
    assert s.status.termination == "interrupted"
    assert s.residuals().feasibility <= 1e-7
    assert s.bound > s.objective and s.gap > 0
    assert capsys.readouterr().out == ""


def told(
    monkeypatch: pytest.MonkeyPatch, errors: dict[str, Exception]
) -> pytest.ExceptionInfo[of.OptfairError]:
    """Let the solvers of the policy raise these errors, and return what solve raises."""
    from optfair.backends import search
    from optfair.backends import solve as module

    def run(problem: Any, asked: SolverProfile, request: Request) -> Outcome:
        raise errors[asked.name]

    chosen = tuple(profile(name) for name in errors)
    monkeypatch.setattr(module, "choose", lambda problem, solver: chosen)
    monkeypatch.setattr(search, "adapter_of", lambda asked: run)
    monkeypatch.setattr(search, "in_fractions", lambda *_: None)
    with pytest.raises(of.OptfairError) as found:
        lp().solve()
    return found


def test_a_verified_certificate_wins_over_an_earlier_word(monkeypatch: pytest.MonkeyPatch) -> None:
    word = of.SolverFailure("a word", claim="unbounded", claimed_by="highs")
    proved = of.Infeasible("a proof", certificate=object(), conflict=("low",))
    assert told(monkeypatch, {"highs": word, "clarabel": proved}).value is proved
    assert told(monkeypatch, {"highs": word, "clarabel": proved, "scs": word}).value is proved
    ray = of.Unbounded("a ray", ray={"x": np.ones(3)}, certificate=object())
    said = of.SolverFailure("a word", claim="infeasible", claimed_by="highs")
    assert told(monkeypatch, {"highs": said, "clarabel": ray}).value is ray
    # nobody proves it: the first word stands, whatever the last solver says
    last = of.SolverFailure("lost")
    assert told(monkeypatch, {"highs": word, "clarabel": last}).value is word


def test_a_feasible_point_outweighs_the_word_that_there_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from optfair.backends import search
    from optfair.backends import solve as module

    real = conic_backend.run_highspy
    asked_of: list[str] = []

    def run(problem: Any, asked: SolverProfile, request: Request) -> Outcome:
        asked_of.append(asked.name)
        if asked.name != "highs":
            raise of.SolverFailure("no point", claim="infeasible", claimed_by=asked.name)
        outcome = real(problem, asked, request)
        inside = {k: v + 0.5 for k, v in outcome.values.items()}  # feasible, not optimal
        return Outcome("inaccurate", inside, {}, None, outcome.seconds)

    chosen = tuple(profile(name) for name in ("highs", "clarabel", "scs", "pdlp"))
    monkeypatch.setattr(module, "choose", lambda problem, solver: chosen)
    monkeypatch.setattr(search, "adapter_of", lambda asked: run)
    monkeypatch.setattr(search, "in_fractions", lambda *_: None)
    with pytest.raises(of.SolverFailure, match="no result passed verification") as found:
        lp().solve()
    assert found.value.claim == "" and found.value.solution.solver == "highs"
    assert asked_of[-1] == "pdlp"  # two words do not end the search
    assert any("no point" in reason for reason in found.value.evidence.split(" | "))


def test_the_default_says_why_when_every_solver_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = of.UnsupportedProblem("no such option"), of.UnsupportedProblem("nor here")
    assert told(monkeypatch, {"highs": first, "clarabel": second}).value is first
    failed = told(monkeypatch, {"highs": of.SolverFailure("lost"), "clarabel": second}).value
    assert "highs: lost | clarabel: nor here" in failed.evidence
    alone = of.SolverFailure("lost")
    assert told(monkeypatch, {"highs": alone}).value is alone


def test_unbounded_is_not_claimed_without_a_feasible_point() -> None:
    from optfair.backends.cvxpy_backend import run_generic
    from optfair.backends.request import RawPoint

    def word(compiled: Any, scale: float, options: Any, log: bool) -> RawPoint:
        return RawPoint("unbounded" if compiled.form.q.any() else "failed")

    x = cp.Variable(3, name="x")
    # empty, but by less than a solver sees: a ray without a point proves nothing
    rows = [x >= 1, x[0] <= x[1], x[1] <= x[0] - 1e-12]
    p = of.from_cvxpy(cp.Problem(cp.Maximize(cp.sum(x)), rows), ["low", "one", "other"])
    with pytest.raises(of.SolverFailure, match="which is not proved") as found:
        run_generic(p, profile("highs"), Request(), word)
    assert (found.value.claim, found.value.claimed_by) == ("unbounded", "highs")


@pytest.mark.parametrize("solver", ["highs", "clarabel", None])
def test_an_objective_without_constraints_is_unbounded(solver: str | None) -> None:
    x = cp.Variable(2, name="x")
    with pytest.raises(of.Unbounded, match="improves without limit"):
        of.from_cvxpy(cp.Problem(cp.Minimize(x[0] - x[1]))).solve(solver)


@pytest.mark.parametrize("solver", [None, "highs", "clarabel", "scs", "piqp"])
@pytest.mark.parametrize("seed", range(4))
def test_rows_and_columns_may_be_in_any_units(solver: str | None, seed: int) -> None:
    """The optimum is that of the numbers before they are multiplied by powers of ten."""
    rng = np.random.default_rng(seed)
    A = rng.integers(1, 5, (4, 5)).astype(float)
    x, y = rng.integers(1, 6, 5).astype(float), rng.integers(1, 6, 4).astype(float)
    b, c = A @ x, A.T @ y
    rows, columns = 10.0 ** rng.integers(-9, 10, 4), 10.0 ** rng.integers(-9, 10, 5)
    z = cp.Variable(5, name="z")
    lp = cp.Problem(
        cp.Maximize((c * columns) @ z), [(rows[:, None] * A * columns) @ z <= rows * b, z >= 0]
    )
    s = of.from_cvxpy(lp, ["rows", "sign"]).solve(solver, tolerance=1e-6)
    assert s.objective == pytest.approx(y @ b, rel=1e-6)
    assert np.allclose(s.multipliers["rows"] * rows, y, atol=1e-4 * y.max())


def test_cones_keep_one_unit_each() -> None:
    """Entries of a cone are multiplied alike: the scaled cone is the cone."""
    x = cp.Variable(3, name="x")
    far = [cp.norm(1e9 * x[:2]) <= 3e9, 1e-8 * x[2] <= 2e-8, x >= -5]
    p = of.from_cvxpy(cp.Problem(cp.Maximize(x[0] + x[2]), far), ["ball", "up", "low"])
    form = compile_problem(p, "CLARABEL").form
    assert form.units is not None
    rows, columns = form.units
    for c in form.cones:
        if c.kind not in ("zero", "nonneg"):
            assert np.unique(rows[c.start : c.stop]).size == 1
    scaled = form.in_units(rows, columns)
    at = np.linspace(1.0, 2.0, columns.size)
    assert np.allclose(scaled.slack(at / columns), form.slack(at) * rows)
    s = p.solve("clarabel")
    assert s.objective == pytest.approx(5.0, rel=1e-6) and s.certificate.verify()


def test_exponentials_keep_their_units() -> None:
    x = cp.Variable(2, name="x")
    rows = [1e-8 * x[1] <= 2e-8, cp.exp(x[1]) <= 1e7 * x[0], x[0] <= 3, x >= -5]
    p = of.from_cvxpy(cp.Problem(cp.Maximize(cp.sum(x)), rows))
    rows, _ = compile_problem(p, "CLARABEL").form.units
    for cone in compile_problem(p, "CLARABEL").form.cones:
        if cone.kind == "exp":
            assert np.unique(rows[cone.start : cone.stop]).size == 1  # a cone has one unit
    assert p.solve().objective == pytest.approx(5.0, rel=1e-6)


def test_numbers_that_crash_solvers_do_not_reach_them() -> None:
    """Integer columns keep their units, so what is huge in them stays huge."""
    x = cp.Variable(3, name="x")
    rows = [1e23 * x[0] + x[1] >= 1, cp.sum(x) <= 5, x >= 0]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), rows), ["cover", "most", "sign"])
    with pytest.raises(of.UnsupportedProblem, match="'cover' are beyond what solvers") as e:
        p.with_integrality("x").solve("highs")
    assert "coefficient of size 1.0e+23" in e.value.evidence
    assert p.with_integrality("x").solve().objective == pytest.approx(1.0)  # by somebody else
    costly = of.from_cvxpy(cp.Problem(cp.Minimize(1e23 * x[0]), [x >= 1, x <= 4]))
    with pytest.raises(of.UnsupportedProblem, match="'objective' are beyond"):
        costly.with_integrality("x").solve("highs")
    with pytest.raises(of.SolverFailure, match="no result passed") as failed:
        costly.with_integrality("x").solve()
    assert "'objective' are beyond" in failed.value.evidence
    assert "1.0e+23 is no optimum" in failed.value.evidence


def test_a_value_beyond_the_limit_of_optima_is_refused_with_it_and_a_remedy() -> None:
    x = cp.Variable(name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.square(x - 1e8)), [x <= 5e7]))
    with pytest.raises(of.SolverFailure) as failed:
        p.solve()
    assert "2.5e+15 is no optimum: numbers from 1e+15 on count as none" in failed.value.evidence
    assert "in other units, in which values are below 1e+15" in failed.value.remedy
    assert failed.value.solution is not None
    assert failed.value.solution.objective == pytest.approx(2.5e15)
    smaller = cp.Minimize(cp.square(1e-3 * x - 1e5))
    s = of.from_cvxpy(cp.Problem(smaller, [x <= 5e7])).solve()
    assert s.objective == pytest.approx(2.5e9) and s.is_optimal(1e-6)


@pytest.mark.parametrize("solver", [None, "highs", "clarabel"])
def test_a_unit_is_no_size(solver: str | None) -> None:
    x = cp.Variable(3, name="x")
    rows = [1e23 * x >= 1e23, x <= 5]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), rows), ["one", "up"])
    assert p.solve(solver, tolerance=1e-5).objective == pytest.approx(3.0, rel=1e-4)


@pytest.mark.parametrize("unit", [1e-50, 1e-12, 1e-10])
def test_an_infeasible_program_in_tiny_units_has_no_optimum(unit: float) -> None:
    """No tolerance of a solver tells these sides from 0; in fractions they exclude each other."""
    x = cp.Variable(2, name="x")
    rows = [x[0] <= unit, cp.sum(x) >= 3 * unit, x[1] <= unit, x >= 0]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), rows), ["a", "b", "c", "d"])
    with pytest.raises(of.Infeasible) as caught:
        p.solve()
    assert caught.value.conflict == ("a", "b", "c") and caught.value.certificate.verify()
    s = p.without("c").solve()
    assert s.objective == pytest.approx(3 * unit, rel=1e-9, abs=0.0) and s.grade.sound


def test_a_large_coefficient_beside_a_binary_does_not_stand_for_it() -> None:
    """x <= 1e7 y lets a y of 1e-10 pass for 0: rounded it leaves no point, and the solver is asked anew."""
    x, y = cp.Variable(name="x"), cp.Variable(name="y", boolean=True)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(y), [x <= 1e7 * y, x >= 1e-3, x <= 1]))
    s = p.solve()
    assert s.objective == 1.0 and s.residuals().feasibility <= 1e-9
    assert s.certificate.prove().verify()


def test_the_largest_semidefinite_programs_are_asked_of_one_solver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X = cp.Variable((2, 2), symmetric=True, name="X")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.trace(X)), [X >> np.eye(2)]))
    asked = {}
    for order in (1999.0, 2000.0):
        monkeypatch.setattr(registry_of_solvers, "_order", lambda problem, order=order: order)
        asked[order] = [c.name for c in choose(p, None)]
    assert asked == {1999.0: ["psd-blocks", "scs"], 2000.0: ["psd-blocks"]}


def test_a_better_point_of_an_earlier_solver_is_returned_when_time_is_over() -> None:
    """Cases are asked for a share of the time, and know a bound; the next has a worse point by then."""
    r = np.random.default_rng(1)
    x, z = cp.Variable(12, name="x"), cp.Variable(15, name="z", boolean=True)
    A, B, t = r.normal(size=(20, 12)), r.normal(size=(20, 15)), 3 * r.normal(size=20)
    rows = [x <= 100 * z[:12], x >= -100 * z[:12], cp.sum(z) <= 7, x <= 10, x >= -10]
    s = of.from_cvxpy(cp.Problem(cp.Minimize(cp.norm(A @ x + B @ z - t)), rows)).solve(time_limit=1)
    assert s.status.termination == "time_limit" and s.grade.word == "proved"
    assert 5.0 < s.bound < s.objective < 7.5


@pytest.mark.parametrize("better", [True, False])
def test_a_point_that_is_known_denies_the_word_for_a_worse_one(
    monkeypatch: pytest.MonkeyPatch, better: bool
) -> None:
    from optfair.backends import search

    z = cp.Variable(name="z", integer=True)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.square(z)), [z >= 2]))

    def run(problem: Any, asked: SolverProfile, request: Request) -> Outcome:
        if asked.name == "cone-cases":
            return Outcome("inaccurate", {"z": np.array(2.0 if better else 4.0)}, {}, None, {})
        word = ReportedBound(problem, 9.0, asked.name)
        return Outcome("optimal", {"z": np.array(3.0)}, {}, word, {})

    monkeypatch.setattr(search, "adapter_of", lambda asked: run)
    if better:
        with pytest.raises(of.SolverFailure, match="no result passed") as refused:
            p.solve()
        assert refused.value.solution["z"] == 2.0
        assert "scip (optimal): a point of 4 is known" in refused.value.evidence
    else:
        s = p.solve()
        assert s["z"] == 3.0 and str(s.grade) == "reported by scip"


def test_what_is_lost_in_a_large_number_is_not_optimal_elsewhere() -> None:
    """At z = 10^12 the norm is 1.04; scip calls some 10^12 the optimum."""
    x, z = cp.Variable(name="x"), cp.Variable(name="z", integer=True)
    cost = cp.norm(cp.hstack([z - 1e12 - 0.3, x]))
    with pytest.raises(of.SolverFailure) as refused:
        of.from_cvxpy(cp.Problem(cp.Minimize(cost), [x >= 1])).solve()
    assert refused.value.solution.objective < 1.05


def test_an_answer_on_a_solvers_word_does_not_hurry_one_with_a_proof(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process of its own, which one without a clock needs, may take seconds to begin."""
    from optfair.backends import search
    from optfair.backends import solve as module

    real, given = conic_backend.run_highspy, list[float]()

    def run(problem: Any, asked: SolverProfile, request: Request) -> Outcome:
        outcome = real(problem, profile("highs"), replace(request, time_limit=None))
        if asked.name == "pdlp":
            return replace(outcome, proof=ReportedBound(problem, 3.0, asked.name), multipliers={})
        given.append(request.seconds_left)
        return outcome

    chosen = tuple(profile(name) for name in ("pdlp", "highs"))
    monkeypatch.setattr(module, "choose", lambda problem, solver: chosen)
    monkeypatch.setattr(search, "adapter_of", lambda asked: run)
    s = lp().solve()
    assert (s.solver, s.grade.word) == ("highs", "proved")
    assert [9.0 < left <= 10.0 for left in given] == [True]


def test_a_verbose_call_says_who_is_asked_and_what_came_of_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    x = cp.Variable(2, name="x", integer=True)
    p = of.from_cvxpy(cp.Problem(cp.Maximize([2, 1] @ x), [x >= 0, [3, 2] @ x <= 8]))
    p.solve(verbose=True)
    first, last = capsys.readouterr().err.splitlines()
    assert first.endswith("s  highs is asked") and "highs: optimal, 5, reported by highs" in last
    p.solve()
    assert capsys.readouterr().err == ""
    with pytest.raises(of.SolverFailure):
        p.solve("highs", verbose=1, options={"mip_max_nodes": 0, "mip_rel_gap": 0.9})
    assert "highs is asked" in capsys.readouterr().err


def test_a_limit_of_its_own_is_said_beside_a_time_limit() -> None:
    p = of.library.load("textbook/diet_salt").problem()
    for limit in (None, 1000.0):
        with pytest.raises(of.SolverFailure, match="limit of its own"):
            p.solve("osqp", options={"max_iter": 10}, time_limit=limit)


def test_a_limit_of_nodes_is_no_limit_of_time() -> None:
    rng = np.random.default_rng(0)
    x = cp.Variable(30, name="x", boolean=True)
    weights = rng.integers(20, 90, (5, 30))
    rows = [weights @ x <= weights.sum(axis=1) // 2]
    p = of.from_cvxpy(cp.Problem(cp.Maximize(rng.integers(20, 90, 30) @ x), rows))
    s = p.solve("highs", options={"mip_max_nodes": 1}, time_limit=1000.0)
    assert s.status.termination == "solver_limit" and s.gap > 1e-6


@pytest.mark.parametrize(
    ("solver", "option"), [("highs", "mip_rel_gap"), ("cp-sat", "relative_gap_limit")]
)
def test_a_large_tolerance_is_the_gap_that_branching_stops_at(solver: str, option: str) -> None:
    chosen = Request(tolerance=0.02).solver_options(profile(solver))
    assert chosen[option] == pytest.approx(0.018)
    assert min(v for v in chosen.values() if isinstance(v, float)) <= 2e-6  # rows are held closer
    assert Request(tolerance=1e-6).solver_options(profile(solver))[option] == pytest.approx(1e-8)


def test_a_gap_among_the_options_says_which_tolerance_it_needs() -> None:
    rng = np.random.default_rng(0)
    x = cp.Variable(40, boolean=True, name="x")
    rows = [rng.uniform(1, 10, (6, 40)) @ x <= 60]
    p = of.from_cvxpy(cp.Problem(cp.Maximize(rng.uniform(1, 10, 40) @ x), rows))
    with pytest.raises(of.SolverFailure) as failure:
        p.solve(options={"mip_rel_gap": 0.2})
    error = failure.value
    assert f"a tolerance above its gap of {error.solution.gap:.1e}" in str(error.remedy)
    assert str(error.evidence).count("highs (optimal)") == 1  # what is said twice is said once
    assert p.solve(tolerance=0.02).gap <= 0.02


def test_a_basis_in_fractions_is_asked_for_in_what_is_left_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = list[float | None]()

    def exactly(solution: of.Solution, left: float | None) -> of.Solution:
        seen.append(left)
        return solution

    monkeypatch.setattr(solving, "exactly", exactly)
    for limit in (None, 1000.0):
        lp().solve(exact=True, time_limit=limit)
    assert seen[0] is None and seen[1] is not None and 1.0 < seen[1] < 1000.0


def test_what_was_adopted_is_written_back_where_that_is_asked_for() -> None:
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= 1]))
    p.solve()
    assert x.value is None
    s = p.solve(write_back=True)
    assert x.value is not None and np.array_equal(x.value, s["x"])
    declared = of.FairAssignment(np.eye(4), groups=[0, 1, 0, 1], centers=np.eye(4)[:2])
    with pytest.raises(of.DeclarationError, match="nothing to write back"):
        declared.solve(write_back=True)


def test_nobody_is_asked_where_a_parameter_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    x, level = cp.Variable(name="x"), cp.Parameter(name="level", value=1.0)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x), [x >= level]))
    level.value = 2.0
    monkeypatch.setattr(solving, "Search", None)
    with pytest.raises(of.DeclarationError, match="parameter 'level'"):
        solving.solve_as_asked(p, None, Request())


@pytest.mark.parametrize("general", [True, False])
def test_solvers_beside_structured_routes_multiply_by_one_thread(
    monkeypatch: pytest.MonkeyPatch, general: bool
) -> None:
    seen = list[str]()

    @contextmanager
    def calm() -> Iterator[None]:
        seen.append("one thread")
        yield
        seen.append("as many as before")

    search = SimpleNamespace(general=general, run=lambda: seen.append("search"))
    monkeypatch.setattr(solving, "one_thread", calm)
    monkeypatch.setattr(solving, "Search", lambda *_, **__: search)
    solving.solve_as_asked(lp(), None, Request())
    assert seen == (["one thread", "search", "as many as before"] if general else ["search"])
