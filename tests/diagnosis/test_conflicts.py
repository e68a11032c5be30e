"""Conflicts of every class with known sets and known least relaxations, and their proofs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import optfair as of
import optfair.diagnosis.system as system_module
from optfair.backends import search as search_module
from optfair.diagnosis import conflict as conflict_module
from optfair.diagnosis import infeasible
from optfair.diagnosis.conflict import Conflict, find_conflict
from optfair.diagnosis.diagnose import diagnose
from optfair.diagnosis.infeasible import ElasticProblem, elastic_names, least_relaxation
from optfair.diagnosis.report import Clock
from optfair.diagnosis.system import FeasiblePoint, System

ROOT = np.sqrt(2.0)


def adopted(rows, goal=0.0, integers=()):
    p = of.from_cvxpy(cp.Problem(cp.Minimize(goal), list(rows.values())), list(rows))
    return p.with_integrality(*integers) if integers else p


def lp():
    x = cp.Variable(2, name="x")
    rows = {"far": cp.sum(x) >= 10, "sign": x >= 0, "near": cp.sum(x) <= 1}
    return adopted(rows, x[0]), {"far": 9, "near": 9}


def qp():
    x = cp.Variable(3, name="x")
    rows = {"sum": cp.sum(x) == 6, "cap": x <= 1, "sign": x >= 0}
    return adopted(rows, cp.sum_squares(x)), {"sum": 3, "cap": 3}


def qcqp():
    x = cp.Variable(2, name="x")
    rows = {"far": cp.sum(x) >= 10, "disk": cp.sum_squares(x) <= 1, "loose": x <= 99}
    return adopted(rows), {"far": 10 - ROOT, "disk": 49}


def socp():
    x = cp.Variable(2, name="x")
    rows = {"loose": x <= 99, "far": cp.sum(x) >= 10, "disk": cp.norm(x) <= 1}
    return adopted(rows, x[1]), {"far": 10 - ROOT, "disk": 10 / ROOT - 1}


def sdp():
    # unit diagonal and an off-diagonal entry of 2: the least eigenvalue is -1
    X = cp.Variable((2, 2), name="X", symmetric=True)
    rows = {"psd": X >> 0, "diagonal": cp.diag(X) == 1, "corner": X[0, 1] == 2}
    return adopted(rows, cp.trace(X)), {"psd": 1, "diagonal": 2, "corner": 1}


def exponential():
    x = cp.Variable(2, name="x")
    rows = {"far": cp.sum(x) >= 10, "small": cp.exp(x[0]) + cp.exp(x[1]) <= 1}
    return adopted(rows), {"far": 10 + 2 * np.log(2), "small": 2 * np.exp(5) - 1}


def second_order_cone():
    x, t = cp.Variable(2, name="x"), cp.Variable(name="t")
    rows = {"cone": cp.SOC(t, x), "height": t == 1, "far": cp.sum(x) >= 10}
    give = {"cone": 10 / ROOT - 1, "height": 10 / ROOT - 1, "far": 10 - ROOT}
    return adopted(rows), give


def power_cone():
    x = cp.Variable(3, name="x")
    rows = {"cone": cp.PowCone3D(x[0], x[1], x[2], 0.5), "point": x == np.array([1.0, 1.0, 2.0])}
    return adopted(rows), {"cone": 1, "point": 1}


CLASSES = {
    "LP": lp,
    "QP": qp,
    "QCQP": qcqp,
    "SOCP": socp,
    "SDP": sdp,
    "CONIC": exponential,
    "a second-order cone": second_order_cone,
    "a power cone": power_cone,
}
IRRELEVANT = {"sign", "loose"}


@pytest.mark.parametrize("kind", CLASSES)
def test_every_class_has_its_conflict_and_its_least_relaxation(kind):
    p, give = CLASSES[kind]()
    d = diagnose(p)
    assert d.verdict == "infeasible", d
    assert set(d.conflict) == set(p.constraints) - IRRELEVANT
    found = d["conflict"]
    assert found.numbers["proved"]
    assert found.numbers["irreducible"]
    assert found.numbers["smallest"]
    assert found.verify(), found.verify()
    alone = d["relaxation"].numbers["alone"]
    for name, amount in give.items():
        assert alone[name] == pytest.approx(amount, rel=1e-5), name
    assert d["relaxation"].verify(), d["relaxation"].verify()
    assert d.verify()


@pytest.mark.parametrize("kind", CLASSES)
def test_giving_as_much_as_is_said_is_enough_and_less_is_not(kind):
    p, _ = CLASSES[kind]()
    system = System(p, 1e-7)
    r = diagnose(p)["relaxation"].evidence.together
    problem = r.solution.problem
    assert isinstance(problem, ElasticProblem)
    assert {f"slack of {n}" for n in r.elastic} <= set(problem.variables)
    total = r.solution.objective
    assert total > 0.1

    def within(limit):
        slacks = [problem[problem.slack_of(n)] for n in r.elastic]
        weights = [1 / (1 + system.problem.constraints[n].largest_side) for n in r.elastic]
        spent = sum(w * cp.sum(s) for w, s in zip(weights, slacks, strict=True))
        return problem.with_terms({}, problem.constraints).with_constraints(budget=spent <= limit)

    within(1.001 * total).solve()
    with pytest.raises(of.Infeasible):
        within(0.99 * total).solve()


def test_an_exponential_cone_gives_along_a_direction_inside_it():
    # (1, 1, 1) + s (-1, 1, 1) is in the cone when exp((1 - s) / (1 + s)) <= 1, so s = 1
    x = cp.Variable(3, name="x")
    rows = {"cone": cp.constraints.ExpCone(x[0], x[1], x[2]), "point": x == 1}
    system = System(adopted(rows), 1e-7)
    assert elastic_names(system, system.names) == ("cone", "point")
    assert ElasticProblem(system, ("cone",)).cvxpy.solve("CLARABEL") == pytest.approx(1, rel=1e-6)


def test_three_constraints_of_which_any_two_hold():
    x = cp.Variable(2, name="x")
    rows = {"demand": cp.sum(x) >= 3, "a": x[0] <= 1, "b": x[1] <= 1, "sign": x >= 0}
    d = diagnose(adopted(rows))
    assert d.conflict == ("demand", "a", "b")
    assert d["conflict"].numbers["smallest"]
    assert d["relaxation"].numbers["alone"] == pytest.approx({"demand": 1, "a": 1, "b": 1})


def test_the_entry_that_gives_most_is_named():
    x = cp.Variable(3, name="x")
    limits = np.array([5.0, 5.0, 1.0])
    d = diagnose(adopted({"low": x >= np.array([1.0, 1.0, 4.0]), "high": x <= limits}, x[0]))
    assert d["relaxation"].numbers["alone"] == pytest.approx({"low": 3, "high": 3})
    assert [row[2] for row in d["relaxation"].rows] == ["3 at [2]", "3 at [2]"]


def test_small_amounts_are_not_rounded_away():
    x = cp.Variable(name="x")
    d = diagnose(adopted({"low": x >= 1, "high": x <= 1 - 1e-5}, x))
    assert d["relaxation"].numbers["alone"] == pytest.approx({"low": 1e-5, "high": 1e-5})
    assert "less than the tolerance" not in str(d)


def test_a_conflict_below_the_tolerance_is_called_that():
    x = cp.Variable(name="x")
    d = diagnose(adopted({"low": x >= 1e9, "high": x <= 1e9 - 1}, x))
    assert set(d.conflict) == {"low", "high"}
    assert any("less than the tolerance" in line for line in d["relaxation"].lines)
    assert not any("give by" in r for r in d["relaxation"].remedies)


def two_conflicts():
    x, z = cp.Variable(2, name="x"), cp.Variable(name="z")
    rows = {"a": x[0] >= 1, "b": x[1] >= 1, "c": cp.sum(x) <= 1, "d": z >= 1, "e": z <= 0}
    return adopted(rows)


def test_a_smaller_conflict_elsewhere_is_found():
    system = System(two_conflicts(), 1e-7)
    found = find_conflict(system, Clock(), hints=[("a", "b", "c")])
    assert isinstance(found, Conflict)
    assert found.names == ("d", "e")
    assert found.smallest
    assert found.verify()


def test_irreducible_is_not_called_smallest():
    system = System(two_conflicts(), 1e-7)
    found = find_conflict(system, Clock(), within=("a", "b", "c"))
    assert found.names == ("a", "b", "c")
    assert found.irreducible and not found.smallest
    claimed = replace(found, smallest=True)
    assert "no point rules out every smaller conflict" in claimed.verify().reasons


def test_conflicts_without_a_common_constraint_are_all_found():
    d = diagnose(two_conflicts())
    found = [set(f.numbers["names"]) for f in d if f.kind == "conflict"]
    assert found == [{"d", "e"}, {"a", "b", "c"}]
    numbers = d["relaxation"].numbers
    assert numbers["alone"] == dict.fromkeys("deabc")  # none helps alone
    assert sum(numbers["together"].values()) == pytest.approx(2.0)
    assert d.verify()


def test_further_conflicts_that_share_constraints_are_relaxed_too():
    x, z = cp.Variable(name="x"), cp.Variable(name="z")
    rows = {"low": x <= 0, "high": x >= 1, "link": z == x, "over": z >= 2}
    d = diagnose(adopted(rows))
    assert len(d.conflict) == 2
    assert d["relaxation"].evidence.together.solution is not None
    assert d.verify()


def test_the_domain_of_the_objective_takes_part():
    x = cp.Variable(name="x")
    d = diagnose(adopted({"negative": x <= -1}, -cp.log(x)))
    assert d.verdict == "infeasible"
    assert d.conflict == ("negative", "domain of objective")
    assert d["relaxation"].numbers["alone"] == pytest.approx({"negative": 1.0})
    assert d.verify()


def test_numbers_that_contradict_each_other():
    x = cp.Variable(name="x")
    d = diagnose(adopted({"nonsense": cp.Constant(2) <= 1, "fine": x >= 1}, x))
    assert d.conflict == ("nonsense",)
    assert d["conflict"].verify()


# --- integers --------------------------------------------------------------------------------


@pytest.mark.parametrize("proved", [True, False])
def test_integrality_in_the_conflict_is_named_and_proved_only_if_it_is(proved, monkeypatch):
    if not proved:  # a tree that is too large
        monkeypatch.setattr(conflict_module, "excluded", lambda *_: None)
        monkeypatch.setattr(search_module, "without_a_point", lambda *_: None)
    x = cp.Variable(2, name="x")
    rows = {"odd": 2 * x[0] + 2 * x[1] == 1, "low": x >= -3, "high": x <= 3}
    d = diagnose(adopted(rows, integers=["x"]))
    assert d.verdict == ("infeasible" if proved else "unknown")
    assert set(d.conflict) == {"odd", "x integer"}
    found = d["conflict"]
    assert found.numbers["integrality"] == ["x integer"]
    assert found.numbers["proved"] is proved
    assert any("integrality is in the conflict" in line for line in found.lines)
    assert any("solver's word" in line for line in found.lines) is not proved
    verdict = found.verify()
    assert bool(verdict) is proved
    assert proved or "cannot be recomputed" in verdict.reasons[0]
    assert d["relaxation"].numbers["alone"] == pytest.approx({"odd": 1.0})


def test_a_conflict_that_is_proved_is_made_no_smaller_on_a_solvers_word():
    """Without bounds no tree of cases ends, and with them it has 35 cases or more."""
    z = cp.Variable(6, boolean=True, name="z")
    rows = [2 * cp.sum(z) >= 5.1, 2 * cp.sum(z) + 0.001 * z[0] <= 5.9]
    d = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(z)), rows)).diagnose()
    assert d.verdict == "infeasible" and {"c0", "c1", "z integer"} < set(d.conflict)
    assert d["conflict"].numbers["proved"] and d["conflict"].verify()


def test_rows_with_no_whole_number_between_them_are_the_whole_conflict():
    z = cp.Variable(2, integer=True, name="z")
    rows = [z[0] - z[1] >= 0.1, z[0] - z[1] <= 0.9, z >= 0, z <= 3]
    d = of.from_cvxpy(cp.Problem(cp.Minimize(z[0]), rows)).diagnose()
    assert set(d.conflict) == {"c0", "c1", "z integer"} and d["conflict"].verify()
    assert "no whole number between them" in str(d) and "smallest" in str(d)


def test_bounds_between_two_integers():
    x = cp.Variable(name="x")
    rows = {"low": x >= 0.25, "high": x <= 0.75, "loose": x <= 9}
    d = diagnose(adopted(rows, integers=["x"]))
    assert set(d.conflict) == {"low", "high", "x integer"}
    assert d["conflict"].numbers["proved"]
    assert d["conflict"].evidence.proof.leaves == 2
    assert d["conflict"].verify(), d["conflict"].verify()
    assert d["relaxation"].numbers["alone"] == pytest.approx({"low": 0.25, "high": 0.25})
    assert d["relaxation"].verify() and d.verify()  # the least of integers is proved by branching


def test_a_relaxation_that_is_a_solvers_word_is_a_remark(monkeypatch):
    monkeypatch.setattr(infeasible, "_proof", lambda *_: None)
    x = cp.Variable(name="x")
    d = diagnose(adopted({"low": x >= 0.25, "high": x <= 0.75}, integers=["x"]))
    assert d.verify() and not d["relaxation"].verify()
    assert "a solver's word" in str(d["relaxation"]) and d["relaxation"].numbers["together"]


def test_integers_of_which_only_the_bounds_have_a_proof_are_proved_with_these(monkeypatch):
    """Without them a tree of cases has no end, and a solver's word is no conflict."""
    monkeypatch.setattr(infeasible, "ENDLESS", 0.1)
    z, x = cp.Variable(2, integer=True, name="z"), cp.Variable(name="x")
    first, second = 0.3 * z[0] - 0.1 * z[1] - 0.7 * x, -0.3 * z[0] + 0.1 * z[1] - 0.3 * x
    rows = {"first": first == 0.3, "second": second == 1, "low": z >= -2, "high": z <= 2}
    d = diagnose(of.from_cvxpy(cp.Problem(cp.Minimize(z[0]), [*rows.values()]), [*rows]))
    assert d.verdict == "infeasible" and d["conflict"].verify()
    assert {"first", "second", "z integer"} < set(d.conflict)


