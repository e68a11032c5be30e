"""A problem from a file: one vector, few terms, and every entry by its label."""

from __future__ import annotations

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp

import optfair as of
from optfair.compile.form import _of_numbers, compile_problem
from optfair.compile.program import program
from optfair.formats.file_problem import FileProblem
from optfair.formats.file_terms import GATHERED
from optfair.formats.mps import read_mps

MPS = """\
NAME labels
ROWS
 N cost
 L CAP
 G NEED
 E MIX
 L pair[0]
 L pair[1]
COLUMNS
    make[0] cost 3 CAP 1
    make[0] NEED 1 pair[0] 1
    make[1] cost 2 CAP 1
    make[1] NEED 2 pair[1] 1
    STOCK cost 0.5 MIX 1
    M1 'MARKER' 'INTORG'
    lots cost 1 MIX -2
    M2 'MARKER' 'INTEND'
RHS
    r CAP 8 NEED 6
    r pair[0] 3 pair[1] 2
    r MIX 1
RANGES
    r CAP 6
BOUNDS
 UP b STOCK 9
 UP b lots 4
ENDATA
"""


@pytest.fixture
def p(tmp_path):
    file = tmp_path / "p.mps"
    file.write_text(MPS)
    return of.read(file)


def test_columns_are_two_vectors(p):
    assert {k: v.shape for k, v in p.variables.items()} == {
        "columns": (3,),
        "integer columns": (1,),
    }
    assert p.integers == {"integer columns"} and isinstance(p, FileProblem)
    assert p.entry_labels("columns") == ["make[0]", "make[1]", "STOCK"]
    assert {k: p[k].shape for k in p.arrays} == {"make": (2,), "STOCK": (), "lots": ()}
    assert p["make[1]"].shape == () and p["columns"] is p.variables["columns"]
    with pytest.raises(of.DeclarationError, match=r"no variable or column 'mark'(.|\n)*'make'"):
        p["mark"]


def test_terms_state_the_rows_exactly(p):
    assert list(p.constraints) == [
        *("CAP lower", "CAP upper", "NEED", "MIX", "pair"),
        *("make lower", "STOCK lower", "STOCK upper", "lots lower", "lots upper"),
    ]
    rows = program(p)
    labels = [label for b in rows.rows for label in b.labels]
    assert labels[:6] == ["CAP lower", "CAP upper", "NEED", "MIX", "pair[0]", "pair[1]"]
    columns = [label for b in rows.columns for label in b.labels]
    assert columns == ["make[0]", "make[1]", "STOCK", "lots"]
    assert rows.A.toarray()[:6].tolist() == [
        [1.0, 1.0, 0.0, 0.0],
        [1.0, 1.0, 0.0, 0.0],
        [1.0, 2.0, 0.0, 0.0],
        [0.0, 0.0, 1.0, -2.0],
        [1.0, 0.0, 0.0, 0.0],
        [0.0, 1.0, 0.0, 0.0],
    ]
    assert str(p.problem_class) == "MILP"
    for name, term in p.constraints.items():
        built = of.from_cvxpy(cp.Problem(cp.Minimize(0), [term.build()]), [name])
        # what is stated is what an analysis finds
        assert str(built.constraints[name].evidence) == str(term.evidence)
        assert np.array_equal(built.constraints[name].scale, term.scale)
        assert built.constraints[name].shape == term.shape
        assert len(term.labels()) == int(np.prod(term.shape))


