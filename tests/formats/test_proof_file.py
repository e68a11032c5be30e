"""Proof files: written, read, compared with problems, and refused with the reason."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from typer.testing import CliRunner

import optfair as of
from optfair.cli.app import app
from optfair.formats.proof_file import SavedProof
from optfair.proofs import check_proof
from optfair.proofs.bounds import LowerBound

x = cp.Variable(2, name="x")


def program(cost: float = 0.3) -> Any:
    return of.from_cvxpy(
        cp.Problem(cp.Minimize(cost * x[0] + x[1]), [0.1 * x[0] + x[1] >= 0.7, x >= 0])
    )


def saved(problem: Any, folder: Path, **options: Any) -> SavedProof:
    problem.solve(**options).certificate.save(folder / "proof.json")
    return of.load_proof(folder / "proof.json")


def test_a_proof_survives_the_disk(tmp_path: Path) -> None:
    p = program()
    s = p.solve(tolerance=1e-9)
    proof = saved(p, tmp_path, tolerance=1e-9)
    assert proof.verify() and str(proof.verify().grade) == "proved"
    claim = proof.document["proof"]["claim"]
    assert float(check_proof.number(claim["objective"])) == pytest.approx(s.objective, rel=1e-12)
    assert proof.document["problem"]["solver"] == s.solver
    assert len(proof.document["problem"]["fingerprint"]) == 32
    # it can be written again, word by word
    proof.save(tmp_path / "copy.json")
    assert (tmp_path / "copy.json").read_bytes() == (tmp_path / "proof.json").read_bytes()
    with pytest.raises(of.DataError, match="exists"):
        proof.save(tmp_path / "copy.json")
    with pytest.raises(of.DataError, match="there is no folder"):
        proof.save(tmp_path / "no folder" / "proof.json")
    assert {f.name for f in tmp_path.iterdir()} == {"proof.json", "copy.json"}


def test_it_is_compared_number_by_number(tmp_path: Path) -> None:
    proof = saved(program(), tmp_path)
    assert proof.faults(program()) == ()
    (why,) = proof.faults(program(0.3 + 2**-52))
    assert why == "it is a proof of another problem: the costs differ"
    (why,) = proof.faults(program().with_constraints(more=x[0] <= 1))
    assert "the rows differ: 3 and 4" in why
    (why,) = proof.faults(program().with_integrality("x"))
    assert "the integer columns differ" in why
    y = cp.Variable(3, name="y")
    (why,) = proof.faults(of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(y)), [y >= 1])))
    assert "columns differ: 2 and 3" in why
    worst = of.from_cvxpy(
        cp.Problem(cp.Maximize(-0.3 * x[0] - x[1]), [0.1 * x[0] + x[1] >= 0.7, x >= 0])
    )
    assert proof.faults(worst) == ("it is a proof of another problem: the senses differ",)


def test_infeasibility_holds_with_integers_and_more_rules(tmp_path: Path) -> None:
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x[0]), [cp.sum(x) >= 3, x <= 1]), ["demand", "cap"])
    with pytest.raises(of.Infeasible) as caught:
        p.solve()
    caught.value.certificate.save(tmp_path / "proof.json")
    proof = of.load_proof(tmp_path / "proof.json")
    assert proof.document["problem"]["constraints"] == ["demand", "cap"]
    assert proof.faults(p) == proof.faults(p.with_integrality("x")) == ()
    assert proof.faults(p.with_constraints(more=x[0] >= 0)) == ()
    assert proof.faults(p.without("cap")) != ()
    assert proof.faults(program()) != ()


def test_rescaled_and_maximised_problems(tmp_path: Path) -> None:
    X = np.arange(12.0).reshape(6, 2) * 1e6
    p = of.FairAssignment(X, groups=[0, 1, 0, 1, 0, 1], centers=X[:2])
    s = p.solve("highs")
    s.certificate.save(tmp_path / "assignment.json")
    proof = of.load_proof(tmp_path / "assignment.json")
    assert proof.verify() and proof.faults(p) == ()
    claim = proof.document["proof"]["claim"]
    assert float(check_proof.number(claim["objective"])) == pytest.approx(s.objective, rel=1e-9)


def test_what_cannot_be_written_is_refused_with_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "proof.json"
    for instance in ("action_plan/two_rows", "cluster_counterfactual/iris_gaussian_tied"):
        special = of.library.load(instance).problem().solve()
        with pytest.raises(of.UnsupportedProblem, match="an algorithm of its own proves it"):
            special.certificate.save(file)
    whole = program().with_integrality("x").solve()
    with pytest.raises(of.UnsupportedProblem, match="branch and bound"):
        whole.certificate.save(file)
    entropy = of.from_cvxpy(cp.Problem(cp.Maximize(cp.sum(cp.entr(x))), [cp.sum(x) == 1]))
    with pytest.raises(of.UnsupportedProblem, match="exponential and power cones"):
        entropy.solve().certificate.save(file)
    with pytest.raises(of.UnsupportedProblem, match="a Curvature cannot be written"):
        program().certificate.save(file)
    assert not file.exists()


@pytest.mark.parametrize("unit", [1.0, 1e6])
def test_prices_of_special_algorithms_are_multipliers_of_rows(unit: float, tmp_path: Path) -> None:
    X = unit * np.random.default_rng(0).normal(size=(30, 2))
    groups = np.arange(30) % 3 % 2
    p = of.FairAssignment(X, groups=groups, centers=X[:3])
    for k, rules in enumerate(({}, {"share": of.cluster_share(lower=0.2)})):
        own = p.with_constraints(**rules)
        s = own.solve("mass-dual")
        file = tmp_path / f"{k}.json"
        s.certificate.save(file)
        proof = of.load_proof(file)
        assert proof.verify() and str(proof.verify().grade) == "proved"
        assert proof.faults(own) == () and proof.faults(p.with_constraints(b=of.balance(0.3))) != ()
        claim = proof.document["proof"]["claim"]
        assert float(check_proof.number(claim["objective"])) == pytest.approx(s.objective, rel=1e-9)
        # prices that do not belong to the solution prove nothing
        forged = {name: np.asarray(v) * 0.9 for name, v in s.multipliers.items()}
        with pytest.raises(of.OptfairError):
            replace(s, multipliers=forged).certificate.save(tmp_path / "forged.json")


def test_what_is_not_proved_is_not_saved(tmp_path: Path) -> None:
    s = program().solve(tolerance=1e-9)
    proof: Any = s.proof
    file = tmp_path / "proof.json"
    wrong = replace(s, proof=replace(proof, z=proof.z + np.array([0.1, 0.0, 0.0])))
    wrong.certificate.save(file)  # what is written is what proves it
    assert of.load_proof(file).verify()
    file.unlink()
    moved = {k: np.array(v) + 1e-4 for k, v in s.values.items()}
    with pytest.raises(of.DataError, match="not those its bound was proved with"):
        replace(s, values=moved).certificate.save(file)
    with pytest.raises(of.DataError, match="does not confirm"):
        replace(s, options={**s.options, "tolerance": 0.0}).certificate.save(file)
    shifted = replace(s, values=moved, proof=replace(proof, x=proof.x + 1e-4))
    with pytest.raises(of.DataError, match="does not confirm"):
        shifted.certificate.save(file)
    assert not file.exists()


def test_what_a_problem_became_since_is_not_what_its_bound_is_of(tmp_path: Path) -> None:
    x, least = cp.Variable(2, name="x"), cp.Parameter(value=1.0, name="least")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= least]))
    s, file = p.solve(), tmp_path / "proof.json"
    extended = replace(s, problem=p.with_constraints(more=p["x"] >= 3))
    with pytest.raises(of.DataError, match="problem of this solution is not the one"):
        extended.certificate.save(file)
    least.value = 5.0
    for verb in (s.certificate.verify, s.certificate.prove, lambda: s.certificate.save(file)):
        with pytest.raises(of.DeclarationError, match="'least' in 'c0' was 1"):
            verb()
    assert not file.exists()


def test_a_block_whose_multipliers_are_rounding_has_none(tmp_path: Path) -> None:
    Y = cp.Variable((2, 2), symmetric=True, name="Y")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(Y[0, 1]), [Y >> 0, Y[1, 0] == 1]))
    proof = saved(p, tmp_path)  # nothing bounds its diagonal
    assert proof.verify() and proof.verify().grade.word == "proved"
    assert float(check_proof.number(proof.document["proof"]["claim"]["bound"])) == pytest.approx(
        1.0
    )


def test_the_radius_is_as_large_as_the_tolerance_allows(tmp_path: Path) -> None:
    # the costs have rank one: no multipliers of them are inside the cone
    X, v = cp.Variable((3, 3), PSD=True, name="X"), np.random.default_rng(0).normal(size=3)
    goal = cp.Minimize(cp.trace(np.outer(v, v) @ X) + X[0, 0])
    proof = saved(of.from_cvxpy(cp.Problem(goal, [X[0, 0] == 1, X[1, 2] >= 0.3])), tmp_path)
    claim = {k: float(check_proof.number(v)) for k, v in proof.document["proof"]["claim"].items()}
    gap = (claim["objective"] - claim["bound"]) / abs(claim["objective"])
    assert proof.verify() and claim["radius"] > 1e3
    assert gap == pytest.approx(claim["tolerance"], rel=0.01)


def test_a_proof_without_a_radius_is_written_where_there_is_one(tmp_path: Path) -> None:
    X = cp.Variable((3, 3), PSD=True, name="X")
    p = of.from_cvxpy(
        cp.Problem(cp.Minimize(cp.trace(X) + X[0, 1]), [X[0, 2] == 1, X[1, 1] >= 0.5])
    )
    proof = saved(p, tmp_path)
    assert proof.document["proof"]["claim"]["radius"] is None and proof.verify()
    # a norm whose multipliers exceed 1 by a rounding, beside a form that is curved
    rng = np.random.default_rng(71977)
    for k in range(5):
        (tmp_path / str(k)).mkdir()
        A, b, x = rng.normal(size=(17, 2)), rng.normal(size=17), cp.Variable(2, name="x")
        goal = cp.Minimize(cp.norm(A @ x - b) + cp.max(A @ x - b) + 0.1 * cp.sum_squares(x))
        proof = saved(of.from_cvxpy(cp.Problem(goal, [cp.norm(x) <= 4])), tmp_path / str(k))
        assert proof.document["proof"]["claim"]["radius"] is None and proof.verify()


C, D = 1.5, 1.5 + 2**-52  # neighbouring floats, of one product with the root of 2


def test_multipliers_that_were_moved_for_a_proof_are_written_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, starts = program(), list[Any]()
    s = problem.solve()
    monkeypatch.setattr("optfair.proofs.portable.starts", lambda *given: iter(starts))
    s.certificate.save(tmp_path / "proof.json")
    assert of.load_proof(tmp_path / "proof.json").verify()
    # where there are none, the solver's own are
    monkeypatch.setattr(
        "optfair.solution.conic_form.ConicForm.lower_bound", lambda *given: LowerBound(-np.inf)
    )
    with pytest.raises(of.DataError, match="does not confirm"):
        s.certificate.save(tmp_path / "other.json")
    starts = [(s.proof.x, s.proof.z, 0.0)]
    s.certificate.save(tmp_path / "other.json")
    assert of.load_proof(tmp_path / "other.json").verify()


def off(*entries: Any) -> list[Any]:
    return [cp.bmat([[1, e], [e, 1]]) >> 0 for e in entries]


@pytest.mark.parametrize("factor", [1.0, 1e3, 1e6, 1e9])
def test_squares_that_can_vanish_are_proved_without_multipliers(
    factor: float, tmp_path: Path
) -> None:
    A = np.array([[-2.0, 3, -2, -1], [2, -2, -3, -1], [-1, -3, -3, -1]])
    F = np.array([[-2.0, 2, 1, 1], [1, -1, -2, 0]])
    x = cp.Variable(4, name="x")
    rows = [A[0] @ x <= 1.4037, A[1] @ x <= 1.5098, A[2] @ x == 1.2522, cp.abs(x) <= 4]
    s = of.from_cvxpy(cp.Problem(cp.Minimize(factor * cp.sum_squares(F @ x - 1)), rows)).solve()
    assert s.grade.word == "proved"
    s.certificate.save(tmp_path / "proof.json")
    assert of.load_proof(tmp_path / "proof.json").verify()


def test_blocks_are_those_of_the_declared_entries(tmp_path: Path) -> None:
    """As solvers take the rows they bound t: |u| <= 1, |u - t| <= 1. As they were declared t is free."""
    u, v, t = (cp.Variable(name=name) for name in "uvt")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(t), off(u + C * v, u + D * v - t)))
    s = p.solve()
    s.certificate.save(tmp_path / "proof.json")
    proof = of.load_proof(tmp_path / "proof.json")
    grade = proof.verify().grade
    assert proof.verify() and proof.faults(p) == ()
    assert grade.word == s.certificate.verify().grade.word != "proved"
    told = CliRunner().invoke(app, ["verify", str(tmp_path / "proof.json")])
    assert told.exit_code == 0 and told.output.startswith("proved for |x| <=")
    entries = {float(check_proof.number(v)) for v in proof.document["form"]["A"][2]}
    assert entries == {1.0, -1.0, -C, -D}
    # without its radius, or about rows that do not differ, it is refused
    document = json.loads((tmp_path / "proof.json").read_text())
    document["proof"]["claim"]["radius"] = None
    rest = {k: v for k, v in document.items() if k != "digest"}
    forged = SavedProof(rest | {"digest": check_proof.digest(rest)})
    assert not forged.verify() and "residual" in str(forged)
    alike = of.from_cvxpy(cp.Problem(cp.Minimize(t), off(u + C * v, u + C * v - t)))
    assert "a proof of another problem" in proof.faults(alike)[0]
    alike.solve().certificate.save(tmp_path / "alike.json")
    assert of.load_proof(tmp_path / "alike.json").verify().grade.word == "proved"


@pytest.mark.parametrize("solver", ["clarabel", "scs"])
def test_a_triangle_of_either_side_is_read_as_it_was_written(solver: str, tmp_path: Path) -> None:
    X = cp.Variable((3, 3), symmetric=True, name="X")
    rows = [X >> 0, X[0, 1] == 1, X[0, 2] >= 0.5, X[1, 2] == -0.25, cp.diag(X) <= 5]
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.trace(X)), rows))
    proof = saved(p, tmp_path, solver=solver, tolerance=1e-5)
    assert proof.verify().grade.word == "proved" and proof.faults(p) == ()
    assert proof.document["problem"]["solver"] == solver


def test_matrices_on_the_edge_of_their_cone_are_decided_exactly(tmp_path: Path) -> None:
    """(1, -1) X (1, -1)' = -1: the multipliers are the matrix of rank 1."""
    X = cp.Variable((2, 2), symmetric=True, name="X")
    v = np.array([1.0, -1.0])
    p = of.from_cvxpy(cp.Problem(cp.Minimize(X[0, 0]), [X >> 0, v @ X @ v == -1]))
    with pytest.raises(of.Infeasible) as caught:
        p.solve()
    caught.value.certificate.save(tmp_path / "proof.json")
    assert of.load_proof(tmp_path / "proof.json").verify().grade.word == "proved"
    least = of.from_cvxpy(cp.Problem(cp.Minimize(X[0, 0]), [X >> 0, X[0, 1] == 1]))
    least.solve().certificate.save(tmp_path / "least.json")
    assert of.load_proof(tmp_path / "least.json").verify().grade.word == "proved"


