"""CVXPY's own tests, solved here: every problem they solve is adopted, solved and compared.

    python benchmarks/adoption.py [--quick] [--json] [--modules test_problem ...]

What counts is said in ``tests/core/cvxpy_problems.py``; ``tests/core`` runs those that `--record` lists.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import cvxpy as cp
import cvxpy.tests
from record import environment

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "core"))

from cvxpy_problems import LISTED, MODULES, Record, run


def main() -> None:
    """Print the shares, or one JSON object with ``must_reach``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the modules that make test-all runs")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--modules", nargs="*", help="names of test modules")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument(
        "--record",
        type=int,
        metavar="N",
        help="list the tests of the N problems that are solved fastest, for tests/core",
    )
    options = parser.parse_args()
    folder = Path(cvxpy.tests.__file__).parent
    every = sorted(p.stem for p in folder.glob("test_*.py"))
    modules = options.modules or (list(MODULES) if options.quick else every)
    record = Record()
    run(modules, record, options.seconds)
    if options.record:
        counts, taken = record.solved, 0
        rows = []
        for name in sorted(counts, key=lambda n: record.seconds[n] / counts[n]):
            if taken < options.record:
                rows.append(f"{name} {counts[name]}\n")
                taken += counts[name]
        LISTED.write_text("".join(sorted(rows)), encoding="utf-8")
    met = record.met
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
        "not in the list of reasons": record.unlisted,
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
