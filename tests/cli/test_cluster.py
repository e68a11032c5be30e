"""`optfair cluster`: what it writes, what it refuses, and that refusals leave nothing behind."""

from __future__ import annotations

import csv
import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning
from typer.testing import CliRunner

import optfair as of
from optfair import metrics
from optfair.cli.app import app
from optfair.cli.question import read_table

COLUMNS = ("duration_in_month", "credit_amount", "age_in_years")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def german(folder):
    path = folder / "german.csv"
    of.datasets.load("german_credit").frame()[:300].to_csv(path, index=False)
    return path


def run(*words):
    return CliRunner().invoke(app, ["cluster", *(str(w) for w in words)])


def few(*words):
    return run(*words, "--n-init", 2)


def refused(*words):
    """Return what is said in a refusal that leaves no file behind."""
    before = {p: p.read_bytes() for p in Path().rglob("*") if p.is_file()}
    result = run(*words)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert {p: p.read_bytes() for p in Path().rglob("*") if p.is_file()} == before
    return result.stderr


def written(text, name="t.csv", **how):
    Path(name).write_text(text, encoding=how.pop("encoding", "utf-8"), newline="")
    return name


def small(name="small.csv", n=40):
    """Two columns, two groups, and what stands in the way of reading."""
    rng = np.random.default_rng(0)
    rows = [f"{a:.3f},{b:.3f},{'xy'[i % 2]}" for i, (a, b) in enumerate(rng.normal(size=(n, 2)))]
    return written("a,b,g\n" + "\n".join(rows) + "\n", name)


def test_labels_are_the_rows_with_their_cluster(german, folder):
    result = run(german, "-g", "sex", "-k", 3, "--columns", ",".join(COLUMNS), "--out", "l.csv")
    assert result.exit_code == 0, result.output
    with (folder / "l.csv").open() as f, german.open() as g:
        ours, theirs = list(csv.reader(f)), list(csv.reader(g))
    assert [row[:-1] for row in ours] == theirs and ours[0][-1] == "cluster"
    labels = np.array([int(row[-1]) for row in ours[1:]])
    data = of.datasets.load("german_credit")
    X = np.column_stack([data[c][:300] for c in COLUMNS]).astype(float)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    model = of.FairKMeans(3, random_state=0).fit(X, groups=data["sex"][:300])
    np.testing.assert_array_equal(labels, model.labels_)


def test_json_has_the_numbers(german):
    result = run(german, "-g", "sex", "-k", 3, "--columns", ",".join(COLUMNS), "--json")
    assert result.exit_code == 0 and result.stderr == ""
    found = json.loads(result.stdout)
    data = of.datasets.load("german_credit")
    sex = data["sex"][:300]
    raw = np.column_stack([data[c][:300] for c in COLUMNS]).astype(float)
    X = (raw - raw.mean(axis=0)) / raw.std(axis=0)
    model = of.FairKMeans(3, random_state=0).fit(X, groups=sex)
    plain = of.FairKMeans(3, fairness=None, random_state=0).fit(X, groups=sex)
    assert found["cost"] == pytest.approx(model.cost_)
    assert found["balance"] == pytest.approx(metrics.balance(sex, model.labels_))
    assert found["soft_balance"] == pytest.approx(found["population_balance"], abs=1e-6)
    assert found["gap"] <= 1e-9 and found["status"] == "converged"
    assert found["without_rule"]["cost"] == pytest.approx(plain.cost_)
    assert found["written"] == [] and found["seed"] == 0 and found["starts"] == 10
    sizes = np.bincount(model.labels_)
    for k, cluster in enumerate(found["clusters"]):
        own = model.labels_ == k
        assert cluster["size"] == sizes[k]
        assert cluster["shares"]["female"] == pytest.approx((sex[own] == "female").mean())
        mean = ((X[own] - model.cluster_centers_[k]) ** 2).sum(axis=1).mean()
        assert cluster["cost"] == pytest.approx(mean)
        center = model.cluster_centers_[k] * raw.std(axis=0) + raw.mean(axis=0)
        np.testing.assert_allclose([cluster["center"][c] for c in COLUMNS], center)
    total = sum(c["size"] * c["cost"] for c in found["clusters"]) / 300
    assert found["cost"] == pytest.approx(total)


