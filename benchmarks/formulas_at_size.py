"""Formulas as textbooks write them, at the sizes of problems, against the same by CVXPY's rules.

    python benchmarks/formulas_at_size.py [--sizes 20,300] [--quick] [--json]

Ours is ``of.from_cvxpy(problem).solve()`` of the formula as it is written: its curvature is proved, it
becomes cones or a sequence of convex problems, and the answer has a proof at 1e-7. The peer is
``problem.solve`` with Clarabel of the same function written by composition rules, without any check;
of a ratio, the one cone program that it is on the sums' own scale. Processor seconds of one run
each, after one of each that is not counted; both sides write new problems of the same data.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import cvxpy as cp
import numpy as np
from record import environment, targets_table

import optfair as of

SAME = 1e-5  # relative difference of values, of which the peer's are not verified
Written = tuple[cp.Problem, cp.Problem]


def data(n: int) -> tuple[Any, ...]:
    """Return a matrix, a vector of any sign, a positive one, and variables with their bounds."""
    rng = np.random.default_rng(n)
    A, b, c = rng.normal(size=(n, n)) / np.sqrt(n), rng.normal(size=n), rng.uniform(0.5, 1.0, n)
    x, y, t = cp.Variable(n, name="x"), cp.Variable(n, name="y"), cp.Variable(name="t")
    box = [x >= 0.1, x <= 2, y >= 0.5, y <= 2, t >= 0.5]
    return A, b, c, x, y, t, box


def minimised(written: Any, ruled: Any, rows: list[Any]) -> Written:
    """Return both as problems."""
    return cp.Problem(cp.Minimize(written), rows), cp.Problem(cp.Minimize(ruled), rows)


def sums(n: int) -> dict[str, Callable[[], tuple[Any, Any, list[Any]]]]:
    """Return formulas, entry by entry, the same by composition rules, and rows."""
    A, b, c, x, y, t, box = data(n)
    half = [*box, cp.sum(x) == n / 2]
    return {
        "entropy": lambda: (cp.multiply(x, cp.log(x)), -cp.entr(x), half),
        "relative entropy": lambda: (
            cp.multiply(x, cp.log(x) - np.log(c)),
            cp.rel_entr(x, c),
            half,
        ),
        "log-sum-exp": lambda: (cp.log(cp.sum(cp.exp(A @ x + b))), cp.log_sum_exp(A @ x + b), box),
        "logistic": lambda: (cp.log(1 + cp.exp(A @ x)), cp.logistic(A @ x), box),
        "smooth absolute value": lambda: (
            cp.sqrt(1 + cp.square(A @ x - b)),
            cp.norm(cp.vstack([np.ones(n), A @ x - b]), 2, axis=0),
            box,
        ),
        "norm": lambda: (cp.sqrt(cp.sum_squares(A @ x - b)), cp.norm(A @ x - b), box),
        "norm times norm": lambda: (
            cp.norm(A @ x - b) * cp.norm(A @ x - b),
            cp.sum_squares(A @ x - b),
            box,
        ),
        "squares over numbers": lambda: (
            cp.square(x - b) / y,
            sum(cp.quad_over_lin(x[i] - b[i], y[i]) for i in range(n)),
            [*box, cp.sum(y) == n],
        ),
        "squares over one number": lambda: (
            cp.sum_squares(A @ x - b) / t + t,
            cp.quad_over_lin(A @ x - b, t) + t,
            box,
        ),
        "exponentials of differences": lambda: (
            cp.multiply(cp.exp(x), cp.exp(-y)) + y,
            cp.exp(x - y) + y,
            box,
        ),
        "inverses": lambda: (1 / x + x, cp.inv_pos(x) + x, box),
        "delay": lambda: (x / (3 - x), 3 * cp.inv_pos(3 - x) - 1, [*box, cp.sum(x) >= n / 2]),
        "utility": lambda: (-cp.log(x / (1 + x)), cp.logistic(-cp.log(x)), box),
        "capacity": lambda: (
            -cp.multiply(y, cp.log(1 + x / y)),
            cp.rel_entr(y, x + y),
            [*box, cp.sum(x) + cp.sum(y) <= n],
        ),
        "means": lambda: (
            -cp.sqrt(cp.multiply(x, y)),
            sum(-cp.geo_mean(cp.hstack([x[i], y[i]])) for i in range(n)),
            [*box, cp.sum(x) + cp.sum(y) <= n],
        ),
    }


def summed(name: str, n: int) -> Written:
    """Return the sum of a formula's entries, twice."""
    written, ruled, rows = sums(n)[name]()
    return minimised(cp.sum(written), cp.sum(ruled), rows)


def return_to_risk(n: int) -> Written:
    """Return the largest ratio of a mean to a deviation, and the least deviation of a mean of 1."""
    A, b, _, x, y, *_ = data(n)
    rows = [b @ x >= 0.01, cp.sum(x) == 1, x >= 0]
    ratio = cp.Problem(cp.Maximize(b @ x / cp.norm(A @ x)), rows)
    return ratio, cp.Problem(cp.Minimize(cp.norm(A @ y)), [b @ y == 1, y >= 0])


