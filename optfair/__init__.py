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
    "Evidence": "core.problem_class",
    "Declaration": "core.problem",
    "Problem": "core.problem",
    "ProblemClass": "core.problem_class",
    "Rule": "core.composition",
    "Solution": "core.solution",
    "Structure": "core.term",
    "ConstraintTerm": "core.term",
    "ObjectiveTerm": "core.term",
    "from_cvxpy": "core.adopt",
    "Alternation": "methods.fair_clustering.alternation",
    "alternate": "methods.fair_clustering.alternation",
    "FairKMeans": "methods.fair_clustering.fair_kmeans",
    "BalanceUnderBudget": "methods.fair_clustering.bounded_cost",
    "bounded_cost_kmeans": "methods.fair_clustering.bounded_cost",
    "largest_balance": "methods.fair_clustering.bounded_cost",
    "FairletClustering": "methods.fair_clustering.fairlets",
    "fairlet_clustering": "methods.fair_clustering.fairlets",
    "Front": "methods.fair_clustering.front",
    "fairness_front": "methods.fair_clustering.front",
    "FairKMeansBound": "methods.fair_clustering.bound",
    "optimality_gap": "methods.fair_clustering.bound",
    "FairAssignment": "methods.fair_clustering.assignment",
    "KantorovichCoupling": "methods.fair_clustering.coupling",
    "perfect_fairness": "methods.fair_clustering.rules",
    "additive_gap": "methods.fair_clustering.rules",
    "max_gap": "methods.fair_clustering.rules",
    "balance": "methods.fair_clustering.rules",
    "proportion": "methods.fair_clustering.rules",
    "cluster_share": "methods.fair_clustering.rules",
    "ClusterCounterfactual": "methods.cluster_counterfactuals.cluster_counterfactual",
    "at_most_changes": "methods.cluster_counterfactuals.rules",
    "best_known": "methods.cluster_counterfactuals.adapters.projections",
    "least_density": "methods.cluster_counterfactuals.rules",
    "one_hot": "methods.cluster_counterfactuals.rules",
    "whole_numbers": "methods.cluster_counterfactuals.rules",
    "FeatureProblem": "features.feature_problem",
    "TransportMap": "methods.group_counterfactuals.transport_map",
    "MixtureTransport": "methods.group_counterfactuals.transport_map",
    "AffineMap": "methods.group_counterfactuals.maps.affine_maps",
    "BiLipschitzMap": "methods.group_counterfactuals.maps.bi_lipschitz_map",
    "PSDMap": "methods.group_counterfactuals.maps.affine_maps",
    "DiagonalMap": "methods.group_counterfactuals.maps.fixed_basis",
    "CommutativeGaussianMap": "methods.group_counterfactuals.maps.fixed_basis",
    "GaussianMap": "methods.group_counterfactuals.maps.gaussian_maps",
    "ScaledMap": "methods.group_counterfactuals.maps.fixed_basis",
    "MixtureMap": "methods.group_counterfactuals.maps.gaussian_maps",
    "immutable": "features.feature_problem",
    "box": "features.feature_problem",
    "monotone": "features.feature_problem",
    "loewner": "methods.group_counterfactuals.rules",
    "chance": "methods.group_counterfactuals.chance_rule",
    "transport_budget": "methods.group_counterfactuals.rules",
    "l1_sparsity": "methods.group_counterfactuals.rules",
    "at_most": "methods.group_counterfactuals.rules",
    "OutOfReach": "methods.group_counterfactuals.attainable",
    "LinearScore": "features.linear_score",
    "IndependentCounterfactuals": "methods.group_counterfactuals.members",
    "LipschitzCounterfactuals": "methods.group_counterfactuals.members",
    "BiLipschitzCounterfactuals": "methods.group_counterfactuals.bi_lipschitz",
    "GramBound": "methods.group_counterfactuals.bi_lipschitz",
    "bi_lipschitz_baseline": "methods.group_counterfactuals.bi_lipschitz_baseline",
    "BoundedValue": "methods.group_counterfactuals.bi_lipschitz_baseline",
    "ActionPlan": "methods.sparse_counterfactuals.action_plan",
    "MinimumEdits": "methods.sparse_counterfactuals.action_plan",
    "edited_together": "methods.sparse_counterfactuals.rules",
    "implies": "methods.sparse_counterfactuals.rules",
    "row_budget": "methods.sparse_counterfactuals.rules",
    "ClusterExplainer": "methods.cluster_counterfactuals.explainer",
    "counterfactual_front": "methods.group_counterfactuals.counterfactual_front",
    "CounterfactualFront": "methods.group_counterfactuals.counterfactual_front",
    "cross_validate_map": "methods.group_counterfactuals.cross_validation",
    "MapValidation": "methods.group_counterfactuals.cross_validation",
    "medoid_groups": "methods.group_counterfactuals.groups",
    "MedoidGroup": "methods.group_counterfactuals.groups",
    "SparseCounterfactuals": "methods.sparse_counterfactuals.sparse_counterfactuals",
    "Refinement": "methods.sparse_counterfactuals.refinement",
    "p_shap": "methods.sparse_counterfactuals.shapley",
    "Attribution": "methods.sparse_counterfactuals.shapley",
    "Counterfactuals": "methods.sparse_counterfactuals.generators",
    "given_counterfactuals": "methods.sparse_counterfactuals.generators",
    "nearest_unlike_neighbours": "methods.sparse_counterfactuals.generators",
    "projected_counterfactuals": "methods.sparse_counterfactuals.generators",
    "mapped_counterfactuals": "methods.sparse_counterfactuals.generators",
    "dice_counterfactuals": "methods.sparse_counterfactuals.generators",
    "optimal_transport_coupling": "methods.sparse_counterfactuals.couplings",
    "aligned_coupling": "methods.sparse_counterfactuals.couplings",
    "uniform_coupling": "methods.sparse_counterfactuals.couplings",
    "random_coupling": "methods.sparse_counterfactuals.couplings",
    "nearest_coupling": "methods.sparse_counterfactuals.couplings",
    "FairMixture": "methods.fair_mixtures.fair_mixture",
    "MixturePath": "methods.fair_mixtures.paths",
    "eps_path": "methods.fair_mixtures.paths",
    "lambda_path": "methods.fair_mixtures.paths",
    "FairResponsibilities": "methods.fair_mixtures.responsibilities",
    "FairMixtureLikelihood": "methods.fair_mixtures.likelihood",
    "RowSource": "rows.row_source",
    "Chunk": "rows.row_source",
    "factor_coupling": "methods.fair_clustering.coupling",
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
    "export": "formats.files",
    "read": "formats.files",
    "from_arrays": "formats.arrays",
    "FileProblem": "formats.file_problem",
    "to_pyomo": "compile.pyomo",
    "pyomo_values": "compile.pyomo",
    "cone_program": "compile.cone_program",
    "ConeProgram": "compile.cone_program",
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
    from optfair.comparison.compare import compare_solvers as compare_solvers
    from optfair.comparison.comparison import Comparison as Comparison
    from optfair.compile.cone_program import ConeProgram as ConeProgram
    from optfair.compile.cone_program import cone_program as cone_program
    from optfair.compile.pyomo import pyomo_values as pyomo_values
    from optfair.compile.pyomo import to_pyomo as to_pyomo
    from optfair.core.adopt import AdoptedProblem as AdoptedProblem
    from optfair.core.adopt import from_cvxpy as from_cvxpy
    from optfair.core.certificate import Certificate as Certificate
    from optfair.core.certificate import Curvature as Curvature
    from optfair.core.certificate import NonconvexityWitness as NonconvexityWitness
    from optfair.core.certificate import Optimality as Optimality
    from optfair.core.certificate import Verdict as Verdict
    from optfair.core.composition import Rule as Rule
    from optfair.core.problem import Declaration as Declaration
    from optfair.core.problem import Problem as Problem
    from optfair.core.problem_class import Evidence as Evidence
    from optfair.core.problem_class import ProblemClass as ProblemClass
    from optfair.core.solution import Solution as Solution
    from optfair.core.term import ConstraintTerm as ConstraintTerm
    from optfair.core.term import ObjectiveTerm as ObjectiveTerm
    from optfair.core.term import Structure as Structure
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
    from optfair.features.feature_problem import FeatureProblem as FeatureProblem
    from optfair.features.feature_problem import box as box
    from optfair.features.feature_problem import immutable as immutable
    from optfair.features.feature_problem import monotone as monotone
    from optfair.features.linear_score import LinearScore as LinearScore
    from optfair.formats.arrays import from_arrays as from_arrays
    from optfair.formats.file_problem import FileProblem as FileProblem
    from optfair.formats.files import export as export
    from optfair.formats.files import read as read
    from optfair.methods.cluster_counterfactuals.adapters.projections import (
        best_known as best_known,
    )
    from optfair.methods.cluster_counterfactuals.cluster_counterfactual import (
        ClusterCounterfactual as ClusterCounterfactual,
    )
    from optfair.methods.cluster_counterfactuals.explainer import (
        ClusterExplainer as ClusterExplainer,
    )
    from optfair.methods.cluster_counterfactuals.rules import (
        at_most_changes as at_most_changes,
    )
    from optfair.methods.cluster_counterfactuals.rules import (
        least_density as least_density,
    )
    from optfair.methods.cluster_counterfactuals.rules import one_hot as one_hot
    from optfair.methods.cluster_counterfactuals.rules import (
        whole_numbers as whole_numbers,
    )
    from optfair.methods.fair_clustering.alternation import Alternation as Alternation
    from optfair.methods.fair_clustering.alternation import alternate as alternate
    from optfair.methods.fair_clustering.assignment import FairAssignment as FairAssignment
    from optfair.methods.fair_clustering.bound import FairKMeansBound as FairKMeansBound
    from optfair.methods.fair_clustering.bound import optimality_gap as optimality_gap
    from optfair.methods.fair_clustering.bounded_cost import (
        BalanceUnderBudget as BalanceUnderBudget,
    )
    from optfair.methods.fair_clustering.bounded_cost import (
        bounded_cost_kmeans as bounded_cost_kmeans,
    )
    from optfair.methods.fair_clustering.bounded_cost import largest_balance as largest_balance
    from optfair.methods.fair_clustering.coupling import (
        KantorovichCoupling as KantorovichCoupling,
    )
    from optfair.methods.fair_clustering.coupling import factor_coupling as factor_coupling
    from optfair.methods.fair_clustering.fair_kmeans import FairKMeans as FairKMeans
    from optfair.methods.fair_clustering.fairlets import FairletClustering as FairletClustering
    from optfair.methods.fair_clustering.fairlets import fairlet_clustering as fairlet_clustering
    from optfair.methods.fair_clustering.front import Front as Front
    from optfair.methods.fair_clustering.front import fairness_front as fairness_front
    from optfair.methods.fair_clustering.rules import additive_gap as additive_gap
    from optfair.methods.fair_clustering.rules import balance as balance
    from optfair.methods.fair_clustering.rules import cluster_share as cluster_share
    from optfair.methods.fair_clustering.rules import max_gap as max_gap
    from optfair.methods.fair_clustering.rules import perfect_fairness as perfect_fairness
    from optfair.methods.fair_clustering.rules import proportion as proportion
    from optfair.methods.fair_mixtures.fair_mixture import FairMixture as FairMixture
    from optfair.methods.fair_mixtures.likelihood import (
        FairMixtureLikelihood as FairMixtureLikelihood,
    )
    from optfair.methods.fair_mixtures.paths import MixturePath as MixturePath
    from optfair.methods.fair_mixtures.paths import eps_path as eps_path
    from optfair.methods.fair_mixtures.paths import lambda_path as lambda_path
    from optfair.methods.fair_mixtures.responsibilities import (
        FairResponsibilities as FairResponsibilities,
    )
    from optfair.methods.group_counterfactuals.attainable import OutOfReach as OutOfReach
    from optfair.methods.group_counterfactuals.bi_lipschitz import (
        BiLipschitzCounterfactuals as BiLipschitzCounterfactuals,
    )
    from optfair.methods.group_counterfactuals.bi_lipschitz import GramBound as GramBound
    from optfair.methods.group_counterfactuals.bi_lipschitz_baseline import (
        BoundedValue as BoundedValue,
    )
    from optfair.methods.group_counterfactuals.bi_lipschitz_baseline import (
        bi_lipschitz_baseline as bi_lipschitz_baseline,
    )
    from optfair.methods.group_counterfactuals.chance_rule import chance as chance
    from optfair.methods.group_counterfactuals.counterfactual_front import (
        CounterfactualFront as CounterfactualFront,
    )
    from optfair.methods.group_counterfactuals.counterfactual_front import (
        counterfactual_front as counterfactual_front,
    )
    from optfair.methods.group_counterfactuals.cross_validation import (
        MapValidation as MapValidation,
    )
    from optfair.methods.group_counterfactuals.cross_validation import (
        cross_validate_map as cross_validate_map,
    )
    from optfair.methods.group_counterfactuals.groups import MedoidGroup as MedoidGroup
    from optfair.methods.group_counterfactuals.groups import medoid_groups as medoid_groups
    from optfair.methods.group_counterfactuals.maps.affine_maps import AffineMap as AffineMap
    from optfair.methods.group_counterfactuals.maps.affine_maps import PSDMap as PSDMap
    from optfair.methods.group_counterfactuals.maps.bi_lipschitz_map import (
        BiLipschitzMap as BiLipschitzMap,
    )
    from optfair.methods.group_counterfactuals.maps.fixed_basis import (
        CommutativeGaussianMap as CommutativeGaussianMap,
    )
    from optfair.methods.group_counterfactuals.maps.fixed_basis import DiagonalMap as DiagonalMap
    from optfair.methods.group_counterfactuals.maps.fixed_basis import ScaledMap as ScaledMap
    from optfair.methods.group_counterfactuals.maps.gaussian_maps import GaussianMap as GaussianMap
    from optfair.methods.group_counterfactuals.maps.gaussian_maps import MixtureMap as MixtureMap
    from optfair.methods.group_counterfactuals.members import (
        IndependentCounterfactuals as IndependentCounterfactuals,
    )
    from optfair.methods.group_counterfactuals.members import (
        LipschitzCounterfactuals as LipschitzCounterfactuals,
    )
    from optfair.methods.group_counterfactuals.rules import at_most as at_most
    from optfair.methods.group_counterfactuals.rules import l1_sparsity as l1_sparsity
    from optfair.methods.group_counterfactuals.rules import loewner as loewner
    from optfair.methods.group_counterfactuals.rules import (
        transport_budget as transport_budget,
    )
    from optfair.methods.group_counterfactuals.transport_map import (
        MixtureTransport as MixtureTransport,
    )
    from optfair.methods.group_counterfactuals.transport_map import TransportMap as TransportMap
    from optfair.methods.sparse_counterfactuals.action_plan import ActionPlan as ActionPlan
    from optfair.methods.sparse_counterfactuals.action_plan import MinimumEdits as MinimumEdits
    from optfair.methods.sparse_counterfactuals.couplings import (
        aligned_coupling as aligned_coupling,
    )
    from optfair.methods.sparse_counterfactuals.couplings import (
        nearest_coupling as nearest_coupling,
    )
    from optfair.methods.sparse_counterfactuals.couplings import (
        optimal_transport_coupling as optimal_transport_coupling,
    )
    from optfair.methods.sparse_counterfactuals.couplings import (
        random_coupling as random_coupling,
    )
    from optfair.methods.sparse_counterfactuals.couplings import (
        uniform_coupling as uniform_coupling,
    )
    from optfair.methods.sparse_counterfactuals.generators import (
        Counterfactuals as Counterfactuals,
    )
    from optfair.methods.sparse_counterfactuals.generators import (
        dice_counterfactuals as dice_counterfactuals,
    )
    from optfair.methods.sparse_counterfactuals.generators import (
        given_counterfactuals as given_counterfactuals,
    )
    from optfair.methods.sparse_counterfactuals.generators import (
        mapped_counterfactuals as mapped_counterfactuals,
    )
    from optfair.methods.sparse_counterfactuals.generators import (
        nearest_unlike_neighbours as nearest_unlike_neighbours,
    )
    from optfair.methods.sparse_counterfactuals.generators import (
        projected_counterfactuals as projected_counterfactuals,
    )
    from optfair.methods.sparse_counterfactuals.refinement import Refinement as Refinement
    from optfair.methods.sparse_counterfactuals.rules import (
        edited_together as edited_together,
    )
    from optfair.methods.sparse_counterfactuals.rules import implies as implies
    from optfair.methods.sparse_counterfactuals.rules import row_budget as row_budget
    from optfair.methods.sparse_counterfactuals.shapley import (
        Attribution as Attribution,
    )
    from optfair.methods.sparse_counterfactuals.shapley import p_shap as p_shap
    from optfair.methods.sparse_counterfactuals.sparse_counterfactuals import (
        SparseCounterfactuals as SparseCounterfactuals,
    )
    from optfair.rows.row_source import Chunk as Chunk
    from optfair.rows.row_source import RowSource as RowSource
    from optfair.solution.files import load_solution as load_solution
    from optfair.solution.residuals import Residuals as Residuals
    from optfair.solution.residuals import residuals as residuals
    from optfair.solution.shadow_prices import shadow_prices as shadow_prices
    from optfair.transforms.dualize import dualize as dualize
    from optfair.transforms.exactness import Exactness as Exactness
    from optfair.transforms.relax_integrality import relax_integrality as relax_integrality
    from optfair.transforms.shor import shor as shor
    from optfair.transforms.soften import soften as soften
