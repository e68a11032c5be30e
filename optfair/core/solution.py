"""The result of solving a declared problem."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from optfair.core.certificate import UNKNOWN, Certificate, DualProof, Grade, Optimality, reported
from optfair.core.display import listed
from optfair.core.labels import Axes, Named, entry_names
from optfair.core.verbs import SolutionVerbs
from optfair.errors import (
    DataError,
    DeclarationError,
    NoSuchName,
    data_frame,
    kind_of,
    nearest,
    needed,
    say_names,
)
from optfair.numbers import (
    check_mapping,
    check_number,
    check_positive,
    check_text,
    checked,
    floats,
    one_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from optfair.backends.integer_programs import Pool
    from optfair.compile.conic_proof import ExactOptimum
    from optfair.core.problem import Problem


# Columns of a table of all numbers.
ENTRY = ("kind", "name", "entry", "number")
# Entries up to which a mapping that computes them is printed with its numbers.
READ = 20


@dataclass(frozen=True)
class Status:
    r"""Why the solver stopped, and what it left.

    Attributes
    ----------
    termination : str
        optimal, time_limit, solver_limit (one of its own options), interrupted, stalled ...
    primal, dual : str
        feasible, infeasible or unknown, by our residuals.
    grade : Grade
        What the bound rests on: proved, proved for \|x\| ≤ R, or reported by a solver.
    """

    termination: str
    primal: str
    dual: str
    grade: Grade = UNKNOWN

    def __str__(self) -> str:
        return self.termination


class LazyValues(Named):
    """Mapping whose entries may be functions, called when first read; it may say why it has none.

    Parameters
    ----------
    entries : mapping
        Values, or functions that return them.
    none : pair of str
        Why there are none, and what to do.
    lacking : sequence of str
        Names of those that are lacking beside others, for the same reason.
    """

    def __init__(
        self,
        entries: Mapping[str, Any],
        none: tuple[str, str] = ("", ""),
        lacking: Sequence[str] = (),
    ) -> None:
        self._entries: dict[str, Any] = dict(entries)
        self._none, self._lacking = none, lacking

    def __getitem__(self, name: str) -> Any:
        try:
            entry = self._entries[name]
        except (KeyError, TypeError):
            why, do = self._none
            if self._entries and name not in self._lacking:
                why, do = "", nearest(name, self._entries)
            raise NoSuchName(f"no value {name!r}", why, do) from None
        if isinstance(entry, Callable):  # type: ignore[arg-type]
            entry = self._entries[name] = entry()
        return entry

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def get(self, name: str, default: Any = None) -> Any:
        """Return an entry, or the default when there is none of that name."""
        if name not in self:
            return default
        return self[name]

    def __reduce__(self) -> Any:
        return type(self), ({name: self[name] for name in self._entries}, self._none, self._lacking)

    def __repr__(self) -> str:
        if len(self) > READ:
            return f"{type(self).__name__}({', '.join(map(repr, self._entries))})"
        return repr({name: self[name] for name in self})


# What the entries of a solution's mappings are called.
NAMED = {"values": "value", "multipliers": "multiplier", "seconds": "phase", "options": "option"}


@dataclass(frozen=True, eq=False)
class Solution(SolutionVerbs):
    """Values and multipliers by name, with the proof of the bound.

    Attributes
    ----------
    problem : Problem
        What was solved.
    solver, version : str
        Who solved it.
    status : Status
        Termination, primal, dual.
    objective, bound : float
        Declared objective at the values; proved (or reported) bound on the optimum. Where the
        grade is ``proved for |x| ≤ R``, points within R may be beyond it, by no more than what is
        left of the tolerance.
    values, multipliers : mapping
        By variable and by constraint name. Multipliers are those of the Lagrangian
        f + Σ⟨y, g⟩ of the minimisation; `shadow_price` has the economist's sign.
    proof : DualProof or None
        Recomputes the bound from data.
    seconds : dict
        Wall time by life-word: choose, compile, solve, recover, verify; of loading the solver,
        import; of solvers tried before, attempts, and of those asked after it for a proof,
        further; other. They add up to what the call took.
    options : dict
        What was asked for: tolerance, time_limit, threads ...
    transforms : tuple of str
        Through which transforms it came, in order.
    attempts : tuple of str
        Who else was asked, whose result did not pass or proved no more, and why.
    progress : tuple
        Rounds of a structured algorithm.
    unit : float
        Least size the objective is measured by, in its own units.
    pool : Pool or None
        All solutions in order, where several were asked for: ``solve(solutions=5)``.

    Examples
    --------
    >>> import optfair as of
    >>> s = of.library.load("textbook/diet").problem().solve()
    >>> print(round(s.objective, 6), s.grade, s["servings"].round(3).max())
    88.2 proved 46.667
    >>> round(float(s.multipliers["minimum nutrition"][3]), 6)
    0.116
    >>> bool(s.certificate.verify())
    True
    """

    problem: Problem
    solver: str
    version: str
    status: Status
    objective: float
    bound: float
    values: Mapping[str, Any]
    multipliers: Mapping[str, Any]
    proof: DualProof | None
    seconds: Mapping[str, float] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    transforms: tuple[str, ...] = ()
    attempts: tuple[str, ...] = ()
    progress: tuple[Any, ...] = ()
    unit: float = 1.0
    pool: Pool | None = None

    def __post_init__(self) -> None:
        self._check()
        p = self.problem
        object.__setattr__(self, "values", p.labelled(self.values, "values"))
        multipliers = p.labelled(self.multipliers, "multipliers")
        object.__setattr__(self, "multipliers", multipliers)
        say_names(self, **NAMED)

    def _check(self) -> None:
        """Refuse what cannot be a part of a solution, before anything reads it."""
        one_of(Status)(self.status, "status")
        for name in ("values", "multipliers", "seconds", "options"):
            check_mapping(getattr(self, name), name)
        numbers = {name: getattr(self, name) for name in ("objective", "bound", "unit")}
        numbers |= {f"seconds[{name!r}]": spent for name, spent in self.seconds.items()}
        for name, number in numbers.items():  # NaN: nobody said
            if not isinstance(number, float):
                check_number(number, name, infinite=True)
        check_number(self.options.get("tolerance", 1e-6), "options['tolerance']", least=0.0)
        if self.proof is not None and not callable(getattr(self.proof, "check", None)):
            raise DataError(f"proof is {kind_of(self.proof)}", remedy="give one, or None")
        for what, arrays in (("values", self.values), ("multipliers", self.multipliers)):
            if isinstance(arrays, dict):  # other mappings compute their entries when they are read
                for name, entry in arrays.items():
                    own = isinstance(entry, (np.ndarray, np.generic)) and entry.dtype.kind in "fiuc"
                    if isinstance(entry, np.ma.MaskedArray) or not (
                        own or isinstance(entry, float)
                    ):
                        floats(entry, f"{what}[{name!r}]", infinite=True, flags=False)

    @classmethod
    def deferred(cls, bound: Callable[[], float], **fields: Any) -> Solution:
        """Return a solution whose bound is proved already, and computed when it is first read."""
        made = object.__new__(cls)
        made.__dict__.update(fields, _bound=bound)
        say_names(made, **NAMED)
        return made

    def __getstate__(self) -> dict[str, Any]:
        state = {**self.__dict__, "bound": self.bound}
        state.pop("_bound", None)
        return state

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        try:
            return cast("NDArray[np.float64]", self.values[name])
        except NoSuchName:
            raise
        except (KeyError, TypeError):
            raise NoSuchName(f"no value {name!r}", remedy=nearest(name, self.values)) from None

    @property
    def gap(self) -> float:
        """Distance between objective and bound, relative to max(unit, varying part).

        The unit is that of the data: 1, or less where they are small numbers. The varying part
        is the objective without its constant.
        """
        sign = 1.0 if self.problem.sense == "minimize" else -1.0
        unit = max(self.unit, abs(self.objective - self.problem.objective_constant))
        return max(0.0, sign * (self.objective - self.bound)) / unit

    @property
    def grade(self) -> Grade:
        """What the bound rests on, at the tolerance that was asked for."""
        return self.status.grade

    @property
    def exact(self) -> ExactOptimum | None:
        """The optimum in fractions, an `ExactOptimum`, where the proof is one; else None."""
        return cast("ExactOptimum", self.proof) if isinstance(self.proof, Certificate) else None

    @property
    def certificate(self) -> Optimality:
        """Certificate of optimality at the tolerance that was asked for."""
        return Optimality(self, float(self.options.get("tolerance", 1e-6)))

    @checked(tolerance=check_positive)
    def is_optimal(self, tolerance: float = 1e-6) -> bool:
        """Whether optimality is proved here: every residual recomputed, and the bound with them.

        False for a bound that a solver reports, however good; ``status`` and ``grade`` say so.
        """
        return bool(Optimality(self, tolerance).verify())

    def frame(self, name: str | None = None) -> Any:
        """Return a variable's values, or a constraint's shadow prices, as a pandas DataFrame.

        Without a name, all of them: a row has the ``kind`` of a number (value, shadow price), the
        ``name`` and the ``entry`` it belongs to, and the ``number``. Along the axes of one stand the labels that were given (`Problem.with_labels`) or that the model
        knows; two axes are rows and columns, otherwise every entry is a row.

        Raises
        ------
        DeclarationError
            Neither a variable (or an array of a file) nor a constraint with multipliers.
        NotInstalled
            pandas is missing.
        """
        if name is None:
            return data_frame(dict(zip(ENTRY, zip(*self.entries(), strict=True), strict=True)))
        p = self.problem
        check_text(name, "name")
        shape = p.shape_of(name)
        if shape is None:
            known = [*p.variables, *p.constraints]
            raise DeclarationError(f"no value or price {name!r}", remedy=nearest(str(name), known))
        numbers = (self.values if name in self.values else self.shadow_price)[name]
        if np.shape(numbers) != shape:
            raise DataError(f"{name!r} has the shape {np.shape(numbers)}, not {shape}")
        return _frame(name, numbers, p.axes(name))

    def entries(self) -> Iterator[tuple[str, str, str, float]]:
        """Yield every value and shadow price: its kind, name, entry and number."""
        for kind, numbers in (("value", self.values), ("shadow price", self.shadow_price)):
            priced = kind != "value"
            yield from ((kind, *e) for e in entries(self.problem, numbers, constraints=priced))

    def __repr__(self) -> str:
        total = sum(self.seconds.values())
        grade = self.grade if self.proof is not None else reported(self.solver)
        lines = [
            f"Solution of {self.problem.title} by {self.solver} {self.version}: {self.status}",
            f"  objective  {self.objective:.10g}",
            f"  bound      {self.bound:.10g} ({grade}), gap {self.gap:.1e}",
            f"  values     {listed(self.values)}",
            f"  seconds    {total:.3f}",
        ]
        if self.problem.problem_class.cones and not self.attained:
            lines.append("  attained   by no point: the objective only tends to the bound, far out")
        lines += [f"  asked      {a}" for a in self.attempts]
        return "\n".join(lines)


def _frame(name: str, array: Any, axes: Axes) -> Any:
    """Return an array as a pandas DataFrame: its two axes, or one entry a row.

    Raises
    ------
    NotInstalled
        pandas is missing.
    """
    pd = needed("pandas", "pip install pandas, or read the arrays by name")
    own = np.asarray(array) + 0.0  # -0.0 is 0
    axes = axes if len(axes) == own.ndim else (None,) * own.ndim
    each = [
        pd.RangeIndex(n) if a is None else pd.Index(a.labels, name=a.name or None)
        for a, n in zip(axes, own.shape, strict=True)
    ]
    if own.ndim == 2:
        return pd.DataFrame(own, index=each[0], columns=each[1])
    if own.ndim > 2:
        return pd.DataFrame({name: own.ravel()}, index=pd.MultiIndex.from_product(each))
    return pd.DataFrame({name: np.atleast_1d(own)}, index=each[0] if each else [name])


def entries(
    problem: Problem,
    numbers: Mapping[str, Any],
    *,
    constraints: bool = False,
    exported: bool = False,
) -> Iterator[tuple[str, str, float]]:
    """Yield (name, label, number) of every entry, as it is called in prints or in exported files.

    A label is the name with its place where there is no other; files do not have what a model knows.
    """
    for name in numbers:
        array = np.asarray(numbers[name], dtype=float) + 0.0  # -0.0 is 0
        stated = names_of_entries(problem, name, constraints)
        order: Any = "F" if len(stated) == array.size else "C"
        axes = () if exported else problem.axes(name)
        labels = stated if order == "F" else _places(name, axes, array.shape)
        numbered = zip(labels, array.ravel(order).tolist(), strict=True)
        yield from ((name, label, v) for label, v in numbered)


def names_of_entries(problem: Problem, name: str, constraint: bool) -> tuple[str, ...]:
    """Return the labels of the entries of a variable or a constraint, where somebody gave some."""
    if not constraint:
        return tuple(problem.entry_labels(name))
    own = problem.constraints[name].labels
    return tuple(own()) if own else ()


def _places(name: str, axes: Axes, shape: tuple[int, ...]) -> list[str]:
    """Return the names of entries row by row: along axes that fit, else by index."""
    if not shape:
        return [name]
    known = tuple(0 if a is None else len(a.labels) for a in axes)
    fits = len(known) == len(shape) and all(k in (0, n) for k, n in zip(known, shape, strict=True))
    names = np.array(entry_names(name, axes if fits else (), shape), dtype=object)
    return list(names.reshape(shape, order="F").ravel())


def check_solution(value: Any, what: str = "solution") -> Solution:
    """Return a solution, or say what was given instead."""
    if not isinstance(value, Solution):
        raise DeclarationError(
            f"{what} is {kind_of(value)}, not a Solution", remedy="give what solve() returns"
        )
    return value
