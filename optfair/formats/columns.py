"""The columns of a file as entries of CVXPY variables."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import scipy.sparse as sp

from optfair.formats.entry_names import Family

__all__ = ["Columns", "Products"]

#: coefficient of x_i x_j by (i, j), each pair i <= j once
Products = dict[tuple[int, int], float]


class Columns:
    """Columns in the order of a file, and the variables that hold them.

    Parameters
    ----------
    groups : list of Family
        Which columns form which array.
    variables : list of cvxpy.Variable
        One per group.
    """

    def __init__(self, groups: list[Family], variables: list[Any]) -> None:
        self.groups, self.variables = groups, variables
        self.flat = [
            cp.vec(v, order="F") if v.shape else cp.reshape(v, (1,), order="F") for v in variables
        ]
        size = sum(g.members.size for g in groups)
        self.group = np.zeros(size, dtype=np.int64)
        self.position = np.zeros(size, dtype=np.int64)
        for k, g in enumerate(groups):
            self.group[g.members] = k
            self.position[g.members] = np.arange(g.members.size)

    def times(self, matrix: Any) -> Any:
        """Return matrix @ columns."""
        csc = sp.csc_array(matrix)
        parts = []
        for g, flat in zip(self.groups, self.flat, strict=True):
            block = sp.csr_array(csc[:, g.members])
            if block.nnz:
                parts.append(block @ flat)
        if parts:
            return sum(parts)
        if not self.flat:
            return cp.Constant(np.zeros(csc.shape[0]))
        # a row without entries is still a row
        return sp.csr_array((csc.shape[0], self.flat[0].size)) @ self.flat[0]

    def quadratic(self, products: Products) -> Any:
        """Return the sum of coefficient * x_i * x_j as one quadratic form."""
        used = sorted({k for pair in products for k in pair})
        groups = sorted({int(self.group[k]) for k in used})
        sizes = np.cumsum([0, *(self.flat[k].size for k in groups)])
        start = dict(zip(groups, sizes, strict=False))
        at = {k: int(start[int(self.group[k])] + self.position[k]) for k in used}
        z = self.flat[groups[0]] if len(groups) == 1 else cp.hstack([self.flat[k] for k in groups])
        i = np.array([at[a] for a, _ in products])
        j = np.array([at[b] for _, b in products])
        value = np.array(list(products.values()))
        half = sp.coo_array((value / 2.0, (i, j)), shape=(z.size, z.size))
        return cp.quad_form(z, sp.csc_array(half + half.T))
