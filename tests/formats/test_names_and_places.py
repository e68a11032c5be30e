"""Files that exist are written over or kept, as was said; rows have their labels in every format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cvxpy as cp
import pytest

import optfair as of


def small() -> Any:
    x = cp.Variable(2, name="x")
    return of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= 1]), ["least"])


def test_an_export_writes_over_a_file_unless_it_is_told_not_to(tmp_path: Path) -> None:
    p = small()
    for name in ("p.mps", "p.lp.gz", "p.cbf", "p.dat-s"):
        file = tmp_path / name
        file.write_bytes(b"old")
        with pytest.raises(of.DataError, match="exists"):
            p.export(file, overwrite=False)
        assert file.read_bytes() == b"old"
        p.export(file)
        assert of.read(file).solve().objective == pytest.approx(2.0)
        p.export(tmp_path / f"new {name}", overwrite=False)


def test_rows_keep_their_labels_in_every_format(tmp_path: Path) -> None:
    x = cp.Variable((2, 2), name="ship", nonneg=True)
    rows = [cp.sum(x, axis=0) >= [1, 2], x <= 5, cp.sum(x) <= 9]
    p = of.from_cvxpy(
        cp.Problem(cp.Minimize(cp.sum(x[0]) + 2 * cp.sum(x[1])), rows), ["need", "cap", "all"]
    )
    p = p.with_labels(ship=(["a", "b"], ["c", "d"]), need=["c", "d"])
    for name in ("p.mps", "p.lp", "p.cbf", "p.dat-s"):
        p.export(tmp_path / name)
        s = of.read(tmp_path / name).solve()
        assert list(s.frame("need").index) == ["c", "d"]
        assert s.shadow_price["need[d]"] == pytest.approx(1.0)
        assert s.shadow_price["cap[1,1]"] == pytest.approx(0.0) == s.shadow_price["all"]


def test_what_is_saved_stays_unless_it_is_to_be_written_over(tmp_path: Path) -> None:
    s = small().solve()
    better = small().with_constraints(more=cp.Constant(0) <= 1).solve()
    saves: list[tuple[Callable[..., None], str]] = [
        (s.save, "s.npz"),
        (s.certificate.save, "s.json"),
        (of.cone_program(small()).save, "c.npz"),
    ]
    for save, name in saves:
        file = tmp_path / name
        file.write_bytes(b"old")
        with pytest.raises(of.DataError, match=f"{name} exists.*\n.*overwrite=True"):
            save(file)
        assert file.read_bytes() == b"old"
        save(file, overwrite=True)
        assert file.read_bytes() != b"old"
    assert of.load_solution(tmp_path / "s", small()).grade.word == "proved"
    assert of.load_proof(tmp_path / "s.json").verify()
    better.save(tmp_path / "s", overwrite=True)
    with pytest.raises(of.OptfairError, match="overwrite"):
        s.save(tmp_path / "s", overwrite="yes")  # type: ignore[arg-type]


def test_what_is_no_model_or_no_proof_is_said(tmp_path: Path) -> None:
    s = small().solve()
    s.certificate.save(tmp_path / "p.json")
    s.save(tmp_path / "s")
    for name in ("p.json", "s.npz"):
        with pytest.raises(of.DataError, match=f"{name} holds no model(.*\n)*.*load_proof"):
            of.read(tmp_path / name)
    small().export(tmp_path / "p.lp")
    with pytest.raises(of.DataError, match=r"p\.lp is no proof file(.*\n)*.*optfair prove"):
        of.load_proof(tmp_path / "p.lp")
