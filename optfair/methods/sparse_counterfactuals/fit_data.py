"""What a fit starts from: parameters, tables, model, target and coupling, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from optfair.errors import DataError, DeclarationError, no_number
from optfair.features.predictor import OUTPUTS, Predictor
from optfair.methods.sparse_counterfactuals.couplings import (
    COUPLINGS,
    VALUES,
    MixedEncoding,
    aligned_coupling,
    coupling_of,
    uniform_coupling,
)
from optfair.methods.sparse_counterfactuals.metrics import (
    DIVERGENCES,
    effect_from,
    output_divergence,
)
from optfair.methods.sparse_counterfactuals.shapley import Attribution, attributed, check_enumerated
from optfair.methods.sparse_counterfactuals.tables import StackedRows, column_indices
from optfair.numbers import Flags, Floats, Indices, check_choice, check_seed, check_vector, whole

# The order in which cells are edited: by weight, or drawn with probabilities by weight.

SELECTIONS = ("top", "sample")


def ordered_cells(
    weights: Floats, editable: Flags, selection: str, rng: np.random.Generator
) -> Indices:
    r"""Return the editable cells in the order in which a growing budget edits them.

    .. math:: \varphi_{ik} = |\phi_{ik}| / \|\phi\|_1

    The first C cells are the edits of budget C, so that edits are nested. "top" goes by
    falling weight, row by row at ties. "sample" draws without replacement with probabilities
    φ, line 7 of Algorithm 1: cells come in the order of E/φ with E exponential. Cells without
    weight come last. Cells where nothing would change are not editable and cost no budget.

    Parameters
    ----------
    weights : array (n, d)
        φ up to a factor; not negative.
    editable : bool array (n, d)
        Cells that may be edited.
    selection : {"top", "sample"}
        How.
    rng : Generator
        For "sample".

    Returns
    -------
    int array (L, 2)
        Row and column of each editable cell.

    Raises
    ------
    DeclarationError
        An unknown name.

    Examples
    --------
    >>> import numpy as np
    >>> weights = np.array([[0.1, 0.5], [0.4, 0.0]])
    >>> editable = np.array([[True, True], [False, True]])
    >>> ordered_cells(weights, editable, "top", np.random.default_rng(0)).tolist()
    [[0, 1], [0, 0], [1, 1]]

    References
    ----------
    You, Bian, Cao: Joint Distribution-Informed Shapley Values for Sparse Counterfactual
    Explanations, Algorithm 1. Efraimidis, Spirakis: Weighted random sampling with a
    reservoir, Information Processing Letters 97, 2006.
    """
    check_choice(selection, "selection", SELECTIONS)
    cells = np.argwhere(editable)
    w = weights[editable]
    if selection == "top":
        return cells[np.argsort(-w, kind="stable")]
    with np.errstate(divide="ignore"):
        key = rng.exponential(size=w.size) / w
    # cells without weight in random order too
    return cells[np.lexsort((rng.random(w.size), key))]


# Parameters of SparseCounterfactuals, and counterfactuals that miss their target.

KNOWN = {
    "coupling": COUPLINGS,
    "attribution": ("p-shap", "cf-shap", "b-shap", "rb-shap"),
    "value": VALUES,
    "selection": SELECTIONS,
    "output": ("auto", *OUTPUTS),
    "outcome": ("score", "label"),
    "divergence": DIVERGENCES,
    "on_missed": ("raise", "keep"),
}
# These may be arrays too.
OPEN = ("coupling", "attribution")


def check_parameters(estimator: Any) -> None:
    """Raise on the first parameter that cannot be used.

    Raises
    ------
    DeclarationError
        Naming the parameter.
    """
    for name, known in KNOWN.items():
        value = getattr(estimator, name)
        if name in OPEN and not isinstance(value, str) and np.ndim(value) == 2:
            continue
        check_choice(value, name, known)
    named = isinstance(estimator.attribution, str)
    if named and estimator.attribution == "rb-shap" and estimator.background is None:
        raise DeclarationError(
            '"rb-shap" compares with a background',
            remedy="give background=, rows of the training set, say",
        )
    check_enumerated(estimator.exact_features)
    check_seed(estimator.random_state, "random_state")


def check_budget(budget: Any, n: int, d: int) -> None:
    """Raise unless a budget is None or a number of cells.

    Raises
    ------
    DataError
    """
    if budget is None:
        return
    if not whole(budget) or not 0 <= budget <= n * d:
        raise DataError(
            f"budget is {budget!r}",
            no_number(budget) or f"{n} rows of {d} features have {n * d} cells",
            f"give a whole number from 0 to {n * d}",
        )


def common_target_class(model: Any, rows: Any) -> Any:
    """Return the class that most counterfactuals are given, of a classifier of two classes.

    None for what has no two classes: then the caller has to name one, or there is none.
    """
    from optfair.features.predictor import Predictor

    classes = Predictor(model).classes if _two_classes(model) else None
    if classes is None:
        return None
    share = Predictor(model, target_class=classes[1]).decided(rows).mean()
    return classes[1] if share >= 0.5 else classes[0]


def check_achieved(
    estimator: Any, name: Any, outputs: tuple[Floats, Floats], decided: tuple[Flags, Flags] | None
) -> tuple[Floats, float]:
    """Return (y*, effect of the counterfactuals themselves), or say what they miss.

    Parameters
    ----------
    estimator : SparseCounterfactuals
        Its target, divergence, outcome and on_missed.
    name : label or None
        The target class.
    outputs : pair of arrays (n,), (m,)
        Outcomes of the rows and of the counterfactuals.
    decided : pair of bool arrays (n,), (m,), or None
        Rows and counterfactuals that the model puts into the target class.

    Raises
    ------
    DataError
        Rows that are at the target already; counterfactuals outside the target class, or no
        nearer to a given target than the rows.
    """
    before, reached = outputs
    target = (
        reached
        if estimator.target is None
        else check_vector(np.atleast_1d(estimator.target), "target")
    )
    if decided is not None and not decided[1].all():
        share = [float(d.mean()) for d in decided]
        effect = 1.0 - (1.0 - share[1]) / (1.0 - share[0]) if share[0] < 1.0 else float("nan")
        missed = np.flatnonzero(~decided[1])
        if estimator.on_missed == "raise":
            raise DataError(
                f"{missed.size} of {decided[1].size} counterfactuals are not in class {name!r}",
                f"the first is row {int(missed[0])}; their counterfactual effect on the decisions"
                f" is {effect:.1%}",
                'drop them, name another target_class=, or set on_missed="keep"',
            )
        if estimator.target is None and estimator.outcome == "label":
            target = np.ones(1)  # what is wanted, not what was reached
    if not output_divergence(before, target, estimator.divergence) > 0.0:
        raise DataError(
            "the factual rows are at the target already",
            f"their {estimator.divergence} divergence from it is 0",
            "nothing has to be edited: leave such rows out",
        )
    achieved = effect_from(before, target, estimator.divergence)(reached)
    if achieved <= 0.0:
        raise DataError(
            "the counterfactuals are no nearer to the target than the factual rows",
            f"their counterfactual effect is {achieved:.1%}",
            "give counterfactuals that reach it, or another target",
        )
    return target, achieved


def _two_classes(model: Any) -> bool:
    from optfair.features.linear_score import LinearScore

    if isinstance(model, (tuple, list, LinearScore)):
        return True
    known = getattr(model, "classes_", None)
    return known is not None and len(known) == 2


# What a fit starts from: tables, model, target and coupling, checked.


@dataclass(frozen=True, eq=False)
class CoupledTables:
    """Factual and counterfactual rows with their coupling, and what the model says of them.

    Attributes
    ----------
    stack : StackedRows
        Factuals, counterfactuals, background.
    encoding : MixedEncoding
        Distances between rows.
    predictor : Predictor
        Score of the target class.
    label : bool
        Whether outcomes are decisions in place of scores.
    coupling : array (n, m)
        p.
    factual_outputs, target : arrays (n,), (m,)
        f(x) and y*.
    goals : array (n,)
        What each row has to reach: the mean outcome of its counterfactuals, the mean of a
        given y*, or the decision for the target class.
    achieved : float
        Counterfactual effect of the counterfactuals themselves.
    original_edits, original_distance : float
        Edits from x to r and ‖r − x‖, expected under the alignment, or else the coupling.
    """

    stack: StackedRows
    encoding: MixedEncoding
    predictor: Predictor
    label: bool
    coupling: Floats
    factual_outputs: Floats
    target: Floats
    goals: Floats
    achieved: float
    original_edits: float
    original_distance: float

    @classmethod
    def of(
        cls,
        estimator: Any,
        factuals: Any,
        counterfactuals: Any,
        alignment: Any,
        rng: np.random.Generator,
    ) -> CoupledTables:
        """Return the tables of an estimator with these rows; the model is asked for both tables.

        Raises
        ------
        DataError, DeclarationError
            Whatever does not fit, before anything is computed from it.
        """
        tables = [factuals, counterfactuals]
        tables += [] if estimator.background is None else [estimator.background]
        stack = StackedRows.of(*tables, categorical=estimator.categorical)
        x, r = stack.blocks[:2]
        n, m = x.shape[0], r.shape[0]
        check_budget(estimator.budget, n, x.shape[1])
        column_indices(stack.names, estimator.immutable)
        encoding = MixedEncoding.of(stack, estimator.feature_weights)
        # the model before the coupling: what it refuses is refused before any work
        predictor, outputs, target, achieved = _judged(estimator, stack.rows(x), stack.rows(r))
        cost = encoding.cost(x, r)
        coupling = coupling_of(
            estimator.coupling,
            n,
            m,
            cost=lambda: cost,
            rng=rng,
            alignment=alignment,
            regularization=estimator.regularization,
        )
        pairs = (coupling if alignment is None else aligned_coupling(n, m, alignment)) * n
        i, j = np.nonzero(pairs)
        label = estimator.outcome == "label"
        if estimator.target is not None:
            goals = np.full(n, target.mean())
        else:
            goals = np.ones(n) if label else coupling @ outputs[1] / coupling.sum(axis=1)
        return cls(
            stack,
            encoding,
            predictor,
            label,
            coupling,
            outputs[0],
            target,
            goals,
            achieved,
            float(pairs[i, j] @ (x[i] != r[j]).sum(axis=1)),
            float(np.sqrt((pairs * cost).sum())),
        )

    @property
    def x(self) -> Indices:
        """Codes of the factual rows."""
        return self.stack.blocks[0]

    @property
    def r(self) -> Indices:
        """Codes of the counterfactuals."""
        return self.stack.blocks[1]

    def outcome(self, rows: Any) -> Floats:
        """Return what the effect is measured on: scores, or decisions as 0 and 1."""
        return _outcome(self.predictor, rows, self.label)


def attribution_of(
    estimator: Any, tables: CoupledTables, alignment: Any, rng: np.random.Generator
) -> Attribution:
    """Return the attribution that an estimator names, or the one it was given.

    Raises
    ------
    DataError, DeclarationError
        A given one that does not fit, "b-shap" without alignment.
    """
    x, other, coupling = tables.x, tables.r, tables.coupling
    n, m = x.shape[0], other.shape[0]
    kind = estimator.attribution
    if not isinstance(kind, str):
        given = np.asarray(kind, dtype=np.float64)
        if given.shape != x.shape or not np.isfinite(given).all():
            raise DataError(
                "attribution does not fit the rows",
                f"shape {given.shape} for {x.shape}, or entries that are not finite",
                "give one finite number per cell",
            )
        return Attribution(given, np.zeros(x.shape), "given", np.full(n, np.nan), 0)
    if kind == "rb-shap":
        other = tables.stack.blocks[2]
        coupling = uniform_coupling(n, other.shape[0])
    elif kind == "b-shap":
        coupling = aligned_coupling(n, m, alignment)
    return attributed(
        tables.predictor,
        tables.stack,
        x,
        other,
        coupling,
        exact_features=estimator.exact_features,
        samples=estimator.samples,
        random_state=rng,
    )


def labelled(given: Any, rows: Any) -> Any:
    """Return rows with the row labels of those they stand for, where there are any."""
    return rows.set_axis(given.index, axis=0) if hasattr(rows, "set_axis") else rows


def _judged(
    estimator: Any, before: Any, after: Any
) -> tuple[Predictor, tuple[Floats, Floats], Floats, float]:
    """Ask the model for both tables: what is to be reached, and whether it was."""
    wanted = estimator.target_class
    if wanted is None:
        wanted = common_target_class(estimator.model, after)
    predictor = Predictor(estimator.model, output=estimator.output, target_class=wanted)
    label = estimator.outcome == "label"
    outputs = _outcome(predictor, before, label), _outcome(predictor, after, label)
    decided = None
    if predictor.classes is not None:
        decided = predictor.decided(before), predictor.decided(after)
    target, achieved = check_achieved(estimator, predictor.target_class, outputs, decided)
    return predictor, outputs, target, achieved


def _outcome(predictor: Predictor, rows: Any, label: bool) -> Floats:
    return np.asarray(predictor.decided(rows), dtype=np.float64) if label else predictor(rows)
