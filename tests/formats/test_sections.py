"""What MPS and LP files state beyond rows: semicontinuous columns, sets, indicators, odd layouts."""

from __future__ import annotations

import bz2
import gzip
import importlib
import itertools
from fractions import Fraction

import numpy as np
import pytest

import optfair as of
from optfair.formats.files import read
from optfair.formats.mps import read_mps


def write(tmp_path, text, name="p.mps"):
    file = tmp_path / name
    file.write_text(text)
    return file


HEAD = """\
NAME t
OBJSENSE
    MAX
ROWS
 N goal
 L cap
COLUMNS
    x goal 1 cap 1
    y goal 2 cap 1
    z goal 3 cap 1
    M 'MARKER' 'INTORG'
    b goal -0.5
    M 'MARKER' 'INTEND'
RHS
    r cap 10
BOUNDS
{bounds}
{more}ENDATA
"""
BOUNDS = " UP BND x 4\n UP BND y 4\n UP BND z 4\n UP BND b 1"


def mps(bounds=BOUNDS, more=""):
    return HEAD.format(bounds=bounds, more=more)


def optimum(file):
    return read(file).solve().objective


def by_highs(file):
    highspy = importlib.import_module("highspy")
    h = highspy.Highs()
    h.silent()
    assert h.readModel(str(file)) != highspy.HighsStatus.kError
    h.run()
    return h.getInfo().objective_function_value


@pytest.mark.parametrize("cap", [2.0, 5.5, 10.0])
def test_semicontinuous_columns(cap, tmp_path):
    bounds = " LO BND x 3\n SC BND x 5\n UP BND y 1\n UP BND z 1\n UP BND b 1"
    file = write(tmp_path, mps(bounds).replace("cap 10", f"cap {cap}"))
    # x is 0, or between 3 and 5
    best = max(
        x + 2 * y + 3 * z
        for x in (0.0, *np.linspace(3, 5, 201))
        for y, z in itertools.product((0.0, 1.0), repeat=2)
        if x + y + z <= cap + 1e-12
    )
    assert optimum(file) == pytest.approx(best, abs=1e-6) and best == pytest.approx(by_highs(file))
    p = read(file)
    assert "x on" in p.arrays and str(p.problem_class) == "MILP"
    assert {"x semicontinuous upper", "x semicontinuous lower"} <= set(p.constraints)


def test_semicontinuous_integers(tmp_path):
    bounds = " LO BND x 2.5\n SI BND x 4.5\n FX BND y 0\n FX BND z 0\n UP BND b 1"
    file = write(tmp_path, mps(bounds))
    assert optimum(file) == pytest.approx(4.0) and by_highs(file) == pytest.approx(4.0)
    low = write(tmp_path, mps(bounds).replace("x goal 1", "x goal -1"), "low.mps")
    assert optimum(low) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(("kind", "expected"), [("S1", 12.0), ("S2", 4 * 3 + 4 * 2)])
def test_special_ordered_sets(kind, expected, tmp_path):
    more = f"SOS\n {kind} one\n    x 1\n    y 2\n    z 3\n"
    file = write(tmp_path, mps(more=more))
    assert optimum(file) == pytest.approx(expected)
    # neighbours by weight, whatever the order of the lines
    moved = more.replace("y 2", "y 9")
    other = {"S1": 12.0, "S2": 4 * 3 + 4 * 2}[kind]
    assert optimum(write(tmp_path, mps(more=moved), "moved.mps")) == pytest.approx(other)
    apart = more.replace("x 1", "x 2.5")  # y, x, z
    assert optimum(write(tmp_path, mps(more=apart), "apart.mps")) == pytest.approx(
        12.0 if kind == "S1" else 4 * 3 + 4 * 1
    )


def test_sets_as_other_writers_spell_them(tmp_path):
    more = "SETS\n S1 SOS one 5\n    SOS x 1\n    SOS y 2\n    SOS z 3\n"
    assert optimum(write(tmp_path, mps(more=more))) == pytest.approx(12.0)


@pytest.mark.parametrize("value", ["0", "1"])
@pytest.mark.parametrize("kind", ["L", "G", "E"])
def test_indicators(kind, value, tmp_path):
    text = mps(more=f"INDICATORS\n IF cap b {value}\n").replace("L cap", f"{kind} cap")
    file = write(tmp_path, text)
    best = -np.inf
    for b in (0.0, 1.0):
        for total in np.linspace(0, 12, 25):
            holds = {"L": total <= 10, "G": total >= 10, "E": total == 10}[kind]
            if b != float(value) or holds:
                # z, then y, then x are worth most
                z, y = min(total, 4.0), min(max(total - 4.0, 0.0), 4.0)
                best = max(best, 3 * z + 2 * y + (total - z - y) - 0.5 * b)
    assert optimum(file) == pytest.approx(best)


