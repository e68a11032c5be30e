"""What is written is read back as the same problem: class, names, optimum."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import optfair as of
from optfair.compile.program import program
from optfair.core.certificate import search_witness
from optfair.formats.files import export, read
from optfair.formats.layout import entry_names
from optfair.formats.text import file_name

NAMES = of.library.names()
# the widest instances say nothing a smaller one does not
LARGE = {"german_balance", "german_k10", "german_k5", "three_groups", "german_coupling"}
LARGE |= {"german_50_25", "german_50_50", "german_50_costs", "german_50_rules", "german_50_zero"}
LARGE |= {"german_100", "german_50_minimum_80", "german_max_gap", "german_additive_gap"}
SMALL = [n for n in NAMES if n.split("/")[1] not in LARGE]
LINEAR = {"LP", "QP", "QCQP", "MILP", "MIQP", "nonconvex QCQP"}


@cache
def declared(name):
    """The problem of an instance; problems do not change."""
    return of.library.load(name).problem()


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Callable[[str, str], Path]:
    """Return the file of an instance, written once for all who read it."""

    @cache
    def file(name: str, ending: str) -> Path:
        path: Path = tmp_path_factory.mktemp("written") / f"p{ending}"
        export(declared(name), path)
        return path

    return file


@cache
def read_back(path: Path) -> Any:
    """The problem of a file that no test changes."""
    return read(path)


@cache
def outcome(problem):
    """The optimum, or that there is none."""
    try:
        return problem.solve(tolerance=1e-7).objective
    except (of.Infeasible, of.Unbounded) as e:
        return type(e).__name__
    except of.SolverFailure as e:  # said, by a vector too rough for a proof
        return {"infeasible": "Infeasible", "unbounded": "Unbounded"}[e.claim]


def integer_arrays(problem):
    """Names of the arrays whose columns are integer."""
    return {n for n, f in problem.arrays.items() if problem.rows.integer[f.members[0]]}


def assert_same_outcome(q, p, tolerance):
    found, expected = outcome(q), outcome(p)
    if isinstance(expected, str):
        assert found == expected
    else:
        assert found == pytest.approx(expected, rel=tolerance, abs=tolerance)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("ending", [".mps", ".lp"])
@pytest.mark.parametrize("name", SMALL)
def test_rows(name, ending, written, tmp_path):
    instance = of.library.load(name)
    p = declared(name)
    if instance.problem_class not in LINEAR:
        with pytest.raises(of.UnsupportedProblem) as e:
            export(p, tmp_path / f"p{ending}")
        assert (".cbf" in e.value.remedy) == p.problem_class.convex
        assert not list(tmp_path.iterdir())
        return
    q = read_back(written(name, ending))
    expected = p.problem_class
    if not expected.convex and search_witness(p) is None:
        # the model knows its witness; a file has only the search
        expected = expected.with_curvature("unverified")
    assert q.problem_class == expected and q.sense == p.sense
    rows = program(p)
    written = [file_name(b.name) for b in rows.columns]
    if ending == ".lp":  # its columns stand in the order in which they are first used
        assert set(written) == set(q.arrays)
    else:
        assert written == list(q.arrays)
    assert {b.name: b.shape for b in rows.columns} == {
        b.name: q[file_name(b.name)].shape for b in rows.columns
    }
    integer = {b.name for b in rows.columns if b.name in p.integers}
    assert {file_name(n) for n in integer} == integer_arrays(q)
    mine = {file_name(b.name) for b in rows.rows}
    theirs = {c.partition("[")[0].partition("(")[0] for c in q.constraints}
    assert theirs == mine
    if p.problem_class.convex:
        assert_same_outcome(q, p, 1e-7)
    # the coefficients are the same to the last digit, so is a second file
    export(q, tmp_path / f"q{ending}")
    again = program(read(tmp_path / f"q{ending}"))
    assert abs(again.P - program(q).P).nnz == 0 and abs(again.A - program(q).A).nnz == 0


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", SMALL)
def test_cones(name, written, tmp_path):
    instance = of.library.load(name)
    p = declared(name)
    if not p.problem_class.convex:
        with pytest.raises(of.UnsupportedProblem):
            export(p, tmp_path / "p.cbf")
        return
    q = read_back(written(name, ".cbf"))
    expected = instance.problem_class
    for quadratic in ("QCQP", "QP"):  # quadratics become second-order cones
        expected = expected.replace(quadratic, "SOCP")
    assert str(q.problem_class) == expected
    assert set(q.constraints) >= {
        n for n, t in p.constraints.items() if t.evidence.function == "affine"
    }
    assert set(q.arrays) >= set(p.variables)
    assert_same_outcome(q, p, 1e-6)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", NAMES)
def test_mosek_reads_what_is_written(name, written):
    mosek = importlib.import_module("mosek")
    p = declared(name)
    if not p.problem_class.convex:
        return
    file = written(name, ".cbf")
    q = read_back(file)
    with mosek.Env() as env, env.Task() as task:
        task.readdata(str(file))
        assert task.getnumvar() == sum(v.size for v in q.variables.values())
        assert task.getcfix() == pytest.approx(
            q.objective_value({k: np.zeros(v.shape) for k, v in q.variables.items()})
        )
        assert (task.getobjsense() == mosek.objsense.maximize) == (p.sense == "maximize")
        kinds = task.getvartypelist(list(range(task.getnumvar())))
        count = sum(k == mosek.variabletype.type_int for k in kinds)
        assert count == sum(q.variables[n].size for n in q.integers)


def optima_by_highs(file):
    highspy = importlib.import_module("highspy")
    h = highspy.Highs()
    h.silent()
    assert h.readModel(str(file)) == highspy.HighsStatus.kOk
    h.run()
    return h.getModelStatus(), h.getInfo().objective_function_value


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000))
def test_highs_reads_the_same_model(seed, tmp_path_factory):
    """Every number that is written is the number that another reader finds."""
    highspy = importlib.import_module("highspy")
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(1, 7)), int(rng.integers(1, 6))
    A = sp.random_array((m, n), density=0.6, rng=rng, data_sampler=rng.normal)
    low, high = np.sort(rng.normal(size=(2, m)), axis=0)
    low[rng.random(m) < 0.3] = -np.inf
    high[(rng.random(m) < 0.3) & np.isfinite(low)] = np.inf
    B = rng.normal(size=(n, n))
    integer = rng.random(n) < 0.3
    p = of.from_arrays(
        None if integer.any() else (B @ B.T + B.T @ B) / 7,
        rng.normal(size=n),
        A,
        low,
        high,
        lb=np.where(rng.random(n) < 0.5, rng.normal(size=n), -np.inf),
        integrality=integer,
        r=rng.normal(),
        maximize=bool(integer.any() and rng.integers(2)),
    )
    rows = program(p)
    for ending in (".mps", ".lp"):
        file = tmp_path_factory.mktemp("files") / f"p{ending}"
        export(p, file)
        h = highspy.Highs()
        h.silent()
        assert h.readModel(str(file)) == highspy.HighsStatus.kOk
        model = h.getModel()
        lp = model.lp_
        a = lp.a_matrix_
        theirs = sp.csc_array((a.value_, a.index_, a.start_), shape=(lp.num_row_, lp.num_col_))
        if a.format_ == highspy.MatrixFormat.kRowwise:
            theirs = sp.csr_array((a.value_, a.index_, a.start_), shape=theirs.shape)
        # LP files list columns as they are used, and carry the constant as a column
        mine = entry_names(rows.columns, "[]" if ending == ".mps" else "()")
        at = [list(lp.col_names_).index(label) for label in mine]
        assert np.array_equal(np.array(lp.col_cost_)[at], rows.q)
        assert np.array_equal(theirs.toarray()[:, at], rows.A.toarray())
        assert np.array_equal(lp.row_lower_, rows.row_lower)
        assert np.array_equal(lp.row_upper_, rows.row_upper)
        whole = [k == highspy.HighsVarType.kInteger for k in lp.integrality_] or [False] * n
        assert [whole[k] for k in at] == rows.integer.tolist()
        assert (lp.sense_ == highspy.ObjSense.kMaximize) == (p.sense == "maximize")
        rest = [lp.col_cost_[k] for k in range(lp.num_col_) if k not in at]
        assert lp.offset_ + sum(rest) == rows.offset
        hessian = model.hessian_
        if rows.P.nnz:
            H = sp.csc_array(
                (hessian.value_, hessian.index_, hessian.start_), shape=(len(lp.col_names_),) * 2
            )
            H = (H + sp.triu(H.T, 1) + sp.tril(H.T, -1)).toarray()[np.ix_(at, at)]
            assert np.array_equal(H, rows.P.toarray())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("ending", [".mps", ".lp"])
@pytest.mark.parametrize("name", SMALL)
def test_highs_reads_what_is_written(name, ending, written):
    instance = of.library.load(name)
    if instance.problem_class not in ("LP", "QP", "MILP") or instance.optimum is None:
        return
    _, value = optima_by_highs(written(name, ending))
    assert value == pytest.approx(instance.optimum.value, rel=1e-6, abs=1e-6)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("ending", [".mps", ".lp"])
@pytest.mark.parametrize("name", [n for n in NAMES if n not in SMALL])
def test_highs_and_scip_read_wide_files(name, ending, written):
    highspy, scip = importlib.import_module("highspy"), importlib.import_module("pyscipopt")
    file = written(name, ending)
    rows = program(declared(name))
    h = highspy.Highs()
    h.silent()
    assert h.readModel(str(file)) == highspy.HighsStatus.kOk
    columns = sum(b.size for b in rows.columns)
    # an offset of the objective may be a fixed column of its own
    assert 0 <= h.getNumCol() - columns <= 1 and h.getNumRow() == rows.A.shape[0]
    model = scip.Model()
    model.hideOutput()
    model.readProblem(str(file))
    assert 0 <= model.getNVars() - columns <= 1


@pytest.mark.sampled(2)
@pytest.mark.parametrize("ending", [".mps", ".lp"])
@pytest.mark.parametrize("name", SMALL)
def test_scip_reads_what_is_written(name, ending, written):
    scip = importlib.import_module("pyscipopt")
    instance = of.library.load(name)
    if instance.problem_class not in LINEAR or instance.optimum is None:
        return
    model = scip.Model()
    model.hideOutput()
    model.readProblem(str(written(name, ending)))
    q = read_back(written(name, ending))
    names = {v.name for v in model.getVars()}
    for n, family in q.arrays.items():
        for index in np.ndindex(family.shape):
            brackets = "[]" if ending == ".mps" else "()"
            label = f"{brackets[0]}{','.join(map(str, index))}{brackets[1]}" if index else ""
            assert f"{n}{label}" in names
    assert model.getNConss() >= sum(t.build().size for t in q.constraints.values())
    if instance.problem_class in ("LP", "MILP"):
        model.optimize()
        assert model.getObjVal() == pytest.approx(instance.optimum.value, rel=1e-6, abs=1e-6)


def random_problem(seed):
    """A bounded problem with every kind of row, both senses, an offset, integers."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 5))
    x = cp.Variable(n, name="x")
    y = cp.Variable((2, 2), name="tableau", integer=bool(rng.integers(2)))
    t = cp.Variable(name="t")
    A = rng.integers(-3, 4, size=(3, n)).astype(float)
    c = rng.normal(size=n)
    goal = c @ x + cp.sum(cp.multiply(rng.integers(-3, 4, size=(2, 2)), y)) + t + rng.normal()
    curved = bool(rng.integers(2))
    R = rng.normal(size=(n, n))
    if curved:
        goal = goal + cp.sum_squares(R @ x - 1)
    maximize = bool(rng.integers(2))
    constraints = [
        x <= 4,
        x >= -rng.integers(1, 4),
        A @ x <= 5,
        y[0, :] >= y[1, :] - 7,
        y <= 3,
        y >= -2,
        t == 2 * cp.sum(x) - 1.0 / 3.0,
    ]
    labels = ["upper side", "lower side", "rows 1", "order", "2nd", "y lower", "free"]
    if rng.integers(2):
        constraints.append(cp.abs(x) <= 3)
        labels.append("width")
    objective = cp.Maximize(-goal) if maximize else cp.Minimize(goal)
    return of.from_cvxpy(cp.Problem(objective, constraints), labels)


