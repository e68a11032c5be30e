"""Good calls of every public callable, and bad values for each kind of argument.

``cases()`` puts one bad value into one argument of one good call. What is documented to be taken although it looks bad stands in `ACCEPTED`, with the reason.
"""

from __future__ import annotations

import contextlib
import datetime
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from harness import told

import optfair as of

SECONDS = 20.0

rng = np.random.default_rng(0)
X = rng.normal(size=(12, 2))
FAR = X + 4.0
GROUPS = np.array(list("ababababaabb"))
LABELS = np.arange(12) % 3
CENTERS = X[:3].copy()
SCORE = ([1.0, 1.0], 0.0)
SPD = np.array([[2.0, 0.3], [0.3, 1.0]])
EFFECTS = np.array([[3.0, 2.0, 0.0], [3.0, 1.0, 0.0]])
EDITS = np.array([[False] * 2, [True, False], [True, True]])


@cache
def lp() -> Any:
    x = cp.Variable(2, name="x")
    rows = [cp.sum(x) <= 3, x >= 0]
    return of.from_cvxpy(cp.Problem(cp.Maximize(x[0] + 2 * x[1]), rows), ["sum", "sign"])


@cache
def solution() -> Any:
    return lp().solve()


@cache
def _whole() -> Any:
    x = cp.Variable(2, name="x", integer=True)
    return of.from_cvxpy(cp.Problem(cp.Maximize(cp.sum(x)), [x <= 1.5, x >= 0]))


@cache
def _pyomo() -> Any:
    model = of.compile.to_pyomo(lp())
    model.x[0] = model.x[1] = 1.0
    return model


@cache
def assignment() -> Any:
    return of.FairAssignment(X, groups=GROUPS, centers=CENTERS)


@cache
def fitted_kmeans() -> Any:
    return of.FairKMeans(3, random_state=0, n_init=1, max_iter=3).fit(X, groups=GROUPS)


@cache
def fitted_mixture() -> Any:
    model = of.FairMixture(2, random_state=0, n_init=1, max_iter=3, eps=0.3)
    return model.fit(X, groups=GROUPS)


@cache
def psd_map() -> Any:
    return of.PSDMap(X, score=SCORE, threshold=1.0)


@cache
def transport_map() -> Any:
    return of.group_counterfactuals.TransportMap(SPD, [1.0, 0.0])


@cache
def explainer() -> Any:
    return (
        of.ClusterExplainer.kmeans(centers=CENTERS)
        if hasattr(of.ClusterExplainer, "kmeans")
        else of.ClusterExplainer(fitted_kmeans())
    )


@cache
def cluster_problem() -> Any:
    return of.ClusterCounterfactual.kmeans(centers=CENTERS, factual=X[0], target=1)


@cache
def plan() -> Any:
    return of.ActionPlan(EFFECTS, EDITS, budget=2.0)


def model(rows: Any) -> Any:
    return np.asarray(rows, dtype=float).sum(axis=1)


def predictor() -> Any:
    from sklearn.linear_model import LogisticRegression

    return _classifier(LogisticRegression)


@cache
def _classifier(kind: Any) -> Any:
    return kind().fit(np.vstack([X, FAR]), np.r_[np.zeros(12), np.ones(12)])


@dataclass(frozen=True)
class Call:
    """A callable with good arguments; ``kinds`` says which are spoiled, and as what."""

    name: str
    function: Callable[..., Any]
    good: dict[str, Any]
    kinds: dict[str, str]


# what an argument is, by its name; a call may say otherwise
KINDS = {
    **dict.fromkeys(("X", "Z", "centers", "costs", "matrix", "covariance", "cost"), "matrix"),
    **dict.fromkeys(("A", "G", "effects", "factuals", "counterfactuals", "refined"), "matrix"),
    **dict.fromkeys(("nutrition", "estimate", "points", "functions", "log_prob"), "matrix"),
    **dict.fromkeys(("b", "q", "mean", "offset", "returns", "values", "weights"), "vector"),
    **dict.fromkeys(("moments", "noise", "point", "radii", "supply", "demand"), "vector"),
    **dict.fromkeys(("minimum", "deviations", "outputs", "sample_weight", "factual"), "vector"),
    **dict.fromkeys(("groups", "labels"), "labels"),
    **dict.fromkeys(("eps", "tol", "tolerance", "time_limit", "K", "k", "threshold"), "number"),
    **dict.fromkeys(("probability", "budget", "penalty", "capacity", "wanted"), "number"),
    **dict.fromkeys(("lam", "weight", "delta", "confidence", "limit", "w2", "power"), "number"),
    **dict.fromkeys(("radius", "share", "risk", "size", "density", "plausibility"), "number"),
    **dict.fromkeys(("regularization", "price_of_fairness", "effect", "p"), "number"),
    **dict.fromkeys(("n_clusters", "n_components", "n_init", "max_iter", "most"), "count"),
    **dict.fromkeys(("threads", "repeats", "n_jobs", "n_splits", "n_groups"), "count"),
    **dict.fromkeys(("metric", "algorithm", "solver", "form", "covariance_type"), "choice"),
    **dict.fromkeys(("divergence", "method", "family", "distance", "against"), "choice"),
    **dict.fromkeys(("problem", "solution", "score", "clustering"), "thing"),
    **dict.fromkeys(("path",), "path"),
    **dict.fromkeys(("fairness",), "thing"),
}


def call(
    name: str, function: Callable[..., Any], kinds: dict[str, str] | None = None, /, **good: Any
) -> Call:
    """Return a call whose arguments have the kinds of their names, or these."""
    own = {k: KINDS[k] for k in good if k in KINDS} | (kinds or {})
    return Call(name, function, good, {k: v for k, v in own.items() if v})


def calls() -> list[Call]:
    """Return a good call of every public callable that takes arguments of a user."""
    found: list[Call] = []

    def add(name: str, function: Any, kinds: dict[str, str] | None = None, /, **good: Any) -> None:
        found.append(call(name, function, kinds, **good))

    _language(add)
    _sweeps(add)
    _clustering(add)
    _groups(add)
    _clusters_and_edits(add)
    _metrics(add)
    _textbook(add)
    return found


