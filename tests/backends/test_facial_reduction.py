"""What is 0 at every feasible point: contradictions, bounds and rays on the face, and proofs that were changed."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from typer.testing import CliRunner

import optfair as of
from optfair.backends import cone_program
from optfair.backends.facial_reduction import (
    FaceContradiction,
    FaceProof,
    FaceRay,
    FaceWithoutMultipliers,
    FacialContradiction,
    _onto,
    facial_contradiction,
    on_its_face,
)
from optfair.backends.request import Request
from optfair.cli.app import app
from optfair.compile.form import compile_problem
from optfair.formats.proof_file import SavedProof
from optfair.proofs import check_proof

UNITS = (1e-06, 1.0, 1000000.0)


def cornered(unit: float) -> of.Problem:
    """[[x, u], [u, 0]] is never positive semidefinite, and nearly is far out."""
    x = cp.Variable(name="x")
    rows = [cp.bmat([[x, unit], [unit, 0]]) >> 0, x >= 0]
    return of.from_cvxpy(cp.Problem(cp.Minimize(x), rows), ["block", "sign"])


@pytest.mark.parametrize("unit", UNITS)
def test_weakly_infeasible_problems_are_refused_with_a_proof(unit: float) -> None:
    with pytest.raises(of.Infeasible, match="weakly infeasible") as told:
        cornered(unit).solve(time_limit=2.0)
    proof = told.value.certificate
    assert told.value.conflict == ("block",) and isinstance(proof, FacialContradiction)
    assert proof.weak and proof.verify() and "2 steps" in str(proof)
    last = {i: -v for i, v in proof.proof.links[-1].items()}
    wrong = replace(proof, proof=replace(proof.proof, links=(proof.proof.links[0], last)))
    assert not wrong.verify()


@pytest.mark.parametrize("unit", UNITS)
def test_the_diagnosis_names_them(unit: float) -> None:
    d = cornered(unit).with_constraints().diagnose(time_limit=5.0)
    assert d.verdict == "weakly infeasible" and d.conflict == ("block",)
    found = d["conflict"]
    assert "weakly infeasible: no strictly separating certificate exists" in found.lines
    assert found.numbers["proved"] and found.numbers["weak"] and found.verify()


def test_without_an_objective_a_point_far_out_is_no_answer() -> None:
    p = cornered(1.0)
    with pytest.raises(of.Infeasible, match="weakly"):
        p.with_terms({}, p.constraints).solve()


def weakly(unit: float = 1.0) -> Any:
    with pytest.raises(of.Infeasible) as told:
        cornered(unit).solve(time_limit=2.0)
    return told.value.certificate


@pytest.mark.parametrize("unit", UNITS)
def test_the_proof_is_a_file(unit: float, tmp_path: Path) -> None:
    file = tmp_path / "proof.json"
    weakly(unit).save(file)
    saved = of.load_proof(file)
    assert saved.verify() and str(saved.verify().grade) == "proved"
    assert "by 2 steps of facial reduction; no vector separates them" in str(saved)
    assert saved.faults(cornered(unit)) == ()
    (why,) = saved.faults(cornered(2 * unit))
    assert "a proof of another problem" in why
    saved.save(tmp_path / "copy.json")
    assert (tmp_path / "copy.json").read_bytes() == file.read_bytes()
    # the program that stands alone knows no such proofs, and says so
    with pytest.raises(check_proof.Rejected, match="kind 'facial reduction' is not decided"):
        check_proof.check(saved.document)


def test_the_conflict_of_a_diagnosis_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "proof.json"
    cornered(1.0).diagnose(time_limit=5.0)["conflict"].evidence.save(file)  # type: ignore[union-attr]
    assert of.load_proof(file).faults(cornered(1.0)) == ()
    told = CliRunner().invoke(app, ["verify", str(file)])
    assert told.exit_code == 0 and "proved: no point satisfies" in told.output


def test_files_that_were_changed_prove_nothing(tmp_path: Path) -> None:
    """Rows that allow a point, weights of another sign or size, missing and spare links."""
    file = tmp_path / "proof.json"
    weakly().save(file)
    sound = json.loads(file.read_text())

    def fault(change: Callable[[Any], object], *, resigned: bool = True) -> str:
        document = copy.deepcopy(sound)
        change(document)
        if resigned:
            rest = {k: v for k, v in document.items() if k != "digest"}
            document["digest"] = check_proof.digest(rest)
        return " ".join(SavedProof(document).verify().reasons)

    assert not fault(lambda d: None)
    assert "not those it was saved with" in fault(lambda d: d["proof"].clear(), resigned=False)
    first, last = sound["proof"]["links"][0], sound["proof"]["links"][-1]
    corner, beside = first[0][0], last[0][0]
    assert (
        fault(lambda d: d["form"]["b"].__setitem__(corner, 1)) == "the side of a link is positive"
    )
    assert "end in no contradiction" in fault(lambda d: d["form"]["b"].__setitem__(beside, 0))
    assert (
        fault(lambda d: d["proof"].update(links=[last]))
        == "a link uses a row whose sign is not known"
    )
    assert "end in no contradiction" in fault(lambda d: d["proof"].update(links=[first]))
    negative = [[[corner, -1]], last]
    assert "whose sign is not known" in fault(lambda d: d["proof"].update(links=negative))
    zero = [[[corner, 0]], last]
    assert "no combination" in fault(lambda d: d["proof"].update(links=zero))
    assert fault(lambda d: d["proof"]["others"].pop())
    assert fault(lambda d: d["proof"]["others"][0][0].__setitem__(1, "-0x1/0x3"))
    for links in (None, 3, [[["a", 1]]], [[[0, "nan"]]], [[[99, 1]]], [[[0.5, 1]]]):
        assert fault(lambda d, links=links: d["proof"].update(links=links)), links
    assert "no float" in fault(lambda d: d["form"]["b"].__setitem__(beside, "0x1/0x3"))
    assert "do not fit" in fault(lambda d: d["form"]["cones"].clear())
    block = [kind for kind, *_ in sound["form"]["cones"]].index("psd")
    assert fault(lambda d: d["form"]["cones"][block].__setitem__(0, "nonneg"))


M = cp.Variable((3, 3), name="M", symmetric=True)
side, far = cp.Variable(name="side"), cp.Variable(name="far")


def gaps(unit: float) -> dict[str, tuple[Any, list[Any], float]]:
    """Programs of which multipliers prove less than the optimum, with it, in a unit."""
    block = [[0, side, 0], [side, far, 0], [0, 0, side + unit]]
    rows = [M >> 0, M[0, 0] == 0, 2 * M[0, 1] + M[2, 2] == unit]
    T = cp.Variable((4, 4), name="T", symmetric=True)
    more = [T >> 0, T[1, 1] == 0, T[2, 2] == T[1, 3], T[2, 2] + 2 * T[0, 1] + T[3, 3] == unit]
    return {
        # 0 on the diagonal: M[0, 1] is 0 and M[2, 2] the unit; multipliers show 0 only
        "point": (cp.Minimize(M[2, 2]), rows, unit),
        # and side is 0; multipliers show -1
        "block": (cp.Minimize(side), [cp.bmat(block) >> 0], 0.0),
        "most": (cp.Maximize(-M[2, 2]), rows, -unit),
        "chain": (cp.Minimize(T[0, 0] + T[3, 3]), more, unit),
    }


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("name", gaps(1.0))
def test_a_gap_between_points_and_multipliers_is_closed_on_their_face(
    name: str, unit: float
) -> None:
    """Blocks with 0 and far on the diagonal and 1 beside them are violated by 1/far only."""
    goal, rows, optimum = gaps(unit)[name]
    p = of.from_cvxpy(cp.Problem(goal, rows))
    s = p.solve()
    assert s.is_optimal() and s.grade.word in ("proved", "within")
    assert abs(s.objective - optimum) <= 1e-6 * unit and abs(s.bound - optimum) <= 1e-6 * unit
    if isinstance(s.proof, FaceProof):
        with pytest.raises(of.DeclarationError, match="no multipliers"):
            s.shadow_price["c0"]
        (bases, (link, *others)), *later = s.proof.steps
        z, turned_over = s.proof.z, ({i: -v for i, v in link.items()}, *others)
        for wrong in ((), tuple(others), turned_over):
            changed = replace(s, proof=replace(s.proof, steps=((bases, wrong), *later)))
            assert not changed.is_optimal()  # nothing else is 0 then
        assert not replace(s, proof=replace(s.proof, z=z + unit)).is_optimal()
        values = {n: v + unit for n, v in s.values.items()}
        assert not replace(s, values=values).is_optimal()


def test_on_which_face_points_are_is_said() -> None:
    goal, rows, _ = gaps(1.0)["block"]
    s = of.from_cvxpy(cp.Problem(goal, rows)).solve()
    assert isinstance(s.proof, FaceProof) and s.proof.steps == (({}, ({0: Fraction(1)},)),)
    assert any("stated as equations" in note for note in s.attempts)
    with pytest.raises(of.SolverFailure) as failure:  # of whom it is asked by name has no face
        of.from_cvxpy(cp.Problem(goal, rows)).solve(solver="psd-blocks")
    assert failure.value.solution is not None


V = np.array([[1.0, 1, 1, 1, 1], [1, -2, 0, 2, 1]])


W = np.array([[2.0, -2, -1, -1, 0], [1, -2, 2, 0, -1], [1, 2, -1, 2, 2], [-2, -1, 2, 1, 2]])


FACES = {
    "sum": np.ones((5, 5)),
    "vector": np.outer(V[1], V[1]),
    "rank 3": W[:3].T @ W[:3],
    "rank 4": W.T @ W,
    "corner": np.pad([[2.0, 1.0], [1.0, 2.0]], (0, 3)),
}


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("name", [*FACES, "rank 2", "beside"])
def test_a_face_across_the_axes_is_turned_onto_them(name: str, unit: float) -> None:
    """Beside F with <F, X> = 0 a matrix has no room: the optimum is that of V'XV, FV = 0."""
    F = FACES.get(name, V.T @ V)
    C = np.random.default_rng(5).standard_normal((5, 5))
    t = cp.Variable(2, name="t")

    def stated(X: Any, unit: float) -> tuple[Any, list[Any]]:
        rows = [cp.trace(X) == 3 * unit]
        goal = cp.sum_squares((X - unit * (C + C.T)) / unit)
        if name == "beside":
            rows = [cp.trace(X) + cp.sum(t) == 3 * unit, X[0, 1] - t[0] >= 0.1 * unit, t >= 0]
            goal += cp.sum(t) / unit
        return cp.Minimize(goal), rows

    own = np.linalg.eigh(F)[1][:, : 5 - np.linalg.matrix_rank(F)]
    Y = cp.Variable((own.shape[1],) * 2, PSD=True)
    small = cp.Problem(*stated(own @ Y @ own.T, 1.0))
    small.solve(solver="CLARABEL")
    X = cp.Variable((5, 5), PSD=True, name="X")
    goal, rows = stated(X, unit)
    s = of.from_cvxpy(cp.Problem(goal, [cp.trace(F @ X) == 0, *rows])).solve()
    assert s.is_optimal() and s.grade.word in ("proved", "within")
    assert s.objective == pytest.approx(small.value, rel=1e-5)
    assert isinstance(s.proof, FaceProof) and s.proof.steps[0][0]
    (bases, links), *later = s.proof.steps
    ((k, T),) = bases.items()
    for wrong in (np.eye(5), T + np.eye(5), T[:, :4], T / 2, np.ones(3)):
        changed = replace(s, proof=replace(s.proof, steps=(({k: wrong}, links), *later)))
        assert not changed.is_optimal()


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("name", ["row", "far out", "inside"])
def test_what_a_face_excludes_is_infeasible(name: str, unit: float, tmp_path: Path) -> None:
    """X V[1] is 0 as V[1]'X V[1] is; the violation of the other rows goes with the root of that."""
    X, v = cp.Variable((5, 5), PSD=True, name="X"), V[1]
    more = {
        "row": [cp.sum(X[0]) == unit, cp.sum(X) == 0],
        "far out": [v @ X @ v == 0, X[0] @ v >= unit],
        # on the face X[1, 1] = 2 X[0, 1] ..., and nothing there is semidefinite
        "inside": [v @ X @ v == 0, X[2, 2] + X[3, 3] <= -unit],
    }[name]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(X[2, 2]), more))
    with pytest.raises(of.Infeasible) as empty:
        p.solve()
    proof = empty.value.certificate
    assert proof.verify()
    if isinstance(proof, FaceContradiction):
        assert "step of facial reduction" in str(proof)
        (bases, links), *later = proof.steps
        for wrong in (({}, links), (bases, ()), (bases, ({1: Fraction(1)},))):
            assert not replace(proof, steps=(wrong, *later)).verify()
        assert not replace(proof, links=({0: Fraction(1)},)).verify()
        assert not replace(proof, links=(), z=np.zeros(3)).verify()
        with pytest.raises(of.UnsupportedProblem, match="proof file"):
            proof.save(tmp_path / "proof.json")
        assert pickle.loads(pickle.dumps(proof)).verify()


