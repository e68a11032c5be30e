"""CVXPY's own tests, solved here: every problem they solve is adopted, solved and compared.

    python benchmarks/adoption.py [--quick] [--json] [--modules test_problem ...]

`Problem.solve` is hooked while CVXPY's test modules, which ship in its wheel, run. A problem counts
when CVXPY calls it optimal, infeasible or unbounded; the same problem met again is skipped.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import time
import unittest
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import cvxpy as cp
import cvxpy.tests
from machine import environment

import optfair as of

QUICK = ("test_problem", "test_constant_atoms", "test_quadratic", "test_von_neumann_entr")
# Absolute and relative distance of two optima that are the same: CVXPY's solvers stop at 1e-5.
CLOSE = 5e-3
# Seconds for one problem.
PATIENCE = 8.0


class Record:
    """What became of the problems that were met."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.busy = False
        self.seen: set[str] = set()

    def meet(self, problem: Any, where: str) -> None:
        """Adopt, solve and compare a problem that CVXPY has just solved."""
        key = f"{problem}{[p.value for p in problem.parameters()]}"
        if key in self.seen:
            return
        self.seen.add(key)
        told, value = problem.status, problem.value
        try:
            found = of.from_cvxpy(problem).solve(tolerance=1e-6, time_limit=PATIENCE).objective
        except of.Infeasible:
            found = float("inf") if isinstance(problem.objective, cp.Minimize) else -float("inf")
        except of.Unbounded:
            found = -float("inf") if isinstance(problem.objective, cp.Minimize) else float("inf")
        except of.OptfairError as e:
            self.outcomes["refused"] += 1
            self.reasons[f"{type(e).__name__}: {' '.join(e.cause.split())[:90]}"] += 1
            return
        except Exception as e:  # that is what is counted
            self.outcomes["raw exception"] += 1
            self.reasons[f"raw {type(e).__name__}: {' '.join(str(e).split())[:90]}"] += 1
            return
        if value is not None and (
            value == found or abs(value - found) <= CLOSE * max(1, abs(value))
        ):
            self.outcomes["solved"] += 1
        elif told.startswith(("infeasible", "unbounded")) and abs(found) == float("inf"):
            self.outcomes["solved"] += 1  # the two are told apart by an order of tests
        else:
            self.outcomes["different"] += 1
            self.wrong.append(f"{where}: CVXPY {told} {value}, here {found}")


def hooked(record: Record, where: str) -> Any:
    """Return a ``solve`` that shows every problem to the record."""
    plain = cp.Problem.solve

    def solve(self: Any, *args: Any, **options: Any) -> Any:
        value = plain(self, *args, **options)
        if not record.busy and not (options.get("gp") or options.get("qcp") or options.get("nlp")):
            record.busy = True
            try:
                with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                    warnings.simplefilter("ignore")
                    if self.status in (cp.OPTIMAL, cp.INFEASIBLE, cp.UNBOUNDED):
                        record.meet(self, where)
            finally:
                record.busy = False
        return value

    return solve


def run(modules: list[str], record: Record, deadline: float) -> None:
    """Run test modules of CVXPY with the hook."""
    plain = cp.Problem.solve
    for name in modules:
        if time.perf_counter() > deadline:
            return
        cp.Problem.solve = hooked(record, name)
        try:
            suite = unittest.defaultTestLoader.loadTestsFromName(f"cvxpy.tests.{name}")
            with open(os.devnull, "w", encoding="utf-8") as nothing, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with contextlib.redirect_stdout(nothing):
                    unittest.TextTestRunner(nothing, verbosity=0).run(suite)
        except Exception as e:  # a module that needs what is not installed
            record.reasons[f"module {name}: {type(e).__name__}"] += 1
        finally:
            cp.Problem.solve = plain


def main() -> None:
    """Print the shares, or one JSON object with ``must_reach``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few modules")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--modules", nargs="*", help="names of test modules")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many")
    options = parser.parse_args()
    folder = Path(cvxpy.tests.__file__).parent
    every = sorted(p.stem for p in folder.glob("test_*.py"))
    modules = options.modules or (list(QUICK) if options.quick else every)
    record = Record()
    run(modules, record, time.perf_counter() + options.seconds)
    met = max(1, sum(record.outcomes.values()))
    targets = [
        ("share solved, of those CVXPY solves", 0.93, record.outcomes["solved"] / met, True),
        ("different answers", 0.0, float(record.outcomes["different"]), False),
        ("raw exceptions", 0.0, float(record.outcomes["raw exception"]), False),
    ]
    result = {
        "must_reach": [
            {"name": n, "target": t, "measured": m, "reached": bool(m >= t if up else m <= t)}
            for n, t, m, up in targets
        ],
        "met": met,
        "outcomes": dict(record.outcomes),
        "reasons": dict(record.reasons.most_common(40)),
        "different": record.wrong[:40],
        "environment": {**environment(), "cvxpy": cp.__version__},
    }
    if options.json:
        print(json.dumps(result))
        return
    print("| figure | target | measured |\n|---|---:|---:|")
    for row in result["must_reach"]:
        print(f"| {row['name']} | {row['target']:g} | {row['measured']:.3g} |")
    print(f"\n{met} problems: {dict(record.outcomes)}")
    for reason, count in record.reasons.most_common(40):
        print(f"{count:5d}  {reason}")
    for line in record.wrong[:40]:
        print(line)


if __name__ == "__main__":
    main()
