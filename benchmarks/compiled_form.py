"""What is compiled once: verbs on one problem, solving again, diagnosis of many named rows.

    python benchmarks/compiled_form.py [--quick] [--json]

Every figure is measured in this run; seconds are processor seconds, the least of a few rounds, and
solving again is also given in units of CVXPY's time for the same. Reductions and matrices are counted where CVXPY makes them: a
term is reduced to cones once per way of reducing it (an objective that stays quadratic or does
not), and terms are turned into matrices together.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import cvxpy as cp
import highspy
import numpy as np
import scipy.sparse as sp
from cvxpy.reductions.dcp2cone.dcp2cone import Dcp2Cone
from record import environment

import optfair as of
from optfair.backends.linear_program import _passed
from optfair.compile import form
from optfair.compile.form import compile_problem
from optfair.diagnosis.conflict import find_conflict
from optfair.diagnosis.report import Clock
from optfair.diagnosis.system import System

# Of the collection that OPTFAIR_COLLECTIONS names.
NETLIB = ("adlittle", "e226")


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


def least(call: Callable[[], Any], rounds: int) -> float:
    """Return the least processor seconds of a call that is made once before."""
    call()
    taken = []
    for _ in range(rounds):
        begin = time.process_time()
        call()
        taken.append(time.process_time() - begin)
    return min(taken)


def paired(
    ours: Callable[[], Any], theirs: Callable[[], Any], rounds: int
) -> tuple[float, float, float]:
    """Return least processor seconds of both, taking turns, and their ratio."""
    gc.collect()
    gc.freeze()  # what earlier problems left behind is none of their business
    a, b = [], []
    for _ in range(rounds):
        a.append(least(ours, 1))
        b.append(least(theirs, 1))
    return min(a), min(b), min(a) / min(b)


def set_of_highs(form: Any) -> tuple[float, int]:
    """Return seconds of HiGHS for an infeasible set of the same rows, and how many rows are in it."""
    model = highspy.Highs()
    model.setOptionValue("output_flag", False)
    model.setOptionValue("iis_strategy", 2)  # from all rows, by deletion
    free = np.full(form.q.size, np.inf)
    low = np.where(form.equal, form.b, -np.inf)
    _passed(model, np.zeros(free.size), form.A, low, form.b, -free, free)
    begin = time.process_time()
    _, found = model.getIis()
    return time.process_time() - begin, len(found.row_index_)


def cut(name: str, share: float = 0.01) -> Any:
    """Return a program of the collection with its objective bounded beyond the optimum."""
    folder = Path(os.environ.get("OPTFAIR_COLLECTIONS", "")) / "netlib"
    p = of.read(folder / f"{name}.mps.gz")
    best = p.solve("highs").objective
    (goal,) = p.objective.values()
    return p.with_constraints(cut=goal.build() <= best - share * abs(best))


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
            rounds if limit > 0.01 else 20 * rounds,
        )
        again.append(
            {"problem": name, "solver": solver, "seconds": ours, "CVXPY": theirs, "ratio": ratio}
        )
        targets.append((f"seconds to solve again: {name}", limit, ours))
    conflicts = []
    cases: list[tuple[str, Callable[[], Any], float | None]] = [
        ("1,000 named rows", lambda: of.from_cvxpy(infeasible(1000)), 0.5),
        ("10,000 rows in a block", lambda: of.from_cvxpy(block(10_000)), 1.4),
    ]
    if os.environ.get("OPTFAIR_COLLECTIONS"):
        cases += [(f"{name}, cut", partial(cut, name), None) for name in NETLIB]
    for name, build, limit in cases:
        taken, kinds = [], set()
        for _ in range(2 if options.quick else 3):
            p = build()
            begin = time.process_time()
            d = p.diagnose()
            taken.append(time.process_time() - begin)
            kinds.add(
                (d.verdict, d["conflict"].numbers["irreducible"], bool(d["conflict"].verify()))
            )
        assert kinds == {("infeasible", True, True)}, kinds
        apart, within = p.separated(None)  # rows with names of their own
        system = System(apart, 1e-7)
        begin = time.process_time()
        find_conflict(system, Clock(), within=within)
        alone = time.process_time() - begin
        theirs, size = set_of_highs(compile_problem(p.with_terms({}, p.constraints), "HIGHS").form)
        conflicts.append(
            {
                "problem": name,
                "diagnose": min(taken),
                "conflict": alone,
                "names": len(d.conflict),
                "HiGHS": theirs,
                "rows of HiGHS": size,
                "ratio": alone / theirs,
            }
        )
        if limit is not None:
            targets.append((f"seconds of diagnose, {name}", limit, min(taken)))
        targets.append((f"conflict of {name} / HiGHS's infeasible set", 20.0, alone / theirs))
    x = cp.Variable(1_000_000, name="x")
    wide = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= 0, x <= 1]))
    composed = least(lambda: wide.with_constraints(few=cp.sum(wide["x"][:10]) >= 1.0), rounds)
    child = wide.with_constraints(few=cp.sum(wide["x"][:10]) >= 1.0)
    targets.append(("seconds of with_constraints, 1,000,000 entries", 0.002, composed))

    def anew() -> Any:
        child.__dict__.pop("_class", None)
        return child.problem_class

    targets.append(("seconds of the class, 1,000,000 entries", 0.0001, least(anew, rounds)))
    result = {
        "must_reach": [
            {"name": n, "target": t, "measured": m, "reached": bool(m <= t)} for n, t, m in targets
        ],
        "again": again,
        "conflicts": conflicts,
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
    print("\n| infeasible | diagnose, s | its conflict, s | names | HiGHS, s | rows | ratio |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for row in conflicts:
        print(
            f"| {row['problem']} | {row['diagnose']:.3g} | {row['conflict']:.3g} | {row['names']}"
            f" | {row['HiGHS']:.3g} | {row['rows of HiGHS']} | {row['ratio']:.2g} |"
        )


if __name__ == "__main__":
    main()
