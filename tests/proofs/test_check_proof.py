"""The stand-alone checker: it accepts what is proved, and no file that was tampered with."""

from __future__ import annotations

import ast
import copy
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import optfair as of
from optfair.formats.proof_file import SavedProof, load_proof
from optfair.proofs import check_proof
from optfair.proofs.portable import plain

Document = dict[str, Any]
x = cp.Variable(2, name="x")
w = cp.Variable(4, name="w")
X = cp.Variable((3, 3), name="X", symmetric=True)
RNG = np.random.default_rng(5)
A, b, C = RNG.normal(size=(6, 4)), RNG.normal(size=6), RNG.normal(size=(3, 3))
k = cp.Variable(3, boolean=True, name="k")

PROBLEMS: dict[str, tuple[Any, list[Any]]] = {
    # free columns whose residuals cancel in fractions only
    "lp free": (
        cp.Minimize(0.7 * x[0] + 1.1 * x[1]),
        [0.1 * x[0] + 0.3 * x[1] >= 0.7, 0.3 * x[0] + 0.2 * x[1] >= 0.9],
    ),
    # bounds that follow from the rows and the objective
    "lp cut": (
        cp.Maximize(-(0.3 * w[0] + 0.7 * w[1] + 1.1 * w[2] + 0.9 * w[3])),
        [w >= 0, 0.1 * w[0] + w[1] >= 0.7, w[1] + 0.3 * w[2] + w[3] >= 1.3, w[0] >= 0.01 * w[2]],
    ),
    "qp": (cp.Minimize(cp.sum_squares(A @ w - b)), [cp.sum(w) == 1]),
    "qp singular": (
        cp.Minimize(cp.quad_form(w, cp.psd_wrap(np.outer(b[:4], b[:4]))) + b[:4] @ w),
        [cp.sum(w) == 1, w >= 0],
    ),
    "socp": (cp.Minimize(cp.norm(A @ w - b)), [cp.norm(w) <= 0.3]),
    "sdp": (cp.Minimize(cp.trace((C + C.T) @ X)), [X >> 0, cp.diag(X) == 1]),
    "farkas": (cp.Minimize(cp.sum(x)), [0.1 * x[0] + 0.3 * x[1] >= 1.3, x <= 3]),
    "farkas socp": (cp.Minimize(cp.sum(x)), [cp.norm(x - 3) <= 1, cp.norm(x) <= 1]),
    "ray": (cp.Minimize(x[0]), [x[0] + 0.1 * x[1] == 0.3, x[1] >= 0]),
    "branching": (
        cp.Minimize(cp.sum(k)),
        [k[0] + k[1] >= 1.5, k[1] + k[2] >= 1.5, k[0] + k[2] <= 1],
    ),
}


@cache
def proof_of(name: str) -> tuple[Any, Document]:
    """Return a problem and the document of its proof."""
    problem = of.from_cvxpy(cp.Problem(*PROBLEMS[name]))
    certificate: Any
    if name == "branching":
        certificate = problem.diagnose()["conflict"].evidence
        assert certificate.proof is not None
    else:
        try:
            certificate = problem.solve(tolerance=1e-6).certificate
        except (of.Infeasible, of.Unbounded) as e:
            certificate = e.certificate
    with tempfile.TemporaryDirectory() as folder:
        certificate.save(Path(folder) / "proof.json")
        return problem, load_proof(Path(folder) / "proof.json").document


def sealed(document: Document) -> Document:
    """Return a document with the hash that fits it, as a forger would write it."""
    rest = {key: v for key, v in document.items() if key != "digest"}
    return rest | {"digest": check_proof.digest(rest)}


def refused(document: Document) -> str:
    with pytest.raises(check_proof.Rejected) as caught:
        check_proof.check(document)
    return str(caught.value)


