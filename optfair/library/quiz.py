"""Questions about curvature, drawn by seed; each answer is proved, and tested on chords besides."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from optfair.convexity.grammar import parse, parse_bounds
from optfair.convexity.prove import prove


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
    found: dict[str, Question] = {}
    for formula in _drawn(rng):
        if formula in found:
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
            if bool(answer)
            else str(answer).partition("\n")[0].removeprefix("neither: ")
        )
        found[formula] = Question(formula, where, kind, why)
        if len(found) == count:
            break
    return tuple(found.values())


def chords_agree(formula: str, kind: str, rng: Any, chords: int = 400) -> bool:
    """Whether random chords in the box do not contradict a claim, and refute what it denies.

    So what is called convex is not affine on the box either.
    """
    variables: dict[str, Any] = {}
    expression = parse(formula, variables)

    def value(point: Any) -> float:
        for variable, number in zip(variables.values(), point, strict=True):
            variable.value = number
        return float(expression.value)

    ends = rng.uniform(*BOX, size=(2, chords, len(variables)))
    f = [np.array([value(p) for p in points]) for points in (ends[0], ends[1], ends.mean(axis=0))]
    bend = (f[0] + f[1]) / 2 - f[2]
    noise = 1e-9 * (1.0 + np.abs(f[0]) + np.abs(f[1]))
    up, down = bool((bend < -noise).any()), bool((bend > noise).any())  # above, below its chord
    bends = {"convex": (False, True), "concave": (True, False), "affine": (False, False)}
    return bends.get(kind, (True, True)) == (up, down)
