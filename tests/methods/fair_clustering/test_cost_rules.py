"""Rules on what rows cost: the mass-dual algorithm against a general solver, and k-means under them."""

from __future__ import annotations

import pickle
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import optfair as of
from optfair.errors import DeclarationError, Infeasible, SolverFailure
from optfair.methods.fair_clustering.algorithms import charged_rows, linked_rows
from optfair.methods.fair_clustering.algorithms.charged_rows import Demands, Point, weighed
from optfair.methods.fair_clustering.cost_rules import group_costs

fc = of.fair_clustering


def data(unit: float = 1.0, n: int = 240) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(n, 3))
    groups = np.array(["a", "b", "c"])[rng.integers(0, 3, n)]
    X[groups == "b"] *= 1.7
    X[groups == "c", 0] += 1.0
    return X * unit, groups, rng.exponential(size=n)


def rules(kind: str, unit: float, n: int, K: int) -> dict[str, Any]:
    u, gap = unit**2, of.max_gap(0.15)
    arcs = np.random.default_rng(1).random((n, K)) < 0.25
    arcs[:, 0] = False
    return {
        "group": {"goal": "group", "fairness": gap},
        "group, no rule": {"goal": "group", "fairness": None},
        "group, one empty budget": {
            "goal": "group",
            "fairness": [gap, fc.group_cost({"a": 9 * u})],
        },
        "budget": {"fairness": [gap, fc.group_cost({"b": 6.05 * u})]},
        "arcs": {"fairness": {"gap": gap, "arcs": fc.forbidden_arcs(arcs)}},
        "radius": {"fairness": [of.balance(0.2), fc.radius(40.0 * u)]},
        "all": {
            "goal": "group",
            "fairness": [gap, fc.radius(45.0 * u), fc.forbidden_arcs(arcs), of.cluster_share(0.05)],
        },
    }[kind]


KINDS = ["group", "group, no rule", "group, one empty budget", "budget", "arcs", "radius", "all"]


def test_barred_arcs_cost_more_until_nothing_is_left_on_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows: Any = object.__new__(charged_rows.ChargedRows)
    cost, rows.demands = SimpleNamespace(clusters=2), SimpleNamespace(bars=True)
    monkeypatch.setattr(charged_rows, "_largest", lambda cost: 1.0)
    for spills, asked in (([0.0], 1), ([0.5, 0.0], 2), ([0.5, 0.4, 0.3], 3)):
        met: list[float] = []

        def at(cost: Any, penalty: float, before: Any, met: Any = met, left: Any = spills) -> Any:
            met.append(penalty)
            return SimpleNamespace(spilled=left[len(met) - 1], status="optimal"), 0.0, 0.0

        rows._at_penalty = at
        assert rows.solved(cost)[0].spilled == spills[-1]
        assert met == [2.0 * charged_rows.PENALTY * k for k in (1.0, 1e2, 1e4)][:asked]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("unit", [1.0, pytest.param(1e6, marks=pytest.mark.slow), 1e-6])
@pytest.mark.parametrize("kind", KINDS)
def test_equals_a_general_solver(kind: str, unit: float) -> None:
    X, groups, weights = data(unit)
    p = of.FairAssignment(
        X,
        groups=groups,
        centers=X[:4],
        sample_weight=weights,
        **rules(kind, unit, len(X), 4),
    )
    assert str(p.problem_class) == "LP"
    s = p.solve()
    assert s.solver == "mass-dual" and s.is_optimal(1e-6) and s.certificate.verify()
    assert str(s.grade) == "proved"
    highs = p.solve("highs", tolerance=1e-6).objective
    assert s.objective == pytest.approx(highs, rel=2e-7)
    assert s.bound <= highs * (1.0 + 1e-12)


def test_the_rules_bind() -> None:
    X, groups, _ = data()
    free = of.FairAssignment(X, groups=groups, centers=X[:4], fairness=None).solve()
    for kind in ("group", "budget", "arcs", "radius"):
        stated = rules(kind, 1.0, len(X), 4)
        p = of.FairAssignment(X, groups=groups, centers=X[:4], **stated)
        found = p.solve().values
        assert max(t.relative_violation(found) for t in p.constraints.values()) <= 1e-7
        assert max(t.relative_violation(free.values) for t in p.constraints.values()) > 1e-3


