"""The commands that answer with a proof: ``optfair explain``, ``prove``, ``verify`` and ``diagnose``."""

from __future__ import annotations

import contextlib
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optfair.cli.console import (
    FAILED,
    Force,
    Json,
    Name,
    Problems,
    Solvers,
    answer,
    check_output,
    document,
    is_model,
    lines,
    named,
    reporting,
    write_picture,
)

if TYPE_CHECKING:
    from optfair.convexity.prove import Answer

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
        Path | None, typer.Option(help="Draw the chords that refute it into this file.")
    ] = None,
    force: Force = False,
    as_json: Json = False,
    problems: Problems = None,
) -> None:
    """Say why a formula is convex or not, or a model has its class."""
    with reporting(as_json):
        check_output("--picture", picture, force)
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
    from optfair.convexity.grammar import parse, parse_bounds
    from optfair.convexity.prove import prove as proved

    variables = _vectors(shape)
    expression = parse(formula, variables)
    answer: Answer = proved(expression, parse_bounds(where, variables), curvature=curvature)
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

    check_output("--out", out, force)
    subject = named(name)
    s = subject.problem.solve()
    if s.problem.integers and not s.grade.sound:  # a solver's branching: grown again, with bounds
        with contextlib.suppress(SolverFailure, UnsupportedProblem):
            s = s.certificate.prove().solution
    verdict = s.certificate.verify()
    proved = bool(verdict) and s.grade.sound
    if out is not None:
        s.certificate.save(out)
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
    from optfair.convexity.proof import CurvatureWitness
    from optfair.errors import DataError

    if not isinstance(answer, CurvatureWitness):
        raise DataError(
            "there is no chord to draw",
            f"the formula is {answer.curvature}",
            "leave out --picture",
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
