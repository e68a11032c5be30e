"""Maps measured on members they were not fitted on."""

from __future__ import annotations

import numpy as np
import pytest

import optfair as of
from optfair import metrics
from optfair.methods.group_counterfactuals.affine_maps import PSDMap
from optfair.methods.group_counterfactuals.metrics import cross_validate_map

SCORE = (np.array([1.0, -1.0, 0.5]), 0.0)


def group(n: int = 47) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, 3)) - 1.0


class Recorder:
    """A translation that remembers which rows it saw."""

    seen: list[np.ndarray] = []  # noqa: RUF012

    def __init__(self, rows: np.ndarray) -> None:
        self.seen.append(rows)

    def transform(self, X: np.ndarray) -> np.ndarray:
        return X + 1.0


def test_each_member_is_held_out_once() -> None:
    X = group()
    Recorder.seen = []
    found = cross_validate_map(lambda rows: Recorder(rows), X, score=SCORE, n_splits=10)
    assert len(found) == 10 and [len(r) for r in Recorder.seen].count(47 - 5) == 7
    held = [{tuple(r) for r in X} - {tuple(r) for r in rows} for rows in Recorder.seen]
    assert sum(len(h) for h in held) == 47 and len(set().union(*held)) == 47
    assert found.transport_cost == pytest.approx(np.full(10, 3.0))
    assert found.distortion == pytest.approx(np.zeros(10), abs=1e-12)


def test_numbers_are_those_of_the_folds() -> None:
    X, folds = group(), np.array_split(np.arange(47), 5)
    aim = {"score": SCORE, "probability": 0.8}
    found = cross_validate_map(PSDMap, X, n_splits=5, K=1.5, k=1.5, **aim)
    for i, held in enumerate(folds):
        p = PSDMap(np.delete(X, held, axis=0), K=1.5, k=1.5, **aim)
        Z = p.map(p.solve()).transform(X[held])
        constants = metrics.lipschitz_constants(X[held], Z)
        assert found.transport_cost[i] == pytest.approx(metrics.transport_cost(X[held], Z))
        assert (found.upper[i], found.lower[i]) == pytest.approx(constants[:2])
        assert found.distortion[i] == pytest.approx(metrics.distortion(X[held], Z))
        assert found.validity[i] == metrics.validity(Z, SCORE, probability=0.8)
    assert found.mean()["validity"] == pytest.approx(found.validity.mean())
    # an affine map obeys its bounds on members it never saw; the target it may miss
    assert (found.upper <= 1.5 + 1e-6).all() and (found.lower <= 1.5 + 1e-6).all()
    assert found.to_frame().shape == (5, 6) and "5 folds" in repr(found)


def test_shuffling_is_seeded() -> None:
    X = np.arange(40.0)[:, None]

    def run(seed: int | None) -> list[float]:
        Recorder.seen = []
        cross_validate_map(lambda rows: Recorder(rows), X, score=([1.0], 0.0), random_state=seed)
        return [float(rows.sum()) for rows in Recorder.seen]

    assert run(1) == run(1) != run(2)


def test_a_fold_of_equal_members_has_no_constants() -> None:
    X = np.vstack([np.zeros((4, 3)), group(16)])
    found = cross_validate_map(lambda rows: Recorder(rows), X, score=SCORE, n_splits=5)
    assert np.isnan(found.upper[0]) and np.isfinite(found.mean()["upper"])


def test_bad_input() -> None:
    X = group()
    with pytest.raises(of.DataError, match="47 members"):
        cross_validate_map(PSDMap, X, score=SCORE, n_splits=30)

    class NoMap:
        pass

    with pytest.raises(of.DeclarationError, match="NoMap has no map"):
        cross_validate_map(NoMap, X, score=SCORE)
    with pytest.raises(of.DeclarationError, match="without transform"):
        cross_validate_map(lambda rows: 3, X, score=SCORE)
    with pytest.raises(of.DeclarationError, match="does not take K"):
        cross_validate_map(lambda rows: Recorder(rows), X, score=SCORE, K=2)
