"""At the edge: a node beside the meter, which reads it."""

import json
import urllib.request

from canoa import Canoa
from examples.continuum.samples import Samples

app = Canoa("continuum")


@app.action(timeout=5, retry=3)
def fetch_data(url: str) -> Samples:
    with urllib.request.urlopen(url, timeout=3) as answer:
        return Samples(**json.load(answer))