@pytest.mark.parametrize("name", ["integers", "columns only", "an empty row", "gathered"])
def test_numbers_of_terms_are_those_of_what_they_build(name, tmp_path, monkeypatch):
    """Rows are compiled without CVXPY: the form and its multipliers are those of CVXPY's."""
    text = MPS
    if name == "columns only":
        text = text.replace("    M1 'MARKER' 'INTORG'\n", "").replace(
            "    M2 'MARKER' 'INTEND'\n", ""
        )
    elif name == "an empty row":
        text = text.replace(" E MIX\n", " E MIX\n G NOTHING\n").replace(
            "r MIX 1", "r MIX 1 NOTHING -2"
        )
    elif name == "gathered":
        names = [f"row {chr(97 + k // 26)}{chr(97 + k % 26)}".replace(" ", "_") for k in range(99)]
        text = text.replace(" E MIX\n", " E MIX\n" + "".join(f" L {r}\n" for r in names))
        more = "".join(f"    STOCK {r} {k + 1}\n" for k, r in enumerate(names))
        text = text.replace("    STOCK cost 0.5 MIX 1\n", "    STOCK cost 0.5 MIX 1\n" + more)
    file = tmp_path / "p.mps"
    file.write_text(text)
    one = of.read(file)
    interface = "HIGHS" if one.integers else "CLARABEL"
    compiled = compile_problem(one, interface)
    assert all(part.numbers is not None for part in map(_of_numbers, one.constraints.values()))
    prices = {} if one.integers else one.solve().multipliers
    monkeypatch.setattr("optfair.compile.form._of_numbers", lambda *_, **__: None)
    other = of.read(file)
    generic = compile_problem(other, interface)
    assert generic.form.cones == compiled.form.cones
    assert (generic.form.A != compiled.form.A).nnz == 0
    np.testing.assert_array_equal(generic.form.b, compiled.form.b)
    plain = {} if one.integers else other.solve().multipliers
    assert prices.keys() == plain.keys() and bool(prices) != bool(one.integers)
    for key in prices:
        np.testing.assert_allclose(prices[key], plain[key], atol=1e-9)
        assert np.shape(prices[key]) == np.shape(plain[key]) == one.constraints[key].shape


def test_violations_are_those_of_the_constraints(p):
    rng = np.random.default_rng(0)
    for _ in range(5):
        values = {k: rng.normal(size=v.shape) * 5 for k, v in p.variables.items()}
        by_array = {k: p.labelled(values, "values")[k] for k in p.arrays}
        for term in p.constraints.values():
            constraint = term.build()
            for v in constraint.variables():
                v.value = values[v.name()]
            expected = constraint.violation()
            for v in constraint.variables():
                v.value = None
            assert np.allclose(term.violation(values), np.abs(expected), rtol=1e-14, atol=1e-14)
            assert np.array_equal(term.violation(by_array), term.violation(values))
        assert p.objective_value(by_array) == p.objective_value(values)


def test_solutions_answer_to_labels(p):
    s = p.solve()
    # 3 a + 2 b with a + 2 b >= 6, b <= 2; stock = 1 + 2 lots
    assert s.objective == pytest.approx(3 * 2 + 2 * 2 + 0.5)
    assert s["make"] == pytest.approx([2.0, 2.0]) and s["make[1]"] == pytest.approx(2.0)
    assert s["lots"] == pytest.approx(0.0) and s["STOCK"] == pytest.approx(1.0)
    assert set(s.values) == {"columns", "integer columns"}
    with pytest.raises(of.DeclarationError, match="no value 'nobody'"):
        s["nobody"]


def test_rows_answer_in_multipliers_and_prices(p):
    continuous = FileProblem(relaxed(p.rows), "relaxed")
    s = continuous.solve(tolerance=1e-9)
    price = s.shadow_price
    assert price["NEED"] == pytest.approx(3.0) and price["pair[1]"] == pytest.approx(-4.0)
    assert price["pair"] == pytest.approx([0.0, -4.0], abs=1e-9)
    assert price["MIX"] == pytest.approx(0.5)
    assert price["CAP"] == pytest.approx(0.0, abs=1e-9)  # both sides are idle
    assert s.multipliers["NEED"] == pytest.approx(3.0)
    assert s.multipliers["pair[1]"] == pytest.approx(4.0)
    assert s.multipliers["CAP upper"] == pytest.approx(0.0, abs=1e-9)
    assert "NEED" in s.multipliers and "nobody" not in s.multipliers
    assert s.multipliers.get("nobody", 7.0) == 7.0 and list(s.multipliers) == list(p.constraints)
    with pytest.raises(of.DeclarationError, match="no value 'nobody'"):
        price["nobody"]


def relaxed(rows):
    return replace(rows, integer=np.zeros(len(rows.columns), dtype=bool))


