"""What newcomers get wrong, and that each mistake is answered in their own words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of

X, SEX = of.datasets.load("german_credit").numeric("sex", standardize=True)


def names() -> dict[str, Any]:
    """What is at hand at the prompt: a small program, its solution, and rows with groups."""
    x, y = cp.Variable(3, name="x"), cp.Variable(name="y")
    plain = cp.Problem(cp.Minimize(cp.sum(x)), [x >= 1])
    p = of.from_cvxpy(plain, ["floor"])
    ball = of.from_cvxpy(cp.Problem(cp.Minimize(cp.norm(x)), [x >= 1]))
    return {"of": of, "cp": cp, "np": np, "x": x, "y": y, "plain": plain, "p": p} | {
        "ball": ball,
        "s": p.solve(),
        "X": X,
        "sex": SEX,
        "nan": np.where(np.arange(X.size).reshape(X.shape) == 5, np.nan, X),
    }


# what is typed -> what the answer must say
MISTAKES: dict[str, tuple[str, ...]] = {
    # names with a slip
    "of.FairKmeans": ("did you mean 'FairKMeans'",),
    "of.from_cvx": ("did you mean 'from_cvxpy'",),
    "of.FairKMeans(3).fit(X)": ("groups is missing", "groups="),
    "of.FairKMeans(3).fit(X, sex)": ("y is ignored", "groups="),
    "of.prove(X)": ("prove got", "a problem for all of its terms"),
    "p.solve(solver='higs')": ("unknown solver 'higs'", "'highs'"),
    "p.solve(solver='foo')": ("unknown solver 'foo'", "optfair.solvers()"),
    "p.solve(solver=['highs'])": ("solver is ['highs']", "text"),
    "p['xx']": ("no variable 'xx'", "'x'"),
    "s['xx']": ("no value 'xx'", "'x'"),
    "s.shadow_price['flor']": ("no value 'flor'", "'floor'"),
    "p.constraints['flor']": ("no term 'flor'", "'floor'"),
    "p.without('flor')": ("'flor'", "did you mean 'floor'"),
    "p.soften('flor', 1.0)": ("'flor'", "did you mean 'floor'"),
    "p.with_integrality('z')": ("no variable 'z'", "x"),
    "of.fair_clustering.hard_labels(X)": ("solution is a ndarray", "what solve() returns"),
    "of.library.names(3)": ("pattern is 3", "text"),
    "of.library.load('diett')": ("no instance 'diett'", "'diet'"),
    "of.datasets.load('german')": ("no data set 'german'", "'german_credit'"),
    "of.compare_solvers('textbok/*', ['highs'])": ("'textbok/*'", "textbook/"),
    # words that another library uses
    "p.solve(tolerence=1e-6)": ("no option 'tolerence'", "'tolerance'"),
    "p.solve(solver='highs', max_iters=10)": ("no option 'max_iters'", "options={...}"),
    "p.solve(solver='highs', options={'nonsense': 1})": ("highs", "nonsense"),
    "p.value": ("solution.objective",),
    "s.value": ("solution.objective",),
    "s.x": ("solution['x']",),
    "s.dual_value": ("shadow_price",),
    "setattr(p, 'sense', 'maximize')": ("immutable", "with_constraints"),
    # options that mean nothing
    "p.solve(tolerance=-1)": ("tolerance -1",),
    "p.solve(time_limit=-5)": ("time_limit -5",),
    # constraints
    "p.with_constraints(x >= 0)": ("without a name", "with_constraints(name="),
    "p.with_constraints([x >= 0])": ("without a name", "with_constraints(name="),
    "p.with_constraints(a=True)": ("'a' is the value True", "both sides were numbers"),
    "p.with_constraints(a='x >= 0')": ("'a' is a str", "CVXPY constraint"),
    "p.with_constraints(a=x)": ("'a' is a Variable", "CVXPY constraint"),
    "p.with_constraints(a=cp.Variable(2, name='z') >= 0)": (
        "variables of another problem",
        "z (2,)",
    ),
    "p.with_constraints(floor=x >= 0)": ("'floor' is already there",),
    "of.from_cvxpy(plain, ['a', 'b'])": ("2 names for 1 constraints",),
    "of.from_cvxpy(plain, 'floor')": ("names is the text 'floor'", "['floor']"),
    # numbers
    "of.from_cvxpy(cp.Problem(cp.Minimize(y), [x >= np.array([1, np.nan, 2])]))": ("NaN", "[1]"),
    "of.from_cvxpy(cp.Problem(cp.Minimize(y), [x >= np.inf]))": ("can never hold", "[0]"),
    "of.from_cvxpy(cp.Problem(cp.Minimize(y), [y >= cp.Parameter(name='b')]))": (
        "parameter 'b'",
        "no value",
    ),
    # curvature
    "of.from_cvxpy(cp.Problem(cp.Minimize(x[0] * x[1]), [x >= -1])).solve(solver='clarabel')": (
        "clarabel needs a convex problem",
        "indefinite quadratic",
        "scip",
    ),
    "of.from_cvxpy(cp.Problem(cp.Minimize(y), [cp.norm(x) >= 1])).solve(solver='clarabel')": (
        "clarabel needs a convex problem",
        "c0",
    ),
    "of.prove(x >= 1)": ("prove got a constraint", "constraint.args[0]"),
    # no solution
    "p.without('floor').solve()": ("improves without limit", "bound the variables"),
    "p.with_constraints(cap=cp.sum(x) <= 2).solve()": ("'floor', 'cap'", "exclude each other"),
    # solvers that do not take it
    "ball.solve(solver='highs')": ("highs solves LP, QP, MILP, not SOCP", "clarabel"),
    # files
    "of.read('nothere.mps')": ("no file nothere.mps",),
    "of.read('people.csv')": ("format of 'people.csv'", ".mps"),
    "p.export('/nowhere/p.mps')": ("no folder /nowhere",),
    "p.export('p.xlsx')": ("format of 'p.xlsx'", ".mps"),
    "ball.export('ball.mps')": ("'objective' is not quadratic", ".cbf"),
    # rows and groups
    "of.FairKMeans(0).fit(X, groups=sex)": ("n_clusters=0",),
    "of.FairKMeans(5000).fit(X, groups=sex)": ("n_clusters=5000", "1000 rows"),
    "of.FairKMeans(3).fit(X, groups=sex[:10])": ("groups does not fit", "one label per row"),
    "of.FairKMeans(3).fit(X[:, 0], groups=sex)": ("1 dimension", "rows x columns"),
    "of.FairKMeans(3).fit(nan, groups=sex)": ("NaN", "row 0, column 5"),
    "of.FairKMeans(3).fit(X, groups=np.zeros(1000))": ("one group only",),
    "of.FairKMeans(3, fairness='balance').fit(X, groups=sex)": (
        "not a rule",
        "optfair.balance(0.4)",
    ),
    "of.FairAssignment(X, groups=sex, centers=X[:5, :3])": ("3 columns, the rows have 7",),
    "of.FairAssignment(X, groups=sex)": ("centers are missing",),
    "of.balance(2.0)": ("2.0", "[0, 1]"),
    "of.datasets.load('german_credit').numeric('gender')": ("no column 'gender'",),
    "of.PSDMap(X, score=of.features.LinearScore([1.0, 2.0], 0.0), probability=0.8)": (
        "7 columns",
        "2 features",
    ),
}
# Python answers these itself, with the name that is missing or too many
BY_PYTHON = {
    "of.FairAssignment(X, group=sex, centers=X[:3])": "'group'",
    "of.from_arrays(c=[1, 2])": "'c'",
    "of.textbook.Diet(cost=[1, 2])": "'nutrition'",
}
AT_HAND = names()


@pytest.mark.parametrize("typed", MISTAKES)
def test_a_mistake_is_answered(typed: str) -> None:
    with pytest.raises((of.OptfairError, AttributeError)) as caught:
        eval(typed, dict(AT_HAND))
    said = str(caught.value)
    missing = [words for words in MISTAKES[typed] if words not in said]
    assert not missing, said
    if isinstance(caught.value, of.OptfairError):
        assert caught.value.remedy, said


@pytest.mark.parametrize("typed", BY_PYTHON)
def test_a_wrong_argument_is_named(typed: str) -> None:
    with pytest.raises(TypeError, match=BY_PYTHON[typed]):
        eval(typed, dict(AT_HAND))


def test_solvers_are_found_by_any_spelling() -> None:
    p = AT_HAND["p"]
    asked = ("HIGHS", "HiGHS", cp.HIGHS, "Clarabel", cp.CLARABEL, cp.SCIPY)
    used = ["highs"] * 3 + ["clarabel"] * 2 + ["scipy-linprog"]
    assert [p.solve(solver=name).solver for name in asked] == used


def test_a_problem_of_cvxpy_is_taken_wherever_a_problem_is(tmp_path: Path) -> None:
    plain = AT_HAND["plain"]
    assert of.solve(plain).objective == pytest.approx(3.0)
    assert of.diagnose(plain).verdict == "fine"
    of.export(plain, tmp_path / "p.mps")
    assert of.solve(of.read(tmp_path / "p.mps")).objective == pytest.approx(3.0)
    assert of.cone_program(plain).A.shape[1] == 3
    assert of.transforms.dualize(plain).problem.solve().objective == pytest.approx(3.0)
    assert of.compile.to_pyomo(plain) is not None
    assert of.compare_solvers(plain, ["highs"]).runs[0].outcome == "solved"
    assert set(of.convexity.prove_terms(plain)) == {"objective", "c0"}
    prove: Any = of.prove
    assert prove(plain).keys() == prove(of.from_cvxpy(plain)).keys() == {"objective", "c0"}
    for wrong in ("diet", [plain], cp.sum(AT_HAND["x"])):
        with pytest.raises(of.DeclarationError, match="not a declared problem"):
            of.solve(wrong)


def test_values_are_written_back_on_request() -> None:
    x = cp.Variable(2, name="x")
    limit = cp.sum(x) >= 1
    plain = cp.Problem(cp.Minimize(cp.sum_squares(x)), [limit])
    of.solve(plain)
    assert x.value is None
    s = of.solve(plain, write_back=True)
    assert x.value == pytest.approx([0.5, 0.5], abs=1e-6)
    assert plain.value == pytest.approx(s.objective) and plain.status == "optimal"
    mine = float(limit.dual_value)
    plain.solve(solver="CLARABEL")
    assert mine == pytest.approx(float(limit.dual_value), abs=1e-5)
    with pytest.raises(of.DeclarationError, match="nothing to write back to"):
        of.solve(of.library.load("diet").problem(), write_back=True)


def test_complex_values_are_written_back() -> None:
    M = np.array([[1.0, 1.0j], [-1.0j, 2.0]])
    H, z = cp.Variable((2, 2), hermitian=True, name="H"), cp.Variable(complex=True, name="z")
    real = cp.Variable(name="real")
    goal = cp.real(cp.trace(H)) + cp.abs(z - (3 + 4j)) + real
    plain = cp.Problem(cp.Minimize(goal), [H >> M, real >= 5])
    of.solve(plain, write_back=True)
    assert H.value == pytest.approx(M, abs=1e-5) and complex(z.value) == pytest.approx(3 + 4j)
    assert float(real.value) == pytest.approx(5.0) and plain.value == pytest.approx(8.0, abs=1e-6)


def test_nothing_is_there_that_is_not_there() -> None:
    for thing in (AT_HAND["p"], AT_HAND["s"]):
        assert not hasattr(thing, "_ipython_canary_method_should_not_exist_")
        assert not hasattr(thing, "nonsense")
