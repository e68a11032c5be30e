"""Exercises that mark themselves: a task, a model to compare with, and what is wrong with an answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np

from optfair.backends.solve import solve
from optfair.convexity.proof import CurvatureProof
from optfair.convexity.prove import prove
from optfair.convexity.writing import parse, parse_bounds
from optfair.core.adopt import from_cvxpy
from optfair.core.problem import Problem
from optfair.core.problem_class import ProblemClass
from optfair.core.solution import Solution
from optfair.errors import DataError, DeclarationError, Infeasible, OptfairError, Unbounded, nearest
from optfair.registry import check_keys, fact_files, load_facts

FOLDER = "exercises/"
_KEYS = ("schema", "title", "source", "task", "hints", "class", "sense", "objective", "prices")
_TABLES = ("variables", "constraints", "optimum")


@dataclass(frozen=True)
class Exercise:
    """One exercise: what is asked, and a model with a certified optimum to compare with.

    Attributes
    ----------
    name, title, source : str
        What it is called, and where it comes from.
    task : str
        What is asked, with the names that an answer has to use.
    hints : tuple of str
        From a nudge to nearly the answer.
    problem_class : str
        The least class that is enough.
    facts : mapping
        The model: sense, objective, variables, constraints; formulas are of the grammar of
        `optfair explain`.
    prices : tuple of str
        Constraints whose shadow prices are asked for.
    optimum : float
        Certified, and not printed.
    """

    name: str
    title: str
    source: str
    task: str
    hints: tuple[str, ...]
    problem_class: str
    facts: Mapping[str, Any]
    prices: tuple[str, ...]
    optimum: float

    def problem(self) -> Problem:
        """Declare the model that answers are compared with."""
        variables = dict(_variables(self.facts["variables"], self.name))
        known = set(variables)
        goal = parse(self.facts["objective"], variables)
        constraints = {}
        for name, text in self.facts["constraints"].items():
            (constraints[name],) = parse_bounds(text, variables).values()
        if set(variables) != known:
            raise DeclarationError(
                f"exercise {self.name} uses {sorted(set(variables) - known)}, which it does not declare",
                remedy="add them to its [variables]",
            )
        direction = cp.Minimize if self.facts["sense"] == "minimize" else cp.Maximize
        return from_cvxpy(
            cp.Problem(direction(goal), list(constraints.values())), list(constraints)
        )


def _variables(table: Mapping[str, Any], name: str) -> Iterator[tuple[str, Any]]:
    for variable, shape in table.items():
        whole = isinstance(shape, dict)
        size = shape.get("size", 1) if whole else shape
        if not isinstance(size, int) or size < 1:
            raise DeclarationError(
                f"{variable!r} of exercise {name} has size {size!r}", remedy="give a whole number"
            )
        integer = whole and bool(shape.get("integer"))
        yield variable, cp.Variable(() if size == 1 else size, name=variable, integer=integer)


def exercise_names() -> tuple[str, ...]:
    """Return the names of all exercises.

    Examples
    --------
    >>> "two_machines" in exercise_names()
    True
    """
    return tuple(n.removeprefix(FOLDER) for n in fact_files("problems") if n.startswith(FOLDER))


def exercise(name: str) -> Exercise:
    """Return one exercise.

    Raises
    ------
    DataError
        No exercise has this name.
    """
    name = name.removeprefix(FOLDER)
    file = fact_files("problems").get(FOLDER + name)
    if file is None:
        raise DataError(f"no exercise {name!r}", remedy=nearest(name, exercise_names()))
    facts = load_facts(file)
    check_keys(facts, (*_KEYS, *_TABLES), str(file))
    missing = {*_KEYS, *_TABLES} - {"prices"} - set(facts)
    if missing:
        raise DeclarationError(f"{file} lacks {', '.join(sorted(missing))}", remedy="add them")
    ProblemClass.parse(facts["class"])
    return Exercise(
        name,
        facts["title"],
        facts["source"],
        facts["task"].strip(),
        tuple(facts["hints"]),
        facts["class"],
        {k: facts[k] for k in ("sense", "objective", "variables", "constraints")},
        tuple(facts.get("prices", ())),
        float(facts["optimum"]["value"]),
    )


# Marking an answer.


@dataclass(frozen=True)
class Step:
    """One thing that was looked at.

    Attributes
    ----------
    what, detail : str
        In the words of the task.
    ok : bool
        Whether it is right.
    """

    what: str
    ok: bool
    detail: str = ""

    def __str__(self) -> str:
        return f"{'ok   ' if self.ok else 'WRONG'}  {self.what}" + (
            f": {self.detail}" * bool(self.detail)
        )


@dataclass(frozen=True)
class Mark:
    """What came of marking an answer.

    Attributes
    ----------
    steps : tuple of Step
        In the order they were looked at; the first that is wrong is the one to mend.
    """

    steps: tuple[Step, ...]

    def __bool__(self) -> bool:
        return bool(self.steps) and all(step.ok for step in self.steps)

    def __str__(self) -> str:
        return "\n".join(map(str, self.steps))


# relative: answers are typed by people, and solved by any solver
TOLERANCE = 1e-5


def mark(task: Exercise, answer: Mapping[str, Any]) -> Mark:
    """Mark an answer.

    Parameters
    ----------
    task : Exercise
        What was asked.
    answer : mapping
        ``problem`` (a CVXPY or optfair problem) or ``values`` (by variable), and ``prices`` (by
        constraint) where the task asks for them.

    Returns
    -------
    Mark
        Steps that stop where nothing further can be said.
    """
    marking = _Marking(task, task.problem())
    try:
        marking.run(answer)
    except OptfairError as e:
        marking.says(False, "the answer can be solved", str(e))
    except _Stop:
        pass
    return Mark(tuple(marking.steps))


class _Stop(Exception):
    """Nothing further can be said."""


class _Marking:
    """The steps of one answer."""

    def __init__(self, task: Exercise, model: Problem) -> None:
        self.task, self.model = task, model
        self.steps: list[Step] = []
        self.best: Solution = solve(model, tolerance=1e-8)

    def says(self, ok: bool, what: str, detail: str = "", *, stop: bool = True) -> None:
        self.steps.append(Step(what, ok, "" if ok else detail))
        if stop and not ok:
            raise _Stop

    def run(self, answer: Mapping[str, Any]) -> None:
        given = answer.get("problem")
        if given is None and "values" not in answer:
            self.says(False, "there is an answer", "define `problem`, or a dictionary `values`")
        if given is not None:
            values, objective = self.solved(given)
        else:
            values = {k: np.asarray(v, dtype=float) for k, v in dict(answer["values"]).items()}
            self.shapes({k: v.shape for k, v in values.items()}, "your values have")
            objective = self.model.objective_at(values)
        self.point(values, objective)
        if self.task.prices:
            self.prices(answer)

    def shapes(self, shapes: Mapping[str, tuple[int, ...]], have: str) -> None:
        for name, variable in self.model.variables.items():
            there = ", ".join(f"{k} {v or 'scalar'}" for k, v in shapes.items()) or "none"
            ok = name in shapes and int(np.prod(shapes[name])) == variable.size
            want = f"{name!r} with {variable.size} entr{'y' if variable.size == 1 else 'ies'}"
            if not ok:
                self.says(
                    False, "the variables of the task", f"{want} is asked for; {have} {there}"
                )
        self.says(True, "the variables of the task")

    def solved(self, given: Any) -> tuple[dict[str, Any], float]:
        """Return the values of the task's variables and the objective of a model's optimum."""
        if not isinstance(given, (cp.Problem, Problem)):
            kind = type(given).__name__
            self.says(False, "`problem` is a problem", f"it is a {kind}; write cp.Problem(...)")
        mine = from_cvxpy(given) if isinstance(given, cp.Problem) else given
        self.shapes({k: v.shape for k, v in mine.variables.items()}, "your problem has")
        self.says(
            mine.sense == self.model.sense,
            f"the sense: {self.model.sense}",
            f"yours would {mine.sense}",
        )
        try:
            s = solve(mine, tolerance=1e-7)
        except Infeasible as e:
            self.says(
                False,
                "it has a feasible point",
                f"these exclude each other: {', '.join(e.conflict)}",
            )
        except Unbounded as e:
            self.says(
                False, "it has an optimum", f"{e.cause}; {e.evidence}: which constraint is missing?"
            )
        self.says(True, "it has an optimum")
        values = {k: np.reshape(s[k], v.shape, order="F") for k, v in self.model.variables.items()}
        self.agrees(values, s.objective)
        self.cuts(mine, s.objective)
        wanted, got = ProblemClass.parse(self.task.problem_class), mine.problem_class
        moved = [str(row) for row in mine.evidence if not row.problem_class <= wanted]
        detail = f"yours is {got}: {'; '.join(moved) or 'see explain()'}"
        self.says(
            got <= wanted, f"the class: {self.task.problem_class} is enough", detail, stop=False
        )
        return values, s.objective

    def agrees(self, values: Mapping[str, Any], objective: float) -> None:
        """Stop where the objective of an answer is another one than the task's."""
        same = self.model.objective_at(values)
        ok = abs(same - objective) <= TOLERANCE * max(1.0, abs(same))
        detail = f"at your own optimum yours is {objective:.6g}, the task's is {same:.6g}"
        self.says(ok, "the objective of the task", detail)

    def cuts(self, mine: Problem, objective: float) -> None:
        """Stop where a constraint of an answer cuts off every optimum of the task."""
        at_best = {k: np.asarray(self.best[k]) for k in self.model.variables}
        if set(mine.variables) != set(at_best):
            return
        shaped = {k: np.reshape(at_best[k], v.shape, order="F") for k, v in mine.variables.items()}
        outside = {k: t.relative_violation(shaped) for k, t in mine.constraints.items()}
        worst = max(outside, key=outside.__getitem__, default="")
        if worst and outside[worst] > TOLERANCE and self.gap(objective) > TOLERANCE:
            detail = f"{worst!r} cuts off better points that the task allows"
            self.says(False, "no constraint is too strict", detail)
        self.says(True, "no constraint is too strict")

    def gap(self, objective: float) -> float:
        """Return by how much an objective is worse than the best, relative to it."""
        sign = 1.0 if self.model.sense == "minimize" else -1.0
        return sign * (objective - self.best.objective) / self.size

    @property
    def size(self) -> float:
        """What a gap is relative to."""
        return max(1.0, abs(self.best.objective))

    def point(self, values: Mapping[str, Any], objective: float) -> None:
        """Look at a point: feasible for the task, and as good as its optimum."""
        outside = {k: t.relative_violation(values) for k, t in self.model.constraints.items()}
        bad = [f"{k!r} by {v:.2g}" for k, v in outside.items() if v > TOLERANCE]
        detail = f"your point violates {', '.join(bad)}"
        for name in sorted(self.model.integers):
            if np.abs(values[name] - np.round(values[name])).max() > TOLERANCE:
                bad, detail = [name], f"{name!r} has to be whole"
        self.says(not bad, "feasible for the task", detail)
        gap = self.gap(objective)
        self.says(gap <= TOLERANCE, "optimal", f"a better point exists: gap {gap:.2g}")

    def prices(self, answer: Mapping[str, Any]) -> None:
        """Compare shadow prices, and say what is wrong with one."""
        given = dict(answer.get("prices") or {})
        for name in self.task.prices:
            what = f"the price of {name!r}"
            if name not in given:
                self.says(False, what, f"give it in prices = {{{name!r}: ...}}")
            mine = np.asarray(given[name], dtype=float)
            true = np.asarray(self.best.shadow_price[name], dtype=float)
            ok = mine.size == true.size and bool(
                np.allclose(mine.ravel(), true.ravel(), rtol=1e-3, atol=1e-4 * self.size)
            )
            self.says(ok, what, _fault(mine, true), stop=False)


