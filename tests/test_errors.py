"""What errors suggest."""

from __future__ import annotations

import copy
import pickle
import re
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.errors import MOST_NAMES, Known, NoSuchName, kind_of, nearest
from optfair.methods.sparse_counterfactuals.fit_data import check_budget


def test_names_that_are_near_are_suggested() -> None:
    assert nearest("clarabell", ["highs", "clarabel"]) == "did you mean 'clarabel'?"


def test_all_names_are_told_unless_they_are_many() -> None:
    assert nearest("zzz", ["b", "a"]) == "known names: a, b"
    many = [f"name{i:03}" for i in range(MOST_NAMES + 5)]
    assert nearest("zzz", many).endswith(f"{many[MOST_NAMES - 1]} and 5 more")


def test_types_are_named_with_their_article() -> None:
    made = [type(word, (), {})() for word in ("SVC", "Union", "Undecided", "FairKMeans", "Ridge")]
    named = [kind_of(value) for value in (1, "text", *made)]
    letters = ["an int", "a str", "an SVC", "a Union", "an Undecided", "a FairKMeans", "a Ridge"]
    assert named == letters


def test_a_table_is_named_by_either_word() -> None:
    """What has ``frame`` says so for ``to_frame`` and the other way round; other errors stay."""
    X = of.datasets.load("iris").numeric("species")[0]
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= 1]), ["low"])
    s = p.solve()
    frames = (s, of.sensitivity(s), of.sweep(p, "low[0]", [0.0, 1.0]), of.datasets.load("iris"))
    for thing in frames:
        with pytest.raises(AttributeError, match=r"'to_frame'.*frame\(\)"):
            thing.to_frame()
        assert not hasattr(thing, "to_frame") and len(thing.frame())
    answer = of.ClusterExplainer(of.FairKMeans(2, random_state=0).fit(X, groups=X[:, 0] > 5.8))
    others = (
        of.compare_solvers({"p": p}, ["highs"]),
        answer.explain(X[0]),
        answer.explain(X[0]).best,
    )
    for thing in others:
        with pytest.raises(AttributeError, match=r"'frame'; its table is to_frame\(\)"):
            thing.frame()
        again = pickle.loads(pickle.dumps(thing.to_frame()))
        assert len(again) == len(copy.copy(thing).to_frame())
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = others[0].nothing


def lookups(file: Path) -> dict[str, tuple[Any, str]]:
    """Return mappings that users look names up in, each with a name that it has."""
    x, b = cp.Variable(2, name="servings"), cp.Parameter(name="demand", value=1.0)
    rows = [x >= b, cp.sum(x) <= 9]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), rows), ["enough", "most"])
    s, d = p.solve(), of.sweeps.derivatives(p.solve(), "demand")
    swept = of.sweep(p, "demand", [1.0, 2.0], functions={"total": lambda s: s.objective})
    iris = of.datasets.load("iris")
    broken = p.with_constraints(low=x <= 0).diagnose()
    run = of.compare_solvers(p, ["highs"]).runs[0]
    s.certificate.save(file, overwrite=True)
    ruled = of.FairAssignment(np.eye(4), groups=list("abab"), centers=np.eye(4)[:2])
    return {
        "variables": (p.variables, "servings"),
        "problem": (p, "servings"),
        "constraints": (p.constraints, "enough"),
        "objective": (p.objective, "objective"),
        "data": (p.data, "problem"),
        "parameters": (p.parameters, "demand"),
        "rules": (ruled.rules, "fairness"),
        "solution": (s, "servings"),
        "values": (s.values, "servings"),
        "multipliers": (s.multipliers, "enough"),
        "prices": (s.shadow_price, "enough"),
        "slack": (s.slack, "enough"),
        "seconds": (s.seconds, "solve"),
        "options": (s.options, "tolerance"),
        "sensitivity": (of.sensitivity(s), "enough"),
        "derivatives": (d, "servings"),
        "multipliers moved": (d.multipliers, "enough"),
        "functions": (swept[0].more, "total"),
        "columns": (iris.columns, "species"),
        "diagnosis": (broken, "conflict"),
        "numbers": (broken["conflict"].numbers, "names"),
        "dual": (of.transforms.dualize(p).problem.equations, "servings"),
        "residuals": (s.residuals().primal, "enough"),
        "phases": (run.phases, "solve"),
        "environment": (run.environment, "processor"),
        "instance": (of.library.load("diet").data, "nutrients"),
        "proof file": (of.load_proof(file).document, "digest"),
    }


