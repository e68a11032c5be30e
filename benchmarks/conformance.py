"""Solvers against classes, measured: who solves what, to which residuals, and who says no.

    python benchmarks/conformance.py [--quick] [--json] [--tolerance T] [--out DIR]

Prints Markdown and writes a picture. Every usable solver is asked for every small instance of the
conformance tests at one tolerance, then for infeasible and unbounded instances of each class. A cell
is

- the largest residual, recomputed on the declared problem (feasibility, dual, gap),
- "not met": the result failed verification, and no result was returned,
- "local": a feasible point of a local solver, without a bound,
- "proved": infeasible with a Farkas certificate that was verified, or unbounded with a ray,
- "said": the solver's word for it, without a proof (``diagnose`` finds the ray itself),
- empty: the profile says no before anything runs.

The documentation runs this command when it is built, and prints the cells by class.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "conformance"))

from instances import CASES, INFEASIBLE, PRECISE, UNBOUNDED
from record import environment, targets_table

import optfair as of
from optfair.backends.registry import licence_state, profile, profiles

# what an honest solver may answer
EXPECTED = {"optimal", "refused", "not met", "local", "proved", "said"}


def problems(quick: bool) -> dict[str, Any]:
    """Return the declared instances by name, with their optima."""
    found = {}
    for name, spec in CASES.items():
        problem, names = spec.build()
        p = of.from_cvxpy(problem, names)
        found[name] = (p.with_integrality(*spec.integers) if spec.integers else p, spec.value)
    if not quick:
        for name, build in PRECISE.items():
            problem, names, value = build()
            found.setdefault(name, (of.from_cvxpy(problem, names), value))
    # without an optimum: the answer is that there is none
    for word, cases in (("infeasible", INFEASIBLE), ("unbounded", UNBOUNDED)):
        for kind, make in cases.items():
            found[f"{word} {kind}"] = (of.from_cvxpy(*make()), math.nan)
    return found


def group(name: str, p: of.Problem) -> str:
    """Return the class a cell is counted to."""
    first = name.split()[0]
    return first if first in ("infeasible", "unbounded") else str(p.problem_class)


def measured(solver: str, p: of.Problem, value: float, tolerance: float) -> dict[str, Any]:
    """Return one cell: outcome, largest residual, error of the value, seconds."""
    if not profile(solver).accepts(p):
        return {"outcome": "refused"}
    begin = time.perf_counter()
    try:
        s = p.solve(solver, tolerance=tolerance, verbose=0)
    except of.SolverFailure as failure:
        return {"outcome": "not met", "why": failure.evidence}
    except of.Infeasible as e:
        proved = e.certificate is not None and bool(e.certificate.verify())
        return {"outcome": _no_optimum(value, proved), "why": e.cause}
    except of.Unbounded as e:
        return {"outcome": _no_optimum(value, bool(e.ray)), "why": e.cause}
    except of.OptfairError as error:
        return {"outcome": type(error).__name__, "why": error.cause}
    r = s.residuals()
    local = s.status.termination == "local"
    if math.isnan(value) and not local:
        return {"outcome": "wrong", "why": "an optimum of a problem that has none"}
    return {
        "outcome": s.status.termination,
        "residual": r.feasibility if local else max(r.feasibility, r.dual, r.gap),
        # held to the sizes that solvers measure by, as its grade says
        "loosely": not (s.grade.sound or p.integers) and bool(r.above(tolerance)),
        "error": abs(s.objective - value) / max(1.0, abs(value)) if value == value else None,
        "seconds": time.perf_counter() - begin,
    }


def _no_optimum(value: float, proved: bool) -> str:
    """Return what it is worth that a solver found no optimum."""
    if not math.isnan(value):
        return "wrong"  # there is one
    return "proved" if proved else "said"


def cell(found: dict[str, Any]) -> str:
    """Return a cell as text."""
    if found["outcome"] == "optimal":
        # nothing is exact, and 0e+00 would say so
        return "≤ 1e-16" if found["residual"] <= 1e-16 else f"{found['residual']:.0e}"
    return "" if found["outcome"] == "refused" else str(found["outcome"])


def by_class(rows: dict[str, Any], groups: dict[str, str]) -> dict[str, dict[str, str]]:
    """Return class -> solver -> the worst cell of its instances, as text."""
    table: dict[str, dict[str, str]] = {}
    for name in dict.fromkeys(groups.values()):
        table[name] = {}
        for solver, row in rows.items():
            cells = [row[n] for n, g in groups.items() if g == name]
            cells = [c for c in cells if c["outcome"] != "refused"] or cells[:1]
            done = [c for c in cells if c["outcome"] in ("optimal", "proved")]
            text = cell(max(cells, key=_badness))
            if done and len(done) < len(cells):
                text = f"{len(done)} of {len(cells)}"
            table[name][solver] = text
    return table


def _badness(found: dict[str, Any]) -> tuple[int, float]:
    order = ["refused", "proved", "optimal", "local", "said", "not met"]
    outcome = found["outcome"]
    rank = order.index(outcome) if outcome in order else len(order)
    return rank, found.get("residual") or 0.0


def targets(rows: dict[str, Any], groups: dict[str, str], tolerance: float) -> list[dict[str, Any]]:
    """Return what must hold, measured on these cells."""
    cells = [found for row in rows.values() for found in row.values()]
    optimal = [f for f in cells if f["outcome"] == "optimal" and not f["loosely"]]
    held = [n for n, g in groups.items() if g in ("LP", "QP")]
    silent = [
        row[n]
        for row in rows.values()
        for n in held
        if row[n]["outcome"] == "not met" and not row[n]["why"]
    ]
    # few solvers return a ray: it is found by diagnose, not by them
    unsettled = [
        n
        for n, g in groups.items()
        if g != "unbounded" and not any(_settled(row[n]["outcome"]) for row in rows.values())
    ]
    wanted = [
        ("largest residual called optimal", tolerance, max(f["residual"] for f in optimal)),
        (
            "largest error of a value called optimal",
            20 * tolerance,
            max(f["error"] for f in optimal),
        ),
        ("LP and QP not met without residuals that say so", 0, len(silent)),
        ("feasible or infeasible instances that no solver settles", 0, len(unsettled)),
        ("wrong answers and crashes", 0, sum(f["outcome"] not in EXPECTED for f in cells)),
    ]
    return [{"name": n, "target": t, "measured": m, "reached": bool(m <= t)} for n, t, m in wanted]


def _settled(outcome: str) -> bool:
    return outcome in ("optimal", "proved")


def picture(table: dict[str, dict[str, str]], tolerance: float, file: Path) -> None:
    """Draw the table by class: the darker, the smaller the worst residual."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    solvers = list(next(iter(table.values())))
    fig, ax = plt.subplots(
        figsize=(2.2 + 0.85 * len(solvers), 1.0 + 0.36 * len(table)), layout="constrained"
    )
    shades = plt.get_cmap("Blues_r")
    for i, row in enumerate(table.values()):
        for j, text in enumerate(row.values()):
            fill, ink = "white", "#1B1B1B"
            if "e-" in text:
                # 1e-16 dark, the tolerance light
                digits = min(1.0, max(0.0, -math.log10(float(text.strip("≤ "))) / 16.0))
                fill = shades(1.0 - 0.75 * digits)
                ink = "white" if digits > 0.8 else ink
            elif text == "proved":
                fill = "#D5EBDD"
            elif text in ("said", "local"):
                fill, ink = "#F1F1F1", "#555555"
            elif text:
                fill, ink = "#FBE3E0", "#8C1D18"
            ax.add_patch(plt.Rectangle((j, i), 1, 1, facecolor=fill, edgecolor="#DDDDDD"))
            ax.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=8.5, color=ink)
    ax.set(xlim=(0, len(solvers)), ylim=(len(table), 0))
    ax.set_xticks([j + 0.5 for j in range(len(solvers))], solvers)
    ax.set_yticks([i + 0.5 for i in range(len(table))], list(table))
    ax.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    ax.spines[:].set_visible(False)
    ax.set_xlabel(f"largest residual at tolerance {tolerance:g}; empty: refused before solving")
    fig.savefig(file, dpi=110)
    plt.close(fig)


