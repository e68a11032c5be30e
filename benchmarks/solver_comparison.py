"""Every installed open solver on the problem library, by class and at equal tolerance.

    python benchmarks/solver_comparison.py [--quick] [--json] [--out DIR]

Prints Markdown and writes a picture. A solver has solved a problem when our residuals are within
1e-8; one that hits its time limit counts as at least that. Each run has a process of its own.
The folder keeps finished runs (--out), so that an interrupted benchmark goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import optfair as of
from optfair.comparison import Comparison, compare_solvers
from optfair.plots.profile import plot_profile

TOLERANCE = 1e-8
QUICK = (
    "textbook/diet",
    "textbook/diet_low_salt",
    "textbook/minimum_variance",
    "textbook/simplex_regression",
    "textbook/risk_budget",
)
# classes that every solver of linear and quadratic programs is held to
HELD = ("LP", "QP")


def instances(quick: bool) -> list[str]:
    """Return the names of convex instances with a known answer."""
    if quick:
        return list(QUICK)
    found = [of.library.load(name) for name in of.library.names()]
    known = [i for i in found if i.optimum is not None or i.infeasible is not None]
    return [i.name for i in known if not i.problem_class.startswith(("nonconvex", "unverified"))]


def classes(c: Comparison) -> list[str]:
    return list(dict.fromkeys(run.problem_class for run in c.runs))


def targets(c: Comparison) -> list[dict[str, Any]]:
    """Return what must hold, measured on the runs of this comparison."""
    held = tuple(r for r in c.runs if r.problem_class in HELD)
    part = Comparison(held, c.tolerance, c.time_limit, c.repeats)
    silent = [r for r in c.runs if r.outcome != "solved" and not r.reason]
    loose = [
        r
        for r in held
        if r.outcome == "solved"
        and not all(v is not None and v <= TOLERANCE for v in (r.feasibility, r.dual, r.gap))
    ]
    answered = {r.problem for r in held if r.answered}
    rows = [
        ("wrong answers among the verified, LP and QP", len(part.conflicts())),
        ("wrong answers among the verified, all classes", len(c.conflicts())),
        ("called solved with a residual above 1e-8, LP and QP", len(loose)),
        ("runs without an answer and without a reason", len(silent)),
        ("LP and QP that no solver answers", len(set(part.problems) - answered)),
    ]
    return [{"name": name, "target": 0, "measured": n, "reached": n == 0} for name, n in rows]


def picture(c: Comparison, file: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    found = [name for name in classes(c) if len(c.of_class(name).problems) > 1][:4]
    found = found or classes(c)[:1]
    fig, axes = plt.subplots(
        1, len(found), figsize=(6.4 * len(found), 5.6), layout="constrained", squeeze=False
    )
    for ax, name in zip(axes[0], found, strict=True):
        part = c.of_class(name)
        plot_profile(part, title=f"{name}, {len(part.problems)} problems at {TOLERANCE:g}", ax=ax)
    fig.savefig(file, dpi=110)
    plt.close(fig)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a slice under 45 s")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as fresh:
        # the slice is always measured anew
        kept = Path(fresh) if options.quick or options.json else options.out / "solver_comparison"
        c = compare_solvers(
            instances(options.quick),
            tolerance=TOLERANCE,
            time_limit=3 if options.quick else 60,
            repeats=1 if options.quick else 3,
            out=kept,
            verbose=int(not options.json),
        )
    result = {"must_reach": targets(c), **c.to_dict()}
    if options.json:
        print(json.dumps(result))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    print(f"## Solvers on the problem library, tolerance {TOLERANCE:g}")
    for name in classes(c):
        part = c.of_class(name)
        print(f"\n### {name}, {len(part.problems)} problems\n")
        print("| solver | takes | answered | seconds (SGM, 1 s) | to the best | MB added |")
        print("|---|---:|---:|---:|---:|---:|")
        for row in part.summary():
            if not row.taken:
                continue
            least = "≥ " if row.lower_bound else ""
            print(
                f"| {row.solver} {row.version} | {row.taken} | {row.answered} "
                f"| {least}{row.seconds:.3g} | {least}{row.ratio:.3g} | {row.megabytes:.1f} |"
            )
    print("\n| no answer | solver | outcome | why |")
    print("|---|---|---|---|")
    for run in c.failures():
        print(f"| {run.problem} | {run.solver} | {run.outcome} | {run.reason} |")
    print("\n| must reach | target | measured | |")
    print("|---|---:|---:|---|")
    for t in result["must_reach"]:
        verdict = "reached" if t["reached"] else "NOT reached"
        print(f"| {t['name']} | {t['target']} | {t['measured']} | {verdict} |")
    file = options.out / "solver_comparison.png"
    picture(c, file)
    print(f"\nPicture: {file}")


if __name__ == "__main__":
    main()