def _fault(mine: Any, true: Any) -> str:
    if mine.size != true.size:
        return f"it has {true.size} entries, yours has {mine.size}"
    if np.allclose(mine.ravel(), -true.ravel(), rtol=1e-3, atol=1e-6):
        return "its sign is turned: it is d(optimum)/d(right-hand side)"
    if not np.any(true):
        return "the constraint has slack at the optimum"
    if not np.any(mine):
        return "the constraint is tight at the optimum, and costs something"
    return "by how much does the optimum change when the right-hand side rises by 1?"


def answer_of(file: Path) -> dict[str, Any]:
    """Run a file of Python and return its names; it can do whatever a program can."""
    import runpy

    return runpy.run_path(str(file))


@dataclass(frozen=True)
class Question:
    """A formula, where it is looked at, and the answer.

    Attributes
    ----------
    formula, where : str
        In the grammar of `optfair explain`.
    answer : str
        "convex", "concave", "affine" or "neither".
    why : str
        The rule of the proof, or the chords that refute.
    """

    formula: str
    where: str
    answer: str
    why: str

    def __str__(self) -> str:
        return f"{self.formula}   where {self.where}"

    def to_dict(self, answers: bool) -> dict[str, str]:
        """Return it for JSON, with or without the answer."""
        asked = {"formula": self.formula, "where": self.where}
        return asked | ({"answer": self.answer, "why": self.why} if answers else {})


