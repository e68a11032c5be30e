"""Which models and rules a file of facts may name, and how their tables become objects."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from optfair.core.problem import Problem
from optfair.core.rule import Rule
from optfair.errors import DeclarationError, nearest
from optfair.library.arguments import (
    assignment_arguments,
    bound_arguments,
    coupling_arguments,
    group_arguments,
)
from optfair.locate import check_keys
from optfair.methods.cluster_counterfactuals.cluster_arguments import cluster_arguments
from optfair.methods.fair_mixtures.mixture_arguments import mixture_arguments
from optfair.methods.sparse_counterfactuals.arguments import action_arguments

__all__ = ["construct", "model_names", "rule"]

_TEXTBOOK = "optfair.models.textbook"
_RULES = "optfair.models.rules"
_MAPS = "optfair.models.maps"

# Imported when an instance asks for them.
MODELS = {
    "ActionPlan": "optfair.methods.sparse_counterfactuals.action_plan",
    "AffineMap": f"{_MAPS}.affine_map",
    "BallProjection": f"{_TEXTBOOK}.ball_projection",
    "BiLipschitzCounterfactuals": "optfair.methods.group_counterfactuals.bi_lipschitz",
    "BiLipschitzMap": f"{_MAPS}.bi_lipschitz_map",
    "CardinalityPortfolio": f"{_TEXTBOOK}.cardinality_portfolio",
    "ChebyshevCenter": f"{_TEXTBOOK}.chebyshev_center",
    "ClusterCounterfactual": "optfair.methods.cluster_counterfactuals.cluster_counterfactual",
    "CobbDouglas": f"{_TEXTBOOK}.cobb_douglas",
    "CommutativeGaussianMap": f"{_MAPS}.fixed_basis",
    "DiagonalMap": f"{_MAPS}.fixed_basis",
    "Diet": f"{_TEXTBOOK}.diet",
    "FairAssignment": "optfair.methods.fair_clustering.fair_assignment",
    "FairKMeansBound": "optfair.methods.fair_clustering.fair_kmeans_bound",
    "FairMixtureLikelihood": "optfair.methods.fair_mixtures.mixture_likelihood",
    "FairResponsibilities": "optfair.methods.fair_mixtures.fair_responsibilities",
    "GaussianMap": f"{_MAPS}.gaussian_map",
    "IndependentCounterfactuals": "optfair.methods.group_counterfactuals.group_counterfactual",
    "IntegerLeastSquares": f"{_TEXTBOOK}.integer_least_squares",
    "KantorovichCoupling": "optfair.methods.fair_clustering.kantorovich",
    "Knapsack": f"{_TEXTBOOK}.knapsack",
    "LipschitzCounterfactuals": "optfair.methods.group_counterfactuals.group_counterfactual",
    "LovaszTheta": f"{_TEXTBOOK}.lovasz_theta",
    "MaxCutRelaxation": f"{_TEXTBOOK}.max_cut_relaxation",
    "MaximumEntropy": f"{_TEXTBOOK}.maximum_entropy",
    "MinimumEdits": "optfair.methods.sparse_counterfactuals.minimum_edits",
    "MinimumVariance": f"{_TEXTBOOK}.minimum_variance",
    "MixtureMap": f"{_MAPS}.mixture_map",
    "NearestCorrelation": f"{_TEXTBOOK}.nearest_correlation",
    "PSDMap": f"{_MAPS}.psd_map",
    "RidgeRegression": f"{_TEXTBOOK}.ridge_regression",
    "RiskBudget": f"{_TEXTBOOK}.risk_budget",
    "RobustKnapsack": f"{_TEXTBOOK}.robust_knapsack",
    "ScaledMap": f"{_MAPS}.scaled_map",
    "SimplexRegression": f"{_TEXTBOOK}.simplex_regression",
    "SmallestBall": f"{_TEXTBOOK}.smallest_ball",
    "Transport": f"{_TEXTBOOK}.transport",
    "TrustRegion": f"{_TEXTBOOK}.trust_region",
    "WaterFilling": f"{_TEXTBOOK}.water_filling",
}
RULES = {
    "additive_gap": f"{_RULES}.gaps",
    "at_most": f"{_RULES}.sparsity",
    "at_most_changes": f"{_RULES}.changes",
    "balance": f"{_RULES}.proportions",
    "box": f"{_RULES}.features",
    "chance": f"{_RULES}.chance",
    "cluster_share": f"{_RULES}.shares",
    "edited_together": f"{_RULES}.edited_together",
    "implies": f"{_RULES}.implies",
    "l1_sparsity": f"{_RULES}.sparsity",
    "least_density": f"{_RULES}.plausibility",
    "loewner": f"{_RULES}.loewner",
    "max_gap": f"{_RULES}.gaps",
    "monotone": f"{_RULES}.features",
    "one_hot": f"{_RULES}.whole_features",
    "perfect_fairness": f"{_RULES}.gaps",
    "proportion": f"{_RULES}.proportions",
    "row_budget": f"{_RULES}.row_budget",
    "transport_budget": f"{_RULES}.transport_budget",
    "whole_numbers": f"{_RULES}.whole_features",
}
# Models of a group and a linear score.
_GROUP_MODELS = (
    *(name for name, module in MODELS.items() if module.startswith(_MAPS)),
    "BiLipschitzCounterfactuals",
    "IndependentCounterfactuals",
    "LipschitzCounterfactuals",
)
# Models whose [data] says where rows come from; others take its entries as keywords.
READERS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "FairAssignment": assignment_arguments,
    "FairKMeansBound": bound_arguments,
    "FairMixtureLikelihood": bound_arguments,
    "FairResponsibilities": mixture_arguments,
    "KantorovichCoupling": coupling_arguments,
    "ActionPlan": action_arguments,
    "MinimumEdits": action_arguments,
    "ClusterCounterfactual": cluster_arguments,
    **dict.fromkeys(_GROUP_MODELS, group_arguments),
}


def model_names() -> tuple[str, ...]:
    """Return the names of the models an instance may have."""
    return tuple(MODELS)


def construct(model: str, data: Mapping[str, Any], where: str) -> Problem:
    """Return the problem a [data] table declares.

    Parameters
    ----------
    model : str
        Name of the model.
    data : mapping
        The table.
    where : str
        What to call the table in messages.
    """
    maker = _found(model, MODELS, f"model of {where}")
    arguments = READERS.get(model, dict)(data)
    fairness = arguments.get("fairness")
    if isinstance(fairness, Mapping):
        arguments["fairness"] = rule(fairness, f"fairness in {where}")
    problem: Problem = _called(maker, arguments, where)
    return problem


def rule(table: Mapping[str, Any], where: str) -> Rule:
    """Return the rule of a table with the key ``kind`` and the rule's parameters."""
    if "kind" not in table:
        raise DeclarationError(f"{where} has no kind", remedy=f"write kind = one of {list(RULES)}")
    maker = _found(table["kind"], RULES, f"kind of {where}")
    made: Rule = _called(maker, {k: v for k, v in table.items() if k != "kind"}, where)
    return made


def _found(name: Any, known: Mapping[str, str], what: str) -> Callable[..., Any]:
    if name not in known:
        raise DeclarationError(f"unknown {what}: {name!r}", remedy=nearest(str(name), known))
    found: Callable[..., Any] = getattr(importlib.import_module(known[name]), name)
    return found


def _called(maker: Callable[..., Any], arguments: Mapping[str, Any], where: str) -> Any:
    """Call with keywords, after telling unknown and missing ones."""
    signature = inspect.signature(maker).parameters
    parameters = {k: p for k, p in signature.items() if p.kind is not p.VAR_KEYWORD}
    if len(parameters) == len(signature):  # else the maker checks what it is given
        check_keys(arguments, parameters, where)
    missing = [k for k, p in parameters.items() if p.default is p.empty and k not in arguments]
    if missing:
        raise DeclarationError(
            f"{where} lacks {', '.join(missing)}", remedy=f"it may have {', '.join(parameters)}"
        )
    return maker(**arguments)
