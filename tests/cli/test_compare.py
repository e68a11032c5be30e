"""The command compare: its numbers, its page, its exit codes."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest
import typer
from matplotlib.image import imread
from typer.testing import CliRunner

import optfair as of
from optfair.cli.solve import compare
from optfair.comparison import Comparison, Run
from optfair.comparison.figures import rendered

EVIL = "<script>alert(1)</script>"
app = typer.Typer()
app.command()(compare)


def run(*words):
    return CliRunner().invoke(app, [str(w) for w in words])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return (folder, page, numbers) of four instances."""
    folder = tmp_path_factory.mktemp("compare")
    names = ["diet", "diet_low_salt", "knapsack", "smallest_ball"]
    words = [*names, "--solvers", "highs,scs", "--time-limit", 200, "--out", folder / "runs"]
    result = run(*words, "--report", folder / "r.html", "--json")
    assert result.exit_code == 0, result.output
    return folder, (folder / "r.html").read_text(encoding="utf-8"), json.loads(result.stdout)


def one(problem, solver, outcome="solved", seconds=1.0, **more):
    fields = {
        "problem_class": "LP",
        "version": "1",
        "repeat": 0,
        "reason": "" if outcome == "solved" else "gap 1e-3",
        "tolerance": 1e-8,
        "time_limit": 60.0,
        "cpu_seconds": seconds,
        "objective": 5.0,
    }
    return Run(problem=problem, solver=solver, outcome=outcome, seconds=seconds, **fields | more)


HOSTILE = Comparison(
    (
        one(EVIL, "a", reason=EVIL),
        one(EVIL, "b", "failed", 2.0, reason="</script><img src=x onerror=alert(1)>"),
        one("{{ 7*7 }}", "a", "time_limit", 61.0),
        one("</title></svg><b onload=x>", "$\\frac{x$", seconds=0.5, version='"><svg onload=x>'),
        one('p" onmouseover="alert(1)', "a", seconds=10.0, stated=5.0),
        one("large", "a", seconds=9.0),
        one("refuses", "a", "refused", None, reason="<i>no</i>"),
    ),
    1e-8,
    60.0,
)