@pytest.mark.parametrize("name", PROBLEMS)
def test_it_runs_alone_and_accepts_what_is_proved(name: str, tmp_path: Path) -> None:
    problem, document = proof_of(name)
    file = tmp_path / "proof.json"
    file.write_text(json.dumps(document))
    # an interpreter that sees no package at all
    command = [sys.executable, "-I", "-S", check_proof.__file__, str(file)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and f"{file}: proved" in done.stdout, done.stdout + done.stderr
    assert "for |x|" not in done.stdout
    saved = SavedProof(document)
    assert saved.verify() and str(saved.verify().grade) == "proved"
    assert saved.faults(problem) == ()


@pytest.mark.parametrize("name", ["socp", "sdp"])
def test_what_a_claim_allows_of_a_curved_cone_is_said(name: str) -> None:
    document = copy.deepcopy(proof_of(name)[1])
    assert f"tolerance {1e-6:.0e})" in check_proof.check(sealed(document))
    document["proof"]["claim"] |= {"violation": "0x1.0p-1", "tolerance": 1}
    said = check_proof.check(sealed(document))
    assert "violation 5.0e-01 (absolute" in said and said.endswith("tolerance 1e+00)")


def test_several_files_and_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_proof.main([]) == 2 and not capsys.readouterr().out
    assert check_proof.main(["/no/such/file"]) == 1
    assert capsys.readouterr().out.startswith("/no/such/file: NOT proved: ")
    command = [sys.executable, "-I", "-S", check_proof.__file__]
    assert subprocess.run(command, capture_output=True).returncode == 2
    done = subprocess.run([*command, "/no/such/file"], capture_output=True, text=True)
    assert done.returncode == 1 and "NOT proved" in done.stdout


def test_it_is_one_short_file_of_the_standard_library() -> None:
    text = Path(check_proof.__file__).read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400
    imported = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            imported |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module or "")
    assert {name.split(".")[0] for name in imported} <= sys.stdlib_module_names


def more(value: Any, by: float) -> int | str:
    return plain(float(check_proof.number(value)) + by)


def _largest(values: list[Any]) -> int:
    return int(np.argmax([abs(float(check_proof.number(v))) for v in values]))


def _leaf(document: Document) -> Document:
    node = document["proof"]["tree"]
    while "column" in node:
        node = node["below"]
    leaf: Document = node
    return leaf


def primal(d: Document) -> None:
    values = d["proof"]["point"]
    values[_largest(values)] = more(values[_largest(values)], 1e-4)


def multiplier(d: Document) -> None:
    record = _leaf(d)["multipliers"]
    i = _largest(record)
    record[i] = more(record[i], 1e-2)


def negative_multiplier(d: Document) -> None:
    start = 0
    for kind, size, _ in d["form"]["cones"]:
        if kind != "zero":
            _leaf(d)["multipliers"][start] = -1
            return
        start += size
    raise AssertionError("no multiplier has a sign")


def last_digit_of_a_multiplier(d: Document) -> None:
    record = _leaf(d)["multipliers"]
    i = next(i for i, v in enumerate(record) if "/" in str(v))
    over, _, under = record[i].partition("/")
    record[i] = f"{hex(int(over, 16) + 1)}/{under}"


def tighter_step(d: Document) -> None:
    step = _leaf(d)["steps"][-1]
    step[3] = more(step[3], -1e-3 if step[2] else 1e-3)


def dropped_step(d: Document) -> None:
    del _leaf(d)["steps"][0]


def other_row(d: Document) -> None:
    step = _leaf(d)["steps"][-1]
    step[0] = (step[0] + 1) % d["form"]["rows"]


def _claimed(key: str, by: float) -> Callable[[Document], None]:
    def change(d: Document) -> None:
        claim = d["proof"]["claim"]
        size = max(1.0, abs(float(check_proof.number(claim[key]))))
        claim[key] = more(claim[key], by * size)

    return change


def _dropped(*path: str) -> Callable[[Document], None]:
    def change(d: Document) -> None:
        node = d
        for key in path[:-1]:
            node = _leaf(d) if key == "leaf" else node[key]
        part = node[path[-1]]
        if isinstance(part, list):
            del part[-1]
        else:
            del node[path[-1]]

    return change


def _renamed(key: str, value: Any) -> Callable[[Document], None]:
    return lambda d: d.update({key: value})


def direction(d: Document) -> None:
    values = d["proof"]["direction"]
    values[0] = more(values[0], 1e-9)


