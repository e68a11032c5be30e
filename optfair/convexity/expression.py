"""The normal form of expressions: sums, monomials, functions; and the counted steps that work on them may take."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from fractions import Fraction
from typing import Any, Self, TypeVar
from weakref import WeakValueDictionary

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.convexity.intervals import exact_product, exact_sum
from optfair.errors import shortened
from optfair.numbers import Floats

_LEFT: ContextVar[list[float] | None] = ContextVar("steps left", default=None)


class Exhausted(Exception):
    """The steps that were allowed are spent."""


@contextmanager
def limited(steps: float) -> Iterator[None]:
    """Allow so many steps, or what is left of a limit around this one: the same on every machine.

    Raises
    ------
    Exhausted
        Within, when they are spent.
    """
    outer = _LEFT.get()
    own = [steps if outer is None else min(steps, outer[0])]
    begin = own[0]
    token = _LEFT.set(own)
    try:
        yield
    finally:
        _LEFT.reset(token)
        if outer is not None:
            outer[0] -= begin - own[0]


def spend(steps: float = 1.0) -> None:
    """Count steps, about 0.1 ms each, where they are limited."""
    left = _LEFT.get()
    if left is not None:
        left[0] -= steps
        if left[0] < 0.0:
            raise Exhausted


Part = tuple[Any, "Node"]
Factor = tuple["Node", Fraction]

# A vector of so many entries that is added up is taken apart; a longer one stays grouped.
SPLIT = 16
_SERIAL = itertools.count()
_INTERNED: WeakValueDictionary[Any, Any] = WeakValueDictionary()


class Node:
    """A vector of functions of the leaves; equal nodes are one object.

    Attributes
    ----------
    size : int
        Number of entries.
    leaves : frozenset of Leaf
        What it depends on.
    below : tuple of Node
        What it is made of.
    serial : int
        Orders nodes.
    """

    size: int
    leaves: frozenset[Leaf]
    below: tuple[Node, ...]
    serial: int
    _scalars: frozenset[tuple[Leaf, int]] | None
    __slots__ = ("__weakref__", "_scalars", "below", "leaves", "serial", "size")

    def __repr__(self) -> str:
        return text(self)

    def __copy__(self) -> Node:
        return self

    def __deepcopy__(self, memo: Any) -> Node:
        return self


class Leaf(Node):
    """A vector of variables.

    Parameters
    ----------
    uid : hashable
        Tells it from others.
    name : str
        How it is printed.
    size : int
        Number of entries.
    """

    uid: Any
    name: str
    shape: tuple[int, ...]
    __slots__ = ("name", "shape", "uid")

    def __new__(cls, uid: Any, name: str, size: int, shape: tuple[int, ...] = ()) -> Self:
        """Return the one leaf of this identity."""
        node = _interned(cls, (uid, size), size, (), uid=uid, name=name, shape=shape)
        node.leaves = frozenset() if issubclass(cls, Number) else frozenset((node,))
        return node

    def __reduce__(self) -> Any:
        return type(self), (self.uid, self.name, self.size, self.shape)


class Number(Leaf):
    """A vector of numbers that are not known yet: a parameter, constant in the variables."""

    __slots__ = ()


class Sum(Node):
    """A constant plus sparse matrices times nodes; made by `linear`."""

    parts: tuple[Part, ...]
    constant: Floats
    __slots__ = ("constant", "parts")

    def __reduce__(self) -> Any:
        return _sum, (self.parts, self.constant)


class Product(Node):
    """The entrywise product of powers of nodes of one size."""

    factors: tuple[Factor, ...]
    __slots__ = ("factors",)

    def __reduce__(self) -> Any:
        return _product, (self.factors,)


class Call(Node):
    """A function of nodes: entrywise of one argument, or of all entries of its arguments."""

    function: str
    args: tuple[Node, ...]
    __slots__ = ("args", "function")

    def __reduce__(self) -> Any:
        return _call, (self.function, self.args, self.size)


class Opaque(Node):
    """A CVXPY expression of which only CVXPY's own composition rules are known."""

    expression: Any
    __slots__ = ("expression",)

    def __reduce__(self) -> Any:
        return opaque, (self.expression, tuple(self.leaves))


N = TypeVar("N", bound=Node)


