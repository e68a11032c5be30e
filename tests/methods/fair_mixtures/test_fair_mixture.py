"""FairMixture as an estimator: what it guarantees, what it says about rows, what it refuses."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

import optfair as of
from optfair import metrics
from optfair.errors import DataError, DeclarationError, Infeasible
from optfair.methods.fair_mixtures.fair_mixture import FairMixture
from optfair.methods.fair_mixtures.gaussians import _root


@pytest.fixture(scope="module")
def data():
    X, sex = of.datasets.load("german_credit").numeric("sex", standardize=True)
    return X, sex


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    n = 300
    sex = rng.choice(["f", "m"], n)
    kind = rng.integers(0, 3, n)
    return pd.DataFrame(
        {
            "age": rng.normal(size=n) + 3.0 * kind,
            "sex": sex,
            "home": np.where(rng.random(n) < 0.2 + 0.3 * (sex == "m"), "own", "rent"),
            "job": np.array(["a", "b", "c"])[(kind + (rng.random(n) < 0.2)) % 3],
            "income": rng.normal(size=n) + (sex == "m") - kind,
        }
    )


@pytest.fixture(scope="module")
def fitted(data):
    X, sex = data
    return FairMixture(4, random_state=0).fit(X, groups=sex)


def fractions(R, groups):
    return np.stack([R[groups == g].mean(axis=0) for g in np.unique(groups)])


def test_constraint_holds_for_projected_responsibilities_only(fitted, data):
    X, sex = data
    R = fitted.predict_proba(X, groups=sex)
    assert np.ptp(fractions(R, sex), axis=0).max() <= 1e-8
    assert fitted.delta_ <= 1e-8 < 1e-3 < fitted.delta_labels_ and fitted.delta_plain_ > 0.01
    psi = fitted.responsibilities(X)
    assert fitted.delta_plain_ == pytest.approx(np.ptp(fractions(psi, sex), axis=0).max())
    labels = np.eye(4)[fitted.labels_]
    assert fitted.delta_labels_ == pytest.approx(np.ptp(fractions(labels, sex), axis=0).max())


def test_the_rule_of_unseen_rows_is_the_printed_one(fitted, data):
    X, sex = data
    g = np.searchsorted(fitted.groups_, sex[:50])
    expected = softmax(
        np.log(fitted.responsibilities(X[:50])) - fitted.prices_[g],
        axis=1,
    )
    np.testing.assert_allclose(fitted.predict_proba(X[:50], groups=sex[:50]), expected, atol=1e-10)
    np.testing.assert_array_equal(fitted.predict(X, groups=sex), fitted.labels_)


def test_reported_numbers_are_those_of_the_rows(fitted, data):
    X, sex = data
    assert fitted.balance_ == pytest.approx(metrics.balance(sex, fitted.labels_))
    assert fitted.cost_ == pytest.approx(metrics.cost(X, fitted.means_, fitted.labels_))
    assert fitted.log_likelihood_ == pytest.approx(fitted.score(X))
    assert fitted.masses_.sum() == pytest.approx(1.0)
    assert min(np.diff(fitted.history_)) >= -1e-10 and abs(fitted.gap_) < 1e-8
    assert fitted.objective_ == pytest.approx(fitted.history_[-1])


@pytest.mark.parametrize("eps", [0.03, 0.1])
def test_looser_constraint(data, eps):
    X, sex = data
    tight = FairMixture(4, random_state=0).fit(X, groups=sex)
    loose = FairMixture(4, eps=eps, random_state=0).fit(X, groups=sex)
    assert eps - 1e-3 < loose.delta_ <= eps + 1e-8  # it uses what it may
    assert loose.objective_ > tight.objective_


def test_rules_alone_and_with_eps(data):
    X, sex = data
    kw = {"random_state": 0, "max_iter": 20}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        sized = FairMixture(4, eps=None, rules=of.cluster_share(lower=0.2), **kw)
        sized.fit(X, groups=sex)
        both = FairMixture(4, eps=0.0, rules=of.cluster_share(lower=0.2), **kw)
        both.fit(X, groups=sex)
    assert sized.masses_.sum(axis=0).min() >= 0.2 - 1e-8 and sized.delta_ > 1e-3
    assert both.masses_.sum(axis=0).min() >= 0.2 - 1e-8 and both.delta_ <= 1e-8


def test_rules_of_every_kind_compose(data):
    X, sex = data
    groups = np.array([f"{s}{i % 2}" for i, s in enumerate(sex)])
    rules = {"size": of.cluster_share(lower=0.1), "mix": of.balance(0.35)}
    model = FairMixture(4, eps=None, rules=rules, random_state=0).fit(X, groups=groups)
    R = model.predict_proba(X, groups=groups)
    assert metrics.balance(groups, R, soft=True) == pytest.approx(0.35, abs=1e-7)
    assert model.masses_.sum(axis=0).min() >= 0.1 - 1e-8
    added = FairMixture(4, eps=None, rules=of.additive_gap(0.1), random_state=0)
    R = added.fit(X, groups=groups).predict_proba(X, groups=groups)
    assert metrics.additive_gap(groups, R, soft=True) == pytest.approx(0.1, abs=1e-7)


def test_responsibilities_are_those_of_the_declared_problem(data):
    X, sex = data[0][:80], data[1][:80]
    model = FairMixture(3, eps=0.02, random_state=0).fit(X, groups=sex)
    declared = of_declared(np.log(model.responsibilities(X)), sex).solve(solver="clarabel")
    R = model.predict_proba(X, groups=sex)
    np.testing.assert_allclose(R, declared["responsibilities"], atol=1e-5)
    divergence = model.log_likelihood_ - model.objective_
    assert divergence == pytest.approx(declared.objective, abs=1e-7)


def of_declared(log_prob, groups):
    from optfair.methods.fair_mixtures.problems import FairResponsibilities

    return FairResponsibilities(log_prob, groups=groups, fairness=of.max_gap(0.02))


def test_fair_labels_obey_the_rules_but_for_a_few_rows(data):
    X, sex = data
    model = FairMixture(4, label_rule="fair", random_state=0).fit(X, groups=sex)
    argmax = FairMixture(4, random_state=0).fit(X, groups=sex)
    rows = 4 / min(np.unique(sex, return_counts=True)[1])
    assert model.delta_labels_ <= rows < argmax.delta_labels_
    again = model.predict(X, groups=sex)
    assert (again != model.labels_).mean() <= 0.01  # ties of the vertex


def test_penalty_needs_no_groups_to_predict(data):
    X, sex = data
    plain = FairMixture(3, fairness=None, random_state=0).fit(X)
    model = FairMixture(3, fairness="penalty", lam=20.0, random_state=0).fit(X, groups=sex)
    assert model.delta_ == model.delta_plain_ < 1e-4
    assert np.ptp(fractions(plain.responsibilities(X), sex), axis=0).max() > 0.01
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    np.testing.assert_allclose(model.predict_proba(X), model.responsibilities(X))
    assert min(np.diff(model.history_)) >= -1e-12


def test_plain_mixture_scores_like_scikit_learn(data):
    X, _ = data
    ours = FairMixture(3, fairness=None, covariance_type="diag", random_state=0, tol=1e-10)
    ours.fit(X)
    theirs = GaussianMixture(
        3,
        covariance_type="diag",
        weights_init=ours.weights_,
        means_init=ours.means_,
        precisions_init=1 / ours.covariances_,
        max_iter=1,
        tol=10.0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        theirs.fit(X)
    assert ours.bic(X) == pytest.approx(theirs.bic(X), rel=1e-5)
    assert ours.aic(X) == pytest.approx(theirs.aic(X), rel=1e-5)
    assert not hasattr(ours, "groups_")


def test_mixed_columns_and_categories_that_the_fit_did_not_see(frame):
    model = FairMixture(3, random_state=0).fit(frame, groups="sex")
    assert [c.tolist() for c in model.categories_] == [["own", "rent"], ["a", "b", "c"]]
    assert model.means_.shape == (3, 2) and model.delta_ <= 1e-8
    assert [p.shape for p in model.probabilities_] == [(3, 2), (3, 3)]
    rows = frame.drop(columns="sex").head(4).copy()
    rows.loc[0, "job"] = "zzz"
    rows.loc[1, "job"] = None
    psi = model.responsibilities(rows)
    # the unknown and the missing category say nothing: as if the column were not there
    m = model.components_.multinoullis.probabilities
    logs = (
        np.log(model.weights_)
        - 0.5
        * ((rows[["age", "income"]].to_numpy()[:2, None] - model.means_) ** 2).sum(axis=2)
        / model.covariances_
    )
    own = np.where(rows["home"].to_numpy()[:2, None] == "own", m[:, 0], m[:, 1])
    np.testing.assert_allclose(psi[:2], softmax(logs + np.log(own), axis=1), atol=1e-12)
    # another order of rows, one by one: the same
    np.testing.assert_allclose(model.responsibilities(rows.iloc[[3]]), psi[[3]])


def test_categorical_columns_alone(frame):
    model = FairMixture(2, random_state=0, tol=1e-9, max_iter=2000)
    model.fit(frame[["home", "job", "sex"]], groups="sex")
    assert model.means_.shape == (2, 0) and np.isnan(model.cost_) and model.delta_ <= 1e-8
    X, labels = model.sample(20)
    assert X.shape == (20, 2) and set(X[:, 0]) <= {"own", "rent"} and labels.max() <= 1


def test_arrays_name_categories_by_position():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=80), rng.integers(5, 8, 80)])
    model = FairMixture(2, categorical=[1], random_state=0).fit(X, groups=np.arange(80) % 2)
    assert model.categories_[0].tolist() == [5.0, 6.0, 7.0] and model.means_.shape == (2, 1)


def test_weights_are_copies_of_rows(data):
    X, sex = data
    X, sex = X[:120], sex[:120]
    w = np.random.default_rng(0).integers(1, 4, 120)
    init = X[:3]
    a = FairMixture(3, init=init, tol=1e-9, max_iter=40)
    b = clone(a)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        a.fit(X, groups=sex, sample_weight=w)
        b.fit(np.repeat(X, w, axis=0), groups=np.repeat(sex, w))
    np.testing.assert_allclose(a.means_, b.means_, atol=1e-6)
    assert a.objective_ == pytest.approx(b.objective_, abs=1e-9)


def test_several_starts_keep_the_best_and_repeat_with_a_seed(data):
    X, sex = data
    model = FairMixture(4, n_init=4, init="random", random_state=3, n_jobs=2)
    model.fit(X[:300], groups=sex[:300])
    assert model.objective_ == max(r.objective for r in model.restarts_)
    assert len(model.restarts_) == 4
    again = clone(model).set_params(n_jobs=1).fit(X[:300], groups=sex[:300])
    np.testing.assert_allclose(again.means_, model.means_)


def test_one_component_and_three_groups(data):
    X, _ = data
    groups = np.arange(len(X)) % 3
    one = FairMixture(1, random_state=0).fit(X, groups=groups)
    assert one.delta_ == pytest.approx(0.0, abs=1e-12) and one.balance_ > 0.99
    three = FairMixture(3, fairness="penalty", random_state=0).fit(X, groups=groups)
    assert three.masses_.shape == (3, 3) and three.delta_ < 0.01


def test_parameters_survive_cloning():
    model = FairMixture(5, eps=0.1, lam=3.0, label_rule="fair")
    assert clone(model).get_params() == model.get_params()


def test_an_early_end_warns(data):
    X, sex = data
    with pytest.warns(ConvergenceWarning, match="give max_iter or tol more room") as caught:
        model = FairMixture(4, max_iter=2, random_state=0).fit(X, groups=sex)
    assert caught[0].filename == __file__  # it points to the line of the user
    assert not model.converged_ and model.n_iter_ == 2 and model.delta_ <= 1e-8


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"lam": -1.0}, "lam=-1.0 is not a number of at least 0"),
        ({"lam": True}, "lam=True"),
        ({"reg_covar": -1e-6}, "reg_covar"),
        ({"eps": 3.0}, "eps"),
        ({"fairness": "constrain"}, "unknown fairness"),
        ({"covariance_type": "ful"}, "covariance_type"),
        ({"algorithm": "sgd"}, "algorithm"),
        ({"n_components": 0}, "n_components"),
        ({"batch_size": 0}, "batch_size"),
        ({"batch_size": 1.5}, "batch_size"),
        ({"min_probability": 0.0}, "min_probability"),
        ({"init": "kmeans"}, "unknown init"),
        ({"n_init": 0}, "n_init"),
        ({"time_limit": -1}, "time_limit"),
        ({"verbose": 7}, "verbose"),
        ({"fairness": "penalty", "rules": "anything"}, "rules="),
        ({"rules": {"fairness": None}}, "name 'fairness'"),
    ],
)
def test_parameters_out_of_range(data, given, text):
    X, sex = data
    with pytest.raises(DeclarationError, match=text):
        FairMixture(**{"n_components": 2, **given}).fit(X[:50], groups=sex[:50])


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"lam": -1}, r"lam=-1 is not a number of at least 0\n  do:  0 is no penalty"),
        ({"eps": -0.1}, r"eps=-0.1 is not a number from 0 to 2\n  do:  0 is perfect fairness"),
        ({"n_jobs": 0}, r"n_jobs=0 (.|\n)*-1 for all cores"),
    ],
)
def test_a_wrong_parameter_says_what_would_be_right(data, given, text):
    X, sex = data
    with pytest.raises(DeclarationError, match=text):
        FairMixture(2, **given).fit(X[:50], groups=sex[:50])


def test_verbose_2_logs_each_iteration(data, capfd):
    X, sex = data
    model = FairMixture(2, verbose=2, random_state=0).fit(X[:200], groups=sex[:200])
    out, err = capfd.readouterr()
    lines = [line for line in err.splitlines() if "alternation" in line]
    assert (out, len(lines)) == ("", model.n_iter_)
    assert "gap" not in err  # an iteration of EM has no certificate


def test_bad_data(data, frame):
    X, sex = data
    X, sex = X[:60], sex[:60]
    with pytest.raises(DataError, match="groups is missing"):
        FairMixture(2).fit(X)
    with pytest.raises(DataError, match="groups is missing"):
        FairMixture(2, fairness="penalty").fit(X)
    constant = X.copy()
    constant[:, 1] = 4.0
    with pytest.raises(DataError, match="constant columns: 1"):
        FairMixture(2).fit(constant, groups=sex)
    with pytest.raises(DataError, match="61 for 60 rows"):
        FairMixture(61).fit(X, groups=sex)
    with pytest.raises(DataError, match="give n_components <= "):  # fewer distinct rows
        FairMixture(3).fit(np.repeat([[0.0, 1.0], [2.0, 5.0]], 30, axis=0), groups=sex)
    hole = X.copy()
    hole[0, 0] = np.nan
    with pytest.raises(DataError):
        FairMixture(2).fit(hole, groups=sex)
    with pytest.raises(DataError, match="no column 'sexx'"):
        FairMixture(2).fit(frame, groups="sexx")
    with pytest.raises(DataError, match="init has shape"):
        FairMixture(2, init=X[:3]).fit(X, groups=sex)
    words = X.astype(object)
    words[:, 1] = "yes"
    with pytest.raises(DataError, match=r"not numbers: 1(.|\n)*categorical="):
        FairMixture(2).fit(words, groups=sex)
    line = np.column_stack([X[:, 0], 2.0 * X[:, 0]])
    with pytest.raises(DataError, match="reg_covar"):
        FairMixture(2, covariance_type="full", reg_covar=0.0).fit(line, groups=sex)


def test_rules_that_exclude_each_other(data):
    X, sex = data
    with pytest.raises((Infeasible, DeclarationError)):
        FairMixture(4, rules=of.cluster_share(lower=0.3)).fit(X, groups=sex)


def test_bad_rows_to_predict(fitted, frame, data):
    X, sex = data
    with pytest.raises(DataError, match="groups is missing"):
        fitted.predict(X[:3])
    with pytest.raises(DataError, match="did not see: other"):
        fitted.predict(X[:3], groups=["other"] * 3)
    with pytest.raises(DataError, match="columns"):
        fitted.predict(X[:3, :2], groups=sex[:3])
    with pytest.raises(DataError, match=r"X is no table(.|\n)*X\[None\]"):
        fitted.predict(X[0], groups=sex[:1])
    model = FairMixture(3, random_state=0).fit(frame, groups="sex")
    with pytest.raises(DataError, match="other columns"):
        model.responsibilities(frame[["income", "home", "job", "age"]])
    text = frame.drop(columns="sex").astype({"age": object})
    text["age"] = "old"
    with pytest.raises(DataError, match="not numbers: age"):
        model.responsibilities(text)


def test_draws_come_from_the_mixture(fitted, frame):
    X, labels = fitted.sample(20_000)
    share = np.bincount(labels, minlength=4) / 20_000
    np.testing.assert_allclose(share, fitted.weights_, atol=0.02)
    for k in range(4):
        np.testing.assert_allclose(X[labels == k].mean(axis=0), fitted.means_[k], atol=0.1)
    assert fitted.score(X) == pytest.approx(fitted.score(fitted.sample(20_000)[0]))  # seeded
    model = FairMixture(3, random_state=0).fit(frame, groups="sex")
    rows, labels = model.sample(5_000)
    drawn = pd.DataFrame(rows, columns=list(model.feature_names_in_))
    own = (drawn["home"] == "own").to_numpy()
    for k in range(3):
        assert own[labels == k].mean() == pytest.approx(model.probabilities_[0][k, 0], abs=0.05)
    for bad in (0, 2.5, "all"):
        with pytest.raises(DataError, match="n_samples"):
            model.sample(bad)


@pytest.mark.parametrize(
    "given",
    [{}, {"fairness": "penalty"}, {"fairness": "penalty", "algorithm": "gradient"}, {"eps": 0.05}],
)
def test_ctrl_c_keeps_what_there_is(data, given, monkeypatch):
    X, sex = data
    from optfair.methods.fair_mixtures import mixture_fit as one_fit

    told = []

    class Stop(one_fit.Iteration):
        def __new__(cls, *a):
            told.append(1)
            if len(told) == 3:
                raise KeyboardInterrupt
            return super().__new__(cls, *a)

    monkeypatch.setattr(one_fit, "Iteration", Stop)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        model = FairMixture(3, random_state=0, **given).fit(X, groups=sex)
    assert model.status_ == "interrupted" and model.n_iter_ == 3 and not model.converged_
    assert model.labels_.shape == (len(X),)


def test_a_time_limit_ends_with_a_valid_fit(data):
    X, sex = data
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        model = FairMixture(6, n_init=50, time_limit=1e-9, random_state=0).fit(X, groups=sex)
    assert model.delta_ <= 1e-8 and len(model.restarts_) == 1


def test_progress_and_pickle(data):
    import pickle

    X, sex = data
    model = FairMixture(2, n_init=2, verbose=1, random_state=0).fit(X[:200], groups=sex[:200])
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict(X, groups=sex), model.predict(X, groups=sex))


def test_a_plain_mixture_needs_no_groups_but_describes_them(data):
    X, sex = data
    a = FairMixture(3, fairness=None, random_state=0).fit(X)
    b = FairMixture(3, fairness=None, random_state=0).fit(X, groups=sex)
    np.testing.assert_allclose(a.means_, b.means_)
    assert b.delta_ == b.delta_plain_ > 0.01 and b.masses_.shape == (2, 3)
    a.partial_fit(X[:300]).partial_fit(X[300:600])
    assert a.n_iter_ == 2


def test_a_component_that_dies_is_reported(data):
    X, sex = data
    init = np.vstack([X[:3], np.full((1, X.shape[1]), 1e4)])
    model = FairMixture(4, fairness=None, init=init).fit(X, groups=sex)
    # a center that no row is near stays where it was, and dies in the first E-step
    assert model.reseeded_ and model.reseeded_[0] == (1, 3)
    assert np.abs(model.means_[3]).max() < 100 and model.weights_.min() > 1e-4


def test_hard_labels_obey_to_the_row() -> None:
    rng = np.random.default_rng(0)
    g = rng.choice(3, 600, p=[0.05, 0.35, 0.6])
    X = rng.normal(size=(600, 2)) + g[:, None]
    model = FairMixture(4, eps=0.05, label_rule="hard", random_state=0).fit(X, groups=g)
    assert of.metrics.max_gap(g, np.eye(4)[model.labels_]) <= 0.05 + 1e-9
    assert model.hard_labels_.exact and model.hard_labels_.gap <= 1e-2
    fair = FairMixture(4, eps=0.05, label_rule="fair", random_state=0).fit(X, groups=g)
    assert (fair.labels_ != model.labels_).sum() <= 3 * 4 * 3
    assert fair.hard_labels_ is None


def heaps(seed: int, apart: float) -> tuple[Any, Any]:
    """Return rows in three heaps that hold the groups in unequal shares."""
    rng = np.random.default_rng(seed)
    heap = rng.integers(0, 3, 100)
    groups = (rng.random(100) < np.array([0.2, 0.5, 0.8])[heap]).astype(int)
    X = rng.normal(size=(100, 2)) + apart * np.array([[0, 0], [1, 0], [0, 1]])[heap]
    return X, groups


@pytest.mark.sampled(3)
@pytest.mark.parametrize("apart", [100.0, 1000.0])
@pytest.mark.parametrize("shape", ["shared", "diag", "full"])
@pytest.mark.parametrize("seed", [2, 4, 5])
def test_rows_that_are_all_but_hard_obey_the_rule(seed: int, shape: Any, apart: float) -> None:
    X, groups = heaps(seed, apart)
    model = FairMixture(3, covariance_type=shape, random_state=0).fit(X, groups=groups)
    assert model.status_ == "converged"
    assert model.delta_ <= 1e-9 and abs(model.gap_) <= 1e-9

    def chunks() -> Any:
        return ((X[i : i + 25], groups[i : i + 25]) for i in range(0, 100, 25))

    streamed = FairMixture(3, covariance_type=shape, random_state=0).fit_stream(chunks)
    assert streamed.status_ == "converged" and streamed.delta_ <= 1e-9


@pytest.mark.parametrize("shape", ["shared", "diag", "tied", "full"])
def test_likelihoods_move_with_the_unit_alone(shape: Any) -> None:
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(60, 3)), np.arange(60) % 2
    fits = [
        FairMixture(2, covariance_type=shape, random_state=0, tol=1e-9, max_iter=2000).fit(
            unit * X, groups=groups
        )
        for unit in (1e-6, 1.0, 1e6)
    ]
    shifts = [3.0 * np.log(unit) for unit in (1e-6, 1.0, 1e6)]
    found = [m.log_likelihood_ + shift for m, shift in zip(fits, shifts, strict=True)]
    np.testing.assert_allclose(found, found[1], atol=1e-4)
    # a variance that is asked for is one, in the units of the rows
    least = FairMixture(2, covariance_type="diag", reg_covar=4.0, random_state=0)
    assert (least.fit(X, groups=groups).covariances_ >= 4.0 - 1e-12).all()


@pytest.mark.parametrize("algorithm", ["em", "gradient"])
@pytest.mark.parametrize("shape", ["full", "tied"])
@pytest.mark.parametrize("unit", [1e-6, 1e-3, 1e3, 1e6])
def test_a_step_beyond_the_floats_is_taken_back(unit: float, shape: Any, algorithm: Any) -> None:
    X, groups = unit * np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    model = FairMixture(
        2, covariance_type=shape, fairness="penalty", lam=1.0, start="soft", algorithm=algorithm
    ).set_params(random_state=0, max_iter=20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model.fit(X, groups=groups)
    assert np.isfinite(model.log_likelihood_) and (np.diff(model.history_) >= 0.0).all()


@pytest.mark.parametrize("shape", ["full", "tied"])
@pytest.mark.parametrize("seed", range(3))
def test_columns_whose_variances_are_far_apart_have_a_factor(seed: int, shape: Any) -> None:
    rng = np.random.default_rng(seed)
    units = 10.0 ** np.linspace(-4, 3, 8)
    X = (
        rng.normal(size=(90, 3)) @ rng.normal(size=(3, 8)) + 1e-3 * rng.normal(size=(90, 8))
    ) * units
    model = FairMixture(3, covariance_type=shape, random_state=seed, max_iter=30)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model.fit(X, groups=np.arange(90) % 2)
    assert np.isfinite(model.log_likelihood_) and model.delta_ <= 1e-9
    assert (np.linalg.eigvalsh(model.covariances_ / np.outer(units, units)) > 0.0).all()


def test_a_floor_below_rounding_leaves_a_factor() -> None:
    rng = np.random.default_rng(0)
    V = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    sizes = np.array([1e-30, 1e-12, 1.0, 1e3, 1e6])
    L = _root((V * sizes) @ V.T, 1e-18)
    assert np.isfinite(L).all() and (np.diag(L) > 0.0).all()
    np.testing.assert_allclose(L @ L.T, (V * sizes) @ V.T, atol=1e-9)
    np.testing.assert_array_equal(L, np.tril(L))


@pytest.mark.parametrize("noise", [-1e-17, 0.0, 1e-33, 1e-20])
def test_a_column_that_is_constant_in_a_component_correlates_with_nothing(noise):
    """What rounding leaves beside no variance is any correlation, and would turn the others."""
    S = np.array([[noise, 2e-17, -3e-17], [2e-17, 1.3, 0.7], [-3e-17, 0.7, 2.0]])
    L = _root(S, 1e-6)
    np.testing.assert_allclose(L @ L.T, [[1e-6, 0, 0], [0, 1.3, 0.7], [0, 0.7, 2.0]], atol=1e-12)


def test_the_objective_does_not_fall_where_a_component_is_flat():
    """Whole numbers: a component ends with one value of a column."""
    rng = np.random.default_rng(0)
    for seed in range(20):
        rows = np.round(2.0 * rng.normal(size=(30, 3)))
        groups = np.arange(30) % 3
        model = of.FairMixture(4, covariance_type="full", eps=0.3, max_iter=500, random_state=seed)
        model.fit(rows, groups=groups)
        started = {i for i, _ in model.reseeded_}
        falls = -np.diff(model.history_)
        assert all(fall <= 1e-8 for i, fall in enumerate(falls, 1) if i not in started)
