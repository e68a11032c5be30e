"""The command ``optfair``: what it knows, what answers with a proof, and what its other files do."""

from __future__ import annotations

import contextlib
import os
import sys
from enum import StrEnum
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optfair.cli.cluster import cluster
from optfair.cli.console import (
    FAILED,
    Force,
    Json,
    Name,
    Problems,
    Solvers,
    answer,
    check_outputs,
    document,
    is_model,
    lines,
    named,
    pictures,
    reporting,
    save_proof,
    table,
    write_picture,
)
from optfair.cli.learning import exercise, grade, quiz
from optfair.cli.solve import compare, export, pareto, read, solve, sweep
from optfair.errors import DataError, OptfairError, nearest

if TYPE_CHECKING:
    from optfair.convexity.prove import Answer
    from optfair.library import Instance

Formula = Annotated[
    str,
    typer.Argument(help="Such as 'sqrt(1 + x**2) + x*y'; or an instance, or a file with a model."),
]
Where = Annotated[
    str, typer.Option(help="Bounds and constraints, separated by commas: 'y>=1, x<=4'.")
]
Shape = Annotated[
    str, typer.Option(help="Vectors and their lengths: 'v=4, w=3'; other names are scalars.")
]


def explain(
    formula: Formula,
    where: Where = "",
    shape: Shape = "",
    picture: Annotated[
        Path | None,
        typer.Option(help="Draw it with a chord, or those that refute it, into this file."),
    ] = None,
    force: Force = False,
    as_json: Json = False,
    problems: Problems = None,
) -> None:
    """Say why a formula is convex or not, or a model has its class."""
    with reporting(as_json):
        check_outputs({"--picture": picture}, force, endings=pictures())
        if is_model(formula):
            _refuse_options("explain", where, shape, picture)
            _explain_model(formula, as_json)
            return
        proof = _proved(formula, where, shape)
        if picture is not None:
            _draw(proof, picture)
        undecided = proof.curvature == "undecided"
        rows = [*proof.explain().splitlines(), *([] if undecided else [str(proof.verify())])]
        answer(as_json, _record(formula, where, proof), *rows, failed=undecided)


def _explain_model(name: str, as_json: bool) -> None:
    problem = named(name).problem
    rows = str(problem.explain()).splitlines()
    content = {"name": name, "class": str(problem.problem_class), "evidence": rows}
    answer(as_json, content, *rows)


def _refuse_options(command: str, *given: Any) -> None:
    from optfair.errors import DataError

    if any(given):
        raise DataError(
            "--where, --shape and --picture are for formulas",
            f"optfair {command} was given a model, which states its own",
            "leave them out",
        )


def _proved(formula: str, where: str, shape: str, curvature: Any = None) -> Answer:
    from optfair.convexity.prove import prove as proved
    from optfair.convexity.writing import formula_on

    expression, bounds = formula_on(formula, where, _vectors(shape))
    answer: Answer = proved(expression, bounds, curvature=curvature)
    return answer


class Curvature(StrEnum):
    """What a formula may be proved to be."""

    convex = "convex"
    concave = "concave"


def prove(
    formula: Formula,
    where: Where = "",
    shape: Shape = "",
    curvature: Annotated[
        Curvature | None, typer.Option(help="What to prove; by default whichever holds.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Of a model: file for the proof of its optimum."),
    ] = None,
    force: Force = False,
    as_json: Json = False,
    problems: Problems = None,
    solvers: Solvers = None,
) -> None:
    """Prove a formula convex or concave, or a model's optimum."""
    from optfair.errors import DataError

    with reporting(as_json):
        if is_model(formula):
            _refuse_options("prove", where, shape, curvature)
            _prove_optimum(formula, out, force, as_json)
            return
        if out is not None:
            raise DataError(
                "--out is for the optimum of a model",
                f"{formula!r} is a formula, whose proof is a tree of rules",
                "print it with `optfair explain`",
            )
        proof = _proved(formula, where, shape, None if curvature is None else curvature.value)
        verdict = proof.verify()
        proved = bool(proof) and bool(verdict)
        said = str(verdict) if proved else "not proved: `optfair explain` says why"
        content = _record(formula, where, proof) | {"proved": proved}
        answer(as_json, content, str(proof), said, failed=not proved)


def _prove_optimum(name: str, out: Path | None, force: bool, as_json: bool) -> None:
    from optfair.errors import SolverFailure, UnsupportedProblem

    check_outputs({"--out": out}, force)
    subject = named(name)
    s = subject.problem.solve()
    if s.problem.integers and not s.grade.sound:  # a solver's branching: grown again, with bounds
        with contextlib.suppress(SolverFailure, UnsupportedProblem):
            s = s.certificate.prove().solution
    verdict = s.certificate.verify()
    proved = bool(verdict) and s.grade.sound
    if out is not None:
        save_proof(s.certificate, out)
    answer(
        as_json,
        {"name": subject.name, "objective": s.objective, "bound": s.bound, "gap": s.gap}
        | {"proved": proved, "reasons": list(verdict.reasons), **s.grade.to_dict()},
        f"{s.problem.sense} {s.objective:.10g}, bound {s.bound:.10g}, gap {s.gap:.1e}: {s.grade}",
        *(f"not proved: {reason}" for reason in verdict.reasons),
        *([f"wrote {out}: `optfair verify {out} {name}` checks it"] if out is not None else []),
        failed=not proved,
    )


