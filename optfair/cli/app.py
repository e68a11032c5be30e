"""The command ``optfair``."""

from __future__ import annotations

import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optfair.cli.cluster import cluster
from optfair.cli.compare import compare
from optfair.cli.console import (
    FAILED,
    Json,
    Name,
    Named,
    Problems,
    Solvers,
    check_output,
    document,
    lines,
    named,
    reporting,
    table,
)
from optfair.cli.explain import explain
from optfair.cli.verify import verify
from optfair.errors import DataError, OptfairError, nearest
from optfair.formats.text import writable

if TYPE_CHECKING:
    from optfair.core.solution import Solution
    from optfair.library import Instance

__all__ = [
    "app",
    "diagnose",
    "main",
]


# The command ``optfair diagnose``: why an instance or a file has no solution, with evidence.


def diagnose(
    name: Name,
    tolerance: Annotated[
        float, typer.Option(help="Relative violation below which a point counts as feasible.")
    ] = 1e-7,
    time_limit: Annotated[float | None, typer.Option(help="Wall seconds.")] = None,
    as_json: Json = False,
    problems: Problems = None,
    solvers: Solvers = None,
) -> None:
    """Say why an instance or a file has no solution: conflict, ray, witness or scaling."""
    from optfair.diagnosis.diagnose import diagnose as examined

    with reporting(as_json):
        subject = named(name)
        found = examined(subject.problem, tolerance=tolerance, time_limit=time_limit)
        if as_json:
            document({"name": subject.name, **found.to_dict()})
        elif sys.stdout.isatty():
            from rich.console import Console

            Console(highlight=False).print(found)
        else:
            lines(*str(found).splitlines())
        solved = "solution" in found and bool(found["solution"].verify())
        if found.verdict != "fine" and not solved:
            raise typer.Exit(FAILED)


# The command ``optfair``.

