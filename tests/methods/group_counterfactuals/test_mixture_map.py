"""Maps of mixtures: local and global bounds, membership, the map in pieces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from sklearn.mixture import GaussianMixture

import optfair as of
from optfair.methods.group_counterfactuals.affine_maps import PSDMap
from optfair.methods.group_counterfactuals.gaussian_maps import (
    GaussianParts,
    MixtureMap,
    MixtureTransport,
)

W = np.array([1.0, 0.5, -0.2])


def group(n: int = 60) -> Any:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, 3))
    X[: n // 2] += [-3.0, 2.0, 0.0]
    return X


def labels(X: Any) -> Any:
    return (np.arange(len(X)) >= len(X) // 2).astype(int)


def problem(X: Any = None, components: Any = None, **given: Any) -> MixtureMap:
    X = group() if X is None else X
    options = {"score": (W, 0.0), "threshold": 1.5, "K": 1.3, "k": 1.3, **given}
    return MixtureMap(X, components=labels(X) if components is None else components, **options)


def test_one_component_is_the_psd_map() -> None:
    X = group()
    p = problem(X, np.zeros(len(X)))
    one = PSDMap(X, score=(W, 0.0), threshold=1.5, K=1.3, k=1.3)
    assert p.solve(tolerance=1e-9).objective == pytest.approx(
        one.solve(tolerance=1e-9).objective, rel=1e-8
    )


def plain(p: MixtureMap, X: Any, bounds: str, every: bool) -> float:
    """Solve it as stated, component by component, in plain CVXPY."""
    total, rules, mean = 0.0, [], 0.0
    eye = np.eye(3)
    for j, (weight, m) in enumerate(zip(p.parts.weights, p.parts.moments, strict=True)):
        A, b = cp.Variable((3, 3), symmetric=True), cp.Variable(3)
        total = total + weight * cp.sum_squares(A @ m.mean + b - m.mean)
        total = total + weight * cp.sum_squares((A - eye) @ np.linalg.cholesky(m.covariance))
        rows = X if every else X[p.parts.assign(X) == j]
        rules.append(rows @ (A @ W) + W @ b >= 1.5)
        rules.append(A >> 0)
        mean = mean + weight * A
        if bounds == "local":
            rules += [A << 1.3 * eye, A >> eye / 1.3]
    if bounds == "global":
        rules += [mean << 1.3 * eye, mean >> eye / 1.3]
    return float(cp.Problem(cp.Minimize(total), rules).solve(solver="CLARABEL"))


@pytest.mark.parametrize("bounds", ["local", "global"])
@pytest.mark.parametrize("valid", ["own", "every"])
def test_optimum_of_the_plain_form(bounds: str, valid: str) -> None:
    X = group()
    p = problem(X, bounds=bounds, valid=valid)
    expected = plain(p, X, bounds, valid == "every")
    for solver in (None, "clarabel"):
        s = p.solve(solver, tolerance=1e-8)
        assert s.objective == pytest.approx(expected, rel=1e-6)
        assert not s.residuals().above(s.certificate.tolerance)


def test_local_bounds_imply_the_papers_bound_on_the_mean() -> None:
    p = problem()
    s = p.solve()
    both = p.with_constraints(
        mean=sum(w * p[f"matrix_{j}"] for j, w in enumerate(p.parts.weights)) << 1.3 * np.eye(3)
    )
    assert both.solve().objective == pytest.approx(s.objective, rel=1e-7)


def test_the_map_moves_members_as_the_problem_did() -> None:
    X = group()
    p = problem(X)
    g = p.map(p.solve(tolerance=1e-9))
    assert isinstance(g, MixtureTransport)
    assert (g.transform(X) @ W).min() >= 1.5 - 1e-7
    assert g.expansion <= 1.3 + 1e-7 and g.contraction <= 1.3 + 1e-7
    own = g.components(X)
    assert np.allclose(g.inverse_transform(g.transform(X), own), X)
    assert g.jacobian(X[:2]).shape == (2, 3, 3)
    with pytest.raises(of.DeclarationError, match="piece by piece"):
        g.inverse_transform(X)


def test_every_means_every() -> None:
    X = group()
    p = problem(X, valid="every")
    maps = p.map(p.solve()).maps
    assert all((g.transform(X) @ W).min() >= 1.5 - 1e-6 for g in maps)


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
def test_fitted_mixtures_of_every_kind(kind: str) -> None:
    X = group()
    mixture = GaussianMixture(2, covariance_type=kind, random_state=0).fit(X)
    parts = GaussianParts.of(mixture, X)
    assert (parts.assign(X) == mixture.predict(X)).all()
    assert parts.log_densities(X).max() == pytest.approx(
        mixture._estimate_weighted_log_prob(X).max()
    )
    assert problem(X, mixture).solve().certificate.verify()


def test_saved_and_read(tmp_path: Path) -> None:
    X = group()
    p = problem(X)
    g = p.map(p.solve())
    g.save(tmp_path / "map")
    again = MixtureTransport.load(tmp_path / "map")
    assert np.allclose(again.transform(X), g.transform(X), rtol=0, atol=1e-12)
    assert again.table().shape == g.table().shape == (6, 9)
    assert repr(again) == repr(g)


def test_bad_components() -> None:
    X = group()
    flat = X.copy()
    flat[:30, 2] = 1.0
    with pytest.raises(of.DataError, match="no spread"):
        problem(flat)
    with pytest.raises(of.DataError, match="neither a mixture nor labels"):
        problem(X, np.zeros(3))
    with pytest.raises(of.DataError, match="does not fit 3 features"):
        problem(X, ([1.0], [[0.0, 0.0]], [np.eye(2).tolist()]))
    with pytest.raises(of.DeclarationError, match="unknown bounds"):
        problem(X, bounds="everywhere")