def test_a_proof_of_other_prices_is_refused() -> None:
    X, groups, _ = data()
    p = of.FairAssignment(X, groups=groups, centers=X[:4], **rules("budget", 1.0, len(X), 4))
    s = p.solve()
    name = next(k for k, t in p.constraints.items() if getattr(t, "upper", None) is not None)
    changed = {k: np.array(s.multipliers[k]) for k in s.multipliers}
    assert s.proof is not None
    assert s.proof.check(s.values, changed).consistency <= 1e-12
    changed[name] = changed[name] * (1 + 1e-4) + 1e-4
    assert s.proof.check(s.values, changed).consistency > 1e-6


@pytest.mark.parametrize(
    "rule, why",
    [
        (fc.radius(3.0), "of the weight has to use barred arcs"),
        (fc.group_cost(1.0), "times its bound in every assignment"),
    ],
)
def test_rules_that_cannot_hold_are_proved_so(rule: Any, why: str) -> None:
    X, groups, _ = data()
    p = of.FairAssignment(X, groups=groups, centers=X[:4], fairness=[of.max_gap(0.1), rule])
    with pytest.raises(Infeasible, match=why) as caught:
        p.solve()
    proof = caught.value.certificate
    assert proof.verify() and proof.faults(p) == ()
    looser = of.FairAssignment(X, groups=groups, centers=X[:4], fairness=of.max_gap(0.1))
    assert proof.faults(looser) == ("it is a proof of another problem",)
    (why_not,) = replace(proof, problem=looser).verify().reasons
    assert "another problem" in why_not
    assert not replace(proof, barred=not proof.barred).verify()


def means(model: Any, X: Any, groups: Any) -> Any:
    far = ((X[:, None] - model.cluster_centers_) ** 2).sum(axis=2)
    paid = (far * model.soft_assignment_).sum(axis=1)
    return np.array([paid[groups == g].mean() for g in model.groups_])


def test_socially_fair_k_means_lowers_the_largest_cost_of_a_group() -> None:
    X, groups, _ = data(n=900)
    kw = {"n_clusters": 4, "n_init": 1, "random_state": 0, "fairness": of.max_gap(0.3)}
    mean = of.FairKMeans(**kw).fit(X, groups=groups)
    worst = of.FairKMeans(goal="group", **kw).fit(X, groups=groups)
    assert (np.diff(worst.history_) <= 0).all() and worst.gap_ <= 1e-6
    assert worst.objective_ == pytest.approx(means(worst, X, groups).max(), rel=1e-9)
    assert worst.objective_ < 0.99 * means(mean, X, groups).max()
    assert of.metrics.max_gap(groups, worst.soft_assignment_, soft=True) <= 0.3 + 1e-6
    # no center that is a weighted mean of the groups' own is better: the last step is optimal
    again = of.FairKMeans(**kw | {"n_init": "auto"}, goal="group", init=worst.cluster_centers_)
    assert again.fit(X, groups=groups).objective_ >= worst.objective_ * (1 - 1e-4)
    share = (worst.predict(X, groups=groups) == worst.labels_).mean()
    assert share > 0.97  # all but rows whose clusters tie at the prices


def test_k_means_within_budgets_and_radii() -> None:
    X, groups, _ = data(n=900)
    kw = {"n_clusters": 4, "n_init": 1, "random_state": 0}
    free = of.FairKMeans(fairness=of.max_gap(0.2), **kw).fit(X, groups=groups)
    most = means(free, X, groups)
    tight = 0.97 * most.max()
    rule = [of.max_gap(0.2), fc.group_cost(tight)]
    capped = of.FairKMeans(fairness=rule, **kw).fit(X, groups=groups)
    assert means(capped, X, groups).max() <= tight * (1 + 1e-6)
    assert capped.objective_ >= free.objective_ * (1 - 1e-3)
    assert means(capped, X, groups).max() < most.max()

    start = free.cluster_centers_
    reach = ((X[:, None] - start) ** 2).sum(axis=2).min(axis=1).max()
    within = of.FairKMeans(
        fairness=[of.max_gap(0.4), fc.radius(1.3 * reach)], init=start, n_clusters=4
    ).fit(X, groups=groups)
    far = ((X[:, None] - within.cluster_centers_) ** 2).sum(axis=2)
    assert far[within.soft_assignment_ > 0].max() <= 1.3 * reach * (1 + 1e-12)
    assert (np.diff(within.history_) <= 0).all()