def test_the_diagnosis_proves_what_a_face_excludes() -> None:
    X = cp.Variable((3, 3), name="X", symmetric=True)
    rows = {"block": X >> 0, "sum": cp.sum(X) == 0, "line": cp.sum(X[0]) == 1, "cap": X[2, 2] <= 9}
    found = of.from_cvxpy(cp.Problem(cp.Minimize(0), list(rows.values())), list(rows)).diagnose()
    assert "exclude each other: 'block', 'sum', 'line'" in str(found)
    assert "proved by a contradiction after 1 step of facial reduction" in str(found)
    assert found.verify()


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_points_are_moved_onto_equations_by_little(unit: float) -> None:
    """Of a row with side 0 any violation is seen, however large its terms."""
    X = cp.Variable((5, 5), PSD=True, name="X")
    rows = [cp.trace(FACES["rank 4"] @ X) == 0, cp.trace(X) == 3 * unit, 0 * X[0, 0] == 0]
    form = compile_problem(of.from_cvxpy(cp.Problem(cp.Minimize(X[0, 0]), rows)), cp.CLARABEL).form
    x = unit * np.random.default_rng(0).standard_normal(form.q.size)
    near = _onto(form, x)
    assert np.abs(form.slack(near)[form.equal]).max() <= 1e-13 * unit
    assert np.abs(_onto(form, near + 1e-7 * unit) - near).max() <= 1e-6 * unit
    free = compile_problem(of.from_cvxpy(cp.Problem(cp.Minimize(X[0, 0]))), cp.CLARABEL).form
    assert (_onto(free, x[: free.q.size]) == x[: free.q.size]).all()


