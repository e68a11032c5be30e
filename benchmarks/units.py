"""Maps of groups in any units: every model, scales from 1e-6 to 1e6, features of mixed size.

    python benchmarks/units.py [--cases 400] [--seed 0] [--tolerance 1e-6] [--quick] [--json]

A case is a random group of a random model in random units: all features by one factor, or each by
its own, with costs that are 1 or in the units of the features; some have a constant feature,
fewer members than features, or a feature twice. It is verified when the answer has a proof at the
tolerance, and wrong when a member misses the target or what is said to be infeasible or unbounded
has a map: every case has one, a translation.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections import Counter
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
from record import targets_table

import optfair as of
from optfair.comparison.run import environment
from optfair.methods import group_counterfactuals as gc

MODELS: dict[str, Any] = {
    "AffineMap": lambda X, K=None, k=None, **o: gc.AffineMap(X, **o),
    "AffineMap(K)": lambda X, K=None, k=None, **o: gc.AffineMap(X, K=K, **o),
    "PSDMap": gc.PSDMap,
    "DiagonalMap": gc.DiagonalMap,
    "CommutativeGaussianMap": gc.CommutativeGaussianMap,
    "ScaledMap": gc.ScaledMap,
    "GaussianMap": gc.GaussianMap,
    "IndependentCounterfactuals": lambda X, K=None, k=None, **o: gc.IndependentCounterfactuals(
        X, **o
    ),
}
KINDS = ("plain", "constant", "few members", "twice")


def case(number: int, seed: int) -> tuple[str, str, Any]:
    """Return the model, what is special, and the problem."""
    rng = np.random.default_rng([seed, number])
    name = sorted(MODELS)[number % len(MODELS)]
    kind = str(rng.choice(KINDS, p=(0.55, 0.15, 0.15, 0.15)))
    d = int(rng.integers(2, 7))
    n = int(rng.integers(2, d + 1)) if kind == "few members" else int(rng.integers(d + 3, 60))
    X = rng.standard_normal((n, d)) @ (np.eye(d) + 0.4 * rng.standard_normal((d, d)))
    X += rng.standard_normal(d)
    if kind == "constant":
        X[:, 0] = 0.3
    if kind == "twice":
        X[:, 1] = X[:, 0]
    w = rng.standard_normal(d)
    mixed = rng.choice([0.0, 1.0, 3.0, 6.0])
    units = 10.0 ** (rng.uniform(-6, 6) if mixed == 0.0 else rng.uniform(-mixed, mixed, d))
    units = np.broadcast_to(units, d).copy()
    given: dict[str, Any] = {"threshold": float(np.quantile(X @ w, 0.8)) + float(rng.uniform(0, 1))}
    if rng.random() < 0.5:
        given["feature_costs"] = 1.0 / np.square(units)
    given |= {"K": float(rng.choice([1.5, 3.0])), "k": float(rng.choice([1.5, 3.0]))}
    what = f"{kind}, " + ("one factor" if mixed == 0.0 else f"1e±{mixed:g}")
    return name, what, MODELS[name](X * units, score=(w / units, 0.0), **given)


def outcome(problem: Any, tolerance: float, time_limit: float) -> tuple[str, str]:
    """Solve one case; return a word and why."""
    try:
        s = problem.solve(tolerance=tolerance, time_limit=time_limit)
    except (of.Infeasible, of.Unbounded) as e:
        return "wrong", repr(e)
    except of.OptfairError as e:
        return "refused", f"{e.cause} {e.evidence}"
    if "counterfactuals" in s.values:
        moved = np.asarray(s["counterfactuals"])
    else:
        moved = problem.map(s).transform(problem.points)
    size = np.abs(moved) @ np.abs(problem.normal) + abs(problem.level)
    if float(((problem.level - moved @ problem.normal) / size).max()) > 10.0 * tolerance:
        return "wrong", "a member misses the target"
    if s.is_optimal(tolerance):
        return "verified", s.solver
    return "reported", "; ".join([str(s.grade), *s.attempts])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tolerance", type=float, default=1e-6)
    parser.add_argument("--time-limit", type=float, default=30.0)
    parser.add_argument("--quick", action="store_true", help="40 cases")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    count, begin = 40 if options.quick else options.cases, time.process_time()
    found: Counter[str] = Counter()
    by_model: dict[str, Counter[str]] = {name: Counter() for name in sorted(MODELS)}
    rest = []
    for number in range(count):
        name, what, problem = case(number, options.seed)
        word, why = outcome(problem, options.tolerance, options.time_limit)
        found[word] += 1
        by_model[name][word] += 1
        if word != "verified":
            rest.append((number, name, what, word, " ".join(why.replace("|", "/").split())[:160]))
    share = found["verified"] / count
    rows = [
        {"name": "wrong answers", "target": 0, "measured": found["wrong"]},
        {"name": "share verified", "target": 0.99, "measured": share},
    ]
    reached = [found["wrong"] == 0, share >= 0.99]
    must = [row | {"reached": fine} for row, fine in zip(rows, reached, strict=True)]
    seconds = time.process_time() - begin
    if options.json:
        print(json.dumps({"must_reach": must, "cpu": seconds, "environment": environment()}))
        return
    print(f"## {count} maps in random units at {options.tolerance:g}, {seconds:.0f} s of CPU\n")
    print("| model | verified | reported | refused | wrong |\n|---|---:|---:|---:|---:|")
    for name, own in by_model.items():
        words = ("verified", "reported", "refused", "wrong")
        print(f"| {name} | {' | '.join(str(own[word]) for word in words)} |")
    print("\n| case | model | units | outcome | why |\n|---:|---|---|---|---|")
    for row in rest:
        print(f"| {' | '.join(map(str, row))} |")
    print("\n" + targets_table(must))


if __name__ == "__main__":
    main()