@settings(max_examples=15)
@given(seed=st.integers(0, 10_000), ending=st.sampled_from([".mps", ".lp", ".cbf"]))
def test_random_problems(seed, ending, tmp_path_factory):
    p = random_problem(seed)
    file = tmp_path_factory.mktemp("files") / f"p{ending}"
    export(p, file)
    q = read(file)
    if ending != ".cbf":
        assert q.problem_class == p.problem_class
    assert_same_outcome(q, p, 1e-6)


@pytest.mark.parametrize("ending", [".mps", ".lp"])
def test_nonconvex_rows(ending, tmp_path):
    x, y = cp.Variable(2, name="x"), cp.Variable(name="y", integer=True)
    p = of.from_cvxpy(
        cp.Problem(
            cp.Maximize(x[0] * x[1] - 2 * y * x[0] + 0.1),
            [x[0] * y + 3 * cp.square(x[1]) == 1, cp.sum_squares(x) >= 1, x <= 2, x >= -2, y == 1],
        ),
        ["curve", "outside", "upper", "lower", "one"],
    )
    export(p, tmp_path / f"p{ending}")
    q = read(tmp_path / f"p{ending}")
    assert q.problem_class == p.problem_class and list(q.constraints) == list(p.constraints)
    a, b = program(p), program(q)
    assert abs(a.P - b.P).nnz == 0 and a.offset == b.offset and np.array_equal(a.q, b.q)
    for row in range(a.row_upper.size):
        left, right = (zip(*m.row_products(row), strict=True) for m in (a, b))
        assert sorted((i, j, abs(v)) for i, j, v in left) == sorted(
            (i, j, abs(v)) for i, j, v in right
        )


