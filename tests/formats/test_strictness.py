"""Files that say two things, or nothing, in one place are refused; the others are read as they say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cvxpy as cp
import highspy
import numpy as np
import pytest

import optfair as of
from optfair.formats.lp import read_lp
from optfair.formats.mps import read_mps

HEAD = """\
NAME t
ROWS
 N obj
 L c1
 G c2
COLUMNS
 x obj 1
 x c1 1
 x c2 1
 y obj 1
 y c1 1
 y c2 1
RHS
 RHS c1 10
 RHS c2 1
"""
BLOCK = "2\n2\n2 -1\n1 1\n0 1 1 2 -1\n1 1 1 1 1\n2 1 2 2 1\n1 2 1 1 1\n"
CONES = """\
VER
3

OBJSENSE
MIN

VAR
2 1
F 2

CON
2 1
L+ 2

OBJACOORD
2
0 1
1 1

ACOORD
3
0 0 1
1 0 1
1 1 1

BCOORD
2
0 -1
1 -3
"""


def write(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text)
    return file


def lp(rows: str, more: str = "") -> str:
    return f"Minimize\n obj: x + y\nSubject To\n {rows}\n{more}End\n"


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.lp", lp("c: x + y >= 1e30"), "infinite side"),
        ("a.lp", lp("c: x + y = inf"), "infinite side"),
        ("a.lp", lp("c: x + y <= -inf"), "infinite side"),
        ("a.lp", lp("c: x + y >= 1", "Bounds\n x >= 1e30\n"), "infinite side"),
        ("a.lp", lp("c: 5 <= x + y >= 3"), "different ways"),
        ("a.lp", lp("c: 5 = x >= 3"), "different ways"),
        ("a.lp", lp("c: x + y >= 1", "Bounds\n 5 <= x >= 3\n"), "different ways"),
        ("a.lp", lp("c: x + y >= 1", "Bounds\n x >= 2\nBinary\n x\n"), "no value between"),
        ("a.lp", lp("c: x + 2 = 1 -> y >= 5", "Binary\n x\n"), "an indicator is"),
        ("a.mps", HEAD + "QUADOBJ\n x x 2\nQUADOBJ\n y y 2\nENDATA\n", "products already"),
        ("a.mps", HEAD + "QCMATRIX c1\n x x 2\nQCMATRIX c1\n y y 2\nENDATA\n", "products already"),
        ("a.mps", HEAD + "QMATRIX c1\n x x 2\nENDATA\n", "is about the objective"),
        ("a.mps", HEAD.replace("RHS\n", "COLUMNS\n x c1 7\nRHS\n", 1) + "ENDATA\n", "COLUMNS"),
        ("a.mps", HEAD + " c1\nENDATA\n", "a row and a number"),
        ("a.mps", "NAME t\nOBJNAME\n c9\n" + HEAD[7:] + "ENDATA\n", "which OBJNAME names"),
        ("a.dat-s", BLOCK + "-1 1 1 1 5\n", "is not a count"),
        ("a.dat-s", BLOCK + "-1 2 1 1 -5\n", "is not a count"),
        ("a.dat-s", BLOCK + "0_0 1 1 1 -1\n", "is not a count"),
        ("a.cbf", CONES + "\nBCOORD\n1\n0 -5\n", "'BCOORD' is there already"),
        ("a.cbf", CONES + "\nOBJACOORD\n1\n0 5\n", "'OBJACOORD' is there already"),
    ],
)
def test_what_is_said_twice_or_means_nothing_is_refused(
    name: str, text: str, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(of.DataError) as e:
        of.read(write(tmp_path, name, text))
    assert reason in e.value.cause and ", line " in e.value.cause


def test_a_folder_is_called_one(tmp_path: Path) -> None:
    x = cp.Variable(name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x), [x >= 1]))
    for call in (of.read, p.export):
        with pytest.raises(of.DataError, match="is a folder\n  do:  give a file, whose ending is"):
            call(tmp_path)


def test_the_same_files_without_that_are_read(tmp_path: Path) -> None:
    assert of.read(write(tmp_path, "a.mps", HEAD + "ENDATA\n")).solve().objective == pytest.approx(
        1
    )
    assert of.read(write(tmp_path, "a.cbf", CONES)).solve().objective == pytest.approx(3.0)
    assert of.read(write(tmp_path, "a.dat-s", BLOCK)).solve().objective == pytest.approx(2.0)
    named = '* names {"columns":["a","a","b"]}\n' + BLOCK
    assert of.read(write(tmp_path, "b.dat-s", named)).solve().objective == pytest.approx(2.0)


def test_binaries_keep_the_bounds_they_have(tmp_path: Path) -> None:
    text = lp("c: x + y >= 1", "Bounds\n x = 1\n y = 1\nBinary\n x\n y\n")
    assert of.read(write(tmp_path, "a.lp", text)).solve().objective == pytest.approx(2.0)
    f = read_lp(write(tmp_path, "b.lp", lp("c: x + y >= 1", "Bounds\n x <= 5\nBinary\n x\n")))
    assert f.upper.tolist() == [1.0, np.inf] and f.integer.tolist() == [True, False]


def test_rows_whose_products_cancel_are_linear(tmp_path: Path) -> None:
    f = read_lp(write(tmp_path, "a.lp", lp("c: x + [ x^2 - x^2 ] >= 1")))
    assert not f.row_P and f.row_lower.tolist() == [1.0]
    g = read_mps(write(tmp_path, "a.mps", HEAD + "QCMATRIX c1\n x x 0\nENDATA\n"))
    assert not g.row_P


def test_indicators_know_that_semicontinuous_columns_may_be_0(tmp_path: Path) -> None:
    text = """\
