"""What is compiled once: verbs on one problem, solving again, diagnosis of many named rows.

    python benchmarks/compiled_form.py [--quick] [--json]

Every figure is measured in this run. Reductions and matrices are counted where CVXPY makes them: a
term is reduced to cones once per way of reducing it (an objective that stays quadratic or does
not), and terms are turned into matrices together.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from cvxpy.reductions.dcp2cone.dcp2cone import Dcp2Cone
from machine import environment

import optfair as of
from optfair.compile import form


def linear(rows: int, columns: int = 200, seed: int = 0) -> cp.Problem:
    """Return a program of that many named scalar rows with an optimum."""
    rng = np.random.default_rng(seed)
    x = cp.Variable(columns, name="x")
    A = rng.normal(size=(rows, columns))
    b = A @ rng.random(columns) + rng.random(rows)
    cost = -A.T @ rng.random(rows)
    return cp.Problem(cp.Minimize(cost @ x), [A[i] @ x <= b[i] for i in range(rows)])


def cones(count: int, size: int = 5, seed: int = 0) -> cp.Problem:
    """Return a program of that many named second-order cones."""
    rng = np.random.default_rng(seed)
    x = cp.Variable(20, name="x")
    rows = [
        cp.norm(rng.normal(size=(size, 20)) @ x - rng.normal(size=size)) <= 5.0 + rng.random()
        for _ in range(count)
    ]
    return cp.Problem(cp.Minimize(rng.normal(size=20) @ x), rows)


def quadratic(seed: int = 0) -> cp.Problem:
    """Return a quadratic program in five columns."""
    rng = np.random.default_rng(seed)
    B, x = rng.normal(size=(5, 5)), cp.Variable(5, name="x")
    risk = cp.quad_form(x, cp.psd_wrap(B @ B.T + np.eye(5)))
    return cp.Problem(cp.Minimize(risk), [cp.sum(x) == 1, x >= 0])


def infeasible(rows: int, seed: int = 0) -> cp.Problem:
    """Return named rows of which the last two exclude each other and nothing else does."""
    rng = np.random.default_rng(seed)
    x, inside = cp.Variable(50, name="x"), rng.random(50)
    A = rng.normal(size=(rows, 50))
    b = A @ inside + 0.1 + rng.random(rows)
    middle = float(inside[:3].sum())
    pair = [cp.sum(x[:3]) >= middle + 1e-3, cp.sum(x[:3]) <= middle - 1e-3]
    return cp.Problem(cp.Minimize(0), [*(A[i] @ x <= b[i] for i in range(rows)), *pair])


def block(rows: int, seed: int = 0) -> cp.Problem:
    """Return that many rows of three entries under one name, and two names that exclude each other."""
    rng = np.random.default_rng(seed)
    n = rows // 5
    at = (np.repeat(np.arange(rows), 3), rng.integers(0, n, 3 * rows))
    A = sp.csr_array((rng.random(3 * rows), at), shape=(rows, n))
    x = cp.Variable(n, name="x")
    rows = [A @ x <= A @ np.ones(n) + 0.1, x >= 0.0, x <= 1.0, cp.sum(x) >= n + 1.0]
    return cp.Problem(cp.Minimize(cp.sum(x)), rows)


@contextmanager
def counted() -> Iterator[dict[str, int]]:
    """Count the terms that CVXPY reduces to cones, and how often terms become matrices."""
    counts = {"reduced": 0, "stuffed": 0}
    depth = [0]
    reduce, stuff = Dcp2Cone.canonicalize_tree, form.stuff

    def canonicalize_tree(self: Any, *args: Any, **more: Any) -> Any:
        counts["reduced"] += depth[0] == 0
        depth[0] += 1
        try:
            return reduce(self, *args, **more)
        finally:
            depth[0] -= 1

    def stuffed(parts: Any) -> None:
        counts["stuffed"] += 1
        stuff(parts)

    Dcp2Cone.canonicalize_tree, form.stuff = canonicalize_tree, stuffed  # type: ignore[method-assign]
    try:
        yield counts
    finally:
        Dcp2Cone.canonicalize_tree, form.stuff = reduce, stuff  # type: ignore[method-assign]


def verbs(problem: cp.Problem, first: str, second: str) -> dict[str, int]:
    """Use a problem in every way, and count what is compiled."""
    with counted() as counts, tempfile.TemporaryDirectory() as folder:
        p = of.from_cvxpy(problem)
        p.explain()
        p.solve(first)
        s = p.solve(first)
        p.solve(second)
        p.diagnose()
        p.export(Path(folder) / "a.cbf")
        if p.problem_class.name == "LP":
            p.export(Path(folder) / "a.mps")
            p.export(Path(folder) / "a.lp")
        dict(s.shadow_price)
        s.certificate.verify()
        s.is_optimal(1e-6)
    return {**counts, "terms": len(p.terms)}


def paired(
    ours: Callable[[], Any], theirs: Callable[[], Any], rounds: int
) -> tuple[float, float, float]:
    """Return median seconds of both and the median ratio; each is called once before."""
    ours(), theirs()
    a, b = [], []
    for i in range(rounds):
        for side in ((ours, a), (theirs, b)) if i % 2 else ((theirs, b), (ours, a)):
            begin = time.perf_counter()
            side[0]()
            side[1].append(time.perf_counter() - begin)
    return (
        statistics.median(a),
        statistics.median(b),
        statistics.median(x / y for x, y in zip(a, b, strict=True)),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rounds = 3 if options.quick else 9
    targets: list[tuple[str, float, float]] = []
    for name, problem, first, second in (
        ("linear program, 1,000 named rows", linear(1000), "highs", "clarabel"),
        ("200 named cones", cones(200), "clarabel", "scs"),
    ):
        found = verbs(problem, first, second)
        targets.append(
            (f"{name}: reductions per term, all verbs", 1.0, found["reduced"] / found["terms"])
        )
        targets.append((f"{name}: matrices made", 1.0, float(found["stuffed"])))
    again = []
    for name, problem, solver, limit in (
        ("linear program, 800 named rows", linear(800), "highs", 0.070),
        ("200 named cones", cones(200), "clarabel", 0.080),
        ("quadratic program, 5 columns", quadratic(), "clarabel", 0.0016),
    ):
        p = of.from_cvxpy(problem)
        ours, theirs, ratio = paired(
            lambda p=p, solver=solver: p.solve(solver),
            lambda problem=problem, solver=solver: problem.solve(solver=solver.upper()),
            rounds,
        )
        again.append(
            {"problem": name, "solver": solver, "seconds": ours, "CVXPY": theirs, "ratio": ratio}
        )
        targets.append((f"seconds to solve again: {name}", limit, ours))
    for rows, limit in ((1000, 0.5),):
        p = of.from_cvxpy(infeasible(rows))
        begin = time.perf_counter()
        d = p.diagnose()
        targets.append(
            (f"seconds of diagnose, {rows} named rows", limit, time.perf_counter() - begin)
        )
        assert d.verdict == "infeasible" and len(d.conflict) == 2, d.verdict
    p = of.from_cvxpy(block(10_000))
    begin = time.perf_counter()
    p.diagnose()
    targets.append(
        ("seconds of diagnose, 10,000 rows in a block", 1.4, time.perf_counter() - begin)
    )
    result = {
        "must_reach": [
            {"name": n, "target": t, "measured": m, "reached": bool(m <= t)} for n, t, m in targets
        ],
        "again": again,
        "environment": {**environment(), "cvxpy": cp.__version__},
    }
    if options.json:
        print(json.dumps(result))
        return
    print("| figure | target | measured |\n|---|---:|---:|")
    for row in result["must_reach"]:
        print(f"| {row['name']} | {row['target']:g} | {row['measured']:.4g} |")
    print("\n| solve again | solver | ms | CVXPY, ms | ratio |\n|---|---|---:|---:|---:|")
    for row in again:
        print(
            f"| {row['problem']} | {row['solver']} | {row['seconds'] * 1e3:.3g}"
            f" | {row['CVXPY'] * 1e3:.3g} | {row['ratio']:.2f} |"
        )


if __name__ == "__main__":
    main()
