"""What a controller may meet in a real engine: measurements that are late, or wrong. They wrap any controller."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np

from streamshed.control import Controller, HoldingController, LoadSample, Outlook, Release
from streamshed.load import Admission


class _Measurement:
    """Changes the cost that a sample tells, and nothing else in it."""

    def __init__(self, lag: int, noise: float, seed: int) -> None:
        self._costs_s: deque[float] = deque(maxlen=lag + 1)
        self._noise = noise
        self._random = np.random.default_rng([seed, lag])

    def __call__(self, sample: LoadSample) -> LoadSample:
        if sample.cost_s is None:
            return sample
        self._costs_s.append(sample.cost_s * float(np.exp(self._noise * self._random.standard_normal())))
        return replace(sample, busy_s=self._costs_s[0] * sample.departed)


class _Disturbed(Controller):
    def __init__(self, inner: Controller, measurement: _Measurement) -> None:
        self._inner = inner
        self._measurement = measurement

    @property
    def target_s(self) -> float:
        return self._inner.target_s

    @target_s.setter
    def target_s(self, value: float) -> None:
        self._inner.target_s = value

    def observe(self, sample: LoadSample) -> None:
        self._inner.observe(self._measurement(sample))

    def admit(self, outlook: Outlook) -> Admission:
        return self._inner.admit(outlook)


class _DisturbedHolding(_Disturbed, HoldingController):
    def admit(self, outlook: Outlook) -> Release:
        release = self._inner.admit(outlook)
        assert isinstance(release, Release)
        return release


def disturbed(controller: Controller, *, lag: int = 0, noise: float = 0.0, seed: int = 0) -> Controller:
    """A controller that hears of costs late or wrongly.

    Args:
        controller: the one that decides.
        lag: it hears of the cost so many periods late.
        noise: standard deviation of the logarithm of the factor by which the cost is off.
        seed: of the noise.
    """
    if lag == 0 and noise == 0:
        return controller
    kind = _DisturbedHolding if isinstance(controller, HoldingController) else _Disturbed
    return kind(controller, _Measurement(lag, noise, seed))
