"""All solvers known, from the files of facts: is one there, may it solve, a problem of what size, and which is asked by default."""

from __future__ import annotations

import contextlib
import difflib
import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from optfair import registry
from optfair.backends.request import Outcome, Refusal, Request, SolverProfile, load_profile
from optfair.compile.form import compile_problem
from optfair.core.display import html_table, text_table
from optfair.errors import (
    Infeasible,
    NotInstalled,
    NotLicensed,
    OptfairError,
    SizeLimited,
    SolverFailure,
    Unbounded,
    UnsupportedProblem,
    data_frame,
    kind_of,
    nearest,
)
from optfair.registry import fact_files, load_facts

if TYPE_CHECKING:
    from optfair.core.problem import Problem
    from optfair.solution.conic_form import ConicForm


# All solvers known, from the files of facts: is one there, may it solve, and a problem of what size.


# The files that profiles were loaded from last, and these.
_LOADED: tuple[Any, dict[str, SolverProfile]] = (None, {})


def profiles() -> dict[str, SolverProfile]:
    """Return every profile by name; files that begin with an underscore are no solvers."""
    global _LOADED
    files, (known, loaded) = fact_files("solvers"), _LOADED
    if known is not files:
        own = (load_profile(v) for k, v in sorted(files.items()) if not k.startswith("_"))
        loaded = {p.name: p for p in own}
        _LOADED = files, loaded
    return loaded


def profile(name: str) -> SolverProfile:
    """Return one profile, by its name in any case, or by CVXPY's constant for it.

    Raises
    ------
    UnsupportedProblem
        No solver has this name; the message suggests the nearest.

    Examples
    --------
    >>> import cvxpy as cp
    >>> profile("HiGHS").name, profile(cp.CLARABEL).name, profile(cp.SCIPY).name
    ('highs', 'clarabel', 'scipy-linprog')
    """
    known = profiles()
    if not isinstance(name, str):
        raise UnsupportedProblem(
            f"a solver is named by text, not by {kind_of(name)}",
            remedy="name one, as in solver='highs'; compare_solvers takes several",
        )
    plain = name.lower().replace("_", "-")
    if plain in known:
        return known[plain]
    by_constant = {p.cvxpy_name.lower().replace("_", "-"): p for p in known.values()}
    if plain in by_constant:
        return by_constant[plain]
    if (classes := _by_cvxpy(plain)) is not None:
        order = _policy(fact_files("solvers")["_policy"])["classes"]
        instead = "; ".join(f"for {c} take {' or '.join(order[c][:3])}" for c in classes)
        raise UnsupportedProblem(
            f"optfair has no profile of {name!r}",
            f"CVXPY knows this solver, for {' and '.join(classes)}, but its answers were never"
            " measured here",
            f"{instead}; or let CVXPY solve it without a proof:"
            f" problem.cvxpy.solve(solver={name.upper().replace('-', '_')!r})",
        )
    close = difflib.get_close_matches(plain, known, n=1, cutoff=0.6)
    how = "" if not close or known[close[0]].installed else f" ({known[close[0]].install})"
    advice = nearest(plain, known) if close else "optfair.solvers() lists them all"
    raise UnsupportedProblem(f"unknown solver {name!r}", remedy=f"{advice}{how}")


# Classes of curved cones, and the names of these in CVXPY.
CONES = {"SOCP": {"SOC"}, "SDP": {"PSD", "SvecPSD"}, "CONIC": {"ExpCone"}}


def _by_cvxpy(plain: str) -> list[str] | None:
    """Return the largest classes that CVXPY has a solver for, None of one that it does not know."""
    from cvxpy.reductions.solvers.defines import SOLVER_MAP_CONIC, SOLVER_MAP_QP

    conic = {name.lower().replace("_", "-"): s for name, s in SOLVER_MAP_CONIC.items()}
    quadratic = {name.lower().replace("_", "-"): s for name, s in SOLVER_MAP_QP.items()}
    if plain not in conic and plain not in quadratic:
        return None
    own = conic.get(plain) or quadratic[plain]
    cones = {c.__name__ for c in own.SUPPORTED_CONSTRAINTS}
    curved = [c for c, needs in CONES.items() if needs & cones]
    out = ["QP"] * (plain in quadratic) + curved
    if own.MIP_CAPABLE:
        out.append("MISOCP" if "SOCP" in curved else "MILP")
    return out or ["LP"]


