"""Means, profiles and summaries, on numbers small enough to check by hand."""

from __future__ import annotations

import importlib
import json
import math

import numpy as np
import pytest

import optfair as of
from optfair.comparison import Comparison, Run, shifted_geometric_mean
from optfair.comparison.figures import performance_profile


def run(problem, solver, outcome="solved", seconds=1.0, **more):
    fields = {
        "problem_class": "LP",
        "version": "1.0",
        "repeat": 0,
        "reason": "" if outcome == "solved" else "why not",
        "tolerance": 1e-8,
        "time_limit": 60.0,
        "cpu_seconds": seconds,
        "megabytes": 100.0,
        "megabytes_added": 2.0,
        "objective": 5.0 if outcome == "solved" else None,
        "phases": {"solve": 0.5},
        "environment": {"optfair": of.__version__, "processor": "one"},
    }
    return Run(problem=problem, solver=solver, outcome=outcome, seconds=seconds, **fields | more)


def compared(*runs):
    return Comparison(runs, 1e-8, 60.0)


FOUR = compared(
    run("p", "a", seconds=1.0),
    run("p", "b", seconds=3.0),
    run("q", "a", seconds=8.0),
    run("q", "b", seconds=2.0),
    run("r", "a", "time_limit", 60.0),
    run("r", "b", seconds=7.0),
    run("s", "a", "refused", None),
    run("s", "b", "failed", 0.5),
)


def test_shifted_geometric_mean():
    assert shifted_geometric_mean([1.0, 7.0]) == pytest.approx(math.sqrt(2 * 8) - 1)
    assert shifted_geometric_mean([5.0, 5.0, 5.0]) == pytest.approx(5.0)
    assert shifted_geometric_mean([0.0]) == 0.0
    assert shifted_geometric_mean([1.0, 7.0], shift=10.0) == pytest.approx(math.sqrt(11 * 17) - 10)
    for values, shift in (([], 1.0), ([-1.0], 1.0), ([math.nan], 1.0), ([1.0], 0.0)):
        with pytest.raises(of.DataError):
            shifted_geometric_mean(values, shift)


def test_profile_is_dolan_and_more_on_what_a_solver_takes():
    profile = FOUR.profile()
    np.testing.assert_allclose(profile.ratios["a"], [1.0, 4.0])
    np.testing.assert_allclose(profile.ratios["b"], [1.0, 1.0, 3.0])
    assert profile.taken == {"a": 3, "b": 4}  # a refuses s
    assert profile.share("a", 1.0) == pytest.approx(1 / 3)
    assert profile.share("a", 3.99) == pytest.approx(1 / 3)
    assert profile.share("a", 4.0) == pytest.approx(2 / 3)
    assert profile.share("b", 1e9) == pytest.approx(3 / 4)
    at, shares = profile.steps("b")
    np.testing.assert_allclose(at, [1.0, 3.0])
    np.testing.assert_allclose(shares, [0.5, 0.75])


def test_a_data_profile_counts_what_is_solved_in_so_much():
    profile, values = FOUR.data_profile(), FOUR.values("seconds")
    for solver, by_problem in values.items():
        for limit in (0.0, 1.0, 2.5, 1e9):
            solved = sum(v is not None and v <= limit for v in by_problem.values())
            assert profile.share(solver, limit) == pytest.approx(solved / len(by_problem))
    assert profile.taken == FOUR.profile().taken


def test_profile_of_zeros_and_of_nothing():
    profile = performance_profile({"a": {"p": 0.0}, "b": {"p": 1.0}, "c": {"p": None}})
    assert profile.ratios["a"].tolist() == [1.0]
    assert profile.ratios["b"].tolist() == [np.inf]
    assert profile.ratios["c"].size == 0 and profile.share("c", 9.0) == 0.0
    with pytest.raises(of.DataError, match="nonnegative"):
        performance_profile({"a": {"p": 1.0}, "b": {"p": float("nan")}})


def test_summary_counts_and_bounds():
    b, a = FOUR.summary()
    assert (b.solver, b.taken, b.answered, b.refused) == ("b", 4, 3, 0)
    assert (a.solver, a.taken, a.answered, a.refused) == ("a", 3, 2, 1)
    assert a.seconds == pytest.approx((2 * 9 * 61) ** (1 / 3) - 1)  # the limit for r
    assert a.lower_bound and b.lower_bound
    ideal = (2 * 3 * 8) ** (1 / 3) - 1  # best of p, q and r
    assert a.ratio == pytest.approx(a.seconds / ideal)
    # nobody has an answer to s: the best is the limit too
    assert b.ratio == pytest.approx(((4 * 3 * 8 * 61) ** 0.25 - 1) / ((2 * 3 * 8 * 61) ** 0.25 - 1))
    text = repr(FOUR)
    assert f">={a.seconds:.3g}" in text and "4 problems" in text