def verify(
    proof: Annotated[Path, typer.Argument(help="Proof file, written by save() of a certificate.")],
    model: Annotated[
        str | None,
        typer.Argument(help="Instance or file that it has to be about, number by number."),
    ] = None,
    as_json: Json = False,
    problems: Problems = None,
    solvers: Solvers = None,
) -> None:
    """Check a proof file in exact arithmetic, also against a model."""
    from optfair.formats.proof_file import load_proof

    with reporting(as_json):
        saved = load_proof(proof)
        about = None if model is None else named(model)
        verdict = saved.verify()
        reasons = verdict.reasons if about is None else saved.faults(about.problem)
        content = {
            "proof": str(proof),
            "model": None if about is None else about.name,
            "proved": not reasons,
            "says": "" if reasons else str(saved),
            "reasons": reasons,
            **verdict.grade.to_dict(),
        }
        rows = [f"NOT proved: {reason}" for reason in reasons] or [str(saved)]
        if about is not None and not reasons:
            rows.append(f"its numbers are those of {about.name}")
        answer(as_json, content, *rows, failed=bool(reasons))


def diagnose(
    name: Name,
    tolerance: Annotated[
        float, typer.Option(help="Relative violation below which a point counts as feasible.")
    ] = 1e-7,
    time_limit: Annotated[float | None, typer.Option(help="Wall seconds.")] = None,
    keep: Annotated[
        list[str] | None, typer.Option(help="A hard constraint: neither blamed nor relaxed.")
    ] = None,
    as_json: Json = False,
    problems: Problems = None,
    solvers: Solvers = None,
) -> None:
    """Say why a model has no solution: conflict, ray or scaling."""
    from optfair.diagnosis.diagnose import diagnose as examined

    with reporting(as_json):
        subject = named(name)
        diagnosis = examined(
            subject.problem, keep=keep or (), tolerance=tolerance, time_limit=time_limit
        )
        if as_json:
            document({"name": subject.name, **diagnosis.to_dict()})
        elif sys.stdout.isatty():
            from rich.console import Console

            Console(highlight=False).print(diagnosis)
        else:
            lines(*str(diagnosis).splitlines())
        solved = "solution" in diagnosis and bool(diagnosis["solution"].verify())
        if diagnosis.verdict != "fine" and not solved:
            raise typer.Exit(FAILED)


def _vectors(shape: str) -> dict[str, Any]:
    import cvxpy as cp

    from optfair.errors import DataError

    made = {}
    for part in filter(None, (p.strip() for p in shape.split(","))):
        name, _, size = (p.strip() for p in part.partition("="))
        if not (name.isidentifier() and size.isdigit() and 0 < int(size) <= 10_000):
            raise DataError(f"{part!r} is no shape", remedy="write e.g. --shape 'v=4'")
        made[name] = cp.Variable(int(size), name=name)
    return made


def _draw(answer: Answer, picture: Path) -> None:
    from optfair.convexity.proof import Undecided
    from optfair.errors import DataError

    if isinstance(answer, Undecided):
        raise DataError(
            "there is no chord to draw", "the formula is undecided", "leave out --picture"
        )
    write_picture(picture, answer.plot)


def _record(formula: str, where: str, answer: Answer) -> dict[str, Any]:
    from optfair.convexity.proof import CurvatureProof, CurvatureWitness

    record: dict[str, Any] = {
        "formula": formula,
        "where": where,
        "curvature": answer.curvature,
        "verified": bool(answer.verify()),
    }
    if isinstance(answer, CurvatureProof):
        record["rests_on"] = list(answer.rests_on)
        record["tree"] = [
            {"depth": d, "function": f, "known": k, "rule": r} for d, f, k, r in answer.tree()
        ]
    elif isinstance(answer, CurvatureWitness):
        record["chords"] = [
            {**p, "first": _plain(p["first"]), "second": _plain(p["second"])}
            for p in answer.points()
        ]
        record["hints"] = list(answer.hints)
    else:
        record["stuck"], record["hints"] = list(answer.stuck), list(answer.hints)
    return record


def _plain(values: Any) -> dict[str, Any]:
    return {name: v.tolist() for name, v in values.items()}


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
def demo(out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("demo")) -> None:
    """Tour with two pictures, on data shipped with the package."""
    from optfair.cli.learning import demo as make

    with reporting(False):
        make(out)


def main() -> None:
    """Run the command line; what cannot be printed, as on a full disk, ends it with 1."""
    try:
        app(prog_name="optfair")
    except OSError as e:
        typer.echo(f"the output cannot be written\n  why: {e.strerror or e}", err=True)
        with open(os.devnull, "w") as nowhere:  # what is left in the buffer goes nowhere
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        sys.exit(FAILED)


def _matching(pattern: str) -> list[Instance]:
    """Return the instances whose name or tags match."""
    from optfair.library import load, names

    instances = [load(name) for name in names()]
    glob = pattern if any(c in pattern for c in "*?[") else f"*{pattern}*"
    matching = [i for i in instances if any(fnmatch(word, glob) for word in (i.name, *i.tags))]
    if not matching:
        words = {word for i in instances for word in (i.name.rpartition("/")[2], *i.tags)}
        words |= {f"{i.name.partition('/')[0]}/*" for i in instances}
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