def test_a_face_is_asked_for_where_there_is_one() -> None:
    request = Request()
    plain = of.from_cvxpy(cp.Problem(cp.Minimize(side), [cp.bmat([[side, 1], [1, far]]) >> 0]))
    linear = of.from_cvxpy(cp.Problem(cp.Minimize(side), [side >= 0]))
    whole = cp.Variable(integer=True, name="whole")
    rows = [M >> 0, M[0, 0] == 0, M[1, 1] >= whole, whole >= 1]
    mixed = of.from_cvxpy(cp.Problem(cp.Minimize(M[1, 1]), rows))
    assert all(on_its_face(p, request) is None for p in (plain, linear, mixed))


def test_a_diagonal_is_0_as_it_stands_or_by_a_row() -> None:
    """The first look asks no further than the entries."""
    rows = [M >> 0, M[0, 0] == 0, M[0, 1] == 1]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(M[2, 2]), rows))
    proof = facial_contradiction(p)
    assert proof is not None and proof.verify()
    assert facial_contradiction(p, plain=True) is None
    plain = facial_contradiction(cornered(1.0), plain=True)
    assert plain is not None and plain.verify()


def endless_on_a_face(unit: float, sign: float) -> of.AdoptedProblem:
    """Return a matrix whose lines add up to 0, with a trace without limit."""
    X = cp.Variable((3, 3), PSD=True, name="X")
    rows = [cp.sum(X) == 0, X[0, 1] == -unit]
    sense = cp.Minimize(-cp.trace(X)) if sign > 0 else cp.Maximize(cp.trace(X))
    return of.from_cvxpy(cp.Problem(sense, rows), ["sum", "entry"])


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("unit", UNITS)
def test_a_ray_on_a_face_is_a_ray(unit: float, sign: float) -> None:
    p = endless_on_a_face(unit, sign)
    with pytest.raises(of.Unbounded, match="1 step of facial reduction") as e:
        p.solve()
    ray = e.value.certificate
    assert isinstance(ray, FaceRay) and ray.verify()
    D = ray.direction["X"]
    assert abs(D.sum()) <= 1e-9 and abs(D[0, 1]) <= 1e-9 and np.linalg.eigvalsh(D)[0] >= -1e-9
    assert ray.rate * sign < 0.0 < sign * -ray.rate
    X = ray.point["X"]
    assert abs(X.sum()) <= 1e-6 * unit and X[0, 1] == pytest.approx(-unit)


