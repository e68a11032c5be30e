"""Overhead of the layer: declared, classified, compiled, recovered and verified, against plain CVXPY.

    python benchmarks/overhead.py [--quick] [--json]

Prints Markdown. Both sides get the same new data in every round and the same solver, and both
write, compile and solve a new problem:

- ours: build a ``cvxpy.Problem``, ``of.from_cvxpy(problem).solve(solver)``: every life word, so
  signs and classes of all terms, and residuals of values and multipliers on the declared terms,
  at a tolerance of 1e-7, which asks more of the solvers than their defaults.
- CVXPY: build a ``cvxpy.Problem`` of the same shape, ``problem.solve(solver=...)`` with the
  defaults of CVXPY, without any check.
- DPP: one ``cvxpy.Problem`` with parameters, compiled before; new values, ``problem.solve``. It
  is no peer of the other two: it may not change its shape. It is what to use in a tight loop.

The first solve of each shape is not counted, so imports and caches are warm. The sides take
turns and change who begins; a ratio is the median of the ratios within the rounds. Seconds are
wall seconds, of one thread; the last column is the same ratio of processor seconds, which a
busy machine disturbs less.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

import optfair as of

ASSETS = 10
COLUMNS = 100_000
# name here -> name in CVXPY
QP_SOLVERS = {"clarabel": cp.CLARABEL, "highs": cp.HIGHS, "scs": cp.SCS}
LIFE = ("choose", "compile", "solve", "recover", "verify")


def portfolio(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return covariance and returns of some assets."""
    rng = np.random.default_rng(seed)
    B = rng.normal(size=(ASSETS, ASSETS))
    return B @ B.T + np.eye(ASSETS), rng.normal(size=ASSETS)


def quadratic(data: tuple[np.ndarray, np.ndarray]) -> cp.Problem:
    """Return the portfolio of least variance with a wanted return, without short sales."""
    covariance, returns = data
    x = cp.Variable(ASSETS, name="x")
    risk = cp.quad_form(x, cp.psd_wrap(covariance))
    return cp.Problem(cp.Minimize(risk), [cp.sum(x) == 1, returns @ x >= 0.1, x >= 0])


def parametrised() -> Callable[[tuple[np.ndarray, np.ndarray]], cp.Problem]:
    """Return a function that sets new numbers in one compiled portfolio problem."""
    factor, returns = cp.Parameter((ASSETS, ASSETS)), cp.Parameter(ASSETS)
    x = cp.Variable(ASSETS, name="x")
    goal = cp.Minimize(cp.sum_squares(factor @ x))
    problem = cp.Problem(goal, [cp.sum(x) == 1, returns @ x >= 0.1, x >= 0])

    def filled(data: tuple[np.ndarray, np.ndarray]) -> cp.Problem:
        factor.value, returns.value = np.linalg.cholesky(data[0]).T, data[1]
        return problem

    return filled