def test_failures_are_not_refusals():
    assert [(r.problem, r.solver) for r in FOUR.failures()] == [("r", "a"), ("s", "b")]
    assert [(r.problem, r.solver) for r in FOUR.refusals()] == [("s", "a")]
    assert all(r.reason for r in FOUR.failures())


def test_repeats_take_the_median_and_the_worst_outcome():
    c = compared(*(run("p", "a", seconds=s, repeat=i) for i, s in enumerate((9.0, 1.0, 2.0))))
    assert c.values()["a"] == {"p": 2.0}
    c = compared(run("p", "a"), run("p", "a", "failed", 2.0, repeat=1))
    assert c.values()["a"] == {"p": None}
    assert c.cells["p", "a"].outcome == "failed"


def test_contradictions():
    assert FOUR.conflicts() == ()
    assert compared(run("p", "a", objective=5.0 + 1e-7), run("p", "b")).conflicts() == ()
    (text,) = compared(run("p", "a", objective=5.1), run("p", "b")).conflicts()
    assert "p" in text and "5.1" in text
    (text,) = compared(run("p", "a", stated=4.0)).conflicts()
    assert "certified optimum 4" in text
    (text,) = compared(run("p", "a"), run("p", "b", "infeasible")).conflicts()
    assert "infeasible" in text
    assert len(compared(run("p", "a", "infeasible", stated=4.0)).conflicts()) == 1
    assert len(compared(run("p", "a", "unbounded", stated=4.0)).conflicts()) == 1
    # each is near the first, and not near the other
    three = [run("p", s, objective=5.0 + d) for s, d in (("a", 0.0), ("b", 4e-6), ("c", -4e-6))]
    assert len(compared(*three).conflicts()) == 1
    # what was not verified contradicts nothing
    assert compared(run("p", "a"), run("p", "b", "failed", objective=9.0)).conflicts() == ()
    assert "CONFLICT" in repr(compared(run("p", "a", stated=4.0)))


def test_parts_by_class():
    c = compared(run("p", "a"), run("q", "a", problem_class="QP"))
    assert c.of_class("QP").problems == ("q",)
    with pytest.raises(of.DataError, match="did you mean"):
        c.of_class("QPP")
    with pytest.raises(of.DataError, match="seconds"):
        c.values("second")


def test_json_comes_back(tmp_path):
    FOUR.save(tmp_path / "c.json")
    again = Comparison.load(tmp_path / "c.json")
    assert again == FOUR
    record = json.loads((tmp_path / "c.json").read_text())
    assert record["environments"] == [{"optfair": of.__version__, "processor": "one"}]


def test_tables_have_every_run_with_versions(tmp_path):
    import pandas as pd

    FOUR.save(tmp_path / "c.csv")
    frame = FOUR.to_frame()
    assert len(frame) == 8
    for read in (pd.read_csv(tmp_path / "c.csv"), frame):
        assert read["seconds"].tolist()[:2] == [1.0, 3.0]
        assert set(read["version"].astype(str)) == {"1.0"}
        assert set(read["environment_optfair"]) == {of.__version__}
        assert read["outcome"].tolist().count("refused") == 1


def test_parquet_carries_the_environment(tmp_path):
    pq = importlib.import_module("pyarrow.parquet")
    FOUR.save(tmp_path / "c.parquet")
    table = pq.read_table(tmp_path / "c.parquet")
    assert table.column("solver").to_pylist() == [r.solver for r in FOUR.runs]
    about = json.loads(table.schema.metadata[b"optfair"])
    assert about["environments"] == FOUR.environments and about["tolerance"] == 1e-8


def test_what_is_not_a_comparison(tmp_path):
    with pytest.raises(of.DataError, match="ends in none of"):
        FOUR.save(tmp_path / "c.xlsx")
    with pytest.raises(of.DataError, match="there is no folder"):
        FOUR.save(tmp_path / "none" / "c.json")
    with pytest.raises(of.DataError, match="there is no file"):
        Comparison.load(tmp_path / "c.json")
    for text, match in (
        ("{", "not valid JSON"),
        ("[]", "not a comparison"),
        ("{}", "not a comparison"),
    ):
        (tmp_path / "c.json").write_text(text)
        with pytest.raises(of.DataError, match=match):
            Comparison.load(tmp_path / "c.json")
    with pytest.raises(of.DataError, match="outcome 'perfect'"):
        Run.from_dict(run("p", "a").to_dict() | {"outcome": "perfect"})