def backwards(d: Document) -> None:
    values = d["proof"]["direction"]
    values[:] = [more(v, -2 * float(check_proof.number(v))) for v in values]


def limit(d: Document) -> None:
    d["proof"]["tree"]["limit"] += 1


def one_branch(d: Document) -> None:
    d["proof"]["tree"] = d["proof"]["tree"]["below"]


def same_branch(d: Document) -> None:
    d["proof"]["tree"]["above"] = copy.deepcopy(d["proof"]["tree"]["below"])


def continuous_branch(d: Document) -> None:
    d["form"]["integer"] = []


def no_convexity(d: Document) -> None:
    rows, columns, values = d["form"]["P"]
    at = next(i for i, (r, c) in enumerate(zip(rows, columns, strict=True)) if r == c)
    values[at] = -1


TAMPERED: list[tuple[str, str, Callable[[Document], None]]] = [
    *(
        (name, what, change)
        for name in ("lp free", "lp cut", "qp", "qp singular", "socp", "sdp")
        for what, change in {
            "primal": primal,
            "multiplier": multiplier,
            "bound": _claimed("bound", 1e-5),
            "objective": _claimed("objective", -1e-5),
            "violation": _claimed("violation", 1e-3),
            "dropped multiplier": _dropped("leaf", "multipliers"),
            "dropped value": _dropped("proof", "point"),
            "dropped cost": _dropped("form", "q"),
            "dropped side": _dropped("form", "b"),
            "dropped cone": _dropped("form", "cones"),
            "dropped claim": _dropped("proof", "claim"),
        }.items()
    ),
    ("lp free", "last digit", last_digit_of_a_multiplier),
    ("lp cut", "sign of a multiplier", negative_multiplier),
    ("lp cut", "step", tighter_step),
    ("lp cut", "dropped step", dropped_step),
    ("lp cut", "row of a step", other_row),
    ("lp cut", "cut", _claimed("cut", -1e-5)),
    ("socp", "sign of a multiplier", negative_multiplier),
    ("sdp", "sign of a multiplier", negative_multiplier),
    ("qp", "curvature", no_convexity),
    ("farkas", "sign of a multiplier", negative_multiplier),
    ("farkas", "dropped multiplier", _dropped("leaf", "multipliers")),
    ("farkas socp", "multiplier", negative_multiplier),
    ("ray", "primal", primal),
    ("ray", "direction", direction),
    ("ray", "backwards", backwards),
    ("ray", "dropped direction", _dropped("proof", "direction")),
    ("branching", "multiplier", multiplier),
    ("branching", "limit", limit),
    ("branching", "one branch only", one_branch),
    ("branching", "a branch twice", same_branch),
    ("branching", "continuous", continuous_branch),
    ("lp cut", "no sense", lambda d: d["form"].update({"sign": 5})),
    ("lp cut", "kind", _renamed("kind", "infeasible")),
    ("lp cut", "unknown kind", _renamed("kind", "hope")),
    ("lp cut", "schema", _renamed("schema", 99)),
    ("lp cut", "format", _renamed("format", "a novel")),
]


@pytest.mark.parametrize(
    ("name", "what", "change"), TAMPERED, ids=lambda v: v if isinstance(v, str) else "forged"
)
def test_tampered_files_are_refused(
    name: str, what: str, change: Callable[[Document], None]
) -> None:
    _, document = proof_of(name)
    forged = copy.deepcopy(document)
    change(forged)
    assert forged != document
    assert refused(forged)
    # a forger who writes the right hash is refused by the mathematics
    assert "saved with" not in refused(sealed(forged)), what


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_proof_of_other_data_is_no_proof_of_the_problem(name: str) -> None:
    problem, document = proof_of(name)
    form = document["form"]
    places = [("A", 2, i) for i in range(len(form["A"][2]))]
    places += [("b", i) for i in range(form["rows"])]
    if document["kind"] != "infeasible":
        places += [("q", i) for i in range(form["columns"])] + [("offset",)]
    for path in places:
        forged = copy.deepcopy(document)
        node = forged["form"]
        for key in path[:-1]:
            node = node[key]
        node[path[-1]] = more(node[path[-1]], 1e-4)
        assert refused(forged) == "its numbers are not those it was saved with"
        assert SavedProof(sealed(forged)).faults(problem) != (), path


