"""What Aurora's paper says about its figures 9 to 12, and whether the measurements bear it out.

An order counts as found if the 95 % confidence interval of the paired difference, over seeds, lies on the right side
of 0, at every point that the claim is about.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from streamshed.experiments.aurora_plan_claims import ALMOST_THE_SAME, NEXT_TO_NOTHING, of_plans
from streamshed.experiments.aurora_runs import TITLES, Check, Measurements, excess
from streamshed.experiments.claims import Claim, judged
from streamshed.experiments.samples import Estimate, difference, estimate, ratio, ratio_difference

ADMISSION = ("input-uniform", "input-cost-uniform", "input-cost-top", "input-random")
QOS_DRIVEN = ("semantic", "roadmap")
CONSTANT = 0.5
"""A difference counts as constant if it varies by no more than this share of its mean."""
NEAR_ONE = 0.05
PAPER_RANGE = 3.07
"""Up to here, +307 %, loads are those of the paper's own workload; beyond they are extreme."""

Point = tuple[float, ...]


def verdicts(
    rates: Measurements, skews: Measurements, sharing: Measurements, checks: Sequence[Check]
) -> tuple[Claim, ...]:
    """All claims."""
    return (
        *_figure_9(rates),
        _figure_10(rates),
        *_figure_11(skews),
        *_figure_12(sharing),
        *of_plans(rates, sharing, checks),
    )


