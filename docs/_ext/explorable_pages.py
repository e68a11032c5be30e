"""Pages to explore, static and offline: what they show is computed and proved when they are written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cvxpy as cp
import numpy as np

import optfair as of
from optfair.convexity.grammar import FUNCTIONS, parse, parse_bounds
from optfair.library.quiz import SHAPES

if TYPE_CHECKING:
    from sphinx.application import Sphinx

FOLDER = Path(__file__).parents[1] / "explore"
RANGES = ("1<=x<=3, 1<=y<=3", "0.1<=x<=1, 1<=y<=3", "2<=x<=9, 0.5<=y<=1", "5<=x<=6, 5<=y<=6")
NUMBERS = ((1, 2, 1), (3, 1, 4))


def curvature_data(formulas: int | None = None) -> dict[str, Any]:
    """Answers of the prover for formulas on ranges."""
    drawn = [s.format(a=a, b=b, c=c) for a, b, c in NUMBERS for s in SHAPES]
    items = [
        {"formula": formula, "answers": [_answer(formula, where) for where in RANGES]}
        for formula in dict.fromkeys(drawn[:formulas])
    ]
    return {"items": items, "functions": sorted(FUNCTIONS)}


def _answer(formula: str, where: str) -> dict[str, Any]:
    variables: dict[str, Any] = {}
    expression = parse(formula, variables)
    found = of.prove(expression, parse_bounds(where, variables), seconds=0.5)
    verdict = found.verify()
    if found.curvature != "undecided" and not verdict:
        raise RuntimeError(f"{formula} on {where}: {verdict}")
    head, *more = found.explain().splitlines()
    if not found:
        return _shown(where, found.curvature, head, [], more)
    return _shown(where, found.curvature, head, [list(row) for row in found.tree()], [])


def _shown(where: str, curvature: str, headline: str, tree: list[Any], more: list[str]) -> Any:
    return {
        "where": where,
        "curvature": curvature,
        "headline": headline,
        "tree": tree,
        "more": more,
    }


def duality_data(points: int = 41) -> dict[str, Any]:
    """Least variance by wanted return, with prices; the bound of each is proved."""
    data = dict(of.library.load("textbook/minimum_variance").data)
    solved = []
    for wanted in np.linspace(4.5, 12.5, points):
        s = of.textbook.MinimumVariance(**{**data, "wanted": float(wanted)}).solve(tolerance=1e-8)
        if not s.grade.sound:
            raise RuntimeError(f"the bound at {wanted} is {s.grade}")
        price = float(s.shadow_price["wanted return"])
        solved.append(
            {"b": float(wanted), "optimum": s.objective, "bound": s.bound, "price": price}
        )
    return {"points": solved}


def farkas_data() -> dict[str, Any]:
    """Three inequalities in two unknowns that exclude each other, which is proved."""
    rows = [((1.0, 2.0), 4.0), ((-1.0, 0.0), -3.0), ((0.0, -1.0), -1.0)]
    x = cp.Variable(2, name="x")
    limits = [np.array(a) @ x <= b for a, b in rows]
    found = of.from_cvxpy(cp.Problem(cp.Minimize(0), limits)).diagnose()
    if found.conflict != ("c0", "c1", "c2") or not found.verify():
        raise RuntimeError("the three inequalities have to exclude each other")
    lines = ((-1, 2.5, 7, -1.5), (3, -1, 3, 6), (-1, 1, 7, 1))
    return {
        "names": ["x", "y"],
        "rows": [{"a": a, "b": b, "line": line} for (a, b), line in zip(rows, lines, strict=True)],
    }


PAGES = {"is_it_convex": curvature_data, "duality": duality_data, "farkas": farkas_data}


def written(name: str, data: dict[str, Any]) -> str:
    """Return a page with its data and style inside; nothing is fetched."""
    text = (FOLDER / f"{name}.html").read_text(encoding="utf-8")
    style = (FOLDER / "style.css").read_text(encoding="utf-8")
    inside = json.dumps(data, allow_nan=False).replace("</", "<\\/")
    return text.replace("/*STYLE*/", style).replace("/*DATA*/null", inside)


def write_pages(app: Sphinx, exception: Exception | None) -> None:
    """Write all pages into the site."""
    if exception is not None or app.builder.format != "html":
        return
    folder = Path(app.outdir) / "explore"
    folder.mkdir(exist_ok=True)
    for name, data in PAGES.items():
        (folder / f"{name}.html").write_text(written(name, data()), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the writer."""
    app.connect("build-finished", write_pages)
    return {"parallel_read_safe": True}
