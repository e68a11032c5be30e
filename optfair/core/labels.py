"""Names of the entries of variables and constraints: along their axes, or of each one."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, islice, product
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self, cast

import cvxpy as cp
import numpy as np
from cvxpy.atoms.affine.binary_operators import MulExpression
from cvxpy.constraints import Equality, Inequality

from optfair.core.expressions import Evaluator, Values, dense, fitted
from optfair.errors import DeclarationError, NoSuchName, nearest
from optfair.numbers import Floats

if TYPE_CHECKING:
    from optfair.core.problem import Problem
    from optfair.core.term import ConstraintTerm


# What terms are called, behind the name of their variable, that were its signs and bounds.
SIGNS = ("nonnegative", "nonpositive", "lower", "upper")


@dataclass(frozen=True)
class Axis:
    """Names along one axis of an array.

    Attributes
    ----------
    name : str
        What the axis is, empty where nobody said.
    labels : tuple
        One an index.
    """

    name: str
    labels: tuple[Any, ...]

    @classmethod
    def of(cls, given: Any, size: int, what: str) -> Axis:
        """Return the axis of a list of labels, a pandas index or an xarray coordinate.

        Raises
        ------
        DeclarationError
            Not as many labels as indices, or two that are equal.
        """
        if isinstance(given, cls):
            called: Any = given.name
            labels = given.labels
        else:
            dims = getattr(given, "dims", None)
            called = dims[0] if dims else getattr(given, "name", None)
            try:
                labels = tuple(getattr(given, "values", given) if dims else given)
            except TypeError:
                labels = (given,)
        if not all(isinstance(label, Hashable) for label in labels):
            raise DeclarationError(f"a label of {what} is a list", remedy="give texts or numbers")
        if isinstance(given, str):
            raise DeclarationError(
                f"the labels of {what} are one text, {given!r}", remedy="give a list of labels"
            )
        gaps = [i for i, v in enumerate(labels) if v is None or str(v == v) != "True"]  # NaN, NA
        if gaps:
            raise DeclarationError(f"label {gaps[0]} of {what} is missing", remedy="give a name")
        if len(labels) != size or len(set(labels)) != size:
            raise DeclarationError(
                f"{len(set(labels))} different labels for the {size} entries of {what}",
                f"they are {', '.join(map(str, labels[:10]))}",
                "give one an index, each another",
            )
        return cls("" if called is None else str(called), labels)


Axes = tuple[Axis | None, ...]


def free_name(name: str, taken: Container[str], between: str = " ") -> str:
    """Return a name that is not taken yet: this one, else with the least number from 2.

    Examples
    --------
    >>> free_name("cap", {"cap", "cap 2"}), free_name("need", {"cap"})
    ('cap 3', 'need')
    """
    candidate, i = name, 1
    while candidate in taken:
        i += 1
        candidate = f"{name}{between}{i}"
    return candidate


def axes_of(given: Any, shape: tuple[int, ...], what: str) -> Axes:
    """Return the axes of an array from labels of each, or from a frame or array that has them.

    Parameters
    ----------
    given : array-like of labels, tuple of them, DataFrame, Series or DataArray
        Of one axis its labels; of several a tuple, None for an axis without; what has
        ``index`` (and ``columns``), or ``dims`` and ``coords``, gives those.
    shape : tuple of int
        Of the array.
    what : str
        What it is called.
    """
    dims = getattr(given, "dims", None)
    if dims is not None and len(dims) == len(shape) > 1:
        each: Any = [given.coords.get(d, None) for d in dims]
    elif hasattr(given, "index") and hasattr(given, "iloc"):
        each = [given.index, *([given.columns] if hasattr(given, "columns") else [])]
    elif len(shape) == 1:
        each = [given]
    else:
        each = list(given) if isinstance(given, (tuple, list)) else [given]
    if len(each) != len(shape):
        raise DeclarationError(
            f"{what} has {len(shape)} axes, and labels are given for {len(each)}",
            remedy="give a tuple, the labels of each axis or None",
        )
    return tuple(
        None if one is None else Axis.of(one, size, f"axis {i} of {what}")
        for i, (one, size) in enumerate(zip(each, shape, strict=True))
    )


def entry_indices(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the index of each entry of an array, column by column."""
    return [at[::-1] for at in product(*map(range, shape[::-1]))]


