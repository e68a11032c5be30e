"""The fair assignment problem: structured route against generic solvers and optimal transport.

    python benchmarks/fair_assignment.py [--quick] [--json] [--out DIR]

Prints Markdown and writes a picture. Adult (n = 32,561) is read from OPTFAIR_DATA; without it,
Gaussian data of the same size stand in, and the output says so. Times are wall seconds of whole
calls (choose, compile, solve, recover, verify), one thread, medians over repeats.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
from record import environment, targets_table

import optfair as of

K = 10
STEPS = 16


def adult() -> tuple[np.ndarray, np.ndarray, str]:
    """Return (unscaled columns, groups, name)."""
    try:
        X, sex = of.datasets.load("adult", fetch=False).numeric("sex")
        return X, np.asarray(sex), "Adult"
    except of.DataError:
        rng = np.random.default_rng(0)
        groups = np.where(rng.random(32_561) < 0.331, "a", "b")
        X = rng.normal(size=(32_561, 5)) * [13, 1e5, 2.5, 7e3, 12]
        X[groups == "a"] += [3, 2e4, 0.2, -600, -6]
        return X, groups, "synthetic data of Adult's size"


def prepared(X: np.ndarray) -> dict[str, np.ndarray]:
    """Return the data unscaled, standardised, and with rows of length 1."""
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    return {
        "unscaled": X,
        "standardised": Z,
        "L2": Z / np.linalg.norm(Z, axis=1, keepdims=True),
    }


def rules(p: Any) -> dict[str, Callable[[], Any]]:
    """Return one builder per rule."""
    import cvxpy as cp

    F = cp.multiply(1 / p.shares[:, None], p["masses"])
    best = p.shares.min() / p.shares.max()
    return {
        "perfect fairness": of.perfect_fairness,
        "additive gap 0.05": lambda: of.additive_gap(0.05),
        "max gap 0.02": lambda: of.max_gap(0.02),
        "balance 0.8 Bal*": lambda: of.balance(0.8 * best),
        "share in [0.05, 0.2]": lambda: of.cluster_share(lower=0.05, upper=0.2),
        "norm of differences 0.05": lambda: cp.norm(F[0] - F[1]) <= 0.05,
    }


def seconds(call: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Return (median seconds, last result)."""
    times, result = [], None
    for _ in range(repeats):
        begin = time.perf_counter()
        result = call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times), result


