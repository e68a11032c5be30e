"""Pages to explore: what they hold is proved, and moving their sliders shows it, in a browser without network."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

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


@pytest.mark.parametrize("name", ["is_it_convex", "duality", "farkas"])
def test_a_page_asks_for_nothing(name: str) -> None:
    text = (DOCS / "explore" / f"{name}.html").read_text(encoding="utf-8")
    assert "/*DATA*/null" in text and "/*STYLE*/" in text
    assert not re.search(r"https?:|src=|href=|import |fetch\(|url\(", text)
    assert '<meta name="viewport"' in text and '<html lang="en">' in text


PROBE = """<script>
window.errors = [];
window.onerror = (text) => { window.errors.push(text); };
const set = (id, value) => { const e = document.getElementById(id); e.value = value; e.dispatchEvent(new Event("input")); };
const said = (id) => document.getElementById(id).textContent;
const told = [];
%s
const wide = document.documentElement.scrollWidth > window.innerWidth;
document.body.dataset.told = JSON.stringify({told, wide, errors: window.errors});
</script></body>"""


def explored(browser: str, folder: Path, text: str, actions: str, width: int = 800) -> Any:
    """Return what a page says after some actions."""
    import html
    import json

    page = folder / "page.html"
    page.write_text(text.replace("</body>", PROBE % actions), encoding="utf-8")
    done = subprocess.run(
        [
            *(browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
            *(f"--user-data-dir={folder / 'profile'}", f"--window-size={width},900"),
            *("--host-resolver-rules=MAP * ~NOTFOUND", "--dump-dom", page.as_uri()),
        ],
        capture_output=True,
        timeout=120,
    )
    found = re.search(r'data-told="([^"]*)"', done.stdout.decode())
    assert found, done.stderr.decode()[-500:]
    said = json.loads(html.unescape(found[1]))
    assert said["errors"] == [] and not said["wide"]
    return said["told"]


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 800, 400])
def test_multipliers_by_hand_reach_a_contradiction(
    pages: Any, browser: str, tmp_path: Path, width: int
) -> None:
    text = pages.written("farkas", pages.farkas_data())
    actions = """told.push(said("verdict"));
    set("y0", 1); told.push(said("sum"), said("verdict"));
    set("y1", 1); set("y2", 2); told.push(said("sum"), said("verdict"));"""
    first, sum_1, left, sum_2, done = explored(browser, tmp_path, text, actions, width)
    assert "nothing is said" in first and sum_1 == "x + 2 y ≤ 4" and "x and y" in left
    assert sum_2 == "0 ≤ −1" and done.startswith("Impossible")


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 400])
def test_dragging_the_right_hand_side_bounds_the_optimum(
    pages: Any, browser: str, tmp_path: Path, width: int
) -> None:
    data = pages.duality_data(21)
    text = pages.written("duality", data)
    actions = """told.push(said("low"), said("high"));
    set("b", 5); document.getElementById("solve").click();
    set("b", 15); document.getElementById("solve").click();
    set("b", 10); told.push(said("low"), said("high"), document.querySelectorAll(".tangent").length);"""
    nothing, unknown, low, high, tangents = explored(browser, tmp_path, text, actions, width)
    assert (nothing, unknown, tangents) == ("0.00", "unknown", 2)
    true = data["points"][10]["optimum"]
    assert float(low) <= true <= float(high) and float(low) > 0
    for p in data["points"]:  # every tangent stays below every optimum
        assert all(
            p["bound"] + p["price"] * (q["b"] - p["b"]) <= q["optimum"] + 1e-6 * q["optimum"]
            for q in data["points"]
        )


@pytest.mark.slow
@pytest.mark.browser
def test_choosing_formulas_and_ranges_shows_proofs(
    pages: Any, browser: str, tmp_path: Path
) -> None:
    data = pages.curvature_data()
    assert sum(len(item["answers"]) for item in data["items"]) >= 150
    assert not [
        a
        for i in data["items"]
        for a in i["answers"]
        if a["curvature"] == "convex" and not a["tree"]
    ]
    which = next(
        (k, j)
        for k, item in enumerate(data["items"])
        for j, a in enumerate(item["answers"])
        if a["curvature"] == "neither"
    )
    actions = f"""told.push(said("verdict"), document.querySelectorAll("#tree tr").length);
    set("formula", {which[0]}); set("range", {which[1]}); told.push(said("verdict"), said("where"));
    for (const text of ["x + sin(y)", "x; alert(1)", "foo(x)", "(x"]) {{ set("own", text); told.push(said("line")); }}"""
    verdict, rows, neither, where, typed, strange, unknown, bracket = explored(
        browser, tmp_path, pages.written("is_it_convex", data), actions
    )
    first = data["items"][0]["answers"][0]
    assert verdict == first["headline"] and rows == len(first["tree"]) > 0
    assert neither.startswith("neither") and where == pages.RANGES[which[1]]
    assert typed == "Type this: optfair explain 'x + sin(y)' --where 'x>=0'"
    assert "outside the grammar" in strange and "no function “foo”" in unknown
    assert "bracket" in bracket
