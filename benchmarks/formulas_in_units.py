"""Textbook formulas in any units: every kind of cone, data and variables in units 1e-6 to 1e6.

    python benchmarks/formulas_in_units.py [--kinds inverses,cubes] [--seed 1] [--tolerance 1e-7]
        [--json]

Each formula is written in a unit u of its variables, with data to match, so that its optimum is a
known power of u times that at u = 1. It is proved when the answer has a sound bound at the
tolerance; wrong when it is called optimal and is off that multiple by 1e-5, or is said to be
infeasible or unbounded. What is reported, or refused, says why.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import cvxpy as cp
import numpy as np
from record import targets_table

import optfair as of
from optfair.comparison.run import environment

UNITS = (1.0, 1e-6, 1e-3, 1e3, 1e6)
OFF, SHARE = 1e-5, 0.97
Formula = tuple[Any, list[Any], float]


def formulas(u: float, seed: int) -> dict[str, Formula]:
    """Return objective, constraints and the power of the unit that the optimum goes with."""
    rng, n = np.random.default_rng(seed), 4
    A, b, c = rng.normal(size=(6, n)), rng.normal(size=6) * u, rng.normal(size=n)
    S = rng.normal(size=(n, n))
    S = S @ S.T + 0.1 * np.eye(n)
    M = rng.normal(size=(3, 3))
    M = (M + M.T) * u
    p = np.abs(rng.normal(size=n)) + 0.5
    x, y = cp.Variable(n, name="x"), cp.Variable(name="y")
    X = cp.Variable((3, 3), symmetric=True, name="X")
    w, V = cp.Variable(6, name="w"), S[:3, :3] * u
    left, budget, box = A @ x - b, p @ x <= 3 * u, [x >= -5 * u, x <= 5 * u]
    less, more = cp.Minimize, cp.Maximize
    return {
        "linear": (less(c @ x), [A @ x <= b + 3 * u, x >= -u, x <= 9 * u], 1),
        "absolute values": (less(cp.sum(cp.abs(x - u))), [p @ x == u], 1),
        "largest of": (less(cp.max(left)), box, 1),
        "sum of largest": (less(cp.sum_largest(left, 3)), box, 1),
        "norm 1": (less(cp.norm1(left)), [], 1),
        "norm inf": (less(cp.norm_inf(left) + 0.1 * cp.norm1(x)), [], 1),
        "least squares": (less(cp.sum_squares(left)), [], 2),
        "lasso": (less(cp.sum_squares(left) + 0.5 * u * cp.norm1(x)), [], 2),
        "huber": (less(cp.sum(cp.huber(left, 0.5 * u))), [], 2),
        "total variation": (less(cp.sum_squares(x - b[:n]) + u * cp.tv(x)), [], 2),
        "quadratic program": (less(cp.quad_form(x, S) + u * c @ x), [x >= 0, cp.sum(x) == u], 2),
        "portfolio": (more(u * c @ x - cp.quad_form(x, S)), [cp.sum(x) == u, x >= 0], 2),
        "quadratic rows": (
            less(c @ x),
            [cp.quad_form(x, S) <= u**2, cp.sum_squares(x - u) <= 9 * u**2],
            1,
        ),
        "norm": (less(cp.norm(left)), [], 1),
        "norm row": (less(c @ x), [cp.norm(left) <= 4 * u], 1),
        "cone": (less(c @ x), [cp.norm(x) <= y, y <= 3 * u], 1),
        "squares and norm": (less(cp.sum_squares(x - u) + u * cp.norm(left)), [], 2),
        "quotient": (less(cp.quad_over_lin(left, y) + y), [y >= 0.1 * u], 1),
        "quotient row": (less(c @ x + y), [cp.quad_over_lin(x, y) <= 3 * u, y >= 0], 1),
        "geometric mean": (more(cp.geo_mean(x)), [budget, x >= 0], 1),
        "geometric mean row": (less(p @ x), [cp.geo_mean(x) >= u], 1),
        "harmonic mean": (more(cp.harmonic_mean(x)), [budget], 1),
        "inverses": (less(cp.sum(cp.inv_pos(x))), [budget], -1),
        "inverse roots": (
            less(cp.sum(cp.power(x, -0.5)) * u**0.5 + cp.sum(x) / u),
            [],
            0,
        ),
        "roots": (more(cp.sum(cp.sqrt(x))), [budget], 0.5),
        "power 3/2": (less(cp.sum(cp.power(cp.abs(left), 1.5))), [], 1.5),
        "cubes": (less(c @ x), [cp.sum(cp.power(cp.abs(x), 3)) <= u**3], 1),
        "norm 3": (less(cp.pnorm(left, 3)), [], 1),
        "norm 1.7 row": (less(c @ x), [cp.pnorm(x, 1.7) <= 2 * u], 1),
        "relative entropy": (less(cp.sum(cp.rel_entr(x, p * u))), [cp.sum(x) == 2 * u], 1),
        "divergence": (less(cp.sum(cp.kl_div(x, p * u))), [cp.sum(x) == 2 * u], 1),
        "entropy": (more(cp.sum(cp.entr(x / u))), [cp.sum(x) == u, p @ x <= u], 0),
        "logarithms": (more(cp.sum(cp.log(x / u))), [budget], 0),
        "logistic": (less(cp.sum(cp.logistic(A @ x / u)) + cp.sum_squares(x / u)), [], 0),
        "log-sum-exp": (less(cp.log_sum_exp(A @ x / u)), box, 0),
        "exponentials": (less(cp.sum(cp.exp(x / u)) - cp.sum(x) / u), [], 0),
        "largest eigenvalue": (less(cp.lambda_max(X - M)), [cp.trace(X) == u, X >> 0], 1),
        "nuclear norm": (less(cp.normNuc(X - M) + cp.norm(X, "fro")), [], 1),
        "nearest semidefinite": (less(cp.norm(X - M, "fro")), [X >> 0], 1),
        "nearest, squared": (less(cp.sum_squares(X - M)), [X >> 0], 2),
        "spectral norm": (less(cp.sigma_max(X - M)), [cp.diag(X) == u], 1),
        "matrix fraction": (less(cp.matrix_frac(c[:3] * u, X) + cp.trace(X)), [], 1),
        "trace of the inverse": (less(cp.tr_inv(X) * u**2 + cp.trace(X)), [], 1),
        "log-determinant": (more(cp.log_det(X / u)), [cp.trace(X) <= 3 * u], 0),
        "experiment design": (
            more(cp.log_det(A[:, :3].T @ cp.diag(w) @ A[:, :3] * u) - 3 * np.log(u)),
            [w >= 0, cp.sum(w) == 1],
            0,
        ),
        "covariance selection": (
            less(cp.trace(V @ X) - cp.log_det(X) - 3 * np.log(u)),
            [X[0, 1] == 0],
            0,
        ),
        "sparse inverse covariance": (
            less(cp.trace(V @ X) - cp.log_det(X) + 0.1 * u * cp.norm1(X) - 3 * np.log(u)),
            [],
            0,
        ),
        "inscribed ellipsoid": (
            more(cp.log_det(X) - 3 * np.log(u)),
            [cp.norm(X @ A[i, :3]) + A[i, :3] @ x[:3] <= 2 * u for i in range(6)]
            + [cp.norm(X @ A[i, :3]) - A[i, :3] @ x[:3] <= 2 * u for i in range(6)],
            0,
        ),
        "logarithms of amounts": (more(cp.sum(cp.log(x)) - n * np.log(u)), [budget], 0),
        "ellipsoid": (
            less(-cp.log_det(X * u)),
            [cp.norm(X @ A[i, :3] * u) <= 1 for i in range(6)],
            0,
        ),
    }


def outcome(formula: Formula, u: float, tolerance: float) -> tuple[str, float, str]:
    """Solve one; return a word, the optimum in its unit, and why."""
    objective, constraints, power = formula
    try:
        s = of.from_cvxpy(cp.Problem(objective, constraints)).solve(tolerance=tolerance)
    except (of.Infeasible, of.Unbounded) as e:
        return "wrong", np.nan, e.cause
    except of.OptfairError as e:
        return "refused", np.nan, f"{e.cause} {e.evidence}"
    value = float(s.objective) / u**power
    if s.is_optimal(tolerance) and s.grade.sound:
        return "proved", value, str(s.grade)
    return "reported", value, "; ".join([str(s.grade), *s.attempts])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kinds", default="", help="some of them, by comma")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tolerance", type=float, default=1e-7)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    kinds = [k for k in options.kinds.split(",") if k] or list(formulas(1.0, options.seed))
    begin, rows = time.process_time(), []
    for kind in kinds:
        known = np.nan
        for u in UNITS:
            word, value, why = outcome(formulas(u, options.seed)[kind], u, options.tolerance)
            known = value if u == 1.0 else known
            if word == "proved" and abs(value - known) > OFF * max(1.0, abs(known)):
                word, why = "wrong", f"{value:.8g}, but {known:.8g} at unit 1"
            rows.append((kind, u, word, why))
    words = [row[2] for row in rows]
    share = words.count("proved") / len(words)
    must = [
        {"name": "wrong", "target": 0, "measured": words.count("wrong")},
        {"name": "share proved", "target": SHARE, "measured": share},
    ]
    for line, fine in zip(must, ("wrong" not in words, share >= SHARE), strict=True):
        line["reached"] = fine
    if options.json:
        print(json.dumps({"must_reach": must, "environment": environment()}))
        return
    seconds = time.process_time() - begin
    print(f"## {len(kinds)} formulas in {len(UNITS)} units, {seconds:.0f} s of CPU\n")
    print("| formula | unit | outcome | why |\n|---|---:|---|---|")
    for kind, u, word, why in rows:
        if word != "proved":
            print(f"| {kind} | {u:g} | {word} | {' '.join(why.replace('|', '/').split())[:160]} |")
    print("\n" + targets_table(must))


if __name__ == "__main__":
    main()