def test_a_price_of_a_row_with_two_sides_is_that_of_the_active_one():
    p = of.from_arrays(q=[1.0], A=[[2.0]], l=[3.0], u=[5.0], rows=["band"])
    assert float(p.solve().shadow_price["band"]) == pytest.approx(0.5)
    q = of.from_arrays(q=[1.0], A=[[2.0]], l=[3.0], u=[5.0], rows=["band"], maximize=True)
    assert float(q.solve().shadow_price["band"]) == pytest.approx(0.5)


def test_constraints_are_written_on_arrays_columns_and_rows(p):
    q = p.with_constraints(few=p["make"][0] >= 2.5, least=p["lots"] >= 1, more=p.row("NEED") >= 5)
    s = q.solve()
    assert s["make[0]"] >= 2.5 - 1e-9 and s["lots"] >= 1 - 1e-9
    assert p.row("NEED").shape == ()
    with pytest.raises(of.DeclarationError, match=r"no row 'NEEDS'(.|\n)*'NEED'"):
        p.row("NEEDS")


def test_rows_are_removed_by_term_or_by_label(p):
    assert "pair" not in p.without("pair").constraints
    left = p.without("pair[1]")
    assert left.constraints["pair"].labels() == ["pair[0]"]
    assert left.solve().objective == pytest.approx(3 * 0 + 2 * 3 + 0.5)
    assert "pair[1]" not in left.solve().multipliers
    sides = p.without("CAP").constraints
    assert "CAP lower" not in sides and "CAP upper" not in sides
    assert set(p.constraints) >= {"CAP lower", "CAP upper"}  # the problem itself does not change
    with pytest.raises(of.DeclarationError, match="no constraint 'nobody'"):
        p.without("nobody")


def test_part_of_a_vector_becomes_integer(p):
    q = FileProblem(relaxed(p.rows), "p")
    q = q.with_constraints(half=q["make"][0] >= 2.25)
    assert str(q.problem_class) == "LP" and q.solve()["make[0]"] == pytest.approx(2.25)
    h = q.with_integrality("make")
    assert str(h.problem_class) == "MILP" and h.integers == {"make integer"}
    assert h.solve()["make"] == pytest.approx([3.0, 2.0], abs=1e-6)
    assert FileProblem(relaxed(p.rows), "p").with_integrality("columns").integers == {"columns"}


def gathered_file(tmp_path, need=1.0):
    n = GATHERED + 8
    names = [f"col{chr(65 + k % 26)}{'x' * (k // 26)}y" for k in range(n)]
    rows = [f"row{chr(65 + k % 26)}{'x' * (k // 26)}y" for k in range(n)]
    lines = ["NAME wide", "ROWS", " N cost", *(f" G {r}" for r in rows), " L total", "COLUMNS"]
    for c, r in zip(names, rows, strict=True):
        lines += [f"    {c} cost 1 {r} 1", f"    {c} total 1"]
    lines += ["RHS", *(f"    r {r} {need}" for r in rows), f"    r total {n}"]
    file = tmp_path / "wide.mps"
    file.write_text("\n".join([*lines, "ENDATA", ""]))
    return file, names, rows


def test_many_rows_are_gathered_by_sense(tmp_path):
    file, names, rows = gathered_file(tmp_path)
    p = of.read(file)
    assert list(p.constraints) == ["rows <=", "rows >=", "columns lower"]
    assert p.constraints["rows >="].labels() == rows
    assert p.constraints["columns lower"].labels() == [f"{c} lower" for c in names]
    s = p.solve()
    assert s[names[3]] == pytest.approx(1.0) and s["columns"].shape == (len(names),)
    assert s.shadow_price[rows[5]] == pytest.approx(1.0)
    assert p.without(rows[5]).solve().objective == pytest.approx(len(names) - 1)


def test_a_conflict_of_gathered_rows_is_told_by_label(tmp_path):
    file, names, rows = gathered_file(tmp_path)
    text = file.read_text().replace(f"r {rows[2]} 1.0", f"r {rows[2]} 100.0")
    file.write_text(text)
    p = of.read(file)
    with pytest.raises(of.Infeasible, match="diagnose") as e:
        p.solve()
    assert set(e.value.conflict) <= set(p.constraints)
    d = of.diagnose(p)
    assert d.verdict == "infeasible" and d.verify()
    assert {rows[2], "total"} <= set(d.conflict)
    assert set(d.conflict) <= {rows[2], "total", *(f"{c} lower" for c in names), *rows}
    assert "rows >=" not in d.conflict and "columns lower" not in d.conflict


