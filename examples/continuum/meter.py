"""How a meter is read: beside it if possible, and else from the gateway, over a longer line."""

import json
import urllib.request

from canoa import Layer, Placement
from examples.continuum.samples import Samples

NEAR = Placement(layers=(Layer.EDGE, Layer.FOG))


def fetch_data(url: str) -> Samples:
    with urllib.request.urlopen(url, timeout=3) as answer:
        return Samples(**json.load(answer))