def _sweeps(add: Any) -> None:
    x, b = cp.Variable(2, name="x"), cp.Parameter(name="b", value=1.0)
    rows = [cp.sum(x) >= b, x <= 9]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x)), rows), ["need", "top"])
    s = p.solve()
    goals = {"sum": cp.sum(x), "size": cp.sum_squares(x - 3)}
    more = {"width": "number", "functions": "mapping", "save": "path"}
    add(
        "sweep",
        of.sweep,
        more | {"keep": "flag", "values": "thing", "points": "count", "parameter": "thing"},
        problem=p,
        parameter="b",
        values=[1.0, 2.0],
        width=0.5,
        points=3,
        functions={"x": lambda s: 0.0},
        save="swept.json",
        keep=False,
        n_jobs=1,
        tolerance=1e-7,
        time_limit=9.0,
        solver=None,
    )
    add(
        "pareto",
        of.pareto,
        more | {"objectives": "thing", "points": "count"},
        problem=p,
        objectives=goals,
        method="weighted",
        points=2,
        width=0.5,
        functions={"x": lambda s: 0.0},
        save="front.json",
        tolerance=1e-7,
        time_limit=9.0,
        solver=None,
        n_jobs=1,
    )
    add("Sweep.band", of.sweep(p, "b", (0.0, 4.0), width=0.5).band, {"t": "number"}, t=1.0)
    add("ParetoFront.band", of.pareto(p, goals, points=2).band, {"level": "number"}, level=1.0)
    add("sensitivity", of.sensitivity, solution=s)
    add("derivatives", of.sweeps.derivatives, {"parameter": "thing"}, solution=s, parameter="b")
    kinds = {"name": "thing", "low": "number", "high": "number"}
    add("dependence", of.sweeps.dependence, kinds, problem=p, name="b", low=0.0, high=1.0)
    add("Derivatives[]", of.sweeps.derivatives(s, "b").__getitem__, {"name": "thing"}, name="x")
    add("problem.at", p.at, {"values": "mapping"}, values={"b": 2.0})
    add("solution.frame", s.frame, {"name": "name"}, name="x")
    for verb in ("relative_violation", "violations"):
        need = getattr(p.constraints["need"], verb)
        add(verb, need, {"values": "mapping"}, values={"x": [1.0, 1.0]})
    add("Optimality", of.core.Optimality, solution=s, tolerance=1e-6)


def _language(add: Any) -> None:
    more = {"seed": "seed", "warm_start": "thing", "options": "mapping", "verbose": "level"}
    add(
        "solve",
        of.solve,
        more | {"isolate": "flag", "exact": "flag"},
        problem=lp(),
        solver=None,
        tolerance=1e-7,
        time_limit=5.0,
        threads=1,
        seed=0,
        verbose=0,
        warm_start=solution(),
        options={},
        isolate=False,
        exact=False,
    )
    add("diagnose", of.diagnose, problem=lp(), tolerance=1e-7, time_limit=5.0)
    add("export", of.export, problem=lp(), path="p.mps")
    add("read", of.read, {"duplicates": "choice"}, path="p.mps", duplicates="refuse")
    add("load_proof", of.load_proof, path="p.proof")
    add("load_solution", of.load_solution, path="s", problem=lp())
    add("solution.save", solution().save, path="out")
    add("certificate.save", solution().certificate.save, path="out.proof")
    add("cone_program", of.cone_program, {"quadratic": "flag"}, problem=lp(), quadratic=True)
    add("cone_program.save", of.cone_program(lp()).save, path="cones")
    add(
        "cone_program.by_name",
        of.cone_program(lp()).by_name,
        {"x": "vector", "z": "vector"},
        x=[1.0, 1.0],
        z=[0.0] * 3,
    )
    add("residuals", of.residuals, solution=solution())
    add("shadow_prices", of.shadow_prices, solution=solution())
    add(
        "from_cvxpy",
        of.from_cvxpy,
        {"problem": "thing", "names": "names"},
        problem=cp.Problem(cp.Minimize(cp.Variable(name="y") ** 2)),
        names=None,
    )
    add(
        "prove",
        of.prove,
        {"item": "thing", "where": "mapping", "curvature": "choice", "seconds": "number"},
        item=cp.Variable(name="t") ** 2,
        where=(),
        curvature="convex",
        seconds=1.0,
    )
    add(
        "prove_terms",
        of.convexity.prove_terms,
        {"problem": "thing", "curvature": "choice", "seconds": "number"},
        problem=lp(),
        curvature="convex",
        seconds=1.0,
    )
    add(
        "compare_solvers",
        of.compare_solvers,
        {"problems": "thing", "solvers": "choice", "out": "path", "verbose": "level"},
        problems={"lp": lp()},
        solvers="highs",
        tolerance=1e-7,
        time_limit=5.0,
        repeats=1,
        n_jobs=1,
        out=None,
        verbose=0,
    )
    mean = of.comparison.shifted_geometric_mean
    add(
        "shifted_geometric_mean",
        mean,
        {"values": "vector", "shift": "number"},
        values=[1.0, 2.0],
        shift=1.0,
    )
    arrays = {
        "P": np.eye(2),
        "q": [1.0, 1.0],
        "A": np.ones((1, 2)),
        "l": [0.0],
        "u": [1.0],
        "lb": [0.0, 0.0],
        "ub": [1.0, 1.0],
        "G": np.ones((1, 2)),
        "h": [3.0],
        "integrality": [0, 1],
        "r": 0.0,
        "maximize": False,
        "columns": None,
        "rows": None,
    }
    add(
        "from_arrays",
        of.from_arrays,
        {
            "P": "sparse",
            "q": "vector",
            "A": "sparse",
            "G": "sparse",
            "l": "side",
            "u": "side",
            "lb": "side",
            "ub": "side",
            "h": "side",
            "b": "",
            "integrality": "vector",
            "r": "number",
            "maximize": "flag",
            "columns": "names",
            "rows": "names",
        },
        **arrays,
    )
    p = lp()
    add(
        "soften",
        of.transforms.soften,
        {"name": "name", "weight": "number"},
        problem=p,
        name="sum",
        weight=1.0,
    )
    add("dualize", of.transforms.dualize, problem=p)
    add(
        "relax_integrality",
        lambda problem, name: of.transforms.relax_integrality(problem, name),
        {"name": "name"},
        problem=_whole(),
        name="x",
    )
    add("shor", of.transforms.shor, problem=p)
    add("to_pyomo", of.compile.to_pyomo, problem=p)
    add("pyomo_values", of.compile.pyomo_values, {"model": "thing"}, problem=p, model=_pyomo())
    add(
        "Exactness",
        lambda **k: of.transforms.Exactness(**k).verify(),
        {"values": "mapping", "multipliers": "mapping"},
        problem=p,
        values=dict(solution().values),
        multipliers=dict(solution().multipliers),
        tolerance=1e-6,
    )
    add("problem.soften", p.soften, {"name": "name"}, name="sum", weight=1.0)
    add("problem.without", lambda name: p.without(name), {"name": "name"}, name="sum")
    add(
        "problem.with_integrality",
        lambda name: p.with_integrality(name),
        {"name": "name"},
        name="x",
    )
    add(
        "problem.with_constraints",
        p.with_constraints,
        {"constraints": "mapping"},
        constraints={"cap": p["x"] <= 1},
    )
    add(
        "problem.with_constraints(name)",
        lambda name: p.with_constraints({name: p["x"] <= 1}),
        {"name": "key"},
        name="cap",
    )
    add(
        "problem.with_constraints(rule)",
        lambda rule: p.with_constraints({"cap": rule}),
        {"rule": "thing"},
        rule=p["x"] <= 1,
    )
    add(
        "problem.with_variables",
        p.with_variables,
        {"variables": "mapping"},
        variables={"w": cp.Variable(2)},
    )
    add(
        "problem.with_variables(one)",
        lambda one: p.with_variables({"w": one}),
        {"one": "thing"},
        one=cp.Variable(2),
    )
    add("problem[]", p.__getitem__, {"name": "name"}, name="x")
    add("problem.explain_change", p.explain_change, {"other": "thing"}, other=p)
    add(
        "problem.objective_value",
        p.objective_value,
        {"values": "mapping"},
        values=dict(solution().values),
    )
    s = solution()
    add("solution[]", s.__getitem__, {"name": "name"}, name="x")
    add("solution.is_optimal", s.is_optimal, tolerance=1e-7)
    add("instance", of.library.load, {"name": "name"}, name="textbook/diet")
    add("certify", of.library.certify, {"instance": "name"}, instance="textbook/knapsack")
    add(
        "datasets.load",
        lambda name: of.datasets.load(name, fetch=False),
        {"name": "name"},
        name="iris",
    )
    add(
        "Dataset",
        of.datasets.Dataset,
        {"columns": "mapping"},
        name="d",
        columns={"a": np.arange(3.0)},
    )
    add(
        "LinearScore",
        of.features.LinearScore,
        {"coef": "vector", "intercept": "number", "link": "choice", "names": "names"},
        coef=[1.0, 1.0],
        intercept=0.0,
        link="logistic",
        names=None,
    )
    score = of.features.LinearScore([1.0, 1.0])
    for verb in (score.decision_function, score.predict_proba):
        add(f"LinearScore.{verb.__name__}", verb, X=X)
    add("LinearScore.halfspace", score.halfspace, threshold=1.0)
    add(
        "box",
        lambda lower, upper: psd_map().with_constraints(box=of.features.box({0: (lower, upper)})),
        {"lower": "bound", "upper": "bound"},
        lower=-9.0,
        upper=9.0,
    )
    add("box(mapping)", of.features.box, {"bounds": "mapping"}, bounds={0: (0.0, 1.0)})
    add(
        "box(name)",
        lambda name: psd_map().with_constraints(box=of.features.box({name: (-9.0, 9.0)})),
        {"name": "feature"},
        name=0,
    )
    add(
        "immutable",
        lambda name: psd_map().with_constraints(fix=of.immutable(name)),
        {"name": "name"},
        name=0,
    )
    monotone = of.features.monotone
    add(
        "monotone",
        lambda name: psd_map().with_constraints(m=monotone(increasing=[name])),
        {"name": "name"},
        name=0,
    )


