"""CBF against another reader: an optimal point lies in the cones as MOSEK defines them."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import optfair as of
from optfair.backends.cone_program import solve_cone_program
from optfair.compile.export import cone_program
from optfair.formats.files import export

mosek = importlib.import_module("mosek")

CASES = [
    "textbook/chebyshev_triangle",
    "textbook/dice_entropy",
    "textbook/max_cut_pentagon",
    "textbook/nearest_correlation",
    "textbook/smallest_ball",
    "textbook/cobb_douglas",
    "textbook/minimum_variance",
    "fair_clustering/german_bound",
]


def outside(kind, s, power):
    """How far s is outside a domain, by the definitions of MOSEK's manual."""
    t = mosek.domaintype
    if kind == t.rzero:
        return np.abs(s).max()
    if kind == t.rplus:
        return max(0.0, -s.min())
    if kind == t.rminus:
        return max(0.0, s.max())
    if kind == t.quadratic_cone:
        return max(0.0, np.linalg.norm(s[1:]) - s[0])
    if kind == t.primal_exp_cone:
        return max(0.0, s[1] * np.exp(s[2] / s[1]) - s[0])
    if kind == t.primal_power_cone:
        return max(0.0, abs(s[2]) - s[0] ** power[0] * s[1] ** power[1])
    assert kind == t.svec_psd_cone
    n = int((np.sqrt(8 * s.size + 1) - 1) / 2)
    matrix = np.zeros((n, n))
    columns, rows = np.triu_indices(n)  # lower triangle, column by column
    matrix[rows, columns] = s / np.where(rows == columns, 1.0, np.sqrt(2.0))
    return max(0.0, -np.linalg.eigvalsh(matrix + np.tril(matrix, -1).T)[0])


@pytest.mark.parametrize("name", CASES)
def test_optimum_lies_in_mosek_cones(name, tmp_path):
    instance = of.library.load(name)
    p = instance.problem()
    c = cone_program(p, quadratic=False)
    x = solve_cone_program(c.P, c.q, c.A, c.b, c.cones).x
    export(p, tmp_path / "p.cbf")
    checked = 0
    with mosek.Env() as env, env.Task() as task:
        task.readdata(str(tmp_path / "p.cbf"))
        cost = np.zeros(x.size)
        task.getc(cost)
        assert cost @ x + task.getcfix() == pytest.approx(instance.optimum.value, abs=1e-5)
        task.putxx(mosek.soltype.itr, x)
        for k in range(task.getnumacc()):
            size, domain = task.getaccn(k), task.getaccdomain(k)
            s = np.zeros(size)
            task.evaluateacc(mosek.soltype.itr, k, s)
            kind = task.getdomaintype(domain)
            power = np.zeros(2)
            if kind == mosek.domaintype.primal_power_cone:
                task.getpowerdomainalpha(domain, power)
                power /= power.sum()
            assert outside(kind, s, power) <= 1e-6 * (1.0 + np.abs(s).max())
            if kind == mosek.domaintype.primal_exp_cone:
                # on the boundary, as the optimum is: another order of the entries would not be
                assert outside(kind, s * np.r_[1 - 1e-2, np.ones(size - 1)], power) > 0.0
            checked += size
    assert checked == c.b.size