def shop(seed: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return usage, stock and prices of many products that share one resource.

    One row leaves the solver next to nothing to do, and 2 * 10^5 bounds to everybody
    else: with more rows the ratio falls, since the solver takes nearly all the time.
    """
    rng = np.random.default_rng(seed)
    usage = sp.csr_array(rng.random((1, COLUMNS)))
    prices = usage.toarray()[0] + 0.1 * rng.normal(size=COLUMNS)
    return usage, 0.3 * usage.sum(axis=1), prices


def linear(data: tuple[Any, np.ndarray, np.ndarray]) -> cp.Problem:
    """Return the most valuable production from the stock, each product at most once."""
    usage, stock, prices = data
    x = cp.Variable(COLUMNS, name="x")
    return cp.Problem(cp.Maximize(prices @ x), [usage @ x <= stock, x >= 0, x <= 1])


def measured(
    build: Callable[[Any], cp.Problem], data: Callable[[int], Any], solver: str, rounds: int
) -> dict[str, Any]:
    """Return medians of both sides, their paired ratio, and the seconds of each life word."""
    theirs_called = QP_SOLVERS[solver]
    words: dict[str, list[float]] = {w: [] for w in ("declare", *LIFE)}
    seconds: dict[str, list[float]] = {"optfair": [], "CVXPY": []}
    processor: dict[str, list[float]] = {"optfair": [], "CVXPY": []}
    apart = 0.0

    def ours(numbers: Any) -> float:
        built = build(numbers)
        begin = time.perf_counter()
        problem = of.from_cvxpy(built)
        declared = time.perf_counter() - begin
        solution = problem.solve(solver)
        words["declare"].append(declared)
        for word in LIFE:
            words[word].append(solution.seconds.get(word, 0.0))
        return solution.objective

    def theirs(numbers: Any) -> float:
        return float(build(numbers).solve(solver=theirs_called))

    sides: list[tuple[str, Callable[[Any], float]]] = [("optfair", ours), ("CVXPY", theirs)]
    for i in range(rounds + 1):
        if i == 1:
            gc.collect()
            gc.freeze()  # what was imported so far is not searched again
        numbers, found = data(i), {}
        for name, side in sides if i % 2 else reversed(sides):
            gc.collect()  # nobody pays for what the other left behind
            begin, used = time.perf_counter(), time.process_time()
            found[name] = side(numbers)
            seconds[name].append(time.perf_counter() - begin)
            processor[name].append(time.process_time() - used)
        size = max(1.0, abs(found["CVXPY"]))
        apart = max(apart, abs(found["optfair"] - found["CVXPY"]) / size)
    # the first round warms caches up
    ratios = {
        clock: statistics.median(
            a / b for a, b in zip(taken["optfair"][1:], taken["CVXPY"][1:], strict=True)
        )
        for clock, taken in (("wall", seconds), ("processor", processor))
    }
    return {
        "solver": solver,
        "optfair": statistics.median(seconds["optfair"][1:]),
        "CVXPY": statistics.median(seconds["CVXPY"][1:]),
        "ratio": ratios["wall"],
        "processor ratio": ratios["processor"],
        "relative difference": apart,
        "words": {w: statistics.median(v[1:]) for w, v in words.items()},
    }


def resolved(solver: str, rounds: int) -> float:
    """Return the median seconds of a solve of one problem with new parameters."""
    filled, times = parametrised(), []
    for i in range(rounds + 1):
        data = portfolio(i)
        begin = time.perf_counter()
        filled(data).solve(solver=QP_SOLVERS[solver])
        times.append(time.perf_counter() - begin)
    return statistics.median(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a slice under 45 s")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    rounds, large_rounds = (40, 3) if options.quick else (300, 11)
    small = [measured(quadratic, portfolio, solver, rounds) for solver in QP_SOLVERS]
    for row in small:
        row["DPP"] = resolved(row["solver"], rounds)
    large = measured(linear, shop, "highs", large_rounds)
    targets = [
        (f"QP of {ASSETS} variables, {row['solver']}: time / CVXPY's", 2.0, row["ratio"])
        for row in small
    ]
    targets.append((f"LP of {COLUMNS} variables, highs: time / CVXPY's", 1.2, large["ratio"]))
    result = {
        "must_reach": [
            {"name": n, "target": t, "measured": m, "reached": bool(m <= t)} for n, t, m in targets
        ],
        "quadratic": small,
        "linear": large,
        "environment": {
            "python": platform.python_version(),
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "optfair": of.__version__,
            "cvxpy": cp.__version__,
        },
    }
    if options.json:
        print(json.dumps(result))
        return
    print("## Overhead of the layer\n")
    print(
        "| problem | solver | optfair ms | CVXPY ms | ratio | DPP ms | relative difference "
        "| processor ratio |"
    )
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    table = [(f"QP, {ASSETS} variables", row) for row in small]
    table += [(f"LP, {COLUMNS:,} variables", large)]
    for name, row in table:
        again = f"{row['DPP'] * 1e3:.2f}" if "DPP" in row else ""
        print(
            f"| {name} | {row['solver']} | {row['optfair'] * 1e3:.2f} | {row['CVXPY'] * 1e3:.2f} "
            f"| {row['ratio']:.2f} | {again} | {row['relative difference']:.1e} "
            f"| {row['processor ratio']:.2f} |"
        )
    print("\nWhere our milliseconds go:\n")
    print("| problem | solver | " + " | ".join(("declare", *LIFE)) + " |")
    print("|---|---|" + "---:|" * (len(LIFE) + 1))
    for name, row in table:
        cells = " | ".join(f"{v * 1e3:.2f}" for v in row["words"].values())
        print(f"| {name} | {row['solver']} | {cells} |")
    print("\n| must reach | target | measured | |")
    print("|---|---:|---:|---|")
    for t in result["must_reach"]:
        verdict = "reached" if t["reached"] else "NOT reached"
        print(f"| {t['name']} | {t['target']:g} | {t['measured']:.2f} | {verdict} |")


if __name__ == "__main__":
    main()
