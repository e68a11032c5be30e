"""Rays, witnesses, scaling, limits, and how a diagnosis shows itself."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

import optfair as of
import optfair.diagnosis.system as system_module
from optfair.backends.farkas import find_ray
from optfair.cli.app import diagnose as command
from optfair.diagnosis.diagnose import diagnose
from optfair.diagnosis.report import Clock, Finding
from optfair.diagnosis.scaling import Range, measure_scaling


def adopted(rows, goal, sense=cp.Minimize):
    return of.from_cvxpy(cp.Problem(sense(goal), list(rows.values())), list(rows))


# --- unbounded -------------------------------------------------------------------------------


def unbounded(kind):
    x, t = cp.Variable(2, name="x"), cp.Variable(name="t")
    X = cp.Variable((2, 2), name="X", symmetric=True)
    two = cp.Variable(2, name="two")
    return {
        "LP": lambda: ({"cap": cp.sum(x) <= 1, "low": x[0] >= 0}, x[1], {"x"}),
        "QP": lambda: ({"cap": cp.sum(x) <= 1}, cp.square(x[0]) + x[1], {"x"}),
        "QCQP": lambda: ({"bowl": cp.sum_squares(x) <= t}, -t, {"t"}),
        "SOCP": lambda: ({"cone": cp.norm(x) <= t, "low": x[0] >= 1}, -t, {"t"}),
        "SDP": lambda: ({"psd": X >> 0, "corner": X[0, 1] == 1}, -X[1, 1], {"X"}),
        "CONIC": lambda: ({"above": cp.exp(x[0]) <= t, "low": x[0] >= -1}, -t, {"t"}),
        "power": lambda: (
            {"cone": cp.PowCone3D(x[0], x[1], t, 0.5), "equal": two == x},
            -t,
            {"x", "t", "two"},
        ),
    }[kind]()


@pytest.mark.parametrize("kind", ["LP", "QP", "QCQP", "SOCP", "SDP", "CONIC", "power"])
def test_every_class_has_its_ray(kind):
    rows, goal, moving = unbounded(kind)
    p = adopted(rows, goal)
    d = diagnose(p)
    assert d.verdict == "unbounded", d
    found = d["ray"]
    assert set(found.numbers["moving"]) == moving
    assert found.numbers["rate"] < 0
    assert found.verify(), found.verify()
    # the declared problem itself: far along the ray, still feasible and much better
    ray = found.evidence
    far = {k: np.asarray(v) + 1e4 * ray.direction[k] for k, v in ray.point.items()}
    assert all(t.relative_violation(far) < 1e-3 for t in p.constraints.values())
    start = p.objective_value(ray.point)
    assert p.objective_value(far) == pytest.approx(start + 1e4 * ray.rate, rel=1e-4, abs=1.0)


def test_a_maximisation_grows_and_integers_are_named():
    x = cp.Variable(2, name="x")
    p = adopted({"low": x >= 0}, x[0] - x[1], cp.Maximize).with_integrality("x")
    d = diagnose(p)
    assert d.verdict == "unbounded"
    assert d["ray"].numbers["direction"] == {"x": [1.0, 0.0]}
    assert d["ray"].numbers["rate"] == pytest.approx(1.0)
    assert "grows by 1 per step" in str(d)
    assert "integer again after every 1 steps" in str(d)
    assert d.verify()


def test_a_ray_of_integers_is_integer_in_steps():
    x = cp.Variable(2, name="x")
    p = adopted({"line": 2 * x[0] == 3 * x[1], "low": x >= 0}, -x[0]).with_integrality("x")
    d = diagnose(p)
    assert d.verdict == "unbounded"
    assert d["ray"].evidence.period == 3
    assert d.verify(), d.verify()


def test_a_ray_that_leaves_the_integers_proves_nothing():
    # only the origin is integer on a line of irrational slope
    x = cp.Variable(2, name="x")
    p = adopted({"line": np.sqrt(2) * x[0] == x[1], "low": x >= 0}, -x[0]).with_integrality("x")
    d = diagnose(p, time_limit=20)
    assert d.verdict != "unbounded"
    assert not d["ray"].verify()
    assert d["ray"].title.startswith("without integrality")


@pytest.mark.slow  # an outer approximation for every part that is asked
def test_names_that_look_like_ours():
    x = cp.Variable(name="x")
    p = adopted({"x integer": x >= 0.2, "domain of objective": x <= 0.9}, -cp.log(x))
    d = diagnose(p.with_integrality("x"))
    assert d.verdict == "infeasible"
    assert set(d.conflict) == {"x integer", "domain of objective", "x integer'"}


def test_nothing_to_solve():
    assert diagnose(of.from_cvxpy(cp.Problem(cp.Minimize(0), []))).verdict == "fine"
    x = cp.Variable(name="x")
    p = adopted({"low": x >= 0}, x)
    assert diagnose(p.with_terms({}, {})).verdict == "fine"
    assert diagnose(p.with_terms({}, p.constraints)).verdict == "fine"


def test_only_what_is_not_bounded_moves():
    x = cp.Variable(5, name="x")
    d = diagnose(adopted({"box": x[:4] <= 1, "low": x[:4] >= -1}, cp.sum(x)))
    assert d["ray"].numbers["direction"] == {"x": [0.0, 0.0, 0.0, 0.0, -1.0]}


def test_a_bounded_problem_has_no_ray():
    x = cp.Variable(2, name="x")
    for rows, goal in [
        ({"low": x >= 1}, cp.sum(x)),
        ({"disk": cp.norm(x) <= 1}, cp.sum(x)),
        ({"free": x[0] >= 0}, cp.sum_squares(x) + x[0]),
    ]:
        assert find_ray(adopted(rows, goal), {"x": np.ones(2)}) is None


def test_an_infeasible_problem_with_a_ray_is_infeasible():
    x = cp.Variable(2, name="x")
    d = diagnose(adopted({"low": x[0] >= 1, "high": x[0] <= 0}, x[1]))
    assert d.verdict == "infeasible"
    assert set(d.conflict) == {"low", "high"}


def test_a_tampered_ray_is_rejected():
    rows, goal, _ = unbounded("SOCP")
    ray = diagnose(adopted(rows, goal))["ray"].evidence
    assert ray.verify()
    columns = ray._compiled.form.columns
    for change in (2.0, -2.0):  # |x| = 2 is more than t = 1
        d = ray.d.copy()
        d[columns["x"].start] += change
        assert any("recession cone" in r for r in replace(ray, d=d).verify().reasons)
    still = ray.d.copy()
    still[columns["t"]] = 0.0
    assert not replace(ray, d=still).verify()
    assert not replace(ray, d=-ray.d).verify()
    assert not replace(ray, d=0 * ray.d).verify()
    assert not replace(ray, d=ray.d[:-1]).verify()
    assert not replace(ray, start=None).verify()
    assert not replace(ray, start=np.zeros(ray.d.size)).verify()
    assert not replace(ray, start=ray.start[:-1]).verify()
    x, t = ray.problem["x"], ray.problem["t"]
    assert not replace(ray, problem=ray.problem.with_constraints(cap=t + x[0] <= 50)).verify()


def test_slower_than_any_ray_is_unbounded_without_one():
    x = cp.Variable(name="x")
    d = diagnose(adopted({"low": x >= 0}, -cp.sqrt(x)))
    assert d.verdict == "unbounded" and d["unbounded"].verify()
    assert "ray" not in d


# --- not convex ------------------------------------------------------------------------------


def test_the_witness_comes_with_its_numbers():
    x = cp.Variable(2, name="x")
    d = diagnose(adopted({"out": cp.sum_squares(x) >= 1, "box": cp.abs(x) <= 2}, cp.sum(x)))
    assert d.verdict == "nonconvex"
    found = d["nonconvexity"]
    assert found.verify()
    w, points = found.numbers["witness"], found.numbers["points"]
    assert w["term"] == "out"
    assert w["first"] <= 1e-6 and w["second"] <= 1e-6
    middle = (np.array(points["first"]["x"]) + points["second"]["x"]) / 2
    assert w["midpoint"] == pytest.approx(1 - middle @ middle)


def test_a_concave_objective_has_values_at_three_points():
    x = cp.Variable(name="x")
    d = diagnose(adopted({"box": cp.abs(x) <= 2}, -cp.square(x)))
    w = d["nonconvexity"].numbers["witness"]
    assert w["midpoint"] > (w["first"] + w["second"]) / 2


def test_convex_constraints_of_a_nonconvex_problem_may_exclude_each_other():
    x = cp.Variable(2, name="x")
    rows = {"out": cp.sum_squares(x) >= 1, "low": x[0] >= 1, "high": x[0] <= 0}
    d = diagnose(adopted(rows, cp.sum(x)))
    assert d.verdict == "infeasible"
    assert set(d.conflict) == {"low", "high"}
    assert d.verify()


def test_unverified_is_not_called_nonconvex():
    # convex, but by no rule without an upper bound
    x = cp.Variable(name="x")
    d = diagnose(adopted({"low": x >= 1}, cp.exp(x) - x * x / 2))
    assert d.verdict == "unverified"
    assert d["nonconvexity"].evidence is None


# --- numbers ---------------------------------------------------------------------------------


def test_a_badly_scaled_program_is_found_and_units_are_suggested():
    money, share = cp.Variable(name="money"), cp.Variable(name="share")
    rows = {
        "budget": 1e-7 * money + share <= 1,
        "floor": money >= 1e6,
        "sign": share >= 0,
        "tiny": 1e-7 * money + 1e3 * share >= 1e-2,
    }
    d = diagnose(adopted(rows, money + 1e7 * share))
    found = d["scaling"]
    assert d.verdict == "badly scaled"
    assert found.verify()
    assert found.numbers["coefficients"] == [1e-7, 1e3]
    assert found.numbers["terms"]["tiny"] == [1e-7, 1e3]
    assert found.rows[0][:2] == ("constraint", "tiny")
    assert any("measure 'money' in units of 1e" in r for r in found.remedies)
    assert any("units explain the range" in r for r in found.remedies)
    assert "solution" in d  # and yet it was solved


def test_what_units_cannot_mend_is_said():
    x = cp.Variable(2, name="x")
    A = np.array([[1.0, 1e10], [1.0, 1.0]])
    found = diagnose(adopted({"rows": A @ x >= 1, "sign": x >= 0}, cp.sum(x)))["scaling"]
    assert any("units alone do not help" in r for r in found.remedies)
    # [[1, a], [1, 1]] balances to a^(1/4) above and below 1
    assert found.numbers["balanced"] == pytest.approx(1e10**0.5, rel=1e-3)


def test_a_plain_program_has_no_scaling_finding():
    x = cp.Variable(3, name="x")
    d = diagnose(adopted({"low": x >= 1, "sum": cp.sum(x) <= 1000}, cp.sum(x)))
    assert d.verdict == "fine"
    assert "scaling" not in d
    assert d["solution"].verify()


def test_tampered_numbers_are_rejected():
    x = cp.Variable(name="x")
    s = measure_scaling(adopted({"low": 1e-9 * x >= 1}, x), Clock())
    assert s.verify()
    assert not replace(s, matrix=Range(1.0, 1.0)).verify()


def test_repeated_rows_and_unused_variables():
    x, y, free = cp.Variable(2, name="x"), cp.Variable(name="y"), cp.Variable(name="free")
    X = cp.Variable((2, 2), name="X", symmetric=True)
    rows = {
        "one": x[0] + 2 * x[1] >= 3,
        "same": 2 * x[0] + 4 * x[1] >= 6,
        "opposite": x[0] + 2 * x[1] <= 3,
        "other": x[0] + 2 * x[1] >= 4,
        "zero": x[0] - x[1] == 1,
        "negated": x[1] - x[0] == -1,
        "psd": X >> 0,
        "trace": cp.trace(X) <= 1,
    }
    s = measure_scaling(adopted(rows, cp.sum(x) + cp.square(free)), Clock())
    assert s.copies == (("one", "same"), ("zero", "negated"))
    assert s.free == ("free",)
    p = adopted({"low": x >= 1, "y": y >= 0}, cp.sum(x)).without("y")
    assert measure_scaling(p, Clock()).unused == ("y",)


# --- limits ----------------------------------------------------------------------------------


def far_and_near():
    x = cp.Variable(2, name="x")
    rows = {f"loose {i}": x[0] <= 20 + i for i in range(5)}
    return adopted({**rows, "far": cp.sum(x) >= 10, "near": cp.norm(x) <= 1}, x[0])


@pytest.mark.parametrize("calls", [0, 1, 2, 4])
def test_an_interruption_keeps_what_was_found(monkeypatch, calls):
    solve, made = system_module.solve, []

    def stop(problem, **options):
        if len(made) == calls:
            raise KeyboardInterrupt
        made.append(problem)
        return solve(problem, **options)

    monkeypatch.setattr(system_module, "solve", stop)
    d = diagnose(far_and_near())
    assert d.stopped == "interrupted"
    assert "interrupted" in str(d)
    if calls:
        assert d.verdict == "infeasible"
        assert {"far", "near"} <= set(d.conflict)
        monkeypatch.undo()
        assert d["conflict"].verify(), "what is claimed must hold, however little it is"
    if calls == 1:
        assert not d["conflict"].numbers["irreducible"]
        assert {"far", "near"} <= set(d["conflict"].numbers["unsure"])


def test_a_solver_that_stops_without_raising_counts_as_interrupted(monkeypatch):
    solve = system_module.solve

    def stop(problem, **options):
        found = solve(problem, **options)
        return replace(found, status=replace(found.status, termination="interrupted"))

    monkeypatch.setattr(system_module, "solve", stop)
    d = diagnose(far_and_near())
    assert d.stopped == "interrupted"
    assert not d["conflict"].numbers["irreducible"]


@pytest.mark.parametrize("calls", [1, 2, 4])
def test_a_time_limit_ends_it(monkeypatch, later, calls):
    solve, made = system_module.solve, []

    def counted(problem, **options):
        made.append(options["time_limit"])
        if len(made) == calls:
            later(2000.0)
        return solve(problem, **options)

    monkeypatch.setattr(system_module, "solve", counted)
    d = diagnose(far_and_near(), time_limit=1000.0)
    assert len(made) == calls and max(made) <= 1000.0
    assert d.stopped == "time_limit"
    assert d.verdict in ("unknown", "infeasible")


@pytest.mark.parametrize("options", [{"tolerance": 0.0}, {"tolerance": "x"}, {"time_limit": -1}])
def test_bad_options_are_refused(options):
    with pytest.raises(of.DataError):
        diagnose(far_and_near(), **options)


def test_only_problems_are_diagnosed():
    with pytest.raises(of.DeclarationError, match="not a declared problem"):
        diagnose(3)
    x = cp.Variable(name="x")
    assert diagnose(cp.Problem(cp.Minimize(x), [x >= 1, x <= 0])).verdict == "infeasible"


def test_a_weak_conflict_is_proved_without_a_farkas_vector():
    # [[0, 1], [1, z]] is never positive semidefinite, yet no Farkas vector exists
    X = cp.Variable((2, 2), name="X", symmetric=True)
    rows = {"psd": X >> 0, "corner": X[0, 1] == 1, "zero": X[0, 0] == 0}
    d = diagnose(adopted(rows, cp.trace(X)))
    assert d.verdict == "weakly infeasible" and set(d.conflict) == set(rows)
    assert d["conflict"].numbers["proved"] and d["conflict"].verify()
    assert "no strictly separating certificate exists" in str(d)


# --- how it shows itself ---------------------------------------------------------------------


def test_text_table_and_json():
    d = diagnose(far_and_near())
    text = str(d)
    assert text == repr(d)
    assert text.startswith("Diagnosis of CVXPY problem, SOCP: infeasible")
    assert "'far', 'near'" in text and "least relaxation" in text
    stream = io.StringIO()
    Console(file=stream, width=120).print(d)
    shown = stream.getvalue()
    assert "far" in shown and "8.58579" in shown
    record = json.loads(json.dumps(d.to_dict(), allow_nan=False))
    assert record["verdict"] == "infeasible"
    assert [f["kind"] for f in record["findings"]][:2] == ["conflict", "relaxation"]
    assert all(f["verified"] for f in record["findings"])
    with pytest.raises(of.DeclarationError, match="did you mean 'conflict'"):
        d["conflicts"]


def test_a_remark_without_evidence_does_not_verify():
    assert not Finding("unknown", "something").verify()


@pytest.fixture
def run():
    app = typer.Typer()
    app.command()(command)
    return lambda *words: CliRunner().invoke(app, list(words))


def test_the_command(run):
    fine = run("textbook/diet")
    assert fine.exit_code == 0, fine.output
    assert "fine" in fine.stdout
    assert run("no such instance").exit_code == 2


@pytest.mark.data
def test_the_command_on_rules_that_exclude_each_other(run):
    bad = run("fair_clustering/infeasible_rules", "--json")
    assert bad.exit_code == 1
    record = json.loads(bad.stdout)
    assert record["verdict"] == "infeasible"
    names = record["findings"][0]["numbers"]["names"]
    assert sorted(names) == ["capacity.upper", "share.lower"]


@pytest.mark.parametrize("unit", [1e-14, 1e-10, 1e-8, 1e9])
@pytest.mark.parametrize("goal", ["affine", "quadratic"])
def test_a_conflict_is_one_in_any_unit_of_the_data(unit: float, goal: str) -> None:
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    cost = -y if goal == "affine" else x**2 - y
    rows = [x <= unit, x >= 2 * unit]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cost), rows), ["most", "least"])
    d = p.diagnose()
    assert d.verdict == "infeasible" and d.conflict == ("most", "least") and d.verify()
    amounts = d["relaxation"].numbers["alone"]
    assert amounts == pytest.approx({"most": unit, "least": unit}, rel=1e-6, abs=0.0)


def test_a_ray_is_none_without_a_point_that_is_proved() -> None:
    x, k = cp.Variable(name="x"), cp.Variable(name="k", integer=True)
    rows = [x + k <= 0.1 + k, x >= 0.1 + 1e-11, k >= 0]
    d = of.from_cvxpy(cp.Problem(cp.Minimize(-k), rows)).diagnose()
    assert d.verdict != "unbounded" and "may improve" in d["ray"].title and not d.verify()
    tiny = of.from_cvxpy(cp.Problem(cp.Minimize(-k), [x <= 1e-14, x >= 2e-14, k >= 0])).diagnose()
    assert tiny.verdict == "infeasible" and tiny.verify()


def test_few_variables_are_excluded_over_boxes_though_rows_are_not_convex():
    x = cp.Variable(2, name="x")
    rows = {"product": x[0] * x[1] >= 4, "high": x <= 1.5, "low": x >= 0, "loose": x[0] <= 9}
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x[0]), [*rows.values()]), [*rows])
    d = p.diagnose()
    assert d.verdict == "infeasible" and d.conflict == ("product", "high", "low")
    assert d["conflict"].verify() and d.verify()
    assert p.diagnose(keep=["product", "loose"]).conflict == ("high", "low")
    some = p.without("high").with_constraints(wide=x <= 3).diagnose()
    assert some.verdict == "unverified" and not some.conflict
    assert p.diagnose(time_limit=1e-3).verdict == "unverified"
