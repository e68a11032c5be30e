"""The one compiled form: CVXPY's own numbers, with an owner for every row and column."""

from __future__ import annotations

import gc
import importlib.util
import itertools
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from cvxpy.reductions.dcp2cone.dcp2cone import Dcp2Cone
from cvxpy.reductions.solvers.conic_solvers.clarabel_conif import CLARABEL
from cvxpy.reductions.solvers.defines import SOLVER_MAP_CONIC

import optfair as of
from optfair.compile import form as form_module
from optfair.compile.export import arranged
from optfair.compile.form import Compiled, compile_problem
from optfair.proofs.cones import Cone
from optfair.solution.conic_form import ConicForm

INTERFACES = ["CLARABEL", "SCS", "HIGHS", "OSQP", "PIQP", "SCIPY", "QPALM"]


def linear() -> cp.Problem:
    x, y = cp.Variable(3, name="x"), cp.Variable((2, 2), name="y")
    rows = [x <= 1, x @ [1, 2, 3] == 2, y[0, :] >= x[:2], cp.sum(y, axis=0) <= 5]
    return cp.Problem(cp.Maximize(cp.sum(x) - cp.sum(y)), rows)


def piecewise() -> cp.Problem:
    x = cp.Variable(4, name="x")
    return cp.Problem(cp.Minimize(cp.norm1(x) + cp.max(x)), [cp.sum(x) == 3, cp.norm_inf(x) <= 2])


def quadratic() -> cp.Problem:
    x = cp.Variable(3, name="x")
    return cp.Problem(cp.Minimize(cp.sum_squares(x - 1) + cp.norm1(x) + 7.0), [x >= 0.2])


def cones() -> cp.Problem:
    x, t = cp.Variable(3, name="x"), cp.Variable(2, name="t")
    X = cp.vstack([x, 2 * x + 1]).T
    return cp.Problem(cp.Minimize(cp.sum(t)), [cp.SOC(t, X), cp.norm(x - 1) <= 2, t <= 9])


def matrices() -> cp.Problem:
    X = cp.Variable((3, 3), symmetric=True, name="X")
    D = cp.Variable((2, 2), diag=True, name="D")
    W = cp.Variable((2, 3), sparsity=([0, 1], [1, 2]), name="W")
    rows = [X >> np.eye(3), X[0, 1] == 0.5, D[0, 0] >= 1, cp.trace(D) <= 5]
    goal = cp.trace(X) + cp.sum_squares(X) + cp.sum(D) + cp.sum(W)
    return cp.Problem(cp.Minimize(goal), [*rows, cp.lambda_max(X) <= 9, W >= -1])


def exponentials() -> cp.Problem:
    x = cp.Variable(3, name="x")
    rows = [x @ [1, 2, 3] <= 6, cp.geo_mean(x) >= 0.1, cp.power(x[0], 3) <= 5]
    return cp.Problem(cp.Maximize(cp.sum(cp.log(x)) + cp.entr(x[1])), [*rows, cp.pnorm(x, 3) <= 4])


def powers() -> cp.Problem:
    x, t = cp.Variable(3, name="x"), cp.Variable(name="t")
    return cp.Problem(cp.Maximize(t), [cp.PowCone3D(x[0], x[1], t, 0.3), cp.sum(x) <= 3, x >= 0])


PROBLEMS = {
    f.__name__: f for f in (linear, piecewise, quadratic, cones, matrices, exponentials, powers)
}


def dense(value: Any) -> Any:
    return np.asarray(value.toarray() if sp.issparse(value) else value)