def test_the_rules(german):
    words = (german, "-g", "sex", "-k", 3, "--n-init", 3, "--columns", ",".join(COLUMNS), "--json")
    loose = json.loads(run(*words, "--balance", 0.3).stdout)
    assert loose["rule"] == "Balance(b=0.3)" and loose["soft_balance"] >= 0.3 - 1e-9
    gap = json.loads(run(*words, "--gap", 0.1).stdout)
    assert gap["rule"] == "AdditiveGap(eps=0.1)"
    fair = json.loads(run(*words).stdout)
    assert fair["rule"] == "PerfectFairness()"
    assert loose["without_rule"]["balance"] < 0.3  # or the rule would not be seen
    assert loose["without_rule"]["cost"] <= min(loose["objective"], gap["objective"]) + 1e-12
    assert max(loose["objective"], gap["objective"]) <= fair["objective"] + 1e-6


def test_options_reach_the_model():
    words = ("-g", "g", "-k", 2, "--metric", "l1", "--n-init", 2, "--seed", 3, "--no-standardize")
    found = json.loads(run(small(), *words, "--json").stdout)
    table = read_table(Path("small.csv"))
    X = np.column_stack([table.column(c).numbers for c in "ab"])
    model = of.FairKMeans(2, metric="l1", n_init=2, random_state=3)
    model.fit(X, groups=list(table.column("g").words))
    assert found["objective"] == pytest.approx(model.objective_)
    assert (found["starts"], found["seed"], found["standardize"]) == (2, 3, False)


@pytest.mark.parametrize("suffix", [".csv.gz", ".csv.bz2", ".parquet"])
def test_packed_tables_are_the_same_table(folder, suffix):
    path = small()
    frame = pd.read_csv(path)
    packed = Path(f"packed{suffix}")
    frame.to_parquet(packed) if suffix == ".parquet" else frame.to_csv(packed, index=False)
    plain = few(path, "-g", "g", "-k", 2, "--json")
    found = few(packed, "-g", "g", "-k", 2, "--json")
    assert found.exit_code == 0, found.stderr
    ours, theirs = (json.loads(r.stdout) for r in (found, plain))
    for numbers in (ours, theirs):
        del numbers["without_rule"]["seconds"]
    assert {k for k in theirs if ours[k] != theirs[k]} <= {"file", "sha256", "seconds"}


@pytest.mark.parametrize("suffix", [".csv.gz", ".parquet"])
def test_what_is_not_packed_as_its_name_says_is_refused(folder, suffix):
    Path(f"t{suffix}").write_bytes(b"a,g\n1,x\n")
    told = refused(f"t{suffix}", "-g", "g", "-k", 2)
    assert f"t{suffix}" in told and "Traceback" not in told


def test_the_summary():
    result = run(small(), "-g", "g", "-k", 2, "--out", "l.csv")
    text = result.stdout
    assert result.exit_code == 0
    for part in (
        "columns    a, b (standardised)",
        "perfect fairness",
        "cluster  rows",
        "50.0%",
        "the population has 1.0000",
        "without a rule",
        "gap ",
        "a heuristic",
        "wrote      l.csv",
    ):
        assert part in text, text


def test_progress_is_shown_when_asked():
    path = small()
    assert few(path, "-g", "g", "-k", 2).stderr == ""
    assert "starts" in few(path, "-g", "g", "-k", 2, "-v").stderr
    result = few(path, "-g", "g", "-k", 2, "-v", "--json")
    assert result.exit_code == 2 and "exclude each other" in result.stderr


def test_default_columns_say_what_was_left_out():
    text = "id,,a,word,flat,hole,g\n" + "".join(
        f"{i},{i},{i % 7},w{i},5,,{'xy'[i % 2]}\n" for i in range(20)
    )
    found = json.loads(few(written(text), "-g", "g", "-k", 2, "--json").stdout)
    assert found["columns"] == ["id", "a"]
    assert found["left_out"] == [
        "text: word",
        "constant or empty: flat, hole",
        "without a name: column 2",
    ]


def test_other_separators_quotes_and_a_mark_of_order():
    rows = "".join(f'{i};"x; ""y"" {i % 2}";{i * i}\r\n\r\n' for i in range(9))
    path = written("\ufeffa;g; b \r\n" + rows)
    result = few(path, "-g", "g", "-k", 2, "--out", "l.csv")
    assert result.exit_code == 0, result.output
    assert "a, b (standardised)" in result.stdout
    with open("l.csv", newline="") as f:
        read = list(csv.reader(f, delimiter=";"))
    assert read[0] == ["a", "g", "b", "cluster"]
    assert read[1][1] == 'x; "y" 0' and len(read) == 10


