"""Readers: conventions of the formats, and what is wrong with a file, by line."""

from __future__ import annotations

import gzip
import importlib
from pathlib import Path

import numpy as np
import pytest

import optfair as of
from optfair.compile.program import program
from optfair.formats.files import read
from optfair.formats.mps import read_mps

MPS = """\
* a comment
NAME          EXAMPLE
OBJSENSE
    MAX
ROWS
 N  PROFIT
 N  FREE
 L  CAP
 G  NEED
 E  MIX
 E  BACK
COLUMNS
    X[0]      PROFIT    1.0        CAP       1.0
    X[0]      FREE      9.0
    X[1]      PROFIT    2.0        CAP       1.0
    X[1]      NEED      1.0
    MARKER    'MARKER'  'INTORG'
    N1        PROFIT    -1.0       MIX       1.0
    N2        MIX       -1.0       BACK      1.0
    MARKER    'MARKER'  'INTEND'
    T         PROFIT    0.5        BACK      1.0
RHS
    RHS       PROFIT    -10.0      CAP       8.0
    RHS       NEED      1.0        MIX       2.0
RANGES
    RNG       CAP       5.0        NEED      3.0
    RNG       MIX       -1.5       BACK      4.0
BOUNDS
 UP BND       X[0]      4.0
 MI BND       X[1]
 UP BND       X[1]      6.0
 LO BND       N1        -3
 UP BND       N1        7
 FR BND       T
ENDATA
"""


def write(tmp_path, text, name="p.mps"):
    file = tmp_path / name
    file.write_text(text)
    return file


def test_conventions_of_mps(tmp_path):
    f = read_mps(write(tmp_path, MPS))
    assert f.maximize and f.offset == 10.0
    assert f.columns == ["X[0]", "X[1]", "N1", "N2", "T"]
    assert f.lower.tolist() == [0.0, -np.inf, -3.0, 0.0, -np.inf]
    # an integer without bounds lies between 0 and 1
    assert f.upper.tolist() == [4.0, 6.0, 7.0, 1.0, np.inf]
    assert f.integer.tolist() == [False, False, True, True, False]
    sides = dict(zip(f.rows, zip(f.row_lower, f.row_upper, strict=True), strict=True))
    assert sides == {
        "FREE": (-np.inf, np.inf),
        "CAP": (3.0, 8.0),
        "NEED": (1.0, 4.0),
        "MIX": (0.5, 2.0),
        "BACK": (0.0, 4.0),
    }


def test_highs_agrees_on_the_conventions(tmp_path):
    highspy = importlib.import_module("highspy")
    file = write(tmp_path, MPS)
    h = highspy.Highs()
    h.silent()
    h.readModel(str(file))
    lp, f = h.getLp(), read_mps(file)
    names = list(lp.col_names_)
    assert names == f.columns
    assert list(lp.col_lower_) == f.lower.tolist() and list(lp.col_upper_) == f.upper.tolist()
    kept = [i for i, r in enumerate(f.rows) if r in lp.row_names_]
    assert [f.row_lower[i] for i in kept] == list(lp.row_lower_)
    assert [f.row_upper[i] for i in kept] == list(lp.row_upper_)
    assert lp.offset_ == f.offset
    assert (lp.sense_ == highspy.ObjSense.kMaximize) == f.maximize
    h.run()
    assert read(file).solve().objective == pytest.approx(h.getInfo().objective_function_value)


def test_names_of_a_file_that_was_read(tmp_path):
    p = read(write(tmp_path, MPS))
    # a vector of continuous columns and one of integer ones, which is an array of its own here
    assert {k: v.shape for k, v in p.variables.items()} == {"columns": (3,), "N": (2,)}
    assert {k: f.shape for k, f in p.arrays.items()} == {"X": (2,), "N": (2,), "T": ()}
    assert {k: p[k].shape for k in p.arrays} == {"X": (2,), "N": (2,), "T": ()}
    assert p.integers == {"N"} and p.sense == "maximize" and p.title == "p.mps"
    assert set(p.constraints) == {
        *("CAP lower", "CAP upper", "NEED lower", "NEED upper", "MIX lower", "MIX upper"),
        *("BACK lower", "BACK upper", "X lower", "X upper", "N lower", "N upper"),
    }
    assert p.constraints["X lower"].shape == (1,)  # the bound of X[0] only
    point = {"X": np.array([1.0, 2.0]), "N": np.zeros(2), "T": np.array(0.0)}
    assert p.objective_value(point) == pytest.approx(1 + 4 + 10)
    assert p.constraints["CAP lower"].violation(point).max() == 0.0
    assert p.constraints["X upper"].violation({**point, "X": np.array([5.0, 8.0])}).tolist() == [
        1.0,
        2.0,
    ]


