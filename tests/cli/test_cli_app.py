"""The command line: every command, its JSON, its exit codes, its suggestions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import optfair as of
from optfair.cli.app import app
from optfair.library import instance as instances

# linear, with integers, a cone, matrices, without a solution, of a method
FEW = {"diet", "knapsack", "smallest_ball", "max_cut_pentagon", "diet_low_salt", "three_groups"}
MISSING = """
schema = 1
name = "absent"
title = "a solver nobody has"
via = "cvxpy"
cvxpy_name = "ABSENT"
module = "no_such_module_of_ours"
package = "no-such-package-of-ours"
licence = "none"
kind = "commercial"
install = "pip install no-such-package-of-ours"
classes = ["LP"]
"""
BROKEN = """
schema = 1
model = "Knapsack"
class = "MILP"
source = "made up"
[data]
values = [1.0]
weights = [1.0]
capacity = 2.0
[optimum]
value = 2.0
certified_by = "highs"
gap = 1e-9
checked_by = ["clarabel"]
"""


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    """--problems and --solvers set the environment of the process: give it back afterwards."""
    for variable in ("OPTFAIR_PROBLEMS", "OPTFAIR_SOLVERS"):
        monkeypatch.setenv(variable, "")


def run(*words):
    return CliRunner().invoke(app, [str(w) for w in words])


def run_json(*words):
    result = run(*words, "--json")
    assert result.stderr == "", result.stderr
    return result.exit_code, json.loads(result.stdout)


def test_help_documents_the_exit_codes():
    result = run("--help")
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert "Exit codes: 0 fine; 1 a result failed" in text
    for command in ("list", "show", "solve", "certify", "solvers", "demo"):
        assert run(command, "--help").exit_code == 0
    assert run("--version").stdout.strip() == of.__version__


def test_list():
    code, found = run_json("list")
    assert code == 0
    assert {i["name"] for i in found["instances"]} == set(of.library.names())
    code, found = run_json("list", "fair_clustering/german_k*")
    assert [i["name"][-3:] for i in found["instances"]] == ["k10", "_k3", "_k5"]
    code, found = run_json("list", "hidden")
    assert [i["name"] for i in found["instances"] if i["name"].startswith("textbook/")] == [
        "textbook/trust_region",
        "textbook/trust_region_concave",
        "textbook/trust_region_hard",
    ]
    text = run("list", "textbook").stdout
    assert "textbook/knapsack" in text and "309" in text and "infeasible:" in text


def test_a_file_that_cannot_be_read_is_no_unknown_instance(tmp_path):
    for name, said in (
        ("m.nl", "can be written only"),
        ("m.xyz", "format of 'm.xyz' is not known"),
    ):
        (tmp_path / name).write_text("x")
        result = run("solve", str(tmp_path / name))
        assert result.exit_code == 2 and said in result.stderr, result.stderr
    assert "no instance" in run("solve", str(tmp_path / "none.nl")).stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a system without a full device")
def test_output_that_cannot_be_written_is_said():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "optfair", "list", "textbook"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=100)
    assert done.returncode == 1
    assert done.stderr.startswith("the output cannot be written") and "Traceback" not in done.stderr


def test_list_without_a_match():
    result = run("list", "knapsak")
    assert result.exit_code == 2 and result.stdout == ""
    assert "no instance matches 'knapsak'" in result.stderr
    assert "do:  did you mean 'knapsack'" in result.stderr


def test_show():
    code, found = run_json("show", "textbook/risk_budget")
    assert code == 0
    assert found["class"] == found["found_class"] == "SOCP"
    assert found["variables"] == {"portfolio": [5]}
    assert "risk: convex in Nonpositive -> SOCP" in found["evidence"]
    assert "clarabel" in found["solvers"] and "highs" not in found["solvers"]
    assert found["optimum"]["value"] > 0 and "Lobo" in found["source"]
    text = run("show", "trust_region").stdout
    assert "nonconvex QCQP" in text and "witness" in text and "scip" in text


def test_solve():
    code, found = run_json("solve", "german_k3")
    assert code == 0
    assert found["termination"] == "optimal" and found["solver"] == "mass-dual"
    assert found["objective"] == pytest.approx(found["stated_optimum"], rel=1e-9)
    assert found["residuals"]["feasibility"] <= 1e-7
    code, found = run_json("solve", "german_k3", "--solver", "clarabel", "--tolerance", "1e-8")
    assert code == 0 and found["solver"] == "clarabel" and found["gap"] <= 1e-8
    text = run("solve", "diet").stdout
    assert "objective  88.2" in text and "fewest servings" in text and "stated" in text


def test_solve_infeasible_is_1():
    result = run("solve", "fair_clustering/infeasible_rules")
    assert result.exit_code == 1 and result.stdout == ""
    assert "'share.lower', 'capacity.upper'" in result.stderr
    assert "\n  why: " in result.stderr and "\n  do:  " in result.stderr
    code, found = run_json("solve", "fair_clustering/infeasible_rules")
    assert code == 1 and found["error"] == "Infeasible"


def test_solve_refused_is_2():
    result = run("solve", "trust_region", "--solver", "clarabel")
    assert result.exit_code == 2 and "nonconvex" in result.stderr
    code, found = run_json("solve", "risk_budget", "--solver", "highs")
    assert code == 2 and found["error"] == "UnsupportedProblem"
    assert "highs solves LP, QP, MILP, not SOCP" in found["cause"]
    assert run("solve", "diet", "--tolerance", "7").exit_code == 2


def test_unknown_names_suggest():
    result = run("solve", "textbook/knapsak")
    assert result.exit_code == 2 and "did you mean 'textbook/knapsack'" in result.stderr
    code, found = run_json("show", "knapsak")
    assert code == 2 and found["error"] == "DataError" and "knapsack" in found["remedy"]
    result = run("solve", "diet", "--solver", "higs")
    assert result.exit_code == 2 and "did you mean 'highs'" in result.stderr
    result = run("certfy", "diet")
    assert result.exit_code == 2 and "certify" in result.stderr


def test_solver_that_is_not_installed(tmp_path):
    (tmp_path / "absent.toml").write_text(MISSING)
    code, found = run_json("solvers", "--solvers", tmp_path)
    assert code == 0
    rows = {row["solver"]: row["state"] for row in found["solvers"]}
    assert rows["absent"] == "not installed: pip install no-such-package-of-ours"
    assert rows["highs"] == "installed, open"
    result = run("solve", "diet", "--solver", "absent")
    assert result.exit_code == 2 and "pip install no-such-package-of-ours" in result.stderr


def test_verbose():
    result = run("solve", "diet", "--verbose", "--json")
    assert result.exit_code == 2 and "exclude each other" in result.stderr
    assert run("solve", "diet", "-v").exit_code == 0


def test_certify_one():
    code, found = run_json("certify", "knapsack")
    assert code == 0, found
    assert found["certified"] is True and found["value"] == 309
    assert all(check["ok"] for check in found["checks"])
    assert "relaxations" in run("certify", "german_hard_assignment").stdout


@pytest.fixture(params=["few", pytest.param("all", marks=pytest.mark.slow)])
def library_of(request, monkeypatch):
    """Let the library be a few instances of every kind; in the slow tier it is whole."""
    if request.param == "few":
        every = instances.names()
        kept = [n for n in every if n.rpartition("/")[2] in FEW]
        assert len(kept) == len(FEW)
        monkeypatch.setattr(
            of.library,
            "names",
            lambda pattern="*": tuple(n for n in instances.names() if n in kept or n not in every),
        )
    return request.param


def test_certify_all_with_one_that_fails(tmp_path, library_of):
    (tmp_path / "wrong.toml").write_text(BROKEN)
    (tmp_path / "unreadable.toml").write_text("schema = 1\nmodel = 3\n")
    result = run("certify", "--all", "--problems", tmp_path)
    assert result.exit_code == 1
    rows = result.stdout.splitlines()
    n = len(of.library.names())
    assert len(rows) == n + 1 and rows[-1] == f"{n - 2} of {n} certified"
    bad = [row for row in rows if row.startswith("FAILED")]
    assert len(bad) == 2 and "certified by highs" in " ".join(bad)


def test_certify_all_as_json(library_of):
    code, found = run_json("certify", "--all")
    assert code == 0 and found["failed"] == []
    assert (len(found["instances"]) > 100) is (library_of == "all")
    assert len(found["instances"]) == len(of.library.names())


def test_certify_needs_exactly_one_of_name_and_all():
    assert run("certify").exit_code == 2
    assert run("certify", "diet", "--all").exit_code == 2


def test_problems_adds_a_folder(tmp_path):
    (tmp_path / "mine.toml").write_text(BROKEN)
    assert run("show", "mine").exit_code == 2
    result = run("show", "mine", "--problems", tmp_path)
    assert result.exit_code == 0 and "Knapsack: MILP" in result.stdout
    assert os.environ["OPTFAIR_PROBLEMS"] == str(tmp_path)
    assert run("certify", "mine").exit_code == 1
    assert run("list", "--problems", tmp_path / "nowhere").exit_code == 2


def test_time_limit_is_a_failed_result(monkeypatch):
    """A result that stopped early is printed, and the exit code says it is not optimal."""
    from dataclasses import replace

    from optfair.core.problem import Problem

    exact = Problem.solve

    def early(self, *args, **options):
        s = exact(self, *args, **options)
        return replace(s, status=replace(s.status, termination="time_limit"))

    monkeypatch.setattr(Problem, "solve", early)
    code, found = run_json("solve", "diet")
    assert code == 1 and found["termination"] == "time_limit"


def test_commands_take_files_as_they_take_instances(tmp_path):
    file = tmp_path / "diet.mps.gz"
    done = run("export", "textbook/diet", str(file))
    assert done.exit_code == 0 and "LP" in done.stdout and file.stat().st_size > 0
    again = run("export", "textbook/diet", str(file))
    assert again.exit_code == 2 and "exists" in again.stderr
    ours = json.loads(run("solve", "textbook/diet", "--json").stdout)
    theirs = json.loads(run("solve", str(file), "--json").stdout)
    assert theirs["name"] == str(file) and theirs["stated_optimum"] is None
    assert theirs["objective"] == pytest.approx(ours["objective"], rel=1e-9)
    shown = json.loads(run("show", str(file), "--json").stdout)
    assert shown["found_class"] == "LP" and "highs" in shown["solvers"]
    assert "optimum" not in run("show", str(file)).stdout
    assert run("diagnose", str(file)).exit_code == 0


def test_a_missing_or_corrupt_file_says_so(tmp_path):
    bad = tmp_path / "bad.lp"
    bad.write_text("minimize\n x +\nsubject to\n c: x >= >= 1\nend\n")
    for command in ("solve", "show", "diagnose"):
        result = run(command, str(bad))
        assert result.exit_code == 2 and "line" in result.stderr, result.stderr
        assert run(command, str(tmp_path / "none.mps")).exit_code == 2


def test_an_unknown_command_gets_the_nearest() -> None:
    result = CliRunner().invoke(app, ["slove", "diet"])
    assert result.exit_code == 2 and "Did you mean 'solve'" in result.stderr