@pytest.mark.parametrize("ending", [".mps", ".lp"])
def test_scip_finds_the_optimum_of_a_nonconvex_file(ending, tmp_path):
    scip = importlib.import_module("pyscipopt")
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(
        cp.Problem(
            cp.Maximize(x[0] + x[1] + 2), [3 * x[0] * x[1] <= 1, x >= 0, x[0] <= 2, x[1] <= 1]
        ),
        ["hyperbola", "sign", "first", "second"],
    )
    export(p, tmp_path / f"p{ending}")
    model = scip.Model()
    model.hideOutput()
    model.readProblem(str(tmp_path / f"p{ending}"))
    model.optimize()
    assert model.getObjVal() == pytest.approx(2 + 2 + 1 / 6, abs=1e-5)


@pytest.mark.parametrize("ending", [".mps", ".lp", ".cbf"])
def test_shadow_prices_keep_their_sign(ending, tmp_path):
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(
        cp.Problem(cp.Minimize(2 * x[0] + 3 * x[1]), [x[0] + x[1] >= 4, x[0] <= 3, x >= 0]),
        ["demand", "cap", "sign"],
    )
    export(p, tmp_path / f"p{ending}")
    q = read(tmp_path / f"p{ending}")
    turned = -1.0 if ending == ".cbf" else 1.0  # CBF has >= only
    for name, price, sign in (("demand", 3.0, 1.0), ("cap", -1.0, turned)):
        assert float(p.solve().shadow_price[name]) == pytest.approx(price)
        assert np.asarray(q.solve().shadow_price[name]).item() == pytest.approx(sign * price)


