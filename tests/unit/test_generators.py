"""Generators: the same rows for the same seed and index, whatever the range they are asked for in."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamshed.errors import InvalidValueError, UnknownNameError
from streamshed.workload import Expressway, Generator, Json, Uniform, generator_from_options

GENERATORS: list[Generator] = [
    Uniform(),
    Uniform(malformed=0.1),
    Expressway(cars=200),
    Expressway(cars=200, malformed=0.1),
    Json(Expressway(cars=200), malformed=0.1),
    Json(Uniform(), malformed=0.1, column="value"),
]


@pytest.mark.parametrize("generator", GENERATORS, ids=repr)
@given(st.integers(0, 10**12), st.integers(0, 300), st.integers(0, 300), st.integers(0, 300), st.integers(0, 2**63))
@settings(deadline=None, max_examples=15)
def test_a_range_is_the_slice_of_a_larger_one(
    generator: Generator, base: int, before: int, length: int, after: int, seed: int
) -> None:
    large = generator.generate(base, base + before + length + after, seed)
    part = generator.generate(base + before, base + before + length, seed)
    assert part.schema == generator.schema
    assert str(part.to_pylist()) == str(large.slice(before, length).to_pylist())  # as text: NaN is not equal to itself


@pytest.mark.parametrize("generator", GENERATORS, ids=repr)
def test_the_seed_chooses_the_stream(generator: Generator) -> None:
    rows = [str(generator.generate(0, 50, seed).to_pylist()) for seed in (1, 1, 2)]
    assert rows[0] == rows[1]
    assert rows[0] != rows[2]


@pytest.mark.parametrize(
    "generator", [Uniform(malformed=0.1), Expressway(malformed=0.1), Json(Uniform(), malformed=0.1)]
)
def test_the_malformed_share_is_kept_and_its_rows_are_known(generator: Generator) -> None:
    bad = generator.malformed_rows(0, 20_000, seed=4)
    assert bad.mean() == pytest.approx(0.1, abs=0.01)
    assert (generator.malformed_rows(500, 700, seed=4) == bad[500:700]).all()


def test_uniform_values() -> None:
    batch = Uniform().generate(10, 100_010, seed=1)
    assert batch["id"].to_pylist() == list(range(10, 100_010))
    values = batch["value"].to_numpy()
    assert values.min() >= 0
    assert values.max() <= 100
    assert values.mean() == pytest.approx(50, abs=0.5)
    assert np.histogram(values, bins=10, range=(0, 100))[0] == pytest.approx(10_000, rel=0.05)


def test_spoiled_uniform_rows_are_the_ones_named() -> None:
    generator = Uniform(malformed=0.05)
    clean = Uniform().generate(0, 5000).to_pylist()
    for got, expected, bad in zip(
        generator.generate(0, 5000).to_pylist(), clean, generator.malformed_rows(0, 5000), strict=True
    ):
        sound = got["id"] is not None and got["value"] is not None and np.isfinite(got["value"])
        assert sound != bad
        assert bad or got == expected


def columns(batch: pa.RecordBatch) -> dict[str, np.ndarray]:
    return {name: batch[name].to_numpy(zero_copy_only=False) for name in batch.schema.names}


@pytest.fixture(scope="module")
def road() -> dict[str, np.ndarray]:
    return columns(Expressway(cars=2000, expressways=4).generate(0, 200_000, seed=11))


def test_reports_are_plausible(road: dict[str, np.ndarray]) -> None:
    moving = road["speed"][road["speed"] != 0]
    assert moving.min() >= 1
    assert moving.max() <= 100
    assert set(road["expressway"]) == {0, 1, 2, 3}
    assert set(road["direction"]) == {0, 1}
    assert set(road["lane"]) == {0, 1, 2, 3, 4}
    assert road["position"].min() >= 0
    assert road["position"].max() < 528_000
    assert (road["segment"] == road["position"] // 5280).all()
    assert (np.diff(road["ts"]) >= np.timedelta64(0)).all()


@pytest.mark.parametrize("seed", range(6))
def test_the_share_of_stopped_cars(seed: int) -> None:
    speed = Expressway().generate(0, 200_000, seed)["speed"].to_numpy()
    assert 0.005 <= (speed == 0).mean() <= 0.01


def test_no_accidents_if_none_are_wanted() -> None:
    assert Expressway(stopped_share=0).generate(0, 50_000)["speed"].to_numpy().min() >= 1


def test_an_accident_is_two_cars_that_stand_in_one_place_for_several_reports(road: dict[str, np.ndarray]) -> None:
    stopped = np.flatnonzero(road["speed"] == 0)
    accidents: dict[tuple[int, int, int], set[int]] = {}
    for row in stopped:
        place = (int(road["expressway"][row]), int(road["direction"][row]), int(road["position"][row]))
        accidents.setdefault(place, set()).add(int(road["car"][row]))
    assert len(accidents) > 50
    assert all(len(cars) >= 2 for cars in accidents.values())

    complete = 0
    for car in {int(car) for cars in accidents.values() for car in cars}:
        rows = np.flatnonzero(road["car"] == car)
        still = np.flatnonzero(road["speed"][rows] == 0)
        assert (np.diff(still) == 1).all()  # in a row
        assert len(set(road["position"][rows[still]])) == 1
        assert len(still) <= 8
        if len(rows) == 20:  # all of its life is in the sample
            assert len(still) >= 4
            complete += 1
    assert complete > 50


def test_others_are_slower_near_an_accident(road: dict[str, np.ndarray]) -> None:
    minute = (road["ts"].astype("datetime64[s]").astype(np.int64)) // 30
    place = list(zip(minute, road["expressway"], road["direction"], road["segment"], strict=True))
    blocked = {place[row] for row in np.flatnonzero(road["speed"] == 0)}
    near = np.array([here in blocked for here in place])
    moving = road["speed"] > 0
    assert road["speed"][moving & near].mean() < 0.75 * road["speed"][moving & ~near].mean()


def test_a_car_gets_as_far_as_its_speed_takes_it(road: dict[str, np.ndarray]) -> None:
    for car in np.unique(road["car"][:2000])[:50]:
        rows = np.flatnonzero(road["car"] == car)
        covered = np.abs(np.diff(road["position"][rows]))
        # A mile per hour is 44 feet in 30 s; reported speeds wobble by 4 around the speed driven.
        slow, fast = np.minimum(road["speed"][rows][:-1], road["speed"][rows][1:]), road["speed"][rows]
        assert (covered >= 44 * (slow - 5)).all()
        assert (covered <= 44 * (np.maximum(fast[:-1], fast[1:]) + 5)).all()


def test_event_times_can_be_given() -> None:
    times = np.arange(100) * 1_000_000
    batch = Expressway().generate(5000, 5100, times_us=times)
    assert batch["ts"].cast(pa.int64()).to_pylist() == times.tolist()
    assert batch.drop_columns(["ts"]) == Expressway().generate(5000, 5100).drop_columns(["ts"])


def test_spoiled_reports_are_the_ones_named() -> None:
    generator = Expressway(malformed=0.05)
    clean = Expressway().generate(0, 5000).to_pylist()
    kinds = set()
    for got, expected, bad in zip(
        generator.generate(0, 5000).to_pylist(), clean, generator.malformed_rows(0, 5000), strict=True
    ):
        if not bad:
            assert got == expected
            continue
        wrong = {name: got[name] for name in got if got[name] != expected[name]}
        assert len(wrong) == 1
        name, value = wrong.popitem()
        how = "null" if value is None else str(value.year) if name == "ts" else "NaN" if value != value else "negative"
        kinds.add((name, how))
    assert kinds == {
        ("car", "null"),
        ("speed", "null"),
        ("speed", "NaN"),
        ("speed", "negative"),
        ("ts", "null"),
        ("ts", "9999"),
        ("ts", "1900"),
    }


def test_json_holds_the_rows() -> None:
    bodies = Json(Expressway()).generate(0, 500, seed=2)["body"].to_pylist()
    rows = Expressway().generate(0, 500, seed=2).to_pylist()
    for body, row in zip(bodies, rows, strict=True):
        parsed = json.loads(body)
        assert parsed.pop("ts") == row.pop("ts").strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        assert parsed == row


def test_spoiled_json_cannot_be_parsed_or_has_a_wrong_type() -> None:
    generator = Json(Expressway(), malformed=0.1)
    bodies = generator.generate(0, 2000)["body"].to_pylist()
    unparsable = wrong = 0
    for body, bad in zip(bodies, generator.malformed_rows(0, 2000), strict=True):
        try:
            parsed = json.loads(body)
        except json.JSONDecodeError:
            unparsable += 1
            assert bad
        else:
            wrong += isinstance(parsed["position"], str)
            assert isinstance(parsed["position"], str) == bad
    assert unparsable > 100
    assert wrong > 20


def test_options() -> None:
    made = generator_from_options({"generator": "expressway", "Cars": "400", "stoppedShare": "0.005"})
    assert made == Expressway(cars=400, stopped_share=0.005)
    as_json = Json(Expressway(), malformed=0.01)
    assert generator_from_options({"generator": "expressway_json", "malformed": "0.01"}) == as_json
    assert generator_from_options({"generator": "expressway", "encoding": "json", "malformed": "0.01"}) == as_json
    assert generator_from_options({"encoding": "json", "column": "value"}) == Json(Uniform(), column="value")


def test_bad_options_are_named() -> None:
    with pytest.raises(UnknownNameError, match="no such generator") as caught:
        generator_from_options({"generator": "expresway"})
    assert caught.value.hint == "did you mean 'expressway' or 'expressway_json'?"
    with pytest.raises(UnknownNameError, match="an option that nothing reads"):
        generator_from_options({"generator": "uniform", "cars": "20"})
    for options in ({"malformed": "2"}, {"generator": "expressway", "cars": "30"}, {"malformed": "x"}):
        with pytest.raises(InvalidValueError):
            generator_from_options(options)


def test_a_range_must_run_forward() -> None:
    with pytest.raises(InvalidValueError, match="no range of rows"):
        Uniform().generate(5, 4)
