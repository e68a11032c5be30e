"""Solvers that lie: whatever an adapter hands back, nothing false is claimed and nothing raw escapes."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from cvxpy.atoms.elementwise.trig import sin

import optfair as of
from optfair.backends import registry
from optfair.backends import search as solving
from optfair.backends.isolation import Answer
from optfair.backends.linear_program import solve_form
from optfair.backends.registry import profile, profiles
from optfair.backends.request import Outcome, RawPoint, Request, SolverProfile
from optfair.methods.group_counterfactuals.rules import at_most

Floats = Any
TOLERANCE = 1e-6


def lp() -> Any:
    x = cp.Variable(3, name="x")
    rows = [x[0] + 2 * x[1] >= 3, x[1] + x[2] >= 2, x[0] + x[2] <= 4, x >= 0]
    return of.from_cvxpy(cp.Problem(cp.Minimize(np.array([4.0, 6.0, 3.0]) @ x), rows))


def milp() -> Any:
    p = lp()
    return p.with_constraints(reach=p["x"] <= 9).with_integrality("x")


def whole_in_a_ball() -> Any:
    p = milp()
    return p.with_constraints(ball=cp.norm(p["x"]) <= 20)


def qp() -> Any:
    x = cp.Variable(3, name="x")
    rows = [cp.sum(x) == 1, x >= 0]
    return of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x - np.arange(3.0))), rows))


def assignment() -> Any:
    X = np.random.default_rng(1).normal(size=(14, 2))
    return of.FairAssignment(X, groups=np.arange(14) % 2, centers=X[:3])


def coupling() -> Any:
    rng = np.random.default_rng(2)
    return of.KantorovichCoupling(
        rng.normal(size=(5, 2)), rng.normal(size=(7, 2)), centers=rng.normal(size=(3, 2))
    )


def sdp() -> Any:
    Z = cp.Variable((3, 3), name="Z", PSD=True)
    C = np.array([[2.0, 1.0, 0.0], [1.0, 2.0, 1.0], [0.0, 1.0, 2.0]])
    rows = [cp.diag(Z) == 1, Z[0, 2] >= -0.5]
    return of.from_cvxpy(cp.Problem(cp.Minimize(cp.trace(C @ Z)), rows))


def curved() -> Any:
    x, y = cp.Variable(name="x"), cp.Variable(name="y")
    goal = cp.Minimize(cp.exp(x) - x * x / 2 - 2 * x + cp.square(y - x))
    return of.from_cvxpy(cp.Problem(goal, [x >= 0, x <= 3, y >= 1, y <= 5]))


def wave() -> Any:
    x = cp.Variable(name="x")
    rows = [x >= -5, x <= 5]
    return of.from_cvxpy(cp.Problem(cp.Minimize(sin(3 * x) + x * x / 5), rows))


def ball() -> Any:
    x = cp.Variable(2, name="x")
    cost = cp.Minimize(cp.square(x[0]) - 2.0 * cp.square(x[1]) + x[0])
    return of.from_cvxpy(cp.Problem(cost, [cp.sum_squares(x) <= 4]), ["ball"])


def ratio() -> Any:
    x, y = cp.Variable(pos=True, name="x"), cp.Variable(pos=True, name="y")
    return of.from_cvxpy(cp.Problem(cp.Minimize(x / y + y), [x * y >= 2, y <= 3, x <= 5]))


def group(d: int = 12, **given: Any) -> Any:
    rng = np.random.default_rng(1)
    X, w = rng.normal(size=(30, d)) @ rng.normal(size=(d, d)) / 2 - 1.0, rng.normal(size=d)
    level = float(np.quantile(X @ w, 0.9))
    return of.PSDMap(X, score=(w, 0.0), threshold=level, **given)


def sparse_group() -> Any:
    return group(4, K=1.4, k=1.6).with_constraints(few=at_most(2))


def loaded(name: str) -> Callable[[], Any]:
    """Return what declares an instance of the library."""
    return lambda: of.library.load(name).problem()


class MosekTask:
    """Stands in for a task without a licence: HiGHS solves, the answer is read as MOSEK's."""

    def __init__(self, form: Any, integer: Any, scale: float) -> None:
        self.form, self.integer, self.scale = form, integer, scale

    def __enter__(self) -> MosekTask:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def putparam(self, name: str, value: str) -> None:
        assert name.startswith("MSK_") and value

    def optimize(self) -> None:
        found, _ = solve_form(self.form, self.integer, 1.0, {}, False, None, solver_name="highs")
        assert found.x is not None and found.status == "optimal"
        self.x, self.z, self.bound = found.x, found.z, found.bound

    def solutiondef(self, kind: Any) -> bool:
        return True

    def getsolsta(self, kind: Any) -> Any:
        import mosek

        return mosek.solsta.integer_optimal if self.integer.any() else mosek.solsta.optimal

    def getxx(self, kind: Any) -> list[float]:
        return list(map(float, self.x))

    def getaccdoty(self, kind: Any, i: int) -> Any:
        rows = slice(self.form.cones[i].start, self.form.cones[i].stop)
        return None if self.z is None else self.z[rows] * self.scale

    def getdouinf(self, item: Any) -> float:
        return float(self.bound) * self.scale


