"""Problems from arrays and from MATLAB files."""

from __future__ import annotations

import importlib
import zlib

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import savemat

import optfair as of
from optfair.compile.program import program


def test_the_numbers_are_kept(tmp_path):
    rng = np.random.default_rng(0)
    B = rng.normal(size=(4, 4))
    P, q, A = B @ B.T, rng.normal(size=4), rng.normal(size=(3, 4))
    P = (P + P.T) / 2
    l, u = np.array([-1.0, -np.inf, 0.25]), np.array([1.0, 2.0, 0.25])  # noqa: E741
    G, h = rng.normal(size=(2, 4)), rng.normal(size=2)
    lb, ub = np.array([-1.0, -np.inf, -2, 0]), np.array([np.inf, 1e30, 3, 0])
    for convert in (np.asarray, sp.csc_matrix, sp.coo_array, sp.csr_array):
        p = of.from_arrays(convert(P), q, convert(A), l, u, lb=lb, ub=ub, G=convert(G), h=h, r=0.5)
        f = p.rows
        assert np.array_equal(f.P.toarray(), P) and np.array_equal(f.cost, q) and f.offset == 0.5
        assert np.array_equal(f.A.toarray(), np.vstack([A, G]))
        assert f.row_lower.tolist() == [-1.0, -np.inf, 0.25, -np.inf, -np.inf]
        assert f.row_upper.tolist() == [1.0, 2.0, 0.25, *h]
        assert f.lower.tolist() == [-1.0, -np.inf, -2.0, 0.0]
        assert f.upper.tolist() == [np.inf, np.inf, 3.0, 0.0]
        rows = program(p)
        assert np.abs(rows.P - P).max() <= 4e-16 * np.abs(P).max() and np.array_equal(rows.q, q)
    assert list(p.variables) == ["x"] and p["x"] is p.variables["x"]
    assert str(p.problem_class) == "QP"


@settings(max_examples=15)
@given(seed=st.integers(0, 10_000))
def test_qps_are_those_of_another_solver(seed):
    osqp = importlib.import_module("osqp")
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(1, 6)), int(rng.integers(1, 6))
    B = rng.normal(size=(n, n))
    P, q, A = B @ B.T + 0.1 * np.eye(n), rng.normal(size=n), rng.normal(size=(m, n))
    P = (P + P.T) / 2
    middle = A @ rng.normal(size=n)
    l, u = middle - rng.random(m), middle + rng.random(m)  # noqa: E741
    l[rng.random(m) < 0.3] = -np.inf
    solver = osqp.OSQP()
    settings_ = {"eps_abs": 1e-9, "eps_rel": 1e-9, "max_iter": 100_000, "verbose": False}
    solver.setup(sp.csc_matrix(P), q, sp.csc_matrix(A), l, u, **settings_)
    expected = solver.solve(raise_error=False).info.obj_val
    s = of.from_arrays(P, q, A, l, u).solve(tolerance=1e-7)
    assert s.objective == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_integers_and_senses():
    p = of.from_arrays(
        q=[3.0, 2.0], A=[[2.0, 1.0]], u=5.0, lb=0, ub=2, integrality=[1, 0], maximize=True
    )
    assert str(p.problem_class) == "MILP" and p.integers == {"x"} and set(p.arrays) == {"x", "x 2"}
    assert p.solve().objective == pytest.approx(3 * 2 + 2 * 1)
    named = of.from_arrays(q=[3.0, 2.0], lb=0.5, columns=["meat", "salt"], title="diet")
    assert named.title == "diet" and named.solve()["salt"] == pytest.approx(0.5)
    assert list(named.arrays) == ["meat", "salt"]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "no array says"),
        ({"q": [1.0], "A": [[1.0, 2.0]]}, "speak of 1 and 2 columns"),
        ({"q": []}, "no columns"),
        ({"q": [np.nan]}, "q has 1 entries that are NaN"),
        ({"q": [1j]}, "q has entries that are not numbers"),
        ({"q": ["1"]}, "q has entries that are not numbers"),
        (
            {"q": np.array(["2020-01-01"], dtype="datetime64[D]")},
            "q has entries that are not numbers",
        ),
        ({"q": [[1.0], [2.0, 3.0]]}, "q has entries that are not numbers"),
        ({"A": [1.0, 2.0]}, "A has 1 dimensions"),
        ({"A": [[np.inf]]}, "A has an entry that is not finite"),
        ({"q": [1.0], "A": [[1.0]], "l": [0.0, 1.0]}, "l has 2 numbers"),
        ({"q": [1.0], "A": [[1.0]], "u": [np.nan]}, "u has 1 entries that are NaN"),
        (
            {"q": [1.0], "A": [[1.0]], "l": 2.0, "u": 1.0},
            r"'row\[0\]' has no value between 2 and 1",
        ),
        ({"q": [1.0], "A": [[1.0]], "l": np.inf}, r"'row\[0\]' has no value"),
        ({"q": [1.0], "lb": 2.0, "ub": 1.0}, r"'x\[0\]' has no value between 2 and 1"),
        ({"q": [1.0], "l": [0.0]}, "l is given without its matrix"),
        ({"q": [1.0], "G": [[1.0]]}, "G is given without h"),
        ({"P": [[1.0, 2.0], [0.0, 1.0]]}, "P is not symmetric"),
        ({"P": [[1.0, 2.0]]}, "P has the shape"),
        ({"q": [1.0], "integrality": [0.5]}, "other than 0 and 1"),
        ({"q": [1.0], "columns": ["a", "b"]}, "columns has 2 labels"),
        ({"q": [1.0, 1.0], "columns": ["a", "a"]}, "1 of them different"),
        ({"q": [1.0], "r": np.inf}, "r is inf, not a finite number"),
    ],
)
def test_what_cannot_be_used_is_refused(given, reason):
    with pytest.raises(of.DataError, match=reason):
        of.from_arrays(**given)
    if "P" in given and np.shape(given["P"]) == (2, 2):
        with pytest.raises(of.DataError) as e:
            of.from_arrays(**given)
        assert "triangle" in e.value.evidence