BAD = {
    "no JSON": ("{", "is not valid JSON"),
    "deep": ("[" * 100_000, "nested too deeply"),
    "bytes": (b"\xff\xfe\x00", "not in UTF-8"),
    "list": ("[1, 2]", "is no proof file"),
    "other": ('{"format": "optfair solution"}', "is no proof file"),
    "schema": ('{"format": "optfair proof", "schema": 7}', "has schema 7"),
    "older": ('{"format": "optfair proof", "schema": 2}', "has schema 2"),
}


@pytest.mark.parametrize("case", BAD)
def test_other_files_are_refused(case: str, tmp_path: Path) -> None:
    content, message = BAD[case]
    file = tmp_path / "proof.json"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(of.DataError, match=message):
        of.load_proof(file)
    assert CliRunner().invoke(app, ["verify", str(file)]).exit_code == 2


def test_missing_files_and_halves(tmp_path: Path) -> None:
    with pytest.raises(of.DataError, match="there is no file"):
        of.load_proof(tmp_path / "nothing.json")
    with pytest.raises(of.DataError, match="is no file"):
        of.load_proof(tmp_path)
    proof = saved(program(), tmp_path)
    for key in proof.document:
        less = {k: v for k, v in proof.document.items() if k != key}
        for document in (less, less | {key: None}, less | {key: []}, less | {key: {"rows": -1}}):
            verdict = SavedProof(document).verify()
            assert not verdict and verdict.reasons and not verdict.grade.sound
            assert SavedProof(document).faults(program()) != ()


