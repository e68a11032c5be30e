"""One counterfactual per member: closed form, cones of pairs, and the nonconvex problem."""

from __future__ import annotations

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest

import optfair as of
from optfair.core.certificate import NonconvexityWitness
from optfair.core.composition import model_term
from optfair.features.feature_problem import box, immutable, monotone
from optfair.methods.group_counterfactuals.affine_maps import PSDMap
from optfair.methods.group_counterfactuals.bi_lipschitz import BiLipschitzCounterfactuals, GramBound
from optfair.methods.group_counterfactuals.fixed_basis import ScaledMap
from optfair.methods.group_counterfactuals.members import (
    IndependentCounterfactuals,
    LipschitzCounterfactuals,
    MemberPairs,
)

RNG = np.random.default_rng(5)
X = RNG.normal(size=(12, 3))
V = np.array([1.0, -2.0, 0.5])
KW = {"score": (V, 0.25), "probability": 0.9}


def models():
    return {
        "independent": IndependentCounterfactuals(X, **KW),
        "lipschitz": LipschitzCounterfactuals(X, K=1.1, **KW),
        "bi-lipschitz": BiLipschitzCounterfactuals(X, K=1.1, k=1.2, **KW),
    }


# --- pairs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3, 7, 40])
def test_pairs_are_numbered_as_the_condensed_distances(n):
    points = RNG.normal(size=(n, 3))
    pairs = MemberPairs(points)
    i, j = pairs.ends(np.arange(pairs.count))
    assert np.array_equal(np.stack([i, j]), np.triu_indices(n, 1))
    apart = pairs.differences(np.arange(pairs.count)) @ points
    assert np.allclose(np.linalg.norm(apart, axis=1), pairs.distances)


# --- independent ----------------------------------------------------------------------------


def test_multipliers_of_another_shape_prove_nothing():
    s = IndependentCounterfactuals(X, **KW).solve()
    values, y = {"counterfactuals": s["counterfactuals"]}, s.multipliers["classification"]
    assert s.proof.check(values, {"classification": y}).bound == pytest.approx(s.objective)
    assert s.proof.check(values, {"classification": y[:2]}).bound == -np.inf


def test_the_factor_that_binds_has_the_price():
    s = ScaledMap(X, K=1.5, k=1.2, **KW).solve()
    assert s.is_optimal(1e-9) and s["scale"] == pytest.approx(1 / 1.2)
    assert s.multipliers["factor lower"] > 1.0 and s.multipliers["factor upper"] == 0.0
    assert s.proof.check(s.values, s.multipliers).complementarity < 1e-12


@pytest.mark.parametrize("costs", [None, [1.0, 3.0, 0.1]])
@pytest.mark.parametrize("target", [0, 1])
def test_the_closed_form_is_the_optimum_of_the_qp(costs, target):
    p = IndependentCounterfactuals(X, target_class=target, feature_costs=costs, **KW)
    s, g = p.solve(), p.solve(solver="clarabel")
    assert s.solver == "independent-rows" and s.is_optimal(1e-12)
    assert s.objective == pytest.approx(g.objective, rel=1e-8)
    assert np.allclose(s["counterfactuals"], g["counterfactuals"], atol=1e-5)
    assert np.allclose(s.multipliers["classification"], g.multipliers["classification"], atol=1e-5)
    share = p.data["score"].predict_proba(s["counterfactuals"])[:, target]
    assert share.min() >= 0.9 - 1e-12


def test_each_entry_of_the_closed_form_is_held_to():
    s = IndependentCounterfactuals(X, **KW).solve()
    assert s.certificate.verify()
    for entry in range(X.size):
        Z = np.array(s["counterfactuals"])
        Z.flat[entry] += 1e-4
        assert not replace(s, values={"counterfactuals": Z}).certificate.verify()
    for i in range(len(X)):
        y = np.array(s.multipliers["classification"])
        y[i] += 1e-4
        assert not replace(s, multipliers={"classification": y}).certificate.verify()


