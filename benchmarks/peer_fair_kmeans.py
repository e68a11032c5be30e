"""Runs the PyPI package fair-kmeans in its own environment: rows in, times and labels out.

python peer_fair_kmeans.py IN.npz OUT.npz
"""

from __future__ import annotations

import sys
import time

import numpy as np
from fair_kmeans import FairKMeans

given = np.load(sys.argv[1])
found: dict[str, list] = {"seconds": [], "labels": []}
for seed in given["seeds"]:
    model = FairKMeans(n_clusters=int(given["n_clusters"]), random_state=int(seed))
    begin = time.perf_counter()
    model.fit(given["X"], color=given["groups"])
    found["seconds"].append(time.perf_counter() - begin)
    found["labels"].append(np.asarray(model.labels_))
np.savez(sys.argv[2], **{k: np.array(v) for k, v in found.items()})
