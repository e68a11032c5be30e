"""A local Dask cluster gives the numbers of the fit in memory, also when a worker is killed."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import optfair as of
from optfair.errors import DataError, SolverFailure
from optfair.rows.sources import row_source
from optfair.rows.stored_rows import DaskRows, is_dask
from optfair.rows.survey import surveyed

N = 6_000
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3)) + 2.0 * RNG.integers(0, 4, N)[:, None]
G = np.where(RNG.random(N) < 1.0 / (1.0 + np.exp(3.0 - X[:, 0])), "b", "a")
W = RNG.random(N)


@pytest.fixture(scope="module")
def whole() -> of.FairKMeans:
    return of.FairKMeans(4, n_init=1, random_state=0).fit(X, groups=G, sample_weight=W)


def arrays() -> DaskRows:
    # labels in other partitions, columns in two: both are put right
    return row_source(
        da.from_array(X, chunks=(900, 2)),
        da.from_array(G, chunks=700),
        da.from_array(W, chunks=900),
    )  # type: ignore[return-value]


def frame() -> DaskRows:
    table = pd.DataFrame(X, columns=list("uvz")).assign(g=G, w=W)
    return row_source(dd.from_pandas(table, npartitions=7), "g", "w")  # type: ignore[return-value]


def labels_in_memory() -> DaskRows:
    return row_source(da.from_array(X, chunks=(1111, 3)), G, W)  # type: ignore[return-value]


@pytest.mark.parametrize("make", [arrays, frame, labels_in_memory])
def test_equal_to_memory_with_the_threads_of_one_process(make: Any, whole: of.FairKMeans) -> None:
    import dask

    with dask.config.set(scheduler="synchronous"):
        source = make()
        assert is_dask(source.X)
        assert next(len(c.X) for c in source.chunks()) < N
        model = of.FairKMeans(4, n_init=1, random_state=0).fit_stream(source)
    assert np.abs(model.cluster_centers_ - whole.cluster_centers_).max() < 1e-9
    assert np.abs(model.masses_ - whole.masses_).max() < 1e-10
    assert model.gap_ <= 1e-9


def test_partitions_that_do_not_fit_are_refused() -> None:
    rows = da.from_array(X, chunks=(900, 3))
    with pytest.raises(DataError, match="shape \\(5,\\) for 6000 rows"):
        row_source(rows, G[:5])
    frame = dd.from_pandas(pd.DataFrame(X, columns=list("uvz")), npartitions=3)
    with pytest.raises(DataError, match="unknown sizes"):
        row_source(frame, G)
    with pytest.raises(DataError, match="has 4 partitions, X has 3"):
        row_source(frame, dd.from_pandas(pd.Series(G), npartitions=4))
    with pytest.raises(DataError, match="groups are missing"):
        row_source(rows)


def test_empty_partitions_are_passed_over() -> None:
    import dask

    order = np.argsort(X[:, 0])
    table = pd.DataFrame(X[order], columns=list("uvz")).assign(g=G[order])
    with dask.config.set(scheduler="synchronous"):
        rows = dd.from_pandas(table, npartitions=4)
        cut = float(np.median(X[:, 0]))
        some = rows[rows.u > cut]
        assert 0 in some.map_partitions(len).compute().tolist()
        source = row_source(some, "g")
        survey = surveyed(source)
        read = sum(len(chunk.X) for chunk in source.chunks())
    assert survey.rows == read == (X[:, 0] > cut).sum()


def mixtures(source: Any) -> tuple[of.FairMixture, of.FairMixture]:
    """Return the fits in memory and to a source, cut off after a few iterations."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = of.FairMixture(4, max_iter=6, random_state=0)
        whole = of.FairMixture(**model.get_params()).fit(X, groups=G, sample_weight=W)
        return whole, model.fit_stream(source)


@pytest.mark.slow
def test_mixture_equals_memory_with_the_threads_of_one_process() -> None:
    import dask

    with dask.config.set(scheduler="synchronous"):
        for make in (arrays, frame):
            whole, model = mixtures(make())
            assert np.abs(model.means_ - whole.means_).max() < 1e-9
            assert np.abs(model.masses_ - whole.masses_).max() < 1e-10
            assert model.delta_ <= 1e-8


