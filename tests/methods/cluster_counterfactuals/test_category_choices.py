"""One-hot groups beside clusters of any units: the best choice of categories, with a proof of every other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.core.certificate import Certificate, DualCheck, Verdict, least_check
from optfair.methods.cluster_counterfactuals import adapters
from optfair.methods.cluster_counterfactuals.choices import (
    MOST,
    ONE_HOT_CHOICES,
    ChoiceProof,
    Choices,
    NoCategory,
    one_hot_groups,
)
from optfair.methods.cluster_counterfactuals.cluster_counterfactual import ClusterCounterfactual
from optfair.methods.cluster_counterfactuals.rules import one_hot


def random_case(seed: int, unit: float) -> tuple[Any, dict[str, Any], int]:
    """Return the clusters of numbers in a unit beside one or two groups of flags, and a row."""
    rng = np.random.default_rng(seed)
    m, K = int(rng.integers(1, 4)), int(rng.integers(2, 4))
    sizes = rng.integers(2, 4, 1 + seed % 2)
    d = m + int(sizes.sum())
    label = np.arange(60) % K
    numbers = rng.normal(size=(60, m)) + 2.0 * rng.normal(size=(K, m))[label]
    flags = [
        np.eye(h)[[rng.choice(h, p=p) for p in rng.dirichlet(np.ones(h), K)[label]]] for h in sizes
    ]
    units = np.append(np.full(m, unit), np.ones(d - m))
    X = np.hstack([numbers, *flags]) * units
    kind = ("full", "diag", "tied", "k-means")[seed % 4]
    means = np.stack([X[label == k].mean(axis=0) for k in range(K)])
    own = [np.cov(X[label == k].T) + 0.01 * np.diag(units**2) for k in range(K)]
    shapes = {"full": np.stack(own), "tied": np.mean(own, axis=0)}
    shapes["diag"] = np.stack([np.diag(c) for c in own])
    ends = m + np.cumsum(sizes)
    groups = [list(range(e - h, e)) for e, h in zip(ends, sizes, strict=True)]
    given: dict[str, Any] = {"factual": X[0], "one_hot": groups}
    given["against"] = ("pair", "all")[seed // 4 % 2]

    def made(**options: Any) -> ClusterCounterfactual:
        asked = {**given, **options}
        if kind == "k-means":
            return ClusterCounterfactual.kmeans(centers=means, **asked)
        asked = {"covariances": shapes[kind], "covariance_type": kind, **asked}
        return ClusterCounterfactual.gaussian(means=means, **asked)

    start = int(made(target=0).clusters.labels(X[0]))
    return made, given, (start + 1) % K


def enumerated(made: Any, given: dict[str, Any], target: int) -> float:
    """Return the least distance over all categories, held one choice after the other by bounds."""
    best = np.inf
    d = given["factual"].size
    for choice in product(*given["one_hot"]):
        low, high = np.full(d, -np.inf), np.full(d, np.inf)
        flags = [j for group in given["one_hot"] for j in group]
        low[flags] = high[flags] = 0.0
        low[list(choice)] = high[list(choice)] = 1.0
        try:
            held = made(target=target, one_hot=None, lower=low, upper=high)
            best = min(best, held.solve().objective)
        except of.Infeasible:
            continue
    return best


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("seed", range(8))
def test_numbers_in_any_unit_beside_categories(seed: int, unit: float) -> None:
    """A general solver moved numbers of 1e-6 by thousands of them: squares of 1e-12 cost nothing."""
    made, given, target = random_case(seed, unit)
    p = made(target=target)
    s = p.solve()
    assert s.solver == "category-choices" and s.grade.word == "proved"
    assert s.is_optimal(1e-9)
    assert s.objective == pytest.approx(enumerated(made, given, target), rel=1e-7)
    for group in given["one_hot"]:
        assert sorted(s["point"][group]) == [*[0.0] * (len(group) - 1), 1.0]
    for name, at in one_hot_groups(p).items():
        assert np.array_equal(s["point"][at], s[f"{name}.choice"])


def test_metrics_directions_and_density_are_those_of_each_choice() -> None:
    made, given, target = random_case(0, 1.0)
    d = given["factual"].size
    M = np.random.default_rng(1).normal(size=(d, d))
    for options in (
        {"metric": M @ M.T + np.eye(d)},
        {"prices": np.arange(1.0, d + 1.0)},
        {"increasing": [0]},
        {"density": 1e-4},
        {"immutable": [d - 1]},
    ):
        p = made(target=target, **options)
        assert not p.structure_refusal(ONE_HOT_CHOICES)
        s = p.solve()
        asked = {**given, **options}
        best = enumerated(lambda o=options, **k: made(**{**o, **k}), asked, target)
        assert s.solver == "category-choices"
        assert s.objective == pytest.approx(best, rel=1e-7)


def whole_row(**options: Any) -> ClusterCounterfactual:
    return ClusterCounterfactual.kmeans(
        centers=[[0.0, 1.0, 0.0, 0.0], [4.0, 0.2, 0.8, 0.0], [0.0, 0.0, 0.2, 0.8]],
        factual=[0.5, 1.0, 0.0, 0.0],
        target=1,
        **{"one_hot": [1, 2, 3], **options},
    )


def test_what_is_no_choice_of_categories_goes_to_others() -> None:
    p = whole_row()
    assert not p.structure_refusal(ONE_HOT_CHOICES)
    refused = {
        "no features are one-hot": whole_row(one_hot=None),
        "its distance is 'l1'": whole_row(distance="l1"),
        "'changes.changed' is integer": whole_row(lower=-9.0, upper=9.0, max_changes=3),
        "'sum' is not a bound": p.with_constraints(sum=p["point"][0] + p["point"][1] <= 9.0),
        "no boundary is left": p.without("target.0"),
        "'point' is integer": p.with_integrality("point"),
    }
    for words, q in refused.items():
        assert q.structure_refusal(ONE_HOT_CHOICES).startswith(words)
    assert p.without("one-hot 0.one").structure_refusal(ONE_HOT_CHOICES)
    assert p._child(integers=frozenset()).structure_refusal(ONE_HOT_CHOICES)
    assert not whole_row(one_hot=None).with_constraints(
        kind=one_hot(1, 2, 3)
    ).structure_refusal(ONE_HOT_CHOICES)  # fmt: skip
    d = 28
    wide = ClusterCounterfactual.kmeans(
        centers=np.eye(3, d),
        factual=np.eye(d)[0],
        target=1,
        one_hot=[list(range(k, k + 2)) for k in range(0, d, 2)],
    )
    assert f"more than {MOST}" in wide.structure_refusal(ONE_HOT_CHOICES)


def test_choices_that_are_too_far_are_not_solved_and_bounded_by_themselves() -> None:
    p = whole_row(weights=[1.0, 100.0, 100.0, 100.0])
    s = p.solve()
    every = Choices(p, one_hot_groups(p))
    assert list(s.proof.answers) == [(0,)]  # type: ignore[union-attr]
    assert every.least((0,)) == 0.0
    assert 200.0 * (1.0 - 1e-12) <= every.least((1,)) <= 200.0
    assert s.is_optimal(1e-9)
    M = np.diag([1.0, 100.0, 100.0, 100.0]) + 0.5
    q = whole_row(metric=M)
    # the other feature makes up for some of it: the least over it, with its categories held
    away = np.array([-1.0, 1.0, 0.0])
    own = away @ M[1:, 1:] @ away - (M[0, 1:] @ away) ** 2 / M[0, 0]
    assert Choices(q, one_hot_groups(q)).least((1,)) == pytest.approx(own, rel=1e-5)
    assert Choices(q, one_hot_groups(q)).least((1,)) < own
    assert len(q.solve().proof.answers) == 1  # type: ignore[union-attr]
    # so far apart in size that floats are not sure of it: every choice is solved
    big = whole_row(metric=np.diag([1e-18, 1.0, 1.0, 1.0]))
    assert Choices(big, one_hot_groups(big)).least((1,)) == 0.0


def test_a_proof_that_leaves_out_a_choice_or_has_another_proves_less() -> None:
    p = whole_row()
    s = p.solve()
    answers = s.proof.answers  # type: ignore[union-attr]
    best = min(answers, key=lambda c: answers[c].objective)
    fewer = {c: a for c, a in answers.items() if c != best}
    least = Choices(p, one_hot_groups(p)).least(best)
    assert replace(s.proof, answers=fewer).check(s.values, {}).bound == least < s.objective
    other = next(c for c in answers if c != best)
    swapped = {**answers, best: answers[other]}
    assert replace(s.proof, answers=swapped).check(s.values, {}).bound == -np.inf
    assert (
        replace(s.proof, answers=answers).check(s.values, {"target.0": 1.0}).consistency == np.inf
    )
    moved = replace(answers[best], multipliers={"target.0": np.array(0.0)})
    wrong = replace(s, proof=replace(s.proof, answers={**answers, best: moved}))
    assert not wrong.is_optimal(1e-6)


@dataclass(frozen=True, eq=False)
class Refuted(Certificate):
    """A certificate of a choice that does not hold."""

    problem: Any

    def verify(self) -> Verdict:
        return Verdict(False, ("refuted",))


def test_a_target_out_of_reach_is_refuted_choice_by_choice() -> None:
    with pytest.raises(of.Infeasible) as error:
        whole_row(upper={0: 1.0}).solve("category-choices")
    proof = error.value.certificate
    assert isinstance(proof, NoCategory) and proof.verify() and "3 choices" in str(proof)
    assert "'one-hot 0'" in str(error.value)
    fewer = NoCategory(proof.problem, dict(list(proof.refuted.items())[1:]))
    assert not fewer.verify()
    lent = replace(proof, refuted={**proof.refuted, (0,): proof.refuted[1,]})
    (why,) = lent.verify().reasons
    assert why == "choice (0,): it is a proof of another problem"
    certificate = Refuted(getattr(proof.refuted[0,].certificate, "problem", None))
    given = of.Infeasible("refuted", certificate=certificate)
    wrong = replace(proof, refuted={**proof.refuted, (0,): given})
    assert wrong.verify().reasons == ("choice (0,): refuted",)
    # a Farkas vector that holds, of another row's problem with the same choice
    x = cp.Variable(name="x")
    with pytest.raises(of.Infeasible) as other:
        of.from_cvxpy(cp.Problem(cp.Minimize(x), [x >= 1, x <= 0])).solve()
    assert other.value.certificate is not None and other.value.certificate.verify()
    foreign = replace(proof, refuted={**proof.refuted, (0,): other.value})
    assert foreign.verify().reasons == ("choice (0,): it is a proof of another problem",)
    assert proof.faults(proof.problem) == ()
    assert proof.faults(whole_row(upper={0: 9.0})) != ()


def test_time_that_is_up_leaves_the_best_choice_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    from optfair.methods.cluster_counterfactuals import adapters

    p = whole_row()
    whole = p.solve()
    answered = []

    def once(left: Any, request: Any, answer: Any = adapters._answer) -> Any:
        answered.append(left)
        return answer(left, request) if len(answered) == 1 else None

    monkeypatch.setattr(adapters, "_answer", once)
    s = p.solve("category-choices", time_limit=60.0)
    assert s.status.termination.endswith("limit") and len(answered) == 2
    assert s.bound <= whole.objective <= s.objective and not s.is_optimal(1e-6)


def test_the_weakest_case_says_what_a_bound_rests_on() -> None:
    sure, said = DualCheck(2.0, 1e-9, apart=True), DualCheck(3.0, 0.0, reported="somebody")
    assert least_check([sure, sure]) == sure
    both = least_check([sure, said])
    assert (both.bound, both.dual, both.reported, both.apart) == (2.0, 1e-9, "somebody", False)
    assert least_check([]).bound == np.inf


def test_an_explainer_takes_categories() -> None:
    made, given, target = random_case(0, 1e-6)
    clusters = made(target=target).clusters
    model = SimpleNamespace(
        means_=clusters.means,
        covariances_=np.linalg.inv(np.stack(clusters.precisions)),
        covariance_type="full",
    )
    e = of.ClusterExplainer(model, one_hot=given["one_hot"])
    c = e.explain(given["factual"], target=target).best
    assert c.status == "optimal" and e.predict([c.point])[0] == target
    for group in given["one_hot"]:
        assert sorted(c.point[group]) == [*[0.0] * (len(group) - 1), 1.0]


def test_an_answer_of_another_choice_proves_nothing() -> None:
    made, _, target = random_case(1, 1.0)
    p = made(target=target)
    s = p.solve()
    proof = s.proof
    assert isinstance(proof, ChoiceProof)
    assert proof.check(s.values, s.multipliers).bound == pytest.approx(s.objective)
    solved = [k for k, a in proof.answers.items() if isinstance(a, of.Solution)]
    best = min(solved, key=lambda k: proof.answers[k].objective)
    other = next(k for k in Choices(p, one_hot_groups(p)) if k != best)
    moved = {**proof.answers, other: proof.answers[best]}
    assert replace(proof, answers=moved).check(s.values, s.multipliers).bound == -np.inf
    # nor does the same choice under another metric
    near = made(target=target, metric=9.0 * np.eye(p.factual.size)).solve()
    assert isinstance(near.proof, ChoiceProof)
    dear = {**proof.answers, best: near.proof.answers[best]}
    assert replace(proof, answers=dear).check(s.values, s.multipliers).bound == -np.inf


def test_what_is_proved_or_says_too_little_is_not_proved_again() -> None:
    proved = SimpleNamespace(grade=SimpleNamespace(sound=True), bound=2.0)
    little = SimpleNamespace(grade=SimpleNamespace(sound=False), bound=0.5)
    answers: dict[Any, Any] = dict(enumerate((of.Infeasible("no point"), proved, little)))
    before = dict(answers)
    adapters._settle(answers, 1.0, None)  # type: ignore[arg-type]  # it would be asked for
    assert answers == before