def test_the_command_line(tmp_path: Path) -> None:
    run = CliRunner().invoke
    file = tmp_path / "diet.json"
    solved = run(app, ["solve", "textbook/diet", "--proof", str(file)])
    assert solved.exit_code == 0, solved.output
    assert run(app, ["solve", "textbook/diet", "--proof", str(file)]).exit_code == 2
    checked = run(app, ["verify", str(file)])
    assert checked.exit_code == 0 and checked.output.startswith("proved: objective 88.2")
    same = run(app, ["verify", str(file), "textbook/diet"])
    assert same.exit_code == 0 and "its numbers are those of textbook/diet" in same.output
    other = run(app, ["verify", str(file), "textbook/transport"])
    assert other.exit_code == 1 and "a proof of another problem" in other.output
    told = json.loads(run(app, ["verify", str(file), "textbook/diet", "--json"]).output)
    assert told["proved"] is True and told["grade"] == "proved"
    told = json.loads(run(app, ["verify", str(file), "textbook/transport", "--json"]).output)
    assert told["proved"] is False and told["says"] == "" and len(told["reasons"]) == 1
    document = json.loads(file.read_text())
    document["proof"]["claim"]["bound"] = 99
    file.write_text(json.dumps(document))
    forged = run(app, ["verify", str(file)])
    assert forged.exit_code == 1 and "saved with" in forged.output
    assert run(app, ["verify", str(file), "no/such"]).exit_code == 2