def test_text_columns_of_a_frame_are_categories() -> None:
    import dask

    job = np.array(["cook", "smith"])[(X[:, 2] > 2.0).astype(int)]
    table = pd.DataFrame(X[:, :2], columns=["u", "v"]).assign(job=job)
    with dask.config.set(scheduler="synchronous"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = of.FairMixture(3, max_iter=3, random_state=0)
        whole = of.FairMixture(**model.get_params()).fit(table, groups=G)
        model.fit_stream(dd.from_pandas(table.assign(g=G), npartitions=3), groups="g")
    assert model.categories_[0].tolist() == ["cook", "smith"]
    assert np.abs(model.probabilities_[0] - whole.probabilities_[0]).max() < 1e-9


def test_workers_lost_for_good_are_a_failure_with_a_remedy() -> None:
    import dask

    class KilledWorker(Exception):
        """As the scheduler raises it after too many lost workers."""

    def lost(chunk: Any) -> int:
        raise KilledWorker("partition 3")

    def wrong(chunk: Any) -> int:
        raise ZeroDivisionError

    with dask.config.set(scheduler="synchronous"):
        with pytest.raises(SolverFailure, match="the cluster lost its workers"):
            arrays().map_reduce(lost, max)
        with pytest.raises(ZeroDivisionError):  # not ours to explain
            arrays().map_reduce(wrong, max)


@pytest.fixture
def cluster() -> Iterator[Any]:
    from distributed import Client, LocalCluster

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with (
            LocalCluster(
                n_workers=2,
                threads_per_worker=1,
                processes=True,
                dashboard_address=None,
                silence_logs=50,
            ) as local,
            Client(local) as client,
        ):
            yield client


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_local_cluster_equals_memory(cluster: Any, whole: of.FairKMeans) -> None:
    for make in (arrays, frame):
        model = of.FairKMeans(4, n_init=1, random_state=0).fit_stream(make())
        assert np.abs(model.cluster_centers_ - whole.cluster_centers_).max() < 1e-9
    in_memory, mixture = mixtures(arrays())
    assert np.abs(mixture.means_ - in_memory.means_).max() < 1e-9


def killed_in_the_middle(cluster: Any, folder: Path) -> tuple[Any, int, threading.Thread]:
    """Return rows, a worker that is killed as soon as it has read some, and who does it."""
    victim = next(iter(cluster.run(os.getpid).values()))
    seen = folder / "pids"
    seen.mkdir()

    def slow(block: np.ndarray) -> np.ndarray:
        # tells who reads, and takes its time, so that the kill hits a task
        (seen / str(os.getpid())).touch()
        time.sleep(0.05)
        return block

    def kill() -> None:
        end = time.monotonic() + 300.0
        while not (seen / str(victim)).exists() and time.monotonic() < end:
            time.sleep(0.01)
        os.kill(victim, signal.SIGKILL)
        (folder / "killed").touch()

    killer = threading.Thread(target=kill)
    killer.start()
    return da.from_array(X, chunks=(600, 3)).map_blocks(slow, dtype=float), victim, killer


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_worker_killed_in_the_middle_changes_nothing(
    cluster: Any, whole: of.FairKMeans, tmp_path: Path
) -> None:
    rows, victim, killer = killed_in_the_middle(cluster, tmp_path)
    source = row_source(rows, da.from_array(G, chunks=600), da.from_array(W, chunks=600))
    model = of.FairKMeans(4, n_init=1, random_state=0).fit_stream(source)
    assert (tmp_path / "killed").exists()  # before the fit ended
    killer.join()
    assert victim not in cluster.run(os.getpid).values()
    assert np.abs(model.cluster_centers_ - whole.cluster_centers_).max() < 1e-9
    assert np.abs(model.masses_ - whole.masses_).max() < 1e-10
    assert model.status_ == "converged"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_mixture_survives_its_worker_too(cluster: Any, tmp_path: Path) -> None:
    rows, victim, killer = killed_in_the_middle(cluster, tmp_path)
    source = row_source(rows, da.from_array(G, chunks=600))
    model = of.FairMixture(4, max_iter=40, random_state=0).fit_stream(source)
    assert (tmp_path / "killed").exists()  # before the fit ended
    killer.join()
    whole = of.FairMixture(**model.get_params()).fit(X, groups=G)
    assert victim not in cluster.run(os.getpid).values()
    assert np.abs(model.means_ - whole.means_).max() < 1e-8
