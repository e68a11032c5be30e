"""The cookbook: every line makes the class it says, is solved with a proof, and has a price."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of

PAGE = Path(of.__file__).parents[1] / "docs" / "cookbook.md"
TEXT = PAGE.read_text(encoding="utf-8")
ROWS = [
    (heading, *cells)
    for heading, table in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    for cells in re.findall(r"^\| ([^|]+) \| `([^`]+)` \| ([^|]+?) \|", table, re.MULTILINE)
]


def names() -> dict[str, Any]:
    """Run the first block of the page."""
    example = doctest.DocTestParser().get_examples(TEXT.partition("Put together")[0])
    known: dict[str, Any] = {}
    for part in example:
        exec(part.source, known)
    return known


def test_there_are_forty_lines() -> None:
    assert len(ROWS) >= 40
    assert len({row[1] for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1])
def test_the_line_runs(row: tuple[str, ...]) -> None:
    heading, _, code, problem_class = row
    known = names()
    x, written = known["x"], eval(f"({code})", known)
    if heading.startswith("Costs"):
        p = of.from_cvxpy(cp.Problem(cp.Minimize(written), [x >= 0.01, x <= 3]))
    else:
        box = [x >= (0.0 if "Either" in heading else 0.01), x <= 3]
        limits = list(written) if isinstance(written, tuple) else [written]
        labels = [*(f"limit {i}" for i in range(len(limits))), "low", "high"]
        p = of.from_cvxpy(cp.Problem(cp.Maximize(known["b"] @ x), [*limits, *box]), labels)
    assert str(p.problem_class) == problem_class
    s = p.solve()
    if heading.startswith("Either"):
        assert s.grade.word == "reported"
    else:
        assert s.grade.sound
    if heading == "Constraints":
        assert np.isfinite(s.shadow_price["limit 0"]).all()
