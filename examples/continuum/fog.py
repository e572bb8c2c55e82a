"""In the fog: a gateway of the plant, which computes, so that only a number goes on. It can read the meter, too."""

import math

from canoa import Canoa
from examples.continuum import meter
from examples.continuum.samples import Samples

app = Canoa("continuum")

fetch_data = app.action(timeout=5, retry=3, placement=meter.NEAR)(meter.fetch_data)


@app.action(timeout=5)
def power_factor(data: Samples) -> float:
    """Real power over apparent power."""
    real = _mean([volt * amp for volt, amp in zip(data.volts, data.amps, strict=True)])
    apparent = _rms(data.volts) * _rms(data.amps)
    return round(real / apparent, 3)


def _rms(values: list[float]) -> float:
    return math.sqrt(_mean([value * value for value in values]))


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
