"""Arrival patterns: exact counts, and an inverse that is one."""

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamshed.errors import InvalidValueError, StreamshedError, UnknownNameError
from streamshed.workload import (
    PATTERNS,
    ArrivalPattern,
    Burst,
    Constant,
    Pareto,
    Phases,
    Sinusoid,
    Step,
    Trace,
    pattern_from_options,
)

rates = st.floats(0.01, 1e6) | st.integers(1, 100_000).map(float)
seconds = st.floats(0.001, 1000) | st.integers(1, 600).map(float)


def phases() -> st.SearchStrategy[ArrivalPattern]:
    pair = st.tuples(st.just(0.0) | rates, seconds)
    return st.builds(Phases, st.lists(pair, min_size=1, max_size=6).map(tuple), st.booleans())


def sinusoids() -> st.SearchStrategy[ArrivalPattern]:
    return st.builds(
        lambda mean, share, period, phase: Sinusoid(mean, mean * share, period, phase),
        rates,
        st.floats(0, 1),
        seconds,
        seconds,
    )


patterns: st.SearchStrategy[ArrivalPattern] = (
    st.builds(Constant, rates)
    | st.builds(Step, rates, rates, seconds)
    | st.builds(Burst, rates, rates, seconds, seconds)
    | phases()
    | sinusoids()
    | st.builds(Pareto, rates, st.floats(0.1, 2), period_s=seconds, periods=st.integers(1, 50), seed=st.integers(0, 99))
)


@given(patterns, st.lists(st.integers(0, 10_000_000), min_size=1, max_size=50))
@settings(deadline=None)
def test_a_tuple_arrives_at_the_first_microsecond_that_counts_it(pattern: ArrivalPattern, picks: list[int]) -> None:
    index = np.array(sorted(picks))
    at_s = pattern.arrival_time(index)
    comes = np.isfinite(at_s)
    assert all(pattern.cumulative(9e9) <= missing for missing in index[~comes])  # 285 years are the end of time
    assert (pattern.cumulative(at_s[comes]) > index[comes]).all()
    assert (pattern.cumulative(at_s[comes] - 1e-6) <= index[comes]).all()
    assert (np.diff(at_s[comes]) >= 0).all()


@given(patterns, st.lists(st.floats(-10, 100_000), min_size=1, max_size=50))
@settings(deadline=None)
def test_counts_never_fall_and_do_not_depend_on_what_else_is_asked(pattern: ArrivalPattern, times: list[float]) -> None:
    at_s = np.array(sorted(times))
    counts = pattern.cumulative(at_s)
    assert (np.diff(counts) >= 0).all()
    assert counts.tolist() == [pattern.cumulative(t) for t in at_s.tolist()]
    assert (counts[at_s <= 0] == 0).all()
    assert (pattern.rate(at_s) >= 0).all()


@given(patterns, st.integers(0, 100_000), st.integers(1, 300))
@settings(deadline=None)
def test_a_run_of_tuples_arrives_as_its_members_do(pattern: ArrivalPattern, start: int, length: int) -> None:
    run = pattern.arrival_us(np.arange(start, start + length))
    alone = [int(pattern.arrival_us(np.array([index]))[0]) for index in range(start, start + length, 37)]
    assert run[::37].tolist() == alone


def test_constant_rate_is_exact_to_the_tuple() -> None:
    pattern = Constant(1000)
    assert pattern.arrival_us(np.arange(5)).tolist() == [1000, 2000, 3000, 4000, 5000]
    assert [pattern.cumulative(t) for t in (-1.0, 0.0, 0.000_999, 0.001, 0.29, 86_400.0)] == [
        0,
        0,
        0,
        1,
        290,
        86_400_000,
    ]
    assert pattern.total is None


def test_more_than_one_tuple_in_a_microsecond() -> None:
    assert Constant(3e6).arrival_us(np.arange(7)).tolist() == [1, 1, 1, 2, 2, 2, 3]