# Shapes of formulas in x and y on the box below, with places for small numbers.
BOX = (1.0, 3.0)
WHERE = "1<=x<=3, 1<=y<=3"
SHAPES = (
    "{a}*x*x + {b}*y*y - {c}*x*y",
    "{a}*x*x - {b}*y",
    "exp({a}*x) + {b}*y",
    "log({a}*x + {b}*y)",
    "{a}*log(x) - {b}*y*y",
    "sqrt({a} + x*x)",
    "sqrt({a}*x + {b})",
    "x*x/({a}*y + {b})",
    "x/({a}*y + {b})",
    "{a}/(x + {b}*y)",
    "x*log({a}*x)",
    "{a}*x*y + {b}",
    "{a}*x - {b}*y + {c}",
    "x**3 - {a}*x",
    "maximum({a}*x, y*y)",
    "minimum({a}*x, {b}*y)",
    "maximum(exp(x), {a}*y)",
    "log(1 + exp({a}*x - {b}*y))",
    "exp({a}*x*x)",
    "exp(-{a}*x)*y",
    "abs(x - {a}) + {b}*y",
    "{a}*x**2 - {b}*x**4",
    "(x + {a})*(x + {b})",
    "-{a}/x + {b}*y",
)


def _drawn(rng: Any) -> Iterator[str]:
    """Yield formulas without end: every shape once, in a new order, then again with other numbers."""
    while True:
        for i in rng.permutation(len(SHAPES)):
            a, b, c = (int(n) for n in rng.integers(1, 6, size=3))
            yield re.sub(r"\b1\*", "", SHAPES[i].format(a=a, b=b, c=c))