def test_what_is_left_of_integers_without_a_box_may_be_branched_on_for_ever(monkeypatch):
    monkeypatch.setattr("optfair.diagnosis.conflict.SECONDS", 0.3)
    x = cp.Variable(3, name="x")
    rows = {"low": x >= -5, "high": x <= 5, "odd": 2 * x[0] + 4 * x[1] - 6 * x[2] == 3}
    found = diagnose(adopted(rows, integers=["x"])).findings[0].evidence
    assert isinstance(found, Conflict) and {"odd", "x integer"} <= set(found.names)


def integer_corner():
    # a triangle with points on both sides of integers, and none in it
    x = cp.Variable(2, name="x")
    rows = {
        "low": 3 * x[0] - x[1] >= 0.5,
        "high": 3 * x[0] + x[1] <= 3.5,
        "over": x[1] >= 0.5,
        "loose": x <= 50,
    }
    return adopted(rows, integers=["x"])


def test_branching_proves_what_the_solver_only_says():
    d = diagnose(integer_corner())
    assert set(d.conflict) == {"low", "high", "over", "x integer"}
    # by hand: every integer point breaks one of the three
    points = [(i, j) for i in range(-60, 51) for j in range(-60, 51)]
    assert not any(3 * i - j >= 0.5 and 3 * i + j <= 3.5 and j >= 0.5 for i, j in points)
    conflict = d["conflict"].evidence
    tree = conflict.proof.tree
    assert conflict.verify(), conflict.verify()
    assert any("by branching" in line for line in d["conflict"].lines)
    # a tree that leaves out a case, names another limit or repeats a leaf is no proof
    for broken in (
        replace(tree, limit=tree.limit + 1),
        replace(tree, limit=tree.limit - 1),
        replace(tree, below=tree.above),
        replace(tree, above=tree.below),
        tree.below,
        tree.above,
    ):
        assert not replace(conflict, proof=replace(conflict.proof, tree=broken)).verify()
    for name in conflict.names:
        fewer = tuple(n for n in conflict.names if n != name)
        assert not replace(conflict, names=fewer, irreducible=False).verify()


