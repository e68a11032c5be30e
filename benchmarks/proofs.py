"""What is claimed and what is proved: traps, badly scaled programs, public collections, and the cost.

    python benchmarks/proofs.py [--quick] [--json] [--only NAME ...] [--smallest N] [--minutes M]
        [--time-limit 60] [--out FILE]

One row a name: *traps* (the tests of tests/proofs/test_traps.py), *scaled* (linear programs with a
vertex and multipliers that are optimal by construction, in whole numbers; rows and columns are then
multiplied by powers of ten from 1e-12 to 1e12), *netlib* (at 1e-7, by default; the proofs are saved
and given to the stand-alone checker, in an interpreter without any package), *files* (so for the 45
smallest programs of Maros-Meszaros, of those that are proved), *exact* (Netlib by
``solve(exact=True)``), *maros_meszaros* and *sdplib* (at 1e-6, of those that were solved, each member in
a process of its own and within the time limit), *turned* (Netlib maximised instead of minimised, and
with costs limited below their optimum: rays and Farkas vectors), *units* (Netlib and Maros-Meszaros
with columns, rows and costs multiplied by powers of two from 2^-10 to 2^10, which changes no
optimum), *psd* (a matrix of order 10,000), *cost* (verification beside the whole of a solve) and *mutants*. A claim is an
answer that ``is_optimal``, Infeasible or Unbounded. Collections are read from OPTFAIR_COLLECTIONS;
a row without its data says so, and is not reached. Each member is told as it ends. Those of
*maros_meszaros* and *sdplib* are also lines of FILE (benchmarks/out/proofs.jsonl): one that stands there
of the same commit, versions and time limit is not run again, so an interrupted run goes on.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import cvxpy as cp
import numpy as np
import scipy.io
import scipy.sparse as sp
from public_collections import kept, recorded, setting
from record import environment, targets_table

import optfair as of
from optfair.backends.registry import profile
from optfair.proofs import check_proof
from optfair.proofs.definiteness import definiteness, forget

ROOT = Path(__file__).resolve().parents[1]
SOLVERS = [None, "highs", "clarabel", "piqp", "scs", "glop"]
TOLERANCE = 1e-7
LARGE = 50_000  # entries of the rows up to which programs are solved in mixed units
SOUND = ("proved", "within")  # grades in exact arithmetic: everywhere, or for |x| <= R
Rows = tuple[list[dict[str, Any]], Any]


def row(name: str, target: float, measured: float, least: bool = False) -> dict[str, Any]:
    """Return a row: the target is the least that is wanted, or the most that is allowed."""
    reached = measured >= target if least else measured <= target
    return {"name": name, "target": target, "measured": measured, "reached": bool(reached)}


def missing(name: str, target: float, why: str) -> dict[str, Any]:
    """Return a row without a figure."""
    return {"name": name, "target": target, "measured": None, "reached": False, "missing": why}


def called(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command from the root of the checkout."""
    path = {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, cwd=ROOT, env=os.environ | path
    )


def traps(options: Any) -> Rows:
    """Run the tests of what once was claimed and false."""
    name = "traps: false claims"
    done = called("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/proofs/test_traps.py")
    last = (done.stdout.strip().splitlines() or [done.stderr.strip()])[-1]
    if " passed" not in last and " failed" not in last:
        return [missing(name, 0, "pytest does not run: pip install optfair[test]")], last
    return [row(name, 0, int(last.partition(" failed")[0]) if " failed" in last else 0)], last


def constructed(seed: int) -> tuple[Any, float]:
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


def scaled(options: Any) -> Rows:
    """Solve linear programs with known optima by every solver."""
    count = 20 if options.quick else 400
    found: dict[str, Counter[str]] = {str(s or "default"): Counter() for s in SOLVERS}
    for seed in range(count):
        problem, optimum = constructed(seed)
        for solver in SOLVERS:
            found[str(solver or "default")][outcome(problem, optimum, solver)] += 1
    total: Counter[str] = sum(found.values(), Counter())
    wrong = sum(v for k, v in total.items() if "WRONG" in k)
    false = sum(v for k, v in total.items() if k.startswith("false"))
    proved = sum(found["default"][f"{word}, right"] for word in SOUND) / count
    what = f"{count} scaled programs x {len(SOLVERS)} solvers"
    rows = [
        row(f"{what}: wrong claims of an optimum", 0, wrong),
        row(f"{what}: false Infeasible and Unbounded", 0, false),
        row(f"{count} scaled programs: share proved by the default", 0.95, proved, least=True),
    ]
    return rows, {name: dict(c) for name, c in found.items()}


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