def test_the_picture_has_the_steps():
    import matplotlib.pyplot as plt

    from optfair.plots import plot_profile

    ax = plot_profile(FOUR)
    lines = {line.get_label(): line.get_xydata() for line in ax.lines}
    assert set(lines) == {"a, 2 of 3", "b, 3 of 4"}
    np.testing.assert_allclose(lines["a, 2 of 3"][1:3], [[1.0, 1 / 3], [4.0, 2 / 3]])
    assert lines["a, 2 of 3"][-1][1] == pytest.approx(2 / 3)
    assert ax.get_xlabel() == "wall time, ratio to the best solver"
    assert [line.get_drawstyle() for line in ax.lines] == ["steps-post"] * 2
    with pytest.raises(of.DataError, match="nothing to draw"):
        plot_profile(compared(run("s", "a", "refused", None)))
    plt.close("all")


def test_another_tolerance_judges_the_same_points():
    c = compared(
        run("p", "a", passes=1e-10),
        run("p", "b", "failed", objective=5.0, passes=3e-6),
        run("q", "a", "time_limit", 2.0, objective=5.0, passes=1e-3),
        run("q", "b", "time_limit", 61.0, objective=5.0, passes=1e-10),  # it came late
        run("r", "a", "infeasible"),
        run("r", "b", "failed"),  # it left no point
    )
    at = lambda t: [r.outcome for r in c.at(t).runs]
    late, proof, none = "time_limit", "infeasible", "failed"
    assert at(1e-5) == ["solved", "solved", "time_limit", late, proof, none]
    assert at(1e-2) == ["solved", "solved", "solved", late, proof, none]
    assert at(1e-11) == ["failed", "failed", "time_limit", late, proof, none]
    assert c.at(1e-11).runs[0].reason == "it passes at 1.0e-10"
    assert c.at(1e-5).tolerance == 1e-5 and c.at(1e-5).runs[1].reason == ""
    assert c.at(1e-11).at(1e-8).runs[0] == c.runs[0]
    assert at(3e-6)[1] == "solved" and at(2.9e-6)[1] == "failed"
    with pytest.raises(of.DeclarationError, match="tolerance"):
        c.at(2.0)


def test_means_have_the_shift_that_is_asked_for():
    b, a = FOUR.summary(shift=10.0)
    assert a.seconds == pytest.approx((11 * 18 * 70) ** (1 / 3) - 10)
    assert b.solver == "b" and FOUR.summary() == FOUR.summary(1.0)
    with pytest.raises(of.DataError):
        FOUR.summary(shift=0.0)


def test_records_of_earlier_versions_are_read():
    record = run("p", "a").to_dict()
    for younger in ("options", "passes", "load"):
        del record[younger]
    assert Run.from_dict(record) == run("p", "a")
    with pytest.raises(of.DataError, match="fields gap"):
        Run.from_dict({k: v for k, v in record.items() if k != "gap"})


def asked_at(tolerance):
    """Return a comparison at a tolerance: b is ten times as slow and a thousand times as exact."""
    kept = {"tolerance": tolerance, "stated": 4.0}
    runs = [
        run("p", "a", seconds=1.0, **kept | {"objective": 4.0 + 4 * tolerance}),
        run("q", "a", seconds=3.0, **kept | {"objective": 4.0, "feasibility": tolerance}),
        run("r", "a", "failed", None, **kept),
        run("p", "b", seconds=20.0, gap=1e-3 * tolerance, feasibility=0.0, tolerance=tolerance),
        run("q", "b", "infeasible", 20.0, tolerance=tolerance),
        run("r", "b", "refused", None, tolerance=tolerance),
    ]
    return Comparison(tuple(runs), tolerance, 60.0)


def test_accuracies_are_medians_over_runs_that_count():
    rows = asked_at(1e-8).accuracy(asked_at(1e-2))
    assert [(r.solver, r.tolerance) for r in rows] == [
        *(("a", 1e-2), ("a", 1e-8)),
        *(("b", 1e-2), ("b", 1e-8)),
    ]
    rough, _, other, _ = rows
    assert (rough.answered, rough.runs) == (2, 3)
    # no point, no digit, and the whole limit
    assert rough.seconds == (1.0, 3.0, 60.0) and rough.median("seconds") == 3.0
    assert rough.objective == pytest.approx((1e-2, 0.0, 1.0))
    assert rough.feasibility == (1.0, 1e-2, 1.0)
    assert (other.answered, other.runs, other.objective) == (1, 1, (1e-5,))  # a proof has no point
    with pytest.raises(of.DataError, match=r"two comparisons are at the tolerance 0\.01"):
        asked_at(1e-2).accuracy(asked_at(1e-2))
    with pytest.raises(of.DataError, match="int is no comparison"):
        asked_at(1e-2).accuracy(3)