def _clustering(add: Any) -> None:
    f = of.fair_clustering
    add(
        "FairAssignment",
        of.FairAssignment,
        {"fairness": "thing"},
        X=X,
        groups=GROUPS,
        centers=CENTERS,
        sample_weight=np.ones(12),
        metric="sqeuclidean",
        p=2.0,
        fairness=of.perfect_fairness(),
    )
    add("FairAssignment(costs)", of.FairAssignment, groups=GROUPS, costs=np.ones((12, 3)))
    add("assignment.with_centers", assignment().with_centers, centers=CENTERS)
    for rule, key in ((of.max_gap, "eps"), (of.additive_gap, "eps"), (of.balance, "b")):
        add(rule.__name__, rule, {key: "number"}, **{key: 0.5})
    add(
        "cluster_share",
        lambda **k: assignment().with_constraints(s=of.cluster_share(**k)),
        {"lower": "number", "upper": "number"},
        lower=0.1,
        upper=0.9,
    )
    add(
        "proportion",
        lambda **k: assignment().with_constraints(s=f.proportion(**k)),
        {"lower": "number", "upper": "number"},
        lower=0.1,
        upper=0.9,
    )
    about = {
        "init": "choice",
        "n_init": "count",
        "random_state": "seed",
        "verbose": "level",
        "partition_size": "count",
        "coupling": "choice",
        "n_jobs": "",
    }
    good = {
        "n_clusters": 2,
        "fairness": None,
        "metric": "sqeuclidean",
        "init": "k-means++",
        "n_init": 1,
        "max_iter": 2,
        "tol": 1e-3,
        "algorithm": "exact",
        "partition_size": 1024,
        "coupling": "network-simplex",
        "regularization": 0.01,
        "random_state": 0,
        "time_limit": 5.0,
        "verbose": 0,
    }
    add(
        "FairKMeans",
        lambda X, groups, sample_weight, **k: of.FairKMeans(**k).fit(
            X, groups=groups, sample_weight=sample_weight
        ),
        about,
        X=X,
        groups=GROUPS,
        sample_weight=np.ones(12),
        **good,
    )
    m = fitted_kmeans()
    add("FairKMeans.predict", m.predict, X=X, groups=GROUPS)
    add("FairKMeans.transform", m.transform, X=X)
    add("FairKMeans.score", m.score, X=X, groups=GROUPS, sample_weight=np.ones(12))
    add(
        "FairKMeans.fit_stream",
        of.FairKMeans(2, n_init=1, max_iter=2, random_state=0).fit_stream,
        {"data": "matrix"},
        data=X,
        groups=GROUPS,
        sample_weight=np.ones(12),
    )
    add(
        "KantorovichCoupling",
        of.KantorovichCoupling,
        {
            "first": "matrix",
            "second": "matrix",
            "a": "vector",
            "b": "vector",
            "shares": "thing",
            "transport_weight": "choice",
        },
        first=X[:6],
        second=X[6:],
        centers=CENTERS,
        a=np.ones(6),
        b=np.ones(6),
        shares=(0.5, 0.5),
        metric="sqeuclidean",
        p=2.0,
        transport_weight="exact",
    )
    add(
        "alternate",
        f.alternate,
        {"callback": "callback", "warm_start": "thing", "verbose": "level"},
        problem=assignment(),
        max_iter=2,
        tol=1e-3,
        solver=None,
        warm_start=None,
        time_limit=5.0,
        verbose=0,
        callback=None,
    )
    add(
        "bounded_cost_kmeans",
        f.bounded_cost_kmeans,
        {"random_state": "seed"},
        X=X,
        groups=GROUPS,
        n_clusters=2,
        price_of_fairness=1.5,
        sample_weight=np.ones(12),
        n_init=1,
        random_state=0,
    )
    add(
        "certified_kmeans",
        f.certified_kmeans,
        {"random_state": "seed"},
        X=X,
        groups=GROUPS,
        n_clusters=2,
        fairness=of.max_gap(0.5),
        gap=1e-3,
        time_limit=5.0,
        random_state=0,
    )
    add(
        "fairlet_clustering",
        f.fairlet_clustering,
        {"partition_size": "count", "random_state": "seed"},
        X=X,
        groups=GROUPS,
        n_clusters=2,
        partition_size=6,
        n_init=1,
        random_state=0,
    )
    add(
        "fairness_front",
        lambda **k: f.fairness_front(of.FairKMeans(2, n_init=1, max_iter=2), **k),
        {"rules": "mapping"},
        X=X,
        groups=GROUPS,
        rules={0.5: of.max_gap(0.5)},
        sample_weight=np.ones(12),
    )
    add(
        "largest_balance",
        f.largest_balance,
        {"verbose": "level"},
        problem=assignment(),
        budget=1e3,
        tol=0.1,
        solver=None,
        time_limit=5.0,
        verbose=0,
    )
    add(
        "FairKMeansBound",
        f.FairKMeansBound,
        X=X[:5],
        groups=GROUPS[:5],
        n_clusters=2,
        fairness=None,
        sample_weight=np.ones(5),
    )
    add(
        "optimality_gap",
        lambda clustering, tolerance: f.optimality_gap(clustering, _bound(), tolerance=tolerance),
        clustering=_small(),
        tolerance=1e-6,
    )
    x = of.fair_mixtures
    good = {
        "n_components": 2,
        "covariance_type": "shared",
        "eps": 0.3,
        "lam": 10.0,
        "algorithm": "em",
        "inner_steps": 1,
        "label_rule": "argmax",
        "init": "k-means",
        "n_init": 1,
        "max_iter": 2,
        "tol": 1e-3,
        "reg_covar": 1e-6,
        "min_probability": 1e-6,
        "random_state": 0,
        "time_limit": 5.0,
        "verbose": 0,
    }
    about = {
        "inner_steps": "count",
        "label_rule": "choice",
        "init": "choice",
        "reg_covar": "number",
        "min_probability": "number",
        "random_state": "seed",
        "verbose": "level",
    }
    add(
        "FairMixture",
        lambda X, groups, sample_weight, **k: of.FairMixture(**k).fit(
            X, groups=groups, sample_weight=sample_weight
        ),
        about,
        X=X,
        groups=GROUPS,
        sample_weight=np.ones(12),
        **good,
    )
    g = fitted_mixture()
    add("FairMixture.predict_proba", g.predict_proba, X=X, groups=GROUPS)
    for verb in (g.score_samples, g.score, g.aic, g.bic, g.responsibilities):
        add(f"FairMixture.{verb.__name__}", verb, X=X)
    add("FairMixture.sample", g.sample, {"n_samples": "count"}, n_samples=3)
    add(
        "FairMixtureLikelihood",
        x.FairMixtureLikelihood,
        X=X,
        n_components=2,
        groups=GROUPS,
        sample_weight=np.ones(12),
        fairness=of.max_gap(0.5),
    )
    add(
        "FairResponsibilities",
        x.FairResponsibilities,
        {"log_prob": "matrix"},
        log_prob=-np.ones((12, 2)),
        groups=GROUPS,
        sample_weight=np.ones(12),
        fairness=of.max_gap(0.5),
    )
    small = of.FairMixture(2, n_init=1, max_iter=2, random_state=0)
    add(
        "eps_path",
        lambda **k: x.eps_path(small, **k),
        {"eps": "vector"},
        X=X,
        groups=GROUPS,
        eps=[0.3],
        sample_weight=np.ones(12),
    )
    add(
        "lambda_path",
        lambda **k: x.lambda_path(small, **k),
        {"lams": "vector"},
        X=X,
        groups=GROUPS,
        lams=[1.0],
        sample_weight=np.ones(12),
    )