def test_what_stays_in_conflict_is_named_once_and_as_it_was_declared():
    problem = integer_corner()
    system = System(problem, 1e-7)
    alone = least_relaxation(system, ("loose",), Clock(None))
    assert alone.refusal == "no amount helps: 'low', 'high', 'over' stay in conflict"


def test_integrality_is_left_out_of_a_continuous_conflict():
    x = cp.Variable(2, name="x")
    rows = {"sum": cp.sum(x) == 1, "low": x >= 1, "high": x <= 3}
    d = diagnose(adopted(rows, integers=["x"]))
    assert set(d.conflict) == {"sum", "low"}
    assert d["conflict"].numbers["proved"]
    assert d["conflict"].verify()
    assert d["relaxation"].numbers["alone"] == pytest.approx({"sum": 1, "low": 1})


# --- rules of a model ------------------------------------------------------------------------


def assignment():
    X = np.random.default_rng(0).normal(size=(30, 2))
    return of.FairAssignment(X, groups=["a", "b"] * 15, centers=X[:3])


def test_rules_of_a_fair_assignment():
    p = assignment().with_constraints(
        share=of.cluster_share(lower=[0.5, 0.1, 0.1]),
        capacity=of.cluster_share(upper=[0.4, 1.0, 1.0]),
    )
    d = diagnose(p)
    assert set(d.conflict) == {"share.lower", "capacity.upper"}
    assert d["conflict"].numbers["given"] == ["row sum", "nonnegativity", "mass definition"]
    assert d["relaxation"].numbers["alone"] == pytest.approx(
        {"share.lower": 0.1, "capacity.upper": 0.1}, abs=1e-6
    )
    assert d.verify(), d.verify()