def members(name: str, options: Any) -> list[Any]:
    """Return the members of a collection, the smallest files first; none where it is not there."""
    known = name in of.library.collections()
    every = of.library.collection(name) if known else ()
    return sorted(every, key=lambda m: m.path.stat().st_size)[: options.smallest]


def tell(name: str, grade: str, seconds: float) -> None:
    """Say how one member ended, as it ends."""
    print(f"{name}: {grade}, {seconds:.1f} s", file=sys.stderr, flush=True)


def shares(table: list[dict[str, Any]], wanted: Iterable[tuple[str, float, str]]) -> Rows:
    """Return the share of a table that has each property, beside what it should be."""
    if not table:
        why = "OPTFAIR_COLLECTIONS names no folder that has it"
        return [missing(name, target, why) for name, target, _ in wanted], []
    return [
        row(name, target, sum(bool(t.get(key)) for t in table) / len(table), least=True)
        for name, target, key in wanted
    ], table


def solved(member: Any, **how: Any) -> dict[str, Any]:
    """Solve a member of Netlib, and have its saved proof checked."""
    begin = time.process_time()
    told: dict[str, Any] = {"name": member.name}
    try:
        s = member.problem().solve(tolerance=TOLERANCE, **how)
        told |= {"grade": str(s.grade), "proved": s.grade.word == "proved"}
        told |= {"right": bool(member.agrees(s.objective, 1e-5)), "by": s.solver}
        told["verified"] = told["right"] and not s.residuals().above(TOLERANCE)
        told["cpu"] = time.process_time() - begin
        told |= checked(s) if "exact" not in how else {}
    except of.OptfairError as e:
        told |= {"grade": type(e).__name__, "why": f"{e.cause}: {e.evidence}",
                 "cpu": time.process_time() - begin}  # fmt: skip
    tell(member.name, told["grade"], told["cpu"])
    return told


def netlib(options: Any) -> Rows:
    """Solve Netlib by default."""
    table = [solved(m, time_limit=options.time_limit) for m in members("netlib", options)]
    return shares(
        table,
        [
            ("Netlib at 1e-7: share verified and right", 1.0, "verified"),
            ("Netlib at 1e-7: share proved by the default", 0.9, "proved"),
            ("Netlib: share whose saved proof the stand-alone checker accepts", 0.9, "accepted"),
        ],
    )


def files(options: Any) -> Rows:
    """Solve small quadratic programs by default, and have their saved proofs checked."""
    every = [
        solved(m, time_limit=options.time_limit) for m in members("maros_meszaros", options)[:45]
    ]
    proved = [t for t in every if t.get("proved")]
    name = f"Maros-Meszaros: share whose saved proof is accepted, of {len(proved)} proved of {len(every)}"
    return shares(proved, [(name, 0.9, "accepted")])[0], every


def stated(member: Any) -> dict[str, Any]:
    """Return the arrays of a member, as `of.from_arrays` takes them."""
    if member.path.suffix == ".mat":
        data = scipy.io.loadmat(member.path)
        P, A = (sp.csc_array(data[k]) for k in "PA")
        q, low, high = (np.ravel(data[k]).astype(float) for k in "qlu")
        told = {"P": P, "q": q, "A": A, "r": float(np.ravel(data["r"])[0])}
        return told | {"l": np.where(low < -1e19, -np.inf, low), "u": np.where(high > 1e19, np.inf, high),
                       "lb": -np.inf, "ub": np.inf}  # fmt: skip
    r = member.problem().rows
    return {"P": None, "q": np.array(r.cost), "A": r.A, "l": np.array(r.row_lower),
            "u": np.array(r.row_upper), "lb": np.array(r.lower), "ub": np.array(r.upper),
            "r": r.offset}  # fmt: skip


def ended(
    told: dict[str, Any], right: Callable[[float], bool], limit: float, **more: Any
) -> dict[str, Any]:
    """Solve arrays; say whether the answer is proved, and right."""
    begin = time.process_time()
    try:
        s = of.from_arrays(**told, **more).solve(tolerance=TOLERANCE, time_limit=limit)
        found = {"ended": "optimal", "grade": str(s.grade), "objective": float(s.objective)}
        found["proved"] = s.grade.word in SOUND and bool(s.is_optimal(TOLERANCE))
        found["right"] = right(found["objective"])
    except (of.Infeasible, of.Unbounded) as e:
        proved = e.certificate is not None and bool(e.certificate.verify())
        found = {"ended": type(e).__name__, "proved": proved}
    except of.OptfairError as e:
        found = {"ended": type(e).__name__, "why": f"{e.cause}: {e.evidence}", "proved": False}
    return found | {"cpu": time.process_time() - begin}