def test_a_ray_that_was_changed_is_none(tmp_path: Path) -> None:
    with pytest.raises(of.Unbounded) as e:
        endless_on_a_face(1.0, 1.0).solve()
    ray = e.value.certificate
    assert isinstance(ray, FaceRay)
    assert not replace(ray, d=-ray.d, exact_d=None).verify()
    assert not replace(ray, d=np.ones(ray.d.size), exact_d=None).verify()
    # without its steps there is no room around it, and a point with none proves nothing
    assert not replace(ray, steps=()).verify()
    assert not replace(ray, start=None, exact_start=None).verify()
    assert not replace(ray, start=2.0 * ray.start, exact_start=None).verify()
    with pytest.raises(of.UnsupportedProblem, match="cannot be written as a proof file"):
        ray.save(tmp_path / "ray.json")
    assert pickle.loads(pickle.dumps(ray)).verify()
    said = str(endless_on_a_face(1.0, 1.0).diagnose())
    assert "1 step of facial reduction" in said and "no ray" not in said
    # bounded on the face: the same lines with a trace that they hold
    p = endless_on_a_face(1.0, 1.0)
    q = p.with_constraints(cap=cp.trace(p["X"]) <= 5)
    assert q.solve().objective == pytest.approx(-5.0)


def test_no_face_is_looked_for_where_one_step_of_the_solver_takes_longer_than_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    own = cone_program.solve_cone_program
    monkeypatch.setattr(
        cone_program, "solve_cone_program", lambda *a, **k: (asked.append(1), own(*a, **k))[1]
    )
    for order in (8, 90):  # of 4,095 rows in one block of its equations
        X = cp.Variable((order, order), PSD=True, name="X")
        p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.trace(X)), [X[0, 1] == 1]))
        assert on_its_face(p, Request(1e-7)) is None
        assert len(asked) == 1  # for the small one