def test_a_rule_that_excludes_the_definition_of_the_model():
    p = assignment()
    heavy = p.with_constraints(heavy=cp.sum(p["masses"]) >= 2)
    d = diagnose(heavy)
    assert d.conflict == ("heavy",)
    assert d["relaxation"].numbers["alone"] == pytest.approx({"heavy": 1.0}, abs=1e-6)
    assert d.verify(), d.verify()


def test_rules_keep_their_names_when_the_assignment_is_hard():
    p = assignment()
    rows = {"one": cp.sum(p["masses"][:, 0]) >= 0.6, "two": cp.sum(p["masses"][:, 1]) >= 0.6}
    d = diagnose(p.with_constraints(rows).with_integrality("assignment"))
    assert set(d.conflict) == {"one", "two"}
    assert d["relaxation"].numbers["alone"] == pytest.approx({"one": 0.2, "two": 0.2}, abs=1e-6)


# --- random programs -------------------------------------------------------------------------


@st.composite
def infeasible_programs(draw):
    """Rows a'x <= b of which a nonnegative combination reads 0'x <= -1, and other rows."""
    n = draw(st.integers(1, 3))
    entry = st.integers(-3, 3)
    rows = draw(st.lists(st.lists(entry, min_size=n, max_size=n), min_size=1, max_size=5))
    sides = [draw(st.integers(-4, 4)) for _ in rows]
    weights = [draw(st.integers(0, 2)) for _ in rows]
    A, b, w = np.array(rows, float), np.array(sides, float), np.array(weights, float)
    A = np.vstack([A, -(w @ A)])
    b = np.append(b, -(w @ b) - 1.0)
    order = draw(st.permutations(range(len(b))))
    return A[list(order)], b[list(order)]