def _interned(kind: type[N], key: Any, size: int, below: tuple[Node, ...], **fields: Any) -> N:
    """Return the one node of a kind and a key, made of others where it is new."""
    node: N | None = _INTERNED.get((kind, key))
    if node is None:
        node = object.__new__(kind)
        for name, value in fields.items():
            setattr(node, name, value)
        node.size, node.below, node.serial, node._scalars = size, below, next(_SERIAL), None
        node.leaves = frozenset().union(*(n.leaves for n in below))
        _INTERNED[kind, key] = node
    return node


def _matrix_key(M: Any) -> Any:
    return M.shape, M.indptr.tobytes(), M.indices.tobytes(), M.data.tobytes()


def _sum(parts: tuple[Part, ...], constant: Floats) -> Sum:
    key = tuple((id(n), _matrix_key(M)) for M, n in parts), constant.tobytes()
    below = tuple(n for _, n in parts)
    return _interned(Sum, key, constant.size, below, parts=parts, constant=constant)


def _product(factors: tuple[Factor, ...]) -> Product:
    key, below = tuple((id(n), a) for n, a in factors), tuple(n for n, _ in factors)
    return _interned(Product, key, below[0].size, below, factors=factors)


def _call(function: str, args: tuple[Node, ...], size: int) -> Call:
    key = function, tuple(id(n) for n in args), size
    return _interned(Call, key, size, args, function=function, args=args)


def opaque(expression: Any, leaves: Iterable[Leaf]) -> Opaque:
    """Return an expression that is not read further."""
    node = _interned(Opaque, id(expression), int(expression.size), (), expression=expression)
    node.leaves = frozenset(leaves)
    return node


# --- exact linear algebra on coefficients -------------------------------------------------------


def _unit(values: Floats) -> float:
    """Return the largest power of two that divides all values, 1 for none, 0 for tiny ones."""
    values = np.abs(values[values != 0.0])
    if not values.size:
        return 1.0
    m, e = np.frexp(values)
    whole = np.ldexp(m, 53).astype(np.int64)
    lowest = np.log2((whole & -whole).astype(float))
    least = float((e - 53 + lowest).min())
    return float(np.exp2(least)) if least >= -500.0 else 0.0


def exact_matrix_product(A: Any, B: Any) -> Any:
    """Return A B where floats hold it exactly, else None.

    Examples
    --------
    >>> A = sp.csr_array([[0.5, 2.0]])
    >>> exact_matrix_product(A, sp.csr_array([[3.0], [1.0]])).toarray()
    array([[3.5]])
    >>> exact_matrix_product(sp.csr_array([[0.1]]), sp.csr_array([[0.1]])) is None
    True
    """
    if A.shape == (1, 1) and A.nnz == 1 and _settled(B):  # a number: no matrices are multiplied
        scaled, error = exact_product(np.full(B.nnz, A.data[0]), B.data)
        sound = np.isfinite(scaled).all() and scaled.all() and not (error != 0.0).any()
        return sp.csr_array((scaled, B.indices, B.indptr), B.shape) if sound else None
    out = sp.csr_array(A @ B)
    if not np.isfinite(out.data).all():
        return None
    if (np.diff(A.indptr) <= 1).all():  # entries are products, with a row of B after the other
        counts = np.diff(B.indptr)[A.indices]
        shift = np.repeat(B.indptr[A.indices] - np.cumsum(counts) + counts, counts)
        right = B.data[shift + np.arange(shift.size)]
        exact = not (exact_product(np.repeat(A.data, counts), right)[1] != 0.0).any()
    else:
        unit = _unit(A.data) * _unit(B.data)
        exact = unit > 0.0 and bool((abs(A) @ abs(B)).max() / unit < 2.0**53)
    return _canonical(out) if exact else None


def _exact_addition(A: Any, B: Any) -> Any:
    total = sp.csr_array(A + B)
    if A.nnz + B.nnz != total.nnz:
        if A.size <= 4096:
            exact = not (exact_sum(A.toarray(), B.toarray())[1] != 0.0).any()
        else:
            unit = min(_unit(A.data), _unit(B.data))
            exact = unit > 0.0 and bool((abs(A) + abs(B)).max() / unit < 2.0**53)
        if not exact:
            return None
    return _canonical(total)