def takers(problem: Problem) -> list[str]:
    """Return the names of the installed solvers that take a problem."""
    return [p.name for p in profiles().values() if p.installed and p.accepts(problem)]


def open_takers(problem: Problem) -> list[str]:
    """Return the names of the open solvers that take a problem, installed or not."""
    return [p.name for p in profiles().values() if p.kind == "open" and p.accepts(problem)]


@dataclass(frozen=True)
class SolverTable:
    """Rows of solver facts that print as a table."""

    rows: tuple[dict[str, Any], ...]
    head: ClassVar = ("solver", "version", "classes", "licence", "state")

    def __repr__(self) -> str:
        return "\n".join(text_table([self.head, *self._lines]))

    def _repr_html_(self) -> str:
        return html_table(self.head, self._lines, len(self))

    @property
    def _lines(self) -> list[tuple[str, ...]]:
        return [tuple(str(row[h]) for h in self.head) for row in self.rows]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.to_list())

    def __len__(self) -> int:
        return len(self.rows)

    def to_frame(self) -> Any:
        """Return a pandas DataFrame of all facts, one row per solver."""
        return data_frame(self.to_list())

    def to_list(self) -> list[dict[str, Any]]:
        """Return the rows as dictionaries."""
        return [dict(row) for row in self.rows]


def solvers() -> SolverTable:
    """Return a table of all solvers: version, classes, licence, its state and how to get it.

    Returns
    -------
    SolverTable
        A row each; ``to_frame()`` has what the table leaves out.

    Examples
    --------
    >>> import optfair as of
    >>> [row["classes"] for row in of.solvers() if row["solver"] == "highs"]
    ['LP, QP, MILP']
    """
    rows = []
    for p in profiles().values():
        what = ", ".join(p.classes) + (f" with {p.structure}" if p.structure else "")
        if p.nonconvex:
            what += f", nonconvex ({p.nonconvex})"
        probed = licence_state(p)
        rows.append(
            {
                "solver": p.name,
                "version": p.version if p.installed else "-",
                "classes": what,
                "licence": p.licence,
                "state": str(probed),
                "installed": p.installed,
                "usable": probed.usable,
                "nonconvex": p.nonconvex,
                "install": p.install,
                "title": p.title,
                "returns": list(p.returns),
                "quirks": dict(p.quirks),
            }
        )
    return SolverTable(tuple(rows))


@dataclass(frozen=True)
class LicenceState:
    """Whether a solver may solve.

    Attributes
    ----------
    word : str
        open, licensed, size-limited, no licence or not installed.
    detail : str
        Limits, what is missing, or how to get it.
    """

    word: str
    detail: str = ""

    @property
    def usable(self) -> bool:
        """Whether it solves at least small problems."""
        return self.word in ("open", "licensed", "size-limited")

    def __str__(self) -> str:
        installed = "installed, " if self.word != "not installed" else ""
        return installed + self.word + (f": {self.detail}" if self.detail else "")


def licence_state(profile: SolverProfile) -> LicenceState:
    """Return the state of a solver's licence; nothing is imported for open solvers."""
    if not profile.installed:
        return LicenceState("not installed", profile.install)
    if not profile.probe:
        return LicenceState("open" if profile.kind == "open" else "licensed")
    word, detail, _ = _probed(profile.probe, profile.module, _limit(profile, "variables"))
    if word == "size-limited":
        detail = ", ".join(f"{v} {k}" for k, v in profile.limits.items())
    return LicenceState(word, detail)


def environment(profile: SolverProfile) -> Any:
    """Return what the probe opened to hold the licence, None where there is nothing to hold."""
    if not profile.probe:
        return None
    return _probed(profile.probe, profile.module, _limit(profile, "variables"))[2]


def refuse_unlicensed(profile: SolverProfile, others: Callable[[], Iterable[str]]) -> None:
    """Raise `NotLicensed` when a solver is there but may not solve.

    Parameters
    ----------
    profile : SolverProfile
        An installed solver.
    others : callable
        Open solvers that take the problem.
    """
    state = licence_state(profile)
    if state.word == "no licence":
        raise NotLicensed(
            f"{profile.name} is installed but has no licence to solve",
            state.detail,
            _instead(profile, others()),
        )


