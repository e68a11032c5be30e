"""Linear programs in whole numbers: each end of a simplex method, against what it claims."""

from __future__ import annotations

import random
import time
from fractions import Fraction
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from scipy.optimize import linprog

import optfair as of
from optfair.backends import pivots
from optfair.backends.exact import exact_slack
from optfair.backends.pivots import settled
from optfair.backends.registry import conic_interface
from optfair.compile.form import compile_problem
from optfair.proofs.reduction import Entries, chain_fault


def form_of(goal: Any, rows: list[Any]) -> Any:
    return compile_problem(of.from_cvxpy(cp.Problem(goal, rows)), conic_interface()).form


def inside(form: Any, slack: list[Fraction]) -> bool:
    pairs = zip(slack, form.equal, strict=True)
    return all(v == 0 if equal else v >= 0 for v, equal in pairs)


def value(numbers: Any, x: list[Fraction]) -> Fraction:
    pairs = zip(numbers, x, strict=True)
    return sum((Fraction(float(a)) * v for a, v in pairs), Fraction(0))


def ends(form: Any) -> tuple[str, float]:
    """Check what a program is said to be, in fractions."""
    found = settled(form)
    assert found is not None
    columns = form.A.toarray().T
    if found.point is None:
        assert found.prices is not None and found.direction is None
        link = {i: v for i, v in enumerate(found.prices) if v}
        assert not chain_fault(Entries.of(form), [link])
        return "infeasible", np.inf
    assert inside(form, exact_slack(form, found.point))
    if found.direction is not None:
        still = [-value(row, found.direction) for row in form.A.toarray()]
        assert found.prices is None and inside(form, still) and value(form.q, found.direction) < 0
        return "unbounded", -np.inf
    assert found.prices is not None
    assert all(z >= 0 or e for z, e in zip(found.prices, form.equal, strict=True))
    reduced = [
        Fraction(float(q)) + value(c, found.prices) for q, c in zip(form.q, columns, strict=True)
    ]
    assert not any(reduced)
    assert value(form.q, found.point) == -value(form.b, found.prices)
    return "optimal", float(value(form.q, found.point))


@pytest.mark.parametrize("seed", range(60))
def test_every_end_is_what_it_claims(seed: int) -> None:
    """Degenerate rows, rows that follow from others or contradict them, free columns, decimals."""
    r = random.Random(seed)
    n, numbers = r.randint(1, 4), r.choice([range(-3, 4), [0, 0.1, 0.2, 0.3, -0.7, 1.1]])
    rows: list[tuple[list[float], str, float]] = []
    for _ in range(r.randint(1, 7)):
        if rows and r.random() < 0.3:
            a, _, b = r.choice(rows)
            f = r.choice([1.0, -2.0, 3.0])
            rows.append(([f * v for v in a], r.choice("<>="), f * b + r.choice([0.0, 0.0, 0.5])))
        else:
            a = [float(r.choice(numbers)) for _ in range(n)]
            rows.append((a, r.choice("<<>>="), float(r.choice(numbers))))
    c = np.array([r.choice(numbers) for _ in range(n)], dtype=float)
    x = cp.Variable(n, name="x")
    declared = {"<": lambda e, b: e <= b, ">": lambda e, b: e >= b, "=": lambda e, b: e == b}
    form = form_of(cp.Minimize(c @ x), [declared[s](np.array(a) @ x, b) for a, s, b in rows])
    kind, optimum = ends(form)
    if isinstance(numbers, range):  # floats know it, too
        at = np.flatnonzero(~form.equal), np.flatnonzero(form.equal)
        A, b = form.A.toarray(), form.b
        own: dict[str, Any] = {"A_ub": A[at[0]], "b_ub": b[at[0]]} if at[0].size else {}
        own |= {"A_eq": A[at[1]], "b_eq": b[at[1]]} if at[1].size else {}
        known = linprog(form.q, **own, bounds=(None, None))
        free = linprog(0 * form.q, **own, bounds=(None, None)).status == 0
        assert kind == ("optimal" if known.status == 0 else "unbounded" if free else "infeasible")
        if kind == "optimal":
            assert optimum == pytest.approx(known.fun, abs=1e-9)


def test_numbers_of_any_size_beside_each_other() -> None:
    x = cp.Variable(2, name="x")
    rows = [1e-200 * x[0] + 1e150 * x[1] >= 1e-3, x[1] <= 1e-150, x[0] >= 0]
    kind, optimum = ends(form_of(cp.Minimize(x[0] + x[1]), rows))
    assert kind == "optimal" and optimum == pytest.approx(1e-153, rel=1e-9)


def test_what_is_no_small_linear_program_is_left() -> None:
    x = cp.Variable(60, name="x")
    assert settled(form_of(cp.Minimize(cp.sum(x)), [x >= 0, x <= 1])) is None
    assert settled(form_of(cp.Minimize(cp.norm(x[:2])), [x[:2] >= 1])) is None
    assert settled(form_of(cp.Minimize(cp.sum_squares(x[:2])), [x[:2] >= 1])) is None
    assert settled(form_of(cp.Minimize(x[0]), [x[0] >= 1]), time.perf_counter() - 1.0) is None


def test_programs_of_the_largest_size_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    x = cp.Variable(2, name="x")
    form = form_of(cp.Minimize(x[0] + x[1]), [x >= 1, x[0] == x[1]])  # 2 (2 + 3 + 1 + 2) entries
    monkeypatch.setattr(pivots, "ENTRIES", 16)
    assert settled(form) is not None
    monkeypatch.setattr(pivots, "ENTRIES", 15)
    assert settled(form) is None