def test_no_arrivals_at_all() -> None:
    assert Constant(0).total == 0
    assert Constant(0).arrival_time(np.arange(2)).tolist() == [np.inf, np.inf]
    assert Phases(((0, 10),), repeat=True).total == 0


def test_step_burst_and_phases() -> None:
    assert Step(100, 300, 10).cumulative(np.array([5.0, 10.0, 20.0])).tolist() == [500, 1000, 4000]
    burst = Burst(calm_tps=100, burst_tps=300, start_s=60, length_s=30)
    assert burst.cumulative(np.array([60.0, 90.0, 150.0, 151.0])).tolist() == [6000, 15_000, 21_000, 21_100]
    day = Phases(((100, 60), (300, 30), (100, 60)))
    ticks = np.linspace(0, 150, 1001)
    assert (day.cumulative(ticks) == burst.cumulative(ticks)).all()
    assert day.total == 21_000
    assert day.cumulative(1e9) == 21_000
    assert day.rate(np.array([-1.0, 0, 60, 90, 150])).tolist() == [0, 100, 300, 100, 0]


def test_phases_wait_through_silence_and_repeat() -> None:
    pattern = Phases(((2, 1), (0, 10)), repeat=True)
    assert pattern.arrival_time(np.arange(5)).tolist() == [0.5, 1.0, 11.5, 12.0, 22.5]
    assert pattern.total is None


def test_sinusoid_counts_what_its_integral_says() -> None:
    pattern = Sinusoid(mean_tps=1000, amplitude_tps=1000, period_s=60)
    at_s = np.linspace(0, 120, 997)
    integral = 1000 * at_s + 1000 * 60 / (2 * np.pi) * (1 - np.cos(2 * np.pi * at_s / 60))
    assert np.abs(pattern.cumulative(at_s) - integral).max() < 3
    assert pattern.cumulative(60.0) == 60_000
    assert pattern.rate(15.0) == 2000


def test_pareto_is_more_bursty_with_a_smaller_bias_factor_at_the_same_load() -> None:
    spreads = []
    for beta in (0.1, 0.25, 0.5, 1.0, 1.25, 1.5):
        pattern = Pareto(mean_tps=200, beta=beta, seed=3)
        drawn = pattern.profile.rates_tps
        assert drawn.mean() == pytest.approx(200, rel=0.03)
        assert pattern.low_tps <= drawn.min()
        assert drawn.max() <= 800
        spreads.append(drawn.std())
    assert spreads == sorted(spreads, reverse=True)
    assert Pareto(200, 0.5).low_tps == pytest.approx(50)  # β = 1/2: the mean is √(low · peak)


def test_pareto_follows_its_seed() -> None:
    drawn = [Pareto(200, seed=seed).profile.rates_tps for seed in (1, 1, 2)]
    assert (drawn[0] == drawn[1]).all()
    assert not (drawn[0] == drawn[2]).any()