@cache
def _bound() -> Any:
    bound = of.fair_clustering.FairKMeansBound(X[:5], groups=GROUPS[:5], n_clusters=2)
    return bound.solve()


@cache
def _small() -> Any:
    return of.FairKMeans(2, random_state=0, n_init=1).fit(X[:5], groups=GROUPS[:5])


def _groups(add: Any) -> None:
    g = of.group_counterfactuals
    target = {"X": X, "score": SCORE, "threshold": 1.0, "feature_costs": [1.0, 1.0]}
    costs = {"feature_costs": "vector"}
    for name in ("PSDMap", "DiagonalMap", "CommutativeGaussianMap", "ScaledMap", "GaussianMap"):
        add(name, getattr(g, name), costs, **target, K=2.0, k=2.0)
    add(
        "GaussianMap(moments)",
        g.GaussianMap,
        {"mean": "vector"},
        score=SCORE,
        threshold=1.0,
        mean=[0.0, 0.0],
        covariance=SPD,
        form="reduced",
    )
    add("AffineMap", g.AffineMap, costs, **target, K=2.0)
    add(
        "IndependentCounterfactuals",
        of.group_counterfactuals.IndependentCounterfactuals,
        costs,
        **target,
    )
    add("LipschitzCounterfactuals", g.LipschitzCounterfactuals, costs, **target, K=2.0)
    add("BiLipschitzCounterfactuals", g.BiLipschitzCounterfactuals, costs, **target, K=2.0, k=2.0)
    add("BiLipschitzMap", g.BiLipschitzMap, costs, **target, K=2.0, k=2.0)
    add(
        "probability",
        of.group_counterfactuals.IndependentCounterfactuals,
        X=X,
        score=of.features.LinearScore([1.0, 1.0]),
        probability=0.7,
    )
    parts = ([0.5, 0.5], [[0.0, 0.0], [2.0, 2.0]], [SPD, SPD])
    add(
        "MixtureMap",
        g.MixtureMap,
        {"components": "thing", "bounds": "choice", "valid": "choice"},
        X=X,
        components=parts,
        score=SCORE,
        threshold=1.0,
        K=2.0,
        k=2.0,
        bounds="local",
        valid="own",
    )
    add(
        "TransportMap",
        g.TransportMap,
        {"features": "names"},
        matrix=SPD,
        offset=[1.0, 0.0],
        features=None,
        mean=[0.0, 0.0],
        covariance=SPD,
    )
    t = transport_map()
    add("TransportMap.transform", t.transform, X=X)
    add("TransportMap.inverse_transform", t.inverse_transform, Z=X)
    add("TransportMap.moved", t.moved, {"feature": "name"}, feature=t.features[0])
    add("TransportMap.save", t.save, path="map")
    add("TransportMap.load", g.TransportMap.load, path="map0")
    add(
        "at_most",
        lambda **k: g.DiagonalMap(**target).with_constraints(m=g.at_most(**k)),
        {"features": "count", "largest": "number"},
        features=1,
        largest=10.0,
    )
    add(
        "chance",
        lambda **k: psd_map().with_constraints(c=g.chance(**k)),
        {"mean": "vector", "distribution": "choice"},
        delta=0.1,
        mean=[1.0, 1.0],
        covariance=SPD,
        distribution="gaussian",
    )
    add("l1_sparsity", lambda limit: psd_map().with_constraints(s=g.l1_sparsity(limit)), limit=3.0)
    add(
        "transport_budget", lambda w2: psd_map().with_constraints(s=g.transport_budget(w2)), w2=30.0
    )
    add("loewner", lambda **k: psd_map().with_constraints(s=g.loewner(**k)), K=3.0, k=3.0)
    add(
        "medoid_groups",
        g.medoid_groups,
        {"n_groups": "count", "min_size": "count", "max_size": "count", "random_state": "seed"},
        X=X,
        labels=LABELS,
        n_groups=2,
        min_size=1,
        max_size=5,
        random_state=0,
    )
    add(
        "cross_validate_map",
        lambda **k: g.cross_validate_map(of.PSDMap, **k),
        {"random_state": "seed"},
        X=X,
        score=SCORE,
        threshold=1.0,
        n_splits=2,
        random_state=0,
    )
    add(
        "counterfactual_front",
        g.counterfactual_front,
        {"K": "vector", "population": "count", "generations": "count"},
        X=X,
        score=SCORE,
        threshold=1.0,
        family="psd",
        method="auto",
        K=[2.0],
        population=10,
        generations=2,
    )
    add(
        "bi_lipschitz_baseline",
        lambda **k: g.bi_lipschitz_baseline(
            g.BiLipschitzCounterfactuals(X[:3], score=SCORE, threshold=1.0, K=2.0, k=2.0), **k
        ),
        {"seed": "seed", "start": "matrix"},
        start=X[:3] + 3.0,
        solver=None,
        time_limit=2.0,
        seed=0,
    )