def on_an_edge(name: str, unit: float) -> of.Problem:
    """Second-order cones whose points are on one of their rays, and rows that none on it satisfies."""
    y, x, u = cp.Variable(4, name="y"), cp.Variable(2, name="x"), cp.Variable(name="u")
    rows = {
        "axis": [cp.SOC(y[0], y[1:]), y[0] == y[1], y[2] == unit],
        "3-4-5": [cp.SOC(y[0], y[1:]), 3 * y[1] + 4 * y[2] == 5 * y[0], y[3] == unit],
        "norm": [cp.norm(cp.hstack([3, unit * u])) <= unit * u],
        "two": [cp.norm(y[:2]) + cp.norm(y[2:]) <= y[0] + y[2], y[1] == unit],
        "far out": [cp.norm(x) <= x[0], x[1] >= unit],
    }[name]
    return of.from_cvxpy(cp.Problem(cp.Minimize(u if name == "norm" else 0), rows))


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("name", ["axis", "3-4-5", "norm", "two", "far out"])
def test_second_order_cones_that_come_near_and_meet_nowhere_are_infeasible(
    name: str, unit: float
) -> None:
    with pytest.raises(of.Infeasible, match="1 step of facial reduction") as empty:
        on_an_edge(name, unit).solve()
    proof = empty.value.certificate
    assert isinstance(proof, FaceContradiction) and proof.verify() and proof.verify().grade.sound
    assert not proof.faults(on_an_edge(name, unit))
    assert proof.faults(on_an_edge("axis" if name != "axis" else "norm", unit))
    ((bases, links),) = proof.steps
    for k, v in bases.items():
        for wrong in (v + np.eye(v.size)[0], -v, v / 2, v[:1], np.eye(2)):
            steps = (({**bases, k: wrong}, links),)
            assert not replace(proof, steps=steps).verify()


