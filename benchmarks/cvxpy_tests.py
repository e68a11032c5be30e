"""Problems of CVXPY's own tests: what is proved of them, and what that costs.

    python benchmarks/cvxpy_tests.py [FILE ...]

Runs the tests that CVXPY ships, with `Problem.solve` replaced by a look at the problem that is solved, or
only compiled, and prints one JSON object. Nothing is solved, so nothing is asserted either. An error
that is none of ours is printed with the test it came from, and ends the run with exit code 1.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
import unittest
import warnings
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from cvxpy.tests import base_test

import optfair as of
from optfair.convexity.proof import CurvatureProof, CurvatureWitness

# Scalars of a problem that is looked at, looks for each test, and rounds of timing for each.
SCALARS, LOOKS, ROUNDS = 2_000, 40, 3
OURS = Path(of.__file__).parent


class Looks:
    """What was seen: terms proved, refuted and left open, and CPU seconds with and without proofs."""

    def __init__(self) -> None:
        self.problems = self.terms = self.proved = self.refused = 0
        self.called_nonconvex: list[str] = []
        self.raw: list[str] = []
        self.plain = self.with_proofs = 0.0
        self.test, self.left = "", 0

    def at(self, problem: Any) -> None:
        """Look at a problem that obeys the composition rules."""
        if self.left <= 0 or not problem.is_dcp():
            return
        if sum(v.size for v in problem.variables()) > SCALARS:
            return
        self.left -= 1
        plain, with_proofs = [], []
        try:
            for _ in range(ROUNDS):  # the least of some: the first imports and remembers
                begin = time.process_time()
                of.from_cvxpy(problem)
                middle = time.process_time()
                answers = of.convexity.prove_terms(problem)
                plain.append(middle - begin)
                with_proofs.append(time.process_time() - middle)
        except of.OptfairError:
            self.refused += 1
            return
        except Exception as e:
            frames = traceback.extract_tb(e.__traceback__)
            ours = [f for f in frames if OURS in Path(f.filename).parents]
            place = f"{Path(ours[-1].filename).relative_to(OURS)}:{ours[-1].lineno}"
            self.raw.append(f"{self.test}: {type(e).__name__} at {place}: {e}"[:300])
            return
        self.problems += 1
        if all(isinstance(answer, CurvatureProof) for answer in answers.values()):
            self.plain += min(plain)
            self.with_proofs += min(with_proofs)
        for name, answer in answers.items():
            self.terms += 1
            self.proved += isinstance(answer, CurvatureProof)
            if isinstance(answer, CurvatureWitness):
                self.called_nonconvex.append(f"{self.test}: {name}: {answer}"[:300])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: Any) -> None:
        """Begin a test."""
        self.test, self.left = item.nodeid, LOOKS


def main(files: list[str]) -> None:
    """Run the tests and print what was seen."""
    folder = Path(cp.__file__).parent / "tests"
    looks = Looks()

    def solve(problem: Any, *args: Any, **kwargs: Any) -> float:
        looks.at(problem)
        for v in problem.variables():
            v.save_value(np.zeros(v.shape))
        return 0.0

    def data(problem: Any, *args: Any, **kwargs: Any) -> Any:
        looks.at(problem)
        return compiled(problem, *args, **kwargs)

    compiled = cp.Problem.get_problem_data
    cp.Problem.solve = solve  # type: ignore[method-assign]
    cp.Problem.get_problem_data = data  # type: ignore[method-assign]
    for name in dir(
        unittest.TestCase
    ):  # what is not solved is not right: go on to the next problem
        if name.startswith("assert") and not name.startswith(("assertRaises", "assertWarns")):
            setattr(unittest.TestCase, name, lambda *args, **kwargs: None)
    base_test.BaseTest.assertItemsAlmostEqual = lambda *args, **kwargs: None  # type: ignore[method-assign]
    warnings.simplefilter("ignore")
    chosen = [str(folder / f) for f in files] or [str(folder)]
    quiet = ["-q", "--no-header", "--tb=no", "-p", "no:cacheprovider"]
    # no settings of another project: of a folder above, where warnings may be errors
    quiet += ["--continue-on-collection-errors", "-c", os.devnull, "--rootdir", str(folder)]
    out, sys.stdout = sys.stdout, sys.stderr
    try:
        pytest.main([*chosen, *quiet, "-n", "0", "--disable-warnings"], plugins=[looks])
    finally:
        sys.stdout = out
    print(
        json.dumps(
            {
                "problems": looks.problems,
                "terms": looks.terms,
                "terms proved": looks.proved,
                "refused": looks.refused,
                "called nonconvex": looks.called_nonconvex,
                "raw errors": looks.raw,
                "seconds of from_cvxpy": looks.plain,
                "seconds of prove": looks.with_proofs,
            }
        )
    )
    if looks.raw:
        raise SystemExit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
