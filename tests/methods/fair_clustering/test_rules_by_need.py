"""Rules left out of a program until its solution breaks them: the same optimum, from fewer rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import optfair as of
from optfair.methods.fair_clustering.algorithms import entropic_projection, rules_by_need
from optfair.methods.fair_clustering.algorithms.entropic_projection import price_step, project
from optfair.methods.fair_clustering.algorithms.rules_by_need import solve_by_need
from optfair.methods.fair_clustering.mass_rules import compile_rules

RULES: dict[str, Any] = {
    "gap": of.max_gap(0.05),
    "balance": of.balance(0.6),
    "sums": of.additive_gap(0.15),
    "several": [of.max_gap(0.1), of.cluster_share(lower=0.15), of.balance(0.5)],
}


def case(rule: Any, n: int = 400, groups: int = 6, clusters: int = 4, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    g = rng.permutation(np.arange(n) % groups)
    X = rng.normal(size=(n, 2)) + rng.normal(size=(groups, 2))[g]
    return of.FairAssignment(X, groups=g, centers=X[:clusters], fairness=rule)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave rules out however few they are."""
    monkeypatch.setattr(rules_by_need, "LEAST_ROWS", 1)
    monkeypatch.setattr(rules_by_need, "EACH_MASS", 0)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.usefixtures("few")
def test_the_optimum_is_that_of_all_rules(name: str) -> None:
    p = case(RULES[name])
    assert compile_rules(p).program.parts is not None
    s = p.solve("mass-dual", tolerance=1e-9)
    assert s.is_optimal(1e-8) and not s.residuals().above(1e-9)
    assert s.objective == pytest.approx(p.solve("highs").objective, rel=1e-7)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.usefixtures("few")
def test_a_step_and_a_projection_are_those_of_all_rules(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = case(RULES[name])
    program, labels, w = compile_rules(p).program, p.data["groups"], p.data["weights"]
    log_prob = -2.0 * p.cost.matrix()
    mine = project(log_prob, labels, w, program)
    rows = entropic_projection.LogRows(log_prob, labels, w, program.shares.size)
    nothing = np.zeros(program.masses.shape)
    step = price_step(program, rows(nothing, True), nothing, 1.0, None)
    monkeypatch.setattr(type(program), "parts", None)
    whole = project(log_prob, labels, w, program)
    assert mine.status == whole.status == "optimal"
    assert mine.value == pytest.approx(whole.value, rel=1e-9)
    assert mine.z.shape == whole.z.shape and mine.y.shape == whole.y.shape
    np.testing.assert_allclose(mine.masses, whole.masses, atol=1e-8)
    np.testing.assert_allclose(mine.prices, program.prices(mine.y, mine.z), atol=1e-12)
    other = price_step(program, rows(nothing, True), nothing, 1.0, None)
    assert step is not None and other is not None
    np.testing.assert_allclose(step.y[program.masses], other.y[program.masses], atol=1e-6)
    assert program.form.slack(step.y).min() >= -1e-8  # what was left out holds


def test_few_of_many_rules_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    p, seen = case(of.max_gap(0.02), 1_500, 16, 12), []
    solve = entropic_projection._model

    def counted(program: Any, *given: Any) -> Any:
        seen.append(program.form.b.size)
        return solve(program, *given)

    monkeypatch.setattr(entropic_projection, "_model", counted)
    s = p.solve("mass-dual", tolerance=1e-9)
    rows = compile_rules(p).program.form.b.size
    assert s.is_optimal(1e-8) and rows > 4_000 and max(seen) < rows / 2


@pytest.mark.usefixtures("few")
def test_what_has_a_cost_or_no_least_value_stays() -> None:
    p = case(of.max_gap(0.05)).soften("fairness", 3.0)
    program = compile_rules(p).program
    assert program.parts is None  # the penalty ties all rows
    q = p.with_constraints(more=of.balance(0.5))
    parts = compile_rules(q).program.parts
    assert parts is not None and (parts.part < 0).any() and (parts.part >= 0).any()
    assert q.solve("mass-dual").objective == pytest.approx(q.solve("highs").objective, rel=1e-6)


@pytest.mark.usefixtures("few")
def test_a_part_that_fails_is_solved_whole() -> None:
    program = compile_rules(case(of.balance(0.6))).program
    asked = []

    def fails(rules: Any) -> None:
        asked.append(rules)

    assert solve_by_need(program, fails, np.zeros(program.masses.shape)) is None
    assert len(asked) == 2 and asked[0] is not program and asked[1] is program


@pytest.mark.usefixtures("few")
def test_rules_that_exclude_each_other_are_named() -> None:
    p = case(of.max_gap(0.1))
    M, shares = p["masses"], p.shares
    with pytest.raises(of.Infeasible) as e:
        p.with_constraints(most=M[0, 0] >= 0.9 * shares[0], least=M[1, 0] <= 0.1 * shares[1]).solve(
            "mass-dual"
        )
    assert {"most", "least", "fairness"} == {*e.value.conflict} and e.value.certificate.verify()
