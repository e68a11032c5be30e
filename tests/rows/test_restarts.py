"""Fits along a ladder of values: who starts from whom, and what is kept."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import optfair as of
from optfair.rows import restarts
from optfair.rows.frames import start_seeds
from optfair.rows.restarts import Ladder


def ladder(own: list[float], gain: float = 0.0, stop: int | None = None) -> tuple[Ladder, list]:
    """Fits that end at their own numbers, or ``gain`` below where they start."""
    calls: list[tuple[int, Any]] = []

    def fit(i: int, start: Any) -> Any:
        calls.append((i, None if start is None else start.value))
        if stop is not None and len(calls) == stop:
            raise KeyboardInterrupt
        value = own[i] if start is None else start.value - gain
        return SimpleNamespace(value=value, status_="optimal")

    return Ladder(range(len(own)), fit, lambda found: found.value), calls


def test_every_value_starts_alone_and_from_both_neighbours() -> None:
    steps, calls = ladder([3.0, 2.0, 1.0])
    steps.run(0, "eps")
    assert calls == [(0, None), (1, None), (1, 3.0), (2, None), (2, 2.0), (1, 1.0), (0, 1.0)]
    assert [f.value for f in steps.fits] == [1.0, 1.0, 1.0] and steps.complete


@pytest.mark.parametrize("seed", range(20))
def test_the_fits_never_get_worse_from_tight_to_loose(seed: int) -> None:
    rng = np.random.default_rng(seed)
    own = rng.normal(size=rng.integers(1, 8)).tolist()
    steps, _ = ladder(own, gain=float(rng.random()))
    steps.run(0, "eps")
    values = [f.value for f in steps.fits]
    assert len(values) == len(own) and (np.diff(values) <= 0.0).all()
    assert all(v <= o for v, o in zip(values, own, strict=True))


@pytest.mark.parametrize(("stop", "kept"), [(2, 1), (4, 2), (6, 3)])
def test_what_was_fitted_before_ctrl_c_stays(stop: int, kept: int) -> None:
    steps, _ = ladder([3.0, 2.0, 1.0], stop=stop)
    steps.run(0, "eps")
    assert len(steps.fits) == kept and not steps.complete


def test_nothing_fitted_is_nothing_to_keep() -> None:
    steps, _ = ladder([3.0, 2.0], stop=1)
    with pytest.raises(KeyboardInterrupt):
        steps.run(0, "eps")


@pytest.mark.parametrize("model", [of.FairKMeans, of.FairMixture])
def test_more_starts_than_can_be_made_are_refused(model: Any) -> None:
    X, groups = np.arange(12.0)[:, None], list("ab" * 6)
    with pytest.raises(of.DeclarationError, match="n_init=1000000000000 is more starts"):
        model(2, n_init=10**12, random_state=0).fit(X, groups=groups)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_starts_that_time_leaves_no_room_for_are_not_prepared(
    n_jobs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million starts took a minute before the time limit was looked at."""
    seeds, told = start_seeds(0, 1_000_000, given=False), []
    assert seeds[:10] == start_seeds(0, 10, given=False) and len(set(seeds[:10_000])) > 9_990
    now = count()
    clock = SimpleNamespace(perf_counter=lambda: float(next(now)))
    monkeypatch.setattr(restarts, "time", clock)

    def run(seed: int, left: float | None, report: Any) -> Any:
        told.append(seed)
        return restarts.Restart(seed, float(seed), 0.0, 1.0, 0.0, 1, "converged", 0.0), seed

    records, best = restarts.run_restarts(
        run, seeds, rank=lambda r: r.objective, n_jobs=n_jobs, time_limit=20.0
    )
    assert 1 <= len(records) == len(told) <= 25 and best == min(told)


def test_ctrl_c_in_threads_keeps_what_has_ended() -> None:
    def run(seed: int, left: float | None, report: Any) -> Any:
        if seed == 3:
            raise KeyboardInterrupt
        return restarts.Restart(seed, float(seed), 0.0, 1.0, 0.0, 1, "converged", 0.0), seed

    records, best = restarts.run_restarts(
        run, list(range(100)), rank=lambda r: r.objective, n_jobs=2
    )
    assert best == 0 and {0} <= {r.seed for r in records} and len(records) < 20