def test_keywords_that_nobody_reads_are_refused():
    with pytest.raises(of.DeclarationError, match="takes no 'K'") as caught:
        IndependentCounterfactuals(X, K=1.5, **KW)
    assert "LipschitzCounterfactuals" in str(caught.value)
    with pytest.raises(of.DeclarationError, match="did you mean 'feature_costs'"):
        IndependentCounterfactuals(X, feature_cost=[1.0, 1.0, 1.0], **KW)


def test_members_pulled_back_to_the_line_are_not_optimal() -> None:
    # the pair is stationary and complementary; only the signs of the multipliers tell
    ahead = np.array([[3.0, 0.0], [5.0, 1.0], [-1.0, 0.0]])
    p = IndependentCounterfactuals(ahead, score=([1.0, 0.0], 0.0), threshold=1.0)
    s = p.solve()
    assert s.objective == pytest.approx(4.0 / 3.0)
    apart = 1.0 - ahead[:, 0]
    back = ahead + np.outer(apart, [1.0, 0.0])
    y = 2.0 * apart / 3.0
    assert (y < 0.0).any()
    check = s.proof.check({"counterfactuals": back}, {"classification": y})  # type: ignore[union-attr]
    assert check.complementarity <= 1e-12 and check.dual > 0.1
    assert check.bound <= s.objective + 1e-12  # no bound of any multipliers is above the optimum
    forged = replace(
        s,
        values={"counterfactuals": back},
        multipliers={"classification": y},
        objective=p.objective_value({"counterfactuals": back}),
    )
    assert not forged.certificate.verify()


@pytest.mark.parametrize("model", [IndependentCounterfactuals, LipschitzCounterfactuals])
@pytest.mark.parametrize("how", ["method", "function"])
def test_the_largest_attainable_probability_is_told(model, how):
    best = V @ [3.0, 0.0, 3.0] + V[1] * X[:, 1].max() + 0.25
    options = {**KW, "probability": 1.0 / (1.0 + np.exp(-best - 1.0))}
    if model is LipschitzCounterfactuals:
        options["K"] = 1e3
    limits = box(dict.fromkeys(range(3), (-3.0, 3.0)))
    p = model(X, **options).with_constraints(limits=limits, same=immutable(1))
    with pytest.raises(of.Infeasible) as caught:
        p.solve() if how == "method" else of.solve(p)
    reached = 1.0 / (1.0 + np.exp(-best))
    assert f"largest attainable probability is {reached:.5g}"[:-1] in str(caught.value)
    assert caught.value.certificate.verify() and "classification" in caught.value.conflict


@pytest.mark.parametrize("name", models())
def test_a_group_that_is_there_already_stays(name):
    inside = X + 50.0 * V
    p = {
        "independent": lambda: IndependentCounterfactuals(inside, **KW),
        "lipschitz": lambda: LipschitzCounterfactuals(inside, K=1.0, **KW),
        "bi-lipschitz": lambda: BiLipschitzCounterfactuals(inside, K=1.0, k=1.0, **KW),
    }[name]()
    if name == "bi-lipschitz":
        assert p.objective_value(p.feasible_point()) == 0.0
        return
    s = p.solve()
    assert s.objective == pytest.approx(0.0, abs=1e-12)
    assert np.allclose(s["counterfactuals"], inside, atol=1e-6)


def test_large_units_do_not_spoil_the_certificate():
    far = X * [1.0, 1e6, 1e-3] + [0.0, 1e8, 0.0]
    p = IndependentCounterfactuals(far, score=([1.0, 1e-6, 1e3], -110.0), threshold=20.0)
    assert p.solve().is_optimal(1e-7)


# --- lipschitz ------------------------------------------------------------------------------


def test_classes_have_evidence():
    classes = {name: str(p.problem_class) for name, p in models().items()}
    assert classes == {
        "independent": "QP",
        "lipschitz": "SOCP",
        "bi-lipschitz": "nonconvex QCQP",
    }
    for p in models().values():
        assert p.certificate.verify()
    assert isinstance(models()["bi-lipschitz"].certificate, NonconvexityWitness)


