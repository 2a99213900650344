"""A concave function of several rates, narrowed down between two bounds until they are close enough.

Below it are the mixtures of points that it is known to reach, above it planes that touch it. The gap is widest at a
corner of the upper bound, because that is linear between its corners, and mixtures are concave. There the lower bound
has slopes; what the function does best at prices like these is where a plane with these slopes touches it. That is
either a point above all mixtures, or the plane closes the gap.

So there are as few points as steps. To ask for the value at the corner would give a plane, too, but a point in the
middle of a face, and n planes in five dimensions have some n² corners. Both bounds are polyhedra, whose corners and
faces Qhull finds; the function is asked, which takes a linear program, only where they are too far apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.spatial import ConvexHull, HalfspaceIntersection, QhullError

from streamshed.distributed.feasible_input.exact import Floats
from streamshed.errors import StreamshedError

_MOST_PLANES, _MOST_CORNERS = 800, 20_000
"""Beyond that a step takes seconds, and the table is too long to be sent around."""
_BATCH, _PART = 8, 8
"""So many planes at a time, or this part of those there are: to find all corners again takes longer and longer."""
_CELLS = 200_000
"""What is compared at a time, so that it stays near the processor."""
_SAME = 1e-9
_SHAKEN = (0.0, 1e-8, 1e-7, 1e-6)
"""Many points without any of an input make many faces with an edge in common, and Qhull may lose its way among them. It
is then asked again for points that differ by that much, at random. Rates in tables are rounded to 1e-6, too."""


@dataclass(frozen=True)
class Point:
    """A point on the function.

    Attributes:
        place: shares of the highest rates.
        value: the function there, as a share of its highest value.
        flows: how that is reached.
    """

    place: Floats
    value: float
    flows: Floats


class Sandwich:
    """The bounds of a function that is concave, never falls, and has values from 0 to 1.

    Args:
        dimensions: how many rates.
        touch: the point that is best at some prices of the rates.
        where: whose function it is, for errors.

    Attributes:
        points: whose mixtures are the lower bound.
        gap: how far the bounds are apart at most.
    """

    def __init__(self, dimensions: int, touch: Callable[[Floats], Point], where: str) -> None:
        self._touch, self._where = touch, where
        free = np.zeros(dimensions)
        self.points = [touch(free)]
        self._planes = [_plane(free, self.points[0])]
        self.gap = math.inf
        self._compare()

    def narrow(self, widest: float, most: int | None = None) -> None:
        """Go on until the gap is no wider than that, or there are so many points."""
        while self.gap > widest and (most is None or len(self.points) < most):
            known = len(self.points)
            for face in self._widest_faces(widest):
                # Points that have come above a face since it was found have done away with it.
                above = any(float(face[:-1] @ point.place) + face[-1] < point.value for point in self.points[known:])
                if not above and (most is None or len(self.points) < most):
                    self._touch_along(face[:-1])
            self._compare()

    def _widest_faces(self, widest: float) -> Floats:
        """Faces of the lower bound that are too far below a corner of the upper one, the furthest first."""
        wide = np.flatnonzero(self._gaps > widest)
        wide = wide[np.argsort(-self._gaps[wide])]
        _, first = np.unique(self._under[wide], return_index=True)
        faces: Floats = self._faces[self._under[wide[np.sort(first)]]]
        return faces[: max(_BATCH, len(self._planes) // _PART)]

    def _touch_along(self, slopes: Floats) -> None:
        """Touch the function with a plane of such slopes."""
        point = self._touch(slopes)
        self._planes.append(_plane(slopes, point))
        if not any(np.abs(point.place - other.place).max() < _SAME for other in self.points):
            self.points.append(point)

    def _compare(self) -> None:
        """Find the corners of the upper bound, and how far they are above the lower one."""
        corners = _corners_of(np.unique(np.round(self._planes, 12), axis=0), self._where)
        if len(self._planes) > _MOST_PLANES or len(corners) > _MOST_CORNERS:
            raise StreamshedError(
                "the corners of a table are too many", where=self._where,
                got=f"{len(self.points)} points, still {self.gap:.2g} of the score too little",
                expected=f"at most {_MOST_PLANES} steps and {_MOST_CORNERS} corners", hint="allow a greater error",
            )  # fmt: skip
        self._faces = _faces_of(self.points, self._where)
        self._under, self._gaps = np.empty(len(corners), dtype=np.int64), np.empty(len(corners))
        step = max(_CELLS // len(self._faces), 1)
        across = np.ascontiguousarray(self._faces.T)
        places = np.hstack([corners[:, :-1], np.ones((len(corners), 1))])
        for first in range(0, len(corners), step):
            part = slice(first, first + step)
            values = places[part] @ across
            self._under[part] = lowest = values.argmin(axis=1)
            self._gaps[part] = corners[part, -1] - values[np.arange(len(values)), lowest]
        self.gap = min(self.gap, max(float(self._gaps.max()), 0.0))


def _plane(slopes: Floats, point: Point) -> Floats:
    """The bound value ≤ slopes·place + rest as a half-space."""
    return np.array([*-slopes, 1.0, float(slopes @ point.place) - point.value])


def _corners_of(planes: Floats, where: str) -> Floats:
    """Where planes and the sides of the box of rates meet."""
    size = planes.shape[1] - 2
    box = np.zeros((2 * size + 1, size + 2))
    for i in range(size):
        box[2 * i, i], box[2 * i, -1] = 1.0, -1.0
        box[2 * i + 1, i] = -1.0
    box[-1, -2], box[-1, -1] = -1.0, -1.0
    inside = np.append(np.full(size, 0.5), -0.5)

    def find(noise: Floats) -> Floats:
        raised = planes.copy()
        raised[:, -1] -= noise[:, 0]
        found: Floats = HalfspaceIntersection(np.vstack([box, raised]), inside).intersections
        return found

    corners = _by_qhull(find, (len(planes), 1), where)
    upper = corners[corners[:, -1] > -1 + 1e-6]
    upper[:, :-1] = np.clip(upper[:, :-1], 0.0, 1.0)
    found: Floats = np.unique(np.round(upper, 9), axis=0)
    return found


def _faces_of(points: list[Point], where: str) -> Floats:
    """The faces of what mixtures of the points, or parts of them, reach: their slopes, and their values at 0.

    They are the corners among all planes that no point is above, with slopes and values at 0 that are not negative: the
    dual of the linear program for the best mixture. Qhull's half-spaces have to enclose a body, which these do not, so
    its hulls are asked: seen from a point inside, a corner of the one is a side of the other, with the point behind it.
    """
    places = np.array([point.place for point in points])
    values = np.array([point.value for point in points])
    inside = np.append(np.ones(places.shape[1]), 2.0)

    def find(noise: Floats) -> Floats:
        normals = np.hstack([places - noise, np.ones((len(points), 1))])
        depths = normals @ inside - values
        found: Floats = ConvexHull(np.vstack([-np.diag(1.0 / inside), -normals / depths[:, None]])).equations
        return found

    sides = _by_qhull(find, places.shape, where)
    sides = sides[sides[:, -1] < -1e-12]
    faces: Floats = np.maximum(inside - sides[:, :-1] / sides[:, -1:], 0.0)
    return faces


def _by_qhull(find: Callable[[Floats], Floats], shape: tuple[int, ...], where: str) -> Floats:
    """What Qhull finds, with as little noise as it can do with."""
    noise = np.random.default_rng(0).uniform(size=shape)
    for size in _SHAKEN:
        try:
            return find(noise * size)
        except QhullError:
            continue
    raise StreamshedError("the corners of a table are not found", where=where, hint="allow another error")
