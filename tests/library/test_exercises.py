"""Exercises: their optima are proved, their own model passes, and what is wrong with others is said."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from typer.testing import CliRunner

import optfair as of
from optfair.cli.app import app
from optfair.library.exercise import (
    Exercise,
    chords_agree,
    exercise,
    exercise_names,
    mark,
    questions,
)

NAMES = exercise_names()


def run(*words: object) -> Any:
    return CliRunner().invoke(app, [str(w) for w in words])


def right_prices(task: Exercise) -> dict[str, Any]:
    s = task.problem().solve(tolerance=1e-8)
    return {name: s.shadow_price[name] for name in task.prices}


def test_there_are_enough_and_they_are_no_instances() -> None:
    assert len(NAMES) >= 30
    assert not any("exercises" in name for name in of.library.names())
    classes = {exercise(name).problem_class for name in NAMES}
    assert {"LP", "QP", "QCQP", "SOCP", "SDP", "CONIC(exp)", "MILP"} <= classes


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", NAMES)
def test_the_optimum_is_proved_and_the_model_is_its_own_answer(name: str) -> None:
    task = exercise(name)
    p = task.problem()
    s = p.solve(tolerance=1e-7)
    assert s.objective == pytest.approx(task.optimum, rel=1e-6, abs=1e-8)
    assert s.grade.sound or p.integers
    assert str(p.problem_class) == task.problem_class
    assert len(task.hints) >= 2 and len(task.task) > 60 and "own data" in task.source
    # a book and a chapter: numbers of exercises and sections differ between printings
    assert re.search(r"\(\d{4}\), chapters? \d+", task.source)
    assert not re.search(r"exercise|section|example|\d\.\d", task.source)
    shown = run("exercise", name).stdout + run("exercise", name, "--json").stdout
    assert f"{task.optimum:.8g}" not in shown or abs(task.optimum) < 1000
    answer = {"problem": p, "prices": right_prices(task)}
    assert mark(task, answer), mark(task, answer)
    values = {k: s[k] for k in p.variables}
    assert mark(task, {"values": values, "prices": right_prices(task)})


@pytest.mark.parametrize(
    "name",
    [n if i % 5 == 0 else pytest.param(n, marks=pytest.mark.slow) for i, n in enumerate(NAMES)],
)
def test_a_dropped_or_tightened_constraint_and_a_wrong_price_are_told(name: str) -> None:
    task = exercise(name)
    p = task.problem()
    best = p.solve(tolerance=1e-8)
    for gone in p.constraints:
        q = p.without(gone)
        try:
            free = abs(q.solve().objective - best.objective) < 1e-4 * max(1.0, abs(best.objective))
        except of.Unbounded:
            free = False
        except of.OptfairError:
            continue
        got = mark(task, {"problem": q, "prices": right_prices(task)})
        assert bool(got) == free, (gone, str(got))
    for wrong in task.prices:
        prices = {**right_prices(task), wrong: -right_prices(task)[wrong]}
        steps = mark(task, {"problem": p, "prices": prices}).steps
        assert [s.what for s in steps if not s.ok] == [f"the price of {wrong!r}"]
        assert "sign is turned" in steps[[s.ok for s in steps].index(False)].detail


def machines(goal: str = "45*x[0] + 80*x[1]", *more: Any, sense: Any = cp.Maximize) -> Any:
    x = cp.Variable(2, name="x", nonneg=True)
    limits = [5 * x[0] + 20 * x[1] <= 400, 10 * x[0] + 15 * x[1] <= 450]
    return cp.Problem(sense(eval(goal, {"x": x, "cp": cp})), [*limits, *(m(x) for m in more)])


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (machines("45*x[0] + 90*x[1]"), "the task's is"),
        (machines("-45*x[0] - 80*x[1]", sense=cp.Minimize), "yours would minimize"),
        (machines("45*x[0] + 80*x[1]", lambda x: x <= 20), "cuts off better points"),
        (machines("45*x[0] + 80*x[1]", lambda x: cp.sum(x) >= 80), "exclude each other"),
        (machines("45*x[0] + 80*x[1]", lambda x: cp.norm(x) <= 100), "yours is SOCP: c2"),
        (cp.Problem(cp.Maximize(cp.sum(cp.Variable(3, name="y"))), []), "'x' with 2 entries"),
        ("45 x + 80 y", "it is a str"),
    ],
)
def test_what_is_wrong_is_said(problem: Any, words: str) -> None:
    got = mark(exercise("two_machines"), {"problem": problem, "prices": {"saw": 1, "lathe": 4}})
    assert not got and words in str(got), str(got)


def test_points_are_marked() -> None:
    task = exercise("backpack")
    assert mark(task, {"values": {"x": [1, 0, 1, 0, 0]}})
    assert "gap" in str(mark(task, {"values": {"x": [1, 1, 0, 0, 0]}}))
    assert "has to be whole" in str(mark(task, {"values": {"x": [1, 0.5, 0, 0, 0]}}))
    assert "violates 'weight'" in str(mark(task, {"values": {"x": [1, 1, 1, 0, 0]}}))
    assert "define `problem`" in str(mark(task, {}))


RIGHT = """
import cvxpy as cp
x = cp.Variable(2, name="x", nonneg=True)
problem = cp.Problem(cp.Maximize([45, 80] @ x), [[5, 20] @ x <= 400, [10, 15] @ x <= 450])
prices = {"saw": 1, "lathe": 4}
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (RIGHT, "right"),
        (RIGHT.replace("450", "45"), "WRONG"),
        pytest.param("x = 1 +\n", "line 1: SyntaxError", marks=pytest.mark.slow),
        ("import cvxpy\n\nproblem = nothing\n", "line 3: NameError: name 'nothing'"),
        pytest.param("raise SystemExit(0)", "SystemExit", marks=pytest.mark.slow),
        ("import os; os._exit(7)", "ended with code 7"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ended with code -11"),
        pytest.param("print('x' * 10_000_000)", "define `problem`", marks=pytest.mark.slow),
        ("a = bytearray(20 << 30)", "MemoryError"),
        pytest.param("def f(): f()\nf()", "RecursionError", marks=pytest.mark.slow),
    ],
    ids=lambda v: v[:24] if isinstance(v, str) else None,
)
def test_whatever_an_answer_does_it_is_marked(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "answer.py"
    file.write_text(text)
    done = run("grade", file, "two_machines")
    assert done.exit_code == int(text != RIGHT), done.output
    assert words in done.stdout, done.output
    assert "2200" not in done.stdout


def test_an_answer_that_does_not_end_is_stopped(tmp_path: Path) -> None:
    file = tmp_path / "answer.py"
    file.write_text("while True:\n    pass\n")
    done = run("grade", file, "two_machines", "--time-limit", 2, "--json")
    assert json.loads(done.stdout)["steps"][0]["what"] == "answer.py ends within 2 s"


def test_hints_come_one_by_one(tmp_path: Path) -> None:
    file = tmp_path / "answer.py"
    file.write_text("values = {'x': [0, 0]}\n")
    hints = exercise("two_machines").hints
    text = run("grade", file, "two_machines", "--hints", 2).stdout
    assert all(h in text for h in hints[:2]) and hints[2] not in text and "--hints 3" in text
    assert run("grade", file, "two_machine").exit_code == 2
    assert run("grade", tmp_path / "none.py", "two_machines").exit_code == 2


def test_the_list_of_exercises() -> None:
    rows = run("exercise").stdout.splitlines()
    assert len(rows) == len(NAMES) + 1 and "backpack\tMILP\tA backpack" in rows


@pytest.mark.parametrize("count", [9, pytest.param(80, marks=pytest.mark.slow)])
def test_questions_are_different_proved_and_agree_with_chords(count: int) -> None:
    asked = questions(count, seed=7)
    assert len({q.formula for q in asked}) == count
    assert {q.answer for q in asked} == {"convex", "concave", "affine", "neither"}
    rng = np.random.default_rng(99)
    for q in asked:
        kinds = ("convex", "concave", "affine", "neither")
        assert [k for k in kinds if chords_agree(q.formula, k, rng, 100)] == [q.answer], q
    assert questions(2, seed=7) == asked[:2] and questions(2, seed=8) != asked[:2]


def test_the_quiz_keeps_its_answers_until_asked() -> None:
    text = run("quiz", "-n", 3, "--seed", 1).stdout
    assert text.count("where") == 3 and "--answers" in text
    assert not any(f"   {q.answer}: " in text for q in questions(3, 1))
    found = json.loads(run("quiz", "-n", 3, "--seed", 1, "--answers", "--json").stdout)
    assert [q["answer"] for q in found["questions"]] == [q.answer for q in questions(3, 1)]
