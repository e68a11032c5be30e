"""Pages to explore: what they hold is proved, and moving their sliders shows it, in a browser without network."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import optfair

DOCS = Path(optfair.__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def pages() -> Any:
    """Return the module that writes the pages."""
    sys.path.insert(0, str(DOCS / "_ext"))
    try:
        return importlib.import_module("explorable_pages")
    finally:
        sys.path.pop(0)


@pytest.mark.parametrize("path", sorted((DOCS / "explore").glob("*.html")), ids=lambda p: p.stem)
def test_a_page_asks_for_nothing(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert all(place in text for place in ("/*DATA*/null", "/*STYLE*/", "/*COMMON*/"))
    assert not re.search(r"https?:|src=|href=|import |fetch\(|url\(", text)
    assert '<meta name="viewport"' in text and '<html lang="en">' in text
    assert path.with_suffix(".py").is_file()


def test_there_are_six(pages: Any) -> None:
    assert len(pages.PAGES) == 6


@pytest.fixture(scope="module")
def made(pages: Any) -> Any:
    """Return the data of a page, computed once."""
    return cache(lambda name: pages.source(name).data())


@pytest.fixture
def page(pages: Any, made: Any, tab: Any, tmp_path: Path) -> Iterator[Any]:
    """Return a function that opens a page at a width; at the end nothing was amiss."""

    def opened(name: str, width: int) -> Any:
        path = tmp_path / f"{name}.html"
        path.write_text(pages.written(name, made(name)), encoding="utf-8")
        tab.open(path, width)
        return made(name)

    yield opened
    assert tab.complaints() == [] and tab.overflow() <= 0


def browsed(*widths: int) -> Any:
    """Mark a test that opens a page at these widths."""

    def marked(test: Any) -> Any:
        wide = pytest.mark.parametrize("width", widths)(test)
        return pytest.mark.slow(pytest.mark.browser(wide))

    return marked


@browsed(1280, 800, 400)
def test_multipliers_by_hand_reach_a_contradiction(page: Any, tab: Any, width: int) -> None:
    page("farkas", width)
    assert "nothing is said" in tab.said("verdict")
    tab.drag("y0", 0.0, 0.25)
    assert tab.said("sum") == "x + 2 y ≤ 4" and "x and y" in tab.said("verdict")
    tab.drag("y1", 0.0, 0.25)
    tab.drag("y2", 0.0, 0.5)
    assert tab.said("sum") == "0 ≤ −1" and tab.said("verdict").startswith("Impossible")


@browsed(1280, 800, 400)
def test_dragging_the_right_hand_side_bounds_the_optimum(page: Any, tab: Any, width: int) -> None:
    data = page("duality", width)
    assert (tab.said("low"), tab.said("high")) == ("0.00", "unknown")
    for index in (10, 30):
        tab.set("b", index)
        tab.run("document.getElementById('solve').click()")
    tab.drag("b", 0.75, 0.5)
    assert tab.run("document.querySelectorAll('.tangent').length") == 2
    true = data["points"][20]["optimum"]
    assert tab.said("at") == f"{data['points'][20]['b']:.1f}"
    assert 0 < float(tab.said("low")) <= true + 0.005 and true - 0.005 <= float(tab.said("high"))
    for p in data["points"]:  # every tangent stays below every optimum
        assert all(
            p["bound"] + p["price"] * (q["b"] - p["b"]) <= q["optimum"] + 1e-6 * q["optimum"]
            for q in data["points"]
        )


@browsed(1280, 800, 400)
def test_choosing_formulas_and_ranges_shows_proofs(
    page: Any, pages: Any, tab: Any, width: int
) -> None:
    items = page("is_it_convex", width)["items"]
    answers = [a for item in items for a in item["answers"]]
    assert len(answers) >= 150
    assert not [a for a in answers if a["curvature"] == "convex" and not a["tree"]]
    first = items[0]["answers"][0]
    assert tab.said("verdict") == first["headline"]
    assert tab.run("document.querySelectorAll('#tree tr').length") == len(first["tree"]) > 0
    which, where = next(
        (k, j)
        for k, item in enumerate(items)
        for j, a in enumerate(item["answers"])
        if a["curvature"] == "neither"
    )
    tab.set("formula", which)
    tab.set("range", where)
    assert tab.said("verdict").startswith("neither")
    assert tab.said("where") == pages.source("is_it_convex").RANGES[where]
    typed = {
        "x + sin(y)": "Type this: optfair explain 'x + sin(y)' --where 'x>=0'",
        "x; alert(1)": "outside the grammar",
        "foo(x)": "no function “foo”",
        "(x": "bracket",
    }
    for text, answer in typed.items():
        tab.set("own", text)
        assert answer in tab.said("line")


@browsed(1280, 800, 400)
def test_the_ladder_ends_where_bound_and_point_meet(page: Any, tab: Any, width: int) -> None:
    data = page("ladder", width)
    middle = data["whole"][4]
    first = max(leaf["bound"] for leaf in middle["rungs"][0])
    assert float(tab.said("bound")) == pytest.approx(first, abs=1e-3)
    assert float(tab.said("whole")) == middle["optimum"] and "climb on" in tab.said("ladder")
    tab.drag("rung", 0.0, 1.0)
    assert "They meet" in tab.said("ladder") and tab.said("bound") == tab.said("whole")
    assert tab.run("document.querySelectorAll('.leaf').length") == len(middle["rungs"][-1])
    tab.drag("worth", 0.5, 1.0)
    assert tab.said("worths") == "9 and 1" and tab.said("rungs").startswith("0")
    for w in data["whole"]:  # going up, no bound rises, and none is below the optimum
        bounds = [max(leaf["bound"] for leaf in leaves) for leaves in w["rungs"]]
        assert bounds == sorted(bounds, reverse=True) and bounds[-1] >= w["optimum"] - 1e-9


@browsed(1280, 800, 400)
def test_the_best_multiplier_is_exact_for_one_ball_and_not_for_a_cut(
    page: Any, tab: Any, width: int
) -> None:
    data = page("ladder", width)
    for which, q in enumerate(data["quadratics"]):
        tab.set("which", which)
        assert tab.said("low") == "−∞" and "curves down" in tab.said("verdict")
        tab.drag("multiplier", 0.0, 1.0)
        assert "less λ" in tab.said("verdict")
        tab.drag("multiplier", 1.0, 0.5)
        told = tab.said("verdict")
        assert told.startswith("Exact") if q["exact"] else "a gap of 1.045 stays" in told
        # the dual function, written anew here, is a bound everywhere and attained there
        d, g = np.array(q["d"]), np.array(q["g"])
        for t in (1.0, 1.2, 2.0):
            curve = np.where(np.abs(g) > 1e-9, d + 2 * t * q["multiplier"], 1.0)
            bound = -t * q["multiplier"] * q["size"] - 0.5 * float((g**2 / curve).sum())
            assert bound <= q["best"] + 1e-7
            assert tab.run(f"bound(DATA.quadratics[{which}], {t * q['multiplier']!r})") == (
                pytest.approx(bound, abs=1e-9)
            )


@browsed(1280, 800, 400)
def test_dragging_epsilon_recolours_rows_and_moves_the_tangent(
    page: Any, tab: Any, width: int
) -> None:
    steps = page("price", width)["steps"]
    assert tab.said("changed") == "0" and "does not bind" in tab.said("said")
    tab.drag("at_eps", 1.0, 0.0)
    s, plain = steps[0], steps[-1]
    moved = sum(a != b for a, b in zip(s["labels"], plain["labels"], strict=True))
    assert tab.said("changed") == str(moved) != "0" and "Perfect" in tab.said("said")
    assert tab.said("cost") == f"{s['cost']:.4f}" and tab.said("balance") == f"{s['balance']:.3f}"
    assert tab.run("document.querySelectorAll('#rows circle[r=\"5\"]').length") == moved
    people = tab.run("[...document.querySelectorAll('.people')].map(e => +e.textContent)")
    assert people == [sum(c) for c in s["counts"]]
    for p in steps:  # the rule holds, and every tangent stays below every cost
        assert p["gap"] <= p["eps"] + 1e-9
        assert all(
            p["cost"] + p["price"] * (q["eps"] - p["eps"]) <= q["cost"] + 1e-6 for q in steps
        )


@browsed(1280, 800, 400)
def test_asking_for_more_digits_leaves_fewer_solvers(page: Any, tab: Any, width: int) -> None:
    problems = page("optimal", width)["problems"]
    tab.set("problem", next(i for i, p in enumerate(problems) if "units" in p["name"]))
    said, counts = {a["status"] for p in problems for a in p["answers"]}, []
    assert "optimal" in said
    for start, end in ((6, 1), (1, 8), (8, 14)):
        tab.drag("tolerance", (start - 1) / 13, (end - 1) / 13)
        assert tab.said("near") == f"1e−{end}"
        says, near = (
            int(n) for n in re.findall(r"(\d+) (?:of \d+ solvers|of them)", tab.said("told"))
        )
        counts.append(near)
        assert near <= says
    assert counts == sorted(counts, reverse=True) and counts[-1] < counts[0]
    wrong = [a for a in problems[-1]["answers"] if a["status"] == "optimal" and a["error"] > 1e-3]
    assert wrong, "somebody calls a wrong answer optimal; if nobody does, choose another example"