@pytest.fixture
def trace_file(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text("# a comment\ncount\n10\n0\n# another\n20\n5\n")
    return path


def test_trace(trace_file: Path) -> None:
    trace = Trace(str(trace_file))
    assert trace.cumulative(np.array([0.05, 0.1, 0.2, 0.3, 0.4, 9.0])).tolist() == [5, 10, 10, 30, 35, 35]
    assert trace.total == 35
    assert trace.rate(0.25) == 200
    assert trace.arrival_us(np.array([9, 10, 34, 35]))[:3].tolist() == [100_000, 205_000, 400_000]
    assert Trace(str(trace_file), scale=0.1).total == 3
    assert Trace(str(trace_file), start_s=0.2, repeat=True).cumulative(np.array([0.1, 0.2, 0.3])).tolist() == [
        20,
        25,
        45,
    ]


def test_a_pickled_trace_no_longer_needs_its_file(trace_file: Path) -> None:
    pickled = pickle.dumps(Trace(str(trace_file)))
    trace_file.unlink()
    assert pickle.loads(pickled).total == 35


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "the trace has no header"),
        ("packets\n1\n", "the trace has no header"),
        ("count\n", "the trace is empty"),
        ("count\n1\n-2\n", "a count is not a whole number"),
        ("count\n1.5\n", "a count is not a whole number"),
    ],
)
def test_a_bad_trace_is_refused(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(InvalidValueError, match=what):
        Trace(str(path))


def test_a_missing_trace_is_named() -> None:
    with pytest.raises(InvalidValueError, match="the trace cannot be read") as caught:
        Trace("nowhere.csv")
    assert caught.value.where == "trace file 'nowhere.csv'"


@pytest.mark.parametrize(
    "make",
    [
        lambda: Constant(-1),
        lambda: Constant(float("nan")),
        lambda: Sinusoid(10, 20, 60),
        lambda: Pareto(100, beta=0),
        lambda: Pareto(100, peak_tps=50),
        lambda: Phases(()),
        lambda: Phases(((1, 0),)),
        lambda: Burst(1, 2, -3, 4),
    ],
)
def test_numbers_that_make_no_sense_are_refused(make: Callable[[], ArrivalPattern]) -> None:
    with pytest.raises(InvalidValueError):
        make()


def test_every_pattern_can_be_made_from_options(trace_file: Path) -> None:
    options = {
        "constant": {"rate_tps": "10"},
        "step": {"before_tps": "1", "after_tps": "2", "at_s": "3"},
        "burst": {"calm_tps": "1", "burst_tps": "2", "start_s": "3", "length_s": "4"},
        "phases": {"phases": "1:2, 3:4", "repeat": "true"},
        "sinusoid": {"mean_tps": "10", "amplitude_tps": "5", "period_s": "60"},
        "pareto": {"MEANTPS": "100", "beta": "0.5", "peakTps": "900", "seed": "7"},
        "trace": {"path": str(trace_file), "scale": "2", "start_s": "0.1"},
    }
    assert set(options) == set(PATTERNS)
    made = {name: pattern_from_options({"pattern": name, **given}) for name, given in options.items()}
    assert {name: type(pattern) for name, pattern in made.items()} == PATTERNS
    assert made["phases"] == Phases(((1, 2), (3, 4)), repeat=True)
    assert made["pareto"] == Pareto(100, 0.5, 900, seed=7)
    assert made["trace"] == Trace(str(trace_file), 2, 0.1)


@pytest.mark.parametrize(
    ("options", "error", "where", "hint"),
    [
        ({"pattern": "bust"}, UnknownNameError, "arrivals option 'pattern'", "did you mean 'burst'?"),
        ({"rate_tps": "fast"}, InvalidValueError, "arrivals option 'rate_tps'", None),
        ({"rate_tps": "inf"}, InvalidValueError, "arrivals option 'rate_tps'", None),
        ({"rate_pts": "10"}, UnknownNameError, "arrivals option 'rate_pts'", "did you mean 'rate_tps'?"),
        ({"pattern": "step", "before_tps": "1"}, InvalidValueError, "arrivals option 'after_tps'", None),
        ({"pattern": "phases"}, InvalidValueError, "arrivals option 'phases'", None),
        ({"pattern": "phases", "phases": "1;2"}, InvalidValueError, "arrivals option 'phases'", None),
        ({"pattern": "pareto", "mean_tps": "9", "seed": "1.5"}, InvalidValueError, "arrivals option 'seed'", None),
    ],
)
def test_bad_options_are_named(
    options: dict[str, str], error: type[StreamshedError], where: str, hint: str | None
) -> None:
    with pytest.raises(error) as caught:
        pattern_from_options(options)
    assert isinstance(caught.value, StreamshedError)
    assert caught.value.where == where
    assert caught.value.hint == hint
