"""optfair: declared optimization problems that know their class, prove it, and verify what solvers return."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Public name -> module that defines it; loaded on first use, so that importing optfair is quick.
_PUBLIC = {
    "AdoptedProblem": "core.adopt",
    "Certificate": "core.certificate",
    "Curvature": "core.certificate",
    "NonconvexityWitness": "core.certificate",
    "Optimality": "core.certificate",
    "Verdict": "core.certificate",
    "Evidence": "core.evidence",
    "Declaration": "core.problem",
    "Problem": "core.problem",
    "ProblemClass": "core.problem_class",
    "Rule": "core.rule",
    "Solution": "core.solution",
    "Structure": "core.structure",
    "ConstraintTerm": "core.term",
    "ObjectiveTerm": "core.term",
    "from_cvxpy": "core.adopt",
    "Alternation": "estimators.alternation",
    "alternate": "estimators.alternation",
    "FairKMeans": "estimators.fair_kmeans",
    "BalanceUnderBudget": "estimators.balance_under_budget",
    "bounded_cost_kmeans": "estimators.bounded_cost",
    "largest_balance": "estimators.bounded_cost",
    "FairletClustering": "estimators.fairlets",
    "fairlet_clustering": "estimators.fairlets",
    "Front": "estimators.front",
    "fairness_front": "estimators.front",
    "FairKMeansBound": "models.fair_kmeans_bound",
    "optimality_gap": "models.optimality_gap",
    "FairAssignment": "models.fair_assignment",
    "KantorovichCoupling": "models.kantorovich",
    "perfect_fairness": "models.rules.gaps",
    "additive_gap": "models.rules.gaps",
    "max_gap": "models.rules.gaps",
    "balance": "models.rules.proportions",
    "proportion": "models.rules.proportions",
    "cluster_share": "models.rules.shares",
    "ClusterCounterfactual": "models.cluster_counterfactual",
    "at_most_changes": "models.rules.changes",
    "best_known": "backends.structured.pairwise",
    "least_density": "models.rules.plausibility",
    "one_hot": "models.rules.whole_features",
    "whole_numbers": "models.rules.whole_features",
    "FeatureProblem": "models.feature_problem",
    "TransportMap": "models.transport_map",
    "MixtureTransport": "models.mixture_transport",
    "AffineMap": "models.maps.affine_map",
    "BiLipschitzMap": "models.maps.bi_lipschitz_map",
    "PSDMap": "models.maps.psd_map",
    "DiagonalMap": "models.maps.fixed_basis",
    "CommutativeGaussianMap": "models.maps.fixed_basis",
    "GaussianMap": "models.maps.gaussian_map",
    "ScaledMap": "models.maps.scaled_map",
    "MixtureMap": "models.maps.mixture_map",
    "immutable": "models.rules.features",
    "box": "models.rules.features",
    "monotone": "models.rules.features",
    "loewner": "models.rules.loewner",
    "chance": "models.rules.chance",
    "transport_budget": "models.rules.transport_budget",
    "l1_sparsity": "models.rules.sparsity",
    "at_most": "models.rules.sparsity",
    "OutOfReach": "models.attainable",
    "LinearScore": "models.linear_score",
    "IndependentCounterfactuals": "models.group_counterfactual",
    "LipschitzCounterfactuals": "models.group_counterfactual",
    "BiLipschitzCounterfactuals": "models.bi_lipschitz",
    "GramBound": "models.gram_bound",
    "bi_lipschitz_baseline": "estimators.bi_lipschitz_baseline",
    "BoundedValue": "estimators.bi_lipschitz_baseline",
    "ActionPlan": "models.action_plan",
    "MinimumEdits": "models.actions.minimum_edits",
    "edited_together": "models.rules.edited_together",
    "implies": "models.rules.implies",
    "row_budget": "models.rules.row_budget",
    "ClusterExplainer": "estimators.cluster_explainer",
    "counterfactual_front": "estimators.counterfactual_front",
    "CounterfactualFront": "estimators.counterfactual_front",
    "cross_validate_map": "estimators.cross_validation",
    "MapValidation": "estimators.cross_validation",
    "medoid_groups": "estimators.groups",
    "MedoidGroup": "estimators.groups",
    "SparseCounterfactuals": "estimators.sparse.sparse_counterfactuals",
    "Refinement": "estimators.sparse.refinement",
    "p_shap": "estimators.sparse.shapley",
    "Attribution": "estimators.sparse.attribution",
    "Counterfactuals": "estimators.sparse.generated",
    "given_counterfactuals": "estimators.sparse.generated",
    "nearest_unlike_neighbours": "estimators.sparse.generators",
    "projected_counterfactuals": "estimators.sparse.generators",
    "mapped_counterfactuals": "estimators.sparse.generators",
    "dice_counterfactuals": "estimators.sparse.dice_adapter",
    "optimal_transport_coupling": "estimators.sparse.couplings",
    "aligned_coupling": "estimators.sparse.couplings",
    "uniform_coupling": "estimators.sparse.couplings",
    "random_coupling": "estimators.sparse.couplings",
    "nearest_coupling": "estimators.sparse.couplings",
    "FairMixture": "estimators.mixture.fair_mixture",
    "MixturePath": "estimators.mixture.paths",
    "eps_path": "estimators.mixture.paths",
    "lambda_path": "estimators.mixture.paths",
    "FairResponsibilities": "models.fair_responsibilities",
    "FairMixtureLikelihood": "models.mixture_likelihood",
    "RowSource": "estimators.streaming.row_source",
    "Chunk": "estimators.streaming.row_source",
    "factor_coupling": "transforms.factor_coupling",
    "dualize": "transforms.dualize",
    "Exactness": "transforms.exactness",
    "relax_integrality": "transforms.relax_integrality",
    "shor": "transforms.shor",
    "soften": "transforms.soften",
    "residuals": "solution.residuals",
    "Residuals": "solution.residuals",
    "load_solution": "solution.files",
    "shadow_prices": "solution.shadow_prices",
    "solve": "backends.solve",
    "compare_solvers": "comparison.compare",
    "Comparison": "comparison.comparison",
    "export": "formats.export",
    "read": "formats.read",
    "from_arrays": "formats.arrays",
    "FileProblem": "formats.file_problem",
    "to_pyomo": "compile.pyomo",
    "pyomo_values": "compile.pyomo",
    "cone_program": "compile.cone_program",
    "ConeProgram": "compile.cone_program",
    "prove": "convexity.prove",
    "CurvatureProof": "convexity.proof",
    "CurvatureWitness": "convexity.proof",
    "Undecided": "convexity.proof",
    "diagnose": "diagnosis.diagnose",
    "Diagnosis": "diagnosis.report",
    "solvers": "backends.registry",
}
_ERRORS = (
    "ClassError",
    "DataError",
    "DeclarationError",
    "Infeasible",
    "NotInstalled",
    "NotLicensed",
    "OptfairError",
    "SizeLimited",
    "SolverFailure",
    "Unbounded",
    "UnsupportedProblem",
)
_SUBPACKAGES = ("comparison", "datasets", "library", "metrics", "plots")

__all__ = ["__version__", *_PUBLIC, *_ERRORS, *_SUBPACKAGES]


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"optfair.{name}")
    if name in _ERRORS:
        value = getattr(importlib.import_module("optfair.errors"), name)
    elif name in _PUBLIC:
        value = getattr(importlib.import_module(f"optfair.{_PUBLIC[name]}"), name)
    else:
        raise AttributeError(f"module 'optfair' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


if TYPE_CHECKING:
    from optfair.backends.registry import solvers as solvers
    from optfair.backends.solve import solve as solve
    from optfair.backends.structured.pairwise import best_known as best_known
    from optfair.comparison.compare import compare_solvers as compare_solvers
    from optfair.comparison.comparison import Comparison as Comparison
    from optfair.compile.cone_program import ConeProgram as ConeProgram
    from optfair.compile.cone_program import cone_program as cone_program
    from optfair.compile.pyomo import pyomo_values as pyomo_values
    from optfair.compile.pyomo import to_pyomo as to_pyomo
    from optfair.convexity.proof import CurvatureProof as CurvatureProof
    from optfair.convexity.proof import CurvatureWitness as CurvatureWitness
    from optfair.convexity.proof import Undecided as Undecided
    from optfair.convexity.prove import prove as prove
    from optfair.core.adopt import AdoptedProblem as AdoptedProblem
    from optfair.core.adopt import from_cvxpy as from_cvxpy
    from optfair.core.certificate import Certificate as Certificate
    from optfair.core.certificate import Curvature as Curvature
    from optfair.core.certificate import NonconvexityWitness as NonconvexityWitness
    from optfair.core.certificate import Optimality as Optimality
    from optfair.core.certificate import Verdict as Verdict
    from optfair.core.evidence import Evidence as Evidence
    from optfair.core.problem import Declaration as Declaration
    from optfair.core.problem import Problem as Problem
    from optfair.core.problem_class import ProblemClass as ProblemClass
    from optfair.core.rule import Rule as Rule
    from optfair.core.solution import Solution as Solution
    from optfair.core.structure import Structure as Structure
    from optfair.core.term import ConstraintTerm as ConstraintTerm
    from optfair.core.term import ObjectiveTerm as ObjectiveTerm
    from optfair.diagnosis.diagnose import diagnose as diagnose
    from optfair.diagnosis.report import Diagnosis as Diagnosis
    from optfair.errors import ClassError as ClassError
    from optfair.errors import DataError as DataError
    from optfair.errors import DeclarationError as DeclarationError
    from optfair.errors import Infeasible as Infeasible
    from optfair.errors import NotInstalled as NotInstalled
    from optfair.errors import NotLicensed as NotLicensed
    from optfair.errors import OptfairError as OptfairError
    from optfair.errors import SizeLimited as SizeLimited
    from optfair.errors import SolverFailure as SolverFailure
    from optfair.errors import Unbounded as Unbounded
    from optfair.errors import UnsupportedProblem as UnsupportedProblem
    from optfair.estimators.alternation import Alternation as Alternation
    from optfair.estimators.alternation import alternate as alternate
    from optfair.estimators.balance_under_budget import BalanceUnderBudget as BalanceUnderBudget
    from optfair.estimators.bi_lipschitz_baseline import BoundedValue as BoundedValue
    from optfair.estimators.bi_lipschitz_baseline import (
        bi_lipschitz_baseline as bi_lipschitz_baseline,
    )
    from optfair.estimators.bounded_cost import bounded_cost_kmeans as bounded_cost_kmeans
    from optfair.estimators.bounded_cost import largest_balance as largest_balance
    from optfair.estimators.cluster_explainer import ClusterExplainer as ClusterExplainer
    from optfair.estimators.counterfactual_front import CounterfactualFront as CounterfactualFront
    from optfair.estimators.counterfactual_front import counterfactual_front as counterfactual_front
    from optfair.estimators.cross_validation import MapValidation as MapValidation
    from optfair.estimators.cross_validation import cross_validate_map as cross_validate_map
    from optfair.estimators.fair_kmeans import FairKMeans as FairKMeans
    from optfair.estimators.fairlets import FairletClustering as FairletClustering
    from optfair.estimators.fairlets import fairlet_clustering as fairlet_clustering
    from optfair.estimators.front import Front as Front
    from optfair.estimators.front import fairness_front as fairness_front
    from optfair.estimators.groups import MedoidGroup as MedoidGroup
    from optfair.estimators.groups import medoid_groups as medoid_groups
    from optfair.estimators.mixture.fair_mixture import FairMixture as FairMixture
    from optfair.estimators.mixture.paths import MixturePath as MixturePath
    from optfair.estimators.mixture.paths import eps_path as eps_path
    from optfair.estimators.mixture.paths import lambda_path as lambda_path
    from optfair.estimators.sparse.attribution import Attribution as Attribution
    from optfair.estimators.sparse.couplings import aligned_coupling as aligned_coupling
    from optfair.estimators.sparse.couplings import nearest_coupling as nearest_coupling
    from optfair.estimators.sparse.couplings import (
        optimal_transport_coupling as optimal_transport_coupling,
    )
    from optfair.estimators.sparse.couplings import random_coupling as random_coupling
    from optfair.estimators.sparse.couplings import uniform_coupling as uniform_coupling
    from optfair.estimators.sparse.dice_adapter import dice_counterfactuals as dice_counterfactuals
    from optfair.estimators.sparse.generated import Counterfactuals as Counterfactuals
    from optfair.estimators.sparse.generated import given_counterfactuals as given_counterfactuals
    from optfair.estimators.sparse.generators import (
        mapped_counterfactuals as mapped_counterfactuals,
    )
    from optfair.estimators.sparse.generators import (
        nearest_unlike_neighbours as nearest_unlike_neighbours,
    )
    from optfair.estimators.sparse.generators import (
        projected_counterfactuals as projected_counterfactuals,
    )
    from optfair.estimators.sparse.refinement import Refinement as Refinement
    from optfair.estimators.sparse.shapley import p_shap as p_shap
    from optfair.estimators.sparse.sparse_counterfactuals import (
        SparseCounterfactuals as SparseCounterfactuals,
    )
    from optfair.estimators.streaming.row_source import Chunk as Chunk
    from optfair.estimators.streaming.row_source import RowSource as RowSource
    from optfair.formats.arrays import from_arrays as from_arrays
    from optfair.formats.export import export as export
    from optfair.formats.file_problem import FileProblem as FileProblem
    from optfair.formats.read import read as read
    from optfair.models.action_plan import ActionPlan as ActionPlan
    from optfair.models.actions.minimum_edits import MinimumEdits as MinimumEdits
    from optfair.models.attainable import OutOfReach as OutOfReach
    from optfair.models.bi_lipschitz import BiLipschitzCounterfactuals as BiLipschitzCounterfactuals
    from optfair.models.cluster_counterfactual import ClusterCounterfactual as ClusterCounterfactual
    from optfair.models.fair_assignment import FairAssignment as FairAssignment
    from optfair.models.fair_kmeans_bound import FairKMeansBound as FairKMeansBound
    from optfair.models.fair_responsibilities import FairResponsibilities as FairResponsibilities
    from optfair.models.feature_problem import FeatureProblem as FeatureProblem
    from optfair.models.gram_bound import GramBound as GramBound
    from optfair.models.group_counterfactual import (
        IndependentCounterfactuals as IndependentCounterfactuals,
    )
    from optfair.models.group_counterfactual import (
        LipschitzCounterfactuals as LipschitzCounterfactuals,
    )
    from optfair.models.kantorovich import KantorovichCoupling as KantorovichCoupling
    from optfair.models.linear_score import LinearScore as LinearScore
    from optfair.models.maps.affine_map import AffineMap as AffineMap
    from optfair.models.maps.bi_lipschitz_map import BiLipschitzMap as BiLipschitzMap
    from optfair.models.maps.fixed_basis import CommutativeGaussianMap as CommutativeGaussianMap
    from optfair.models.maps.fixed_basis import DiagonalMap as DiagonalMap
    from optfair.models.maps.gaussian_map import GaussianMap as GaussianMap
    from optfair.models.maps.mixture_map import MixtureMap as MixtureMap
    from optfair.models.maps.psd_map import PSDMap as PSDMap
    from optfair.models.maps.scaled_map import ScaledMap as ScaledMap
    from optfair.models.mixture_likelihood import FairMixtureLikelihood as FairMixtureLikelihood
    from optfair.models.mixture_transport import MixtureTransport as MixtureTransport
    from optfair.models.optimality_gap import optimality_gap as optimality_gap
    from optfair.models.rules.chance import chance as chance
    from optfair.models.rules.changes import at_most_changes as at_most_changes
    from optfair.models.rules.edited_together import edited_together as edited_together
    from optfair.models.rules.features import box as box
    from optfair.models.rules.features import immutable as immutable
    from optfair.models.rules.features import monotone as monotone
    from optfair.models.rules.gaps import additive_gap as additive_gap
    from optfair.models.rules.gaps import max_gap as max_gap
    from optfair.models.rules.gaps import perfect_fairness as perfect_fairness
    from optfair.models.rules.implies import implies as implies
    from optfair.models.rules.loewner import loewner as loewner
    from optfair.models.rules.plausibility import least_density as least_density
    from optfair.models.rules.proportions import balance as balance
    from optfair.models.rules.proportions import proportion as proportion
    from optfair.models.rules.row_budget import row_budget as row_budget
    from optfair.models.rules.shares import cluster_share as cluster_share
    from optfair.models.rules.sparsity import at_most as at_most
    from optfair.models.rules.sparsity import l1_sparsity as l1_sparsity
    from optfair.models.rules.transport_budget import transport_budget as transport_budget
    from optfair.models.rules.whole_features import one_hot as one_hot
    from optfair.models.rules.whole_features import whole_numbers as whole_numbers
    from optfair.models.transport_map import TransportMap as TransportMap
    from optfair.solution.files import load_solution as load_solution
    from optfair.solution.residuals import Residuals as Residuals
    from optfair.solution.residuals import residuals as residuals
    from optfair.solution.shadow_prices import shadow_prices as shadow_prices
    from optfair.transforms.dualize import dualize as dualize
    from optfair.transforms.exactness import Exactness as Exactness
    from optfair.transforms.factor_coupling import factor_coupling as factor_coupling
    from optfair.transforms.relax_integrality import relax_integrality as relax_integrality
    from optfair.transforms.shor import shor as shor
    from optfair.transforms.soften import soften as soften
