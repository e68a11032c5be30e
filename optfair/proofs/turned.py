r"""Programs with curved blocks in other coordinates, in which a face lies along the axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from optfair.proofs.cones import Cone, beside_diagonals
from optfair.proofs.faces import EXACT, last_digit
from optfair.proofs.rounding import ROOT, Floats

if TYPE_CHECKING:
    from optfair.solution.conic_form import ConicForm

# Rows of second-order cones up to which they are stated as matrices.
SHORT = 30


def turned(form: ConicForm, bases: Mapping[int, Floats]) -> ConicForm | None:
    r"""Return the program with some blocks in other coordinates.

    Of a block :math:`S \succeq 0` and integers T it has :math:`T^T S T \succeq 0`: what satisfies the
    one satisfies the other, and a face that lies across the axes lies along them where T has what
    it is orthogonal to among its columns. Of a second-order cone :math:`s_0 \ge \|s_1\|` and a vector
    of integers (n, -m) on its boundary, :math:`n = \|m\| > 0`, it has a matrix with
    :math:`n s_0 - m^T s_1` and then :math:`2 n s_0` on its diagonal, and :math:`n s_1 - m s_0` in
    its first line. It is semidefinite where :math:`\|n s_1 - m s_0\|^2 \le 2 n s_0 (n s_0 - m^T s_1)`,
    which is :math:`n^2 \|s_1\|^2 \le n^2 s_0^2`; where the first entry is 0, s is a multiple of (n, m).

    Parameters
    ----------
    form : ConicForm
        A program whose declared entries are known.
    bases : mapping
        Square matrices of integers, or vectors of second-order cones, by the number of the cone.

    Returns
    -------
    ConicForm or None
        None where a sum would be rounded.
    """
    if (plain := form.plain) is None:
        return None
    stated = sp.csr_array(sp.hstack([plain.rows, sp.csr_array(plain.b[:, None])]))
    parts, blocks, start = list[Any](), list[Cone](), 0
    for k, c in enumerate(plain.cones):
        cone, rows = c, stated[c.start : c.stop]
        if (T := bases.get(k)) is not None:
            made = _arrow(c, rows, T) if c.kind == "soc" else _congruent(c, rows, T)
            if made is None:
                return None
            cone, rows = made
        parts.append(rows)
        blocks.append(replace(cone, start=start, stop=start + rows.shape[0]))
        start = blocks[-1].stop
    both = sp.csr_array(sp.vstack(parts))
    A, b = sp.csc_array(both[:, :-1]), both[:, [-1]].toarray().ravel()
    entries = replace(plain, A=A, b=b, cones=tuple(blocks))
    cones = tuple(replace(c, root=ROOT) if c.kind == "psd" else c for c in blocks)
    root = np.where(beside_diagonals(cones, b.size), ROOT, 1.0)
    made_of = replace(form, A=sp.csc_array(sp.diags_array(root) @ A), b=root * b, cones=cones)
    object.__setattr__(made_of, "_plain", lambda: entries)
    return made_of


def _congruent(c: Cone, rows: Any, T: Floats) -> tuple[Cone, Any] | None:
    """Return a semidefinite block between integers."""
    if c.kind != "psd" or np.shape(T) != (c.order, c.order) or (np.round(T) != T).any():
        return None
    T = np.asarray(T, dtype=float)  # products of integers may overflow
    (i, j), place, n = c.places, np.arange(rows.shape[0]), c.order
    at = (np.r_[i * n + j, (j * n + i)[i != j]], np.r_[place, place[i != j]])
    full = sp.csr_array((np.ones(at[0].size), at), shape=(n * n, place.size))
    across = sp.kron(sp.csc_array(T), sp.csc_array(T), format="csc")[:, i * n + j].T @ full
    if not float((abs(across) @ abs(rows)).max()) < np.ldexp(EXACT, int(last_digit(rows.data))):
        return None
    rows = sp.csr_array(across @ rows)
    rows.eliminate_zeros()
    return c, rows


def _arrow(c: Cone, rows: Any, v: Floats) -> tuple[Cone, Any] | None:
    """Return a second-order cone as a matrix, a vector on its boundary as what its first entry is."""
    size = rows.shape[0]
    if not 2 <= size <= SHORT or np.shape(v) != (size,) or (np.round(v) != v).any():
        return None
    n, *m = (int(w) for w in v.tolist())
    if not n > 0 or n * n != sum(w * w for w in m):
        return None
    own = Cone("psd", 0, size * (size + 1) // 2, size, root=2.0)
    of: list[dict[int, int]] = []
    for i, j in zip(*(at.tolist() for at in own.places), strict=True):
        if i == j:
            of.append({k: int(w) for k, w in enumerate(v.tolist()) if w} if i == 0 else {0: 2 * n})
        else:  # m has the other sign in v
            of.append({max(i, j): n, 0: int(v[max(i, j)])} if min(i, j) == 0 else {})
    start, columns, numbers = rows.indptr.tolist(), rows.indices.tolist(), rows.data.tolist()
    data, indices, ends = list[float](), list[int](), [0]
    for weights in of:
        total: dict[int, Fraction] = {}
        for k, w in weights.items():
            for at in range(start[k], start[k + 1]):
                total[columns[at]] = total.get(columns[at], Fraction(0)) + w * Fraction(numbers[at])
        total = {j: value for j, value in total.items() if value}
        if any(Fraction(float(value)) != value for value in total.values()):
            return None
        data += map(float, total.values())
        indices += total
        ends.append(len(data))
    return own, sp.csr_array((data, indices, ends), shape=(len(of), rows.shape[1]))
