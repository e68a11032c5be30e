"""The report: complete, harmless, reproducible, and rendered by a browser."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest
from matplotlib.image import imread
from typer.testing import CliRunner

import optfair as of
from optfair.cli.app import app

EVIL = "<script>alert(1)</script>"


def run(*words):
    result = CliRunner().invoke(app, ["cluster", *(str(w) for w in words)])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return (folder, page, numbers) for German Credit."""
    folder = tmp_path_factory.mktemp("report")
    csv = folder / "german.csv"
    of.datasets.load("german_credit").frame().to_csv(csv, index=False)
    words = (csv, "-g", "sex", "-k", 4, "--n-init", 3)
    numbers = json.loads(
        run(*words, "--out", folder / "l.csv", "--report", folder / "r.html", "--json")
    )
    return folder, (folder / "r.html").read_text(encoding="utf-8"), numbers


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """Return the page about a table that would like to run code."""
    folder = tmp_path_factory.mktemp("hostile")
    rng = np.random.default_rng(0)
    names = [EVIL, 'a"b onload=alert(1)', "{{ 7*7 }}", "$\\frac{x$", "]]>--><svg onload=x>"]
    quoted = ",".join('"' + n.replace('"', '""') + '"' for n in names)
    groups = ["<img src=x onerror=alert(1)>", "日本 & co", "</title></svg>"]
    rows = [
        ",".join(f"{v:.4f}" for v in rng.normal(size=5)) + ',"' + groups[i % 3] + '"'
        for i in range(60)
    ]
    csv = folder / "<b>t.csv"
    csv.write_text("\n".join([quoted + ",<g>", *rows]), encoding="utf-8")
    run(csv, "-g", "<g>", "-k", 3, "--n-init", 2, "--report", folder / "r.html")
    return folder, (folder / "r.html").read_text(encoding="utf-8")


class Page(HTMLParser):
    """Collects elements, attributes, ids and text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.ids, self.words = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.ids += [v for k, v in attrs if k == "id"]

    def handle_data(self, data):
        self.words.append(data)


def test_it_holds_the_numbers(made):
    _, text, n = made
    words = " ".join(" ".join(Page(text).words).split())
    for part in (
        f"{n['balance']:.3f} balance of the labels",
        f"{n['cost']:.4g} cost of the labels",
        f"{n['cost'] / n['without_rule']['cost'] - 1:+.1%}",
        f"{n['population_balance']:.3f}",
        f"{n['objective']:.6g} soft, {n['cost']:.6g} hard",
        "female 310, male 690",
        "perfect fairness",
        "not proven",
        "certified gap",
        of.__version__,
    ):
        assert part in words, part
    for column in n["columns"]:
        assert column in words
    rows = re.findall(r'<tr><th scope="row">(\d)</th><td>(\d+)</td>', text)
    assert [(int(k), int(size)) for k, size in rows] == [
        (c["cluster"], c["size"]) for c in n["clusters"]
    ]
    centers = [c["center"] for c in n["clusters"]]
    row = text.split("age_<wbr>in_<wbr>years</th>")[1].split("</tr>")[0]
    assert re.findall(r">([^<]+)</td>", row)[:4] == [f"{c['age_in_years']:.4g}" for c in centers]
    row = text.split("credit_<wbr>amount</th>")[1].split("</tr>")[0]
    assert re.findall(r">([^<]+)</td>", row)[:4] == [f"{c['credit_amount']:,.0f}" for c in centers]


def test_four_pictures_with_titles(made):
    page = Page(made[1])
    assert page.tags.count("svg") == 4
    assert len(page.ids) == len(set(page.ids))
    labelled = [v for k, v in page.attributes if k == "aria-labelledby"]
    assert len(labelled) == 4
    assert all(part in page.ids for label in labelled for part in label.split())


def test_it_needs_nothing_from_outside(made, hostile):
    for text in (made[1], hostile[1]):
        page = Page(text)
        assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
        outside = [
            (k, v)
            for k, v in page.attributes
            if k in ("src", "href", "xlink:href", "action", "data") and not v.startswith("#")
        ]
        assert outside == []
        assert not [v for v in re.findall(r"url\(([^)]*)\)", text) if not v.startswith("#")]
        assert "default-src 'none'" in text and "@import" not in text


def test_what_the_file_says_is_text(hostile):
    _, text = hostile
    page = Page(text)
    assert not [k for k, _ in page.attributes if k.startswith("on")]
    words = "".join(page.words)
    for name in (EVIL, "{{ 7*7 }}", "<img src=x onerror=alert(1)>", "日本 & co", "</title></svg>"):
        assert name in words
    assert page.tags.count("svg") == 4 and page.tags.count("title") == 5
    assert "<b>t.csv" in words
    assert "$\\frac{x$" in words


@pytest.mark.slow
def test_the_command_makes_the_same_page(made):
    folder, text, _ = made
    command = "".join(Page(text).words).split("The command, in the folder it was given in:")[1]
    words = shlex.split(command.split("The same")[0])
    assert words[:2] == ["optfair", "cluster"]
    labels = (folder / "l.csv").read_bytes()
    run(*words[2:], "--force")
    assert (folder / "l.csv").read_bytes() == labels
    again = (folder / "r.html").read_text(encoding="utf-8")
    blank = re.compile(r"<dt>seconds</dt><dd>.*?</dd>")
    assert blank.sub("", again) == blank.sub("", text)


def test_the_python_code_gives_the_same_labels(made):
    folder, text, _ = made
    code = "".join(Page(text).words).split("The same clustering in Python:")[1]
    code = code.split("seed\n")[0].split("labels = ")
    scope: dict = {}
    line = code[1].split("\n")[0]
    exec(f"{code[0]}labels = {line}", scope)
    with (folder / "l.csv").open() as f:
        written = [int(row.rsplit(",", 1)[1]) for row in f.read().splitlines()[1:]]
    assert scope["labels"].tolist() == written


def test_many_groups_have_a_table_and_no_picture(tmp_path):
    rng = np.random.default_rng(0)
    rows = "".join(
        f"{a:.3f},{b:.3f},g{i % 9}\n" for i, (a, b) in enumerate(rng.normal(size=(90, 2)))
    )
    (tmp_path / "t.csv").write_text("a,b,g\n" + rows)
    run(tmp_path / "t.csv", "-g", "g", "-k", 2, "--n-init", 1, "--report", tmp_path / "r.html")
    text = (tmp_path / "r.html").read_text()
    assert text.count("<svg") == 1 and "More groups than colours" in text
    assert ">g8</th>" in text


@pytest.mark.slow
def test_other_shapes_of_tables(tmp_path):
    (tmp_path / "t.csv").write_text("a;g\n" + "".join(f"{i};{'xy'[i % 2]}\n" for i in range(30)))
    words = ("-g", "g", "-k", 2, "--gap", 0.2, "--metric", "l1", "--no-standardize")
    run(tmp_path / "t.csv", *words, "--report", tmp_path / "r.html")
    words = "".join(Page((tmp_path / "r.html").read_text()).words)
    assert "sep=';'" in words and "of.additive_gap(0.2), metric='l1'" in words
    assert "k-medians" in words and "X.mean" not in words and "as they are" in words


def browse(browser, folder, page, *options):
    command = [
        *(browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
        *("--disable-background-networking", "--hide-scrollbars"),
        "--host-resolver-rules=MAP * ~NOTFOUND",  # nothing leaves this machine
        f"--user-data-dir={folder / 'profile'}",
        *options,
        page.as_uri(),
    ]
    return subprocess.run(command, capture_output=True, timeout=120, check=True, cwd=folder)


def requested(browser, folder, page):
    """Return what a page asks the network for; the browser's own requests do not count."""
    log = folder / f"{page.stem}.json"
    browse(browser, folder, page, "--dump-dom", f"--log-net-log={log}")
    # an event per line; those of a page carry where it came from
    events = [e for e in log.read_text(errors="replace").splitlines() if '_key":"file:' in e]
    found = re.findall(r'"url":"([^"]*)"', "\n".join(events))
    return {url for url in found if not url.startswith(("file:", "data:"))}


