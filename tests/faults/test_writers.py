"""A file is there whole, the old one or the new one, whatever happens while it is written."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import optfair as of
from optfair.comparison.run import Store

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER))

import writers  # noqa: E402

KINDS = ("solution", "cones", "map", "proof", "mps", "mps.gz", "comparison", "csv", "report")
KINDS = (*KINDS, "picture", "record")


@pytest.fixture(scope="module")
def known():  # type: ignore[no-untyped-def]
    return writers.writers()


@pytest.mark.parametrize(
    ("kind", "kills"),
    [("solution", 1), *(pytest.param(k, 12, marks=pytest.mark.slow) for k in KINDS)],
)
def test_kill_leaves_a_whole_file(kind: str, kills: int, known, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    name, _, read = known[kind]
    for k in range(kills):
        command = [sys.executable, "-W", "ignore", str(FOLDER / "writers.py"), kind, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None and child.stdout.read(1) == b"."
            time.sleep(random.Random(k).uniform(0.0, 0.1))
            child.kill()
        read(tmp_path / name)


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_disk_leaves_what_was_there(kind: str, known, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    name, write, read = known[kind]
    path = tmp_path / name
    write(path)
    read(path)
    before, room = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (max(1, len(before) // 3), room[1]))
    try:
        with pytest.raises(of.DataError, match="cannot be written"):
            write(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, room)
        signal.signal(signal.SIGXFSZ, ignored)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [name]
    write(path)
    read(path)


@pytest.mark.slow
@pytest.mark.mount
def test_a_disk_of_its_own_that_is_full_leaves_what_was_there(
    mounted: tuple[str, ...], tmp_path: Path
) -> None:
    command = [*mounted, str(tmp_path), sys.executable, "-W", "ignore", str(FOLDER / "writers.py")]
    done = subprocess.run([*command, "full", str(tmp_path)], capture_output=True, check=True)
    told = json.loads(done.stdout)
    assert sorted(told) == sorted(KINDS)
    assert {k: v for k, v in told.items() if not v.endswith("No space left on device")} == {}
    assert os.listdir(tmp_path) == []


def test_rights_links_and_places(tmp_path: Path) -> None:
    path, link = tmp_path / "p.mps", tmp_path / "link.mps"
    of.export(writers.PROBLEM, path)
    path.chmod(0o640)
    link.symlink_to(path)
    of.export(writers.PROBLEM, link)
    assert link.is_symlink() and path.stat().st_mode & 0o777 == 0o640
    for odd, message in ((tmp_path, "is a folder"), (tmp_path / "no" / "p.mps", "no folder")):
        with pytest.raises(of.DataError, match=message):
            of.export(writers.PROBLEM, odd)


def test_two_of_one_name_leave_one(tmp_path: Path) -> None:
    s = writers.PROBLEM.solve()
    outcomes: list[str] = []

    def save() -> None:
        try:
            s.save(tmp_path / "s")
            outcomes.append("saved")
        except of.DataError as e:
            outcomes.append("refused" if "exists" in str(e) else str(e))

    threads = [threading.Thread(target=save) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["refused"] * 5 + ["saved"]
    assert of.load_solution(tmp_path / "s", writers.PROBLEM).is_optimal(1e-6)


@pytest.mark.slow
def test_two_processes_share_a_store(tmp_path: Path) -> None:
    code = (
        "import sys, numpy as np, cvxpy as cp, optfair as of\n"
        "x = cp.Variable(3, name='x')\n"
        "p = {f'lp{k}': of.from_cvxpy(cp.Problem(cp.Minimize(cp.sum(x)), [x >= k])) for k in range(4)}\n"
        "c = of.compare_solvers(p, ['highs', 'clarabel'], time_limit=30.0, out=sys.argv[1])\n"
        "assert len(c.runs) == 8 and all(r.outcome == 'solved' for r in c.runs), c\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", code, str(tmp_path / "runs")]
    children = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(2)]
    for child in children:
        _, said = child.communicate()
        assert child.returncode == 0, said.decode()
    runs = sorted(Store(tmp_path / "runs").runs.iterdir())
    assert len(runs) == 8 and all(path.suffix == ".json" for path in runs)
    assert not list((tmp_path / "runs").rglob(".*"))
    assert np.isfinite(
        of.comparison.Comparison.load(tmp_path / "runs" / "comparison.json").tolerance
    )
    assert os.listdir(tmp_path) == ["runs"]