def compiled_size(form: ConicForm) -> dict[str, int]:
    """Return the size of a compiled problem as limits of licences count it.

    Cones beyond the linear ones are passed on as one further variable and equation per row
    and a quadratic constraint per cone.
    """
    curved = [c for c in form.cones if c.kind not in ("zero", "nonneg")]
    variables = form.q.size + sum(c.stop - c.start for c in curved)
    sizes = {"variables": variables, "constraints": form.b.size + len(curved)}
    if form.P.nnz or curved:
        sizes["variables with a quadratic term"] = variables
    return sizes


def refuse_size(
    profile: SolverProfile, size: dict[str, int], others: Callable[[], Iterable[str]]
) -> None:
    """Raise `SizeLimited` when the licence at hand does not allow a problem of a size."""
    if not profile.limits or licence_state(profile).word != "size-limited":
        return
    over = [
        f"{size[k]} {k}, it allows {limit}"
        for k, limit in profile.limits.items()
        if size.get(k, 0) > limit
    ]
    if over:
        raise size_limited(profile, "; ".join(over), others())


def size_limited(profile: SolverProfile, has: str, others: Iterable[str]) -> SizeLimited:
    """Return what to raise when a licence does not allow what a problem has."""
    return SizeLimited(
        f"the licence at hand of {profile.name} is limited in size",
        f"the problem has {has}",
        _instead(profile, others),
    )


def _instead(profile: SolverProfile, others: Iterable[str]) -> str:
    names = ", ".join(others)
    return f"get a licence ({profile.licence}), or use an open solver: {names or 'none takes this'}"


def _limit(profile: SolverProfile, name: str) -> int:
    return int(profile.limits.get(name, 0))


# (state, detail, environment) of a licence
Probed = tuple[str, str, Any]


@lru_cache(maxsize=16)
def _probed(recipe: str, module: str, limit: int) -> Probed:
    if recipe not in _RECIPES:
        raise OptfairError(
            f"unknown licence probe {recipe!r}", remedy=f"one of {', '.join(_RECIPES)}"
        )
    return _RECIPES[recipe](importlib.import_module(module), limit)


def _trial_model(library: Any, limit: int) -> Probed:
    """Open a silent environment and try one variable more than the bundled licence allows."""
    try:
        held = library.Env(empty=True)
        held.setParam("OutputFlag", 0)
        held.start()
    except library.GurobiError as e:
        return "no licence", str(e), None
    model = library.Model(env=held)
    model.addMVar(limit + 1)
    try:
        model.optimize()
    except library.GurobiError as e:
        if "size-limited" in str(e):
            return "size-limited", "", held
        return "no licence", str(e), None
    finally:
        model.dispose()
    return "licensed", "", held


def _checkout(library: Any, limit: int) -> Probed:
    """Check a licence out and in again; building and writing models needs none."""
    with library.Env() as held:
        try:
            held.checkoutlicense(library.feature.pts)
        except library.Error as e:
            return "no licence", str(e.errno).rpartition(".")[2], None
        held.checkinlicense(library.feature.pts)
    return "licensed", "", None


_RECIPES: dict[str, Callable[[Any, int], Probed]] = {
    "trial model": _trial_model,
    "checkout": _checkout,
}


# Which solver by default: decided by the problem alone, never by what is installed.


@lru_cache(maxsize=4)
def _policy(path: Path) -> dict[str, Any]:
    return load_facts(path)