def alternated(
    X: np.ndarray, groups: np.ndarray, start: np.ndarray, build: Any, repeats: int
) -> Any:
    """Return one row: a cold solve, then warm solves while an alternation moves the centers.

    From random centers the first steps move far ("early"); later ones are what most of an
    alternation consists of ("warm"): each solve starts from the duals of the one before.
    """
    plain = of.FairAssignment(X, groups=groups, centers=start, fairness=None)
    p = plain.with_constraints(rule=build(plain))
    ask = 1e-9 if str(p.problem_class) == "LP" else 1e-7
    cold, s = seconds(lambda: p.solve(tolerance=ask), repeats)
    first, gaps, steps = s, [s.gap], []
    for _ in range(STEPS):
        A = s["assignment"]
        p = p.with_centers((A.T @ X) / np.maximum(A.sum(axis=0)[:, None], 1e-12))
        begin = time.perf_counter()
        s = p.solve(tolerance=ask, warm_start=s)
        steps.append(time.perf_counter() - begin)
        gaps.append(s.gap)
    return {
        "class": str(p.problem_class),
        "cold": cold,
        "early": statistics.median(steps[:3]),
        "warm": statistics.median(steps[STEPS // 2 :]),
        "gap": max(gaps),
        "rounds": len(first.progress),
        "arcs": max(r.arcs for r in first.progress),
    }


def peers(X: np.ndarray, groups: np.ndarray, rows: int, repeats: int) -> list[dict[str, Any]]:
    """Time the same LP by generic solvers, and its transport form by POT, on some of the rows."""
    rng = np.random.default_rng(1)
    take = rng.choice(len(X), rows, replace=False)
    X, groups = X[take], groups[take]
    centers = X[rng.choice(rows, K, replace=False)]
    p = of.FairAssignment(X, groups=groups, centers=centers)
    own, s = seconds(lambda: p.solve(), max(3, repeats))
    names = p.group_names
    kantorovich = of.KantorovichCoupling(
        X[groups == names[0]], X[groups == names[1]], centers=centers
    )
    found = []
    for label, call in {
        "CVXPY to HiGHS, factored": lambda: p.solve("highs"),
        "CVXPY to Clarabel, factored": lambda: p.solve("clarabel"),
        "POT network simplex, n0 x n1": lambda: of.KantorovichCoupling(
            cost=kantorovich.data["compute"]()
        ).solve(),
    }.items():
        taken, t = seconds(call, 1)
        found.append(
            {
                "peer": label,
                "rows": rows,
                "seconds": taken,
                "mass-dual seconds": own,
                "ratio": taken / own,
                "relative difference": abs(t.objective - s.objective) / abs(s.objective),
            }
        )
    return found


def large(n: int) -> dict[str, Any]:
    """Time one cold solve of n synthetic rows (two groups, 5 columns, K = 10)."""
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(n, 5)), rng.integers(0, 2, n)
    X[groups == 0] += 0.4
    p = of.FairAssignment(X, groups=groups, centers=X[:K])
    taken, s = seconds(lambda: p.solve(tolerance=1e-9), 1)
    return {"rows": n, "seconds": taken, "solver": s.solver, "gap": s.gap}


def import_cost(repeats: int) -> float:
    """Return the median paired difference of importing optfair over importing numpy."""
    code = "import time; t = time.perf_counter(); import {}; print(time.perf_counter() - t)"

    def once(module: str) -> float:
        out = subprocess.run(
            [sys.executable, "-c", code.format(module)], capture_output=True, text=True, check=True
        )
        return float(out.stdout)

    return statistics.median(once("numpy, optfair") - once("numpy") for _ in range(repeats))


def picture(rows: list[dict[str, Any]], name: str, n: int, file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, ax = plt.subplots(figsize=(8, 0.36 * len(rows) + 1.6), layout="constrained")
    y = np.arange(len(rows))[::-1]
    ax.hlines(
        y,
        [min(r["warm"], r["cold"]) for r in rows],
        [max(r["warm"], r["cold"]) for r in rows],
        color="0.8",
        zorder=1,
    )
    ax.scatter([r["cold"] for r in rows], y, color="#0072B2", label="cold", zorder=2)
    ax.scatter([r["warm"] for r in rows], y, color="#D55E00", label="warm duals", zorder=2)
    ax.axvline(0.05, color="0.5", ls="--", lw=1)
    ax.axvline(0.6, color="0.5", ls=":", lw=1)
    ax.set(xscale="log", xlabel="seconds for one verified assignment (log scale)", yticks=y)
    ax.set_xticks(marks := [0.02, 0.05, 0.1, 0.2, 0.6], [f"{m:g}" for m in marks])
    ax.minorticks_off()
    ax.set_yticklabels([f"{r['data']}, {r['rule']}" for r in rows])
    ax.set_title(f"{name}, n = {n:,}, K = {K}. Dashed: 0.05 s, dotted: 0.6 s", loc="left")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.4, -0.1), ncols=2)
    fig.savefig(file, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a slice under 45 s")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out"))
    options = parser.parse_args()
    repeats = 3 if options.quick else 7
    X, groups, name = adult()
    rows = []
    for data, Z in prepared(X).items():
        rng = np.random.default_rng(0)
        start = Z[rng.choice(len(Z), K, replace=False)]
        plain = of.FairAssignment(Z, groups=groups, centers=start, fairness=None)
        for rule in rules(plain):
            if options.quick and data == "L2" and rule != "perfect fairness":
                continue
            row = alternated(Z, groups, start, lambda p, r=rule: rules(p)[r](), repeats)
            rows.append({"data": data, "rule": rule, **row})
    compared = peers(
        prepared(X)["standardised"], groups, 1_000 if options.quick else 10_000, repeats
    )
    big = large(100_000 if options.quick else 1_000_000)
    loading = import_cost(5 if options.quick else 11)
    linear = [r for r in rows if r["class"] == "LP"]
    worst = {key: max(r[key] for r in linear) for key in ("cold", "warm")}
    polyhedral = max(r["gap"] for r in linear)
    curved = max(r["gap"] for r in rows if r["class"] != "LP")
    apart = max(r["relative difference"] for r in compared)
    targets = [
        ("LP with warm duals, seconds, worst rule and scaling", 0.05, worst["warm"]),
        ("LP from cold, seconds, worst rule and scaling", 0.6, worst["cold"]),
        ("gap, polyhedral rules", 1e-9, polyhedral),
        ("gap, curved rule", 1e-7, curved),
        ("relative difference to generic solvers and POT", 1e-7, apart),
        ("import optfair over numpy, seconds", 0.3, loading),
    ]
    result = {
        "must_reach": [
            {"name": n, "target": t, "measured": m, "reached": bool(m <= t)} for n, t, m in targets
        ],
        "data": name,
        "rows": rows,
        "peers": compared,
        "large": big,
        "environment": {
            **environment(),
            "solvers": {r["solver"]: r["version"] for r in of.solvers().to_list()},
        },
    }
    if options.json:
        print(json.dumps(result))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    print(f"## One fair assignment: {name}, n = {len(X):,}, K = {K}\n")
    print("| data | rule | class | cold s | early s | warm s | gap | rounds | arcs |")
    print("|---|---|---|---:|---:|---:|---:|---:|---:|")
    for r in rows:
        print(
            f"| {r['data']} | {r['rule']} | {r['class']} | {r['cold']:.3f} | {r['early']:.3f} | {r['warm']:.3f} "
            f"| {r['gap']:.1e} | {r['rounds']} | {r['arcs']} |"
        )
    print("\n| peer | rows | seconds | mass-dual s | ratio | relative difference |")
    print("|---|---:|---:|---:|---:|---:|")
    for r in compared:
        print(
            f"| {r['peer']} | {r['rows']} | {r['seconds']:.3f} | {r['mass-dual seconds']:.4f} "
            f"| {r['ratio']:.0f}x | {r['relative difference']:.1e} |"
        )
    print(
        f"\nSynthetic, n = {big['rows']:,}, K = {K}, from cold: {big['seconds']:.2f} s by "
        f"{big['solver']}, gap {big['gap']:.1e}"
    )
    print("\n" + targets_table(result["must_reach"]))
    picture(rows, name, len(X), options.out / "fair_assignment.png")
    print(f"\nPicture: {options.out / 'fair_assignment.png'}")


if __name__ == "__main__":
    main()
