"""Three questions before a solver runs: is it there, may it solve, and a problem of what size."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from optfair.errors import NotLicensed, OptfairError, SizeLimited

if TYPE_CHECKING:
    from collections.abc import Iterable

    from optfair.backends.profile import SolverProfile
    from optfair.solution.conic_form import ConicForm


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


def refuse_size(
    profile: SolverProfile, form: ConicForm, others: Callable[[], Iterable[str]]
) -> None:
    """Raise `SizeLimited` when the licence at hand does not allow a compiled problem.

    Cones beyond the linear ones are passed on as one further variable and equation per row
    and a quadratic constraint per cone.
    """
    if not profile.limits or licence_state(profile).word != "size-limited":
        return
    curved = [c for c in form.cones if c.kind not in ("zero", "nonneg")]
    quadratic = bool(form.P.nnz or curved)
    variables = form.q.size + sum(c.stop - c.start for c in curved)
    constraints = form.b.size + len(curved)
    found = {"variables": variables, "constraints": constraints}
    if quadratic:
        found["variables with a quadratic term"] = variables
    over = [
        f"{found[k]} {k}, it allows {limit}"
        for k, limit in profile.limits.items()
        if found.get(k, 0) > limit
    ]
    if over:
        raise SizeLimited(
            f"the licence at hand of {profile.name} is limited in size",
            "the compiled problem has " + "; ".join(over),
            _instead(profile, others()),
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