def test_a_model_file_is_compared(tmp_path: Path) -> None:
    p = of.from_arrays(q=[0.1, 2.0], A=[[1.0, 0.3]], l=3.0, ub=20.0, rows=["demand"])
    p.export(tmp_path / "model.mps")
    of.read(tmp_path / "model.mps").solve().certificate.save(tmp_path / "proof.json")
    run = CliRunner().invoke
    arguments = ["verify", str(tmp_path / "proof.json"), str(tmp_path / "model.mps")]
    assert run(app, arguments).exit_code == 0
    text = (tmp_path / "model.mps").read_text()
    assert "0.3" in text
    (tmp_path / "model.mps").write_text(text.replace("0.3", "0.30000000000000004"))
    changed = run(app, arguments)
    assert changed.exit_code == 1 and "the entries of the rows differ" in changed.output


def partition(unit: float, least: float | None = None) -> of.Problem:
    """Bound a cut into halves: t is free, so multipliers have <ee', Z> = 0, on the face of Ze = 0."""
    cut = np.triu(np.random.default_rng(12).integers(0, 2, (12, 12)), 1) * -unit
    y, t = cp.Variable(12, name="y"), cp.Variable(name="t")
    rows = [cut + cut.T - cp.diag(y) - t * np.ones((12, 12)) >> 0]
    rows += [] if least is None else [cp.sum(y) >= least]
    return of.from_cvxpy(cp.Problem(cp.Maximize(cp.sum(y)), rows))


