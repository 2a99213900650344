"""Narrowing a concave function down between points that it reaches and planes that touch it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial import ConvexHull, QhullError

from streamshed.distributed.feasible_input import sandwich
from streamshed.distributed.feasible_input.exact import Floats
from streamshed.distributed.feasible_input.sandwich import Point, Sandwich
from streamshed.distributed.linear import Mixtures
from streamshed.errors import StreamshedError


def dome(place: Floats) -> float:
    """Round everywhere: a table of it can only be an approximation."""
    return 1 - float(np.mean((1 - place) ** 2))


def touch_dome(slopes: Floats) -> Point:
    place = np.clip(1 - slopes * len(slopes) / 2, 0.0, 1.0)
    return Point(place, dome(place), np.zeros(0))


def mixed(bounds: Sandwich, place: Floats) -> float:
    values = np.array([point.value for point in bounds.points])
    weights = Mixtures(np.array([point.place for point in bounds.points]), values).best(place)
    assert weights is not None
    return float(weights @ values)


@pytest.mark.parametrize(("size", "gap"), [(1, 0.001), (2, 0.005), (3, 0.05), (4, 0.2)])
def test_mixtures_are_nowhere_further_below_than_the_gap(size: int, gap: float) -> None:
    bounds = Sandwich(size, touch_dome, "dome")
    bounds.narrow(gap)
    assert bounds.gap <= gap
    rng = np.random.default_rng(size)
    missing = [dome(place) - mixed(bounds, place) for place in rng.uniform(size=(200, size)) ** 2]
    assert min(missing) >= -1e-9
    assert max(missing) <= bounds.gap


def test_a_function_with_corners_is_found_whole() -> None:
    # The least of three planes, over two rates; 0 is a corner of any, and needs no point.
    corners = {(0.0, 1.0): 0.5, (0.5, 0.5): 0.8, (1.0, 0.0): 0.6, (1.0, 1.0): 1.0}

    def touch(slopes: Floats) -> Point:
        place = max(corners, key=lambda one: corners[one] - float(slopes @ np.array(one)))
        return Point(np.array(place), corners[place], np.zeros(0))

    bounds = Sandwich(2, touch, "corners")
    bounds.narrow(1e-6)
    assert bounds.gap <= 1e-6
    assert {tuple(point.place.tolist()) for point in bounds.points} == set(corners)


def test_so_many_points_and_an_honest_gap() -> None:
    bounds = Sandwich(3, touch_dome, "dome")
    gaps = []
    for most in (4, 8, 16, 32):
        bounds.narrow(0.0, most)
        assert len(bounds.points) == most
        gaps.append(bounds.gap)
        places = np.random.default_rng(most).uniform(size=(100, 3))
        assert max(dome(place) - mixed(bounds, place) for place in places) <= bounds.gap
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < gaps[0] / 4


def test_what_would_take_for_ever_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandwich, "_MOST_PLANES", 60)
    with pytest.raises(StreamshedError, match=r"(?s)too many.*dome.*allow a greater error"):
        Sandwich(4, touch_dome, "dome").narrow(1e-4)


def test_where_qhull_loses_its_way_it_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def at_the_second_try(points: Floats) -> ConvexHull:
        tries.append(points)
        if len(tries) % 2:
            raise QhullError
        return ConvexHull(points)

    monkeypatch.setattr(sandwich, "ConvexHull", at_the_second_try)
    bounds = Sandwich(2, touch_dome, "dome")
    bounds.narrow(0.02)
    places = np.random.default_rng(0).uniform(size=(100, 2))
    assert max(dome(place) - mixed(bounds, place) for place in places) <= bounds.gap + 1e-6
    assert not np.array_equal(tries[0], tries[1])
    monkeypatch.setattr(sandwich, "_SHAKEN", ())
    with pytest.raises(StreamshedError, match=r"(?s)not found.*dome"):
        bounds.narrow(0.001)
