"""Rows of certificates held against problems that are compiled anew, as solvers get them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from optfair.backends.registry import choose, conic_interface
from optfair.backends.solve import solve
from optfair.compile.form import compile_problem
from optfair.errors import Infeasible, OptfairError
from optfair.transforms.relaxation import relaxed

if TYPE_CHECKING:
    from optfair.core.problem import Problem
    from optfair.solution.conic_form import ConicForm


def interfaces(problem: Problem, first: Sequence[str] = ()) -> list[str]:
    """Return the names under which a problem is compiled: some, then those of the policy.

    Parameters
    ----------
    problem : Problem
        What is compiled.
    first : sequence of str
        Names that come before the policy's.
    """
    names = [*first]
    with suppress(OptfairError):
        names += [profile.compile_as or profile.cvxpy_name for profile in choose(problem, None)]
    return [name for name in dict.fromkeys([*names, conic_interface()]) if name]


def programs(problem: Problem) -> Iterator[ConicForm]:
    """Compile a problem in the ways in which its constraints are proved to exclude each other.

    With its objective and without, with its integers and without: rows of the objective, such as
    those of an epigraph, may be part of a certificate with a multiplier of 0.
    """
    stated = [problem, problem.with_terms({}, problem.constraints)]
    parts = stated if problem.objective else stated[:1]
    parts = [p for part in parts for p in ([part, relaxed(part)] if part.integers else [part])]
    for part in parts:
        for name in interfaces(part):
            with suppress(OptfairError):
                yield compile_problem(part, name).form
    for part in parts:
        yield from _of_special_algorithms(part)


def _of_special_algorithms(problem: Problem) -> Iterator[ConicForm]:
    """Ask the algorithms that compile a part of their own for the rows of their certificates."""
    profiles: Sequence[Any] = ()
    with suppress(OptfairError):
        profiles = choose(problem, None)
    for profile in profiles:
        if not (profile.compile_as or profile.cvxpy_name):
            try:
                solve(problem, profile.name)
            except Infeasible as e:
                if (form := getattr(e.certificate, "form", None)) is not None:
                    yield form
            except OptfairError:
                continue


def states_part(whole: ConicForm, part: ConicForm) -> bool:
    """Whether every row of a form, of cones of several rows every cone, is one of another's."""
    if whole.A.shape[1] != part.A.shape[1]:
        return False
    every, own = _Units(whole), _Units(part)
    place = np.searchsorted(every.keys, own.keys)
    if (place >= every.keys.size).any() or (every.keys[place] != own.keys).any():
        return False
    if (every.kinds[place] != own.kinds).any():
        return False
    rows, others = own.rows(np.arange(place.size)), every.rows(place)
    apart = abs(part.rows[rows] - whole.rows[others]).sum()
    return bool(apart == 0.0 and np.array_equal(part.b[rows], whole.b[others]))


class _Units:
    """The rows of a form, those of a cone together, sorted by numbers that equal ones share."""

    def __init__(self, form: ConicForm) -> None:
        cones = [c for c in form.cones if c.stop > c.start]
        sizes = [1 if c.kind in ("zero", "nonneg") else c.stop - c.start for c in cones]
        counts = [(c.stop - c.start) // size for c, size in zip(cones, sizes, strict=True)]
        kinds = [repr(replace(c, start=0, stop=k)) for c, k in zip(cones, sizes, strict=True)]
        ends = [np.arange(c.start, c.stop, k) for c, k in zip(cones, sizes, strict=True)]
        first = np.concatenate([np.zeros(0, dtype=int), *ends])
        length = np.repeat(np.array(sizes, dtype=int), counts)
        draw = np.random.default_rng(0).normal(size=form.A.shape[1])
        rows = form.rows @ draw + np.pi * form.b
        within = np.arange(rows.size) - np.repeat(first, length)
        keys = np.add.reduceat(rows * np.sqrt(2.0 + within), first) if first.size else np.zeros(0)
        keys *= np.repeat([1.0 + crc32(kind.encode()) / 2.0**33 for kind in kinds], counts)
        order = np.argsort(keys, kind="stable")
        self.keys, self.first, self.length = keys[order], first[order], length[order]
        self.kinds = np.repeat(np.array(kinds, dtype=object), counts)[order]

    def rows(self, at: Any) -> Any:
        """Return the rows of some units, one after another."""
        length = self.length[at]
        within = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
        return np.repeat(self.first[at], length) + within


def states_rows(problem: Problem, form: ConicForm, *, objective: bool = False) -> bool:
    """Whether a problem, compiled anew, has the rows of a form; and no others, and its objective."""
    for own in programs(problem):
        same = not objective or (
            own.b.size == form.b.size
            and (own.sign, own.offset) == (form.sign, form.offset)
            and np.array_equal(own.q, form.q)
            and not (own.P - form.P).nnz
        )
        if same and states_part(own, form):
            return True
    return False
