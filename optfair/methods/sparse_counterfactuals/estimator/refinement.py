"""Refined counterfactuals, and what they change and reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from optfair.methods.sparse_counterfactuals.estimator.setting import labelled
from optfair.methods.sparse_counterfactuals.metrics.line_divergences import (
    DIVERGENCES,
    kernel_bandwidth,
    path_divergences,
)
from optfair.methods.sparse_counterfactuals.metrics.sparse_counterfactuals import effect_from

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Indices = NDArray[np.intp]

__all__ = ["Refinement", "refined"]


@dataclass(frozen=True, eq=False)
class Refinement:
    r"""Rows with some cells changed.

    Attributes
    ----------
    rows : array or data frame (n, d)
        z, in the container and with the types of the factual rows.
    edits : bool array (n, d)
        Cells that differ from the factual rows.
    budget : int
        Edits allowed; fewer are made where fewer cells can change.
    effect : float
        Counterfactual effect 1 − D(f(z), y*) / D(f(x), y*).
    divergence : {"ot", "mmd", "mean", "median"}
        D.
    outputs, factual_outputs : arrays (n,)
        f(z) and f(x).
    target : array (m,)
        y*.
    edit_ratio : float
        Edits as a share of those of the original counterfactuals, the ratio that Table 3 of
        the paper prints.
    distance_ratio : float
        ‖z − x‖ / ‖r − x‖ with numbers standardised and categories as indicators.
    features : tuple of str
        Columns.
    factuals : array or data frame (n, d)
        x.
    """

    rows: Any
    edits: Flags
    budget: int
    effect: float
    divergence: str
    outputs: Floats
    factual_outputs: Floats
    target: Floats
    edit_ratio: float
    distance_ratio: float
    features: tuple[str, ...]
    factuals: Any

    @property
    def n_edits(self) -> int:
        """Number of cells changed."""
        return int(self.edits.sum())

    @property
    def edits_per_row(self) -> Indices:
        """Number of cells changed in each row (n,)."""
        return np.asarray(self.edits.sum(axis=1))

    def changes(self) -> list[dict[str, Any]]:
        """Return one entry per changed cell: row, feature, before, after."""
        before, after = _cells(self.factuals), _cells(self.rows)
        return [
            {
                "row": int(i),
                "feature": self.features[k],
                "before": before(i, k),
                "after": after(i, k),
            }
            for i, k in np.argwhere(self.edits)
        ]

    def divergences(self) -> dict[str, float]:
        """Return all divergences of the outputs from the target, by name.

        "mmd" has the bandwidth of the factual outputs and the target, whatever the edits.
        """
        h = kernel_bandwidth(np.concatenate([self.factual_outputs, self.target]))
        line = self.outputs[None, :]
        return {
            name: float(path_divergences(line, self.target, name, h)[0]) for name in DIVERGENCES
        }

    def __repr__(self) -> str:
        n = self.edits.shape[0]
        return (
            f"Refinement: {self.n_edits} edits in {n} rows, {self.edit_ratio:.1%} of the original"
            f" ones, effect {self.effect:.1%}"
        )


def refined(estimator: Any, edits: Flags, outputs: Floats, budget: int) -> Refinement:
    """Return what some edits make of the rows of a fitted `SparseCounterfactuals`."""
    setting, stack = estimator._setting, estimator._stack
    x, q = estimator._codes
    z = np.where(edits, q, x)
    points = setting.encoding.points
    moved = float(np.linalg.norm(points(z, stack) - points(x, stack)))
    return Refinement(
        rows=labelled(estimator._factuals, stack.rows(z)),
        edits=edits,
        budget=budget,
        effect=effect_from(setting.factual_outputs, setting.target, estimator.divergence)(outputs),
        divergence=estimator.divergence,
        outputs=outputs,
        factual_outputs=setting.factual_outputs,
        target=setting.target,
        edit_ratio=_share(float(edits.sum()), setting.original_edits),
        distance_ratio=_share(moved, setting.original_distance),
        features=stack.names,
        factuals=estimator._factuals,
    )


def _share(part: float, whole: float) -> float:
    # nothing, where only features without weight differ
    return part / whole if whole else float("nan")


def _cells(rows: Any) -> Any:
    if hasattr(rows, "columns"):
        columns = [np.asarray(rows[c]) for c in rows.columns]
        return lambda i, k: _plain(columns[k][i])
    array = np.asarray(rows)
    return lambda i, k: _plain(array[i, k])


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
