"""A file has the numbers of the declared problem, also where floats lose them in sums."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import optfair as of
from optfair.compile.program import program
from optfair.core.canonical import built
from optfair.core.coefficients import quadratic_map
from optfair.formats.layout import entry_names
from optfair.formats.text import file_name

Polynomial = dict[tuple[str, ...], Fraction]


def scale(p: Polynomial, factor: float) -> Polynomial:
    return {m: c * Fraction(factor) for m, c in p.items()}


def plus(*parts: Polynomial) -> Polynomial:
    out: Polynomial = {}
    for part in parts:
        for m, c in part.items():
            out[m] = out.get(m, Fraction(0)) + c
    return {m: c for m, c in out.items() if c}


def times(p: Polynomial, q: Polynomial) -> Polynomial:
    return plus(*({tuple(sorted(m + k)): c * d} for m, c in p.items() for k, d in q.items()))


def rounded(p: Polynomial) -> Polynomial:
    """The nearest floats: what a file can hold."""
    return {m: Fraction(float(c)) for m, c in p.items()}


def near(p: Polynomial, q: Polynomial) -> bool:
    """Whether numbers are those of the declaration to a few roundings, and the same ones are 0."""
    return p.keys() == q.keys() and all(
        abs(p[m] - q[m]) <= abs(q[m]) * Fraction(1, 2**42) for m in q
    )


X = cp.Variable(3, name="x")
ENTRIES = [{(f"x[{i}]",): Fraction(1)} for i in range(3)]


def random_sum(rng: np.random.Generator, unit: float, degree: int) -> tuple[Any, Polynomial]:
    """Terms of sizes far apart that cancel but for some, as an expression and in fractions."""
    parts: list[tuple[Any, Polynomial]] = []

    def number() -> float:
        kind = rng.integers(3)
        size = 1e16 if kind == 0 else 1.0
        return float(rng.integers(-9, 10) if kind < 2 else rng.normal()) * size * unit

    def factor() -> tuple[Any, Polynomial]:
        i, c = int(rng.integers(3)), number() / unit
        return X[i] + c, plus(ENTRIES[i], {(): Fraction(c)})

    for _ in range(rng.integers(2, 5)):
        if degree == 2 and rng.random() < 0.5:
            (a, p), (b, q) = factor(), factor()
            e, exact = a * b, times(p, q)
        else:
            e, exact = factor()
        c = number()
        parts.append((c * e, scale(exact, c)))
        if rng.random() < 0.7:  # and back again
            parts.append((-c * e, scale(exact, -c)))
    rng.shuffle(parts)  # type: ignore[arg-type]
    i, c = int(rng.integers(3)), float(rng.integers(1, 9)) * unit
    parts.append((c * X[i], scale(ENTRIES[i], c)))
    return sum(e for e, _ in parts), plus(*(p for _, p in parts))


def read_rows(path: Path) -> dict[str, Polynomial]:
    """What a file says: every row as what is at most 0, or 0, and the objective."""
    rows = program(of.read(path))
    names = entry_names(rows.columns)
    out = {}
    A = rows.A.tocoo()
    for i, label in enumerate(entry_names(rows.rows)):
        own = {
            (names[j],): Fraction(v) for k, j, v in zip(*A.coords, A.data, strict=True) if k == i
        }
        products = {
            tuple(sorted((names[a], names[b]))): Fraction(v)
            for a, b, v in zip(*rows.row_products(i), strict=True)
        }
        above = not np.isfinite(rows.row_upper[i])
        side = float(rows.row_lower[i] if above else rows.row_upper[i])
        whole = plus(own, products, {(): -Fraction(side)})
        out[label] = scale(whole, -1.0) if above else whole
    linear = {(names[j],): Fraction(v) for j, v in enumerate(rows.q.tolist()) if v}
    squares: Polynomial = {}
    P = rows.P.tocoo()
    for i, j, v in zip(*P.coords, P.data, strict=True):
        key = tuple(sorted((names[i], names[j])))
        squares[key] = squares.get(key, Fraction(0)) + Fraction(v) / 2
    out["objective"] = plus(linear, squares, {(): Fraction(rows.offset)})
    return out


@settings(max_examples=12)
@given(
    seed=st.integers(0, 10**6),
    unit=st.sampled_from([1e-300, 1e-6, 1.0, 1e6, 1e280]),
    degree=st.sampled_from([1, 2]),
    ending=st.sampled_from([".mps", ".lp", ".cbf", ".dat-s"]),
)
def test_what_is_read_back_is_what_was_declared(
    tmp_path_factory: Any, seed: int, unit: float, degree: int, ending: str
) -> None:
    rng = np.random.default_rng(seed)
    degree = degree if ending in (".mps", ".lp") else 1
    sums = {name: random_sum(rng, unit, degree) for name in ("objective", "most", "least", "same")}
    e = {name: expression for name, (expression, _) in sums.items()}
    problem = of.from_cvxpy(
        cp.Problem(cp.Minimize(e["objective"]), [e["most"] <= 0, e["least"] >= 0, e["same"] == 0]),
        ["most", "least", "same"],
    )
    path = tmp_path_factory.mktemp("exact") / f"p{ending}"
    try:
        problem.export(path)
    except of.UnsupportedProblem as refused:  # it says so, and writes nothing
        far = [abs(c) for _, p in sums.values() for c in p.values()]
        assert (
            "no float" in str(refused)
            or "not finite" in str(refused)
            or (ending == ".lp" and max(far) >= 1e20)
        )
        assert not path.exists()
        return
    again = read_rows(path)
    for name, (_, declared) in sums.items():
        if name not in again and ending == ".dat-s":
            own = again[file_name(f"{name} least")]
            assert near(own, declared) or near(scale(own, -1.0), declared)
            assert again[file_name(f"{name} most")] == scale(own, -1.0)
            continue
        own = again[name]
        if ending == ".dat-s" and name == "objective":
            own = {m if m != ("one",) else (): c for m, c in own.items()}
        assert near(own, declared) or near(scale(own, -1.0), declared)


def test_sides_that_are_infinite_in_a_format_are_refused(tmp_path: Path) -> None:
    for row in (X[0] <= 1e20, X[0] + X[1] >= -1e30, X[0] == 1e21):
        problem = of.from_cvxpy(cp.Problem(cp.Minimize(X[0]), [row]), ["far"])
        with pytest.raises(of.UnsupportedProblem, match=r"infinite in \.lp"):
            problem.export(tmp_path / "p.lp")
        assert not list(tmp_path.iterdir())
        problem.export(tmp_path / "p.mps")
        (side,) = {1e20, -1e30, 1e21} & {
            *program(of.read(tmp_path / "p.mps")).row_upper.tolist(),
            *program(of.read(tmp_path / "p.mps")).row_lower.tolist(),
        }
        assert abs(side) >= 1e20
        (tmp_path / "p.mps").unlink()


def test_a_column_that_nothing_uses_is_read_back(tmp_path: Path) -> None:
    problem = of.from_cvxpy(cp.Problem(cp.Minimize(X[0]), [X[0] >= 1]), ["least"])
    for ending in (".lp", ".mps", ".cbf", ".dat-s"):
        problem.export(tmp_path / f"p{ending}")
        assert sorted(of.read(tmp_path / f"p{ending}").arrays) == ["x"]


def test_sums_in_a_file_are_added_up_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "p.lp"
    path.write_text(
        "Minimize\n obj: x + [ 1e16 x ^2 + 2 x ^2 - 1e16 x ^2 ] / 2\n"
        "Subject To\n row: 1e16 x + x - 1e16 x + 1e16 + 3 - 1e16 >= 1\nBounds\n x free\nEnd\n"
    )
    rows = program(of.read(path))
    assert rows.A.toarray().tolist() == [[1.0]] and rows.row_lower.tolist() == [-2.0]
    assert rows.P.toarray().tolist() == [[2.0]]


@settings(max_examples=8)
@given(power=st.floats(1e-6, 1.0 - 1e-6))
def test_exponents_are_read_back_as_they_are(tmp_path_factory: Any, power: float) -> None:
    cone = cp.PowCone3D(X[0], X[1], X[2], power)
    problem = of.from_cvxpy(cp.Problem(cp.Minimize(X[0]), [cone]), ["cone"])
    path = tmp_path_factory.mktemp("powers") / "p.cbf"
    problem.export(path)
    assert built(of.read(path).constraints["cone"]).alpha.value == power


def test_rotated_cones_are_read_without_rounding(tmp_path: Path) -> None:
    path = tmp_path / "p.cbf"
    path.write_text(
        "VER\n3\nOBJSENSE\nMIN\nVAR\n3 1\nF 3\nCON\n3 1\nQR 3\n"
        "OBJACOORD\n1\n0 1\nACOORD\n3\n0 0 1\n1 1 1\n2 2 1\n"
    )
    (cone,) = (built(c) for c in of.read(path).constraints.values())
    (x,) = cone.variables()
    t, z = (quadratic_map(arg, {x.id: 0}, 3).A.toarray() for arg in cone.args)
    # t² - |z|² is a multiple of 2 x0 x1 - x2²
    form = np.outer(t, t) - z.T @ z
    assert (form == form[2, 2] * np.array([[0, -1, 0], [-1, 0, 0], [0, 0, 1]])).all()