def _clusters_and_edits(add: Any) -> None:
    c, s = of.cluster_counterfactuals, of.sparse_counterfactuals
    add(
        "ClusterCounterfactual.kmeans",
        of.ClusterCounterfactual.kmeans,
        {"target": "index", "weights": "vector", "factual": "vector", "features": "names"},
        centers=CENTERS,
        factual=X[0],
        target=1,
        against="pair",
        plausibility=0.0,
        distance="l2",
        weights=[1.0, 1.0],
        features=None,
    )
    add(
        "ClusterCounterfactual.gaussian",
        of.ClusterCounterfactual.gaussian,
        {"means": "matrix", "covariances": "matrix", "weights": "vector", "target": "index"},
        means=CENTERS,
        covariances=[SPD] * 3,
        weights=[0.3, 0.3, 0.4],
        factual=X[0],
        target=1,
        covariance_type="full",
    )
    p = cluster_problem()
    add(
        "at_most_changes",
        lambda most: p.with_constraints(
            b=of.features.box({0: (-9.0, 9.0), 1: (-9.0, 9.0)})
        ).with_constraints(r=c.at_most_changes(most)),
        most=1,
    )
    add(
        "least_density",
        lambda density: _gaussian().with_constraints(r=c.least_density(density)),
        density=1e-3,
    )
    add(
        "whole_numbers",
        lambda name: p.with_constraints(r=c.whole_numbers(name)),
        {"name": "name"},
        name=0,
    )
    add("best_known", c.best_known, problem=_all_others(), time_limit=2.0, tolerance=1e-6)
    add(
        "ClusterExplainer",
        of.ClusterExplainer,
        {
            "model": "thing",
            "features": "names",
        },
        model=fitted_kmeans(),
        features=None,
        against="all",
        plausibility=1e-5,
        time_limit=2.0,
    )
    e = explainer()
    add(
        "explainer.explain",
        e.explain,
        {"x": "vector", "target": "index", "k": "count", "diverse": "choice"},
        x=X[0],
        target=int(_other(X[0])),
        k=1,
        diverse=None,
    )
    add("explainer.explain_many", e.explain_many, X=X[:2])
    add("explainer.predict", e.predict, X=X)
    add("explainer.separability", e.separability, X=X)
    add(
        "ActionPlan",
        of.ActionPlan,
        {"edits": "", "costs": "vector", "features": "names"},
        effects=EFFECTS,
        edits=EDITS,
        budget=2.0,
        costs=np.ones(2),
        features=None,
    )
    add(
        "MinimumEdits",
        s.MinimumEdits,
        {"overshoot": "flag"},
        effects=EFFECTS,
        edits=EDITS,
        effect=0.5,
        overshoot=True,
    )
    add("plan.with_budget", plan().with_budget, budget=1.0)
    add("row_budget", lambda most: plan().with_constraints(r=s.row_budget(most)), most=1)
    add(
        "implies",
        lambda first, second: plan().with_constraints(r=s.implies(first, second)),
        {"first": "name", "second": "name"},
        first=0,
        second=1,
    )
    add(
        "edited_together",
        lambda features: plan().with_constraints(r=s.edited_together(features)),
        {"features": "names"},
        features=[0, 1],
    )
    add(
        "SparseCounterfactuals",
        lambda model, factuals, counterfactuals, **k: (
            of.SparseCounterfactuals(model, **k).fit(factuals, counterfactuals).refine()
        ),
        {
            "factuals": "table",
            "counterfactuals": "table",
            "model": "thing",
            "budget": "count",
            "value": "choice",
            "selection": "choice",
            "output": "choice",
            "outcome": "choice",
            "attribution": "choice",
            "random_state": "seed",
            "coupling": "choice",
            "on_missed": "choice",
            "exact_features": "count",
        },
        model=predictor(),
        factuals=X,
        counterfactuals=FAR,
        budget=3,
        value="max",
        selection="top",
        output="auto",
        outcome="score",
        divergence="ot",
        attribution="p-shap",
        coupling="ot",
        random_state=0,
        on_missed="raise",
        exact_features=12,
    )
    add(
        "p_shap",
        s.p_shap,
        {
            "factuals": "table",
            "counterfactuals": "table",
            "model": "thing",
            "coupling": "matrix",
            "exact_features": "count",
            "output": "choice",
            "random_state": "seed",
        },
        model=predictor(),
        factuals=X,
        counterfactuals=FAR,
        coupling=s.uniform_coupling(12, 12),
        method="auto",
        exact_features=12,
        output="auto",
        random_state=0,
    )
    for verb in (s.uniform_coupling, s.aligned_coupling):
        add(verb.__name__, verb, {"n": "count", "m": "count"}, n=3, m=3)
    add(
        "random_coupling",
        s.random_coupling,
        {"n": "count", "m": "count", "rng": "thing"},
        n=3,
        m=3,
        rng=np.random.default_rng(0),
    )
    add("nearest_coupling", s.nearest_coupling, cost=np.ones((3, 3)))
    add(
        "optimal_transport_coupling",
        s.optimal_transport_coupling,
        cost=np.ones((3, 3)),
        regularization=0.1,
    )
    add(
        "given_counterfactuals",
        s.given_counterfactuals,
        {"rows": "table", "alignment": "choice"},
        rows=X,
        alignment="rows",
    )
    add(
        "mapped_counterfactuals",
        s.mapped_counterfactuals,
        {"transport_map": "thing"},
        transport_map=transport_map(),
        factuals=X,
    )
    add(
        "nearest_unlike_neighbours",
        s.nearest_unlike_neighbours,
        {"factuals": "table", "model": "thing", "candidates": "table", "n_neighbors": "count"},
        model=predictor(),
        factuals=X,
        candidates=FAR,
        n_neighbors=1,
    )
    add(
        "projected_counterfactuals",
        s.projected_counterfactuals,
        {"feature_costs": "vector"},
        score=SCORE,
        factuals=X,
        threshold=1.0,
        feature_costs=[1.0, 1.0],
    )


