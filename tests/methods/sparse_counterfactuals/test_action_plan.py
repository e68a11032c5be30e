"""Declared plans of edits: choices from a model or from tables, rules, and what is read back."""

from __future__ import annotations

from itertools import product
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import optfair as of
from optfair.features.feature_problem import box, immutable, monotone
from optfair.methods.sparse_counterfactuals.action_plan import ActionPlan, MinimumEdits
from optfair.methods.sparse_counterfactuals.choice_problem import (
    edited_together,
    implies,
    row_budget,
)
from optfair.methods.sparse_counterfactuals.choices import (
    Choices,
    common_unit,
    edit_sets,
    enumerated_choices,
)
from optfair.methods.sparse_counterfactuals.tables import Cells

EDITS = [[0, 0], [1, 0], [0, 1], [1, 1]]
EFFECTS = [[-0.5, -0.1, -0.4, 0.0], [-0.6, -0.5, -0.4, 0.0]]


def score(rows: Any) -> Any:
    """A score with interactions, so that no shortcut over sums of features is right."""
    X = np.asarray(rows, dtype=float)
    return 1.0 / (1.0 + np.exp(-(X.sum(axis=1) + X[:, 0] * X[:, 1])))


def rows(n: int = 6, d: int = 4, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X, q = rng.normal(size=(n, d)) - 1.0, rng.normal(size=(n, d)) + 1.0
    return X, np.where(rng.random((n, d)) < 0.3, X, q)


def plan(budget: float = 5, **options: Any) -> Any:
    X, q = rows()
    return ActionPlan.from_model(score, X, q, target=score(q), budget=budget, **options)


def test_choices_are_the_scores_of_every_set_of_edits() -> None:
    X, q = rows()
    c = plan().choices
    target = score(q).mean()
    seen = set()
    for i, S, g in zip(c.row, c.edits, c.effects, strict=True):
        assert g == pytest.approx(score(np.where(S, q[i], X[i])[None])[0] - target, abs=1e-15)
        assert not (S & (X[i] == q[i])).any()  # an edit that changes nothing is no choice
        seen.add((int(i), tuple(S)))
    assert len(seen) == c.size == sum(2**k for k in (q != X).sum(axis=1))
    assert not c.edits[c.starts[:-1]].any()


@pytest.mark.parametrize("memory", [1, 1_000, 10**9])
def test_batches_do_not_change_the_scores(memory: int) -> None:
    sizes = []

    def counted(batch: Any) -> Any:
        sizes.append(len(batch))
        return score(batch)

    X, q = rows()
    p = ActionPlan.from_model(counted, X, q, target=0.5, budget=3, memory=memory)
    # BLAS may add up a short batch in another order
    np.testing.assert_allclose(p.choices.effects, plan().choices.effects + score(q).mean() - 0.5)
    assert max(sizes) <= max(1, memory // (32 * 4)) and sum(sizes) == p.choices.size
    assert (len(sizes) == 1) == (memory == 10**9)


@given(st.integers(1, 7), st.integers(0, 8), st.integers(0, 1000))
def test_bounded_sets_are_all_the_small_ones(d: int, most: int, seed: int) -> None:
    differ = np.random.default_rng(seed).random((3, d)) < 0.6
    row, edits = edit_sets(differ, most)
    for i in range(3):
        mine = {tuple(map(bool, S)) for S in edits[row == i]}
        every = {
            S
            for S in product([False, True], repeat=d)
            if sum(S) <= most and not (np.array(S) & ~differ[i]).any()
        }
        assert mine == every and (row == i).sum() == len(every)
        assert not edits[row == i][0].any()


def test_rows_of_many_features_need_bounded_sets() -> None:
    X, q = np.zeros((2, 40)), np.ones((2, 40))
    with pytest.raises(of.DataError, match="sets of edits") as e:
        ActionPlan.from_model(score, X, q, target=1.0, budget=2)
    assert "most_edits" in str(e.value)
    p = ActionPlan.from_model(score, X, q, target=1.0, budget=2, most_edits=2)
    assert p.choices.size == 2 * (1 + 40 + 780)


def test_evidence_and_terms_agree_with_cvxpy() -> None:
    for p in (
        plan(),
        MinimumEdits(EFFECTS, EDITS, effect=0.5),
        MinimumEdits(EFFECTS, EDITS, effect=0.5, overshoot=False),
        plan().with_constraints(each=row_budget(2), pair=implies(0, 1)),
    ):
        assert str(p.problem_class) == "MILP" and p.certificate.verify()
        rng = np.random.default_rng(0)
        values = {k: rng.normal(size=v.shape) for k, v in p.variables.items()}
        built, variables, constraints = p.built(fresh=True)
        for name, v in variables.items():
            v.save_value(values[name])
        assert built.objective.value == pytest.approx(p.objective_value(values))
        for name, c in constraints.items():
            np.testing.assert_allclose(
                p.constraints[name].violation(values), np.abs(c.violation()), atol=1e-12
            )


def test_terms_are_evaluated_as_they_are_counted_by_hand() -> None:
    X, q = rows()
    c = enumerated_choices(score, Cells.of(X, q), 0.5)
    p = ActionPlan(c, budget=3).with_constraints(each=row_budget(1))
    rng = np.random.default_rng(0)
    a, eta = rng.normal(size=c.size), float(rng.normal())
    values, total = {"choice": a, "deviation": np.array(eta)}, float(c.effects @ a)
    by_hand = {
        "one choice": np.abs(np.bincount(c.row, a, c.rows) - 1.0),
        "nonnegativity": np.maximum(-a, 0.0),
        "above": max(total - eta, 0.0),
        "below": max(-total - eta, 0.0),
        "budget": max(float(c.costs @ a) - 3.0, 0.0),
        "each": max(float(a[c.costs > 1.0].sum()), 0.0),
    }
    assert by_hand.keys() == p.constraints.keys()
    for name, expected in by_hand.items():
        np.testing.assert_allclose(p.constraints[name].violation(values), expected, atol=1e-12)
    assert str(p.problem_class) == "MILP" and p.solve("action-dp").is_optimal(1e-9)


def test_choices_cannot_change_afterwards() -> None:
    with pytest.raises(ValueError, match="read-only"):
        plan().choices.effects[0] = 1.0


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_frames_keep_their_types_and_categories(frame: Any) -> None:
    x = frame({"income": [10.0, 20.0, 15.0], "job": ["none", "clerk", "clerk"], "kids": [0, 1, 2]})
    q = frame({"income": [30.0, 20.0, 45.0], "job": ["clerk", "clerk", "chef"], "kids": [0, 1, 2]})
    kinds = []

    def model(batch: Any) -> Any:
        kinds.append((type(batch), [str(batch[c].dtype) for c in batch.columns]))
        jobs = np.asarray([{"none": 0.0, "clerk": 0.3, "chef": 0.4}[j] for j in batch["job"]])
        return np.asarray(batch["income"]) / 100 + jobs

    p = ActionPlan.from_model(model, x, q, target=model(q), budget=9)
    assert p.features == ("income", "job", "kids")
    assert np.bincount(p.choices.row).tolist() == [4, 1, 4]
    assert all(kind == (type(x), [str(x[c].dtype) for c in x.columns]) for kind in kinds)
    s = p.solve()
    assert abs(s.objective) < 1e-9
    refined = p.refined(s)
    assert type(refined) is type(x) and list(refined["job"]) == list(q["job"])
    assert list(refined["income"]) == [30.0, 20.0, 45.0]
    assert p.edits(s).tolist() == [[True, True, False], [False] * 3, [True, True, False]]


def test_object_rows_keep_their_entries() -> None:
    x = np.array([[1, "a"], [2, "b"]], dtype=object)
    q = np.array([[3, "b"], [2, "c"]], dtype=object)
    cells = Cells.of(x, q)
    assert cells.differ.tolist() == [[True, True], [False, True]]
    out = cells.rows(np.array([0, 1]), np.array([[True, False], [True, True]]))
    assert out.tolist() == [[3, "a"], [2, "c"]]


def test_what_a_solution_says() -> None:
    X, q = rows()
    p = plan(budget=4)
    s = p.solve()
    z = p.refined(s)
    edits = p.edits(s)
    assert edits.dtype == bool and edits.sum() <= 4 == p.budget
    assert (np.where(edits, q, X) == z).all() and ((z != X) == edits).all()
    D = abs(score(z).mean() - score(q).mean())
    assert p.mean_difference(s) == pytest.approx(D, abs=1e-12)
    assert s.objective == pytest.approx(len(X) * D, abs=1e-12)
    before = abs(score(X).mean() - score(q).mean())
    assert p.counterfactual_effect(s) == pytest.approx(1 - D / before, abs=1e-12)
    assert p.cost(s) == edits.sum()
    assert p.full_effect == pytest.approx(1.0)
    with pytest.raises(of.DataError, match="fractional"):
        p.edits(of.transforms.relax_integrality(p).problem.solve())
    with pytest.raises(of.DeclarationError, match="from_model"):
        tables = ActionPlan(EFFECTS, EDITS, budget=1)
        tables.refined(tables.solve())


def test_tables_of_several_shapes_are_the_same_problem() -> None:
    shared = ActionPlan(EFFECTS, EDITS, budget=3)
    each = ActionPlan(EFFECTS, [EDITS, EDITS], budget=3)
    ragged = ActionPlan([EFFECTS[0], EFFECTS[1][:3]], [EDITS, EDITS[:3]], budget=3)
    assert shared.solve().objective == pytest.approx(0.1)
    assert each.solve().objective == pytest.approx(0.1)
    # without the last set of edits the second row stays at -0.4
    assert ragged.solve().objective == pytest.approx(0.4)
    assert ragged.choices.size == 7


def test_a_smaller_budget_keeps_the_rules() -> None:
    p = plan(budget=8).with_constraints(each=row_budget(1))
    q = p.with_budget(2)
    assert "each" in q.constraints and q.budget == 2 and p.budget == 8
    assert q.solve().objective > p.solve().objective
    assert q.solve().objective == pytest.approx(q.solve("highs").objective, abs=1e-9)
    assert p.edits(q.solve()).sum() <= 2


RULES = {
    "row budget": (lambda: {"r": row_budget(1)}, lambda S, D: (S.sum(1) <= 1).all()),
    "row budgets": (
        lambda: {"r": row_budget([0, 1, 2, 3, 4, 0])},
        lambda S, D: (S.sum(1) <= [0, 1, 2, 3, 4, 0]).all(),
    ),
    "implies": (
        lambda: {"r": implies(0, 1)},
        lambda S, D: (~S[:, 0] | S[:, 1] | ~D[:, 1]).all(),
    ),
    "together": (
        lambda: {"r": edited_together([1, 2])},
        lambda S, D: (
            np.isin(S[:, 1:3].sum(1), [0]).all()
            or all(s.sum() in (0, d.sum()) for s, d in zip(S[:, 1:3], D[:, 1:3], strict=True))
        ),
    ),
    "immutable": (lambda: {"r": immutable(0, 3)}, lambda S, D: not S[:, [0, 3]].any()),
}


@pytest.mark.parametrize("rule", RULES)
def test_rules_leave_out_what_they_say(rule: str) -> None:
    make, holds = RULES[rule]
    p = plan(budget=9)
    q = p.with_constraints(make())
    X, values = rows()
    left = {
        (int(i), tuple(S))
        for i, S, out in zip(q.choices.row, q.choices.edits, q.exclusions()["r"], strict=True)
        if not out
    }
    for i, S in zip(q.choices.row, q.choices.edits, strict=True):
        one = np.zeros(X.shape, dtype=bool)
        one[i] = S
        assert ((int(i), tuple(S)) in left) == bool(holds(one, values != X)), (i, S)
    s, h = q.solve(), q.solve("highs")
    assert s.solver == "action-dp"
    assert s.objective == pytest.approx(h.objective, abs=1e-9)
    assert holds(q.edits(s), values != X)
    assert s.objective >= p.solve().objective - 1e-9


def test_boxes_and_directions_read_the_values() -> None:
    x, q = np.array([[0.0, 5.0], [2.0, 5.0]]), np.array([[4.0, 3.0], [1.0, 7.0]])
    p = ActionPlan.from_model(lambda r: r.sum(axis=1), x, q, target=8.0, budget=4)
    up = p.with_constraints(up=monotone(increasing=[0]))
    assert up.edits(up.solve())[1, 0] == False  # noqa: E712
    low = p.with_constraints(low=box({1: (None, 6.0)}))
    assert low.edits(low.solve())[1, 1] == False  # noqa: E712
    for r in (up, low):
        assert r.solve().objective == pytest.approx(r.solve("highs").objective, abs=1e-9)
    with pytest.raises(of.DeclarationError, match="from_model"):
        ActionPlan(EFFECTS, EDITS, budget=1).with_constraints(low=box({1: (None, 6.0)}))
    texts = np.array([[1, "a"], [2, "b"]], dtype=object)
    t = ActionPlan.from_model(
        lambda r: r[:, 0].astype(float), texts, texts[::-1], target=3.0, budget=1
    )
    with pytest.raises(of.DeclarationError, match="not a number"):
        t.with_constraints(up=monotone(increasing=[1]))


def test_a_row_budget_has_no_slack_but_rounding() -> None:
    costs = [1.0, 1.0 + 5e-13, 1.005, 1.00001, 0.999]
    edits = np.eye(5, dtype=int)[[0, 0, 1, 2, 3, 4]]
    edits[0] = 0
    effects = [-0.5, -0.4, -0.3, 0.0, -0.1, -0.45]
    p = ActionPlan([effects], edits, budget=5, costs=costs)
    q = p.with_constraints(each=row_budget(1.0))
    allowed = [
        bool(q.constraints["each"].relative_violation({"choice": row}) <= 1e-9) for row in np.eye(6)
    ]
    assert allowed == [True, True, True, False, False, True]
    assert p.solve().objective == pytest.approx(0.0, abs=1e-12)
    for solver in ("highs", None):
        s = q.solve(solver)
        assert s.objective == pytest.approx(0.3)
        assert np.flatnonzero(s["choice"]).tolist() == [2]


def test_constraints_on_single_rows_keep_the_route() -> None:
    p = plan(budget=6)
    a, c = p["choice"], p.choices
    sizes = c.edits.sum(axis=1)
    first = c.starts[1]
    kept = {
        "bound": sizes[:first] @ a[:first] <= 1,
        "equal": sizes[:first] @ a[:first] == 2,
        "least": sizes[:first] @ a[:first] >= 1,
        "none": a[[1, 2, 20]] == 0,
        "taken": a[3] >= 1,
        "rows": np.eye(6)[:, c.row] @ cp.multiply(sizes, a) <= 1,
    }
    for name, constraint in kept.items():
        q = p.with_constraints({name: constraint})
        assert q.structure_refusal("row-choices") == "", name
        s = q.solve()
        assert s.solver == "action-dp", name
        assert s.objective == pytest.approx(q.solve("highs").objective, abs=1e-9), name


def test_other_constraints_go_to_the_general_solver() -> None:
    p = plan(budget=6)
    a, n = p["choice"], p.choices.size
    lost = {
        "ties": a[1] + a[n - 1] <= 1,
        "second budget": p.choices.edits[:, 0] @ a <= 2,
        "curved": cp.sum_squares(a[:3]) <= 1,
        "deviation": p["deviation"] >= 0.5,
    }
    for name, constraint in lost.items():
        q = p.with_constraints({name: constraint})
        assert name in q.structure_refusal("row-choices")
        with pytest.raises(of.UnsupportedProblem, match=name):
            q.solve("action-dp")
    for name in ("ties", "second budget", "deviation"):
        s = p.with_constraints({name: lost[name]}).solve()
        assert s.solver == "highs" and not s.residuals().above(1e-7)
    assert p.without("one choice").structure_refusal("row-choices") == "'one choice' was removed"
    assert "not integer" in of.transforms.relax_integrality(p).problem.structure_refusal(
        "row-choices"
    )
    assert "objective" in p.soften("budget", 1.0).structure_refusal("row-choices")
    # a child forgets what was found for its parent
    assert p.structure_refusal("row-choices") == ""


def test_without_the_budget_every_edit_may_be_made() -> None:
    p = plan(budget=1).without("budget")
    s = p.solve()
    assert s.solver == "action-dp" and s.objective == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"budget": -1}, "budget is -1"),
        ({"budget": 5}, "budget is 5"),
        ({"budget": np.nan}, "budget is nan"),
        ({"budget": "many"}, "budget is 'many'"),
        ({"effects": [[0.0, np.nan, 1.0, 2.0]] * 2}, "NaN"),
        ({"effects": []}, "empty"),
        ({"effects": [[0.0, 1.0]] * 2}, "2 effects for 4 sets"),
        ({"effects": [["a"] * 4] * 2}, "not numbers"),
        ({"effects": 3.0}, "float"),
        ({"edits": [[0, 0], [0, 0], [0, 1], [1, 1]]}, "twice"),
        ({"edits": [[0, 2]] * 4}, "other than 0 and 1"),
        ({"edits": [EDITS]}, "1 tables of edits for 2 rows"),
        ({"edits": [EDITS, [[0], [1], [0], [1]]]}, "row 1 edits 1 features"),
        ({"edits": None}, "edits is missing"),
        ({"costs": [1.0]}, "costs does not fit"),
        ({"costs": [1.0, -1.0]}, "costs does not fit"),
        ({"costs": [1.0, np.inf]}, "NaN or infinite"),
        ({"features": ["a"]}, "names for 2 features"),
        ({"features": ["a", "a"]}, "names for 2 features"),
    ],
)
def test_bad_tables_are_refused(change: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {"effects": EFFECTS, "edits": EDITS, "budget": 3, **change}
    with pytest.raises((of.DataError, of.DeclarationError), match=words) as e:
        ActionPlan(**given)
    assert e.value.remedy


@pytest.mark.parametrize(
    ("predict", "words"),
    [
        (lambda r: np.full(len(r), np.nan), "NaN"),
        (lambda r: np.full((len(r), 2), 0.5), "shape"),
        (lambda r: np.full(3, 0.5), "shape"),
        (lambda r: 0.5, "shape"),
        (lambda r: ["good"] * len(r), "numbers"),
        (None, "cannot be called"),
    ],
)
def test_bad_models_are_refused(predict: Any, words: str) -> None:
    X, q = rows()
    with pytest.raises((of.DataError, of.DeclarationError), match=words):
        ActionPlan.from_model(predict, X, q, target=0.5, budget=1)


def test_bad_rows_are_refused() -> None:
    X, q = rows()
    cases = {
        "does not fit": (X, q[:-1]),
        "missing": (np.where(X[0, 0] == X, np.nan, X), q),
        "data frame": (pd.DataFrame(X), q),
        "other columns": (
            pd.DataFrame(X, columns=[*"abcd"]),
            pd.DataFrame(q, columns=[*"abdc"]),
        ),
        "different lengths": ([[1.0], [1.0, 2.0]], [[1.0], [1.0, 2.0]]),
        r"values has missing entries in 'b'": (
            pd.DataFrame({"a": X[:, 0], "b": pd.array(["u"] * len(X), dtype="string")}),
            pd.DataFrame({"a": q[:, 0], "b": pd.array([None] * len(q), dtype="string")}),
        ),
    }
    for words, (x, v) in cases.items():
        with pytest.raises(of.DataError, match=words):
            ActionPlan.from_model(score, x, v, target=0.5, budget=1)
    for target in (np.nan, "high", [[0.5]], []):
        with pytest.raises(of.DataError, match="target"):
            ActionPlan.from_model(score, X, q, target=target, budget=1)
    with pytest.raises(of.DeclarationError, match="most_edits"):
        ActionPlan.from_model(score, X, q, target=0.5, budget=1, most_edits=1.5)  # type: ignore[arg-type]


def test_required_effects_are_checked_against_the_counterfactuals() -> None:
    for effect in (0.0, -1, 1.5, np.nan, "all"):
        with pytest.raises(of.DataError, match="effect is"):
            MinimumEdits(EFFECTS, EDITS, effect=effect)
    short = np.minimum(EFFECTS, -0.2)
    with pytest.raises(of.DataError, match=r"reaches 0\.6364") as e:
        MinimumEdits(short, EDITS, effect=0.8)
    assert "counterfactuals" in str(e.value)
    with pytest.raises(of.DataError, match="at the target"):
        MinimumEdits(np.zeros((2, 4)), EDITS, effect=0.8)
    with pytest.raises(of.DataError, match="without edits"):
        MinimumEdits([[0.1], [0.2]], [[1]], effect=0.8)


def test_rules_on_edits_need_edits() -> None:
    x = cp.Variable(2, name="x")
    p: Any = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= 0]))
    for rule in (row_budget(1), implies(0, 1), edited_together([0, 1])):
        with pytest.raises(of.DeclarationError, match="rule on edits"):
            p.with_constraints(rule=rule)
    q = plan()
    for rule, words in (
        (implies(0, 0), "itself"),
        (implies("age", 0), "no feature"),
        (row_budget([1, 2]), "row_budget"),
        (edited_together([0, 0]), "twice"),
    ):
        with pytest.raises((of.DeclarationError, of.DataError), match=words):
            q.with_constraints(rule=rule)
    with pytest.raises(of.DeclarationError, match="two features"):
        edited_together("housing")


