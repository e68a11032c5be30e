"""What is proved convex, refuted and solved, of two corpora; what it costs.

    python benchmarks/convexity.py [--quick] [--json]

The corpora are those of tests/convexity, with a truth for every row. A row counts as decided when
the verdict is its truth and verifies again, a "neither" only with chords that do; as wrong when a
verdict verifies and is not the truth. Every proved row is then optimised over its box.
"""

from __future__ import annotations

import argparse
import json
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
from record import environment

import optfair as of
from optfair.backends.registry import profile
from optfair.convexity.algebra import Algebra
from optfair.convexity.domain import Domain
from optfair.convexity.prove import domain_of
from optfair.convexity.reading import read
from optfair.convexity.rules import Kind
from optfair.convexity.search import Search
from optfair.convexity.writing import parse

FOLDER = Path(__file__).parent.parent / "tests" / "convexity"
POLICY = tomllib.loads((Path(__file__).parent.parent / "solvers" / "_policy.toml").read_text())
TOLERANCE = 1e-6


def declared(row: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the expression of a row and its bounds by name."""
    variables: dict[str, Any] = {}
    bounds: dict[str, Any] = {}
    for name, box in row["box"].items():
        scalar = not isinstance(box, dict)
        v = cp.Variable(name=name) if scalar else cp.Variable(tuple(box["shape"]), name=name)
        low, high = box if scalar else (box["low"], box["high"])
        variables[name] = v
        bounds[f"{name} low"], bounds[f"{name} high"] = v >= low, v <= high
    return parse(row["text"], variables), bounds


def decided(row: dict[str, Any]) -> tuple[str, float]:
    """Return how the verdict on a row compares with its truth, and the seconds it took."""
    expression, bounds = declared(row)
    begin = time.process_time()
    found = of.prove(expression, bounds)
    seconds = time.process_time() - begin
    if found.curvature == "undecided" or not found.verify():
        return "undecided", seconds
    return ("right" if found.curvature == row["truth"] else "WRONG"), seconds


def solved(row: dict[str, Any], route: str = "default") -> str:
    """Optimise a function over its box and say what the answer rests on.

    By "tangents", by "cones" (the first solver of the class that takes it), or by the default.
    """
    expression, bounds = declared(row)
    goal = cp.Minimize(expression) if row["truth"] == "convex" else cp.Maximize(expression)
    p = of.from_cvxpy(cp.Problem(goal, list(bounds.values())), list(bounds))
    solver = None
    if route == "tangents":
        solver = POLICY["proved"]["solver"]
        if not takes(p, [solver]):
            return "not taken"
    elif route == "cones":
        able = takes(p, POLICY["classes"].get(p.problem_class.name, ()))
        able = [name for name in able if name != POLICY["proved"]["solver"]]
        if not able:
            return "not taken"
        solver = able[0]
    try:
        s = p.solve(solver, tolerance=TOLERANCE)
    except of.OptfairError as e:
        return type(e).__name__
    return s.grade.word if s.is_optimal(TOLERANCE) else "not verified"


def takes(p: Any, names: Any) -> list[str]:
    """Return which of some solvers take a problem."""
    return [name for name in names if profile(name).accepts(p)]


def of_cvxpy(quick: bool) -> dict[str, Any]:
    """Return what is proved of the problems of CVXPY's own tests, in a process of their own."""
    script = str(Path(__file__).with_name("cvxpy_tests.py"))
    files = ["test_constraints.py"] if quick else []
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, script, *files]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=True)
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def other_words() -> dict[str, Any]:
    """Solve problems that are log-log convex or quasiconvex; return relative errors and grades."""
    x, y = cp.Variable(name="x", pos=True), cp.Variable(name="y", pos=True)
    a, b = 2.0 ** (1 / 3), float(np.sqrt(0.2))
    rows: dict[str, tuple[Any, list[Any], float]] = {
        "box of least surface": (cp.Minimize(x * x + 4 * x * y), [x * x * y >= 1], 3.0 * a * a),
        "geometric program": (cp.Minimize(x * y), [x * y * y >= 2, x + y <= 10, x >= 0.1], b),
        "ratio": (cp.Minimize((x + 1) / (y + 2)), [x >= 0.1, y <= 4, x + y >= 2], 1.1 / 6),
        "product": (cp.Minimize(x + 2 * y), [x * y >= 3], 2.0 * float(np.sqrt(6.0))),
    }
    out = {}
    for name, (goal, constraints, truth) in rows.items():
        p = of.from_cvxpy(cp.Problem(goal, constraints))
        s = p.solve(tolerance=TOLERANCE)
        out[name] = {
            "class": str(p.problem_class),
            "relative error": abs(s.objective - truth) / abs(truth),
            "grade": s.grade.word if s.is_optimal(TOLERANCE) else "not verified",
        }
    return out