app = typer.Typer(
    name="optfair",
    help="Declared optimization problems: listed, solved and certified.",
    epilog=(
        "Exit codes: 0 fine; 1 a result failed (not certified, not optimal, infeasible, unbounded); "
        "2 bad usage, an unknown name, or a problem the solver does not take."
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        from optfair import __version__

        typer.echo(__version__)
        raise typer.Exit


app.command()(cluster)
app.command()(diagnose)
app.command()(explain)
app.command()(compare)
app.command()(verify)


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Read the options that belong to no command."""


@app.command("list")
def list_instances(
    pattern: Annotated[
        str, typer.Argument(help="Part of a name or tag, or a pattern such as 'textbook/*'.")
    ] = "",
    as_json: Json = False,
    problems: Problems = None,
) -> None:
    """List the instances of the problem library."""
    with reporting(as_json):
        found = _matching(pattern)
        if as_json:
            document({"instances": [instance.to_dict() for instance in found]})
            return
        rows = [(i.name, i.problem_class, i.model, _known(i)) for i in found]
        table(("name", "class", "model", "optimum"), rows)


@app.command()
def show(
    name: Name, as_json: Json = False, problems: Problems = None, solvers: Solvers = None
) -> None:
    """Show an instance or a file: its class with evidence, sizes, source and optimum."""
    from optfair.backends.registry import takers

    with reporting(as_json):
        subject = named(name)
        instance, problem = subject.instance, subject.problem
        able = takers(problem)
        if as_json:
            document(
                ({"name": subject.name} if instance is None else instance.to_dict())
                | {
                    "path": name if instance is None else str(instance.path),
                    "found_class": str(problem.problem_class),
                    "evidence": [str(row) for row in problem.evidence],
                    "witness": None if problem.witness is None else str(problem.witness),
                    "variables": {k: list(v.shape) for k, v in problem.variables.items()},
                    "constraints": list(problem.constraints),
                    "solvers": able,
                }
            )
            return
        lines(
            subject.name if instance is None else f"{instance.name}  ({instance.path})",
            str(problem),
            "evidence",
            *(f"  {row}" for row in str(problem.explain()).splitlines()),
            f"solvers  {', '.join(able) or 'none takes it'}",
        )
        if instance is not None:
            lines(f"optimum  {_known(instance)}", f"source   {instance.source}")


@app.command()
def solve(
    name: Name,
    solver: Annotated[
        str | None, typer.Option(help="Name of a solver; by default the policy decides.")
    ] = None,
    tolerance: Annotated[float, typer.Option(help="Relative residuals to meet.")] = 1e-7,
    time_limit: Annotated[float | None, typer.Option(help="Wall seconds.")] = None,
    proof: Annotated[
        Path | None, typer.Option(help="File for the proof, which `optfair verify` checks.")
    ] = None,
    verbose: Annotated[
        int, typer.Option("--verbose", "-v", count=True, help="Progress; twice: the solver's log.")
    ] = 0,
    as_json: Json = False,
    problems: Problems = None,
    solvers: Solvers = None,
) -> None:
    """Solve an instance or a file and verify the result on it."""
    if verbose and as_json:
        raise typer.BadParameter("--verbose and --json exclude each other")
    with reporting(as_json):
        if proof is not None:
            check_output("--proof", proof, False)
        subject = named(name)
        s = subject.problem.solve(
            solver, tolerance=tolerance, time_limit=time_limit, verbose=min(verbose, 2)
        )
        if proof is not None:
            s.certificate.save(proof)
        if as_json:
            document(_solved(subject, s))
        else:
            known = "" if subject.instance is None else _known(subject.instance)
            lines(*repr(s).splitlines(), *([f"  stated     {known}"] if known else []))
            lines("residuals", *(f"  {row}" for row in str(s.residuals()).splitlines()))
        if s.status.termination != "optimal":
            raise typer.Exit(FAILED)


@app.command()
def export(
    name: Name,
    path: Annotated[
        Path,
        typer.Argument(help=f"File to write: {', '.join(writable())}; most also with .gz behind."),
    ],
    force: Annotated[bool, typer.Option("--force", help="Write over a file that exists.")] = False,
    problems: Problems = None,
) -> None:
    """Write an instance or a file in another format, with its names."""
    from optfair.formats.files import export as exported

    with reporting(False):
        check_output("PATH", path, force)
        subject = named(name)
        exported(subject.problem, path)
        lines(f"wrote {path}: {subject.problem.problem_class}")


@app.command()
def certify(
    name: Annotated[str | None, typer.Argument(help="Instance to certify.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Certify all instances.")] = False,
    as_json: Json = False,
    problems: Problems = None,
    solvers: Solvers = None,
) -> None:
    """Check what instances say: class, certificate, optimum or conflict, with other solvers."""
    from optfair import library

    if every == (name is not None):
        raise typer.BadParameter("give the name of an instance, or --all")
    with reporting(as_json):
        if not every:
            outcome = library.certify(library.load(str(name)))
            if as_json:
                document(outcome.to_dict())
            else:
                lines(*repr(outcome).splitlines())
            if not outcome:
                raise typer.Exit(FAILED)
            return
        outcomes = []
        for one in library.names():
            outcomes.append(_outcome(one))
            if not as_json:
                lines(_one_line(outcomes[-1]))
        failed = [o["name"] for o in outcomes if not o["certified"]]
        if as_json:
            document({"instances": outcomes, "failed": failed})
        else:
            lines(f"{len(outcomes) - len(failed)} of {len(outcomes)} certified")
        if failed:
            raise typer.Exit(FAILED)


@app.command("solvers")
def list_solvers(as_json: Json = False, solvers: Solvers = None) -> None:
    """List the solvers: version, classes, licence, and how to install them."""
    from optfair.backends.registry import solvers as solver_table

    with reporting(as_json):
        rows = solver_table().to_list()
        if as_json:
            document({"solvers": rows})
            return
        head = ("solver", "version", "classes", "licence", "state")
        table(head, [[str(row[h]) for h in head] for row in rows])


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("demo"),
) -> None:
    """Make a report with figures from data that are shipped with the package."""
    from optfair.cli.demo import demo as make

    with reporting(False):
        make(out)


def main() -> None:
    """Run the command line."""
    app(prog_name="optfair")


def _matching(pattern: str) -> list[Instance]:
    """Return the instances whose name or tags match."""
    from optfair.library import load, names

    instances = [load(name) for name in names()]
    glob = pattern if any(c in pattern for c in "*?[") else f"*{pattern}*"
    found = [i for i in instances if any(fnmatch(word, glob) for word in (i.name, *i.tags))]
    if not found:
        words = {word for i in instances for word in (i.name.rpartition("/")[2], *i.tags)}
        raise DataError(f"no instance matches {pattern!r}", remedy=nearest(pattern, words))
    return found


def _known(instance: Instance) -> str:
    if instance.infeasible is not None:
        return f"infeasible: {', '.join(instance.infeasible.conflict)}"
    return "" if instance.optimum is None else f"{instance.optimum.value:.10g}"


def _solved(subject: Named, s: Solution) -> dict[str, Any]:
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
        "residuals": {
            "feasibility": r.feasibility,
            "objective": r.objective,
            "dual": r.dual,
            "gap": r.gap,
            "bound_by": r.source,
        },
        "seconds": dict(s.seconds),
        "attempts": list(s.attempts),
    }


def _outcome(name: str) -> dict[str, Any]:
    """Return the certification of one instance; one that cannot be declared fails alone."""
    from optfair.library import certify as certified

    try:
        return certified(name).to_dict()
    except OptfairError as e:
        return {"name": name, "class": "", "certified": False, "seconds": 0.0, **e.to_dict()}


def _one_line(outcome: dict[str, Any]) -> str:
    word = "certified" if outcome["certified"] else "FAILED"
    value, gap = outcome.get("value"), outcome.get("gap")
    found = "infeasible" if outcome.get("infeasible") else ""
    if value is not None:
        found = f"{value:.10g}, gap {gap:.1e}"
    line = (
        f"{word:<9}  {outcome['name']:<42} {outcome['class']:<14} {found:<26}"
        f" {outcome['seconds']:6.2f} s"
    )
    bad = [f"{c['what']}: {c['detail']}" for c in outcome.get("checks", ()) if not c["ok"]]
    return "  ".join([line, *bad, *filter(None, [outcome.get("cause")])])
