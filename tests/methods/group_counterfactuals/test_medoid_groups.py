"""Groups around medoids: sizes, labels, and the medoids themselves."""

from __future__ import annotations

import numpy as np
import pytest

import optfair as of
from optfair.methods.group_counterfactuals import members
from optfair.methods.group_counterfactuals.members import medoid_groups


def rows(n: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 3)), rng.integers(0, 2, n)


def test_groups_partition_each_label_when_sizes_allow() -> None:
    X, y = rows()
    found = medoid_groups(X, labels=y, n_groups=4, min_size=1, max_size=None)
    assert len(found) == 8
    members = np.concatenate([g.members for g in found])
    assert sorted(members.tolist()) == list(range(300))
    for g in found:
        assert (y[g.members] == g.label).all() and g.medoid in g.members
        assert g.size == g.members.size
        others = [h.medoid for h in found if h.label == g.label]
        far = np.linalg.norm(X[g.members][:, None] - X[others][None], axis=2)
        assert (far.argmin(axis=1) == others.index(g.medoid)).all()


def test_no_exchange_of_a_medoid_helps() -> None:
    X, _ = rows(60)
    medoids = [g.medoid for g in medoid_groups(X, n_groups=3, min_size=1)]
    far = np.linalg.norm(X[:, None] - X[None], axis=2)
    cost = far[:, medoids].min(axis=1).sum()
    for i in range(3):
        for other in range(60):
            swapped = [other if j == i else m for j, m in enumerate(medoids)]
            assert far[:, swapped].min(axis=1).sum() >= cost - 1e-9


def test_sizes_are_cut_and_filled() -> None:
    rng = np.random.default_rng(1)
    X = np.vstack([rng.normal(size=(200, 2)), rng.normal(size=(5, 2)) + 50])
    found = medoid_groups(X, n_groups=2, min_size=20, max_size=60, random_state=0)
    assert [g.members.size for g in found] == [60, 20]
    assert [g.size for g in found] == [200, 5]
    small = found[1]
    assert set(range(200, 205)) <= set(small.members.tolist())
    # filled up with the rows nearest to its medoid
    far = np.linalg.norm(X[:200] - X[small.medoid], axis=1)
    assert set(np.argsort(far)[:15].tolist()) == set(small.members[small.members < 200].tolist())
    again = medoid_groups(X, n_groups=2, min_size=20, max_size=60, random_state=0)
    assert (again[0].members == found[0].members).all()


def test_a_medoid_is_a_member_of_its_group_whatever_its_size() -> None:
    X = np.random.default_rng(0).normal(size=(40, 2))
    for seed in range(5):
        cut = medoid_groups(X, n_groups=4, min_size=1, max_size=4, random_state=seed)
        assert all(g.medoid in g.members and len(set(g.members.tolist())) <= 4 for g in cut)


def test_many_rows_take_their_medoids_from_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "MOST_ROWS", 50)
    X, _ = rows()
    found = medoid_groups(X, n_groups=5, min_size=1, max_size=None, random_state=0)
    assert sorted(np.concatenate([g.members for g in found]).tolist()) == list(range(300))


def test_equal_rows_are_one_group() -> None:
    (found,) = medoid_groups(np.zeros((12, 2)), n_groups=3, min_size=4)
    assert found.members.tolist() == list(range(12))


def test_bad_input() -> None:
    X, y = rows()
    with pytest.raises(of.DataError, match="one label per row"):
        medoid_groups(X, labels=y[:5])
    with pytest.raises(of.DataError, match="for 10 groups"):
        medoid_groups(X[:5])
    with pytest.raises(of.DataError, match="min_size is 30"):
        medoid_groups(X, min_size=30, max_size=20)


def test_a_group_shows_itself_without_its_rows() -> None:
    rows = np.repeat(np.eye(2), 30, axis=0)
    shown = [repr(g) for g in medoid_groups(rows, labels=["a"] * 30 + ["b"] * 30, n_groups=1)]
    assert shown[0].startswith("MedoidGroup of 'a': 30 members around row ") and len(shown) == 2
    assert all("array" not in line and len(line) < 80 for line in shown)
