"""Whom a search asks, with what is left of the time; the solvers answer what each test says."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.backends import search as module
from optfair.backends.registry import profile
from optfair.backends.request import Outcome, ReportedBound, Request, Retry, SolverProfile
from optfair.proofs.effort import HASTE
from optfair.solution.residuals import Residuals

X = cp.Variable(2, name="x")
LP = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(X)), [X >= 1, X <= 9]))
WHOLE = LP.with_integrality("x")
QP = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(X)), [X >= 1, X <= 9]))


@dataclass
class Clock:
    """What stands still unless somebody takes time."""

    now: float = 100.0
    asked: list[tuple[str, Request]] = field(default_factory=list)

    def search(
        self,
        problem: Any = LP,
        names: tuple[str, ...] = ("first",),
        *,
        limit: float | None = None,
        named: bool = False,
        retry: tuple[Retry, ...] = (),
        took: float = 0.0,
    ) -> module.Search:
        who = tuple(replace(profile("clarabel"), name=n, retry=retry) for n in names)
        request = Request(time_limit=limit, started=self.now)
        return module.Search(problem, request, who, self.now - took, named=named)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "perf_counter", lambda: made.now)
    return made


@pytest.fixture
def says(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """What every solver does once it is asked."""

    def use(answer: Callable[[], Outcome]) -> None:
        def run(problem: Any, solver: SolverProfile, request: Request) -> Outcome:
            clock.asked.append((solver.name, request))
            return answer()

        monkeypatch.setattr(module, "adapter_of", lambda _: run)
        monkeypatch.setattr(module, "in_fractions", lambda *_: None)

    return use


def fails(clock: Clock, seconds: float = 0.0, claim: str = "") -> Callable[[], Outcome]:
    def answer() -> Outcome:
        clock.now += seconds
        raise of.SolverFailure("no", claim=claim, claimed_by="it" if claim else "")

    return answer


def test_the_last_who_is_asked_has_all_the_time_and_each_is_told(
    clock: Clock, says: Any, caplog: pytest.LogCaptureFixture
) -> None:
    says(fails(clock, 1.0))
    search = clock.search(names=("first", "second", "third"), limit=100.0, took=2.0)
    with caplog.at_level(logging.INFO, logger="optfair"), pytest.raises(of.SolverFailure):
        search.run()
    assert [round(r.time_limit or 0.0, 9) for _, r in clock.asked] == [60.0, 60.4, 100.0]
    assert [r.getMessage() for r in caplog.records] == [
        f"{name} is asked" for name in ("first", "second", "third")
    ]
    # what was spent before the last was asked, each second once
    assert search.spent == {"choose": 2.0, "import": 0.0, "compile": 0.0, "attempts": 2.0}


def test_two_who_claim_the_same_are_enough(clock: Clock, says: Any) -> None:
    says(fails(clock, claim="infeasible"))
    with pytest.raises(of.SolverFailure) as word:
        clock.search(names=("first", "second", "third")).run()
    assert word.value.claim == "infeasible"
    assert [name for name, _ in clock.asked] == ["first", "second"]
    # beside an answer a claim ends nothing
    search = clock.search(QP, ("fourth", "fifth"))
    search.answer = SimpleNamespace(  # type: ignore[assignment]
        grade=SimpleNamespace(sound=False, word="reported"),
        status=SimpleNamespace(termination="optimal"),
        seconds={},
    )
    assert [search._ask_for_more(who, 1) for who in search.candidates] == [False, True]


def test_only_who_compiled_is_asked_again_where_there_is_no_time_to_compile(
    clock: Clock, says: Any
) -> None:
    def answer() -> Outcome:
        clock.now += 2.5
        return Outcome("inaccurate", {"x": np.zeros(2)}, {}, None, {"compile": 6.0})

    says(answer)
    with pytest.raises(of.SolverFailure):
        clock.search(names=("first", "second"), limit=10.0, retry=(Retry("more"),)).run()
    assert [name for name, _ in clock.asked] == ["first", "first"]


@pytest.mark.parametrize(
    ("limit", "gone", "named", "looked"),
    [
        (None, 0.0, False, True),
        (None, 0.0, True, False),
        (5.0, 4.0, False, True),
        (5.0, 5.0, False, False),
    ],
)
def test_faces_are_looked_at_before_and_after_unless_a_solver_is_named(
    *,
    clock: Clock,
    says: Any,
    monkeypatch: pytest.MonkeyPatch,
    limit: float | None,
    gone: float,
    named: bool,
    looked: bool,
) -> None:
    seen = list[str]()

    def excluded(_: Any, *, plain: bool = False) -> None:
        seen.append("plain" if plain else f"after {len(clock.asked)}")

    monkeypatch.setattr(module, "edged", lambda *_: True)
    monkeypatch.setattr(module, "excluded_by_faces", excluded)
    says(fails(clock))
    search = clock.search(limit=limit, named=named)
    clock.now += gone
    with pytest.raises(of.SolverFailure):
        search.run()
    assert seen == (["plain", "after 1"] if looked else []) and len(clock.asked) == 1


@pytest.mark.parametrize(("limit", "left"), [(None, module.TREE_SECONDS), (0.5, 0.5), (50.0, 5.0)])
def test_a_claim_about_integers_is_looked_at_by_cases_for_a_while(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, limit: float | None, left: float
) -> None:
    seen = list[float]()
    monkeypatch.setattr(module, "without_a_point", lambda _p, seconds, _n: seen.append(seconds))
    search = clock.search(WHOLE, limit=limit)
    assert search._excluded() is None and not seen  # nobody claims it
    search.claims = [of.SolverFailure("no", claim="infeasible", claimed_by="it")]
    search._excluded()
    assert seen == [left]
    clock.now += 50.0
    search._excluded()
    assert seen == [left] + [5.0] * (limit is None)


@pytest.mark.parametrize(
    ("problem", "named", "first", "enough", "asked"),
    [
        (QP, False, True, False, True),
        (QP, False, False, True, True),
        (QP, False, False, False, False),
        (QP, True, True, True, False),
        (WHOLE, False, True, True, False),
    ],
)
def test_faces_are_solved_on_after_the_first_and_the_last_answer(
    *,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    problem: Any,
    named: bool,
    first: bool,
    enough: bool,
    asked: bool,
) -> None:
    seen = list[Any]()
    monkeypatch.setattr(module, "on_its_face", lambda *_: seen.append(0))
    monkeypatch.setattr(module.Search, "_enough", lambda _: enough)
    assert clock.search(problem, named=named)._restated(first) == (enough and asked)
    assert len(seen) == asked


def left_by(x: float, *, sound: bool = True, compiled: bool = False) -> Any:
    form = SimpleNamespace(polyhedral=True, A=SimpleNamespace(nnz=4))
    return SimpleNamespace(
        proof=SimpleNamespace(compiled=SimpleNamespace(form=form)) if compiled else None,
        grade=SimpleNamespace(sound=sound, word="proved" if sound else "reported"),
        values={"x": np.array([x, 0.0])},
        objective=x,
        attained=True,
    )


def test_a_basis_is_solved_in_what_is_left_of_the_time(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[float]()
    monkeypatch.setattr(module, "basic", lambda _s, seconds, _t: seen.append(seconds))
    answer = left_by(3.0, compiled=True)
    clock.search()._prove(answer)
    search = clock.search(limit=4.0)
    search._prove(answer)
    clock.now += 4.0
    search._prove(answer)
    assert seen == [module.BASIS_SECONDS, 4.0]


def test_an_objective_near_0_may_have_0_for_a_limit(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[float]()
    monkeypatch.setattr(module.Search, "_far_out", lambda _, s: seen.append(s.objective))
    unit = LP.objective_unit
    for share in (0.0, 0.9, -0.9, 1.1):
        clock.search()._prove(left_by(share * unit * module.CLOSE, sound=False))
    clock.search()._prove(left_by(0.0))  # it is proved
    clock.search(named=True)._prove(left_by(0.0, sound=False))
    assert np.divide(seen, unit * module.CLOSE) == pytest.approx([0.0, 0.9, -0.9])


@pytest.mark.parametrize(("word", "again"), [("proved", False), ("reported", True), ("", True)])
def test_what_is_proved_in_haste_is_proved_at_length_at_once(
    clock: Clock, says: Any, monkeypatch: pytest.MonkeyPatch, word: str, again: bool
) -> None:
    judged = list[bool]()

    def judge(*_: Any, **__: Any) -> Any:
        haste = HASTE.get()
        judged.append(haste is not None)
        if haste is not None:
            haste.left_out = True
        grade = SimpleNamespace(word=word)
        return SimpleNamespace(grade=grade, hasty=haste is not None) if word else None

    monkeypatch.setattr(module.Search, "_judged", judge)
    monkeypatch.setattr(module, "_quadratic", lambda _: True)
    says(lambda: Outcome("optimal", {}, {}, None, {}))
    search = clock.search(QP, retry=(Retry("more"),))
    search.asked = 1
    found: Any = search._ask(search.candidates[0], search.request, 0)
    assert judged == [True] + [False] * (not again) and (search.again is not None) == again
    assert found is None if again else not found.hasty


@pytest.mark.parametrize(
    ("limit", "solved", "word"),
    [
        (1000.0, 1.0, "solver_limit"),
        (1000.0, 900.0, "time_limit"),
        (None, 1.0, ""),
    ],
)
def test_a_feasible_point_of_a_limit_is_kept_where_there_is_a_limit(
    clock: Clock, limit: float | None, solved: float, word: str
) -> None:
    bound = ReportedBound(WHOLE, 2.0, "first")
    outcome = Outcome("time_limit", {"x": np.full(2, 5.0)}, {}, bound, {"solve": solved})
    request = Request(time_limit=limit, started=clock.now)
    clock.now += solved
    who = clock.search(WHOLE).candidates[0]
    solution, _, complaints = module._verified(WHOLE, who, request, outcome, {}, ())
    assert solution.status.primal == "feasible" and bool(complaints) == (not word)
    if word:
        assert solution.status.termination == word
    else:
        assert complaints[0] == "it stopped at a limit of its own before it was done"


@pytest.mark.parametrize(
    ("problem", "rows", "passes"),
    [(LP, 1.0, True), (LP, 1e-5, True), (WHOLE, 1e-5, True), (WHOLE, 1e-2, False)],
)
def test_a_solvers_measure_is_none_of_rows_far_off_beside_integers(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, problem: Any, rows: float, passes: bool
) -> None:
    fine = Residuals({"sum": 0.0}, 0.0, 0.0, 0.0, 0.0, 0.0, "duality")
    off = replace(fine, primal={"sum": 1e-3}, rows=rows)
    measured = SimpleNamespace(
        **dict.fromkeys(("objective", "bound", "word"), 2.0),
        unit=1.0,
        against=lambda *_, loose=False: fine if loose else off,
    )
    monkeypatch.setattr(module, "measure", lambda *_: measured)
    outcome = Outcome("optimal", {"x": np.ones(2)}, {}, None, {})
    search = clock.search(problem)
    who, request = search.candidates[0], search.request
    solution, _, complaints = module._verified(problem, who, request, outcome, {}, ())
    assert bool(complaints) != passes
    assert (solution.grade.word == "reported") == passes


def test_small_linear_programs_are_settled_in_fractions_where_no_answer_holds(
    clock: Clock, says: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle, seconds = module.in_fractions, list[float]()
    x = cp.Variable(2, name="x")
    goal = cp.Minimize(x[0] + 3 * x[1])

    def asked(rows: list[Any], claim: str = "", **options: Any) -> Any:
        says(fails(clock, 1.0, claim))
        monkeypatch.setattr(
            module, "in_fractions", lambda *a: (seconds.append(a[1]), settle(*a))[1]
        )
        return clock.search(of.from_cvxpy(cp.Problem(goal, rows)), **options).run()

    s = asked([0.1 * x[0] + 0.3 * x[1] >= 0.7, x >= 0], claim="unbounded")
    assert s.exact.verify() and s.grade.word == "proved" and s.attempts[-1] == module.PIVOTS
    assert s.objective == pytest.approx(7.0)
    crossed = [x[0] - x[1] >= 0.3, 3 * x[0] - 3 * x[1] <= 0.8]
    with pytest.raises(of.Infeasible) as none:
        asked(crossed, claim="unbounded")
    assert none.value.certificate.verify() and none.value.conflict == ("c0", "c1")
    with pytest.raises(of.Unbounded) as fall:
        asked([x[0] - x[1] <= 1], claim="infeasible")
    assert fall.value.certificate.verify()
    assert seconds == [module.TREE_SECONDS] * 3
    for options in (
        {"named": True, "claim": "unbounded"},
        {"limit": 1.0, "claim": "unbounded"},
        {},
    ):
        with pytest.raises(of.SolverFailure):
            asked(crossed, **options)
    assert len(seconds) == 3


def test_rows_that_contradict_each_other_in_their_last_digits_do_not_exclude_a_point_near_them(
    clock: Clock, says: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle = module.in_fractions
    x = cp.Variable(2, name="x")
    rows = [x[0] + x[1] == 0.3, 3 * x[0] + 3 * x[1] == 0.9]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x[0]), [*rows, x >= 0]))
    with pytest.raises(of.Infeasible):
        settle(p, 5.0)
    says(lambda: Outcome("inaccurate", {"x": np.array([0.1, 0.2])}, {}, None, {}))
    monkeypatch.setattr(module, "in_fractions", settle)
    with pytest.raises(of.SolverFailure):
        clock.search(p).run()
