"""Names along axes: in frames, in files, and where a model knows them."""

from __future__ import annotations

import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import optfair as of
from optfair.core import labels

pd = pytest.importorskip("pandas")

TOWNS, MARKETS = ["Bonn", "Ulm", "Kiel"], ["north", "south"]


def transport() -> Any:
    x = cp.Variable((3, 2), name="ship")
    cost = np.array([[1.0, 4.0], [3.0, 1.0], [2.0, 5.0]])
    rows = [cp.sum(x, axis=1) <= [5, 5, 5], cp.sum(x, axis=0) >= [6, 3], x >= 0]
    goal = cp.Minimize(cp.sum(cp.multiply(cost, x)))
    return of.from_cvxpy(cp.Problem(goal, rows), ["supply", "demand", "sign"])


def test_values_and_prices_come_back_labelled() -> None:
    p = transport()
    q = p.with_labels(ship=(TOWNS, MARKETS), supply=TOWNS, demand=pd.Index(MARKETS, name="market"))
    s = q.solve()
    ship = s.frame("ship")
    assert list(ship.index) == TOWNS and list(ship.columns) == MARKETS
    np.testing.assert_array_equal(ship.to_numpy(), s["ship"])
    demand = s.frame("demand")
    assert demand.index.name == "market" and list(demand.index) == MARKETS
    np.testing.assert_array_equal(demand["demand"], s.shadow_price["demand"])
    # what has none is numbered, and the problem before knows none
    assert list(s.frame("sign").index) == [0, 1, 2]
    assert list(p.solve().frame("ship").columns) == [0, 1]
    # a child, and what travelled, keep them
    child = q.with_constraints(most=q["ship"] <= 4).solve()
    again = pickle.loads(pickle.dumps(child))
    for one in (child, again):
        assert one.frame("ship").loc["Bonn", "north"] <= 4.0 + 1e-6


def test_frames_and_coordinates_give_their_labels() -> None:
    p = transport()
    table = pd.DataFrame(np.zeros((3, 2)), index=pd.Index(TOWNS, name="town"), columns=MARKETS)
    assert [a.labels for a in p.with_labels(ship=table).axes("ship")] == [
        tuple(TOWNS),
        tuple(MARKETS),
    ]
    assert p.with_labels(demand=pd.Series([1, 2], index=MARKETS)).axes("demand")[0].labels == (
        "north",
        "south",
    )
    # xarray's words: dims, coords, and coordinates with dims of their own
    town = SimpleNamespace(dims=("town",), values=np.array(TOWNS), coords={})
    array = SimpleNamespace(dims=("town", "market"), coords={"town": town})
    first, second = p.with_labels(ship=array).axes("ship")
    assert first.name == "town" and first.labels == tuple(TOWNS) and second is None


def test_files_carry_them(tmp_path: Path) -> None:
    p = transport().with_labels(ship=(TOWNS, MARKETS), demand=MARKETS)
    file = tmp_path / "ship.lp"
    p.export(file)
    text = file.read_text()
    assert "3 ship(Ulm,north)" in text and "demand(south):" in text
    again = of.read(file)
    assert again.solve().objective == pytest.approx(p.solve().objective)
    assert of.cone_program(p).columns[:2] == ("ship[Bonn,north]", "ship[Ulm,north]")


def test_ranges_carry_them() -> None:
    s = transport().with_labels(ship=(TOWNS, MARKETS), demand=MARKETS).solve()
    r = of.sensitivity(s)
    assert [one.label for one in r["demand"]] == MARKETS
    assert {"Bonn, north", "Kiel, south"} <= {one.label for one in r["ship"]}
    assert "demand[north]" in repr(r) and list(r.frame()["label"])[:3] == ["0", "1", "2"]


def test_signs_and_bounds_have_the_labels_of_their_variable() -> None:
    x = cp.Variable((2, 2), name="ship", nonneg=True)
    y = cp.Variable(2, name="y", bounds=[np.array([0.0, -np.inf]), np.array([1.0, 2.0])])
    goal = cp.Minimize(cp.sum(x) - cp.sum(y))
    p = of.from_cvxpy(cp.Problem(goal, [cp.sum(x, axis=0) >= 1]), ["need"])
    p = p.with_labels(ship=(TOWNS[:2], MARKETS), y=["a", "b"])
    s = p.solve()
    assert list(s.frame("ship nonnegative").index) == TOWNS[:2]
    assert list(s.frame("y upper").index) == ["a", "b"] and p.axes("y lower") == ()
    own = p.with_labels({"y upper": ["c", "d"], "y": ["e", "f"]})
    assert list(own.solve().frame("y upper").index) == ["c", "d"]


def test_a_diagnosis_says_labels() -> None:
    x = cp.Variable(2, name="x")
    rows = {"need": x >= [1, 4], "most": x <= [5, 1]}
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x[0]), list(rows.values())), list(rows))
    p = p.with_labels(x=["rye", "oat"], need=["rye", "oat"])
    assert "3 at [oat]" in [row[2] for row in p.diagnose()["relaxation"].rows]
    free = of.from_cvxpy(cp.Problem(cp.Minimize(x[1]), [x[0] >= 1])).with_labels(x=["rye", "oat"])
    assert "along x[oat] = -1 it falls" in str(free.diagnose()["ray"])