def test_a_name_with_a_comma():
    path = written('"a,b",c,g\n' + "".join(f"{i},{i * i},{'xy'[i % 2]}\n" for i in range(9)))
    found = json.loads(few(path, "-g", "g", "-k", 2, "--columns", '"a,b",c', "--json").stdout)
    assert found["columns"] == ["a,b", "c"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("a,g\n", "no rows"),
        ("just words\nmore words\n", "does not look like a CSV file"),
        ("a,g\n1,x\n2\n", "line 3 of t.csv has 1 entry, the header has 2"),
        ('a,g\n"1\n1",x\n2,x,y\n', "line 4 of t.csv has 3 entries"),
        ('a,g\n1,x\n"2,y\n', "is not CSV"),
        ("a\0,g\n1,x\n", "binary data"),
        ("a,a,g\n1,2,x\n", "several columns called 'a'"),
        ("1,2\n3,4\n", "numbers instead of names"),
        ("a,g\n1,x\n,y\n3,y\nNA,y\n", "column 'a' of t.csv has missing values"),
        ("a,g\n1,x\n\n2,\n3,y\n", "'g' has 1, the first in line 4"),
        (
            "a,b,g\n1,?,x\n2,3,y\nnull,4,x\n",
            "'a' has 1, the first in line 4; 'b' has 1, the first in line 2",
        ),
        ("a,g\n1,x\ninf,y\n3,x\n", "the first in line 3: inf"),
        ("a,g\n1,x\n-1e200,y\n3,x\n", "the first in line 3: -1e200"),
        ("a,g\n1,x\n2,x\n3,x\n", "one group only"),
        ("a,g\nu,x\nv,y\n", "no numeric column to cluster"),
        ("a,b,g\n1,u,x\n1,v,y\n", "constant or empty: a"),
        ("a,g\n1,x\n2,y\n1,y\n", "3 clusters are more than the rows can fill"),
    ],
)
def test_bad_files(content, message):
    path = written(content)
    assert message in refused(path, "-g", "g", "-k", 3, "--out", "l.csv", "--report", "r.html")


def test_files_that_are_not_there_or_not_text(german, folder):
    told = refused("germn.csv", "-g", "sex", "-k", 3)
    assert "no file germn.csv" in told and "did you mean 'german.csv'" in told
    assert "cannot be read" in refused(folder, "-g", "sex", "-k", 3)
    (folder / "b.csv").write_bytes(b"a,g\n1,\xff\n")
    told = refused("b.csv", "-g", "g", "-k", 1)
    assert "UTF-8" in told and "byte 7" in told


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("words", "messages"),
    [
        (("-g", "sexx"), ("no column 'sexx'", "did you mean 'sex'")),
        (("-g", "age_in_years"), ("different numbers", "looks like a measurement")),
        (("-g", "credit_amount"), ("different numbers",)),
        (("-g", "sex", "--columns", "age_in_year"), ("did you mean 'age_in_years'",)),
        (("-g", "sex", "--columns", "purpose"), ("'purpose' is text", "line 2 has 'A43'")),
        (("-g", "sex", "--columns", "age_in_years,age_in_years"), ("twice",)),
        (("-g", "sex", "--columns", " , "), ("names no column",)),
        (("-g", "credit_risk", "--columns", "credit_risk"), ("is the group column",)),
        (
            ("-g", "sex", "--balance", 0.9),
            ("--balance 0.9 cannot be reached", "'female' to 'male'"),
        ),
        (("-g", "sex", "--balance", 0.1, "--gap", 0.1), ("exclude each other",)),
        (("-g", "sex", "--out", "no/l.csv"), ("--out no/l.csv", "does not exist")),
        (("-g", "sex", "--report", "no/l.html"), ("--report no/l.html", "does not exist")),
        (("-g", "sex", "--out", "german.csv", "--force"), ("the file to read",)),
        (("-g", "sex", "--out", "./x", "--report", "x"), ("a file of its own",)),
        (("-g", "sex", "--out", "."), ("is a folder",)),
        (("-g", "sex", "--metric", "l2"), ("l2",)),
        (("-g", "sex", "--gap", 3), ("gap",)),
    ],
)
def test_bad_requests(german, words, messages):
    told = refused("german.csv", "-k", 3, *words)
    for message in messages:
        assert message in told


