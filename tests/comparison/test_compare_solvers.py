"""Comparisons that are really run: what counts as solved, what is refused, what is kept."""

from __future__ import annotations

import importlib
import os
import re
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import cvxpy as cp
import joblib
import numpy as np
import pytest

import optfair as of
from optfair.comparison import ConfiguredSolver, compare_solvers, server
from optfair.comparison.compare import subjects
from optfair.comparison.run import (
    _allow_memory,
    _point,
    _wanted_memory,
    can_limit_memory,
    environment,
    measured,
)
from optfair.comparison.server import in_fork, run_instance
from optfair.core.identity import fingerprint


def small(shift=1.0, name="x"):
    x = cp.Variable(2, name=name)
    return of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum_squares(x - shift)), [x >= 2]), ["far"])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return (folder, comparison) of three instances, one infeasible and one of another class."""
    out = tmp_path_factory.mktemp("compared") / "runs"
    names = ["textbook/diet", "textbook/diet_low_salt", "textbook/smallest_ball"]
    return out, compare_solvers(names, ["highs", "scs"], time_limit=200, out=out)


def outcomes(comparison):
    return {(r.problem.rpartition("/")[2], r.solver): r.outcome for r in comparison.runs}


def test_outcomes(made):
    _, c = made
    assert outcomes(c) == {
        ("diet", "highs"): "solved",
        ("diet", "scs"): "solved",
        ("diet_low_salt", "highs"): "infeasible",
        ("diet_low_salt", "scs"): "infeasible",
        ("smallest_ball", "highs"): "refused",
        ("smallest_ball", "scs"): "solved",
    }
    assert c.conflicts() == () and c.failures() == ()
    assert "not SOCP" in c.refusals()[0].reason


def test_each_run_has_its_numbers(made):
    _, c = made
    for r in c.runs:
        if r.outcome == "refused":
            assert r.seconds is None
            continue
        assert 0 < r.seconds < 200 and r.cpu_seconds > 0
        assert 20 < r.megabytes < 2000 and 0 <= r.megabytes_added < 200
        assert r.environment["optfair"] == of.__version__ and r.environment["cvxpy"]
        assert r.version
    diet = c.cells["textbook/diet", "highs"].worst
    assert diet.objective == pytest.approx(88.2) and diet.stated == 88.2
    assert max(diet.feasibility, diet.dual, diet.gap) <= 1e-8
    assert set(diet.phases) == {
        "choose",
        "import",
        "compile",
        "solve",
        "recover",
        "verify",
        "other",
    }
    assert sum(diet.phases.values()) <= diet.seconds


def test_finished_runs_are_not_repeated(made, monkeypatch):
    out, c = made
    assert {p.name for p in out.iterdir()} == {"runs", "comparison.json", "comparison.csv"}
    assert of.comparison.Comparison.load(out / "comparison.json") == c

    def never(task):
        raise AssertionError(f"run again: {task}")

    monkeypatch.setattr("optfair.comparison.compare.run_instance", never)
    again = compare_solvers(list(c.problems), ["highs", "scs"], time_limit=200, out=out)
    assert again == c
    # what was done in less time is done within another limit too
    longer = compare_solvers(list(c.problems), ["highs", "scs"], time_limit=400, out=out)
    assert outcomes(longer) == outcomes(c)
    for changed in ({"tolerance": 1e-7}, {"repeats": 2}):
        with pytest.raises(AssertionError, match="run again"):
            compare_solvers("textbook/diet", "highs", **{"time_limit": 200, "out": out} | changed)


@pytest.mark.slow
def test_a_damaged_record_is_made_again(tmp_path):
    c = compare_solvers("textbook/diet", "highs", time_limit=20, out=tmp_path)
    (record,) = (tmp_path / "runs").iterdir()
    record.write_text(record.read_text()[:50])
    again = compare_solvers("textbook/diet", "highs", time_limit=20, out=tmp_path)
    assert again.runs[0].outcome == "solved" and again.runs[0].seconds != c.runs[0].seconds


@pytest.mark.slow
def test_an_interrupted_comparison_keeps_what_is_done(tmp_path, monkeypatch):
    import optfair.comparison.compare as module

    real, asked = module.run_instance, []

    def interrupted(task):
        asked.append(task["problem"])
        if len(asked) == 2:
            raise KeyboardInterrupt
        return real(task)

    monkeypatch.setattr(module, "run_instance", interrupted)
    names = ["textbook/diet", "textbook/knapsack"]
    some = compare_solvers(names, "highs", out=tmp_path)
    assert outcomes(some) == {("diet", "highs"): "solved"}
    assert len(list((tmp_path / "runs").iterdir())) == 1
    c = compare_solvers(names, "highs", out=tmp_path)
    assert asked == [*names, "textbook/knapsack"]
    assert set(outcomes(c).values()) == {"solved"}


def test_a_method_that_returns_a_problem_is_to_be_called():
    with pytest.raises(of.DataError, match="a method is not a problem\n  do:  call it"):
        of.compare_solvers([of.library.load("diet").problem], ["highs"])


def test_why_a_run_has_no_answer_is_said_in_words():
    s = small().solve()
    values = {name: v + 1.0 for name, v in s.values.items()}
    late = replace(s, status=replace(s.status, termination="time_limit"), values=values)
    point = _point(late, 1e-8)
    assert point["outcome"] == "time_limit"
    assert point["reason"].startswith("it ended: time limit; ")


def test_ctrl_c_leaves_the_runs_until_then(monkeypatch, caplog):
    def pressed(job):
        if len(runs) == limit:
            raise KeyboardInterrupt
        runs.append(job)
        return {"outcome": "solved", "seconds": 1.0, "objective": 2.0}

    monkeypatch.setattr("optfair.comparison.compare.in_fork", pressed)
    runs, limit = [], 3
    some = compare_solvers({"a": small(), "b": small(2)}, ["highs", "clarabel"])
    done = outcomes(some)
    assert done == dict.fromkeys([("a", "highs"), ("a", "clarabel"), ("b", "highs")], "solved")
    assert "interrupted; runs kept: 3, not made: 1" in caplog.text
    assert len(some.to_frame()) == 3 and "2 problems" in repr(some)
    # where none had ended there is nothing to return
    runs, limit = [], 0
    with pytest.raises(KeyboardInterrupt):
        compare_solvers(small(), ["highs"])


def test_ctrl_c_ends_the_copy_that_runs(tmp_path):
    file, main = tmp_path / "pid", os.getpid()

    def job():
        file.with_suffix(".part").write_text(str(os.getpid()))
        file.with_suffix(".part").rename(file)
        time.sleep(600)

    def press():
        while not file.exists():
            time.sleep(0.01)
        os.kill(main, signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        in_fork(job)
    with pytest.raises(ProcessLookupError):
        os.kill(int(file.read_text()), 0)


@pytest.mark.slow
def test_a_crash_is_tried_again(tmp_path, monkeypatch):
    crash = lambda task: {"outcome": "crashed", "reason": "out of memory?"}
    monkeypatch.setattr("optfair.comparison.compare.run_instance", crash)
    c = compare_solvers("textbook/diet", "highs", out=tmp_path)
    assert [r.reason for r in c.failures()] == ["out of memory?"]
    monkeypatch.undo()
    c = compare_solvers("textbook/diet", "highs", out=tmp_path)
    assert c.runs[0].outcome == "solved"


@pytest.mark.slow
def test_a_time_limit_is_measured_again_under_another(tmp_path, monkeypatch):
    late = lambda task: {"outcome": "time_limit", "reason": "late", "seconds": 5.1}
    monkeypatch.setattr("optfair.comparison.compare.run_instance", late)
    c = compare_solvers("textbook/diet", "highs", out=tmp_path, time_limit=5)
    again = compare_solvers("textbook/diet", "highs", out=tmp_path, time_limit=5)
    assert again == c
    monkeypatch.undo()
    c = compare_solvers("textbook/diet", "highs", out=tmp_path, time_limit=20)
    assert c.runs[0].outcome == "solved" and c.runs[0].time_limit == 20


@pytest.mark.slow
def test_problems_in_memory_go_by_fork(tmp_path):
    p = small()
    # threads of a solver in this process must not stop its copies
    p.solve("highs", threads=2)
    given = {"mine": p, "diet": "textbook/diet"}
    c = compare_solvers(given, ["highs", "clarabel"], tolerance=1e-7, out=tmp_path, n_jobs=2)
    assert set(outcomes(c).values()) == {"solved"}
    assert c.problems == ("mine", "diet")
    assert c.cells["mine", "clarabel"].worst.objective == pytest.approx(2.0)
    assert c.cells["mine", "clarabel"].worst.megabytes_added < 200
    again = compare_solvers({"other name": small()}, "clarabel", tolerance=1e-7, out=tmp_path)
    kept = c.cells["mine", "clarabel"].worst
    assert again.runs[0].seconds == kept.seconds and again.runs[0].problem == "other name"
    changed = compare_solvers(small(1.5), "clarabel", tolerance=1e-7, out=tmp_path)
    assert changed.runs[0].seconds != kept.seconds
    assert changed.runs[0].objective == pytest.approx(0.5)


@pytest.mark.slow
def test_a_registered_backend_carries_instances():
    class Counting(joblib.parallel.ThreadingBackend):
        calls = 0

        def submit(self, func, callback=None):
            Counting.calls += 1
            return super().submit(func, callback)

        def apply_async(self, func, callback=None):
            Counting.calls += 1
            return super().apply_async(func, callback)

    joblib.register_parallel_backend("counting", Counting)
    with joblib.parallel_config(backend="counting", n_jobs=2):
        c = compare_solvers(["textbook/diet", "textbook/knapsack"], "highs", n_jobs=2)
    assert Counting.calls >= 2
    assert set(outcomes(c).values()) == {"solved"}


def test_a_task_can_be_pickled_and_folders_travel(tmp_path, monkeypatch):
    import pickle

    folder = tmp_path / "mine"
    folder.mkdir()
    text = (of.library.load("textbook/diet").path).read_text()
    (folder / "meal.toml").write_text(text)
    monkeypatch.setenv("OPTFAIR_PROBLEMS", str(folder))
    task = {"problem": "meal", "solver": "highs", "tolerance": 1e-8, "time_limit": 20.0}
    task["folders"] = {"OPTFAIR_PROBLEMS": str(folder)}
    sent = pickle.loads(pickle.dumps((run_instance, task)))
    assert sent[0](sent[1])["outcome"] == "solved"
    assert compare_solvers("meal", "highs").runs[0].outcome == "solved"


def test_a_process_that_waits_serves_the_next_comparison(monkeypatch):
    server._idle.close()
    compare_solvers("textbook/diet", "highs")
    (kept,) = server._idle
    compare_solvers("textbook/diet", "highs")
    assert list(server._idle) == [kept]
    # each task brings the variables of its time; what is read once, at the start, has to be the same
    monkeypatch.setenv("OPTFAIR_SOLVERS", "/nowhere")
    task = {"problem": "textbook/diet", "solver": "highs", "tolerance": 1e-8, "time_limit": 20.0}
    assert run_instance(task | {"folders": {"OPTFAIR_SOLVERS": "/nowhere"}})["outcome"] != "solved"
    assert run_instance(task | {"folders": {}})["outcome"] == "solved"
    assert list(server._idle) == [kept]
    kept.used -= server.IDLE  # it may leave while it is asked
    assert not kept.alive
    kept.used += server.IDLE
    assert kept.alive
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    fresh = server._idle.taken()
    assert fresh is not kept and fresh.alive and not kept.alive
    fresh.close()


# --- what counts ---------------------------------------------------------------------------


def test_a_solver_that_lies_has_not_solved(monkeypatch):
    """A point that misses a constraint is a failure, whatever the solver says."""
    p = small()
    honest = p.solve("clarabel", tolerance=1e-8)
    wrong = type(honest)(**{**vars(honest), "values": {"x": np.array([1.9, 2.0])}})
    monkeypatch.setattr(type(p), "solve", lambda self, *a, **k: wrong)
    found = measured(p, "clarabel", 1e-8, 10.0)
    assert found["outcome"] == "failed"
    assert "'far' is violated" in found["reason"]


def test_a_local_optimum_is_no_answer(monkeypatch):
    from optfair.core.solution import Status

    p = small()
    best = p.solve("clarabel", tolerance=1e-8)
    status = Status("local", "feasible", "unknown")
    local = type(best)(**{**vars(best), "proof": None, "bound": -np.inf, "status": status})
    monkeypatch.setattr(type(p), "solve", lambda self, *a, **k: local)
    found = measured(p, "clarabel", 1e-8, 10.0)
    assert found["outcome"] == "local" and found["gap"] is None
    far = type(best)(**{**vars(local), "values": {"x": np.array([1.9, 2.0])}})
    monkeypatch.setattr(type(p), "solve", lambda self, *a, **k: far)
    assert measured(p, "clarabel", 1e-8, 10.0)["outcome"] == "failed"


@pytest.mark.parametrize(
    ("error", "outcome", "words"),
    [
        (of.SolverFailure("no result", "gap 1e-3"), "failed", "no result: gap 1e-3"),
        (of.Infeasible("no point"), "failed", "no point"),
        (of.SolverFailure("not proved", claim="unbounded"), "failed", "not proved"),
        (of.NotInstalled("no package"), "not_installed", "no package"),
        (of.NotLicensed("no licence"), "not_licensed", "no licence"),
        (of.SizeLimited("too large"), "not_licensed", "too large"),
        (RuntimeError("segment"), "crashed", "RuntimeError: segment"),
    ],
)
def test_errors_are_outcomes_with_reasons(monkeypatch, error, outcome, words):
    p = small()

    def solve(self, *a, **k):
        raise error

    monkeypatch.setattr(type(p), "solve", solve)
    found = measured(p, "clarabel", 1e-8, 10.0)
    assert found["outcome"] == outcome and words in found["reason"]


def test_an_answer_after_the_limit_is_late(monkeypatch, later):
    p = small()
    s = p.solve("clarabel", tolerance=1e-8)
    monkeypatch.setattr(type(p), "solve", lambda self, *a, **k: later(200.0) or s)
    found = measured(p, "clarabel", 1e-8, 100.0)
    assert found["outcome"] == "time_limit"
    assert re.search(r"solved after 2\d\d\.\d s", found["reason"])


def test_a_run_that_does_not_stop_is_ended(monkeypatch):
    p = small()
    monkeypatch.setattr("optfair.comparison.run.allowance", lambda limit: 0.3)
    # the small problem before goes through
    sleep = lambda self, *a, **k: time.sleep(600) if self is p else None
    monkeypatch.setattr(type(p), "solve", sleep)
    begin = time.perf_counter()
    c = compare_solvers(p, "clarabel", time_limit=0.2)
    assert time.perf_counter() - begin < 300
    assert c.runs[0].outcome == "time_limit" and "was ended" in c.runs[0].reason
    assert c.summary()[0].seconds == pytest.approx(0.2) and c.summary()[0].lower_bound


def test_a_dead_process_is_a_finding():
    assert in_fork(lambda: {"fine": 1}) == {"fine": 1}
    found = in_fork(lambda: os.kill(os.getpid(), signal.SIGKILL))
    assert found["outcome"] == "crashed" and "SIGKILL; out of memory?" in found["reason"]
    found = in_fork(lambda: os._exit(3))
    assert found["outcome"] == "crashed" and "exit code 3" in found["reason"]
    assert "ValueError: no" in in_fork(lambda: int("no"))["reason"].replace("invalid literal", "no")


def test_copies_of_several_threads_do_not_wait_for_each_other(tmp_path):
    runs, done = tmp_path / "runs", tmp_path / "done"
    results = []

    def wait():
        runs.touch()
        return {"later": _seen(done)}

    thread = threading.Thread(target=lambda: results.append(in_fork(wait)))
    thread.start()
    assert _seen(runs)
    assert in_fork(lambda: {"at": "once"}) == {"at": "once"}  # while the other still waits
    assert results == []
    done.touch()
    thread.join()
    assert results == [{"later": True}]


def _seen(file):
    """Wait for a file; False where it does not come."""
    end = time.monotonic() + 120.0
    while not file.exists() and time.monotonic() < end:
        time.sleep(0.01)
    return file.exists()


# --- what is asked -------------------------------------------------------------------------


@pytest.mark.slow
def test_default_is_every_installed_open_solver():
    known = of.solvers().to_list()
    c = compare_solvers("textbook/knapsack", tolerance=1e-6, time_limit=5)
    assert {"highs", "clarabel", "scs"} <= set(c.solvers)
    absent = {row["solver"] for row in known if row["state"].startswith("not installed")}
    assert not absent & set(c.solvers)
    assert c.cells["textbook/knapsack", "clarabel"].outcome == "refused"


def test_names_patterns_and_objects():
    found = subjects(["*/r[i]dge_regress*", "ridge_regression", small(), small()])
    assert [s.name for s in found] == [
        "textbook/ridge_regression",
        "CVXPY problem",
        "CVXPY problem 2",
    ]
    assert [s.name for s in subjects(of.library.load("textbook/diet"))] == ["textbook/diet"]
    assert [s.name for s in subjects({"d": "textbook/diet"})] == ["d"]


@pytest.mark.parametrize(
    ("problems", "match"),
    [
        ("textbook/diett", "did you mean"),
        ("nothing/*", "no instance matches"),
        ([], "no problem to compare on"),
        (3, "not a problem"),
        ({"all": "textbook/*"}, "stands for"),
    ],
)
def test_bad_problems(problems, match):
    with pytest.raises(of.DataError, match=match):
        compare_solvers(problems, "highs")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"tolerance": 0.0}, "tolerance"),
        ({"time_limit": -1.0}, "time_limit"),
        ({"time_limit": None}, "no time limit"),
        ({"repeats": 0}, "repeats"),
        ({"repeats": 1.5}, "repeats"),
        ({"n_jobs": 0}, "n_jobs"),
        ({"n_jobs": -2}, "n_jobs"),
    ],
)
def test_bad_options(options, match):
    with pytest.raises(of.OptfairError, match=match):
        compare_solvers("textbook/diet", "highs", **options)


def test_bad_solvers(tmp_path, monkeypatch):
    with pytest.raises(of.UnsupportedProblem, match="did you mean 'highs'"):
        compare_solvers("textbook/diet", ["higs"])
    with pytest.raises(of.DeclarationError, match="no solver to compare"):
        compare_solvers("textbook/diet", [])
    facts = (of.registry.folders("solvers")[0] / "scs.toml").read_text()
    facts = facts.replace('name = "scs"', 'name = "absent"').replace(
        'module = "scs"', 'module = "no_such_module_of_ours"'
    )
    (tmp_path / "absent.toml").write_text(facts)
    monkeypatch.setenv("OPTFAIR_SOLVERS", str(tmp_path))
    with pytest.raises(of.NotInstalled, match="absent is not installed"):
        compare_solvers("textbook/diet", "absent")
    c = compare_solvers("textbook/diet", ["absent", "highs"], repeats=2, tolerance=1e-6)
    missing = c.cells["textbook/diet", "absent"]
    assert missing.outcome == "not_installed" and "pip install" in missing.worst.reason
    assert c.unavailable() == (missing.worst,) and not c.refusals() and not c.failures()
    assert "absent is not installed: pip install" in repr(c)
    assert c.cells["textbook/diet", "highs"].outcome == "solved"


def test_bad_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(of.DataError, match="cannot be made"):
        compare_solvers("textbook/diet", "highs", out=tmp_path / "file")


# --- the hash ------------------------------------------------------------------------------


def test_a_fingerprint_sees_every_change():
    x = cp.Variable(2, name="x")
    A = np.eye(2)

    def made(A=A, b=1.0, axis=0, power=2.0, name="c", integer=False, sense=cp.Minimize):
        goal = cp.sum(cp.power(x, power))
        p = of.from_cvxpy(
            cp.Problem(sense(goal if sense is cp.Minimize else -goal), [A @ x >= b]), [name]
        )
        return p.with_integrality("x") if integer else p

    base = fingerprint(made())
    assert base == fingerprint(made(A=A.copy()))
    changes = [
        {"A": np.array([[1.0, 1e-12], [0.0, 1.0]])},
        {"b": 1.0 + 1e-12},
        {"power": 4.0},
        {"name": "d"},
        {"integer": True},
        {"sense": cp.Maximize},
    ]
    marks = [fingerprint(made(**change)) for change in changes]
    assert len({base, *marks}) == 1 + len(changes)
    assert fingerprint(made().without("c")) not in {base, *marks}


def test_fingerprints_of_the_library_differ_and_are_stable():
    names = ["diet", "diet_salt", "knapsack", "smallest_ball", "dice_entropy", "trust_region"]
    marks = [fingerprint(of.library.load(n).problem()) for n in names]
    assert len(set(marks)) == len(names)
    assert marks == [fingerprint(of.library.load(n).problem()) for n in names]
    spread = of.library.load("fair_clustering/german_k3").problem()
    wider = spread.with_constraints(share=of.cluster_share(lower=0.1))
    assert fingerprint(spread) != fingerprint(wider)
    assert fingerprint(wider) != fingerprint(
        spread.with_constraints(share=of.cluster_share(lower=0.2))
    )


@pytest.mark.slow  # two processes with their own imports: 10 seconds
@pytest.mark.filterwarnings("ignore")  # dask and its event loop have warnings of their own
def test_a_dask_cluster_of_two_workers_carries_a_comparison():
    distributed = importlib.import_module("dask.distributed")
    local = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**local) as cluster, distributed.Client(cluster):
        with joblib.parallel_config(backend="dask"):
            c = compare_solvers(["textbook/diet", "textbook/knapsack"], ["highs", "clarabel"])
        log = list(cluster.scheduler.transition_log)
        ended = [str(e[0]) for e in log if e[2] == "memory"]
        workers = len(cluster.scheduler.workers)
    assert sum("numbered" in key for key in ended) >= 3, ended
    assert workers == 2
    assert outcomes(c) == {
        ("diet", "highs"): "solved",
        ("diet", "clarabel"): "solved",
        ("knapsack", "highs"): "solved",
        ("knapsack", "clarabel"): "refused",
    }


def test_files_are_compared_as_instances_are(tmp_path):
    file = tmp_path / "diet.lp"
    of.library.load("textbook/diet").problem().export(file)
    found = of.compare_solvers([str(file), "textbook/diet"], ["highs"], tolerance=1e-7)
    ours, theirs = (run.objective for run in found.runs)
    assert {run.problem for run in found.runs} == {"diet.lp", "textbook/diet"}
    assert ours == pytest.approx(theirs, rel=1e-9)


def test_settings_of_one_solver_stand_side_by_side(tmp_path):
    short = ConfiguredSolver("clarabel", {"max_iter": 3})
    asked = ["clarabel", short, ConfiguredSolver("clarabel", {"max_iter": 90}, "patient")]
    c = compare_solvers({"mine": small()}, asked, tolerance=1e-7, out=tmp_path)
    assert c.solvers == ("clarabel", "clarabel (max_iter=3)", "patient")
    plain, stopped, patient = c.runs
    assert plain.outcome == patient.outcome == "solved" and stopped.outcome != "solved"
    assert stopped.options == {"max_iter": 3} and plain.options == {}
    # what a run that was not accepted came to is kept, and may do at another tolerance
    assert stopped.passes > 1e-7 and stopped.gap is not None
    assert c.at(min(0.99, 2.0 * stopped.passes)).runs[1].outcome == "solved"
    again = compare_solvers({"mine": small()}, asked[::-1], tolerance=1e-7, out=tmp_path)
    kept = {r.solver: r.seconds for r in again.runs}
    assert kept == {r.solver: r.seconds for r in c.runs}  # each found under its own options


def test_the_best_attempt_of_a_failure_is_kept(monkeypatch):
    p = small()
    near = p.solve("clarabel", tolerance=1e-8)
    off = type(near)(**{**vars(near), "values": {"x": np.array([2.0 - 1e-4, 2.0])}})

    def solve(self, *a, **k):
        raise of.SolverFailure("no result", "gap", solution=off)

    monkeypatch.setattr(type(p), "solve", solve)
    found = measured(p, "clarabel", 1e-8, 10.0)
    assert found["outcome"] == "failed" and found["reason"].startswith("no result")
    assert 1e-5 < found["feasibility"] < 1e-4 and found["objective"] == near.objective
    assert found["passes"] is None  # values that are not those of the proof pass at none


@pytest.mark.skipif(not can_limit_memory(), reason="a system without limits of memory")
def test_a_run_may_add_so_much_memory():
    few = lambda: bytearray(1_000_000) and {"outcome": "solved"}

    def many():
        _allow_memory(50.0)
        try:
            return {"outcome": str(len(bytearray(200_000_000)))}
        except MemoryError as e:
            return {"outcome": "memory_limit" if _wanted_memory(e) else "missed"}

    assert in_fork(few)["outcome"] == "solved"
    assert in_fork(many)["outcome"] == "memory_limit"
    c = compare_solvers(small(), "clarabel", tolerance=1e-7, memory_limit=2000.0)
    assert c.runs[0].outcome == "solved"


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"solvers": ConfiguredSolver("highs", {"x": [1]})}, of.DeclarationError, "no number"),
        (
            {"solvers": ConfiguredSolver("lazy-rows", {"x": 1})},
            of.UnsupportedProblem,
            "does not take",
        ),
        (
            {"solvers": ["scs", ConfiguredSolver("highs", name="scs")]},
            of.DeclarationError,
            "two settings",
        ),
        ({"solvers": ConfiguredSolver("highz")}, of.OptfairError, "highz"),
        ({"memory_limit": -1.0}, of.DeclarationError, "memory_limit"),
    ],
)
def test_bad_settings(options, error, match):
    with pytest.raises(error, match=match):
        compare_solvers("textbook/diet", **options)


def test_the_machine_is_told():
    found = environment()
    assert found["blas"] and re.fullmatch(r"\d+ GB", found["memory"])


def test_the_frequency_is_a_fact_of_the_machine(tmp_path, monkeypatch):
    clock, facts = tmp_path / "clock", tmp_path / "facts"
    monkeypatch.setattr("optfair.comparison.run.CLOCK", clock)
    monkeypatch.setattr("optfair.comparison.run.FACTS", facts)

    def told():
        environment.cache_clear()
        return environment().get("frequency")

    assert told() is None  # absent where the machine does not say
    facts.write_text("model name\t: some\ncpu MHz\t\t: 2445.434\n")
    assert told() == "2.4 GHz" and environment()["processor"].startswith("some, ")
    facts.write_text("model name\t: some\ncpu MHz\t\t: unknown\n")
    assert told() is None
    clock.write_text("3700000\n")  # the highest, not what runs now
    assert told() == "3.7 GHz"
    environment.cache_clear()


def test_a_ray_that_is_verified_is_an_answer():
    x = cp.Variable(2, name="x")
    p = of.from_cvxpy(cp.Problem(cp.Minimize(x[0] - x[1]), [x[0] >= 0, x[1] >= 2]))
    c = compare_solvers({"ray": p}, ["highs", "clarabel"], time_limit=200)
    assert outcomes(c) == {("ray", "highs"): "unbounded", ("ray", "clarabel"): "unbounded"}
    assert (
        c.conflicts() == () and c.failures() == () and [s.answered for s in c.summary()] == [1, 1]
    )


def test_a_folder_is_its_files_and_one_that_cannot_be_read_stops_no_other(tmp_path) -> None:
    small().export(tmp_path / "far.mps")
    (tmp_path / "cut.mps").write_text("NAME cut")
    (tmp_path / "notes.txt").write_text("of no interest")
    for meant in (tmp_path, f"{tmp_path}/*.mps", [tmp_path / "cut.mps", tmp_path / "far.mps"]):
        cut, far = subjects(meant)
        assert (cut.name, far.name) == ("cut.mps", "far.mps") and far.problem is not None
        assert "without ENDATA" in str(cut.fault)
    with pytest.raises(of.DataError, match="without ENDATA"):
        subjects(tmp_path / "cut.mps")
    with pytest.raises(of.DataError, match="there is no file"):
        subjects([tmp_path / "far.mps", tmp_path / "fra.mps"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(of.DataError, match="no file that can be read"):
        subjects(tmp_path / "empty")


def test_a_file_that_is_named_twice_is_one_problem(tmp_path: Path) -> None:
    file = tmp_path / "a.mps"
    small().export(file)
    (tmp_path / "b").mkdir()
    small().export(tmp_path / "b" / "a.mps")
    assert [s.name for s in subjects([file, str(file), tmp_path])] == ["a.mps"]
    assert [s.name for s in subjects([file, tmp_path / "b"])] == ["a.mps", "a.mps 2"]
    assert [s.name for s in subjects({"one": file, "two": file})] == ["one", "two"]


def test_a_pair_that_was_not_compared_is_told() -> None:
    c = compare_solvers({"p": small()}, ["highs"], time_limit=20)
    assert c.cells.get(("p", "hihgs")) is None
    with pytest.raises(of.DataError, match="was not compared") as e:
        c.cells["p", "hihgs"]
    assert "'highs'" in e.value.remedy


def test_what_matches_nothing_is_answered_by_families() -> None:
    """A slip gets the nearest family or name; else families are named, not twenty of all names."""
    said = {
        "nope/*": "name one of a family, such as action_plan/",
        "nope": "textbook/*",
        "textbok/*": "did you mean 'textbook/*'",
        "textbook/dieet": "did you mean 'textbook/diet'",
        "dieet": "did you mean 'diet'",
    }
    for asked, answer in said.items():
        with pytest.raises(of.DataError, match="no instance") as failure:
            compare_solvers(asked, "highs")
        assert answer in failure.value.remedy and len(failure.value.remedy) < 400


def test_options_of_one_solver_go_to_that_solver() -> None:
    with pytest.raises(of.DeclarationError, match="no argument 'options'") as failure:
        compare_solvers("diet", "highs", options={"presolve": "off"})  # type: ignore[call-arg]
    assert "ConfiguredSolver('highs', {'presolve': 'off'})" in failure.value.remedy


def test_a_solver_takes_what_it_solves_in_other_words() -> None:
    x, y = cp.Variable(pos=True, name="x"), cp.Variable(pos=True, name="y")
    geometric = of.from_cvxpy(cp.Problem(cp.Minimize(x / y + y), [x * y >= 2, x >= 0.5]))
    c = compare_solvers({"box": geometric}, ["clarabel", "highs"], tolerance=1e-7)
    solved, refused = c.runs
    assert solved.outcome == "solved" and solved.grade == "proved"
    # x = 2/y, so 2/y² + y, least at y³ = 4
    assert solved.objective == pytest.approx(2 / 4 ** (2 / 3) + 4 ** (1 / 3), rel=1e-6)
    assert refused.outcome == "refused" and "convex" in refused.reason