@pytest.mark.parametrize(("ending", "entry"), [(".mps", "{}[{}]"), (".lp", "{}({})")])
def test_labels_survive_in_brackets(tmp_path: Path, ending: str, entry: str) -> None:
    x = cp.Variable(2, name="x", nonneg=True)
    p = of.from_cvxpy(cp.Problem(cp.Minimize([2, 3] @ x), [x >= [1, 2]]), ["need"])
    p.with_labels(x=["rye", "oat bran"], need=["rye", "oat bran"]).export(tmp_path / f"p{ending}")
    q = of.read(tmp_path / f"p{ending}")
    assert list(q.variables) == ["x"] and list(q.constraints) == ["need", "x_nonnegative"]
    s = q.solve()
    assert s[entry.format("x", "rye")] == pytest.approx(1.0)
    assert s.shadow_price[entry.format("need", "oat_bran")] == pytest.approx(3.0)
    assert s.frame("x")["x"].round(6).to_dict() == {"rye": 1.0, "oat_bran": 2.0}
    assert list(s.frame("need").index) == ["rye", "oat_bran"]
    assert q.without(entry.format("need", "rye")).solve().objective == pytest.approx(6.0)


@pytest.mark.parametrize("ending", [".mps", ".lp"])
def test_labels_that_files_write_alike_are_one_array_again(tmp_path: Path, ending: str) -> None:
    """What tells them apart stands in their brackets, where it is read as a label."""
    x = cp.Variable(4, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= [1, 2, 3, 4]]), ["need"])
    file = tmp_path / f"p{ending}"
    p.with_labels(x=["a b", "a_b", "A_B", "é"]).export(file)
    s = of.read(file).solve()
    assert s["x"].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert s["x[a_b_2]" if ending == ".mps" else "x(a_b_2)"] == 2.0


