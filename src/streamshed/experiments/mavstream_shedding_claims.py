"""What the thesis on MavStream claims about load shedding, judged by what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from streamshed.experiments.claims import Claim, judged
from streamshed.experiments.mavstream_runs import MTRES, NEAR, WINDOWS, Errors, Measured, decisions, track

SCATTER = 0.01
"""How far the share of a random choice may lie above what it aims at."""


def of_shedding(found: Measured) -> list[Claim]:
    """Section 6.3, and what section 4.4 promises."""
    claims = []
    tracks = {window: [track(found.shedding[window, mtre]) for mtre in MTRES] for window in WINDOWS}
    latency = {window: [one.latency_mean_s for one in of] for window, of in tracks.items()}
    memory = {window: [float(one.memory_bytes.mean()) for one in of] for window, of in tracks.items()}
    for window in WINDOWS:
        claims.append(
            judged(
                f"Section 6.3: latency falls with the tolerable error, window of {window} tuples",
                "The higher the error tolerance, the lower the latency.",
                _by_mtre([f"{x:.2f} s" for x in latency[window]]),
                all(low < high for high, low in pairwise(latency[window])),
                otherwise="shedding ends as soon as the goal is met, so more tolerance is not always used.",
            )
        )
    claims.append(
        judged(
            "Section 6.3: memory falls with the tolerable error, both windows",
            "Tuples are dropped before they are queued, so less memory is used.",
            "; ".join(f"window {w}: {_by_mtre([f'{x / 1e6:.3f} MB' for x in memory[w]])}" for w in WINDOWS),
            all(low < high for window in WINDOWS for high, low in pairwise(memory[window])),
            otherwise="shedding ends as soon as the goal is met, so more tolerance is not always used.",
        )
    )
    gain = {window: 1 - latency[window][-1] / latency[window][0] for window in WINDOWS}
    claims.append(
        judged(
            "Section 6.3: the gain is greater with the larger window",
            "With a smaller window a tuple joins with fewer others, so dropping it saves less.",
            ", ".join(f"window {window}: latency {share:.0%} less at 30 %" for window, share in gain.items()),
            gain[1000] > gain[500],
            otherwise="capacity is set for each experiment, so a share of the tuples is the same share of the load.",
        )
    )
    order, beyond = [], []
    for (_, mtre), run in found.shedding.items():
        made = decisions(run)
        shed_s = next((decision.time_s for decision in made if decision.shedding), None)
        if shed_s is not None:
            order.append(any(d.after == "path-capacity" and d.time_s < shed_s for d in made))
        beyond += [dropped / run.faced[arc] - mtre for arc, dropped in run.dropped_on.items()]
    ended = [not decisions(run)[-1].shedding for (_, mtre), run in found.shedding.items() if mtre > 0]
    claims += [
        judged(
            "Section 4.4: shedding is the last resort",
            "The strategy is changed first; shedders go on if that is not enough.",
            f"In {sum(order)} of {len(order)} runs with shedding, path capacity came before the first shedder",
            bool(order) and all(order),
            otherwise="a shedder went on under another strategy.",
        ),
        judged(
            "Section 4.4: no shedder drops more than its tolerable error, and shedding ends",
            "Tuples are dropped within MTRE, and shedders are deactivated when the goals are met.",
            f"Greatest share dropped by a shedder while it was at work, less MTRE: "
            f"{100 * max(beyond, default=0.0):+.2f} percentage points ({len(beyond)} shedders; up to "
            f"{100 * SCATTER:g} count as chance); no shedder at work at the end (in a calm) of {sum(ended)} of "
            f"{len(ended)} runs",
            bool(beyond) and max(beyond) <= SCATTER and all(ended),
            otherwise="the last burst was not worked off by the end of the run.",
        ),
    ]
    return claims


def _by_mtre(shown: Sequence[str]) -> str:
    return " → ".join(shown) + f" at MTRE {', '.join(f'{mtre:.0%}' for mtre in MTRES)}"


def of_errors(errors: Mapping[tuple[str, float], Errors]) -> list[Claim]:
    """Section 6.4."""
    levels = MTRES[1:]
    kinds = list(dict.fromkeys(kind for kind, _ in errors))
    sums = {kind: [float(errors[kind, mtre].sums.mean()) for mtre in levels] for kind in kinds}
    means = {kind: [float(errors[kind, mtre].means.mean()) for mtre in levels] for kind in kinds}
    semantic = [kind for kind in kinds if kind != "random"]
    outer = [kind for kind in semantic if kind != "centre first"]

    def shown(of: Mapping[str, list[float]], some: Sequence[str]) -> str:
        return "; ".join(f"{kind} {' / '.join(f'{error:.2%}' for error in of[kind])}" for kind in some)

    def is_greatest(of: Mapping[str, list[float]]) -> bool:
        return all(of["centre first"][i] > max(of[kind][i] for kind in outer) for i in range(len(levels)))

    within = {
        kind: all(error <= mtre + SCATTER for error, mtre in zip(sums[kind], levels, strict=True)) for kind in kinds
    }
    at = f"at MTRE {' / '.join(f'{mtre:.0%}' for mtre in levels)}"
    spread = "an end of the range holds more cars than its centre; how the thesis's data were spread is not known."
    farthest = max(float(abs(errors["random", mtre].sums / mtre - 1).max()) for mtre in levels)
    return [
        judged(
            "Section 6.4: random shedders: the error of sums is near the tolerable error",
            "Near the error tolerance limit in every window.",
            f"{shown(sums, ['random'])} {at}; the farthest window is {farthest:.1%} off the limit (up to {NEAR:.0%} is "
            "near)",
            farthest <= NEAR,
            otherwise="shedders were not at work all the time.",
        ),
        judged(
            "Section 6.4: random shedders: the error of averages is much lower",
            "Much lower than the tolerance limits. (Counted so: a tenth.)",
            f"{shown(means, ['random'])} {at}",
            all(error < mtre / 10 for error, mtre in zip(means["random"], levels, strict=True)),
            otherwise="windows hold too few tuples.",
        ),
        judged(
            "Section 6.4: of the semantic shedders, centre first has the greatest error in sums",
            "Most values lie around the mean, so most tuples are dropped there.",
            f"{shown(sums, semantic)} {at}",
            is_greatest(sums),
            otherwise=spread,
        ),
        judged(
            "Section 6.4: of the semantic shedders, centre first has the greatest error in averages",
            "The values at the centre affect the results most.",
            f"{shown(means, semantic)} {at}",
            is_greatest(means),
            otherwise="dropping around the mean leaves the mean as it is; dropping at one end moves it.",
        ),
        judged(
            "Section 6.4: lowest and highest first cause very small errors",
            "Very small: outliers stretch the range, so few tuples lie at its ends. (Counted so: 5 %.)",
            f"sums: {shown(sums, outer)}; averages: {shown(means, outer)} {at}",
            max(max(of[kind]) for of in (sums, means) for kind in outer) < 0.05,
            otherwise="no outliers stretch the range of the speeds here: many lie close to one of its ends.",
        ),
        judged(
            "Section 6.4: semantic shedders cause lower errors than random ones",
            "As expected, semantic shedders introduce lower errors.",
            f"sums: {shown(sums, kinds)}; averages: {shown(means, kinds)} {at}",
            all(of[kind][i] < of["random"][i] for of in (sums, means) for kind in semantic for i in range(len(levels))),
            otherwise="a share of the range is not that share of the tuples; and what is dropped by value biases "
            "averages, while a random choice leaves them as they are.",
        ),
        judged(
            "Section 6.5: the errors that shedders cause stay within the tolerance",
            "The error introduced by load shedders remains within the limits specified.",
            f"sums: {shown(sums, kinds)} {at} (up to {100 * SCATTER:g} percentage point more counts as chance); within:"
            f" {', '.join(kind for kind, is_within in within.items() if is_within) or 'none'}",
            all(within.values()),
            otherwise="semantic shedders drop a share of the range of the values that were seen; where values are not "
            "spread evenly over it, that is another share of the tuples.",
        ),
    ]