def test_links() -> None:
    X, groups, _ = data(n=60)
    pairs = np.array([[0, 7], [3, 9], [20, 31]])
    linked = of.FairKMeans(
        3, fairness=[of.max_gap(0.2), fc.must_link(pairs)], n_init=1, random_state=0
    ).fit(X, groups=groups)
    A = linked.soft_assignment_
    assert np.abs(A[pairs[:, 0]] - A[pairs[:, 1]]).max() <= 1e-7

    near = fc.cannot_link([[0, 1], [2, 3]])
    X[1], X[3] = X[0] + 1e-3, X[2] + 1e-3
    p = of.FairAssignment(X, groups=groups, centers=X[4:7], fairness=None)
    soft, hard = (q.with_constraints(apart=near) for q in (p, p.with_integrality("assignment")))
    half = np.tile(np.eye(3)[0] + np.eye(3)[1], (len(X), 1)) / 2
    assert max(soft.constraints["apart"].violation({"assignment": half}).ravel()) <= 0
    assert near.verdict(hard.solve()).ok
    assert not near.verdict(_Half(half, p)).ok
    with pytest.raises(DeclarationError, match="must be linked and cannot be"):
        p.with_constraints(same=fc.must_link([[0, 5], [5, 1]])).with_constraints(apart=near)


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_that_are_linked_are_merged_and_their_links_have_prices(weighted: bool) -> None:
    X, groups, _ = data(n=60)
    w = np.where(groups == "b", 3.0, 1.0) if weighted else None
    links = {
        "circle": fc.must_link([[0, 1], [1, 2], [2, 0], [9, 5], [5, 9]]),
        "more": fc.must_link([[2, 30], [40, 41]]),
    }
    rules = [of.max_gap(0.1), of.cluster_share(lower=0.2)]
    p = of.FairAssignment(X, groups=groups, centers=X[:3], fairness=rules, sample_weight=w)
    p = p.with_constraints(links)
    s, general = p.solve(), p.solve("highs")
    assert (s.solver, s.grade.word) == ("mass-dual", "proved") and s.certificate.verify()
    assert s.objective == pytest.approx(general.objective, rel=1e-9)
    assert s.gap <= 1e-9
    assert s.objective > p.without("circle").without("more").solve().objective + 1e-3
    A, m = s["assignment"], s.multipliers
    assert np.abs(A[[0, 1, 2, 9]] - A[[1, 2, 30, 5]]).max() <= 1e-12
    weights = p.data["weights"][:, None]
    slope = weights * (p.cost.matrix() + m["mass definition"][p.data["groups"]])
    slope += np.asarray(m["row sum"])[:, None] - m["nonnegativity"]
    for name in links:
        slope += p.constraints[name].apart.T @ m[name]
    assert np.abs(slope).max() <= 1e-12 and m["nonnegativity"].min() >= 0.0
    assert np.abs(m["more"]).max() > 0.0
    other = replace(s, multipliers={**m, "more": m["more"] + 0.1})
    assert not other.certificate.verify()


