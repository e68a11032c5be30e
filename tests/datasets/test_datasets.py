"""Data sets: shipped, from scikit-learn, from a folder; counts, checksums, bad input."""

from __future__ import annotations

import gzip
import hashlib
import shutil
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import optfair as of
from optfair import datasets
from optfair.datasets import dataset
from optfair.datasets.dataset import OURS

TABLE = "age,size,kind\n 30, 1.5, a \n40,2.5,b\n50,3.5,unknown\n"


def write_folder(folder: Path, text: str = TABLE, **changes: object) -> Path:
    """Write a folder with one set ``tiny`` and its manifest."""
    content = gzip.compress(text.encode())
    (folder / "tiny.csv.gz").write_bytes(content)
    entry: dict[str, object] = {
        "file": "tiny.csv.gz",
        "sha256": hashlib.sha256(content).hexdigest(),
        "licence": "CC0",
        "citation": "nobody",
        "used_by": ["a key optfair does not use"],
        **changes,
    }
    lines = [f"{key} = {_toml(value)}" for key, value in entry.items()]
    (folder / "MANIFEST.toml").write_text("[tiny]\n" + "\n".join(lines) + "\n")
    return folder


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {_toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("OPTFAIR_DATA", str(tmp_path))
    return write_folder(tmp_path)


def counts(labels):
    return dict(
        zip(*(part.tolist() for part in np.unique(labels, return_counts=True)), strict=True)
    )


def test_german_credit_is_shipped(no_folder):
    data = datasets.load("german_credit")
    assert data.rows == len(data) == 1000
    assert data.licence == "CC BY 4.0"
    assert "Hofmann" in data.citation
    assert counts(data["sex"]) == {"female": 310, "male": 690}
    assert counts(data["age_group"]) == {"25 or younger": 190, "over 25": 810}
    assert counts(data["foreign_worker"]) == {"no": 37, "yes": 963}
    assert counts(data["credit_risk"]) == {1: 700, 2: 300}


def test_derived_sex_follows_the_codes(no_folder):
    data = datasets.load("german_credit")
    women = np.isin(data["personal_status_and_sex"], ["A92", "A95"])
    assert ((data["sex"] == "female") == women).all()
    assert ((data["age_group"] == "25 or younger") == (data["age_in_years"] <= 25)).all()


def test_numeric_standardises_by_the_population(no_folder):
    data = datasets.load("german_credit")
    X, sex = data.numeric("sex", standardize=True)
    assert X.shape == (1000, 7) and X.dtype == np.float64 and X.flags.c_contiguous
    np.testing.assert_allclose(X.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(X.std(axis=0, ddof=0), 1, atol=1e-12)
    np.testing.assert_array_equal(sex, data["sex"])
    raw, _ = data.numeric("sex")
    np.testing.assert_array_equal(raw[:, 0], data["duration_in_month"])


def test_numeric_l2_and_chosen_columns(no_folder):
    data = datasets.load("german_credit")
    X, _ = data.numeric("age_group", columns=["credit_amount", "age_in_years"], l2=True)
    assert X.shape == (1000, 2)
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), 1)
    both, _ = data.numeric("sex", standardize=True, l2=True)
    first, _ = data.numeric("sex", standardize=True)
    np.testing.assert_allclose(both, first / np.linalg.norm(first, axis=1)[:, None])


@pytest.mark.parametrize("value", [2.0, 0.1, -1e9 / 3])
def test_constant_columns_become_zero(value):
    # the mean of 1000 times 0.1 is not 0.1
    g = np.repeat(["a", "b"], 500)
    data = datasets.Dataset("toy", {"x": np.full(1000, value), "g": g}, ("x",))
    X, _ = data.numeric("g", standardize=True, l2=True)
    np.testing.assert_array_equal(X, np.zeros((1000, 1)))


def test_standardising_leaves_the_columns_alone(no_folder):
    data = datasets.load("german_credit")
    before = data["credit_amount"].copy()
    data.numeric("sex", columns=["credit_amount"], standardize=True, l2=True)
    np.testing.assert_array_equal(data["credit_amount"], before)


@pytest.mark.parametrize(
    ("name", "group", "rows", "width"),
    [("iris", "species", 150, 4), ("wine", "cultivar", 178, 13), ("digits", "digit", 1797, 64)],
)
def test_scikit_learn_sets(no_folder, name, group, rows, width):
    X, labels = datasets.load(name).numeric(group)
    assert X.shape == (rows, width)
    assert np.unique(labels).size >= 3


