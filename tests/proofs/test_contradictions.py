"""Where contradictions begin: at rows that meet in one point none, a number further one."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from optfair.proofs import bounds
from optfair.proofs.cones import Cone
from optfair.proofs.contradictions import infeasibility
from optfair.solution.conic_form import ConicForm


def rows(A: Any, b: Any, cones: tuple[Cone, ...] = ()) -> ConicForm:
    A, b = sp.csc_array(np.asarray(A, dtype=float)), np.asarray(b, dtype=float)
    n = A.shape[1]
    cones = cones or (Cone("nonneg", 0, b.size),)
    return ConicForm(sp.csc_array((n, n)), np.zeros(n), 0.0, A, b, cones)


@pytest.mark.parametrize("unit", [2.0**-40, 1.0, 3.0])
@pytest.mark.parametrize("level", [0.0, 1.0, 0.1])
def test_rows_that_meet_in_a_point_do_not_contradict_each_other(level: float, unit: float) -> None:
    for low, proved in ((-1.0, False), (level, False), (level + 1e-14, True)):
        form = rows([[-1.0], [1.0]], [-low, level])  # low <= x <= level
        found = infeasibility(form, np.array([unit, unit]))
        assert found.proved == proved
        assert found.fault == ("" if found.proved else "its rows do not contradict each other")


def test_no_point_is_within_the_radius_and_one_is_just_beyond() -> None:
    # x + y >= 3 and (1 - e) x + y <= 1 where x >= 2 / e
    for slope in (2.0**-10, 2.0**-30, 1e-12):
        form = rows([[-1.0, -1.0], [1.0 - slope, 1.0]], [-3.0, 1.0])
        found = infeasibility(form, np.array([1.0, 1.0]), repair=False)
        assert not found.proved and found.columns is not None and found.columns.tolist() == [0]
        assert 1.0 - 1e-6 <= found.radius * (1.0 - form.A[1, 0]) / 2.0 <= 1.0


@pytest.mark.parametrize(
    ("slope", "excludes"), [(2.0**-48, False), (2.0**-50, False), (2.0**-52, True)]
)
def test_numbers_from_1e15_on_are_none_of_a_point_but_may_be_some_of_its_squares(
    slope: float, excludes: bool
) -> None:
    # x + y >= 3 and (1 - e) x + y <= 1 where x >= 2 / e
    form = rows([[-1.0, -1.0], [1.0 - slope, 1.0]], [-3.0, 1.0])
    for columns, counts in (({"x": slice(0, 2)}, excludes), ({"y": slice(1, 2)}, False)):
        own = infeasibility(replace(form, columns=columns), np.array([1.0, 1.0]), repair=False)
        assert own.excludes == counts and not own.proved
        assert 0.9 * own.radius <= 2.0 / slope <= 1.1 * own.radius
    for unit in (2.0**10, 2.0**40):  # 1e15 is no more in units of 1e12 than 1e3 in those of 1
        form = rows([[-1.0, -1.0], [1.0 - slope, 1.0]], [-3.0 * unit, unit])
        form = replace(form, columns={"x": slice(0, 2)})
        own = infeasibility(form, np.array([1.0, 1.0]), repair=False)
        assert own.excludes == (slope == 2.0**-52) and own.radius >= 1e15 * unit / 8
    assert infeasibility(rows([[-1.0], [1.0]], [-2.0, 1.0]), np.ones(2)).excludes


@pytest.mark.parametrize("z", [[1.0, np.inf], [np.nan, 1.0], [-np.inf, np.inf], [1.0]])
def test_what_is_no_vector_proves_nothing(z: list[float]) -> None:
    found = infeasibility(rows([[-1.0], [1.0]], [-2.0, 1.0]), np.array(z))
    assert not found.proved and found.radius == 0.0
    assert found.fault == "it is not a finite vector with an entry per row"


def test_each_candidate_in_other_units_is_tried_and_the_vector_itself() -> None:
    right, wrong = np.array([1.0, 1.0]), np.array([1.0, 0.0])

    def proved(z: Any, *candidates: Any) -> bool:
        form = rows([[-1.0], [1.0]], [-2.0, 1.0])
        same = SimpleNamespace(
            form=rows([[-4.0], [4.0]], [-8.0, 4.0]), candidates=lambda _: candidates
        )
        form.__dict__["same"] = (same, 4.0)
        return infeasibility(form, z).proved

    assert proved(wrong, wrong, right) and proved(right, wrong) and proved(wrong, right)
    assert not proved(wrong, wrong) and not proved(wrong)


def test_what_a_file_cannot_say_again_is_no_part_of_a_contradiction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none(*_: Any) -> Any:
        raise AssertionError("bounds of columns by each other are in no file")

    monkeypatch.setattr(bounds, "mutual_bounds", none)
    cones = (Cone("nonneg", 0, 1), Cone("soc", 1, 3))
    form = rows([[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]], [-1.0, 0.0, 0.0], cones)
    # x >= |y| and x + y <= -1: the first multipliers leave something in y, the others nothing
    found = infeasibility(form, np.array([1.0, 1.0, 0.5]))
    assert not found.proved and found.columns is not None and found.columns.tolist() == [1]
    assert infeasibility(form, np.array([1.0, 1.0, 1.0])).proved


def test_a_radius_beyond_the_floats_is_not_everywhere() -> None:
    # x = 3 / 5e-324 solves both rows
    form = rows([[5e-324], [1e-323]], [3.0, 6.0], (Cone("zero", 0, 2),))
    proof = infeasibility(form, np.array([-0.5, -0.5]), repair=False)
    assert proof.radius < np.inf and not proof.excludes and not proof.proved
