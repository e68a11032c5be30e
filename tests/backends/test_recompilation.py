"""Certificates are of the problem they say: rows are compared with those that are compiled anew."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.backends.recompilation import interfaces, places, programs
from optfair.compile.form import compile_problem
from optfair.core import identity
from optfair.core.identity import fingerprint, is_part, same_program
from optfair.transforms.relaxation import relaxed

x = cp.Variable(3, name="x")
X = cp.Variable((2, 2), name="X", symmetric=True)


def mixed(b: float = 1.0, extra: tuple[Any, ...] = ()) -> Any:
    """A program with every kind of row."""
    rows = [
        cp.sum(x) == 1.0,
        x >= -b,
        cp.norm(x) <= 2.0,
        cp.norm(2.0 * x) <= 3.0,
        X >> 0,
        X[0, 1] == x[0],
        cp.exp(x[0]) <= 4.0,
        *extra,
    ]
    return of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x) + cp.trace(X)), rows))


def form(problem: Any) -> Any:
    return compile_problem(problem, "CLARABEL").form


def states_part(whole: Any, part: Any) -> bool:
    at = places(whole, part)
    if at is not None:  # row by row
        assert not (whole.rows[at] != part.rows).nnz and (whole.b[at] == part.b).all()
    return at is not None


def test_rows_are_part_of_a_program_that_has_others_in_any_order() -> None:
    whole = form(mixed())
    assert states_part(whole, whole)
    kept = [c for c in whole.cones if c.kind in ("soc", "nonneg")][::-1]
    at = np.concatenate([np.arange(c.start, c.stop) for c in kept])
    ends = np.cumsum([c.stop - c.start for c in kept])
    cones = [
        replace(c, start=int(end - c.stop + c.start), stop=int(end))
        for c, end in zip(kept, ends, strict=True)
    ]
    part = replace(whole, A=whole.rows[at], b=whole.b[at], cones=tuple(cones))
    assert part.b.size < whole.b.size
    assert states_part(whole, part) and not states_part(part, whole)
    for k in range(at.size):  # a number of any row that differs in its last digit
        other = part.b.copy()
        other[k] = np.nextafter(other[k], 9.0)
        assert not states_part(whole, replace(part, b=other))
    entry = part.A.copy()
    entry.data[0] *= 1.0 + 2.0**-52
    assert not states_part(whole, replace(part, A=entry))
    # the same rows in another cone are other constraints
    turned = [replace(c, kind="zero") if c.kind == "nonneg" else c for c in cones]
    assert not states_part(whole, replace(part, cones=tuple(turned)))
    assert not states_part(form(mixed(extra=(cp.Variable(name="y") >= 0,))), part)


def test_a_program_without_rows_is_part_of_any() -> None:
    free = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), []))
    bare, rows = form(free), form(free.with_constraints(cap=x <= 1))
    assert states_part(rows, bare) and states_part(bare, bare) and not states_part(bare, rows)


def test_programs_are_those_with_and_without_objective_and_integers() -> None:
    p = mixed().with_integrality("x")
    every = list(programs(p))
    assert any(states_part(own, form(relaxed(p))) for own in every)
    assert any(not own.q.any() for own in every) and any(own.q.any() for own in every)
    assert interfaces(mixed(), ["SCS"])[0] == "SCS"
    assert len(set(interfaces(mixed()))) == len(interfaces(mixed()))


@pytest.mark.parametrize(
    "rows",
    [
        [x >= 1.0, cp.sum(x) <= 2.0],
        [cp.norm(x) <= 1.0, x[0] >= 2.0],
        [X >> 0, X[0, 0] == -1.0],
        [X[0, 0] == 0.0, X[0, 1] == 1.0, X >> 0],
    ],
)
def test_infeasibility_is_of_its_problem_with_any_objective_and_of_no_other(rows: Any) -> None:
    def made(objective: Any, more: Any = ()) -> Any:
        return of.from_cvxpy(cp.Problem(cp.Minimize(objective), [*rows, *more]))

    p = made(0.0 * cp.sum(x) + cp.trace(X) + cp.sum(x))
    with pytest.raises(of.Infeasible) as caught:
        p.solve()
    proof = caught.value.certificate
    assert proof is not None and proof.faults(p) == ()
    # further rows leave fewer points
    assert proof.faults(p.with_constraints(more=x <= 50.0)) == ()
    fewer = p.without(next(iter(p.constraints)))
    assert proof.faults(fewer) == ("it is a proof of another problem",)


def test_a_solution_and_a_ray_are_of_their_problems() -> None:
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= 1.0]))
    q = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= 1.0 + 2.0**-52]))
    proof = p.solve().certificate
    assert proof.faults(p) == () and proof.faults(q) == ("it is a proof of another problem",)
    assert proof.faults(cp.Problem(cp.Minimize(cp.sum(x)), [x >= 1.0])) == ()
    with pytest.raises(of.DeclarationError, match="problem is of type int, not a declared problem"):
        proof.faults(3)
    falling = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x <= 1.0]))
    with pytest.raises(of.Unbounded) as caught:
        falling.solve()
    ray = caught.value.certificate
    assert ray is not None and ray.faults(falling) == ()
    assert ray.faults(p) != ()


def test_programs_that_share_terms_are_compared_without_building_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    p = mixed()
    q = p.with_constraints(more=x <= 7.0)
    assert same_program(p, mixed()) and fingerprint(p) == fingerprint(mixed())
    assert not same_program(p, q) and not same_program(q, q.with_constraints(most=x <= 8.0))
    assert same_program(q, p.with_constraints(more=x <= 7.0))
    assert not same_program(q, p.with_constraints(more=x <= 8.0))
    assert not same_program(p, p.with_integrality("x"))
    other = p.with_terms({}, p.constraints)
    assert not same_program(p, other) and is_part(p, other) and is_part(p, q)
    assert not is_part(q, p) and not is_part(p.with_integrality("x"), p)
    assert not is_part(q, p.with_constraints(more=x <= 8.0))
    assert not is_part(mixed(extra=(cp.Variable(name="y") >= 0,)), mixed(extra=(x <= 1.0,)))
    built: list[str] = []
    plain = identity._Writer.term
    monkeypatch.setattr(
        identity._Writer, "term", lambda w, term: built.append(term.name) or plain(w, term)
    )
    assert same_program(q, p.with_constraints(more=x <= 7.0)) and set(built) == {"more"}


def test_a_vector_is_verified_on_rows_that_are_compiled_anew() -> None:
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= 1.0, cp.sum(x) <= 2.0]))
    with pytest.raises(of.Infeasible) as caught:
        p.solve()
    proof: Any = caught.value.certificate
    # rows that are there twice, in another order, are others' too
    twice = np.append(np.arange(proof.form.b.size)[::-1], 0)
    kept = replace(
        proof,
        form=replace(
            proof.form,
            A=proof.form.rows[twice],
            b=proof.form.b[twice],
            cones=(replace(proof.form.cones[0], start=0, stop=twice.size),),
        ),
        z=np.append(proof.z[::-1], 0.0),
    )
    assert {c.kind for c in proof.form.cones} == {"nonneg"}
    assert kept.verify() and kept.faults(p) == ()
    assert kept.faults(p.with_constraints(more=x[0] <= 9.0)) == ()
    assert replace(kept, z=kept.z[:-1]).faults(p) != ()
