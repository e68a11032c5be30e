"""What the parameters of a `FairMixture` say about its rules and components."""

from __future__ import annotations

from typing import Any

from optfair.methods.fair_clustering.algorithms.program import MassProgram
from optfair.methods.fair_mixtures.estimator.components import Components
from optfair.methods.fair_mixtures.estimator.first_components import empty_components
from optfair.methods.fair_mixtures.estimator.intake import Intake
from optfair.methods.fair_mixtures.estimator.mass_rules import mass_program, named_rules
from optfair.methods.fair_mixtures.estimator.sample import Sample
from optfair.rows.columns import Columns

__all__ = ["empty_of", "program_of", "rules_of"]


def empty_of(model: Any, sample: Sample, columns: Columns) -> Components:
    """Return equal components that carry shape, floors and origin.

    Parameters
    ----------
    model : FairMixture
        Its parameters.
    sample : Sample
        Rows, for the origin.
    columns : Columns
        Which are categories.
    """
    return empty_components(
        sample,
        model.n_components,
        model.covariance_type,
        model.reg_covar,
        columns.offsets,
        model.min_probability,
    )


def rules_of(model: Any) -> dict[str, Any]:
    """Return the rules by name; without a constraint, those of fair labels: perfect fairness."""
    return named_rules(model.eps if model.fairness == "constraint" else 0.0, model.rules)


def program_of(model: Any, data: Intake) -> MassProgram | None:
    """Return the rules as the program that projections read, None without a constraint."""
    if model.fairness != "constraint":
        return None
    return mass_program(data.names, data.sample.shares, model.n_components, rules_of(model))
