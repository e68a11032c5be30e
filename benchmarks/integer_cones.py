"""Integers beside cones: the default against CVXPY's SCIP on the same problem in the same run.

    OMP_NUM_THREADS=1 python benchmarks/integer_cones.py [--only card,port] [--seed 1] [--time-limit 60] [--json]

Best subsets, portfolios with few assets, integer least squares, places among centres, knapsacks
with exponential costs, logistic regression on few features. Ratios below 1 say that optfair took
less; SCIP is not asked for exponential cones, which it is not given by CVXPY. The default's answer
is wrong if it is worse than CVXPY's by 1e-4, or its bound is beyond it by as much: less may be what
SCIP's tolerances let large numbers hide.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import cvxpy as cp
import numpy as np

import optfair as of
from optfair.comparison.run import environment

OFF = 1e-4


def regression(r: Any, n: int) -> tuple[Any, Any, Any, list[Any]]:
    """Return residuals, coefficients and what few of them may be other than 0."""
    X = r.normal(size=(2 * n, n))
    y = X[:, :3].sum(axis=1) + 0.3 * r.normal(size=2 * n)
    b, z = cp.Variable(n, name="b"), cp.Variable(n, boolean=True, name="z")
    return X, y, b, [cp.abs(b) <= 3 * z, cp.sum(z) <= 4]


def subset(r: Any, n: int) -> Any:
    """Return least squares on four features."""
    X, y, b, rows = regression(r, n)
    return cp.Problem(cp.Minimize(cp.sum_squares(X @ b - y)), rows)


def norm_subset(r: Any, n: int) -> Any:
    """Return the same by a norm."""
    X, y, b, rows = regression(r, n)
    return cp.Problem(cp.Minimize(cp.norm(X @ b - y)), rows)


def logistic_subset(r: Any, n: int) -> Any:
    """Return logistic regression on four features."""
    X, y, b, rows = regression(r, n)
    sign = np.sign(y)
    return cp.Problem(cp.Minimize(cp.sum(cp.logistic(-cp.multiply(sign, X @ b))) / n), rows)


def held(r: Any, n: int) -> tuple[Any, Any, Any, list[Any]]:
    """Return yields, factors and shares of few assets, none of them small."""
    F, mu = 0.1 * r.normal(size=(n, 3)), 0.1 * r.random(n)
    x, z = cp.Variable(n, name="x", nonneg=True), cp.Variable(n, boolean=True, name="z")
    return mu, F, x, [cp.sum(x) == 1, x <= z, x >= 0.05 * z, cp.sum(z) <= n // 3]


def variance(r: Any, n: int) -> Any:
    """Return a portfolio that pays for its variance."""
    mu, F, x, rows = held(r, n)
    risk = 5 * cp.sum_squares(F.T @ x) + 0.1 * cp.sum_squares(x)
    return cp.Problem(cp.Minimize(risk - mu @ x), rows)


def deviation(r: Any, n: int) -> Any:
    """Return a portfolio whose deviation is limited."""
    mu, F, x, rows = held(r, n)
    risk = cp.norm(cp.hstack([F.T @ x, 0.05 * x]))
    return cp.Problem(cp.Maximize(mu @ x), [*rows, risk <= 0.08])


def entropy(r: Any, n: int) -> Any:
    """Return a portfolio that is paid for its entropy."""
    mu, _, x, rows = held(r, n)
    return cp.Problem(cp.Maximize(10 * mu @ x + 0.3 * cp.sum(cp.entr(x))), rows)


def commitment(r: Any, hours: int) -> Any:
    """Return ten units that are committed by the hour, at quadratic costs."""
    most, ones = r.uniform(50, 200, (10, 1)), np.ones((1, hours))
    on, begun = (cp.Variable((10, hours), boolean=True, name=name) for name in ("on", "begun"))
    power = cp.Variable((10, hours), name="power")
    need = most.sum() * (0.45 + 0.25 * np.sin(2 * np.pi * np.arange(hours) / 24))
    bent, slope = r.uniform(0.001, 0.01, (10, 1)) @ ones, r.uniform(10, 30, 10)
    costs = [cp.sum(cp.multiply(bent, cp.square(power))), slope @ cp.sum(power, axis=1)]
    costs += [r.uniform(100, 500, 10) @ cp.sum(on, axis=1)]
    costs += [r.uniform(200, 1000, 10) @ cp.sum(begun, axis=1)]
    limit = cp.multiply(most @ ones, on)
    rows = [power <= limit, power >= 0.3 * limit, cp.sum(limit, axis=0) >= 1.1 * need]
    rows += [cp.sum(power, axis=0) >= need, begun[:, 1:] >= on[:, 1:] - on[:, :-1]]
    return cp.Problem(cp.Minimize(sum(costs)), rows)


def whole(r: Any, n: int) -> Any:
    """Return integer least squares."""
    A = r.normal(size=(n + 4, n))
    b = A @ r.integers(-5, 5, n) + r.normal(size=n + 4)
    x = cp.Variable(n, integer=True, name="x")
    return cp.Problem(cp.Minimize(cp.sum_squares(A @ x - b)), [x >= -10, x <= 10])


def places(r: Any, m: int) -> Any:
    """Return points at the nearest of three centres, by numbers that switch rows off."""
    P = r.random((m, 2))
    z, c, d = cp.Variable((m, 3), boolean=True), cp.Variable((3, 2)), cp.Variable(m)
    far = [cp.norm(P[i] - c[k]) <= d[i] + 2 * (1 - z[i, k]) for i in range(m) for k in range(3)]
    return cp.Problem(cp.Minimize(cp.sum(d)), [cp.sum(z, axis=1) == 1, *far])


def knapsack(r: Any, n: int) -> Any:
    """Return a knapsack whose weight costs exponentially."""
    w, v = r.integers(5, 30, n), r.integers(5, 30, n)
    z, t = cp.Variable(n, boolean=True, name="z"), cp.Variable(name="t")
    rows = [t >= w @ z / 10 - n / 2, w @ z <= w.sum() // 2, t >= 0]
    return cp.Problem(cp.Maximize(v @ z - cp.exp(0.1 * t)), rows)


KINDS: dict[str, tuple[Callable[[Any, int], Any], tuple[int, ...]]] = {
    "subset": (subset, (15, 40)),
    "norm of subset": (norm_subset, (15, 40)),
    "logistic subset": (logistic_subset, (8, 25)),
    "variance": (variance, (15, 40, 100)),
    "deviation": (deviation, (15, 40)),
    "entropy": (entropy, (8, 25)),
    "commitment": (commitment, (6, 24)),
    "integer least squares": (whole, (8, 16)),
    "places": (places, (4, 6, 10)),
    "knapsack": (knapsack, (20, 50)),
}


def by_cvxpy(problem: Any, limit: float) -> tuple[float, float | None]:
    """Return the seconds and the optimum of CVXPY's SCIP, None where it has none."""
    begin = time.perf_counter()
    try:
        problem.solve(solver=cp.SCIP, scip_params={"limits/time": limit})
    except cp.SolverError:
        return time.perf_counter() - begin, None
    done = problem.status == "optimal"
    return time.perf_counter() - begin, float(problem.value) if done else None