def test_what_does_not_fit_is_refused() -> None:
    p = transport()
    for bad, cause in (
        ({"ship": (TOWNS, ["a", "a"])}, "1 different labels"),
        ({"ship": (TOWNS, ["a", "b", "c"])}, "3 different labels for the 2"),
        ({"ship": (TOWNS,)}, "has 2 axes, and labels are given for 1"),
        ({"shipp": TOWNS}, "nothing is called"),
        ({"demand": "ab"}, "are one text"),
    ):
        with pytest.raises(of.DeclarationError, match=cause):
            p.with_labels(bad)
    with pytest.raises(of.DeclarationError, match="no value or price 'shipp'"):
        p.solve().frame("shipp")


def test_models_know_their_own() -> None:
    s = of.library.load("textbook/diet").problem().solve()
    assert s.frame("servings").loc["macaroni and cheese", "servings"] == pytest.approx(46.666667)
    assert list(s.frame("minimum nutrition").index) == ["A", "C", "B1", "B2"]
    table = pd.DataFrame([[1.0, 2.0], [2.0, 1.0]], index=["fat", "salt"], columns=["egg", "rice"])
    p = of.textbook.Diet(cost=[2.0, 3.0], nutrition=table, minimum=[4.0, 5.0])
    assert list(p.solve().frame("servings").index) == ["egg", "rice"]
    with pytest.raises(of.DeclarationError, match="labels for the 2"):
        of.textbook.Diet(cost=[2.0, 3.0], nutrition=np.eye(2), minimum=[4.0, 5.0], foods=["egg"])
    X, sex = of.datasets.load("german_credit").numeric("sex", standardize=True)
    fair = of.FairAssignment(X[:60], groups=sex[:60], centers=X[:3]).solve()
    assert list(fair.frame("masses").index) == fair.problem.group_names.tolist()
    assert fair.frame("masses").index.name == "group"
    assert fair.frame("assignment").shape == (60, 3)


def test_entries_are_read_by_label() -> None:
    p = transport().with_labels(ship=(TOWNS, MARKETS), demand=MARKETS)
    s = p.solve()
    town, market = TOWNS[1], MARKETS[0]
    assert s[f"ship[{town},{market}]"] == s[f"ship[{town}, {market}]"] == s["ship"][1, 0]
    assert s.shadow_price[f"demand[{market}]"] == s.shadow_price["demand"][0]
    assert s.slack[f"demand[{market}]"] == s.slack["demand"][0]
    again = pickle.loads(pickle.dumps(s))
    assert again[f"ship[{town},{market}]"] == s["ship"][1, 0] and again.is_optimal()
    with pytest.raises(of.DeclarationError, match="no value 'ship\\[nowhere\\]'"):
        s["ship[nowhere]"]


def test_an_integer_problem_says_why_it_has_no_prices() -> None:
    x = cp.Variable(2, name="x", integer=True)
    s = of.from_cvxpy(
        cp.Problem(cp.Maximize([2, 1] @ x), [x >= 0, [3, 2] @ x <= 8]), ["sign", "cap"]
    ).solve()
    for read in (s.shadow_price.__getitem__, s.frame):
        with pytest.raises(of.DeclarationError, match="no value 'cap'") as error:
            read("cap")
        assert "relax_integrality" in error.value.remedy
    relaxed = of.transforms.relax_integrality(s.problem).problem
    fixed = relaxed.with_constraints(fixed=s.problem["x"] == s["x"]).solve()
    assert fixed.objective == pytest.approx(s.objective) and "cap" in fixed.shadow_price
    assert repr(s.slack).startswith("{'sign': array(")


def test_labels_of_an_array_are_made_once_for_all_its_entries(monkeypatch: Any) -> None:
    x = cp.Variable((3, 4), name="ship", nonneg=True)
    need = np.arange(12.0).reshape(3, 4)
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= need]), ["need"])
    s = p.with_labels(ship=(["a", "b", "c"], ["k", "l", "m", "n"])).solve()
    made, names = [], labels.entry_names

    def counted(*given: Any) -> Any:
        made.append(given[0])
        return names(*given)

    monkeypatch.setattr(labels, "entry_names", counted)
    values = s.values
    own = [[values[f"ship[{i}, {j}]"] for j in "klmn"] for i in "abc"]
    assert own == pytest.approx(need, abs=1e-6) and made == ["ship"]
    assert values["ship[c,n]"] == pytest.approx(11.0) and values.get("ship[d,k]") is None


def test_what_a_model_knows_is_read_by_label() -> None:
    s = of.library.load("textbook/diet").problem().solve()
    food = s.frame("servings").index[4]
    assert s[f"servings[{food}]"] == s["servings"][4] > 0.0
    nutrient = s.frame("minimum nutrition").index[0]
    price = s.shadow_price[f"minimum nutrition[{nutrient}]"]
    assert price == s.shadow_price["minimum nutrition"][0]
    with pytest.raises(of.DeclarationError, match=r"no value .servings\[nothing"):
        s["servings[nothing]"]


