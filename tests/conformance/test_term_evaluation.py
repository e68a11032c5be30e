"""What a model says of a term in NumPy is what the term says when it is built."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from optfair.core.expressions import Evaluator
from optfair.core.term import family
from optfair.library.instance import load, names

# larger ones state the same terms
LARGEST = 7000


def points(variables: Mapping[str, Any]) -> Iterator[dict[str, NDArray[np.float64]]]:
    """Draw points near and far, some in the domain of logarithms."""
    rng = np.random.default_rng(0)
    for draw in range(30):
        point = {}
        for name, v in variables.items():
            x = (1.0, 3.0, 10.0, 100.0, 1000.0)[draw % 5] * rng.normal(size=v.shape)
            x = x - x.mean() / 2 if draw % 3 else np.abs(x)
            point[name] = (x + x.T) / 2 if v.attributes.get("symmetric") else x
        yield point


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", names())
def test_terms_evaluate_as_they_are_built(name: str) -> None:
    p = load(name).problem()
    if sum(v.size for v in p.variables.values()) > LARGEST:
        return
    broken, valued = set(), set()
    for values in points(p.variables):
        for t in p.objective.values():
            built = float(Evaluator(t.build(), p.names).value(values).sum())
            if np.isfinite(built):
                assert t.value(values) == pytest.approx(built, rel=1e-9, abs=1e-9), t.name
                valued.add(t.name)
        for c in p.constraints.values():
            built = float(Evaluator(c.build(), p.names).violation(values).max(initial=0.0))
            stated = float(np.max(c.violation(values), initial=0.0))
            assert stated == pytest.approx(built, rel=1e-9, abs=1e-9), c.name
            broken |= {family(c.name)} if built > 1e-3 else set()
    # a term (or rule) that no point breaks, or has a value at, was not compared
    assert (valued, broken) == (set(p.objective), {family(c) for c in p.constraints})