def test_balance_of_the_refusal_can_be_reached(german):
    told = refused("german.csv", "-g", "sex", "-k", 2, "--balance", 0.9)
    best = told.split("give --balance ")[1].split()[0]
    assert few("german.csv", "-g", "sex", "-k", 2, "--balance", best).exit_code == 0


def test_constant_columns_that_were_asked_for():
    path = written("a,b,g\n1,2,x\n3,2.0,y\n4,2,x\n")
    told = refused(path, "-g", "g", "-k", 2, "--columns", "a,b")
    assert "constant columns: 'b'" in told


def test_files_are_overwritten_by_force_only(folder):
    path = small()
    (folder / "l.csv").write_text("mine")
    assert "--out l.csv exists" in refused(path, "-g", "g", "-k", 2, "--out", "l.csv")
    assert few(path, "-g", "g", "-k", 2, "--out", "l.csv", "--force").exit_code == 0
    assert (folder / "l.csv").read_text().startswith("a,b,g,cluster\n")
    assert sorted(p.name for p in folder.iterdir()) == ["l.csv", "small.csv"]
    told = refused("l.csv", "-g", "g", "-k", 2, "--out", "m.csv")
    assert "has a column 'cluster' already" in told


def test_outputs_are_checked_before_the_file_is_read():
    assert "does not exist" in refused("nofile.csv", "-g", "g", "-k", 2, "--out", "no/l.csv")


def test_errors_as_json():
    result = run("nofile.csv", "-g", "g", "-k", 2, "--json")
    assert result.exit_code == 2 and result.stderr == ""
    assert json.loads(result.stdout)["error"] == "DataError"


def test_an_interrupted_run_writes_what_it_has_and_says_so(monkeypatch):
    path = small()
    fit = of.FairKMeans.fit

    def early(self, *args, **rest):
        fit(self, *args, **rest)
        self.status_ = "interrupted"
        return self

    monkeypatch.setattr(of.FairKMeans, "fit", early)
    result = run(path, "-g", "g", "-k", 2, "--out", "l.csv", "--report", "r.html")
    assert result.exit_code == 1 and "interrupted" in result.stdout
    with open("r.html") as f:
        assert "stopped early" in f.read()
    assert read_table(Path("l.csv")).header[-1] == "cluster"


def test_warnings_of_the_fit_become_notices(monkeypatch):
    path = small()
    fit = of.FairKMeans.fit

    def warned(self, *args, **rest):
        if self.fairness is not None:
            warnings.warn("clusters 1 are empty", ConvergenceWarning, stacklevel=2)
        return fit(self, *args, **rest)

    monkeypatch.setattr(of.FairKMeans, "fit", warned)
    result = run(path, "-g", "g", "-k", 2, "--report", "r.html")
    assert "notice     clusters 1 are empty" in result.stdout
    assert '<p class="notice">clusters 1 are empty</p>' in Path("r.html").read_text()
    found = json.loads(few(path, "-g", "g", "-k", 2, "--json").stdout)
    assert found["notices"] == ["clusters 1 are empty"]


def test_plain_clustering_is_never_dearer(monkeypatch):
    """Where its own starts end worse, it starts from the fair centers too."""
    path = small()
    fit = of.FairKMeans.fit

    def unlucky(self, *args, **rest):
        fit(self, *args, **rest)
        if self.fairness is None and isinstance(self.init, str):
            self.objective_ = self.cost_ = 99.0
        return self

    monkeypatch.setattr(of.FairKMeans, "fit", unlucky)
    found = json.loads(few(path, "-g", "g", "-k", 2, "--json").stdout)
    assert found["without_rule"]["cost"] <= found["objective"] + 1e-12


def test_without_jinja_or_matplotlib(monkeypatch):
    path = small()
    for module in ("jinja2", "matplotlib"):
        monkeypatch.setattr(
            "optfair.pages.importlib.util.find_spec",
            lambda name, gone=module: None if name == gone else object(),
        )
        told = refused(path, "-g", "g", "-k", 2, "--report", "r.html")
        assert f"{module} is not installed" in told and "optfair[plot]" in told