def entry_names(name: str, axes: Axes, shape: tuple[int, ...]) -> list[str]:
    """Return the names of entries, column by column; an axis without names has indices."""
    axes = axes or (None,) * len(shape)
    each = [range(n) if a is None else a.labels for a, n in zip(axes, shape, strict=True)]
    return [f"{name}[{','.join(map(str, at[::-1]))}]" for at in product(*each[::-1])]


class Labels:
    """Labels of a problem's entries: those somebody gave, and what its model knows."""

    constraints: Mapping[str, Any]

    @cached_property
    def scalar_rows(self) -> ScalarRows:
        """The constraints that are one row each, evaluated as one matrix."""
        return ScalarRows(self.constraints)

    #: axes that `with_labels` was given, by variable and constraint
    given_axes: Mapping[str, Axes] = MappingProxyType({})

    def model_axes(self) -> Mapping[str, Any]:
        """Return the labels that a model knows, by variable or constraint, as `with_labels` takes."""
        return {}

    def with_labels(self, labels: Mapping[str, Any] | None = None, **named: Any) -> Self:
        """Return this problem with names along the axes of variables and constraints.

        `Solution.frame` and exported files then carry them; signs and bounds that a variable was
        declared with have its labels.

        Parameters
        ----------
        labels : dict, optional
            Variable or constraint -> labels; for names that are not identifiers.
        **named
            The same as keywords. Labels of one axis are a sequence, a pandas index or an xarray
            coordinate; of several a tuple of these, or a DataFrame or DataArray that has them.

        Raises
        ------
        DeclarationError
            An unknown name, not as many labels as indices, or two that are equal.

        Examples
        --------
        >>> import cvxpy as cp, optfair as of
        >>> x = cp.Variable((2, 2), name="ship")
        >>> p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [cp.sum(x, axis=0) >= [1, 2], x >= 0]))
        >>> p = p.with_labels(ship=(["Bonn", "Köln"], ["north", "south"]), c0=["north", "south"])
        >>> p.solve().frame("c0")["c0"].round(6).to_dict()
        {'north': 1.0, 'south': 1.0}
        """
        problem = cast("Problem", self)
        axes, terms = dict(self.given_axes), dict(problem.constraints)
        for name, given in {**(labels or {}), **named}.items():
            if name not in problem.variables and name not in terms:
                known = [*problem.variables, *terms]
                raise DeclarationError(f"nothing is called {name!r}", remedy=nearest(name, known))
            shape = problem.shape_of(name) or ()
            of_name = axes_of(given, shape, repr(name))
            signs = [f"{name} {word}" for word in SIGNS if name in problem.variables]
            for each in (name, *(s for s in signs if s in terms and s not in axes)):
                if problem.shape_of(each) != shape:  # bounds of some entries only
                    continue
                axes[each] = of_name
                if each in terms:
                    own = tuple(entry_names(each, of_name, shape))
                    terms[each] = replace(terms[each], labels=partial(tuple, own))
        made = problem._child(constraints=MappingProxyType(terms))
        made._set(given_axes=axes)  # it travels as it is
        return cast("Self", made)

    def axes(self, name: str) -> Axes:
        """Return the axes of a variable or constraint, empty where nobody named them."""
        if name in self.given_axes:
            return self.given_axes[name]
        if name not in (known := self.model_axes()):
            return ()
        return axes_of(known[name], self.shape_of(name) or (), repr(name))

    def shape_of(self, name: str) -> tuple[int, ...] | None:
        """Return the shape of a variable or constraint, None where neither is called so."""
        problem = cast("Problem", self)
        held = problem.variables if name in problem.variables else self.constraints
        return tuple(held[name].shape) if name in held else None

    def entry_label(self, name: str, entry: tuple[int, ...]) -> str:
        """Return what one entry of a variable or constraint is called along its axes."""
        axes = self.axes(name) or (None,) * len(entry)
        named = zip(axes, entry, strict=True)
        return ", ".join(str(i if axis is None else axis.labels[i]) for axis, i in named)

    def entry_labels(self, variable: str) -> Sequence[str]:
        """Return the names of a variable's entries, column by column, where they were given any."""
        if (axes := self.given_axes.get(variable)) is None:
            return ()
        return entry_names(variable, axes, self.shape_of(variable) or ())

    def labelled(self, numbers: Mapping[str, Any], what: str) -> Mapping[str, Any]:
        """Return values, multipliers or prices by name, found by label too where there are labels."""
        known = self.given_axes or type(self).model_axes is not Labels.model_axes
        if isinstance(numbers, Labelled) or not (known and numbers):
            return numbers
        return Labelled(numbers, partial(self._labelled_entry, {}), self._entries_of)

    def _entries_of(self, numbers: Mapping[str, Any]) -> Iterator[str]:
        """Yield what every entry of numbers by name is called."""
        for name in numbers:
            yield from entry_names(name, self.axes(name), np.shape(numbers[name]))

    def _labelled_entry(
        self, places: dict[str, dict[str, int]], numbers: Mapping[str, Any], label: str
    ) -> Any:
        """Return the number of an entry such as ``ship[Bonn, north]``, None where there is none."""
        heads = (label[:at] for at, sign in enumerate(label) if sign == "[")
        name = next((head for head in heads if head in numbers), None)
        if name is None:
            return None
        own = np.asarray(numbers[name])
        if name not in places:  # the labels of an array are made once
            each = entry_names(name, self.axes(name), own.shape)
            places[name] = {entry: at for at, entry in enumerate(each)}
        at = places[name].get(label, places[name].get(label.replace(", ", ",")))
        return None if at is None else own[np.unravel_index(at, own.shape, order="F")]

    def separated(self, time_limit: float | None) -> tuple[Any, tuple[str, ...] | None]:
        """Return this problem with rows that exclude each other as terms, and where to look.

        The second part is None where every term has a name that somebody gave.
        """
        return self, None

    def relative_violations(
        self, names: Sequence[str], values: Mapping[str, Any]
    ) -> dict[str, float]:
        """Return how far constraints are violated, relative to 1 + their right-hand sides."""
        together = self.scalar_rows.violations(values) if len(names) >= SEVERAL else {}
        return {
            name: together[name][0]
            if name in together
            else self.constraints[name].relative_violation(values)
            for name in names
        }


