"""What `FairMixture` can do with rows that are never held."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from optfair.methods.fair_mixtures.streaming.mixture_stream import MixtureStream
from optfair.rows.sources import row_source

__all__ = ["StreamedMixture"]


class StreamedMixture:
    """Methods of `FairMixture` for rows that do not fit into memory."""

    def fit_stream(self, data: Any, *, groups: Any = None, sample_weight: Any = None) -> Any:
        """Estimate the mixture from rows that are read chunk by chunk and never held.

        Each E-step is the one of `fit`: its projection is made by passes that return value,
        masses and curvature, and the last of them the sums of the M-step. Up to 200,000 rows,
        starts and results are those of `fit` to rounding. Of more rows, all starts run on a
        sample of 50,000 and the best goes on with all rows. A penalty, batches and
        ``learn_rows`` learn from the sample alone; all rows are then described in a pass, and
        a constraint holds on all of them.

        Sets the attributes of `fit` but ``labels_``; see `predict_stream` for labels.
        ``n_passes_`` is the number of passes over all rows, ``n_rows_`` their number.

        Parameters
        ----------
        data : callable, path, array, memory map, Dask array or frame, or RowSource
            A function that returns a new iterator of chunks ``(X, groups)`` or
            ``(X, groups, weights)`` for each pass; a parquet file or folder; anything else that
            can be read in slices. Dask data stay with the workers. Categories are collected in
            a pass of their own.
        groups : array-like (n,), Dask array or series, or str
            Group label of each row, or the name of a column; not where chunks carry theirs. A
            plain mixture needs none, and chunks may then be rows alone; Dask data need them.
        sample_weight : array-like (n,), Dask array or series, or str, optional
            Weights.

        Returns
        -------
        FairMixture
            Itself.

        Raises
        ------
        DataError
            An iterator that can be read once only, chunks with different columns, rows that
            change between passes, and what `fit` refuses.
        DeclarationError
            label_rule "fair", whose assignment couples all rows.
        SolverFailure
            A cluster that lost its workers for good.

        Examples
        --------
        >>> import numpy as np
        >>> import optfair as of
        >>> rng = np.random.default_rng(0)
        >>> X, groups = rng.normal(size=(600, 2)), np.arange(600) % 2
        >>> def read():
        ...     for i in range(0, 600, 200):
        ...         yield X[i : i + 200], groups[i : i + 200]
        >>> model = of.FairMixture(3, random_state=0).fit_stream(read)
        >>> whole = of.FairMixture(3, random_state=0).fit(X, groups=groups)
        >>> bool(np.allclose(model.means_, whole.means_, atol=1e-7))
        True
        """
        MixtureStream(self, data, groups, sample_weight).run()
        return self

    def predict_stream(self, data: Any, *, groups: Any = None) -> Iterator[NDArray[np.intp]]:
        """Yield the labels of each chunk, as `predict` gives them.

        Parameters
        ----------
        data, groups
            As of `fit_stream`, or an iterator of chunks, as there is one pass. Where `predict`
            needs no groups, chunks may be rows alone.
        """
        model: Any = self
        check_is_fitted(model, "components_")
        needed = bool(model.label_prices_.any())
        read = (lambda: data) if hasattr(data, "__next__") else data
        text = bool(model.columns_.categorical)
        for chunk in row_source(read, groups, text=text, grouped=needed).chunks():
            yield model.predict(chunk.X, groups=chunk.labels)
