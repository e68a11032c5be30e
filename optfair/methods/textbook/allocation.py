"""What to buy, pack, ship and power: diet, knapsacks, transport, water filling, a consumer."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import cvxpy as cp
import numpy as np

from optfair.core.adopt import declaration
from optfair.core.parameters import check_order
from optfair.core.problem import Declaration, Problem
from optfair.errors import DataError
from optfair.numbers import Floats, check_matrix, check_number, check_vector


def _labels(table: Any, **given: Any) -> dict[str, tuple[str, ...]]:
    """Return what the rows and columns of a table are called: as given, else by its own labels."""
    own = getattr(table, "index", None), getattr(table, "columns", None)
    own = own if hasattr(table, "iloc") else (None, None)
    labelled = {
        word: labels if labels is not None else frame_labels
        for (word, labels), frame_labels in zip(given.items(), own, strict=True)
    }
    return {
        word: tuple(map(str, labels)) for word, labels in labelled.items() if labels is not None
    }


# The diet problem: the cheapest food that feeds.


class Diet(Problem):
    r"""Buy the cheapest food that contains enough, and not too much, of every nutrient.

    .. math::
        \min_x\; c^T x \quad\text{s.t.}\quad l \le N x \le u,\; f \le x \le m

    Class: LP.

    The shadow price of ``minimum nutrition`` is what one more unit of a nutrient costs: the
    price a maker of pills could ask for.

    Parameters
    ----------
    cost : array-like (n,)
        Price of a serving of each food.
    nutrition : array-like (m, n)
        Amount of each nutrient in a serving of each food.
    minimum : array-like (m,)
        Amounts that are needed.
    maximum : array-like (m,), optional
        Amounts that are too much.
    fewest, most : array-like (n,), optional
        Servings of each food that must, and may, be bought; 0 and no limit by default.
    nutrients, foods : sequence of str, optional
        What they are called, for `Solution.frame`; by default the labels of a data frame
        ``nutrition``.

    Attributes
    ----------
    variables : ``servings`` (n,)

    Raises
    ------
    DataError
        Entries that are not finite numbers, lengths that do not fit.

    Examples
    --------
    >>> p = Diet(cost=[2.0, 3.0], nutrition=[[1.0, 2.0], [2.0, 1.0]], minimum=[4.0, 5.0])
    >>> s = p.solve()
    >>> s["servings"].round(6), s.shadow_price["minimum nutrition"].round(6)
    (array([2., 1.]), array([1.333333, 0.333333]))

    References
    ----------
    Stigler: The Cost of Subsistence, Journal of Farm Economics 27 (1945).
    Dantzig: The Diet Problem, Interfaces 20 (1990).
    """

    movable = MappingProxyType(
        {"cost": "costs", **dict.fromkeys(("minimum", "maximum", "fewest", "most"), "sides")}
    )

    def __init__(
        self,
        *,
        cost: Any,
        nutrition: Any,
        minimum: Any,
        maximum: Any = None,
        fewest: Any = None,
        most: Any = None,
        nutrients: Any = None,
        foods: Any = None,
    ) -> None:
        prices = check_vector(cost, "cost")
        amounts = check_matrix(nutrition, "nutrition")
        check_vector(amounts[0], "each row of nutrition", prices.size)
        limits = {"maximum": (maximum, amounts.shape[0])}
        limits |= {"fewest": (fewest, prices.size), "most": (most, prices.size)}
        super().__init__(
            {
                "cost": prices,
                "nutrition": amounts,
                "minimum": check_vector(minimum, "minimum", amounts.shape[0]),
            }
            | {k: check_vector(v, k, size) for k, (v, size) in limits.items() if v is not None}
            | _labels(nutrition, nutrients=nutrients, foods=foods)
        )
        self.axes("minimum nutrition"), self.axes("servings")  # refuses labels that do not fit
        for word, given in {"minimum": minimum, "maximum": maximum}.items():
            check_order(given, [self.data.get("nutrients", ())], word)
        for word, given in {"cost": cost, "fewest": fewest, "most": most}.items():
            check_order(given, [self.data.get("foods", ())], word)

    def model_axes(self) -> Mapping[str, Any]:
        """Return the names of nutrients and foods."""
        axes = dict.fromkeys(("minimum nutrition", "maximum nutrition"), "nutrients")
        axes |= dict.fromkeys(("servings", "fewest servings", "most servings"), "foods")
        return {k: self.data[word] for k, word in axes.items() if word in self.data}

    def declare(self) -> Declaration:
        """Declare servings, their cost and what they contain."""
        d = self.data
        x = cp.Variable(d["cost"].size, name="servings")
        eaten = d["nutrition"] @ x
        constraints = {"minimum nutrition": (eaten >= d["minimum"], r"N x \ge l")}
        if "maximum" in d:
            constraints["maximum nutrition"] = eaten <= d["maximum"], r"N x \le u"
        constraints["fewest servings"] = x >= d.get("fewest", np.zeros(x.size)), r"x \ge f"
        if "most" in d:
            constraints["most servings"] = x <= d["most"], r"x \le m"
        return declaration("minimize", {"cost": (d["cost"] @ x, "c^T x")}, constraints)


# The transportation problem.


class Transport(Problem):
    r"""Ship goods from plants to markets at the least cost.

    .. math::
        \min_{X}\; \langle C, X\rangle \quad\text{s.t.}\quad X 1 \le s,\; X^T 1 \ge d,\; X \ge 0

    Class: LP. The shadow price of ``demand`` is what one more unit at a market costs.

    Parameters
    ----------
    cost : array-like (m, n)
        Cost of a unit from each plant to each market.
    supply : array-like (m,)
        What each plant can ship.
    demand : array-like (n,)
        What each market needs; in sum not more than the supply.
    plants, markets : sequence of str, optional
        What they are called, for `Solution.frame`; by default the labels of a data frame ``cost``.

    Attributes
    ----------
    variables : ``shipments`` (m, n)

    Raises
    ------
    DataError
        Entries that are not finite numbers, lengths that do not fit, more demand than supply.

    Examples
    --------
    >>> p = Transport(cost=[[1.0, 2.0], [3.0, 1.0]], supply=[5.0, 5.0], demand=[6.0, 2.0])
    >>> p.problem_class, round(p.solve().objective, 6)
    (LP, 10.0)

    References
    ----------
    Hitchcock: The Distribution of a Product from Several Sources to Numerous Localities,
    Journal of Mathematics and Physics 20 (1941).
    """

    movable = MappingProxyType({"cost": "costs", "supply": "sides", "demand": "sides"})

    def __init__(
        self, *, cost: Any, supply: Any, demand: Any, plants: Any = None, markets: Any = None
    ) -> None:
        C = check_matrix(cost, "cost")
        s = check_vector(supply, "supply", C.shape[0])
        d = check_vector(demand, "demand", C.shape[1])
        if d.sum() > s.sum() * (1.0 + 1e-12):
            raise DataError(
                "demand exceeds supply",
                f"{d.sum():g} are needed and {s.sum():g} are there",
                "lower the demand or add supply",
            )
        names = _labels(cost, plants=plants, markets=markets)
        super().__init__({"cost": C, "supply": s, "demand": d} | names)
        self.axes("supply"), self.axes("demand")  # refuses labels that do not fit
        check_order(supply, [names.get("plants", ())], "supply")
        check_order(demand, [names.get("markets", ())], "demand")

    def model_axes(self) -> Mapping[str, Any]:
        """Return the names of plants and markets."""
        plants, markets = (self.data.get(word) for word in ("plants", "markets"))
        both = dict.fromkeys(("shipments", "nonnegativity"), (plants, markets))
        each = {"supply": plants, "demand": markets, **both}
        return {k: v for k, v in each.items() if v is not None}

    def declare(self) -> Declaration:
        """Declare the shipments, their cost, supply and demand."""
        C = self.data["cost"]
        X = cp.Variable(C.shape, name="shipments")
        return declaration(
            "minimize",
            {"cost": (cp.sum(cp.multiply(C, X)), r"\langle C, X \rangle")},
            {
                "supply": (cp.sum(X, axis=1) <= self.data["supply"], r"X 1 \le s"),
                "demand": (cp.sum(X, axis=0) >= self.data["demand"], r"X^T 1 \ge d"),
                "nonnegativity": (X >= 0, r"X \ge 0"),
            },
        )


# Power over channels.


class WaterFilling(Problem):
    r"""Share power among noisy channels for the largest capacity.

    .. math::
        \max_x\; \sum_i \log(a_i + x_i) \quad\text{s.t.}\quad 1^T x = P,\; x \ge 0

    Class: CONIC(exp). The solution fills a vessel with floors a up to one level:
    :math:`x_i = \max(0, 1/\nu - a_i)`, ν the shadow price of ``power``.

    Parameters
    ----------
    noise : array-like (n,)
        Noise a of each channel, positive.
    power : float
        Power P to share, positive.

    Attributes
    ----------
    variables : ``powers`` (n,)

    Raises
    ------
    DataError
        Entries that are not finite and positive.

    Examples
    --------
    >>> s = WaterFilling(noise=[1.0, 2.0, 5.0], power=3.0).solve()
    >>> s["powers"].round(3) + 0.0, s.shadow_price["power"].round(4)
    (array([2., 1., 0.]), np.float64(0.3333))

    References
    ----------
    Boyd, Vandenberghe: Convex Optimization, Cambridge University Press (2004), example 5.2.
    """

    def __init__(self, *, noise: Any, power: float) -> None:
        floor = check_vector(noise, "noise")
        if (floor <= 0.0).any():
            raise DataError(
                "noise has entries that are not positive",
                f"the smallest is {floor.min():g}",
                "give positive numbers",
            )
        super().__init__({"noise": floor, "power": check_number(power, "power", positive=True)})

    def declare(self) -> Declaration:
        """Declare the powers, their capacity and sum."""
        a = self.data["noise"]
        x = cp.Variable(a.size, name="powers")
        return declaration(
            "maximize",
            {"capacity": (cp.sum(cp.log(a + x)), r"\textstyle\sum_i \log(a_i + x_i)")},
            {
                "power": (cp.sum(x) == self.data["power"], "1^T x = P"),
                "nonnegativity": (x >= 0, r"x \ge 0"),
            },
        )


# The consumer with a Cobb-Douglas utility.


class CobbDouglas(Problem):
    r"""Spend a budget on two goods for the largest Cobb-Douglas utility.

    .. math::
        \max_{x, u}\; u \quad\text{s.t.}\quad |u| \le x_1^{\alpha} x_2^{1 - \alpha},\;
        x \ge 0,\; p^T x \le B

    Class: CONIC(pow). The first good gets the share α of the budget:
    :math:`x_1 = \alpha B / p_1`, :math:`x_2 = (1 - \alpha) B / p_2`.

    Parameters
    ----------
    prices : array-like (2,)
        Price of each good, positive.
    budget : float
        Money to spend, positive.
    share : float
        Exponent α of the first good, between 0 and 1.

    Attributes
    ----------
    variables : ``goods`` (2,), ``utility`` scalar

    Raises
    ------
    DataError
        Numbers that are not finite or not in these ranges.

    Examples
    --------
    >>> p = CobbDouglas(prices=[1.0, 2.0], budget=8.0, share=0.25)
    >>> p.problem_class, p.solve()["goods"].round(4)
    (CONIC(pow), array([2., 3.]))

    References
    ----------
    Varian: Intermediate Microeconomics, chapter 5, appendix.
    """

    def __init__(self, *, prices: Any, budget: float, share: float) -> None:
        p = check_vector(prices, "prices", 2)
        if (p <= 0.0).any():
            raise DataError(f"a price is {p.min():g}", remedy="give positive prices")
        part = check_number(share, "share", positive=True)
        if part >= 1.0:
            raise DataError(f"share {part:g} is not below 1", remedy="give a number in (0, 1)")
        super().__init__(
            {"prices": p, "budget": check_number(budget, "budget", positive=True), "share": part}
        )

    def declare(self) -> Declaration:
        """Declare the goods, their utility and cost."""
        d = self.data
        x, u = cp.Variable(2, name="goods"), cp.Variable(name="utility")
        return declaration(
            "maximize",
            {"utility": (u, "u")},
            {
                "taste": (
                    cp.PowCone3D(x[0], x[1], u, d["share"]),
                    r"|u| \le x_1^{\alpha} x_2^{1 - \alpha},\; x \ge 0",
                ),
                "budget": (d["prices"] @ x <= d["budget"], r"p^T x \le B"),
            },
        )


def _loads(items: int, **given: Any) -> dict[str, Floats]:
    """Return what every item takes, at least 0."""
    loads = {name: check_vector(load, name, items) for name, load in given.items()}
    for name, load in loads.items():
        if (load < 0).any():
            raise DataError(
                f"{name} has negative entries",
                f"the first is item {int((load < 0).argmax())}",
                f"give {name} of at least 0",
            )
    return loads


class Knapsack(Problem):
    r"""Pack the most valuable items a knapsack can carry.

    .. math::
        \max_x\; v^T x \quad\text{s.t.}\quad w^T x \le c,\; 0 \le x \le 1,\; x \in \mathbb{Z}^n

    Class: MILP.

    Parameters
    ----------
    values, weights : array-like (n,)
        Of each item; weights are not negative.
    capacity : float
        Weight the knapsack carries, positive.

    Attributes
    ----------
    variables : ``packed`` (n,) integer

    Raises
    ------
    DataError
        Entries that are not finite numbers, negative weights, a capacity that is not positive.

    Examples
    --------
    >>> p = Knapsack(values=[6.0, 5.0, 5.0], weights=[3.0, 2.0, 2.0], capacity=4.0)
    >>> p.problem_class, p.solve().objective
    (MILP, 10.0)

    References
    ----------
    Martello, Toth: Knapsack Problems, Wiley (1990).
    """

    movable = MappingProxyType({"values": "costs", "capacity": "sides"})

    def __init__(self, *, values: Any, weights: Any, capacity: float) -> None:
        worth = check_vector(values, "values")
        limit = check_number(capacity, "capacity", positive=True)
        super().__init__(
            {"values": worth, **_loads(worth.size, weights=weights), "capacity": limit}
        )

    def declare(self) -> Declaration:
        """Declare what is packed, its value and weight."""
        v, w = self.data["values"], self.data["weights"]
        x = cp.Variable(v.size, name="packed")
        return declaration(
            "maximize",
            {"value": (v @ x, "v^T x")},
            {
                "capacity": (w @ x <= self.data["capacity"], r"w^T x \le c"),
                "at least none": (x >= 0, r"x \ge 0"),
                "at most one": (x <= 1, r"x \le 1"),
            },
            integers=frozenset({"packed"}),
        )


class RobustKnapsack(Problem):
    r"""Pack the most valuable items whose uncertain weight stays within the capacity.

    .. math::
        \max_x\; v^T x \quad\text{s.t.}\quad w^T x + \Omega \|\operatorname{diag}(\sigma) x\|_2
        \le c,\; 0 \le x \le 1,\; x \in \mathbb{Z}^n

    Class: MISOCP. The constraint holds for every weight in the ellipsoid
    :math:`w + \{\operatorname{diag}(\sigma) u : \|u\|_2 \le \Omega\}`; with independent
    normal weights it is the chance constraint of level Φ(Ω).

    Parameters
    ----------
    values, weights, deviations : array-like (n,)
        Of each item: v, w and σ; weights and deviations are not negative.
    capacity : float
        Weight the knapsack carries, positive.
    size : float
        Size Ω > 0 of the ellipsoid.

    Attributes
    ----------
    variables : ``packed`` (n,) integer

    Raises
    ------
    DataError
        Entries that are not finite numbers, negative weights or deviations, a capacity or a
        size that is not positive.

    Examples
    --------
    >>> p = RobustKnapsack(
    ...     values=[6.0, 5.0], weights=[3.0, 2.0], deviations=[1.0, 0.5], capacity=5.0, size=1.0
    ... )
    >>> both = p.constraints["capacity"].violation({"packed": [1.0, 1.0]})
    >>> p.problem_class, round(float(both), 3)
    (MISOCP, 1.118)

    References
    ----------
    Ben-Tal, Nemirovski: Robust Solutions of Uncertain Linear Programs, Operations Research
    Letters 25 (1999).
    """

    movable = MappingProxyType({"values": "costs", "capacity": "sides"})

    def __init__(
        self, *, values: Any, weights: Any, deviations: Any, capacity: float, size: float
    ) -> None:
        worth = check_vector(values, "values")
        super().__init__(
            {
                "values": worth,
                **_loads(worth.size, weights=weights, deviations=deviations),
                "capacity": check_number(capacity, "capacity", positive=True),
                "size": check_number(size, "size", positive=True),
            }
        )

    def declare(self) -> Declaration:
        """Declare what is packed, its value and its largest weight."""
        d = self.data
        x = cp.Variable(d["values"].size, name="packed")
        spread = d["size"] * cp.norm(cp.multiply(d["deviations"], x))
        return declaration(
            "maximize",
            {"value": (d["values"] @ x, "v^T x")},
            {
                "capacity": (
                    d["weights"] @ x + spread <= d["capacity"],
                    r"w^T x + \Omega \|\operatorname{diag}(\sigma) x\|_2 \le c",
                ),
                "at least none": (x >= 0, r"x \ge 0"),
                "at most one": (x <= 1, r"x \le 1"),
            },
            integers=frozenset({"packed"}),
        )
