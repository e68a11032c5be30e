"""The class of a formulation, and why a term has it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from optfair.errors import ClassError, nearest

if TYPE_CHECKING:
    from optfair.convexity.proof import CurvatureProof
    from optfair.core.term import ConstraintTerm, ObjectiveTerm

# The class of a formulation: which cones, which curvature, integer or not.

Curvature = Literal["convex", "log-log convex", "quasiconvex", "unverified", "nonconvex"]


_CURVATURE: tuple[Curvature, ...] = (
    *("convex", "log-log convex", "quasiconvex"),
    *("unverified", "nonconvex"),
)
_NAMES = ("LP", "QP", "QCQP", "SOCP", "SDP", "CONIC", "NLP")
_MIXED = {"LP": "MILP", "QP": "MIQP", "QCQP": "MIQCQP", "SOCP": "MISOCP", "SDP": "MISDP"}


@dataclass(frozen=True)
class ProblemClass:
    """Class of a formulation, ordered so that adding terms can only raise it.

    LP < QP (quadratic objective) < QCQP (quadratic constraint) < SOCP < SDP < CONIC(cones),
    each continuous or integer, and convex < log-log convex < quasiconvex < unverified <
    nonconvex. The join ``a | b`` is
    the class of a problem with the terms of both.

    Parameters
    ----------
    quadratic_objective, quadratic_constraint : bool
        Whether a quadratic occurs in the objective or in a constraint.
    cones : frozenset of str
        Cones beyond the linear ones: "soc", "psd", "exp", "pow"; "nonlinear" for a function
        that no cone here describes.
    integer : bool
        Whether a variable is integer.
    curvature : {"convex", "log-log convex", "quasiconvex", "unverified", "nonconvex"}
        "unverified" means that no proof of convexity was found; "nonconvex" needs a witness.
        "log-log convex" and "quasiconvex" problems are convex in other words.

    Examples
    --------
    >>> ProblemClass.parse("QP") | ProblemClass.parse("SOCP")
    SOCP
    >>> ProblemClass.parse("MILP") <= ProblemClass.parse("QP")
    False
    """

    quadratic_objective: bool = False
    quadratic_constraint: bool = False
    cones: frozenset[str] = frozenset()
    integer: bool = False
    curvature: Curvature = "convex"

    @property
    def family(self) -> str:
        """Name without integrality and curvature: LP, QP, QCQP, SOCP, SDP, CONIC or NLP."""
        if "nonlinear" in self.cones:
            return "NLP"
        if self.cones & {"exp", "pow"}:
            return "CONIC"
        if "psd" in self.cones:
            return "SDP"
        if "soc" in self.cones:
            return "SOCP"
        if self.quadratic_constraint:
            return "QCQP"
        return "QP" if self.quadratic_objective else "LP"

    @property
    def name(self) -> str:
        """Name with integrality, as solver profiles list it: MILP, SOCP, CONIC ..."""
        family = self.family
        return _MIXED.get(family, "MI" + family) if self.integer else family

    @property
    def convex(self) -> bool:
        """Whether every term is known to be convex (integrality aside)."""
        return self.curvature == "convex"

    def __or__(self, other: ProblemClass) -> ProblemClass:
        return ProblemClass(
            self.quadratic_objective or other.quadratic_objective,
            self.quadratic_constraint or other.quadratic_constraint,
            self.cones | other.cones,
            self.integer or other.integer,
            max(self.curvature, other.curvature, key=_CURVATURE.index),
        )

    def __le__(self, other: ProblemClass) -> bool:
        """Whether a solver of ``other`` problems sees nothing new in this one."""
        return (
            _NAMES.index(self.family) <= _NAMES.index(other.family)
            and (self.cones & {"exp", "pow"}) <= other.cones
            and self.integer <= other.integer
            and _CURVATURE.index(self.curvature) <= _CURVATURE.index(other.curvature)
        )

    def __str__(self) -> str:
        name = self.name
        if self.family == "CONIC":
            name += "(" + ", ".join(sorted(self.cones)) + ")"
        return name if self.convex else f"{self.curvature} {name}"

    __repr__ = __str__

    def with_curvature(self, curvature: Curvature) -> ProblemClass:
        """Return the class with another curvature."""
        return replace(self, curvature=curvature)

    @classmethod
    def parse(cls, text: str) -> ProblemClass:
        """Return the class that prints as ``text``."""
        curvature: Curvature = "convex"
        for word in _CURVATURE:
            if text.startswith(f"{word} "):
                curvature, text = word, text.removeprefix(f"{word} ")
        name, _, inside = text.partition("(")
        mixed = {m: f for f, m in _MIXED.items()} | {"MICONIC": "CONIC", "MINLP": "NLP"}
        integer = name in mixed
        family = mixed.get(name, name)
        if family not in _NAMES:
            raise ClassError(f"unknown problem class {text!r}", remedy=nearest(name, _NAMES))
        cones: Iterable[str] = {"SOCP": {"soc"}, "SDP": {"psd"}, "NLP": {"nonlinear"}}.get(
            family, ()
        )
        if family == "CONIC":
            cones = {c.strip() for c in inside.rstrip(")").split(",") if c.strip()} or {"exp"}
        return cls(family == "QP", family == "QCQP", frozenset(cones), integer, curvature)


LP = ProblemClass()


# Why a term has its class: one row in function-in-set language.


@dataclass(frozen=True)
class Evidence:
    """One term's contribution to the class of a problem.

    Parameters
    ----------
    term : str
        Name of the term.
    function : str
        What the function is: "affine", "convex quadratic", "convex" ...
    set : str
        The set it lies in ("Zero", "Nonpositive", "PSD" ...), or "minimize" / "maximize".
    problem_class : ProblemClass
        Class of a problem with this term alone.
    note : str
        How it was decided, where that is not the composition rules of CVXPY.
    proof : CurvatureProof, optional
        What proves it, where that is a proof beyond these rules.
    support : tuple
        What builds the terms that the proof rests on.

    Examples
    --------
    >>> print(Evidence("row sum", "affine", "Zero", ProblemClass()))
    row sum: affine in Zero -> LP
    """

    term: str
    function: str
    set: str
    problem_class: ProblemClass
    note: str = ""
    proof: CurvatureProof | None = field(default=None, compare=False, repr=False)
    support: tuple[Any, ...] = field(default=(), compare=False, repr=False)

    def __str__(self) -> str:
        if self.set in ("minimize", "maximize"):
            what = f"{self.set} {self.function}"
        else:
            what = f"{self.function} in {self.set}" if self.set else self.function
        note = f" ({self.note})" if self.note else ""
        return f"{self.term}: {what} -> {self.problem_class}{note}"


# A structure is a promise about a problem's terms that a special algorithm relies on.


@dataclass(frozen=True)
class Structure:
    """Which terms a special algorithm needs and which it tolerates.

    Parameters
    ----------
    name : str
        Name that solver profiles refer to.
    needs : tuple of str
        Model terms that must be present.
    tolerates : frozenset of str or None
        Variables that further convex terms may use; none when empty, any for None.
    stranger : str
        How a term outside is described: "'share' is not a marginal".
    rows : bool
        Whether some term must be one that can be built row by row.
    proof : bool
        Whether some term must be one that is proved beyond composition rules; with integers, one
        of exponential or power cones does as well.
    integers : bool
        Whether variables may be integer.
    """

    name: str
    needs: tuple[str, ...]
    tolerates: frozenset[str] | None
    stranger: str
    rows: bool = False
    proof: bool = False
    integers: bool = False

    def refusal(
        self,
        objective: Iterable[ObjectiveTerm],
        constraints: Iterable[ConstraintTerm],
        integers: Iterable[str],
    ) -> str:
        """Return why the structure is lost, or an empty string while it stands."""
        terms = [*objective, *constraints]
        present = {t.name for t in terms if t.origin == "model"}
        missing = [name for name in self.needs if name not in present]
        if missing:
            return f"{missing[0]!r} was removed"
        if self.rows and not any(getattr(t, "rows", None) for t in terms):
            return "no term of it is built row by row"
        whole = sorted(integers)
        if self.proof and not any(t.evidence.proof is not None for t in terms):
            cones = frozenset[str]().union(*(t.evidence.problem_class.cones for t in terms))
            if not (whole and self.integers and cones & {"exp", "pow"}):
                return "composition rules decide every term of it"
        if whole and not self.integers:
            return f"{whole[0]!r} is integer"
        for term in terms:
            if term.name in self.needs:
                continue
            if self.tolerates is not None and not term.scope <= self.tolerates:
                return f"{term.name!r} is not {self.stranger}"
            if not term.evidence.problem_class.convex:
                return f"{term.name!r} is not known to be convex"
        return ""


#: Terms proved convex beyond composition rules, beside any other convex terms.
PROVED_TERMS = Structure("proved-terms", (), None, "", proof=True, integers=True)

#: Terms of many rows that are generated as they are needed, beside any other convex terms.
LAZY_ROWS = Structure("many-rows", (), None, "", rows=True)


def follows_rules(written: Any, kind: str = "") -> bool:
    """Return whether CVXPY's rules rightly hold an expression to be of a curvature, or a term DCP.

    They take powers for increasing that are not: f**3 asks for f >= 0, which is no convex set of a
    convex f, and f**6 falls where f is negative.

    Examples
    --------
    >>> import cvxpy as cp
    >>> f = cp.square(cp.Variable()) - 1
    >>> cp.power(f, 3).is_convex(), follows_rules(cp.power(f, 3), "convex")
    (True, False)
    """
    rules = {"convex": "is_convex", "concave": "is_concave"}
    held = bool(getattr(written, rules.get(kind, "is_dcp"))())
    return held and not _falls(written)


def _falls(written: Any) -> bool:
    """Whether a power, or x exp x, of what may be negative and is not affine is not increasing."""
    from cvxpy.atoms.elementwise.power import Power  # what lists classes needs no expressions
    from cvxpy.atoms.elementwise.xexp import xexp
    from cvxpy.utilities.power_tools import is_power2

    for e in parts_of(written):
        if not isinstance(e, (Power, xexp)) or e.args[0].is_affine() or e.args[0].is_nonneg():
            continue
        if isinstance(e, xexp) or (
            e.p.value is not None and e.p.value > 1 and not is_power2(e.p_used)
        ):
            return True
    return False


# Lines up to which a quadratic form is tested in whole numbers.
FORM = 60


def vanishing(constraint: Any) -> tuple[Any, list[Any]]:
    """Return what an inequality says where squares add up to 0 at most: that their arguments are 0.

    The squares leave no room and have no multiplier; these rows have, beside 0 <= 0. Any other
    constraint is returned as it is, beside no rows.

    Examples
    --------
    >>> import cvxpy as cp
    >>> x, y = cp.Variable(2, name="x"), cp.Variable(name="y")
    >>> row, zeros = vanishing(cp.sum_squares(x) + 2 * cp.power(y - 1, 4) <= 0)
    >>> str(row), sorted(map(str, zeros))
    ('0.0 <= 0.0', ['x == 0.0', 'y + -1.0 == 0.0'])
    >>> str(vanishing(3 * cp.huber(y) <= 0)[1][0])
    'y == 0.0'
    >>> vanishing(cp.sum_squares(x) <= 1)[1], vanishing(cp.sum_squares(x) - y <= 0)[1]
    ([], [])
    """
    from cvxpy.constraints import Inequality, NonPos

    if not isinstance(constraint, (Inequality, NonPos)) or constraint.expr.is_affine():
        return constraint, []  # no squares; what follows imports much for each row

    import numpy as np
    from cvxpy.atoms.affine.add_expr import AddExpression
    from cvxpy.atoms.affine.binary_operators import DivExpression, MulExpression
    from cvxpy.atoms.affine.sum import Sum
    from cvxpy.atoms.affine.unary_operators import NegExpression
    from cvxpy.atoms.elementwise.huber import huber
    from cvxpy.atoms.elementwise.power import Power
    from cvxpy.atoms.quad_form import QuadForm
    from cvxpy.atoms.quad_over_lin import quad_over_lin
    from cvxpy.expressions.constants import Constant
    from cvxpy.expressions.variable import Variable

    from optfair.core.expressions import dense
    from optfair.proofs.definiteness import symmetric
    from optfair.proofs.elimination import exactly_semidefinite

    if constraint.parameters():
        return constraint, []
    zeros: list[Any] = []
    stack = [(constraint.expr, 1.0)]
    while stack:
        e, sign = stack.pop()
        constant = [a for a in e.args if a.is_constant()]
        if e.is_constant():
            if e.value is None or dense(e.value).any():
                return constraint, []  # the limit is another
        elif isinstance(e, (AddExpression, Sum)):
            stack += [(part, sign) for part in e.args]
        elif isinstance(e, NegExpression):
            stack.append((e.args[0], -sign))
        elif isinstance(e, MulExpression) and constant:
            by = sign * dense(constant[0].value)
            if not ((by > 0.0).all() or (by < 0.0).all()):
                return constraint, []
            stack += [(a, float(by.flat[0])) for a in e.args if a is not constant[0]]
        elif isinstance(e, DivExpression) and e.args[1].is_constant() and e.args[1].size == 1:
            stack.append((e.args[0], sign * float(np.squeeze(dense(e.args[1].value)))))
        elif sign > 0.0 and isinstance(e, quad_over_lin):
            zeros += [e.args[0] == 0, *([] if constant else [e.args[1] >= 0])]
            if constant and not (dense(e.args[1].value) > 0.0).all():
                return constraint, []
        elif sign > 0.0 and (
            (isinstance(e, Power) and (e.p.value or 0.0) > 1.0)
            or (isinstance(e, huber) and (e.M.value or 0.0) > 0.0)
        ):
            size = e.args[0].is_nonneg()  # a norm, say
            zeros.append(e.args[0] <= 0 if size else e.args[0] == 0)
        elif isinstance(e, QuadForm) and isinstance(e.args[0], Variable) and constant:
            P = symmetric(np.sign(sign) * constant[0].value)
            if len(dense(P)) > FORM or not exactly_semidefinite(dense(P)):
                return constraint, []  # rounding may have left a direction in which it falls
            zeros.append(P @ e.args[0] == 0)
        else:
            return constraint, []
    if not zeros or not all(z.is_dcp() for z in zeros):
        return constraint, []
    nothing = Constant(np.zeros(constraint.shape))
    return nothing <= 0, zeros


def known_symmetric(e: Any) -> bool:
    """Whether a matrix is known to be symmetric; CVXPY asks a number among its parts for a second length."""
    try:
        return bool(e.is_symmetric())
    except IndexError:
        return False


# Share of a matrix by which it may miss being symmetric, and entries that may be the rounding of 0.
SYMMETRIC, ROUNDED = 1e-7, 1e-15


def numeric_of(node: Any) -> Callable[[Any], Any]:
    """Return how a function is computed; of a condition number, which is a quotient beyond its domain as well."""
    numeric: Callable[[Any], Any] = node.numeric
    return _condition if type(node).__name__ == "condition_number" else numeric


def _condition(values: Sequence[Any]) -> Any:
    """Return the condition number of a positive definite matrix, NaN of others."""
    import numpy as np  # facts are read without it

    M = np.asarray(values[0], dtype=float)
    own = np.linalg.eigvalsh(0.5 * (M + M.T))
    even = np.abs(M - M.T).max() <= SYMMETRIC * np.abs(M).max()
    defined = even and own[0] > 0.0 and own[-1] > ROUNDED
    return np.array(own[-1] / own[0] if defined else np.nan)


def parts_of(e: Any) -> Iterator[Any]:
    """Yield every node once; a matrix before what it is made of."""
    seen: set[int] = set()
    stack = [e]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        stack += [a for a in node.args if hasattr(a, "args")]