def feasible(A, b):
    if not len(b):
        return True
    found = linprog(np.zeros(A.shape[1]), A_ub=A, b_ub=b, bounds=(None, None))
    assert found.status in (0, 2)
    return found.status == 0


@settings(max_examples=20)
@given(infeasible_programs())
def test_random_conflicts_are_infeasible_and_every_proper_part_is_feasible(program):
    A, b = program
    x = cp.Variable(A.shape[1], name="x")
    p = adopted({f"row {i}": A[i] @ x <= b[i] for i in range(len(b))}, cp.sum(x))
    d = diagnose(p)
    assert d.verdict == "infeasible"
    at = [int(name.split()[1]) for name in d.conflict]
    assert not feasible(A[at], b[at])
    for i in at:
        rest = [j for j in at if j != i]
        assert feasible(A[rest], b[rest])
    assert d["conflict"].numbers["smallest"]
    assert d.verify(), d.verify()
    given_together = d["relaxation"].numbers["together"]
    slack = np.array([given_together.get(f"row {i}", 0.0) for i in range(len(b))])
    assert feasible(A, b + slack + 1e-6)


# --- proofs that do not hold are rejected ----------------------------------------------------


@pytest.fixture
def conflict():
    x = cp.Variable(2, name="x")
    rows = {"demand": cp.sum(x) >= 3, "a": x[0] <= 1, "b": x[1] <= 1, "sign": x >= 0}
    found = find_conflict(System(adopted(rows), 1e-7), Clock())
    assert found.verify()
    return found


def test_a_changed_farkas_vector_is_rejected(conflict):
    # what a changed entry leaves over is paid with the bounds of the columns: only without the
    # demand, or with its sign turned, is there nothing to contradict
    for share in (0.0, -1.0):
        z = conflict.proof.z.copy()
        z[0] *= share
        assert not replace(conflict, proof=replace(conflict.proof, z=z)).verify()
    flipped = replace(conflict.proof, z=-conflict.proof.z)
    assert not replace(conflict, proof=flipped).verify()