@pytest.mark.filterwarnings("ignore:Power atom|.*Initializing a Constant|.*sparse")
@pytest.mark.parametrize("interface", INTERFACES)
@pytest.mark.parametrize("name", PROBLEMS)
def test_the_numbers_are_cvxpys(name: str, interface: str) -> None:
    """Where terms share no atom, the blocks put together are what CVXPY makes of the whole."""
    p = of.from_cvxpy(PROBLEMS[name]())
    try:
        theirs = p.cvxpy.get_problem_data(interface)[0]
    except cp.error.SolverError:
        with pytest.raises(of.UnsupportedProblem, match=interface):
            compile_problem(p, interface)
        return
    ours = compile_problem(p, interface).handed[0]
    compared = [k for k in "cqPAbFGh" if theirs.get(k) is not None]
    assert "A" in compared and {"c", "q"} & set(compared)
    for key in compared:
        assert np.array_equal(dense(ours[key]), dense(theirs[key])), key
    assert vars(ours["dims"]) == vars(theirs["dims"])


@pytest.mark.filterwarnings("ignore:Power atom|.*sparse")
@pytest.mark.parametrize("name", PROBLEMS)
def test_every_row_and_column_has_an_owner(name: str) -> None:
    p = of.from_cvxpy(PROBLEMS[name]())
    c = compile_problem(p, "CLARABEL")
    ends = [0, *(o.stop for o in c.owners)]
    assert [o.start for o in c.owners] == ends[:-1] and ends[-1] == c.form.b.size
    bound = {o.term for o in c.owners if o.bound}
    assert bound == set(p.constraints)
    assert {o.term for o in c.owners if not o.bound} <= set(p.objective)
    covered = [np.arange(at.start, at.stop) for at in c.form.columns.values()]
    covered += [np.arange(start, stop) for _, start, stop in c.auxiliary]
    assert np.array_equal(np.sort(np.concatenate(covered)), np.arange(c.form.q.size))
    # a row of a term meets its own auxiliary columns only
    A = sp.csr_array(c.form.A)
    for term, start, stop in c.auxiliary:
        rows = np.unique(sp.coo_array(A[:, start:stop]).row)
        owners = {
            o.term
            for o in c.owners
            if (rows >= o.start).any() and (rows[rows >= o.start] < o.stop).any()
        }
        assert owners <= {term}, term


def shared() -> tuple[cp.Problem, list[str]]:
    x = cp.Variable(2, name="x")
    size = cp.norm1(x)
    rows = [size <= 5, size + x[0] <= 6, x >= -9, x <= 9]
    return cp.Problem(cp.Minimize(size - 10 * x[0]), rows), ["cap", "one", "low", "up"]


def shared_cones() -> tuple[cp.Problem, list[str]]:
    x = cp.Variable(3, name="x")
    size, far = cp.norm(x), cp.norm(x - 2)
    rows = [size <= 3, size + x[0] <= 2, far <= 4, size + far <= 6, x >= -9]
    return cp.Problem(cp.Minimize(far - x[1]), rows), ["a", "b", "c", "d", "low"]


def shared_exponentials() -> tuple[cp.Problem, list[str]]:
    x = cp.Variable(2, name="x")
    e = cp.exp(x)
    rows = [cp.sum(e) <= 5, e[0] + x[1] <= 2, e[1] <= 3, x >= -9]
    return cp.Problem(cp.Maximize(cp.sum(x) - e[0]), rows), ["sum", "mix", "one", "low"]


@pytest.mark.parametrize("make", [shared, shared_cones, shared_exponentials])
def test_terms_taken_away(make: Any) -> None:
    """Epigraphs leave with their owner: what is left is the problem without the term."""
    problem, names = make()
    p = of.from_cvxpy(problem, names)
    compile_problem(p, "CLARABEL")  # all together, first
    for count in range(len(names) - 1):
        for gone in itertools.combinations(names[:-1], count):
            q = p.without(*gone) if gone else p
            kept = [c for c, n in zip(problem.constraints, names, strict=True) if n not in gone]
            truth = cp.Problem(problem.objective, kept).solve(solver="CLARABEL")
            assert q.solve("clarabel").objective == pytest.approx(truth, rel=1e-6, abs=1e-6), gone