def test_compressed(tmp_path):
    file = tmp_path / "p.mps.gz"
    file.write_bytes(gzip.compress(MPS.encode()))
    assert read(file).problem_class == read(write(tmp_path, MPS)).problem_class


QUADRATIC = """\
NAME q
ROWS
 N obj
 L c
COLUMNS
    x obj 1
    y c 1
RHS
    RHS c 4
BOUNDS
 FR BND x
 FR BND y
{section}
ENDATA
"""


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("QUADOBJ\n    x x 2\n    x y 1\n    y y 6", [[2.0, 1.0], [1.0, 6.0]]),
        ("QMATRIX\n    x x 2\n    x y 1\n    y x 1\n    y y 6", [[2.0, 1.0], [1.0, 6.0]]),
        ("QSECTION obj\n    x x 2\n    x y 1\n    y x 1\n    y y 6", [[2.0, 1.0], [1.0, 6.0]]),
        ("QSECTION obj\n    x x 2\n    y x 1\n    y y 6", [[2.0, 1.0], [1.0, 6.0]]),
        ("QSECTION\n    x x 2\n    x y 1\n    y y 6", [[2.0, 1.0], [1.0, 6.0]]),
    ],
)
def test_quadratic_objectives(section, expected, tmp_path):
    rows = program(read(write(tmp_path, QUADRATIC.format(section=section))))
    assert rows.P.toarray().tolist() == expected
    point = np.array([1.0, 2.0])
    assert 0.5 * point @ rows.P @ point == pytest.approx(0.5 * (2 + 2 * 2 + 24))


def test_quadratic_rows_are_not_halved(tmp_path):
    text = QUADRATIC.format(section="QCMATRIX c\n    x x 2\n    x y 0.5\n    y x 0.5")
    p = read(write(tmp_path, text))
    point = {"x": np.array(3.0), "y": np.array(5.0)}
    # y + 2 x^2 + x y <= 4
    assert p.constraints["c"].violation(point) == pytest.approx(5 + 18 + 15 - 4)


def changed(old, new):
    assert old in MPS
    return MPS.replace(old, new)


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        (changed("ENDATA\n", ""), 34, "without ENDATA"),
        (
            changed("CAP       1.0\n    X[0]      FREE", "CAP       one\n    X[0]      FREE"),
            13,
            "'one'",
        ),
        (changed("X[1]      NEED      1.0\n", "X[1]      NOBODY    1.0\n"), 16, "no row 'NOBODY'"),
        (
            changed(" UP BND       X[0]      4.0", " UP BND       Z         4.0"),
            29,
            "no column 'Z'",
        ),
        (changed(" UP BND       X[0]      4.0", " XX BND       X[0]      4.0"), 29, "XX"),
        (
            changed(
                " MI BND       X[1]\n UP BND       X[1]      6.0", " UP BND       X[1]      -1"
            ),
            30,
            "no lower bound before it",
        ),
        (changed("RANGES", "SOS1"), 25, "SOS1"),
        (changed(" E  MIX", " E  CAP"), 10, "'CAP' is there already"),
        (changed("X[0]      FREE      9.0", "X[0]      CAP       9.0"), 14, "two entries"),
        (changed("CAP       8.0", "CAP       nan"), 23, "'nan'"),
        (changed("    MAX", "    BIG"), 4, "MIN nor MAX"),
        (MPS + "more\n", 36, "after ENDATA"),
        ("NAME x\nROWS\n N o\nCOLUMNS\nENDATA\n", 5, "no columns"),
        (QUADRATIC.format(section="QMATRIX\n    x y 1"), 14, "not symmetric"),
        (QUADRATIC.format(section="QCMATRIX d\n    x x 1"), 13, "no row 'd'"),
        (
            changed("    RHS       NEED      1.0", "    RHS       CAP       1.0"),
            24,
            "there already",
        ),
        (
            changed("    RHS       NEED      1.0", "    OTHER     NEED      1.0"),
            24,
            "'OTHER' is a second vector of RHS, beside 'RHS'",
        ),
        (
            changed(" UP BND       X[0]      4.0", " UP MORE      X[0]      4.0"),
            30,
            "is a second vector of BOUNDS",
        ),
        (
            changed(
                " UP BND       X[0]      4.0\n", 2 * " UP BND  X[0]  4.0\n" + " UP BND  X[0]  3\n"
            ),
            31,
            "'X[0]' has two different bounds UP",
        ),
        (
            changed(" LO BND       N1        -3", " LO BND       N1        8"),
            33,
            "between its bounds",
        ),
    ],
)
def test_what_is_wrong_with_an_mps_file(text, line, reason, tmp_path):
    with pytest.raises(of.DataError) as e:
        read(write(tmp_path, text))
    assert reason in e.value.cause and f"line {line}:" in e.value.cause


