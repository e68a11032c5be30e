"""Which format is written where, and names of entries."""

from __future__ import annotations

import gzip
import importlib

import cvxpy as cp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import optfair as of
from optfair.compile.program import Block
from optfair.formats.files import export, read
from optfair.formats.layout import Families, entry_names


def problem():
    x = cp.Variable(2, name="x")
    y = cp.Variable(name="count", integer=True)
    goal = cp.sum_squares(x - 1) + y + 0.25
    return of.from_cvxpy(
        cp.Problem(cp.Minimize(goal), [x[0] + y >= 1.5, x <= 3, y >= -2, y <= 9]),
        ["cover", "top", "low", "high"],
    )


def test_compressed_files_hold_the_same_text(tmp_path):
    for ending in (".mps", ".lp", ".cbf"):
        export(problem(), tmp_path / f"p{ending}")
        export(problem(), tmp_path / f"p{ending}.gz")
        text = gzip.decompress((tmp_path / f"p{ending}.gz").read_bytes())
        assert text == (tmp_path / f"p{ending}").read_bytes()
        assert read(tmp_path / f"p{ending}.gz").integers


def test_an_existing_file_is_replaced_only_by_a_whole_one(tmp_path):
    file = tmp_path / "p.mps"
    export(problem(), file)
    before = file.read_text()
    with pytest.raises(of.UnsupportedProblem):
        export(cone(), file)
    assert file.read_text() == before and list(tmp_path.iterdir()) == [file]


def cone():
    x = cp.Variable(2, name="x")
    return of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [cp.norm(x) <= 1]), ["disk"])


def test_unknown_endings_are_refused(tmp_path):
    for name in ("p.xyz", "p", "p.cip.gz"):
        with pytest.raises(of.DataError, match="format"):
            export(problem(), tmp_path / name)
    with pytest.raises(of.DataError, match="no folder"):
        export(problem(), tmp_path / "nowhere" / "p.mps")
    assert not list(tmp_path.iterdir())


def test_nonconvex_through_scip(tmp_path):
    scip = importlib.import_module("pyscipopt")
    p = of.library.load("textbook/trust_region").problem()
    export(p, tmp_path / "p.cip")
    model = scip.Model()
    model.hideOutput()
    model.readProblem(str(tmp_path / "p.cip"))
    assert model.getNVars() >= 3


def test_no_two_entries_have_one_name():
    blocks = [
        Block("a b", 0, (2,)),
        Block("a_b", 2, (2,)),
        Block("A B", 4, ()),
        Block("λ", 5, (1, 2)),
        Block("st", 7, ()),
        Block("3", 8, ()),
    ]
    names = entry_names(blocks)
    assert names[:2] == ["a_b[0]", "a_b[1]"] and names[2] == "a_b_2[0]"
    assert len({n.lower() for n in names}) == 9
    assert all(n.isascii() and " " not in n and not n[0].isdigit() for n in names)
    assert "st" not in names


@given(st.lists(st.sampled_from([(), (1,), (3,), (2, 3), (1, 1, 2)]), min_size=1, max_size=4))
def test_grouping_inverts_naming(shapes):
    blocks, at = [], 0
    for k, shape in enumerate(shapes):
        blocks.append(Block(f"v{'abcd'[k]}", at, shape))
        at = blocks[-1].stop
    for brackets in ("[]", "()"):
        names = entry_names(blocks, brackets)
        back = list(Families(names, [0] * len(names)).values())
        assert [(f.name, f.shape) for f in back] == [(b.name, b.shape) for b in blocks]
        assert [i for f in back for i in f.members] == list(range(len(names)))


def test_incomplete_indices_make_a_vector():
    (f,) = Families(["x[1]", "x[7]", "x[4]"], "aaa").values()
    assert f.shape == (3,) and f.members.tolist() == [0, 1, 2]
    (f,) = Families(["x(2)", "x(1)", "x(3)"], "aaa").values()
    assert f.shape == (3,) and f.members.tolist() == [1, 0, 2]


@settings(max_examples=60)
@given(
    ending=st.sampled_from([".mps", ".lp", ".cbf"]),
    data=st.data(),
)
def test_damaged_files_are_an_error_or_a_problem(ending, data, tmp_path_factory):
    """Whatever happens to a line, nothing but an error of ours comes out."""
    file = tmp_path_factory.mktemp("damaged") / f"p{ending}"
    export(problem(), file)
    lines = file.read_text().splitlines()
    k = data.draw(st.integers(0, len(lines) - 1))
    words = lines[k].split()
    kind = data.draw(st.sampled_from(["drop", "cut", "double", "swap", "word"]))
    if kind == "drop":
        del lines[k]
    elif kind == "cut":
        lines = lines[:k]
    elif kind == "double":
        lines.insert(k, lines[k])
    elif kind == "swap" and k:
        lines[k], lines[k - 1] = lines[k - 1], lines[k]
    elif words:
        words[data.draw(st.integers(0, len(words) - 1))] = data.draw(
            st.sampled_from(["", "-", "x", "1e400", "nan", "-1", "7", "]", "[", "Q", "@0:POW"])
        )
        lines[k] = (" " if lines[k][:1].isspace() else "") + " ".join(words)
    file.write_text("\n".join(lines) + "\n")
    try:
        read(file)
    except of.OptfairError as e:
        assert e.cause


def test_what_no_cone_holds_is_not_sent_to_cbf(tmp_path):
    p = of.library.load("german_likelihood").problem()
    with pytest.raises(of.UnsupportedProblem) as e:
        export(p, tmp_path / "p.mps")
    assert "cbf" not in e.value.remedy and not list(tmp_path.iterdir())


def test_a_geometric_program_is_exported_in_logarithms(tmp_path):
    """The remedy of its refusal can be followed: no quadratic is asked for."""
    h, w = cp.Variable(pos=True, name="h"), cp.Variable(pos=True, name="w")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(h + 4 * w), [h * w >= 9]), ["area"])
    with pytest.raises(of.UnsupportedProblem, match=r"do:  export its convex form, .recast\.inner"):
        p.export(tmp_path / "p.cbf")
    p.recast.inner.export(tmp_path / "p.cbf")
    assert str(read(tmp_path / "p.cbf").solve().grade) == "proved"