def _figure_9(rates: Measurements) -> tuple[Claim, ...]:
    first, last = rates.points[0], rates.points[-1]
    semantic_gain = [difference(_tuple(rates, "roadmap", p), _tuple(rates, "semantic", p)) for p in rates.points]
    uniform_gain = [difference(_tuple(rates, "input-uniform", p), _tuple(rates, "roadmap", p)) for p in rates.points]
    over_admission = [
        difference(_tuple(rates, other, p), _tuple(rates, mine, p))
        for mine in QOS_DRIVEN
        for other in ADMISSION
        for p in rates.points
    ]
    growth = [
        difference(_tuple(rates, planner, right), _tuple(rates, planner, left))
        for planner in rates.planners
        for left, right in pairwise(rates.points)
    ]
    gap = np.array([gain.mean for gain in semantic_gain])
    low = rates.points[:2]
    cost_weighted = [difference(_tuple(rates, "input-uniform", p), _tuple(rates, "input-cost-uniform", p)) for p in low]
    widest = max(range(len(uniform_gain)), key=lambda i: uniform_gain[i].mean)
    widening = difference(
        _tuple(rates, "input-uniform", rates.points[widest]) - _tuple(rates, "roadmap", rates.points[widest]),
        _tuple(rates, "input-uniform", first) - _tuple(rates, "roadmap", first),
    )
    return (
        judged(
            "Figure 9: higher rates cost every algorithm tuple utility",
            "All algorithms lose more as input rates increase, since the capacity is fixed.",
            f"Loss from {_at(first)} to {_at(last)}: "
            + "; ".join(f"{TITLES[p]} {_range(rates, p, 'tuple_loss')}" for p in rates.planners),
            _all_above(growth),
            otherwise=_why(growth, "at some rates an algorithm drops other streams than at lower ones"),
        ),
        judged(
            "Figure 9: Semantic-LS loses less tuple utility than Random-LS at every rate",
            "Semantic-LS lies below Random-LS throughout: it can drop what filters would reject anyway.",
            f"Random-LS − Semantic-LS: {_points(semantic_gain)} percentage points from {_at(first)} to {_at(last)}",
            _all_above(semantic_gain),
            otherwise=_why(semantic_gain, "with few values rejected by filters there is little to drop for free"),
        ),
        judged(
            "Figure 9: Random-LS loses less tuple utility than Input-Uniform at every rate",
            "The road map uses the slopes of the quality graphs; Input-Uniform does not know them.",
            f"Input-Uniform − Random-LS: {_points(uniform_gain)} percentage points from {_at(first)} to {_at(last)}",
            _all_above(uniform_gain),
            otherwise=_why(
                uniform_gain, "where all outputs have nearly the same quality graphs a uniform drop is nearly the best"
            ),
        ),
        judged(
            "Figure 9: both QoS-driven algorithms do better than all four admission controls",
            "Random-LS and Semantic-LS perform much better than the admission control algorithms.",
            f"The closest of all pairs and rates: {_percent(min(over_admission, key=lambda gain: gain.mean))} "
            f"percentage points; on average {100 * np.mean([gain.mean for gain in over_admission]):.1f}",
            _all_above(over_admission),
            otherwise=_why(
                over_admission, "an admission control that happens to hit cheap streams does better on some networks"
            ),
        ),
        judged(
            "Figure 9: Semantic-LS and Random-LS follow a similar pattern",
            "Both decide by the same loss-tolerance graphs, so their curves have the same shape.",
            f"Correlation of the two mean curves: {_correlation(rates):.3f}",
            _correlation(rates) > 0.95,
            otherwise="the free gain of Semantic-LS bends its curve at low rates",
        ),
        judged(
            "Figure 9: the distance between the two is constant",
            "Semantic-LS is better by a constant amount, the free cycles.",
            f"The distance goes from {100 * gap.min():.1f} to {100 * gap.max():.1f} percentage points, "
            f"mean {100 * gap.mean():.1f}",
            float(np.ptp(gap)) <= CONSTANT * float(gap.mean()),
            otherwise="the free cycles are a share of the load, but what they buy in utility depends on the slopes in "
            "use, and both curves end at 100 %: at extreme rates the distance must shrink",
        ),
        judged(
            "Figure 9: Semantic-LS gains cycles for free",
            "Tuples that a filter will reject can be dropped at the input without any loss of utility.",
            f"At {_at(first)} Semantic-LS loses {_percent(estimate(_tuple(rates, 'semantic', first)))} % "
            f"and Random-LS {_percent(estimate(_tuple(rates, 'roadmap', first)))} %",
            estimate(_tuple(rates, "semantic", first)).high < NEXT_TO_NOTHING,
            otherwise="the filters reject too little to make up for this excess",
        ),
        *_poor_admission(rates),
        judged(
            "Figure 9: Input-Uniform is close at low excess, and falls behind as the load grows",
            "At low excess all outputs stay on the flat part of their graphs; with more load QoS pays off.",
            f"Input-Uniform − Random-LS is {_percent(uniform_gain[0])} percentage points at {_at(first)} and "
            f"{_percent(uniform_gain[widest])} at {_at(rates.points[widest])}",
            widening.low > 0,
            otherwise=_why(
                [widening], "Random-LS gains as much at low excess, by dropping at the cheapest outputs only"
            ),
        ),
        judged(
            "Figure 9: Input-Cost-Uniform is almost the same as Input-Uniform at low excess",
            "Weighting the drops by the streams' costs does not help much.",
            f"Input-Uniform − Input-Cost-Uniform: {_points(cost_weighted)} percentage points at "
            f"{' and '.join(_at(point) for point in low)}",
            all(abs(gain.mean) < ALMOST_THE_SAME for gain in cost_weighted),
            otherwise="streams differ much in cost here, so the same amount of load is a large share of a cheap one",
        ),
    )


def _poor_admission(rates: Measurements) -> Iterable[Claim]:
    """Input-Random and Input-Cost-Top against the two uniform ones, in the mean and on each network by itself."""
    others = ("input-uniform", "input-cost-uniform")
    for poor in ("input-random", "input-cost-top"):
        worse = {
            other: [difference(_tuple(rates, poor, p), _tuple(rates, other, p)) for p in rates.points]
            for other in others
        }
        overall = {name: np.mean([_tuple(rates, name, p) for p in rates.points], axis=0) for name in (poor, *others)}
        networks = int(np.sum(overall[poor] > np.maximum(*(overall[other] for other in others))))
        yield judged(
            f"Figure 9: {TITLES[poor]} does worse than the uniform admission controls at every rate",
            f"{TITLES[poor]} performs poorly, with higher losses at all rates.",
            f"In percentage points from {_at(rates.points[0])} to {_at(rates.points[-1])}: "
            + "; ".join(f"{TITLES[poor]} − {TITLES[other]} {_points(row)}" for other, row in worse.items())
            + f". Worse than both over all rates on {networks} of {len(overall[poor])} networks",
            all(_all_above(row) for row in worse.values()),
            otherwise=_why(
                [found for row in worse.values() for found in row],
                "the paper has one network. Every output counts the same, however costly its streams are: taking "
                "costly streams whole sheds much load for the utility lost, while Input-Uniform takes the same load "
                "from all streams and so empties the cheap ones first",
            ),
        )


