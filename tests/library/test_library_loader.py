"""Files of instances: unknown keys, schema, names, user folders."""

from __future__ import annotations

import pytest

import optfair as of

DIET = """
schema = 1
model = "Diet"
class = "LP"
source = "made up"

[data]
cost = [2.0, 3.0]
nutrition = [[1.0, 2.0]]
minimum = [4.0]

[optimum]
value = 6.0
certified_by = "highs"
gap = 1e-9
checked_by = ["clarabel"]
"""
ROWS = """
schema = 1
model = "FairAssignment"
class = "LP"
source = "made up"

[data]
dataset = "german_credit"
groups = "sex"
sample = { rows = 40, seed = 0 }
centers = { method = "kmeans++", seed = 0, k = 3 }
fairness = { kind = "max_gap", eps = 0.1 }

[rules.share]
kind = "cluster_share"
lower = 0.1
"""


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.setenv("OPTFAIR_PROBLEMS", str(tmp_path))

    def put(text, name="mine/one"):
        path = tmp_path / f"{name}.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return name

    return put


def test_a_folder_of_ones_own(write):
    name = write(DIET)
    assert name in of.library.names()
    instance = of.library.load("one")
    assert (instance.name, instance.model, instance.optimum.value) == (name, "Diet", 6.0)
    assert of.library.certify(instance)
    assert of.library.load("textbook/diet").problem().problem_class == of.core.ProblemClass.parse(
        "LP"
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("source =", "sorce =", "did you mean 'source'"),
        ("schema = 1", "schema = 2", "schema 2"),
        ('model = "Diet"\n', "", "no 'model'"),
        ('class = "LP"', 'class = "PL"', "unknown problem class 'PL'"),
        ('class = "LP"', "class = 7", "give a str"),
        ("gap = 1e-9", 'gap = "small"', "give a float"),
        ("gap = 1e-9", "gab = 1e-9", "did you mean 'gap'"),
        ("gap = 1e-9\n", "", "no 'gap'"),
        ('["clarabel"]', '"clarabel"', "give a list"),
        ("[optimum]", "[optimumm]", "did you mean 'optimum'"),
        ("value = 6.0", "value = ", "not valid TOML"),
    ],
)
def test_files_that_cannot_be_read(write, old, new, message):
    assert old in DIET
    with pytest.raises(of.OptfairError, match=message):
        of.library.load(write(DIET.replace(old, new)))


def test_optimum_and_infeasible_exclude_each_other(write):
    both = DIET + '[infeasible]\nconflict = []\ncertified_by = "highs"\nchecked_by = []\n'
    with pytest.raises(of.DeclarationError, match="both"):
        of.library.load(write(both))
    with pytest.raises(of.DeclarationError, match="no 'certified_by'"):
        of.library.load(write(DIET.partition("[optimum]")[0] + "[infeasible]\nconflict = []\n"))


@pytest.mark.parametrize(
    ("text", "old", "new", "message"),
    [
        (DIET, 'model = "Diet"', 'model = "Dite"', "did you mean 'Diet'"),
        (DIET, "cost =", "costs =", "did you mean 'cost'"),
        (DIET, "minimum = [4.0]\n", "", "lacks minimum"),
        (DIET, "minimum = [4.0]", "minimum = [4.0, 1.0]", "minimum has shape"),
        (ROWS, '"german_credit"', '"german_credits"', "did you mean 'german_credit'"),
        (ROWS, 'groups = "sex"\n', "", "no groups"),
        (ROWS, '"sex"', '"sexx"', "did you mean"),
        (ROWS, "seed = 0 }\ncenters", "sede = 0 }\ncenters", "exactly rows, seed"),
        (ROWS, "rows = 40", "rows = 4000", "there are 1000"),
        (ROWS, '"kmeans++"', '"kmeans"', "unknown method 'kmeans'"),
        (ROWS, "k = 3", "n = 3", "exactly method, seed, k"),
        (ROWS, 'kind = "max_gap"', 'kind = "maxgap"', "did you mean 'max_gap'"),
        (ROWS, "eps = 0.1", "epsilon = 0.1", "unknown key 'epsilon' in fairness"),
        (ROWS, 'kind = "cluster_share"\n', "", "rules.share.* has no kind"),
        (ROWS, "lower = 0.1", "low = 0.1", "did you mean 'lower'"),
        (ROWS, "[rules.share]", "[rule.share]", "did you mean 'rules'"),
        (ROWS, 'dataset = "german_credit"', 'datset = "german_credit"', "unknown key 'datset'"),
        (ROWS, '"FairAssignment"', '"KantorovichCoupling"', "unknown key 'fairness'"),
    ],
)
def test_data_that_cannot_be_declared(write, text, old, new, message):
    assert old in text
    with pytest.raises(of.OptfairError, match=message):
        of.library.load(write(text.replace(old, new))).problem()


def test_rules_and_rows_reach_the_model(write):
    p = of.library.load(write(ROWS)).problem()
    assert p["assignment"].shape == (40, 3)
    assert list(p.constraints)[3:] == ["fairness", "share.lower"]
    plain = ROWS.replace('{ kind = "max_gap", eps = 0.1 }', '"none"')
    assert "fairness" not in of.library.load(write(plain)).problem().constraints
    perfect = ROWS.replace('fairness = { kind = "max_gap", eps = 0.1 }', "")
    assert "perfect" not in perfect
    term = of.library.load(write(perfect)).problem().constraints["fairness"]
    assert term.evidence.set == "Zero"
    explicit = "[[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]]"
    two = ROWS.replace('{ method = "kmeans++", seed = 0, k = 3 }', explicit)
    assert of.library.load(write(two)).problem()["masses"].shape == (2, 2)


def test_a_coupling_needs_two_groups(write):
    text = ROWS.partition("fairness")[0].replace("FairAssignment", "KantorovichCoupling")
    p = of.library.load(write(text)).problem()
    assert sum(p["plan"].shape) == 40
    with pytest.raises(of.DataError, match="joins two groups"):
        of.library.load(write(text.replace('"sex"', '"housing"'))).problem()


def test_names_are_suggested(write):
    with pytest.raises(of.DataError, match="did you mean 'trust_region'"):
        of.library.load("trust_regin")
    with pytest.raises(of.DataError, match="did you mean 'textbook/knapsack'"):
        of.library.load("textbok/knapsack")
    with pytest.raises(of.DataError, match="german_hard_assignment"):
        of.library.load("german_hard")
    write(DIET, "mine/knapsack")
    with pytest.raises(of.DataError, match="say textbook/knapsack or mine/knapsack"):
        of.library.load("knapsack")


def test_a_missing_folder_is_told(monkeypatch):
    monkeypatch.setenv("OPTFAIR_PROBLEMS", "/does/not/exist")
    with pytest.raises(of.DeclarationError, match="does not exist"):
        of.library.names()


def test_loading_is_repeatable():
    first, second = (of.library.load("german_k3").problem() for _ in range(2))
    np_equal = (first.cost.centers == second.cost.centers).all()
    assert np_equal and first is not second


def test_a_family_is_not_an_instance() -> None:
    with pytest.raises(of.DataError, match=r"'textbook' is a family of \d+ instances") as e:
        of.library.load("textbook")
    assert "textbook/diet" in e.value.remedy