def test_a_name_may_have_brackets_itself() -> None:
    x = cp.Variable(2, name="x[a]")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= [1, 2]]))
    assert p.with_labels({"x[a]": ["u", "v"]}).solve()["x[a][v]"] == pytest.approx(2.0)


def test_series_in_another_order_are_refused() -> None:
    need = cp.Parameter(3, name="need", value=np.array([1.0, 2.0, 3.0]))
    x = cp.Variable(3, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= need]), ["need of towns"])
    p = p.with_labels({"need of towns": TOWNS})
    told = pd.Series([4.0, 5.0, 6.0], index=TOWNS)
    assert p.at(need=told).solve()["x"] == pytest.approx([4.0, 5.0, 6.0])
    assert p.at(need=pd.Series([4.0, 5.0, 6.0])).solve().objective == pytest.approx(15.0)
    with pytest.raises(of.DataError, match="labels of an axis in another order: Kiel, Ulm, Bonn"):
        p.at(need=told[::-1])
    assert p.at(need=told[::-1].reindex(TOWNS)).solve()["x"] == pytest.approx([4.0, 5.0, 6.0])
    cost = pd.DataFrame([[1.0, 4.0], [3.0, 1.0]], TOWNS[:2], MARKETS)
    supply = pd.Series([5.0, 4.0], TOWNS[:2])
    good = of.textbook.Transport(cost=cost, supply=supply, demand=[6.0, 3.0])
    assert good.solve()["shipments[Bonn,north]"] == pytest.approx(5.0)
    with pytest.raises(of.DataError, match="supply has the labels"):
        of.textbook.Transport(cost=cost, supply=supply[::-1], demand=[6.0, 3.0])
    with pytest.raises(of.DataError, match="most has the labels"):
        of.textbook.Diet(
            cost=[1.0, 2.0],
            nutrition=cost,
            minimum=supply,
            most=pd.Series([9.0, 9.0], index=MARKETS[::-1]),
        )


def test_a_frame_without_a_name_has_every_number() -> None:
    s = transport().with_labels(ship=(TOWNS, MARKETS), demand=MARKETS).solve()
    table = s.frame()
    assert list(table.columns) == ["kind", "name", "entry", "number"]
    assert table["kind"].value_counts().to_dict() == {"shadow price": 11, "value": 6}
    by_entry = table.set_index(["kind", "entry"])["number"]
    for town in TOWNS:
        for market in MARKETS:
            assert by_entry["value", f"ship[{town},{market}]"] == s[f"ship[{town},{market}]"]
    assert by_entry["shadow price", "demand[north]"] == s.shadow_price["demand[north]"]
    assert by_entry["shadow price", "supply[2]"] == s.shadow_price["supply"][2]
    # what a model knows, and a matrix row by row where nobody named its entries
    foods = of.library.load("textbook/diet").problem().solve().frame()
    assert "servings[beef]" in set(foods["entry"])
    plain = transport().solve().frame()
    assert list(plain["entry"][:3]) == ["ship[0,0]", "ship[0,1]", "ship[1,0]"]
    assert list(plain["number"][:6]) == transport().solve()["ship"].ravel().tolist()


def test_a_misspelled_label_gets_the_nearest_one(tmp_path: Path) -> None:
    p = transport().with_labels(ship=(TOWNS, MARKETS), demand=MARKETS)
    s = p.solve()
    with pytest.raises(of.DeclarationError, match=r"did you mean 'ship\[Bonn,north\]'"):
        s["ship[Bon,north]"]
    with pytest.raises(of.DeclarationError, match=r"did you mean 'demand\[south\]'"):
        s.shadow_price["demand[soth]"]
    (tmp_path / "p.lp").write_text(
        "Maximize\n obj: bread + cake\nSubject To\n oven: bread + cake <= 1\nEnd\n"
    )
    read = of.read(tmp_path / "p.lp").solve()
    with pytest.raises(of.DeclarationError, match="did you mean 'bread'"):
        read["braed"]
    with pytest.raises(of.DeclarationError, match=r"did you mean 'oven'\?"):
        read.shadow_price["ovn"]
    transport().export(tmp_path / "t.mps")
    read = of.read(tmp_path / "t.mps").solve()
    with pytest.raises(of.DeclarationError, match=r"do:  did you mean 'ship'\?$"):
        read["shp"]  # the array, not 'ship[2,1]' or 'ship[1,0]'
    with pytest.raises(of.DeclarationError, match="comes in as a file"):
        of.from_cvxpy(read)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("SN", "are one text, 'SN'"),
        (["south", None], "label 1 of axis 0 of 'demand' is missing"),
        ([float("nan"), "south"], "label 0 of axis 0 of 'demand' is missing"),
        ([pd.NA, "south"], "label 0 of axis 0 of 'demand' is missing"),
    ],
)
def test_labels_that_are_none_are_said(given: Any, said: str) -> None:
    with pytest.raises(of.DeclarationError, match=said):
        transport().with_labels(demand=given)
