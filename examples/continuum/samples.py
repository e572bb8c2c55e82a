"""What a meter measures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Samples:
    """One period of voltage and current, sampled at the same moments."""

    place: str
    volts: list[float]
    amps: list[float]
