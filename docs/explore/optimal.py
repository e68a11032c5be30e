"""What "optimal" means: what solvers say at their own defaults, beside what is recomputed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import cvxpy as cp
import numpy as np

import optfair as of
from optfair.backends.registry import profiles
from optfair.solution.residuals import measure

VIA = ("cvxpy", "conic:highspy", "scip")
NAMES = (
    *("transport", "diet_salt", "simplex_projection", "minimum_variance", "risk_budget"),
    *("smallest_ball", "water_filling", "lovasz_40"),
)


def data() -> dict[str, Any]:
    """Ask every installed open solver through CVXPY, with no option set, and measure what it returns."""
    return {"problems": [_asked(*case) for case in _cases()]}


def _cases() -> Iterator[tuple[str, of.Problem, float]]:
    for name in NAMES:
        i = of.library.load(f"textbook/{name}")
        yield i.name, i.problem(), i.optimum.value
    yield _other_units()


def _other_units() -> tuple[str, of.Problem, float]:
    """The diet with vitamins counted in other units, and food by the crumb or by the ton."""
    known = of.library.load("textbook/diet")
    named = ("foods", "nutrients")
    d = {k: np.array(v, dtype=float) for k, v in known.data.items() if k not in named}
    row, column = 10.0 ** np.array([6.0, -4, 0, 5]), 10.0 ** np.array([-6.0, 5, 0, 3, -3, 6, 0, -5])
    d |= {"cost": d["cost"] * column, "nutrition": row[:, None] * d["nutrition"] * column}
    d |= {"minimum": d["minimum"] * row, "maximum": d["maximum"] * row, "most": d["most"] / column}
    p = of.textbook.Diet(**d)
    s = p.solve()
    if not s.grade.sound or abs(s.objective - known.optimum.value) > 1e-6:
        raise RuntimeError(f"units change no optimum: {s.objective}, {s.grade}")
    return "textbook/diet in mixed units", p, known.optimum.value


def _asked(name: str, p: of.Problem, optimum: float) -> dict[str, Any]:
    """Return the answers of the solvers that take the class."""
    answers = []
    for profile in profiles().values():
        known = profile.cvxpy_name in cp.installed_solvers()
        if profile.kind != "open" or profile.via not in VIA or not known:
            continue
        if not profile.accepts(p):
            continue
        answers.append({"solver": profile.name, **_answer(p, profile.cvxpy_name, optimum)})
    return {
        "name": name,
        "class": str(p.problem_class),
        "optimum": optimum,
        "answers": answers,
    }


def _answer(p: of.Problem, solver: str, optimum: float) -> dict[str, Any]:
    plain = p.cvxpy
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # inaccurate is a status here
        try:
            plain.solve(solver=solver)
        except cp.SolverError:
            return {"status": "no answer", "violation": None, "error": None}
    values = {v.name(): v.value for v in plain.variables()}
    if any(v is None for v in values.values()):
        return {"status": plain.status, "violation": None, "error": None}
    found = measure(p, values, {}, None)
    return {
        "status": plain.status.replace("_", " "),
        "violation": float(max(found.primal.values(), default=0.0)),
        "error": abs(found.objective - optimum) / max(1.0, abs(optimum)),
    }
