"""The command ``optfair explain``: is a formula convex, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from optfair.cli.console import FAILED, Json, check_output, document, lines, reporting
from optfair.storage import write_whole

if TYPE_CHECKING:
    from optfair.convexity.prove import Answer

__all__ = ["explain"]


def explain(
    formula: Annotated[str, typer.Argument(help="Such as 'sqrt(1 + x**2) + x*y'.")],
    where: Annotated[
        str, typer.Option(help="Bounds and constraints, separated by commas: 'y>=1, x<=4'.")
    ] = "",
    shape: Annotated[
        str, typer.Option(help="Vectors and their lengths: 'v=4, w=3'; other names are scalars.")
    ] = "",
    picture: Annotated[
        Path | None, typer.Option(help="Draw the chords that refute it into this file.")
    ] = None,
    force: Annotated[bool, typer.Option(help="Write over an existing file.")] = False,
    as_json: Json = False,
) -> None:
    """Say whether a formula is convex or concave: the proof as a tree, or chords that refute it."""
    from optfair.convexity.grammar import parse, parse_bounds
    from optfair.convexity.prove import prove

    with reporting(as_json):
        if picture is not None:
            check_output("--picture", picture, force)
        variables = _vectors(shape)
        expression = parse(formula, variables)
        bounds = parse_bounds(where, variables)
        found = prove(expression, bounds)
        if picture is not None:
            _draw(found, picture)
        if as_json:
            document(_record(formula, where, found))
        else:
            lines(*found.explain().splitlines())
            verdict = found.verify()
            if found.curvature != "undecided":
                lines(str(verdict))
        if found.curvature == "undecided":
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


def _draw(found: Answer, picture: Path) -> None:
    from optfair.convexity.proof import CurvatureWitness
    from optfair.errors import DataError

    if not isinstance(found, CurvatureWitness):
        raise DataError(
            "there is no chord to draw",
            f"the formula is {found.curvature}",
            "leave out --picture",
        )
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots()
    found.plot(axes)
    write_whole(picture, figure.savefig)
    plt.close(figure)


def _record(formula: str, where: str, found: Answer) -> dict[str, Any]:
    from optfair.convexity.proof import CurvatureProof, CurvatureWitness

    record: dict[str, Any] = {
        "formula": formula,
        "where": where,
        "curvature": found.curvature,
        "verified": bool(found.verify()),
    }
    if isinstance(found, CurvatureProof):
        record["rests_on"] = list(found.rests_on)
        record["tree"] = [
            {"depth": d, "function": f, "known": k, "rule": r} for d, f, k, r in found.tree()
        ]
    elif isinstance(found, CurvatureWitness):
        record["chords"] = [
            {**p, "first": _plain(p["first"]), "second": _plain(p["second"])}
            for p in found.points()
        ]
        record["hints"] = list(found.hints)
    else:
        record["stuck"], record["hints"] = list(found.stuck), list(found.hints)
    return record


def _plain(values: Any) -> dict[str, Any]:
    return {name: v.tolist() for name, v in values.items()}
