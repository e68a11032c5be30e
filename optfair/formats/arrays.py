"""Problems from arrays, and from MATLAB files that hold them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.core.expressions import dense
from optfair.errors import DataError
from optfair.formats.file_problem import FileProblem
from optfair.formats.layout import Rows
from optfair.formats.text import INFINITE
from optfair.numbers import Floats, check_flag, check_names, check_number, checked, floats
from optfair.storage import read_bytes


@checked(maximize=check_flag, r=check_number)
def from_arrays(
    P: Any = None,
    q: Any = None,
    A: Any = None,
    l: Any = None,  # noqa: E741
    u: Any = None,
    *,
    lb: Any = None,
    ub: Any = None,
    G: Any = None,
    h: Any = None,
    integrality: Any = None,
    r: float = 0.0,
    maximize: bool = False,
    columns: Sequence[str] | None = None,
    rows: Sequence[str] | None = None,
    title: str = "arrays",
) -> FileProblem:
    r"""Return the problem that arrays state.

    .. math::
        \min_x\; \tfrac12 x^T P x + q^T x + r
        \quad\text{s.t.}\quad
        l \le Ax \le u,\; Gx \le h,\; lb \le x \le ub,\; x_j \in \mathbb{Z}\; (j \in J)

    The form of OSQP, and with G, h, lb, ub that of qpsolvers. The numbers are kept exactly.

    Parameters
    ----------
    P : array or sparse (n, n), optional
        Symmetric; convex or not.
    q : array (n,), optional
        At least one of P, q, A and G is needed.
    A, l, u : array or sparse (m, n); arrays (m,) or numbers, optional
        Rows ``row[0]``, ``row[1]``, ... between two sides.
    lb, ub : arrays (n,) or numbers, optional
        Bounds of the columns.
    G, h : array or sparse (k, n); array (k,) or number, optional
        Rows ``limit[0]``, ``limit[1]``, ...
    integrality : array (n,) of 0 and 1, optional
        Which columns are integer.
    r : float
        Constant of the objective.
    maximize : bool
        Whether the objective is maximised.
    columns, rows : sequence of str, optional
        Labels; by default ``x[0]``, ``x[1]``, ..., and as above. ``rows`` are those of A, then those of G.
    title : str
        What the problem is called in prints.

    Returns
    -------
    FileProblem
        A number of 1e20 or more in a side or bound is infinite.

    Raises
    ------
    DataError
        Shapes that do not fit, numbers that are no finite real ones, a matrix P that is not
        symmetric, sides with nothing between them.

    Examples
    --------
    >>> import optfair as of
    >>> p = of.from_arrays([[2.0, 0.0], [0.0, 2.0]], [-2.0, -4.0], [[1.0, 1.0]], l=0.0, u=2.0)
    >>> p.problem_class, list(p.constraints)
    (QP, ['row lower', 'row upper'])
    >>> s = p.solve()
    >>> s["x"].round(6).tolist(), round(s.objective, 6)
    ([0.5, 1.5], -4.5)
    """
    matrices = [_matrix(name, m) for name, m in (("P", P), ("A", A), ("G", G)) if m is not None]
    sizes = {m.shape[1] for m in matrices} | (
        {np.size(dense(_real("q", q), None))} if q is not None else set()
    )
    if not sizes:
        raise DataError("no array says how many columns there are", remedy="give P, q, A or G")
    if len(sizes) > 1:
        raise DataError(
            f"P, q, A, G speak of {' and '.join(map(str, sorted(sizes)))} columns",
            remedy="give arrays of one width",
        )
    n = sizes.pop()
    if not n:
        raise DataError("the arrays have no columns", remedy="give at least one column")
    for matrix, side, name in ((A, l, "l"), (A, u, "u"), (G, h, "h")):
        if matrix is None and side is not None:
            raise DataError(
                f"{name} is given without its matrix", remedy="give A with l, u; G with h"
            )
    left = sp.csr_array((0, n)) if A is None else _matrix("A", A)
    right = sp.csr_array((0, n)) if G is None else _matrix("G", G)
    m, k = left.shape[0], right.shape[0]
    if G is not None and h is None:
        raise DataError("G is given without h", remedy="give h, a number per row of G")
    whole = sp.csr_array(sp.vstack([left, right]))
    low = np.concatenate([_sides("l", l, m, -np.inf), np.full(k, -np.inf)])
    high = np.concatenate([_sides("u", u, m, np.inf), _sides("h", h, k, np.inf)])
    lower, upper = _sides("lb", lb, n, -np.inf), _sides("ub", ub, n, np.inf)
    names = _labels("columns", columns, n) or [f"x[{j}]" for j in range(n)]
    labels = _labels("rows", rows, m + k) or [
        *(f"row[{i}]" for i in range(m)),
        *(f"limit[{i}]" for i in range(k)),
    ]
    for below, above, what in ((low, high, labels), (lower, upper, names)):
        wrong = np.flatnonzero((below > above) | np.isposinf(below) | np.isneginf(above))
        if wrong.size:
            i = int(wrong[0])
            raise DataError(
                f"{what[i]!r} has no value between {below[i]:g} and {above[i]:g}",
                remedy="correct the sides",
            )
    data = Rows(
        columns=names,
        rows=labels,
        cost=np.zeros(n) if q is None else _vector("q", q, n),
        lower=lower,
        upper=upper,
        integer=_integrality(integrality, n),
        A=whole,
        row_lower=low,
        row_upper=high,
        P=None if P is None else _symmetric(P, n),
        maximize=maximize,
        offset=float(_vector("r", r, 1)[0]),
    )
    return FileProblem(data, title)


def _real(name: str, value: Any) -> Any:
    """Return numbers as floats, the same numbers."""
    if not sp.issparse(value):
        return floats(value, name, infinite=True)
    matrix: Any = value
    if matrix.dtype.kind not in "biuf":
        raise DataError(
            f"{name} has entries that are not numbers",
            f"they are {matrix.dtype}",
            "give real numbers",
        )
    return matrix.astype(float)


def _matrix(name: str, value: Any) -> Any:
    array = _real(name, value)
    if array.ndim != 2:
        raise DataError(f"{name} has {array.ndim} dimensions", remedy="give a matrix")
    matrix = sp.csr_array(array)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    if not np.isfinite(matrix.data).all():
        raise DataError(f"{name} has an entry that is not finite", remedy="give finite numbers")
    return matrix


def _symmetric(value: Any, n: int) -> Any:
    P: Any = sp.csc_array(_matrix("P", value))
    if P.shape != (n, n):
        raise DataError(f"P has the shape {P.shape}", remedy=f"give a matrix of {n} x {n}")
    if (P != P.T).nnz:
        triangular = not sp.tril(P, -1).nnz or not sp.triu(P, 1).nnz
        raise DataError(
            "P is not symmetric",
            "it is a triangle" if triangular else "",
            "give both triangles: P + P.T - diag(P)" if triangular else "give (P + P.T) / 2",
        )
    return P


def _vector(name: str, value: Any, n: int) -> Floats:
    array = np.ravel(dense(_real(name, value), None))
    if array.size != n:
        raise DataError(f"{name} has {array.size} numbers", remedy=f"give {n}")
    if not np.isfinite(array).all():
        raise DataError(f"{name} has an entry that is not finite", remedy="give finite numbers")
    return np.asarray(array, dtype=float)


def _sides(name: str, value: Any, n: int, default: float) -> Floats:
    if value is None:
        return np.full(n, default)
    array = np.ravel(dense(_real(name, value), None))
    array = np.full(n, array[0]) if array.size == 1 else array
    if array.size != n:
        raise DataError(f"{name} has {array.size} numbers", remedy=f"give {n}, or one for all")
    if np.isnan(array).any():
        raise DataError(f"{name} has an entry that is no number", remedy="give numbers or infinity")
    return np.where(np.abs(array) >= INFINITE, np.copysign(np.inf, array), array)


def _integrality(value: Any, n: int) -> NDArray[np.bool_]:
    if value is None:
        return np.zeros(n, dtype=bool)
    array = _vector("integrality", value, n)
    if not np.isin(array, (0.0, 1.0)).all():
        raise DataError(
            "integrality has an entry other than 0 and 1", remedy="give 1 for each integer column"
        )
    return np.asarray(array == 1.0, dtype=bool)


def _labels(name: str, given: Sequence[str] | None, n: int) -> list[str]:
    if given is None:
        return []
    labels = [str(label) for label in check_names(given, name)]
    if len(labels) != n or len(set(labels)) != n:
        raise DataError(
            f"{name} has {len(labels)} labels, {len(set(labels))} of them different",
            remedy=f"give {n} different ones",
        )
    return labels


def read_mat(path: Path) -> FileProblem:
    r"""Read a quadratic program from a MATLAB file, as those of qpbenchmark.

    It holds ``P`` and ``q``, and any of ``r``, ``A``, ``l``, ``u``, ``G``, ``h``, ``lb``, ``ub``. Where
    the last n rows of A are the identity, and there are neither ``lb`` nor ``ub``, they are the bounds of
    the columns.

    Raises
    ------
    DataError
        The file cannot be read, or holds something else.
    """
    raw = read_bytes(path)
    try:
        data = _version_4(path) if 0 in raw[:4] else dict(_arrays(raw))
    except (ValueError, TypeError, MemoryError, zlib.error) as e:
        said = str(e) or type(e).__name__
        raise DataError(
            f"{path} is corrupt", said, "give a MATLAB file of version 5 or 4"
        ) from None
    if not {"P", "q"} <= data.keys():
        raise DataError(
            f"{path} holds no quadratic program",
            f"it holds {', '.join(sorted(data)) or 'nothing'}",
            "give P and q, and A with l and u",
        )
    parts: dict[str, Any] = {k: data[k] for k in _PARTS if k in data and k != "r"}
    r = float(_vector("r", data["r"], 1)[0]) if "r" in data else 0.0
    n = np.size(parts["q"])
    if "A" in parts and not {"lb", "ub"} & parts.keys():
        A = _matrix("A", parts["A"])
        own = A.shape[0] - n
        if own >= 0 and A.shape[1] == n and not (A[own:, :] != sp.eye_array(n)).nnz:
            low = _sides("l", parts.get("l"), own + n, -np.inf)
            high = _sides("u", parts.get("u"), own + n, np.inf)
            bounds = {"lb": low[own:], "ub": high[own:]}
            parts |= {"A": A[:own, :], "l": low[:own], "u": high[:own], **bounds}
    return from_arrays(**parts, r=r, title=path.name)


_PARTS = ("P", "q", "A", "l", "u", "G", "h", "lb", "ub", "r")
# Numbers of version 5 by the type of their element; elements and classes of arrays.
_NUMBERS = {
    1: "i1",
    2: "u1",
    3: "i2",
    4: "u2",
    5: "i4",
    6: "u4",
    7: "f4",
    9: "f8",
    12: "i8",
    13: "u8",
}
_MATRIX, _COMPRESSED = 14, 15
_SPARSE, _FULL, _COMPLEX = 5, range(6, 16), 0x0800
# What a compressed element may unpack to, in its own length.
_RATIO = 200


def _version_4(path: Path) -> dict[str, Any]:
    from scipy.io import loadmat

    try:
        return dict(loadmat(str(path), appendmat=False, variable_names=_PARTS))
    except Exception as e:  # whatever SciPy's reader raises on bad bytes
        raise ValueError(str(e)) from None


def _arrays(data: bytes) -> Iterator[tuple[str, Any]]:
    """Yield the names of version 5, with the arrays of numbers that a quadratic program has.

    SciPy's reader trusts types and lengths, and ends the process where they lie. The layout:
    MATLAB, MAT-File Format, "Level 5 MAT-File Format".

    Raises
    ------
    ValueError
        What is damaged.
    """
    order: Any = {b"IM": "<", b"MI": ">"}.get(data[126:128])
    if order is None:
        raise ValueError("it is no MATLAB file of version 5")
    rest = memoryview(data)[128:]
    while rest:
        kind, inside, rest = _element(rest, order)
        if kind == _COMPRESSED:
            unpacker = zlib.decompressobj()
            unpacked = unpacker.decompress(inside, max(_RATIO * len(inside), 1 << 20))
            if not unpacker.eof:
                raise ValueError(f"an array is cut off, or unpacks to over {_RATIO} times its size")
            kind, inside, _ = _element(memoryview(unpacked), order)
        if kind != _MATRIX:
            raise ValueError(f"an element of type {kind}")
        flags, inside = _numbers(inside, order)
        sides, inside = _numbers(inside, order)
        label, inside = _numbers(inside, order)
        name = label.tobytes().decode("latin-1")
        if name not in _PARTS:
            yield name, None
            continue
        kind = int(flags[0]) & 0xFF if flags.size == 2 else 0
        if kind not in (_SPARSE, *_FULL) or int(flags[0]) & _COMPLEX or sides.size != 2:
            raise ValueError(f"{name} is no matrix of real numbers")
        m, n = map(int, sides)
        if kind in _FULL:
            values, _ = _numbers(inside, order)
            yield name, values.reshape((m, n), order="F")
            continue
        row, inside = _numbers(inside, order)
        start, inside = _numbers(inside, order)
        values, _ = _numbers(inside, order)
        if row.dtype.kind == "f" or start.dtype.kind == "f" or start.size != n + 1:
            raise ValueError(f"{name} has no columns")
        row, start = row.astype(np.int64), start.astype(np.int64)
        if start[0] or (np.diff(start) < 0).any():
            raise ValueError(f"the columns of {name} do not follow each other")
        row, values = row[: start[-1]], values[: start[-1]]
        if not row.size == values.size == start[-1] or ((row < 0) | (row >= m)).any():
            raise ValueError(f"{name} has entries outside of its {m} rows")
        yield name, sp.csc_array((values.astype(float), row, start), (m, n))


def _element(data: memoryview, order: str) -> tuple[int, memoryview, memoryview]:
    """Return the type and bytes of the first element, and what follows it."""
    if len(data) < 8:
        raise ValueError("an element is cut off")
    kind, size = (int(v) for v in np.frombuffer(data[:8], f"{order}u4"))
    at, end = 8, 8 + size
    if kind >> 16:  # four bytes at most lie beside their type
        kind, size, at, end = kind & 0xFFFF, kind >> 16, 4, 8
    if size > len(data) - at or (at == 4 and size > 4):
        raise ValueError(f"an element of {size} bytes is longer than what holds it")
    whole = end if kind == _COMPRESSED else -(-end // 8) * 8
    return kind, data[at : at + size], data[whole:]


def _numbers(data: memoryview, order: str) -> tuple[Any, memoryview]:
    """Return the numbers of the first element, and what follows it."""
    kind, own, rest = _element(data, order)
    if kind not in _NUMBERS:
        raise ValueError(f"an element of type {kind} in place of numbers")
    return np.frombuffer(own, np.dtype(_NUMBERS[kind]).newbyteorder(cast("Any", order))), rest
