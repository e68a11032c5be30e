"""Sets that OpenML has: decoded, cut, renamed and checked; nothing here reaches a network."""

from __future__ import annotations

import json
import socket
from http.client import IncompleteRead
from urllib.error import HTTPError, URLError

import numpy as np
import pytest
import sklearn.datasets
from sklearn.utils import Bunch

import optfair as of
from optfair import datasets

MINE = """
schema = 1

[mine]
origin = "folder"
rows = 4
licence = "CC0"
citation = "nobody"
source = "https://example.org/mine.csv"
groups = ["kind"]
numeric = { except = ["code", "y"] }
counts = { kind = { "?" = 1, a = 1, b = 2 } }
openml = { data_id = 7, last = 4, columns = ["size", "kind", "code", "part", "y"] }
"""


def as_sklearn_gives(columns, target):
    """Return what `fetch_openml(as_frame=False, parser="liac-arff")` returns.

    Categories become codes in a float array, missing ones NaN; a categorical target is decoded
    already, and its categories are not listed.
    """
    categories, coded = {}, []
    for name, values in columns.items():
        if isinstance(values[0], str):
            categories[name] = sorted({v for v in values if v is not None}, reverse=True)
            coded.append([np.nan if v is None else categories[name].index(v) for v in values])
        else:
            coded.append(values)
    (target_name, y) = target
    y = np.array(y, dtype=object if isinstance(y[0], str) else float)
    return Bunch(
        data=np.array(coded, dtype=float).T,
        target=y,
        frame=None,
        categories=categories,
        feature_names=list(columns),
        target_names=[target_name],
    )


@pytest.fixture
def openml(monkeypatch):
    """Return a function that sets what OpenML answers, and the list of what it was asked."""
    asked = []

    def answer(reply):
        def fetch_openml(*args, **options):
            asked.append((args, options))
            if isinstance(reply, Exception):
                raise reply
            return reply

        monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch_openml)
        return asked

    return answer


def mine():
    return as_sklearn_gives(
        {
            "V1": [9.0, 9.0, 1.0, 2.0, 3.0, 4.0],
            "V2": ["b", "b", "a", "b", None, "b"],
            "V3": ["1", "1", "10", "2", "2", "10"],
            "V4": [9.0, 9.0, 0.5, 1.0, 1.0, 2.0],
        },
        ("Class", ["no", "no", "yes", "no", "yes", "no"]),
    )


def test_categories_are_decoded_rows_cut_and_columns_renamed(no_folder, our_facts, openml):
    our_facts(MINE)
    openml(mine())
    data = datasets.load("mine")
    assert data.column_names == ("size", "kind", "code", "part", "y")
    assert data["size"].tolist() == [1, 2, 3, 4] and data["size"].dtype == np.int64
    assert data["kind"].tolist() == ["a", "b", "?", "b"]
    assert data["code"].tolist() == [10, 2, 2, 10]  # labels that are numbers are numbers
    assert data["part"].tolist() == [0.5, 1.0, 1.0, 2.0]
    assert data["y"].tolist() == ["yes", "no", "yes", "no"]
    assert data.numeric_columns == ("size", "part")
    assert not data["size"].flags.writeable


def test_the_first_rows(no_folder, our_facts, openml):
    our_facts(
        MINE.replace("last = 4", "first = 4").replace('"?" = 1, a = 1, b = 2', "a = 1, b = 3")
    )
    openml(mine())
    assert datasets.load("mine")["size"].tolist() == [9, 9, 1, 2]


def test_names_of_openml_are_kept_where_the_facts_give_none(no_folder, our_facts, openml):
    text = MINE.replace(', columns = ["size", "kind", "code", "part", "y"]', "")
    our_facts(text.replace("counts = { kind =", "counts = { V2 =").replace('"code", "y"', '"V3"'))
    openml(mine())
    assert datasets.load("mine").column_names == ("V1", "V2", "V3", "V4", "Class")


def test_a_numeric_target_and_missing_numbers(no_folder, our_facts, openml):
    our_facts(MINE)
    reply = mine()
    reply.data[3, 0] = np.nan
    reply.target = np.arange(6.0)
    openml(reply)
    data = datasets.load("mine")
    assert data["y"].tolist() == [2, 3, 4, 5]
    np.testing.assert_array_equal(data["size"], [1, np.nan, 3, 4])
    with pytest.raises(of.DataError, match="NaN"):
        data.numeric("kind")


def test_no_target(no_folder, our_facts, openml):
    our_facts(MINE.replace(', "y"]', "]"))
    reply = mine()
    reply.target, reply.target_names = None, []
    openml(reply)
    assert datasets.load("mine").column_names == ("size", "kind", "code", "part")


def test_the_source_says_openml(no_folder, our_facts, openml):
    our_facts(MINE)
    asked = openml(mine())
    data = datasets.load("mine")
    assert data.source == (
        "OpenML, https://www.openml.org/d/7; originally https://example.org/mine.csv"
    )
    assert (data.licence, data.citation) == ("CC0", "nobody")
    # the cache is scikit-learn's own: no data_home, cache on
    options = {"data_id": 7, "as_frame": False, "parser": "liac-arff", "n_retries": 1}
    assert asked == [((), options)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("rows = 4", "rows = 5"), "4 rows, declared are 5(.|\n)*openml.org/d/7"),
        (("b = 2", "b = 1"), "expected . 1, a 1, b 1, found . 1, a 1, b 2(.|\n)*openml.org/d/7"),
        (('"part", "y"', '"part"'), "at OpenML has 5 columns, declared are 4(.|\n)*V1, V2"),
    ],
)
def test_what_openml_gives_is_checked(no_folder, our_facts, openml, change, message):
    assert change[0] in MINE
    our_facts(MINE.replace(*change))
    openml(mine())
    with pytest.raises(of.DataError, match=message):
        datasets.load("mine")