@cache
def _gaussian() -> Any:
    return of.ClusterCounterfactual.gaussian(
        means=CENTERS, covariances=[SPD] * 3, weights=[0.3, 0.3, 0.4], factual=X[0], target=1
    )


@cache
def _all_others() -> Any:
    return of.ClusterCounterfactual.kmeans(centers=CENTERS, factual=X[0], target=1, against="all")


def _other(x: Any) -> int:
    return (int(explainer().predict(x[None])[0]) + 1) % 3


def _metrics(add: Any) -> None:
    m = of.metrics
    shares = {"assignment": "labels", "soft": "flag"}
    for verb in (m.balance, m.max_gap, m.additive_gap, m.mean_gap, m.composition):
        add(
            f"metrics.{verb.__name__}",
            verb,
            shares,
            groups=GROUPS,
            assignment=LABELS,
            soft=False,
            sample_weight=np.ones(12),
        )
    add(
        "metrics.balance(soft)",
        lambda assignment: m.balance(GROUPS, assignment, soft=True),
        {"assignment": "matrix"},
        assignment=np.full((12, 2), 0.5),
    )
    add(
        "metrics.category_profile",
        m.category_profile,
        shares | {"values": "labels"},
        values=GROUPS,
        assignment=LABELS,
        soft=False,
        sample_weight=np.ones(12),
    )
    good = {
        "X": X,
        "centers": CENTERS,
        "assignment": LABELS,
        "soft": False,
        "sample_weight": np.ones(12),
        "metric": "sqeuclidean",
    }
    add("metrics.cost", m.cost, {"assignment": "cluster", "soft": "flag"}, **good, p=2.0)
    add("metrics.total_cost", m.total_cost, {"assignment": "cluster", "soft": "flag"}, **good)
    out = {"target": "vector"}
    for verb in (m.mean_difference, m.median_difference, m.output_transport, m.output_mmd):
        more = {"bandwidth": 1.0} if verb is m.output_mmd else {}
        add(
            f"metrics.{verb.__name__}",
            verb,
            out | dict.fromkeys(more, "number"),
            outputs=[1.0, 2.0],
            target=[2.0, 3.0],
            **more,
        )
    add(
        "metrics.counterfactual_effect",
        m.counterfactual_effect,
        out,
        outputs=[1.0, 2.0],
        factual=[0.0, 1.0],
        target=[2.0, 3.0],
        divergence="ot",
    )
    add(
        "metrics.distance_ratio", m.distance_ratio, factuals=X, refined=X + 1.0, counterfactuals=FAR
    )
    for verb in (m.distortion, m.lipschitz_constants):
        add(f"metrics.{verb.__name__}", verb, X=X, Z=FAR)
    add("metrics.transport_cost", m.transport_cost, X=X, Z=FAR, sample_weight=np.ones(12))
    add(
        "metrics.edit_mask",
        m.edit_mask,
        {"factuals": "table", "refined": "table"},
        factuals=X,
        refined=FAR,
    )
    add("metrics.validity", m.validity, Z=X, score=SCORE, threshold=1.0)
    add(
        "metrics.silhouette",
        m.silhouette,
        {"metric": "choice", "sample_size": "count", "random_state": "seed"},
        X=X,
        labels=LABELS,
        metric="euclidean",
        sample_size=8,
        random_state=0,
    )
    add(
        "metrics.core_violation",
        m.core_violation,
        {"metric": "choice"},
        X=X,
        centers=CENTERS,
        candidates=X,
        metric="euclidean",
        sample_weight=np.ones(12),
    )
    add(
        "metrics.negative_log_likelihood",
        m.negative_log_likelihood,
        {"model": "thing"},
        model=fitted_mixture(),
        X=X,
        sample_weight=np.ones(12),
    )


def _textbook(add: Any) -> None:
    t = of.textbook
    add("BallProjection", t.BallProjection, point=[0.0, 0.0], centers=CENTERS[:2], radii=[5.0, 5.0])
    asset = {"returns": [0.1, 0.2], "covariance": SPD}
    add("CardinalityPortfolio", t.CardinalityPortfolio, **asset, wanted=0.15, most=1)
    add("MinimumVariance", t.MinimumVariance, **asset, wanted=0.15)
    add("RiskBudget", t.RiskBudget, **asset, risk=1.0)
    add("ChebyshevCenter", t.ChebyshevCenter, A=np.vstack([np.eye(2), -np.eye(2)]), b=np.ones(4))
    add(
        "CobbDouglas",
        t.CobbDouglas,
        {"prices": "vector"},
        prices=[1.0, 2.0],
        budget=10.0,
        share=0.5,
    )
    add(
        "Diet",
        t.Diet,
        {"cost": "vector", "maximum": "vector"},
        cost=[1.0, 2.0],
        nutrition=SPD,
        minimum=[1.0, 1.0],
        maximum=[9.0, 9.0],
    )
    add(
        "IntegerLeastSquares",
        t.IntegerLeastSquares,
        {"lower": "number", "upper": "number"},
        A=SPD,
        b=[1.0, 2.0],
        lower=-2.0,
        upper=2.0,
    )
    add("Knapsack", t.Knapsack, values=[1.0, 2.0], weights=[1.0, 1.0], capacity=1.0)
    add(
        "RobustKnapsack",
        t.RobustKnapsack,
        values=[1.0, 2.0],
        weights=[1.0, 1.0],
        deviations=[0.1, 0.1],
        capacity=1.5,
        size=1.0,
    )
    add(
        "LovaszTheta", t.LovaszTheta, {"adjacency": "matrix"}, adjacency=np.ones((2, 2)) - np.eye(2)
    )
    add(
        "MaxCutRelaxation",
        t.MaxCutRelaxation,
        {"weights": "matrix"},
        weights=np.ones((2, 2)) - np.eye(2),
    )
    add("MaximumEntropy", t.MaximumEntropy, functions=[[1.0, 2.0, 3.0]], moments=[2.0])
    add("NearestCorrelation", t.NearestCorrelation, estimate=np.eye(2))
    add("RidgeRegression", t.RidgeRegression, A=SPD, b=[1.0, 2.0], penalty=1.0)
    add("SimplexRegression", t.SimplexRegression, A=SPD, b=[1.0, 2.0])
    add("SmallestBall", t.SmallestBall, points=X)
    add("Transport", t.Transport, cost=SPD, supply=[1.0, 1.0], demand=[1.0, 1.0])
    add(
        "TrustRegion",
        t.TrustRegion,
        {"H": "matrix", "g": "vector"},
        H=-SPD,
        g=[1.0, 0.0],
        radius=1.0,
    )
    add("WaterFilling", t.WaterFilling, noise=[1.0, 2.0], power=1.0)