def test_every_lookup_says_what_is_near_to_a_mistyped_name(tmp_path: Path) -> None:
    """As one error, which is also a ``KeyError``; the right name is found, and ``get`` is quiet."""
    known = lookups(tmp_path / "proof.json")
    for where, (mapping, name) in known.items():
        assert mapping[name] is not None, where
        with pytest.raises(KeyError) as caught:
            mapping[name[:-1] + "z"]
        assert isinstance(caught.value, NoSuchName), where
        assert f"do:  did you mean {name!r}" in str(caught.value), where
        assert f"no {name[:-1]}z" not in str(caught.value) and "KeyError" not in str(caught.value)
    variables = known["variables"][0]
    assert variables.get("nothing") is None and "nothing" not in variables


def test_names_are_told_after_copies_and_of_empty_mappings() -> None:
    for again in (
        copy.deepcopy(Known({"a": 1}, "part")),
        pickle.loads(pickle.dumps(Known({"a": 1}, "part"))),
    ):
        with pytest.raises(NoSuchName, match="no part 'b'\n  do:  known names: a"):
            again["b"]
    with pytest.raises(NoSuchName, match="no part 'b'\n  do:  there are none"):
        Known({}, "part")["b"]


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda p: p.solve(tolerance="1e-6"), "'1e-6' is a text, not a number"),
        (lambda p: p.solve(time_limit="10"), "'10' is a text, not a number"),
        (lambda p: p.solve(verbose="2"), "'2' is a text, not a number"),
        (lambda p: of.balance("0.4"), "'0.4' is a text, not a number"),
        (lambda p: of.additive_gap("0.1"), "'0.1' is a text, not a number"),
        (lambda p: of.FairKMeans("5").fit(np.eye(6), groups=list("ababab")), "'5' is a text"),
        (lambda p: of.FairMixture("3").fit(np.eye(6), groups=list("ababab")), "'3' is a text"),
        (lambda p: check_budget("3", 2, 4), "'3' is a text, not a number"),
        (lambda p: of.sweep(p, "demand", ["1", "2"]), "they are texts, the first is '1'"),
    ],
)
def test_a_text_in_place_of_a_number_is_called_one(ask: Any, said: str) -> None:
    """A text is not out of range: "0.4 is outside [0, 1]" would be false."""
    x, b = cp.Variable(2, name="x"), cp.Parameter(name="demand", value=1.0)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= b]), ["enough"])
    with pytest.raises(of.OptfairError, match=re.escape(f"  why: {said}")):
        ask(p)


def test_a_constraint_alone_is_not_said_to_exclude_others() -> None:
    """What is false of every point, or where the objective is defined, is told in these words."""
    x = cp.Variable(2, name="x")
    log = cp.Maximize(cp.log(x[0]))
    for goal, rows, said in (
        (cp.Minimize(x[0]), [cp.norm(x) + 1 <= 0], "no point satisfies 'c0'"),
        (log, [x[0] <= -1], "no point where the objective is finite satisfies 'c0'"),
        (cp.Maximize(log.args[0] + cp.log(-1 - x[0])), [], "the domain of the objective is empty"),
        (cp.Minimize(x[0]), [x >= 1, x <= 0], "these constraints exclude each other: 'c0', 'c1'"),
    ):
        with pytest.raises(of.Infeasible) as caught:
            of.from_cvxpy(cp.Problem(goal, rows)).solve()
        assert caught.value.cause.startswith(said)
