"""Counterfactuals refined to few edits, with scikit-learn's conventions."""

from __future__ import annotations

import copy
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from optfair.errors import DataError
from optfair.methods.sparse_counterfactuals.action_plan import ActionPlan, MinimumEdits
from optfair.methods.sparse_counterfactuals.couplings import assigned_values
from optfair.methods.sparse_counterfactuals.fit_data import (
    CoupledTables,
    attribution_of,
    check_budget,
    check_parameters,
    labelled,
    ordered_cells,
)
from optfair.methods.sparse_counterfactuals.generators import Counterfactuals
from optfair.methods.sparse_counterfactuals.metrics import effect_from
from optfair.methods.sparse_counterfactuals.refinement import EditPath, Refinement, pruned, refined
from optfair.methods.sparse_counterfactuals.tables import column_indices
from optfair.numbers import Floats, Indices, check_number, check_table, checked
from optfair.rows.frames import generator

# An effect that misses what is asked for by rounding only reaches it.
REACHED = 1e-9


@dataclass(eq=False, repr=False)
class SparseCounterfactuals(BaseEstimator):  # type: ignore[misc]
    r"""Keep the effect of counterfactuals with few of their edits (COLA).

    .. math::
        p = A_{\text{Prob}}(x, r),\quad \phi = A_{\text{Shap}}(x, r, p),\quad
        q = A_{\text{Value}}(r, p),\quad
        z_{ik} = q_{ik} \text{ for the } C \text{ cells of largest } |\phi_{ik}|

    A heuristic for the problem of fewest edits, which is NP-hard: `plan` and `fewest` give the
    declared problems whose optimum it may be judged by. Only cells with x_ik ≠ q_ik are
    edited, so no budget is spent where nothing would change; edits are nested in the budget.

    Parameters
    ----------
    model : fitted model, (coef, intercept) or callable
        Anything with ``predict_proba``, ``decision_function`` or ``predict``, pipelines that
        encode raw categories included, or a function of rows.
    coupling : {"ot", "entropic", "uniform", "random", "aligned", "nearest"} or array (n, m)
        A_Prob: which counterfactual serves which row.
    attribution : {"p-shap", "cf-shap", "b-shap", "rb-shap"} or array (n, d)
        A_Shap: p-SHAP with the coupling ("cf-shap" is the same, the coupling being the
        distribution of counterfactuals), with every row's own counterfactual, or with
        ``background``.
    value : {"max", "avg"}
        A_Value: the most probable counterfactual (drawn at ties), or the average of the
        coupled ones, which never invents a category.
    selection : {"top", "sample"}
        The C largest \|φ\|, or C cells drawn with probabilities \|φ\|.
    arrived_last : bool
        Whether rows whose outcome has reached that of their counterfactuals are edited further
        only after all others; False is Algorithm 1 as printed.
    budget : int, optional
        C of `refine`, all cells by default.
    output : {"auto", "predict_proba", "decision_function", "predict"}
        Score f that is attributed.
    outcome : {"score", "label"}
        What the effect is measured on: the score, or the decision for the target class (0 or
        1).
    divergence : {"ot", "mmd", "mean", "median"}
        D, between outcomes.
    target_class : label, optional
        Class to reach; of two, the one that most counterfactuals are given.
    target : float or array-like, optional
        y*, in units of the outcome; f(r) by default.
    on_missed : {"raise", "keep"}
        What to do when counterfactuals are not in the target class: the effect of all of them
        is stated, and ``achieved_`` where they are kept.
    immutable : sequence of str or int
        Features that are never edited.
    categorical : sequence of str or int
        Columns of numbers that are codes of categories.
    feature_weights : array-like (d,) or dict, optional
        Weight of each feature in the distances of the coupling.
    regularization : float, optional
        ε of "entropic", in units of the squared distance; 0.05 of its mean by default.
    background : array or data frame, optional
        Rows of "rb-shap".
    exact_features, samples : int
        See `p_shap`.
    random_state : int, Generator, RandomState or None
        Seeds "random", "sample", ties and sampled attributions.

    Attributes
    ----------
    coupling_ : array (n, m)
    attribution_ : array (n, d)
        φ, signed.
    attribution_error_ : array (n, d)
        Its standard errors, 0 where exact.
    attribution_method_ : str
        "exact", "linear", "sampled", "mixed" or "given".
    values_ : array or data frame (n, d)
        q, with the immutable features as they are.
    editable_ : bool array (n, d)
        Cells with x_ik ≠ q_ik.
    order_ : int array (L, 2)
        Editable cells in the order of their edits.
    factual_outputs_, target_ : arrays (n,), (m,)
        f(x) and y*.
    achieved_ : float
        Counterfactual effect of the counterfactuals themselves, 1 where y* is f(r).
    original_edits_ : float
        Edits from x to r, expected under the alignment, or else under the coupling.
    target_class_ : label or None

    Raises
    ------
    DataError
        Rows, coupling or attribution that do not fit, a model that refuses rows (unseen
        categories), returns NaN or a wrong shape, counterfactuals that miss the target, a
        budget below 0 or above nd.
    DeclarationError
        Parameters out of range.

    Examples
    --------
    Only the first feature matters to the model; the counterfactuals change both.

    >>> import numpy as np
    >>> from optfair.methods.sparse_counterfactuals.sparse_counterfactuals import SparseCounterfactuals
    >>> model = lambda rows: 1.0 / (1.0 + np.exp(-rows[:, 0]))
    >>> x = np.array([[-1.0, 0.0], [-2.0, 1.0]])
    >>> r = np.array([[1.0, 3.0], [2.0, 5.0]])
    >>> cola = SparseCounterfactuals(model).fit(x, r)
    >>> cola.minimum_actions(effect=1.0)
    Refinement: 2 edits in 2 rows, 50.0% of the original ones, effect 100.0%
    >>> cola.refine(1).rows.tolist()
    [[-1.0, 0.0], [2.0, 1.0]]
    >>> plan = cola.plan(budget=1)  # the optimum for that budget, as a declared problem
    >>> plan.problem_class, plan.edits(plan.solve()).astype(int).tolist()
    (MILP, [[0, 0], [1, 0]])

    References
    ----------
    You, Bian, Cao: Joint Distribution-Informed Shapley Values for Sparse Counterfactual
    Explanations, Algorithm 1.
    """

    model: Any
    _: KW_ONLY
    coupling: Any = "ot"
    attribution: Any = "p-shap"
    value: str = "max"
    selection: str = "top"
    arrived_last: bool = True
    budget: int | None = None
    output: str = "auto"
    outcome: str = "score"
    divergence: str = "ot"
    target_class: Any = None
    target: Any = None
    on_missed: str = "raise"
    immutable: Any = ()
    categorical: Any = ()
    feature_weights: Any = None
    regularization: float | None = None
    background: Any = None
    exact_features: int = 12
    samples: int | None = None
    random_state: Any = None

    def __sklearn_clone__(self) -> SparseCounterfactuals:
        # the model comes fitted, and clones of it would not be
        given = self.get_params(deep=False)
        model = given.pop("model")
        return type(self)(model, **{name: clone(v, safe=False) for name, v in given.items()})

    @checked(factuals=check_table)
    def fit(
        self, factuals: Any, counterfactuals: Any, *, alignment: Any = None
    ) -> SparseCounterfactuals:
        """Couple, attribute and assign values, and order the edits.

        Parameters
        ----------
        factuals : array or data frame (n, d)
            x.
        counterfactuals : array or data frame (m, d), or Counterfactuals
            r, from any generator; n and m may differ. `Counterfactuals` bring their alignment.
        alignment : array-like (m,) of int, optional
            Factual row of each counterfactual, for ``coupling="aligned"`` and "b-shap"; row j
            for counterfactual j by default where n = m.

        Returns
        -------
        SparseCounterfactuals
            Itself.
        """
        check_parameters(self)
        if isinstance(counterfactuals, Counterfactuals):
            alignment = counterfactuals.alignment if alignment is None else alignment
            counterfactuals = counterfactuals.rows
        counterfactuals = check_table(counterfactuals, "counterfactuals")
        rng = generator(self.random_state).spawn(4)
        tables = CoupledTables.of(self, factuals, counterfactuals, alignment, rng[3])
        attribution = attribution_of(self, tables, alignment, rng[0])
        known, q = assigned_values(tables.stack, tables.r, tables.coupling, self.value, rng[2])
        held = column_indices(known.names, self.immutable)
        x = known.blocks[0]
        q[:, held] = x[:, held]
        self.coupling_ = tables.coupling
        self.attribution_, self.attribution_error_ = attribution.values, attribution.standard_error
        self.attribution_method_ = attribution.method
        self.editable_ = x != q
        self.predictor_, self.target_class_ = tables.predictor, tables.predictor.target_class
        self.factual_outputs_, self.target_ = tables.factual_outputs, tables.target
        self.achieved_ = tables.achieved
        self.original_edits_ = tables.original_edits
        self.n_features_in_ = x.shape[1]
        self.feature_names_in_ = np.array(known.names, dtype=object)
        self._coupled, self._stack, self._codes = tables, known, (x, q)
        self._factuals = labelled(factuals, known.rows(x))
        self.values_ = labelled(factuals, known.rows(q))
        self._arrange(self.selection, rng[1])
        return self

    def refine(self, budget: int | None = None) -> Refinement:
        """Return the rows after the first edits.

        Parameters
        ----------
        budget : int, optional
            C, from 0 to nd; that of the constructor by default, else all cells.

        Raises
        ------
        DataError
            A budget below 0 or above nd.
        """
        check_is_fitted(self, "order_")
        n, d = self.editable_.shape
        wanted = self.budget if budget is None else budget
        check_budget(wanted, n, d)
        C = n * d if wanted is None else int(wanted)
        return refined(self, self._path.edits(C), self._path.outputs(C), C)

    def minimum_actions(self, effect: float = 1.0, *, prune: bool = False) -> Refinement:
        """Return the smallest budget of this order of edits that reaches an effect.

        Parameters
        ----------
        effect : float
            Share of the divergence to remove, in (0, 1].
        prune : bool
            Also take edits back that turn out not to be needed. What is left is no longer
            nested in the budget, and minimal but not the minimum; `fewest` is.

        Raises
        ------
        DataError
            An effect outside (0, 1], or one that no budget reaches; the largest is given.
        """
        check_is_fitted(self, "order_")
        check_number(effect, "effect", positive=True, most=1.0)
        effects = self.effects()
        enough = np.flatnonzero(effects >= effect - REACHED)
        if not enough.size:
            other = {"outcome": "label", "divergence": "mean"}
            ways = [f'{k}="{v}"' for k, v in other.items() if getattr(self, k) != v]
            measured = f", measure it on {' or '.join(ways)}" if ways else ""
            raise DataError(
                f"no budget reaches an effect of {effect:g} in this order of edits",
                f"the largest is {effects.max():.4g}, with {int(effects.argmax())} edits",
                f"ask for less{measured}, or solve fewest(effect), which looks at all sets of edits",
            )
        C = int(enough[0])
        edits, outputs = self._path.edits(C), self._path.outputs(C)
        if prune:
            reached = effect_from(self.factual_outputs_, self.target_, self.divergence)
            edits, outputs = pruned(
                self._outcome_of,
                *self._codes,
                edits,
                np.abs(self.attribution_),
                lambda u: reached(u) >= effect - REACHED,
            )
        return refined(self, edits, outputs, C)

    def effects(self, divergence: str | None = None) -> Floats:
        """Return the counterfactual effect of 0, 1, ..., L edits.

        D is that of the constructor by default.
        """
        away = self.divergences(divergence)
        return np.asarray(1.0 - away / away[0]) if away[0] > 0 else np.full(away.shape, np.nan)

    def divergences(self, divergence: str | None = None) -> Floats:
        """Return D(f(z), y*) of 0, 1, ..., L edits, as in Figure 3 of the paper."""
        check_is_fitted(self, "order_")
        return self._path.divergences(self.target_, divergence or self.divergence)

    def reordered(self, selection: str, random_state: Any = None) -> SparseCounterfactuals:
        """Return a fitted copy with its edits in another order; nothing else is computed again.

        Parameters
        ----------
        selection : {"top", "sample"}
            How cells are selected.
        random_state : int, Generator or None
            Seeds "sample".
        """
        check_is_fitted(self, "order_")
        other = copy.copy(self)
        other.selection, other.random_state = selection, random_state
        other._arrange(selection, generator(random_state))
        return other

    def plan(self, budget: int, **options: Any) -> ActionPlan:
        """Return the problem of the least mean difference under a budget, for the same values.

        Parameters
        ----------
        budget : int
            C.
        options
            Of `ActionPlan.from_model`: ``costs``, ``most_edits``, ``memory``.
        """
        plan: ActionPlan = self._stated(ActionPlan, budget=budget, **options)
        return plan

    def fewest(self, effect: float = 1.0, **options: Any) -> MinimumEdits:
        """Return the problem of fewest edits for an effect on the mean, for the same values.

        Parameters
        ----------
        effect : float
            Share of the mean difference to remove, in (0, 1].
        options
            Of `MinimumEdits.from_model`.
        """
        problem: MinimumEdits = self._stated(MinimumEdits, effect=effect, **options)
        return problem

    # --- parts ---------------------------------------------------------------------------

    def _stated(self, model: Any, **options: Any) -> Any:
        check_is_fitted(self, "order_")
        rows = self._coupled.outcome, self._factuals, self.values_
        return model.from_model(*rows, target=self.target_, **options)

    def _arrange(self, selection: str, rng: np.random.Generator) -> None:
        weights = np.abs(self.attribution_)
        cells = ordered_cells(weights, self.editable_, selection, rng)
        path = EditPath.of(self._outcome_of, *self._codes, cells)
        self._path = path.arrived_last(self._coupled.goals) if self.arrived_last else path
        self.order_ = self._path.cells

    def _outcome_of(self, codes: Indices) -> Floats:
        return self._coupled.outcome(self._stack.rows(codes))