def test_indicators_hold_at_every_corner(tmp_path):
    """The rows with binaries allow what the file allows, and nothing else."""
    text = mps(more="INDICATORS\n IF cap b 1\n").replace(" L cap", " E cap")
    p = read(write(tmp_path, text))
    rng = np.random.default_rng(0)
    f = p.rows
    for _ in range(200):
        x = np.append(rng.uniform(0, 4, size=3), rng.integers(2))
        if rng.random() < 0.5:
            x[:3] *= 10 / x[:3].sum()
        body = f.A @ x
        inside = (body >= f.row_lower - 1e-9).all() and (body <= f.row_upper + 1e-9).all()
        assert inside == (x[3] == 0.0 or abs(x[:3].sum() - 10) <= 1e-9)


LP = """\
Maximize
 goal: x + 2 y + 3 z - 0.5 b
Subject To
 cap: {arrow}x + y + z <= 10
Bounds
 x <= 4
 y <= 4
 z <= 4
Binaries
 b
{more}End
"""


@pytest.mark.parametrize(
    ("arrow", "more", "expected"),
    [
        ("", "", 4 + 8 + 12 - 2),
        ("b = 1 -> ", "", 24.0),
        ("b = 0 -> ", "", 24.0 - 0.5),
        ("", "SOS\n one: S1:: x:1 y:2 z:3\n", 12.0),
        ("", "SOS\n one: S2::\n x:1 y:2\n z:3\n", 20.0),
        ("", "SOS2\n S2:: x : 1 z : 2 y : 3\n", 12.0 + 8.0),
    ],
)
def test_lp_files_state_the_same(arrow, more, expected, tmp_path):
    file = write(tmp_path, LP.format(arrow=arrow, more=more), "p.lp")
    assert optimum(file) == pytest.approx(expected)


def test_semicontinuous_columns_of_lp(tmp_path):
    text = LP.format(arrow="", more="Semi-Continuous\n x\n").replace(" x <= 4", " 3 <= x <= 4")
    text = text.replace("<= 10", "<= 2.5")
    file = write(tmp_path, text, "p.lp")
    assert optimum(file) == pytest.approx(7.5) == pytest.approx(by_highs(file))


@pytest.mark.parametrize(
    ("text", "line", "reason", "ending"),
    [
        (mps(" SC BND x 1e30\n UP BND b 1"), 17, "'x' has no finite upper bound", ".mps"),
        (mps("", "SOS\n S1 s\n x 1\n y 2\n"), 19, "'x' in the set 's' has no finite", ".mps"),
        (mps(more="SOS\n S1 s\n x 1\n y 1\n"), 22, "a column or a weight twice", ".mps"),
        (mps(more="SOS\n x 1\n"), 22, "a set is S1 or S2", ".mps"),
        (mps(more="SOS\n S1 s\n w 1\n"), 23, "no column 'w'", ".mps"),
        (mps(more="INDICATORS\n IF cap x 1\n"), 22, "'x' decides 'cap' and is not binary", ".mps"),
        (mps(more="INDICATORS\n IF cup b 1\n"), 22, "no row 'cup'", ".mps"),
        (mps(more="INDICATORS\n IF cap b 2\n"), 22, "0 or 1", ".mps"),
        (mps(" UP BND b 1", "INDICATORS\n IF cap b 1\n"), 19, "no finite bounds", ".mps"),
        (LP.format(arrow="", more="SOS\n s: S1:: w:1 x:2\n"), 12, "no column 'w'", ".lp"),
        (LP.format(arrow="", more="SOS\n s: S3:: x:1\n"), 12, "S1:: or S2::", ".lp"),
        (LP.format(arrow="x = 1 -> ", more=""), 4, "not binary", ".lp"),
        (LP.format(arrow="2 b = 1 -> ", more=""), 4, "an indicator is", ".lp"),
        (LP.format(arrow="", more="Semi-Continuous\n w\n"), 12, "no column 'w'", ".lp"),
        (LP.format(arrow="", more="PWLObj\n x: 1\n"), 11, "'pwlobj' is not known", ".lp"),
    ],
)
def test_what_cannot_be_stated_is_refused_with_its_line(text, line, reason, ending, tmp_path):
    with pytest.raises(of.DataError) as e:
        read(write(tmp_path, text, f"p{ending}"))
    assert reason in e.value.cause and f"line {line}:" in e.value.cause