def test_terms_are_evaluated_as_cvxpy_does():
    rng = np.random.default_rng(0)
    for p in models().values():
        Z = X + rng.normal(size=X.shape)
        built, variables, constraints = p.built(fresh=True)
        variables["counterfactuals"].value = Z
        point = {"counterfactuals": Z}
        assert p.objective_value(point) == pytest.approx(float(built.objective.value))
        for name, t in p.constraints.items():
            ours = np.ravel(t.violation(point))
            assert np.allclose(ours, np.ravel(constraints[name].violation()), atol=1e-9), name
            if t.rows is not None:
                some = t.rows(np.array([3, 1]))
                assert np.ravel(some.args[0].shape).tolist() == [2]


@pytest.mark.parametrize("K", [1.0, 1.01, 3.0])
def test_a_projection_stretches_nothing(K):
    """With K >= 1 the independent optimum is feasible: the cones cost nothing."""
    s = LipschitzCounterfactuals(X, K=K, **KW).solve()
    assert s.objective == pytest.approx(IndependentCounterfactuals(X, **KW).solve().objective)
    assert not np.asarray(s.multipliers["stretching"]).any()


def test_a_group_that_is_inside_shrinks_about_its_mean():
    """Nothing but K < 1 binds: every pair is active and the optimum is known."""
    inside = X + 50.0 * V
    s = LipschitzCounterfactuals(inside, K=0.8, **KW).solve()
    mean = inside.mean(axis=0)
    assert np.allclose(s["counterfactuals"], mean + 0.8 * (inside - mean), atol=1e-5)
    assert s.objective == pytest.approx(0.04 * inside.var(axis=0).sum(), rel=1e-7)


def test_no_stretching_at_all_lets_the_group_fall_together():
    s = LipschitzCounterfactuals(X, K=0.0, **KW).solve()
    assert np.ptp(s["counterfactuals"], axis=0).max() <= 1e-6
    one = IndependentCounterfactuals(X.mean(axis=0)[None], **KW).solve()
    spread = X.var(axis=0).sum()
    assert s.objective == pytest.approx(one.objective + spread, rel=1e-6)


def test_members_that_coincide_stay_together():
    twice = np.vstack([X[:5], X[:1]])
    s = LipschitzCounterfactuals(twice, K=1.0, **KW).with_constraints(m=immutable(0)).solve()
    assert np.allclose(s["counterfactuals"][0], s["counterfactuals"][5], atol=1e-6)


def test_one_member_has_no_pairs():
    assert str(LipschitzCounterfactuals(X[:1], K=1.0, **KW).problem_class) == "QP"
    p = BiLipschitzCounterfactuals(X[:1], K=1.0, k=1.0, **KW)
    assert str(p.problem_class) == "QP"
    assert GramBound(p).solve().objective == pytest.approx(p.solve().objective, rel=1e-6)


@pytest.mark.parametrize("name", ["independent", "lipschitz"])
def test_rules_on_features_hold(name):
    q = models()[name].with_constraints(far=box({1: (-3.5, 9.0)}), up=monotone(increasing=[2]))
    Z = q.solve()["counterfactuals"]
    assert Z[:, 1].min() >= -3.5 - 1e-7
    assert (Z[:, 2] - X[:, 2]).min() >= -1e-7
    assert np.allclose(
        models()[name].with_constraints(stay=immutable(1)).solve()["counterfactuals"][:, 1],
        X[:, 1],
        atol=1e-7,
    )


@pytest.mark.parametrize("name", ["independent", "lipschitz"])
def test_a_target_out_of_reach_says_how_far_one_gets(name):
    p = models()[name].with_constraints(tight=box(dict.fromkeys(range(3), (-0.5, 0.5))))
    with pytest.raises(of.Infeasible) as found:
        p.solve()
    assert "classification" in found.value.conflict
    assert any(c.startswith("tight") for c in found.value.conflict)
    assert found.value.certificate.verify()
    best = 1 / (1 + np.exp(-(0.25 + 0.5 * np.abs(V).sum())))
    assert f"{best:.4f}"[:5] in found.value.evidence


