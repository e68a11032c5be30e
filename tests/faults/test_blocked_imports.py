"""The language works where the libraries of the methods are not installed."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("sklearn", "ot", "joblib", "matplotlib", "pandas"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
import cvxpy as cp
import optfair as of

x = cp.Variable(2, name="x")
p = of.from_cvxpy(cp.Problem(cp.Maximize(x[0] + 2 * x[1]), [cp.sum(x) <= 3, x >= 0]), ["sum", "sign"])
s = p.with_constraints(cap=x[1] <= 2).solve()
assert s.is_optimal() and abs(s.objective - 5.0) < 1e-6
assert of.diagnose(p.with_constraints(none=x[0] <= -1)).verdict == "infeasible"
of.export(p, sys.argv[1])
assert abs(of.read(sys.argv[1]).solve().objective - 6.0) < 1e-6
assert str(of.prove(x[0] ** 2)).startswith("convex")
print(p.explain(), s.shadow_price["sum"])
"""


def test_the_language_needs_no_library_of_a_method(tmp_path) -> None:  # type: ignore[no-untyped-def]
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "p.mps")]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    assert "together: LP" in child.stdout
