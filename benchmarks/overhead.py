"""Overhead of the layer: declared, classified, compiled, recovered and verified, against plain CVXPY.

    python benchmarks/overhead.py [--quick] [--json] [--out DIR]

Prints Markdown and writes a picture. Both sides get the same new data in every round and the same solver, and both
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
busy machine disturbs less: targets are held against it. Semidefinite programs go by the default
route, at 1e-7 with a proof, against CVXPY with Clarabel and its defaults, by processor seconds.
A peer has its solver's clock set to a limit: seconds behind a ≥ are of one that did not end.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from record import environment, targets_table

import optfair as of
from optfair.backends.registry import profile

ASSETS = 5
COLUMNS = 100_000
CONES = 200
QP_SOLVERS = ("clarabel", "highs", "scs")
# time / CVXPY's that is to be reached
TARGETS = {"LP5": 1.4, "QP5": 1.35, "SOCP200": 1.1, "large": 1.15}
# vertices or order -> time of the default route / that of CVXPY with Clarabel, to be reached
SEMIDEFINITE = {"max-cut, 80": 0.1, "nearest correlation, 80": 0.1, "Lovász number, 40": 1.0}
# seconds of a peer's solver, by its own clock; one that takes them all counts as that much at least
LIMIT = 20.0
LIFE = ("choose", "import", "compile", "solve", "recover", "verify")


def portfolio(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return covariance and returns of some assets."""
    rng = np.random.default_rng(seed)
    B = rng.normal(size=(ASSETS, ASSETS))
    # positive, so that the wanted return of 0.1 can be had in every round
    return B @ B.T + np.eye(ASSETS), np.abs(rng.normal(size=ASSETS))


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