def measured(only: list[str], seed: int, limit: float) -> Iterator[dict[str, Any]]:
    """Yield one row a problem."""
    for kind, (make, sizes) in KINDS.items():
        for n in sizes if not only or any(word in kind for word in only) else ():
            problem = make(np.random.default_rng(seed), n)
            p = of.from_cvxpy(problem)
            cones = p.problem_class.name != "MICONIC"
            peer, value = by_cvxpy(problem, limit) if cones else (None, None)
            begin = time.perf_counter()
            s = of.from_cvxpy(problem).solve(time_limit=limit)
            own = time.perf_counter() - begin
            sign = 1.0 if p.sense == "minimize" else -1.0
            size = OFF * max(1.0, abs(value or 0.0))
            ended = value is not None and s.status.termination == "optimal"
            lost = ended and sign * (s.objective - value) > size  # type: ignore[operator]
            false = value is not None and sign * (s.bound - value) > size
            yield {
                "problem": f"{kind} {n}",
                "class": p.problem_class.name,
                "solver": s.solver,
                "termination": s.status.termination,
                "grade": s.grade.word,
                "seconds": round(own, 3),
                "cvxpy_seconds": None if peer is None else round(peer, 3),
                "cvxpy_ended": value is not None,
                "ratio": None if peer is None else round(own / peer, 2),
                "wrong": bool(lost or false),
            }


def main() -> None:
    """Print rows, then how many are wrong and proved, and the geometric mean of the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="kinds, by a part of their name")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for row in measured([w for w in asked.only.split(",") if w], asked.seed, asked.time_limit):
        rows.append(row)
        if not asked.json:
            ratio = "" if row["ratio"] is None else f"{row['ratio']:8.2f} of CVXPY's SCIP"
            ratio += "" if row["cvxpy_ended"] or not ratio else " at its limit"
            word = "WRONG " if row["wrong"] else ""
            said = f"{row['termination']:<11} {row['grade']:<9} {row['solver']:<11}"
            print(
                f"{row['problem']:<26} {row['class']:<8} {said} {row['seconds']:8.2f} s {word}{ratio}"
            )
    ratios = [row["ratio"] for row in rows if row["ratio"]]
    total = {
        "problems": len(rows),
        "wrong": sum(row["wrong"] for row in rows),
        "proved": sum(row["grade"] == "proved" for row in rows),
        "ratio": round(float(np.exp(np.mean(np.log(ratios)))), 3) if ratios else None,
    }
    if asked.json:
        print(json.dumps({"rows": rows, "total": total, "machine": environment()}, indent=1))
    else:
        print(", ".join(f"{k} {v}" for k, v in total.items()))


if __name__ == "__main__":
    main()