def matlab(tmp_path, **parts):
    file = tmp_path / "p.mat"
    savemat(file, parts)
    return file


def test_matlab_files_of_qpbenchmark(tmp_path):
    P, A = np.diag([2.0, 0.0, 1.0]), np.array([[1, 1, 1], [2, 0, 1]])
    whole = sp.csc_matrix(np.vstack([A, np.eye(3)]))
    q = np.array([[1], [-2], [0]], dtype=np.int16)  # as small as MATLAB keeps them
    l = np.array([1.0, -1e20, 0, -1e20, -5])[:, None]  # noqa: E741
    u = np.array([1.0, 4, 1e20, 7, 5])[:, None]
    file = matlab(tmp_path, P=sp.csc_matrix(P), q=q, A=whole, l=l, u=u, r=np.uint8(3), n=3, m=5)
    p = of.read(file)
    f = p.rows
    assert f.A.toarray().tolist() == A.tolist() and f.offset == 3.0
    assert f.lower.tolist() == [0.0, -np.inf, -5.0] and f.upper.tolist() == [np.inf, 7.0, 5.0]
    assert f.row_lower.tolist() == [1.0, -np.inf] and f.row_upper.tolist() == [1.0, 4.0]
    assert p.title == "p.mat" and str(p.problem_class) == "QP"
    bounded = matlab(tmp_path, P=P, q=q, A=A, l=l[:2], u=u[:2], lb=l[2:], ub=u[2:], r=3.0)
    assert of.read(bounded).solve().objective == pytest.approx(p.solve().objective)
    assert of.read(matlab(tmp_path, P=P, q=q)).rows.A.shape == (0, 3)


@pytest.mark.parametrize(
    ("place", "byte", "why"),
    [
        (240 + 8, 0xA7, "in place of numbers"),  # an unknown type, at which SciPy's reader dies
        (128 + 17, 0x08, "no matrix of real numbers"),  # complex, without the second half
        (128 + 4, 0xFF, "longer than what holds it"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_matlab_files_that_lie(tmp_path, place, byte, why, packed):
    file = matlab(tmp_path, P=np.eye(2), q=np.ones(2))
    data = bytearray(file.read_bytes())
    whole = bytes(data)
    data[place if place != 248 else data.rindex(b"q") + 4] = byte
    if packed:
        body = zlib.compress(bytes(data[128:216]))
        rest = bytes(data[216:])
        data = bytearray(data[:128] + (15).to_bytes(4, "little") + len(body).to_bytes(4, "little"))
        data += body + rest
    file.write_bytes(bytes(data))
    with pytest.raises(of.DataError, match=why):
        of.read(file)
    file.write_bytes(whole)
    assert of.read(file).rows.A.shape == (0, 2)


def test_matlab_files_that_hold_something_else(tmp_path):
    with pytest.raises(of.DataError, match=r"no quadratic program(.|\n)*it holds Q"):
        of.read(matlab(tmp_path, Q=np.eye(2)))
    with pytest.raises(of.DataError, match="there is no file"):
        of.read(tmp_path / "nothing.mat")
    data = matlab(tmp_path, P=np.eye(2), q=np.ones(2)).read_bytes()
    for k, content in enumerate((b"", b"text", data[:150], data[:-20], data[:130] + data[140:])):
        file = tmp_path / f"bad{k}.mat"
        file.write_bytes(content)
        with pytest.raises(of.DataError):
            of.read(file)
    with pytest.raises(of.DataError, match="can be read only"):
        of.from_arrays(q=[1.0], lb=0.0).export(tmp_path / "q.mat")
