"""Programs with smaller blocks, on the face of their multipliers, in the entries that were declared."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.proofs.faces import on_face, products
from optfair.proofs.rounding import Floats

if TYPE_CHECKING:
    from optfair.solution.conic_form import ConicForm


@dataclass(frozen=True, eq=False)
class Narrowed:
    r"""A program with :math:`V^T S V` in place of blocks S, in the entries that were declared.

    Attributes
    ----------
    form : ConicForm
        The smaller program.
    z : array
        Multipliers of its rows; those of a smaller block are those of W.
    rows : array
        The row of the program that each row is, -1 in smaller blocks.
    bases : dict
        Integers V by the first row of the smaller block, with the first row of the block.
    """

    form: ConicForm
    z: Floats
    rows: NDArray[np.intp]
    bases: dict[int, tuple[int, Floats]]

    @classmethod
    def of(cls, form: ConicForm, z: Floats, plain: ConicForm, factors: Floats) -> Narrowed | None:
        """Return a program on the face that multipliers lie in, if only matrices have one.

        Parameters
        ----------
        form, z : ConicForm, array (m,)
            The program as compiled, and its multipliers.
        plain, factors : ConicForm, array (m,)
            The program in the entries that were declared, and what multipliers are multiplied by.
        """
        face = on_face(form, z)
        if face is None or any(form.cones[k].kind != "psd" for k in face.bases):
            return None
        parts, own, cones, rows, at, bases = [], [], [], [], 0, {}
        every = sp.eye_array(z.size, format="csr")
        for k, c in enumerate(plain.cones):
            here = np.arange(c.start, c.stop)
            if (V := face.bases.get(k)) is None:
                parts.append(every[here])
                own.append((factors * z)[here])
            else:
                bases[at] = c.start, V
                inner = face.form.cones[k]
                c = replace(c, order=V.shape[1], upper=True)
                p, q = c.places
                parts.append(products(plain.cones[k], V, c) @ every[here])
                W = inner.matrix(face.z[inner.start : inner.stop])[p, q]
                own.append(np.where(p == q, W, c.root * W))
                here = np.full(p.size, -1)
            rows.append(here)
            cones.append(replace(c, start=at, stop=at + here.size))
            at += here.size
        across = sp.csr_array(sp.vstack(parts))
        A, b = sp.csc_array(across @ plain.A), np.asarray(across @ plain.b, dtype=float)
        small = replace(plain, A=A, b=b, cones=tuple(cones))
        return cls(small, np.concatenate(own), np.concatenate(rows), bases)

    def whole(self, record: dict[str, Any], m: int) -> dict[str, Any] | None:
        """Return the record of a leaf as one of the program of m rows, if its steps have rows there."""
        old = np.append(self.rows, m)  # the last is the cut
        steps = [[int(old[i]), *rest] for i, *rest in record["steps"]]
        if any(i < 0 for i, *_ in steps):
            return None
        multipliers: list[Any] = [0] * m
        faces: list[Any] = []
        for c in self.form.cones:
            values = record["multipliers"][c.start : c.stop]
            if c.start in self.bases:
                row, V = self.bases[c.start]
                lines = [[[int(i), int(v[i])] for i in np.flatnonzero(v)] for v in V.T]
                faces.append([row, lines, values])
                continue
            for i, v in zip(self.rows[c.start : c.stop].tolist(), values, strict=True):
                multipliers[i] = v
        return record | {"steps": steps, "multipliers": multipliers, "faces": faces}
