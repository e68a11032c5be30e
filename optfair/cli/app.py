"""The command ``optfair``: what it knows, and what its other files do."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optfair.cli.cluster import cluster
from optfair.cli.console import (
    Json,
    Name,
    Problems,
    Solvers,
    answer,
    document,
    lines,
    named,
    reporting,
    table,
)
from optfair.cli.explain import diagnose, explain, prove, verify
from optfair.cli.learning import exercise, grade, quiz
from optfair.cli.solve import compare, export, pareto, read, solve, sweep
from optfair.errors import DataError, OptfairError, nearest

if TYPE_CHECKING:
    from optfair.library import Instance

app = typer.Typer(
    name="optfair",
    help="Optimization problems that say their class, prove it, and return answers that are proved.",
    epilog=(
        "Exit codes: 0 fine; 1 a result failed (not certified, not optimal, infeasible, unbounded); "
        "2 bad usage, an unknown name, or a problem the solver does not take."
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        from optfair import __version__

        typer.echo(__version__)
        raise typer.Exit


_MODELS = (solve, explain, prove, verify, diagnose, sweep, pareto)
COMMANDS = (*_MODELS, read, export, compare, cluster)
for command in (*COMMANDS, exercise, grade, quiz):
    # values such as -1,1 are no options
    numbers = {"ignore_unknown_options": True} if command is sweep else {}
    app.command(context_settings=numbers)(command)


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
        matching = _matching(pattern)
        if as_json:
            document({"instances": [instance.to_dict() for instance in matching]})
            return
        rows = [(i.name, i.problem_class, _known(i)) for i in matching]
        table(("name", "class", "optimum"), rows)


@app.command()
def show(
    name: Name, as_json: Json = False, problems: Problems = None, solvers: Solvers = None
) -> None:
    """Show a model: its class with evidence, sizes, source, optimum."""
    from optfair.backends.registry import takers

    with reporting(as_json):
        subject = named(name)
        instance, problem = subject.instance, subject.problem
        able = takers(problem)
        known = {"name": subject.name, "path": name}
        head, more = subject.name, list[str]()
        if instance is not None:
            known = instance.to_dict() | {"path": str(instance.path)}
            head = f"{instance.name}  ({instance.path})"
            more = [f"optimum  {_known(instance)}", f"source   {instance.source}"]
        answer(
            as_json,
            known
            | {
                "found_class": str(problem.problem_class),
                "evidence": [str(row) for row in problem.evidence],
                "witness": None if problem.witness is None else str(problem.witness),
                "variables": {k: list(v.shape) for k, v in problem.variables.items()},
                "constraints": list(problem.constraints),
                "solvers": able,
            },
            head,
            str(problem),
            "evidence",
            *(f"  {row}" for row in str(problem.explain()).splitlines()),
            f"solvers  {', '.join(able) or 'none takes it'}",
            *more,
        )


@app.command()
def certify(
    name: Annotated[str | None, typer.Argument(help="Instance to certify.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Certify all instances.")] = False,
    as_json: Json = False,
    problems: Problems = None,
    solvers: Solvers = None,
) -> None:
    """Check what instances say, with other solvers."""
    from optfair import library

    if every == (name is not None):
        raise typer.BadParameter("give the name of an instance, or --all")
    with reporting(as_json):
        if not every:
            outcome = library.certify(library.load(str(name)))
            rows = repr(outcome).splitlines()
            answer(as_json, outcome.to_dict(), *rows, failed=not outcome)
            return
        outcomes = []
        for one in library.names():
            outcomes.append(_outcome(one))
            if not as_json:
                lines(_one_line(outcomes[-1]))
        failed = [o["name"] for o in outcomes if not o["certified"]]
        said = f"{len(outcomes) - len(failed)} of {len(outcomes)} certified"
        answer(as_json, {"instances": outcomes, "failed": failed}, said, failed=bool(failed))


@app.command("solvers")
def list_solvers(as_json: Json = False, solvers: Solvers = None) -> None:
    """List the solvers: version, classes, licence, how to install."""
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
    """Tour with two pictures, on data shipped with the package."""
    from optfair.cli.learning import demo as make

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
    matching = [i for i in instances if any(fnmatch(word, glob) for word in (i.name, *i.tags))]
    if not matching:
        words = {word for i in instances for word in (i.name.rpartition("/")[2], *i.tags)}
        raise DataError(f"no instance matches {pattern!r}", remedy=nearest(pattern, words))
    return matching


def _known(instance: Instance) -> str:
    if instance.infeasible is not None:
        return f"infeasible: {', '.join(instance.infeasible.conflict)}"
    return "" if instance.optimum is None else f"{instance.optimum.value:.10g}"


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
    result = "infeasible" if outcome.get("infeasible") else ""
    if value is not None:
        result = f"{value:.10g}, gap {gap:.1e}"
    line = (
        f"{word:<9}  {outcome['name']:<42} {outcome['class']:<14} {result:<26}"
        f" {outcome['seconds']:6.2f} s"
    )
    bad = [f"{c['what']}: {c['detail']}" for c in outcome.get("checks", ()) if not c["ok"]]
    return "  ".join([line, *bad, *filter(None, [outcome.get("cause")])])