def test_a_proof_about_other_constraints_is_rejected(conflict):
    fewer = replace(conflict, names=conflict.names[:2], irreducible=False, smallest=False)
    assert any("another problem" in r for r in fewer.verify().reasons)
    form = replace(conflict.proof.form, b=2 * conflict.proof.form.b)
    scaled = replace(conflict.proof, form=form)
    assert scaled.verify()  # true of its own data, which are not those declared
    assert not replace(conflict, proof=scaled).verify()


def test_points_that_do_not_hold_are_rejected(conflict):
    assert not replace(conflict, points=()).verify()
    moved = tuple(
        FeasiblePoint(p.system, p.names, {"x": p.values["x"] + 9.0}, p.tolerance)
        for p in conflict.points
    )
    assert not replace(conflict, points=moved).verify()
    loose = tuple(
        FeasiblePoint(p.system, conflict.system.names, p.values, 1e9) for p in conflict.points
    )
    assert not replace(conflict, points=loose).verify()


def test_a_spare_name_is_not_called_irreducible(conflict):
    wider = replace(conflict, names=(*conflict.names, "sign"), smallest=False)
    assert any("'sign' is needed" in r for r in wider.verify().reasons)


def test_a_changed_relaxation_is_rejected():
    p, _ = lp()
    evidence = diagnose(p)["relaxation"].evidence
    r = evidence.together
    values = {k: np.asarray(v, dtype=float) * 0.9 for k, v in r.solution.values.items()}
    assert not replace(r, solution=replace(r.solution, values=values)).verify()
    assert not replace(r, solution=replace(r.solution, objective=0.0)).verify()
    assert not replace(r, elastic=("near",)).verify()  # it does not hold without the other
    assert r.of("near") is None and not replace(r, elastic=("sign",)).verify()
    other = evidence.alone["near"]
    assert not replace(evidence.alone["far"], solution=other.solution).verify()


def test_what_gives_alone_in_all_is_the_least_of_it():
    """One problem answers for both, as solving for it alone does."""
    p, _ = lp()
    system, clock = (r := diagnose(p)["relaxation"].evidence.together).system, Clock(None)
    only = r.of("far")
    alone = least_relaxation(system, ("far",), clock)
    assert only.solution is r.solution and only.verify() and alone.verify()
    assert only.total("far") == pytest.approx(alone.total("far"), rel=1e-9)
    assert alone.of("far").solution is alone.solution


@pytest.mark.parametrize("unit", [1.0, 1e-9, 1e9])
def test_linear_conflicts_are_found_on_one_model(monkeypatch, unit):
    """Every question is put to the same rows; what is answered is proved on the part asked for."""
    rng = np.random.default_rng(3)
    A, x = rng.normal(size=(12, 4)), cp.Variable(4, name="x")
    rows = {f"row {i}": unit * A[i] @ x <= unit * (A[i].sum() + 0.1) for i in range(12)}
    p = adopted({**rows, "far": cp.sum(x) >= 900, "box": x <= 2, "low": x >= -2}, x[0])
    system = System(p, 1e-7)

    def never(*_, **__):
        raise AssertionError("a problem was solved for a question about linear rows")

    monkeypatch.setattr(system_module, "solve", never)
    found = find_conflict(system, Clock())
    assert set(found.names) == {"far", "box"} and found.irreducible and found.verify()
    monkeypatch.undo()
    G = np.vstack([A, -np.ones(4), np.eye(4), -np.eye(4)])
    h = np.concatenate([A.sum(axis=1) + 0.1, [-900.0], np.full(8, 2.0)])
    owner = [*rows, "far", *["box"] * 4, *["low"] * 4]
    for _ in range(10):
        names = [n for n in system.names if rng.random() < 0.6]
        held = np.isin(owner, names)
        truth = linprog(np.zeros(4), G[held], h[held], bounds=(None, None)).status
        answer = system.ask(names, Clock())
        assert answer.infeasible == (truth == 2) and set(answer.names) <= set(names)
        assert (answer.proof or answer.point).verify()


