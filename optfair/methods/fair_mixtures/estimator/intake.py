"""What a fair mixture is fitted on: rows, groups and weights, checked before any work."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError
from optfair.methods.fair_mixtures.estimator.fitted import group_index
from optfair.methods.fair_mixtures.estimator.sample import Sample
from optfair.numbers import check_weights, encode_groups
from optfair.rows.columns import Columns, without_groups
from optfair.rows.mixed_rows import MixedRows

__all__ = ["Intake", "taken_in"]

# Rows that Δ is measured on while batches come in, where nothing else is asked for.
MEASURED = 10_000


@dataclass(frozen=True, eq=False)
class Intake:
    """Rows of a fit with their groups.

    Attributes
    ----------
    sample : Sample
        Without groups, all rows are in one.
    columns : Columns
    names : array (G,)
        Sorted group labels.
    grouped : bool
        Whether there are groups.
    """

    sample: Sample
    columns: Columns
    names: NDArray[Any]
    grouped: bool

    def with_rows(self, other: Intake, limit: Any) -> Intake:
        """Return these rows with those of another batch, up to a number of rows."""
        most = MEASURED if limit is None or isinstance(limit, float) else int(limit)
        mine, theirs = self.sample, other.sample
        room = most - mine.count
        if other is self or room <= 0:
            return self
        few = theirs.some(np.arange(min(room, theirs.count)))
        rows = MixedRows(
            np.concatenate([mine.rows.numeric, few.rows.numeric]),
            np.concatenate([mine.rows.codes, few.rows.codes]),
        )
        index = np.concatenate([mine.index, few.index])
        weights = np.concatenate([mine.count * mine.weights, few.count * few.weights])
        totals = np.bincount(index, weights, mine.shares.size)
        sample = Sample(rows, index, weights * (mine.shares / totals)[index], mine.shares)
        return replace(self, sample=sample)


def taken_in(model: Any, X: Any, groups: Any, sample_weight: Any, *, fitted: Any = None) -> Intake:
    """Return what the model is fitted on.

    Parameters
    ----------
    model : FairMixture
        Its parameters.
    X, groups, sample_weight
        As given to `FairMixture.fit`.
    fitted : tuple, optional
        State of `FairMixture.partial_fit`, whose columns and groups the rows must have.
    """
    if groups is None and model.fairness is not None:
        raise DataError(
            "groups is missing",
            f"fairness={model.fairness!r} compares groups",
            "give groups=, one label per row; or fairness=None for a plain mixture",
        )
    X, labels = without_groups(X, groups)
    columns = Columns.of(X, model.categorical) if fitted is None else fitted[0].columns
    rows = columns.encoded(X)
    if rows.count < model.n_components and fitted is None:
        raise DataError(
            f"n_components={model.n_components} for {rows.count} rows",
            "every component starts at a row of its own",
            f"give n_components <= {rows.count}",
        )
    weights = check_weights(sample_weight, rows.count)
    if labels is None:
        one = np.zeros(rows.count, dtype=np.intp)
        return Intake(Sample(rows, one, weights, np.ones(1)), columns, np.array([]), False)
    if fitted is not None:
        names, shares = fitted[0].names, fitted[0].sample.shares
        index = group_index(names, labels, rows.count)
        return Intake(Sample(rows, index, weights, shares), columns, names, True)
    index, names, shares = encode_groups(labels, rows.count, weights)
    return Intake(Sample(rows, index, weights, shares), columns, names, True)
