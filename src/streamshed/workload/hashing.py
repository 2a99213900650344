"""Counter-based random numbers: the n-th number is computed from n alone, so any range can be drawn again exactly."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_WORD = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: the increment of splitmix64
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB


def _mix_int(word: int) -> int:
    word = ((word ^ (word >> 30)) * _FIRST) & _WORD
    word = ((word ^ (word >> 27)) * _SECOND) & _WORD
    return word ^ (word >> 31)


def hash64(seed: int, salt: int, counter: NDArray[np.int64]) -> NDArray[np.uint64]:
    """64 random bits for every counter: splitmix64 started at a place that seed and salt choose.

    Args:
        seed: chooses the whole sequence.
        salt: tells apart the numbers that are drawn for one counter.
        counter: which numbers to draw.

    >>> [hex(word) for word in hash64(1, 0, np.arange(2)).tolist()]
    ['0xa7ed8821dca10c0e', '0xb18a02f46d8d86c3']
    >>> bool((hash64(1, 0, np.arange(5, 9)) == hash64(1, 0, np.arange(10))[5:9]).all())
    True
    """
    start = _mix_int((_mix_int((seed + _GOLDEN) & _WORD) + (salt + 1) * _GOLDEN) & _WORD)
    word = counter.astype(np.uint64)
    word *= np.uint64(_GOLDEN)
    word += np.uint64(start)
    word ^= word >> np.uint64(30)
    word *= np.uint64(_FIRST)
    word ^= word >> np.uint64(27)
    word *= np.uint64(_SECOND)
    word ^= word >> np.uint64(31)
    return word


def unit(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1) from the upper 53 bits.

    >>> unit(np.array([0, 2**63], dtype=np.uint64)).tolist()
    [0.0, 0.5]
    """
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def draw(bits: NDArray[np.uint64], shift: int, width: int, below: int) -> NDArray[np.int64]:
    """Whole numbers in [0, below) from `width` of the bits, so that one hash serves several draws.

    The bias is below/2^width at most.

    >>> draw(np.array([0x80, 0xFF], dtype=np.uint64), shift=0, width=8, below=10).tolist()
    [5, 9]
    """
    part = (bits >> np.uint64(shift)) & np.uint64((1 << width) - 1)
    return ((part * np.uint64(below)) >> np.uint64(width)).astype(np.int64)
