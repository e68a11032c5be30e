"""Components against SciPy and scikit-learn, their statistics, and derivatives by differences."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.mixture import GaussianMixture

from optfair.errors import DataError
from optfair.methods.fair_mixtures.components import Components, Multinoullis
from optfair.methods.fair_mixtures.gaussians import SHAPES, Gaussians
from optfair.rows.frames import MixedRows

K, D = 3, 2
OFFSETS = np.array([0, 3, 5])


def gaussians(shape: str, rng: np.random.Generator, floor: float = 1e-9) -> Gaussians:
    lower = np.tril(rng.normal(size=(K, D, D)) * 0.3) + np.eye(D) * rng.uniform(0.6, 1.4, (K, 1, 1))
    scale = {
        "shared": np.asarray(0.8),
        "spherical": rng.uniform(0.5, 1.5, K),
        "diag": rng.uniform(0.5, 1.5, (K, D)),
        "tied": lower[0],
        "full": lower,
    }[shape]
    return Gaussians(shape, rng.normal(size=(K, D)), scale, np.array([10.0, -3.0]), floor)


def multinoullis(rng: np.random.Generator) -> Multinoullis:
    blocks = [rng.dirichlet(np.ones(n) * 3, K) for n in np.diff(OFFSETS)]
    return Multinoullis(np.hstack(blocks), OFFSETS, 1e-9)


def mixed(shape: str, seed: int = 0) -> Components:
    rng = np.random.default_rng(seed)
    return Components(rng.dirichlet(np.ones(K) * 5), gaussians(shape, rng), multinoullis(rng))


@pytest.fixture
def rows():
    rng = np.random.default_rng(1)
    codes = np.stack([rng.integers(-1, 3, 40), rng.integers(0, 2, 40)], axis=1)
    return MixedRows(rng.normal(size=(40, D)) + np.array([10.0, -3.0]), codes)


@pytest.fixture
def R():
    return np.random.default_rng(2).dirichlet(np.ones(K), 40) / 40


@pytest.mark.parametrize("shape", SHAPES)
def test_log_joint_is_the_one_of_scipy(shape, rows):
    c = mixed(shape)
    p = c.multinoullis.probabilities
    for k in range(K):
        expected = multivariate_normal(c.means[k], c.gaussians.matrices[k]).logpdf(rows.numeric)
        expected += np.log(c.weights[k]) + np.log(p[k, 3 + rows.codes[:, 1]])
        seen = rows.codes[:, 0] >= 0  # a category that the fit did not see says nothing
        expected[seen] += np.log(p[k, rows.codes[seen, 0]])
        np.testing.assert_allclose(c.log_prob(rows)[:, k], expected, rtol=1e-11)


@pytest.mark.parametrize("shape", SHAPES)
def test_expected_is_the_weighted_sum_of_log_joints(shape, rows, R):
    c, other = mixed(shape), mixed(shape, seed=7)
    s = c.statistics(rows, R)
    assert other.expected(s) == pytest.approx(float((R * other.log_prob(rows)).sum()), rel=1e-11)


@pytest.mark.parametrize("shape", SHAPES)
def test_statistics_of_chunks_add_up(shape, rows, R):
    c = mixed(shape)
    whole = c.statistics(rows, R)
    parts = c.statistics(rows[:7], R[:7]) + c.statistics(rows[7:], R[7:])
    for a, b in zip(
        (whole.mass, whole.moments.first, whole.moments.second, whole.counts),
        (parts.mass, parts.moments.first, parts.moments.second, parts.counts),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    twice = 2.0 * whole
    np.testing.assert_allclose(twice.moments.second, 2 * np.asarray(whole.moments.second))
    np.testing.assert_allclose(twice.counts, 2 * whole.counts)


@pytest.mark.parametrize("shape", SHAPES)
def test_gradient_by_differences(shape, rows, R):
    c = mixed(shape)
    signed = R * np.random.default_rng(3).choice([-1.0, 1.0], R.shape)  # gradients of gaps need it
    for s in (c.statistics(rows, R), c.statistics(rows, signed)):
        found = c.gradient(s)
        step, h = np.zeros(found.size), 1e-5
        for p in range(found.size):
            step[p] = h
            numeric = (c.moved(step).expected(s) - c.moved(-step).expected(s)) / (2 * h)
            step[p] = 0.0
            assert found[p] == pytest.approx(numeric, abs=2e-8), p


@pytest.mark.parametrize("shape", SHAPES)
def test_estimate_is_the_maximum(shape, rows, R):
    c = mixed(shape)
    s = c.statistics(rows, R)
    best = c.estimated(s)
    assert np.abs(best.gradient(s)).max() < 1e-12
    rng = np.random.default_rng(4)
    for _ in range(20):
        other = best.moved(1e-2 * rng.normal(size=best.gradient(s).size))
        assert other.expected(s) < best.expected(s)


@pytest.mark.parametrize("shape", SHAPES)
def test_information_is_the_curvature_at_the_models_own_moments(shape):
    # at statistics that the model expects, the diagonal of the Hessian is the information
    c = Components(np.full(K, 1 / K), gaussians(shape, np.random.default_rng(0)), None)
    which = np.repeat(np.arange(K), 60_000)
    X = c.gaussians.drawn(which, np.random.default_rng(5))
    own = np.zeros((which.size, K))
    own[np.arange(which.size), which] = 1.0 / which.size
    s = c.statistics(MixedRows.of(X), own)
    info, h = c.information(), 1e-3
    for p in range(K, info.size):
        step = np.zeros(info.size)
        step[p] = h
        bend = c.moved(step).expected(s) - 2 * c.expected(s) + c.moved(-step).expected(s)
        assert -bend / h**2 == pytest.approx(info[p], rel=0.05), p


@pytest.mark.parametrize("shape", ["spherical", "diag", "tied", "full"])
def test_em_step_is_the_one_of_scikit_learn(shape, rows):
    X = rows.numeric
    R = np.random.default_rng(6).dirichlet(np.ones(K), len(X))
    theirs = GaussianMixture(K, covariance_type=shape, reg_covar=0.0)
    theirs._initialize(X, R)
    empty = Components(np.full(K, 1 / K), gaussians(shape, np.random.default_rng(0)), None)
    found = empty.estimated(empty.statistics(MixedRows.of(X), R))
    np.testing.assert_allclose(found.weights, theirs.weights_, rtol=1e-10)
    np.testing.assert_allclose(found.means, theirs.means_, rtol=1e-10)
    np.testing.assert_allclose(found.gaussians.covariances, theirs.covariances_, rtol=1e-9)
    total = logsumexp(found.log_prob(MixedRows.of(X)), axis=1)
    np.testing.assert_allclose(total, theirs.score_samples(X), rtol=1e-10)
    assert found.free == theirs._n_parameters()


@pytest.mark.parametrize("shape", SHAPES)
def test_floor_bounds_every_direction(shape):
    X = np.stack([np.linspace(0, 1, 30), np.linspace(0, 2, 30)], axis=1)  # all on a line
    c = Components(np.ones(1), None, None)
    scale = {"full": np.eye(2)[None], "tied": np.eye(2), "diag": np.ones((1, 2))}
    g = Gaussians(
        shape,
        np.zeros((1, 2)),
        scale.get(shape, np.ones(1) if shape == "spherical" else np.ones(())),
        np.zeros(2),
        0.01,
    )
    c = Components(np.ones(1), g, None)
    found = c.estimated(c.statistics(MixedRows.of(X), np.ones((30, 1)) / 30))
    assert np.linalg.eigvalsh(found.gaussians.matrices[0]).min() >= 0.01 - 1e-12
    if shape in ("tied", "full"):
        np.testing.assert_allclose(np.linalg.eigvalsh(found.gaussians.matrices[0])[0], 0.01)


@pytest.mark.parametrize("shape", ["tied", "full"])
def test_singular_covariance_names_reg_covar(shape):
    X = np.stack([np.arange(30.0), np.arange(30.0)], axis=1)
    scale = np.eye(2) if shape == "tied" else np.eye(2)[None]
    c = Components(np.ones(1), Gaussians(shape, np.zeros((1, 2)), scale, np.zeros(2), 0.0), None)
    with pytest.raises(DataError, match="reg_covar") as caught:
        c.estimated(c.statistics(MixedRows.of(X), np.ones((30, 1))))
    assert "singular" in str(caught.value)


@pytest.mark.parametrize("shape", ["tied", "full"])
def test_columns_of_any_size_have_the_covariance_of_their_rows(shape):
    """Rounding of the largest variance is far above the least one, and above its floor."""
    rng = np.random.default_rng(0)
    units = np.array([1.0, 1e-3, 1e3])
    X = rng.normal(size=(40, 3)) @ np.array([[1.0, 0.9, 1.1], [0.0, 0.01, 0.02], [0.0, 0.0, 0.01]])
    scale = np.eye(3)[None] if shape == "full" else np.eye(3)
    start = Gaussians(shape, np.zeros((1, 3)), scale, np.zeros(3), 1e-12)
    R = np.ones((40, 1))
    plain = start.estimated(start.moments(X, R))
    other = start.estimated(start.moments(X * units, R))
    turned = other.matrices[0] / np.outer(units, units)
    np.testing.assert_allclose(turned, plain.matrices[0], rtol=1e-9)
    np.testing.assert_allclose(plain.matrices[0], np.cov(X.T, bias=True), rtol=1e-9)
    # two columns that are one: the least variance is the floor, and no more
    line = X[:, [0, 0, 2]] * [1.0, 1e-3, 1e3]
    held = start.estimated(start.moments(line, R))
    best = held.expected(start.moments(line, R))
    for grown in (1.01, 1.1, 2.0):
        assert held.scaled(grown).expected(start.moments(line, R)) < best
    one = start.estimated(start.moments(line / [1.0, 1e-3, 1e3], R)).matrices[0]
    assert held.matrices[0][0, 2] == pytest.approx(1e3 * one[0, 2], rel=1e-6)


@pytest.mark.parametrize("shape", ["tied", "full"])
def test_the_covariance_of_one_row_is_its_rounding_or_the_floor(shape):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3)) * [1e-3, 1e-3, 1e3]
    scale = np.eye(3)[None] if shape == "full" else np.eye(3)
    start = Gaussians(shape, np.zeros((1, 3)), scale, np.zeros(3), 1e-12)
    for row, weight in zip(X, rng.random((200, 1, 1)) * 1e-4, strict=True):
        own = start.estimated(start.moments(row[None], weight)).matrices[0]
        assert np.diagonal(own).max() <= 1e-12 + 1e-15 * (row**2).max()
        assert np.linalg.eigvalsh(own).min() > 0.0


def test_probabilities_respect_the_floor_and_sum_to_one():
    m = Multinoullis(np.tile([0.25] * 4, (1, 1)), np.array([0, 4]), 0.01)
    p = m.estimated(np.array([[90.0, 9.0, 0.5, 0.0]])).probabilities
    assert p.sum() == pytest.approx(1.0) and p.min() == pytest.approx(0.01)
    assert p[0, 0] / p[0, 1] == pytest.approx(10.0)  # those above keep their ratio
    best = float(np.log(p[0]) @ [90.0, 9.0, 0.5, 0.0])
    rng = np.random.default_rng(0)
    for _ in range(200):  # no other table above the floor is likelier
        q = 0.01 + 0.96 * rng.dirichlet(np.ones(4) * 0.5)
        assert np.log(q) @ [90.0, 9.0, 0.5, 0.0] <= best


def test_draws_have_the_moments_of_the_components():
    rng = np.random.default_rng(0)
    which = np.repeat(np.arange(K), 40_000)
    for shape in SHAPES:
        g = gaussians(shape, np.random.default_rng(0))
        X = g.drawn(which, rng)
        for k in range(K):
            np.testing.assert_allclose(X[which == k].mean(axis=0), g.means[k], atol=0.03)
            np.testing.assert_allclose(np.cov(X[which == k].T), g.matrices[k], atol=0.06)
    m = multinoullis(np.random.default_rng(0))
    codes = m.drawn(which, rng)
    for k in range(K):
        share = np.bincount(codes[which == k, 0], minlength=3) / 40_000
        np.testing.assert_allclose(share, m.probabilities[k, :3], atol=0.01)


def test_restarted_components_are_alive_and_the_others_untouched(rows):
    for shape in SHAPES:
        c = mixed(shape)
        again = c.restarted(np.array([1]), rows[:1])
        np.testing.assert_allclose(again.means[1], rows.numeric[0])
        np.testing.assert_allclose(again.means[[0, 2]], c.means[[0, 2]])
        assert again.weights.sum() == pytest.approx(1.0) and again.weights[1] > 0.02
        assert np.linalg.eigvalsh(again.gaussians.matrices).min() > 0
        # several at once do not end in the same place
        two = c.restarted(np.array([0, 1]), rows[:1])
        assert np.abs(two.means[0] - two.means[1]).max() > 1e-3