def test_a_frame_gives_the_features_their_names():
    p = IndependentCounterfactuals(pd.DataFrame(X, columns=["a", "b", "c"]), **KW)
    assert p.features == ("a", "b", "c")
    Z = p.with_constraints(i=immutable("b")).solve()["counterfactuals"]
    assert np.allclose(Z[:, 1], X[:, 1], atol=1e-7)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LipschitzCounterfactuals(X, K=-0.1, **KW), "K=-0.1"),
        (lambda: LipschitzCounterfactuals(X, K=np.inf, **KW), "K=inf"),
        (lambda: LipschitzCounterfactuals(X, K="large", **KW), "K='large'"),
        (lambda: BiLipschitzCounterfactuals(X, K=0.99, k=1.0, **KW), "K=0.99"),
        (lambda: BiLipschitzCounterfactuals(X, K=1.5, k=0.5, **KW), "k=0.5"),
        (lambda: BiLipschitzCounterfactuals(X, K=1.5, k=None, **KW), "k=None"),
        (lambda: IndependentCounterfactuals(X[:, :2], **KW), "2 columns"),
        (lambda: IndependentCounterfactuals(X * np.nan, **KW), "NaN"),
        (lambda: IndependentCounterfactuals(X, score=(V, 0.0), probability=1.0), "probability"),
        (lambda: IndependentCounterfactuals(X, feature_costs=[1.0, 0.0, 1.0], **KW), "positive"),
        (lambda: IndependentCounterfactuals(X, score=abs), "linear score"),
    ],
)
def test_bad_input_is_named_before_anything_runs(make, message):
    with pytest.raises(of.OptfairError, match=message):
        make()


# --- bi-lipschitz ---------------------------------------------------------------------------


def ruled(low, high):
    return models()["bi-lipschitz"].with_constraints(
        near=box({j: (low[j], high[j]) for j in range(3)})
    )


def test_a_witness_excluded_by_a_rule_is_not_claimed():
    first = models()["bi-lipschitz"].feasible_point()["counterfactuals"]
    low, high = first.min(axis=0), first.max(axis=0)
    assert str(ruled(low, high).problem_class) == "unverified QCQP"
    # room for the group turned about its axis along V, not for its image beyond the target
    inner = first - first.mean(axis=0)
    turned = first - 2.0 * (inner - np.outer(inner @ V, V) / (V @ V))
    both = np.concatenate([first, turned])
    p = ruled(both.min(axis=0), both.max(axis=0))
    assert str(p.problem_class) == "nonconvex QCQP" and p.witness.verify()
    assert np.allclose(p.witness.second["counterfactuals"], turned)


@pytest.mark.parametrize("costs", [None, [1.0, 3.0, 0.5]])
def test_the_gram_bound_is_below_every_feasible_point(costs):
    p = BiLipschitzCounterfactuals(X, K=1.3, k=1.3, feature_costs=costs, **KW)
    bound = GramBound(p)
    assert str(bound.problem_class) == "SDP" and bound.certificate.verify()
    s = bound.solve()
    # nothing bounds its columns: how far its proof reaches is what the solver leaves over, and
    # rounding, which is that of the processor, may make another's reach farther
    assert s.solver in ("lazy-rows", "clarabel") and s.is_optimal(1e-7)
    assert s.objective == pytest.approx(bound.solve(solver="clarabel").objective, rel=1e-6)
    maps = PSDMap(X, K=1.3, k=1.3, feature_costs=costs, **KW)
    Z = maps.map(maps.solve()).transform(X)
    lifted = bound.lift(Z)
    assert max(t.relative_violation(lifted) for t in bound.constraints.values()) <= 1e-7
    assert bound.objective_value(lifted) == pytest.approx(
        p.objective_value({"counterfactuals": Z}), rel=1e-9
    )
    independent = IndependentCounterfactuals(X, feature_costs=costs, **KW).solve().objective
    assert independent * (1 - 1e-7) <= s.bound <= p.objective_value({"counterfactuals": Z})


