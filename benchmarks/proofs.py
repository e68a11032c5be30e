"""What is claimed of linear programs with known optima, badly scaled, and of Netlib.

    python benchmarks/proofs.py [--quick] [--json] [--folder FOLDER]

Every program has a vertex and multipliers that are optimal by construction, in whole numbers;
rows and columns are then multiplied by powers of ten from 1e-12 to 1e12. A claim is an answer
that ``is_optimal``, Infeasible or Unbounded. Netlib is read from OPTFAIR_COLLECTIONS, where set; its
proofs are saved and given to the stand-alone checker, in an interpreter without any package.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
from machine import environment

import optfair as of
from optfair.backends.registry import profile
from optfair.proofs import check_proof

SOLVERS = [None, "highs", "clarabel", "piqp", "scs", "glop"]
TOLERANCE = 1e-7


def scaled(seed: int) -> tuple[Any, float]:
    """Return a linear program and its optimum: x and y are optimal before the scaling."""
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(2, 7)), int(rng.integers(2, 7))
    A = rng.integers(-4, 5, (m, n)).astype(float)
    x = np.where(rng.random(n) < 0.6, rng.integers(1, 6, n), 0).astype(float)
    y = np.where(rng.random(m) < 0.6, rng.integers(1, 6, m), 0).astype(float)
    b = A @ x + np.where(y > 0, 0, rng.integers(0, 4, m))
    c = -A.T @ y + np.where(x > 0, 0, rng.integers(0, 4, n))  # c + A'y >= 0, 0 where x > 0
    optimum = float(c @ x)
    rows = 10.0 ** rng.integers(-12, 13, m) if seed % 2 else np.ones(m)
    columns = 10.0 ** rng.integers(-12, 13, n)
    z = cp.Variable(n, name="z")
    A, b, c = rows[:, None] * A * columns, rows * b, c * columns
    bounds = [z >= 0] if seed % 3 else [z >= 0, z <= 10 / columns]
    return of.from_cvxpy(cp.Problem(cp.Minimize(c @ z), [A @ z <= b, *bounds])), optimum


def outcome(problem: Any, optimum: float, solver: str | None) -> str:
    """Solve, and say how it ended: what is claimed, and whether that is true."""
    try:
        # one of them turns in circles on some of these programs
        timed = solver is None or "time_limit" in profile(solver).options
        s = problem.solve(solver, tolerance=TOLERANCE, time_limit=20.0 if timed else None)
    except of.Infeasible:
        return "false Infeasible"
    except of.Unbounded:
        return "false Unbounded"
    except of.SolverFailure as e:
        return f"says nothing ({e.claim or 'nothing passed'})"
    right = abs(s.objective - optimum) <= 1e-5 * max(1.0, abs(optimum))
    if s.is_optimal(TOLERANCE):
        return f"{s.grade.word}, right" if right else f"{s.grade.word}, WRONG"
    return "reported, right" if right else "reported, wrong"


def checked(solution: Any) -> dict[str, Any]:
    """Save a proof and give it to the stand-alone checker; say what it proved, and the seconds."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "proof.json"
        begin = time.perf_counter()
        try:
            solution.certificate.save(file)
        except of.OptfairError as e:
            return {"checked": f"not saved: {e.cause}", "accepted": False}
        saved = time.perf_counter()
        command = [sys.executable, "-I", "-S", check_proof.__file__, str(file)]
        done = subprocess.run(command, capture_output=True, text=True)
        return {
            "checked": done.stdout.partition(": ")[2].strip(),
            "accepted": done.returncode == 0 and "proved for" not in done.stdout,
            "save_seconds": saved - begin,
            "check_seconds": time.perf_counter() - saved,
            "megabytes": file.stat().st_size / 1e6,
        }