def sdpa_solve(A: Any, side: Any, cost: Any, K: Any, J: Any, options: Any) -> Any:
    """Minimise cost'z, Az = side, z in K, by Clarabel: what stands in for the library of SDPA."""
    z = cp.Variable(A.shape[1])
    rows: list[Any] = [z[K.f : K.f + K.l] >= 0] if K.l else []
    at = K.f + K.l
    for n in K.s:
        block = cp.reshape(z[at : at + n * n], (n, n), order="F")
        at += n * n
        rows += [(block + block.T) / 2 >> 0, block == block.T]
    equal = A @ z == side.toarray().ravel()
    goal = cp.Problem(cp.Minimize(cost.toarray().ravel() @ z), [equal, *rows])
    goal.solve(solver="CLARABEL", tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    import scipy.sparse as sp

    x = sp.csc_matrix(-np.atleast_2d(equal.dual_value).T)
    return sp.csc_matrix(np.atleast_2d(z.value).T), x, {"phasevalue": "pdOPT"}, None, None


def with_stand_ins(m: pytest.MonkeyPatch) -> None:
    """Let solvers without a licence or a library answer here, through their own adapters."""
    conic: Any = importlib.import_module("optfair.backends.conic_backend")
    library = SimpleNamespace(solve=sdpa_solve, SymCone=lambda f=0, l=0, s=(): SimpleNamespace(f=f, l=l, s=s))  # noqa: E741  # fmt: skip
    m.setattr(conic, "build_task", MosekTask)
    m.setitem(sys.modules, "sdpap", library)
    m.setattr(
        conic,
        "solve_apart",
        lambda program, data, inverse, options, **_: Answer(
            program.solve_via_data(data, False, options), {}
        ),
    )
    absent = ("mosek", "sdpa", "sdpa-multiprecision")
    there = SolverProfile.installed.fget  # type: ignore[attr-defined]
    m.setattr(SolverProfile, "installed", property(lambda p: p.name in absent or there(p)))
    honest = registry.licence_state
    open_state = registry.LicenceState("licensed")
    m.setattr(registry, "licence_state", lambda p: open_state if p.name in absent else honest(p))


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    with_stand_ins(monkeypatch)


def _x(change: Callable[[Floats], Any]) -> Callable[[RawPoint], RawPoint]:
    return lambda raw: replace(raw, x=None if raw.x is None else change(raw.x))


def _z(change: Callable[[Floats], Any]) -> Callable[[RawPoint], RawPoint]:
    return lambda raw: replace(raw, z=None if raw.z is None else change(raw.z))


def _with(**fields: Any) -> Callable[[RawPoint], RawPoint]:
    return lambda raw: replace(raw, **fields)


# what is done to the point of the compiled program
RAW: dict[str, Callable[[RawPoint], RawPoint]] = {
    "primal moved": _x(lambda x: x + 1e-3),
    "primal zero": _x(np.zeros_like),
    "primal short": _x(lambda x: x[:-1]),
    "primal long": _x(lambda x: np.append(x, 0.0)),
    "primal NaN": _x(lambda x: np.where(np.arange(x.size) == 0, np.nan, x)),
    "primal infinite": _x(lambda x: np.where(np.arange(x.size) == 0, np.inf, x)),
    "primal huge": _x(lambda x: x * 1e18),
    "no primal": _with(x=None),
    "dual moved": _z(lambda z: z + 0.1),
    "dual zero": _z(np.zeros_like),
    "dual negated": _z(lambda z: -z),
    "dual short": _z(lambda z: z[:-1]),
    "dual long": _z(lambda z: np.append(z, 0.0)),
    "dual NaN": _z(lambda z: np.where(np.arange(z.size) == 0, np.nan, z)),
    "dual infinite": _z(lambda z: np.where(np.arange(z.size) == 0, np.inf, z)),
    "dual huge": _z(lambda z: z * 1e200),
    "no dual": _with(z=None),
    "nothing": _with(x=None, z=None),
    "infeasible": lambda raw: RawPoint("infeasible", None, raw.z),
    "infeasible, no vector": _with(status="infeasible", x=None, z=None),
    "infeasible, ones": lambda raw: RawPoint(
        "infeasible", None, None if raw.z is None else np.ones_like(raw.z)
    ),
    "infeasible, NaN": lambda raw: RawPoint(
        "infeasible", None, None if raw.z is None else raw.z * np.nan
    ),
    "infeasible, short": lambda raw: RawPoint(
        "infeasible", None, None if raw.z is None else raw.z[:-1]
    ),
    "infeasible or unbounded": _with(status="infeasible_or_unbounded", x=None, z=None),
    "an unknown word": _with(status="splendid"),
    "bound NaN": _with(bound=np.nan),
    "bound infinite": _with(bound=np.inf),
    "bound too good": _with(bound=1e6),
}
# adapters of compiled programs: (module, solver, problem)
COMPILED = {
    "highspy lp": ("conic_backend", "highs", lp),
    "highspy qp": ("conic_backend", "highs", qp),
    "highspy milp": ("conic_backend", "highs", milp),
    "cvxpy conic": ("cvxpy_backend", "clarabel", qp),
    "cvxpy lp": ("cvxpy_backend", "clarabel", lp),
    "cvxpy qp interface": ("cvxpy_backend", "osqp", qp),
    "cvxpy first order": ("cvxpy_backend", "scs", qp),
    "cvxpy active set": ("cvxpy_backend", "daqp", qp),
    "cvxpy through scipy": ("cvxpy_backend", "scipy-linprog", lp),
    "blocks": ("blocks_backend", "psd-blocks", sdp),
    "extended": ("conic_backend", "extended-precision", sdp),
    "mosek": ("conic_backend", "mosek", lp),
    "mosek integers": ("conic_backend", "mosek", milp),
    "sdpa": ("conic_backend", "sdpa", sdp),
    "ortools": ("conic_backend", "glop", lp),
    "ortools integers": ("conic_backend", "cp-sat", milp),
}


# these start a process for every solve: a few lies in the fast tier
PROCESSES = ("ortools", "ortools integers")
FEW = ("primal moved", "dual short", "infeasible, ones", "values moved", "no proof")


def pairs(cases: Mapping[str, Any], lies: Mapping[str, Any]) -> list[Any]:
    """Return every case with every lie; the fast tier has each case with half of the lies."""
    return [
        pytest.param(case, lie, marks=[pytest.mark.slow] * (lie not in FEW and late))
        for i, case in enumerate(cases)
        for j, lie in enumerate(lies)
        for late in [case in PROCESSES or (i + j) % 2 > 0]
    ]


@cache
def truth_of(declare: Callable[[], Any]) -> float:
    return float(declare().solve(tolerance=1e-7).objective)


def judge(problem: Any, solver: str | None, truth: float) -> Any:
    """Solve; what comes back is an error of ours, or claims nothing that is false."""
    try:
        s = problem.solve(solver, tolerance=TOLERANCE)
    except (of.Infeasible, of.Unbounded) as e:
        raise AssertionError(f"a false claim: {e}") from e
    except of.OptfairError as e:
        assert e.cause
        return None
    if s.is_optimal(TOLERANCE):
        assert s.objective == pytest.approx(truth, rel=1e-4, abs=1e-4)
        assert s.bound == pytest.approx(truth, rel=1e-4, abs=1e-4)
    if s.status.primal == "feasible":
        for name, off in s.residuals().primal.items():
            assert off <= TOLERANCE, name
    return s


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("case", "lie"), pairs(COMPILED, RAW))
def test_a_lie_about_the_compiled_point(
    case: str, lie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module_name, solver, declare = COMPILED[case]
    truth = truth_of(declare)
    module: Any = importlib.import_module(f"optfair.backends.{module_name}")
    honest = module.run_generic
    told = 0

    def lying(problem: Any, profile: Any, request: Any, call: Any, **more: Any) -> Any:
        def lied(*arguments: Any) -> RawPoint:
            nonlocal told
            told += 1
            return RAW[lie](call(*arguments))

        return honest(problem, profile, request, lied if profile.name == solver else call, **more)

    monkeypatch.setattr(module, "run_generic", lying)
    problem = declare()
    s = judge(problem, solver, truth)
    assert told > 0
    if s is not None and lie.startswith(("primal", "no primal", "nothing", "infeasible")):
        # a wrong point may be cleaned up, it may not be handed on
        assert s.objective == pytest.approx(truth, rel=1e-4, abs=1e-4)


def test_the_default_goes_on_to_a_solver_that_does_not_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = importlib.import_module("optfair.backends.conic_backend")
    honest = module.run_generic
    for lie in ("primal moved", "dual short", "dual NaN", "infeasible, ones", "nothing"):

        def lying(problem: Any, profile: Any, request: Any, call: Any, **more: Any) -> Any:
            return honest(problem, profile, request, lambda *a: RAW[lie](call(*a)), **more)  # noqa: B023

        monkeypatch.setattr(module, "run_generic", lying)
        s = lp().solve(tolerance=TOLERANCE)
        assert s.is_optimal(TOLERANCE) and s.solver != "highs" and s.attempts


def _values(change: Callable[[Any], Any]) -> Callable[[Outcome], Outcome]:
    return lambda o: replace(o, values={k: change(np.array(v)) for k, v in o.values.items()})


def _multipliers(change: Callable[[Any], Any]) -> Callable[[Outcome], Outcome]:
    return lambda o: replace(
        o, multipliers={k: change(np.array(v)) for k, v in o.multipliers.items()}
    )


def _one_fewer(numbers: Mapping[str, Any]) -> dict[str, Any]:
    return {k: numbers[k] for k in list(numbers)[1:]}


class ForgedProof:
    """A bound out of thin air."""

    source = "duality"

    def __init__(self, problem: Any, bound: float) -> None:
        self.problem, self.bound = problem, bound

    def check(self, values: Any, multipliers: Any) -> Any:
        from optfair.core.certificate import DualCheck

        return DualCheck(self.bound, 0.0)


# what is done to what an adapter hands back by name
NAMED: dict[str, Callable[[Outcome], Outcome]] = {
    "values moved": _values(lambda v: v + 1e-3),
    "values zero": _values(np.zeros_like),
    "values NaN": _values(lambda v: v * np.nan),
    "values infinite": _values(lambda v: v + np.inf),
    "values of another shape": _values(lambda v: v.ravel()[:-1]),
    "a value missing": lambda o: replace(o, values=_one_fewer(o.values)),
    "no values": lambda o: replace(o, values={}),
    "multipliers moved": _multipliers(lambda v: v + 0.1),
    "multipliers NaN": _multipliers(lambda v: v * np.nan),
    "multipliers of another shape": _multipliers(lambda v: np.append(v.ravel(), 0.0)),
    "a multiplier missing": lambda o: replace(o, multipliers=_one_fewer(o.multipliers)),
    "no multipliers": lambda o: replace(o, multipliers={}),
    "no proof": lambda o: replace(o, proof=None),
    "bound NaN": lambda o: replace(o, proof=ForgedProof(_problem(o), np.nan)),
    "bound infinite": lambda o: replace(o, proof=ForgedProof(_problem(o), np.inf)),
    "status": lambda o: replace(_values(lambda v: v + 1.0)(o), termination="optimal"),
    "an unknown word": lambda o: replace(o, termination="splendid"),
}


def _problem(o: Outcome) -> Any:
    return None if o.proof is None else o.proof.problem


def category() -> Any:
    """A row that is to leave its cluster, with three features of which one is 1."""
    return of.ClusterCounterfactual.kmeans(
        centers=[[0.0, 1.0, 0.0, 0.0], [4.0, 0.2, 0.8, 0.0]],
        factual=[0.5, 1.0, 0.0, 0.0],
        target=1,
        one_hot=[1, 2, 3],
    )


# every solver, with a small problem that it takes
ADAPTERS: dict[str, Callable[[], Any]] = {
    **dict.fromkeys(("highs", "glop", "pdlp", "scipy-linprog", "mosek"), lp),
    **dict.fromkeys(("clarabel", "daqp", "osqp", "piqp", "qoco", "qpalm", "scs", "cvxopt"), qp),
    **dict.fromkeys(("gurobi", "gurobi-pyomo", "uno", "ipopt", "extended-precision"), qp),
    **dict.fromkeys(("scip", "cp-sat"), milp),
    **dict.fromkeys(("sdpa", "sdpa-multiprecision", "psd-blocks"), sdp),
    "cone-cases": whole_in_a_ball,
    "dccp": lp,
    "tangents": curved,
    "interval-boxes": wave,
    "equivalent-convex": ratio,
    "semidefinite-relaxation": ball,
    "mass-dual": assignment,
    "pot-network-simplex": coupling,
    "entropic-mass": loaded("fair_mixture/german_perfect"),
    "action-dp": loaded("action_plan/two_rows"),
    "secular-equation": loaded("cluster_counterfactual/hard_case"),
    "pairwise-relaxation": loaded("cluster_counterfactual/iris_gaussian_all"),
    "cell-projection": loaded("cluster_counterfactual/iris_gaussian_tied"),
    "half-space-projection": loaded("cluster_counterfactual/iris_kmeans_bounds"),
    "lazy-rows": loaded("group_counterfactual/affine_german"),
    "score-map": loaded("group_counterfactual/commutative_german"),
    "independent-rows": loaded("group_counterfactual/independent_german"),
    "scaled-map": loaded("group_counterfactual/scaled_german"),
    "loewner-map": group,
    "support-search": sparse_group,
    "category-choices": category,
}
# in the fast tier with every lie; of the others a few
WHOLE = ("highs", "clarabel", "scip", "gurobi", "uno", "mosek", "mass-dual")


@cache
def declared(solver: str) -> Any:
    return ADAPTERS[solver]()


@cache
def honest(solver: str) -> Outcome:
    """Return what an adapter hands back when nobody lies."""
    with pytest.MonkeyPatch.context() as m:
        with_stand_ins(m)
        told: Outcome = solving.adapter_of(profile(solver))(
            declared(solver), profile(solver), Request(tolerance=TOLERANCE)
        )
        return told


def there(solver: str) -> bool:
    return profile(solver).installed or profile(solver).via in ("conic:mosek", "conic:sdpa")


def test_every_solver_is_among_those_that_lie() -> None:
    assert set(ADAPTERS) == set(profiles())


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("solver", "lie"),
    [
        pytest.param(k, lie, marks=[pytest.mark.slow] * (k not in WHOLE and lie not in FEW))
        for k in ADAPTERS
        if there(k)
        for lie in NAMED
    ],
)
def test_a_lie_about_named_numbers(solver: str, lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    truth = truth_of(ADAPTERS[solver])
    adapter, own, told = solving.adapter_of, honest(solver), 0

    def lying(problem: Any, profile: Any, request: Any) -> Outcome:
        nonlocal told
        told += 1
        return NAMED[lie](own)

    monkeypatch.setattr(solving, "adapter_of", lambda p: lying if p.name == solver else adapter(p))
    s = judge(declared(solver), solver, truth)
    assert told > 0
    if s is not None and lie.startswith(("values", "a value", "no values", "status")):
        local = s.status.termination == "local"  # feasible, and not called optimal
        assert (
            local or s.status.primal != "feasible" or s.objective == pytest.approx(truth, abs=1e-4)
        )
    if s is not None and lie in ("no proof", "bound NaN", "bound infinite", "no multipliers"):
        assert lie == "no multipliers" or not s.is_optimal(TOLERANCE)


@pytest.mark.parametrize("lie", [of.Infeasible, of.Unbounded])
def test_what_an_adapter_raises_without_a_certificate_is_its_word(
    lie: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(problem: Any, own: SolverProfile, request: Request) -> Outcome:
        raise lie("it is so", "I say", "believe me")

    own, honest = profile("mass-dual"), solving.adapter_of
    monkeypatch.setattr(solving, "adapter_of", lambda p: run if p.name == own.name else honest(p))
    with pytest.raises(of.SolverFailure, match="it is so, which is not proved here") as failure:
        assignment().solve("mass-dual")
    word = "infeasible" if lie is of.Infeasible else "unbounded"
    assert (failure.value.claim, failure.value.claimed_by) == (word, "mass-dual")
    s = assignment().solve()
    assert s.solver != "mass-dual" and s.is_optimal(TOLERANCE)


@pytest.mark.parametrize("unit", [1e6, 3e6])
def test_a_bound_that_is_proved_denies_that_the_objective_has_no_limit(unit: float) -> None:
    """SCS calls a divergence of at least 0 unbounded; other solvers bounded it."""
    x = cp.Variable(2, nonneg=True, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(cp.kl_div(x, np.array([unit, 1.0]))))))
    try:
        s = p.solve()
    except of.SolverFailure as failure:
        assert failure.claim == "" and "without limit" not in failure.cause
        s = failure.solution
    assert s is not None and -0.1 < s.bound <= s.objective < 0.1