@pytest.mark.browser
def test_a_browser_shows_it(made, browser, tmp_path):
    folder, _, n = made
    dom = browse(browser, tmp_path, folder / "r.html", "--dump-dom").stdout.decode()
    words = " ".join(" ".join(Page(dom).words).split())
    assert f"{n['balance']:.3f} balance of the labels" in words
    assert f"{n['cost']:.4g} cost of the labels" in words
    assert dom.count("<svg") == 4


@pytest.mark.browser
def test_a_browser_asks_for_nothing(made, browser, tmp_path):
    probe = tmp_path / "probe.html"
    probe.write_text("<img src='http://elsewhere.invalid/x.png'>")
    assert requested(browser, tmp_path, probe) == {"http://elsewhere.invalid/x.png"}
    assert requested(browser, tmp_path, made[0] / "r.html") == set()


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 500])
def test_a_browser_draws_it(made, browser, tmp_path, width):
    shot = tmp_path / "shot.png"
    folder = made[0]
    page = folder / "r.html"
    browse(browser, tmp_path, page, f"--screenshot={shot}", f"--window-size={width},3000")
    picture = imread(shot)[..., :3]
    assert picture.shape[:2] == (3000, width)
    # the bars' blue and orange are there: the pictures were drawn
    for colour in ("#0072b2", "#e69f00"):
        rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        drawn = (np.abs(picture - rgb).max(axis=2) < 0.02).mean()
        assert drawn > 0.005, (colour, drawn)


@pytest.mark.browser
def test_a_browser_runs_nothing_of_the_file(hostile, browser, tmp_path):
    folder, text = hostile
    probe = folder / "probe.html"
    # without the page's own policy: escaping alone must do
    probe.write_text(re.sub(r"<meta http-equiv[^>]*>", "", text), encoding="utf-8")
    dom = browse(browser, tmp_path, probe, "--dump-dom").stdout.decode()
    page = Page(dom)
    assert not {"script", "img", "b "} & set(page.tags)
    assert EVIL in "".join(page.words)
    assert page.tags.count("svg") == 4