def by_cvxpy(row: dict[str, Any]) -> bool:
    """Whether the composition rules of CVXPY decide a row."""
    expression, _ = declared(row)
    return bool(expression.is_convex() or expression.is_concave())


def by_hessian(row: dict[str, Any]) -> bool:
    """Whether enclosures of the Hessian alone, on at most 4,096 boxes, decide a row."""
    expression, bounds = declared(row)
    found = read(expression, domain_of(bounds))
    search = Search(found.domain)
    kinds: tuple[Kind, Kind] = ("convex", "concave")
    return any(search.subdivided(found.node, k, Algebra(found.domain)) is not None for k in kinds)


class RuleSearch(Search):
    """A search without second derivatives and sums of squares, which have limits of their own."""

    def __init__(self, domain: Domain) -> None:
        super().__init__(domain)
        apart = ("second derivatives over boxes", "sum of squares")
        self._order = [rule for rule in self._order if rule.name not in apart]


def by_rules(row: dict[str, Any]) -> float:
    """Return the seconds that rules search for the curvature of a row."""
    expression, bounds = declared(row)
    found = read(expression, domain_of(bounds))
    taken = []
    for _ in range(5):  # the least of some: other work on the machine only adds
        search = RuleSearch(found.domain)
        begin = time.process_time()
        kinds: tuple[Kind, Kind] = ("convex", "concave")
        for kind in kinds if row["truth"] == "neither" else (row["truth"],):
            search.prove(found.node, kind)
        taken.append(time.process_time() - begin)
    return min(taken)


def squares(n: int, rounds: int) -> tuple[float, float]:
    """Return seconds to solve min x'x + c'x written as a product and by sum_squares."""
    rng = np.random.default_rng(0)
    c = rng.normal(size=n)

    def once(write: Any) -> float:
        x = cp.Variable(n, name="x")
        begin = time.process_time()
        p = of.from_cvxpy(cp.Problem(cp.Minimize(write(x) + c @ x), [x >= -1]))
        s = p.solve()
        if not s.is_optimal(1e-7):
            raise SystemExit("not optimal")
        return time.process_time() - begin

    pairs = [(once(lambda x: x @ x), once(cp.sum_squares)) for _ in range(rounds + 1)][1:]
    return min(a for a, _ in pairs), min(b for _, b in pairs)


def delays() -> tuple[float, float, str]:
    """Return the optimum of a budgeted sum of delays lam/(u - lam), its truth, and the grade.

    Small delays at large capacities, where cone forms lose digits (CVXPY, issue 2348).
    """
    lam = np.linspace(0.5, 3.0, 10)
    budget = 4.0e5
    u = cp.Variable(10, name="u")
    rows = [cp.sum(u) <= budget, u >= lam + 1e-3]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(cp.multiply(lam, 1 / (u - lam)))), rows))
    truth = float(np.sqrt(lam).sum() ** 2 / (budget - lam.sum()))
    try:
        s = p.solve(tolerance=TOLERANCE)
    except of.OptfairError as e:
        return float("nan"), truth, type(e).__name__
    return s.objective, truth, s.grade.word