def agrees(member: Any, unit: float, objective: float) -> bool:
    """Whether an optimum in another unit is the stated one, to the digits that are stated, if any."""
    return member.agrees(objective / unit, 1e-5) is not False


def turned(options: Any) -> Rows:
    """Ask for the largest costs of Netlib, and for costs below the least."""
    table, unlimited, excluded = [], [], []
    for m in members("netlib", options):
        told = stated(m)
        up = ended(told, math.isfinite, options.time_limit, maximize=True)
        q, least = told["q"], m.optimum - told["r"]
        cost = sp.csc_array(q[None, :])
        below = told | {
            "q": np.zeros(q.size),
            "A": sp.csc_array(sp.vstack([told["A"], cost])),
            "l": np.append(told["l"], -np.inf),
            "u": np.append(told["u"], least - 1e-3 * max(1.0, abs(least))),
        }
        down = ended(below, math.isfinite, options.time_limit)
        table.append({"name": m.name, "maximised": up, "below": down})
        tell(m.name, f"{up['ended']}, {down['ended']}", up["cpu"] + down["cpu"])
        unlimited += [] if up["ended"] == "optimal" else [up]
        excluded.append(down)
    if not table:
        why = "OPTFAIR_COLLECTIONS names no folder that has it"
        return [missing("Netlib turned", 0.9, why)], []
    rows = [
        ("Netlib maximised: share proved unbounded of those without an optimum", unlimited, "Unbounded"),
        ("Netlib below its optimum: share proved infeasible", excluded, "Infeasible"),
    ]  # fmt: skip
    return [
        row(
            name,
            0.9,
            sum(e["proved"] and e["ended"] == word for e in every) / max(1, len(every)),
            least=True,
        )
        for name, every, word in rows
    ], table


def units(options: Any) -> Rows:
    """Solve public programs whose columns, rows and costs are in units 2^-10 to 2^10."""
    rows, details = [], []
    for collection in ("netlib", "maros_meszaros"):
        table = []
        for m in members(collection, options):
            told, rng = stated(m), np.random.default_rng(0)
            if told["A"].nnz > LARGE:
                continue
            column, row_unit, (cost,) = (
                2.0 ** rng.integers(-10, 11, k) for k in (told["q"].size, told["A"].shape[0], 1)
            )
            across = sp.diags_array(column)
            P = None if told["P"] is None else sp.csc_array(across @ told["P"] @ across) * cost
            other = {
                "P": P, "q": told["q"] * column * cost, "r": told["r"] * cost,
                "A": sp.csc_array(sp.diags_array(row_unit) @ told["A"] @ across),
                "l": told["l"] * row_unit, "u": told["u"] * row_unit,
                "lb": told["lb"] / column, "ub": told["ub"] / column,
            }  # fmt: skip
            found = ended(other, partial(agrees, m, cost), options.time_limit)
            found["sound"] = found["proved"] and bool(found.get("right"))
            table.append({"name": m.name, **found})
            tell(m.name, found.get("grade", found["ended"]), found["cpu"])
        name = f"{collection} in mixed units, members to {LARGE:,} entries: share proved and right"
        rows += shares(table, [(name, 0.9, "sound")])[0]
        details += table
    return rows, details


def exact(options: Any) -> Rows:
    """Solve Netlib to the last digit."""
    table = [solved(m, exact=True, time_limit=900.0) for m in members("netlib", options)]
    name = "Netlib: share with an optimum in fractions"
    return shares(table, [(name, 0.95, "proved")])


def alike(machine: dict[str, str]) -> dict[str, str] | None:
    """Return what runs that may stand beside each other have in common; None of edited files."""
    known = {k: v for k, v in machine.items() if k != "frequency"}
    return None if known["commit"].endswith("+") else known


def graded(collection: str) -> Callable[[Any], Rows]:
    """Return what solves a collection and looks at the grades of the answers."""

    def run(options: Any) -> Rows:
        own = alike(setting(options.time_limit))
        done = {
            k: r for k, r in kept(options.out).items() if own and own == alike(r["environment"])
        }
        asked = [(m.name, "default", 1e-6) for m in members(collection, options)]
        for r in recorded(asked, options.time_limit, options.out, done):
            tell(r["name"], r.get("grade", r["outcome"]), r.get("seconds", 0.0))
            done[r["name"], r["solver"], r["tolerance"]] = r
        every = [done[key] for key in asked]
        answers = [r for r in every if r["outcome"] in ("verified", "reported", "time limit")]
        for r in answers:
            r["sound"] = r["grade"].startswith("proved")
        told = f"of {len(answers)} answers to {len(every)} programs"
        name = f"{collection}: share proved, or proved for |x| <= R, {told}"
        return shares(answers, [(name, 0.9, "sound")])[0], every

    return run