def _canonical(M: Any) -> Any:
    M.sum_duplicates()
    M.eliminate_zeros()
    M.sort_indices()
    M.indices = M.indices.astype(np.int32, copy=False)
    M.indptr = M.indptr.astype(np.int32, copy=False)
    return M


def _settled(M: Any) -> bool:
    """Whether a sparse matrix is known to have the form that sums keep."""
    known = isinstance(M, sp.csr_array) and getattr(M, "has_canonical_format", False)
    return known and M.dtype == float and M.indices.dtype == np.int32 and bool(M.data.all())


def matrix(M: Any) -> Any:
    """Return a sparse matrix in the form that sums keep."""
    return M if _settled(M) else _canonical(sp.csr_array(M, dtype=float))


def diagonal_only(M: Any) -> bool:
    """Whether a matrix has one entry in each row, that of the diagonal: entries keep their places."""
    at = np.arange(M.shape[0] + 1)
    rows = M.shape[0] == M.shape[1] == M.nnz and bool((M.indptr == at).all())
    return rows and bool((M.indices == at[:-1]).all())


def selection(rows: Sequence[int] | NDArray[Any], size: int) -> Any:
    """Return the matrix that takes some entries of a vector."""
    at = np.asarray(rows, dtype=np.int32)
    ends = np.arange(at.size + 1, dtype=np.int32)
    return sp.csr_array((np.ones(at.size), at, ends), (at.size, size))


def diagonal(factors: Any) -> Any:
    """Return the diagonal matrix of some numbers."""
    c = np.array(factors, dtype=float)
    at, ends = np.arange(c.size, dtype=np.int32), np.arange(c.size + 1, dtype=np.int32)
    return sp.csr_array((c, at, ends), (c.size, c.size))


# --- construction -------------------------------------------------------------------------------


def constant(value: Any) -> Sum:
    """Return a vector of numbers."""
    return _sum((), np.ravel(np.asarray(value, dtype=float)) + 0.0)


def constant_value(node: Node) -> Floats | None:
    """Return the numbers of a node without leaves, None for any other."""
    return node.constant if isinstance(node, Sum) and not node.parts else None


def linear(parts: Iterable[tuple[Any, Node]], offset: Any) -> Node:
    """Return offset + sum of M @ node, merged as far as coefficients stay exact.

    Parameters
    ----------
    parts : pairs (sparse (m, k), Node of size k)
        Terms.
    offset : array (m,)
        Constants.
    """
    spend()
    total = np.ravel(np.asarray(offset, dtype=float)) + 0.0
    m = total.size
    kept: dict[Node, list[Any]] = {}
    queue = [(matrix(M), n) for M, n in parts]
    while queue:
        M, node = queue.pop()
        spend(0.5 + 1e-4 * M.nnz)
        if not M.nnz:
            continue
        if isinstance(node, Sum):
            inner, new = _flattened(M, node, total)
            if new is not None:
                queue += inner
                total = new
                continue
        elif not isinstance(node, (Leaf, Opaque)):
            used = np.unique(M.indices)
            if m == 1 and node.size > 1 and used.size <= SPLIT and _entrywise(node):
                queue += [(matrix(M[:, [j]]), select(node, [j])) for j in used.tolist()]
                continue
            if used.size < node.size and _entrywise(node):
                queue.append((matrix(M[:, used]), select(node, used)))
                continue
        same = kept.setdefault(node, [])
        for k, other in enumerate(same):
            added = _exact_addition(other, M)
            if added is not None:
                same[k] = added
                break
        else:
            same.append(M)
    flat = [(M, n) for n in sorted(kept, key=lambda n: n.serial) for M in kept[n] if M.nnz]
    one = flat[0][0] if len(flat) == 1 and not total.any() else None
    if one is not None and diagonal_only(one) and (one.data == 1.0).all():
        return flat[0][1]
    return _sum(tuple(flat), total)


def _entrywise(node: Node) -> bool:
    return isinstance(node, Product) or (
        isinstance(node, Call)
        and len(node.args) == 1
        and node.size == node.args[0].size
        and not node.function.startswith("of all: ")
    )