# Labels that a name which is none of them is compared with.
COMPARED = 10_000


class Named(Mapping[str, Any]):
    """Entries by name, which notebooks complete."""

    _entries: Mapping[str, Any]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._entries)


class Labelled(Named):
    """Numbers by name, which also answer to labels of entries.

    Parameters
    ----------
    entries : mapping
        Numbers by variable or constraint; these are listed.
    find : callable
        Returns what another name stands for among the entries, or None.
    labels : callable
        Returns such names for a suggestion, of the entries.

    Examples
    --------
    >>> numbers = Labelled({"x": [1.0, 2.0]}, lambda entries, name: {"b": entries["x"][1]}.get(name))
    >>> list(numbers), numbers["b"], numbers.get("c", 0.0)
    (['x'], 2.0, 0.0)
    """

    def __init__(
        self,
        entries: Mapping[str, Any],
        find: Callable[[Mapping[str, Any], str], Any],
        labels: Callable[[Mapping[str, Any]], Iterable[str]] = lambda entries: (),
    ) -> None:
        self._entries, self._find, self._labels = entries, find, labels

    def __getitem__(self, name: str) -> Any:
        value = self.get(name)
        if value is None:
            known = chain(self._entries, islice(self._labels(self._entries), COMPARED))
            remedy = nearest(str(name), self._whole(str(name), list(known)))
            raise NoSuchName(f"no value {name!r}", remedy=remedy)
        return value

    def _whole(self, name: str, known: list[str]) -> list[str]:
        """Return names to suggest: for one without indices whole arrays, not their entries."""
        stems = set() if "[" in name else {k.partition("[")[0] for k in known}
        arrays = {stem for stem in stems if stem in self}
        return [*arrays, *(k for k in known if k.partition("[")[0] not in arrays)]

    def get(self, name: str, default: Any = None) -> Any:
        """Return what a name stands for, or the default."""
        value = self._entries[name] if name in self._entries else self._find(self._entries, name)
        return default if value is None else value

    def __contains__(self, name: object) -> bool:
        return name in self._entries or (isinstance(name, str) and self.get(name) is not None)

    def __repr__(self) -> str:
        return repr(self._entries)


# Rows of one number each, every one a constraint of its own: measured together.

