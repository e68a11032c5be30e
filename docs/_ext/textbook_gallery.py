"""A page for every textbook instance: what it asks, its class with the proof, its optimum, a picture.

The pages are written to ``textbook/`` before the site is read; ``{textbook-gallery}`` shows them as
cards.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

import optfair as of

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from sphinx.application import Sphinx

FAMILY = "textbook"
BLUE, RED, INK = "#0072B2", "#D55E00", "#666666"


def names() -> list[str]:
    """Return the names of the instances, without their family."""
    return [n.partition("/")[2] for n in of.library.names() if n.startswith(f"{FAMILY}/")]


def page(name: str) -> tuple[str, Figure]:
    """Return the text of a page and its picture."""
    instance = of.library.load(f"{FAMILY}/{name}")
    p = instance.problem()
    summary = (type(p).__doc__ or "").strip().partition("\n")[0]
    parts = [
        f"# {name.replace('_', ' ').capitalize()}",
        f"{summary} {instance.source}.",
        f"```{{raw}} html\n<img class='picture' alt='{_alt(p)}' src='../_static/textbook/{name}.svg'>\n```",
        _shown(p._repr_latex_()),
        "## Class",
        f"`{p.problem_class}`, term by term:",
        f"```text\n{p.explain()}\n```",
    ]
    if not p.problem_class.convex:
        parts += [f"Not convex, with a witness: `{p.certificate}`."]
    try:
        s = p.solve()
    except of.Infeasible:
        found = p.diagnose()
        told = str(found).partition("\nchecked in")[0]
        parts += ["## No solution", f"```text\n{told}\n```"]
        alone = next(
            f["numbers"]["alone"] for f in found.to_dict()["findings"] if f["kind"] == "relaxation"
        )
        figure, second = drawn(p, {}, alone), "diagnose"
    else:
        parts += ["## Optimum", f"```text\n{_without_times(s)}\n```", _known(instance, p)]
        figure, second = drawn(p, s.values, {}), "prove" if s.grade.sound else "certify"
    parts += [
        "## Type it",
        f"```shell\noptfair solve {FAMILY}/{name}\noptfair {second} {FAMILY}/{name}\n```",
        f"```python\nimport optfair as of\np = of.library.load('{FAMILY}/{name}').problem()\n```",
        f"Model: {{py:obj}}`~optfair.textbook.{type(p).__name__}`.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n", figure


def _alt(p: of.Problem) -> str:
    return f"values at the optimum of {type(p).__name__}"


def _shown(latex: str) -> str:
    """Return display mathematics without empty lines, which would end it."""
    return "$$\n" + latex.strip().strip("$").strip() + "\n$$"


def _without_times(s: of.Solution) -> str:
    return "\n".join(line for line in str(s).splitlines() if not line.startswith("  seconds"))


def _known(instance: Any, p: of.Problem) -> str:
    """Return what else stands behind the number: other routes, and a bound that is proved."""
    told = instance.optimum
    routes = ", ".join(f"`{name}`" for name in (told.certified_by, *told.checked_by))
    text = f"Certified value {told.value:.10g}, agreed on by {routes}."
    if p.integers:
        linear = of.transforms.relax_integrality(p).problem.solve()
        text += (
            f" Without whole numbers the optimum is {linear.bound:.6g} ({linear.grade}): a bound."
        )
    elif not p.problem_class.convex:
        relaxation = of.transforms.shor(p)
        exact = relaxation.exactness(relaxation.recover(relaxation.problem.solve()))
        text += f" Shor's relaxation: {exact}." if exact is not None else ""
    return text


# Pictures.


def drawn(p: of.Problem, values: Any, relaxed: Any) -> Figure:
    """Return the picture: the plane where the problem lives in it, bars or a grid of values else.

    Without values: by how much each constraint would have to give.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(4.2, 2.8), layout="constrained")
    ax = figure.subplots()
    ax.tick_params(labelsize=8, colors=INK)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    shape = {k: np.asarray(v, dtype=float) for k, v in values.items()}
    widest = max(shape, key=lambda k: shape[k].size, default="")
    if type(p).__name__ in PLANE and _flat(p):
        PLANE[type(p).__name__](ax, p.data, shape)
        ax.set_aspect("equal")
    elif not widest:
        _needed(ax, relaxed)
    elif shape[widest].ndim == 2:
        ax.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        ax.yaxis.set_major_locator(MaxNLocator(6, integer=True))
        figure.colorbar(ax.imshow(shape[widest], cmap="cividis"), shrink=0.8)
        ax.set_xlabel(widest, fontsize=9)
    else:
        ax.xaxis.set_major_locator(MaxNLocator(10, integer=True))
        ax.bar(np.arange(shape[widest].size), shape[widest], color=BLUE, width=0.7)
        ax.axhline(0, color=INK, linewidth=0.8)
        ax.set_xlabel(widest, fontsize=9)
    return figure