def test_columns_are_read_only(no_folder):
    data = datasets.load("german_credit")
    with pytest.raises(ValueError, match="read-only"):
        data["credit_amount"][0] = 0
    with pytest.raises(TypeError):
        data.columns["sex"] = data["sex"]


def test_repr_says_what_is_in_it(no_folder):
    text = repr(datasets.load("german_credit"))
    for part in ("1000 rows", "female 310", "CC BY 4.0", "Hofmann", "credit_amount"):
        assert part in text


def test_frame_is_a_copy_in_pandas(no_folder):
    data = datasets.load("german_credit")
    frame = data.frame()
    assert tuple(frame.columns) == data.column_names
    frame.loc[0, "credit_amount"] = -1
    assert data["credit_amount"][0] == 1169


def test_frame_without_pandas(no_folder, monkeypatch):
    data = datasets.load("german_credit")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(of.NotInstalled, match="pip install pandas"):
        data.frame()


def test_names_say_where_sets_come_from(no_folder):
    found = datasets.names()
    assert found["german_credit"] == "package"
    assert found["iris"] == "scikit-learn"
    assert found["bank_additional_full"] == "needs OPTFAIR_DATA"
    assert found["adult"] == "https://www.openml.org/d/1590"


def test_unknown_name_suggests(no_folder):
    with pytest.raises(of.DataError, match="german_credit"):
        datasets.load("german_credits")


def test_a_set_that_is_not_there_says_how_to_get_it(no_folder):
    with pytest.raises(of.DataError) as e:
        datasets.load("bank_additional_full")
    assert "archive.ics.uci.edu" in e.value.remedy
    assert "OPTFAIR_DATA" in e.value.remedy and "MANIFEST.toml" in e.value.remedy


def test_a_folder_of_ones_own(folder):
    assert datasets.names()["tiny"] == str(folder / "tiny.csv.gz")
    assert datasets.names()["bank_additional_full"] == "not in OPTFAIR_DATA"
    data = datasets.load("tiny")
    assert data["age"].tolist() == [30, 40, 50]
    assert data["size"].tolist() == [1.5, 2.5, 3.5]
    assert data["kind"].tolist() == ["a", "b", "unknown"]  # blanks are stripped
    assert (data.licence, data.citation) == ("CC0", "nobody")
    with pytest.raises(of.DataError, match=r"no default numeric columns(.|\n)*age, size"):
        data.numeric("kind")
    assert data.numeric("kind", columns=["age"])[0].shape == (3, 1)
    with pytest.raises(of.DataError, match=r"MANIFEST\.toml name a file"):
        datasets.load("bank_additional_full")


def test_numeric_columns_by_exception(tmp_path, monkeypatch):
    monkeypatch.setenv("OPTFAIR_DATA", str(tmp_path))
    old = {"from": "age", "upper": [30], "labels": [0, 1]}
    write_folder(tmp_path, numeric={"except": ["size"]}, derived={"old": old})
    data = datasets.load("tiny")
    assert data.numeric_columns == ("age",)  # neither strings nor what is derived
    assert data["old"].tolist() == [0, 1, 1]


def test_counts_are_checked_after_dropping_and_deriving(tmp_path, monkeypatch):
    monkeypatch.setenv("OPTFAIR_DATA", str(tmp_path))
    derived = {"old": {"from": "age", "upper": [30], "labels": ["no", "yes"]}}
    counts = {"old": {"no": 1, "yes": 1}, "age": {"30": 1, "40": 1}}
    write_folder(tmp_path, drop={"kind": "unknown"}, derived=derived, counts=counts)
    assert datasets.load("tiny").rows == 2
    counts["old"] = {"no": 2, "yes": 1}
    write_folder(tmp_path, drop={"kind": "unknown"}, derived=derived, counts=counts)
    with pytest.raises(of.DataError) as e:
        datasets.load("tiny")
    assert "'old' of tiny" in e.value.cause
    assert "expected no 2, yes 1, found no 1, yes 1" in e.value.evidence
    assert str(tmp_path / "tiny.csv.gz") in e.value.evidence


def test_the_counts_of_shipped_sets_are_checked(no_folder, our_facts):
    text = (OURS / "datasets.toml").read_text()
    assert "female = 310" in text
    our_facts(
        text.replace("female = 310, male = 690 }, credit", "female = 311, male = 690 }, credit")
    )
    shutil.copy(OURS / "german_credit.csv.gz", dataset.OURS)
    with pytest.raises(of.DataError, match="expected female 311, male 690, found female 310"):
        datasets.load("german_credit")