def _flattened(M: Any, node: Sum, total: Floats) -> tuple[list[Part], Floats | None]:
    """Return the parts of M @ node and the new constant, None where rounding forbids it."""
    inner = []
    for N, g in node.parts:
        product = exact_matrix_product(M, N)
        if product is None or product.nnz > 4 * (M.nnz + N.nnz) + 1000:
            return [], None
        inner.append((product, g))
    if not node.constant.any():
        return inner, total
    moved = exact_matrix_product(M, matrix(sp.csr_array(node.constant[:, None])))
    if moved is None:
        return [], None
    added, error = exact_sum(total, moved.toarray()[:, 0])
    return ([], None) if (error != 0.0).any() else (inner, np.asarray(added) + 0.0)


def select(node: Node, rows: Sequence[int] | NDArray[Any]) -> Node:
    """Return some entries of a node, in the given order."""
    at = np.asarray(rows, dtype=np.int64)
    if at.size == node.size and (at == np.arange(node.size)).all():
        return node
    if isinstance(node, Product):
        return raw_product([(select(b, at), a) for b, a in node.factors])
    if isinstance(node, Call) and _entrywise(node):
        return _call(node.function, (select(node.args[0], at),), int(at.size))
    return linear([(selection(at, node.size), node)], np.zeros(at.size))


def stacked(nodes: list[Node]) -> Node:
    """Return nodes of one entry as a vector."""
    size = len(nodes)
    column = [sp.csr_array(([1.0], ([k], [0])), shape=(size, 1)) for k in range(size)]
    return linear(list(zip(column, nodes, strict=True)), np.zeros(size))


def raw_product(factors: Mapping[Node, Fraction] | Iterable[Factor]) -> Node:
    """Return a product of powers as it stands; `Algebra.product` simplifies it first."""
    pairs = factors.items() if isinstance(factors, Mapping) else factors
    kept = tuple(sorted(((n, a) for n, a in pairs if a), key=lambda f: f[0].serial))
    return kept[0][0] if len(kept) == 1 and kept[0][1] == 1 else _product(kept)


def raw_call(function: str, args: Sequence[Node], size: int) -> Node:
    """Return a function of nodes as it stands; `Algebra.call` simplifies it first."""
    return _call(function, tuple(args), size)


def rebuilt(node: Node, algebra: Any, known: dict[Node, Node]) -> Node:
    """Return a node with parts replaced, simplified by an `Algebra`; ``known`` says which."""
    if node in known:
        return known[node]
    out: Node
    if isinstance(node, (Leaf, Opaque)):
        out = node
    elif isinstance(node, Sum):
        out = linear([(M, rebuilt(n, algebra, known)) for M, n in node.parts], node.constant)
    elif isinstance(node, Product):
        out = algebra.product([(rebuilt(n, algebra, known), a) for n, a in node.factors])
    elif isinstance(node, Call):
        args = [rebuilt(n, algebra, known) for n in node.args]
        out = algebra.call(node.function, args, node.size)
    known[node] = out
    return out


# --- reading off --------------------------------------------------------------------------------


def affine(node: Node) -> bool:
    """Whether a node is an affine function of leaves."""
    return isinstance(node, Leaf) or (isinstance(node, Sum) and all(map(affine, node.below)))


def scalars(node: Node) -> frozenset[tuple[Leaf, int]]:
    """Return the entries of leaves that a node depends on."""
    if node._scalars is None:
        own = frozenset[tuple[Leaf, int]]()
        if isinstance(node, Leaf):
            own = frozenset((node, j) for j in range(node.size))
        elif isinstance(node, Opaque):
            own = frozenset((leaf, j) for leaf in node.leaves for j in range(leaf.size))
        elif isinstance(node, Sum):
            for M, n in node.parts:
                if isinstance(n, Leaf):
                    own |= frozenset((n, int(j)) for j in np.unique(M.indices))
                else:
                    own |= scalars(n)
        else:
            own = own.union(*map(scalars, node.below))
        node._scalars = own
    return node._scalars


def entries(node: Node) -> list[tuple[Leaf, int]]:
    """Return the entries of leaves that a node depends on, in order."""
    return sorted(scalars(node), key=lambda s: (s[0].serial, s[1]))


def subnodes(node: Node, known: dict[Node, int] | None = None) -> dict[Node, int]:
    """Return every part of a node and how often it is used."""
    known = {} if known is None else known
    known[node] = known.get(node, 0) + 1
    if known[node] == 1:
        for n in node.below:
            subnodes(n, known)
    return known


def text(node: Node, limit: int = 160) -> str:
    """Return a node in words, shortened."""
    return shortened(_text(node), limit)


