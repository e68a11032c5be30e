"""Is it convex? What the prover says of formulas on ranges."""

from __future__ import annotations

from typing import Any

import optfair as of
from optfair.convexity.writing import FUNCTIONS, parse, parse_bounds
from optfair.library.exercise import SHAPES

RANGES = ("1<=x<=3, 1<=y<=3", "0.1<=x<=1, 1<=y<=3", "2<=x<=9, 0.5<=y<=1", "5<=x<=6, 5<=y<=6")
NUMBERS = ((1, 2, 1), (3, 1, 4))


def data(formulas: int | None = None) -> dict[str, Any]:
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
