"""Problems from CVXPY: anybody's problem wrapped, and declarations from named expressions."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import cvxpy as cp
import numpy as np
from cvxpy.atoms.affine.affine_atom import AffAtom
from cvxpy.atoms.affine.binary_operators import DivExpression, MulExpression
from cvxpy.atoms.elementwise.logic import And, Not, Or, Xor
from cvxpy.atoms.perspective import perspective
from cvxpy.atoms.quad_form import QuadForm
from cvxpy.expressions.constants.callback_param import CallbackParam
from cvxpy.lin_ops.lin_utils import get_id
from cvxpy.reductions import Solution as Unpacked
from cvxpy.reductions.canonicalization import Canonicalization
from cvxpy.reductions.complex2real.canonicalizers import Complex2RealCanonMethods
from cvxpy.reductions.complex2real.complex2real import Complex2Real, accepts, complex_psd_matrix
from cvxpy.reductions.dcp2cone.canonicalizers import CANON_METHODS as DCP
from cvxpy.reductions.dcp2cone.canonicalizers.quad_over_lin_canon import quad_over_lin_canon
from cvxpy.reductions.dcp2cone.dcp2cone import Dcp2Cone
from cvxpy.reductions.discrete2mixedint.valinvec2mixedint import Valinvec2mixedint
from cvxpy.settings import OPTIMAL, USER_LIMIT
from cvxpy.transforms.indicator import indicator
from cvxpy.transforms.partial_optimize import PartialProblem

from optfair.core.composition import constraint_term, model_goal, model_term, objective_term
from optfair.core.expressions import rebuilt, substitute
from optfair.core.functions import exact_functions
from optfair.core.labels import free_name
from optfair.core.problem import Declaration, Problem, Sense
from optfair.core.quadratics import CONES, lower_root
from optfair.core.variables import SHAPES, Plain, kept_attributes, stated_attributes
from optfair.errors import DeclarationError, OptfairError, UnsupportedProblem, kind_of, shortened
from optfair.numbers import check_names

# Wrap anybody's CVXPY problem as a declared problem.


def _curved(e: Any) -> Iterator[Any]:
    """Yield the functions that an expression adds up, but for affine ones."""
    if e.is_affine():
        return
    moved = [not arg.is_constant() for arg in e.args]
    divided = isinstance(e, DivExpression) and moved[1]
    multiplied = isinstance(e, MulExpression) and all(moved)
    if divided or multiplied or not isinstance(e, AffAtom):
        yield e
        return
    for arg in e.args:
        yield from _curved(arg)


class AdoptedProblem(Problem):
    """A CVXPY problem with names, evidence and certificates; made by `from_cvxpy`."""

    title = "CVXPY problem"
    unit_from_data = True

    def __init__(self, problem: Any, names: Sequence[str] | None = None) -> None:
        super().__init__({"problem": problem, "names": names})

    @cached_property
    def objective_constant(self) -> float:
        """What the objective is at the origin without functions that are curved."""
        total = 0.0
        for t in self.objective.values():
            e = t.build()
            gone = {id(n): cp.Constant(np.zeros(n.shape)) for n in _curved(e)}
            e = rebuilt(e, gone) if gone else e
            origin = {id(v): cp.Constant(np.zeros(v.shape)) for v in e.variables()}
            with np.errstate(all="ignore"):
                value = substitute(e, origin).value  # a size only: no exact sums
            total += np.nan if value is None else float(np.sum(value))
        return total if np.isfinite(total) else 0.0

    def write_back(self, solution: Any) -> None:
        """Give the problem that was adopted, its variables and constraints what they have after a solve.

        They are then read as after CVXPY's own: ``x.value``, ``constraint.dual_value``,
        ``problem.value`` and ``problem.status``. Problems share variables, so nothing is written
        unless it is asked for.
        """
        given, values = self.__dict__.get("_given", self.data["problem"]), solution.values
        primal, dual = {}, {}
        for old in given.variables():
            name = self._aliases.get(old.id, old.name())
            if not {name, f"{name} imaginary"} & set(values):
                continue  # the solution says nothing of it
            value = np.asarray(values.get(name, 0.0))
            imaginary = np.asarray(values.get(f"{name} imaginary", 0.0))
            if old.is_hermitian() and imaginary.ndim:  # what is above the diagonal
                upper = np.zeros(old.shape)
                upper[np.triu_indices(old.shape[0], k=1)] = imaginary
                imaginary = upper - upper.T
            whole = value + 1j * imaginary if old.is_complex() else value
            primal[old.id] = np.array(np.broadcast_to(whole, old.shape))
        names = self.__dict__.get("_given_names", list(self.constraints))
        for name, old in zip(names, given.constraints, strict=False):
            z = solution.multipliers.get(name)
            imaginary = solution.multipliers.get(f"{name} imaginary")
            if old.is_complex() and imaginary is not None:
                z = np.asarray(0.0 if z is None else z) + 1j * np.asarray(imaginary)
            # what was written out in another shape has rows that are not its own
            if z is not None and np.size(z) == old.size and names.count(name) == 1:
                dual[old.id] = np.asarray(z)
        status = OPTIMAL if solution.status.termination == "optimal" else USER_LIMIT
        # as CVXPY's unpack, which evaluates the objective: at s = 0 a perspective has no value there
        for old in given.variables():
            if old.id in primal:
                old.save_value(primal[old.id])
        for old in given.constraints:
            if old.id in dual:
                old.save_dual_value(dual[old.id])
        given._value, given._status = solution.objective, status
        given._solution = Unpacked(status, solution.objective, primal, dual, {})

    def declare(self) -> Declaration:
        """State the problem in plain variables; signs and bounds become named terms."""
        problem, given = self.data["problem"], self.data["names"]
        goal = problem.objective.args[0]
        known = problem.variables()
        if not known:  # of constants: a variable that nothing depends on carries them
            known = [cp.Variable(name="unused")]
            goal = goal + 0.0 * known[0]
        plain = Plain.of(known)
        variables = plain.variables
        ids = {v.id: name for name, v in variables.items()}
        constraints: dict[str, Any] = {}

        def own(part: Any) -> Any:
            """Return a part in these variables: as it is, where none of its own was copied."""
            copied = any(plain.swaps[id(v)] is not v for v in part.variables())
            return substitute(part, plain.swaps) if copied or _hides(part) else part

        for i, c in enumerate(problem.constraints):
            label = given[i] if given is not None else _label(i, c)
            constraints[free_name(str(label), constraints)] = own(c)
        minimized = isinstance(problem.objective, cp.Minimize)
        sense: Sense = "minimize" if minimized else "maximize"
        goal = own(goal)
        objective = (objective_term("objective", goal, ids, sense),)
        for name, c in plain.rows.items():  # nobody's constraint is lost to one of its name
            constraints[free_name(name, constraints)] = c
        terms = [constraint_term(name, c, ids) for name, c in constraints.items()]
        return Declaration(
            variables,
            sense,
            tuple(replace(t, origin="model") for t in objective),
            tuple(replace(t, origin="model") for t in terms),
            frozenset(plain.integers),
            plain.aliases,
        )


def _form_below(e: Any, args: Sequence[Any], solver_context: Any = None) -> tuple[Any, list[Any]]:
    """Return x'Px in cones by a root F of its matrix with F'F proved to be at most P.

    Raises
    ------
    UnsupportedProblem
        No such root is known.
    """
    P = args[1].value
    sign = 1.0 if P.diagonal().sum() >= 0.0 else -1.0
    root, below = lower_root(sign * P)
    if not below:
        raise UnsupportedProblem(
            f"the root of the matrix in {shortened(e)} is known to rounding only",
            "what is proved of its perspective would be of another matrix",
            "write x'Px as sum_squares(F @ x), with a root F",
        )
    squares = cp.sum_squares(cp.Constant(root) @ args[0])
    total, rows = quad_over_lin_canon(squares, squares.args, solver_context)
    return sign * total, rows


def _perspective(e: Any, args: Sequence[Any], solver_context: Any = None) -> tuple[Any, list[Any]]:
    """Return a perspective by the cones of its function, in which s multiplies the constants.

    Cones hold what is scaled with them. CVXPY's own takes several of second order for one.
    """
    sign, cones = 1.0 if e.f.is_convex() else -1.0, Dcp2Cone()
    cones.cone_canon_methods = CONES | {QuadForm: _form_below, perspective: _perspective}
    function, rows = cones.canonicalize_tree(sign * exact_functions(e.f), False)

    def scaled(part: Any) -> Any:
        if part.is_constant():
            return cp.multiply(args[0], part)
        products = (MulExpression, DivExpression, cp.kron, cp.conv, cp.convolve)
        linear = [
            a if a.is_constant() and isinstance(part, products) else scaled(a) for a in part.args
        ]
        return part.copy(linear) if part.args else part

    t, whole = cp.Variable(), scaled(function)
    rows = [row.copy([scaled(a) for a in row.args]) for row in rows]
    # what is affine may be sought from either side
    return sign * t, [*rows, whole == t if e.f.is_affine() else whole <= t]


# What is written out with variables and constraints of its own, which stand in no tree before.
_WRITTEN_OUT = {
    perspective: _perspective,
    **{function: DCP[function] for function in (indicator, And, Or, Xor, Not)},
    **Valinvec2mixedint.CANON_METHODS,
}
_HIDING = frozenset[Any]([*_WRITTEN_OUT, PartialProblem])


def _hides(node: Any) -> bool:
    """Whether a part has variables or constraints that are not among its arguments."""
    return type(node) in _HIDING or any(map(_hides, node.args))


def _written_out(problem: Any, names: Sequence[str] | None) -> tuple[Any, Sequence[str] | None]:
    """Return a problem without functions and constraints that hide some of their own.

    By reductions that hold under CVXPY's rules.
    """
    step = Canonicalization(canon_methods=_WRITTEN_OUT)
    goal, hidden = step.canonicalize_tree(problem.objective)
    rows: dict[str, Any] = {}
    for i, c in enumerate(problem.constraints):
        label = str(names[i] if names is not None else _label(i, c))
        rows[free_name(label, rows)], more = step.canonicalize_tree(c)
        for own in more:
            rows[free_name(f"{label} hidden", rows)] = own
    for own in hidden:
        rows[free_name("objective hidden", rows)] = own
    return cp.Problem(goal, list(rows.values())), list(rows)


def _in_reals(problem: Any, names: Sequence[str] | None) -> tuple[Any, Sequence[str] | None]:
    """Return a problem in complex variables as one in their real and imaginary parts.

    CVXPY's own reduction, constraint by constraint, so that each part has a name.
    """
    if not accepts(problem):
        return problem, names
    with warnings.catch_warnings():  # of how CVXPY's own reduction uses CVXPY: nothing users wrote
        warnings.filterwarnings("ignore", "Reading from a sparse CVXPY expression", RuntimeWarning)
        warnings.filterwarnings("ignore", "Initializing a Constant with a nested list", UserWarning)
        try:
            return _reduced(problem, names)
        except AssertionError as e:
            raise UnsupportedProblem(
                "a function of complex numbers has no form in real ones",
                "CVXPY's reduction to real variables does not know it",
                "write it with the real and imaginary parts: cp.real(z), cp.imag(z)",
            ) from e


class _Parts(Complex2RealCanonMethods):  # type: ignore[misc]
    """CVXPY's reduction to real and imaginary parts, which keep what is said of the whole.

    Parts of variables keep its attributes of shape, parts of parameters follow its value.
    """

    def _variable_canon(self, expr: Any, *rest: Any) -> Any:
        expr = next((v for v in self._variables if v.id == expr.id), expr)
        if not expr.is_real() and expr not in self._variables:
            other = ("complex", "imag", "hermitian", "PSD", "NSD", *SHAPES)
            said = stated_attributes(expr, other)
            if said or (expr.is_hermitian() and expr.ndim > 2):
                raise UnsupportedProblem(
                    f"the complex variable {expr.name()!r} is {' and '.join(said) or 'a stack'}",
                    "CVXPY does not say this of its real and imaginary parts",
                    "write it with variables of your own: x + 1j * y, or a matrix for each",
                )
            if not expr.is_hermitian():
                kept = kept_attributes(expr)
                real = None if expr.is_imag() else cp.Variable(expr.shape, **kept)
                self._variables[expr] = real, cp.Variable(expr.shape, **kept)
                if expr.is_imag():
                    return self._variables[expr]
        return super()._variable_canon(expr, *rest)

    def _param_canon(self, expr: Any, *rest: Any) -> Any:
        if not expr.is_real() and expr not in self._parameters:
            matrix = expr.is_hermitian() and not expr.is_imag()
            if matrix and expr.ndim > 2:
                raise UnsupportedProblem(
                    f"the parameter {expr.name()!r} is a stack of Hermitian matrices",
                    remedy="give a parameter for each of them",
                )
            n, parts = expr.shape[0] if matrix else 0, []
            for word in ("real", "imag"):
                upper = matrix and word == "imag"
                shape = (n * (n - 1) // 2,) if upper else expr.shape
                symmetric = {"symmetric": True} if matrix and not upper else {}
                value = partial(_part, expr, word, upper=upper)
                part = CallbackParam(value, shape, name=f"{expr.name()}_{word}", **symmetric)
                missing = (upper and n == 1) or (word == "real" and expr.is_imag())
                parts.append(None if missing else part)
            self._parameters[expr] = tuple(parts)
        return super()._param_canon(expr, *rest)


def _part(parameter: Any, word: str, *, upper: bool) -> Any:
    """Return the real or imaginary part of what a parameter holds now, or that above the diagonal."""
    held = parameter.value_sparse if parameter.attributes["sparsity"] else parameter.value
    if held is None:
        return None
    part = getattr(np, word)(held.toarray() if hasattr(held, "toarray") else held)
    return part[np.triu_indices(len(part), k=1)] if upper else part


def _reduced(problem: Any, names: Sequence[str] | None) -> tuple[Any, Sequence[str] | None]:
    step, leaves = Complex2Real(), dict[Any, Any]()
    step.canon_methods = _Parts()
    other = {
        part.id: get_id()
        for part in (*problem.variables(), *problem.constraints)
        if part.is_complex()
    }
    goal, _ = step.canonicalize_tree(problem.objective, other, leaves)
    rows: dict[str, Any] = {}
    for i, c in enumerate(problem.constraints):
        label = str(names[i] if names is not None else _label(i, c))
        parts = step.canonicalize_tree(c, other, leaves)
        for word, part in zip(("", " imaginary"), parts, strict=True):
            for own in part if isinstance(part, list) else [part]:
                if own is not None:
                    rows[free_name(f"{label}{word}", rows)] = own
    for old, (real, imaginary) in step.canon_methods._variables.items():
        for word, part in (("", real), (" imaginary", imaginary)):
            if part is not None:
                part._name = old.name() + word
        if (old.attributes.get("PSD") or old.attributes.get("NSD")) and imaginary is not None:
            block = complex_psd_matrix(*leaves[old])
            sign = 1.0 if old.attributes.get("PSD") else -1.0
            rows[free_name(f"{old.name()} psd", rows)] = sign * block >> 0
    return cp.Problem(goal, list(rows.values())), list(rows)


def from_cvxpy(problem: Any, names: Sequence[str] | None = None) -> AdoptedProblem:
    """Wrap a CVXPY problem, so that it is classified, certified, composed and verified.

    Parameters
    ----------
    problem : cvxpy.Problem
        Any problem. Signs, bounds, semidefiniteness and integrality of its variables become
        named terms; constraints may still be written on its own real variables. A complex
        variable x becomes ``x`` and ``x imaginary``, a variable of which some entries are whole
        gets these as ``x integer``. Infinite bounds bind nothing. Parameters are read once: when
        one has another value afterwards, whatever solves, verifies, explains or writes the problem
        says so; a complex one, c, is held as ``c_real`` and ``c_imag``, and `Problem.at` takes either.
    names : sequence of str, optional
        A name per constraint, in order; by default their labels, else c0, c1, ...

    Returns
    -------
    AdoptedProblem

    Warns
    -----
    UserWarning
        Two variables have one name.

    Raises
    ------
    DeclarationError
        A parameter without value, NaN, infinity that is no bound, a bound that no number meets; one
        name for two constraints.
    UnsupportedProblem
        Something of CVXPY that cannot be taken apart.

    Examples
    --------
    >>> import cvxpy as cp
    >>> import optfair as of
    >>> x = cp.Variable(3, name="x", nonneg=True)
    >>> p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x - 1)), [cp.sum(x) == 1]), ["budget"])
    >>> print(p.explain())
    objective: minimize convex quadratic -> QP
    budget: affine in Zero -> LP
    x nonnegative: affine in Nonpositive -> LP
    together: QP
    >>> round(float(p.solve().shadow_price["budget"]), 4)
    -1.3333
    """
    if not isinstance(problem, cp.Problem):
        other = "what another language declares comes in as a file: optfair.read('model.mps')"
        remedy = f"give a cvxpy.Problem; {other}"
        raise DeclarationError(f"from_cvxpy got {kind_of(problem)}", remedy=remedy)
    if isinstance(names, str):
        raise DeclarationError(
            f"names is the text {names!r}",
            remedy=f"give a list, a name per constraint: [{names!r}]",
        )
    names = None if names is None else check_names(names, "names")
    if names is not None and len(names) != len(problem.constraints):
        raise DeclarationError(
            f"{len(names)} names for {len(problem.constraints)} constraints",
            remedy="give one name per constraint, in order",
        )
    _check_twice(problem, names or ())
    try:
        adopted = _adopted(problem, names)
    except (DeclarationError, UnsupportedProblem):
        hiding = [part for part in (problem.objective, *problem.constraints) if _hides(part)]
        if not (hiding and all(isinstance(part, cp.FiniteSet) or part.is_dcp() for part in hiding)):
            raise
        with warnings.catch_warnings():  # of how CVXPY's own reductions use CVXPY
            warnings.simplefilter("ignore", FutureWarning)
            adopted = _adopted(*_written_out(problem, names))
    if adopted.data["problem"] is not problem:
        own = [_label(i, c) for i, c in enumerate(problem.constraints)] if names is None else names
        adopted._set(_given=problem, _given_names=list(map(str, own)))
    return adopted


def _check_twice(problem: Any, names: Sequence[Any]) -> None:
    """Refuse a name that was given to two constraints, and say what a second variable is called."""
    known: set[str] = set()
    for name in map(str, names):
        if name in known:
            raise DeclarationError(
                f"two constraints are called {name!r}",
                "prices and conflicts are read by name",
                "give each a name of its own",
            )
        known.add(name)
    called: dict[str, Any] = {}
    for v in problem.variables():
        if called.setdefault(v.name(), v).id != v.id:
            warnings.warn(
                f"two variables are called {v.name()!r}: all but one get a number behind it;"
                ' give each a name of its own, as in cp.Variable(name="y")',
                stacklevel=3,
            )
            return


def _label(i: int, constraint: Any) -> str:
    """Return what a constraint is called that was given no name."""
    return str(getattr(constraint, "label", None) or f"c{i}")


def _adopted(problem: Any, names: Sequence[str] | None) -> AdoptedProblem:
    try:
        return AdoptedProblem(*_in_reals(problem, names))
    except OptfairError:
        raise
    except (ValueError, TypeError, AttributeError, NotImplementedError) as e:
        raise UnsupportedProblem(
            "this problem uses something of CVXPY that cannot be taken apart",
            " ".join(f"{type(e).__name__}: {e}".split())[:200],
            "write that term with other functions",
        ) from e


# Turn named CVXPY expressions into a declaration.


def declaration(
    sense: Sense,
    objective: Mapping[str, tuple[Any, str]],
    constraints: Mapping[str, tuple[Any, str]],
    *,
    integers: frozenset[str] = frozenset(),
) -> Declaration:
    """Return the declaration of a small model from its expressions.

    Every term is analysed when it is declared, which a model of a few rows can afford.

    Parameters
    ----------
    sense : {"minimize", "maximize"}
        Direction of the objective.
    objective, constraints : dict
        Name -> CVXPY expression or constraint, and how it is printed in LaTeX. Their variables
        are the variables of the model, under their own names. Signs, bounds, semidefiniteness and
        integrality of theirs become further constraints, as in `from_cvxpy`.
    integers : frozenset of str
        Names of integer variables.

    Raises
    ------
    DeclarationError
        Two variables of one name, complex ones, or functions with variables of their own.
    """
    parts = {name: part for name, (part, _) in (*objective.items(), *constraints.items())}
    variables: dict[str, Any] = {}
    for name, part in parts.items():
        numbers = any(leaf.is_complex() for leaf in (*part.variables(), *part.constants()))
        if _hides(part) or numbers:
            raise DeclarationError(
                f"{name!r} has {'complex numbers' if numbers else 'variables of its own'}",
                f"a model is declared in real variables that its terms show: {shortened(part)}",
                "state it as a cvxpy.Problem: optfair.from_cvxpy writes such functions out",
            )
        for v in part.variables():
            if variables.setdefault(v.name(), v) is not v:
                raise DeclarationError(
                    f"two variables are called {v.name()!r}",
                    "variables of a model go by their names",
                    'give each a name of its own: cp.Variable(name="y")',
                )
    known = variables.values()
    plain = Plain.of(known if any(map(stated_attributes, known)) else ())

    def own(part: Any) -> Any:
        return substitute(part, plain.swaps) if plain.swaps else part

    terms = [model_term(name, own(c), latex) for name, (c, latex) in constraints.items()]
    taken = dict.fromkeys(constraints)
    for name, row in plain.rows.items():
        terms.append(model_term(free_name(name, taken), row))
        taken[terms[-1].name] = None
    return Declaration(
        plain.variables or variables,
        sense,
        tuple(model_goal(name, own(e), latex, sense) for name, (e, latex) in objective.items()),
        tuple(terms),
        integers | plain.integers,
        plain.aliases,
    )
