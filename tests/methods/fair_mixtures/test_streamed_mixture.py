"""Fair mixtures in passes are fair mixtures in memory, to rounding."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import optfair as of
from optfair.errors import DataError, DeclarationError
from optfair.methods.fair_clustering.labels import hard_labels
from optfair.methods.fair_mixtures import fair_mixture as in_memory
from optfair.methods.fair_mixtures import fitted_mixture
from optfair.methods.fair_mixtures import mixture_fit as one_fit
from optfair.methods.fair_mixtures import streamed_mixture as mixture_stream
from optfair.methods.fair_mixtures.expectation import MemoryPasses, Sample
from optfair.methods.fair_mixtures.fair_em import fair_labels_problem
from optfair.methods.fair_mixtures.streamed_mixture import StreamPasses
from optfair.rows.sources import code_columns, row_source, with_codes
from optfair.rows.survey import kept_rows, surveyed

RNG = np.random.default_rng(0)
N = 2000
CLUSTER = RNG.integers(0, 4, N)
X = RNG.normal(size=(N, 3)) + 3.0 * CLUSTER[:, None]
G = np.where(RNG.random(N) < 1.0 / (1.0 + np.exp(3.0 - X[:, 0])), "b", "a")
W = RNG.random(N)
TEXT = pd.DataFrame(X[:, :2], columns=["u", "v"]).assign(
    job=np.array(["none", "clerk", "cook", "smith"])[(CLUSTER + RNG.integers(0, 2, N)) % 4],
    home=np.where(RNG.random(N) < 0.7, "own", None),
)


def chunked(rows: Any, size: int = 431, w: np.ndarray | None = None, groups: np.ndarray = G):
    def read():
        for i in range(0, len(rows), size):
            part = (rows[i : i + size], groups[i : i + size])
            yield part if w is None else (*part, w[i : i + size])

    return read


def same(a: of.FairMixture, b: of.FairMixture, tolerance: float = 1e-9) -> None:
    assert np.abs(a.means_ - b.means_).max() < tolerance
    assert np.abs(a.weights_ - b.weights_).max() < tolerance
    assert np.abs(a.covariances_ - b.covariances_).max() < tolerance
    assert np.abs(a.masses_ - b.masses_).max() < tolerance
    assert b.objective_ == pytest.approx(a.objective_, abs=tolerance)
    assert b.log_likelihood_ == pytest.approx(a.log_likelihood_, abs=tolerance)
    assert b.delta_plain_ == pytest.approx(a.delta_plain_, abs=tolerance)
    assert b.delta_labels_ == pytest.approx(a.delta_labels_, abs=1e-3)
    assert b.cost_ == pytest.approx(a.cost_, rel=1e-3)
    assert b.balance_ == pytest.approx(a.balance_, abs=1e-2)
    assert (b.n_iter_, b.status_, b.n_rows_) == (a.n_iter_, a.status_, N)


# every iteration is compared, so a few say as much as many
pytestmark = pytest.mark.filterwarnings("ignore:the best start ended by max_iter")

SETTINGS: dict[str, dict[str, Any]] = {
    "perfect": {},
    "eps": {"eps": 0.05, "covariance_type": "diag"},
    "rules": {"eps": 0.02, "rules": of.cluster_share(lower=0.15), "covariance_type": "spherical"},
    "full": {"covariance_type": "full"},
    "two starts": {"n_init": 2, "init": "random", "eps": 0.0},
    "plain": {"fairness": None},
    "penalty": {"fairness": "penalty", "lam": 5.0},
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", SETTINGS)
def test_equal_to_the_fit_in_memory(kind: str) -> None:
    model = of.FairMixture(4, random_state=0, max_iter=25, **SETTINGS[kind])
    a = of.FairMixture(**model.get_params()).fit(X, groups=G, sample_weight=W)
    b = model.fit_stream(chunked(X, w=W))
    same(a, b, 1e-6 if kind in ("eps", "rules") else 1e-9)  # inequalities go through a solver
    if model.fairness == "constraint":
        assert b.delta_ <= SETTINGS[kind].get("eps", 0.0) + 1e-8
    assert [r.seed for r in a.restarts_] == [r.seed for r in b.restarts_]
    ends = [r.objective for r in b.restarts_]
    assert len(ends) == 1 or np.ptp(ends) > 1e-4  # on a tie either could be the best
    labels = np.concatenate(list(b.predict_stream(chunked(X))))
    assert (labels != a.labels_).mean() < 1e-3


def test_masses_are_those_of_the_responsibilities_of_new_rows() -> None:
    b = of.FairMixture(3, random_state=0, tol=1e-4).fit_stream(chunked(X))
    R = b.predict_proba(X, groups=G)
    fractions = np.stack([R[name == G].mean(axis=0) for name in "ab"])
    assert np.abs(fractions[0] - fractions[1]).max() <= 1e-8
    assert np.abs(fractions * b.shares_[:, None] - b.masses_).max() < 1e-12


def parquet(folder: Path) -> Any:
    TEXT.assign(g=G).to_parquet(folder / "rows.parquet", index=False)
    return row_source(folder / "rows.parquet", "g", chunk_rows=500, text=True)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ["frames", "whole frame", "parquet", "array"])
def test_text_columns_are_categories_wherever_they_come_from(kind: str, tmp_path: Path) -> None:
    model = of.FairMixture(3, random_state=0, max_iter=12)
    a = of.FairMixture(**model.get_params()).fit(TEXT, groups=G)
    given: dict[str, Any] = {}
    data: Any = chunked(TEXT)
    if kind == "whole frame":
        data, given = TEXT, {"groups": G}
    elif kind == "parquet":
        data = parquet(tmp_path)
    elif kind == "array":
        model.set_params(categorical=[2, 3])
        data = chunked(TEXT.to_numpy(dtype=object))
    b = model.fit_stream(data, **given)
    same(a, b)
    assert [c.tolist() for c in b.categories_] == [c.tolist() for c in a.categories_]
    assert all(
        np.abs(p - q).max() < 1e-9 for p, q in zip(a.probabilities_, b.probabilities_, strict=True)
    )
    labels = np.concatenate(list(b.predict_stream(data, **given)))
    assert np.array_equal(labels, b.predict(TEXT, groups=G))


def test_numbers_of_a_parquet_dataset_need_no_pass_over_categories(tmp_path: Path) -> None:
    pd.DataFrame(X, columns=list("uvz")).assign(g=G).to_parquet(tmp_path / "a.parquet")
    source, columns = with_codes(row_source(tmp_path, "g", text=True), "auto")
    assert columns is None
    assert next(iter(source.chunks())).X.dtype == float
    b = of.FairMixture(3, random_state=0, max_iter=10).fit_stream(tmp_path, groups="g")
    assert b.feature_names_in_.tolist() == ["u", "v", "z"]
    whole = of.FairMixture(3, random_state=0, max_iter=10).fit(X, groups=G)
    same(whole, b)
    labels = np.concatenate(list(b.predict_stream(tmp_path, groups="g")))
    np.testing.assert_array_equal(labels, whole.labels_)


def test_many_rows_start_on_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    def small(source: Any, **options: Any) -> Any:
        return surveyed(source, **options, held=1500, size=1000)

    monkeypatch.setattr(mixture_stream, "surveyed", small)
    b = of.FairMixture(4, n_init=2, random_state=0, tol=1e-5).fit_stream(chunked(X))
    assert len(b.restarts_) == 2
    assert b.delta_ <= 1e-8
    assert (np.diff(b.history_) >= -1e-10).all()
    # it is where EM on all rows stays
    again = of.FairMixture(4, init=b.components_, tol=1e-5).fit(X, groups=G)
    assert again.objective_ == pytest.approx(b.objective_, abs=2e-4)
    # learned from the sample alone, the rules hold on all rows nevertheless
    for more in ({"learn_rows": 700}, {"batch_size": 300, "max_iter": 10}):
        c = of.FairMixture(4, random_state=0, **more).fit_stream(chunked(X))
        assert c.delta_ <= 1e-8
        assert c.n_passes_ < 15
        R = c.predict_proba(X, groups=G)
        assert np.abs(R[G == "a"].mean(axis=0) - R[G == "b"].mean(axis=0)).max() <= 1e-8
    d = of.FairMixture(4, fairness="penalty", lam=5.0, random_state=0).fit_stream(chunked(X))
    assert d.n_passes_ == 2
    psi = d.predict_proba(X)
    gap = np.abs(psi[G == "a"].mean(axis=0) - psi[G == "b"].mean(axis=0)).max()
    assert d.delta_ == pytest.approx(gap, abs=1e-12)


@pytest.mark.parametrize(
    "kind",
    [
        {"n_init": 2, "init": "random"},
        {"learn_rows": 700},
        {"batch_size": 300},
        {"fairness": "penalty"},
    ],
    ids=str,
)
def test_many_rows_have_one_answer(kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    few = {"held": 1500, "size": 1000}
    monkeypatch.setattr(mixture_stream, "surveyed", partial(surveyed, **few))
    monkeypatch.setattr(in_memory, "kept_rows", partial(kept_rows, **few))
    model = of.FairMixture(4, random_state=0, max_iter=12, **kind)
    a = of.FairMixture(**model.get_params()).fit(X, groups=G, sample_weight=W)
    b = model.fit_stream(X, groups=G, sample_weight=W)
    same(a, b)
    assert a.restarts_[0].objective == pytest.approx(b.restarts_[0].objective, abs=1e-9)
    assert a.labels_.shape == (N,)
    monkeypatch.undo()
    whole = of.FairMixture(**model.get_params()).fit(X, groups=G, sample_weight=W)
    assert np.abs(whole.means_ - a.means_).max() > 1e-6  # of a sample, it was


def test_the_last_pass_of_a_projection_is_not_made_again_for_the_m_step() -> None:
    model = of.FairMixture(3, random_state=0, max_iter=2).fit(X, groups=G)
    survey = surveyed(row_source(chunked(X)))
    coded = code_columns(model.columns_)
    passes = StreamPasses(row_source(chunked(X)), survey, coded)
    look = passes.oracle(model.components_)
    found = [look(model.prices_) for _ in range(3)]
    assert passes.count == 3
    step = passes.expectation(model.components_, model.prices_)
    assert passes.count == 3
    assert np.abs(step.masses - found[-1].masses).max() < 1e-14
    other = passes.expectation(model.components_, 2.0 * model.prices_)
    assert passes.count == 4
    sample = Sample(coded.encoded(X), survey.sample.groups, survey.sample.weights, survey.shares)
    for prices, got in ((model.prices_, step), (2.0 * model.prices_, other)):
        expected = MemoryPasses(sample).expectation(model.components_, prices)
        assert got.value == pytest.approx(expected.value, abs=1e-12)
        assert np.abs(got.masses - expected.masses).max() < 1e-14
        assert (
            np.abs(got.statistics.moments.first - expected.statistics.moments.first).max() < 1e-12
        )
        assert got.farthest.log_density == pytest.approx(expected.farthest.log_density)
    assert np.abs(other.masses - step.masses).max() > 1e-3


def test_threads_change_nothing() -> None:
    one, two = (
        of.FairMixture(3, random_state=0, max_iter=8, n_jobs=j).fit_stream(chunked(X))
        for j in (1, 2)
    )
    assert np.array_equal(one.means_, two.means_)
    assert np.array_equal(one.prices_, two.prices_)


def test_a_streamed_fit_forgets_the_rows_of_an_earlier_one() -> None:
    model = of.FairMixture(3, random_state=0, tol=1e-3).fit(TEXT[["u", "v"]], groups=G)
    model.fit_stream(chunked(X))
    assert not hasattr(model, "labels_")
    assert not hasattr(model, "feature_names_in_")
    assert model.predict(X[:5], groups=G[:5]).shape == (5,)


def _swapped(name: str, value: Any) -> pd.DataFrame:
    return TEXT.assign(**{name: value})


BAD: dict[str, tuple[Any, dict[str, Any], str]] = {
    "constant": (chunked(np.column_stack([X, np.ones(N)])), {}, "constant columns: 3"),
    "too few rows": (chunked(X[:3], groups=np.array(["a", "b", "a"])), {}, "n_components=4 for 3"),
    "missing number": (chunked(_swapped("u", np.nan)), {}, "chunk 0: X has 431 entries"),
    "categories": (
        chunked(_swapped("job", np.char.add("r", np.arange(N).astype(str)))),
        {},
        "job has 2000",
    ),
    "no category": (
        chunked(_swapped("home", None)),
        {"categorical": ["job", "home"]},
        "column home has 0 categories",
    ),
    "unknown column": (chunked(TEXT), {"categorical": ["jib"]}, "X has no column 'jib'"),
    "not a list": (chunked(TEXT), {"categorical": "job"}, "neither 'auto' nor a list"),
    "iterator": (chunked(X)(), {}, "an iterator can be read only once"),
    "no rows": (lambda: iter([]), {}, "the source gives no rows"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_rows_are_refused(kind: str) -> None:
    data, settings, message = BAD[kind]
    with pytest.raises(DataError) as error:
        of.FairMixture(4, random_state=0, **settings).fit_stream(data)
    assert message in str(error.value)


def test_other_columns_in_a_later_chunk_are_refused() -> None:
    def read():
        yield TEXT[:100], G[:100]
        yield TEXT[["v", "u", "job", "home"]][100:], G[100:]

    with pytest.raises(DataError, match="chunk 1 has other columns than the first"):
        of.FairMixture(2).fit_stream(read)


def test_a_later_pass_with_other_rows_is_refused() -> None:
    passes = []

    def fewer():
        passes.append(1)
        yield from list(chunked(X)())[: 5 if len(passes) <= 2 else 4]

    with pytest.raises(DataError, match="the same rows in every pass"):
        of.FairMixture(2, random_state=0).fit_stream(fewer)


@pytest.mark.parametrize("rule", [pytest.param("fair", marks=pytest.mark.slow), "hard"])
def test_few_rows_have_labels_that_obey(rule: str) -> None:
    streamed = of.FairMixture(3, eps=0.03, label_rule=rule, random_state=0).fit_stream(chunked(X))
    whole = of.FairMixture(3, eps=0.03, label_rule=rule, random_state=0).fit(X, groups=G)
    assert streamed.delta_labels_ == pytest.approx(whole.delta_labels_, abs=1e-12)
    assert streamed.cost_ == pytest.approx(whole.cost_, rel=1e-9)
    np.testing.assert_allclose(streamed.label_prices_, whole.label_prices_, atol=1e-6)
    assert not hasattr(streamed, "labels_")
    if rule == "hard":
        assert (streamed.hard_labels_.labels == whole.labels_).all()


@pytest.mark.parametrize("rule", ["fair", "hard"])
def test_many_rows_have_labels_that_obey(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def small(source: Any, **options: Any) -> Any:
        return surveyed(source, **options, held=1500, size=1000)

    monkeypatch.setattr(mixture_stream, "surveyed", small)
    monkeypatch.setattr(fitted_mixture, "HARD_SECONDS", 0.0)
    model = of.FairMixture(3, eps=0.03, label_rule=rule, random_state=0).fit_stream(chunked(X))
    joint = model.components_.log_prob(model.columns_.encoded(X))
    rules = {"fairness": of.max_gap(0.03)}
    p = fair_labels_problem(joint, G, np.full(len(X), 1.0 / len(X)), rules)
    exact = p.solve()
    labels = np.argmax(exact["assignment"], axis=1)
    if rule == "hard":
        found = model.hard_labels_
        assert found.exact and found.grade.sound and found.gap <= 1e-3
        assert model.delta_labels_ <= 0.03 + 1e-9
        assert found.objective == pytest.approx(
            hard_labels(exact, time_limit=0.0).objective, rel=1e-3
        )
        labels = found.labels
    apart = model.components_.means[labels] - X
    assert model.cost_ == pytest.approx(float(np.square(apart).sum(axis=1).mean()), rel=1e-9)
    own = [[(labels[g == G] == k).mean() for k in range(3)] for g in np.unique(G)]
    assert model.delta_labels_ == pytest.approx(float(np.abs(np.subtract(*own)).max()), abs=1e-12)
    assert model.label_prices_ == pytest.approx(exact.multipliers["mass definition"], abs=0.05)


def test_labels_of_unequal_weight_are_repaired(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixture_stream, "surveyed", partial(surveyed, held=1500, size=1000))
    w = np.random.default_rng(0).uniform(0.2, 3.0, N)
    model = of.FairMixture(3, eps=0.01, label_rule="hard", random_state=0)
    model.fit_stream(chunked(X, w=w))  # a warning is an error
    found, w = model.hard_labels_, w / w.sum()
    joint = model.components_.log_prob(model.columns_.encoded(X))
    exact = fair_labels_problem(joint, G, w, {"fairness": of.max_gap(0.01)}).solve()
    assert hard_labels(exact, time_limit=0.0).violation > 0.0  # the largest fractions miss it
    assert found.exact and found.grade.sound and found.gap <= 1e-3
    assert model.delta_labels_ <= 0.01 + 1e-9
    apart = model.components_.means[found.labels] - X
    assert model.cost_ == pytest.approx(float(w @ np.square(apart).sum(axis=1)), rel=1e-9)


def test_components_are_a_positive_number() -> None:
    with pytest.raises(DeclarationError, match="n_components=0"):
        of.FairMixture(0).fit_stream(chunked(X))


def test_limits_return_what_was_found() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        short = of.FairMixture(4, random_state=0, max_iter=2).fit_stream(chunked(X))
        late = of.FairMixture(4, random_state=0, time_limit=1e-9).fit_stream(chunked(X))
    assert (short.status_, short.n_iter_) == ("max_iter", 2)
    assert late.status_ == "time_limit"
    assert max(short.delta_, late.delta_) <= 1e-8


def test_ctrl_c_on_the_sample_leaves_one_step_on_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def small(source: Any, **options: Any) -> Any:
        return surveyed(source, **options, held=1500, size=1000)

    fair_em = one_fit.fair_em
    monkeypatch.setattr(mixture_stream, "surveyed", small)
    monkeypatch.setattr(
        one_fit, "fair_em", lambda *a, **o: replace(fair_em(*a, **o), status="interrupted")
    )
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        b = of.FairMixture(4, n_init=3, random_state=0).fit_stream(chunked(X))
    assert (b.status_, b.n_iter_, len(b.restarts_)) == ("interrupted", 1, 1)
    assert b.delta_ <= 1e-8


@pytest.mark.parametrize("held", [1500, 5000])
def test_progress_is_told(
    held: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def small(source: Any, **options: Any) -> Any:
        return surveyed(source, **options, held=held, size=1000)

    monkeypatch.setattr(mixture_stream, "surveyed", small)
    b = of.FairMixture(2, random_state=0, tol=1e-3, verbose=2).fit_stream(chunked(X))
    out, err = capfd.readouterr()
    assert out == ""
    assert f"alternation {b.n_iter_}: objective {b.objective_:.10g}" in " ".join(err.split())
    assert "gap" not in err  # an iteration of EM has no certificate


def _alone(kind: str, folder: Path) -> Any:
    if kind == "parquet":
        pd.DataFrame(X, columns=["u", "v", "z"]).to_parquet(folder / "a.parquet")
        return folder
    parts = [X[i : i + 431] for i in range(0, N, 431)]
    return {
        "arrays": lambda: iter(parts),
        "frames": lambda: (pd.DataFrame(part) for part in parts),
        "pairs": lambda: ((part, None) for part in parts),
        "matrix": X,
    }[kind]


@pytest.mark.parametrize("kind", ["arrays", "frames", "pairs", "matrix", "parquet"])
def test_a_plain_mixture_needs_no_groups(kind: str, tmp_path: Path) -> None:
    rows = _alone(kind, tmp_path)
    model = of.FairMixture(3, fairness=None, random_state=0, max_iter=20, tol=1e-3)
    whole = of.FairMixture(**model.get_params()).fit(X)
    model.fit(X, groups=G).fit_stream(rows)
    assert np.abs(model.means_ - whole.means_).max() < 1e-9
    assert not hasattr(model, "groups_")
    labels = np.concatenate(list(model.predict_stream(rows)))
    np.testing.assert_array_equal(labels, whole.labels_)
    with pytest.raises(DataError, match=r"groups (are missing|must name)|chunk 0"):
        of.FairMixture(3).fit_stream(rows)


def test_labels_of_a_stream_take_one_pass_and_groups_where_they_count() -> None:
    model = of.FairMixture(3, random_state=0).fit(X, groups=G)
    labels = np.concatenate(list(model.predict_stream(chunked(X)())))  # an iterator will do
    np.testing.assert_array_equal(labels, model.labels_)
    with pytest.raises(DataError, match="it has no groups"):
        list(model.predict_stream(lambda: iter([X])))
    free = of.FairMixture(3, fairness="penalty", random_state=0).fit(X, groups=G)
    np.testing.assert_array_equal(next(free.predict_stream(iter([X]))), free.labels_)
    clusters = of.FairKMeans(3, n_init=1, random_state=0).fit(X, groups=G)
    found = np.concatenate(list(clusters.predict_stream(chunked(X)())))
    np.testing.assert_array_equal(found, clusters.predict(X, groups=G))
    for unfitted in (of.FairMixture(3), of.FairKMeans(3)):
        with pytest.raises(NotFittedError):
            next(unfitted.predict_stream(iter([X])))


def test_labels_that_no_whole_rows_allow_are_refused_after_the_first_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mixture_stream, "surveyed", partial(surveyed, held=1500, size=1000))
    monkeypatch.setattr(mixture_stream, "fit_mixture", None)
    groups = np.where(np.arange(N) < 997, "few", "many")  # 997 is prime
    model = of.FairMixture(3, eps=0.0, rules=of.cluster_share(lower=0.1), label_rule="hard")
    with pytest.raises(DataError, match=r"'few' \(997 rows\)") as caught:
        model.fit_stream(chunked(X, groups=groups))
    assert 'label_rule="fair"' in str(caught.value)