@pytest.mark.parametrize("unit", [1.0, 0.7, 1e-6, 1e6])
def test_multipliers_on_a_face_are_written_on_it(
    unit: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, file = partition(unit), tmp_path / "proof.json"
    s = problem.solve(tolerance=1e-6)
    assert s.grade.word == "proved"
    s.certificate.save(file)
    proof = of.load_proof(file)
    assert proof.verify().grade.word == "proved" and proof.faults(problem) == ()
    ((row, lines, inner),) = proof.document["proof"]["tree"]["faces"]
    assert row == 0 and len(lines) == 11 and len(inner) == 66
    assert all(sum(v for _, v in line) == 0 for line in lines)  # orthogonal to e
    # one more unit of a line is no longer on it, and a smaller matrix is another one
    for change in ("line", "inner", "dropped"):
        forged = json.loads(file.read_text())
        face = forged["proof"]["tree"]["faces"][0]
        if change == "line":
            face[1][0][0][1] += 1
        elif change == "inner":
            face[2][0] = -1
        else:
            del forged["proof"]["tree"]["faces"]
        rest = {key: v for key, v in forged.items() if key != "digest"}
        with pytest.raises(check_proof.Rejected):
            check_proof.check(rest | {"digest": check_proof.digest(rest)})
    # no multiplier is inside the cone, so that nothing else can make residuals 0
    monkeypatch.setattr("optfair.proofs.portable.Narrowed.of", lambda *given: None)
    with pytest.raises(of.DataError, match="columns that nothing bounds"):
        s.certificate.save(tmp_path / "other.json")


def test_a_contradiction_on_a_face_is_written_on_it(tmp_path: Path) -> None:
    with pytest.raises(of.Infeasible) as caught:
        partition(1.0, least=0.0).solve()
    caught.value.certificate.save(tmp_path / "proof.json")
    proof = of.load_proof(tmp_path / "proof.json")
    assert proof.verify() and proof.faults(partition(1.0, least=0.0)) == ()
    assert proof.document["proof"]["tree"]["faces"]
    assert proof.faults(partition(1.0, least=-100.0)) != ()