class Page(HTMLParser):
    """Collects elements, attributes, text, and the rows of the sortable table."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.words, self.scripts = [], [], [], []
        self.rows, self._in_results, self._script = [], False, False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self._script = tag == "script"
        if tag == "table":
            self._in_results = ("id", "results") in attrs
        if self._in_results and tag == "tr":
            self.rows.append([])
        if self._in_results and tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        self._script = False
        if tag == "table":
            self._in_results = False

    def handle_data(self, data):
        if self._script:
            self.scripts.append(data)
            return
        self.words.append(data)
        if self._in_results and self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


def test_the_document(made):
    _, _, n = made
    assert n["tolerance"] == 1e-8 and n["conflicts"] == []
    outcomes = {(r["problem"], r["solver"]): r["outcome"] for r in n["runs"]}
    assert outcomes["textbook/diet", "highs"] == "solved"
    assert outcomes["textbook/diet_low_salt", "highs"] == "infeasible"
    assert outcomes["textbook/knapsack", "scs"] == "refused"
    assert {(r["problem"], r["solver"]) for r in n["refusals"]} == {
        ("textbook/knapsack", "scs"),
        ("textbook/smallest_ball", "highs"),
    }
    assert n["environments"][0]["optfair"] == of.__version__
    assert [row["solver"] for row in n["summary"]]


def test_text_and_resuming(made):
    folder, _, n = made
    result = run("diet", "knapsack", "--solvers", " highs , scs", "--out", folder / "runs")
    assert result.exit_code == 0, result.output
    assert "2 problems, tolerance 1e-08, time limit 60 s" in result.stdout
    seconds = {r["problem"]: r["seconds"] for r in n["runs"] if r["solver"] == "highs"}
    record = json.loads((folder / "runs" / "comparison.json").read_text())
    kept = {r["problem"]: r["seconds"] for r in record["runs"] if r["solver"] == "highs"}
    assert kept == {k: seconds[k] for k in kept} and len(kept) == 2


def test_the_page_holds_the_numbers(made):
    _, text, n = made
    page = Page(text)
    words = " ".join(" ".join(page.words).split())
    assert "2 solvers on 4 problems" in words
    body = page.rows[1:]
    assert len(body) == sum(r["outcome"] != "refused" for r in n["runs"])
    diet = next(r for r in body if r[0] == "textbook/diet" and r[2] == "highs")
    assert diet[3] == "solved" and diet[-1].strip() == "88.2"
    raw = next(r for r in n["runs"] if r["problem"] == "textbook/diet" and r["solver"] == "highs")
    assert f'data-value="{raw["seconds"]!r}"' in text
    for part in ("proved infeasible", "certified optimum 88.2", "not SOCP", of.__version__):
        assert part in words, part
    assert page.tags.count("svg") == 3 and page.tags.count("details") == 4
    command = shlex.split(words.split("Reproduce ")[1].split(" environment")[0])
    assert command[:2] == ["optfair", "compare"] and "highs,scs" in command


def test_failures_and_contradictions_are_shown():
    page = Page(rendered(HOSTILE))
    words = " ".join(" ".join(page.words).split())
    assert "≥ 60" in words and "gap 1e-3" in words
    wrong = Comparison((one("p", "a", stated=4.0),), 1e-8, 60.0)
    assert "Contradiction. p: a has 5, certified optimum 4" in "".join(Page(rendered(wrong)).words)
    refused = Comparison((one("p", "a", "refused", None),), 1e-8, 60.0)
    assert Page(rendered(refused)).tags.count("svg") == 0


def test_it_needs_nothing_from_outside_and_escapes(made):
    for text in (made[1], rendered(HOSTILE, EVIL)):
        page = Page(text)
        assert not {"link", "img", "iframe", "object"} & set(page.tags)
        assert not [v for k, v in page.attributes if k in ("src", "action", "data")]
        assert not [v for k, v in page.attributes if "href" in k and not v.startswith("#")]
        assert not [k for k, _ in page.attributes if k.startswith("on")]
        assert page.tags.count("script") == 1
        assert "default-src 'none'" in text and "@import" not in text
    words = "".join(page.words)
    for part in (EVIL, "{{ 7*7 }}", "</title></svg><b onload=x>", 'p" onmouseover="alert(1)'):
        assert part in words, part


def test_exit_codes(tmp_path, monkeypatch):
    assert run("no_such_instance").exit_code == 2
    assert run("diet", "--solvers", "higs").exit_code == 2
    assert run("diet", "--solvers", " , ").exit_code == 2
    assert run("diet", "--tolerance", 0).exit_code == 2
    error = run("diet", "--solvers", "higs", "--json")
    assert error.exit_code == 2 and "did you mean" in json.loads(error.stdout)["remedy"]
    (tmp_path / "r.html").write_text("mine")
    monkeypatch.setattr("optfair.comparison.compare_solvers", None)  # nothing may be run
    assert run("diet", "--report", tmp_path / "r.html").exit_code == 2
    assert run("diet", "--report", tmp_path / "none" / "r.html").exit_code == 2
    assert run("diet", "--report", tmp_path / "r.pdf").exit_code == 2
    wrong = Comparison((one("p", "a", stated=4.0),), 1e-8, 60.0)
    monkeypatch.setattr("optfair.comparison.compare_solvers", lambda *a, **k: wrong)
    result = run("diet")
    assert result.exit_code == 1 and "CONFLICT" in result.stdout


# --- in a browser --------------------------------------------------------------------------


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


def clicked(browser, folder, text, column, times):
    """Return the page after clicks on the head of a column, made by a second script."""
    click = f"""<script>for (let i = 0; i < {times}; i++) {{
      document.querySelectorAll("#results thead button")[{column}].click(); }}</script></body>"""
    # the page's own policy would refuse the script that clicks
    probe = folder / "probe.html"
    open_page = re.sub(r"<meta http-equiv[^>]*>", "", text).replace("</body>", click)
    probe.write_text(open_page, encoding="utf-8")
    return Page(browse(browser, folder, probe, "--dump-dom").stdout.decode())


@pytest.mark.browser
def test_a_click_sorts(browser, tmp_path):
    text = rendered(HOSTILE)
    column = Page(text).rows[0].index("seconds")
    before = [row[column] for row in Page(text).rows[1:]]
    assert before == ["1", "2", "≥ 60", "0.5", "10", "9"]
    up = clicked(browser, tmp_path, text, column, 1)
    # by number: 10 is more than 9 and 60 more than both
    assert [row[column] for row in up.rows[1:]] == ["0.5", "1", "2", "9", "10", "≥ 60"]
    assert ("aria-sort", "ascending") in up.attributes
    assert up.rows[1][0] == "</title></svg><b onload=x>"  # rows move as a whole
    down = clicked(browser, tmp_path, text, column, 2)
    assert [row[column] for row in down.rows[1:]] == ["≥ 60", "10", "9", "2", "1", "0.5"]
    by_name = clicked(browser, tmp_path, text, 2, 1)
    assert {row[2] for row in by_name.rows[1:3]} == {"$\\frac{x$", "a"}
    ratios = clicked(browser, tmp_path, text, column + 1, 2)
    assert [row[column + 1] for row in ratios.rows[1:]][-2:] == ["–", "–"]  # none stays last


@pytest.mark.browser
def test_the_policy_lets_its_own_script_run_and_no_other(browser, tmp_path):
    text = rendered(HOSTILE)
    mark = "document.documentElement.dataset.ran = 1;"
    page = tmp_path / "r.html"
    # a script that was not written by the page does nothing
    page.write_text(text.replace("</body>", f"<script>{mark}</script></body>"), encoding="utf-8")
    assert b"data-ran" not in browse(browser, tmp_path, page, "--dump-dom").stdout
    # its own does: the same script with a mark and the hash of both
    import base64
    import hashlib

    script = "".join(Page(text).scripts)
    old = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{old}'" in text
    new = base64.b64encode(hashlib.sha256((script + mark).encode()).digest()).decode()
    page.write_text(text.replace(old, new).replace(script, script + mark), encoding="utf-8")
    assert b"data-ran" in browse(browser, tmp_path, page, "--dump-dom").stdout


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 420])
def test_a_browser_draws_it(made, browser, tmp_path, width):
    _, text, _ = made
    frame = tmp_path / "frame.html"
    # a headless window is never narrower than 500, a frame may be
    (tmp_path / "r.html").write_text(text, encoding="utf-8")
    frame.write_text(
        f"<body style='margin:0'><iframe src=r.html style='border:0;width:{width}px;height:2600px'>"
        "</iframe>"
    )
    shot = tmp_path / "shot.png"
    browse(browser, tmp_path, frame, f"--screenshot={shot}", "--window-size=1280,2600")
    picture = imread(shot)[:, :width, :3]
    blue = np.array([0, 0x72, 0xB2]) / 255
    drawn = np.abs(picture - blue).max(axis=2) < 0.05
    assert drawn.sum() > 50  # the first solver's line
    # nothing is cut at the right: the last columns of pixels are paper
    assert (picture[:, -8:] > 0.9).all()