def questions(count: int, seed: int = 0) -> tuple[Question, ...]:
    """Return so many questions, all different.

    A formula is asked only where the prover decides, its proof or its chords verify, and random
    chords agree: a wrong prover must not teach.

    Examples
    --------
    >>> q = questions(1, seed=1)[0]
    >>> q.answer in ("convex", "concave", "affine", "neither")
    True
    """
    rng = np.random.default_rng(seed)
    questions: dict[str, Question] = {}
    for formula in _drawn(rng):
        if formula in questions:
            continue
        variables: dict[str, Any] = {}
        expression = parse(formula, variables)
        bounds = parse_bounds(WHERE, variables)
        answer = prove(expression, bounds)
        kind = answer.curvature
        if kind == "undecided" or not answer.verify() or not chords_agree(formula, kind, rng):
            continue
        where = ", ".join(
            w for w in WHERE.split(", ") if any(v.name() in w for v in expression.variables())
        )
        why = (
            answer.rule
            if isinstance(answer, CurvatureProof)
            else str(answer).partition("\n")[0].removeprefix("neither: ")
        )
        questions[formula] = Question(formula, where, kind, why)
        if len(questions) == count:
            break
    return tuple(questions.values())


def chords_agree(formula: str, kind: str, rng: Any, chords: int = 400) -> bool:
    """Whether random chords in the box do not contradict a claim, and refute what it denies.

    So what is called convex is not affine on the box either.
    """
    variables: dict[str, Any] = {}
    expression = parse(formula, variables)

    def value(point: Any) -> float:
        for variable, number in zip(variables.values(), point, strict=True):
            variable.save_value(number)  # it lies in the box
        return float(expression.value)

    ends = rng.uniform(*BOX, size=(2, chords, len(variables)))
    f = [np.array([value(p) for p in points]) for points in (ends[0], ends[1], ends.mean(axis=0))]
    bend = (f[0] + f[1]) / 2 - f[2]
    noise = 1e-9 * (1.0 + np.abs(f[0]) + np.abs(f[1]))
    up, down = bool((bend < -noise).any()), bool((bend > noise).any())  # above, below its chord
    bends = {"convex": (False, True), "concave": (True, False), "affine": (False, False)}
    return bends.get(kind, (True, True)) == (up, down)