Minimize
 obj: z + 0.1 x + y
Subject To
 d: y - x >= 0
 i1: b = 1 -> - x <= -5
 c: b + z >= 1
Bounds
 2 <= x <= 10
 y <= 10
 z <= 1
 b <= 1
General
 b
Semi-Continuous
 x
End
"""
    s = of.read(write(tmp_path, "a.lp", text)).solve()
    assert s.objective == pytest.approx(1.0) and s["x"] == pytest.approx(0.0, abs=1e-9)


def test_numbers_go_on_to_their_end_in_fixed_format(tmp_path: Path) -> None:
    column = "    X         OBJ                1.0   ROW 1     1.23456789012e-3\n"
    text = f"NAME          T\nROWS\n N  OBJ\n G  ROW 1\nCOLUMNS\n{column}"
    text += "RHS\n    RHS       ROW 1              1.0\nENDATA\n"
    assert read_mps(write(tmp_path, "a.mps", text)).A.toarray().tolist() == [[1.23456789012e-3]]
    behind = text.replace(column, column.replace("1.23456789012e-3", "1.2345678901  00010"))
    assert read_mps(write(tmp_path, "b.mps", behind)).A.toarray().tolist() == [[1.2345678901]]


@pytest.mark.parametrize(
    ("column", "row"), [("v", "RHS"), ("BND", "c"), ("marker", "MARKER"), ("v", "rng")]
)
def test_names_of_vectors_are_kept_free(column: str, row: str, tmp_path: Path) -> None:
    x, y = cp.Variable(name=column), cp.Variable(name="w")
    rows: list[Any] = [x >= 2.5, y >= -1, x + y >= 2]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x + 2 * y + 1), rows), [row, "d", "e"])
    file = tmp_path / "a.mps"
    p.export(file)
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.readModel(str(file))
    solver.run()
    value = p.solve().objective
    assert solver.getInfo().objective_function_value == pytest.approx(value)
    assert of.read(file).solve().objective == pytest.approx(value)


@pytest.mark.parametrize("name", ["ONE_VAR_CONSTANT", "lazy", "pwlobj", "nan"])
def test_names_that_mean_something_in_lp_files_are_kept_free(name: str, tmp_path: Path) -> None:
    x = cp.Variable(name=name)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x + 3), [x >= -2]), ["c"])
    file = tmp_path / "a.lp"
    p.export(file)
    assert of.read(file).solve().objective == pytest.approx(p.solve().objective) == pytest.approx(1)


def test_rows_and_columns_may_share_a_stem(tmp_path: Path) -> None:
    text = (
        "Minimize\n obj: 5 C1 + 5 C2 + C3\nSubject To\n C1: C2 + C3 >= 2\n C2: C1 + C3 >= 1\nEnd\n"
    )
    p = of.read(write(tmp_path, "a.lp", text))
    for ending in (".mps", ".lp"):
        p.export(tmp_path / f"b{ending}")
        q = of.read(tmp_path / f"b{ending}")
        assert q.solve().objective == pytest.approx(p.solve().objective) == pytest.approx(2.0)


def test_a_name_that_is_the_stem_of_others_stays_with_its_owner(tmp_path: Path) -> None:
    text = lp("c(0): x(0) <= 1\n c(1): x(1) <= 2\n c: x <= 3", "").replace(
        "obj: x", "obj: - x - x(0)"
    )
    p = of.read(write(tmp_path, "a.lp", text))
    assert set(p.arrays) == {"x 2", "x", "y"}
    assert (p.arrays["x"].shape, p.arrays["x 2"].shape) == ((), (2,))
    assert p.constraints["c"].shape == () and p.constraints["c 2"].shape == (2,)


def test_rows_without_a_name_leave_room_for_those_with_one(tmp_path: Path) -> None:
    f = read_lp(
        write(tmp_path, "a.lp", lp("x + y >= 1\n R1: x - y >= 2\n y >= 3\n R1_2: y >= 0", ""))
    )
    assert f.rows == ["R1_3", "R1", "R3", "R1_2"]
    assert f.row_lower.tolist() == [1.0, 2.0, 3.0, 0.0]


def test_variables_that_are_added_keep_names_of_their_own(tmp_path: Path) -> None:
    text = "Minimize\n obj: x(0) + 2 x(1) + y\nSubject To\n c: x(0) + x(1) + y >= 5\n"
    p = of.read(write(tmp_path, "a.lp", text + "Bounds\n x(0) <= 1\nEnd\n"))
    z = cp.Variable(2, name="x")
    q = p.with_variables({"x": z}).with_constraints(low=z >= 3, both=cp.sum(z) + p["y"] >= 20)
    for ending in (".mps", ".lp"):
        q.export(tmp_path / f"b{ending}")
        again = of.read(tmp_path / f"b{ending}")
        assert again.rows.cost.size == 5
        assert again.solve().objective == pytest.approx(q.solve().objective) == pytest.approx(5.0)


def test_bounds_are_judged_by_the_last_of_them(tmp_path: Path) -> None:
    text = lp("c: x + y >= -10", "Bounds\n x <= -1\n x >= -5\n y <= 3\n")
    f = read_lp(write(tmp_path, "a.lp", text))
    assert (f.lower.tolist(), f.upper.tolist()) == ([-5.0, 0.0], [-1.0, 3.0])
    with pytest.raises(of.DataError, match="'x' has no value between its bounds"):
        read_lp(write(tmp_path, "b.lp", lp("c: x + y >= 1", "Bounds\n x <= -1\n y <= 3\n")))


def test_a_row_has_one_indicator(tmp_path: Path) -> None:
    text = HEAD.replace(" y obj 1\n", " M 'MARKER' 'INTORG'\n y obj 1\n")
    text = text.replace("RHS\n", " M 'MARKER' 'INTEND'\nRHS\n", 1)
    text += "BOUNDS\n UP B x 10\n UP B y 1\nINDICATORS\n IF c2 y 1\n IF c2 y 0\nENDATA\n"
    with pytest.raises(of.DataError, match="has an indicator already"):
        read_mps(write(tmp_path, "a.mps", text))