# Rows on one variable from which on they are one product.
SEVERAL = 8


@dataclass(frozen=True, eq=False)
class _Row:
    """Coefficients times a vector of variables is at most, or equal to, a constant."""

    variable: str
    leaf: Any
    coefficients: Floats
    constant: float
    equal: bool


def _row(t: ConstraintTerm) -> _Row | None:
    """Return the numbers of a row that is written ``a @ x <= b``, None of anything else."""
    evaluator = getattr(t.violation, "__self__", None)
    if not isinstance(evaluator, Evaluator) or np.ndim(t.scale):
        return None
    if "row" not in evaluator.__dict__:  # problems share their terms
        evaluator.__dict__["row"] = _read(evaluator.stated, evaluator.names)
    row: _Row | None = evaluator.__dict__["row"]
    return row


def _read(e: Any, names: Mapping[int, str]) -> _Row | None:
    row = scalar_row(e) if isinstance(e, (Equality, Inequality)) and not e.shape else None
    return row and _Row(names[row[0].id], *row, isinstance(e, Equality))


def scalar_row(e: Any) -> tuple[Any, Floats, float] | None:
    """Return x, a and b of a row that is written ``a @ x <= b``, as most are, else None."""
    for body, side, sign in zip(e.args, e.args[::-1], (1.0, -1.0), strict=True):
        if type(body) is MulExpression and isinstance(side, cp.Constant):
            a, x = body.args
            plain = isinstance(a, cp.Constant) and isinstance(x, cp.Variable) and a.shape == x.shape
            if plain and not (a.is_complex() or side.is_complex()):
                return x, sign * dense(a.value), sign * float(dense(side.value).item())
    return None


class ScalarRows:
    r"""Constraints :math:`a_i^T x \le b_i`, :math:`\ge` or :math:`=` that somebody wrote one by one.

    Parameters
    ----------
    terms : mapping
        Constraints by name; those that are written in another way are left out.

    Examples
    --------
    >>> import cvxpy as cp, numpy as np, optfair as of
    >>> x = cp.Variable(2, name="x")
    >>> rows = [np.array([1.0, i]) @ x <= i for i in range(9)]
    >>> p = of.from_cvxpy(cp.Problem(cp.Minimize(0), rows))
    >>> found = ScalarRows(p.constraints).violations({"x": np.array([1.0, 2.0])})
    >>> len(found), [float(v) for v in found["c1"]]
    (9, [1.0, 1.0])
    """

    def __init__(self, terms: Mapping[str, ConstraintTerm]) -> None:
        groups: dict[Any, list[tuple[str, Any, float]]] = {}
        for name, t in terms.items() if len(terms) >= SEVERAL else ():
            row = _row(t)
            if row is not None:
                groups.setdefault((row.variable, row.leaf.shape), []).append((name, row, t.scale))
        self._groups = [
            (
                rows[0][1],
                [name for name, _, _ in rows],
                np.array([row.coefficients for _, row, _ in rows]),
                np.array([row.constant for _, row, _ in rows]),
                np.array([row.equal for _, row, _ in rows]),
                np.array([scale for _, _, scale in rows], dtype=float),
            )
            for rows in groups.values()
            if len(rows) >= SEVERAL
        ]

    def __repr__(self) -> str:
        return f"ScalarRows: {sum(len(names) for _, names, *_ in self._groups)} rows"

    def violations(self, values: Values, unit: float = 1.0) -> dict[str, tuple[float, float]]:
        """Return what `ConstraintTerm.violations` does, by name."""
        by_name: dict[str, tuple[float, float]] = {}
        for first, names, A, b, equal, scale in self._groups:
            if first.variable not in values:
                continue
            x = fitted(values, first.variable, first.leaf)
            with np.errstate(all="ignore"):
                over = A @ x - b
                outside = np.where(equal, np.abs(over), np.maximum(over, 0.0))
                finite = np.isfinite(outside)
                side = np.where(np.isfinite(scale), scale, 0.0)
                loose = np.where(finite, outside / (unit + side), np.inf)
                own = np.where(outside > 0.0, outside / (unit + scale), 0.0)
            own = np.where(finite, own, np.inf)
            by_name |= zip(names, zip(loose.tolist(), own.tolist(), strict=True), strict=True)
        return by_name