def test_what_was_read_is_written_with_its_labels(p, tmp_path):
    p.export(tmp_path / "q.mps")
    f = read_mps(tmp_path / "q.mps")
    assert list(f.columns) == ["make[0]", "make[1]", "STOCK", "lots"]
    assert f.rows[:6] == ["CAP_lower", "CAP_upper", "NEED", "MIX", "pair[0]", "pair[1]"]
    assert (f.A[:6] != program(p).A[:6]).nnz == 0
    p.export(tmp_path / "q.lp")
    q = of.read(tmp_path / "q.lp")
    assert set(q.arrays) == set(p.arrays) and "pair" in q.constraints
    p.export(tmp_path / "q.cbf")
    r = of.read(tmp_path / "q.cbf")
    assert list(r.arrays) == list(p.arrays)
    assert r.constraints["pair"].labels() == ["pair[0]", "pair[1]"]
    optima = {round(x.solve().objective, 6) for x in (p, q, r)}
    assert optima == {10.5}


def test_large_convex_objectives_are_proved_by_factors():
    rng = np.random.default_rng(0)
    B = sp.random_array((150, 300), density=0.02, rng=rng, format="csc")
    P = sp.csc_array(B.T @ B)
    p = of.from_arrays(P, rng.normal(size=300), lb=-1.0, ub=1.0)
    assert str(p.problem_class) == "QP" and "semidefinite" in p.evidence[0].note
    s = p.solve(tolerance=1e-6)
    x = s["x"]
    assert s.objective == pytest.approx(0.5 * x @ (P @ x) + p.rows.cost @ x, rel=1e-12)
    bad = sp.csc_array(P - 0.5 * sp.eye_array(300))
    assert not of.from_arrays(bad, lb=-1.0, ub=1.0).problem_class.convex
    up = of.from_arrays(-P, maximize=True, lb=-1.0, ub=1.0)
    assert str(up.problem_class) == "QP" and up.solve(tolerance=1e-6).objective == pytest.approx(
        0.0, abs=1e-6
    )


def test_rows_measured_together_are_measured_as_one_by_one(p):
    """Rows, bounds, single rows by label, a rule on top, and points far off."""
    p = p.with_constraints(own=p["make[0]"] <= 1.0)
    block = p.constraints["pair"].block
    singles = [block.single(k).term() for k in range(block.members.size)]
    p = p.with_terms(p.objective, {**p.constraints, **{t.name: t for t in singles}})
    names, rng = list(p.constraints), np.random.default_rng(0)
    assert {"own", "pair[0]", "pair[1]", "MIX", "lots upper"} <= set(names)
    for size in (1e-3, 1.0, 1e6, np.nan):
        values = {n: size * rng.normal(size=v.shape) for n, v in p.variables.items()}
        together = p.relative_violations(names, values)
        alone = {n: t.relative_violation(values) for n, t in p.constraints.items()}
        assert list(together) == names and together == pytest.approx(alone, rel=1e-13)
    assert max(together.values()) == np.inf


def test_a_quadratic_in_some_columns_is_one_of_the_vector() -> None:
    """No column is copied, and no row says so: a chain of states is proved as it stands."""
    n = 30
    A = sp.diags_array([1.0, -1.0], offsets=[0, 1], shape=(n - 1, n))
    A = sp.hstack([A, -0.25 * sp.eye_array(n - 1)])
    P = sp.diags_array(np.append(np.zeros(n), np.ones(n - 1)))
    fixed = np.full(2 * n - 1, np.inf)
    fixed[[0, n - 1]] = 1.0, 5.0
    p = of.from_arrays(
        P=P, A=A, l=0.0, u=0.0, lb=np.where(fixed < np.inf, fixed, -np.inf), ub=fixed
    )
    form = compile_problem(p, "CLARABEL").form
    assert form.q.size == 2 * n - 1 and form.b.size == n - 1 + 2
    s = p.solve()
    assert s.grade.word == "proved" and s.objective == pytest.approx(0.5 * (16.0**2) / (n - 1))