LP = r"""\ a comment
Maximize
 profit: 2 x1 + 3 x2 - t + [ - 4 x1 ^2 + 2 x1 * x2 ] / 2
   + 5 ONE_VAR_CONSTANT
Subject To
 cap: x1 + x2
   <= 8
 -3 <= x1 - x2 <= 4
 need: 2 x1 - 3 b >= -3
 disk: [ x1^2 + x2 ^2 ] <= 9
Bounds
 -inf <= x1 <= 5
 x2 >= -2
 t free
 ONE_VAR_CONSTANT = 1
General
 x1
Binaries
 b
End
"""


def test_conventions_of_lp(tmp_path):
    p = read(write(tmp_path, LP, "p.lp"))
    assert p.sense == "maximize"
    rows = program(p)
    assert rows.offset == 5.0
    # x1 is integer and x2 is not, so they are no array
    assert set(p.arrays) == {"x1", "x2", "t", "b"} and p.integers == {"integer columns"}
    assert p.entry_labels("integer columns") == ["x1", "b"]
    values = {"x1": 1.0, "x2": 2.0, "t": 4.0, "b": 0.0}
    assert p.objective_value(values) == pytest.approx(2 + 6 - 4 + (-4 + 4) / 2 + 5)
    assert p.constraints["disk"].violation(values) == pytest.approx(0.0)
    values["x2"] = 4.0
    assert p.constraints["disk"].violation(values) == pytest.approx(1 + 16 - 9)
    assert p.constraints["R2 lower"].violation(values).max() == 0.0  # 1 - 4 = -3
    values["x2"] = 6.0
    assert p.constraints["R2 lower"].violation(values) == pytest.approx(2.0)
    assert p.constraints["R2 upper"].violation(values) == 0.0
    bounds = {n: t.shape for n, t in p.constraints.items() if n.split()[0] in p.arrays}
    assert set(bounds) == {"x1 upper", "x2 lower", "b lower", "b upper"}


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ("End\n", "", 19, "without End"),
        ("Binaries", "Lazy Constraints", 18, "'lazy constraints' is not known"),
        ("<= 8", "<= eight", 7, "number is missing"),
        ("[ x1^2", "[ x1^3", 10, "not understood"),
        ("] / 2", "]", 3, "/ 2"),
        (" x1\nBin", " x9\nBin", 17, "no column 'x9'"),
        ("Binaries", "SOS", 18, "a set is S1:: or S2::"),
        ("Maximize", "Best", 2, "Minimize or Maximize"),
        ("x2 >= -2", "x7 >= -2", 13, "no column 'x7'"),
        ("-inf <= x1 <= 5", "6 <= x1 <= 5", 12, "between its bounds"),
        (" disk:", " cap:", 10, "'cap' is there already"),
    ],
)
def test_what_is_wrong_with_an_lp_file(old, new, line, reason, tmp_path):
    assert old in LP
    with pytest.raises(of.DataError) as e:
        read(write(tmp_path, LP.replace(old, new), "p.lp"))
    assert reason in e.value.cause
    assert abs(int(e.value.cause.split("line ")[1].split(":")[0]) - line) <= 1


CBF = """\
# a matrix variable, as in the format's own description
VER
1
OBJSENSE
MIN
PSDVAR
1
3
VAR
3 1
F 3
CON
5 2
L= 2
Q 3
OBJFCOORD
5
0 0 0 2
0 1 0 1
0 1 1 2
0 2 1 1
0 2 2 2
OBJACOORD
1
1 1
FCOORD
9
0 0 0 0 1
0 0 1 1 1
0 0 2 2 1
1 0 0 0 1
1 0 1 0 1
1 0 2 0 1
1 0 1 1 1
1 0 2 1 1
1 0 2 2 1
ACOORD
6
0 1 1
1 0 1
1 2 1
2 1 1
3 0 1
4 2 1
BCOORD
2
0 -1
1 -0.5
"""


def test_matrix_variables_of_cbf(tmp_path):
    """Example of the description of the format; its optimum is known."""
    p = read(write(tmp_path, CBF, "p.cbf"))
    assert p.problem_class.cones == {"psd", "soc"}
    s = p.solve()
    assert s.objective == pytest.approx(0.705710509, abs=1e-6)
    assert s["X0"].shape == (3, 3) and np.linalg.eigvalsh(s["X0"])[0] >= -1e-8


def test_mosek_reads_matrix_variables_alike(tmp_path):
    mosek = importlib.import_module("mosek")
    with mosek.Env() as env, env.Task() as task:
        task.readdata(str(write(tmp_path, CBF, "p.cbf")))
        assert task.getnumvar() == 3 and task.getnumbarvar() == 1


