"""What a client counts. Plain integers, read by `worker/metrics.py`'s collector or by the program itself."""

from __future__ import annotations


class ClientMetrics:
    """`duplicates`: results that came after the first one for their task, or for nobody. `refused`: bundles of results
    that cannot be read."""

    def __init__(self) -> None:
        self.duplicates = 0
        self.refused = 0


METRICS = ClientMetrics()
