"""Plans of edits declared from a data set and a table of points."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import optfair as of
from optfair.methods.sparse_counterfactuals.action_plan import (
    ActionPlan,
    MinimumEdits,
    Scorecard,
    action_arguments,
)

POINTS: dict[str, Any] = {
    "duration_in_month": -0.8,
    "housing": {"A151": -0.3, "A152": 0.25, "A153": -0.2},
    "sex": {"female": -0.1, "male": 0.1},
}


def table(**changes: Any) -> dict[str, Any]:
    return {
        "dataset": "german_credit",
        "rows": 6,
        "seed": 1,
        "intercept": -0.2,
        "accepted": 0.6,
        "points": POINTS,
        **changes,
    }


def test_rows_are_rejected_and_their_values_accepted() -> None:
    data = of.datasets.load("german_credit")
    score = Scorecard({k: data[k] for k in POINTS}, POINTS, -0.2)
    arguments = action_arguments(table(budget=4))
    p = ActionPlan(**arguments)
    assert p.features == tuple(POINTS) and p.budget == 4 and p.choices.rows == 6
    cells = arguments["cells"]
    n, d = cells.differ.shape
    factuals, values = (cells.rows(np.arange(n), np.full((n, d), to)) for to in (False, True))
    assert (score(factuals) < 0.5).all() and (score(values) >= 0.6).all()
    # the nearest accepted row, by hand, among all of them
    rows = np.column_stack([data[k].astype(object) for k in POINTS])
    accepted = rows[score(rows) >= 0.6]
    points = score.coordinates(accepted)
    for x, q in zip(factuals, values, strict=True):
        apart = np.abs(points - score.coordinates(x[None])).sum(axis=1)
        assert np.abs(score.coordinates(q[None]) - score.coordinates(x[None])).sum() == apart.min()
    # by default the counterfactuals are what is to be reached
    assert p.full_effect == pytest.approx(1.0)
    s = p.solve()
    assert p.refined(s).dtype == object and s.is_optimal(1e-9)


def test_scores_are_logistic_in_the_points() -> None:
    data = of.datasets.load("german_credit")
    months = data["duration_in_month"].astype(float)
    score = Scorecard({k: data[k] for k in POINTS}, POINTS, -0.2)
    row = np.array([[24, "A152", "male"]], dtype=object)
    z = (24 - months.mean()) / months.std()
    assert score(row)[0] == pytest.approx(1 / (1 + np.exp(-(-0.2 - 0.8 * z + 0.25 + 0.1))))


def test_other_entries_are_arguments() -> None:
    plain = {"effects": [[0.0, 1.0]], "edits": [[0], [1]], "budget": 1}
    assert action_arguments(plain) == plain
    a = action_arguments(table(effect=0.8, overshoot=False, target=0.55, costs=[1.0, 2.0, 0.5]))
    m = MinimumEdits(**a)
    assert m.choices.cell_costs.tolist() == [1.0, 2.0, 0.5]
    assert m.data["overshoot"] is False and m.data["effect"] == 0.8


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rows": 0}, "0 rejected rows"),
        ({"rows": 5_000}, "rejects"),
        ({"accepted": 1.0}, "accepts 0"),
        ({"points": {**POINTS, "housing": {"A151": 1.0}}}, "no points for 'A152'"),
        ({"points": {**POINTS, "housing": 1.0}}, "not a number"),
        ({"points": {**POINTS, "house": 1.0}}, "no column 'house'"),
    ],
)
def test_bad_tables_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises((of.DataError, of.DeclarationError), match=words):
        action_arguments(table(**change))


def test_a_missing_key_is_named() -> None:
    data = table()
    data.pop("seed")
    with pytest.raises(of.DeclarationError, match="no seed"):
        action_arguments(data)
