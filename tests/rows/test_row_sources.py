"""Sources give the same rows in every pass, whatever they are read from."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import optfair as of
from optfair.errors import DataError
from optfair.rows.sources import Chunk, MatrixRows, RowSource, row_source
from optfair.rows.survey import surveyed

RNG = np.random.default_rng(0)
X = RNG.normal(size=(500, 3))
G = np.where(RNG.random(500) < 0.3, "b", "a")
W = RNG.random(500)


def read(chunk: int = 77):
    for i in range(0, 500, chunk):
        yield X[i : i + chunk], G[i : i + chunk], W[i : i + chunk]


def parquet(folder: Path) -> RowSource:
    import pyarrow as pa
    from pyarrow import parquet as pq

    table = pa.table({"u": X[:, 0], "g": G, "v": X[:, 1], "w": W, "z": X[:, 2]})
    pq.write_table(table.slice(0, 200), folder / "a.parquet")
    pq.write_table(table.slice(200), folder / "b.parquet")
    return row_source(folder, "g", "w", chunk_rows=64)


def memmap(folder: Path) -> RowSource:
    np.save(folder / "X.npy", X)
    return row_source(np.load(folder / "X.npy", mmap_mode="r"), G, W, chunk_rows=64)


def frames(folder: Path) -> RowSource:
    import pandas as pd

    table = pd.DataFrame(X, columns=["u", "v", "z"]).assign(g=G, w=W)
    return row_source(lambda: (table[i : i + 50] for i in range(0, 500, 50)), "g", "w")


SOURCES = {
    "function": lambda folder: row_source(read),
    "frames": frames,
    "parquet": parquet,
    "memmap": memmap,
    "array": lambda folder: row_source(X, G, W, chunk_rows=33),
}


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_every_source_gives_the_rows_in_order_in_every_pass(
    kind: str, n_jobs: int, tmp_path: Path
) -> None:
    source = SOURCES[kind](tmp_path)
    for _ in range(2):
        parts = source.map_reduce(
            lambda c: [(np.asarray(c.X), np.asarray(c.labels).astype(str), c.weights)],
            lambda a, b: a + b,
            n_jobs,
        )
        assert len(parts) > 1
        rows, labels, weights = (np.concatenate(p) for p in zip(*parts, strict=True))
        assert np.array_equal(rows, X)
        assert np.array_equal(labels, G)
        assert np.array_equal(weights, W)


@pytest.mark.parametrize("kind", SOURCES)
def test_survey_counts_rows_groups_and_weights(kind: str, tmp_path: Path) -> None:
    survey = surveyed(SOURCES[kind](tmp_path))
    assert (survey.rows, survey.columns) == (500, 3)
    assert survey.group_names.tolist() == ["a", "b"]
    assert survey.shares == pytest.approx(
        [W[name == G].sum() / W.sum() for name in "ab"], abs=1e-14
    )
    assert survey.complete
    assert np.array_equal(survey.sample.X, X)
    assert survey.sample.weights == pytest.approx(W / W.sum(), abs=1e-16)


def test_sample_of_many_rows_keeps_small_groups_shares_and_order() -> None:
    n = 20_000
    groups = np.where(np.arange(n) % 400 == 0, "rare", "common")
    rows = np.arange(n, dtype=float)[:, None]
    survey = surveyed(row_source(rows, groups, chunk_rows=999), held=3000, size=2000)
    sample = survey.sample
    assert not survey.complete
    assert 2000 <= len(sample.X) <= 2100
    assert (np.diff(sample.X[:, 0]) > 0).all()  # in the order of the rows, none twice
    assert np.array_equal(sample.groups == 1, groups[sample.X[:, 0].astype(int)] == "rare")
    assert (sample.groups == 1).sum() == 50  # all there are
    assert np.bincount(sample.groups, sample.weights) == pytest.approx(survey.shares, abs=1e-12)
    # it is spread over all rows: a mean far off would show a sample of the first chunks
    assert abs(sample.X[sample.groups == 0].mean() / n - 0.5) < 0.03
    again = surveyed(row_source(rows, groups, chunk_rows=999), held=3000, size=2000, n_jobs=2)
    assert np.array_equal(again.sample.X, sample.X)


def test_rows_without_weight_do_not_enter_a_sample_before_others() -> None:
    w = np.where(np.arange(1000) % 2, 1.0, 0.0)
    survey = surveyed(row_source(np.ones((1000, 1)), np.arange(1000) % 3, w), held=500, size=400)
    assert (survey.sample.weights > 0).all()


BAD = {
    "different columns": (
        lambda: iter([(X[:100], G[:100]), (X[100:, :2], G[100:])]),
        "chunk 1 has other columns than the first",
    ),
    "one group": (lambda: iter([(X, ["a"] * 500)]), "one group only"),
    "missing value": (
        lambda: iter([(X[:9], G[:9]), (np.full((2, 3), np.nan), G[:2])]),
        "chunk 1: X has 6 entries that are NaN",
    ),
    "missing label": (lambda: iter([(X[:3], ["a", None, "b"])]), "missing labels"),
    "labels too short": (lambda: iter([(X, G[:-1])]), "chunk 0: groups does not fit the rows"),
    "negative weight": (lambda: iter([(X, G, -W)]), "negative or non-finite weights"),
    "no weight": (lambda: iter([(X, G, 0 * W)]), "sums to zero"),
    "no rows": (lambda: iter([]), "the source gives no rows"),
    "no groups": (lambda: iter([X]), "chunk 0 is a ndarray"),
    "too many parts": (lambda: iter([(X, G, W, W)]), "it has 4 parts"),
    "rows of several lengths": (lambda: iter([[[1.0], [1.0, 2.0]]]), "chunk 0 is a list"),
    "labels are numbers": (lambda: iter([(X, X[:, 0])]), "looks like a number"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_chunks_are_refused_by_number(kind: str) -> None:
    make, message = BAD[kind]
    with pytest.raises(DataError) as error:
        surveyed(row_source(make))
    assert message in str(error.value)


def test_other_column_names_are_refused() -> None:
    import pandas as pd

    one = pd.DataFrame(X, columns=list("uvz")).assign(g=G)
    two = one[["v", "u", "z", "g"]]
    with pytest.raises(DataError, match="got v, u, z; the first has u, v, z"):
        surveyed(row_source(lambda: iter([one, two]), "g"))


@pytest.mark.parametrize("second", [{"b": G, "a": G}, {"a": G}, {"a": G, "c": G}, G])
def test_groups_of_other_attributes_are_refused(second: Any) -> None:
    """They would be other groups, though their rows may be of the same ones."""
    first = {"a": G, "b": G}
    with pytest.raises(DataError, match=r"chunk 1 has groups of other attributes.*\n.*got") as e:
        surveyed(row_source(lambda: iter([(X, first), (X, second)])))
    assert "the first has a, b" in str(e.value)
    model = of.FairKMeans(2, n_init=1, random_state=0).fit(X, groups={"a": G, "b": G[::-1]})
    with pytest.raises(DataError, match=r"(?s)other attributes than the fit.*a, b; got b, a"):
        model.predict(X, groups={"b": G[::-1], "a": G})


@pytest.mark.parametrize("unit", ["D", "s", "us", "ns"])
def test_dates_are_labels_in_any_unit(unit: str) -> None:
    dates = np.where(G == "a", "2020-01-01", "2021-05-03").astype("datetime64[D]")
    own = dates.astype(f"datetime64[{unit}]")
    model = of.FairKMeans(2, n_init=1, random_state=0)
    model.fit_stream(lambda: iter([(X[:300], own[:300]), (X[300:], dates[300:])]))
    alike = of.FairKMeans(2, n_init=1, random_state=0).fit(X, groups=G)
    assert (model.groups_ == np.unique(dates)).all()
    assert model.cluster_centers_ == pytest.approx(alike.cluster_centers_)
    for given in (own, dates, own.astype("datetime64[ns]")):
        assert np.array_equal(model.predict(X, groups=given), alike.predict(X, groups=G))
    held = of.FairKMeans(2, n_init=1, random_state=0).fit(X, groups=dates)
    assert np.array_equal(held.predict(X, groups=own), alike.predict(X, groups=G))
    with pytest.raises(DataError, match="labels the fit did not see"):
        held.predict(X, groups=dates.astype("datetime64[h]") + 5)


def test_an_iterator_is_refused_with_the_remedy() -> None:
    with pytest.raises(DataError, match="give a function that returns a new iterator"):
        of.FairKMeans(2).fit_stream(read())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([(X[:200], G[:200]), (X[200:], G[200:])], "a list of chunks as a function"),
        ([X[:250], X[250:]], "a list of chunks as a function"),
        (3, "data is an int that is no table"),
        (lambda: None, "the function of chunks returns no iterator"),
    ],
)
def test_what_is_no_source_is_refused_with_the_remedy(data: object, message: str) -> None:
    groups = None if callable(data) else G
    with pytest.raises(DataError) as error:
        surveyed(row_source(data, groups))
    assert message in str(error.value)


def test_chunks_may_have_a_dict_of_attributes() -> None:
    parts = {"sex": np.array(["f", "m"])[np.arange(500) % 2], "age": np.arange(500) % 3}
    survey = surveyed(row_source(lambda: iter([(X, parts)]), None))
    assert survey.group_names[0] == "sex=f, age=0" and survey.group_names.size == 6


def test_groups_beside_a_function_of_chunks_are_refused() -> None:
    with pytest.raises(DataError, match="which of its entries belong to which chunk"):
        row_source(read, G)
    with pytest.raises(DataError, match="sample_weight is a ndarray"):
        row_source(read, sample_weight=W)


def test_files_that_are_not_parquet_are_named(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", X)
    np.savetxt(tmp_path / "rows.csv", X, delimiter=",")
    for name in ("rows.npy", "rows.csv"):
        for groups in (G, "g"):
            with pytest.raises(DataError, match=rf"{name} is no parquet dataset(.|\n)*mmap_mode"):
                row_source(tmp_path / name, groups)


def test_parquet_columns_are_checked_before_reading(tmp_path: Path) -> None:
    source = parquet(tmp_path)
    assert source.columns == ("u", "v", "z")  # type: ignore[attr-defined]
    with pytest.raises(DataError, match="no column 'group'"):
        row_source(tmp_path, "group")
    for groups in (None, G):
        with pytest.raises(DataError, match=r"groups must name a column(.|\n)*u, g, v, w, z"):
            row_source(tmp_path, groups)
    with pytest.raises(DataError, match="not numbers: g"):
        row_source(tmp_path, "u")
    with pytest.raises(DataError, match="no parquet dataset"):
        row_source(tmp_path / "missing", "g")


def test_a_later_pass_with_other_rows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("optfair.methods.fair_clustering.kmeans_fit.LARGE", 10)
    passes = []

    def fewer():
        passes.append(1)
        yield from list(read())[: 7 if len(passes) == 1 else 6]

    with pytest.raises(DataError, match="the same rows in every pass"):
        of.FairKMeans(2, n_init=1, random_state=0).fit_stream(fewer)


def test_a_label_that_appears_later_is_refused() -> None:
    survey = surveyed(row_source(X, G))
    with pytest.raises(DataError, match="did not see: c"):
        survey.read(Chunk(X[:2], np.array(["a", "c"]), None, 3))
    numbered = surveyed(row_source(X, np.unique(G, return_inverse=True)[1]))
    assert numbered.read(Chunk(X[:2], np.array([1, 0]), None, 3)).groups.tolist() == [1, 0]
    for other in (-1, 2):
        with pytest.raises(DataError, match=f"did not see: {other}"):
            numbered.read(Chunk(X[:2], np.array([1, other]), None, 3))


def test_results_do_not_depend_on_threads() -> None:
    source = MatrixRows(X, G, W, 11)

    def total(n_jobs: int) -> float:
        return source.map_reduce(lambda c: float(c.X.sum()), lambda a, b: a + b, n_jobs)

    assert total(1) == total(3)  # to the last digit: always in the order of the chunks


def test_chunks_without_rows_are_passed_over() -> None:
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(60, 2)), np.arange(60) % 2

    def filtered() -> Any:
        yield X[:0], groups[:0]
        for i in range(0, 60, 20):
            yield X[i : i + 20], groups[i : i + 20]
            yield X[:0], groups[:0]

    def plain() -> Any:
        return ((X[i : i + 20], groups[i : i + 20]) for i in range(0, 60, 20))

    costs = [of.FairKMeans(3, random_state=0).fit_stream(rows).cost_ for rows in (filtered, plain)]
    assert costs[0] == costs[1]
    with pytest.raises(of.DataError, match="no rows"):
        of.FairKMeans(3).fit_stream(lambda: iter([(X[:0], groups[:0])]))


@pytest.mark.parametrize("model", [of.FairKMeans, of.FairMixture])
def test_passes_see_the_same_values_and_labels_of_one_kind(model: Any) -> None:
    rng, n, passes = np.random.default_rng(0), 210_001, [0]
    X, groups = rng.normal(size=(n, 2)), rng.integers(0, 2, n)

    def changing() -> Any:
        passes[0] += 1
        for i in range(0, n, 65_536):
            grown = 1.5 if passes[0] >= 3 and i else 1.0
            yield X[i : i + 65_536] * grown, groups[i : i + 65_536]

    with pytest.raises(of.DataError, match="chunk 1 has other values than in the first pass"):
        model(3, n_init=1, random_state=0).fit_stream(changing)

    def mixed() -> Any:
        yield X[:500], groups[:500]
        yield X[500:1000], np.array(["a", "b"])[groups[500:1000]]

    with pytest.raises(of.DataError, match="text in some chunks and numbers in others"):
        model(3, n_init=1, random_state=0).fit_stream(mixed)


@pytest.mark.parametrize("kind", ["pairs", "frames", "frame", "parquet", "array"])
def test_rows_of_several_attributes_come_in_chunks(kind: str, tmp_path: Path) -> None:
    rng, n = np.random.default_rng(0), 600
    X = rng.normal(size=(n, 2))
    groups = pd.DataFrame({"sex": rng.choice(["f", "m"], n), "age": rng.choice([20, 40, 60], n)})
    table = pd.DataFrame(X, columns=["u", "v"]).join(groups)
    parts = [slice(i, i + 250) for i in range(0, n, 250)]
    named: Any = ["sex", "age"]
    data: Any = table
    if kind == "parquet":
        data = tmp_path / "people.parquet"
        table.to_parquet(data)
    elif kind == "pairs":
        data, named = lambda: ((X[p], groups[p]) for p in parts), None
    elif kind == "frames":
        data = lambda: (table[p] for p in parts)
    elif kind == "array":
        data, named = X, groups
    for model in (of.FairKMeans, of.FairMixture):
        rule = {"fairness": of.max_gap(0.05, on="sex")} if model is of.FairKMeans else {}
        fits = [model(3, n_init=1, random_state=0, max_iter=30, **rule) for _ in range(2)]
        with warnings.catch_warnings(action="ignore"):
            whole = fits[0].fit(X, groups=groups)
            streamed = fits[1].fit_stream(data, groups=named)
        assert whole.history_[-1] == pytest.approx(streamed.history_[-1], rel=1e-9)
        assert list(whole.groups_) == list(streamed.groups_) and "sex=f, age=20" in whole.groups_


def test_a_column_of_groups_that_is_not_there_is_named(tmp_path: Path) -> None:
    table = pd.DataFrame({"u": [0.0, 1.0], "sex": ["f", "m"]})
    table.to_parquet(tmp_path / "t.parquet")
    for named in (["sex", "race"], ["sex", 3], 5):
        with pytest.raises(DataError, match=r"race|groups must name a column"):
            row_source(tmp_path / "t.parquet", named)


def test_a_chunk_shows_itself_without_its_rows() -> None:
    X = np.zeros((30, 2))
    assert repr(Chunk(X, X[:, 0], None, 4)) == "Chunk(index=4, names=None, attributes=())"
