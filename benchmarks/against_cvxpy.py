"""Programs of public collections by the same solver: ``p.solve(solver)`` against plain CVXPY.

    OPTFAIR_COLLECTIONS=FOLDER python benchmarks/against_cvxpy.py
        [--sets netlib,sdplib] [--smallest N] [--rounds 3] [--time-limit 20] [--out FILE]
        [--defaults] [--quick] [--json]

Ours compiles, solves, recovers and verifies at 1e-7 on the declared rows; CVXPY's side is
``problem.cvxpy.solve(solver=...)``, the same rows over the same variable, without any check. The
solver gets the same options from both, those with which we ask for 1e-7: tolerances of 1e-9 or
1e-10 and what `solvers/NAME.toml` fixes, so it does the same work. With --defaults CVXPY's side
has the solver's own, 1e-7 or 1e-8, which take fewer iterations. Neither side has a time limit,
for which we would put some solvers into a process of their own.

Both problems are made anew in every round, reading and writing them is counted for neither, and
the sides take turns; the first round warms caches up and is not counted. Seconds are those of
the processor, with every process that is started, median over the rounds. A program has a process
of its own, which is ended some time after the limit; it is a line of FILE (by default
benchmarks/out/against_cvxpy.jsonl, or against_cvxpy_defaults.jsonl), and one that stands there is
not run again.

Compared are the programs whose first attempt is right: verified, with no other asked, and solved
by the word of CVXPY. The ratio of a collection is that of the sums of the seconds.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import cvxpy as cp
from public_collections import GRACE, cpu_seconds, kept, setting
from record import targets_table

import optfair as of
from optfair.backends.registry import profiles
from optfair.backends.request import Request

TOLERANCE = 1e-7
TARGET = 1.15  # seconds / CVXPY's
SOLVED = (cp.OPTIMAL, cp.OPTIMAL_INACCURATE)
# collection -> solvers that both sides are given
SOLVERS = {
    "netlib": ("highs",),
    "maros_meszaros": ("clarabel", "piqp"),
    "sdplib": ("clarabel",),
}
QUICK = (
    "netlib/adlittle",
    "netlib/25fv47",
    "maros_meszaros/HS118",
    "maros_meszaros/CONT-050",
    "sdplib/mcp124-1",
)


def one(
    name: str, solver: str, rounds: int, time_limit: float, *, defaults: bool
) -> dict[str, Any]:
    """Solve one member by both sides in turn."""
    options = {} if defaults else Request(TOLERANCE).solver_options(profiles()[solver])
    warnings.simplefilter("ignore")
    member = next(m for m in of.library.collection(name.partition("/")[0]) if m.name == name)
    row: dict[str, Any] = {"name": name, "solver": solver, "tolerance": TOLERANCE}
    ours: list[float] = []
    theirs: list[float] = []

    def by_us(problem: Any) -> None:
        s = problem.solve(solver, tolerance=TOLERANCE)
        row["objective"], row["words"] = s.objective, dict(s.seconds)
        once = not s.attempts and "attempts" not in s.seconds  # nor for a proof of the same
        row["first"] = once and s.is_optimal(TOLERANCE)
        row["why"] = "; ".join([str(s.grade), *s.attempts])

    def by_cvxpy(problem: Any) -> None:
        problem.solve(solver=solver.upper(), **options)
        row["CVXPY"], row["status"] = problem.value, problem.status

    sides: list[tuple[Callable[[Any], None], list[float]]] = [(by_us, ours), (by_cvxpy, theirs)]
    for i in range(rounds + 1):
        problem = member.problem()
        given = {by_us: problem, by_cvxpy: problem.cvxpy}
        for side, seconds in sides if i % 2 else reversed(sides):
            gc.collect()  # nobody pays for what the other left behind
            begin = cpu_seconds()
            try:
                side(given[side])
            except (of.OptfairError, cp.SolverError, cp.error.DCPError) as e:
                return row | {"outcome": "rejected", "why": str(e)[:300]}
            seconds.append(cpu_seconds() - begin)
        if not row["first"] or row["status"] not in SOLVED:
            break
        if i and sum(ours) + sum(theirs) > time_limit:
            break  # this one round says enough of a large program
    right = row.pop("first") and row["status"] in SOLVED
    row["outcome"] = "right" if right else "asked again"
    if right:
        row |= {"optfair s": statistics.median(ours[1:]), "CVXPY s": statistics.median(theirs[1:])}
    return row


def apart(
    name: str, solver: str, rounds: int, time_limit: float, *, defaults: bool
) -> dict[str, Any]:
    """Do the same in a process of its own, which is ended when it takes too long."""
    command = [sys.executable, __file__, "--one", name, "--solver", solver]
    command += ["--rounds", str(rounds), "--time-limit", repr(time_limit)]
    command += ["--defaults"] if defaults else []
    row: dict[str, Any] = {"name": name, "solver": solver, "tolerance": TOLERANCE}
    limit = 4 * time_limit + GRACE  # two sides, the first round and at least one more
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return row | {"outcome": "too large", "why": f"not ended after {limit:g} s"}
    if done.returncode:
        return row | {"outcome": "crashed", "why": done.stderr.strip()[-300:]}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return sums, their ratio and the median ratio of each collection and solver."""
    found = []
    for group, solvers in SOLVERS.items():
        for solver in solvers:
            own = [r for r in rows if r["name"].startswith(f"{group}/") and r["solver"] == solver]
            right = [r for r in own if r["outcome"] == "right"]
            if right:
                ours, theirs = (sum(r[k] for r in right) for k in ("optfair s", "CVXPY s"))
                each = [r["optfair s"] / r["CVXPY s"] for r in right]
                row = {"programs": len(own), "right": len(right), "optfair s": ours}
                row |= {"CVXPY s": theirs, "ratio": ours / theirs}
                row |= {"median": statistics.median(each)}
                found.append({"collection": group, "solver": solver} | row)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", default=",".join(SOLVERS), help="collections, by commas")
    parser.add_argument(
        "--smallest", type=int, default=0, metavar="N", help="of each collection, by size of file"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--time-limit", type=float, default=20.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--defaults", action="store_true", help="options of CVXPY's side")
    parser.add_argument("--quick", action="store_true", help="a slice under 45 s, measured anew")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--one", metavar="NAME", help=argparse.SUPPRESS)
    parser.add_argument("--solver", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        measures: dict[str, Any] = {"rounds": options.rounds, "time_limit": options.time_limit}
        row = one(options.one, options.solver, defaults=options.defaults, **measures)
        print(json.dumps(row))
        return
    if options.quick:
        options.time_limit = 10.0  # its programs are small: one round tells too little
    which = "_defaults" if options.defaults else ""
    options.out = options.out or Path(f"benchmarks/out/against_cvxpy{which}.jsonl")
    done = {} if options.quick else kept(options.out)
    measures = {"rounds": options.rounds, "time_limit": options.time_limit}
    machine = setting(options.time_limit)
    for group in options.sets.split(","):
        solvers = SOLVERS[group]
        members = sorted(of.library.collection(group), key=lambda m: m.path.stat().st_size)
        if options.quick:
            members = [m for m in members if m.name in QUICK]
        for member in members[: options.smallest or None]:
            for solver in solvers:
                key = (member.name, solver, TOLERANCE)
                if key in done:
                    continue
                row = apart(member.name, solver, defaults=options.defaults, **measures)
                done[key] = row | {"environment": machine}
                if not options.quick:
                    options.out.parent.mkdir(parents=True, exist_ok=True)
                    with options.out.open("a", encoding="utf-8") as stream:
                        stream.write(json.dumps(done[key]) + "\n")
    rows = list(done.values())
    table = ratios(rows)
    must = [
        {
            "name": f"{r['collection']} by {r['solver']}: seconds / CVXPY's where the first is right",
            "target": TARGET,
            "measured": r["ratio"],
            "reached": r["ratio"] <= TARGET,
        }
        for r in table
    ]
    if options.json:
        print(json.dumps({"must_reach": must, "runs": rows}))
        return
    print("## The same solver, with and without us, seconds of the processor\n")
    print("| collection | solver | programs | right | optfair | CVXPY | ratio | median ratio |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for r in table:
        cells = f"{r['optfair s']:.2f} | {r['CVXPY s']:.2f} | {r['ratio']:.2f} | {r['median']:.2f}"
        counts = f"{r['programs']} | {r['right']}"
        print(f"| {r['collection']} | {r['solver']} | {counts} | {cells} |")
    print("\n| left out | solver | outcome | why |\n|---|---|---|---|")
    for r in rows:
        if r["outcome"] != "right":
            why = " ".join(r.get("why", "").replace("|", "/").split())[:120]
            print(f"| {r['name']} | {r['solver']} | {r['outcome']} | {why} |")
    print("\n" + targets_table(must))
    for text in sorted({json.dumps(r["environment"], sort_keys=True) for r in rows}):
        print("\n" + ", ".join(f"{k} {v}" for k, v in json.loads(text).items()))


if __name__ == "__main__":
    main()