def test_a_manifest_may_drop_derive_and_choose(tmp_path, monkeypatch):
    monkeypatch.setenv("OPTFAIR_DATA", str(tmp_path))
    derived = {"old": {"from": "age", "upper": [30], "labels": ["no", "yes"]}}
    drop = {"kind": "unknown"}
    write_folder(tmp_path, drop=drop, derived=derived, numeric=["size"], groups=["old"], rows=2)
    X, old = datasets.load("tiny").numeric("old")
    assert X.ravel().tolist() == [1.5, 2.5]
    assert old.tolist() == ["no", "yes"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sha256": "0" * 64}, "not the declared file"),
        ({"file": "other.csv"}, "missing"),
        ({"rows": 7}, "3 rows, declared are 7"),
        ({"columns": ["age", "size"]}, "declared columns"),
        ({"drop": {"colour": "red"}}, "'colour' that is not there"),
        ({"derived": {"k": {"from": "kind", "values": {"a": "x"}}}}, "no label for the code b"),
        ({"sha256": ""}, "declared is none"),
        ({"counts": {"kind": {"a": 1, "b": 1}}}, "expected a 1, b 1, found a 1, b 1, unknown 1"),
        ({"counts": {"colour": {"red": 3}}}, "'colour' that is not there"),
        ({"counts": 3}, "counts of tiny is not a table"),
        ({"numeric": {"except": ["colour"]}}, "'colour' that is not there"),
        ({"numeric": {"but": ["size"]}}, "unknown keys"),
        ({"openml": {"data_id": 5, "rows": 3}}, "openml of tiny has unknown keys"),
        ({"openml": {"last": 5}}, "give data_id"),
        ({"openml": {"data_id": 5, "last": -5}}, "give data_id"),
    ],
)
def test_bad_manifests(tmp_path, monkeypatch, changes, message):
    monkeypatch.setenv("OPTFAIR_DATA", str(tmp_path))
    write_folder(tmp_path, **changes)
    with pytest.raises(of.DataError, match=message):
        datasets.load("tiny")


def test_one_changed_byte_is_noticed(folder):
    path = folder / "tiny.csv.gz"
    path.write_bytes(gzip.compress(TABLE.replace("30", "31").encode()))
    with pytest.raises(of.DataError, match="not the declared file"):
        datasets.load("tiny")


def test_ragged_table(tmp_path, monkeypatch):
    monkeypatch.setenv("OPTFAIR_DATA", str(tmp_path))
    write_folder(tmp_path, "a,b\n1,2\n3\n")
    with pytest.raises(of.DataError, match="row 3 does not have 2 entries"):
        datasets.load("tiny")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\nä\n".encode("latin-1"), "UnicodeDecodeError"),
        (gzip.compress(b"a\n1\n" * 100, mtime=0)[:-12], "EOFError"),
        (b"no gzip", "BadGzipFile"),
    ],
    ids=["not UTF-8", "cut short", "no gzip"],  # the header of gzip depends on zlib
)
def test_unreadable_files(tmp_path, monkeypatch, content, message):
    monkeypatch.setenv("OPTFAIR_DATA", str(tmp_path))
    content = content if message != "UnicodeDecodeError" else gzip.compress(content)
    write_folder(tmp_path, sha256=hashlib.sha256(content).hexdigest())
    (tmp_path / "tiny.csv.gz").write_bytes(content)
    with pytest.raises(of.DataError, match=f"cannot be read(.|\n)*{message}"):
        datasets.load("tiny")


def test_numbers_too_large_for_integers_are_floats(tmp_path, monkeypatch):
    monkeypatch.setenv("OPTFAIR_DATA", str(tmp_path))
    write_folder(tmp_path, "a\n99999999999999999999\n1\n")
    assert datasets.load("tiny")["a"].tolist() == [1e20, 1.0]


def test_folder_without_manifest(tmp_path, monkeypatch):
    monkeypatch.setenv("OPTFAIR_DATA", str(tmp_path))
    with pytest.raises(of.DataError, match=r"no MANIFEST\.toml"):
        datasets.names()


@pytest.mark.parametrize(
    ("groups", "columns", "message"),
    [
        ("gender", None, "no column 'gender'"),
        ("sex", ["purpose"], "'purpose' of german_credit is not numeric"),
        ("sex", "credit_amount", "one string"),
        ("sex", [], "columns is empty"),
        ("sex", 3, "columns is 3, no list of names"),
        ("sex", ["credit_amounts"], "did you mean 'credit_amount'"),
        ("age_in_years", None, "53 different numbers(.|\n)*from 19 to 75(.|\n)*choose 'sex' or"),
        ("credit_amount", None, r"bin it: numpy\.digitize\(data\['credit_amount'\], \[2319"),
    ],
)
def test_bad_requests(no_folder, groups, columns, message):
    with pytest.raises(of.DataError, match=message):
        datasets.load("german_credit").numeric(groups, columns=columns)