CONES = """\
VER
3
POWCONES
1 2
2
3
1
OBJSENSE
MAX
VAR
4 2
L+ 2
F 2
INT
1
0
CON
9 4
QR 3
EXP 3
@0:POW 3
L- 0
OBJACOORD
2
2 1
0 0.5
ACOORD
4
0 2 1
3 2 -1
4 3 1
6 2 1
BCOORD
4
1 2
2 1
3 9
7 1
"""


def test_other_cones_of_cbf(tmp_path):
    p = read(write(tmp_path, CONES, "p.cbf"))
    names = list(p.constraints)
    assert p.integers and p.sense == "maximize"
    # the domain of a linear cone is a bound, as in every other format
    assert names[:2] == ["x lower", "x 2 lower"]
    by = {n: p.constraints[n] for n in names}
    assert {n: p.entry_labels(n) for n in p.variables} == {
        "x": ["x[0]"],
        "x 2": ["x[1]", "x[2]", "x[3]"],
    }

    def at(x2, x3):
        return {"x": np.zeros(1), "x 2": np.array([0.0, x2, x3])}

    # 2 * x2 * 2 >= 1
    assert by["c0"].violation(at(0.25, 0.0)).max() == pytest.approx(0.0, abs=1e-12)
    assert by["c0"].violation(at(0.2, 0.0)).max() > 1e-3
    # 9 - x2 >= x3 exp(0 / x3) = x3
    assert by["c1"].violation(at(1.0, 8.0)).max() == pytest.approx(0.0, abs=1e-9)
    assert by["c1"].violation(at(1.0, 8.5)).max() > 1e-3


@pytest.mark.parametrize("version", [2, 3, 4])
def test_later_versions_of_cbf_are_read_and_their_cones_are_refused_by_name(version, tmp_path):
    text = CBF.replace("VER\n1", f"VER\n{version}", 1)
    first, later = (read(write(tmp_path, t, f"p{k}.cbf")) for k, t in enumerate((CBF, text)))
    assert later.solve().objective == pytest.approx(first.solve().objective, abs=1e-6)
    with pytest.raises(of.DataError, match="SVECPSD") as e:
        read(write(tmp_path, text.replace("Q 3", "SVECPSD 3", 1), "q.cbf"))
    assert "F, L=, L+" in str(e.value)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("VER\n1", "VER\n9", "version 9"),
        ("VER\n1\n", "", "begin with VER"),
        ("5 2\nL= 2", "6 2\nL= 2", "6 are declared"),
        ("Q 3", "ZZ 3", "'ZZ'"),
        ("4 2 1\nB", "9 2 1\nB", "index 9"),
        ("0 2 2 2\n", "0 2 3 2\n", "index 3"),
        ("0 -1\n", "0 x\n", "'x'"),
        ("OBJSENSE\nMIN", "OBJSENSE\nUP", "MIN nor MAX"),
        ("OBJACOORD\n1", "CHANGE\n1", "'CHANGE'"),
        ("1 -0.5\n", "", "within a section"),
        ("1 0 2 0 1\n", "1 0 0 0 1\n", "has a number already"),
        ("0 -1\n1 -0.5", "0 -1\n0 -0.5", "has a number already"),
    ],
)
def test_what_is_wrong_with_a_cbf_file(old, new, reason, tmp_path):
    assert old in CBF
    with pytest.raises(of.DataError, match="line") as e:
        read(write(tmp_path, CBF.replace(old, new, 1), "p.cbf"))
    assert reason in e.value.cause


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(of.DataError, match="no file"):
        read(tmp_path / "nothing.mps")
    with pytest.raises(of.DataError, match="format"):
        read(tmp_path / "p.xlsx")
    (tmp_path / "bad.mps.gz").write_bytes(b"no gzip")
    with pytest.raises(of.DataError, match="cannot be read"):
        read(tmp_path / "bad.mps.gz")
    (tmp_path / "bad.lp").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(of.DataError, match="cannot be read"):
        read(tmp_path / "bad.lp")


@pytest.mark.parametrize("name", ["m.lp", "m.lp.gz", "m.mps", "m.qps", "m.cbf", "m.dat-s"])
@pytest.mark.parametrize("text", ["", "\n  \n"])
def test_an_empty_file_is_called_so(tmp_path: Path, name: str, text: str) -> None:
    raw = text.encode()
    (tmp_path / name).write_bytes(gzip.compress(raw) if name.endswith("gz") else raw)
    with pytest.raises(of.DataError, match=f"{name}: the file is empty"):
        of.read(tmp_path / name)
    if name == "m.lp":
        (tmp_path / name).write_text("\\ a comment\n")
        with pytest.raises(of.DataError, match="comments only"):
            of.read(tmp_path / name)