def _figure_10(rates: Measurements) -> Claim:
    others = [planner for planner in rates.planners if planner != "semantic"]
    gains = [
        difference(_value(rates, other, p), _value(rates, "semantic", p)) for other in others for p in rates.points
    ]
    return judged(
        "Figure 10: Semantic-LS loses the least value utility at every rate",
        "Semantic-LS significantly outperforms all other approaches.",
        f"Loss from {_at(rates.points[0])} to {_at(rates.points[-1])}: "
        + "; ".join(f"{TITLES[p]} {_range(rates, p, 'value_loss')}" for p in rates.planners),
        _all_above(gains),
        otherwise=_why(gains, "where nearly everything goes, there is nothing left to choose"),
    )


def _figure_11(skews: Measurements) -> tuple[Claim, ...]:
    levels, times = _axis(skews, 0), _axis(skews, 1)
    ratios = {point: ratio(_value(skews, "roadmap", point), _value(skews, "semantic", point)) for point in skews.points}

    def change(left: Point, right: Point) -> Estimate:
        return ratio_difference(
            (_value(skews, "roadmap", right), _value(skews, "semantic", right)),
            (_value(skews, "roadmap", left), _value(skews, "semantic", left)),
        )

    def line(points: Iterable[Point]) -> str:
        return " → ".join(f"{ratios[point].mean:.2f}" for point in points)

    by_skew = [change((levels[0], time), (levels[-1], time)) for time in times]
    falling = [_negative(change((skew, left), (skew, right))) for skew in levels for left, right in pairwise(times)]
    return (
        judged(
            "Figure 11: value loss of Random-LS / Semantic-LS grows with skew, at every rate",
            "The more skewed the utilities, the more effective Semantic-LS is against Random-LS.",
            f"Skew {levels[0]:g} to {levels[-1]:g}: "
            + "; ".join(f"at {_excess(time)} {line((skew, time) for skew in levels)}" for time in times),
            _all_above(by_skew)
            and all(change((left, time), (right, time)).high > 0 for time in times for left, right in pairwise(levels)),
            otherwise=_why(by_skew, "with five outputs a network, a few utilities decide"),
        ),
        judged(
            "Figure 11: that ratio shrinks as rates grow, at every skew",
            "At high rates Semantic-LS has to drop valuable tuples as well.",
            f"{_excess(times[0])} to {_excess(times[-1])}: "
            + "; ".join(f"at skew {skew:g} {line((skew, time) for time in times)}" for skew in levels),
            _all_above(falling),
            otherwise=_why(falling, "some networks have so much to drop for free that only the highest rates hurt"),
        ),
    )


