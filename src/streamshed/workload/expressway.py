"""Position reports from an expressway with accidents, in the manner of the Linear Road benchmark."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from streamshed.workload.hashing import draw, hash64, unit
from streamshed.workload.options import check_range
from streamshed.workload.profile import Ints
from streamshed.workload.rows import ORIGIN_US, TIMESTAMP, Generator, timestamps

INTERVAL_S = 30  # between two reports of a car, in event time
FEET_PER_SEGMENT = 5280
SEGMENTS = 100
LENGTH_FT = FEET_PER_SEGMENT * SEGMENTS

_FEET_PER_MPH = 44  # what a mile per hour covers in 30 s
_TRIP = 20  # reports in the life of a car
_PLATOON = 20  # cars that travel together: two of them may crash, the others are held up behind
_CRASHED = 2
_STOPS = (4, 8)  # reports that a crashed car sends from the spot; four make an accident in Linear Road
_MEAN_STOPS = sum(_STOPS) / 2
_MARGIN_FT = 100 * _FEET_PER_MPH * _TRIP + 2 * FEET_PER_SEGMENT  # keeps every trip on the road
_PHASE_SALT, _TRIP_SALT, _CAR_SALT, _REPORT_SALT = 1, 2, 3, 4
_FAR_FUTURE_US, _LONG_AGO_US = 253_402_214_400_000_000, -2_208_988_800_000_000  # 9999-12-31 and 1900-01-01


@dataclass(frozen=True)
class Expressway(Generator):
    """Cars that report where they are and how fast, once in a round; some crash and stand still for a while.

    Cars travel in platoons of 20 and live for 20 reports. In some trips two cars of a platoon crash: 4 to 8 reports in
    a row with speed exactly 0, both cars at one position. The others come up behind them and crawl until the road is
    clear. Nobody else ever reports a speed below 1. Speeds are in miles per hour, positions in feet from the western
    end; direction 1 drives towards it.

    Attributes:
        cars: how many are on the road at a time, so also the number of reports in a round; in whole platoons.
        expressways: how many roads there are.
        stopped_share: the share of reports that come from crashed cars, on average.
        malformed: the share of rows spoiled on purpose: car null, speed null, NaN or negative, time null or absurd.

    >>> batch = Expressway().generate(0, 100_000, seed=7)
    >>> speed = batch["speed"].to_numpy()
    >>> float((speed == 0).mean()), float(speed[speed > 0].min()) >= 1, float(speed.max()) <= 100
    (0.00778, True, True)
    """

    cars: int = 10_000
    expressways: int = 10
    stopped_share: float = 0.0075
    malformed: float = 0.0

    def __post_init__(self) -> None:
        where = "generator 'expressway'"
        check_range(where, "cars", self.cars, _PLATOON, 10**7)
        check_range(where, "cars, in platoons of 20: the remainder", self.cars % _PLATOON, 0, 0)
        check_range(where, "expressways", self.expressways, 1, 1000)
        check_range(where, "stopped_share", self.stopped_share, 0, _CRASHED / _PLATOON * _MEAN_STOPS / _TRIP)
        check_range(where, "malformed", self.malformed, 0, 1)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(
            [
                ("ts", TIMESTAMP),
                ("car", pa.int64()),
                ("speed", pa.float64()),
                ("expressway", pa.int32()),
                ("lane", pa.int32()),
                ("direction", pa.int32()),
                ("segment", pa.int32()),
                ("position", pa.int32()),
            ]
        )

    def _rows(self, index: Ints, seed: int, times_us: Ints | None) -> pa.RecordBatch:
        if times_us is None:
            times_us = ORIGIN_US + index * (INTERVAL_S * 1_000_000) // self.cars
        round_, place = np.divmod(index, self.cars)
        slot = place * self._stride % self.cars  # neighbours on the road do not report one after another
        platoon = slot // _PLATOON
        clock = round_ + draw(hash64(seed, _PHASE_SALT, platoon), 0, 32, _TRIP)
        trip, report = np.divmod(clock, _TRIP)
        car = trip * self.cars + slot
        together = hash64(seed, _TRIP_SALT, trip * (self.cars // _PLATOON) + platoon)
        own = hash64(seed, _CAR_SALT, car)

        chance = self.stopped_share * _TRIP / _MEAN_STOPS * _PLATOON / _CRASHED
        accident = (together & np.uint64(0xFFFF)).astype(np.float64) < chance * 65536
        crashed = accident & (slot % _PLATOON < _CRASHED)
        stops = _STOPS[0] + draw(together, 16, 8, _STOPS[1] - _STOPS[0] + 1)
        since = report - (1 + draw(together, 24, 8, _TRIP - _STOPS[1] - 1))
        held = accident & (since >= 0) & (since < stops)

        cruise = (50 + draw(together, 32, 8, 35) + draw(own, 0, 8, 11)).astype(np.float64)
        crawl = np.where(crashed, 0, np.where(accident, 5 + draw(own, 8, 8, 16), cruise))
        # The crash is at the head of the platoon: the others are up to a mile behind when it happens.
        behind = np.where(crashed, 0, draw(own, 16, 12, FEET_PER_SEGMENT))
        place_ft = _MARGIN_FT + draw(together, 40, 20, LENGTH_FT - 2 * _MARGIN_FT) - behind
        driven = np.minimum(since, 0) + np.maximum(since - stops, 0)
        travelled = place_ft + _FEET_PER_MPH * (cruise * driven + crawl * np.clip(since, 0, stops))
        direction = draw(together, 60, 4, 2)
        position = np.where(direction == 0, travelled, LENGTH_FT - 1 - travelled).astype(np.int64)

        wobble = unit(hash64(seed, _REPORT_SALT, index)) * 8 - 4
        speed = np.floor(np.clip(np.where(held, crawl, cruise) + wobble, 1, 100) * 10) / 10
        speed[held & crashed] = 0.0
        lane = np.where(report == 0, 0, np.where(report == _TRIP - 1, 4, 1 + draw(own, 28, 8, 3)))
        road = draw(hash64(seed, _TRIP_SALT, together.view(np.int64)), 0, 32, self.expressways)
        columns = self._spoil(index, seed, times_us, car, speed)
        columns += [_int32(road), _int32(lane), _int32(direction)]
        columns += [_int32(position // FEET_PER_SEGMENT), _int32(position)]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    @property
    def _stride(self) -> int:
        stride = 7919
        while math.gcd(stride, self.cars) != 1:
            stride += 2
        return stride

    def _spoil(self, index: Ints, seed: int, times_us: Ints, car: Ints, speed: NDArray[np.float64]) -> list[pa.Array]:
        if not self.malformed:
            return [timestamps(times_us), pa.array(car), pa.array(speed)]
        bad, how = self._spoiled(index, seed)
        kind = np.where(bad, how % 7, -1)
        speed = np.where(kind == 2, np.nan, np.where(kind == 3, -1.0 - how, speed))
        times_us = np.where(kind == 5, _FAR_FUTURE_US, np.where(kind == 6, _LONG_AGO_US, times_us))
        # from_pandas=False: NaN is a value of its own here, not another null
        return [
            timestamps(times_us, kind == 4),
            pa.array(car, mask=kind == 0),
            pa.array(speed, mask=kind == 1, from_pandas=False),
        ]


def _int32(values: Ints) -> pa.Array:
    return pa.array(values.astype(np.int32))