def by_hand(**changes: Any) -> Document:
    """Return a proof written by hand: min x + 2y, x + y >= 1, x <= 1/4, y >= 0, is 7/4."""
    form = {
        "rows": 3,
        "columns": 2,
        "sign": 1,
        "offset": 0,
        "q": [1, 2],
        "P": [[], [], []],
        "A": [[0, 0, 1, 2], [0, 1, 0, 1], [-1, -1, 1, -1]],
        "b": [-1, "0x1/0x4", 0],
        "cones": [["nonneg", 3, None]],
        "integer": [],
    }
    claim = {
        "bound": "0x7/0x4",
        "objective": "0x7/0x4",
        "cut": None,
        "radius": None,
        "tolerance": 0,
        "violation": 0,
    }
    proof = {
        "tree": {"against": "objective", "multipliers": [2, 1, 0], "steps": []},
        "claim": claim | changes,
        "point": ["0x1/0x4", "0x3/0x4"],
    }
    return sealed(
        {"format": "optfair proof", "schema": 3, "kind": "bound", "form": form, "proof": proof}
    )


def test_a_proof_by_hand_has_no_gap_at_all() -> None:
    assert check_proof.check(by_hand()).startswith("proved: objective 1.75, bound 1.75, gap 0.0e")
    refused(by_hand(bound=f"{hex(7 * 2**200 + 1)}/{hex(4 * 2**200)}"))
    refused(by_hand(tolerance=-1))
    refused(by_hand(cut=1))
    assert "above 1" in refused(by_hand(bound=-99, tolerance=60))
    loose = by_hand(bound=1, tolerance="0x1/0x2", radius=None)
    assert "bound 1, gap 4.3e-01" in check_proof.check(loose)


def test_what_nothing_bounds_needs_a_radius() -> None:
    document = by_hand(tolerance="0x1/0x2", bound=1)
    document["proof"]["tree"]["multipliers"] = ["0x1.fffffffffffffp+0", 1, 0]
    assert "residual" in refused(sealed(document))
    document["proof"]["claim"]["radius"] = 1000
    assert check_proof.check(sealed(document)).startswith("proved for |x| <= 1e+03")
    for radius in (0, -1000):
        document["proof"]["claim"]["radius"] = radius
        assert "residual" in refused(sealed(document))


def exactly_semidefinite(M: list[list[Fraction]]) -> bool:
    """Decide by elimination in fractions."""
    M = [row[:] for row in M]
    while M:
        pivot, rest = M[0][0], M[0][1:]
        if pivot < 0 or (pivot == 0 and any(rest)):
            return False
        M = [
            [v - (rest[i] * rest[j] / pivot if pivot else 0) for j, v in enumerate(row[1:])]
            for i, row in enumerate(M[1:])
        ]
    return True


@settings(deadline=None, max_examples=150)
@given(st.integers(1, 5), st.integers(0, 2**32 - 1), st.integers(-50, 50), st.integers(0, 60))
def test_semidefinite_is_never_wrong(n: int, seed: int, nudge: int, digits: int) -> None:
    rng = np.random.default_rng(seed)
    F = rng.integers(-9, 10, (n, int(rng.integers(1, n + 1))))
    units = 10 ** rng.integers(0, 5, n)
    whole = (F @ F.T) * np.outer(units, units)
    # on the edge of the cone, moved in or out by little
    M = [[Fraction(int(v)) for v in row] for row in whole]
    M[-1][-1] += Fraction(nudge, 2**digits)
    flat, unit = check_proof.integers([v for row in M for v in row])
    entries = [(i, j, flat[i * n + j]) for i in range(n) for j in range(n)]
    shifts = check_proof.MARGINS + check_proof.SHIFTS
    found = check_proof.semidefinite(entries, unit, shifts)
    if found == {}:
        assert exactly_semidefinite(M)
    elif found is not None:
        moved = [row[:] for row in M]
        for i, d in found.items():
            assert d > 0
            moved[i][i] += d
        assert exactly_semidefinite(moved)
    if nudge >= 0 and exactly_semidefinite(M):
        assert found is not None


