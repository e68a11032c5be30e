"""Solvers against classes, measured: who solves what, to which residuals, and who says no.

    python benchmarks/conformance.py [--quick] [--json] [--tolerance T] [--out DIR]

Every usable solver is asked for every small instance of the conformance tests at one tolerance.
A cell is the largest residual recomputed on the declared problem (feasibility, dual, gap),
"refused" where the profile says no before anything runs, "not met" where the result failed
verification, and "local" where a local solver left a feasible point without a bound.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "conformance"))

from instances import CASES, PRECISE

import optfair as of
from optfair.backends.probes import licence_state
from optfair.backends.registry import profile, profiles


def problems(quick: bool) -> dict[str, Any]:
    """Return the declared instances by name, with their optima."""
    found = {}
    for name, spec in CASES.items():
        problem, names = spec.build()
        p = of.from_cvxpy(problem, names)
        found[name] = (p.with_integrality(*spec.integers) if spec.integers else p, spec.value)
    if not quick:
        for name, build in PRECISE.items():
            problem, names, value = build()
            found.setdefault(name, (of.from_cvxpy(problem, names), value))
    return found


def measured(solver: str, p: of.Problem, value: float, tolerance: float) -> dict[str, Any]:
    """Return one cell: outcome, largest residual, error of the value, seconds."""
    if not profile(solver).accepts(p):
        return {"outcome": "refused"}
    begin = time.perf_counter()
    try:
        s = p.solve(solver, tolerance=tolerance, verbose=0)
    except of.SolverFailure as failure:
        return {"outcome": "not met", "why": failure.evidence}
    except of.OptfairError as error:
        return {"outcome": type(error).__name__, "why": error.cause}
    r = s.residuals()
    local = s.status.termination == "local"
    return {
        "outcome": s.status.termination,
        "residual": r.feasibility if local else max(r.feasibility, r.dual, r.gap),
        "error": abs(s.objective - value) / max(1.0, abs(value)),
        "seconds": time.perf_counter() - begin,
    }


def cell(found: dict[str, Any]) -> str:
    """Return a cell as text."""
    if found["outcome"] == "optimal":
        return f"{found['residual']:.0e}"
    return str(found["outcome"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one instance per class")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--tolerance", type=float, default=1e-8)
    parser.add_argument("--out", type=Path, default=None, help="folder for conformance.md")
    options = parser.parse_args()

    known = [p for p in profiles().values() if not p.structure]
    usable = [p.name for p in known if licence_state(p).usable]
    absent = {p.name: str(licence_state(p)) for p in known if p.name not in usable}
    instances = problems(options.quick)
    rows = {
        solver: {
            name: measured(solver, p, value, options.tolerance)
            for name, (p, value) in instances.items()
        }
        for solver in usable
    }
    cells = [found for row in rows.values() for found in row.values()]
    optimal = [found for found in cells if found["outcome"] == "optimal"]
    expected = {"optimal", "refused", "not met", "local"}
    targets = [
        ("largest residual called optimal", options.tolerance, max(f["residual"] for f in optimal)),
        (
            "largest error of a value called optimal",
            20 * options.tolerance,
            max(f["error"] for f in optimal),
        ),
        (
            "outcomes other than optimal, local, not met, refused",
            0,
            sum(f["outcome"] not in expected for f in cells),
        ),
    ]
    result = {
        "must_reach": [
            {"name": n, "target": t, "measured": m, "reached": bool(m <= t)} for n, t, m in targets
        ],
        "tolerance": options.tolerance,
        "rows": rows,
        "absent": absent,
        "environment": {
            "python": platform.python_version(),
            "machine": platform.machine(),
            "optfair": of.__version__,
            "solvers": {name: profile(name).version for name in usable},
        },
    }
    if options.json:
        print(json.dumps(result))
        return
    lines = [f"## Solvers against instances at tolerance {options.tolerance:g}", ""]
    lines += ["| instance | " + " | ".join(usable) + " |", "|---|" + "---|" * len(usable)]
    lines += [
        f"| {name} | " + " | ".join(cell(rows[solver][name]) for solver in usable) + " |"
        for name in instances
    ]
    lines += ["", *(f"{name}: {state}" for name, state in absent.items())]
    failed = [
        f"- {solver}, {name}: {found['why']}"
        for solver, row in rows.items()
        for name, found in row.items()
        if found["outcome"] == "not met"
    ]
    lines += ["", "Not met, and so not returned:", *failed] if failed else []
    lines += ["", "| must reach | target | measured | |", "|---|---:|---:|---|"]
    for t in result["must_reach"]:
        verdict = "reached" if t["reached"] else "NOT reached"
        lines.append(f"| {t['name']} | {t['target']:g} | {t['measured']:.2g} | {verdict} |")
    text = "\n".join(lines)
    print(text)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "conformance.md").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
