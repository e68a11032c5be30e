"""Solving again at other values: against CVXPY's own parameters, and sweeps against cold solves.

    python benchmarks/resolve.py [--quick] [--json]

CPU seconds of one process, alternating, the least of several; every answer is compared. The
model-predictive step and the linear program take other right-hand sides at every solve.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import cvxpy as cp
import numpy as np
from record import environment

import optfair as of

Floats = Any


def regulator(n: int = 6, m: int = 2, steps: int = 20) -> tuple[Any, Any]:
    """Return a model-predictive step, term by term, and its state."""
    rng = np.random.default_rng(0)
    A = np.eye(n) + 0.1 * rng.standard_normal((n, n))
    A /= max(1.0, float(np.abs(np.linalg.eigvals(A)).max()))
    B = 0.3 * rng.standard_normal((n, m))
    x, u = cp.Variable((n, steps + 1), name="x"), cp.Variable((m, steps), name="u")
    state = cp.Parameter(n, name="state", value=rng.standard_normal(n))
    rows = [x[:, 0] == state]
    for t in range(steps):
        rows += [x[:, t + 1] == A @ x[:, t] + B @ u[:, t], cp.norm_inf(u[:, t]) <= 1]
    goal = sum(cp.sum_squares(x[:, t + 1]) + 0.1 * cp.sum_squares(u[:, t]) for t in range(steps))
    return cp.Problem(cp.Minimize(goal), rows), state


def stacked_regulator(n: int = 6, m: int = 2, steps: int = 20) -> tuple[Any, Any]:
    """Return the same written with matrices."""
    rng = np.random.default_rng(0)
    A = np.eye(n) + 0.1 * rng.standard_normal((n, n))
    A /= max(1.0, float(np.abs(np.linalg.eigvals(A)).max()))
    B = 0.3 * rng.standard_normal((n, m))
    x, u = cp.Variable((n, steps + 1), name="x"), cp.Variable((m, steps), name="u")
    state = cp.Parameter(n, name="state", value=rng.standard_normal(n))
    rows = [x[:, 0] == state, x[:, 1:] == A @ x[:, :-1] + B @ u, u <= 1, u >= -1]
    goal = cp.sum_squares(x[:, 1:]) + 0.1 * cp.sum_squares(u)
    return cp.Problem(cp.Minimize(goal), rows), state


def linear(rows: int = 400, columns: int = 200) -> tuple[Any, Any, Floats]:
    """Return a dense linear program, its right-hand side, and the matrix."""
    rng = np.random.default_rng(0)
    A = rng.random((rows, columns))
    x = cp.Variable(columns, name="x")
    b = cp.Parameter(rows, name="b", value=A @ np.ones(columns))
    cost = rng.random(columns) + 0.1
    return cp.Problem(cp.Minimize(cost @ x), [A @ x >= b, x >= 0, x <= 10]), b, A


def paired(
    p: Any, problem: Any, leaf: Any, draw: Callable[[], Floats], solver: str, rounds: int
) -> tuple[float, float, float, bool]:
    """Return the least CPU seconds of both, the largest difference, whether all are verified."""
    start, ours, theirs, apart, verified = leaf.value.copy(), [], [], 0.0, True
    for _ in range(rounds):
        value = draw()
        begin = time.process_time()
        found = p.at({leaf.name(): value}).solve()
        ours.append(time.process_time() - begin)
        leaf.value = value
        begin = time.process_time()
        problem.solve(solver=solver)
        theirs.append(time.process_time() - begin)
        leaf.value = start
        verified &= bool(found.status.termination == "optimal" and found.grade.sound)
        apart = max(apart, abs(found.objective - problem.value) / max(1.0, abs(problem.value)))
    return min(ours), min(theirs), apart, verified


def measured_sweep(rows: int, clusters: int) -> dict[str, float]:
    """Return CPU seconds of 100 cold solves and a sweep, and solves for a band of 1e-3."""
    X, sex = of.datasets.load("adult").numeric("sex", standardize=True)
    X, sex = X[:rows], sex[:rows]
    centers = X[np.random.default_rng(0).choice(len(X), clusters, replace=False)]
    p = of.FairAssignment(X, groups=sex, centers=centers, fairness=of.max_gap(0.05))
    grid = np.linspace(0.0005, 0.4, 100)
    cold, values = 0.0, []
    for eps in grid:
        begin = time.process_time()
        values.append(p.at(eps=float(eps)).solve().objective)
        cold += time.process_time() - begin
    begin = time.process_time()
    given = of.sweep(p, "eps", grid)
    warm = time.process_time() - begin
    apart = max(abs(a.value - b) for a, b in zip(given.points, values, strict=True))
    band = of.sweep(p, "eps", (0.0005, 0.4), width=1e-3)
    return {"cold": cold, "warm": warm, "apart": apart, "solves": band.solves, "width": band.width}


def main() -> None:
    """Print the rows, or one JSON object with ``must_reach``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a slice under 45 s")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args()
    rounds = 12 if options.quick else 60
    rng, targets, notes = np.random.default_rng(1), list[tuple[str, float, float]](), {}
    warnings.simplefilter("ignore")
    for name, make in (("term by term", regulator), ("with matrices", stacked_regulator)):
        problem, state = make()
        p = of.from_cvxpy(problem)
        x = state.value.copy()
        for solver in ("OSQP", "CLARABEL"):
            ours, theirs, apart, sound = paired(
                p, problem, state, lambda x=x: x + 0.02 * rng.standard_normal(6), solver, rounds
            )
            notes[f"MPC {name}, {solver}"] = {
                "ms": ours * 1e3,
                "CVXPY ms": theirs * 1e3,
                "apart": apart,
                "verified": sound,
            }
            if solver == "OSQP":  # what CVXPY chooses
                targets.append((f"MPC step {name}, of CVXPY DPP", 1.0, ours / theirs))
    problem, side, A = linear()
    p = of.from_cvxpy(problem)
    ours, theirs, apart, sound = paired(
        p,
        problem,
        side,
        lambda: A @ (1.0 + 0.01 * rng.standard_normal(200)),
        "HIGHS",
        rounds,
    )
    notes["LP 400x200"] = {"ms": ours * 1e3, "CVXPY ms": theirs * 1e3, "apart": apart} | {
        "verified": sound
    }
    targets.append(("LP 400x200 with a kept model, of CVXPY DPP", 0.2, ours / theirs))
    found = measured_sweep(*((2_000, 5) if options.quick else (32_561, 10)))
    notes["sweep"] = found
    targets.append(("sweep of 100 values, of cold solves", 0.35, found["warm"] / found["cold"]))
    targets.append(("solves for a band of 1e-3 of the range", 40.0, found["solves"]))
    result = {
        "must_reach": [
            {"name": n, "target": t, "measured": m, "reached": bool(m <= t)} for n, t, m in targets
        ],
        "figures": notes,
        "environment": {**environment(), "cvxpy": cp.__version__},
    }
    if options.json:
        print(json.dumps(result))
        return
    print("| figure | target | measured |\n|---|---:|---:|")
    for row in result["must_reach"]:
        print(f"| {row['name']} | {row['target']:g} | {row['measured']:.3g} |")
    for name, figures in notes.items():
        print(f"{name}: " + ", ".join(f"{k} {v:.3g}" for k, v in figures.items()))


if __name__ == "__main__":
    main()
