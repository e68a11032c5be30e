"""Every installed open solver on the problem library, by class and at equal tolerance.

    python benchmarks/solver_comparison.py [--quick] [--json] [--out DIR]

Prints Markdown and writes a picture. A solver has solved a problem when our residuals are within
1e-8; one that hits its time limit counts as at least that. Each run has a process of its own.
The folder keeps finished runs (--out), so that an interrupted benchmark goes on.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

from record import targets_table

import optfair as of
from optfair.comparison import Comparison, compare_solvers, shifted_geometric_mean
from optfair.plots import plot_profile

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
# problems that make a performance profile worth drawing
ENOUGH = 5


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
    """Draw who answers what, and the profiles of the two classes with most problems."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    # a profile of a handful of problems says little
    many = [name for name in classes(c) if len(c.of_class(name).problems) >= ENOUGH]
    many = sorted(many, key=lambda name: -len(c.of_class(name).problems))[:2]
    widths = [0.62 * len(_takers(c)) + 2.6, *(6.4 for _ in many)]
    fig, axes = plt.subplots(
        1,
        len(widths),
        figsize=(sum(widths), max(5.6, 0.5 * len(_rows(c)) + 1.6)),
        width_ratios=widths,
        layout="constrained",
        squeeze=False,
    )
    grid(c, axes[0][0])
    for ax, name in zip(axes[0][1:], many, strict=True):
        part = c.of_class(name)
        plot_profile(part, title=f"{name}, {len(part.problems)} problems at {TOLERANCE:g}", ax=ax)
    fig.savefig(file, dpi=110)
    plt.close(fig)


def _takers(c: Comparison) -> list[str]:
    """Return the solvers that take at least one of the problems."""
    return [row.solver for row in sorted(c.summary(), key=lambda s: s.solver) if row.taken]


def _rows(c: Comparison) -> dict[str, tuple[str, ...]]:
    """Return label -> problems: each problem if there are few, else each class."""
    if len(c.problems) <= 12:
        of_problem = {r.problem: r.problem_class for r in c.runs}
        empty = {r.problem: ", infeasible" for r in c.runs if r.outcome == "infeasible"}
        called = {n: n.split("/")[-1].replace("_", " ") + empty.get(n, "") for n in of_problem}
        return {f"{k}: {called[n]}": (n,) for n, k in of_problem.items()}
    found = {name: c.of_class(name).problems for name in classes(c)}
    return {f"{name} ({len(problems)})": problems for name, problems in found.items()}


def grid(c: Comparison, ax: Any) -> None:
    """Write seconds of single problems, or answers of a class, darker where it is slower."""
    import matplotlib.pyplot as plt

    rows, solvers, shades = _rows(c), _takers(c), plt.get_cmap("Blues")
    for i, problems in enumerate(rows.values()):
        for j, solver in enumerate(solvers):
            cells = [c.cells[p, solver] for p in problems if (p, solver) in c.cells]
            cells = [cell for cell in cells if cell.outcome != "refused"]
            done = [cell for cell in cells if cell.answered]
            fill, ink, text = "white", "#1B1B1B", ""
            if cells and len(done) < len(cells):
                fill, ink = "#FBE3E0", "#8C1D18"
                text = f"{len(done)}/{len(cells)}" if len(cells) > 1 else cells[0].outcome
            elif cells:
                mean = shifted_geometric_mean([cell.median("seconds") or 0.0 for cell in done])
                # a millisecond is light, ten seconds are dark
                depth = min(1.0, max(0.0, (math.log10(max(mean, 1e-3)) + 3.0) / 4.0))
                fill, ink = shades(0.1 + 0.75 * depth), "white" if depth > 0.6 else ink
                text = f"{mean:.2g} s" if mean >= 1.0 else f"{1e3 * mean:.0f} ms"
            ax.add_patch(plt.Rectangle((j, i), 1, 1, facecolor=fill, edgecolor="#DDDDDD"))
            ax.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=8, color=ink)
    ax.set(xlim=(0, len(solvers)), ylim=(len(rows), 0))
    ax.set_xticks([j + 0.5 for j in range(len(solvers))], solvers)
    ax.set_yticks([i + 0.5 for i in range(len(rows))], list(rows))
    ax.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    ax.spines[:].set_visible(False)
    ax.set_xlabel("time where all are answered, else how many; empty: not taken")


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
    print(
        "\nSeconds are the shifted geometric mean (1 s) over the problems a solver takes, with the time"
        "\nlimit where it has no answer (≥); to the best: divided by that of the fastest of each problem."
    )
    for name in classes(c):
        part = c.of_class(name)
        print(f"\n### {name}, {len(part.problems)} problem{'s' * (len(part.problems) > 1)}\n")
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
    print("\n" + targets_table(result["must_reach"]))
    file = options.out / "solver_comparison.png"
    picture(c, file)
    print(f"\nPicture: {file}")


if __name__ == "__main__":
    main()
