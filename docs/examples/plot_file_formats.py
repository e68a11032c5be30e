"""
Out to a file and back
======================

A fair clustering problem leaves as MPS, LP and CBF, is read back as a problem, classified, solved
by two solvers and compared with what was written. The page :doc:`/file_formats` has the
conventions.
"""

# %%
# Write
# -----
# Three hundred customers, four clusters, perfect fairness, and bounds on the sizes of the clusters.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import optfair as of

X, sex = of.datasets.load("german_credit").numeric("sex", standardize=True)


def clustering(n: int) -> of.Problem:
    p = of.FairAssignment(X[:n], groups=sex[:n], centers=X[:4])
    return p.with_constraints(share=of.cluster_share(lower=0.1, upper=0.4))


p = clustering(300)

folder = tempfile.TemporaryDirectory()
files = [Path(folder.name, f"fair.{e}") for e in ("mps", "mps.gz", "lp", "lp.gz", "cbf", "cbf.gz")]
for file in files:
    p.export(file)
    print(f"{file.name:<12}{file.stat().st_size / 1e3:8.0f} kB")

# %%
# Every row carries the name of its constraint, so the file can be read by people too.

for line in files[0].read_text().splitlines()[4:8]:
    print(line)

# %%
# Read, classify, solve
# ---------------------
# What comes back is a problem like any other. The structure that the fast route needs is not in
# a file, so a generic solver takes it; the optimum and the multipliers are the same.

declared = p.solve()
read = {file.name: of.read(file) for file in files if file.suffix != ".gz"}
print("declared", p.problem_class, declared.solver, declared.objective)
for name, q in read.items():
    s = q.solve()
    apart = np.abs(s.multipliers["share.lower"] - declared.multipliers["share.lower"]).max()
    print(name, q.problem_class, s.solver, s.objective, f"multipliers apart {apart:.0e}")

# %%
# Compare
# -------
# A problem from a file can be compared with the one that was written, by any solver.

c = of.compare_solvers({"declared": p, **read}, ["highs", "clarabel"], tolerance=1e-8)
for run in c.runs:
    print(f"{run.problem:<9} {run.solver:<9} {run.outcome} {run.objective:.10f}")
print("contradictions:", c.conflicts())

# %%
# What is in the file
# -------------------
# :func:`optfair.cone_program` gives the same numbers as arrays, with a name for every row and
# column. Here is the matrix for twelve customers, so that single entries can be seen. The long rows
# define the eight masses. The rules, in the columns at the right, are about the masses and know
# nothing of the customers.

program = of.cone_program(clustering(12))
stems = [row.split("[")[0] for row in program.rows]
blocks = list(dict.fromkeys(stems))
A = program.A.tocoo()
owner = np.array([blocks.index(stem) for stem in stems])

fig, (matrix, sizes) = plt.subplots(
    1, 2, figsize=(11, 5.2), width_ratios=[1.6, 1], layout="constrained"
)
COLOURS = ["#0072B2", "#009E73", "#E69F00", "#56B4E9", "#CC79A7", "#D55E00"]
ticks = []
for k in range(len(blocks)):
    rows = np.flatnonzero(owner == k)
    matrix.axhspan(rows[0] - 0.5, rows[-1] + 0.5, color=COLOURS[k], alpha=0.12, lw=0)
    mine = owner[A.row] == k
    matrix.plot(A.col[mine], A.row[mine], "s", ms=3.4, mew=0, color=COLOURS[k])
    ticks.append(rows.mean())
masses = sum(c.startswith("assignment") for c in program.columns) - 0.5
matrix.axvline(masses, color="#6B6B6B", lw=0.8, ls=":")
matrix.set(xlim=(-1, A.shape[1]), ylim=(A.shape[0], -1), aspect="auto")
matrix.set_yticks(ticks, blocks)
matrix.set_xticks([masses / 2, (masses + A.shape[1]) / 2], ["assignment", "masses"])
matrix.tick_params(length=0)
matrix.set_title(
    f"A: {A.shape[0]} named rows, {A.shape[1]} named columns", loc="left", fontweight="bold"
)

kilobytes = [file.stat().st_size / 1e3 for file in files]
bars = sizes.barh([file.name for file in files], kilobytes, color="#0072B2", height=0.6)
for bar, file in zip(bars, files, strict=True):
    bar.set_alpha(0.45 if file.suffix == ".gz" else 1.0)
sizes.bar_label(bars, fmt="%.0f", padding=3)
sizes.invert_yaxis()
sizes.set_xlabel("kB, 300 customers")
sizes.margins(x=0.12)
sizes.set_title("The same problem in six files", loc="left", fontweight="bold")
for ax in (matrix, sizes):
    ax.spines[["top", "right"]].set_visible(False)
plt.show()
folder.cleanup()
