"""UCI's USCensus1990.data.txt, which users put into the folder themselves."""

from __future__ import annotations

import gzip
import hashlib

import numpy as np
import pytest

import optfair as of
from optfair import datasets
from optfair.datasets import dataset
from optfair.datasets import dataset as integers

ROWS = 60
FILE = "USCensus1990.data.txt"
NAMES = dataset.known_facts()["census1990"].columns


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    entries = rng.integers(0, 18, size=(ROWS, len(NAMES)))
    entries[:, 0] = 32_740 + np.arange(ROWS)  # passes the largest int16, as the real case ids do
    entries[:, NAMES.index("iSex")] = np.arange(ROWS) % 2
    entries[0, NAMES.index("dPOB")] = -1
    return entries


def text(entries, names=NAMES):
    return "\n".join([",".join(names), *(",".join(map(str, row)) for row in entries)]) + "\n"


@pytest.fixture
def folder(tmp_path, monkeypatch, our_facts):
    """A folder without a manifest; the facts declare the rows of the small table."""
    real = (dataset.OURS / "datasets.toml").read_text()
    assert real.count("rows = 2458285") == 1
    our_facts(real.replace("rows = 2458285", f"rows = {ROWS}"))
    monkeypatch.setenv("OPTFAIR_DATA", str(tmp_path))
    monkeypatch.setattr(integers, "BLOCK", 7)  # does not divide the rows
    return tmp_path


def test_columns_of_the_paper():
    known = dataset.known_facts()["census1990"]
    assert known.rows == 2_458_285 and len(NAMES) == 69
    assert known.numeric == {"except": ("caseid", "dAge", "iSex")}


def test_the_file_as_it_is(folder, table):
    (folder / FILE).write_text(text(table))
    assert datasets.names()["census1990"] == str(folder / FILE)
    data = datasets.load("census1990")
    assert data.column_names == NAMES
    for name, values in zip(NAMES, table.T, strict=True):
        np.testing.assert_array_equal(data[name], values)
        assert data[name].dtype == (np.int32 if name == "caseid" else np.int16)
    X, sex = data.numeric("iSex")
    assert X.shape == (ROWS, 66) and X.dtype == np.float64
    np.testing.assert_array_equal(X[:, 0], table[:, 2])
    assert sex.tolist() == ["0", "1"] * (ROWS // 2)
    Z, _ = data.numeric("iSex", standardize=True)
    np.testing.assert_allclose(Z, (X - X.mean(axis=0)) / X.std(axis=0))


def test_gzip_and_blank_lines_and_windows(folder, table):
    content = text(table).replace("\n", "\r\n") + "\r\n" * 20
    (folder / f"{FILE}.gz").write_bytes(gzip.compress(content.encode()))
    data = datasets.load("census1990")
    np.testing.assert_array_equal(data["dYrsserv"], table[:, -1])


def test_the_other_sets_are_found_as_without_a_folder(folder, table):
    (folder / FILE).write_text(text(table))
    with pytest.raises(of.DataError, match="does not have it"):
        datasets.load("bank_additional_full")


def test_a_manifest_may_name_it_with_a_checksum(folder, table):
    content = gzip.compress(text(table).encode())
    (folder / "mine.csv.gz").write_bytes(content)
    manifest = folder / "MANIFEST.toml"
    right = hashlib.sha256(content).hexdigest()
    manifest.write_text(f'[census1990]\nfile = "mine.csv.gz"\nsha256 = "{right}"\n')
    assert datasets.load("census1990").rows == ROWS
    manifest.write_text(f'[census1990]\nfile = "mine.csv.gz"\nsha256 = "{right[::-1]}"\n')
    with pytest.raises(of.DataError, match="not the declared file"):
        datasets.load("census1990")
    manifest.write_text('[census1990]\nfile = "mine.csv.gz"\n')
    assert datasets.load("census1990").rows == ROWS
    manifest.write_text("[another]\nnote = 'a manifest that does not speak of it'\n")
    (folder / FILE).write_text(text(table))
    assert datasets.load("census1990").rows == ROWS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: text(t[:-1]), f"59 rows, declared are {ROWS}"),
        (lambda t: text(t, (*NAMES[:-1], "other")), "declared columns"),
        (lambda t: text(t).split("\n", 1)[1], "declared columns"),
        (lambda t: text(t).replace("32750,", "x,"), "not a table of integers(.|\n)*'x'"),
        (lambda t: text(t).replace("32750,", "1.5,"), "not a table of integers(.|\n)*'1.5'"),
        (lambda t: text(t).replace("32750,", "9999999999,"), "not a table of integers"),
        (lambda t: text(t).replace("32750,", ""), "not a table of integers(.|\n)*line 9"),
        (lambda t: "\n".join(text(t[:, :-1]).split("\n")[1:]), "declared columns"),
        (lambda t: text(t[:0]), "no rows"),
        (lambda t: text(t[:, :-1]), "68 entries in a row, the header has 69"),
    ],
)
def test_another_file(folder, table, change, message):
    (folder / FILE).write_text(change(table))
    with pytest.raises(of.DataError, match=message):
        datasets.load("census1990")


def test_a_download_that_broke_off(folder, table):
    (folder / f"{FILE}.gz").write_bytes(gzip.compress(text(table).encode())[:-20])
    with pytest.raises(of.DataError, match=r"cannot be read(.|\n)*fetch the file again"):
        datasets.load("census1990")


def test_it_says_how_to_get_the_file(no_folder):
    with pytest.raises(of.DataError) as e:
        datasets.load("census1990")
    assert "archive.ics.uci.edu/dataset/116" in e.value.remedy
    assert f"put {FILE}, as it is or as .gz, into a folder" in e.value.remedy
