"""What belongs to the same rows is refused where their index is in another order, everywhere."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import optfair as of

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER))

from calls import Call, calls  # noqa: E402

# Arguments that have no row for each of the others: rows of other data, centers, blocks, arcs.
OTHER = {"candidates", "centers", "counterfactuals", "coupling", "means", "second", "b"}
# Problems of matrices, which rows are no records.
MATRICES = {"ChebyshevCenter", "ClusterCounterfactual.gaussian"}


def of_rows(call: Call) -> dict[str, Any]:
    """Return the arguments of a call that have a row for each row of the first of them."""
    tables = {
        k: np.asarray(v)
        for k, v in call.good.items()
        if isinstance(v, np.ndarray) and k not in OTHER
    }
    tables = {k: v for k, v in tables.items() if v.ndim in (1, 2) and v.dtype.kind in "ifbU"}
    first = next(iter(tables.values()), np.zeros(0))
    return {k: v for k, v in tables.items() if len(v) == len(first) >= 3}


def framed(values: Any, index: list[str]) -> Any:
    return (pd.Series if values.ndim == 1 else pd.DataFrame)(values, index=index)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_rows_of_another_order_are_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = 0
    for call in calls():
        rows = of_rows(call)
        if len(rows) < 2 or call.name in MATRICES:
            continue
        index = [f"row {i}" for i in range(len(next(iter(rows.values()))))]
        given = {k: framed(v, index) for k, v in rows.items()}
        first, *others = given
        for name in others:
            turned = {**given, name: framed(rows[name], index[::-1])}
            with pytest.raises(of.DataError, match="in another order") as error:
                call.function(**{**call.good, **turned})
            assert f"{name} " in f"{error.value.cause} ", call.name
            assert ".loc[" in error.value.remedy
            # two of three know each other where the first has no index
            if len(others) > 1:
                bare = {**turned, first: rows[first]}
                with pytest.raises(of.DataError, match="in another order"):
                    call.function(**{**call.good, **bare})
            asked += 1
    assert asked > 40