def test_entries_off_the_diagonal_are_those_of_the_matrix_and_multipliers_sums_of_two() -> None:
    def held(a: int, off: int, c: int, dual: bool = False) -> bool:
        return check_proof.inside("psd", [a, off, c], [2, True], dual)

    # [[a, off], [off, c]]: off² <= a c, of multipliers off² <= 4 a c, to the last digit
    for n in (10**9, 10**40):
        assert held(n, n, n) and held(n, 1 - n, n) and not held(n, n + 1, n)
        assert held(n, 2 * n, n, True) and not held(n, 2 * n + 1, n, True)
    assert not held(1, 0, -1) and held(1, 0, 0) and not held(0, 1, 1)
    assert check_proof.triangle([3, True]) == [(0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2)]
    assert check_proof.triangle([3, False]) == [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)]


def test_second_order_cones_are_exact() -> None:
    assert check_proof.inside("soc", [5, 3, 4], None, True)
    assert not check_proof.inside("soc", [5 * 10**40 - 1, 3 * 10**40, 4 * 10**40], None, True)
    assert not check_proof.inside("soc", [-5, 3, 4], None, False)
    assert check_proof.inside("zero", [1, -1], None, True)
    assert not check_proof.inside("zero", [1, -1], None, False)
    with pytest.raises(check_proof.Rejected, match="exp"):
        check_proof.inside("exp", [1, 1, 1], None, False)


def test_a_file_cannot_choose_what_it_is_measured_by() -> None:
    # costs of 2^-40: what is lost of the bound is an eighth of them, whatever the file says
    tiny = [f"0x{k}/{hex(2**40)}" for k in (1, 2)]
    document = by_hand(
        objective=f"0x7/{hex(2**42)}", bound=f"0x6/{hex(2**42)}", tolerance="0x1/0x9"
    )
    document["form"]["q"], leaf = tiny, document["proof"]["tree"]
    leaf["multipliers"] = [tiny[1], tiny[0], 0]
    assert "the gap 0.125 exceeds" in refused(sealed(document))
    document["proof"]["claim"]["unit"] = 1
    assert "gap" in refused(sealed(document))
    document["proof"]["claim"] |= {"bound": f"0x7/{hex(2**42)}", "tolerance": 0}
    assert "gap 0.0e" in check_proof.check(sealed(document))
    # a column in units of 2^30: a side that is missed by an eighth is not missed by 2^-33
    record = document["form"] | {"A": [[0], [0], [2**30]], "q": [1], "b": [1]}
    form = check_proof.Form(record | {"cones": [["nonneg", 1, None]]})
    assert float(*form.units()) * 2**30 == pytest.approx(1.0, rel=0.1)  # 8 passes are not all
    worst = check_proof.violation(form, [9], 2**33, Fraction(1), [0], 0)
    assert worst == (Fraction(1, 9), Fraction(1, 8), 0)


ROOMLESS: dict[str, tuple[list[Any], list[int]]] = {  # cones of rows with t only, and multipliers
    "nonneg": ([["nonneg", 1, None]], [1]),
    "zero": ([["zero", 1, None]], [1]),
    "soc": ([["soc", 2, None]], [1, -1]),
    "psd": ([["psd", 3, [2, False]]], [Fraction(1, 2), -1, Fraction(1, 2)]),
}


