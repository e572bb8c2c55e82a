"""At the edge: a node beside the meter, which reads it."""

from canoa import Canoa
from examples.continuum import meter

app = Canoa("continuum")

fetch_data = app.action(timeout=5, retry=3, placement=meter.NEAR)(meter.fetch_data)
