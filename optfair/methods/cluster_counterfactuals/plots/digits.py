"""Picture of counterfactuals of images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from optfair.errors import DataError, NotInstalled
from optfair.numbers import check_matrix
from optfair.plots.axes import INK, QUIET, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]

__all__ = ["plot_image_counterfactuals"]

# Side of one image, in inches.
SIDE = 1.35


def plot_image_counterfactuals(
    factual: Any,
    counterfactuals: Mapping[str, Any],
    *,
    centers: Mapping[str, Any] | None = None,
    shape: tuple[int, int] | None = None,
    title: str = "What would have to change",
    figure: Figure | None = None,
) -> Figure:
    r"""Draw images of centers, factual and counterfactuals, and what was changed.

    .. math:: \text{third row:}\quad z_j - y_j

    First row: the given centers, then the factual. Second row: counterfactuals, for example
    of growing plausibility, in the range of the first row. Third row: their difference to the
    factual, red where a pixel has to gain intensity and blue where it has to lose it; all
    differences share one scale.

    Parameters
    ----------
    factual : array-like (h * w,)
        The image that is explained, row by row.
    counterfactuals : mapping of str to array (h * w,)
        Images by label.
    centers : mapping of str to array (h * w,), optional
        Centers of the clusters, by label.
    shape : (int, int), optional
        Height and width in pixels; square by default.
    title : str
        Title.
    figure : Figure, optional
        Where to draw; a new one by default.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    NotInstalled
        matplotlib is missing.
    DataError
        Images whose sizes do not fit, no counterfactual.

    Examples
    --------
    >>> import matplotlib
    >>> matplotlib.use("Agg")
    >>> import numpy as np
    >>> from optfair.methods.cluster_counterfactuals.plots.digits import plot_image_counterfactuals
    >>> figure = plot_image_counterfactuals(np.zeros(4), {"ε = 0": np.eye(2).ravel()})
    >>> len(figure.axes)
    4

    References
    ----------
    Vardakas, Karra, Pitoura, Likas: Counterfactual Explanations for k-Means and Gaussian
    Clustering, figure 4.
    """
    y = check_matrix([factual], "factual")[0]
    side = _shape(shape, y.size)
    shown = _images(counterfactuals, y.size, "counterfactuals")
    above = {**_images(centers or {}, y.size, "centers"), "factual": y}
    if not shown:
        raise DataError("there are no counterfactuals to draw", remedy="give at least one")
    width = max(len(above), len(shown))
    figure = figure or _new_figure(width)
    grid = figure.add_gridspec(
        3, width + 1, width_ratios=[1.0] * width + [0.07], hspace=0.12, wspace=0.06
    )
    # a counterfactual may leave the range of the images; there it is drawn as their end
    given = np.concatenate(list(above.values()))
    ink = {"cmap": "gray_r", "vmin": float(given.min()), "vmax": float(given.max())}
    differences = {label: image - y for label, image in shown.items()}
    largest = max(float(np.abs(v).max()) for v in differences.values()) or 1.0
    first: list[Axes] = []
    for i, (label, image) in enumerate(above.items()):
        ax = figure.add_subplot(grid[0, i])
        _draw(ax, image.reshape(side), label, **ink)
        first.append(ax)
    for i, (label, image) in enumerate(shown.items()):
        ax = figure.add_subplot(grid[1, i])
        _draw(ax, image.reshape(side), label, **ink)
        ax = figure.add_subplot(grid[2, i])
        moved = float(np.linalg.norm(differences[label]))
        mesh = _draw(
            ax,
            differences[label].reshape(side),
            f"distance {moved:.3g}",
            cmap="RdBu_r",
            vmin=-largest,
            vmax=largest,
        )
    bar = figure.colorbar(mesh, cax=figure.add_subplot(grid[2, width]))
    bar.ax.tick_params(labelsize=8.5, colors=INK, length=2)
    bar.outline.set_visible(False)
    figure.suptitle(plain(title, 90), x=0.012, ha="left", fontsize=12, fontweight="bold", color=INK)
    return figure


def _shape(shape: tuple[int, int] | None, size: int) -> tuple[int, int]:
    side = round(size**0.5)
    height, width = (side, side) if shape is None else (int(shape[0]), int(shape[1]))
    if height * width != size:
        raise DataError(
            f"{size} pixels do not make an image of {height} x {width}",
            remedy="give shape=(height, width)",
        )
    return height, width


def _images(given: Mapping[str, Any], size: int, what: str) -> dict[str, Floats]:
    if not isinstance(given, Mapping):
        raise DataError(
            f"{what} is a {type(given).__name__}", remedy="give a mapping of label to image"
        )
    images = {}
    for label, values in given.items():
        image = check_matrix([np.ravel(values)], f"image {label!r}")[0]
        if image.size != size:
            raise DataError(
                f"image {label!r} has {image.size} pixels, the factual has {size}",
                remedy="give images of one size",
            )
        images[str(label)] = image
    return images


def _new_figure(columns: int) -> Figure:
    try:
        import matplotlib.pyplot as plt
    except ImportError as e:
        raise NotInstalled(
            "matplotlib is not installed", str(e), 'pip install "optfair[plot]"'
        ) from None
    return plt.figure(
        figsize=(SIDE * columns + 0.7, 3 * (SIDE + 0.26) + 0.45), layout="constrained"
    )


def _draw(ax: Axes, image: Floats, label: str, **options: Any) -> Any:
    mesh = ax.imshow(image, interpolation="nearest", **options)
    ax.set_xticks([])
    ax.set_yticks([])
    for side in ax.spines.values():
        side.set_color("#CFCFCF")
    ax.set_title(plain(label), fontsize=9.5, color=QUIET, pad=3)
    return mesh
