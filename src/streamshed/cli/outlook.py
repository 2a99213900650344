"""What a network will lose: a spec under given rates and a capacity, planned by one planner or by all."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from streamshed.errors import InvalidValueError, UnknownNameError, did_you_mean
from streamshed.load import Admission, arc_rates, load_coefficients, total_load
from streamshed.network import Spec, Stream, check_rates
from streamshed.planning import PLANNERS, DropPlan, planner_named
from streamshed.planning.values import not_by_value


@dataclass(frozen=True)
class Outlook:
    """A spec under a load.

    Attributes:
        spec: the network and its statistics.
        source: where it was read from.
        rates: tuples per second by stream.
        capacity: seconds of processing per second that are there.
        headroom: the share of the capacity that is planned for.
        factor: by how much the rates of the spec were multiplied.
        given_rates: the streams whose rate was given instead.
    """

    spec: Spec
    source: str
    rates: Mapping[str, float]
    capacity: float
    headroom: float = 1.0
    factor: float = 1.0
    given_rates: tuple[str, ...] = ()

    @property
    def usable(self) -> float:
        """Seconds of processing per second that are planned for."""
        return self.capacity * self.headroom

    @cached_property
    def coefficients(self) -> Mapping[str, float]:
        """Load coefficients by arc."""
        return load_coefficients(self.spec.network, self.spec.statistics)

    @cached_property
    def arc_rates(self) -> Mapping[str, float]:
        """Tuples per second by arc, nothing dropped."""
        return arc_rates(self.spec.network, self.spec.statistics, self.rates)

    @property
    def load(self) -> float:
        """Seconds of processing per second, nothing dropped."""
        return total_load(self.coefficients, self.rates)

    @property
    def excess(self) -> float:
        """What the load has too much, as a share of the usable capacity; negative where there is room left."""
        return self.load / self.usable - 1.0

    @property
    def stream_loads(self) -> dict[str, float]:
        """Seconds of processing per second by stream."""
        return {stream: self.coefficients[stream] * rate for stream, rate in self.rates.items()}

    @property
    def operator_loads(self) -> dict[str, float]:
        """Seconds of processing per second by operator."""
        network, statistics = self.spec.network, self.spec.statistics
        return {
            operator.id: statistics.cost(operator.id)
            * sum(self.arc_rates[arc.id] for arc in network.arcs_into[operator.id])
            for operator in network.operators
        }

    @cached_property
    def not_by_value(self) -> Mapping[str, str]:
        """The outputs whose value graph no drop can go by, each with the reason."""
        return not_by_value(self.spec.network, self.spec.statistics, self.rates)

    def plan(self, planner: str) -> DropPlan:
        """What this planner would drop."""
        return planner_named(planner).plan(self.spec.network, self.spec.statistics, self.rates, Admission(self.usable))

    def plans(self, planners: Iterable[str]) -> dict[str, DropPlan]:
        """What each planner would drop, by name."""
        return {name: self.plan(name) for name in planners}

    def curves(
        self, excesses: Sequence[float], advance: Callable[[], None] = lambda: None
    ) -> dict[str, list[DropPlan]]:
        """The plans of every planner as the load grows, the streams in the proportions of this outlook.

        Args:
            excesses: excess loads as shares of the usable capacity.
            advance: called after each planner and excess.
        """
        if self.load <= 0:
            raise InvalidValueError(
                "there is no load to multiply",
                where=f"network {self.spec.network.name!r}",
                got="load 0",
                expected="a stream with a rate, read by an operator with a cost",
            )
        admission = Admission(self.usable * (1 + 1e-9))  # no excess is none, whatever rounding makes of the rates
        curves: dict[str, list[DropPlan]] = {}
        for name in PLANNERS:
            planner = planner_named(name)  # one for the whole curve: a road map serves all loads
            curves[name] = []
            for excess in excesses:
                scale = self.usable * (1.0 + excess) / self.load
                rates = {stream: rate * scale for stream, rate in self.rates.items()}
                curves[name].append(planner.plan(self.spec.network, self.spec.statistics, rates, admission))
                advance()
        return curves


def outlook(
    spec: Spec,
    source: str,
    *,
    rates: Sequence[str] = (),
    factor: float = 1.0,
    capacity: float | None = None,
    headroom: float = 1.0,
) -> Outlook:
    """Put the options of the command line together with what the spec says."""
    _check("--factor", factor, "a number > 0", factor > 0)
    _check("--headroom", headroom, "a number above 0, at most 1", 0 < headroom <= 1)
    spec.statistics.require_costs(spec.network, source)
    given = dict(_parse_rate(text, spec.network.streams) for text in rates)
    together = {**spec.rates, **given}
    missing = [stream.id for stream in spec.network.streams if stream.id not in together]
    if missing:
        raise InvalidValueError(
            "a stream needs a rate",
            where=f"stream {missing[0]!r} of {source}",
            got="none",
            expected="tuples per second",
            hint=f"put it under 'rates' in the spec, or say --rate {missing[0]}=1000",
        )
    scaled = {stream.id: together[stream.id] * factor for stream in spec.network.streams}
    check_rates(spec.network, scaled)
    if capacity is None:
        capacity = spec.capacity
    if capacity is None:
        raise InvalidValueError(
            "the capacity is not known",
            where=source,
            got="none",
            expected="seconds of processing available per second",
            hint="put 'capacity' into the spec, or say --capacity 4 for four cores",
        )
    _check("--capacity", capacity, "seconds of processing per second, > 0", capacity > 0)
    return Outlook(spec, source, scaled, capacity, headroom, factor, tuple(given))


def _check(option: str, value: float, expected: str, fine: bool) -> None:
    if not (math.isfinite(value) and fine):
        raise InvalidValueError("an option is out of range", where=option, got=value, expected=expected)


def _parse_rate(text: str, streams: Sequence[Stream]) -> tuple[str, float]:
    stream, equals, number = text.rpartition("=")
    stream = stream.strip()
    try:
        rate = float(number.replace("_", ""))
    except ValueError:
        rate = math.nan
    if not equals or not stream or not math.isfinite(rate) or rate < 0:
        raise InvalidValueError(
            "a rate cannot be read",
            where="--rate",
            got=repr(text),
            expected="STREAM=TPS with tuples per second >= 0",
            hint=f"for example --rate {streams[0].id}=1000",
        )
    known = [known.id for known in streams]
    if stream not in known:
        raise UnknownNameError(
            "a rate for a stream that does not exist",
            where="--rate",
            got=repr(stream),
            expected="a stream of the network",
            hint=did_you_mean(stream, known),
        )
    return stream, rate