FIXED = """\
NAME          SPACES
ROWS
 N  THE COST
 L  ROW ONE
 G  ROW TWO
COLUMNS
    COL ONE   THE COST           1.0   ROW ONE            1.0
    COL ONE   ROW TWO            1.0
    COL TWO   THE COST           2.0   ROW TWO         1.0D+00
RHS
    RHS       ROW ONE        4.0D+00   ROW TWO            6.0
RANGES
    RNG       ROW ONE            3.0
BOUNDS
 UP BND       COL TWO            5.0
ENDATA
"""


def test_fixed_format_with_spaces_in_names(tmp_path):
    f = read_mps(write(tmp_path, FIXED))
    assert list(f.columns) == ["COL ONE", "COL TWO"] and list(f.rows) == ["ROW ONE", "ROW TWO"]
    assert f.A.toarray().tolist() == [[1.0, 0.0], [1.0, 1.0]]
    assert f.row_lower.tolist() == [1.0, 6.0] and f.row_upper.tolist() == [4.0, np.inf]
    assert f.upper.tolist() == [np.inf, 5.0] and f.cost.tolist() == [1.0, 2.0]
    assert by_highs(write(tmp_path, FIXED.replace("D+00", "E+00"), "e.mps")) == pytest.approx(8.0)
    s = read(write(tmp_path, FIXED)).solve()
    assert s.objective == pytest.approx(8.0) and s["COL ONE"] == pytest.approx(4.0)


def test_fixed_format_repeats_the_column_above_and_has_comments(tmp_path):
    lines = FIXED.splitlines()
    at = next(k for k, line in enumerate(lines) if line.startswith("    COL ONE   ROW TWO"))
    lines[at] = " " * 14 + lines[at][14:]
    lines[1] = lines[1].ljust(14) + "$ what the rows are"
    text = "\n".join(lines) + "\n"
    f, g = read_mps(write(tmp_path, text)), read_mps(write(tmp_path, FIXED))
    assert f.columns == g.columns and f.A.toarray().tolist() == g.A.toarray().tolist()
    first = lines.index("COLUMNS") + 1
    lines[first] = " " * 14 + lines[first][14:]
    with pytest.raises(of.DataError, match=f"line {first + 1}: this line has no column"):
        read(write(tmp_path, "\n".join(lines) + "\n"))


def test_markers_stand_anywhere_in_a_line_of_fixed_format(tmp_path):
    lines = FIXED.splitlines()
    second = next(k for k, line in enumerate(lines) if line.startswith("    COL TWO"))
    for gap in (6, 17):  # by the fields, and as collections have it
        marks = [
            f"    M{end}  {'':{gap}}'MARKER'                 'INT{end}'" for end in ("ORG", "END")
        ]
        text = [*lines[:second], marks[0], lines[second], marks[1], *lines[second + 1 :]]
        f = read_mps(write(tmp_path, "\n".join(text) + "\n"))
        assert f.integer.tolist() == [False, True] and list(f.columns) == ["COL ONE", "COL TWO"]
        assert f.A.toarray().tolist() == [[1.0, 0.0], [1.0, 1.0]]


def test_comments_and_empty_lines_of_fixed_format(tmp_path):
    lines = FIXED.splitlines()
    text = "\n".join(["* a comment", "", *(f"{line}\n* {k}\n" for k, line in enumerate(lines))])
    f, g = read_mps(write(tmp_path, text)), read_mps(write(tmp_path, FIXED))
    for part in ("cost", "lower", "upper", "row_lower", "row_upper"):
        assert getattr(f, part).tolist() == getattr(g, part).tolist()
    assert f.A.toarray().tolist() == g.A.toarray().tolist()


def test_fixed_files_are_refused_with_their_line(tmp_path):
    wrong = FIXED.replace(
        "    COL ONE   ROW TWO            1.0", "    COL ONE   ROW SIX            1.0"
    )
    with pytest.raises(of.DataError, match="line 8: there is no row 'ROW SIX'"):
        read(write(tmp_path, wrong))
    # neither free nor fixed: the error is that of the free format
    with pytest.raises(of.DataError, match="line 3: a row is a type"):
        read(write(tmp_path, FIXED.replace(" L  ROW ONE", " L     ROW ONE")))