def test_terms_put_back_and_added_reuse_their_matrices(counted: dict[str, int]) -> None:
    problem, names = shared_cones()
    p = of.from_cvxpy(problem, names)
    whole = compile_problem(p, "CLARABEL")
    stuffed = counted["stuffed"]
    again = p.without("b").with_terms(p.objective, p.constraints)
    same = compile_problem(again, "CLARABEL")
    assert counted["stuffed"] == stuffed
    assert abs(whole.form.A - same.form.A).max() == 0.0 and np.array_equal(
        whole.form.b, same.form.b
    )
    more = p.with_constraints(extra=cp.norm(p["x"] + 1) <= 8)
    rows = compile_problem(more, "CLARABEL")
    assert counted["stuffed"] == stuffed + 1
    assert rows.form.b.size > whole.form.b.size and rows.rows("extra").size >= 5
    fresh = of.from_cvxpy(more.cvxpy, list(more.constraints))
    truth = compile_problem(fresh, "CLARABEL")
    assert more.solve("clarabel").objective == pytest.approx(fresh.solve("clarabel").objective)
    assert np.array_equal(np.sort(np.abs(rows.form.A.data)), np.sort(np.abs(truth.form.A.data)))


def test_one_constraint_under_two_names() -> None:
    x = cp.Variable(2, name="x")
    c = cp.norm1(x - 1) <= 1
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= -5]), ["low"])
    twice = p.with_constraints(a=p_rows(p, c, x), b=p_rows(p, c, x), plain=p["x"] <= 4)
    same = twice.with_terms(
        twice.objective,
        {
            **twice.constraints,
            "again": replace(twice.constraints["a"], name="again"),
            "plain again": replace(twice.constraints["plain"], name="plain again"),
        },
    )
    compiled = compile_problem(same, "CLARABEL")
    for one, other in (("a", "again"), ("a", "b"), ("plain", "plain again")):
        assert compiled.rows(one).size == compiled.rows(other).size > 0
        assert not set(compiled.rows(one)) & set(compiled.rows(other))
    s = same.solve("clarabel")
    assert s.objective == pytest.approx(1.0, abs=1e-6)
    assert set(s.multipliers) == {"low", "a", "b", "plain", "again", "plain again"}


