"""A search for clusters that part the rows: sets of them are generated, and priced by branching."""

from __future__ import annotations

import heapq
import time
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from optfair.backends.linear_program import solve_linear_program
from optfair.methods.fair_clustering.algorithms.partition_relaxation import PartitionRelaxation

Floats = NDArray[np.float64]
Members = NDArray[np.bool_]
Integers = NDArray[np.intp]

# Nodes of a branching that are bounded at once, clusters that one pricing adds at most, nodes that
# wait before it goes depth first; starts of searches for clusters.
BATCH, ADDED, WAITING, STARTS = 512, 100, 100_000, 12
# Nodes of a pricing at first, and too few of them; seconds for the best partition of the clusters at hand.
PRICED, FEWEST, SOON = 150_000, 1_000, 0.5
# Accuracy of prices that are optimal nearly; what is proved holds for any.
CENTRAL = 1e-7


class SetSearch:
    """Generate clusters for the set partitioning program until its value is proved.

    Parameters
    ----------
    X : array (n, d)
    index : array (n,) of int
        Group of each row.
    counts : array (T, G) of int
        What a cluster may have of each group.
    most : int
        Clusters.
    filled : bool
        Whether all of them must have rows.
    random : Generator
        Of the starts; what is proved does not depend on it.
    """

    def __init__(
        self,
        X: Floats,
        index: Integers,
        counts: NDArray[np.int64],
        most: int,
        filled: bool,
        random: np.random.Generator,
    ) -> None:
        n = X.shape[0]
        spread = float(np.ptp(X, axis=0).max(initial=0.0))
        scale = 2.0 ** np.floor(np.log2(spread)) if spread > 0.0 else 1.0
        self.X = X / scale - (X / scale).mean(axis=0)
        # differences of the rows as they are: one rounding each
        self.D = np.stack([np.square(X / scale - x / scale).sum(axis=1) for x in X])
        self.unit = scale * scale / n
        self.apart = index[:, None] != index
        self.members = [np.flatnonzero(index == g) for g in range(counts.shape[1])]
        self.counts, self.sizes = counts, counts.sum(axis=1)
        self.most, self.filled = most, filled
        self.random = random
        self.sets, self.costs = np.zeros((0, n), dtype=bool), np.zeros(0)
        self.best, self.value = np.zeros((0, n), dtype=bool), np.inf
        # what is proved, of all cases and of the one at hand; sets that were looked at
        self.bound, self.reached, self.nodes = 0.0, (0, 0.0), 0
        self.joined = self.parted = np.zeros((n, n), dtype=bool)
        # see `floor`
        gamma = 16.0 * (n * n + X.shape[1] + 8) * np.finfo(float).eps
        self.rounding = gamma, float(self.D.sum() / (2.0 * n))
        self.priced = PRICED

    @cached_property
    def relaxation(self) -> PartitionRelaxation:
        """What bounds partitions without a look at their clusters."""
        stated = self.D, self.members, self.counts, self.most, self.filled, self.rounding[0]
        return PartitionRelaxation(*stated)

    def cost(self, sets: Members) -> Floats:
        """Return the cost of clusters (rows of the array), n times c(S)."""
        held = sets.astype(float)
        return np.asarray(0.5 * ((held @ self.D) * held).sum(axis=1) / held.sum(axis=1))

    def add(self, sets: Members) -> None:
        """Take clusters into the program."""
        fresh = np.unique(np.vstack([self.sets, sets]), axis=0, return_index=True)[1]
        fresh = fresh[fresh >= len(self.sets)] - len(self.sets)
        self.sets = np.vstack([self.sets, sets[fresh]])
        self.costs = np.concatenate([self.costs, self.cost(sets[fresh])])

    def keep(self, sets: Members) -> None:
        """Take sets as the best where they part the rows, and cost least."""
        fits = len(sets) == self.most if self.filled else len(sets) <= self.most
        if not fits or (sets.sum(axis=0) != 1).any():
            return  # a program without a solution ends somewhere
        value = float(self.cost(sets).sum())
        if value < self.value:
            self.best, self.value = sets, value

    def start(self) -> bool:
        """Take first partitions, by alternation with fixed counts; whether there is one."""
        T, K, n = len(self.counts), self.most, self.X.shape[0]
        size = np.array([m.size for m in self.members], dtype=float)
        rows = sp.csc_array(np.vstack([self.counts.T, np.ones(T)]).reshape(-1, T))
        low = np.append(size, K if self.filled else 1.0)
        for _ in range(STARTS):
            answer = solve_linear_program(
                np.square(self.sizes - n / K) / n + self.random.random(T),
                rows,
                low,
                np.append(size, float(K)),
                np.zeros(T),
                np.full(T, float(K)),
                integer=np.ones(T, dtype=bool),
                gap=0.5,
                time_limit=20.0,
            )
            if not answer.x.size:
                return False
            picked = np.repeat(self.counts, np.round(answer.x).astype(int), axis=0)
            for _ in range(STARTS):
                self._alternated(picked)
        return True

    def _alternated(self, picked: NDArray[np.int64]) -> None:
        centers = self.X[self.random.choice(len(self.X), len(picked), replace=False)]
        last = np.inf
        while True:
            sets = np.zeros((len(picked), len(self.X)), dtype=bool)
            far = np.square(self.X[:, None] - centers).sum(axis=2)
            for g, own in enumerate(self.members):
                places = np.repeat(np.arange(len(picked)), picked[:, g])
                row, place = linear_sum_assignment(far[np.ix_(own, places)])
                sets[places[place], own[row]] = True
            value = float(self.cost(sets).sum())
            if not value < last * (1.0 - 1e-12):
                break
            last, centers = value, (sets @ self.X) / sets.sum(axis=1, keepdims=True)
        self.add(sets)
        self.keep(sets)

    def run(self, gap: float, deadline: float) -> None:
        """Search until the best partition is within the relative gap, time is up, or by Ctrl-C.

        Where the program is not integral two rows are put together, or apart (Ryan and Foster). A
        case stays among the others until all that comes of it is there, whenever it is interrupted.
        """
        n, order = len(self.X), count(1)
        nodes, ends = [(0.0, 0, np.zeros((2, n, n), dtype=bool))], np.inf
        try:
            while nodes and time.perf_counter() < deadline:
                low, at, pairs = nodes[0]
                self.joined, self.parted = pairs
                self.reached = at, low
                mixed = self._node(gap, deadline)
                low = self.reached[1]
                if at == 0 and mixed is not None:
                    self._whole(0.25 * gap, max(5.0, 0.1 * (deadline - time.perf_counter())))
                done = self.value - low <= gap * self.value
                if mixed is None and not done:
                    break  # time is up
                rest = nodes[1:]
                if mixed is not None and not done:
                    for kind in (0, 1):
                        child = pairs.copy()
                        child[kind][mixed] = child[kind][mixed[::-1]] = True
                        rest.append((low, next(order), _closed(child)))
                heapq.heapify(rest)
                ends = min(ends, low) if done else ends
                nodes = rest
        except KeyboardInterrupt:
            pass
        at, least = self.reached
        lows = (max(low, least) if node == at else low for low, node, _ in nodes)
        self.bound = min([ends, self.value, *lows])

    def _raise(self, low: float) -> None:
        """Take a bound of the case at hand where it is the best."""
        at, least = self.reached
        self.reached = at, max(least, low)

    def _node(self, gap: float, deadline: float) -> tuple[int, int] | None:
        """Bound the case at hand; return two rows that may be together, None where none are left."""
        wanted = (1.0 - 0.5 * gap) * self.value
        least, Z = self.relaxation.bound(self.joined, self.parted, wanted, deadline)
        self._raise(least)
        self._rounded(Z, gap)
        halved = _halved(Z / np.sqrt(np.outer(np.diag(Z), np.diag(Z))), self.joined | self.parted)
        while self.value - self.reached[1] > gap * self.value and time.perf_counter() < deadline:
            if halved is not None and self.priced < FEWEST:
                return halved
            u, v = self.prices()
            # prices that prove enough already need not be those of a cheapest cluster
            enough = ((1.0 - 0.5 * gap) * self.value - float(u.sum())) / self.most
            target = min(v - 0.25 * gap * self.value / self.most, enough)
            sets = self.near(u, target)
            if not len(sets):
                # what cannot be split is priced to the end
                most = np.inf if halved is None else self.nodes + self.priced
                sets, least = self.cheapest(u, target, deadline, most)
                self._raise(self.floor(u, least))
                if not len(sets) and self.nodes >= most:
                    self.priced //= 8  # what does not end is tried for less the next time
                    return halved
            if not len(sets):
                return self.mixed() or halved
            self.add(sets)
        return None

    def _rounded(self, Z: Floats, gap: float) -> None:
        """Take clusters near those of a relaxation into the program, and its best partition."""
        before = len(self.sets)
        self.add(self._taken(0.5 - Z / np.diag(Z)[:, None]))
        if len(self.sets) > before:
            self._whole(0.25 * gap, SOON)

    def _holds(self, sets: Members) -> NDArray[np.bool_]:
        """Whether sets hold rows together, and apart, as the node asks."""
        held = sets.astype(float)
        broken = ((held @ self.joined) > 0.0) & ~sets | ((held @ self.parted) > 0.0) & sets
        return np.asarray(~broken.any(axis=1))

    def _program(self, **options: Any) -> tuple[Any, Members]:
        """Solve the program over the clusters at hand; what rows lack costs more than all rows."""
        held = np.flatnonzero(self._holds(self.sets))
        m, n = held.size, len(self.X)
        matrix = np.vstack([self.sets[held].T, np.ones(m)]).astype(float)
        whole = "integer" in options
        if whole:
            options["integer"] = np.repeat([True, False], [m, n])
        answer = solve_linear_program(
            np.append(self.costs[held], np.full(n, 10.0 * self.rounding[1])),
            sp.hstack([sp.csc_array(matrix), sp.eye_array(n + 1, n)], format="csc"),
            np.append(np.ones(n), float(self.most) if self.filled else 0.0),
            np.append(np.ones(n), float(self.most)),
            np.zeros(m + n),
            np.full(m + n, 1.0 if whole else np.inf),
            **options,
        )
        sets = self.sets[held]
        if (
            answer.x.size
            and np.abs(answer.x - np.append(np.round(answer.x[:m]), np.zeros(n))).max() < 1e-6
        ):
            self.keep(sets[answer.x[:m] > 0.5])
        return answer, sets

    def prices(self) -> tuple[Floats, float]:
        """Return prices of rows and of a cluster.

        In the middle of all that are optimal: those of a basis go to and fro between many.
        """
        answer = self._program(central=True, presolve=False, tolerance=CENTRAL)[0]
        n = len(self.X)
        return answer.prices[:n], float(answer.prices[n])

    def mixed(self) -> tuple[int, int] | None:
        """Return two rows that are fractionally together; None where there are none."""
        answer, sets = self._program()
        together = (sets.T * answer.x[: len(sets)]) @ sets
        return _halved(together, self.joined | self.parted)

    def _whole(self, gap: float, time_limit: float) -> None:
        """Look for the best partition among the clusters at hand."""
        self._program(integer=True, gap=gap * self.value, time_limit=time_limit)

    def floor(self, u: Floats, least: float) -> float:
        r"""Return the bound of prices whose cheapest cluster costs ``least`` beyond them.

        A cost is a sum of at most :math:`n^2 / 2` products of no negative terms, each off by less
        than d + 3 roundings, and at most that of all rows together, V; prices are summed with n.
        So each number is off by at most :math:`\gamma (V + \sum |u_i|)`.
        """
        gamma, all_rows = self.rounding
        slack = gamma * (all_rows + float(np.abs(u).sum()))
        paid = least - slack if self.filled else min(0.0, least - slack)
        return float(u.sum() + self.most * paid - slack)

    def near(self, u: Floats, target: float) -> Members:
        """Return clusters that cost less than a target beyond their prices, by alternation."""
        n = len(self.X)
        pairs = self.random.integers(n, size=(4 * n, 2))
        light = np.argsort(self.costs - self.sets @ u)[: 2 * n]
        means = (self.sets[light] @ self.X) / self.sets[light].sum(axis=1, keepdims=True)
        centers = np.vstack([self.X, self.X[pairs].mean(axis=1), means])
        for _ in range(6):
            r = np.square(centers[:, None] - self.X).sum(axis=2) - u
            sets = self._taken(r)
            centers = (sets @ self.X) / sets.sum(axis=1, keepdims=True)
        sets = np.unique(sets, axis=0)
        return self._lightest(self._swapped(np.unique(sets, axis=0), u), u, target)

    def _lightest(self, sets: Members, u: Floats, target: float) -> Members:
        """Return the sets that cost least beyond their prices, those below the target."""
        sets = np.unique(sets, axis=0)
        sets = sets[self._holds(sets)]
        reduced = self.cost(sets) - sets @ u
        order = np.argsort(reduced)
        return np.asarray(sets[order[reduced[order] < target][:ADDED]])

    def _swapped(self, sets: Members, u: Floats) -> Members:
        """Return clusters with rows of one group exchanged as long as that makes them cheaper."""
        sets = sets.copy()
        reduced = self.cost(sets) - sets @ u
        at = np.argsort(reduced)[:ADDED]
        while at.size:
            held = sets[at].astype(float)
            to, m = held @ self.D, held.sum(axis=1)
            change = (to[:, None, :] - to[:, :, None] - self.D) / m[:, None, None]
            change += u[:, None] - u
            change[:, self.apart] = np.inf
            change[~sets[at]] = np.inf
            change.transpose(0, 2, 1)[sets[at]] = np.inf
            flat = change.reshape(at.size, -1)
            best = flat.argmin(axis=1)
            better = flat[np.arange(at.size), best] < -1e-9 * (1.0 + np.abs(u).max())
            at, best = at[better], best[better]
            leaves, joins = np.divmod(best, len(u))
            sets[at, leaves], sets[at, joins] = False, True
        return sets

    def _taken(self, r: Floats) -> Members:
        """Return the cheapest rows of allowed counts, for costs (B, n) of the rows."""
        total = np.zeros((len(r), len(self.counts)))
        ranks = np.empty(r.shape, dtype=np.intp)
        for g, own in enumerate(self.members):
            order = np.argsort(r[:, own], axis=1)
            np.put_along_axis(ranks, own[order], np.arange(own.size)[None], axis=1)
            summed = np.cumsum(np.take_along_axis(r[:, own], order, axis=1), axis=1)
            summed = np.hstack([np.zeros((len(r), 1)), summed])
            total += summed[:, self.counts[:, g]]
        best = self.counts[total.argmin(axis=1)]
        sets = np.zeros(r.shape, dtype=bool)
        for g, own in enumerate(self.members):
            sets[:, own] = ranks[:, own] < best[:, g : g + 1]
        return sets

    def cheapest(
        self, u: Floats, target: float, deadline: float, most: float = np.inf
    ) -> tuple[Members, float]:
        """Return clusters that cost less than a target beyond their prices, and a floor of all.

        So many nodes are looked at, at most.

        Branching on the size of the cluster first; then the row that the floor of a node takes
        at the least cost is in the cluster, or it is out.
        """
        n, sizes = len(self.X), np.unique(self.sizes)
        inside, free = np.zeros((sizes.size, n), dtype=bool), np.ones((sizes.size, n), dtype=bool)
        floors = np.full(sizes.size, -np.inf)
        held: list[Members] = []
        seen, tail = 0, target
        while len(inside):
            if seen >= ADDED or self.nodes >= most or time.perf_counter() >= deadline:
                break
            here = np.zeros(len(inside), dtype=bool)
            here[np.argsort(floors)[:BATCH] if len(here) < WAITING else np.s_[-BATCH:]] = True
            J, F, old, size = inside[here], free[here], floors[here], sizes[here]
            inside, free, floors, sizes = _at(~here, inside, free, floors, sizes)
            unsettled = F.any(axis=1)
            self.nodes += len(J)
            J, F, whole = self._spread(J, F)
            J, F, old, size, unsettled = _at(whole, J, F, old, size, unsettled)
            low, sets, split, with_it, without = self._bounded(J, F, size, u)
            low = np.maximum(low, old)
            # rows that no cluster below the target has, and rows that all have
            J, F = J | (F & (without >= target)), F & (with_it < target) & (without < target)
            open_ = low < target
            if not open_.any():
                continue
            J, F, low, size, sets, split, unsettled = _at(
                open_, J, F, low, size, sets, split, unsettled
            )
            value: Floats = self.cost(sets) - sets @ u
            good = (value < target) & self._holds(sets)
            if good.any():
                held.append(sets[good])
                seen += int(good.sum())
                tail = min(tail, float(value[good].min()))
            J, F, low, size, split = _at(unsettled, J, F, low, size, split)
            # one cluster is left where no row is free: it is judged as a node of its own
            at = np.arange(len(J))
            split = np.where(F[at, split], split, F.argmax(axis=1))
            two = F.any(axis=1)
            F = F.copy()
            F[at, split] = False
            joined = J.copy()
            joined[at[two], split[two]] = True
            inside = np.vstack([inside, J, joined[two]])
            free = np.vstack([free, F, F[two]])
            floors = np.concatenate([floors, low, low[two]])
            sizes = np.concatenate([sizes, size, size[two]])
        least = min(tail, float(floors.min(initial=np.inf)))
        if not held:
            return np.zeros((0, n), dtype=bool), least
        sets = np.unique(np.vstack(held), axis=0)
        return sets[np.argsort(self.cost(sets) - sets @ u)[:ADDED]], least

    def _spread(self, J: Members, F: Members) -> tuple[Members, Members, NDArray[np.bool_]]:
        """Return nodes with what their rows ask of others, and which have a cluster at all."""
        J = J | ((J.astype(float) @ self.joined) > 0.0)
        out = ((J.astype(float) @ self.parted) > 0.0) | ~(J | F)
        out = out | ((out.astype(float) @ self.joined) > 0.0)
        return J, F & ~J & ~out, ~(J & out).any(axis=1)

    def _bounded(
        self, J: Members, F: Members, size: NDArray[np.int64], u: Floats
    ) -> tuple[Floats, Members, Integers, Floats, Floats]:
        r"""Return floors of nodes, the clusters they come from, and the rows to branch on.

        And floors of the clusters in a node that have a free row, and of those that do not. A row
        f that joins rows J in a cluster of m pays :math:`a_f = (1/m) \sum_{i \in J} d_{if} - u_f`
        and half of the pairs with the others that join. Half of each :math:`a_f` is divided among
        these others, so that a row that is dear itself is no cheap company.
        """
        B, n = J.shape
        held = J.astype(float)
        to = held @ self.D
        paid, priced = 0.5 * (to * held).sum(axis=1), held @ u
        has = np.stack([J[:, own].sum(axis=1) for own in self.members], axis=1)
        count = has.sum(axis=1)
        low = np.full(B, np.inf)
        sets = J.copy()
        split = np.full(B, -1, dtype=np.intp)
        with_it, without = np.full((B, n), np.inf), np.full((B, n), np.inf)
        for m in np.unique(size):
            ok = np.flatnonzero((size == m) & (count <= m))
            if not ok.size:
                continue
            rest = np.maximum(m - count[ok] - 1, 0)
            own_cost = to[ok] / m - u
            share = np.where(rest > 0, 0.5 / np.maximum(rest, 1), 0.0)
            company = (0.5 / m) * self.D + (share[:, None] * own_cost)[:, None, :]
            company[np.broadcast_to(~F[ok][:, None, :], company.shape)] = np.inf
            company[:, np.arange(n), np.arange(n)] = np.inf
            company.sort(axis=2)
            half = np.where(np.arange(n) < rest[:, None, None], company, 0.0).sum(axis=2)
            kept = np.where(rest > 0, 0.5, 1.0)[:, None]
            r = np.where(F[ok], kept * own_cost + half, np.inf)
            wanted = self.counts[self.sizes == m]
            total = (paid[ok] / m - priced[ok])[:, None] + np.zeros(len(wanted))
            ranks = np.empty(r.shape, dtype=np.intp)
            edges = []
            for g, own in enumerate(self.members):
                order = np.argsort(r[:, own], axis=1)
                np.put_along_axis(ranks, own[order], np.arange(own.size)[None], axis=1)
                sorted_ = np.take_along_axis(r[:, own], order, axis=1)
                none = np.zeros((ok.size, 1))
                summed = np.hstack([none, np.cumsum(sorted_, axis=1)])
                need = wanted[:, g] - has[ok, g : g + 1]
                part = np.take_along_axis(summed, np.clip(need, 0, own.size), axis=1)
                total += np.where(need >= 0, part, np.inf)
                # the dearest row taken and the cheapest one left: inf where there is none
                sorted_ = np.hstack([none - np.inf, sorted_, none + np.inf])
                edges.append(
                    [
                        np.take_along_axis(sorted_, np.clip(need + k, 0, own.size + 1), axis=1)
                        for k in (0, 1)
                    ]
                )
            # where a free row is infinite, so is every total: there are too few rows for the size
            finite = np.where(np.isfinite(r), r, 0.0)
            for own, (last, following) in zip(self.members, edges, strict=True):
                # per node, count and row: exchange the row for the last taken, or the next left
                here = finite[:, own][:, None, :]
                for out, change in (
                    (with_it, np.maximum(here - last[:, :, None], 0.0)),
                    (without, np.maximum(following[:, :, None] - here, 0.0)),
                ):
                    floor = (total[:, :, None] + change).min(axis=1)
                    block = np.ix_(ok, own)
                    out[block] = np.minimum(out[block], floor)
            pick = total.argmin(axis=1)
            value = total[np.arange(ok.size), pick]
            lower = np.flatnonzero(value < low[ok])
            if not lower.size:
                continue
            at = ok[lower]
            low[at] = value[lower]
            joined = np.zeros((lower.size, n), dtype=bool)
            for g, own in enumerate(self.members):
                need = wanted[pick[lower], g] - has[at, g]
                joined[:, own] = ranks[np.ix_(lower, own)] < need[:, None]
            sets[at] = J[at] | joined
            first = np.where(joined, r[lower], np.inf).argmin(axis=1)
            split[at] = np.where(joined.any(axis=1), first, -1)
        return low, sets, split, with_it, without


def _halved(together: Floats, known: Members) -> tuple[int, int] | None:
    """Return the two rows, of those that nothing is known of, that are the nearest to half together."""
    off = np.where(known, 0.5, np.abs(together - 0.5))
    np.fill_diagonal(off, 0.5)
    first, second = np.unravel_index(off.argmin(), off.shape)
    return None if off.min() > 0.5 - 1e-6 else (int(first), int(second))


def _closed(pairs: Members) -> Members:
    """Return all that follows of which rows are together (first) and apart (second)."""
    joined = pairs[0] | np.eye(len(pairs[0]), dtype=bool)
    while True:
        more = (joined.astype(float) @ joined) > 0.0
        if np.array_equal(more, joined):
            break
        joined = more
    parted = (joined.astype(float) @ pairs[1] @ joined) > 0.0
    np.fill_diagonal(joined, False)
    return np.stack([joined, parted])


def _at(kept: Any, *arrays: Any) -> Any:
    """Return entries of several arrays."""
    return tuple(a[kept] for a in arrays)
