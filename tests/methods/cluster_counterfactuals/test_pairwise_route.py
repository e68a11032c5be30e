"""Several curved boundaries: what their Lagrangian proves, and limits of time."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from optfair.errors import Infeasible, SolverFailure
from optfair.methods.cluster_counterfactuals import adapters as pairwise
from optfair.methods.cluster_counterfactuals.algorithms.several_quadrics import Several
from optfair.methods.cluster_counterfactuals.cluster_counterfactual import ClusterCounterfactual
from optfair.methods.cluster_counterfactuals.partition import Partition

D = 4


@pytest.fixture(scope="module")
def rows() -> Any:
    return np.random.default_rng(0).normal(size=(60, D)) * 2.0


@pytest.fixture(scope="module")
def gaussians() -> Partition:
    rng = np.random.default_rng(2)
    B = rng.normal(size=(3, D, D))
    return Partition.gaussian(
        rng.normal(size=(3, D)) * 2.0, B @ B.transpose(0, 2, 1) + 0.2 * np.eye(D), [0.5, 0.3, 0.2]
    )


def against_all(clusters: Partition, y: Any, **options: Any) -> ClusterCounterfactual:
    return ClusterCounterfactual(clusters, factual=y, target=1, against="all", **options)


@pytest.mark.parametrize("bounded", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_several_boundaries_are_proved_or_left(rows: Any, gaussians: Any, bounded: bool) -> None:
    """What the dual proves is the optimum that branch and bound finds."""
    proved = 0
    sides = [gaussians.boundary(k, 1) for k in (0, 2)]
    several = Several(sides, np.ones(D, dtype=bool), None)
    limits = (np.full(D, -6.0), np.full(D, 6.0)) if bounded else (None, None)
    options = {"lower": -6.0, "upper": 6.0} if bounded else {}
    for y in rows[gaussians.labels(rows) != 1][:8]:
        found = several.nearest(y, *limits)
        if found is None:
            continue
        point, objective, gap, multipliers = found
        proved += 1
        assert gap <= 1e-9 and (multipliers >= 0.0).all()
        assert np.linalg.norm(point - y) ** 2 == pytest.approx(objective)
        assert max(float(b.value(point)) for b in sides) <= 1e-9
        p = against_all(gaussians, y, **options)
        assert p.solve("scip", tolerance=1e-6).objective == pytest.approx(objective, rel=1e-4)
    assert proved >= 3


@pytest.mark.slow
def test_the_route_needs_no_relaxation_where_the_dual_proves(
    rows: Any, gaussians: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> Any:
        raise SolverFailure("no relaxation here", remedy="none")

    monkeypatch.setattr(pairwise, "_relaxed", refused)
    count: Counter[str] = Counter()
    for y in rows[gaussians.labels(rows) != 1]:
        for options in ({}, {"lower": -4.0, "increasing": ["x1"], "mask": [1, 1, 1, 0]}):
            if options and (y < -4.0).any():
                continue
            p = against_all(gaussians, y, plausibility=0.1, **options)
            try:
                s = p.solve("pairwise-relaxation")
            except (Infeasible, SolverFailure) as e:
                count[type(e).__name__] += 1
                continue
            count[
                "together" if sum(bool(np.any(m)) for m in s.multipliers.values()) > 1 else "pair"
            ] += 1
            assert s.is_optimal(1e-8) and s.gap <= 1e-8 and s.certificate.verify()
            lower, upper = p.limits
            assert (lower <= s["point"]).all() and (s["point"] <= upper).all()
            # a solution that is off does not verify
            moved = replace(s, values={"point": s["point"] + 1e-4 * (s["point"] - y)})
            assert not moved.certificate.verify()
            halved = {k: 0.5 * np.asarray(v) for k, v in s.multipliers.items()}
            if any(np.any(v) for v in halved.values()):
                assert not replace(s, multipliers=halved).certificate.verify()
    assert count["together"] >= 8 and count["pair"] >= 3, count


def test_a_relaxation_without_a_point_says_nothing_unless_the_sets_are_proved_apart(
    rows: Any, gaussians: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = against_all(gaussians, rows[0])
    request: Any = SimpleNamespace(deadline=np.inf, refuse_options=lambda profile: None)
    nothing = SimpleNamespace(status=SimpleNamespace(primal="unknown"))
    monkeypatch.setattr(pairwise, "_relaxed", lambda *_: nothing)
    monkeypatch.setattr(pairwise, "_short", lambda *_: None)
    assert not p.problem_class.convex and pairwise._held(p, request) is None
    monkeypatch.setattr(pairwise, "_short", lambda *_: Infeasible("apart"))
    with pytest.raises(Infeasible, match="apart"):
        pairwise._held(p, request)
    # without a relaxation the route is left at once
    monkeypatch.setattr(pairwise, "LARGEST", 0)
    monkeypatch.setattr(pairwise, "_at_once", lambda *_: None)
    outcome = pairwise.run_pairwise(p, SimpleNamespace(), request)  # type: ignore[arg-type]
    assert outcome.termination == "no pair is enough" and 0.0 <= outcome.seconds["solve"] < 60.0


def test_features_held_elsewhere_than_at_the_row(rows: Any, gaussians: Any) -> None:
    """The dual starts from the anchor, also where a matrix pulls the free features along."""
    import optfair as of

    W = np.eye(D) + 0.3
    seen = 0
    for y in rows[gaussians.labels(rows) != 1][:12]:
        p = against_all(gaussians, y, metric=W).with_constraints(
            {"held": of.features.box({"x0": (y[0] + 0.5, y[0] + 0.5)})}
        )
        try:
            s = p.solve("pairwise-relaxation")
        except (Infeasible, SolverFailure):
            continue
        assert s["point"][0] == y[0] + 0.5 and s.is_optimal(1e-7)
        other = p.solve("scip", tolerance=1e-6, time_limit=20.0)
        assert s.objective == pytest.approx(other.objective, rel=1e-4)
        seen += 1
        if seen == 3:
            break
    assert seen == 3


def hard(seed: int) -> ClusterCounterfactual:
    """Twelve clusters in ten dimensions, bounds, and a dual with a gap."""
    rng = np.random.default_rng(seed)
    B = rng.normal(size=(12, 10, 10))
    clusters = Partition.gaussian(
        rng.normal(size=(12, 10)), B @ B.transpose(0, 2, 1) / 10.0 + 0.05 * np.eye(10)
    )
    y = clusters.means[0]
    return against_all(clusters, y, plausibility=3.0, mask=[1] * 6 + [0] * 4)


@pytest.mark.parametrize("seconds", [0.3, pytest.param(2.0, marks=pytest.mark.slow)])
def test_best_known_keeps_its_time(seconds: float) -> None:
    for seed in range(3):
        p = hard(seed)
        begin = time.process_time()
        try:
            s = pairwise.best_known(p, time_limit=seconds)
        except (SolverFailure, Infeasible):
            pass
        else:
            assert s.status.primal == "feasible" and s.bound <= s.objective * (1.0 + 1e-6) + 1e-9
        # compiling is not interrupted, nor is a busy machine's clock ours; two of them take
        # longer than this where nothing stops them
        assert time.process_time() - begin <= seconds + 10.0


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("started", [0, 1])
def test_best_known_starts_nothing_after_its_time(
    started: int, seed: int, monkeypatch: pytest.MonkeyPatch, later: Any
) -> None:
    solve, near, limits = pairwise.solve, pairwise.near_point, []

    def solved(*given: Any, **options: Any) -> Any:
        limits.append(options["time_limit"])
        found = solve(*given, **options)
        later(2000.0)
        return found

    def descended(*given: Any, **options: Any) -> Any:
        if started:
            return None  # nothing is known before the relaxation
        later(2000.0)
        return near(*given, **options)

    monkeypatch.setattr(pairwise, "solve", solved)
    monkeypatch.setattr(pairwise, "near_point", descended)
    try:
        s = pairwise.best_known(hard(seed), time_limit=1000.0)
    except SolverFailure:
        assert started  # the relaxation alone need not lead to a feasible point
    else:
        assert s.status.primal == "feasible" and s.bound <= s.objective and s.gap > 1e-4
    assert len(limits) == started and all(0.0 < limit <= 1000.0 for limit in limits)