def choose(problem: Problem, solver: str | None) -> tuple[SolverProfile, ...]:
    """Return the solvers to try, in order: the named one alone, or the policy's.

    Parameters
    ----------
    problem : Problem
        What is to be solved.
    solver : str, optional
        Name of a solver.

    Raises
    ------
    UnsupportedProblem
        The named solver, or every solver, refuses the problem.
    NotInstalled
        The named solver, or the default, is not installed.
    NotLicensed
        The named solver has no licence to solve.
    """
    if solver is not None:
        named = profile(solver)
        _check(problem, named)
        return (named,)
    policy = _policy(fact_files("solvers")["_policy"])
    known = profiles()
    structured = (*policy["structures"], *registry.defaults())
    by_structure = [name for name in structured if known[name].accepts(problem)]
    pc = problem.problem_class
    order, budgets = policy["classes" if pc.convex else "nonconvex"].get(pc.name, ()), {}
    if pc.name == "SDP" and (size := _order(problem)) >= policy["semidefinite"]["order"]:
        linear = pc.cones == {"psd"} and not (pc.quadratic_objective or pc.quadratic_constraint)
        large = policy["semidefinite"]
        order, budgets = large["linear" if linear else "other"], large["budget"]
        order = order[:1] if linear and size >= large["alone"] else order
    by_class = [name for name in order if known[name].accepts(problem)]
    second = _by_proof(problem, policy["proved"])
    chosen = tuple(
        replace(known[name], fixed={**known[name].fixed, **budgets.get(name, {})})
        for name in dict.fromkeys(by_structure + by_class[:1] + second + by_class)
    )
    quick = known[policy["integers"]["solver"]]
    if pc.convex and quick.name in by_class[1:]:  # at its full length it comes later
        fixed = {**quick.fixed, "entries": policy["integers"]["entries"]}
        at = len(by_structure)
        chosen = (*chosen[:at], replace(quick, fixed=fixed), *chosen[at:])
    if not chosen:
        raise UnsupportedProblem(
            f"no open solver takes this {pc}"
            if not takers(problem)
            else f"there is no default solver for this {pc}",
            "; ".join(_reasons(problem)),
            "see explain() for the term that decides the class; " + _offer(problem),
        )
    if not chosen[0].installed:
        missing = chosen[0]
        raise NotInstalled(
            f"{missing.name} is not installed",
            f"it is the default for this {pc}; the module {missing.module!r} was not found",
            missing.install,
        )
    return tuple(p for p in chosen if p.installed)


def reordered(problem: Problem, candidates: Sequence[SolverProfile]) -> Sequence[SolverProfile]:
    """Return whom to ask of a linear program: first who eliminates residuals, where most rows have one.

    A least sum of absolute deviations, a quantile regression, a hinge loss or a conditional value at
    risk has a row for each observation, with all coefficients in it and a residual of its own. A
    simplex method exchanges the residuals one by one; an interior point eliminates them.

    Parameters
    ----------
    problem : Problem
        A linear program; it is compiled, as for the first candidate.
    candidates : sequence of SolverProfile
        Whom the policy asks, in order.
    """
    facts, first = facts_for("long_columns"), candidates[0]
    own = profile(facts["solver"])
    if first.name != facts["before"] or not own.installed:
        return candidates
    with contextlib.suppress(OptfairError):  # who is asked first says it
        form = compile_problem(problem, first.compile_as or first.cvxpy_name).form
        if form.A.nnz < facts["entries"]:
            return candidates
        wide = form.rows[np.diff(form.rows.indptr) > 1]
        count = np.bincount(wide.indices, minlength=form.q.size)
        long = 4 * count >= wide.shape[0]
        each = min(wide.shape[0], np.sum(~long)) >= facts["short"]
        if each and count[long].sum() >= max(facts["entries"], 0.5 * wide.nnz):
            return [own, *(c for c in candidates if c.name != own.name)]
    return candidates


def _order(problem: Problem) -> float:
    """Return the order of the one block that costs a cone solver as much as those there are.

    A block of order n costs it about n to the sixth: that is the cube of its entries.
    """
    terms = (t for t in problem.terms if "psd" in t.evidence.problem_class.cones)
    sides = [float(max(getattr(t, "shape", ()), default=0)) for t in terms]
    order: float = round(sum(n**6 for n in sides) ** (1.0 / 6.0), 6)
    return order


def _by_proof(problem: Problem, facts: dict[str, Any]) -> list[str]:
    """Return who bounds terms that were proved beyond composition rules, while they are few."""
    size = sum(v.size for v in problem.variables.values())
    few = size <= facts["variables"] and not problem.integers
    proved = any(t.evidence.proof is not None for t in problem.terms)
    return [facts["solver"]] if few and proved else []