@pytest.mark.parametrize(
    "failure",
    [
        URLError("no route"),
        HTTPError("https://www.openml.org", 503, "busy", None, None),
        TimeoutError("timed out"),
        PermissionError("the cache is read-only"),
        ValueError("md5 checksum does not match"),
        json.JSONDecodeError("no json", "<html>", 0),
        IncompleteRead(b""),
        EOFError("download broke off"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_any_failure_says_how_to_get_the_file(no_folder, our_facts, openml, failure):
    our_facts(MINE)
    openml(failure)
    with pytest.raises(of.DataError) as e:
        datasets.load("mine")
    assert "OPTFAIR_DATA is not set; OpenML did not give it" in e.value.evidence
    assert type(failure).__name__ in e.value.evidence
    assert "https://example.org/mine.csv" in e.value.remedy
    assert "set OPTFAIR_DATA" in e.value.remedy and "with a network" in e.value.remedy


def test_scikit_learn_without_a_network(no_folder, monkeypatch):
    """The real function; its warning that it tries again would be an error here."""

    def unknown(*args, **kwargs):
        raise socket.gaierror("name resolution failed")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(of.DataError, match="name resolution failed"):
        datasets.load("adult")


def test_fetch_false_never_asks(no_folder, openml):
    asked = openml(AssertionError("asked"))
    with pytest.raises(of.DataError) as e:
        datasets.load("adult", fetch=False)
    assert asked == []
    assert "fetch=True" in e.value.remedy and "archive.ics.uci.edu" in e.value.remedy


def test_sets_without_an_id_never_ask(no_folder, openml):
    asked = openml(AssertionError("asked"))
    with pytest.raises(of.DataError) as e:
        datasets.load("bank_additional_full")
    assert asked == []
    assert "network" not in e.value.remedy and "fetch" not in e.value.remedy


def adult(sex, income):
    """Return a reply of the shape of OpenML's Adult; only sex, income and workclass matter."""
    rows = len(sex)
    words = {
        "workclass": ["Private", "Private", None] * (rows // 3) + ["Private"] * (rows % 3),
        "education": ["HS-grad"] * rows,
        "marital-status": ["Divorced"] * rows,
        "occupation": ["Sales"] * rows,
        "relationship": ["Wife"] * rows,
        "race": ["White"] * rows,
        "sex": sex,
        "native-country": ["Cuba"] * rows,
    }
    names = "age workclass fnlwgt education education-num marital-status occupation relationship"
    names += " race sex capital-gain capital-loss hours-per-week native-country"
    numbers = np.arange(float(rows))
    return as_sklearn_gives({n: words.get(n, numbers) for n in names.split()}, ("class", income))


SEX = ["Male"] * 16281 + ["Female"] * 10771 + ["Male"] * 21790
INCOME = ["<=50K"] * 16281 + [">50K"] * 7841 + ["<=50K"] * 24720


def test_adult_takes_the_training_rows(no_folder, openml):
    openml(adult(SEX, INCOME))
    data = datasets.load("adult")
    assert data.rows == 32561
    assert data["age"][0] == 16281 and data["age"][-1] == 48841
    assert set(data["workclass"].tolist()) == {"Private", "?"}
    assert data.column_names[-1] == "income"
    X, sex = data.numeric("sex")
    assert X.shape == (32561, 5)
    assert (np.count_nonzero(sex == "Female"), np.count_nonzero(sex == "Male")) == (10771, 21790)


def test_adult_in_the_other_order_is_refused(no_folder, openml):
    openml(adult(SEX[16281:] + SEX[:16281], INCOME[16281:] + INCOME[:16281]))
    with pytest.raises(of.DataError, match="expected Female 10771, Male 21790, found Male 32561"):
        datasets.load("adult")
    # the right sizes by sex are not enough
    openml(adult(SEX, INCOME[16281:] + INCOME[:16281]))
    with pytest.raises(of.DataError, match="groups 'income' of adult"):
        datasets.load("adult")


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "before"), [("adult", 16281), ("default_credit_card", 0)], ids=["adult", "credit"]
)
def test_openml_gives_what_the_file_gives(name, before, openml, monkeypatch):
    file = datasets.load(name)
    columns = {n: v for n, v in file.columns.items() if n not in ("ID", "education_group")}
    # OpenML lists rows of the test file first, calls its columns otherwise, and says which codes
    # are categories
    codes = ("SEX", "EDUCATION", "MARRIAGE", "default payment next month")
    order = np.concatenate([np.arange(before), np.arange(file.rows)])
    raw = {}
    for i, (n, values) in enumerate(columns.items()):
        values = values[order]
        if n in codes or values.dtype.kind == "U":
            raw[f"x{i}"] = [None if v == "?" else str(v) for v in values.tolist()]
        else:
            raw[f"x{i}"] = values.tolist()
    last = list(raw)[-1]
    openml(as_sklearn_gives(raw, (last, raw.pop(last))))
    monkeypatch.delenv("OPTFAIR_DATA")
    fetched = datasets.load(name)
    assert fetched.source != file.source
    assert tuple(n for n in fetched.column_names) == tuple(n for n in file.columns if n != "ID")
    for n in fetched.column_names:
        np.testing.assert_array_equal(fetched[n], file[n])
        assert fetched[n].dtype.kind == file[n].dtype.kind


@pytest.mark.data
def test_the_folder_goes_before_openml(openml):
    asked = openml(AssertionError("asked"))
    data = datasets.load("adult")
    assert asked == [] and "OpenML" not in data.source