def _figure_12(sharing: Measurements) -> tuple[Claim, ...]:
    levels, excesses = _axis(sharing, 0), _axis(sharing, 1)
    first, last = excesses[0], excesses[-1]
    normal = [share for share in excesses if share <= PAPER_RANGE]

    def pair(skew: float, share: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return _tuple(sharing, "input-uniform", (skew, share)), _tuple(sharing, "roadmap", (skew, share))

    def line(skew: float, shares: Iterable[float]) -> str:
        return " → ".join(f"{ratio(*pair(skew, share)).mean:.2f}" for share in shares)

    by_skew = [ratio_difference(pair(levels[-1], share), pair(levels[0], share)) for share in normal]
    fall = [ratio_difference(pair(skew, first), pair(skew, last)) for skew in levels]
    at_inputs = [estimate(sharing.of("roadmap", (skew, last), "at_inputs")) for skew in levels]
    at_inputs_first = [estimate(sharing.of("roadmap", (skew, first), "at_inputs")) for skew in levels]
    return (
        judged(
            f"Figure 12: tuple loss of Input-Uniform / Random-LS grows with skew, up to {100 * normal[-1]:+.0f} %",
            "The more skewed the quality graphs, the better Random-LS does on the shared network.",
            f"Skew {' → '.join(f'{skew:g}' for skew in levels)}: "
            + "; ".join(
                f"at {100 * share:+.0f} % {' → '.join(f'{ratio(*pair(skew, share)).mean:.2f}' for skew in levels)}"
                for share in normal
            ),
            _all_above(by_skew),
            otherwise=_why(
                by_skew,
                "once all outputs are beyond the knees of their graphs, the slopes left are those of the valuable "
                "interval, which are much the same for all",
            ),
        ),
        judged(
            "Figure 12: that ratio falls towards 1 at extreme excess",
            "The success of Random-LS diminishes at extremely high loads.",
            "; ".join(f"skew {skew:g}: {line(skew, excesses)}" for skew in levels)
            + f" (excess {100 * first:+.0f} % to {100 * last:+.0f} %)",
            _all_above(fall) and all(abs(ratio(*pair(skew, last)).mean - 1) < NEAR_ONE for skew in levels),
            otherwise=_why(fall, "the excess is not extreme enough"),
        ),
        judged(
            "Figure 12: at extreme excess Random-LS drops at the input",
            "Inner arcs no longer save enough, and the plans further down the road map drop at inputs.",
            "Share of the dropping that happens at the input: "
            + "; ".join(
                f"skew {skew:g}: {100 * low.mean:.0f} % → {100 * high.mean:.0f} %"
                for skew, low, high in zip(levels, at_inputs_first, at_inputs, strict=True)
            ),
            all(high.low > 0.9 and high.low > low.high for low, high in zip(at_inputs_first, at_inputs, strict=True)),
            otherwise="the common operator is too cheap to be worth saving",
        ),
    )


def _tuple(data: Measurements, planner: str, point: Point) -> NDArray[np.float64]:
    return data.of(planner, point, "tuple_loss")


def _value(data: Measurements, planner: str, point: Point) -> NDArray[np.float64]:
    return data.of(planner, point, "value_loss")


def _axis(data: Measurements, index: int) -> list[float]:
    return list(dict.fromkeys(point[index] for point in data.points))


def _all_above(differences: Iterable[Estimate]) -> bool:
    return all(found.low > 0 for found in differences)


def _why(differences: Sequence[Estimate], otherwise: str) -> str:
    """The likely reason why not all differences are above 0: the spread alone, or something else."""
    if all(found.mean > 0 for found in differences):
        return f"it is so in the mean, but {differences[0].runs} networks differ by more than that among themselves"
    return otherwise


def _negative(found: Estimate) -> Estimate:
    return replace(found, mean=-found.mean)


def _correlation(rates: Measurements) -> float:
    semantic, random = ([_tuple(rates, name, p).mean() for p in rates.points] for name in QOS_DRIVEN)
    return float(np.corrcoef(semantic, random)[0, 1])


def _excess(time: float) -> str:
    return f"{100 * excess(time):+.0f} %"


def _at(point: Point) -> str:
    return _excess(point[0])


def _percent(found: Estimate) -> str:
    return f"{100 * found.mean:.1f} ± {100 * found.margin:.1f}"


def _points(found: Sequence[Estimate]) -> str:
    return ", ".join(_percent(one) for one in found)


def _range(data: Measurements, planner: str, what: str) -> str:
    first, last = (estimate(data.of(planner, point, what)) for point in (data.points[0], data.points[-1]))
    return f"{_percent(first)} → {_percent(last)} %"