def squares_to_sum(n: int) -> Written:
    """Return squares over a sum that is not fixed."""
    A, b, _, x, _, _, box = data(n)
    ruled = cp.quad_over_lin(A @ x - b, cp.sum(x))
    return minimised(cp.sum_squares(A @ x - b) / cp.sum(x), ruled, box[:2])


def affine_ratio(n: int) -> Written:
    """Return an affine function over another, and that in the variables x/(sum x + 2)."""
    _, _, c, x, y, t, box = data(n)
    rows = [y >= 0.1 * t, y <= 2 * t, cp.sum(y) + 2 * t == 1, t >= 0]
    ratio = cp.Problem(cp.Minimize((c @ x + 1) / (cp.sum(x) + 2)), box[:2])
    return ratio, cp.Problem(cp.Minimize(c @ y + t), rows)


def hyperbolas(n: int) -> Written:
    """Return rows x y >= 1 with one sign stated, and the same by inverses."""
    _, _, c, x, y, *_ = data(n)
    cost = c @ x + cp.sum(y)
    written = cp.Problem(cp.Minimize(cost), [cp.multiply(x, y) >= 1, x >= 0])
    return written, cp.Problem(cp.Minimize(cost), [cp.inv_pos(x) <= y])


def squares_below_a_product(n: int) -> Written:
    """Return a sum of squares below a product, and below it as a quotient."""
    A, b, _, x, _, t, box = data(n)
    u = cp.Variable(name="u")
    squares, rows = A @ x - b, [*box, u >= 0]
    written = cp.Problem(cp.Minimize(t + u), [cp.sum_squares(squares) + 1 <= t * u, *rows])
    least = cp.quad_over_lin(cp.hstack([squares, 1.0]), t)
    return written, cp.Problem(cp.Minimize(t + u), [least <= u, *rows])


def form_below_a_square(n: int) -> Written:
    """Return a definite form below a square, and its root as a norm."""
    A, b, _, x, _, t, _ = data(n)
    Q = A.T @ A + np.eye(n)
    root = np.linalg.cholesky(Q).T
    written = cp.Problem(cp.Minimize(t), [cp.quad_form(x, Q) <= t**2, t >= 0, b @ x == 1])
    return written, cp.Problem(cp.Minimize(t), [cp.norm(root @ x) <= t, b @ x == 1])


FORMULAS: dict[str, Callable[[int], Written]] = {
    **{name: partial(summed, name) for name in sums(1)},
    "return to risk": return_to_risk,
    "squares over a sum": squares_to_sum,
    "affine over affine": affine_ratio,
    "hyperbolas": hyperbolas,
    "squares below a product": squares_below_a_product,
    "form below a square": form_below_a_square,
}


def one(name: str, n: int) -> dict[str, Any]:
    """Solve one formula by both sides."""
    row: dict[str, Any] = {"name": name, "n": n}
    for _ in range(2):
        written, ruled = FORMULAS[name](n)
        begin = time.process_time()
        ruled.solve(solver="CLARABEL")
        row["CVXPY s"] = time.process_time() - begin
        begin = time.process_time()
        p = of.from_cvxpy(written)
        try:
            s = p.solve()
        except of.OptfairError as e:
            return row | {"class": str(p.problem_class), "grade": "", "why": str(e.cause)}
        row["optfair s"] = time.process_time() - begin
    value = 1 / ruled.value if name == "return to risk" else ruled.value
    off = abs(s.objective - value) / max(1.0, abs(value))
    row |= {"class": str(p.problem_class), "grade": str(s.grade)}
    return row | {"times": row["optfair s"] / row["CVXPY s"], "differs": float(off)}


def main() -> None:
    """Solve all and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="20,300")
    parser.add_argument("--quick", action="store_true", help="the smaller size")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    sizes = [int(n) for n in options.sizes.split(",")][: 1 if options.quick else None]
    rows = [one(name, n) for n in sizes for name in FORMULAS]
    proved = sum(r["grade"] == "proved" for r in rows) / len(rows)
    wrong = sum(r.get("differs", 0.0) > SAME for r in rows)
    targets = [
        {"name": "proved, share", "target": 1.0, "measured": proved, "reached": proved >= 1.0},
        {"name": "another value", "target": 0, "measured": wrong, "reached": not wrong},
    ]
    result = {"must_reach": targets, "rows": rows, "environment": environment()}
    if options.json:
        print(json.dumps(result))
        return
    print(
        "| formula | n | class | grade | s | CVXPY s | times |\n|---|---:|---|---|---:|---:|---:|"
    )
    for r in rows:
        if "times" in r:
            seconds = f"{r['optfair s']:.2f} | {r['CVXPY s']:.2f} | {r['times']:.1f}"
        else:
            seconds = f"{r['why']} | {r['CVXPY s']:.2f} |"
        print(f"| {r['name']} | {r['n']} | {r['class']} | {r['grade']} | {seconds} |")
    for n in sizes:
        own = [r["times"] for r in rows if r["n"] == n and "times" in r]
        print(f"\nn = {n}: median {statistics.median(own):.2f} times CVXPY's seconds")
    print("\n" + targets_table(targets))


if __name__ == "__main__":
    main()
