"""Files of facts: what is in them is checked."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import cvxpy as cp
import pytest

import optfair as of
from optfair.backends.registry import profile, profiles
from optfair.backends.request import Refusal, SolverProfile, load_profile
from optfair.core.problem_class import ProblemClass
from optfair.registry import fact_files, load_facts, route

BACKENDS = Path(of.__file__).parent / "backends"
GOOD = """schema = 1
name = "mine"
title = "a solver"
via = "cvxpy"
cvxpy_name = "HIGHS"
module = "highspy"
package = "highspy"
licence = "MIT"
kind = "open"
install = "pip install mine"
classes = ["LP"]
"""


def test_every_profile_names_known_classes() -> None:
    for p in profiles().values():
        assert p.kind in ("open", "commercial") and p.nonconvex in ("", "global", "local")
        if p.via == "structured":
            assert callable(route(p.route)), p.name
        else:
            file, _, name = p.via.partition(":")
            text = (BACKENDS / f"{file}_backend.py").read_text(encoding="utf-8")
            assert f"\ndef {f'run_{name}' if name else 'run'}(" in text, p.name
        for name in p.classes:
            assert ProblemClass.parse(name).name == name
        assert set(p.returns) <= {"primal", "dual", "farkas", "ray", "bound"}
        assert set(p.options) <= {"time_limit", "threads", "seed"}
        assert set(p.misses) <= {"infeasible", "unbounded", "unbounded QP"}
        assert set(p.reports) <= {"bound", "status", "interrupted", "point"}
        assert (p.kind == "commercial") == bool(p.probe)
        # what it does not do has a reason on record
        assert p.structure or "time_limit" in {*p.options, *p.quirks}, p.name


def test_policy_names_known_open_solvers() -> None:
    policy = load_facts(fact_files("solvers")["_policy"])
    known = profiles()
    for name in [
        *policy["structures"],
        *(n for names in policy["classes"].values() for n in names),
        *(n for names in policy["nonconvex"].values() for n in names),
    ]:
        assert known[name].kind == "open" and known[name].nonconvex != "local"
    for name, solvers in policy["nonconvex"].items():
        assert all(known[s].nonconvex == "global" and name in known[s].classes for s in solvers)
    for name, solvers in policy["classes"].items():
        assert all(name in known[s].classes for s in solvers)
    long = policy["long_columns"]  # both are asked for linear programs
    assert {long["solver"], long["before"]} <= {*policy["classes"]["LP"]}
    assert long["before"] == policy["classes"]["LP"][0]
    quick = policy["integers"]["solver"]  # asked for a little where another one is the first
    asked = {name for name, solvers in policy["classes"].items() if quick in solvers[1:]}
    assert asked == {"MIQP", "MIQCQP", "MISOCP"} <= {*known[quick].classes}


def test_a_users_folder_adds_a_solver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.toml").write_text(GOOD)
    monkeypatch.setenv("OPTFAIR_SOLVERS", str(tmp_path))
    assert profiles()["mine"].classes == ("LP",)
    assert "mine" in repr(of.solvers())
    import cvxpy as cp

    x = cp.Variable(name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x), [x >= 2]))
    assert p.solve("mine").objective == pytest.approx(2.0)
    assert p.solve().solver == "highs"  # present, but not the default


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD + 'colour = "red"\n', "unknown key 'colour'"),
        (GOOD.replace("schema = 1", "schema = 2"), "schema 2"),
        (GOOD.replace('module = "highspy"\n', ""), "incomplete"),
        ("schema = = 1", "not valid TOML"),
    ],
)
def test_bad_files_are_errors(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises((of.DeclarationError, of.DataError), match=message):
        load_profile(file)


def test_a_missing_folder_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPTFAIR_SOLVERS", "/nowhere/at/all")
    with pytest.raises(of.DeclarationError, match="OPTFAIR_SOLVERS"):
        profiles()


def test_the_page_on_adding_names_every_key() -> None:
    page = (Path(__file__).parents[2] / "docs" / "adding.md").read_text(encoding="utf-8")
    table = page[page.index("## A solver") : page.index("## An instance")]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = set(re.findall(r"`\[*(\w+)\]*`", " ".join(rows))) | {"route"}
    known = {f.name for f in fields(SolverProfile)}
    assert "`route`" in table
    assert named - {"schema"} == known


@pytest.mark.parametrize("name", ["scipy-linprog", "cvxopt", "qpalm"])
def test_a_solver_of_cvxpys_needs_no_code(name: str) -> None:
    """These are a file of facts each: no line of the package names them or their modules."""
    facts = profile(name)
    assert facts.via == "cvxpy" and not facts.compile_as
    package = Path(of.__file__).parent
    if name != "scipy-linprog":  # everybody imports SciPy
        assert not any(facts.module in f.read_text(encoding="utf-8") for f in package.rglob("*.py"))
    p = of.library.load("textbook/diet").problem()
    s = p.solve(name)
    assert s.is_optimal(1e-6) and s.objective == pytest.approx(p.solve().objective, rel=1e-6)


def test_no_remedy_takes_every_term_away() -> None:
    sdpa = profile("sdpa")
    x = cp.Variable(2, name="x")
    linear = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= 1]), ["least"])
    refusal = sdpa.accepts(linear)
    assert isinstance(refusal, Refusal) and not refusal.remedies
    assert "not LP" in refusal.reasons[0]
    X = cp.Variable((2, 2), name="X", symmetric=True)
    mixed = of.from_cvxpy(
        cp.Problem(cp.Minimize(cp.trace(X)), [X >> 0, cp.exp(x[0]) <= 2]), ["psd", "odd"]
    )
    refusal = sdpa.accepts(mixed)
    assert isinstance(refusal, Refusal) and "'odd'" in refusal.remedies[0]


def test_a_time_limit_that_is_no_number_says_what_one_is() -> None:
    with pytest.raises(of.DeclarationError, match="'1s' is no positive number of seconds"):
        of.library.load("diet").problem().solve(time_limit="1s")  # type: ignore[arg-type]


def test_a_solver_shows_itself_in_a_line() -> None:
    lines = [repr(p) for p in profiles().values()]
    assert max(map(len, lines)) < 200 and not any("\n" in line for line in lines)
    highs = profile("highs")
    assert repr(highs) == f"Solver highs {highs.version}: LP, QP, MILP; MIT"
    absent = SolverProfile("mine", "", "cvxpy", "nowhere", "nowhere", "MIT", "open", "", ("LP",))
    assert repr(absent) == "Solver mine (missing): LP; MIT"
