"""optfair solve, read, explain, prove: what is printed, what is written, and what a shell needs."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import cvxpy as cp
import pytest
from typer.testing import CliRunner

import optfair as of
from optfair.cli import console
from optfair.cli.app import app


def run(*words: object) -> Any:
    return CliRunner().invoke(app, [str(w) for w in words])


@pytest.fixture
def diet(tmp_path: Path) -> Path:
    file = tmp_path / "diet.mps"
    of.library.load("diet").problem().export(file)
    return file


def test_the_answer_is_printed() -> None:
    text = run("solve", "diet").stdout
    assert "values (1 of 8 not 0)\n  servings[macaroni and cheese]  46.66666667\n" in text
    assert (
        "minimum nutrition[B2]       0.116" in text and "fewest servings[ham]        1.38" in text
    )
    assert "(proved)" in text
    every = run("solve", "diet", "--all").stdout
    assert "servings[beef]" in every and "most servings[turkey]" in every


def test_long_answers_are_cut_and_say_so() -> None:
    text = run("solve", "german_k3").stdout
    assert "more: --all prints them, --out writes them" in text
    assert len(text.splitlines()) < 70


def test_json_has_values_and_duals() -> None:
    found = json.loads(run("solve", "diet", "--json").stdout)
    s = of.library.load("diet").problem().solve()
    assert found["values"]["servings"] == pytest.approx(s["servings"], abs=1e-9)
    assert found["duals"]["minimum nutrition"] == pytest.approx(s.multipliers["minimum nutrition"])
    assert found["shadow_prices"]["most servings"] == [0.0] * 8
    assert found["grade"] == "proved"


def test_a_file_answers_by_its_own_labels(diet: Path) -> None:
    found = json.loads(run("solve", diet, "--json").stdout)
    assert found["values"]["servings[4]"] == pytest.approx(140 / 3)
    assert found["duals"]["minimum_nutrition[3]"] == pytest.approx(0.116)


def test_a_file_of_columns_has_the_names_of_the_exported_model(tmp_path: Path) -> None:
    assert run("solve", "diet", "--out", tmp_path / "s.sol").exit_code == 0
    columns = (tmp_path / "s.sol").read_text().splitlines()[2:]
    assert [line.split()[0] for line in columns] == [f"servings[{i}]" for i in range(8)]


def test_the_solution_is_written(diet: Path, tmp_path: Path) -> None:
    files = {ending: tmp_path / f"s{ending}" for ending in (".json", ".csv", ".sol")}
    for file in files.values():
        assert f"wrote {file}" in run("solve", diet, "--out", file).stdout
        assert "exists" in run("solve", diet, "--out", file).stderr
        assert run("solve", diet, "--out", file, "--force").exit_code == 0
    printed = json.loads(run("solve", diet, "--json").stdout)
    written = json.loads(files[".json"].read_text())
    assert written["values"] == printed["values"] and written["grade"] == "proved"
    rows = list(csv.DictReader(files[".csv"].read_text().splitlines()))
    values = {r["entry"]: float(r["number"]) for r in rows if r["kind"] == "value"}
    assert values == written["values"]
    prices = {r["entry"]: float(r["number"]) for r in rows if r["kind"] == "shadow price"}
    assert prices == written["shadow_prices"]
    head, objective, *columns = files[".sol"].read_text().splitlines()
    assert head.endswith("optimal, proved") and objective.startswith("=obj= 88.")
    assert {k: float(v) for k, v in map(str.split, columns)} == values


def test_a_file_that_cannot_be_written_is_refused_before_solving(tmp_path: Path) -> None:
    result = run("solve", "diet", "--out", tmp_path / "s.xlsx")
    assert result.exit_code == 2 and "end it in one of .json, .csv, .sol" in result.stderr
    result = run("solve", "diet", "--out", tmp_path / "nowhere" / "s.csv")
    assert result.exit_code == 2 and "folder that does not exist" in result.stderr


def test_what_is_written_is_checked_before_any_work(
    diet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*words: object) -> str:
        done = run(*words)
        assert done.exit_code == 2 and done.exception.__class__ is SystemExit
        return str(done.output)

    monkeypatch.setattr("optfair.sweeps.sweep", None)  # nothing is solved
    sweep = ("sweep", "diet", "minimum nutrition[0]", "0:4:1")
    assert "no ending that is written" in refused(*sweep, "--out", tmp_path / "s.xyz")
    saved = tmp_path / "k.csv"
    assert "is --save too" in refused(*sweep, "--out", saved, "--save", saved)
    assert "no ending" in refused("pareto", "diet", "--out", tmp_path / "p.xyz")
    assert "no ending" in refused("explain", "x*y", "--picture", tmp_path / "p.xyz")
    assert "the file to read" in refused("export", diet, diet, "--force")
    assert "cannot be made" in refused("demo", "--out", diet)
    assert {f.name for f in tmp_path.iterdir()} == {diet.name}


@pytest.mark.parametrize("kind", ["png", "jpg", "SVG", "pdf"])
def test_points_are_drawn_in_any_format_of_pictures(kind: str, tmp_path: Path) -> None:
    file = tmp_path / f"sweep.{kind}"
    assert run("sweep", "diet", "minimum nutrition[0]", "0:4:2", "--out", file).exit_code == 0
    assert file.stat().st_size > 1000


def test_read(diet: Path) -> None:
    text = run("read", diet).stdout
    assert f"{diet}: LP, minimize" in text and "servings\t8" in text
    found = json.loads(run("read", diet, "--json").stdout)
    assert found["variables"] == {"servings": [8]}
    assert found["constraints"]["minimum_nutrition"] == [4]
    assert run("read", diet.with_suffix(".lp")).exit_code == 2
    assert found["arrays"] == {"servings": [8]} and "array" not in text


def test_arrays_of_a_file_and_patterns_that_match_nothing_are_told(tmp_path: Path) -> None:
    ship = cp.Variable((2, 3), name="ship")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(ship)), [ship >= 1]))
    p.export(tmp_path / "p.mps")
    assert "array\tshape\nship\t2x3" in run("read", tmp_path / "p.mps").stdout
    nothing = run("list", "texbook/*")
    assert nothing.exit_code == 2 and "did you mean 'textbook/*'" in nothing.stderr


@pytest.mark.parametrize("command", ["explain", "prove"])
def test_a_mistyped_instance_is_no_formula(command: str) -> None:
    for name in ("diett", "textbook/diett"):
        refused = run(command, name)
        assert refused.exit_code == 2 and "did you mean" in refused.output
    for formula in ("x", "cost", "x/diet"):
        assert "instance" not in run(command, formula).output


def test_explain_takes_models(diet: Path) -> None:
    assert "minimum nutrition: affine in Nonpositive -> LP" in run("explain", "diet").stdout
    assert json.loads(run("explain", diet, "--json").stdout)["class"] == "LP"
    refused = run("explain", "diet", "--where", "x>=0")
    assert refused.exit_code == 2 and "for formulas" in refused.stderr


def test_prove_formulas() -> None:
    assert run("prove", "x*x + x*y + y*y").stdout == "convex: quadratic\nverified\n"
    assert run("prove", "log(x)", "--curvature", "convex").exit_code == 1
    found = json.loads(run("prove", "x**3", "--where", "x>=0", "--json").stdout)
    assert found["proved"] and found["curvature"] == "convex"
    assert run("prove", "x*y").exit_code == 1
    refused = run("prove", "x*x", "--out", "proof.json")
    assert refused.exit_code == 2 and "optimum of a model" in refused.stderr


def test_prove_an_optimum_and_verify_it(diet: Path, tmp_path: Path) -> None:
    proof = tmp_path / "diet.proof.json"
    done = run("prove", diet, "--out", proof)
    assert done.exit_code == 0 and ": proved" in done.stdout
    assert run("verify", proof, diet).exit_code == 0
    assert run("verify", proof, "knapsack").exit_code == 1
    again = run("prove", diet, "--out", proof)
    assert again.exit_code == 2 and "exists" in again.stderr
    assert run("prove", diet, "--out", proof, "--force").exit_code == 0
    assert run("solve", diet, "--proof", proof, "--force").exit_code == 0
    both = run("solve", diet, "--proof", tmp_path / "a.json", "--out", tmp_path / "a.json")
    assert both.exit_code == 2 and "is --out too" in both.output
    assert not (tmp_path / "a.json").exists()
    assert run("verify", proof, diet).exit_code == 0
    assert [f.name for f in tmp_path.iterdir() if "proof" in f.name] == [proof.name]
    # branch and bound is a solver's word, which is no proof: a tree of proved bounds is
    whole = tmp_path / "knapsack.proof.json"
    done = run("prove", "knapsack", "--out", whole)
    assert done.exit_code == 0 and ": proved" in done.stdout
    assert run("verify", whole, "knapsack").exit_code == 0
    assert "reported by highs" in run("solve", "knapsack").stdout


def test_the_module_runs_and_help_is_short() -> None:
    command = [sys.executable, "-m", "optfair", "-h"]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "COLUMNS": "80"}
    )
    assert done.returncode == 0 and "..." not in done.stdout.partition("Commands:")[2]
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_shell_completes_names() -> None:
    environment = {**os.environ, "_OPTFAIR_COMPLETE": "complete_bash"}
    for words, at, found in (
        ("optfair solve textbook/kn", "2", "textbook/knapsack"),
        ("optfair solve diet --solver hi", "4", "highs"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", "from optfair.cli.app import main; main()"],
            env={**environment, "COMP_WORDS": words, "COMP_CWORD": at},
            capture_output=True,
            text=True,
        )
        assert found in done.stdout.split(), done.stderr


def test_names_stay_whole_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console.sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    console.table(("name", "about"), [("n" * 40, "some words that fold " * 3)])
    out = capsys.readouterr().out.splitlines()
    assert "n" * 40 in out[1] and len(out) > 2 and all(line == line.rstrip() for line in out)


def test_a_listing_in_a_pipe_has_no_padding() -> None:
    rows = run("list", "textbook/d*").stdout.splitlines()
    assert rows[0] == "name\tclass\toptimum" and "textbook/diet\tLP\t88.2" in rows


def test_a_sweep_prints_its_band_and_writes_its_points(diet: Path, tmp_path: Path) -> None:
    text = run("sweep", "diet", "minimum nutrition[C]", "0:3000", "--width", "1e-3").stdout
    assert "convex" in text and "proved" in text
    rows = [line.split("\t") for line in text.splitlines()[4:]]
    assert rows[0][0] == "minimum nutrition[C]"
    values = {float(r[0]): float(r[1]) for r in rows[1:]}
    assert values[0.0] == pytest.approx(88.2) and values[3000.0] == pytest.approx(119.4)
    out = tmp_path / "points.csv"
    assert run("sweep", diet, "minimum_nutrition[1]", "0,3000", "-o", out).exit_code == 0
    with out.open() as f:
        assert [float(r["value"]) for r in csv.DictReader(f)] == pytest.approx([88.2, 119.4])
    picture = tmp_path / "points.png"
    run("sweep", diet, "minimum_nutrition[1]", "0:3000:1500", "-o", picture)
    assert picture.read_bytes().startswith(b"\x89PNG")
    below = run("sweep", diet, "minimum_nutrition[1]", "-1,-5e-1", "--json")
    assert [p["value"] for p in json.loads(below.stdout)["points"]] == pytest.approx([88.2, 88.2])
    assert run("sweep", diet, "minimum_nutrition[1]", "-1:1:1", "--wide", "1").exit_code == 2
    record = json.loads(run("sweep", "diet", "minimum nutrition[C]", "0,3000", "--json").stdout)
    assert [p["grade"] for p in record["points"]] == ["proved", "proved"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("minimum nutrition[9]", "1,2"), "no parameter or row"),
        (("minimum nutrition", "1,2"), "has 4 right-hand sides"),
        (("minimum nutrition[0]", "1,x"), "are no values"),
        (("minimum nutrition[0]", "1:2:0"), "are no values"),
        (("minimum nutrition[0]", "1:2:0"), "do not lead from 1 to 2"),
        (("minimum nutrition[0]", "4:0:1"), "do not lead from 4 to 0"),
        (("minimum nutrition[0]", "0:1:1e-12"), "more than 100,000 points"),
        (("minimum nutrition[0]", "nan,1"), "nan"),
    ],
)
def test_a_sweep_of_nothing_is_refused(words: tuple[str, str], said: str) -> None:
    found = run("sweep", "diet", *words)
    assert found.exit_code == 2 and said in found.output


def test_every_table_may_quote_what_a_spreadsheet_takes_for_a_formula(tmp_path: Path) -> None:
    model, out = tmp_path / "=m.mps", tmp_path / "t.csv"
    columns = " =1+2 cost 1.0 =need 1.0\n -x cost 2.0 =need 1.0\n"
    model.write_text(
        f"NAME m\nROWS\n N cost\n G =need\nCOLUMNS\n{columns}RHS\n RHS =need 3.0\nENDATA\n"
    )
    runs = {
        "solve": (model, "--out", out),
        "sweep": (model, "=need", "1,2", "--out", out),
        "compare": (model, "--solvers", "highs", "--out", tmp_path),
    }
    for verb, words in runs.items():
        written = tmp_path / "comparison.csv" if verb == "compare" else out
        for safe in (False, True):
            done = run(verb, *words, *["--safe-cells"] * safe, *["--force"] * (verb != "compare"))
            assert done.exit_code == 0, done.output
            with written.open(newline="") as f:
                cells = [cell for row in csv.reader(f) for cell in row]
            odd = [c for c in cells if c[:1] in ("=", "-", "+", "@") and not _is_number(c)]
            assert bool(odd) != safe and bool([c for c in cells if c[:2] == "'="]) == safe, verb


def _is_number(text: str) -> bool:
    try:
        return float(text) is not None
    except ValueError:
        return False


def test_fronts_and_pools(tmp_path: Path) -> None:
    out = tmp_path / "front.csv"
    told = run("pareto", "textbook/ridge_regression", "--points", 2, "--out", out)
    assert told.exit_code == 0 and "ParetoFront of fit, penalty: 4 points" in told.stdout
    with out.open() as f:
        assert [row["grade"] for row in csv.DictReader(f)] == ["proved"] * 4
    one = run("pareto", "textbook/ridge_regression", "fit", "penalty", "--method", "lexicographic")
    assert "1 point," in one.stdout
    record = json.loads(run("pareto", "ridge_regression", "--points", 1, "--json").stdout)
    assert record["grade"] == "proved" and len(record["points"]) == 3
    assert "a front needs two" in run("pareto", "textbook/diet").stderr
    assert "no objective term 'fitt'" in run("pareto", "ridge_regression", "fitt", "fit").stderr
    text = run("solve", "textbook/knapsack", "--solutions", 2).stdout
    assert "values of solution 2: " in text and text.endswith("2 solutions: full\n")
    pool = json.loads(run("solve", "textbook/knapsack", "--solutions", 2, "--json").stdout)["pool"]
    assert [s["objective"] for s in pool["solutions"]] == sorted(
        [s["objective"] for s in pool["solutions"]], reverse=True
    )
    assert "binaries" in run("solve", "textbook/diet", "--solutions", 2).stderr


@pytest.mark.parametrize("ending", [".mps", ".lp", ".cbf", ".dat-s"])
def test_a_problem_comes_from_the_standard_input(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"diet{ending}"
    of.library.load("diet").problem().export(file)
    piped = CliRunner().invoke(app, ["solve", "-", "--json"], input=file.read_bytes())
    assert json.loads(piped.stdout)["objective"] == pytest.approx(88.2)


def test_a_standard_input_that_is_no_problem_says_so() -> None:
    none = CliRunner().invoke(app, ["read", "-"], input="once upon a time")
    assert none.exit_code == 2 and "begins with 'once'" in none.output
    corrupt = CliRunner().invoke(app, ["read", "-"], input="NAME p\nROWS\n Q cost\nENDATA\n")
    assert "stdin.mps, line 3" in corrupt.output and os.sep + "stdin" not in corrupt.output
    empty = CliRunner().invoke(app, ["solve", "-"], input=b"\n")
    assert "a text without content is not known" in empty.output