def _check(problem: Problem, named: SolverProfile) -> None:
    verdict = named.accepts(problem)
    if isinstance(verdict, Refusal):
        raise UnsupportedProblem(
            "; ".join(verdict.reasons), remedy="; ".join([*verdict.remedies, _offer(problem)])
        )
    if not named.installed:
        raise NotInstalled(
            f"{named.name} is not installed",
            f"module {named.module!r} was not found",
            named.install,
        )
    refuse_unlicensed(named, lambda: open_takers(problem))


def _reasons(problem: Problem) -> list[str]:
    open_ones = [p for p in profiles().values() if p.kind == "open" and not p.structure]
    verdicts = (p.accepts(problem) for p in open_ones)
    return [r for v in verdicts if isinstance(v, Refusal) for r in v.reasons][:3]


def _offer(problem: Problem) -> str:
    able = [p.name for p in profiles().values() if p.accepts(problem)]
    return f"Solvers that can: {', '.join(able) or 'none of those known'}."


def conic_interface() -> str:
    """Return CVXPY's name of the default cone solver: its form is what we compile rules to."""
    policy = _policy(fact_files("solvers")["_policy"])
    return profile(policy["classes"]["CONIC"][0]).cvxpy_name


def facts_for(purpose: str) -> dict[str, Any]:
    """Return what the policy says of a purpose that is no class."""
    return dict(_policy(fact_files("solvers")["_policy"])[purpose])


def solver_of(purpose: str) -> str:
    """Return the solver of the policy for a purpose that is no class."""
    return str(facts_for(purpose)["solver"])


def adapter_of(profile: SolverProfile) -> Callable[..., Outcome]:
    """Import what runs the solver, and the solver's own library, which takes longer."""
    if profile.cvxpy_name and profile.module:
        with contextlib.suppress(ImportError):  # the probe says what is missing
            importlib.import_module(profile.module)
    if profile.via == "structured":
        return registry.route(profile.route)
    file, _, name = profile.via.partition(":")
    module = importlib.import_module(f"optfair.backends.{file}_backend")
    run: Callable[..., Outcome] = getattr(module, f"run_{name}" if name else "run")
    return run


def outcome_of(
    run: Callable[[Problem, SolverProfile, Request], Outcome],
    problem: Problem,
    profile: SolverProfile,
    request: Request,
) -> Outcome:
    """Return what an adapter hands back.

    Raises
    ------
    SolverFailure
        It says infeasible or unbounded without a certificate: that is its word.
    """
    try:
        return run(problem, profile, request)
    except (Infeasible, Unbounded) as e:
        if e.certificate is not None:
            raise
        claim = "infeasible" if isinstance(e, Infeasible) else "unbounded"
        parts = f"{e.cause}, which is not proved here", e.evidence, e.remedy
        raise SolverFailure(*parts, claim=claim, claimed_by=profile.name) from e


def explained(problem: Problem, e: SolverFailure) -> OptfairError:
    """Return a claim of infeasibility with what the model knows: a proof where it has one."""
    if e.claim != "infeasible":
        return e
    known = problem.explained(Infeasible(e.cause, e.evidence, e.remedy))
    if known.certificate is not None:
        return known
    said = known.cause if known.cause == e.cause else f"{known.cause}; {e.cause}"
    more: dict[str, Any] = {"claim": e.claim, "claimed_by": e.claimed_by, "solution": e.solution}
    return SolverFailure(said, known.evidence, known.remedy, **more)


def claimed_infeasible(problem: Problem, solver: str, why: str = "") -> SolverFailure:
    """Return what to raise when a solver says infeasible and nothing proves it."""
    return SolverFailure(
        f"{solver} says that no point satisfies the constraints, which is not proved here",
        why or "it leaves no certificate that could be verified",
        "diagnose() looks for a proof; or try another solver, or remove or soften constraints: "
        + ", ".join(map(repr, problem.constraints)),
        claim="infeasible",
        claimed_by=solver,
    )


def claimed_unbounded(problem: Problem, solver: str, why: str = "") -> SolverFailure:
    """Return what to raise when a solver says unbounded and nothing proves it."""
    terms = ", ".join(map(repr, problem.objective))
    return SolverFailure(
        f"{solver} says that the objective ({terms}) improves without limit,"
        " which is not proved here",
        why or "no ray with a feasible point could be verified",
        "bound the variables it depends on; or try another solver, or soften constraints",
        claim="unbounded",
        claimed_by=solver,
    )