# --- bad values ------------------------------------------------------------------------------


class Odd:
    """A thing of no meaning here."""

    def __repr__(self) -> str:
        return "Odd()"


def _spoiled(good: Any, entry: Any, dtype: Any = object) -> Any:
    """Return the array with another last entry."""
    array = np.array(np.asarray(good), dtype=dtype)
    if array.size:
        array.flat[-1] = entry
    return array


def _wrong_things() -> dict[str, Any]:
    return {
        "an object": Odd(),
        "a function": len,
        "a mapping": {"a": 1},
        "a text": "abc",
        "bytes": b"abc",
        "a class": dict,
        "a date": datetime.datetime(2020, 1, 1),
        "a generator": (i for i in range(2)),
        "a module": np,
        "an ellipsis": ...,
    }


def _array(good: Any, *, infinite: bool = False, sparse: bool = False) -> dict[str, Any]:
    base = np.asarray(good.toarray() if sp.issparse(good) else good, dtype=float)
    bad = {
        **_wrong_things(),
        "complex": base + 1j,
        "complex without imaginary part": base.astype(complex),
        "datetimes": np.zeros(base.shape, "datetime64[s]"),
        "durations": np.ones(base.shape, "timedelta64[s]"),
        "numeric texts": base.astype(str),
        "objects": np.full(base.shape, Odd(), dtype=object),
        "None inside": _spoiled(base, None),
        "NaN inside": _spoiled(base, np.nan, float),
        "text inside": _spoiled(base, "1"),
        "complex object inside": _spoiled(base, 1j),
        "a huge number inside": _spoiled(base, 1e300, float),
        "an int beyond float inside": _spoiled(base, 10**400),
        "masked": np.ma.masked_array(base, mask=_spoiled(np.zeros(base.shape), 1, bool)),
        "no entries": np.zeros((0,) * base.ndim),
        "one number": 1.0,
        "three dimensions": np.zeros((2, 2, 2, 2)),
        "ragged": [[1.0, 2.0], [3.0]],
        "a set": {1.0, 2.0},
        "records": np.zeros(base.shape, dtype=[("a", float)]),
    }
    if not infinite:
        bad |= {f"{s}inf inside": _spoiled(base, float(f"{s}inf"), float) for s in ("", "-")}
    if not sparse and base.ndim == 2:
        bad["sparse"] = sp.csr_array(base)
    if base.ndim and base.shape[-1] > 1:
        bad["one entry less"] = base[..., :-1]
    return bad


def _number(good: Any, *, infinite: bool = False) -> dict[str, Any]:
    bad = {
        **_wrong_things(),
        "NaN": float("nan"),
        "-inf": float("-inf"),
        "beyond float": 10**400,
        "negative beyond float": -(10**400),
        "a numeric text": "1.0",
        "complex": 1j,
        "complex without imaginary part": 1 + 0j,
        "a boolean": True,
        "a list": [1.0, 2.0],
        "an array": np.ones(2),
        "an empty array": np.ones(0),
        "a huge number": 1e300,
        "a time difference": np.timedelta64(1, "s"),
        "a set": {1.0},
    }
    if not infinite:
        bad["inf"] = float("inf")
    return bad


def bad_values(kind: str, good: Any) -> dict[str, Any]:
    """Return bad values for an argument of a kind, by what they are called."""
    if kind in ("matrix", "vector", "sparse", "side"):
        return _array(good, infinite=kind == "side", sparse=kind == "sparse")
    if kind == "table":  # texts are categories
        texts = (
            "numeric texts",
            "text inside",
            "None inside",
            "an int beyond float inside",
            "a huge number inside",
            "inf inside",
            "-inf inside",
            "one entry less",
        )
        return {k: v for k, v in _array(good).items() if k not in texts}
    if kind == "number":
        return _number(good)
    if kind == "bound":
        return _number(good, infinite=True)
    if kind in ("count", "index", "seed"):
        more = {"negative": -1, "a fraction": 1.5, "minus one of NumPy": np.int64(-1)}
        more |= {"zero": 0} if kind == "count" else {}
        return _number(good) | more | {"inf": float("inf")}
    if kind == "level":
        return _number(good) | {"negative": -1, "five": 5}
    if kind == "flag":
        return _wrong_things() | {
            "five": 5,
            "NaN": float("nan"),
            "no": "no",
            "None": None,
            "an array": np.ones(2),
            "a list": [],
        }
    if kind in ("choice", "name", "key", "feature"):
        wrong = _wrong_things() | {
            "a number": 77,
            "a fraction": 1.5,
            "NaN": float("nan"),
            "a list": [1],
            "an array": np.ones(2),
            "beyond float": 10**400,
            "half a character": "\ud800",
            "empty": "",
            "a long text": "x" * 10**5,
            "a negative number": -77,
        }
        if kind in ("name", "feature"):
            wrong["None"] = None
        if kind == "feature":
            wrong = {k: v for k, v in wrong.items() if k not in ("a mapping", "a list", "an array")}
        if kind == "key":  # what Python itself takes as a key
            for name in (
                "a text",
                "half a character",
                "a long text",
                "a mapping",
                "a list",
                "an array",
            ):
                wrong.pop(name)
        return wrong
    if kind == "names":
        return _wrong_things() | {
            "numbers": [1, 2.5],
            "too few": ["a"],
            "nothing in it": [None, None],
            "twice the same": ["a", "a"],
            "a number": 3,
            "lists": [[1], [2]],
        }
    if kind == "labels":
        n = len(np.asarray(good))
        return _wrong_things() | {
            "one label": ["a"] * n if n == 12 and np.asarray(good).dtype.kind == "U" else Odd(),
            "None inside": _spoiled(good, None),
            "NaN inside": _spoiled(np.zeros(n), np.nan, float),
            "one less": np.asarray(good)[:-1],
            "no entries": [],
            "two dimensions": np.zeros((n, 2)),
            "a number": 3,
            "ragged": [[1], [2, 3]] + [[1]] * (n - 2),
            "lists": _lists(n),
            "complex": np.arange(n) * 1j,
            "mixed": _spoiled(good, Odd()),
            "NaT": np.full(n, "NaT", "datetime64[s]"),
        }
    if kind == "cluster":
        n = len(np.asarray(good))
        return _wrong_things() | {
            "texts": ["a"] * n,
            "negative": np.full(n, -1),
            "too large": np.full(n, 99),
            "fractions": np.full(n, 0.5),
            "one less": np.asarray(good)[:-1],
            "NaN inside": np.full(n, np.nan),
            "complex": np.zeros(n, complex),
            "no entries": [],
            "None": None,
            "dates": np.zeros(n, "datetime64[s]"),
        }
    if kind == "mapping":
        wrong = _wrong_things() | {
            "a number": 3,
            "a list of numbers": [1.0],
            "odd keys": {3: Odd()},
            "odd values": {"x": Odd()},
            "NaN": float("nan"),
        }
        return {k: v for k, v in wrong.items() if k != "a generator"}
    if kind == "thing":
        return _wrong_things() | {
            "a number": 3,
            "a list": [1],
            "NaN": float("nan"),
            "a fraction": 0.5,
            "an array": np.ones(2),
            "a boolean": True,
            "empty": "",
        }
    if kind == "callback":
        return {k: v for k, v in _wrong_things().items() if k not in ("a function", "a class")}
    if kind == "path":
        wrong = _wrong_things() | {
            "a number": 77,
            "NaN": float("nan"),
            "a list": [1],
            "empty": "",
            "a null character": "a\0b.mps",
            "a folder": ".",
            "no such folder": "nowhere/at/all.mps",
            "a long name": "x" * 5000 + ".mps",
            "a boolean": True,
            "half a character": "\ud800.mps",
            "a file inside a file": "p.mps/q.mps",
        }
        return {k: v for k, v in wrong.items() if k not in ("a text", "bytes")}
    raise ValueError(kind)