def test_points_on_the_edge_of_a_cone_are_optimal_there() -> None:
    y = cp.Variable(4, name="y")
    cone = [cp.SOC(y[0], y[1:]), 3 * y[1] + 4 * y[2] == 5 * y[0], y[0] >= 5]
    s = of.from_cvxpy(cp.Problem(cp.Minimize(y[1] + y[3]), cone)).solve()
    assert s.is_optimal() and s.objective == pytest.approx(3.0, abs=1e-6)
    for reach in (0.0, 1e-3):  # with some room there is a point
        rows = [cone[0], 3 * y[1] + 4 * y[2] >= (5 - reach) * y[0], y[3] == 1]
        if reach:
            of.from_cvxpy(cp.Problem(cp.Minimize(y[0]), rows)).solve()
            continue
        with pytest.raises(of.Infeasible):
            of.from_cvxpy(cp.Problem(cp.Minimize(y[0]), rows)).solve()


def test_the_diagnosis_names_what_an_edge_excludes() -> None:
    found = on_an_edge("far out", 1.0).diagnose()
    assert "proved by a contradiction after 1 step of facial reduction" in str(found)
    assert len(found.conflict) == 2 and found["conflict"].verify()


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_fall_without_a_ray_is_proved_on_the_face(unit: float, sign: float) -> None:
    S = cp.Variable((3, 3), name="S", symmetric=True)
    rows = [S >> 0, S[2, 2] == 0, S[1, 1] == unit]
    goal = cp.Minimize(S[0, 1]) if sign > 0.0 else cp.Maximize(S[0, 1] - S[2, 0])
    p = of.from_cvxpy(cp.Problem(goal, rows))
    with pytest.raises(of.Unbounded) as endless:
        p.solve()
    proof = endless.value.certificate
    assert isinstance(proof, FaceWithoutMultipliers) and proof.verify() and not proof.faults(p)
    assert "on the face after 1 step" in str(proof) and pickle.loads(pickle.dumps(proof)).verify()
    for wrong in ({"steps": ()}, {"links": ()}, {"x": 0.0 * proof.x}, {"x": proof.x[:1]}):
        assert not replace(proof, **wrong).verify()
    bounded = of.from_cvxpy(cp.Problem(goal, [*rows, S[0, 0] <= 4 * unit]))
    assert bounded.solve().objective == pytest.approx(-2 * sign * unit, rel=1e-5)
    assert replace(proof, problem=bounded).verify().reasons