def markdown(table: dict[str, dict[str, str]], head: str) -> list[str]:
    """Return the lines of a table of cells."""
    solvers = list(next(iter(table.values())))
    return [
        f"| {head} | " + " | ".join(solvers) + " |",
        "|---|" + ":---:|" * len(solvers),
        *(
            f"| {name} | " + " | ".join(row[s] for s in solvers) + " |"
            for name, row in table.items()
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="without the random instances")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--tolerance", type=float, default=1e-8)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/out"))
    options = parser.parse_args()

    known = [p for p in profiles().values() if not p.structure]
    usable = [p.name for p in known if licence_state(p).usable]
    absent = {p.name: str(licence_state(p)) for p in known if p.name not in usable}
    instances = problems(options.quick)
    rows = {
        solver: {
            name: measured(solver, p, value, options.tolerance)
            for name, (p, value) in instances.items()
        }
        for solver in usable
    }
    groups = {name: group(name, p) for name, (p, _) in instances.items()}
    table = by_class(rows, groups)
    result = {
        "must_reach": targets(rows, groups, options.tolerance),
        "tolerance": options.tolerance,
        "by_class": table,
        "rows": rows,
        "absent": absent,
        "environment": {
            **environment(),
            "solvers": {name: profile(name).version for name in usable},
        },
    }
    if options.json:
        print(json.dumps(result))
        return
    each = {n: {s: cell(rows[s][n]) for s in usable} for n in instances}
    lines = [f"## Solvers against classes at tolerance {options.tolerance:g}", ""]
    lines += ["The worst cell of each class; empty where the solver does not take it.", ""]
    lines += [*markdown(table, "class"), "", "### Each instance", "", *markdown(each, "instance")]
    lines += ["", "### Not there", ""] if absent else []
    lines += [f"- {name}: {state}" for name, state in absent.items()]
    failed = [
        f"- {solver}, {name}: {found['why']}"
        for solver, row in rows.items()
        for name, found in row.items()
        if found["outcome"] not in EXPECTED - {"not met"}
    ]
    lines += ["", "### Not met, and so not returned", "", *failed] if failed else []
    lines += ["", targets_table(result["must_reach"])]
    options.out.mkdir(parents=True, exist_ok=True)
    text = "\n".join(lines)
    (options.out / "conformance.md").write_text(text + "\n", encoding="utf-8")
    file = options.out / "conformance.png"
    picture(table, options.tolerance, file)
    print(f"{text}\n\nPicture: {file}")


if __name__ == "__main__":
    main()