def _lists(n: int) -> Any:
    found = np.empty(n, dtype=object)
    found[:] = [[1]] * n
    return found


@dataclass(frozen=True)
class Case:
    """One bad argument of one call."""

    call: Call
    argument: str
    what: str
    value: Any

    @property
    def name(self) -> str:
        return f"{self.call.name}({self.argument}={self.what})"

    def run(self) -> Any:
        """Make the call."""
        return self.call.function(**(self.call.good | {self.argument: self.value}))


def cases() -> Iterator[Case]:
    """Yield every case, in an order that does not change."""
    for one in calls():
        for argument, kind in one.kinds.items():
            for what, value in bad_values(kind, one.good[argument]).items():
                if not accepted(one.name, argument, what):
                    yield Case(one, argument, what, value)


# (calls and arguments, values that are taken, why)
ACCEPTED = (
    (r".*\.(time_limit|seconds)", ("inf", "a huge number"), "no limit"),
    (r".*Map.*\.[Kk]", ("inf",), "no bound"),
    (r".*\.feature_costs", ("one number",), "of every feature"),
    (r"(cluster_share|proportion|row_budget)\..*", ("an array", "a list"), "one per group or row"),
    (
        r".*\.(X|A|noise|centers|nutrition|cost|costs|log_prob)",
        ("one entry less",),
        "fewer columns",
    ),
    (
        r"metrics\..*\.(outputs|factual|target)",
        ("one entry less", "one number"),
        "any number of them",
    ),
    (
        r"from_arrays\.(P|q|A|G|l|u|lb|ub|h)",
        ("a huge number inside",),
        "what is solved is measured",
    ),
    (r"from_arrays\.(l|u|h|lb|ub)", ("one number",), "for all"),
    (
        r".*\.(features|columns|rows|names)",
        ("numbers", "a generator"),
        "names of columns may be numbers",
    ),
    (r".*n_jobs", ("negative", "minus one of NumPy"), "-1 is all cores"),
    (r"Optimality.tolerance", ("inf", "a huge number"), "any"),
    (r"(SparseCounterfactuals\.budget|.*exact_features|row_budget.*|at_most.*)", ("zero",), "none"),
    (r"FairMixture\.predict_proba\.groups", ("one label",), "rows of one group"),
    (r"LinearScore\.coef", ("one number",), "one feature"),
    (r"eps_path.*|lambda_path.*|shifted.*|counterfactual_front\.K", ("one entry less",), "fewer"),
    (
        r"Exactness\.(values|multipliers)",
        ("a mapping", "odd keys", "odd values"),
        "it is not verified",
    ),
    (r"box\.(lower|upper)", ("-inf", "inf", "a huge number"), "no bound"),
    (r"proportion\..*", ("a mapping",), "by group"),
    (r"FairKMeans\.(predict|score)\.groups", ("one label",), "rows of one group"),
    (
        r"metrics.*\.(assignment|values)",
        ("two dimensions", "one label", "one entry less"),
        "fractions",
    ),
    (r"KantorovichCoupling\.shares", ("an array",), "two numbers"),
    (r"optimality_gap\.clustering", ("a number", "a fraction"), "an objective"),
    (r"(compare_solvers\.out|.*)\.?out", ("no such folder",), "it is made"),
    (r"shifted.*\.values|from_arrays\.(rows|columns)", ("a generator", "a set"), "an iterable"),
    (r"row_budget\.most", ("a fraction",), "costs are no counts"),
    (r"counterfactual_front\.K", ("one number",), "one bound"),
    (r"given_counterfactuals\.rows", ("NaN inside",), "told when they are compared"),
    (
        r"(MaximumEntropy|SmallestBall|LinearScore|FairKMeans\.fit_stream|from_arrays).*",
        ("one entry less",),
        "fewer columns, or one for all",
    ),
    (r"RidgeRegression.*|SimplexRegression.*", ("one entry less",), "fewer columns"),
)


def accepted(name: str, argument: str, what: str) -> bool:
    """Return whether the documentation says that this is taken."""
    return any(
        what in whats and re.fullmatch(pattern, f"{name}.{argument}")
        for pattern, whats, _ in ACCEPTED
    )


def prepare() -> None:
    """Write the files that good calls read, into the folder one is in."""
    of.export(lp(), "p.mps")
    solution().save("s")
    solution().certificate.save("p.proof")
    transport_map().save("map0")


def main(start: int, step: int) -> None:
    """Make every step-th call, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        prepare()
        told(
            ((c.name, c.run) for c in cases()),
            start,
            step,
            SECONDS,
            silent_counts=True,
            after=_tidy,
        )


def _tidy() -> None:
    for made in [*Path().glob("out*"), *Path().glob("cones*"), *Path().glob("map.*")]:
        made.unlink()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
