"""The commands that read, solve, compare and write models: ``optfair solve``, ``sweep``, ``compare``, ``read``, ``export``."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optfair.cli.console import (
    FAILED,
    Force,
    Json,
    Name,
    Named,
    Problems,
    SafeCells,
    Solver,
    Solvers,
    check_outputs,
    document,
    lines,
    named,
    pictures,
    piped,
    plain,
    reporting,
    save_proof,
    table,
    typed,
    write_files,
    write_picture,
)
from optfair.errors import DataError
from optfair.formats.text import readable, writable
from optfair.pages import PAGES, check_page
from optfair.storage import csv_text

if TYPE_CHECKING:
    from optfair.backends.integer_programs import Pool
    from optfair.core.problem import Problem
    from optfair.core.solution import Solution

# Entries that are printed of values and of prices, unless all are asked for.
SHOWN = 20
ZERO = 1e-9


Tolerance = Annotated[float, typer.Option(help="Relative residuals to meet.")]
PointLimit = Annotated[float | None, typer.Option(help="Wall seconds for every point.")]
Jobs = Annotated[int, typer.Option(help="Processes; -1 for one per core.")]
Save = Annotated[
    Path | None, typer.Option(help="File of what is done; the same call goes on from it.")
]
PointsOut = Annotated[
    Path | None, typer.Option("--out", "-o", help="Write the points as .csv, or a picture.")
]


def solve(
    name: Name,
    solver: Solver = None,
    tolerance: Tolerance = 1e-7,
    time_limit: Annotated[float | None, typer.Option(help="Wall seconds.")] = None,
    solutions: Annotated[
        int | None,
        typer.Option(help="Up to so many solutions with different binaries, best first."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Write the whole solution here: .json, .csv or .sol (values only)."
        ),
    ] = None,
    proof: Annotated[
        Path | None, typer.Option(help="File for the proof, which `optfair verify` checks.")
    ] = None,
    force: Force = False,
    safe_cells: SafeCells = False,
    every: Annotated[
        bool,
        typer.Option("--all", help=f"Print every number, not only the first {SHOWN} nonzeros."),
    ] = False,
    verbose: Annotated[
        int, typer.Option("--verbose", "-v", count=True, help="Progress; twice: the solver's log.")
    ] = 0,
    as_json: Json = False,
    problems: Problems = None,
    solvers: Solvers = None,
) -> None:
    """Solve a model and print the answer: values, prices, its proof."""
    if verbose and as_json:
        raise typer.BadParameter("--verbose and --json exclude each other")
    with reporting(as_json):
        check_outputs({"--out": out}, force, endings=WRITERS)
        check_outputs({"--proof": proof}, force, read={"--out": out})
        subject = named(name)
        s = subject.problem.solve(
            solver,
            tolerance=tolerance,
            time_limit=time_limit,
            verbose=min(verbose, 2),
            solutions=solutions,
        )
        if proof is not None:
            save_proof(s.certificate, proof)
        if out is not None:
            write_files({out: WRITERS[out.suffix.lower()](subject, s, safe_cells)})
        if as_json:
            document(_record(subject, s))
        else:
            _print(subject, s, every)
            lines(*(f"wrote {file}" for file in (out, proof) if file is not None))
        if s.status.termination != "optimal":
            raise typer.Exit(FAILED)


def _print(subject: Named, s: Solution, every: bool) -> None:
    from optfair.core.solution import entries

    stated = None if subject.instance is None else subject.instance.optimum
    lines(*(row for row in repr(s).splitlines() if not row.startswith("  values")))
    if stated is not None:
        lines(f"  stated     {stated.value:.10g}")
    lines("residuals", *(f"  {row}" for row in str(s.residuals()).splitlines()))
    for k, other in enumerate(s.pool.solutions if s.pool else [s]):
        title = f"values of solution {k + 1}: {other.objective:.10g}" if s.pool else "values"
        _section(title, list(entries(other.problem, other.values)), every)
    if s.pool:
        lines(f"{len(s.pool.solutions)} solutions: {s.pool.ended}")
    _section("shadow prices", list(entries(s.problem, s.shadow_price, constraints=True)), every)


def _section(title: str, entries: list[tuple[str, str, float]], every: bool) -> None:
    if not entries:
        return
    largest = max(abs(value) for *_, value in entries)
    shown = [(label, v) for _, label, v in entries if every or abs(v) > ZERO * max(1.0, largest)]
    count = f"{len(shown)} of {len(entries)} not 0" if not every else f"{len(entries)}"
    lines(f"{title} ({count})")
    listed = shown if every else shown[:SHOWN]
    width = max((len(label) for label, _ in listed), default=0)
    lines(*(f"  {label:<{width}}  {value:.10g}" for label, value in listed))
    if len(listed) < len(shown):
        lines(f"  ... and {len(shown) - len(listed)} more: --all prints them, --out writes them")


# What is written of a solution.


def _numbers(problem: Problem, numbers: Mapping[str, Any], *, constraints: bool) -> dict[str, Any]:
    """Return arrays by name as lists, or by label where entries have labels."""
    import numpy as np

    from optfair.core.solution import entries, names_of_entries

    listed: dict[str, Any] = {}
    for name in numbers:
        if names_of_entries(problem, name, constraints):
            labelled = entries(problem, {name: numbers[name]}, constraints=constraints)
            listed |= {label: value for _, label, value in labelled}
        else:
            listed[name] = (np.asarray(numbers[name]) + 0.0).tolist()
    return listed


def _record(subject: Named, s: Solution) -> dict[str, Any]:
    r = s.residuals()
    stated = None if subject.instance is None else subject.instance.optimum
    return {
        "name": subject.name,
        "class": str(s.problem.problem_class),
        "solver": s.solver,
        "version": s.version,
        "termination": s.status.termination,
        "objective": s.objective,
        "bound": s.bound,
        "gap": s.gap,
        **s.grade.to_dict(),
        "stated_optimum": None if stated is None else stated.value,
        "values": _numbers(s.problem, s.values, constraints=False),
        "duals": _numbers(s.problem, s.multipliers, constraints=True),
        "shadow_prices": _numbers(s.problem, s.shadow_price, constraints=True),
        "residuals": {
            "feasibility": r.feasibility,
            "objective": r.objective,
            "dual": r.dual,
            "gap": r.gap,
            "bound_by": r.source,
        },
        "seconds": dict(s.seconds),
        "attempts": list(s.attempts),
        **({} if s.pool is None else {"pool": _pool(s.pool)}),
    }


def _pool(pool: Pool) -> dict[str, Any]:
    """Return the solutions of a pool, and why there are no more of them."""
    rows = [
        {"objective": o.objective, "values": _numbers(o.problem, o.values, constraints=False)}
        for o in pool.solutions
    ]
    return {"ended": pool.ended, "solutions": rows}


def _as_json(subject: Named, s: Solution, safe: bool) -> str:
    return json.dumps(plain(_record(subject, s)), indent=2, ensure_ascii=False) + "\n"


def _as_csv(subject: Named, s: Solution, safe: bool) -> str:
    """Return a row per number: what kind it is, of what, the entry, and all its digits."""
    from optfair.core.solution import ENTRY

    return csv_text([ENTRY, *s.entries()], safe=safe)


def _as_sol(subject: Named, s: Solution, safe: bool) -> str:
    """Return the lines of a .sol file as MIPLIB has them: the objective, then a column a line."""
    from optfair.core.solution import entries

    columns = entries(s.problem, s.values, exported=True)
    head = f"# solution of {subject.name}: {s.status}, {s.grade}\n=obj= {s.objective!r}\n"
    return head + "".join(f"{label} {v!r}\n" for _, label, v in columns)


WRITERS = {".json": _as_json, ".csv": _as_csv, ".sol": _as_sol}


def sweep(
    name: Name,
    parameter: Annotated[
        str, typer.Argument(help="Parameter, or row whose right-hand side moves, such as 'cap[2]'.")
    ],
    values: Annotated[
        str, typer.Argument(help="Values to solve at, as 1,2,3; or two ends and a step, as 0:10:2.")
    ],
    width: Annotated[
        float | None,
        typer.Option(
            help="Choose points between the two ends 0:10 until the proved band is no wider than"
            " this part of the range of the optimum."
        ),
    ] = None,
    solver: Solver = None,
    tolerance: Tolerance = 1e-7,
    time_limit: PointLimit = None,
    jobs: Jobs = 1,
    save: Save = None,
    out: PointsOut = None,
    force: Force = False,
    safe_cells: SafeCells = False,
    as_json: Json = False,
    problems: Problems = None,
    solvers: Solvers = None,
) -> None:
    """Solve a model along a parameter or a right-hand side."""
    from optfair.sweeps import sweep as swept

    with reporting(as_json):
        check_outputs(
            {"--out": out}, force, read={"--save": save}, endings=chain([".csv"], pictures())
        )
        subject = named(name)
        options: dict[str, Any] = {"solver": solver, "tolerance": tolerance, "n_jobs": jobs}
        options |= {"width": width, "time_limit": time_limit, "save": save}
        result = swept(subject.problem, parameter, _values(values), **options)
        about = {"name": subject.name, "dependence": str(result.dependence)}
        numbers = ["value", "price", "lower", "upper", "status", "conflict"]
        head = repr(result).splitlines()[: 3 if len(result) > 1 else 2]
        _hand_on(result, about, head, [parameter, *numbers], out, safe_cells, as_json)


def pareto(
    name: Name,
    objectives: Annotated[
        list[str] | None,
        typer.Argument(help="Terms of the model's own objective; all of them by default."),
    ] = None,
    method: Annotated[str, typer.Option(help="weighted, epsilon or lexicographic.")] = "weighted",
    points: Annotated[int, typer.Option(help="Solve at most so many, beside the ends.")] = 20,
    width: Annotated[
        float | None,
        typer.Option(help="Stop when points and bounds are nowhere further apart, of the ranges."),
    ] = None,
    solver: Solver = None,
    tolerance: Tolerance = 1e-7,
    time_limit: PointLimit = None,
    jobs: Jobs = 1,
    save: Save = None,
    out: PointsOut = None,
    force: Force = False,
    safe_cells: SafeCells = False,
    as_json: Json = False,
    problems: Problems = None,
    solvers: Solvers = None,
) -> None:
    """Trade the terms of an objective off: its front."""
    from optfair.sweeps import pareto as front

    with reporting(as_json):
        check_outputs(
            {"--out": out}, force, read={"--save": save}, endings=chain([".csv"], pictures())
        )
        subject = named(name)
        options: dict[str, Any] = {"solver": solver, "tolerance": tolerance, "n_jobs": jobs}
        options |= {"width": width, "time_limit": time_limit, "save": save}
        asked = objectives or list(subject.problem.objective)
        result = front(subject.problem, asked, method=method, points=points, **options)
        about = {"name": subject.name, "method": method, "grade": result.grade}
        _hand_on(result, about, repr(result).splitlines()[:1], None, out, safe_cells, as_json)


def _hand_on(
    result: Any,
    about: dict[str, Any],
    head: list[str],
    shown: list[str] | None,
    out: Path | None,
    safe: bool,
    as_json: bool,
) -> None:
    """Write a sweep or a front as a table or a picture, and print some of its columns or all."""
    frame = result.frame()
    if out is not None and out.suffix.lower() == ".csv":
        rows = (frame.columns, *frame.where(frame.notna(), "").itertuples(index=False))
        write_files({out: csv_text(rows, safe=safe)})
    elif out is not None:
        write_picture(out, result.plot)
    if as_json:
        points = json.loads(frame.to_json(orient="records", double_precision=15))
        document({**about, "points": points})
        return
    lines(*head, "")
    # the first column is what moves, by the name it was asked for
    if shown is not None:
        frame = frame.set_axis([shown[0], *frame.columns[1:]], axis=1)[shown]
    cells = [[_written(v) for v in row] for row in frame.itertuples(index=False)]
    table(list(map(str, frame.columns)), cells)
    lines(*(f"wrote {out}" for _ in (out,) if out is not None))


def _written(value: Any) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)


# Points of a sweep that one call may ask for.
MOST = 100_000


def _values(text: str) -> list[float]:
    """Return the numbers of 1,2,3 or of first:last:step or first:last, which has no others."""
    import numpy as np

    try:
        if ":" not in text:
            return [float(part) for part in text.split(",")]
        low, high, *step = (float(part) for part in text.split(":"))
        if not step:
            return [low, high]
        (each,) = step
        if not (high - low) * each > 0.0 and high != low:
            raise ValueError(f"steps of {each:g} do not lead from {low:g} to {high:g}")
        if abs(high - low) > MOST * abs(each):
            raise ValueError(f"they are more than {MOST:,} points")
        return np.arange(low, high + 0.5 * each, each).tolist() if each else [low]
    except (ValueError, TypeError) as e:
        raise DataError(
            f"{text!r} are no values", str(e), "write 1,2,3 or first:last:step"
        ) from None


def read(
    file: Annotated[
        Path,
        typer.Argument(
            help=f"Model to read: {', '.join(readable())}; most also with .gz; or - for the standard input."
        ),
    ],
    as_json: Json = False,
) -> None:
    """Read a model from a file: its class, variables and constraints."""
    from optfair.formats.file_terms import GATHERED
    from optfair.formats.files import read as read_file

    with reporting(as_json):
        problem = piped() if str(file) == "-" else read_file(file)
        columns = [(k, "x".join(map(str, v.shape)) or "1") for k, v in problem.variables.items()]
        arrays = {k: f.shape for k, f in getattr(problem, "arrays", {}).items()}
        rows = [
            (k, "x".join(map(str, t.shape)) or "1", str(t.evidence).partition(": ")[2])
            for k, t in problem.constraints.items()
        ]
        if as_json:
            document(
                {
                    "file": str(file),
                    "class": str(problem.problem_class),
                    "sense": problem.sense,
                    "integers": sorted(problem.integers),
                    "variables": {k: list(v.shape) for k, v in problem.variables.items()},
                    "arrays": {k: list(n) for k, n in arrays.items()},
                    "constraints": {k: list(t.shape) for k, t in problem.constraints.items()},
                }
            )
            return
        lines(f"{file}: {problem.problem_class}, {problem.sense}", "")
        table(
            ("variable", "shape"),
            [(k, n + " integer" * (k in problem.integers)) for k, n in columns],
        )
        # columns that are read by names of their own
        if len(arrays) <= GATHERED and not arrays.keys() <= problem.variables.keys():
            lines("")
            table(
                ("array", "shape"), [(k, "x".join(map(str, n)) or "1") for k, n in arrays.items()]
            )
        lines("")
        table(("constraint", "shape", "what it is"), rows)


def export(
    name: Name,
    path: Annotated[
        Path,
        typer.Argument(help=f"File to write: {', '.join(writable())}; most also with .gz behind."),
    ],
    force: Force = False,
    problems: Problems = None,
) -> None:
    """Write a model in another format, with its names."""
    from optfair.formats.files import export as exported

    with reporting(False):
        check_outputs({"PATH": path}, force, read={"the file to read": Path(name)})
        subject = named(name)
        exported(subject.problem, path)
        lines(f"wrote {path}: {subject.problem.problem_class}")


# The command ``optfair compare``: solvers side by side on instances of the problem library.


def compare(
    ctx: typer.Context,
    pattern: Annotated[
        list[str],
        typer.Argument(
            help="Names of instances, patterns such as 'textbook/*', collections of the folder"
            " OPTFAIR_COLLECTIONS such as netlib or 'sdplib/t*', or files and folders of files:"
            f" {', '.join(readable())}."
        ),
    ],
    names: Annotated[
        str | None,
        typer.Option(
            "--solvers",
            metavar="A,B,C",
            help="Names of solvers; by default every open one that is installed."
            " (Folders with further profiles: OPTFAIR_SOLVERS.)",
        ),
    ] = None,
    tolerance: Annotated[float, typer.Option(help="Relative residuals to meet.")] = 1e-8,
    time_limit: Annotated[float, typer.Option(help="Wall seconds of one run.")] = 60.0,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each pair.")] = 1,
    jobs: Annotated[int, typer.Option(help="Runs at the same time; -1: one per core.")] = 1,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder that keeps every run, also after Ctrl-C; finished ones are not redone."
        ),
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write an HTML report here.")] = None,
    force: Force = False,
    safe_cells: SafeCells = False,
    as_json: Json = False,
    problems: Problems = None,
) -> None:
    """Compare solvers at equal tolerance, by recomputed residuals."""
    from optfair.comparison import compare_solvers

    with reporting(as_json):
        check_outputs({"--report": report}, force, endings=PAGES)
        if report is not None:
            check_page()
        asked = None if names is None else _split(names)
        comparison = compare_solvers(
            pattern,
            asked,
            tolerance=tolerance,
            time_limit=time_limit,
            repeats=repeats,
            n_jobs=jobs,
            out=out,
            verbose=int(not as_json and sys.stderr.isatty()),
        )
        written = [] if out is None else [str(out)]
        if out is not None and safe_cells:
            comparison.save(out / "comparison.csv", safe_cells=True)
        if report is not None:
            comparison.to_html(report, command=typed(ctx, "compare"))
            written.append(str(report))
        if as_json:
            document(_compared(comparison) | {"written": written})
        else:
            _print_comparison(comparison, written)
        if comparison.conflicts():
            raise typer.Exit(FAILED)


def _split(names: str) -> list[str]:
    parts = [name.strip() for name in names.split(",") if name.strip()]
    if not parts:
        raise DataError("--solvers names nobody", remedy="give names, separated by commas")
    return parts


def _compared(comparison: Any) -> dict[str, Any]:
    def brief(runs: Any) -> list[dict[str, str]]:
        kept = ("problem", "solver", "outcome", "reason")
        return [{name: getattr(run, name) for name in kept} for run in runs]

    content: dict[str, Any] = comparison.to_dict()
    return content | {
        "failures": brief(comparison.failures()),
        "refusals": brief(comparison.refusals()),
    }


def _print_comparison(comparison: Any, written: list[str]) -> None:
    from optfair.comparison.figures import OUTCOME_WORDS

    lines(*repr(comparison).splitlines())
    failures = comparison.failures()
    if failures:
        lines("", "without an answer")
        head = ("problem", "solver", "outcome", "why")
        table(
            head,
            [(r.problem, r.solver, OUTCOME_WORDS[r.outcome], r.reason) for r in failures],
            listing=False,
        )
    unasked = {
        "refused": (comparison.refusals(), "the solver does not take the problem"),
        "not asked": (comparison.unavailable(), "the solver has no package or no licence here"),
    }
    lines(
        "",
        *(
            f"  {word:<10} {len(runs)} pair{'s' * (len(runs) != 1)} where {why}"
            for word, (runs, why) in unasked.items()
            if runs or word == "refused"
        ),
        *(f"  wrote      {path}" for path in written),
    )