def test_ranges_may_come_before_sides(tmp_path):
    a, b = FIXED.index("RHS\n"), FIXED.index("BOUNDS\n")
    middle = FIXED[a:b]
    at = middle.index("RANGES\n")
    moved = FIXED[:a] + middle[at:] + middle[:at] + FIXED[b:]
    f, g = read_mps(write(tmp_path, FIXED)), read_mps(write(tmp_path, moved, "moved.mps"))
    assert np.array_equal(f.row_lower, g.row_lower) and np.array_equal(f.row_upper, g.row_upper)


def test_numbers_of_fortran_and_of_nobody(tmp_path):
    f = read_mps(write(tmp_path, mps().replace("cap 10", "cap 1.25D+01")))
    assert f.row_upper.tolist() == [12.5]
    f = read_mps(write(tmp_path, mps().replace("x goal 1 cap 1", "x goal 1d0 cap 1.5d-1")))
    assert f.cost[0] == 1.0 and f.A[0, 0] == 0.15
    for text in ("1_0", "nan", "inf", "1e999", "٣", "1d", "0x1p3"):
        for changed in (("cap 10", f"cap {text}"), ("x goal 1", f"x goal {text}")):
            with pytest.raises(of.DataError, match=r"is not a (finite )?number") as e:
                read(write(tmp_path, mps().replace(*changed)))
            assert f"line {15 if changed[0] == 'cap 10' else 8}:" in e.value.cause


DOUBLE = mps().replace("    y goal 2 cap 1\n", "    y goal 2 cap 1\n    y cap 0.5 goal 4\n")


def test_entries_that_stand_twice(tmp_path):
    file = write(tmp_path, DOUBLE)
    with pytest.raises(of.DataError, match=r"line 10: 'y' has two entries in '(cap|goal)'") as e:
        read(file)
    assert 'of.read(path, duplicates="sum")' in e.value.remedy
    p = read(file, duplicates="sum")
    assert p.rows.A.toarray()[0].tolist() == [1.0, 1.5, 1.0, 0.0]
    assert p.rows.cost.tolist() == [1.0, 6.0, 3.0, -0.5]
    with pytest.raises(of.DataError, match="duplicates is 'add'"):
        read(file, duplicates="add")


QUADRATIC = """\
NAME q
ROWS
 N goal
 L row
COLUMNS
    x goal 1 row 1
    y row 1
RHS
    r row 4
{section}
ENDATA
"""


@pytest.mark.parametrize(
    ("section", "line", "reason", "expected"),
    [
        ("QMATRIX\n x x 2\n x y 3\n y x 1\n y y 6", 12, "not symmetric", [[2, 2], [2, 6]]),
        ("QSECTION goal\n x x 2\n x y 3\n y x 1", 12, "not symmetric", [[2, 2], [2, 0]]),
        ("QUADOBJ\n x x 2\n x y 1\n y x 1\n y y 6", 12, "both triangles", [[2, 2], [2, 6]]),
        ("QUADOBJ\n x x 1\n x x 1\n y y 6", 12, "there already", [[2, 0], [0, 6]]),
    ],
)
def test_quadratic_sections_that_are_not_symmetric(section, line, reason, expected, tmp_path):
    file = write(tmp_path, QUADRATIC.format(section=section), "q.qps")
    with pytest.raises(of.DataError, match=reason) as e:
        read(file)
    assert f"line {line}:" in e.value.cause
    assert read(file, duplicates="sum").rows.P.toarray().tolist() == expected


def test_files_are_read_by_every_ending(tmp_path):
    text = mps()
    expected = optimum(write(tmp_path, text))
    (tmp_path / "a.qps").write_text(text)
    (tmp_path / "b.MPS").write_bytes(b"\xef\xbb\xbf" + text.encode())
    (tmp_path / "c.mps.bz2").write_bytes(bz2.compress(text.encode()))
    (tmp_path / "d.qps.GZ").write_bytes(gzip.compress(text.encode(), mtime=0))
    for name in ("a.qps", "b.MPS", "c.mps.bz2", "d.qps.GZ"):
        assert optimum(tmp_path / name) == expected
    p = read(tmp_path / "a.qps")
    for name in ("e.qps", "f.lp.bz2", "g.cbf.bz2"):
        p.export(tmp_path / name)
        assert optimum(tmp_path / name) == pytest.approx(expected)