@pytest.mark.slow
def test_columns_that_follow_from_others_cost_no_proof():
    """In an irreducible conflict the columns are equations that depend on each other."""
    rng = np.random.default_rng(0)
    B = rng.integers(-9, 9, (16, 12))
    A = np.hstack([B, B @ rng.integers(-3, 3, (12, 130))]).astype(float)  # of rank 12
    y, x = rng.integers(1, 5, 16), cp.Variable(142, name="x")
    rows = {f"row {i}": A[i] @ x <= 1.0 for i in range(16)}
    d = diagnose(adopted({**rows, "sum": (y @ A) @ x >= y.sum() + 1.0}))
    assert d.verdict == "infeasible" and len(d.conflict) <= 14 and d["conflict"].verify()


def rooms(unit: float = 1.0) -> Any:
    """Return three demands on a capacity, of which any two exceed it."""
    x = cp.Variable(3, name="x")
    rows = {f"need.{i}": x[i] >= (2.0 + i) * unit for i in range(3)}
    rows |= {"capacity": cp.sum(x) <= 4.0 * unit, "sign": x >= 0}
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), list(rows.values())), list(rows))
    assert set(p.constraints) == set(rows)
    return p


@pytest.mark.parametrize("unit", [1.0, 1e-6, 1e6])
@pytest.mark.parametrize(
    ("keep", "blamed"),
    [
        ("capacity", {"need.0", "need.1", "need.2", "sign"}),
        (["need"], {"capacity", "sign"}),
        (("need.2", "need.1"), {"capacity", "sign", "need.0"}),
    ],
)
def test_what_is_kept_is_neither_blamed_nor_relaxed(keep: Any, blamed: Any, unit: float) -> None:
    p = rooms(unit)
    d = p.diagnose(keep=keep)
    assert d.verdict == "infeasible" and bool(d.verify())
    assert d.conflict and set(d.conflict) <= blamed
    conflict = d["conflict"].evidence
    assert conflict.irreducible and conflict.verify()
    assert set(d["relaxation"].numbers["alone"]) <= blamed
    given = set(d["conflict"].numbers["given"])
    assert given and not given & blamed
    # without the conflict the others, kept ones among them, have a point
    assert p.without(*d.conflict).solve().status.termination == "optimal"


def test_constraints_that_are_kept_may_exclude_each_other() -> None:
    d = rooms().diagnose(keep=["need", "capacity"])
    assert d.verdict == "infeasible" and d.conflict == () and bool(d.verify())
    assert "taken as given" in str(d)


@pytest.mark.parametrize("keep", ["needs", ["capacity", "x"], 3, [None]])
def test_names_to_keep_must_be_constraints(keep: Any) -> None:
    with pytest.raises(of.DeclarationError, match="keep"):
        rooms().diagnose(keep=keep)


@pytest.mark.parametrize("unit", [2.0**-40, 1e-9])
def test_no_subset_that_is_infeasible_in_small_units_is_called_feasible(unit: float) -> None:
    x = cp.Variable(2, name="x")
    rows = {"none": 0.0 * x[0] == unit, "low": x[0] <= 1, "high": x[0] >= 3}
    conflict = find_conflict(System(adopted(rows, x[1]), 1e-7), Clock(None))
    assert isinstance(conflict, Conflict)
    assert conflict.names == ("none",)


@pytest.mark.parametrize("unit", [2.0**-40, 2.0**-30])
def test_a_constraint_does_not_end_a_conflict_of_others_in_small_units(unit: float) -> None:
    x = cp.Variable(name="x")
    rows = {"one": unit * x == unit, "two": unit * x == 2.0 * unit, "three": x >= 3}
    relaxation = adopted(rows, x).diagnose()["relaxation"]
    assert relaxation.numbers["alone"].get("three") is None
    assert not any("give by" in remedy for remedy in relaxation.remedies)


def test_the_least_relaxation_of_rows_in_small_units_is_the_least() -> None:
    x, unit = cp.Variable(2, name="x"), 2.0**-40
    A, b = np.array([[-2.0, 1.0], [-1.0, -2.0]]), np.array([2.0, -1.0])
    rows = {
        "hard": np.array([[-1.0, -1.0], [-1.0, 0.0]]) @ x >= np.array([1.0, -2.0]),
        "small": (unit * A) @ x == unit * b,
    }
    amounts = adopted(rows, cp.sum(x)).diagnose()["relaxation"].numbers["alone"]
    assert amounts["small"] == pytest.approx(2.0 * unit, rel=1e-6)
