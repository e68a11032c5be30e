"""The fitted map: new members, inverse, geometry, table, files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import optfair as of
from optfair.methods.group_counterfactuals.affine_maps import PSDMap
from optfair.methods.group_counterfactuals.transport_map import TransportMap
from optfair.storage import read_archive, write_archive

NUMBERS = st.floats(-3, 3, allow_nan=False)


def example() -> TransportMap:
    A = np.array([[1.5, 0.2, 0.0], [0.2, 0.5, 0.0], [0.0, 0.0, 1.0]])
    sigma = np.array([[4.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 9.0]])
    return TransportMap(
        A, [1.0, 2.0, 0.0], features=("a", "b", "c"), mean=[1.0, 0.0, 5.0], covariance=sigma
    )


@given(A=arrays(float, (3, 3), elements=NUMBERS), b=arrays(float, 3, elements=NUMBERS))
def test_inverse_and_lipschitz_constants(A: Any, b: Any) -> None:
    A = A + np.eye(3) * 7  # away from singular
    g = TransportMap(A, b)
    X = np.random.default_rng(0).normal(size=(30, 3))
    Z = g.transform(X)
    assert np.allclose(g.inverse_transform(Z), X, atol=1e-9)
    before = np.linalg.norm(X[:, None] - X, axis=2)[np.triu_indices(30, 1)]
    after = np.linalg.norm(Z[:, None] - Z, axis=2)[np.triu_indices(30, 1)]
    assert (after / before).max() <= g.expansion * (1 + 1e-9)
    assert (before / after).max() <= g.contraction * (1 + 1e-9)
    u, _, vt = np.linalg.svd(A)
    assert np.linalg.norm(A @ vt[0]) == pytest.approx(g.expansion)
    assert 1 / np.linalg.norm(A @ vt[-1]) == pytest.approx(g.contraction)
    low, high = g.volume_bounds
    assert low * (1 - 1e-9) <= g.volume_factor <= high * (1 + 1e-9)
    low, high = g.density_bounds
    assert low * (1 - 1e-9) <= g.density_factor <= high * (1 + 1e-9)
    assert u.shape == (3, 3)


def test_density_factor_by_the_densities_themselves() -> None:
    from scipy.stats import multivariate_normal

    g, x = example(), np.array([0.3, -1.0, 4.0])
    before = multivariate_normal(g.mean, g.covariance).pdf(x)
    mean = g.matrix @ g.mean + g.offset
    after = multivariate_normal(mean, g.matrix @ g.covariance @ g.matrix.T).pdf(g.transform([x])[0])
    assert after / before == pytest.approx(g.density_factor)


def test_volume_factor_by_points_in_a_box() -> None:
    g = example()
    rng = np.random.default_rng(0)
    corners = g.transform(np.array(np.meshgrid(*[[0, 1]] * 3)).reshape(3, -1).T)
    low, high = corners.min(axis=0), corners.max(axis=0)
    Z = rng.uniform(low, high, size=(200_000, 3))
    inside = ((g.inverse_transform(Z) >= 0) & (g.inverse_transform(Z) <= 1)).all(axis=1)
    assert inside.mean() * np.prod(high - low) == pytest.approx(g.volume_factor, rel=0.02)


def test_jacobian_by_differences() -> None:
    g, x, h = example(), np.array([[0.2, 0.4, -1.0]]), 1e-6
    columns = [(g.transform(x + h * e) - g.transform(x - h * e))[0] / (2 * h) for e in np.eye(3)]
    assert np.allclose(np.stack(columns, axis=1), g.jacobian(), atol=1e-8)
    assert g.jacobian(np.zeros((5, 3))).shape == (5, 3, 3)


def test_table_says_what_happens_to_each_feature() -> None:
    g = example()
    X = np.random.default_rng(0).multivariate_normal(g.mean, g.covariance, 400_000)
    Z, table = g.transform(X), g.table()
    assert list(table.index) == ["a", "b", "c"]
    assert np.allclose(table["new mean"], Z.mean(axis=0), atol=0.03)
    assert np.allclose(table["new deviation"], Z.std(axis=0), atol=0.03)
    assert np.allclose(table["shift"], table["new mean"] - table["mean"])
    assert table["moves"].tolist() == [True, True, False]
    assert [g.moved(f) for f in ("a", "b", "c")] == [True, True, False]
    assert [r["other"] for r in g.records()] == ["b", "a", None]
    assert table.loc["a", "coefficient"] == 0.2
    text = repr(g)
    assert text.splitlines()[0].startswith("TransportMap of 3 features: K = ")
    assert "+0.2 b" in text and "<table" in g._repr_html_()


def test_records_read_rows_of_the_matrix() -> None:
    # b is moved by a, and a by nothing but itself: the transpose says the opposite
    A = np.array([[0.5, 0.0, 0.0], [3.0, 1.0, -0.25], [0.0, 0.0, 1.0]])
    g = TransportMap(
        A,
        [1.0, -2.0, 0.0],
        features=("a", "b", "c"),
        mean=[2.0, 4.0, 8.0],
        covariance=np.diag([4.0, 1.0, 16.0]),
    )
    a, b, c = g.records()
    assert [r["new mean"] for r in (a, b, c)] == [2.0, 6.0, 8.0]
    assert [r["shift"] for r in (a, b, c)] == [0.0, 2.0, 0.0]
    # sqrt(0.25 * 4), sqrt(9 * 4 + 1 + 16 / 16), 4
    assert [r["new deviation"] for r in (a, b, c)] == pytest.approx([1.0, np.sqrt(38.0), 4.0])
    assert [(r["other"], r["coefficient"]) for r in (a, b, c)] == [
        (None, 0.0),
        ("a", 3.0),
        (None, 0.0),
    ]
    assert [r["moves"] for r in (a, b, c)] == [True, True, False]
    # the strongest is the one that moves it most, in deviations of the other: 0.25 * 40 > 3 * 2
    wide = TransportMap(A, np.zeros(3), covariance=np.diag([4.0, 1.0, 1600.0]))
    assert (wide.records()[1]["other"], wide.records()[1]["coefficient"]) == ("x2", -0.25)
    rows = np.random.default_rng(0).normal(size=(50, 3))
    sample = TransportMap(A, np.zeros(3), mean=rows.mean(0), covariance=np.cov(rows.T, bias=True))
    moved = sample.transform(rows)
    assert [r["new mean"] for r in sample.records()] == pytest.approx(moved.mean(axis=0))
    assert [r["new deviation"] for r in sample.records()] == pytest.approx(moved.std(axis=0))


def test_data_frames_keep_index_and_names() -> None:
    g = example()
    X = pd.DataFrame(np.arange(6.0).reshape(2, 3), columns=["c", "a", "b"], index=[7, 9])
    Z = g.transform(X)
    assert list(Z.columns) == ["a", "b", "c"] and list(Z.index) == [7, 9]
    assert np.allclose(Z.to_numpy(), g.transform(X[["a", "b", "c"]].to_numpy()))
    assert np.allclose(g.inverse_transform(Z)[["c", "a", "b"]], X)
    with pytest.raises(of.DataError, match="column 'b' is missing"):
        g.transform(X[["a", "c"]])
    with pytest.raises(of.DataError, match="2 columns"):
        g.transform(np.zeros((4, 2)))


def test_saved_and_read(tmp_path: Path) -> None:
    g = example()
    g.save(tmp_path / "map.v1")
    again = TransportMap.load(tmp_path / "map.v1")
    for name in ("matrix", "offset", "mean", "covariance"):
        assert (getattr(again, name) == getattr(g, name)).all()
    assert again.features == g.features and repr(again) == repr(g)
    record, arrays = read_archive(tmp_path / "map.v1")
    assert record["schema"] == 2 and record["kind"] == "affine"
    with pytest.raises(of.DataError, match="exists"):
        g.save(tmp_path / "map.v1")
    for k, (change, message) in enumerate(
        (({"schema": 9}, "schema '9'"), ({"kind": "mixture"}, "'mixture' map"))
    ):
        write_archive(tmp_path / f"odd{k}", record | change, arrays)
        with pytest.raises(of.DataError, match=message):
            TransportMap.load(tmp_path / f"odd{k}")
    arrays.pop("offset")
    write_archive(tmp_path / "less", record, arrays)
    with pytest.raises(of.DataError, match="lacks the array 'offset'"):
        TransportMap.load(tmp_path / "less")


def test_a_map_that_flattens_has_no_inverse() -> None:
    g = TransportMap(np.diag([1.0, 0.0]), np.zeros(2))
    assert g.contraction == np.inf and g.distortion == 1.0 and g.volume_factor == 0.0
    with pytest.raises(of.DeclarationError, match="sends different points to the same"):
        g.inverse_transform([[0.0, 0.0]])


def test_arrays_are_read_only_and_checked() -> None:
    g = example()
    with pytest.raises(ValueError, match="read-only"):
        g.matrix[0, 0] = 2.0
    with pytest.raises(of.DataError, match="square"):
        TransportMap(np.ones((2, 3)), np.zeros(2))
    with pytest.raises(of.DataError, match="do not fit 2 features"):
        TransportMap(np.eye(2), np.zeros(3))


def test_new_members_move_as_the_old_ones() -> None:
    X = np.random.default_rng(0).normal(size=(40, 3))
    p = PSDMap(X, score=([1.0, 1.0, 0.0], 0.0), threshold=4.0, K=1.2, k=1.2)
    s = p.solve(tolerance=1e-9)
    g = p.map(s)
    assert np.allclose(g.matrix, s["matrix"])
    assert np.allclose(g.transform(X.mean(axis=0)[None])[0], s["mean"])
    assert g.expansion <= 1.2 + 1e-8 and g.contraction <= 1.2 + 1e-8
    # between two members, and still at the target: the set of these points is convex
    inside = g.transform((X[:-1] + X[1:]) / 2)
    assert (inside @ [1.0, 1.0, 0.0]).min() >= 4.0 - 1e-8
