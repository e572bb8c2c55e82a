"""The plan: what is done, and what each step gets. Where it is done is up to the managers."""

from __future__ import annotations

from canoa import Canoa
from examples.continuum.cloud import report
from examples.continuum.edge import fetch_data
from examples.continuum.fog import power_factor

app = Canoa("continuum")

plan = app.plan("power-factor")
data = plan.step(fetch_data, url=plan.input["url"])
factor = plan.step(power_factor, data)
plan.step(report, data["place"], factor)