def main() -> None:
    """Run both corpora and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="every sixth row")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    step = 6 if options.quick else 1
    verdicts, seconds, answers = {}, {}, Counter[str]()
    routes = {"tangents": Counter[str](), "cones": Counter[str]()}
    spent: dict[str, list[float]] = {route: [] for route in routes}
    dcp: dict[str, int] = {}
    hessian: dict[str, int] = {}
    curved: dict[str, int] = {}
    searched: list[tuple[float, str]] = []
    for corpus in ("seed", "own"):
        rows = tomllib.loads((FOLDER / f"convexity_{corpus}.toml").read_text())["expression"][
            ::step
        ]
        found = [decided(row) for row in rows]
        verdicts[corpus] = Counter(word for word, _ in found)
        seconds[corpus] = float(np.median([s for _, s in found]))
        dcp[corpus] = sum(by_cvxpy(row) for row in rows)
        hessian[corpus] = sum(by_hessian(row) for row in rows)
        proved = [
            row
            for row, (word, _) in zip(rows, found, strict=True)
            if word == "right" and row["truth"] != "neither"
        ]
        curved[corpus] = len(proved)
        searched += [(by_rules(row), row["name"]) for row in rows]
        answers += Counter(solved(row) for row in proved)
        for route, count in routes.items():
            for row in proved:
                begin = time.process_time()
                word = solved(row, route)
                count[word] += 1
                if word != "not taken":
                    spent[route].append(time.process_time() - begin)
    seen, others = of_cvxpy(options.quick), other_words()
    total = {k: sum(v.values()) for k, v in verdicts.items()}
    count = sum(answers.values())
    verified = answers["proved"] + answers["within"]
    product, plain = squares(1000, 5)
    value, truth, grade = delays()
    off = abs(value - truth) / truth
    wrong = sum(v["WRONG"] for v in verdicts.values())
    targets: list[tuple[str, float, float, bool]] = [
        (f"{k} corpus decided, share", t, verdicts[k]["right"] / total[k], True)
        for k, t in (("seed", 0.90), ("own", 0.92))
    ]
    targets += [
        ("verdicts that are wrong", 0, wrong, False),
        ("proved rows solved and verified, share", 0.98, verified / count, True),
        ("of these graded proved, share", 0.95, answers["proved"] / count, True),
        ("min x @ x + ... against sum_squares, n = 1000, times", 1.5, product / plain, False),
        (
            "rows that rules search for longer than 20 ms",
            0,
            sum(s > 0.02 for s, _ in searched),
            False,
        ),
        ("small delays under a budget: relative error", 1e-5, off, False),
        ("problems of CVXPY's tests called nonconvex", 0, len(seen["called nonconvex"]), False),
        (
            "prove on problems of CVXPY's tests, times from_cvxpy",
            1.2,
            seen["seconds of prove"] / seen["seconds of from_cvxpy"],
            False,
        ),
        (
            "log-log convex and quasiconvex: largest relative error",
            TOLERANCE,
            max(o["relative error"] for o in others.values()),
            False,
        ),
    ]
    by_route = {
        route: {"proved": c["proved"], "taken": len(spent[route]), **c}
        | {"median seconds": float(np.median(spent[route] or [0.0]))}
        for route, c in routes.items()
    }
    result = {
        "must_reach": [
            {"name": n, "target": t, "measured": m, "reached": bool(m >= t if up else m <= t)}
            for n, t, m, up in targets
        ],
        "verdicts": {k: dict(v) for k, v in verdicts.items()},
        "by composition rules alone": dcp,
        "by enclosures of the Hessian alone": hessian,
        "proved convex or concave": curved,
        "median seconds": seconds,
        "seconds that rules search, median": float(np.median([s for s, _ in searched])),
        "seconds that rules search, most": {n: s for s, n in sorted(searched, reverse=True)[:10]},
        "answers": dict(answers),
        "by route": by_route,
        "problems of CVXPY's tests": seen,
        "in other words": others,
        "delays": {"objective": value, "truth": truth, "grade": grade},
        "environment": environment(),
    }
    if options.json:
        print(json.dumps(result))
        return
    print(
        "| corpus | rows | right | undecided | wrong | proved | by CVXPY's rules | by Hessians | s |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for k, v in verdicts.items():
        print(
            f"| {k} | {total[k]} | {v['right']} | {v['undecided']} | {v['WRONG']}"
            f" | {curved[k]} | {dcp[k]} | {hessian[k]} | {seconds[k]:.2f} |"
        )
    print(f"\nSolved over their boxes at {TOLERANCE:g}: {dict(answers)}\n")
    for route, c in by_route.items():
        each = 1e3 * c["median seconds"]
        print(f"By {route}: {c['proved']} proved of {c['taken']} that it takes, {each:.0f} ms each")
    print(f"CVXPY's tests: {seen['terms']} terms of {seen['problems']} problems\n")
    for name, s in result["seconds that rules search, most"].items():
        print(f"Rules search {name}: {1e3 * s:.1f} ms")
    print(f"\nDelays: {value:.6e}, truth {truth:.6e}, {grade}\n")
    for row in result["must_reach"]:
        print(f"- {row['name']}: {row['measured']:.4g} (target {row['target']})")


if __name__ == "__main__":
    main()