# What CVXPY prints and nobody writes: classes of atoms, broadcast numbers, options left alone.
_PRINTED = (
    (re.compile(r"\bPower(Approx)?\("), "power("),
    (re.compile(r"\bPnorm(Approx)?\("), "pnorm("),
    (re.compile(r"\bGeoMean(Approx)?\("), "geo_mean("),
    (re.compile(r"\bPromote\(([^(),]+), \([\d, ]*\)\)"), r"\1"),
    (re.compile(r"(, None)?, False\)|, None\)"), ")"),
)


def cvxpy_text(expression: Any) -> str:
    """Return a CVXPY expression as somebody may have written it, in one line.

    Examples
    --------
    >>> import cvxpy as cp
    >>> x = cp.Variable(3, name="x")
    >>> cvxpy_text(cp.sum_squares(x - 1) + cp.geo_mean(x) + cp.log_sum_exp(x))
    'quad_over_lin(x + -1.0, 1.0) + geo_mean(x, (1/3, 1/3, 1/3)) + log_sum_exp(x)'
    """
    written = " ".join(str(expression).split())
    for printed, meant in _PRINTED:
        written = printed.sub(meant, written)
    return written


def _text(node: Node) -> str:
    if isinstance(node, Leaf):
        return node.name
    if isinstance(node, Opaque):
        return cvxpy_text(node.expression)
    if isinstance(node, Call):
        return f"{node.function.removeprefix('of all: ')}({', '.join(_text(a) for a in node.args)})"
    if isinstance(node, Product):
        return "*".join(_factor_text(n, a) for n, a in node.factors)
    if not isinstance(node, Sum):
        return "?"
    if node.size == 1:
        return _scalar_sum(node)
    words = []
    for M, n in node.parts:
        inside = _text(n)
        if M.nnz == M.shape[0] and (np.diff(M.indptr) == 1).all():
            same = (M.data == M.data[0]).all()
            front = "" if same and M.data[0] == 1.0 else f"{M.data[0]:g}*" if same else "c*"
            words.append(f"{front}{_grouped(n, inside)}{_places_text(M, n)}")
        else:
            words.append(f"A@{_grouped(n, inside)}")
    if node.constant.any() or not words:
        one = (node.constant == node.constant[0]).all() if node.size else True
        words.append(f"{node.constant[0]:g}" if one and node.size else "b")
    return " + ".join(words)


def _places_text(M: Any, n: Node) -> str:
    if n.size == 1 or (M.shape[0] > 1 and n.size == M.shape[0]):
        return ""
    return f"[{M.indices[0]}:{M.indices[-1] + 1}]"


def _scalar_sum(node: Sum) -> str:
    words: list[str] = []
    for M, n in node.parts:
        if n.size == 1:
            terms = [(float(M.data[0]), _grouped(n, _text(n)))]
        elif isinstance(n, Leaf):
            terms = [
                (float(c), f"{n.name}{_entry(n, int(j))}")
                for c, j in zip(M.data[:8], M.indices[:8], strict=True)
            ]
        else:
            same = M.nnz == n.size and (M.data == M.data[0]).all()
            terms = [(float(M.data[0]) if same else 1.0, f"{'sum' if same else 'c@'}({_text(n)})")]
        for c, word in terms:
            size = "" if abs(c) == 1.0 else f"{abs(c):g}*"
            words.append((" - " if c < 0 else " + " if words else "") + size + word)
    c = float(node.constant[0])
    if c or not words:
        words.append(
            (" - " if c < 0 and words else " + " if words else "") + f"{abs(c) if words else c:g}"
        )
    return "".join(words).lstrip() if not words[0].startswith(" - ") else "-" + "".join(words)[3:]


def _entry(leaf: Leaf, j: int) -> str:
    if len(leaf.shape) == 2:
        return f"[{j % leaf.shape[0]}, {j // leaf.shape[0]}]"
    return f"[{j}]"


def _grouped(node: Node, inside: str) -> str:
    return f"({inside})" if isinstance(node, Sum) else inside


def _factor_text(node: Node, a: Fraction) -> str:
    inside = f"({_text(node)})" if isinstance(node, (Sum, Product)) else _text(node)
    if a == 1:
        return inside
    return f"{inside}^{a}" if a.denominator == 1 and a > 0 else f"{inside}^({a})"