@pytest.mark.parametrize("ending", [".gz", ".bz2"])
def test_corrupt_archives(ending, tmp_path):
    pack = gzip.compress if ending == ".gz" else bz2.compress
    data = bytearray(pack(mps().encode() * 50))
    data[len(data) // 2] ^= 0xFF
    for name, content in (("flipped", bytes(data)), ("short", bytes(data[:-40])), ("none", b"")):
        file = tmp_path / f"{name}.mps{ending}"
        file.write_bytes(content)
        with pytest.raises(of.DataError):
            read(file)


def test_the_text_of_an_archive_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("optfair.storage.ALWAYS", 1000)
    monkeypatch.setattr("optfair.storage.EXPANSION", 2)
    file = tmp_path / "p.mps.gz"
    file.write_bytes(gzip.compress(b" " * 5000, mtime=0))
    with pytest.raises(of.DataError, match="holds more than"):
        read(file)


def test_names_that_look_like_indices(tmp_path):
    """Many indices, and numbers of many digits, are part of a name."""
    many = f"x[{','.join(['1'] * 70)}]"
    long = f"x{'9' * 30}"
    text = mps().replace("    x goal", f"    {many} goal").replace("    y goal", f"    {long} goal")
    text = text.replace("BND x 4", f"BND {many} 4").replace("BND y 4", f"BND {long} 4")
    p = read(write(tmp_path, text))
    assert {many, long} <= set(p.arrays) and p[many].shape == ()


def test_counts_that_no_file_holds(tmp_path):
    text = "VER\n3\nOBJSENSE\nMIN\nVAR\n{count} 1\nF {count}\n"
    for count in ("2000000000", "9" * 40):
        with pytest.raises(of.DataError, match=r"line 6: .* more than a file can hold"):
            read(write(tmp_path, text.format(count=count), "p.cbf"))


LP_FAR = """\
Maximize
 goal: x
Subject To
 on: z = {value} -> 1.1 x <= 0.1
Bounds
 x <= {far}
Binaries
 z
End
"""


@pytest.mark.parametrize("value", [0, 1])
@pytest.mark.parametrize("far", [1.0, 1e6, 1e15, 1e17])
def test_an_indicator_row_holds_to_its_last_digit_however_far_columns_reach(value, far, tmp_path):
    """Where it is on, what is left of 1e15 + 0.1 less 1e15 is not its side."""
    f = read(write(tmp_path, LP_FAR.format(value=value, far=far), "p.lp")).rows
    names = list(f.columns)
    x, z = names.index("x"), names.index("z")
    (row,) = (f.A[[i], :].toarray()[0] for i in range(f.A.shape[0]) if f.A[i, x])
    side = Fraction(next(v for v, a in zip(f.row_upper, f.A[:, [x]].toarray(), strict=True) if a))
    for on in (False, True):
        at = value if on else 1 - value
        # a further column is 1 - z
        fixed = sum(Fraction(v) * (at if j == z else 1 - at) for j, v in enumerate(row) if j != x)
        if on:
            assert side - fixed == Fraction(0.1)
        else:
            assert side - fixed >= Fraction(1.1) * Fraction(far)


@pytest.mark.parametrize("far", [1e6, 1e9, 1e12, 1e14])
def test_a_column_that_reaches_far_does_not_hide_what_is_near(far, tmp_path):
    """In units of the column its optimum is less than a tolerance."""
    text = (
        LP_FAR.replace("1.1 x", "x")
        .format(value=1, far=far)
        .replace("Bounds", " d: z >= 1\nBounds")
    )
    s = read(write(tmp_path, text, "p.lp")).solve()
    assert s.objective == pytest.approx(0.1, rel=1e-6) and s.bound == pytest.approx(0.1, rel=1e-6)


@pytest.mark.parametrize(("solver", "far"), [("highs", 1e15), ("scip", 1e14), ("scip", 1e17)])
def test_what_branch_and_bound_loses_beside_a_far_column_is_refused(solver, far, tmp_path):
    """With z = 1 the rest is a linear program, of which 0.1 is the optimum."""
    text = LP_FAR.replace("1.1 x", "x").replace("Bounds", " d: z >= 1\nBounds")
    p = read(write(tmp_path, text.format(value=1, far=far), "p.lp"))
    with pytest.raises(of.SolverFailure, match=r"leave a point of 0\.1, better than 0"):
        p.solve(solver)