def test_few_numbers_are_groups(no_folder):
    _, labels = datasets.load("german_credit").numeric("number_of_existing_credits_at_this_bank")
    assert counts(labels) == {"1": 633, "2": 333, "3": 28, "4": 6}
    halves = np.tile(np.arange(10) / 2, 10)
    data = datasets.Dataset("toy", {"x": np.arange(100.0), "h": halves}, ("x",))
    assert np.unique(data.numeric("h")[1]).size == 10
    data = datasets.Dataset("toy", {"x": np.arange(100.0), "h": np.arange(100) / 8}, ("x",))
    with pytest.raises(of.DataError, match="100 different numbers"):
        data.numeric("h")


def test_fractional_measurements_are_no_groups(no_folder):
    with pytest.raises(of.DataError, match=r"35 different numbers(.|\n)*choose 'species'"):
        datasets.load("iris").numeric("sepal length (cm)")


def test_missing_labels_are_refused():
    data = datasets.Dataset("toy", {"x": np.arange(2.0), "g": np.array([1.0, np.nan])}, ("x",))
    with pytest.raises(of.DataError, match="1 missing labels"):
        data.numeric("g")


def test_missing_numbers_are_refused():
    data = datasets.Dataset(
        "toy", {"x": np.array([1.0, np.nan]), "g": np.array(["a", "b"])}, ("x",)
    )
    with pytest.raises(of.DataError, match="NaN"):
        data.numeric("g")


def test_every_fact_has_what_must_be_said():
    with (OURS / "datasets.toml").open("rb") as f:
        tables = tomllib.load(f)
    assert tables.pop("schema") == 1
    for name, entry in tables.items():
        assert entry["origin"] in ("package", "scikit-learn", "folder"), name
        assert entry["licence"] and entry["citation"] and entry["source"] and entry["groups"], name
        assert entry["numeric"] and entry["rows"], name


@pytest.mark.sampled(2)
@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "group", "expected", "width"),
    [
        ("adult", "sex", {"Female": 10771, "Male": 21790}, 5),
        ("bank_additional_full", "married", {"no": 16180, "yes": 24928}, 6),
        ("default_credit_card", "SEX", {"1": 11888, "2": 18112}, 14),
        (
            "default_credit_card",
            "education_group",
            {"graduate school": 10585, "university": 14030, "other": 5385},
            14,
        ),
        ("census1990_raw25_3000", "SEX", {"0": 1454, "1": 1546}, 25),
        ("german_credit_cola9", "Sex", {"female": 310, "male": 690}, 3),
    ],
)
def test_counts_of_the_papers(name, group, expected, width):
    data = datasets.load(name)
    assert group in data.group_columns
    X, labels = data.numeric(group, standardize=True)
    assert counts(labels) == expected
    assert X.shape == (sum(expected.values()), width)


WIDTHS = {
    "adult": 5,
    "bank_additional_full": 6,
    "census1990_raw25_3000": 25,
    "default_credit_card": 14,
    "digits": 64,
    "german_credit": 7,
    "german_credit_cola9": 3,
    "grinsztajn_MagicTelescope": 10,
    "grinsztajn_bank-marketing": 7,
    "grinsztajn_california": 8,
    "grinsztajn_electricity": 7,
    "grinsztajn_eye_movements": 20,
    "grinsztajn_house_16H": 16,
    "grinsztajn_phoneme": 5,
    "grinsztajn_pol": 26,
    "grinsztajn_wine": 11,
    "hotel_bookings": 16,
    "iris": 4,
    "optdigits": 64,
    "pendigits": 16,
    "wine": 13,
}
SHIPPED = {"german_credit", "iris", "wine", "digits"}


def test_every_set_has_a_width():
    with (OURS / "datasets.toml").open("rb") as f:
        assert set(tomllib.load(f)) - {"schema"} == {*WIDTHS, "census1990"}


@pytest.mark.parametrize(
    "name",
    [
        n if n in SHIPPED else pytest.param(n, marks=(pytest.mark.data, pytest.mark.slow))
        for n in WIDTHS
    ],
)
def test_every_set_loads_and_gives_groups(name):
    data = datasets.load(name, fetch=False)
    for group in data.group_columns:
        X, labels = data.numeric(group, standardize=True)
        assert X.shape == (data.rows, WIDTHS[name])
        assert 2 <= np.unique(labels).size <= 50
        assert group not in data.numeric_columns
    assert data.licence and data.citation and data.source