def test_the_gram_bound_is_the_optimum_where_the_optimum_is_known():
    """Isometries of two members on a line across the target: the far one need not follow."""
    p = BiLipschitzCounterfactuals(
        [[0.0, 0.0], [-2.0, 0.0]], score=([1.0, 0.0], -1.0), K=1.0, k=1.0
    )
    # in the plane the segment turns: minimise over its angle and place
    angles = np.linspace(0, 2 * np.pi, 20_001)
    turned = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    low = np.maximum(1.0 + np.abs(turned[:, 0]), -1.0)  # its center must be this far
    center = np.stack([low, np.zeros_like(low)], axis=1)
    first, second = center + turned, center - turned
    cost = (np.square(first).sum(axis=1) + np.square(second - [-2.0, 0.0]).sum(axis=1)) / 2
    assert GramBound(p).solve().objective == pytest.approx(cost.min(), rel=1e-5)


def test_the_bound_keeps_convex_rules_and_refuses_the_rest():
    p = models()["bi-lipschitz"]
    ruled = GramBound(p.with_constraints(i=immutable(1))).solve().objective
    assert ruled > GramBound(p).solve().objective + 1e-3
    with pytest.raises(of.DeclarationError, match="'shrinking' was removed"):
        GramBound(p.without("shrinking"))
    with pytest.raises(of.ClassError, match="not known to be convex"):
        Z = p["counterfactuals"]
        GramBound(p.with_constraints(away=cp.sum_squares(Z) >= 1.0))
    with pytest.raises(of.DeclarationError, match="bi-Lipschitz"):
        GramBound(models()["lipschitz"])


def test_pairs_are_evaluated_as_their_rows_are_built() -> None:
    rng = np.random.default_rng(3)
    X, Z = rng.normal(size=(2, 9, 3))
    term = of.group_counterfactuals.LipschitzCounterfactuals(
        X, score=([1.0, 0.5, 0.0], 0.0), K=0.7
    ).constraints["stretching"]
    derived = model_term("stretching", term.build())
    values = {"counterfactuals": Z}
    np.testing.assert_allclose(term.violation(values), derived.violation(values), atol=1e-12)
    assert term.shape == derived.shape and term.largest_side == pytest.approx(derived.largest_side)
    assert term.evidence.problem_class == derived.evidence.problem_class


def test_members_that_differ_in_what_stays_fall_together():
    """At K = 1 no point is inside of the cone of such a pair, and its price may have no end."""
    X = np.random.default_rng(0).normal(size=(8, 3)).round(1)
    X[4:, :2], X[4:, 2] = X[:4, :2], X[:4, 2] + 1.0
    w, t = np.array([1.0, -2.0, 0.5]), 2.0
    p = LipschitzCounterfactuals(X, score=(w, 0.0), threshold=t, K=1.0)
    p = p.with_constraints(same=immutable(2))
    s = p.solve()
    assert s.certificate.verify() and set(p.constraints) >= {"same.held", "same.together"}
    # one point of the other features for each pair, and cones between these
    z = cp.Variable((4, 2))
    rows = np.arange(8) % 4
    cones = [
        cp.norm(cp.hstack([z[rows[i]] - z[rows[j]], X[i, 2] - X[j, 2]]))
        <= np.linalg.norm(X[i] - X[j])
        for i, j in zip(*np.triu_indices(8, 1), strict=True)
        if rows[i] != rows[j]
    ]
    goal = cp.sum_squares(z[rows] - X[:, :2]) / 8
    direct = cp.Problem(cp.Minimize(goal), [z[rows] @ w[:2] + X[:, 2] * w[2] >= t, *cones])
    assert s.objective == pytest.approx(direct.solve(solver=cp.CLARABEL), abs=1e-6)
    # at another K the rule has other parts
    wide = p.at(K=1.5)
    assert "same" in wide.constraints and wide.solve().objective < s.objective
    assert set(wide.at(K=1.0).constraints) == set(p.constraints)
