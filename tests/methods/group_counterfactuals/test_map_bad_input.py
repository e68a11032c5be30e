"""What is wrong with a map's declaration or target, said before or instead of a solution."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import optfair as of
from optfair.features.feature_problem import box, immutable
from optfair.methods.group_counterfactuals.affine_maps import PSDMap
from optfair.methods.group_counterfactuals.fixed_basis import DiagonalMap
from optfair.methods.group_counterfactuals.gaussian_maps import GaussianMap
from optfair.methods.group_counterfactuals.group_problem import (
    OutOfReach,
    largest_level,
    with_attainable,
)
from optfair.methods.group_counterfactuals.rules import transport_budget

sys.path.insert(0, str(Path(__file__).parent))
from map_cases import MODELS, W0, W, group, target


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"K": 0.99}, of.DeclarationError, "K=0.99 is not at least 1"),
        ({"K": "big"}, of.DeclarationError, "not at least 1"),
        ({"K": float("nan")}, of.DeclarationError, "not at least 1"),
        ({"probability": 1.0}, of.DeclarationError, "not inside"),
        ({"probability": 0.0}, of.DeclarationError, "not inside"),
        ({"threshold": 1.0}, of.DeclarationError, "not both"),
        ({"target_class": "yes"}, of.DeclarationError, "no class"),
        ({"feature_costs": [1.0, 1.0, 1.0, 0.0]}, of.DeclarationError, "positive numbers"),
        ({"feature_costs": {"y": 1.0}}, of.DataError, "names 'y'"),
        ({"score": (W[:3], 0.0)}, of.DataError, "columns"),
    ],
)
def test_declarations_that_cannot_be(
    name: str, changed: dict[str, Any], error: type[Exception], words: str
) -> None:
    options = {"K": 2.0, "k": 2.0, **target(), **changed}
    if name == "affine":
        options["feature_costs"] = changed.get("feature_costs")
    if name == "affine" and "K" in changed:
        name = "affine, bounded"
    with pytest.raises(error, match=words):
        MODELS[name](group(), **options)


@pytest.mark.parametrize("name", [n for n in MODELS if not n.startswith("affine")])
def test_k_below_one(name: str) -> None:
    with pytest.raises(of.DeclarationError, match=r"k=0\.5 is not at least 1"):
        MODELS[name](group(), k=0.5, **target())


def test_rows_that_are_no_numbers() -> None:
    X = group()
    X[3, 2] = np.nan
    with pytest.raises(of.DataError, match="NaN"):
        PSDMap(X, **target())


def test_moments_that_cannot_be() -> None:
    X, options = group(), target()
    for covariance, words in (
        (-np.eye(4), "negative eigenvalue"),
        (np.eye(3), "shape"),
        (np.triu(np.ones((4, 4))), "not symmetric"),
    ):
        with pytest.raises(of.DataError, match=words):
            GaussianMap(X, mean=np.zeros(4), covariance=covariance, **options)
    with pytest.raises(of.DeclarationError, match="belong together"):
        GaussianMap(X, mean=np.zeros(4), **options)
    with pytest.raises(of.DeclarationError, match="no group"):
        GaussianMap(**options)
    with pytest.raises(of.DeclarationError, match="unknown form 'lni'"):
        GaussianMap(X, form="lni", **options)


def test_columns_of_another_order() -> None:
    from optfair.features.linear_score import LinearScore

    frame = pd.DataFrame(group(), columns=["a", "b", "c", "d"])
    score = LinearScore(W, W0, names=["a", "b", "d", "c"])
    with pytest.raises(of.DataError, match="not those of the score"):
        PSDMap(frame, score=score)
    p = PSDMap(frame, score=LinearScore(W, W0, names=["a", "b", "c", "d"]))
    assert p.features == ("a", "b", "c", "d")


def attainable(p: Any) -> float:
    """Return the best least score under the rules, by bisection over thresholds."""
    low, high = -50.0, 50.0
    for _ in range(40):
        middle = (low + high) / 2
        try:
            p(middle).solve()
            low = middle
        except of.Infeasible:
            high = middle
    return low


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["affine, bounded", "psd", "diagonal", "scaled", "mixture"])
def test_unattainable_target_says_how_far_one_gets(name: str) -> None:
    X = group()
    rules = {"limits": box({"x0": (None, X[:, 0].max() + 0.5)}), "stay": immutable(1, 2)}
    p = MODELS[name](X, K=1.2, k=1.2, **target(probability=0.99)).with_constraints(rules)
    with pytest.raises(of.Infeasible) as caught:
        p.solve()
    e = caught.value
    families = {n.partition(".")[0] for n in e.conflict}
    assert {"classification", "limits", "stay"} <= families
    assert e.certificate is not None and e.certificate.verify()
    text = str(e)
    assert "the largest attainable probability is" in text
    best = float(text.split("the largest attainable probability is ")[1].split(",")[0])
    assert 0.0 < best < 0.99

    def at(probability: float) -> Any:
        q = MODELS[name](X, K=1.2, k=1.2, **target(probability=probability))
        return q.with_constraints(rules)

    assert at(best - 1e-3).solve().certificate.verify()
    with pytest.raises(of.Infeasible):
        at(best + 1e-3).solve()


def test_all_features_immutable() -> None:
    X = group()
    p = PSDMap(X, K=2.0, k=2.0, **target()).with_constraints(stay=immutable(0, 1, 2, 3))
    with pytest.raises(of.Infeasible) as caught:
        p.solve()
    assert {"classification", "stay.mean"} <= set(caught.value.conflict)
    lowest = (X @ W + W0).min()
    assert f"is {1 / (1 + np.exp(-lowest)):.4g}"[:8] in str(caught.value)


def test_out_of_reach_is_a_proof_that_does_not_survive_tampering() -> None:
    p = PSDMap(group(), K=2.0, k=2.0, **target()).with_constraints(cap=transport_budget(0.5))
    with pytest.raises(of.Infeasible) as caught:
        p.solve()
    assert {"cap", "classification"} <= set(caught.value.conflict)
    proof = OutOfReach(p, largest_level(p))
    assert proof.verify()
    assert {"cap", "classification"} <= set(proof.conflict)
    lower = PSDMap(group(), K=2.0, k=2.0, **target(probability=0.1)).with_constraints(
        cap=transport_budget(0.5)
    )
    assert not replace(proof, problem=lower).verify()
    (why,) = replace(proof, problem=p.without("cap")).verify().reasons
    assert "another problem" in why
    moved = {k: np.asarray(v) * 1.01 for k, v in proof.solution.multipliers.items()}
    assert not replace(proof, solution=replace(proof.solution, multipliers=moved)).verify()


def test_an_error_without_a_certificate_gets_one() -> None:
    p = PSDMap(group(), K=2.0, k=2.0, **target()).with_constraints(cap=transport_budget(0.5))
    bare = of.Infeasible("no point", "reported", "remove")
    found = with_attainable(p, bare)
    assert isinstance(found.certificate, OutOfReach) and found.certificate.verify()
    assert {"cap", "classification"} <= set(found.conflict)
    # a target that is attainable is no conflict, whatever a solver said
    fine = PSDMap(group(), K=2.0, k=2.0, **target())
    assert with_attainable(fine, bare) is bare


def test_other_conflicts_are_left_as_they_are() -> None:
    p = PSDMap(group(), K=1.2, k=1.2, **target())
    q = p.with_constraints(low=p["mean"][0] >= 1, high=p["mean"][0] <= 0)
    with pytest.raises(of.Infeasible) as caught:
        q.solve()
    assert "attainable" not in str(caught.value)


def test_solutions_of_other_problems_make_no_map() -> None:
    X = group()
    psd, diagonal = PSDMap(X, **target()), MODELS["diagonal"](X, **target())
    with pytest.raises(of.DeclarationError, match="no 'matrix'"):
        psd.map(diagonal.solve())


def test_a_matrix_that_nothing_bounds_above_asks_for_K() -> None:
    """With no extent along some direction the least cost may be approached only."""
    X, score = [[0.0, 0.0], [1.0, 2.0]], ([1.0, -1.0], 0.0)

    def ask(stated: Any) -> Any:
        raise of.SolverFailure("no result passed", "gap 1e-4", "ask for a larger tolerance")

    for model in (PSDMap, GaussianMap):
        with pytest.raises(of.SolverFailure, match=r"give K .*or ask for a larger") as e:
            model(X, score=score, threshold=1.0, k=1.2).solved_by(ask)
        assert "approached and not attained; gap 1e-4" in str(e.value)
        with pytest.raises(of.SolverFailure) as e:
            model(X, score=score, threshold=1.0, K=2.0, k=1.2).solved_by(ask)
        assert "give K" not in str(e.value)
    assert PSDMap(X, score=score, threshold=1.0, K=100.0, k=1.2).solve().certificate.verify()


def test_scores_far_from_zero_are_probabilities_too() -> None:
    p = DiagonalMap([[1.0], [2.0]], score=([-1.0], -1e3), threshold=5.0)
    with pytest.raises(of.Infeasible, match="probability is 0, asked for is"):
        p.with_constraints(same=of.immutable(0)).solve()


@pytest.mark.parametrize(
    "model", [PSDMap, DiagonalMap, of.group_counterfactuals.LipschitzCounterfactuals]
)
def test_costs_beyond_any_optimum_are_refused(model: Any) -> None:
    rows = np.random.default_rng(0).normal(size=(8, 2)) * 1e8
    with pytest.raises(of.DataError, match=r"costs about 1\.\de\+17.*\n.*no optimum.*\n.*X / 1e6"):
        model(rows, score=([1.0, 0.0], -3e8), K=1.1)
    assert model(rows / 1e6, score=([1.0, 0.0], -3e2), K=1.1).solve().certificate.verify()


@pytest.mark.parametrize("name", ["psd", "affine, bounded", "gaussian"])
@pytest.mark.parametrize("factor", [0.0, -1.0, np.nan])
def test_values_that_were_changed_are_no_map(name: str, factor: float) -> None:
    known = next((n for n in MODELS if n.startswith(name)), next(iter(MODELS)))
    problem = MODELS[known](group(), K=2.0, k=2.0, **target())
    solution = problem.solve()
    problem.map(solution)
    values = {k: factor * np.asarray(v) for k, v in solution.values.items()}
    with pytest.raises(of.SolverFailure, match="no solution of this problem"):
        problem.map(replace(solution, values=values))


def test_a_solution_of_a_problem_that_asks_for_less_is_no_map() -> None:
    easy, hard = (PSDMap(group(), K=2.0, k=2.0, score=(W, W0), threshold=v) for v in (0.5, 1.5))
    with pytest.raises(of.SolverFailure, match="'classification' is violated"):
        hard.map(easy.solve())