@pytest.mark.parametrize("kind", ROOMLESS)
def test_a_violation_is_worth_no_more_than_the_tolerance(kind: str) -> None:
    """min -y - 2^30 t, y <= 1, and t = 0 in any cone: t = 2^-30 makes up for y = 0."""
    cones, z = ROOMLESS[kind]
    steep, size = 2**30, len(z)
    entry = 1 if kind in ("zero", "nonneg") else -1
    document = by_hand()
    document["form"] |= {
        "A": [[0, min(size, 2)], [0, 1], [1, entry]],
        "P": [[], [], []],
        "b": [1, *(0 for _ in z)],
        "q": [-1, -steep],
        "cones": [["nonneg", 1, None], *cones],
    }
    multipliers = [1, *(int(v * steep) for v in z)]
    document["proof"]["tree"] = {
        "against": "objective",
        "multipliers": multipliers,
        "point": [],
        "steps": [],
    }

    def at(y: str, t: str, objective: str) -> str:
        claim = {"bound": -1, "cut": None, "radius": None, "objective": objective}
        claim |= {"tolerance": "0x1/0x400", "violation": "0x1/0x400"}
        document["proof"] |= {"claim": claim, "point": [y, t]}
        try:
            return check_proof.check(sealed(document))
        except check_proof.Rejected as e:
            return str(e)

    assert "proved: objective -1, bound -1" in at("0x1", "0x0", "-0x1/0x1")
    off = "worth more than the tolerance" if entry == 1 else f"the {kind} cone at row 1"
    assert off in at("0x0", f"0x1/{hex(steep)}", "-0x1/0x1")
    # what a violation is worth adds up to the tolerance, and is then no fault
    assert "proved" in at("0x1", f"0x1/{hex(steep << 11)}", "-0x801/0x800")


def test_units_of_numbers_at_the_ends_of_the_floats_are_numbers() -> None:
    record = by_hand()["form"]
    for small, large in ((5e-324, 1e300), (1e300, 5e-324), (5e-324, 1.0), (1.7e308, 5e-324)):
        entries = [int(Fraction(v) * 2**1074) for v in (small, small, large)]
        sides = [f"{hex(v)}/{hex(2**1074)}" for v in entries]
        data = {"A": [[0, 0, 1], [0, 1, 0], sides], "q": [1, 1], "b": [sides[2], 1]}
        form = check_proof.Form(record | data | {"cones": [["nonneg", 2, None]]})
        assert len(form.units()) == 2 and min(form.units()) > 0


def test_a_radius_below_the_point_proves_nothing() -> None:
    document = by_hand(tolerance="0x1/0x2", bound=1, radius=999)
    assert "radius" in refused(document)


def form_by_hand(**parts: Any) -> Any:
    """Return a form with -1 <= y <= 3 in two columns, or other parts."""
    rows = [[0, 1, 2, 3], [0, 1, 0, 1], [1, 1, -1, -1]]
    record = {"sign": 1, "offset": 0, "q": [0, 0], "P": [[], [], []], "A": rows, "integer": []}
    record |= {"b": [3, 3, 1, 1], "cones": [["nonneg", 4, None]]}
    return check_proof.Form(record | parts)