def _flat(p: of.Problem) -> bool:
    data = p.data.get("A", p.data.get("points", p.data.get("centers", p.data.get("H"))))
    return np.shape(data)[1] == 2 or type(p).__name__ == "SmallestBall"  # seen from above


def _circle(ax: Any, center: Any, radius: float, color: str, **more: Any) -> None:
    t = np.linspace(0, 2 * np.pi, 200)
    ax.plot(center[0] + radius * np.cos(t), center[1] + radius * np.sin(t), color=color, **more)


def _projection(ax: Any, data: Any, values: Any) -> None:
    for c, r in zip(data["centers"], data["radii"], strict=True):
        _circle(ax, c, r, BLUE)
    ax.plot(*np.array([data["point"], values["projection"]]).T, "o--", color=RED)


def _inside(ax: Any, data: Any, values: Any) -> None:
    center, radius = values["center"], float(values["radius"])
    _circle(ax, center, radius, RED)
    ax.plot(*center, "o", color=RED)
    around = np.array([center - 2.2 * radius, center + 2.2 * radius])
    for a, b in zip(data["A"], data["b"], strict=True):
        foot = a * b / (a @ a)
        along = np.array([-a[1], a[0]]) / np.linalg.norm(a)
        ax.plot(*(foot + np.outer([-99, 99], along)).T, color=BLUE)
    ax.set(xlim=around[:, 0], ylim=around[:, 1])


def _around(ax: Any, data: Any, values: Any) -> None:
    _circle(ax, values["center"], float(values["radius"]), RED)
    ax.plot(*np.asarray(data["points"])[:, :2].T, "o", color=BLUE)
    ax.plot(*values["center"][:2], "+", color=RED)


def _region(ax: Any, data: Any, values: Any) -> None:
    r = float(data["radius"])
    x, y = np.meshgrid(*2 * [np.linspace(-1.15 * r, 1.15 * r, 120)])
    at = np.stack([x, y], axis=-1)
    model = 0.5 * np.einsum("...i,ij,...j", at, data["H"], at) + at @ data["g"]
    ax.contour(x, y, model, levels=16, colors=BLUE, linewidths=0.6)
    _circle(ax, (0, 0), r, INK)
    ax.plot(*values["step"], "o", color=RED)


def _needed(ax: Any, relaxed: Any) -> None:
    ax.barh(list(relaxed), list(relaxed.values()), color=RED, height=0.6)
    ax.set_xscale("symlog")
    ax.set_xlabel("would have to give, alone", fontsize=9)


PLANE = {
    "BallProjection": _projection,
    "ChebyshevCenter": _inside,
    "SmallestBall": _around,
    "TrustRegion": _region,
}


# The site.


class Gallery(SphinxDirective):
    """Cards, a problem each."""

    def run(self) -> list[nodes.Node]:
        cards = []
        for name in names():
            kind = of.library.load(f"{FAMILY}/{name}").problem_class
            title = name.replace("_", " ").capitalize()
            cards.append(
                f'<a class="card" href="textbook/{name}.html"><img alt="" loading="lazy" '
                f'src="_static/textbook/{name}.svg"><b>{title}</b><span>{kind}</span></a>'
            )
        return [nodes.raw("", f'<div class="cards">{"".join(cards)}</div>', format="html")]


def write_pages(app: Sphinx) -> None:
    """Write every page and picture."""
    pages, pictures = Path(app.srcdir) / FAMILY, Path(app.outdir) / "_static" / FAMILY
    for folder in (pages, pictures):
        folder.mkdir(parents=True, exist_ok=True)
    for name in names():
        text, figure = page(name)
        path = pages / f"{name}.md"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
        figure.savefig(pictures / f"{name}.svg", transparent=True, metadata={"Date": None})


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the cards and the writer."""
    app.add_directive("textbook-gallery", Gallery)
    app.connect("builder-inited", write_pages)
    return {"version": "1", "parallel_read_safe": True}
