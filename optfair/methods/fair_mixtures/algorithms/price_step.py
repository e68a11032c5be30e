"""One step of the prices: the rules against a quadratic model of the rows, in a box of prices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from optfair.backends.cone_program import solve_cone_program
from optfair.methods.fair_clustering.algorithms.program import MassProgram
from optfair.methods.fair_mixtures.algorithms.log_rows import MassPass
from optfair.proofs.cones import Cone

Floats = NDArray[np.float64]

__all__ = ["PriceStep", "only_equations", "price_step"]

# Least damping of the equations' Newton matrix, relative to its largest eigenvalue.
RANK = 1e-14


@dataclass(frozen=True, eq=False)
class PriceStep:
    """Masses, auxiliaries and multipliers of the model.

    Attributes
    ----------
    y, z : arrays
        Masses and auxiliaries, and the multipliers of the rules.
    inside : bool
        Whether the box of prices was not active: the step is Newton's.
    """

    y: Floats
    z: Floats
    inside: bool


def price_step(
    program: MassProgram,
    point: MassPass,
    prices: Floats,
    radius: float,
    z: Floats | None,
    time_limit: float = np.inf,
) -> PriceStep | None:
    r"""Maximise the dual with the rows' part replaced by its quadratic model, None if that fails.

    .. math::
        \min_{M, d, s}\; h(M) - \langle\hat\Lambda, M\rangle + \tfrac12 d^T H d + r \|s\|_1
        \quad\text{s.t.}\quad M = \hat M - H d + s,\; \text{rules}(M),\; M 1 = \pi,\; s \text{ free}

    The multiplier of the definition of M is the step of the prices, and r bounds it: the dual
    of a slack is a box. So the model has a solution however far the masses are from the rules.
    Signs of M are left out: masses of responsibilities have them anyway, and their multipliers
    are no part of the prices, which they would leave undetermined where a rule forces a 0.

    Parameters
    ----------
    program : MassProgram
        The rules.
    point : MassPass
        Masses and curvature at the current prices.
    prices : array (G, K)
        Current prices.
    radius : float
        Half the side of the box.
    z : array or None
        Multipliers of the rules whose prices are the current ones, where they are known.
    time_limit : float
        Seconds.
    """
    if only_equations(program):
        return _equations(program, point, radius, z)
    return _model(program, point, prices, radius, time_limit)


def only_equations(program: MassProgram) -> bool:
    """Whether all rules are equations in the masses alone, with a linear objective."""
    form = program.form
    zero = all(c.kind == "zero" for c in form.cones)
    return zero and form.P.nnz == 0 and form.q.size == program.masses.size


def _equations(
    program: MassProgram, point: MassPass, radius: float, z: Floats | None
) -> PriceStep | None:
    """Newton's step where all rules are equations: a linear system, no solver.

    The prices are linear in z there, and the dual is smooth in z.
    """
    form = program.form
    z = np.zeros(form.b.size) if z is None else z
    y = np.zeros(form.q.size)
    y[program.masses] = point.masses
    if not form.b.size:
        return PriceStep(y, z, True)
    B = form.A[:, program.masses.ravel()].toarray()
    G, K = program.masses.shape
    blocks = np.asarray(point.curvature)
    BH = np.einsum("mgk,gkl->mgl", B.reshape(-1, G, K), blocks).reshape(B.shape)
    values, vectors = np.linalg.eigh(BH @ B.T)
    # equations may follow from others, and rows that are all but hard have no curvature
    damping = max(float(values[-1]), np.finfo(float).tiny) * RANK
    along = vectors.T @ (form.A @ y - form.b)
    inside = True
    while True:
        step = vectors @ (along / (np.maximum(values, 0.0) + damping))
        if np.abs(B.T @ step).max() <= radius:
            return PriceStep(y, z + step, inside)
        inside, damping = False, 2.0 * damping


def _model(
    program: MassProgram, point: MassPass, prices: Floats, radius: float, time_limit: float
) -> PriceStep | None:
    """Solve the model as a cone program in (y, d, s+, s-), rows of a group in group fractions."""
    form = program.form
    G, K = program.masses.shape
    gk, ny = G * K, form.q.size
    size = ny + 3 * gk
    unit = np.repeat(program.shares, K)  # small groups count as much as large ones
    curvature = [sp.csc_array(block) for block in np.asarray(point.curvature)]
    H = sp.block_diag(curvature, format="csc")
    position = program.masses.ravel()
    masses = sp.csc_array((1.0 / unit, (np.arange(gk), position)), shape=(gk, ny))
    even = sp.diags_array(1.0 / unit)
    eye = sp.eye_array(gk)
    definition = sp.hstack([masses, even @ H, -eye, eye])
    rows, shares = program.simplex_rows()
    simplex = sp.hstack([sp.diags_array(1.0 / shares) @ rows, sp.csc_array((G, 3 * gk))])
    rules = sp.hstack([form.A, sp.csc_array((form.b.size, 3 * gk))])
    slacks = 2 * gk
    signs = sp.hstack([sp.csc_array((slacks, ny + gk)), -sp.eye_array(slacks)])
    q = np.zeros(size)
    q[:ny] = form.q
    q[position] -= prices.ravel()
    q[ny + gk :] = radius * np.tile(unit, 2)
    equal = gk + G
    shift = equal + slacks
    cones = (
        Cone("zero", 0, equal),
        Cone("nonneg", equal, shift),
        *(
            Cone(c.kind, c.start + shift, c.stop + shift, c.order, c.upper, c.power)
            for c in form.cones
        ),
    )
    result = solve_cone_program(
        sp.block_diag([form.P, H, sp.csc_array((slacks, slacks))], format="csc"),
        q,
        sp.vstack([definition, simplex, signs, rules], format="csc"),
        np.concatenate([point.masses.ravel() / unit, np.ones(G), np.zeros(slacks), form.b]),
        cones,
        time_limit=time_limit,
    )
    if result.status != "optimal":
        return None
    slack = result.x[ny + gk :].max(initial=0.0)
    return PriceStep(result.x[:ny], result.z[shift:], bool(slack <= 1e-9))