def small(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows, sides and costs of a linear program of few columns that has an optimum."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(2 * ASSETS, ASSETS))
    return A, A @ rng.random(ASSETS) + rng.random(2 * ASSETS), -A.T @ rng.random(2 * ASSETS)


def rows_of_few(data: tuple[np.ndarray, np.ndarray, np.ndarray]) -> cp.Problem:
    """Return a linear program of one block of rows and bounds."""
    A, b, cost = data
    x = cp.Variable(ASSETS, name="x")
    return cp.Problem(cp.Minimize(cost @ x), [A @ x <= b, x >= -100, x <= 100])


def balls(seed: int) -> list[np.ndarray]:
    """Return centers, radii and maps of many balls, and a direction."""
    rng = np.random.default_rng(seed)
    shapes = [(CONES, 5, 20), (CONES, 5), (CONES,), (20,)]
    return [rng.normal(size=shape) for shape in shapes]


def conic(data: list[np.ndarray]) -> cp.Problem:
    """Return a linear objective over many named second-order cones."""
    maps, centers, radii, cost = data
    x = cp.Variable(20, name="x")
    rows = [
        cp.norm(A @ x - c) <= 8.0 + abs(r) for A, c, r in zip(maps, centers, radii, strict=True)
    ]
    return cp.Problem(cp.Minimize(cost @ x), rows)


def matrices(name: str) -> cp.Problem:
    """Return a semidefinite program of random data."""
    rng, n = np.random.default_rng(0), int(name.rpartition(" ")[2])
    X = cp.Variable((n, n), name="X", symmetric=True)
    upper = np.triu(rng.random((n, n)) < 0.3, 1)
    if name.startswith("max-cut"):
        W = (upper + upper.T) * 1.0
        goal: Any = cp.Maximize(0.25 * cp.trace((np.diag(W.sum(axis=1)) - W) @ X))
        return cp.Problem(goal, [cp.diag(X) == 1, X >> 0])
    if name.startswith("nearest"):
        near = np.tanh(rng.standard_normal((n, n)))
        goal = cp.Minimize(cp.sum_squares(X - 0.5 * (near + near.T)))
        return cp.Problem(goal, [cp.diag(X) == 1, X >> 0])
    apart = X[np.nonzero(upper)] == 0
    return cp.Problem(cp.Maximize(cp.sum(X)), [apart, cp.trace(X) == 1, X >> 0])


def by_cvxpy(problem: cp.Problem, solver: str) -> float:
    """Return the optimum by CVXPY with its defaults, NaN where the limit came first."""
    clock = profile(solver).options["time_limit"]
    value = problem.solve(solver=solver.upper(), **{clock: LIMIT})
    return float("nan" if problem.status == cp.USER_LIMIT else value)


def shown(row: dict[str, Any], side: str, unit: float = 1e3) -> str:
    """Return seconds of a side of a row in that many parts, at least these where it was late."""
    return f"{'≥ ' if row[side] >= LIMIT else ''}{row[side] * unit:.2f}"


def semidefinite(rounds: int) -> list[dict[str, Any]]:
    """Return processor seconds of the default route, proved at 1e-7, and of CVXPY with Clarabel."""
    rows = []
    for name in SEMIDEFINITE:
        problem, ours, theirs = matrices(name), [], []
        for _ in range(rounds):
            begin = time.process_time()
            s = of.from_cvxpy(problem).solve()
            middle = time.process_time()
            by_cvxpy(problem, "clarabel")
            ours.append(middle - begin)
            theirs.append(time.process_time() - middle)
        ratio = min(ours) / min(theirs)
        taken = {"optfair": min(ours), "CVXPY": min(theirs), "ratio": ratio}
        rows.append({"problem": name, "solver": s.solver, "proved": s.is_optimal(1e-7), **taken})
    return rows


def measured(
    build: Callable[[Any], cp.Problem], data: Callable[[int], Any], solver: str, rounds: int
) -> dict[str, Any]:
    """Return medians of both sides, their paired ratio, and the seconds of each life word."""
    words: dict[str, list[float]] = {w: [] for w in ("declare", *LIFE)}
    seconds: dict[str, list[float]] = {"optfair": [], "CVXPY": []}
    processor: dict[str, list[float]] = {"optfair": [], "CVXPY": []}
    failed, apart = list[int](), 0.0

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
        return by_cvxpy(build(numbers), solver)

    sides: list[tuple[str, Callable[[Any], float]]] = [("optfair", ours), ("CVXPY", theirs)]
    for i in range(rounds + 1):
        if i == 1:
            gc.collect()
            gc.freeze()  # what was imported so far is not searched again
        numbers, found, taken = data(i), dict[str, float](), dict[str, tuple[float, float]]()
        for name, side in sides if i % 2 else reversed(sides):
            gc.collect()  # nobody pays for what the other left behind
            begin, used = time.perf_counter(), time.process_time()
            try:
                found[name] = side(numbers)
            except (of.SolverFailure, cp.SolverError):
                continue  # the solver gave up; its other rounds still count
            taken[name] = time.perf_counter() - begin, time.process_time() - used
        if len(taken) < len(sides):
            failed.append(i)
            continue
        for name, (wall, cpu) in taken.items():
            seconds[name].append(wall)
            processor[name].append(cpu)
        if found["CVXPY"] == found["CVXPY"]:  # it was not late
            size = max(1.0, abs(found["CVXPY"]))
            apart = max(apart, abs(found["optfair"] - found["CVXPY"]) / size)
    # the first round warms caches up
    ratios = {
        clock: statistics.median(
            a / b for a, b in zip(used["optfair"][1:], used["CVXPY"][1:], strict=True)
        )
        for clock, used in (("wall", seconds), ("processor", processor))
    }
    return {
        "solver": solver,
        "optfair": statistics.median(seconds["optfair"][1:]),
        "CVXPY": statistics.median(seconds["CVXPY"][1:]),
        "ratio": ratios["wall"],
        "processor ratio": ratios["processor"],
        "relative difference": apart,
        "failed rounds": failed,
        "words": {w: statistics.median(v[1:]) for w, v in words.items()},
    }


def resolved(solver: str, rounds: int) -> tuple[float, int]:
    """Return median seconds of a solve of one problem with new parameters, and its failures."""
    filled, failed = parametrised(), 0
    times: list[float] = []
    for i in range(rounds + 1):
        data = portfolio(i)
        begin = time.perf_counter()
        try:
            by_cvxpy(filled(data), solver)
        except cp.SolverError:
            failed += 1  # it may give up; its other rounds still count
            continue
        times.append(time.perf_counter() - begin)
    return statistics.median(times[1:]), failed


def picture(table: list[tuple[str, dict[str, Any]]], limits: list[float], file: Path) -> None:
    """Draw both sides as bars, ours by life word, in units of CVXPY's time."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    colours = ("#0072B2", "#56B4E9", "#CC79A7", "#009E73", "#B8B8B8", "#E69F00", "#D55E00")
    fig, ax = plt.subplots(figsize=(9.5, 1.6 + 0.85 * len(table)), layout="constrained")
    for i, (_, row) in enumerate(table):
        left = 0.0
        for word, colour in zip(("declare", *LIFE), colours, strict=True):
            width = row["words"][word] / row["CVXPY"]
            ax.barh(2.6 * i, width, left=left, color=colour, label=word if i == 0 else None)
            left += width
        ax.text(left + 0.02, 2.6 * i, f"{row['optfair'] * 1e3:.3g} ms", va="center", fontsize=9)
        ax.barh(2.6 * i + 0.9, 1.0, color="#E3E3E3", label="CVXPY" if i == 0 else None)
        ax.text(1.02, 2.6 * i + 0.9, f"{row['CVXPY'] * 1e3:.3g} ms", va="center", fontsize=9)
        ax.plot([limits[i], limits[i]], [2.6 * i - 0.5, 2.6 * i + 0.5], color="#B3261E", lw=1.6)
    ax.set_yticks(
        [2.6 * i + 0.45 for i in range(len(table))], [f"{name}\n{r['solver']}" for name, r in table]
    )
    ax.invert_yaxis()
    ax.set_xlim(0, 2.15)
    ax.set_xlabel("time / CVXPY's; red: the limit")
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.legend(ncols=7, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False, fontsize=9)
    fig.savefig(file, dpi=110)
    plt.close(fig)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a slice under 45 s")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out"))
    options = parser.parse_args()
    rounds, large_rounds = (40, 3) if options.quick else (300, 11)
    quadratics = [measured(quadratic, portfolio, solver, rounds) for solver in QP_SOLVERS]
    for row in quadratics:
        row["DPP"], row["DPP failures"] = resolved(row["solver"], rounds)
    table = [(f"QP, {ASSETS} variables", row) for row in quadratics]
    table += [
        (f"LP, {ASSETS} variables", measured(rows_of_few, small, "highs", rounds)),
        (f"SOCP, {CONES} cones", measured(conic, balls, "clarabel", large_rounds)),
        (f"LP, {COLUMNS:,} variables", measured(linear, shop, "highs", large_rounds)),
    ]
    wanted = [*["QP5"] * len(quadratics), "LP5", "SOCP200", "large"]
    targets = [
        (f"{name}, {row['solver']}: time / CVXPY's", TARGETS[kind], row["processor ratio"])
        for kind, (name, row) in zip(wanted, table, strict=True)
    ]
    of_matrices = semidefinite(1 if options.quick else 3)
    targets += [
        (f"{r['problem']}: time / CVXPY's with Clarabel", SEMIDEFINITE[r["problem"]], r["ratio"])
        for r in of_matrices
    ]
    targets.append(
        (
            "semidefinite answers without a proof",
            0.0,
            float(sum(not r["proved"] for r in of_matrices)),
        )
    )
    result = {
        "semidefinite": of_matrices,
        "must_reach": [
            {"name": n, "target": t, "measured": m, "reached": bool(m <= t)} for n, t, m in targets
        ],
        "rows": [{"problem": name, **row} for name, row in table],
        "environment": {
            **environment(),
            "cvxpy": cp.__version__,
        },
    }
    if options.json:
        print(json.dumps(result))
        return
    print("## Overhead of the layer\n")
    machine = result["environment"]
    print(
        f"CVXPY {machine['cvxpy']}, Python {machine['python']}, {machine['cores']} cores; medians.\n"
    )
    print(
        "| problem | solver | optfair ms | CVXPY ms | ratio | DPP ms | relative difference "
        "| processor ratio |"
    )
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for name, row in table:
        again = shown(row, "DPP") if "DPP" in row else ""
        print(
            f"| {name} | {row['solver']} | {shown(row, 'optfair')} | {shown(row, 'CVXPY')} "
            f"| {row['ratio']:.2f} | {again} | {row['relative difference']:.1e} "
            f"| {row['processor ratio']:.2f} |"
        )
    for name, row in table:
        if row["failed rounds"]:
            rounds_lost = ", ".join(map(str, row["failed rounds"]))
            print(
                f"\n{name}: {row['solver']} left no answer to one side or both in round {rounds_lost}."
            )
    for row in quadratics:
        if row["DPP failures"]:
            print(f"\nDPP: {row['solver']} failed in {row['DPP failures']} of {rounds + 1} rounds.")
    print("\nWhere our milliseconds go:\n")
    print("| problem | solver | " + " | ".join(("declare", *LIFE)) + " |")
    print("|---|---|" + "---:|" * (len(LIFE) + 1))
    for name, row in table:
        cells = " | ".join(f"{v * 1e3:.2f}" for v in row["words"].values())
        print(f"| {name} | {row['solver']} | {cells} |")
    print("\n| semidefinite | route | CPU s | of CVXPY with Clarabel | ratio |")
    print("|---|---|---:|---:|---:|")
    for r in of_matrices:
        cells = f"{r['optfair']:.2f} | {shown(r, 'CVXPY', 1.0)} | {r['ratio']:.2f}"
        print(f"| {r['problem']} | {r['solver']} | {cells} |")
    print("\n" + targets_table(result["must_reach"]))
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "overhead.png"
    picture(table, [TARGETS[kind] for kind in wanted], file)
    print(f"\nPicture: {file}")


if __name__ == "__main__":
    main()
