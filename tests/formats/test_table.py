"""One table of formats: reading, writing, the command line and the documentation agree with it."""

from __future__ import annotations

import importlib
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest
from typer.testing import CliRunner

import optfair as of
from optfair.formats.text import FORMATS, format_of, readable, writable

PAGE = Path(__file__).parents[2] / "docs" / "file_formats.md"


def problem():
    x = cp.Variable(2, name="x")
    y = cp.Variable(name="count")
    goal = 2 * x[0] + x[1] + y + 0.25
    return of.from_cvxpy(
        cp.Problem(cp.Minimize(goal), [x[0] + y >= 1.5, x >= -1, y >= -2, y <= 9]),
        ["cover", "low", "least", "most"],
    )


def test_the_page_holds_the_table():
    lines = ["| Ending | Writes | Reads | Carries |", "| --- | --- | --- | --- |"]
    for f in FORMATS:
        writes = f"through {f.needs}" if f.needs else "yes" if f.writes else "no"
        endings = ", ".join(f"`{e}`" for e in f.endings)
        lines.append(f"| {endings} | {writes} | {'yes' if f.reads else 'no'} | {f.carries} |")
    assert "\n".join(lines) in PAGE.read_text(encoding="utf-8")


def test_the_command_line_says_the_same():
    app = importlib.import_module("optfair.cli.app").app
    text = " ".join(CliRunner().invoke(app, ["export", "--help"]).output.split())
    for ending in writable():
        assert ending in text
    text = " ".join(CliRunner().invoke(app, ["solve", "--help"]).output.split())
    for ending in readable():
        assert ending in text


def test_docstrings_name_every_ending():
    assert all(f"``{e}``" in of.export.__doc__ for e in writable())
    assert all(f"``{e}``" in of.read.__doc__ for e in readable())


@pytest.mark.parametrize("f", FORMATS, ids=lambda f: f.endings[0])
def test_every_format_does_what_the_table_says(f, tmp_path):
    p = problem()
    expected = p.solve().objective
    for ending in f.endings:
        for packed in ("", ".gz", ".bz2"):
            file = tmp_path / f"p{ending}{packed}"
            if packed and not f.compressed:
                with pytest.raises(of.DataError, match="format"):
                    p.export(file)
                continue
            if not f.writes:
                with pytest.raises(of.DataError, match="can be read only"):
                    p.export(file)
                continue
            p.export(file)
            assert file.stat().st_size > 0
            if not f.reads:
                with pytest.raises(of.DataError, match="can be written only"):
                    of.read(file)
            else:
                assert of.read(file).solve().objective == pytest.approx(expected, abs=1e-6)
            file.unlink()
    assert not list(tmp_path.iterdir())


def test_unknown_endings_name_the_known_ones(tmp_path):
    for verb, endings in (("read", readable()), ("write", writable())):
        with pytest.raises(of.DataError) as e:
            format_of(tmp_path / "p.xyz", verb)
        assert all(ending in e.value.remedy for ending in (*endings, ".gz", ".bz2"))


def test_nl_files_are_read_by_pyomo_solvers(tmp_path):
    p = of.read(problem_file(tmp_path))
    p.export(tmp_path / "q.nl")
    head = (tmp_path / "q.nl").read_text().splitlines()
    assert head[0].startswith("g3")
    columns, rows = map(int, head[1].split()[:2])
    assert (columns, rows) == (3, sum(int(np.prod(t.shape)) for t in p.constraints.values()))
    scip = importlib.import_module("pyscipopt")
    model = scip.Model()
    model.hideOutput()
    model.readProblem(str(tmp_path / "q.nl"))
    model.optimize()
    assert model.getObjVal() == pytest.approx(p.solve().objective)


def problem_file(tmp_path):
    problem().export(tmp_path / "p.mps")
    return tmp_path / "p.mps"