def p_rows(p: Any, constraint: Any, x: Any) -> Any:
    return constraint.tree_copy(id_objects={id(x): p["x"]})


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Count roots that CVXPY reduces and calls of its stuffing, as the benchmark does."""
    path = Path(__file__).parents[2] / "benchmarks" / "compiled_form.py"
    spec = importlib.util.spec_from_file_location("compiled_form", path)
    benchmark = importlib.util.module_from_spec(spec)
    monkeypatch.syspath_prepend(path.parent)
    spec.loader.exec_module(benchmark)
    with benchmark.counted() as counts:
        yield counts


def test_every_verb_stands_on_one_compilation(counted: dict[str, int], tmp_path: Any) -> None:
    problem, names = shared_cones()
    p = of.from_cvxpy(problem, names)
    p.explain()
    s = p.solve("clarabel")
    p.solve("clarabel", tolerance=1e-6)
    p.solve("scs", tolerance=1e-4)
    p.diagnose()
    p.export(tmp_path / "a.cbf")
    assert dict(s.shadow_price) and s.certificate.verify() and s.is_optimal(1e-6)
    # the last row needs no reduction, the others and the objective one each
    assert counted == {"reduced": len(names), "stuffed": 1}


def test_classes_need_no_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> Any:
        raise AssertionError("matrices were made")

    monkeypatch.setattr(form_module, "stuff", refused)
    x = cp.Variable(10**6, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= 0]), ["low"])
    q = p.with_constraints(ball=cp.norm(p["x"]) <= 1, up=p["x"] <= 1)
    assert str(p.problem_class) == "LP" and str(q.problem_class) == "SOCP"
    assert q.explain_change(p)


def test_what_breaks_the_rules_is_named() -> None:
    x = cp.Variable(2, name="x")
    rows = [cp.log(cp.sum_squares(x)) <= 2, x >= 0]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), rows), ["odd", "low"])
    with pytest.raises(of.UnsupportedProblem) as failure:
        compile_problem(p, "CLARABEL")
    assert "'odd'" in failure.value.cause
    assert "quad_over_lin(x" in failure.value.evidence
    assert failure.value.remedy


def test_parts_without_entries() -> None:
    x = cp.Variable(3, name="x")
    nothing = np.zeros((0, 3)) @ x
    rows = [cp.hstack([nothing, x]) >= 1, nothing <= 2]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), rows), ["joined", "none"])
    compiled = compile_problem(p, "CLARABEL")
    assert compiled.rows("none").size == 0 and compiled.rows("joined").size == 3
    s = p.solve("clarabel")
    assert s.objective == pytest.approx(3.0) and s.multipliers["none"].shape == (0,)


class Turned(CLARABEL):
    """An interface that lists exponential cones in another order."""

    EXP_CONE_ORDER = (2, 0, 1)  # type: ignore[assignment]


def test_an_interface_with_its_own_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOLVER_MAP_CONIC, "TURNED", Turned())
    p = of.from_cvxpy(exponentials())
    plain, turned = compile_problem(p, "CLARABEL"), compile_problem(p, "TURNED")
    assert abs(plain.form.A - turned.form.A).max() == 0.0
    A, B = plain.handed[0]["A"].toarray(), turned.handed[0]["A"].toarray()
    exp = next(c for c in plain.form.cones if c.kind == "exp")
    assert not np.array_equal(A, B)
    for i, at in enumerate(Turned.EXP_CONE_ORDER):
        assert np.array_equal(A[exp.start + i], B[exp.start + at])

    class Raw:
        def __init__(self, c: Compiled, z: Any) -> None:
            self.dual_vars, at = {}, 0
            for one in c._canonical:
                size = form_module.height(one)
                self.dual_vars[one.id] = z[at : at + size]
                at += size

    z = np.random.default_rng(0).normal(size=plain.form.b.size)
    told = z.copy()
    for c in plain.form.cones:
        if c.kind == "exp":
            told[c.start + np.array(Turned.EXP_CONE_ORDER)] = z[c.start : c.stop]
    assert np.array_equal(turned.dual_vector(Raw(turned, told), turned.interface), z)
    assert plain.dual_vector(Raw(plain, z[:-1]), plain.interface) is None


def test_the_next_solve_starts_where_the_last_ended() -> None:
    rng = np.random.default_rng(0)
    x = cp.Variable(30, name="x")
    A, inside = rng.normal(size=(80, 30)), rng.random(30)
    goal = -A.T @ rng.random(80)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(goal @ x), [A @ x <= A @ inside + 1]), ["rows"])
    first = p.solve("highs")
    compiled = compile_problem(p, "HIGHS")
    assert set(compiled.ended) == {"highs", "highs cold"}
    second = p.solve("highs")
    assert second.objective == pytest.approx(first.objective, rel=1e-12) and second.is_optimal()
    assert compile_problem(p, "HIGHS") is compiled
    assert (
        compile_problem(p.without("rows").with_constraints(r=A @ p["x"] <= 1), "HIGHS").ended == {}
    )


def test_what_is_compiled_dies_with_its_problem() -> None:
    p = of.FairAssignment(np.eye(6), groups=[0, 1] * 3, centers=np.eye(6)[:2])
    compiled, term = compile_problem(p, "CLARABEL"), next(iter(p.constraints.values()))
    problem, form, build = weakref.ref(p), weakref.ref(compiled), weakref.ref(term)
    child = p.with_constraints(cap=p["masses"][0, 0] <= 0.4)
    assert compile_problem(child, "CLARABEL") is not compiled
    assert compile_problem(p, "CLARABEL") is compiled
    del p, compiled, term
    gc.collect()
    assert form() is None
    del child
    gc.collect()
    assert problem() is None and build() is None


def test_what_has_no_cones_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(self: Any, *args: Any, **more: Any) -> Any:
        raise NotImplementedError("no such cone")

    monkeypatch.setattr(Dcp2Cone, "canonicalize_tree", refuses)
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= 0]), ["low"])
    q = p.with_constraints(plain=p["x"] <= 4)
    with pytest.raises(of.UnsupportedProblem) as failure:
        q.with_constraints(odd=cp.norm(p["x"]) <= 2)
    assert "'odd'" in failure.value.cause and "no such cone" in failure.value.evidence


@pytest.mark.parametrize("interface", ["CLARABEL", "SCS"])
def test_every_row_lies_in_a_cone(interface: str) -> None:
    """Longer power cones become cones of three entries: no row is left without a distance."""
    x, z = cp.Variable(4, name="x"), cp.Variable(name="z")
    S = cp.Variable((3, 3), symmetric=True, name="S")
    alpha = np.array([0.1, 0.2, 0.3, 0.4])
    goal = z + cp.geo_mean(x, approx=False) - cp.trace(S)
    rows = [cp.PowConeND(x, z, alpha), cp.sum(x) <= 8, x >= 0.1, S >> np.eye(3), cp.exp(x[0]) <= 9]
    p = of.from_cvxpy(cp.Problem(cp.Maximize(goal), rows))
    form = compile_problem(p, interface).form
    ends = [(c.start, c.stop) for c in form.cones]
    assert [start for start, _ in ends] == [0, *(stop for _, stop in ends[:-1])]
    assert ends[-1][1] == form.b.size == form.A.shape[0]
    s = p.solve(interface.lower(), tolerance=1e-5)
    assert s.objective == pytest.approx(
        cp.Problem(cp.Maximize(goal), rows).solve("CLARABEL"), rel=1e-4
    )


def test_a_matrix_of_power_cones_has_each_its_exponent_and_its_multipliers() -> None:
    x, y, z = (cp.Variable((2, 3), name=name) for name in "xyz")
    alpha, most = np.array([[0.1, 0.9, 0.3], [0.5, 0.2, 0.6]]), np.array([[4.0, 1, 2], [1, 3, 1]])
    rows = [cp.PowCone3D(x, y, z, alpha), x <= most, y <= 5 - most]
    problem = cp.Problem(cp.Maximize(cp.sum(z)), rows)
    s = of.from_cvxpy(problem).solve(write_back=True)
    reached = most**alpha * (5 - most) ** (1 - alpha)
    np.testing.assert_allclose(s["z"], reached, rtol=1e-5)
    assert s.objective == pytest.approx(reached.sum(), rel=1e-7) and s.grade.word == "proved"
    np.testing.assert_allclose(rows[0].dual_value[0], alpha * reached / most, rtol=1e-4)
    with pytest.raises(of.Infeasible):
        of.from_cvxpy(cp.Problem(cp.Minimize(0), [*rows, z >= 1.1 * reached])).solve()


def sided(row: float) -> tuple[Compiled, dict[str, Any]]:
    x, y = cp.Variable(2, name="x"), cp.Variable(name="y")
    rows = [row * x <= row * np.array([0.0, 3.0]), row * (x[0] - y) == 0, x <= 1e9]
    rows += [cp.norm(row * x) <= row * y, cp.SOC(row * y, row * x), y <= 1]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(y - cp.sum(x)), rows))
    return compile_problem(p, "CLARABEL"), {"x": np.array([0.25, 0.5]), "y": 0.75}


def test_a_cone_of_two_numbers_has_its_multipliers() -> None:
    t, x = cp.Variable(name="t"), cp.Variable(name="x")
    cone = cp.SOC(t + 1, 2 * x - 1)  # both of no dimension
    p = of.from_cvxpy(cp.Problem(cp.Minimize(t - 0.5 * x), [cone, x <= 2]), ["cone", "most"])
    s = p.solve()
    assert s.grade.word == "proved" and s["x"] == pytest.approx(0.5, abs=1e-6)
    assert s.multipliers["cone"] == pytest.approx([1.0, -0.25], abs=1e-6)
    assert s.multipliers["most"] == pytest.approx(0.0, abs=1e-6)


def test_an_entry_without_a_right_hand_side_is_as_large_as_its_terms() -> None:
    (one, point), (many, _) = sided(1.0), sided(1e6)
    for name, least in (("c0", 0.5), ("c1", 0.5 + 0.75), ("c4", 0.75)):
        size, scaled = one.entry_sizes(name, point), many.entry_sizes(name, point)
        # in the units of the row, and however wide the box, not beyond the numbers of the point
        assert np.all(size <= least) and size.max() > 0.0, name
        assert np.allclose(scaled, 1e6 * size, rtol=1e-6), name
    assert one.entry_sizes("c0", point).tolist()[1] == 0.0  # its side tells its unit
    assert not one.entry_sizes("c2", point).any() and not one.entry_sizes("c5", point).any()
    nothing = {name: 0.0 * np.asarray(value) for name, value in point.items()}
    assert not any(np.any(many.entry_sizes(name, nothing)) for name in many.constraints)


def test_programs_without_squares_are_compiled_once_for_a_cone_solver() -> None:
    x = cp.Variable(3, name="x")
    for cost, same in ((cp.sum(x), True), (cp.norm(x), True), (cp.sum_squares(x), False)):
        problem = of.from_cvxpy(cp.Problem(cp.Minimize(cost), [x >= 1]))
        plain = compile_problem(problem, "CLARABEL", quadratic=False)
        assert (compile_problem(problem, "CLARABEL") is plain) == same


def test_every_row_is_in_its_cone() -> None:
    x, X = cp.Variable(3, name="x"), cp.Variable((2, 2), symmetric=True, name="X")
    rows = [
        x[0] == 1,
        x >= -1,
        cp.norm(x) <= 5,
        X >> 0,
        cp.constraints.ExpCone(x[:2], x[:2], x[1:]),
        cp.constraints.PowCone3D(x[0], x[1], x[2], 0.3),
    ]
    form = compile_problem(of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), rows)), "CLARABEL").form
    kinds = [(c.kind, c.stop - c.start) for c in form.cones]
    assert kinds == [
        *(("zero", 1), ("nonneg", 4), ("soc", 4), ("psd", 3)),
        *(("exp", 3), ("exp", 3), ("pow", 3)),
    ]
    assert form.cones[-1].power == 0.3 and form.cones[-1].stop == form.b.size


@pytest.mark.parametrize("apart", [False, True])
def test_numbers_stand_in_what_an_interface_was_handed_unless_it_changes_any(apart: bool) -> None:
    cones = Cone("zero", 0, 1), Cone("zero", 1, 2), Cone("nonneg", 2, 3)
    A, P = sp.csc_array(np.arange(1.0, 7.0).reshape(3, 2)), sp.csc_array(np.eye(2))
    first = ConicForm(P, np.array([1.0, 2.0]), 0.0, A, np.array([3.0, 4.0, 5.0]), cones)
    then = replace(first, q=np.array([-1.0, 7.0]), b=np.array([6.0, 8.0, 9.0]))
    b, c = first.b, first.q
    data: dict[str, Any] = {"A": A, "b": b, "c": c, "P": P, "dims": "as they are"}
    if apart:
        data |= {"A": A[:2], "b": b[:2], "F": A[2:], "G": b[2:], "q": c}
    found = arranged(first, data, then, None)
    assert found is not None and found["dims"] == "as they are" and found["A"] is data["A"]
    sides = np.append(found["b"], found["G"]) if apart else found["b"]
    assert sides.tolist() == [6.0, 8.0, 9.0]
    assert found["q" if apart else "c"].tolist() == [-1.0, 7.0]
    for name in {*data} - {"dims", *("c" if apart else "")}:
        assert arranged(first, data | {name: -data[name]}, then, None) is None, name
    longer = sp.vstack([data["A"], sp.csc_array((1, 2))], format="csc")
    assert arranged(first, data | {"A": longer}, then, None) is None
