"""What a claim rests on: arithmetic, arithmetic within a radius, or a solver's word."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, isinf, log10
from typing import Literal

#: A number of this size is no optimum, and no coordinate of one.
BEYOND = 1e15


@dataclass(frozen=True)
class Grade:
    """How far a claim is proved.

    Attributes
    ----------
    word : str
        "proved": valid in exact arithmetic for the declared floats. "within": so for points
        whose entries are at most ``radius``. "reported": somebody says so.
    radius : float
        Infinite unless within.
    by : str
        Who reports it.
    because : str
        Why it is not more.

    Examples
    --------
    >>> print(PROVED, within(123456.0), reported("scip"), sep="; ")
    proved; proved for |x| ≤ 1.2e+05; reported by scip
    """

    word: Literal["proved", "within", "reported"] = "proved"
    radius: float = float("inf")
    by: str = ""
    because: str = ""

    @property
    def sound(self) -> bool:
        """Whether it is a proof, not somebody's word."""
        return self.word != "reported"

    @property
    def limits(self) -> str:
        """The radius in words, rounded down; empty where there is none."""
        if self.word != "within":
            return ""
        if isinf(self.radius) or self.radius == 0.0:
            return f"for |x| ≤ {self.radius:g}"
        unit = 10.0 ** (floor(log10(self.radius)) - 1)
        return f"for |x| ≤ {floor(self.radius / unit) * unit:.1e}"

    def by_default(self, name: str) -> Grade:
        """Return the grade; what nobody is known to report, somebody with this name reports."""
        known = self.sound or self.by not in ("", "nobody")
        return self if known else reported(name, self.because)

    def __str__(self) -> str:
        if self.word == "reported":
            return f"reported by {self.by or 'nobody'}"
        return f"proved {self.limits}".strip()

    def to_dict(self) -> dict[str, object]:
        """Return the grade, ready for JSON."""
        return {
            "grade": str(self),
            "sound": self.sound,
            "radius": None if isinf(self.radius) else self.radius,
            "by": self.by,
            "because": self.because,
        }


PROVED = Grade()
UNKNOWN = Grade("reported")


def within(radius: float, because: str = "") -> Grade:
    """Return the grade of what holds for entries of at most this size."""
    return Grade("within", radius, because=because)


def reported(by: str, because: str = "") -> Grade:
    """Return the grade of what somebody says."""
    return Grade("reported", by=by, because=because)