@pytest.mark.parametrize("ending", [".mps", ".lp", ".cbf"])
def test_labels_of_two_axes_bring_back_the_shape(tmp_path: Path, ending: str) -> None:
    pytest.importorskip("pandas")
    ship = cp.Variable((2, 3), name="ship", nonneg=True)
    cost = np.array([[1.0, 2.0, 3.0], [3.0, 2.5, 1.0]])
    goal = cp.Minimize(cp.sum(cp.multiply(cost, ship)))
    p = of.from_cvxpy(
        cp.Problem(goal, [cp.sum(ship, axis=0) >= [1, 2, 3], ship <= 4]), ["need", "cap"]
    )
    p = p.with_labels(ship=(["Bonn", "Kiel"], ["north", "south", "west"]))
    p.export(tmp_path / f"p{ending}")
    q = of.read(tmp_path / f"p{ending}")
    s = q.solve()
    assert q["ship"].shape == (2, 3)
    assert s["ship"] == pytest.approx(np.array([[1.0, 2.0, 0.0], [0.0, 0.0, 3.0]]), abs=1e-6)
    assert s["ship[Bonn, south]"] == s["ship[Bonn,south]"] == pytest.approx(2.0)
    frame = s.frame("ship")
    assert list(frame.index) == ["Bonn", "Kiel"] and list(frame.columns) == [
        "north",
        "south",
        "west",
    ]
    if ending != ".cbf":  # whose rows of cones have no labels
        assert q.constraints["ship_nonnegative"].shape == (2, 3)
        assert s.frame("ship_nonnegative").loc["Kiel", "north"] == pytest.approx(2.0)


def test_labels_that_are_not_all_combinations_stay_a_vector() -> None:
    pytest.importorskip("pandas")
    for columns in (["x[a,k]", "x[b,k]", "x[b,l]"], ["x[a,k]", "x[b,k]"], ["x[a,k]", "x[b]"]):
        q = of.from_arrays(q=[1.0] * len(columns), lb=1.0, columns=columns)
        assert q["x"].shape == (len(columns),)
        assert [f"x[{label}]" for label in q.solve().frame("x").index] == columns
    years = of.from_arrays(q=[1.0] * 2, lb=1.0, columns=["x[2020]", "x[2021]"])
    assert list(years.solve().frame("x").index) == ["2020", "2021"]


def test_several_brackets_are_several_axes(tmp_path: Path) -> None:
    file = tmp_path / "p.lp"
    file.write_text(
        "Minimize\n obj: x(a)(1) + 2 x(b)(1) + 3 x(a)(2) + x(b)(2)\nSubject To\n"
        " need(1): x(a)(1) + x(b)(1) >= 1\n need(2): x(a)(2) + x(b)(2) >= 2\nEnd\n"
    )
    s = of.read(file).solve()
    assert s["x"].shape == (2, 2) and s["x[b][2]"] == s["x(b)(2)"] == pytest.approx(2.0)
    s.problem.export(tmp_path / "q.mps")
    again = of.read(tmp_path / "q.mps").solve()
    assert again["x[b,2]"] == pytest.approx(2.0)
    counted = of.from_arrays(
        q=[1.0] * 4, lb=1.0, columns=["x[0][0]", "x[1][0]", "x[0][1]", "x[1][1]"]
    )
    assert counted["x"].shape == (2, 2)