def test_curvature_that_is_not_proved_costs_half_its_shift_times_the_reach_squared() -> None:
    less = Fraction(1, 2**60)  # by which it is not semidefinite
    form = form_by_hand(P=[[0, 0, 1, 1], [0, 1, 0, 1], [1, 1, 1, f"{hex(2**60 - 1)}/{hex(2**60)}"]])
    shift = check_proof.semidefinite(form.P, form.unit, check_proof.MARGINS + check_proof.SHIFTS)
    assert shift is not None and {*shift} == {0, 1} and 0 < min(shift.values()) < 2.0**-30
    at = [Fraction(1, 2), Fraction(1, 4)]
    steps = [[i, i % 2, 1 - i // 2, [3, 3, -1, -1][i]] for i in range(4)]
    leaf = {"against": "objective", "multipliers": [0] * 4, "steps": steps}
    leaf["point"] = [f"0x{v.numerator}/0x{v.denominator}" for v in at]
    slope = 2 * sum(at) - less * at[1]  # the residual Px, at -1 twice
    plain = -(sum(at) ** 2 - less * at[1] ** 2) / 2 - slope
    paid = plain - sum(shift[j] * max(abs(-1 - v), abs(3 - v)) ** 2 / 2 for j, v in enumerate(at))
    claim = {"cut": None, "radius": None}
    assert check_proof.lower(form, leaf, (), claim) == paid
    # without bounds the reach is what the radius leaves: the residual costs too
    leaf["steps"] = []
    far = paid + slope - 100 * slope
    far += sum(shift[j] * (max(abs(-1 - v), abs(3 - v)) ** 2 - (100 + v) ** 2) / 2
               for j, v in enumerate(at))  # fmt: skip
    assert check_proof.lower(form, leaf, (), claim | {"radius": 100}) == far
    with pytest.raises(check_proof.Rejected, match="residual"):
        check_proof.lower(form, leaf, (), claim)


def test_matrices_without_a_margin_are_eliminated_in_fractions() -> None:
    rows = [[4, 2, 0, 0], [2, 1, 0, 0], [0, 0, 9, -3], [0, 0, -3, 1]]
    entries = [(i, j, v) for i, row in enumerate(rows) for j, v in enumerate(row)]
    assert check_proof.semidefinite(entries, 1, (0.0,)) == {}
    assert check_proof.semidefinite(entries, 1, check_proof.MARGINS) == {}
    for at, less in ((0, 1), (3, 1), (1, 2), (2, 9)):  # a pivot, or one that is 0 beside others
        worse = [(i, j, v - less * (i == j == at)) for i, j, v in entries]
        assert check_proof.semidefinite(worse, 1, (0.0,)) is None
        assert check_proof.semidefinite(worse, 1, check_proof.MARGINS) is None
    # of as many entries as that takes long only the margin decides
    many = [(2 * k + i, 2 * k + j, 1) for k in range(1000) for i in (0, 1) for j in (0, 1)]
    assert len(many) > check_proof.SMALL
    assert check_proof.semidefinite(many, 1, check_proof.MARGINS) is None


def test_small_pivots_beside_long_columns_keep_their_digits() -> None:
    # values of a smooth function at near points: pivots fall to 3e-12, columns over them are long
    t = np.arange(60.0)
    M = np.exp(-((t[:, None] - t) ** 2) / 38.0) + 3e-12 * np.eye(60)
    for lift, inside in ((0.0, True), (-4e-12, False)):
        entries = [M[i, j] + lift * (i == j) for i, j in check_proof.triangle([60, False])]
        sums = zip(entries, check_proof.triangle([60, False]), strict=True)
        whole, _ = check_proof.integers([Fraction(v) * (1 + (i != j)) for v, (i, j) in sums])
        assert check_proof.inside("psd", whole, [60, False], True) is inside


def test_multipliers_of_a_face_are_those_of_the_matrix_that_it_makes() -> None:
    # S = b - A x with two blocks of order 3 behind an equation, their rows the triangle of S
    record: Document = {
        "A": [[], [], []],
        "P": [[], [], []],
        "b": [0] * 13,
        "q": [],
        "offset": 0,
        "sign": 1,
        "integer": [],
        "cones": [["zero", 1, None], ["psd", 6, [3, True]], ["psd", 6, [3, False]]],
    }
    V = np.array([[1, 0], [-2, 1], [0, 3]])
    lines = [[[i, int(v)] for i, v in enumerate(column) if v] for column in V.T]
    W = np.array([[2, -1], [-1, 4]])
    inner = [int(W[i, j]) * (1 + (i != j)) for i, j in check_proof.triangle([2, True])]
    Z = V @ W @ V.T
    for upper, row in ((True, 1), (False, 7)):
        leaf: Document = {"multipliers": [-5] + [0] * 12, "faces": [[row, lines, inner]]}
        form = check_proof.Form(record)
        z, over = form.multipliers(leaf)
        sums = [int(Z[i, j]) * (1 + (i != j)) for i, j in check_proof.triangle([3, upper])]
        assert over == 1 and z[0] == -5 and z[row : row + 6] == sums and sum(map(bool, z)) == 7
        assert form.dual == (z, over)
    eye = [int(i == j) for i, j in check_proof.triangle([3, True])]
    both = form.multipliers({"multipliers": [0, *eye] + [0] * 6, "faces": [[1, lines, inner]]})
    whole = [
        int((Z + np.eye(3))[i, j]) * (1 + (i != j)) for i, j in check_proof.triangle([3, True])
    ]
    assert both[0][1:7] == whole
    # W must be semidefinite, in a block that is there, and all of it be given
    worse = [inner[0], inner[1], -1]
    for faces in ([[1, lines, worse]], [[0, lines, inner]], [[1, lines, inner[:-1]]]):
        with pytest.raises((check_proof.Rejected, LookupError, ValueError)):
            form.multipliers({"multipliers": [0] * 13, "faces": faces})


def test_integers_are_measured_by_the_nearest_one() -> None:
    form = form_by_hand(integer=[1])
    for over, off in ((2, 1), (4, 1), (1, 1), (3, 0)):
        worst, *_ = check_proof.violation(form, [0, over], 3, Fraction(0), [0] * form.m, 0)
        assert worst == Fraction(off, 3)


def test_rows_are_measured_by_what_their_integers_leave() -> None:
    """y0 <= 10^6 (y1 - 3) is y0 <= 0 at y1 = 3; integers alone go by steps, the least a coefficient."""
    rows, one = [[0, 0], [0, 1], [1, -(10**6)]], [["nonneg", 1, None]]
    form = form_by_hand(integer=[1], A=rows, b=[-3 * 10**6], cones=one)
    unit = check_proof.Form.units(form)[0]
    worst, far, _ = check_proof.violation(form, [100, 3], 1, Fraction(0), [0] * form.m, 0)
    assert worst == Fraction(100, max(100, math.ceil(unit))) and far == 100
    other = form_by_hand(integer=[1], A=[[0], [1], [1]], b=[2], cones=one)
    worst, far, _ = check_proof.violation(other, [0, 3], 1, Fraction(0), [0] * other.m, 0)
    assert worst == Fraction(1, 1) and far == 1
    other = form_by_hand(integer=[0, 1], A=rows, b=[0], cones=one)
    for x, off in (([100, 0], 1), ([10**6 + 1, 1], 1), ([10**6, 1], 0)):
        worst, *_ = check_proof.violation(other, x, 1, Fraction(0), [0] * other.m, 0)
        assert worst == off


@pytest.mark.parametrize(
    ("cone", "heads"), [(["soc", 3, None], {0}), (["psd", 3, [2, True]], {0, 2})]
)
def test_rows_of_curved_cones_bound_from_one_side(cone: Any, heads: set[int]) -> None:
    # s = (y0, y1, y1): a head says y >= 0 and no more, the others nothing alone
    form = form_by_hand(b=[0, 0, 0], A=[[0, 1, 2], [0, 1, 1], [-1, -1, -1]], cones=[cone])
    for i, j in ((0, 0), (1, 1), (2, 1)):
        for above, value in ((0, 0), (1, 0), (1, 100), (0, -100)):
            if i in heads and not above:
                assert check_proof.Box(form, [[i, j, above, value]], (), None).ends[0][j] == value
                continue
            with pytest.raises(check_proof.Rejected):
                check_proof.Box(form, [[i, j, above, value]], (), None)


def test_cones_have_rows_and_fill_the_form() -> None:
    for cones in ([["nonneg", 3, None]], [["nonneg", 4, None], ["zero", 0, None]],
                  [["nonneg", 5, None], ["zero", -1, None]]):  # fmt: skip
        with pytest.raises(check_proof.Rejected, match="fit the rows"):
            form_by_hand(cones=cones)


@pytest.mark.parametrize("cone", [["soc", 2**63, None], ["psd", 3, [2**63, True]]])
def test_a_cone_beyond_the_rows_is_refused_before_it_is_made(cone: list[Any]) -> None:
    document = copy.deepcopy(proof_of("socp")[1])
    document["form"]["cones"][0] = cone
    assert refused(sealed(document)) == "the cones do not fit the rows"


def test_a_name_that_stands_twice_is_refused(tmp_path: Path) -> None:
    """Of two entries of one name readers take either: the file says two things."""
    file = tmp_path / "proof.json"
    text = json.dumps(proof_of("socp")[1])
    bound = json.dumps(proof_of("socp")[1]["proof"]["claim"]["bound"])
    for entry in ('"format": "optfair proof"', f'"bound": {bound}'):
        assert entry in text
        file.write_text(text.replace(entry, f"{entry.partition(':')[0]}: 7, {entry}", 1))
        assert check_proof.main([str(file)]) == 1
        with pytest.raises(of.DataError, match="two entries of an object are called"):
            load_proof(file)