def test_the_picture_of_accuracies_has_a_mark_a_tolerance():
    import matplotlib.pyplot as plt

    from optfair.plots import plot_accuracy

    both = [asked_at(1e-2), asked_at(1e-8)]
    ax = plot_accuracy(both)
    solid = [
        line for line in ax.lines if line.get_linestyle() == "-" and len(line.get_xdata()) == 2
    ]
    # in the order and the colours of a profile: b answers all it takes
    np.testing.assert_allclose(solid[0].get_xydata(), [[20.0, 1e-5], [20.0, 1e-11]])
    np.testing.assert_allclose(solid[1].get_xydata(), [[3.0, 1e-2], [3.0, 1e-8]])
    marks = [m for m in ax.lines if m.get_marker() in "os" and len(m.get_xdata()) == 1]
    hollow = [m.get_markerfacecolor() for m in marks]
    assert [c == "white" for c in hollow] == [False, False, True, True]
    told = [text.get_text() for text in ax.get_legend().get_texts()]
    assert told == ["b, 1 of 1", "a, 2 of 3", "asked for 0.01", "asked for 1e-08"]
    single = plot_accuracy(both[0], measure="feasibility")
    assert single.get_ylabel() == "largest violation"
    # what is exact is drawn where rounding ends
    assert min(line.get_ydata()[0] for line in single.lines) == 1e-16
    for bad, match in (
        ([], "no comparison"),
        (3, "no comparison"),
        (compared(run("q", "b", "infeasible")), "nothing to draw"),
    ):
        with pytest.raises(of.DataError, match=match):
            plot_accuracy(bad)
    with pytest.raises(of.DataError, match="unknown measure"):
        plot_accuracy(both, measure="gap")
    plt.close("all")


def test_a_data_profile_is_drawn_over_its_measure():
    import matplotlib.pyplot as plt

    from optfair.plots import plot_profile

    ax = plot_profile(FOUR.data_profile())
    lines = {line.get_label(): line.get_xydata() for line in ax.lines}
    np.testing.assert_allclose(lines["a, 2 of 3"][1:3], [[1.0, 1 / 3], [8.0, 2 / 3]])
    np.testing.assert_allclose(lines["b, 3 of 4"][1:4, 0], [2.0, 3.0, 7.0])
    assert ax.get_title(loc="left") == "Data profile"
    assert ax.get_xlabel() == "wall time, seconds" and ax.get_xlim()[0] < 1.0
    plt.close("all")


@pytest.mark.slow
def test_a_page_is_written_from_python(tmp_path, monkeypatch):
    text = FOUR.to_html(command="mine & yours")
    written = FOUR.to_html(str(tmp_path / "c.html"), command="mine & yours")
    assert written == tmp_path / "c.html" and written.read_text(encoding="utf-8") == text
    assert "mine &amp; yours" in text and "2 solvers on 4 problems" in text
    assert text.count("<svg") == 3  # profile, objective, feasibility
    for bad in (tmp_path, tmp_path / "none" / "c.html", tmp_path / "c.pdf"):
        with pytest.raises(of.DataError):
            FOUR.to_html(bad)
    monkeypatch.setattr("optfair.pages.importlib.util.find_spec", lambda name: None)
    with pytest.raises(of.NotInstalled, match="is not installed"):
        FOUR.to_html(tmp_path / "d.html")
    assert not (tmp_path / "d.html").exists()


def test_a_picture_of_something_else_is_refused():
    from optfair.plots import plot_accuracy, plot_profile

    for draw in (plot_profile, plot_accuracy):
        with pytest.raises(of.DataError):
            draw(3)


def test_a_solver_that_took_nothing_says_why():
    mixed = compared(
        *(run("p", f"s{i}", "refused", None, reason=f"no licence\nof {i}") for i in range(9)),
        run("p", "a"),
    )
    text = repr(mixed).splitlines()
    assert "s0 took none: no licence of 0" in text and text[-1] == "3 more took none"
    assert "s5 took none" in mixed._repr_html_()
    assert "took none" not in repr(FOUR)
    bought = run("p", "m", "not_licensed", None, reason="m is installed but has no licence")
    here = compared(bought, run("p", "a"), *(run("p", f"s{i}", "refused", None) for i in range(9)))
    assert "m is not licensed: m is installed but has no licence" in repr(here)
    assert here.unavailable() == (bought,) and bought not in (*here.refusals(), *here.failures())
    assert [row.refused for row in here.summary() if row.solver == "m"] == [0]


def test_a_run_prints_as_one_line():
    assert repr(run("p", "a")) == "Run of p by a: solved in 1 s, objective 5"
    assert repr(run("s", "a", "refused", None)) == "Run of s by a: refused (why not)"
