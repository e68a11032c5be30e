"""The sparse format of SDPA: conventions, what is wrong by line, and the way out and in."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import optfair as of
from optfair.compile.export import cone_program
from optfair.core.canonical import built
from optfair.core.coefficients import quadratic_map
from optfair.formats.files import read

# the example of SDPA's manual, with its separators and comments; its optimum is known
MANUAL = """\
"Example 1: mDim = 3, nBLOCK = 1, {2}"
* a second comment
   3  =  mDIM
   2  =  nBLOCK
   (2, -2)  =  bLOCKsTRUCT
{48, -8, 20}
0 1 1 1 -11
0 1 2 2 23
1 1 1 1 10
1 1 1 2 4
2 1 2 2 -8
3 1 1 2 -8
3 1 2 2 -2
0 2 1 1 -50
0 2 2 2 -60
1 2 1 1 1
2 2 2 2 1
"""


def write(tmp_path, text, name="p.dat-s"):
    file = tmp_path / name
    file.write_text(text)
    return file


def test_conventions(tmp_path):
    p = read(write(tmp_path, MANUAL))
    assert str(p.problem_class) == "SDP" and list(p.constraints) == ["block 2", "block 1"]
    assert p.rows.cost.tolist() == [48.0, -8.0, 20.0] and p["x"].shape == (3,)
    assert p.rows.A.toarray().tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    assert p.rows.row_lower.tolist() == [-50.0, -60.0]
    x = np.array([1.0, 2.0, 3.0])
    # x1 F1 + x2 F2 + x3 F3 - F0
    matrix = np.array([[10 + 11, 4 - 24], [4 - 24, -16 - 6 - 23]])
    values = {"x": x}
    assert p.constraints["block 1"].violation(values) == pytest.approx(
        -np.linalg.eigvalsh(matrix)[0]
    )
    assert p.constraints["block 2"].labels() == ["block 2[0]", "block 2[1]"]
    built = p.constraints["block 1"].build()
    (v,) = built.variables()
    v.value = x
    assert np.array_equal(built.args[0].value, matrix)
    v.value = None
    again = of.from_cvxpy(cp.Problem(cp.Minimize(0), [built]), ["b"]).constraints["b"]
    stated = p.constraints["block 1"]
    assert str(again.evidence) == str(stated.evidence).replace("block 1", "b")
    assert again.shape == stated.shape and again.scale == stated.scale


def test_the_example_of_the_manual(tmp_path):
    text = MANUAL.replace("   2  =  nBLOCK", "   1  =  nBLOCK").replace("(2, -2)", "(2)")
    text = "".join(line for line in text.splitlines(True) if line.split()[1:2] != ["2"])
    s = read(write(tmp_path, text)).solve(tolerance=1e-6)
    assert s.objective == pytest.approx(-41.9, abs=1e-3)


def test_counts_go_on_in_the_next_line_and_end_in_a_comment(tmp_path):
    split = MANUAL.replace("(2, -2)  =  bLOCKsTRUCT", "(2,\n -2) 1 block is diagonal", 1)
    x = {"x": np.array([1.0, 2.0, 3.0])}
    once, again = (read(write(tmp_path, text)) for text in (MANUAL, split))
    for name, term in once.constraints.items():
        assert again.constraints[name].violation(x) == pytest.approx(term.violation(x))


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ("   3  =  mDIM", "   three", 3, "'three' is not a count"),
        ("   2  =  nBLOCK", "   0", 4, "at least one column and one block"),
        ("(2, -2)", "(2, 0)", 5, "order 0"),
        ("{48, -8, 20}", "{48, -8}", 7, "costs for 3 columns"),
        ("{48, -8, 20}", "{48, x, 20}", 6, "'x' is not a number"),
        ("1 1 1 2 4", "1 1 1 2", 10, "an entry is a matrix"),
        ("1 1 1 2 4", "4 1 1 2 4", 10, "the matrix is outside: there are 3"),
        ("1 1 1 2 4", "1 3 1 2 4", 10, "the block is outside: there are 2"),
        ("1 1 1 2 4", "1 1 1 3 4", 10, "outside its block"),
        ("1 1 1 2 4", "1 2 1 2 4", 10, "the block is diagonal"),
        ("1 1 1 2 4", "1 1 1 2 nan", 10, "'nan' is not a finite number"),
        ("1 1 1 2 4", "1 1 1.5 2 4", 10, "'1.5' is not a count"),
        ("1 1 1 2 4", "1 1 -1 2 4", 10, "is not a count"),
        ("1 1 1 2 4", "7", 10, "an entry is a matrix"),
        ("3 1 1 2 -8", "1 1 2 1 -8", 12, "has a number already"),
        ("(2, -2)", "(2, -2000001)", 5, "it declares 2000005 entries of blocks"),
    ],
)
def test_what_is_wrong_is_told_by_line(old, new, line, reason, tmp_path):
    assert old in MANUAL
    with pytest.raises(of.DataError) as e:
        read(write(tmp_path, MANUAL.replace(old, new, 1)))
    assert reason in e.value.cause and f"line {line}:" in e.value.cause


def test_entries_that_stand_twice_may_be_summed(tmp_path):
    file = write(tmp_path, MANUAL.replace("3 1 1 2 -8", "1 1 2 1 -8", 1))
    p = read(file, duplicates="sum")
    x = {"x": np.array([1.0, 0.0, 0.0])}
    matrix = np.array([[21.0, -4.0], [-4.0, -23.0]])
    assert p.constraints["block 1"].violation(x) == pytest.approx(-np.linalg.eigvalsh(matrix)[0])


def test_files_that_end_too_early(tmp_path):
    for n in range(1, 5):
        text = "\n".join(MANUAL.splitlines()[:n])
        with pytest.raises(of.DataError, match=r"line \d+: (the file ends|0 costs)"):
            read(write(tmp_path, text))


def problem(maximize=False, offset=0.0):
    X = cp.Variable((3, 3), symmetric=True, name="X")
    t = cp.Variable(name="t")
    C = np.array([[1.0, 0.1, -0.3], [0.1, 2.0, 1 / 3], [-0.3, 1 / 3, 0.7]])
    goal = cp.trace(C @ X) + t + offset
    rows = [X >> 0, cp.diag(X) == 1, t >= -2, X[0, 1] + t <= 0.5]
    sense = cp.Maximize(-goal) if maximize else cp.Minimize(goal)
    return of.from_cvxpy(cp.Problem(sense, rows), ["psd", "diagonal", "floor", "mix"])


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("offset", [0.0, 2.5])
def test_out_and_in(maximize, offset, tmp_path):
    p = problem(maximize, offset)
    p.export(tmp_path / "p.dat-s")
    q = read(tmp_path / "p.dat-s")
    assert q.sense == p.sense and str(q.problem_class) == "SDP" and "psd" in q.constraints
    assert {"t", "X"} <= set(q.arrays)
    a, b = p.solve(tolerance=1e-7), q.solve(tolerance=1e-6)
    assert b.objective == pytest.approx(a.objective, abs=1e-5)
    assert b["t"] == pytest.approx(a["t"], abs=1e-5)
    # without its names the file is a minimisation of the same
    plain = [line for line in (tmp_path / "p.dat-s").read_text().splitlines() if line[:1] != "*"]
    r = read(write(tmp_path, "\n".join(plain) + "\n", "plain.dat-s"))
    sign = -1.0 if maximize else 1.0
    assert r.solve(tolerance=1e-6).objective == pytest.approx(sign * a.objective, abs=1e-5)


def test_a_constant_beside_one_matrix_is_a_block(tmp_path):
    X = cp.Variable((2, 2), symmetric=True, name="X")
    M = np.array([[2.0, 1.0], [1.0, 2.0]])
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.trace(X) + 5), [X - M >> 0]), ["psd"])
    p.export(tmp_path / "p.dat-s")
    s = read(tmp_path / "p.dat-s").solve()
    assert s.objective == pytest.approx(9.0, abs=1e-6)


def test_a_second_file_is_the_first(tmp_path):
    """Every number of 15 digits survives, off-diagonal entries of matrices too."""
    rng = np.random.default_rng(0)
    lines = ["4", "2", "3 -2", " ".join(map(repr, rng.normal(size=4).tolist()))]
    for k in range(5):
        for i in range(3):
            lines += [f"{k} 1 {i + 1} {j + 1} {rng.normal():.15g}" for j in range(i, 3)]
        lines += [f"{k} 2 {i} {i} {rng.normal():.15g}" for i in (1, 2)]
    p = read(write(tmp_path, "\n".join(lines) + "\n"))
    p.export(tmp_path / "q.dat-s")
    q = read(tmp_path / "q.dat-s")
    assert np.array_equal(p.rows.cost, q.rows.cost)
    assert (p.rows.A != q.rows.A).nnz == 0
    assert np.array_equal(p.rows.row_lower, q.rows.row_lower)

    def numbers(problem, name):
        block = problem.constraints[name].build.__self__
        order = np.lexsort((block.j, block.i, block.k))
        return [getattr(block, part)[order].tolist() for part in ("k", "i", "j", "value")]

    assert numbers(p, "block 1") == numbers(q, "block 1")


@settings(max_examples=8)
@given(seed=st.integers(0, 10**6), unit=st.sampled_from([1e-300, 1e-6, 1.0, 1e6, 1e250]))
def test_entries_of_matrices_are_written_as_they_are(tmp_path_factory, seed, unit):
    rng, x = np.random.default_rng(seed), cp.Variable(2, name="x")
    C, F, G = (unit * (M + M.T) for M in rng.normal(size=(3, 3, 3)))
    matrix = C + x[0] * F + x[1] * G
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x[0]), [matrix >> 0]), ["block"])
    expected = quadratic_map(matrix, {x.id: 0}, 2)
    for ending in (".dat-s", ".cbf"):
        path = tmp_path_factory.mktemp("matrices") / f"p{ending}"
        p.export(path)
        block = built(read(path).constraints["block"])
        (own,) = block.variables()
        again = quadratic_map(block.args[0], {own.id: 0}, 2)
        assert (again.A != expected.A).nnz == 0 and (again.b == expected.b).all()


def test_other_cones_and_integers_are_refused(tmp_path):
    x = cp.Variable(2, name="x")
    disk = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [cp.norm(x) <= 1]), ["disk"])
    with pytest.raises(of.UnsupportedProblem, match="'disk' is neither linear nor a matrix"):
        disk.export(tmp_path / "p.dat-s")
    whole = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= 0.5]), ["least"])
    with pytest.raises(of.UnsupportedProblem, match=r"'x\[0\]' is integer"):
        whole.with_integrality("x").export(tmp_path / "p.dat-s")
    assert not list(tmp_path.iterdir())
    whole.export(tmp_path / "p.dat-s")
    q = read(tmp_path / "p.dat-s")
    assert str(q.problem_class) == "LP" and list(q.constraints) == ["least"]
    assert q.solve().objective == pytest.approx(1.0)


def test_the_cone_program_is_the_same(tmp_path):
    p = problem()
    p.export(tmp_path / "p.dat-s")
    a, b = (
        cone_program(p, quadratic=False),
        cone_program(read(tmp_path / "p.dat-s"), quadratic=False),
    )
    assert sorted(c.order for c in a.cones if c.kind == "psd") == [3]
    assert sorted(c.order for c in b.cones if c.kind == "psd") == [3]
    assert sorted(map(abs, a.q.tolist())) == sorted(map(abs, b.q.tolist()))


@pytest.mark.parametrize("seed", range(4))
def test_second_order_cones_within_terms_become_blocks(seed, tmp_path):
    rng = np.random.default_rng(seed)
    X, x = cp.Variable((3, 3), symmetric=True, name="X"), cp.Variable(3, name="x")
    C, c = rng.normal(size=(3, 3)), rng.normal(size=3)
    rows = [cp.lambda_max(X) + cp.norm(x - c / 9) + cp.abs(x[0]) <= 2, cp.lambda_min(X) >= -1]
    rows += [cp.quad_form(x, np.eye(3)) + cp.lambda_max(X) <= 5]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.trace((C + C.T) @ X) + c @ x), rows), list("abc"))
    p.export(tmp_path / "p.dat-s")
    q = read(tmp_path / "p.dat-s")
    a, b = p.solve(), q.solve()
    assert a.grade.word == "proved" and b.objective == pytest.approx(a.objective, abs=1e-6)
    assert b["x"] == pytest.approx(a["x"], abs=1e-3)


@pytest.mark.parametrize("cost", [0.0, 1.0])
def test_a_problem_without_constraints_is_refused(cost, tmp_path):
    """No reader takes a file without blocks, not even the one here."""
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cost * cp.sum(cp.Variable(2, name="x")))))
    with pytest.raises(of.UnsupportedProblem, match="no constraint"):
        of.export(p, tmp_path / "p.dat-s")
    assert not (tmp_path / "p.dat-s").exists()