def test_units_of_costs() -> None:
    assert common_unit(np.array([2.0, 4.0, 6.0])) == 2.0
    assert common_unit(np.array([0.0, 0.0])) == 1.0
    assert common_unit(np.array([0.1, 0.25])) == pytest.approx(0.05)
    assert common_unit(np.array([np.pi, 1.0])) is None


def test_choices_hand_over_as_they_are() -> None:
    X, q = rows()
    cells = Cells.of(X, q)
    c = enumerated_choices(score, cells, 0.5)
    assert isinstance(c, Choices)
    p = ActionPlan(c, budget=2, cells=cells)
    m = MinimumEdits(c, effect=0.5, cells=cells)
    assert p.features == m.features == ("x0", "x1", "x2", "x3")
    with pytest.raises(of.DeclarationError, match="already"):
        ActionPlan(c, EDITS, budget=2)


def test_of_yes_and_no_each_row_is_a_problem_of_its_own() -> None:
    X, q = rows(8, 5, seed=3)
    q = X + np.abs(q)

    def accepted(batch: Any) -> Any:
        return (np.asarray(batch).sum(axis=1) > -2.0).astype(float)

    X, q = X[accepted(X) < accepted(q)], q[accepted(X) < accepted(q)]
    assert len(X) >= 3
    p = MinimumEdits.from_model(accepted, X, q, target=1.0, effect=1.0)
    s = p.solve()
    fewest = [
        min(
            sum(S)
            for S in product([False, True], repeat=5)
            if accepted(np.where(S, q[i], X[i])[None])[0]
            and not (np.array(S) & (q[i] == X[i])).any()
        )
        for i in range(len(X))
    ]
    assert p.edits(s).sum(axis=1).tolist() == fewest and s.objective == sum(fewest)
    assert accepted(p.refined(s)).all()


def test_a_negative_row_budget_is_refused() -> None:
    with pytest.raises(of.DeclarationError, match="row_budget is -1 in some row"):
        plan().with_constraints(each=row_budget(-1))
