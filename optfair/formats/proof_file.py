"""Proofs on disk: one JSON file that a program of the standard library checks by itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from optfair.backends.branching import BranchedBound, BranchingProof
from optfair.backends.case_search import Split, cases
from optfair.backends.facial_reduction import FaceContradiction, FaceRay, FacialContradiction
from optfair.backends.farkas import InfeasibilityProof, Ray, stated_by_roots
from optfair.backends.integer_programs import integer_columns
from optfair.backends.recompilation import interfaces
from optfair.backends.registry import conic_interface
from optfair.backends.tangents import TangentContradiction
from optfair.backends.unattained import UnattainedOptimum
from optfair.compile.conic_proof import ConicProof, ExactOptimum, RescaledProof, form_of
from optfair.compile.form import Compiled, compile_problem
from optfair.core.certificate import (
    PROVED,
    UNKNOWN,
    Certificate,
    Optimality,
    Verdict,
    drift,
    within,
)
from optfair.core.expressions import check_parameters
from optfair.core.identity import fingerprint
from optfair.diagnosis.conflict import Conflict
from optfair.errors import DataError, Known, OptfairError, UnsupportedProblem, kind_of
from optfair.formats.text import is_problem_file
from optfair.numbers import check_flag, check_path, checked
from optfair.proofs import check_proof
from optfair.proofs.portable import (
    Move,
    contradiction,
    declared,
    feasible_exactly,
    form_record,
    leaf_of,
    leaves_of,
    plain,
    ratio,
    vector_record,
)
from optfair.proofs.reduction import Entries, Excluded
from optfair.storage import check_free, read_json, write_text
from optfair.transforms.relaxation import relaxed

if TYPE_CHECKING:
    from optfair.core.expressions import Values
    from optfair.core.problem import Problem
    from optfair.core.solution import Solution
    from optfair.proofs.portable import Leaf
    from optfair.solution.conic_form import ConicForm

# A radius is worth telling when it is so many times the size of the solution.
CLEAR = 1e3
# A slack below this share of its terms is taken for none.
TIGHT = 1e-6
# Proofs that no point exists: by multipliers of the rows, and by a chain of zeros.
FACIAL = "facial reduction"
EXCLUDING = ("infeasible", FACIAL)
# That no point attains a limit, nor multipliers exclude it: two such chains.
UNATTAINED = "unattained optimum"
# What infeasibility says nothing about: the objective, and what variables are called.
OBJECTIVE, CALLED = ("q", "P", "offset", "sign"), ("names",)


@dataclass(frozen=True, eq=False, repr=False)
class SavedProof(Certificate):
    """What a proof file states, checked by nothing but its own numbers.

    Parameters
    ----------
    document : dict
        Content of the file.
    name : str
        Of the file.
    """

    document: dict[str, Any]
    name: str = "the proof"

    @cached_property
    def _checked(self) -> tuple[str, str]:
        """What is proved, or why it is not."""
        chained = self.document.get("kind") in (FACIAL, UNATTAINED)
        try:
            return (_replayed if chained else check_proof.check)(self.document), ""
        except check_proof.Rejected as e:
            return "", str(e)

    def verify(self) -> Verdict:
        """Recompute the proof in exact arithmetic."""
        _, fault = self._checked
        if fault:
            return Verdict(False, (fault,), UNKNOWN)
        claim = self.document["proof"].get("claim", {})
        radius = claim.get("radius")
        if radius is None:
            return Verdict(True, grade=PROVED)
        return Verdict(True, grade=within(float(check_proof.number(radius)), "an open column"))

    def _faults(self, problem: Problem) -> tuple[str, ...]:
        """Return why this is no proof about a problem, empty when it is one.

        The problem is compiled anew; its numbers must be those in the file, every one of them.
        """
        reasons = self.verify().reasons
        if reasons:
            return reasons
        own, apart, kind = self.document["form"], "", self.document["kind"]
        for form, integer in _forms(problem, self.document):
            apart = _difference(own, form_record(form, integer), kind)
            if not apart:
                more = form.rounded or (kind == "unbounded" and stated_by_roots(problem))
                return ("its rows have rounded roots of declared matrices",) if more else ()
        return (f"it is a proof of another problem: {apart or 'nothing compiles to such rows'}",)

    def __str__(self) -> str:
        proved, fault = self._checked
        return proved or f"NOT proved: {fault}"


@checked(path=check_path)
def load_proof(path: str | Path) -> SavedProof:
    """Read a proof file.

    Parameters
    ----------
    path : str or Path
        What `save` of a certificate wrote.

    Raises
    ------
    DataError
        The file is missing, or no proof file.
    """
    document = {} if is_problem_file(file := Path(path)) else read_json(file)
    if not isinstance(document, dict) or document.get("format") != check_proof.FORMAT:
        raise DataError(
            f"{file} is no proof file",
            f"its format is not {check_proof.FORMAT!r}",
            "certificate.save() writes one, and `optfair prove MODEL --out FILE`",
        )
    schema = document.get("schema")
    if schema != check_proof.SCHEMA:
        raise DataError(
            f"{file} has schema {schema!r}",
            f"this version reads schema {check_proof.SCHEMA}",
            "save the proof again with this version",
        )
    return SavedProof(Known(document, "part"), file.name)


@checked(path=check_path, overwrite=check_flag)
def save_proof(certificate: Certificate, path: str | Path, *, overwrite: bool = False) -> None:
    """Write a certificate as one JSON file that can be checked without this library.

    Parameters
    ----------
    certificate : Certificate
        Of optimality, infeasibility (by Farkas, by branching or by facial reduction),
        unboundedness, or an optimum that is not attained.
    path : str or Path
        File name.
    overwrite : bool
        Whether to write over a file of that name.

    Raises
    ------
    UnsupportedProblem
        The certificate does not rest on multipliers of a compiled cone program.
    DataError
        The file exists; or exact arithmetic does not confirm the certificate.
    """
    check_free(path, overwrite)
    document = _document(certificate)
    document["digest"] = check_proof.digest(document)
    if fault := "; ".join(SavedProof(document).verify().reasons):
        raise DataError(
            "exact arithmetic does not confirm this certificate, so nothing is saved",
            fault,
            "solve to a tighter tolerance, or with another solver",
        )
    write_text(Path(path), json.dumps(document, separators=(",", ":")) + "\n", replace=overwrite)


def _replayed(document: dict[str, Any]) -> str:
    """Return what chains of zeros prove, recomputed in fractions; raise `Rejected` when nothing."""
    try:
        rest = {k: v for k, v in document.items() if k != "digest"}
        kept = check_proof.digest(rest) == document["digest"]
        check_proof.require(kept, "its numbers are not those it was saved with")
        form, proof = form_of(document["form"]), document["proof"]
        chain, missed = Excluded.of(proof), None
        if document["kind"] == UNATTAINED:
            limit = check_proof.number(proof["limit"])
            check_proof.require(float(limit) == limit, "the limit is no float")
            missed = UnattainedOptimum(form, float(limit), chain)
            fault = "; ".join(missed.verify().reasons)
        else:
            fault = chain.fault(Entries.of(form))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as e:
        raise check_proof.Rejected(f"it is malformed: {type(e).__name__}: {e}") from None
    check_proof.require(not fault, fault)
    if missed is not None:
        value = f"{missed.value:.10g}"
        return f"proved: no point attains {value}, by {chain}; no multipliers exclude it"
    weak = "; no vector separates them strictly" if chain.others is not None else ""
    return f"proved: no point satisfies the constraints, by {chain}{weak}"


def _document(certificate: Certificate) -> dict[str, Any]:
    if isinstance(certificate, SavedProof):
        return {k: v for k, v in certificate.document.items() if k != "digest"}
    if isinstance(certificate, Conflict) and certificate.proof is not None:
        certificate = certificate.proof
    if isinstance(certificate, Optimality):
        if certificate.solution.exact is None:
            return _optimality(certificate)
        certificate = certificate.solution.exact
    if isinstance(certificate, FacialContradiction):
        about, record = {"constraints": list(certificate.conflict)}, form_record(certificate.form)
        link, *more = certificate.proof.links
        if not more and certificate.form.polyhedral:  # a Farkas vector
            weights = [ratio(link.get(i, Fraction(0))) for i in range(certificate.form.b.size)]
            tree = {"against": "constraints", "multipliers": weights, "steps": []}
            return _framed("infeasible", about, record, {"tree": tree})
        return _framed(FACIAL, about, record, certificate.proof.record())
    if isinstance(certificate, UnattainedOptimum):
        limit = {"limit": plain(certificate.limit)}
        body = certificate.proof.record() | limit
        return _framed(UNATTAINED, {}, form_record(certificate.form), body)
    if isinstance(certificate, InfeasibilityProof) and not isinstance(
        certificate, (TangentContradiction, FaceContradiction)
    ):
        about, record = {"constraints": list(certificate.conflict)}, form_record(certificate.form)
        _needs(certificate.form)
        if certificate.limits:
            raise UnsupportedProblem(
                f"a proof {certificate.limits} that no point exists is not written",
                f"beyond there may be one: {certificate.verify().grade.because}; bound it",
            )
        leaf = contradiction(certificate.form, check_proof.Form(record), certificate.z)
        return _framed("infeasible", about, record, {"tree": leaf.record})
    if isinstance(certificate, ExactOptimum):
        named = {
            "fingerprint": fingerprint(certificate.problem),
            "interface": certificate.compiled.interface.name(),
        }
        return _framed("bound", named, *certificate.record)
    if isinstance(certificate, BranchingProof) and certificate.by_multipliers:
        return _branching(certificate)
    if isinstance(certificate, Ray) and not isinstance(certificate, FaceRay):
        document = _ray(certificate)
        try:
            check_proof.unbounded(check_proof.Form(document["form"]), document["proof"])
        except check_proof.Rejected:  # what is near the floats is proved otherwise than at a point
            document = _ray(certificate.in_fractions())
        return document
    raise UnsupportedProblem(
        f"{kind_of(certificate)} cannot be written as a proof file",
        "such files hold multipliers of a compiled program, trees of them, chains of zeros, and rays",
    )


def _framed(
    kind: str, problem: dict[str, Any], record: dict[str, Any], proof: dict[str, Any]
) -> dict[str, Any]:
    head = {"format": check_proof.FORMAT, "schema": check_proof.SCHEMA, "kind": kind}
    return head | {"problem": problem, "form": record, "proof": proof}


def _needs(form: ConicForm, by_roots: Sequence[Any] = ()) -> None:
    """Refuse what the checker has no exact arithmetic for."""
    if by_roots or form.rounded or form.plain is None:
        raise UnsupportedProblem(
            "proofs with this quadratic form, formula or asymmetric matrix are not written",
            "its rows have a rounded root, mean or constants, which may not say the same",
            "certificate.verify() charges for that; or write sum_squares(F @ x), and (X + X.T) / 2",
        )
    if other := {c.kind for c in form.cones if c.kind in ("exp", "pow")}:
        raise UnsupportedProblem(
            "proofs with exponential and power cones are not written",
            f"the program has cones of kind {', '.join(sorted(other))}, whose points have no"
            " rational numbers to be checked by",
            "certificate.verify() checks them with rounded arithmetic",
        )


def _optimality(certificate: Optimality) -> dict[str, Any]:
    solution, tolerance = certificate.solution, certificate.tolerance
    proof: Any = solution.proof
    if isinstance(proof, BranchedBound):
        return _branched(certificate, proof)
    unit = 1.0
    while isinstance(proof, RescaledProof):
        proof, unit = proof.divided, unit * proof.unit
    if not isinstance(proof, ConicProof) and (restated := _restated(solution)) is not None:
        proof, unit = restated, 1.0
    if not isinstance(proof, ConicProof):
        by = "nobody proves it" if proof is None else f"it rests on {proof.source}"
        by = "an algorithm of its own proves it" if by.endswith(" duality") else by
        raise UnsupportedProblem(
            "this bound cannot be written as a proof file",
            f"{by}, not on multipliers of a compiled program",
            "name a solver of cone programs: optfair.solvers() lists those with duals"
            + (", and prove() branches on integers" if solution.problem.integers else ""),
        )
    compiled, x = proof.compiled, proof.x
    named = _named(solution, compiled, compiled.by_name(x, None)[0])
    _needs(compiled.form)
    form, _ = declared(compiled.form)
    if unit != 1.0:
        form = replace(form, P=form.P * unit, q=form.q * unit, offset=form.offset * unit)
    record = form_record(form)
    exact = check_proof.Form(record)
    cut = float(np.nextafter(form.objective(x), np.inf))
    size = max(form.unit, abs(form.objective(x) - form.offset))
    claim: dict[str, Any] = {"tolerance": plain(tolerance)}
    claim |= _point(exact, x, tolerance)
    enough = float(check_proof.number(claim["objective"])) - tolerance * size
    best = (False, False, -np.inf)  # one without a radius is better than one with it
    for own in leaves_of(compiled.form, exact, x, proof.z, unit, cut):
        made = claim | {"cut": None if own.cut is None else plain(own.cut), "radius": None}
        bound = _bound(exact, own, made, x, enough)
        if (rank := (bound >= enough, made["radius"] is None, bound)) > best:
            best, leaf, kept = rank, own, made | {"bound": plain(bound)}
        if best[0] and best[1]:
            break
    if best[2] == -np.inf:
        raise DataError(
            "exact arithmetic does not confirm this certificate, so nothing is saved",
            "columns that nothing bounds have residuals too large for a radius around the solution",
            "bound the variables, solve to a tighter tolerance, or with another solver",
        )
    body = {"tree": leaf.record, "claim": kept, "point": vector_record(x)}
    return _framed("bound", named, record, body)


def _named(solution: Solution, compiled: Compiled, values: Values) -> dict[str, Any]:
    """Return what names a problem and how it was compiled, if the values are what was proved."""
    check_parameters(solution.problem.terms)
    another = solution.proof is None or solution.proof.problem is not solution.problem
    if another or drift(solution.values, values) > 1e-12:
        what = "problem of this solution is not the one" if another else "values are not those"
        raise DataError(
            f"the {what} its bound was proved with",
            remedy="save the certificate that solve() or prove() returned",
        )
    interface, by = compiled.interface.name(), solution.solver
    return {"fingerprint": fingerprint(solution.problem), "interface": interface, "solver": by}


def _restated(solution: Solution) -> ConicProof | None:
    """Return what an algorithm of its own found as multipliers of the compiled rows.

    Which row an entry of a multiplier belongs to shows where rows are numbered. None where the
    program has other columns than those of the variables, or rows without such an entry.
    """
    problem = solution.problem
    if solution.proof is None or problem.integers:
        return None
    try:
        compiled = compile_problem(problem, conic_interface())
    except OptfairError:
        return None
    form, places = compiled.form, compiled.places()
    tags = compiled.multipliers(np.arange(1.0, form.b.size + 1.0))
    x, z = np.full(form.q.size, np.nan), np.full(form.b.size, np.nan)
    for parts, given, into in (
        ({name: place + 1.0 for name, place in places.items()}, solution.values, x),
        (tags, solution.multipliers, z),
    ):
        for name, tag in parts.items():
            if name not in given or np.shape(given[name]) != np.shape(tag):
                return None
            at = np.rint(np.abs(tag)).astype(int) - 1
            into[at[at >= 0]] = (np.sign(tag) * given[name])[at >= 0]
    if not (np.isfinite(x).all() and np.isfinite(z).all()):
        return None
    apart = drift(solution.multipliers, compiled.multipliers(z))
    return ConicProof(problem, compiled, x, z) if apart <= 1e-12 else None


def _point(exact: check_proof.Form, x: Any, tolerance: float) -> dict[str, Any]:
    """Return the objective of a point and by how much it violates the rows."""
    whole, under = check_proof.vector(vector_record(x), exact.n, "point")
    objective = exact.varying(whole, under) + Fraction(exact.offset, exact.unit)
    return {
        "objective": plain(float(objective)),
        "violation": _violation(exact, whole, under, tolerance),
    }


def _branched(certificate: Optimality, proof: BranchedBound) -> dict[str, Any]:
    """Write every case of a branched bound as multipliers of the rows they share."""
    solution, tolerance = certificate.solution, certificate.tolerance
    _needs(form := proof.compiled.form)
    named = _named(solution, proof.compiled, proof.compiled.values(proof.x))
    record = form_record(form, integer_columns(solution.problem, proof.compiled).tolist())
    exact = check_proof.Form(record)
    cut = float(np.nextafter(form.objective(proof.x), np.inf))
    tree, cuts = _written(form, exact, proof.tree, cut)
    claim = {"cut": plain(cut) if cuts else None, "radius": None, "tolerance": plain(tolerance)}
    claim |= _point(exact, proof.x, tolerance)
    try:
        least = check_proof.leaves(exact, tree, claim)
    except check_proof.Rejected as e:
        raise DataError("nothing is proved of this bound", str(e)) from None
    bound = cut if least is None else min(_below(least), cut)
    claim["bound"] = plain(min(bound, float(check_proof.number(claim["objective"]))))
    body = {"tree": tree, "claim": claim, "point": vector_record(proof.x)}
    return _framed("bound", named, record, body)


def _bound(
    exact: check_proof.Form, leaf: Leaf, claim: dict[str, Any], x: Any, least: float
) -> float:
    """Return a float below the exact bound, with the largest radius that gives it, or -inf."""
    most = np.inf if leaf.cut is None else leaf.cut
    try:
        return min(most, _below(check_proof.lower(exact, leaf.record, (), claim)))
    except check_proof.Rejected:
        near = CLEAR * max(1.0, float(np.abs(x).max(initial=0.0)))

    def within(radius: float) -> float:
        claim["radius"] = plain(radius)
        return min(most, _below(check_proof.lower(exact, leaf.record, (), claim)))

    with suppress(check_proof.Rejected):
        falls, bound = within(2.0 * near), within(near)
        if bound >= least:  # the loss is in proportion to the radius
            share = (bound - least) / max(bound - falls, 1e-15 * (bound - least), 1e-300)
            far = within(min(near * (1.0 + share * (1.0 - 1e-6)), 1e15))
            return far if far >= least else within(near)
    return -np.inf


def _below(exact: Any) -> float:
    return float(np.nextafter(float(exact), -np.inf))


def _violation(exact: check_proof.Form, x: list[int], under: int, tolerance: float) -> int | str:
    """Return the least violation that the checker confirms, of those that are tried."""
    steps = [0.0, *(10.0**k for k in range(-16, 0) if 10.0**k < tolerance), tolerance]
    best = tolerance
    while steps:  # what is confirmed stays so with more
        own = check_proof.number(plain(steps[half := len(steps) // 2]))
        try:
            worst, *_ = check_proof.violation(exact, x, under, own, [0] * exact.m, 0)
        except check_proof.Rejected:
            steps = steps[half + 1 :]
            continue
        best = near if (near := float(worst)) >= worst else float(np.nextafter(near, np.inf))
        steps = steps[:half]
    return plain(best)


def _branching(certificate: BranchingProof) -> dict[str, Any]:
    """Write all leaves as multipliers of the rows they share, with the branches as bounds."""
    part = certificate.problem
    compiled = compile_problem(relaxed(part), conic_interface())
    _needs(form := compiled.form)
    record = form_record(form, [int(j) for j in integer_columns(part, compiled)])
    tree, _ = _written(form, check_proof.Form(record), certificate.tree, None)
    return _framed(
        "infeasible", {"constraints": list(certificate.conflict)}, record, {"tree": tree}
    )


def _written(
    form: ConicForm, exact: check_proof.Form, tree: Any, cut: float | None
) -> tuple[dict[str, Any], bool]:
    """Return a tree of cases for JSON, and whether one of them uses the cut."""
    nodes, written, cuts = list[Any](cases(tree)), dict[int, Any](), False
    for limits, node in reversed(nodes):
        if isinstance(node, Split):
            sides = {"below": written[id(node.below)], "above": written[id(node.above)]}
            written[id(node)] = {"column": node.column, "limit": node.limit, **sides}
            continue
        given = [(j, int(above), limit) for j, above, limit in limits]
        z, most = node.z[: form.b.size], None if node.x is None else cut
        leaf = leaf_of(form, exact, z, node.x, most, given, form.unit)
        written[id(node)], cuts = leaf.record, cuts or leaf.cut is not None
    return written[id(tree)], cuts


def _columns(places: Mapping[str, Any], variables: Iterable[str]) -> list[int]:
    """Return the columns of some variables."""
    return sorted({int(j) for v in variables for j in np.ravel(places[v]) if j >= 0})


def _ray(certificate: Ray) -> dict[str, Any]:
    problem = certificate.problem
    compiled = compile_problem(relaxed(problem), conic_interface())
    form, d, x = compiled.form, certificate.d, certificate.start
    if x is None:
        raise DataError("no feasible point goes with this ray", "the problem may be infeasible")
    _needs(form, stated_by_roots(problem))
    places = compiled.places()
    integer = _columns(places, problem.integers)
    x = x.copy()
    x[integer] = np.round(x[integer])
    held = np.zeros(x.size, dtype=bool)
    held[integer] = True
    if certificate.exact_start is None:
        start = vector_record(x, _settled(form.A, form.b, form, x, held))
    else:
        start = [ratio(v) for v in certificate.exact_start]
    flat = sp.csr_array(form.P)
    flat = flat[np.flatnonzero(np.diff(flat.indptr))]
    A = sp.csr_array(sp.vstack([form.A, flat])) if form.P.nnz else sp.csr_array(form.A)
    if certificate.exact_d is None:
        move = _settled(A, np.zeros(A.shape[0]), form, d, np.zeros(d.size, dtype=bool))
        direction = vector_record(d, move)
    else:
        direction = [ratio(v) for v in certificate.exact_d]
    named = {"fingerprint": fingerprint(problem), "interface": conic_interface()}
    body = {"point": start, "direction": direction}
    return _framed("unbounded", named, form_record(form, integer), body)


def _settled(A: Any, b: Any, form: ConicForm, x: Any, held: Any) -> Move | None:
    """Return what to add to x so that rows at their side hold exactly; None for nothing."""
    s = b - A @ x
    size = abs(A) @ np.abs(x) + np.abs(b)
    equal = np.arange(b.size) >= form.b.size
    for c in form.cones:
        at = slice(c.start, c.stop)
        if c.kind == "zero":
            equal[at] = True
        elif c.kind == "nonneg":
            equal[at] = s[at] <= TIGHT * size[at]
    rows = sp.csr_array(A)
    single = equal & (np.diff(rows.indptr) == 1) & (s == 0.0)
    room = np.ones(x.size)
    room[held] = 0.0
    room[rows.indices[rows.indptr[np.flatnonzero(single)]]] = 0.0
    return feasible_exactly(rows, b, np.flatnonzero(equal & ~single), x, room)


# --- which problem -------------------------------------------------------------------------------


def _forms(problem: Problem, document: dict[str, Any]) -> Iterator[tuple[ConicForm, list[int]]]:
    """Compile a problem in the ways a proof may be about."""
    about = document.get("problem")
    about = about if isinstance(about, dict) else {}
    parts: list[Problem] = [problem]
    if document["kind"] in EXCLUDING:
        parts.append(problem.with_terms({}, problem.constraints))
        names = about.get("constraints")
        own = {k: t for k, t in problem.constraints.items() if k in (names or ())}
        parts.append(problem.with_terms(problem.objective, own))
        parts.append(problem.with_terms({}, own))
    first = [about["interface"]] if isinstance(about.get("interface"), str) else []
    for part in parts:
        plainly = relaxed(part) if part.integers else part
        for name in interfaces(plainly, first):
            try:
                compiled = compile_problem(plainly, name)
            except OptfairError:
                continue
            yield compiled.form, _columns(compiled.places(), part.integers)


def _difference(own: dict[str, Any], other: dict[str, Any], kind: str) -> str:
    """Return in what two programs differ, empty when they are the same."""
    left = {*CALLED, *(OBJECTIVE if kind in EXCLUDING else ())}
    if kind in EXCLUDING and not own["integer"]:
        left.add("integer")  # what holds without integrality holds with it
    for key, word in (
        ("columns", "columns"),
        ("rows", "rows"),
        ("cones", "cones"),
        ("sign", "senses"),
        ("integer", "integer columns"),
        ("A", "entries of the rows"),
        ("b", "right-hand sides"),
        ("q", "costs"),
        ("P", "quadratic costs"),
        ("offset", "constants of the objective"),
    ):
        if key not in left and own.get(key) != other[key]:
            size = f": {own[key]} and {other[key]}" if key in ("columns", "rows") else ""
            return f"the {word} differ{size}"
    return ""
