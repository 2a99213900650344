"""Exact arithmetic where a float would decide wrongly: at the borders of what is feasible.

Rates in a table are whole numbers of a unit that is a fraction. Sums over many rows are floats; only rows so close to
a bound that rounding could decide are added up again as fractions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from streamshed.distributed.model import Real

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

DIGITS = 9
"""Significant digits of a measured number that count; what is written with fewer digits is taken as it is written."""
_CLOSE = 1e-9
_ROUNDING = Fraction(1, 10**8)
_LARGEST = 2**53


def exact(value: Real) -> Fraction:
    """A number as it is written: 0.1 is a tenth.

    >>> exact(0.1), exact(Fraction(1, 3))
    (Fraction(1, 10), Fraction(1, 3))
    """
    if isinstance(value, Fraction):
        return value
    if isinstance(value, int):
        return Fraction(value)
    return Fraction(Decimal(f"{value:.{DIGITS}g}"))


def whole_units(value: Real, unit: Fraction) -> int:
    """How often a unit goes into a value; what rounding has taken off a multiple is made up for.

    >>> whole_units(0.3, Fraction(1, 10)), 0.3 // 0.1
    (3, 2.0)
    """
    return int((exact(value) * (1 + _ROUNDING)) // unit)


def units_needed(value: Real, unit: Fraction) -> int:
    """The fewest units that reach a value, but for rounding."""
    return int(-(-exact(value) * (1 - _ROUNDING) // unit))


def common_unit(units: Sequence[Fraction]) -> Fraction:
    """The greatest fraction that all of these are multiples of.

    >>> common_unit([Fraction(1, 4), Fraction(1, 6)])
    Fraction(1, 12)
    """
    numerator = math.gcd(*(unit.numerator for unit in units))
    return Fraction(numerator, math.lcm(*(unit.denominator for unit in units)))


def at_most(values: Floats, bound: float, exactly: Callable[[int], bool]) -> Flags:
    """Which values are at most a bound, where `exactly` decides for the rows that rounding could decide wrongly."""
    fits: Flags = values <= bound
    scale = max(abs(bound), float(np.abs(values).max(initial=0.0)), 1e-300)
    for row in np.flatnonzero(np.abs(values - bound) <= _CLOSE * scale):
        fits[row] = exactly(int(row))
    return fits


def on_common_grid(columns: Sequence[tuple[Ints, Fraction]]) -> tuple[list[Ints], Fraction]:
    """Columns of counts with different units, as counts of one unit.

    Where the common unit is too fine for numbers of a machine, a coarser one is taken and counts are rounded up: a
    node then asks for slightly more than it needs.
    """
    unit = common_unit([unit for _, unit in columns])
    largest = max((unit_here * int(counts.max(initial=0)) for counts, unit_here in columns), default=Fraction(0))
    if largest / unit < _LARGEST:
        return [counts * int(unit_here / unit) for counts, unit_here in columns], unit
    unit = largest / 2**40
    return [
        np.fromiter((math.ceil(int(count) * unit_here / unit) for count in counts), np.int64, len(counts))
        for counts, unit_here in columns
    ], unit