def netlib(folder: Path) -> list[dict[str, Any]]:
    """Solve the linear programs of a collection and compare with its manifest."""
    facts = tomllib.loads((folder / "MANIFEST.toml").read_text())
    known = {}

    def walk(node: Any) -> None:
        for entry in node.values() if isinstance(node, dict) else node:
            if isinstance(entry, dict):
                if "file" in entry or "path" in entry:
                    known[Path(entry.get("file", entry.get("path", ""))).name] = entry
                walk(entry)
            elif isinstance(entry, list):
                walk([e for e in entry if isinstance(e, dict)])

    walk(facts)
    table = []
    for file in sorted((folder / "netlib").glob("*.mps*")):
        begin = time.perf_counter()
        try:
            s = of.read(file).solve(tolerance=TOLERANCE, time_limit=60.0)
            row = {"grade": s.grade.word, "objective": s.objective, "ended": s.status.termination}
            row["verified"] = bool(not s.residuals().above(TOLERANCE))
            row |= checked(s)
        except of.OptfairError as e:
            row = {
                "grade": type(e).__name__,
                "objective": None,
                "ended": e.cause,
                "verified": False,
            }
        stated = known.get(file.name, {})
        value = stated.get("optimum", stated.get("value"))
        if value is not None and row["objective"] is not None:
            row["right"] = abs(row["objective"] - value) <= 1e-5 * max(1.0, abs(value))
        table.append({"file": file.name, "seconds": time.perf_counter() - begin, **row})
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="20 programs instead of 400")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--folder", type=Path, help="collections; by default OPTFAIR_COLLECTIONS")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    count = 20 if options.quick else 400
    found: dict[str, Counter[str]] = {str(s or "default"): Counter() for s in SOLVERS}
    for seed in range(count):
        problem, optimum = scaled(seed)
        for solver in SOLVERS:
            found[str(solver or "default")][outcome(problem, optimum, solver)] += 1
    total: Counter[str] = sum(found.values(), Counter())
    wrong = sum(v for k, v in total.items() if "WRONG" in k)
    false = sum(v for k, v in total.items() if k.startswith("false"))
    targets = [
        (f"{count} scaled programs x {len(SOLVERS)} solvers: wrong claims of an optimum", 0, wrong),
        ("false Infeasible and Unbounded", 0, false),
    ]
    folder = options.folder or Path(os.environ.get("OPTFAIR_COLLECTIONS", "") or "nowhere")
    table = netlib(folder) if (folder / "netlib").is_dir() and not options.quick else []
    must_reach = [
        {"name": n, "target": t, "measured": m, "reached": bool(m <= t)} for n, t, m in targets
    ]
    if table:
        open_ones = sum(not row["verified"] for row in table)
        must_reach.append(
            {
                "name": "Netlib not verified",
                "target": 0,
                "measured": open_ones,
                "reached": open_ones == 0,
            }
        )
        share = sum(row.get("accepted", False) for row in table) / len(table)
        must_reach.append(
            {
                "name": "share of Netlib whose saved proof the stand-alone checker accepts",
                "target": 0.9,
                "measured": share,
                "reached": share >= 0.9,
            }
        )
    result = {
        "must_reach": must_reach,
        "scaled": {name: dict(c) for name, c in found.items()},
        "netlib": table,
        "environment": environment(),
    }
    if options.json:
        print(json.dumps(result))
        return
    print(f"## {count} linear programs with known optima, rows and columns scaled by 1e±12\n")
    kinds = sorted(total)
    print("| solver | " + " | ".join(kinds) + " |")
    print("|---|" + "---:|" * len(kinds))
    for name, c in found.items():
        print(f"| {name} | " + " | ".join(str(c[k]) for k in kinds) + " |")
    if table:
        grades = Counter(row["grade"] for row in table)
        print(f"\n## Netlib, {len(table)} files at {TOLERANCE:g}\n")
        for grade, n in grades.most_common():
            print(f"- {grade}: {n}")
        print("\n| file | saved, s | MB | checked, s | stand-alone checker |")
        print("|---|---:|---:|---:|---|")
        for row in table:
            parts = (
                row.get(k, float("nan")) for k in ("save_seconds", "megabytes", "check_seconds")
            )
            figures = " | ".join(f"{part:.2f}" for part in parts)
            print(f"| {row['file']} | {figures} | {row.get('checked', row['ended'])} |")
    print()
    for row in result["must_reach"]:
        print(f"- {row['name']}: {row['measured']} (target {row['target']})")


if __name__ == "__main__":
    main()
