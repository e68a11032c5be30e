"""What is left of constraints at a solution: of each kind, by name and label, within and beyond."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest

import optfair as of


def test_every_kind_of_constraint_has_its_slack() -> None:
    x, t = cp.Variable(2, name="x"), cp.Variable(name="t")
    Z = cp.Variable((2, 2), name="Z", symmetric=True)
    rows = {
        "most": x <= [3, 4],
        "least": x >= [0, 1],
        "total": cp.sum(x) == 3,
        "ball": cp.norm(x) <= 5,
        "cone": cp.SOC(t + 1, x),
        "psd": Z - np.eye(2) >> 0,
        "exp": cp.ExpCone(x[0], t, x[1]),
        "pow": cp.PowCone3D(x[0], x[1], t, 0.5),
        "inside": cp.NonNeg(x + 1),
    }
    p = of.from_cvxpy(cp.Problem(cp.Minimize(t + cp.trace(Z)), list(rows.values())), list(rows))
    s = p.without("exp", "pow").solve()
    point = {"x": np.array([1.0, 4.0]), "t": 2.0, "Z": np.array([[3.0, 1.0], [1.0, 3.0]])}
    slack = replace(s, problem=p, values=point, proof=None).slack
    assert list(slack) == list(rows)
    expected = {
        "most": [2.0, 0.0],
        "least": [1.0, 3.0],
        "total": -2.0,
        "ball": 5.0 - np.sqrt(17.0),
        "cone": [3.0 - np.sqrt(17.0)],
        "psd": 1.0,
        "exp": 4.0 - 2.0 * np.exp(0.5),
        "pow": [0.0],
        "inside": [2.0, 5.0],
    }
    for name, value in expected.items():
        assert slack[name] == pytest.approx(np.array(value)), name
    with pytest.raises(of.DeclarationError, match="no value 'mst'"):
        slack["mst"]


def test_whole_numbers_have_slacks_and_files_have_them_by_label(tmp_path: Path) -> None:
    (tmp_path / "m.lp").write_text(
        "Maximize\n p: 3 a + b\nSubject To\n cap: 2 a + 3 b <= 7\n low: a - b >= -4\n"
        " both: -1 <= a + b <= 9\nBounds\n a <= 10\n b <= 10\nGeneral\n a b\nEnd\n"
    )
    s = of.read(tmp_path / "m.lp").solve()
    assert s.objective == pytest.approx(9.0)  # a = 3, b = 0
    assert float(s.slack["cap"]) == pytest.approx(1.0) and len(s.shadow_price) == 0
    assert float(s.slack["low"]) == pytest.approx(7.0)
    assert [float(s.slack[f"both {side}"]) for side in ("lower", "upper")] == pytest.approx([4, 6])


def test_models_of_the_library_have_slacks() -> None:
    s = of.library.load("textbook/diet_salt").problem().solve()
    active = np.abs(s.shadow_price["maximum nutrition"]) > 1e-9
    assert np.allclose(s.slack["maximum nutrition"][active], 0.0, atol=1e-6)
    assert (s.slack["maximum nutrition"] >= -1e-6).all()