def psd(options: Any) -> Rows:
    """Test the quadratic form of a public program of 10,000 variables."""
    name, target = "CPU seconds of the test whether CVXQP1_L is convex", 0.5
    known = [m for m in members("maros_meszaros", options) if m.path.stem == "CVXQP1_L"]
    if not known:
        return [missing(name, target, "OPTFAIR_COLLECTIONS names no folder that has it")], ""
    P = sp.csc_array(scipy.io.loadmat(known[0].path)["P"])
    seconds = []
    for _ in range(3):
        forget()
        begin = time.process_time()
        found = definiteness(P)
        seconds.append(time.process_time() - begin)
    if not found.accepted:
        return [missing(name, target, str(found))], str(found)
    return [row(name, target, min(seconds))], str(found)


def cost(options: Any) -> Rows:
    """Compare the seconds of verification with those of the whole solve, fewest of three."""
    table = []
    for m, n, density in ((10, 8, 0.5), (300, 200, 0.05), (2_000, 1_500, 0.04)):
        rng = np.random.default_rng(m)
        A = sp.random(m, n, density, random_state=m, format="csr")
        x = cp.Variable(n, name="x")
        inside = rng.random(n)
        rows = [A @ x <= A @ inside + rng.random(m), x >= 0]
        q = rng.normal(size=n) + A.T @ rng.random(m)
        p = of.from_cvxpy(cp.Problem(cp.Minimize(q @ x), [*rows, x <= 2]))
        runs = [p.solve("highs").seconds for _ in range(3)]
        verify = min(t["verify"] for t in runs)
        share = min(t["verify"] / sum(t.values()) for t in runs)
        table.append({"nonzeros": int(A.nnz), "verify": verify, "share": share})
    *small, large = table
    # free columns, whose residuals are closed by equations
    rng = np.random.default_rng(0)
    X, w = rng.normal(size=(3_000, 30)), cp.Variable(30, name="w")
    fit = of.from_cvxpy(cp.Problem(cp.Minimize(cp.norm1(X @ w - rng.normal(size=3_000)))))
    runs = [fit.solve("highs").seconds for _ in range(3)]
    share = min(t["verify"] / sum(t.values()) for t in runs)
    table.append({"nonzeros": 2 * X.size, "verify": runs[-1]["verify"], "share": share})
    above = max(0.0 if t["verify"] <= 0.005 else t["share"] for t in small)
    return [
        row("verification from 1e5 nonzeros: share of a solve", 0.1, large["share"]),
        row("verification of least absolute residuals, 3,000 rows", 0.1, share),
        row("verification below: share of a solve where above 5 ms", 0.25, above),
    ], table


def mutants(options: Any) -> Rows:
    """Count the changes of the code that no test notices, and that are not listed with a reason."""
    done = called("tests/mutants.py", "--json", "--minutes", str(options.minutes))
    name = "mutants that survive without a reason"
    lines = done.stdout.strip().splitlines()
    if not lines:
        return [missing(name, 0, done.stderr.strip()[-200:] or "no answer")], {}
    told = json.loads(lines[-1])
    if told["missing"]:
        why = f"{told['missing']} of {told['tried'] + told['missing']} are not tried yet"
        return [missing(name, 0, f"{why}; run it again")], told
    return [row(name, 0, len(told["not listed"]))], told


ROWS: dict[str, Callable[[Any], Rows]] = {
    "traps": traps,
    "scaled": scaled,
    "netlib": netlib,
    "files": files,
    "exact": exact,
    "turned": turned,
    "units": units,
    "maros_meszaros": graded("maros_meszaros"),
    "sdplib": graded("sdplib"),
    "psd": psd,
    "cost": cost,
    "mutants": mutants,
}
QUICK = ("scaled", "psd", "cost")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="20 programs; no collections")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--only", nargs="+", choices=ROWS, help="these rows")
    parser.add_argument("--smallest", type=int, help="so many members of a collection")
    parser.add_argument("--minutes", type=float, default=30.0, help="of the mutation run")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds of one member")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "out" / "proofs.jsonl")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    found, details = [], {}
    for name in options.only or (QUICK if options.quick else ROWS):
        rows, details[name] = ROWS[name](options)
        found += rows
        if not options.json:
            print(f"## {name}\n\n```json\n{json.dumps(details[name], indent=1)}\n```\n", flush=True)
    if options.json:
        print(json.dumps({"must_reach": found, **details, "environment": environment()}))
        return
    print("\n" + targets_table(found))


if __name__ == "__main__":
    main()
