"""In the cloud: an office, where somebody reads reports."""

from canoa import Canoa

app = Canoa("continuum")

GOOD = 0.92


@app.action(timeout=5)
async def report(place: str, factor: float) -> str:
    advice = "all is well" if factor >= GOOD else "a capacitor bank would pay off"
    return f"{place} runs at a power factor of {factor}: {advice}"
