"""Rows of certificates held against problems that are compiled anew, as solvers get them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from optfair.backends.registry import choose, conic_interface
from optfair.backends.solve import solve
from optfair.compile.form import compile_problem
from optfair.core.certificate import OTHER, Certificate
from optfair.errors import Infeasible, OptfairError
from optfair.numbers import Indices
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


def places(whole: ConicForm, part: ConicForm) -> Indices | None:
    """Return which row of a form each row of another is, None where one is none of them.

    Rows of a cone are those of one; rows that are there twice are the first of these, unless the
    forms are the same, row by row.
    """
    if whole.A.shape[1] != part.A.shape[1]:
        return None
    every = np.arange(part.b.size)
    alike = whole.cones == part.cones and np.array_equal(whole.b, part.b)
    if alike and not (whole.rows != part.rows).nnz:
        return every
    units, own = _Units(whole), _Units(part)
    place = np.searchsorted(units.keys, own.keys)
    if (place >= units.keys.size).any() or (units.keys[place] != own.keys).any():
        return None
    if (units.kinds[place] != own.kinds).any():
        return None
    rows, others = own.rows(np.arange(place.size)), units.rows(place)
    if (part.rows[rows] != whole.rows[others]).nnz or (part.b[rows] != whole.b[others]).any():
        return None
    every[rows] = others
    return every


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


def faults_anew(
    problem: Problem, form: ConicForm, made: Callable[[ConicForm, Indices], Certificate | None]
) -> tuple[str, ...]:
    """Return why a certificate over the rows of a form is none of a problem, empty when it is one.

    It is verified on the problem's own rows, compiled anew.

    Parameters
    ----------
    problem : Problem
        What it may be about.
    form : ConicForm
        What the certificate keeps.
    made : callable
        Returns the certificate on a program of the problem, from that and from which of its rows
        those of the form are; None where it cannot be one.
    """
    reasons: tuple[str, ...] = (OTHER,)
    for own in programs(problem):
        at = places(own, form)
        again = None if at is None else made(own, at)
        if again is not None and not (reasons := again.verify().reasons):
            return ()
    return reasons
