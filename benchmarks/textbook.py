"""Problems of textbooks as users of CVXPY write them: right and proved, at what cost over CVXPY.

    python benchmarks/textbook.py [--quick] [--json] [--only NAME,NAME]

Ours is ``of.from_cvxpy(problem).solve()``: the default route at 1e-7, with a proof. The peer is
``problem.solve`` with Clarabel (SCIP for mixed-integer ones) and the defaults of CVXPY. Both sides
write a new problem of the same data in every round; processor seconds, the least of the rounds. The
problems are those of Boyd, Vandenberghe (2004) and of CVXPY's examples, at the sizes of these.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import cvxpy as cp
import numpy as np
import scipy.sparse as sp
from record import environment, targets_table

import optfair as of
from optfair.proofs.definiteness import forget

# answers that differ, those without a proof, and the median of time / CVXPY's that is to be reached
TARGETS = {"other values": 0.0, "convex without a proof": 0.0, "median of time / CVXPY's": 3.0}
APART = 1e-5
QUICK = ("lasso", "logistic", "water_filling", "d_optimal", "phase_retrieval", "best_subset")
PROBLEMS: dict[str, Callable[[np.random.Generator], cp.Problem]] = {}


def problem(build: Callable[[np.random.Generator], cp.Problem]) -> Any:
    """Add a problem to the table."""
    PROBLEMS[build.__name__] = build
    return build


@problem
def lasso(rng: Any) -> cp.Problem:
    A, x = rng.normal(size=(300, 600)), cp.Variable(600)
    b = A[:, :10] @ rng.normal(size=10) + 0.1 * rng.normal(size=300)
    return cp.Problem(cp.Minimize(cp.sum_squares(A @ x - b) + 5 * cp.norm1(x)))


@problem
def square_root_lasso(rng: Any) -> cp.Problem:
    A, x = rng.normal(size=(100, 200)), cp.Variable(200)
    b = A[:, :10] @ rng.normal(size=10) + 0.1 * rng.normal(size=100)
    return cp.Problem(cp.Minimize(cp.norm(A @ x - b) + 0.5 * cp.norm1(x)))


@problem
def group_lasso(rng: Any) -> cp.Problem:
    A, b, X = rng.normal(size=(200, 100)), rng.normal(size=200), cp.Variable((20, 5))
    groups = cp.sum(cp.norm(X, 2, axis=1))
    return cp.Problem(cp.Minimize(cp.sum_squares(A @ cp.vec(X, order="C") - b) + 20 * groups))


@problem
def support_vectors(rng: Any) -> cp.Problem:
    X, w, b = rng.normal(size=(1000, 30)), cp.Variable(30), cp.Variable()
    y = np.sign(X @ rng.normal(size=30) + rng.normal(size=1000))
    hinge = cp.sum(cp.pos(1 - cp.multiply(y, X @ w + b)))
    return cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + hinge))


@problem
def logistic(rng: Any) -> cp.Problem:
    X, w = rng.normal(size=(500, 20)), cp.Variable(20)
    y = (X @ rng.normal(size=20) + rng.normal(size=500) > 0) * 1.0
    likelihood = cp.sum(cp.multiply(y, X @ w) - cp.logistic(X @ w))
    return cp.Problem(cp.Maximize(likelihood - 0.1 * cp.norm1(w)))


@problem
def poisson_regression(rng: Any) -> cp.Problem:
    X, w = rng.normal(size=(200, 8)) * 0.3, cp.Variable(8)
    y = rng.poisson(np.exp(X @ np.full(8, 0.5)))
    return cp.Problem(cp.Minimize(cp.sum(cp.exp(X @ w) - cp.multiply(y, X @ w))))


@problem
def huber_regression(rng: Any) -> cp.Problem:
    A, x = rng.normal(size=(400, 30)), cp.Variable(30)
    b = A @ rng.normal(size=30) + rng.standard_t(1, size=400)
    return cp.Problem(cp.Minimize(cp.sum(cp.huber(A @ x - b, 1))))


@problem
def quantile_regression(rng: Any) -> cp.Problem:
    A, b, x = rng.normal(size=(500, 10)), rng.normal(size=500), cp.Variable(10)
    return cp.Problem(cp.Minimize(cp.sum(0.5 * cp.abs(b - A @ x) + 0.3 * (b - A @ x))))


@problem
def penalty_of_power(rng: Any) -> cp.Problem:
    A, b, x = rng.normal(size=(50, 10)), rng.normal(size=50), cp.Variable(10)
    return cp.Problem(cp.Minimize(cp.sum(cp.power(cp.abs(A @ x - b), 1.5))))


@problem
def fit_in_p_norm(rng: Any) -> cp.Problem:
    A, b, x = rng.normal(size=(5000, 10)), rng.normal(size=5000), cp.Variable(10)
    return cp.Problem(cp.Minimize(cp.pnorm(A @ x - b, 3)))


@problem
def largest_residuals(rng: Any) -> cp.Problem:
    A, b, x = rng.normal(size=(50, 10)), rng.normal(size=50), cp.Variable(10)
    return cp.Problem(cp.Minimize(cp.sum_largest(cp.abs(A @ x - b), 7)))


@problem
def isotonic_regression(rng: Any) -> cp.Problem:
    y, x = np.cumsum(rng.normal(size=300)), cp.Variable(300)
    return cp.Problem(cp.Minimize(cp.sum_squares(x - y)), [cp.diff(x) >= 0])


@problem
def convex_regression(rng: Any) -> cp.Problem:
    X, f, g = rng.normal(size=(20, 2)), cp.Variable(20), cp.Variable((20, 2))
    y = (X**2).sum(1) + 0.1 * rng.normal(size=20)
    rows = [f[j] >= f[i] + g[i] @ (X[j] - X[i]) for i in range(20) for j in range(20) if i != j]
    return cp.Problem(cp.Minimize(cp.sum_squares(f - y)), rows)


@problem
def trend_filter(rng: Any) -> cp.Problem:
    y, x = np.cumsum(rng.normal(size=500)) / 5, cp.Variable(500)
    D = sp.diags_array([1.0, -2.0, 1.0], offsets=[0, 1, 2], shape=(498, 500))
    return cp.Problem(cp.Minimize(0.5 * cp.sum_squares(y - x) + 20 * cp.norm1(D @ x)))


@problem
def total_variation(rng: Any) -> cp.Problem:
    image = np.kron(rng.random((6, 6)) > 0.5, np.ones((6, 6))) + 0.2 * rng.normal(size=(36, 36))
    X = cp.Variable((36, 36))
    return cp.Problem(cp.Minimize(0.5 * cp.sum_squares(X - image) + 0.2 * cp.tv(X)))


@problem
def robust_kalman(rng: Any) -> cp.Problem:
    steps, A = 100, np.diag([1.0, 1.0, 0.95, 0.95])
    A[0, 2] = A[1, 3] = 0.1
    B, y = np.vstack([np.zeros((2, 2)), 0.1 * np.eye(2)]), rng.normal(size=(2, steps))
    x, w, v = cp.Variable((4, steps + 1)), cp.Variable((2, steps)), cp.Variable((2, steps))
    noise = cp.sum(cp.huber(cp.norm(v, 2, axis=0), 2))
    rows = [x[:, 1:] == A @ x[:, :-1] + B @ w, y == x[:2, :-1] + v]
    return cp.Problem(cp.Minimize(cp.sum_squares(w) + noise), rows)


@problem
def predictive_control(rng: Any) -> cp.Problem:
    n, m, steps = 8, 3, 40
    A, B = np.eye(n) + 0.1 * rng.normal(size=(n, n)), rng.normal(size=(n, m))
    x, u = cp.Variable((n, steps + 1)), cp.Variable((m, steps))
    rows = [x[:, t + 1] == A @ x[:, t] + B @ u[:, t] for t in range(steps)]
    rows += [x[:, 0] == rng.normal(size=n), x[:, steps] == 0, cp.abs(u) <= 2]
    return cp.Problem(cp.Minimize(cp.sum_squares(x) + cp.sum_squares(u)), rows)


@problem
def factor_portfolio(rng: Any) -> cp.Problem:
    n, m = 500, 15
    F, d, mu = rng.normal(size=(n, m)), rng.random(n) * 0.1, np.abs(rng.normal(size=n))
    w, f = cp.Variable(n), cp.Variable(m)
    risk = cp.sum_squares(f) + cp.sum_squares(cp.multiply(np.sqrt(d), w))
    rows = [cp.sum(w) == 1, f == F.T @ w, cp.norm1(w) <= 2]
    return cp.Problem(cp.Maximize(mu @ w - 5 * risk), rows)


@problem
def growth_portfolio(rng: Any) -> cp.Problem:
    X, b = 1 + 0.1 * rng.normal(size=(100, 20)), cp.Variable(20)
    return cp.Problem(cp.Maximize(cp.sum(cp.log(X @ b)) / 100), [b >= 0, cp.sum(b) == 1])


@problem
def tail_risk(rng: Any) -> cp.Problem:
    X, w, t = rng.normal(size=(200, 20)), cp.Variable(20), cp.Variable()
    loss = t + cp.sum(cp.pos(-X @ w - t)) / (0.05 * 200)
    return cp.Problem(cp.Minimize(loss), [cp.sum(w) == 1, w >= 0])


@problem
def water_filling(rng: Any) -> cp.Problem:
    a, x = rng.random(50) + 0.1, cp.Variable(50)
    return cp.Problem(cp.Maximize(cp.sum(cp.log(a + x))), [x >= 0, cp.sum(x) == 3])


@problem
def largest_entropy(rng: Any) -> cp.Problem:
    A, p, x = rng.normal(size=(10, 100)), rng.random(100), cp.Variable(100)
    return cp.Problem(cp.Maximize(cp.sum(cp.entr(x))), [A @ x == A @ p / p.sum(), cp.sum(x) == 1])


@problem
def channel_capacity(rng: Any) -> cp.Problem:
    P, x = rng.random((20, 20)), cp.Variable(20)
    P /= P.sum(axis=0)
    rate = cp.sum(cp.entr(P @ x)) + (P * np.log(P)).sum(axis=0) @ x
    return cp.Problem(cp.Maximize(rate), [x >= 0, cp.sum(x) == 1])


@problem
def entropic_transport(rng: Any) -> cp.Problem:
    a, b, T = rng.random(10), rng.random(12), cp.Variable((10, 12), nonneg=True)
    rows = [cp.sum(T, axis=1) == a / a.sum(), cp.sum(T, axis=0) == b / b.sum()]
    cost = cp.sum(cp.multiply(rng.random((10, 12)), T)) - 0.05 * cp.sum(cp.entr(T))
    return cp.Problem(cp.Minimize(cost), rows)


@problem
def flow_with_delays(rng: Any) -> cp.Problem:
    n, m = 20, 60
    ends = np.array([rng.choice(n, 2, replace=False) for _ in range(m)]).T
    A = np.zeros((n, m))
    A[ends[0], np.arange(m)], A[ends[1], np.arange(m)] = 1.0, -1.0
    x, c = cp.Variable(m), rng.random(m) + 0.5
    delay = cp.sum(cp.multiply(1 / c, cp.inv_pos(1 - x / c)))
    rows = [A @ x == A @ (rng.random(m) * 0.4 * c), x >= 0, x <= 0.999 * c]
    return cp.Problem(cp.Minimize(delay), rows)


@problem
def analytic_center(rng: Any) -> cp.Problem:
    A, b, x = rng.normal(size=(60, 10)), 1 + rng.random(60), cp.Variable(10)
    return cp.Problem(cp.Maximize(cp.sum(cp.log(b - A @ x))))


@problem
def chebyshev_center(rng: Any) -> cp.Problem:
    A, b, x, r = rng.normal(size=(60, 10)), 1 + rng.random(60), cp.Variable(10), cp.Variable()
    return cp.Problem(cp.Maximize(r), [A @ x + np.linalg.norm(A, axis=1) * r <= b])


@problem
def robust_program(rng: Any) -> cp.Problem:
    A, b, x = rng.normal(size=(50, 10)), 1 + rng.random(50), cp.Variable(10)
    return cp.Problem(cp.Minimize(rng.normal(size=10) @ x), [A @ x + 0.2 * cp.norm(x) <= b])


@problem
def enclosing_ellipsoid(rng: Any) -> cp.Problem:
    X, A, b = rng.normal(size=(40, 3)), cp.Variable((3, 3), PSD=True), cp.Variable(3)
    return cp.Problem(cp.Minimize(-cp.log_det(A)), [cp.norm(A @ x + b) <= 1 for x in X])


@problem
def inscribed_ellipsoid(rng: Any) -> cp.Problem:
    A, B, d = rng.normal(size=(20, 4)), cp.Variable((4, 4), PSD=True), cp.Variable(4)
    return cp.Problem(cp.Maximize(cp.log_det(B)), [cp.norm(B @ a) + a @ d <= 1 for a in A])


@problem
def d_optimal(rng: Any) -> cp.Problem:
    V, w = rng.normal(size=(5, 25)), cp.Variable(25)
    return cp.Problem(cp.Maximize(cp.log_det(V @ cp.diag(w) @ V.T)), [w >= 0, cp.sum(w) == 1])


@problem
def a_optimal(rng: Any) -> cp.Problem:
    V, w = rng.normal(size=(5, 25)), cp.Variable(25)
    return cp.Problem(cp.Minimize(cp.tr_inv(V @ cp.diag(w) @ V.T)), [w >= 0, cp.sum(w) == 1])


@problem
def mixing_chain(rng: Any) -> cp.Problem:
    n = 12
    upper = np.triu(rng.random((n, n)) < 0.4, 1)
    missing, P = 1 - upper - upper.T - np.eye(n), cp.Variable((n, n), symmetric=True)
    rows = [P >= 0, P @ np.ones(n) == 1, cp.multiply(P, missing) == 0]
    return cp.Problem(cp.Minimize(cp.norm(P - np.ones((n, n)) / n, 2)), rows)


@problem
def sparse_components(rng: Any) -> cp.Problem:
    A, X = rng.normal(size=(15, 15)), cp.Variable((15, 15), PSD=True)
    goal = cp.Maximize(cp.trace(A.T @ A @ X) - 2 * cp.sum(cp.abs(X)))
    return cp.Problem(goal, [cp.trace(X) == 1])


@problem
def sparse_precision(rng: Any) -> cp.Problem:
    S, X = rng.normal(size=(20, 10)), cp.Variable((10, 10), PSD=True)
    likelihood = cp.log_det(X) - cp.trace(S.T @ S / 20 @ X)
    return cp.Problem(cp.Maximize(likelihood - 0.1 * cp.sum(cp.abs(X))))


@problem
def matrix_completion(rng: Any) -> cp.Problem:
    M, X = rng.normal(size=(15, 2)) @ rng.normal(size=(2, 12)), cp.Variable((15, 12))
    known = rng.random((15, 12)) < 0.6
    return cp.Problem(cp.Minimize(cp.normNuc(X)), [X[known] == M[known]])


@problem
def nearest_correlation(rng: Any) -> cp.Problem:
    S, X = rng.normal(size=(20, 20)), cp.Variable((20, 20), PSD=True)
    return cp.Problem(cp.Minimize(cp.sum_squares(X - (S + S.T) / 2)), [cp.diag(X) == 1])


@problem
def lovasz_number(rng: Any) -> cp.Problem:
    X = cp.Variable((15, 15), PSD=True)
    apart = [X[i, j] == 0 for i in range(15) for j in range(i) if rng.random() < 0.3]
    return cp.Problem(cp.Maximize(cp.sum(X)), [cp.trace(X) == 1, *apart])


@problem
def lyapunov_function(rng: Any) -> cp.Problem:
    A, P = rng.normal(size=(6, 6)), cp.Variable((6, 6), symmetric=True)
    A -= (np.linalg.eigvals(A).real.max() + 0.5) * np.eye(6)
    return cp.Problem(cp.Minimize(cp.trace(P)), [P >> np.eye(6), A.T @ P + P @ A << -np.eye(6)])


@problem
def phase_retrieval(rng: Any) -> cp.Problem:
    x, A = (rng.normal(size=s) + 1j * rng.normal(size=s) for s in (6, (30, 6)))
    X = cp.Variable((6, 6), hermitian=True)
    rows = [cp.real(cp.trace(np.outer(a.conj(), a) @ X)) == abs(a @ x) ** 2 for a in A]
    return cp.Problem(cp.Minimize(cp.real(cp.trace(X))), [X >> 0, *rows])


@problem
def antenna_array(rng: Any) -> cp.Problem:
    angles, w = np.linspace(0, np.pi, 60), cp.Variable(12, complex=True)
    A = np.exp(2j * np.outer(np.cos(angles), np.arange(12)))
    goal = cp.Minimize(cp.max(cp.abs(A[np.abs(angles - 1) > 0.3] @ w)))
    return cp.Problem(goal, [np.exp(2j * np.cos(1) * np.arange(12)) @ w == 1])


@problem
def filter_design(rng: Any) -> cp.Problem:
    f, h, t = np.linspace(0, np.pi, 150), cp.Variable(20), cp.Variable()
    A = np.hstack([np.ones((150, 1)), 2 * np.cos(np.outer(f, np.arange(1, 20)))])
    inside = A[f <= 0.4]
    rows = [inside @ h <= 1.05, inside @ h >= 0.95, cp.abs(A[f >= 0.6] @ h) <= t]
    return cp.Problem(cp.Minimize(t), rows)


@problem
def box_of_most_volume(rng: Any) -> cp.Problem:
    h, w, d = (cp.Variable(pos=True) for _ in range(3))
    rows = [2 * (h * w + h * d) <= 200, w * d <= 60]
    rows += [h / w >= 0.5, h / w <= 2, d / w >= 0.5, d / w <= 2]
    return cp.Problem(cp.Maximize(h * w * d), rows)


@problem
def linear_fractional(rng: Any) -> cp.Problem:
    A, c, d = rng.random((5, 4)), rng.random(4), rng.random(4)
    x = cp.Variable(4, nonneg=True)
    return cp.Problem(cp.Minimize((c @ x + 1) / (d @ x + 1)), [A @ x <= 1])


@problem
def best_subset(rng: Any) -> cp.Problem:
    A, x, z = rng.normal(size=(60, 12)), cp.Variable(12), cp.Variable(12, boolean=True)
    b = A[:, :3] @ np.full(3, 2.0) + rng.normal(size=60)
    rows = [cp.abs(x) <= 10 * z, cp.sum(z) <= 3]
    return cp.Problem(cp.Minimize(cp.sum_squares(A @ x - b)), rows)


def by_cvxpy(stated: cp.Problem) -> float:
    """Return the optimum by CVXPY with its defaults."""
    if stated.is_mixed_integer():
        return float(stated.solve(solver="SCIP"))
    if stated.is_dcp():
        return float(stated.solve(solver="CLARABEL"))
    if stated.is_dgp():
        return float(stated.solve(solver="CLARABEL", gp=True))
    return float(stated.solve(solver="CLARABEL", qcp=True))


def measured(name: str, rounds: int) -> dict[str, Any]:
    """Return both values, the grade of ours, and the least processor seconds of both sides."""
    seconds: dict[str, list[float]] = {"optfair": [], "CVXPY": []}
    for _ in range(rounds + 1):  # the first warms caches up
        stated = PROBLEMS[name](np.random.default_rng(0))
        begin = time.process_time()
        value = by_cvxpy(stated)
        seconds["CVXPY"].append(time.process_time() - begin)
        stated = PROBLEMS[name](np.random.default_rng(0))
        forget()
        begin = time.process_time()
        s = of.from_cvxpy(stated).solve()
        seconds["optfair"].append(time.process_time() - begin)
    ours, theirs = (min(v[1:]) for v in seconds.values())
    row = {
        "problem": name,
        "solver": s.solver,
        "grade": str(s.grade),
        "class": str(s.problem.problem_class),
    }
    apart = abs(s.objective - value) / max(1.0, abs(value))
    return row | {"apart": apart, "optfair": ours, "CVXPY": theirs, "ratio": ours / theirs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a slice under 45 s")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--only", default="", help="names of problems")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of CVXPY, about accuracy
    names = [n for n in options.only.split(",") if n] or (QUICK if options.quick else PROBLEMS)
    rows = [measured(name, 1 if options.quick else 5) for name in names]
    got = {
        "other values": float(sum(r["apart"] > APART for r in rows)),
        "convex without a proof": float(sum(r["grade"] != "proved" for r in rows)),
        "median of time / CVXPY's": statistics.median(r["ratio"] for r in rows),
    }
    reach = [
        {"name": n, "target": t, "measured": got[n], "reached": got[n] <= t}
        for n, t in TARGETS.items()
    ]
    if options.json:
        print(json.dumps({"must_reach": reach, "rows": rows, "environment": environment()}))
        return
    print("## Problems of textbooks\n")
    print("| problem | class | solver | grade | apart from CVXPY's | ms | CVXPY ms | ratio |")
    print("|---|---|---|---|---:|---:|---:|---:|")
    for r in rows:
        words = f"{r['problem'].replace('_', ' ')} | {r['class']} | {r['solver']} | {r['grade']}"
        times = f"{r['optfair'] * 1e3:.1f} | {r['CVXPY'] * 1e3:.1f} | {r['ratio']:.2f}"
        print(f"| {words} | {r['apart']:.1e} | {times} |")
    print("\n" + targets_table(reach))


if __name__ == "__main__":
    main()
