"""Problems of CVXPY's own tests, which ship in its wheel: adopted, solved and compared as they are met.

`Problem.solve` is hooked while the tests run. A problem counts when CVXPY calls it optimal,
infeasible or unbounded; the same problem met again is skipped.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import time
import unittest
import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np

import optfair as of

# Modules whose problems are solved again before a release.
MODULES = (
    *("test_quadratic", "test_von_neumann_entr", "test_quad_form", "test_semidefinite_vars"),
    *("test_attributes", "test_bounds", "test_logic", "test_mip_vars", "test_complex"),
    *("test_zero_sized", "test_nonlinear_atoms", "test_objectives", "test_convolution"),
    *("test_matrices", "test_problem", "test_constant_atoms", "test_suppfunc"),
    *("test_KKT", "test_atoms", "test_cone2cone", "test_constraints", "test_dcp2cone_cse"),
    *("test_dgp2dcp", "test_domain", "test_dqcp", "test_expression_methods", "test_expressions"),
    *("test_extract_direct_cones", "test_kron_canon", "test_linear_cone", "test_param_cone_prog"),
    *("test_param_quad_prog", "test_power_atom", "test_scalarize", "test_conic_solvers"),
    *("test_qp_solvers", "test_examples", "test_dpp", "test_solver_data_validation"),
)
# Tests, with the number of their problems that are solved here: ``adoption.py --record`` writes it.
LISTED = Path(__file__).parent / "cvxpy_tests.txt"
# Absolute and relative distance of two optima that are the same: CVXPY's solvers stop at 1e-5.
CLOSE = 5e-3
# Seconds for one problem.
PATIENCE = 8.0
# Why a problem may be refused; whatever else is refused is a defect.
REFUSALS = (
    # functions that are not made from their arguments alone
    "this problem uses something of CVXPY that cannot be taken apart",
    "CVXPY has no matrix for a term",  # a square times zero
    "no result passed verification at tolerance .*",  # outside of a domain where CVXPY stops, no rows
    "the time limit .*",
    "constraint .* which is not known here",  # cones that CVXPY only approximates
    "clarabel says that no point .*",  # steps of a bisection, nearer to its end than proofs reach
)


def listed() -> dict[str, int]:
    """Return the tests to run in turn, with the number of problems that each has solved."""
    rows = (line.split() for line in LISTED.read_text(encoding="utf-8").splitlines())
    return {name: int(count) for name, count in rows}


class Record:
    """What became of the problems that were met."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.solved: Counter[str] = Counter()
        self.seconds: Counter[str] = Counter()
        self.test = ""
        self.busy = False
        self.seen: set[str] = set()

    @property
    def met(self) -> int:
        """Return how many problems were met that CVXPY solves: without those where it is disproved."""
        apart = ("disproved", "modules that cannot run")
        return max(1, sum(n for k, n in self.outcomes.items() if k not in apart))

    @property
    def unlisted(self) -> list[str]:
        """Return the refusals for a reason that is not in the list, and what was raised raw."""
        fine = re.compile("|".join(REFUSALS))
        return [r for r in self.reasons if not fine.fullmatch(r.partition(": ")[2])]

    def meet(self, problem: Any) -> None:
        """Adopt, solve and compare a problem that CVXPY has just solved."""
        key = f"{problem}{[p.value for p in problem.parameters()]}"
        if key in self.seen:
            return
        self.seen.add(key)
        told, value = problem.status, problem.value
        try:
            found = of.from_cvxpy(problem).solve(tolerance=1e-6, time_limit=PATIENCE).objective
        except of.Infeasible as e:
            if told == cp.OPTIMAL and self._disproved(problem, e):
                self.outcomes["disproved"] += 1
                return
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
            self.solved[self.test] += 1
        elif told.startswith(("infeasible", "unbounded")) and abs(found) == float("inf"):
            self.outcomes["solved"] += 1  # the two are told apart by an order of tests
        else:
            self.outcomes["different"] += 1
            self.wrong.append(f"{self.test}: CVXPY {told} {value}, here {found}")

    @staticmethod
    def _disproved(problem: Any, e: of.Infeasible) -> bool:
        """Whether what CVXPY calls optimal breaks a constraint, and there is no point, with proof."""
        outside = max(float(np.max(c.violation())) for c in problem.constraints)
        return outside > 0.0 and e.certificate is not None and bool(e.certificate.verify())


def hooked(record: Record) -> Any:
    """Return a ``solve`` that shows every problem to the record."""
    plain = cp.Problem.solve

    def solve(self: Any, *args: Any, **options: Any) -> Any:
        value = plain(self, *args, **options)
        if not record.busy and not (options.get("gp") or options.get("qcp") or options.get("nlp")):
            record.busy = True
            begin = time.process_time()
            try:
                with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                    warnings.simplefilter("ignore")
                    if self.status in (cp.OPTIMAL, cp.INFEASIBLE, cp.UNBOUNDED):
                        record.meet(self)
            finally:
                record.busy = False
                record.seconds[record.test] += time.process_time() - begin
        return value

    return solve


class _Result(unittest.TestResult):
    """Tells the record which test runs."""

    def __init__(self, record: Record) -> None:
        super().__init__()
        self.record = record

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self.record.test = test.id().removeprefix("cvxpy.tests.")


def run(names: Iterable[str], record: Record, seconds: float = float("inf")) -> None:
    """Run tests of CVXPY, or modules of them, with the hook."""
    plain, begin = cp.Problem.solve, time.perf_counter()
    for name in names:
        if time.perf_counter() - begin > seconds:
            return
        cp.Problem.solve = hooked(record)  # type: ignore[method-assign]
        try:
            with open(os.devnull, "w", encoding="utf-8") as nothing, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with contextlib.redirect_stdout(nothing):
                    suite = unittest.defaultTestLoader.loadTestsFromName(f"cvxpy.tests.{name}")
                    suite.run(_Result(record))
        except Exception as e:  # a module that needs what is not installed
            record.outcomes["modules that cannot run"] += 1
            record.wrong.append(f"module {name}: {type(e).__name__}")
        finally:
            cp.Problem.solve = plain  # type: ignore[method-assign]