def _pairs(kind: str, n: int, rng: np.random.Generator) -> Any:
    if kind == "disjoint":
        return rng.permutation(n)[: n // 2].reshape(-1, 2)
    if kind == "random":
        drawn = rng.integers(0, n, (n // 2, 2))
        return np.concatenate([drawn[drawn[:, 0] != drawn[:, 1]], [[0, 1], [1, 0]]])
    fours = rng.permutation(n)[: 4 * (n // 8)].reshape(-1, 4)
    return np.concatenate([fours[:, [i, j]] for i in range(4) for j in range(i)])


@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize("kind", ["disjoint", "random", "fours"])
def test_links_that_keep_apart_have_prices(
    kind: str, few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if few:  # masters that do not see all arcs
        for name in ("ALL", "FIRST"):
            monkeypatch.setattr(linked_rows, name, 20)
    n, rng = 120, np.random.default_rng(2)
    X, groups, w = data(n=n)
    pairs = _pairs(kind, n, rng)
    free = np.setdiff1d(np.arange(n), pairs)
    links = {"apart": fc.cannot_link(pairs[:-4]), "more": fc.cannot_link(pairs[-4:])}
    if free.size > 3:
        links["same"] = fc.must_link(free[:4].reshape(2, 2))
    rules = [of.max_gap(0.1), of.cluster_share(lower=0.1)]
    p = of.FairAssignment(X, groups=groups, centers=X[:3], fairness=rules, sample_weight=w)
    p = p.with_constraints(links)
    s, general = p.solve(), p.solve("highs")
    assert (s.solver, s.grade.word, s.gap <= 1e-9) == ("mass-dual", "proved", True)
    assert s.certificate.verify() and pickle.loads(pickle.dumps(s)).certificate.verify()
    assert s.objective == pytest.approx(general.objective, rel=1e-9)
    assert s.objective > p.without("apart").solve().objective + 1e-3
    A, m = s["assignment"], s.multipliers
    assert (A[pairs[:, 0]] + A[pairs[:, 1]]).max() <= 1.0 + 1e-9
    weights = p.data["weights"][:, None]
    slope = weights * (p.cost.matrix() + m["mass definition"][p.data["groups"]])
    slope += np.asarray(m["row sum"])[:, None] - m["nonnegativity"]
    for name in links:
        slope += p.constraints[name].apart.T @ m[name]
    assert np.abs(slope).max() <= 1e-12
    assert m["nonnegativity"].min() >= 0.0 and m["apart"].min() >= 0.0
    assert not replace(s, multipliers={**m, "apart": m["apart"] + 0.1}).certificate.verify()


@pytest.mark.parametrize("kind", ["group", "arcs"])
def test_proofs_of_charged_costs_travel_and_are_of_their_own_multipliers(kind: str) -> None:
    X, groups, _ = data()
    s = of.FairAssignment(X, groups=groups, centers=X[:3], **rules(kind, 1.0, 240, 3)).solve()
    again, m = pickle.loads(pickle.dumps(s)), s.multipliers
    assert s.certificate.verify() and again.certificate.verify()
    for name in m:
        assert not replace(s, multipliers={**m, name: m[name] + 0.1}).certificate.verify(), name
        other = {**again.multipliers, name: m[name] + 0.1}
        assert not replace(again, multipliers=other).certificate.verify(), name


LINKS = {"together": ["same"], "apart": ["apart"], "both": ["same", "apart"]}


@pytest.mark.parametrize("which", LINKS)
@pytest.mark.parametrize("kind", ["group", "budget", "radius", "all"])
def test_links_beside_rules_on_costs_have_prices(kind: str, which: str) -> None:
    X, groups, w = data(n=120)
    pairs = np.random.default_rng(3).permutation(120)[:100].reshape(-1, 2)
    every = {"same": fc.must_link(pairs[:20]), "apart": fc.cannot_link(pairs[20:])}
    links = {k: every[k] for k in LINKS[which]}
    given = {"groups": groups, "centers": X[:3], "sample_weight": w, "fairness": of.max_gap(0.1)}
    asked: dict[str, Any] = {"radius": fc.radius(60.0)} if kind in ("radius", "all") else {}
    if kind in ("budget", "all"):
        plain = of.FairAssignment(X, **given).with_constraints(links)
        dear = group_costs(plain, plain.cost, np.asarray(plain.solve()["assignment"]))[1]
        asked["budget"] = fc.group_cost({"b": 0.995 * float(dear)})
    goal = "group" if kind in ("group", "all") else "mean"
    p = of.FairAssignment(X, **given, goal=goal).with_constraints({**links, **asked})
    s, general = p.solve(tolerance=1e-8), p.solve("highs")
    assert (s.solver, s.grade.word, s.gap <= 1e-8) == ("mass-dual", "proved", True)
    assert s.certificate.verify() and pickle.loads(pickle.dumps(s)).certificate.verify()
    assert s.objective == pytest.approx(general.objective, rel=1e-7)
    assert max(t.relative_violation(s.values) for t in p.constraints.values()) <= 1e-7
    assert s.objective > p.without(*links).solve(tolerance=1e-8).objective * (1 + 1e-4)
    m = s.multipliers
    for name in m:
        assert not replace(s, multipliers={**m, name: m[name] + 0.1}).certificate.verify(), name


@pytest.mark.parametrize("search", ["restarts", "swap"])
def test_a_fit_keeps_links_beside_rules_on_costs(search: str) -> None:
    X, groups, w = data()
    pairs = np.random.default_rng(3).permutation(240)[:60].reshape(-1, 2)
    links = [fc.must_link(pairs[:10]), fc.cannot_link(pairs[10:])]
    model = of.FairKMeans(
        3, goal="group", fairness=[of.max_gap(0.1), *links], n_init=2, random_state=0, search=search
    ).fit(X, groups=groups, sample_weight=w)
    A = model.soft_assignment_
    assert np.abs(A[pairs[:10, 0]] - A[pairs[:10, 1]]).max() <= 1e-9
    assert (A[pairs[10:, 0]] + A[pairs[10:, 1]]).max() <= 1.0 + 1e-9
    assert (np.diff(model.history_) <= 1e-7 * model.history_[0]).all() and model.n_iter_ > 2
    p = of.FairAssignment(
        X,
        groups=groups,
        centers=model.cluster_centers_,
        sample_weight=w,
        goal="group",
        fairness=[of.max_gap(0.1), *links],
    )
    assert model.objective_ == pytest.approx(p.solve("highs").objective, rel=1e-6)
    assert model.gap_ <= 1e-6
    free = np.setdiff1d(np.arange(240), pairs)  # labels follow from prices of groups
    assert (model.predict(X, groups=groups) == model.labels_)[free].mean() > 0.95
    model.set_params(time_limit=1e-4)
    with pytest.warns(ConvergenceWarning):
        cut = model.fit(X, groups=groups, sample_weight=w).soft_assignment_
    assert np.abs(cut[pairs[:10, 0]] - cut[pairs[:10, 1]]).max() <= 1e-9
    assert (cut[pairs[10:, 0]] + cut[pairs[10:, 1]]).max() <= 1.0 + 1e-9


def test_links_that_keep_apart_under_curved_rules_are_solved_in_general() -> None:
    X, groups, _ = data(n=30)
    p = of.FairAssignment(X, groups=groups, centers=X[:3], fairness=fc.cannot_link([[0, 1]]))
    s = p.with_constraints(curved=cp.sum_squares(p["masses"]) <= 0.2).solve()
    assert s.solver != "mass-dual" and s.is_optimal(1e-6)
    assert s["assignment"][:2].sum(axis=0).max() <= 1.0 + 1e-6


def test_links_of_many_kinds_are_solved_in_general(monkeypatch: pytest.MonkeyPatch) -> None:
    merging = "optfair.methods.fair_clustering.algorithms.linked_rows.MASSES"
    X, groups, w = data(n=60)
    pairs = np.arange(60).reshape(-1, 2)
    p = of.FairAssignment(X, groups=groups, centers=X[:3], sample_weight=w)
    p = p.with_constraints(same=fc.must_link(pairs))
    merged = p.solve()
    monkeypatch.setattr(merging, 50)
    s = p.solve()
    assert (merged.solver, s.solver) == ("mass-dual", "highs") and s.gap <= 1e-7
    assert s.objective == pytest.approx(merged.objective, rel=1e-9)
    np.testing.assert_allclose(s["assignment"][::2], s["assignment"][1::2], atol=1e-7)
    worst = p.with_constraints(budget=fc.group_cost({"a": 40.0})).solve()
    assert worst.solver == "highs" and worst.gap <= 1e-7
    rules = [fc.must_link(pairs), fc.group_cost({"a": 40.0})]
    with pytest.raises(SolverFailure, match="solve a FairAssignment at given centers by highs"):
        of.FairKMeans(3, fairness=rules, n_init=1).fit(X, groups=groups, sample_weight=w)


SAME, APART = fc.must_link([[0, 1], [1, 2]]), fc.cannot_link([[0, 2]])


@pytest.mark.parametrize("rules", [[SAME, APART], [APART, SAME], {"a": APART, "b": SAME}])
def test_links_that_exclude_each_other_are_named_in_any_order(rules: Any) -> None:
    X, groups, _ = data(n=30)
    with pytest.raises(DeclarationError, match="rows 0 and 2 must be linked and cannot be"):
        of.FairKMeans(3, fairness=rules).fit(X, groups=groups)
    p = of.FairAssignment(X, groups=groups, centers=X[:3], fairness=APART)
    with pytest.raises(DeclarationError, match="rows 0 and 2"):
        p.with_constraints(same=SAME)


def test_links_whose_rows_share_no_cluster_are_refused() -> None:
    X, groups, _ = data(n=30)
    arcs = np.zeros((30, 2), dtype=bool)
    arcs[0, 0] = arcs[2, 1] = True
    for rules in ([SAME, fc.forbidden_arcs(arcs)], [fc.forbidden_arcs(arcs), SAME]):
        with pytest.raises(DeclarationError, match=r"have no cluster, such as \[0, 1, 2\]"):
            of.FairKMeans(2, fairness=rules).fit(X, groups=groups)
    arcs[2, 1] = False
    allowed = [SAME, fc.forbidden_arcs(arcs)]
    solved = of.FairAssignment(X, groups=groups, centers=X[3:5], fairness=allowed).solve()
    np.testing.assert_allclose(solved["assignment"][:3], [[0, 1]] * 3, atol=1e-7)
    fitted = of.FairKMeans(2, fairness=allowed, n_init=1, random_state=0).fit(X, groups=groups)
    np.testing.assert_allclose(fitted.soft_assignment_[:3], [[0, 1]] * 3, atol=1e-7)


def test_rows_that_are_kept_apart_in_one_cluster_are_refused() -> None:
    X, groups, _ = data(n=30)
    arcs = np.zeros((30, 3), dtype=bool)
    arcs[0, 1:] = arcs[1, 2] = arcs[3, [0, 2]] = True  # 0 in the first; 1 not in the last
    apart = fc.cannot_link([[0, 1], [2, 3]])
    assert np.isfinite(
        of.FairAssignment(
            X, groups=groups, centers=X[5:8], fairness=[apart, fc.forbidden_arcs(arcs)]
        )
        .solve()
        .objective
    )
    # by way of a row that is left the second cluster, and of one that is linked to it
    for links in ([fc.cannot_link([[0, 1], [1, 3]])], [apart, fc.must_link([[1, 2]])]):
        rules = {"arcs": fc.forbidden_arcs(arcs), **{f"link {i}": r for i, r in enumerate(links)}}
        with pytest.raises(DeclarationError, match="has no cluster that is free of rows") as caught:
            of.FairKMeans(3, fairness=rules).fit(X, groups=groups)
        assert "'arcs' and the links hold row" in str(caught.value)


def test_a_group_that_exceeds_the_capacity_it_may_use_is_proved_to() -> None:
    X, _, _ = data(n=60)
    groups = np.array(list("ab") * 30)
    arcs = np.zeros((60, 2), dtype=bool)
    arcs[groups == "a", 1] = True  # half of the weight in the first cluster, which holds 0.45
    rules = [fc.forbidden_arcs(arcs), of.cluster_share(upper=[0.45, 0.6])]
    with pytest.raises(of.Infeasible, match=r"at least 5 % of the weight") as caught:
        of.FairAssignment(X, groups=groups, centers=X[:2], fairness=rules).solve()
    assert "'fairness.1.upper'" in str(caught.value)
    assert caught.value.certificate.verify().ok


def test_a_fit_under_capacities_that_do_not_hold_a_group_does_not_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, _, _ = data(n=60)
    groups = np.array(list("ab") * 30)
    arcs = np.zeros((60, 2), dtype=bool)
    arcs[groups == "a", 1] = True

    def fit(room: float) -> Any:
        rules = {"arcs": fc.forbidden_arcs(arcs), "room": of.cluster_share(upper=[room, 0.6])}
        model = of.FairKMeans(2, fairness=rules, init=X[:2])
        return model.fit(X, groups=groups)

    assert fit(0.5).masses_[0, 0] == pytest.approx(0.5)  # a group that fills the room fits
    monkeypatch.setattr("optfair.methods.fair_clustering.fair_kmeans.fit_held", None)
    with pytest.raises(of.Infeasible, match="exclude each other") as caught:
        fit(0.49)
    assert set(caught.value.conflict) == {"arcs", "room.upper"}
    assert "group 'a' weighs 0.5 of all, and may put 0.5 into cluster 0" in str(caught.value)
    assert "group 'b'" not in str(caught.value)
    assert caught.value.certificate.verify().ok


def test_capacities_count_weights() -> None:
    X, groups, _ = data(n=200)
    w = np.random.default_rng(0).uniform(0.5, 2.0, 200)
    fair = [of.max_gap(0.1), of.cluster_share(upper=0.27)]
    model = of.FairKMeans(4, fairness=fair, n_init=1, random_state=0)
    model.fit(X, groups=groups, sample_weight=w)
    held = w @ model.soft_assignment_ / w.sum()
    assert 0.269 < held.max() <= 0.27 + 1e-9
    p = of.FairAssignment(
        X, groups=groups, centers=model.cluster_centers_, fairness=fair, sample_weight=w
    )
    assert model.objective_ == pytest.approx(p.solve("highs").objective, rel=1e-7)


class _Half(dict[str, Any]):
    """Values that look like a solution."""

    def __init__(self, half: Any, problem: Any) -> None:
        super().__init__(assignment=half)
        self.problem = problem


@pytest.mark.parametrize(
    "rule",
    [
        fc.radius(-1.0),
        fc.radius([1.0, 2.0]),
        fc.forbidden_arcs(np.ones((240, 4), dtype=bool)),
        fc.forbidden_arcs(np.ones((3, 4), dtype=bool)),
        fc.group_cost({"z": 1.0}),
        fc.group_cost(-1.0),
        fc.must_link([[0, 0]]),
        fc.cannot_link([[0, 1000]]),
        fc.must_link([0, 1]),
    ],
)
def test_bad_rules_are_refused(rule: Any) -> None:
    X, groups, _ = data()
    with pytest.raises((DeclarationError, of.DataError)):
        of.FairAssignment(X, groups=groups, centers=X[:4], fairness=rule)


def test_what_does_not_go_together_is_refused() -> None:
    X, groups, _ = data()
    for model in (
        of.FairKMeans(3, goal="group", metric="l1"),
        of.FairKMeans(3, goal="group", algorithm="paper"),
        of.FairKMeans(3, goal="least"),
    ):
        with pytest.raises(DeclarationError):
            model.fit(X, groups=groups)
    with pytest.raises(DeclarationError, match="one cluster keeps no rows apart"):
        of.FairKMeans(1, fairness=APART).fit(X, groups=groups)
    with pytest.raises(DeclarationError, match="costs from 0 on"):
        of.FairAssignment(costs=X, groups=groups, goal="group")
    with pytest.raises(DeclarationError, match="rules on masses and on costs of groups"):
        of.FairKMeans(3, fairness=fc.radius(9.0)).fit_stream(X, groups=groups)


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_a_budget_that_cannot_hold_is_refused_with_a_proof(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, g = rng.normal(size=(20, 2)), np.arange(20) % 2
    rules = {"gap": of.max_gap(0.2), "budget": fc.group_cost({0: 0.3})}
    with pytest.raises(Infeasible, match="rules on costs") as caught:
        of.FairKMeans(3, fairness=rules, n_init=1, random_state=0).fit(X, groups=g)
    assert caught.value.certificate is not None and caught.value.certificate.verify()


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_one_start_that_cannot_hold_a_budget_does_not_end_the_others(n_jobs: int) -> None:
    rng = np.random.default_rng(8)
    n, K = int(rng.integers(10, 30)), int(rng.integers(2, 4))
    X, g = rng.normal(size=(n, 2)), np.arange(n) % 2
    loose = of.FairKMeans(K, fairness=of.max_gap(0.2), random_state=0, n_init=5).fit(X, groups=g)
    paid = (loose.soft_assignment_ * loose.transform(X) ** 2)[g == 0].sum() / (g == 0).sum()
    rules = {"gap": of.max_gap(0.2), "budget": fc.group_cost({0: 0.82 * paid})}
    fits = [
        of.FairKMeans(K, fairness=rules, random_state=0, n_init=k, n_jobs=n_jobs).fit(X, groups=g)
        for k in (1, 10)
    ]
    assert fits[1].objective_ <= fits[0].objective_ * (1 + 1e-9)
    assert len(fits[1].restarts_) < 10  # some were refused
    spent = (fits[1].soft_assignment_ * fits[1].transform(X) ** 2)[g == 0].sum() / (g == 0).sum()
    assert spent <= 0.82 * paid * (1 + 1e-7)


@pytest.mark.parametrize("unit", [1e-6, 0.3, 1.0, 1e6])
@pytest.mark.parametrize("rule", [None, of.perfect_fairness(), of.max_gap(0.1)])
def test_rows_on_their_centers_are_assigned_as_in_any_unit(unit: float, rule: Any) -> None:
    X = np.concatenate([np.zeros(8), np.ones(8), [0.5]])[:, None] * unit
    g = np.concatenate([np.random.default_rng(0).integers(0, 2, 16), [0]])
    centers = np.array([[0.0], [1.0]]) * unit
    p = of.FairAssignment(X, groups=g, centers=centers, fairness=rule)
    fast, plain = p.solve(), p.solve("highs")
    assert fast.solver == "mass-dual"
    assert fast.objective / unit**2 == pytest.approx(plain.objective / unit**2, abs=1e-9)
    fit = of.FairKMeans(2, fairness=rule, init=centers).fit(X, groups=g)
    assert fit.objective_ <= fast.objective * (1 + 1e-9)


def test_what_masses_cost_is_no_rounding_of_group_costs() -> None:
    shares, costs = np.array([0.4, 0.6]), [np.array([1.0, 2.0]), np.array([2.0, 1.0])]
    for noise in (0.0, 1.97e-16):
        points = [charged_rows.Point(c, noise, None) for c in costs]
        lam, prices, value, missed = charged_rows._master(points, shares, Demands(worst=True), 1e3)
        assert value == pytest.approx(1.5) and lam == pytest.approx([0.5, 0.5])
        assert prices[0].sum() == pytest.approx(1.0) and missed == 0.0


@pytest.mark.parametrize("unit", [1e-19, 1e-9, 1e9])
def test_the_largest_cost_of_a_group_with_links_in_any_units(unit: float) -> None:
    costs = np.random.default_rng(0).random((12, 3))
    given: Any = {"groups": list("ab") * 6, "goal": "group", "fairness": of.max_gap(0.3)}

    def solved(unit: float) -> of.Solution:
        p = of.FairAssignment(costs=costs * unit, **given)
        return p.with_constraints(link=fc.must_link([(0, 1)])).solve()

    assert solved(unit).objective / unit == pytest.approx(solved(1.0).objective, rel=1e-7)


@pytest.mark.parametrize("n", [40, 400])
@pytest.mark.parametrize(
    "rule", [of.max_gap(0.2), of.additive_gap(0.3), of.cluster_share(0.1, 0.4)]
)
def test_a_mixture_of_assignments_is_proved_with_its_own_masses(n: int, rule: Any) -> None:
    """Rules with auxiliaries were held to those of one assignment, and every other answer was lost."""
    for seed in (4, 7, 15):
        rng = np.random.default_rng(seed)
        groups = rng.integers(0, 3, n)
        X = rng.normal(size=(n, 3)) + 0.7 * groups[:, None]
        p = of.FairAssignment(
            X, centers=X[rng.permutation(n)[:5]], groups=groups, fairness=rule, goal="group"
        )
        s = p.solve("mass-dual")
        assert str(s.grade) == "proved" and s.certificate.verify()
        assert s.objective == pytest.approx(p.solve("highs").objective, rel=1e-6)


def test_what_is_not_found_is_not_said_to_be_impossible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a penalty is too small nothing proves that barred arcs are needed, and others are asked."""
    rng = np.random.default_rng(0)
    X, groups = rng.normal(size=(30, 2)), np.arange(30) % 2
    arcs = rng.random((30, 3)) < 0.3
    arcs[arcs.all(axis=1), 0] = False
    rules = {"gap": of.max_gap(0.2), "arcs": of.fair_clustering.forbidden_arcs(arcs)}
    p = of.FairAssignment(X, centers=X[:3], groups=groups, fairness=rules)
    truth = p.solve().objective
    monkeypatch.setattr(charged_rows, "PENALTY", 1e-12)
    with pytest.raises(of.SolverFailure, match="no assignment was found that obeys 'arcs'") as e:
        p.solve("mass-dual")
    assert "exceeded by 0 at most" in str(e.value)
    near = p.solve()
    assert near.solver != "mass-dual" and near.objective == pytest.approx(truth, rel=1e-6)


def test_prices_of_groups_are_not_asked_for_far_from_the_best_known() -> None:
    """Points of which one group is the worst would have the other cost next to nothing."""
    asked: list[Any] = []

    def least(factors: Any) -> tuple[float, Point]:
        prices = 0.5 * factors
        asked.append(prices)
        slope = np.sqrt(prices[1] / prices[0])  # of the curve of what both groups cost
        costs = 6.0 + 1e-3 * np.array([slope, 1.0 / slope])
        return float(prices @ costs), Point(costs, 0.0, None)

    duals = np.array([[0.4, 0.6], [0.0, 0.0]])
    found = weighed(
        least,
        [least(2.0 * duals[0])[1]],
        np.array([0.5, 0.5]),
        Demands(worst=True),
        duals,
        overdraft=1e3,
        tolerance=1e-9,
        deadline=np.inf,
    )
    assert found.value - found.bound <= 1e-8
    assert found.value == pytest.approx(6.001, rel=1e-8)
    assert np.min(asked) > 0.2 and len(asked) < 30


@pytest.mark.parametrize("above", [-np.inf, 6.1, 6.0005, 5.9])
def test_a_bound_above_a_value_that_is_known_ends_the_search_for_prices(above: float) -> None:
    asked: list[Any] = []

    def least(factors: Any) -> tuple[float, Point]:
        prices = 0.5 * factors
        asked.append(prices)
        slope = np.sqrt(prices[1] / prices[0])
        costs = 6.0 + 1e-3 * np.array([slope, 1.0 / slope])
        return float(prices @ costs), Point(costs, 0.0, None)

    ended = weighed(
        least,
        [],
        np.array([0.5, 0.5]),
        Demands(worst=True),
        np.array([[0.4, 0.6], [0.0, 0.0]]),
        overdraft=1e3,
        tolerance=1e-9,
        deadline=np.inf,
        above=above,
    )
    assert ended.bound <= 6.001 <= ended.value
    if above in (6.0005, 5.9):  # what is left of the gap decides nothing
        assert ended.bound > above and len(asked) == 1
    elif above == 6.1:
        assert ended.value - ended.bound <= 0.3 * (above - ended.value)
    else:
        assert len(asked) > 1 and ended.value - ended.bound <= 1e-8
