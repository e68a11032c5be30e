"""What pages name is there: instances, exercises, commands, files, tests, and every public name."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer.main

import optfair as of
from optfair.cli.app import app
from optfair.library.exercise import exercise_names

DOCS = Path(of.__file__).parents[1] / "docs"


def extension(name: str) -> Any:
    """Return a module of the site's own."""
    sys.path.insert(0, str(DOCS / "_ext"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


def test_twelve_lectures_name_what_there_is() -> None:
    text = (DOCS / "lectures.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+)\. .*$", text, re.MULTILINE)
    assert rows == [str(n) for n in range(1, 13)]
    table = [line.split("|") for line in text.splitlines() if re.match(r"\| \d+\.", line)]
    instances = {n for cells in table for n in re.findall(r"`(\w+/\w+)`", cells[4])}
    exercises = {n for cells in table for n in re.findall(r"`(\w+)`", cells[5])}
    assert instances <= set(of.library.names())
    assert exercises == set(exercise_names())
    moved = {n for cells in table for n in re.findall(r"explore/(\w+)\.html", cells[3])}
    assert moved == {p.stem for p in (DOCS / "explore").glob("*.html")}


def test_every_erratum_has_a_check_that_exists() -> None:
    text = (DOCS / "errata.md").read_text(encoding="utf-8")
    rows = [
        line.split(" | ")[-1].strip(" |") for line in text.splitlines() if line.startswith("| ")
    ]
    rows = rows[1:]  # the head
    assert len(rows) >= 20
    for where in rows:
        if letter := re.fullmatch(r"\((\w)\)", where):
            assert f"**({letter[1]})**" in text
        elif link := re.fullmatch(r"\[numbers\]\((\w+\.md)#([\w-]+)\)", where):
            page = (DOCS / link[1]).read_text(encoding="utf-8")
            sections = re.split(r"^## ", page, flags=re.MULTILINE)
            (section,) = (
                s for s in sections if s.partition("\n")[0].lower().replace(" ", "-") == link[2]
            )
            assert ">>>" in section
        else:
            file, _, test = where.strip("`").partition("::")
            assert f"def {test}(" in (DOCS.parent / file).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "page", sorted([*DOCS.glob("*.md"), DOCS.parent / "README.md"]), ids=lambda p: p.stem
)
def test_commands_on_pages_have_these_words_and_options(page: Path) -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for line in re.findall(
        r"^(?:\$ )?optfair (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE
    ):
        word, *rest = line.partition("  #")[0].split()
        assert word in commands, line
        known = {name for p in commands[word].params for name in (*p.opts, *p.secondary_opts)}
        given = {w.partition("=")[0] for w in rest if re.match(r"--?[a-z]", w)}
        assert given <= known | {"-h", "--help"}, line


def test_links_between_pages_lead_somewhere() -> None:
    for page in DOCS.glob("*.md"):
        for target in re.findall(
            r"\]\(([\w/.]+\.(?:md|html|rst|png))", page.read_text(encoding="utf-8")
        ):
            made = target.startswith(("gallery/", "textbook/"))  # when the site is built
            assert made or (page.parent / target).is_file(), (page.name, target)


def test_the_reference_lists_every_public_name() -> None:
    names = extension("public_names")
    names.check(SimpleNamespace(srcdir=str(DOCS)))
    assert "solve" in names.members_of()["optfair.FairAssignment"]["inherited"]


def public_collections() -> tuple[Any, Any]:
    """Return the benchmark of public collections, and its record."""
    file = DOCS.parent / "benchmarks" / "public_collections.json"
    spec = importlib.util.spec_from_file_location(file.stem, file.with_suffix(".py"))
    assert spec is not None and spec.loader is not None
    made_by = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made_by)
    return made_by, json.loads(file.read_text(encoding="utf-8"))


def test_the_record_of_collections_is_one_that_the_command_writes() -> None:
    """Outcomes with their environment, no data; the tables account for every run."""
    made_by, record = public_collections()
    runs = record["runs"]
    assert all(e["commit"] and e["processor"] and e["time_limit"] for e in record["environments"])
    assert all(set(r) <= {*made_by.KEPT, "cpu", "environment"} for r in runs)
    head, lines = made_by.summary(runs)
    count = [dict(zip(head, cells, strict=True)) for cells in lines]
    assert sum(int(c["runs"]) for c in count) == len(runs) > 100
    others = sum(int(c["reported"]) + int(c["other"]) for c in count)
    wrong = sum(r["outcome"] == "verified" and r.get("agrees") is False for r in runs)
    assert len(made_by.reasons(runs)[1]) == others + wrong
    again = made_by.published([r | {"environment": {"commit": "c"}} for r in runs])
    assert [r["name"] for r in again["runs"]] == [r["name"] for r in runs]
    # what is published joins what stands there; a run made again takes the earlier one's place
    assert made_by.published(made_by.unpacked(record))["runs"] == runs
    last = runs[0] | {"outcome": "reported", "environment": {"commit": "later"}}
    joined = made_by.published([*made_by.unpacked(record), last])
    assert len(joined["runs"]) == len(runs) and joined["runs"][0]["outcome"] == "reported"
    assert joined["environments"][joined["runs"][0]["environment"]] == {"commit": "later"}
    # and says what it was before
    assert joined["runs"][0]["before"].split(", ")[-1] == runs[0]["outcome"]
    told = [line[0] for line in made_by.repeated(joined["runs"])[1]]
    assert (
        told == [r["name"] for r in joined["runs"] if r.get("before")] and runs[0]["name"] in told
    )


def test_the_profiles_are_those_of_the_record() -> None:
    """Every solver of a picture ran on all its problems; what is not proved is not answered."""
    made_by, record = public_collections()
    found = made_by.compared(made_by.unpacked(record))
    assert {tolerance for _, tolerance in found} >= {1e-4, 1e-8}
    runs = {(r["name"], r["solver"], r["tolerance"]): r for r in record["runs"]}
    for (group, tolerance), c in found.items():
        assert len(c.problems) >= made_by.FEWEST and len(c.solvers) > 1
        assert len(c.runs) == len(c.problems) * len(c.solvers)
        for run in c.runs:
            row = runs[run.problem, run.solver, tolerance]
            assert run.problem.startswith(f"{group}/")
            assert run.answered == (row["outcome"] in made_by.GOOD)
    (group, tolerance), c = next(iter(found.items()))
    svg = made_by.pictured(c, "one", to_best=False)
    assert svg.startswith("<svg") and all(s in svg for s in c.solvers)
    few = [r for r in made_by.unpacked(record) if r["name"] in c.problems[:3]]
    assert not made_by.compared(few)


def test_the_page_on_optima_knows_its_problems() -> None:
    spec = importlib.util.spec_from_file_location("optimal", DOCS / "explore" / "optimal.py")
    assert spec is not None and spec.loader is not None
    page = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(page)
    cases = list(page._cases())
    assert cases[-1][0] == "textbook/diet in mixed units" and len(cases) > 3
    assert all(isinstance(p, of.Problem) for _, p, _ in cases)
