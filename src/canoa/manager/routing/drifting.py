"""Weights that are uncertain, and drift: what was learnt longer ago counts for less. Pure arithmetic.

Bayesian regression by a Kalman filter. What a weight has to do with an answer may itself depend on the weights: whoever
asks linearises. An answer that is far from what was expected tells of a change rather than of chance.
"""

from __future__ import annotations

from math import sqrt
from operator import mul
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

SURPRISE: Final = 3.0
"""Standard deviations from which on an answer tells of a change. Fewer follow changes sooner, and noise too."""

NOISE_WEIGHT: Final = 0.05
"""Of the newest answer in the estimate of what chance does."""

LEAST_NOISE: Final = 0.0025
"""Variance: a model that is never wrong would never learn again."""


class Drifting:
    """`weights` and `variances`: what is believed at first. `is_level`: the first weight is a level of its subject's
    own, and a surprise is its change; otherwise it is somebody else's, and teaches nothing here."""

    __slots__ = ("_covariance", "_is_level", "_noise", "weights")

    def __init__(
        self, weights: Sequence[float], variances: Sequence[float], *, noise: float, is_level: bool = False
    ) -> None:
        self.weights = list(weights)
        self._noise = noise
        self._is_level = is_level
        places = range(len(weights))
        self._covariance = [[variances[row] if row == column else 0.0 for column in places] for row in places]

    def mean(self, features: Sequence[float]) -> float:
        return _dot(self.weights, features)

    def spread(self, features: Sequence[float], drift: float = 0.0) -> float:
        """The standard deviation of the mean. `drift`: variance that the first weight has gained meanwhile."""
        variance = drift + self._variance(features)
        return sqrt(variance) if variance > 0.0 else 0.0

    def learn(self, features: Sequence[float], error: float, *, drift: float = 0.0) -> float:
        """`error`: by how much more there was than expected. `features`: how much each weight has to do with it.
        Returns which share of the error the first weight took on."""
        self._covariance[0][0] += drift
        gain = self._gain(features)
        variance = _dot(gain, features)
        if error * error <= SURPRISE * SURPRISE * (variance + self._noise):
            self._noise += NOISE_WEIGHT * (error * error - variance - self._noise)
            self._noise = max(LEAST_NOISE, self._noise)
        elif self._is_level:
            self._covariance[0][0] += error * error
            gain = self._gain(features)
            variance = _dot(gain, features)
        else:
            return 0.0
        return self._take(gain, error, variance + self._noise)

    def _variance(self, features: Sequence[float]) -> float:
        if len(features) == 2:  # of every node that is looked at: written out, it takes a quarter of the time
            (of_first, shared), (_, of_second) = self._covariance
            first, second = features
            return first * first * of_first + 2 * first * second * shared + second * second * of_second
        return _dot(self._gain(features), features)

    def _gain(self, features: Sequence[float]) -> list[float]:
        return [_dot(row, features) for row in self._covariance]

    def _take(self, gain: list[float], error: float, total: float) -> float:
        for row, covariances in enumerate(self._covariance):
            share = gain[row] / total
            self.weights[row] += share * error
            for column, other in enumerate(gain):
                covariances[column] -= share * other
        return gain[0] / total


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    product: float = sum(map(mul, one, other))
    return product
